# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle report`: claims, figures and records as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import check_folder, err, examples, out
from shingle.machine.progress import Terminal
from shingle.paths import BUILD, put_whole


@click.command("report", epilog=examples("report", "report --record mine.jsonl -o mine.html"))
@click.option(
    "--record", "record_files", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of these records instead of those in results/. May be given more than once.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=BUILD / "report.html",
    help="Where to; build/report.html if not given.",
)  # fmt: skip
def command(record_files: tuple[Path, ...], output: Path) -> None:
    """Write claims, figures and records as one HTML file that needs no network. Nothing is run."""
    # Only here: figures take seconds to draw.
    from shingle.evidence import report

    check_folder(output.parent)
    with Terminal(err) as progress, progress.task("drawing the report") as tell:
        page = report.html(record_files, tell)
    put_whole(output, page.encode())
    out.print(f"report: {output}", markup=False, soft_wrap=True)

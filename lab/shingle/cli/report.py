# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle report`: claims, figures and records as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import examples, out
from shingle.paths import BUILD


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

    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(report.html(record_files))
    out.print(f"report: {output}", markup=False, soft_wrap=True)

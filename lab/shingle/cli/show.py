# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle show`: files of records as tables, as CSV or as a figure."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import check_folder, examples, out, wide_option
from shingle.evidence import own, table
from shingle.failure import Failure
from shingle.runs import record


@click.command(
    "show", epilog=examples("show mine.jsonl", "show mine.jsonl --csv >mine.csv", "show mine.jsonl --figure mine")
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--csv", "as_csv", is_flag=True, help="As CSV: a line for each phase, a column for each field.")
@click.option("--figure", "stem", type=click.Path(path_type=Path), help="Draw FIGURE.svg and FIGURE.png, too.")
@wide_option
def command(files: tuple[Path, ...], as_csv: bool, stem: Path | None, wide: bool) -> None:
    """Show the records of FILE, of whichever command, as the table that the run ended with. Nothing is run."""
    records = [each for path in files for each in record.read(path)]
    if not records:
        raise Failure(f"{', '.join(map(str, files))}: no records.", status=2)
    if stem is not None:
        check_folder(stem.parent)
        own.draw(records, stem)
    if as_csv:
        out.file.write(own.as_csv(records))
        return
    for title, same in own.runs_side_by_side(records):
        out.print(title, soft_wrap=True)
        table.show(out, same, phases=own.phases(same), wide=wide)
        out.print()
    if stem is not None:
        out.print(f"figure: {stem}.svg and .png", soft_wrap=True)

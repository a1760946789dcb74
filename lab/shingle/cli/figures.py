# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle figures`: the papers' figures from the records."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import check_folder, err, examples, out
from shingle.evidence import figures
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.paths import BUILD
from shingle.runs import experiment
from shingle.runs.record import NotRecorded


@click.command("figures", epilog=examples("figures", "figures e11 e14 --folder docs/figures"))
@click.argument("names", metavar="[EXPERIMENT]...", nargs=-1)
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=BUILD / "figures",
    help="Where to; build/figures if not given.",
)  # fmt: skip
def command(names: tuple[str, ...], folder: Path) -> None:
    """Redraw the papers' figures from the records in results/, as SVG and PNG. Nothing is run."""
    drawn = 0
    check_folder(folder)
    for chosen in figures.drawn_by(names):
        try:
            with Terminal(err) as progress, progress.task(chosen.name):
                stem = figures.draw(chosen, folder, experiment.records_of(chosen))
        except NotRecorded as missing:
            err.print(f"{missing}", markup=False, soft_wrap=True)
            continue
        drawn += 1
        out.print(f"{stem}.svg and .png", markup=False, soft_wrap=True)
    if not drawn:
        raise Failure("nothing was drawn.")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle draw`: one experiment's figure from a file of records."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import check_folder, err, examples, out
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.runs import experiment, record


@click.command("draw", epilog=examples("draw e10 results/e10.jsonl docs/figures/log-space"))
@click.argument("name")
@click.argument("records", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("stem", type=click.Path(path_type=Path))
def command(name: str, records: Path, stem: Path) -> None:
    """Draw an experiment's figure from its records: STEM.svg and STEM.png."""
    chosen = experiment.find(name)
    if chosen.draw is None:
        raise Failure(f"{chosen.name} has no figure of its own.", status=2)
    check_folder(stem.parent)
    with Terminal(err) as progress, progress.task(chosen.name):
        chosen.draw(record.read(records), stem)
    out.print(f"{stem}.svg and {stem}.png", soft_wrap=True)

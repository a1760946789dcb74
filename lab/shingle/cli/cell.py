# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle cell`: one cell of an experiment, as the workflow runs it."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import SEED, err, examples, out
from shingle.evidence import table
from shingle.machine.progress import Terminal
from shingle.runs import experiment, matrix


@click.command("cell", epilog=examples("cell e11 wd5000ys_ext4-lazy_makedirs --scale 0.1 --seed 1 --record x.jsonl"))
@click.argument("experiment_name", metavar="EXPERIMENT")
@click.argument("name", metavar="CELL")
@click.option("--scale", type=float, help="The experiment's own if not given.")
@click.option("--seed", type=SEED, default=1, show_default=True)
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path), required=True,
    help="The file of its records, one line for each phase; it appears whole or not at all.",
)  # fmt: skip
def command(experiment_name: str, name: str, scale: float | None, seed: int, record_file: Path) -> None:
    """Run one cell of an experiment, unless FILE holds its records already (`./shingle cells` lists them)."""
    chosen = experiment.find(experiment_name)
    size = chosen.scale if scale is None else scale
    with Terminal(err) as progress:
        done = matrix.perform(
            chosen,
            name,
            scale=size,
            seed=seed,
            record_file=record_file,
            progress=progress,
        )
    table.show(out, done.records, phases=done.run.plan.phases)
    if done.recorded_before:
        out.print("recorded before, by the same programs with the same configuration", soft_wrap=True)
    out.print(f"records: {record_file}", soft_wrap=True)

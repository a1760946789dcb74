# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle matrix`, `cells` and `cell`: sets of experiments, cell by cell (docs/experiments.md)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
from rich.console import Console

from shingle.build import build
from shingle.cli.help_text import examples
from shingle.evidence import table
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.runs import experiment, matrix, record, run

_out = Console(highlight=False)
_err = Console(stderr=True, highlight=False)


scale_option = click.option(
    "--scale", type=float, help="Of the workloads; 1 is the paper's size. The set's own if not given."
)
seeds_option = click.option(
    "--seeds", type=click.IntRange(1, 100), help="With seeds 1 to N. The set's own if not given."
)
only_option = click.option("--only", metavar="EXPERIMENT,...", help="Only these of the set.")


def _matrix(name: str, scale: float | None, seeds: int | None, only: str | None) -> matrix.Matrix:
    names = [each.strip() for each in (only or "").split(",") if each.strip()]
    return matrix.matrix(matrix.find(name), scale=scale, seeds=seeds, only=names)


@click.command(
    "matrix",
    epilog=examples(
        "matrix paper",
        "matrix paper --scale 0.1 --seeds 1 --jobs 2",
        "matrix field",
        "matrix paper --only e11,e14 --dry-run",
        "matrix paper --profile slurm --dry-run",
        "matrix field -- --until cell",
    ),
)
@click.argument("name", metavar="SET")
@scale_option
@seeds_option
@only_option
@click.option("--jobs", type=click.IntRange(1), help="Cells at a time: 1 at the paper's size, else 2; a profile's own.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Of the records; records/SET-SCALE if not given."
)
@click.option("--profile", "profile_name", help="Where cells run: a name of workflow/profiles, or a folder (x/y).")
@click.option("--dry-run", is_flag=True, help="Say what would be run.")
@click.argument("more", nargs=-1)
def matrix_command(
    name: str,
    scale: float | None,
    seeds: int | None,
    only: str | None,
    jobs: int | None,
    folder: Path | None,
    profile_name: str | None,
    dry_run: bool,
    more: tuple[str, ...],
) -> None:
    """Run a set of experiments, each cell a process of its own: `paper`, `varied` or `field`.

    Ctrl-C stops; the same command goes on where it stopped. What follows -- goes to Snakemake, which does the work.
    """
    wanted = _matrix(name, scale, seeds, only)
    profile = None if profile_name is None else matrix.profile_folder(profile_name)
    target = (folder or matrix.FOLDER / f"{wanted.chosen.name}-{wanted.scale:g}").resolve()
    argv = matrix.command(wanted, target, jobs=jobs, profile=profile, dry_run=dry_run, more=more)
    for note in wanted.notes:
        _out.print(note, soft_wrap=True)
    with Terminal(_err) as progress:
        build.everything(progress=progress)
    if dry_run:
        raise SystemExit(matrix.snakemake(argv))
    with matrix.alone(target):
        status = matrix.snakemake(argv)
        lacking = matrix.missing(wanted, target)
    counted = f"{len(lacking)} of {len(wanted.cells)} cells have no record"
    if status != 0:
        raise Failure(f"{counted}: Snakemake says why, and each in its NAME.log. The same command tries again.")
    if lacking:
        # Snakemake was asked for less.
        _out.print(f"{counted} yet", soft_wrap=True)
        return
    for each in wanted.experiments:
        joined = target / f"{each.number}.jsonl"
        _out.print(f"records: {joined}", soft_wrap=True)
        if each.tables is not None:
            for shown in each.tables(record.read(joined)):
                table.put(_out, shown)


@click.command("cells", epilog=examples("cells paper --scale 0.1 --seeds 1", "cells field --json"))
@click.argument("name", metavar="SET")
@scale_option
@seeds_option
@only_option
@click.option("--json", "as_json", is_flag=True, help="As the workflow reads it, with the key of each; builds first.")
def cells_command(name: str, scale: float | None, seeds: int | None, only: str | None, as_json: bool) -> None:
    """List the cells of a set, and how each is run by hand."""
    wanted = _matrix(name, scale, seeds, only)
    if as_json:
        with Terminal(_err) as progress:
            built = build.everything(progress=progress)
        described = [
            {
                "number": each.experiment.number,
                "name": each.name,
                "record": each.record,
                "joined": each.joined,
                "mem_mb": matrix.megabytes(each.run.memory_mib + run.RESERVE_MIB),
                "key": run.key_of(built, each.run),
            }
            for each in wanted.cells
        ]
        _out.out(json.dumps(described, indent=1), highlight=False)
        return
    for each in wanted.cells:
        line = ["./shingle", "cell", each.experiment.number, each.name, "--scale", str(each.scale)]
        _out.print(shlex.join([*line, "--seed", str(each.seed), "--record", "FILE"]), markup=False, soft_wrap=True)
    for note in wanted.notes:
        _err.print(note, soft_wrap=True)


@click.command("cell", epilog=examples("cell e11 wd5000ys_ext4-lazy_makedirs --scale 0.1 --seed 1 --record x.jsonl"))
@click.argument("experiment_name", metavar="EXPERIMENT")
@click.argument("name", metavar="CELL")
@click.option("--scale", type=float, help="The experiment's own if not given.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path), required=True,
    help="The file of its records, one line for each phase; it appears whole or not at all.",
)  # fmt: skip
def cell_command(experiment_name: str, name: str, scale: float | None, seed: int, record_file: Path) -> None:
    """Run one cell of an experiment, unless FILE holds its records already (`./shingle cells` lists them)."""
    chosen = experiment.find(experiment_name)
    with Terminal(_err) as progress:
        done = matrix.perform(
            chosen, name, scale=scale or chosen.scale, seed=seed, record_file=record_file, progress=progress
        )
    table.show(_out, done.records, phases=done.run.plan.phases)
    if done.recorded_before:
        _out.print("recorded before, by the same programs with the same configuration", soft_wrap=True)
    _out.print(f"records: {record_file}", soft_wrap=True)


COMMANDS = (matrix_command, cells_command, cell_command)

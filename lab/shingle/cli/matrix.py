# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle matrix`: sets of experiments, cell by cell (docs/reference/experiments.md)."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.build import build
from shingle.cli.base import comma_separated, err, examples, out
from shingle.evidence import table
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.runs import matrix, record

scale_option = click.option(
    "--scale", type=float, help="Of the workloads; 1 is the paper's size. The set's own if not given."
)
seeds_option = click.option(
    "--seeds", type=click.IntRange(1, 100), help="With seeds 1 to N. The set's own if not given."
)
only_option = click.option("--only", metavar="EXPERIMENT,...", help="Only these of the set.")


def wanted_matrix(name: str, scale: float | None, seeds: int | None, only: str | None) -> matrix.Matrix:
    return matrix.matrix(matrix.find(name), scale=scale, seeds=seeds, only=comma_separated(only or ""))


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
def command(
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
    wanted = wanted_matrix(name, scale, seeds, only)
    profile = None if profile_name is None else matrix.profile_folder(profile_name)
    target = (folder or matrix.FOLDER / f"{wanted.chosen.name}-{wanted.scale:g}").resolve()
    argv = matrix.command(wanted, target, jobs=jobs, profile=profile, dry_run=dry_run, more=more)
    for note in wanted.notes:
        out.print(note, soft_wrap=True)
    with Terminal(err) as progress:
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
        out.print(f"{counted} yet", soft_wrap=True)
        return
    for each in wanted.experiments:
        joined = target / f"{each.number}.jsonl"
        out.print(f"records: {joined}", soft_wrap=True)
        if each.tables is not None:
            for shown in each.tables(record.read(joined)):
                table.put(out, shown)

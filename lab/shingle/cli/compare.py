# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle compare`: the same workload on several file systems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from shingle.catalogue import drive, workload
from shingle.catalogue import fs as file_systems
from shingle.cli.base import DRIVE, FILE_SYSTEMS, SEED, WORKLOADS, comma_separated, examples, host_options
from shingle.cli.perform import Options, options, perform, resume_option
from shingle.runs import run

_GIB = 1 << 30


@click.command(
    "compare",
    epilog=examples(
        "compare --drive st8000as0002 --fs ext4-10g,ext4-lazy --workload MakeDirs --scale 0.1",
        "compare --drive wd5000ys --fs ext4,xfs,btrfs --workload CreateFiles,FindFiles --scale 0.01",
        "compare --drive mine.toml --fs ext4,f2fs --workload mine.fio --scale 1 --seeds 3 --record mine.jsonl --resume",
    ),
)
@click.option(
    "--drive", "drive_name", required=True, type=DRIVE,
    help="A name that `./shingle drives` lists, or a profile: x.toml.",
)  # fmt: skip
@click.option("--fs", "fs_names", required=True, type=FILE_SYSTEMS, help="File systems, separated by commas.")
@click.option("--workload", "workload_names", required=True, type=WORKLOADS, help="Workloads, separated by commas.")
@click.option("--scale", type=float, default=0.01, show_default=True, help="1 is the paper's size.")
@click.option("--seed", type=SEED, default=1, show_default=True, help="The same seed, the same bytes.")
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Repeat with N seeds from it on."
)
@click.option("--capacity-gib", type=click.IntRange(1), help="A smaller drive of the same kind.")
@host_options
@click.option(
    "--faults", "fault_plan", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What goes wrong in the drive: a plan as TOML (docs/reference/faults.md).",
)  # fmt: skip
@click.option(
    "--latency/--no-latency", default=None,
    help="Measure each call of a load, which costs it 256 ns twice. If neither is given: of what runs for a time.",
)  # fmt: skip
@click.option("--aged", is_flag=True, help="On file systems that have been used (docs/reference/records.md).")
@resume_option
@options
def command(
    drive_name: str,
    fs_names: str,
    workload_names: str,
    scale: float,
    seed: int,
    seeds: int,
    capacity_gib: int | None,
    fault_plan: Path | None,
    latency: bool | None,
    aged: bool,
    record_file: Path | None,
    figure_folder: Path | None,
    jobs: int | None,
    wide: bool,
    resume: bool,
    **host: int,
) -> None:
    """Run the same workload on several file systems, side by side."""
    asked = Options(record_file, figure_folder, jobs, wide, resume)
    plan = workload.plan(comma_separated(workload_names), scale=scale, seed=seed)
    plan = replace(plan, latency=plan.timed if latency is None else latency)
    capacity = None if capacity_gib is None else capacity_gib * _GIB
    age = drive.Age() if aged else None
    cells = []
    for each in range(seed, seed + seeds):
        same = run.cells(drive_name, comma_separated(fs_names), replace(plan, seed=each), capacity_bytes=capacity)
        cells += [replace(cell, age=age, faults=fault_plan, **host) for cell in same]  # type: ignore[arg-type]
    for cell in cells if aged else []:
        file_systems.check_can_age(cell.variant, host_managed=drive.is_host_managed(cell.profile))
    perform(cells, plan.phases, asked)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle compare`: the same workload on several file systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from shingle.catalogue import drive, workload
from shingle.catalogue import fs as file_systems
from shingle.cli.base import SEED, comma_separated, examples, figure_option, record_option, wide_option
from shingle.cli.perform import perform
from shingle.runs import run

_GIB = 1 << 30
_Command = Callable[..., None]


def host_options(command: _Command) -> _Command:
    """An option of the command line for each that a run's simulated host has."""
    for each in reversed(run.host_options()):
        values = click.IntRange(each.metadata["least"], each.metadata["most"])
        option = click.option(
            f"--{each.name.replace('_', '-')}", type=values, default=each.default,
            show_default=True, help=each.metadata["help"],
        )  # fmt: skip
        command = option(command)
    return command


@click.command(
    "compare",
    epilog=examples(
        "compare --drive st8000as0002 --fs ext4-10g,ext4-lazy --workload MakeDirs --scale 0.1",
        "compare --drive wd5000ys --fs ext4,xfs,btrfs --workload CreateFiles,FindFiles --scale 0.01",
    ),
)
@click.option(
    "--drive", "drive_name", required=True, help="A name that `./shingle drives` lists, or a profile: x.toml."
)
@click.option("--fs", "fs_names", required=True, help="File systems, separated by commas.")
@click.option("--workload", "workload_names", required=True, help="Workloads, separated by commas.")
@click.option("--scale", type=float, default=0.01, show_default=True, help="1 is the paper's size.")
@click.option("--seed", type=SEED, default=1, show_default=True, help="The same seed, the same bytes.")
@click.option("--capacity-gib", type=click.IntRange(1), help="A smaller drive of the same kind.")
@host_options
@click.option(
    "--faults", "fault_plan", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What goes wrong in the drive: a plan as TOML (docs/reference/faults.md).",
)  # fmt: skip
@click.option("--aged", is_flag=True, help="On file systems that have been used (docs/reference/records.md).")
@record_option
@figure_option
@wide_option
def command(
    drive_name: str,
    fs_names: str,
    workload_names: str,
    scale: float,
    seed: int,
    capacity_gib: int | None,
    fault_plan: Path | None,
    aged: bool,
    record_file: Path | None,
    figure_folder: Path | None,
    wide: bool,
    **host: int,
) -> None:
    """Run the same workload on several file systems, side by side."""
    plan = workload.plan(comma_separated(workload_names), scale=scale, seed=seed)
    capacity = None if capacity_gib is None else capacity_gib * _GIB
    cells = run.cells(drive_name, comma_separated(fs_names), plan, capacity_bytes=capacity)
    age = drive.Age() if aged else None
    for cell in cells if aged else []:
        file_systems.check_can_age(cell.variant, host_managed=drive.is_host_managed(cell.profile))
    cells = [replace(cell, age=age, faults=fault_plan, **host) for cell in cells]  # type: ignore[arg-type]
    perform(cells, record_file, figure_folder, plan.phases, wide=wide)

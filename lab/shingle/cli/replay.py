# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle replay`: a trace, played to a drive."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.catalogue import drive
from shingle.cli.base import SEED, examples
from shingle.cli.drive_tool import common_options, run_tool


@click.command("replay", epilog=examples("replay x.trace --drive st8000as0002", "replay blkparse.txt --drive wd5000ys"))
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--drive", "drive_name", required=True, help="A name that `./shingle drives` lists.")
@click.option("--seed", type=SEED, default=1, show_default=True)
@click.option("--new", is_flag=True, help="A factory-new drive; otherwise every band was written before.")
@click.option("--trace-out", type=click.Path(dir_okay=False, path_type=Path), help="Write the new trace here.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Add JSON lines to this file.")
def command(trace: Path, drive_name: str, seed: int, new: bool, trace_out: Path | None, record: Path | None) -> None:
    """Play a trace to a drive, without the machine: ours, or text of blkparse (docs/reference/trace-format.md)."""
    options: list[str | Path] = [] if trace_out is None else ["--trace-out", trace_out]
    run_tool("replay", "--profile", drive.find(drive_name).path, *options, *common_options(seed, new, record), trace)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle record-build`: a build as a trace."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.catalogue import build_trace
from shingle.cli.base import examples, out


@click.command("record-build", epilog=examples("record-build -o traces/kernel-build.xz TREE -- make modules"))
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("command", nargs=-1, required=True)
@click.option(
    "-o", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Where to; compressed by xz."
)
def command(tree: Path, command: tuple[str, ...], target: Path) -> None:
    """Run COMMAND in TREE, and keep what it does to the tree's files (docs/reference/build-traces.md)."""
    trace = build_trace.record(tree, command, target)
    out.print(f"{target}: {len(trace.tree)} names before, {len(trace.jobs)} jobs", soft_wrap=True)

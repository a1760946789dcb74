# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle cells`: the cells of a set of experiments."""

from __future__ import annotations

import json
import shlex

import click

from shingle.build import build
from shingle.cli.base import err, examples, out
from shingle.cli.matrix import only_option, scale_option, seeds_option, wanted_matrix
from shingle.machine.progress import Terminal
from shingle.runs import matrix, run


@click.command("cells", epilog=examples("cells paper --scale 0.1 --seeds 1", "cells field --json"))
@click.argument("name", metavar="SET")
@scale_option
@seeds_option
@only_option
@click.option("--json", "as_json", is_flag=True, help="As the workflow reads it, with the key of each; builds first.")
def command(name: str, scale: float | None, seeds: int | None, only: str | None, as_json: bool) -> None:
    """List the cells of a set, and how each is run by hand."""
    wanted = wanted_matrix(name, scale, seeds, only)
    if as_json:
        with Terminal(err) as progress:
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
        out.out(json.dumps(described, indent=1), highlight=False)
        return
    for each in wanted.cells:
        line = ["./shingle", "cell", each.experiment.number, each.name, "--scale", str(each.scale)]
        out.print(shlex.join([*line, "--seed", str(each.seed), "--record", "FILE"]), markup=False, soft_wrap=True)
    for note in wanted.notes:
        err.print(note, soft_wrap=True)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle run`: an experiment and its claim."""

from __future__ import annotations

from typing import Any

import click

from shingle.cli.base import EXPERIMENT, examples, out
from shingle.cli.perform import Options, experiment_and_claim, options, resume_option
from shingle.runs import experiment


@click.command("run", epilog=examples("run e01", "run e11 --scale 0.1 --seeds 5 --record results/e11.jsonl"))
@click.argument("name", metavar="EXPERIMENT", type=EXPERIMENT)
@click.option("--scale", type=float, help="Of the workload; 1 is the paper's size. The experiment's own if not given.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Repeat with seeds 1 to N.")
@resume_option
@options
def command(name: str, scale: float | None, seeds: int, **more: Any) -> None:
    """Run an experiment (a file below experiments/) and check its claim.

    Records are written as each run ends: a stopped experiment goes on with --resume.
    """
    asked = Options(**more)
    chosen = experiment.find(name)
    out.print(f"{chosen.name}: {chosen.claim}", soft_wrap=True)
    experiment_and_claim(chosen, chosen.scale if scale is None else scale, range(1, seeds + 1), asked)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle run`: an experiment and its claim."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import examples, figure_option, out, record_option, wide_option
from shingle.cli.perform import experiment_and_claim
from shingle.failure import Failure
from shingle.runs import experiment


@click.command("run", epilog=examples("run e01", "run e11 --scale 0.1 --seeds 5 --record results/e11.jsonl"))
@click.argument("name", metavar="EXPERIMENT")
@click.option("--scale", type=float, help="Of the workload; 1 is the paper's size. The experiment's own if not given.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Repeat with seeds 1 to N.")
@record_option
@click.option("--resume", is_flag=True, help="Run only what the file of records does not hold yet.")
@figure_option
@wide_option
def command(
    name: str,
    scale: float | None,
    seeds: int,
    record_file: Path | None,
    resume: bool,
    figure_folder: Path | None,
    wide: bool,
) -> None:
    """Run an experiment (a file below experiments/) and check its claim.

    Records are written as each run ends: a stopped experiment goes on with --resume.
    """
    if resume and (record_file is None or figure_folder is not None):
        raise Failure("--resume needs the file of records (--record), and cannot draw what is not run again.", status=2)
    chosen = experiment.find(name)
    out.print(f"{chosen.name}: {chosen.claim}", soft_wrap=True)
    size = chosen.scale if scale is None else scale
    experiment_and_claim(chosen, record_file, figure_folder, size, range(1, seeds + 1), resume=resume, wide=wide)

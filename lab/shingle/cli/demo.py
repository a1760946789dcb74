# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle demo`: the first experiment, with its figure."""

from __future__ import annotations

from pathlib import Path

import click

from shingle.cli.base import examples, figure_option, out, record_option, wide_option
from shingle.cli.perform import experiment_and_claim
from shingle.paths import BUILD
from shingle.runs import experiment


@click.command("demo", epilog=examples("demo", "demo --record demo.jsonl --figure figures"))
@record_option
@figure_option
@wide_option
def command(record_file: Path | None, figure_folder: Path | None, wide: bool) -> None:
    """Show what journal_lazy saves on an 8 TB shingled disk, in a few minutes."""
    chosen = experiment.find("e01")
    out.print(
        "MakeDirs, RemoveDirs, Postmark and the unmount on a simulated Seagate ST8000AS0002 (8 TB,", soft_wrap=True
    )
    out.print("drive-managed SMR): ext4 as it comes, with a 10 GiB journal, and with journal_lazy.", soft_wrap=True)
    experiment_and_claim(chosen, record_file, figure_folder or BUILD / "demo", chosen.scale, (1,), wide=wide)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle demo`: the first experiment, with its figure."""

from __future__ import annotations

from typing import Any

import click

from shingle.cli.base import examples, out
from shingle.cli.perform import Options, experiment_and_claim, options
from shingle.paths import BUILD
from shingle.runs import experiment


@click.command("demo", epilog=examples("demo", "demo --record demo.jsonl --figure figures"))
@options
def command(**more: Any) -> None:
    """Show what journal_lazy saves on an 8 TB shingled disk, in a few minutes."""
    chosen = experiment.find("e01")
    out.print(
        "MakeDirs, RemoveDirs, Postmark and the unmount on a simulated Seagate ST8000AS0002 (8 TB,", soft_wrap=True
    )
    out.print("drive-managed SMR): ext4 as it comes, with a 10 GiB journal, and with journal_lazy.", soft_wrap=True)
    asked = Options(**(more | {"figure_folder": more["figure_folder"] or BUILD / "demo"}))
    experiment_and_claim(chosen, chosen.scale, (1,), asked)

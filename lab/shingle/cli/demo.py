# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle demo`: the first experiment, with its figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from shingle.cli.base import examples, out
from shingle.cli.perform import Options, experiment_and_claim, options
from shingle.paths import BUILD
from shingle.runs import experiment, record
from shingle.runs.record import Record


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
    records = experiment_and_claim(chosen, chosen.scale, (1,), asked)
    out.print(gain(records, chosen.phases), style="bold", soft_wrap=True)


def gain(records: Sequence[Record], phases: Sequence[str]) -> str:
    """What the demo shows, in a sentence: all phases together, with journal_lazy and with the same journal without."""

    def spent(file_system: str, field: str) -> float:
        return sum(float(record.cell(records, file_system, phase)[field]) for phase in phases)

    (lazy, cleaned), (plain, to_clean) = (
        (spent(name, "virtual_s"), spent(name, "cleaning_s")) for name in ("ext4-lazy", "ext4-10g")
    )
    return (
        f"In all: with journal_lazy {lazy:,.0f} s, without {plain:,.0f} s, {plain / lazy:.1f} times as fast;"
        f" afterwards the drive cleaned for {cleaned:,.0f} s, without for {to_clean:,.0f} s."
    )

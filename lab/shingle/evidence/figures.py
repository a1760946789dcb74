# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle figures`: what experiments draw of their records. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shingle.runs import experiment
from shingle.runs.experiment import Experiment
from shingle.runs.record import NotRecorded, Record


def drawn_by(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, or all; those that have a figure of their own."""
    every = [experiment.find(name) for name in names] if names else experiment.all_of_them()
    return [each for each in every if each.draw is not None or names]


def draw(chosen: Experiment, folder: Path, records: Sequence[Record]) -> Path:
    """Draws one into the folder, and returns the path without its suffix; raises NotRecorded where records lack."""
    if chosen.draw is None:
        raise NotRecorded(f"{chosen.name} has no figure of its own: its runs are drawn with --figure.")
    if not records:
        raise NotRecorded(f"{chosen.name} has no records: `./shingle run {chosen.number} --record FILE` makes them.")
    stem = folder / chosen.name
    try:
        chosen.draw(records, stem)
    except NotRecorded as missing:
        raise NotRecorded(f"{chosen.name} is not drawn: {missing}") from None
    return stem

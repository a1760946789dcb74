# SPDX-License-Identifier: MIT OR Apache-2.0
"""What journal_lazy saves, over the range of what nobody knows about the drive and its host.

The drive's map of the persistent cache holds 180,000 entries in public logs and 250,000 in Skylight; its idle time
before cleaning is not public; what a system call costs was calibrated to one host (docs/design/determinism.md). A
result that holds only in the middle of these ranges is no result.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, drive, machine, run, workload

DRIVE = "st8000as0002"
FILE_SYSTEMS = ("ext4-10g", "ext4-lazy")
CHANGES = (
    ("translation.cache_entries", 250_000),
    ("translation.idle", 0.3),
    ("translation.idle", 5.0),
)
CPU_COSTS = (0.5, 2.0)
PHASE = "MakeDirs"
SCALE = 0.1


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((PHASE,), scale=scale, seed=seed)
    middle = drive.find(DRIVE)
    cells = run.cells(middle, FILE_SYSTEMS, plan)
    for key, value in CHANGES:
        cells += run.cells(drive.changed(middle, key, value), FILE_SYSTEMS, plan)
    for factor in CPU_COSTS:
        costs = {"name_ns": int(machine.DEFAULT_NAME_NS * factor), "call_ns": int(machine.DEFAULT_CALL_NS * factor)}
        cells += [replace(cell, **costs) for cell in run.cells(middle, FILE_SYSTEMS, plan)]
    return cells


def pairs(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The two file systems under each setting."""
    made = [record for record in records if record["phase"] == PHASE]
    found = list(zip(made[::2], made[1::2], strict=True))
    for baseline, lazy in found:
        assert baseline["file_system"] == "ext4-10g" and lazy["file_system"] == "ext4-lazy"
        assert baseline["drive"] == lazy["drive"]
    return found


def lazy_leaves_next_to_nothing(records: Sequence[Record]) -> bool:
    return all(
        lazy["metadata_written_bytes"] == 0 and lazy["bands_cleaned"] <= 4 and lazy["cleaning_s"] <= 5 + idle_s(lazy)
        for _, lazy in pairs(records)
    )


def idle_s(record: Record) -> float:
    """The drive's idle time is part of the time until it has cleaned."""
    for key, value in CHANGES:
        if key == "translation.idle" and record["drive"].endswith(f"-idle-{value:g}"):
            return value
    return 0.0


def lazy_saves_everywhere(records: Sequence[Record]) -> bool:
    """Run and cleaning together."""
    return all(busy_s(base) > 2 * busy_s(lazy) for base, lazy in pairs(records))


def setting(record: Record) -> str:
    """What is changed in this run, in words."""
    for key, value in CHANGES:
        if record["drive"].endswith(f"-{key.split('.')[-1]}-{value:g}"):
            return f"a map of {value:,} entries" if key.endswith("entries") else f"{value:g} s idle before cleaning"
    cost = record["configuration"]["name_ns"] / machine.DEFAULT_NAME_NS
    return "nothing changed" if cost == 1 else f"computing costs {cost:g} times as much"


def draw(records: Sequence[Record], stem: Path) -> None:
    ratios: dict[str, list[float]] = {}
    for base, lazy in pairs(records):
        ratios.setdefault(setting(base), []).append(busy_s(base) / busy_s(lazy))
    shown = [bars.Bar(label, tuple(values)) for label, values in ratios.items()]
    bars.draw([bars.Panel("MakeDirs and its cleaning: ext4-lazy against ext4-10g", "times faster", shown)], stem)


EXPERIMENT = Experiment(
    name="e02-sensitivity",
    claim="what journal_lazy saves depends neither on a drive's unknown numbers nor on the cost of computing",
    runs=runs,
    scale=SCALE,
    phases=(PHASE,),
    expectations=(
        Expectation(
            "MakeDirs on ext4-lazy leaves at most 4 bands to clean under every setting", lazy_leaves_next_to_nothing
        ),
        Expectation(
            "MakeDirs and its cleaning take less than half the time under every setting", lazy_saves_everywhere
        ),
    ),
    draw=draw,
)

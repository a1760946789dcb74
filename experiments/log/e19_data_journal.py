# SPDX-License-Identifier: MIT OR Apache-2.0
"""What it would bring to keep data in the log too: small synced overwrites with data=ordered, with data=journal, and
the same blocks appended to a file.

journal_lazy refuses data=journal (docs/decisions/0005). Stock ext4 sends journalled data home at each fsync, so it pays
twice. A log that kept the data would write what the append writes, in one stream, and its index with it. `ext4-smr`
does without such a log: it writes overwritten data in one stream, and exchanges extents.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, run, synced, workload

DRIVE, STOCK = "st8000as0002", "ext4-10g"
OVERWRITE = synced.OVERWRITE
ORDERED, JOURNALLED, APPENDED, SMR = STOCK, f"{STOCK}-data", f"{STOCK}-appended", "ext4-smr"
# Seconds of run and cleaning that data in order had to stay below; set before it was written.
AIM_S = 530
MEMORY_MIB = synced.MEMORY_MIB
# ext4 heeds a file's flag +j only without delayed allocation.
FLAG_COUNTS = "nodelalloc"


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = synced.Synced((OVERWRITE,), {OVERWRITE: scale}, seed)
    stock = fs.find(STOCK)
    cells = (
        (stock, plan),
        (replace(stock, name=JOURNALLED, options=FLAG_COUNTS), replace(plan, journalled=True)),
        (replace(stock, name=APPENDED), replace(plan, append=True)),
        (fs.find(SMR), plan),
    )
    return [run.Run(drive.find(DRIVE), variant, each, memory_mib=MEMORY_MIB) for variant, each in cells]


def spent_s(records: Sequence[Record], file_system: str, phase: str) -> float:
    """Run time plus the time that the drive then takes to clean up."""
    return busy_s(cell(records, file_system, phase))


def draw(records: Sequence[Record], stem: Path) -> None:
    def parts(own: Sequence[Record], file_system: str) -> list[tuple[str, float]]:
        return [
            (name, sum(float(cell(own, file_system, phase)[field]) for phase in (OVERWRITE, workload.UNMOUNT)))
            for name, field in (("overwrites and unmount", "virtual_s"), ("the drive's cleaning", "cleaning_s"))
        ]

    rows = {"data=ordered": ORDERED, "data=journal": JOURNALLED, "appended": APPENDED, SMR: SMR}
    shown = [bars.of_parts(label, records, lambda own, name=name: parts(own, name)) for label, name in rows.items()]
    bars.draw([bars.Panel("200,000 blocks of 4 KiB, an fsync after 16", "virtual s", shown)], stem)


EXPERIMENT = Experiment(
    name="e19-data-journal",
    claim="a log that kept data would make small synced overwrites several times faster on drive-managed disks",
    source="FAST'17, section 3 (data=ordered), extended",
    runs=runs,
    phases=(OVERWRITE, workload.UNMOUNT),
    expectations=(
        Expectation(
            "appended, the blocks take less than a third of the time",
            lambda records: spent_s(records, APPENDED, OVERWRITE) < spent_s(records, ORDERED, OVERWRITE) / 3,
        ),
        Expectation(
            "with stock's data=journal, which sends all of it home, the sum is no better than data=ordered",
            lambda records: (
                sum(spent_s(records, JOURNALLED, phase) for phase in (OVERWRITE, workload.UNMOUNT))
                > 0.9 * sum(spent_s(records, ORDERED, phase) for phase in (OVERWRITE, workload.UNMOUNT))
            ),
        ),
        Expectation(
            f"with all data in order the disk is quiet after less than {AIM_S} s",
            lambda records: spent_s(records, SMR, OVERWRITE) < AIM_S,
        ),
    ),
    draw=draw,
)  # fmt: skip

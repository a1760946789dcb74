# SPDX-License-Identifier: MIT OR Apache-2.0
"""What it brings to put data in order, too: a file server, and small synced overwrites, with kernel/next.

`ext4-stream` puts new data where the last data went, `ext4-smr` overwritten data as well; both are journal_lazy on a log
of 10 GiB. The file server is FAST'17's Postmark with the paper's memory (e42), the overwrites are those of e19.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, run, synced, workload

DRIVE = "st8000as0002"
LAZY, STREAM, SMR = "ext4-lazy", "ext4-stream", "ext4-smr"
OTHERS = ("f2fs", "nilfs2")
POSTMARK, OVERWRITE = "Postmark", synced.OVERWRITE
SHOWN = {
    POSTMARK: (LAZY, *OTHERS, STREAM, SMR),
    OVERWRITE: ("ext4-10g", LAZY, *OTHERS, STREAM, SMR),
}
SCALE = 0.25


def runs(scale: float, seed: int) -> list[run.Run]:
    server = run.cells(DRIVE, SHOWN[POSTMARK], workload.plan((POSTMARK,), scale=scale, seed=seed))
    server = [replace(each, memory_mib=max(1024, round(run.PAPER_MEMORY_MIB * scale))) for each in server]
    plan = synced.Synced((OVERWRITE,), {OVERWRITE: scale}, seed)
    memory_mib = max(1024, round(synced.MEMORY_MIB * scale))
    return [*server, *(run.Run(drive.find(DRIVE), fs.find(name), plan, memory_mib=memory_mib)
                       for name in SHOWN[OVERWRITE])]  # fmt: skip


def until_quiet_s(records: Sequence[Record], file_system: str, name: str) -> float:
    """Run time plus the time that the drive then takes to clean up."""
    return float(busy_s(cell(records, file_system, name)))


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for name, file_systems in SHOWN.items():
        rows = []
        for each in file_systems:

            def parts(own: Sequence[Record], each: str = each, name: str = name) -> list[tuple[str, float]]:
                found = cell(own, each, name)
                return [("until all is synced", found["virtual_s"]), ("cleaning", found["cleaning_s"])]

            rows.append(bars.of_parts(each, records, parts))
        panels.append(bars.Panel(name, "virtual s", rows))
    bars.draw(panels, stem)


def ahead(name: str) -> Expectation:
    return Expectation(
        f"{name}: with all data in order the disk is quiet before it is with any other",
        lambda records: all(
            until_quiet_s(records, SMR, name) < until_quiet_s(records, other, name)
            for other in SHOWN[name]
            if other not in (SMR, STREAM)
        ),
    )


EXPERIMENT = Experiment(
    name="e60-data-in-order",
    claim="ext4 that puts data in order, too, is done sooner than any file system that a user would pick instead",
    runs=runs,
    phases=(POSTMARK, OVERWRITE),
    scale=SCALE,
    expectations=(ahead(POSTMARK), ahead(OVERWRITE)),
    draw=draw,
)

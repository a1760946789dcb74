# SPDX-License-Identifier: MIT OR Apache-2.0
"""What it brings to put data in order, too: a file server, and small synced overwrites.

`ext4-stream` puts new data where the last data went, `ext4-smr` overwritten data as well; both are journal_lazy on a
log of 10 GiB, which mke2fs puts in the middle of the disk. With `-edge` it lies near the outer edge, where `ext4lazy
convert` puts it. The file server is FAST'17's Postmark with the paper's memory (e42), the overwrites are those of e19.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, run, synced, workload

DRIVE = "st8000as0002"
LAZY, STREAM, SMR = "ext4-lazy", "ext4-stream", "ext4-smr"
EDGE = f"{SMR}-edge"
OTHERS = ("f2fs", "nilfs2")
POSTMARK, OVERWRITE = "Postmark", synced.OVERWRITE
SHOWN = {
    POSTMARK: (LAZY, *OTHERS, STREAM, SMR, EDGE),
    OVERWRITE: ("ext4-10g", LAZY, *OTHERS, STREAM, SMR, EDGE),
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


def fsync_ms(records: Sequence[Record]) -> float:
    """Virtual ms of an fsync with all data in order."""
    found = cell(records, SMR, OVERWRITE)
    return float(found["virtual_s"]) * 1000 / float(found["counters"]["flushes"])


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


def sooner(said: str, name: str, others: Sequence[str], times: float = 1) -> Expectation:
    """Than each of these, with all data in order, is the disk quiet so many times sooner."""
    return Expectation(
        said,
        lambda records: all(
            until_quiet_s(records, SMR, name) * times < until_quiet_s(records, other, name) for other in others
        ),
    )


EXPERIMENT = Experiment(
    name="e60-data-in-order",
    claim="ext4 that puts data in order, too, is ahead of F2FS and NILFS2 as a file server, and of ext4 where blocks"
    " are overwritten",
    runs=runs,
    phases=(POSTMARK, OVERWRITE),
    scale=SCALE,
    expectations=(
        sooner("the disk is quiet before it is with F2FS and NILFS2", POSTMARK, OTHERS),
        sooner("and twenty times sooner than with journal_lazy alone", POSTMARK, [LAZY], 20),
        sooner("synced overwrites: four times sooner than with ext4", OVERWRITE, ["ext4-10g", LAZY, STREAM], 4),
        Expectation(
            "and behind F2FS and NILFS2, which write no log besides",
            lambda records: all(
                until_quiet_s(records, each, OVERWRITE) < until_quiet_s(records, SMR, OVERWRITE) for each in OTHERS
            ),
        ),
    ),
    numbers={"fsync_ms": fsync_ms, "until_quiet_s": until_quiet_s},
    draw=draw,
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server's load that overruns the persistent cache, on the file systems that a user would pick instead.

FAST'17's Postmark at full size writes up to 33 GiB to a disk that caches 25. At a tenth (e40) no cache fills, and who
scatters what he writes pays only afterwards. ext4 also with the directories below one, where it does not spread them.
The host has the paper's memory, but no share of the write-back cache is fixed: Btrfs does not go by its disk's.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle import bars, run, workload
from shingle.claims import busy_s, by_seed, number
from shingle.experiment import Expectation, Experiment
from shingle.record import Record, cell

DRIVE = "st8000as0002"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
OTHERS = ("btrfs", "xfs", "f2fs", "nilfs2")
TOP, BELOW = "Postmark", "PostmarkBelow"
WHERE = {TOP: "at the top", BELOW: "below one"}
COLUMNS = (*((each, TOP) for each in (BASELINE, LAZY, *OTHERS)), (BASELINE, BELOW), (LAZY, BELOW))


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for file_system, name in COLUMNS:
        cells += run.cells(DRIVE, (file_system,), workload.plan((name,), scale=scale, seed=seed))
    return [replace(each, memory_mib=run.PAPER_MEMORY_MIB, may_fail=True) for each in cells]


def until_quiet_s(records: Sequence[Record], file_system: str, name: str) -> float:
    return busy_s(cell(records, file_system, name))


def spent_s(records: Sequence[Record], file_system: str, name: str) -> float:
    return float(cell(records, file_system, name)["virtual_s"])


def draw(records: Sequence[Record], stem: Path) -> None:
    _, seeds = by_seed(records)
    panels = [
        bars.Panel(
            title,
            "s",
            [bars.Bar(f"{each}, {name}", tuple(value(seed, each, name) for seed in seeds)) for each, name in COLUMNS],
        )
        for title, value in (("Until all is synced", spent_s), ("Until the disk is quiet", until_quiet_s))
    ]
    bars.draw(panels, stem)


def page(records: Sequence[Record]) -> str:
    _, (records, *_) = by_seed(records)
    lines = [_HEAD]
    for file_system, name in sorted(COLUMNS, key=lambda each: until_quiet_s(records, *each)):
        found = cell(records, file_system, name)
        shown = (spent_s(records, file_system, name), float(found["cleaning_s"]), busy_s(found), found["bands_dirty"])
        gib = found["total_written_bytes"] / (1 << 30)
        values = " | ".join(map(number, shown))
        lines.append(f"| {file_system} | {WHERE[name]} | {values} | {number(gib)} |\n")
    return "".join(lines) + f"\n{EXPERIMENT.finding}\n"


_HEAD = f"""<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
# A file server that overruns the persistent cache

*Made by `./shingle claims --write` from results/e42*.jsonl; do not edit.* `./shingle run e42` runs it: FAST'17's
Postmark at full size on the whole {DRIVE} (8 TB, a persistent cache of 25 GiB), with the paper's memory. `{LAZY}` is
journal_lazy with a journal of 10 GiB, and `{BASELINE}` ext4 with the same journal. At a tenth, and on other disks:
[field.md](field.md).

| file system | Postmark's directories | s until all is synced | s of cleaning | both | bands to clean | GiB written |
|---|---|--:|--:|--:|--:|--:|
"""


EXPERIMENT = Experiment(
    name="e42-full-cache",
    claim="when a file server's load overruns the persistent cache, it counts what is scattered, data or metadata",
    source="FAST'17, section 4.3.2, beyond it",
    runs=runs,
    phases=(TOP, BELOW, workload.UNMOUNT),
    finding=(
        "F2FS and NILFS2, which write data and metadata one after the other, are ahead: 207 and 235 s, and 23 and "
        "16 of cleaning. journal_lazy is ahead of ext4, 517 s for 705 and 2,691 s of cleaning for 6,461, and behind "
        "all others, because where directories lie at the top ext4 puts data into 9,579 bands, and journal_lazy, "
        "which logs the metadata, still into 3,877 (XFS 513, Btrfs 365). With its directories below one it is the "
        "fastest but for F2FS (212 s), and the disk is quiet after 526 s, before XFS (796) and Btrfs (758), and "
        "after F2FS (230) and NILFS2 (252), all of it data. Btrfs writes 35.3 GiB and NILFS2 40.8 where the others "
        "write 27 to 29: less of what is deleted soon is deleted before it is written."
    ),
    expectations=(
        Expectation(
            "the disk is quiet with journal_lazy in less than half of the baseline's time",
            lambda records: until_quiet_s(records, LAZY, TOP) < until_quiet_s(records, BASELINE, TOP) / 2,
        ),
        Expectation(
            "with its directories below one, each takes less than a fifth of that",
            lambda records: all(
                until_quiet_s(records, each, BELOW) < until_quiet_s(records, each, TOP) / 5 for each in (BASELINE, LAZY)
            ),
        ),
        Expectation(
            "then journal_lazy is ahead of Btrfs and XFS",
            lambda records: all(
                until_quiet_s(records, LAZY, BELOW) < until_quiet_s(records, each, TOP) for each in ("btrfs", "xfs")
            ),
        ),
        Expectation(
            "and behind F2FS and NILFS2, which write data in order, too",
            lambda records: all(
                until_quiet_s(records, each, TOP) < until_quiet_s(records, LAZY, BELOW) for each in ("f2fs", "nilfs2")
            ),
        ),
    ),
    scalable=False,
    scaling="The persistent cache is not scaled: below full size it does not fill.",
    draw=draw,
    page=page,
)

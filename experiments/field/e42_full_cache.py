# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server that writes more than the persistent cache holds, on the file systems that a user would pick instead.

FAST'17's Postmark at full size, with the paper's memory, on a disk that caches 25 GiB. At a tenth (e40) no cache
fills, and a file system that scatters its writes pays only afterwards. ext4 also with all directories under one
parent, where it does not spread them, and with all data in order (ext4-smr); with the log near the outer edge (-edge),
and with inode tables that lie together every 8 GiB (-g64). Twice: with the write-back cache as the
kernel sets it, and with the paper's, half of which is the disk's, strictly, so that more of what is deleted soon
reaches the disk (e18). On two more disks, whose cache holds all that is written, with the kernel's alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, by_seed, cell, drive, fs, number, run, workload

DRIVE, MORE = "st8000as0002", ("wd40efax", "wd40nmzw")
BASELINE, LAZY, SMR = "ext4-10g", "ext4-lazy", "ext4-smr"
# The log lies near the disk's beginning, which is its outer edge, and not in its middle.
EDGE = f"{SMR}-edge"
# And a new volume's inode tables lie together, so they cut the stream less often.
TOGETHER = f"{EDGE}-g64"
OTHERS = ("btrfs", "xfs", "f2fs", "nilfs2")
TOP, BELOW = "Postmark", "PostmarkBelow"
WHERE = {TOP: "at the top", BELOW: "under one parent"}
COLUMNS = (*((each, TOP) for each in (BASELINE, LAZY, SMR, EDGE, TOGETHER, *OTHERS)), (BASELINE, BELOW), (LAZY, BELOW))
AT_THE_TOP = tuple(each for each in COLUMNS if each[1] == TOP)
KERNELS, PAPERS = "", "-half"
HOSTS = {KERNELS: "write-back cache as the kernel sets it", PAPERS: "half of the write-back cache, as in the paper"}
# With its data all over the disk ext4 fills the cache, and then a write waits for longer than Linux's six times 30 s.
LATE = (BASELINE + PAPERS, TOP)
# The goal for data in order.
DIRTY = 10


def made_as(name: str) -> fs.FileSystem:
    return fs.with_tables_together(fs.find(EDGE)) if name == TOGETHER else fs.find(name)


def runs(scale: float, seed: int) -> list[run.Run]:
    def cells_of(profile: str, columns: Sequence[tuple[str, str]]) -> list[run.Run]:
        return [
            run.Run(
                drive.find(profile), made_as(file_system), workload.plan((name,), scale=scale, seed=seed),
                memory_mib=run.PAPER_MEMORY_MIB, may_fail=True,
            )
            for file_system, name in columns
        ]  # fmt: skip

    cells = cells_of(DRIVE, COLUMNS)
    for each in run.on_the_papers_host(cells, scale):
        variant = replace(each.variant, name=each.variant.name + PAPERS)
        is_late = (variant.name, *each.plan.names) == LATE
        cells.append(replace(each, variant=fs.with_patience(variant) if is_late else variant))
    return cells + [each for profile in MORE for each in cells_of(profile, AT_THE_TOP)]


def spent_s(records: Sequence[Record], file_system: str, name: str) -> float:
    return float(cell(records, file_system, name, DRIVE)["virtual_s"])


def until_quiet_s(records: Sequence[Record], file_system: str, name: str, profile: str = DRIVE) -> float:
    return busy_s(cell(records, file_system, name, profile))


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for host, title in HOSTS.items():
        rows = []
        for file_system, name in COLUMNS:

            def parts(
                own: Sequence[Record], each: str = file_system + host, name: str = name
            ) -> list[tuple[str, float]]:
                ran_s = spent_s(own, each, name)
                return [("until all is synced", ran_s), ("cleaning", until_quiet_s(own, each, name) - ran_s)]

            rows.append(bars.of_parts(f"{file_system}, {WHERE[name]}", records, parts))
        panels.append(bars.Panel(title, "virtual s", rows))
    bars.draw(panels, stem)


def page(records: Sequence[Record]) -> str:
    _, (records, *_) = by_seed(records)
    text = _HEAD
    for host, title in HOSTS.items():
        text += f"\n## {title[0].upper()}{title[1:]}\n{_HEADINGS}"
        for file_system, name in sorted(COLUMNS, key=lambda each: until_quiet_s(records, each[0] + host, each[1])):
            text += _row(cell(records, file_system + host, name, DRIVE), file_system, name)
    for profile in MORE:
        text += f"\n## {profile}, write-back cache as the kernel sets it\n{_HEADINGS}"
        for file_system, name in sorted(AT_THE_TOP, key=lambda each: until_quiet_s(records, *each, profile)):
            text += _row(cell(records, file_system, name, profile), file_system, name)
    return text


def _row(found: Record, file_system: str, name: str) -> str:
    shown = (found["virtual_s"], found["cleaning_s"], busy_s(found), found["counters"]["cached_bytes"] / (1 << 30),
             found["counters"]["bands_cleaned_forced"], found["total_written_bytes"] / (1 << 30))  # fmt: skip
    return f"| {file_system} | {WHERE[name]} | {' | '.join(map(number, shown))} |\n"


_HEAD = f"""<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
# A file server that writes more than the persistent cache holds

*Made by `./shingle claims --write` from results/e42*.jsonl; do not edit.* `./shingle run e42` runs it: FAST'17's
Postmark at full size on the whole {DRIVE} (8 TB, a persistent cache of 25 GiB), and on the {MORE[0]} and the
{MORE[1]} (4 TB, 40 GiB), with 16 GiB of memory. `{LAZY}` is
journal_lazy with a journal of 10 GiB, and `{BASELINE}` ext4 with the same journal. `{SMR}` puts data in order, too;
with `-edge` the log lies near the outer edge, and with `-g64` inode tables lie together every 8 GiB (`mkfs.ext4
-G 64 -i 32768`).
A band that is cleaned before the drive is idle makes writes wait. At a tenth: [field.md](field.md).

![Seconds until all is synced and of cleaning, by file system and share of memory for writes](../figures/full-cache.png)
"""
_HEADINGS = """| file system | Postmark's directories | s until all is synced | s of cleaning | s, both |\
 GiB to the cache | bands cleaned meanwhile | GiB written |
|---|---|--:|--:|--:|--:|--:|--:|
"""


def expected(
    said: str, ahead: Sequence[tuple[str, str]], behind: Sequence[tuple[str, str]], times: float
) -> Expectation:
    """On both hosts: until the disk is quiet, the first take less than the others' part."""
    return Expectation(
        said,
        lambda records: all(
            until_quiet_s(records, fast + host, fast_name) * times < until_quiet_s(records, slow + host, slow_name)
            for host in HOSTS
            for fast, fast_name in ahead
            for slow, slow_name in behind
        ),
    )


EXPERIMENT = Experiment(
    name="e42-full-cache",
    claim="when a file server's load overruns the persistent cache, it counts what is scattered, data or metadata",
    source="FAST'17, section 4.3.2, beyond it",
    runs=runs,
    phases=(TOP, BELOW, workload.UNMOUNT),
    expectations=(
        expected("the disk is quiet with journal_lazy twice as soon as with ext4", [(LAZY, TOP)], [(BASELINE, TOP)], 2),
        expected(
            "with all data in order it is quiet sooner than with any other file system but NILFS2",
            [(SMR, TOP)],
            [each for each in COLUMNS if each[0] not in (SMR, EDGE, TOGETHER, "nilfs2")],
            1,
        ),
        expected(
            "and sooner than with any, if the log lies near the outer edge",
            [(EDGE, TOP)],
            [each for each in COLUMNS if each[0] not in (EDGE, TOGETHER)],
            1,
        ),
        Expectation(
            f"and on the {' and the '.join(MORE)}",
            lambda records: all(
                until_quiet_s(records, EDGE, TOP, profile) < until_quiet_s(records, *each, profile)
                for profile in MORE
                for each in AT_THE_TOP
                if each[0] not in (EDGE, TOGETHER)
            ),
        ),
        Expectation(
            f"and leaves at most {DIRTY} bands dirty, if a new volume's inode tables lie together",
            lambda records: all(cell(records, TOGETHER + host, TOP, DRIVE)["bands_dirty"] <= DIRTY for host in HOSTS),
        ),
        expected(
            "journal_lazy with all directories under one parent is ahead of Btrfs and XFS",
            [(LAZY, BELOW)],
            [("btrfs", TOP), ("xfs", TOP)],
            1,
        ),
        expected(
            "and behind F2FS and NILFS2, which write data in order, too",
            [("f2fs", TOP), ("nilfs2", TOP)],
            [(LAZY, BELOW)],
            1,
        ),
    ),
    scalable=False,
    scaling="The persistent cache is not scaled: below full size it does not fill.",
    draw=draw,
    page=page,
    numbers={"until_quiet_s": until_quiet_s},
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The microbenchmarks of FAST'17 on a conventional disk (section 4.2.1, Figure 7, Table 2).

The paper runs each on a cold cache. Here the phases follow each other in one mount: the caches
are dropped between them, and what the one before left in the journal stays there, as in the paper. Mounted with
noatime, as in e13.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import (
    Claim,
    Experiment,
    Reason,
    Record,
    bars,
    bytes_claim,
    cell,
    fs,
    reads_claim,
    run,
    speedup_claim,
    workload,
)

DRIVE = "wd5000ys"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
SCALE = 0.1


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for workloads in (workload.DIRECTORIES, workload.FILES):
        plan = workload.plan(workloads, scale=scale, seed=seed)
        cells += run.cells(DRIVE, (BASELINE, LAZY), plan)
    cells = [replace(each, variant=fs.mounted_with(each.variant, "noatime")) for each in cells]
    return run.on_the_papers_host(cells, scale)


def faster(target: str, name: str, low: float, high: float) -> Claim:
    return speedup_claim(target, BASELINE, LAZY, name, low, high)


def reading_share(records: Sequence[Record], file_system: str, name: str) -> float:
    """The part of the run time in which the disk reads, or is on its way to a request."""
    found = cell(records, file_system, name)
    return float(found["counters"]["reading_ns"] + found["counters"]["seeking_ns"]) / 1e9 / float(found["virtual_s"])


def read_share(records: Sequence[Record], file_system: str, name: str) -> float:
    """The part of all bytes that are read."""
    found = cell(records, file_system, name)
    return float(found["total_read_bytes"]) / float(found["total_read_bytes"] + found["total_written_bytes"])


FIGURE_7 = (
    faster("T7a", "MakeDirs", 1.5, 2),
    faster("T7a", "CreateFiles", 1.5, 2),
    faster("T7b", "ListDirs", 3, 5),
    faster("T7b", "TarDirs", 3, 5),
    faster("T7b", "RemoveDirs", 3, 5),
    faster("T7b", "FindFiles", 3, 5),
    faster("T7b", "RemoveFiles", 3, 5),
    faster("T7c", "TarFiles", 1, 1.5),
)
TABLE_2 = (
    reads_claim("T7d", BASELINE, "MakeDirs", 143.7),
    bytes_claim("T7d", BASELINE, "MakeDirs", "metadata", 4631),
    bytes_claim("T7d", BASELINE, "MakeDirs", "journal", 4735),
    reads_claim("T7e", LAZY, "MakeDirs", 144),
    bytes_claim("T7e", LAZY, "MakeDirs", "metadata", 0),
    bytes_claim("T7e", LAZY, "MakeDirs", "journal", 4707),
    reads_claim("T7f", BASELINE, "RemoveDirs", 4066.4),
    bytes_claim("T7f", BASELINE, "RemoveDirs", "metadata", 322.4),
    bytes_claim("T7f", BASELINE, "RemoveDirs", "journal", 1119),
    reads_claim("T7g", LAZY, "RemoveDirs", 4066.4),
    bytes_claim("T7g", LAZY, "RemoveDirs", "metadata", 0),
    bytes_claim("T7g", LAZY, "RemoveDirs", "journal", 472),
)
SPREADS = (
    Claim(
        "T7h", "MakeDirs on ext4-lazy: reads, part of all bytes", "", 0.03, 0.03,
        lambda records: read_share(records, LAZY, "MakeDirs"), 0.10,
    ),
    Claim(
        "T7h", "MakeDirs on ext4-lazy: reads, part of the run time", "", 0.30, None,
        lambda records: reading_share(records, LAZY, "MakeDirs"),
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="e11-cmr-microbenchmarks",
    claim="on a conventional disk, metadata that is only logged makes directories 1.5 to 5 times faster",
    source="FAST'17, section 4.2.1, Figure 7 and Table 2",
    runs=runs,
    phases=(*workload.DIRECTORIES, *workload.FILES, workload.UNMOUNT),
    expectations=(),
    scale=SCALE,
    scaling="The journal (10 GiB) and the disk are not scaled.",
    reasons=(
        Reason("the kernel", "where Linux 6.12 puts directories (e26)", ("T7b", "T7f", "T7g")),
        Reason("a mechanism", "one processor, so nothing is read while directories are made", ("T7d", "T7e", "T7h")),
    ),
    finding=(
        "What RemoveDirs logs (T7f, T7g) is decided by where the directories lie, and by how long it takes. Linux "
        "4.6 filled a flex_bg with 512 directories more than the mean, Linux 6.12 does with 8,192 (changed in "
        "September 2022). With the old rule the baseline logs 1,771 MiB (e26), with today's 728; the paper's 1,119 "
        "lie between. journal_lazy then logs 460 MiB (the paper's: 472). Time alone does less (this and what "
        "follows was tried by hand at a tenth and is in no record): with system calls of 5 ms, not 0.002, the "
        "baseline takes 2,225 s instead of 104, commits 445 times instead of 21, and logs 94 MiB instead of 32.5. "
        "Nothing is read while directories are made (T7d, T7e, T7h), because the machine has one processor: for a "
        "new inode ext4 reads a block of the inode table only if another inode of it was taken and the block is not "
        "in memory yet, and that takes two threads at once. The same load on a real machine (Linux 6.18, 80,000 "
        "leaves, a file of 500 GB on a loop device) reads one of the 6,400 blocks with one thread, and with eight "
        "threads on one processor; with eight on two processors it read 3, 7 and 22 in three runs, and 453 in one "
        "with no_prefetch_block_bitmaps. The bitmaps that a mount reads ahead since Linux 5.8 are not the reason: "
        "without that (no_prefetch_block_bitmaps) MakeDirs reads 0.05 MiB here. ListDirs gains 21.8 times, the "
        "paper's 3 to 5: the baseline reads 1,030,640 single blocks with 276,218 seeks, journal_lazy as much from "
        "the log in 52,540 requests with 4,511; at the paper's gain of 5 its baseline would have had some 65,000 "
        "seeks. The disk's read-ahead is not why: segments of 1 and 2 MiB, not 512 KiB, change nothing at a tenth, "
        "64 of them, not 16, make 11.8 times 9.3. RemoveFiles gains more where directories lie as in 2016 (T7b; "
        "e26). Five seeds at a tenth (e11.seeds.jsonl) differ by 3 % in a gain at most (standard deviation), and "
        "each phase is faster beyond its confidence interval; only the unmount is slower, 56 to 63 ms for 37, "
        "because it writes the map's snapshot."
    ),
    claims=(*FIGURE_7, *TABLE_2, *SPREADS),
    draw=bars.of_claims(
        bars.Group("Figure 7: ext4-lazy against ext4-10g", "times faster", FIGURE_7),
        bars.Group("Table 2: metadata read, metadata and journal written", "MiB", TABLE_2),
        bars.Group("Figure 8 (b): what is read while directories are made", "part", SPREADS),
    ),
)

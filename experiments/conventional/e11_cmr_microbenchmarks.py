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
    Record,
    bars,
    bytes_claim,
    cell,
    fs,
    gain_spread,
    reads_claim,
    run,
    speedup_claim,
    unmount_ms,
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
    claims=(*FIGURE_7, *TABLE_2, *SPREADS),
    draw=bars.of_claims(
        bars.Group("Figure 7: ext4-lazy against ext4-10g", "times faster", FIGURE_7),
        bars.Group("Table 2: metadata read, metadata and journal written", "MiB", TABLE_2),
        bars.Group("Figure 8 (b): what is read while directories are made", "part", SPREADS),
    ),
    numbers={
        "gain_spread": gain_spread(BASELINE, LAZY, (*workload.DIRECTORIES, *workload.FILES)),
        "unmount_ms": unmount_ms,
    },
)

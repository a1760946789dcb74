# SPDX-License-Identifier: MIT OR Apache-2.0
"""Metadata in the middle of the disk, data at its edge: what the way between them costs (FAST'17, section 4.4).

The paper makes a directory of 10,000 small files and packs it with a cold cache. It does not say how small; 4 KiB here.
"""

from collections.abc import Sequence

from shingle.lab import (
    Claim,
    Experiment,
    Record,
    bars,
    cell,
    run,
    seconds,
    workload,
)

DRIVE = "wd5000ys"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
NAME = "TarFlat"


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = run.cells(DRIVE, (BASELINE, LAZY), workload.plan((NAME,), scale=scale, seed=seed))
    return run.on_the_papers_host(cells, scale)


TIMES = (
    Claim("T17", "tar of 10,000 files in one directory, ext4-10g", "s", 103, 103, seconds(BASELINE, NAME), 0.25),
    Claim("T17", "the same, ext4-lazy", "s", 101, 101, seconds(LAZY, NAME), 0.25, better="low"),
)
RATIO = Claim(
    "T17", "ext4-lazy over ext4-10g", "", 0.98, 0.98,
    lambda records: seconds(LAZY, NAME)(records) / seconds(BASELINE, NAME)(records), 0.05, better="low",
)  # fmt: skip


def metadata_kib(records: Sequence[Record]) -> float:
    """Mean size of what is read from the log."""
    found = cell(records, LAZY, "TarFlat")
    return float(found["journal_read_bytes"]) / 1024 / float(found["counters"]["journal_read_requests"])


EXPERIMENT = Experiment(
    name="e16-seek-overhead",
    claim="reading files whose metadata lie in the journal takes no longer than on the baseline",
    source="FAST'17, section 4.4",
    runs=runs,
    scalable=False,
    phases=("CreateFlat", NAME, workload.UNMOUNT),
    expectations=(),
    claims=(*TIMES, RATIO),
    draw=bars.of_claims(
        bars.Group("Section 4.4: packing one directory", "s", TIMES),
        bars.Group("Section 4.4: ext4-lazy against ext4-10g", "part of the time", (RATIO,)),
    ),
    numbers={"metadata_kib": metadata_kib},
)

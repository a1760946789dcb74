# SPDX-License-Identifier: MIT OR Apache-2.0
"""Metadata in the middle of the disk, data at its edge: what the way between them costs (FAST'17, section 4.4).

The paper makes a directory of 10,000 small files and packs it with a cold cache. It does not say how small; 4 KiB here.
"""

from shingle.lab import Claim, Experiment, Reason, bars, run, seconds, workload

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

EXPERIMENT = Experiment(
    name="e16-seek-overhead",
    claim="reading files whose metadata lie in the journal takes no longer than on the baseline",
    source="FAST'17, section 4.4",
    runs=runs,
    scalable=False,
    phases=("CreateFlat", NAME, workload.UNMOUNT),
    reasons=(Reason("a parameter", "how large the small files are"),),
    finding=(
        "The time is the disk's alone: 10,000 reads of 4 KiB at random places of 40 MiB take it 62 s (`./shingle "
        "drives load wd5000ys --op randread --block 4k --range 40M --count 10000`), and tar reads the files in the "
        "order of the directory's hash, which is as good as random: half a revolution of 4.2 ms for each, and 2 ms "
        "to another head or cylinder. How far apart the files lie hardly counts (65 s over 10 GiB, 87 s over 120 "
        "GiB), how large they are does: 99 s with reads of 192 KiB, 109 s with 256 KiB. So 103 s are what files of "
        "some 200 KiB would take; the paper says no more than small. The metadata comes with 10 requests of 280 KiB "
        "from the log."
    ),
    expectations=(),
    claims=(*TIMES, RATIO),
    draw=bars.of_claims(
        bars.Group("Section 4.4: packing one directory", "s", TIMES),
        bars.Group("Section 4.4: ext4-lazy against ext4-10g", "part of the time", (RATIO,)),
    ),
)

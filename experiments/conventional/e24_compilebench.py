# SPDX-License-Identifier: MIT OR Apache-2.0
"""A build server's load: how much of the metadata is written again and again (FAST'17, section 3.1).

128 Compilebench at a time. Of 433 GiB 388 are data, 34 journal and 11 metadata; the blocks of metadata are 3.5 GiB, if
each is counted once: 0.8 % of all bytes, and 1 - 3.5 / 34, that is 90 %, of the journal are overwrites. Here they are
counted where ext4-lazy tells how many blocks are live in its log: each block that was changed, once. The paper gives
no options of Compilebench. Two first trees and 50 operations are ours: 388 GiB are 3.0 GiB for each of 128, and 3.5 GiB
are what two trees need.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Claim, Experiment, Record, bars, cell, fs, run, workload

DRIVE = "wd5000ys"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
NAME = "Compilebench"
PAPER_GIB = {"data": 388, "journal": 34, "metadata": 11}
SCALE = 0.01
# Of memory: threads and the list of files need some whatever the scale.
LEAST_MIB = 1024
LIVE_BLOCKS = "/sys/fs/ext4/shd0/journal_lazy/live_blocks"
BLOCK_BYTES = 4096


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = run.cells(DRIVE, (BASELINE, LAZY), workload.plan((NAME,), scale=scale, seed=seed))
    counted = replace(fs.find(LAZY), statistics=(LIVE_BLOCKS,))
    memory_mib = max(LEAST_MIB, round(run.PAPER_MEMORY_MIB * scale))
    return [
        replace(each, memory_mib=memory_mib, variant=counted if each.variant.name == LAZY else each.variant)
        for each in cells
    ]


def written(records: Sequence[Record], file_system: str, what: str) -> float:
    phases = (NAME, workload.UNMOUNT)
    return sum(float(cell(records, file_system, phase)[f"{what}_written_bytes"]) for phase in phases)


def share(records: Sequence[Record], what: str) -> float:
    return 100 * written(records, BASELINE, what) / sum(written(records, BASELINE, each) for each in PAPER_GIB)


def unique(records: Sequence[Record]) -> float:
    """Bytes of metadata, each block once."""
    return BLOCK_BYTES * float(cell(records, LAZY, NAME)["statistics"]["live_blocks"])


def unique_share(records: Sequence[Record]) -> float:
    return 100 * unique(records) / sum(written(records, BASELINE, each) for each in PAPER_GIB)


def overwritten(records: Sequence[Record]) -> float:
    return 100 * (1 - unique(records) / written(records, BASELINE, "journal"))


def paper_share(what: str) -> float:
    return 100 * PAPER_GIB[what] / sum(PAPER_GIB.values())


SHARES = tuple(
    Claim(
        "T4", f"share of {what} in what ext4-10g writes", "%", paper_share(what), paper_share(what),
        lambda records, what=what: share(records, what), 0.10,
    )
    for what in PAPER_GIB
)  # fmt: skip
UNIQUE = Claim("T4", "blocks of metadata, each once, in all writes", "%", 0.8, 0.8, unique_share, 0.10)
OVERWRITTEN = Claim("T4", "journal writes that are overwrites", "%", 90, 90, overwritten, 0.10)

EXPERIMENT = Experiment(
    name="e24-compilebench",
    claim="most of what a build server's journal takes is blocks that it has taken before",
    source="FAST'17, section 3.1",
    runs=runs,
    scale=SCALE,
    phases=(NAME, workload.UNMOUNT),
    expectations=(),
    scaling=(
        "The trees are scaled, instances are not; memory is, but not below 1 GiB; of the instances a part calls"
        " sync(2), so that as much is written between two of them."
    ),
    claims=(*SHARES, UNIQUE, OVERWRITTEN),
    draw=bars.of_claims(
        bars.Group("Section 3.1: what 128 Compilebench write", "% of all bytes", (*SHARES, UNIQUE)),
        bars.Group("Section 3.1: overwrites", "% of the journal", (OVERWRITTEN,)),
    ),
    numbers={"share": share, "overwritten": overwritten},
)

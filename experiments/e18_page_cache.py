# SPDX-License-Identifier: MIT OR Apache-2.0
"""How much of Postmark's data reaches the disk, over the host's memory: e12's baseline with 16, 8 and 4 GiB.

Files are deleted before the kernel writes them back; how many depends on how long dirty pages may stay, which is a
share of the memory (`vm.dirty_ratio`). The paper's host had 16 GiB; how much of it was free for the page cache is not
said. The journal and the metadata follow, because a longer run has more commits.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle import bars, run, workload
from shingle.claims import Claim
from shingle.experiment import Expectation, Experiment
from shingle.record import Record, cell

DRIVE, BASELINE = "wd5000ys", "ext4-10g"
NAME = "Postmark"
MEMORY_GIB = (16, 8, 4)


def variant(gib: int) -> str:
    return f"{BASELINE}-{gib}gib"


def runs(scale: float, seed: int) -> list[run.Run]:
    (middle,) = run.cells(DRIVE, (BASELINE,), workload.plan((NAME,), scale=scale, seed=seed))
    return [
        replace(middle, memory_mib=round(gib * 1024 * scale), variant=replace(middle.variant, name=variant(gib)))
        for gib in MEMORY_GIB
    ]


def written_mib(records: Sequence[Record], gib: int, what: str) -> float:
    return float(cell(records, variant(gib), NAME)[f"{what}_written_bytes"]) / (1 << 20)


def claim(gib: int, what: str, paper_mib: float) -> Claim:
    return Claim(
        "T9a", f"{gib} GiB of memory: {what} written", "MiB", paper_mib, paper_mib,
        lambda records: written_mib(records, gib, what), 0.10, linear=True,
    )  # fmt: skip


def claims_of(what: str, paper_mib: float) -> tuple[Claim, ...]:
    return tuple(claim(gib, what, paper_mib) for gib in MEMORY_GIB)


DATA, JOURNAL = claims_of("data", 34_185), claims_of("journal", 1_890)

EXPERIMENT = Experiment(
    name="e18-page-cache",
    claim="how much of a file server's data reaches the disk depends on the memory that holds it back",
    source="FAST'17, section 4.2.2, Table 3, varied",
    runs=runs,
    phases=(NAME,),
    expectations=(
        Expectation(
            "less memory, more data written",
            lambda records: (
                written_mib(records, 16, "data") < written_mib(records, 8, "data") < written_mib(records, 4, "data")
            ),
        ),
    ),
    claims=tuple(each for of_memory in zip(DATA, JOURNAL, strict=True) for each in of_memory),
    draw=bars.of_claims(
        bars.Group("Table 3, varied: data written", "MiB", DATA),
        bars.Group("Table 3, varied: journal written", "MiB", JOURNAL),
    ),
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""How much of Postmark's data reaches the disk, over what the host may hold back: e12's baseline on 16 GiB of memory.

Files are deleted before the kernel writes them back; how many depends on how many dirty pages may stay. The paper's
host fixed the disk's share of the write-back cache "to 50% of the total" (section 4), by the files of sysfs-class-bdi.
How Linux 6.12 takes that: background writing begins at half, but nobody waits until all disks together reach the
threshold; unless the share is strict (`strict_limit`, since Linux 6.2). Compared: no share, a half, a strict half.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle import bars, fs, run, workload
from shingle.claims import Claim
from shingle.experiment import Expectation, Experiment
from shingle.record import Record, cell

DRIVE, BASELINE = "wd5000ys", "ext4-10g"
NAME = "Postmark"
ALL, HALF, STRICT = f"{BASELINE}-all", f"{BASELINE}-half", f"{BASELINE}-strict-half"
SAID = {ALL: "no share", HALF: "a half", STRICT: "a strict half"}


def runs(scale: float, seed: int) -> list[run.Run]:
    (middle,) = run.cells(DRIVE, (BASELINE,), workload.plan((NAME,), scale=scale, seed=seed))
    variants = {
        ALL: middle.variant,
        HALF: fs.with_writeback(middle.variant, run.PAPER_WRITEBACK_PERCENT, strict=False),
        STRICT: fs.with_writeback(middle.variant, run.PAPER_WRITEBACK_PERCENT, strict=True),
    }
    memory_mib = round(run.PAPER_MEMORY_MIB * scale)
    return [
        replace(middle, memory_mib=memory_mib, variant=replace(variant, name=name))
        for name, variant in variants.items()
    ]


def written_mib(records: Sequence[Record], file_system: str, what: str) -> float:
    return float(cell(records, file_system, NAME)[f"{what}_written_bytes"]) / (1 << 20)


def grown(records: Sequence[Record], file_system: str) -> float:
    """By what part more data are written than without a share."""
    return written_mib(records, file_system, "data") / written_mib(records, ALL, "data") - 1


def claim(file_system: str, what: str, paper_mib: float) -> Claim:
    return Claim(
        "T9a", f"{SAID[file_system]}: {what} written", "MiB", paper_mib, paper_mib,
        lambda records: written_mib(records, file_system, what), 0.10, linear=True,
    )  # fmt: skip


def claims_of(what: str, paper_mib: float) -> tuple[Claim, ...]:
    return tuple(claim(name, what, paper_mib) for name in SAID)


DATA, JOURNAL = claims_of("data", 34_185), claims_of("journal", 1_890)

EXPERIMENT = Experiment(
    name="e18-page-cache",
    claim="how much of a file server's data reaches the disk depends on the disk's share of the write-back cache",
    source="FAST'17, sections 4 and 4.2.2, Table 3, varied",
    varied=True,
    runs=runs,
    phases=(NAME,),
    finding=(
        "The paper fixed the disk's share to a half. As Linux 6.12 takes it, nobody waits below the threshold of "
        "all disks together, and what reaches the disk changes by a hundredth. If the share is strict, data and "
        "journal are Table 3's; so this is how all that repeat FAST'17's file server and microbenchmarks read it. "
        "Whether Linux 4.6 enforced it was not tried: "
        "that kernel has no virtual time."
    ),
    expectations=(
        Expectation(
            "a share that is not strict changes the data by less than a twentieth, a strict one by more than a tenth",
            lambda records: abs(grown(records, HALF)) < 1 / 20 and grown(records, STRICT) > 1 / 10,
        ),
    ),
    claims=tuple(each for of_share in zip(DATA, JOURNAL, strict=True) for each in of_share),
    draw=bars.of_claims(
        bars.Group("Table 3, varied: data written", "MiB", DATA),
        bars.Group("Table 3, varied: journal written", "MiB", JOURNAL),
    ),
)

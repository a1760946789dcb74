# SPDX-License-Identifier: MIT OR Apache-2.0
"""How much of Postmark's data reaches the disk, over what the host may hold back: e12's baseline on 16 GiB of memory.

Files are deleted before the kernel writes them back; how many depends on how many dirty pages may stay. The paper's
host fixed the disk's share of the write-back cache "to 50% of the total" (section 4), by the files of sysfs-class-bdi.
How Linux 6.12 takes that: background writing begins at half, but nobody waits until all disks together reach the
threshold; unless the share is strict (`strict_limit`, since Linux 6.2). Compared: no share, a half, a strict half; and
a strict half of less memory, because nobody knows how much of its 16 GiB the paper's host had for dirty pages.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import (
    Claim,
    Expectation,
    Experiment,
    Record,
    bars,
    cell,
    drive,
    fs,
    run,
    workload,
    written_mib_s,
)

DRIVE, BASELINE, LAZY = "wd5000ys", "ext4-10g", "ext4-lazy"
NAME = "Postmark"
ALL, HALF, STRICT = f"{BASELINE}-all", f"{BASELINE}-half", f"{BASELINE}-strict-half"
SAID = {ALL: "no share", HALF: "a half", STRICT: "a strict half"}
LESS_GIB = (13, 10)


def of_memory(file_system: str, gib: int) -> str:
    return f"{file_system}-of-{gib}-gib"


SHINGLED, PART = "st8000as0002", of_memory(f"{BASELINE}-400gb", LESS_GIB[-1])
SAID |= {of_memory(BASELINE, gib): f"a strict half, {gib} GiB of memory" for gib in LESS_GIB}


def runs(scale: float, seed: int) -> list[run.Run]:
    baseline, lazy = run.cells(DRIVE, (BASELINE, LAZY), workload.plan((NAME,), scale=scale, seed=seed))
    cells = [
        replace(baseline, variant=replace(baseline.variant, name=ALL)),
        halved(baseline, HALF, strict=False),
        halved(baseline, STRICT, strict=True),
    ]
    cells = [replace(each, memory_mib=round(run.PAPER_MEMORY_MIB * scale)) for each in cells]
    for gib in LESS_GIB:
        for each in (baseline, lazy):
            less = halved(each, of_memory(each.variant.name, gib), strict=True)
            cells.append(replace(less, memory_mib=round((gib << 10) * scale)))
    part = replace(baseline, profile=drive.find(SHINGLED))
    part = replace(part, variant=fs.on_the_first(part.variant, run.PAPER_SMALL_PARTITION_BYTES))
    return [*cells, replace(halved(part, PART, strict=True), memory_mib=round((LESS_GIB[-1] << 10) * scale))]


def halved(cell: run.Run, name: str, *, strict: bool) -> run.Run:
    variant = fs.with_writeback(cell.variant, run.PAPER_WRITEBACK_PERCENT, strict=strict)
    return replace(cell, variant=replace(variant, name=name))


def written_mib(records: Sequence[Record], file_system: str, what: str) -> float:
    return float(cell(records, file_system, NAME)[f"{what}_written_bytes"]) / (1 << 20)


def gain(records: Sequence[Record], gib: int) -> float:
    lazy, baseline = (cell(records, of_memory(name, gib), NAME) for name in (LAZY, BASELINE))
    return written_mib_s(lazy) / written_mib_s(baseline)


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


DATA, METADATA, JOURNAL = claims_of("data", 34_185), claims_of("metadata", 480), claims_of("journal", 1_890)
TABLE_4 = tuple(
    Claim(
        "T12c", f"400 GB of {SHINGLED}, {SAID[of_memory(BASELINE, LESS_GIB[-1])]}: {what} written", "MiB", paper, paper,
        lambda records, what=what: written_mib(records, PART, what), 0.10, linear=True,
    )
    for what, paper in (("data", 32_917), ("metadata", 563), ("journal", 1_212))
)  # fmt: skip
GAINS = tuple(
    Claim(
        "T9c", f"{SAID[of_memory(BASELINE, gib)]}: throughput on {LAZY} over that on {BASELINE}", "", 1.05, 1.05,
        lambda records, gib=gib: gain(records, gib), 0.02, better="high",
    )
    for gib in LESS_GIB
)  # fmt: skip

EXPERIMENT = Experiment(
    name="e18-page-cache",
    claim="how much of a file server's work reaches the disk depends on how many dirty pages may stay",
    source="FAST'17, sections 4 and 4.2.2, Table 3, varied",
    varied=True,
    runs=runs,
    phases=(NAME,),
    expectations=(
        Expectation(
            "a share that is not strict changes the data by less than a twentieth, a strict one by more than a tenth",
            lambda records: abs(grown(records, HALF)) < 1 / 20 and grown(records, STRICT) > 1 / 10,
        ),
    ),
    claims=(*(each for of_one in zip(DATA, METADATA, JOURNAL, strict=True) for each in of_one), *GAINS, *TABLE_4),
    draw=bars.of_claims(
        bars.Group("Table 3, varied: data written", "MiB", DATA),
        bars.Group("Table 3, varied: metadata written", "MiB", METADATA),
        bars.Group("Table 3, varied: journal written", "MiB", JOURNAL),
        bars.Group("Table 4, varied: what is written", "MiB", TABLE_4),
        bars.Group("Section 4.2.2, varied: ext4-lazy against ext4-10g", "times faster", GAINS),
    ),
)

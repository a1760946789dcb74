# SPDX-License-Identifier: MIT OR Apache-2.0
"""The microbenchmarks of FAST'17 on a drive-managed SMR disk, with what the disk cleans afterwards (Figure 11).

A file system of 2 TB on the first part of the 8 TB disk, as the paper's partition. It is mounted with noatime: the
first reading of a new directory writes its access time, which leaves bands to clean, and in the paper there are none.
"""

from collections.abc import Sequence

from shingle.lab import (
    Claim,
    Experiment,
    Record,
    bars,
    calls_s,
    cell,
    cleaning,
    cleaning_claim,
    drive,
    fs,
    gain_spread,
    lazy_cleaning_claim,
    run,
    speedup_claim,
    unmount_ms,
    workload,
)

DRIVE = "st8000as0002"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
SCALE = 0.1


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for workloads in (workload.DIRECTORIES, workload.FILES):
        plan = workload.plan(workloads, scale=scale, seed=seed)
        variants = [
            fs.mounted_with(fs.on_the_first(fs.find(name), run.PAPER_PARTITION_BYTES), "noatime")
            for name in (BASELINE, LAZY)
        ]
        cells += [run.Run(drive.find(DRIVE), variant, plan) for variant in variants]
    return run.on_the_papers_host(cells, scale)


def faster(target: str, name: str, low: float, high: float) -> Claim:
    return speedup_claim(target, BASELINE, LAZY, name, low, high)


def streamed_share(records: Sequence[Record], file_system: str, name: str) -> float:
    """The part of what is written that the disk puts in place at once, past its persistent cache."""
    counters = cell(records, file_system, name)["counters"]
    return float(counters["streamed_bytes"]) / float(counters["streamed_bytes"] + counters["cached_bytes"])


FASTER = (
    faster("T11b", "MakeDirs", 1.5, 2.5),
    faster("T11b", "CreateFiles", 1.5, 2.5),
    faster("T11b", "ListDirs", 13, 13),
)
CLEANING = (
    cleaning_claim("T11c", BASELINE, "MakeDirs", 846),
    lazy_cleaning_claim("T11c", LAZY, "MakeDirs", 0),
    cleaning_claim("T11d", BASELINE, "RemoveDirs", 590),
    lazy_cleaning_claim("T11d", LAZY, "RemoveDirs", 10),
    cleaning_claim("T11d", BASELINE, "RemoveFiles", 366),
    lazy_cleaning_claim("T11d", LAZY, "RemoveFiles", 20),
    *(
        Claim("T11e", f"{name} on {system}: cleaning", "s", 0, 0, cleaning(system, name), basis="constructed")
        for name in ("ListDirs", "TarDirs", "FindFiles", "TarFiles")
        for system in (BASELINE, LAZY)
    ),
)
# "All of which are streamed, bypassing the persistent cache"; of the baseline's writes nine tenths are.
STREAMED = Claim(
    "T11f", f"MakeDirs on {LAZY}: streamed part of what is written", "", 1, 1,
    lambda records: streamed_share(records, LAZY, "MakeDirs"), 0.01, basis="fitted",
)  # fmt: skip


EXPERIMENT = Experiment(
    name="e13-smr-microbenchmarks",
    claim="on a shingled disk the gain is larger, and next to nothing is left to clean",
    source="FAST'17, section 4.3.1, Figure 11",
    runs=runs,
    phases=(*workload.DIRECTORIES, *workload.FILES, workload.UNMOUNT),
    expectations=(),
    scale=SCALE,
    scaling="The journal (10 GiB), the disk and its persistent cache are not scaled.",
    claims=(*FASTER, *CLEANING, STREAMED),
    draw=bars.of_claims(
        bars.Group("Figure 11: ext4-lazy against ext4-10g", "times faster", FASTER),
        bars.Group("Figure 11: what the drive cleans afterwards", "s", CLEANING),
        bars.Group("Section 4.3.1: written past the persistent cache", "part", (STREAMED,)),
    ),
    numbers={
        "calls_s": lambda records, name: calls_s(cell(records, LAZY, name)),
        "gain_spread": gain_spread(BASELINE, LAZY, (*workload.DIRECTORIES, *workload.FILES)),
        "unmount_ms": unmount_ms,
    },
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Directories and files made on the shingled disk, against the conventional one (FAST'17, section 4.3.1).

"MakeDirs and CreateFiles do not fill the persistent cache, therefore, they typically complete 2-3x faster than on CMR
disk." The phases of e11 and e13 that this takes, in one mount.
"""

from collections.abc import Sequence

from shingle.lab import (
    Claim,
    Expectation,
    Experiment,
    Record,
    bars,
    calls_s,
    cell,
    drive,
    fs,
    run,
    seconds,
    workload,
)

CONVENTIONAL, SHINGLED = "wd5000ys", "st8000as0002"
FILE_SYSTEMS = ("ext4-10g", "ext4-lazy")
WORKLOADS = ("MakeDirs", "CreateFiles")
SCALE = 0.05


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan(WORKLOADS, scale=scale, seed=seed)
    variants = [fs.mounted_with(fs.find(name), "noatime") for name in FILE_SYSTEMS]
    cells = [run.Run(drive.find(CONVENTIONAL), each, plan) for each in variants]
    cells += [
        run.Run(drive.find(SHINGLED), fs.on_the_first(each, run.PAPER_PARTITION_BYTES), plan) for each in variants
    ]
    return run.on_the_papers_host(cells, scale)


def faster(name: str, file_system: str) -> Claim:
    slow, fast = (seconds(file_system, name, disk) for disk in (CONVENTIONAL, SHINGLED))
    return Claim(
        "T11a", f"{name} on {file_system}: times faster on {SHINGLED} than on {CONVENTIONAL}", "", 2, 3,
        lambda records: slow(records) / fast(records), better="high",
    )  # fmt: skip


def never_full(records: Sequence[Record]) -> bool:
    """No write waited for the cleaning of a band."""
    phases = [cell(records, system, name, SHINGLED) for system in FILE_SYSTEMS for name in WORKLOADS]
    return all(each["counters"]["bands_cleaned_forced"] == 0 for each in phases)


CLAIMS = tuple(faster(name, file_system) for name in WORKLOADS for file_system in FILE_SYSTEMS)

EXPERIMENT = Experiment(
    name="e25-smr-against-cmr",
    claim="as long as the persistent cache does not fill, directories and files are made faster on a shingled disk",
    source="FAST'17, section 4.3.1",
    runs=runs,
    phases=(*WORKLOADS, workload.UNMOUNT),
    expectations=(Expectation("the persistent cache does not fill", never_full),),
    scale=SCALE,
    scaling="The journal (10 GiB), the disks and the persistent cache are not scaled.",
    claims=CLAIMS,
    draw=bars.of_claims(bars.Group("Section 4.3.1: the shingled disk against the conventional one", "times", CLAIMS)),
    numbers={"calls_s": lambda records, name: calls_s(cell(records, "ext4-lazy", name, SHINGLED))},
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The microbenchmarks of FAST'17 on file systems that have been used, beside fresh ones (section 4.2.1).

"On an aged file system, the metadata writeback is more likely to be random, resulting in even higher improvement on
ext4-lazy": the paper expects it of MakeDirs, and did not measure it. Disks, partition, and mount options are those
of e11 and e13; what aged means is in docs/reference/records.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Claim, Expectation, Experiment, Record, bars, by_seed, drive, fs, run, speedup, workload

CONVENTIONAL, SHINGLED = "wd5000ys", "st8000as0002"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
FRESH, AGED = "", "-aged"
SCALE = 0.05


def variant(file_system: str, disk: str) -> fs.FileSystem:
    found = fs.mounted_with(fs.find(file_system), "noatime")
    return found if disk == CONVENTIONAL else fs.on_the_first(found, run.PAPER_PARTITION_BYTES)


def runs(scale: float, seed: int) -> list[run.Run]:
    found = []
    for disk in (CONVENTIONAL, SHINGLED):
        for workloads in (workload.DIRECTORIES, workload.FILES):
            plan = workload.plan(workloads, scale=scale, seed=seed)
            for age, suffix in ((None, FRESH), (drive.Age(), AGED)):
                for name in (BASELINE, LAZY):
                    named = replace(variant(name, disk), name=name + suffix)
                    found.append(run.Run(drive.find(disk), named, plan, age=age))
    return run.on_the_papers_host(found, scale)


def gain(records: Sequence[Record], disk: str, name: str, suffix: str) -> float:
    return speedup(BASELINE + suffix, LAZY + suffix, name, disk)(records)


def of_fresh(disk: str, name: str) -> Callable[[Sequence[Record]], float]:
    def value(records: Sequence[Record]) -> float:
        return gain(records, disk, name, AGED) / gain(records, disk, name, FRESH)

    return value


def higher(target: str, disk: str) -> Claim:
    return Claim(
        target,
        f"MakeDirs on {disk}: gain on an aged file system",
        "of the gain on a fresh one",
        1,
        None,
        of_fresh(disk, "MakeDirs"),
    )


def draw(records: Sequence[Record], stem: Path) -> None:
    _, seeds = by_seed(records)
    panels = []
    for disk in (CONVENTIONAL, SHINGLED):
        rows = [
            bars.Bar(f"{name}, {label}", tuple(gain(seed, disk, name, suffix) for seed in seeds))
            for name in (*workload.DIRECTORIES, *workload.FILES)
            for label, suffix in (("fresh", FRESH), ("aged", AGED))
        ]
        panels.append(bars.Panel(f"{disk}: {LAZY} against {BASELINE}", "times faster", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e28-aged-microbenchmarks",
    claim="on an aged file system journal_lazy gains more than on a fresh one",
    source="FAST'17, section 4.2.1",
    varied=True,
    runs=runs,
    phases=(*workload.DIRECTORIES, *workload.FILES, workload.UNMOUNT),
    expectations=(
        Expectation(
            "nothing takes longer on an aged file system than with the baseline",
            lambda records: all(
                gain(records, disk, name, AGED) >= 0.99
                for disk in (CONVENTIONAL, SHINGLED)
                for name in (*workload.DIRECTORIES, *workload.FILES)
            ),
        ),
    ),
    scale=SCALE,
    scaling="The journal (10 GiB), the disks, their age and the persistent cache are not scaled.",
    claims=(higher("T7a", CONVENTIONAL), higher("T11b", SHINGLED)),
    draw=draw,
    numbers={"gain": gain},
)

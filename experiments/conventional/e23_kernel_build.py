# SPDX-License-Identifier: MIT OR Apache-2.0
"""Building a kernel's modules: little metadata, and no gain, because processors and not the disk are what is short.

FAST'17, section 4.2.2, Figures 3 and 10: make -j16 of Linux 4.6 with all its modules, on four cores with two
threads each. Computing takes no time in the simulated machine, so a build is replayed: what a native one did to its
files and how long each of its jobs computed (docs/reference/build-traces.md). The recorded build is of the modules
of a small configuration only, so shares and ratios are compared and no byte counts. On a drive-managed disk, too,
where the paper did not try.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, fs, parts_s, run, workload

DRIVE, SHINGLED = "wd5000ys", "st8000as0002"
BASELINE, LAZY, UNDATED = "ext4-10g", "ext4-lazy", "ext4-10g-noatime"
NAME = "KernelBuild"
PAPER_MIB = {"data": 12 * 1024, "metadata": 98, "journal": 185}
PROCESSORS = 8


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    cells = [each for drive in (DRIVE, SHINGLED) for each in run.cells(drive, (BASELINE, LAZY), plan)]
    undated = replace(fs.mounted_with(fs.find(BASELINE), "noatime"), name=UNDATED)
    return [*cells, replace(cells[0], variant=undated)]


def built_s(records: Sequence[Record], file_system: str, drive: str) -> float:
    """Of make itself, without the sync after it."""
    return parts_s(cell(records, file_system, NAME, drive), "build")


def written_mib(records: Sequence[Record], file_system: str, written: str) -> float:
    """During the build, its sync and the unmount."""
    phases = [cell(records, file_system, phase, DRIVE) for phase in (NAME, workload.UNMOUNT)]
    return sum(float(phase[f"{written}_written_bytes"]) for phase in phases) / (1 << 20)


def share(records: Sequence[Record], file_system: str, written: str) -> float:
    of_all = sum(written_mib(records, file_system, each) for each in PAPER_MIB)
    return 100 * written_mib(records, file_system, written) / of_all


def processors_busy(records: Sequence[Record], file_system: str, drive: str) -> float:
    """Of the time of the build, in percent."""
    computed_s = float(cell(records, file_system, NAME, drive)["load"]["details"]["computed_us"]) / 1e6
    return 100 * computed_s / PROCESSORS / built_s(records, file_system, drive)


def disk_busy(records: Sequence[Record], file_system: str, drive: str) -> float:
    """Of the whole phase, its reading before and its sync after the build included, in percent."""
    phase = cell(records, file_system, NAME, drive)
    return 100 * float(phase["counters"]["busy_ns"]) / 1e9 / float(phase["virtual_s"])


def paper_share(written: str) -> float:
    return 100 * PAPER_MIB[written] / sum(PAPER_MIB.values())


def share_claim(file_system: str, what: str) -> Claim:
    return Claim(
        "T3", f"replayed: share of {what} in what {file_system} writes", "%", paper_share(what), paper_share(what),
        lambda records: share(records, file_system, what), 0.10,
    )  # fmt: skip


SHARES = (*(share_claim(BASELINE, what) for what in PAPER_MIB), share_claim(UNDATED, "metadata"))
GAINS = tuple(
    Claim(
        "T3", f"replayed: times faster on ext4-lazy than on ext4-10g, {drive}", "", 1.0, 1.0,
        lambda records, drive=drive: built_s(records, BASELINE, drive) / built_s(records, LAZY, drive), 0.02,
    )
    for drive in (DRIVE, SHINGLED)
)  # fmt: skip

EXPERIMENT = Experiment(
    name="e23-kernel-build",
    claim="a kernel build gains nothing from lazy journaling: hardly any of its writes are metadata, and it computes",
    source="FAST'17, sections 2 and 4.2.2, Figures 3 and 10",
    runs=runs,
    scalable=False,
    phases=(NAME, workload.UNMOUNT),
    expectations=(
        Expectation(
            "the processors are busier than the disk, on both file systems and disks",
            lambda records: all(
                processors_busy(records, file_system, drive) > disk_busy(records, file_system, drive)
                for file_system in (BASELINE, LAZY)
                for drive in (DRIVE, SHINGLED)
            ),
        ),
    ),
    scaling="A recorded build has the size that it has.",
    claims=(*SHARES, *GAINS),
    draw=bars.of_claims(
        bars.Group("Figure 3: what a kernel build writes, replayed", "% of all bytes", SHARES),
        bars.Group("Figure 10: gain of a kernel build, replayed", "times", GAINS),
    ),
)

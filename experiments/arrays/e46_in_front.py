# SPDX-License-Identifier: MIT OR Apache-2.0
"""What owners can put in front of a shingled disk today: a small SSD that takes ext4's journal, or writes.

Stock ext4 with its journal on the SSD, below dm-writecache, dm-cache and bcache, each as it is when it is made, beside
stock ext4 and data in order without an SSD. The programs are those of e44; then all that lies on the SSD alone is
brought to the disk, which is the bill that a full SSD has to pay. dm-cache and bcache decide themselves what they keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.lab import IN_MACHINE, Expectation, Experiment, Record, bars, cell, drive, fs, job, programs, run, workload

DRIVE, FAST = "st8000as0002", "ssd-sata"
STOCK, SMR = "ext4", "ext4-smr"
KINDS = ("journal", "writecache", "cache", "bcache")
PROGRAMS = ("SqliteWal", "Postgres", "Mail", "Torrent", "Rsync", "Packages", "Photos", "Bundle")
DRAIN = "Drain"
SCRIPT = IN_MACHINE / "front.sh"
LIMIT_S = 30 * 24 * 3600


@dataclass(frozen=True)
class WithSsd(programs.Programs):
    """The same programs with an SSD in front of the file system; `kind` as front.sh has it."""

    kind: str = ""

    def files(self) -> tuple[Path, ...]:
        return (*super().files(), SCRIPT)

    def steps(self) -> list[job.Step]:
        def step(do: str, phase: str | None = None) -> job.Step:
            argv = ("/bin/sh", f"{job.OUT}/{SCRIPT.name}", do, self.kind)
            return job.run(argv, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, limit_s=LIMIT_S, phase=phase)

        clean = job.wait_clean(limit_s=LIMIT_S)
        return [
            step("make"), clean, *self.work(), step("drain", DRAIN), clean,
            job.umount(phase=workload.UNMOUNT), step("stop", workload.UNMOUNT), clean,
        ]  # fmt: skip


def runs(scale: float, seed: int) -> list[run.Run]:
    alone = programs.plan(PROGRAMS, scale=scale, seed=seed)
    found = [run.Run(drive.find(DRIVE), fs.find(name), alone) for name in (STOCK, SMR)]
    names = (*PROGRAMS, DRAIN)
    for kind in KINDS:
        plan = WithSsd(names, dict.fromkeys(names, scale), seed, beside=(DRAIN,), kind=kind)
        found.append(run.Run(drive.find(DRIVE), named(kind), plan, others=(drive.find(FAST),)))
    return found


def named(kind: str) -> fs.FileSystem:
    """Stock ext4, with what is in front as its name in records; its journal may not be where the disk was formatted."""
    return replace(fs.find(STOCK), name=kind, classes=frozenset({"metadata"}), probe=None)


def work_s(records: Sequence[Record], name: str, program: str) -> float:
    """Until all is synced, on the SSD or the disk."""
    return float(cell(records, name, program)["virtual_s"])


def longest_s(records: Sequence[Record], name: str, program: str) -> float:
    """The longest that the program waited for one of its operations."""
    waits = cell(records, name, program)["load"]["latency_ns"]
    return max(float(each["max"]) for each in waits.values()) / 1e9


def cleaning_s(found: Record) -> float:
    """Until both disks are quiet."""
    return float(max(each["cleaning_s"] for each in (found, *found.get("disks", ()))))


def all_s(records: Sequence[Record], name: str) -> float:
    """All programs, until all is synced."""
    return sum(work_s(records, name, each) for each in PROGRAMS)


def drain_s(records: Sequence[Record], name: str) -> float:
    """Until nothing is on the SSD alone."""
    return work_s(records, name, DRAIN) if name in KINDS else 0.0


def all_cleaning_s(records: Sequence[Record], name: str) -> float:
    """The cleaning after the programs and after that."""
    phases = (*PROGRAMS, DRAIN) if name in KINDS else PROGRAMS
    return sum(cleaning_s(cell(records, name, each)) for each in phases)


def bill_s(records: Sequence[Record], name: str) -> float:
    """All of it."""
    return all_s(records, name) + drain_s(records, name) + all_cleaning_s(records, name)


def draw(records: Sequence[Record], stem: Path) -> None:
    rows = []
    for name in (STOCK, *KINDS, SMR):

        def parts(own: Sequence[Record], name: str = name) -> list[tuple[str, float]]:
            return [
                ("programs", all_s(own, name)),
                ("home from the SSD", drain_s(own, name)),
                ("cleaning", all_cleaning_s(own, name)),
            ]

        rows.append(bars.of_parts(name, records, parts))
    bars.draw([bars.Panel(DRIVE, "virtual s", rows)], stem)


EXPERIMENT = Experiment(
    name="e46-in-front",
    claim="an SSD in front of a shingled disk saves programs more than data in order do",
    runs=runs,
    phases=(*PROGRAMS, DRAIN),
    scaling="The disks and their caches are not scaled.",
    expectations=(
        Expectation(
            "with each of them the programs are done before they are on the disk alone",
            lambda records: all(all_s(records, each) < all_s(records, STOCK) for each in KINDS),
        ),
        Expectation(
            "dm-writecache, which takes all writes, lets them be done before they are with data in order",
            lambda records: all_s(records, "writecache") < all_s(records, SMR),
        ),
        Expectation(
            "with the way home and the cleaning all but bcache are done before data in order without an SSD",
            lambda records: all((bill_s(records, each) < bill_s(records, SMR)) == (each != "bcache") for each in KINDS),
        ),
    ),
    numbers={
        "work_s": work_s,
        "longest_s": longest_s,
        "all_s": all_s,
        "drain_s": drain_s,
        "cleaning_s": all_cleaning_s,
        "bill_s": bill_s,
    },
    draw=draw,
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server's disk after years: filled to a share, and then written ten times over, with a pause after each tenth.

In a pause the drive cleans, and where it is said `ext4lazy tidy` runs first. lab/in_machine/churn.py has the files. The
last tenth of some rounds is measured. All that is free is told by the length of its stretch at the end of its pause:
what is new is streamed only into long ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.lab import (
    IN_MACHINE,
    TIDY,
    Expectation,
    Experiment,
    Record,
    bars,
    busy_s,
    cell,
    drive,
    fs,
    job,
    run,
    workload,
)

DRIVE = "st8000as0002"
# Less than is written between two pauses: it is full most of the time. It names the drive, so it is not scaled.
CACHE_GIB, CACHE_ENTRIES = 0.0625, 450
# At scale 1.
CAPACITY_BYTES = 200 << 30
SCALE = 0.01
LOG_MIB = 256
STOCK, OFF, ON, TIDIED = "ext4-256m", "ext4-lazy-256m", "ext4-smr-256m", "ext4-smr-256m-tidied"
OWN = {STOCK: "", OFF: "journal_lazy", ON: "journal_lazy,data_relocate", TIDIED: "journal_lazy,data_relocate"}
FULL_PERCENT = (50, 70, 80, 90)
# Beside others on one disk. NILFS2 as it is shipped keeps what was deleted for an hour; in the other one the cleaner
# keeps nothing, and never rests.
CLEANING = "nilfs2-cleaning"
OTHERS, OTHERS_FULL = ("f2fs", "nilfs2", CLEANING, "btrfs", "xfs"), 80
# They hold as much as ext4: what statfs() calls its size is this share of the disk, which has the log, too.
EXT4_SHARE = 1753 / 2048
CLEANER, CLEANER_SEGMENTS = "/run/nilfs_cleanerd.conf", 8
STOP_CLEANER = "kill $(pidof nilfs_cleanerd) && while pidof nilfs_cleanerd >/dev/null; do sleep 0.01; done"
FILL = "Fill"
# In each round as much is written as is in use, in so many parts. Of these rounds the last part is a phase of its own.
PARTS = 10
MEASURED = (1, 2, 5, 10)
ROUNDS = tuple(f"Round{number}" for number in MEASURED)
LAST = ROUNDS[-1]
# A stretch is streamed from this length on.
LONG_KIB = 8192
CHURN = IN_MACHINE / "churn.py"
REPORT = "/run/report.json"


def tidy_of(phase: str) -> str:
    return phase.replace("Round", "Tidy")


def before(phase: str) -> str:
    """All since the last part that was measured, with the pauses."""
    return phase.replace("Round", "Churn")


@dataclass(frozen=True)
class Ageing(workload.Plan):
    """One disk's years."""

    full_percent: int = 0
    tidied: bool = False
    # What the share is of; 0 for what statfs() calls the size.
    of_bytes: int = 0
    # What NILFS2's cleaner is told; empty if it is started with the mount, or there is none.
    cleaner: str = ""

    def files(self) -> tuple[Path, ...]:
        return (CHURN, TIDY)

    def steps(self) -> list[job.Step]:
        folder, full = f"{job.MOUNT_POINT}/server", str(self.full_percent)
        of = (str(self.of_bytes),) if self.of_bytes else ()
        written = round(CAPACITY_BYTES * self.scales[LAST] * self.full_percent / 100 / PARTS)
        clean = job.wait_clean(limit_s=workload.CLEAN_LIMIT_S)

        def python(program: Path, *more: str, phase: str) -> job.Step:
            argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{program.name}", *more]
            return job.run(argv, limit_s=workload.CLEAN_LIMIT_S, phase=phase)

        start, stop = [], []
        if self.cleaner:
            argv = ("/sbin/nilfs_cleanerd", "-c", CLEANER, job.DEVICE, job.MOUNT_POINT)
            start = [job.write(CLEANER, self.cleaner), job.run(argv)]
            stop = [job.run(("/bin/sh", "-c", STOP_CLEANER), limit_s=workload.CLEAN_LIMIT_S, phase=workload.UNMOUNT)]
        found = [
            *start,
            python(CHURN, "fill", folder, full, str(self.seed), *of, phase=FILL), job.sync(phase=FILL),
            job.drop_caches(), clean,
        ]  # fmt: skip
        for part in range(1, MEASURED[-1] * PARTS + 1):
            name = next(f"Round{number}" for number in MEASURED if part <= number * PARTS)
            measured = part in (number * PARTS for number in MEASURED)
            phase, tidy = (name, tidy_of(name)) if measured else (before(name), before(name))
            arguments = (folder, full, str(written), f"{self.seed} {part}", REPORT, *of)
            found.append(python(CHURN, "round", *arguments, phase=phase))
            if measured:
                found.append(job.read(REPORT, phase=phase))
            found.append(clean)
            if self.tidied:
                found += [python(TIDY, job.MOUNT_POINT, "--rate", "1000", phase=tidy), job.sync(phase=tidy)]
                if measured:
                    found += [python(CHURN, "free", folder, REPORT, phase=tidy), job.read(REPORT, phase=tidy)]
                found.append(clean)
        return [*found, *stop, job.umount(phase=workload.UNMOUNT), clean]


def named(file_system: str, full_percent: int) -> str:
    return f"{file_system}-{full_percent}"


def runs(scale: float, seed: int) -> list[run.Run]:
    profile = drive.changed(drive.find(DRIVE), "translation.cache", CACHE_GIB)
    profile = drive.changed(profile, "translation.cache_entries", CACHE_ENTRIES)
    cells = [(fs.ext4(name, name, LOG_MIB, OWN[name]), full) for full in FULL_PERCENT for name in OWN]
    cleaning = replace(fs.find("nilfs2"), name=CLEANING, daemon=())
    cells += [(cleaning if name == CLEANING else fs.find(name), OTHERS_FULL) for name in OTHERS]
    found = []
    capacity = max(1, round(CAPACITY_BYTES * scale) >> 30) << 30
    for variant, full in cells:
        tidied = variant.name == TIDIED
        each_round = [(before(each), each, *((tidy_of(each),) if tidied else ())) for each in ROUNDS]
        names = (FILL, *(phase for phases in each_round for phase in phases))
        cleaner = fs.nilfs2_without_pause(CLEANER_SEGMENTS) if variant.name == CLEANING else ""
        plan = Ageing(
            names, dict.fromkeys(names, scale), seed, full_percent=full, tidied=tidied,
            of_bytes=0 if variant.name in OWN else round(capacity * EXT4_SHARE), cleaner=cleaner,
        )  # fmt: skip
        found.append(run.Run(
            profile, replace(variant, name=named(variant.name, full)), plan, memory_mib=512,
            capacity_bytes=capacity, may_fail=True,
        ))  # fmt: skip
    return found


def busy_of(records: Sequence[Record], file_system: str, full: int, phase: str = LAST) -> float:
    """The last tenth of a round, until all is written and the disk has cleaned up; s."""
    return float(busy_s(cell(records, named(file_system, full), phase)))


def is_finished(records: Sequence[Record], file_system: str) -> bool:
    name = named(file_system, OTHERS_FULL)
    return not any("failed" in each for each in records if each["file_system"] == name)


def rewritten(records: Sequence[Record], file_system: str, full: int, phase: str = LAST) -> float:
    """Bytes that the drive rewrites per byte of the user's."""
    each = cell(records, named(file_system, full), phase)
    return float(each["counters"]["rewritten_bytes"] / each["load"]["user_written_bytes"])


def long_percent(records: Sequence[Record], file_system: str, full: int, phase: str = LAST) -> float:
    """Of all free bytes, those in stretches that the drive streams; when the next round begins."""
    last = tidy_of(phase) if file_system == TIDIED else phase
    free = cell(records, named(file_system, full), last)["load"]["free_bytes"]
    return 100 * sum(size for length, size in free.items() if int(length) >= LONG_KIB) / sum(free.values())


def tidy_s(records: Sequence[Record], full: int, phase: str = LAST) -> float:
    """What tidying takes after the last tenth of a round, with what the disk then cleans."""
    return float(busy_s(cell(records, named(TIDIED, full), tidy_of(phase))))


def tidy_mib(records: Sequence[Record], full: int, phase: str = LAST) -> float:
    """What is written to tidy up after the last tenth of a round, in MiB."""
    return float(cell(records, named(TIDIED, full), tidy_of(phase))["total_written_bytes"] / (1 << 20))


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for full in FULL_PERCENT:
        rows = []
        for name in (OFF, ON, TIDIED):
            for phase in ROUNDS:

                def parts(
                    own: Sequence[Record], name: str = name, full: int = full, phase: str = phase
                ) -> list[tuple[str, float]]:
                    return [("free bytes in stretches of 8 MiB and more", long_percent(own, name, full, phase))]

                rows.append(bars.of_parts(f"{name}, {phase}", records, parts))
        panels.append(bars.Panel(f"{full} % full", "% of what is free", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e48-ageing",
    claim="on a disk that is 80 % full and was written ten times over, data in order stay ahead of stock ext4",
    runs=runs,
    phases=(FILL, *(phase for each in ROUNDS for phase in (before(each), each, tidy_of(each)))),
    scale=SCALE,
    scaling="The disk and what is written are scaled; bands, files and the log are not.",
    expectations=(
        Expectation(
            "up to 80 % full the last tenth, with the cleaning, takes less than half of stock ext4's time",
            lambda records: all(
                2 * busy_of(records, ON, full) < busy_of(records, STOCK, full) for full in FULL_PERCENT if full <= 80
            ),
        ),
        Expectation(
            "at 90 % full it takes no longer than without data in order",
            lambda records: busy_of(records, ON, 90) <= busy_of(records, OFF, 90),
        ),
        Expectation(
            "tidying in the pauses leaves more of what is free in stretches that are streamed, at each share",
            lambda records: all(
                long_percent(records, TIDIED, full) > long_percent(records, ON, full) for full in FULL_PERCENT
            ),
        ),
        Expectation(
            "and at 80 % full it leads the file systems that people might choose instead",
            lambda records: all(
                busy_of(records, TIDIED, OTHERS_FULL) < busy_of(records, other, OTHERS_FULL)
                for other in OTHERS
                if is_finished(records, other)
            ),
        ),
    ),
    numbers={
        "busy_of": busy_of,
        "rewritten": rewritten,
        "long_percent": long_percent,
        "tidy_s": tidy_s,
        "tidy_mib": tidy_mib,
    },
    draw=draw,
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The two append-only applications of SAFS, on the file systems that people might choose, on the same disks.

SDC 2015, "Measured SAFS Applications". A file system of 64 GiB is the first 64 GiB of a drive with 16 conventional
zones, as the slides' file system has 16 that are written at random. What a disk gives at best is what a program
gets that writes and reads the same places past every file system.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.lab import (
    Claim,
    Expectation,
    Experiment,
    NotRecorded,
    Record,
    bars,
    by_seed,
    cell,
    drive,
    fs,
    job,
    run,
    workload,
)

CONVENTIONAL, HOST_AWARE, HOST_MANAGED = "safs-cmr-4tb", "safs5000ha", "hc620"
SAFS, SLIDES = "safs", "safs-log"
ANYWHERE = ("ext4", "xfs", "btrfs", "f2fs", "nilfs2")
IN_ORDER = ("f2fs", "btrfs")
ONE = ("AppendHalf", "ReadHalf", "RemoveHalf")
TWO = ("AppendMost", "ReplaceMost", "RemoveMost")
# What a phase does, in the figure: half of the files or most of them is the application's.
WORK = {name: name.removesuffix("Half").removesuffix("Most").lower() for name in (*ONE, *TWO)}
RAW, RAW_WRITE, RAW_READ = "raw", "RawWrite", "RawRead"
EAGER = "nilfs2-eager"
CLEANER = "/run/nilfs_cleanerd.conf"
# At a time, of its cleaner without a pause: as much as it can.
SEGMENTS = 32
CAPACITY_BYTES = 64 << 30
RANDOM_ZONES, ZONE_BYTES = 16, 256 << 20
RAW_BYTES, RAW_IO_BYTES = 8 << 30, 16 << 20


@dataclass(frozen=True)
class Raw(workload.Plan):
    """The disk itself, written and read from front to back behind its conventional zones."""

    @property
    def phases(self) -> tuple[str, ...]:
        return (RAW_WRITE, RAW_READ, workload.UNMOUNT)

    def steps(self) -> list[job.Step]:
        place = {
            "path": job.DEVICE, "start_bytes": RANDOM_ZONES * ZONE_BYTES, "io_bytes": RAW_IO_BYTES, "direct": True,
            "length_bytes": RAW_BYTES, "seed": self.seed,
        }  # fmt: skip
        return [
            job.load("sequential_write", place, phase=RAW_WRITE),
            job.wait_clean(limit_s=workload.CLEAN_LIMIT_S),
            job.load("sequential_read", place, phase=RAW_READ),
            job.umount(phase=workload.UNMOUNT),
        ]


def disk(name: str) -> drive.Profile:
    profile = drive.find(name)
    if name == CONVENTIONAL:
        return profile
    return replace(drive.changed(profile, "translation.conventional_first", RANDOM_ZONES), name=name)


def file_systems(name: str, phases: Sequence[str] = ONE) -> list[fs.FileSystem]:
    ours = fs.find(SAFS)
    slides = replace(ours, name=SLIDES, options="placement=log")
    others = [fs.find(each) for each in (IN_ORDER if name == HOST_MANAGED else ANYWHERE)]
    if name != HOST_MANAGED and phases is TWO:
        nilfs2 = fs.find("nilfs2")
        daemon = (*nilfs2.daemon, "-c", CLEANER)
        others.append(
            replace(nilfs2, name=EAGER, settings=((CLEANER, fs.nilfs2_without_pause(SEGMENTS)),), daemon=daemon)
        )
    return [*{CONVENTIONAL: (), HOST_AWARE: (ours, slides), HOST_MANAGED: (ours,)}[name], *others]


def runs(scale: float, seed: int) -> list[run.Run]:
    raw = Raw((RAW_WRITE,), {RAW_WRITE: scale}, seed)
    found = []
    for name in (HOST_AWARE, CONVENTIONAL, HOST_MANAGED):
        found.append(run.Run(disk(name), fs.without(RAW), raw, capacity_bytes=CAPACITY_BYTES))
        for phases in (ONE, TWO):
            plan = workload.plan(phases, scale=scale, seed=seed)
            found += [
                run.Run(disk(name), each, plan, capacity_bytes=CAPACITY_BYTES, may_fail=True)
                for each in file_systems(name, phases)
            ]
    return found


def seconds_of(records: Sequence[Record], file_system: str, name: str, phases: Sequence[str]) -> float:
    """All phases of an application together, as in the slides."""
    return sum(float(cell(records, file_system, phase, name)["virtual_s"]) for phase in phases)


def mib_s(records: Sequence[Record], file_system: str, name: str, phase: str) -> float:
    found = cell(records, file_system, phase, name)
    load = found["load"]
    return float(load["user_written_bytes"] + load["user_read_bytes"]) / (1 << 20) / float(found["virtual_s"])


def share(records: Sequence[Record], file_system: str, name: str, phase: str) -> float:
    """Of what the disk itself gives."""
    best = RAW_READ if phase.startswith("Read") else RAW_WRITE
    return mib_s(records, file_system, name, phase) / mib_s(records, RAW, name, best)


def amplification(records: Sequence[Record], file_system: str, name: str, phases: Sequence[str]) -> float:
    """Bytes that the disk was given, to bytes that were appended."""
    found = [cell(records, file_system, phase, name) for phase in phases]
    written = sum(int(each["total_written_bytes"]) for each in found)
    return written / sum(int(each["load"]["user_written_bytes"]) for each in found)


def ahead(records: Sequence[Record], name: str, phases: Sequence[str]) -> bool:
    """Whether SAFS takes less time than each that comes to its end."""
    ours = seconds_of(records, SAFS, name, phases)
    for other in file_systems(name, phases):
        if other.name in (SAFS, SLIDES):
            continue
        try:
            if seconds_of(records, other.name, name, phases) <= ours:
                return False
        except NotRecorded:
            continue
    return True


def application(file_system: str, name: str, phases: Sequence[str]) -> str:
    return f"application {1 if phases is ONE else 2} on {file_system}, {name}"


def slides(target: str, file_system: str, name: str, phases: Sequence[str], paper_s: float) -> Claim:
    return Claim(
        target, application(file_system, name, phases), "s", paper_s, paper_s,
        lambda records: seconds_of(records, file_system, name, phases), 0.25, linear=True,
        better="low" if file_system in (SAFS, SLIDES) else None,
    )  # fmt: skip


def came_to_its_end(records: Sequence[Record], file_system: str, name: str, phases: Sequence[str]) -> float:
    """1 if it did, else 0: a run that failed is recorded up to where it did."""
    found = [each for each in records if (each["file_system"], each["drive"]) == (file_system, name)]
    if not any(each["phase"] == phases[0] for each in found):
        raise NotRecorded(f"there is no record of {phases[0]} on {file_system} on {name}.")
    return float({each["phase"] for each in found if "failed" not in each}.issuperset(phases))


def times_faster(file_system: str, other: str, phases: Sequence[str], paper: float) -> Claim:
    """On the host-aware disk, against another on the conventional one."""
    return Claim(
        "T32", f"{application(file_system, HOST_AWARE, phases)}: times faster than {other}", "", paper, paper,
        lambda records: (
            seconds_of(records, other, CONVENTIONAL, phases) / seconds_of(records, file_system, HOST_AWARE, phases)
        ),
        0.10, better="high",
    )  # fmt: skip


def gives(name: str, phase: str, part: float) -> Expectation:
    return Expectation(
        f"{phase} on {name}: SAFS has {part:.0%} of what the disk gives",
        lambda records: share(records, SAFS, name, phase) >= part,
    )


def writes(name: str, phases: Sequence[str], most: float) -> Expectation:
    return Expectation(
        f"{phases[0]} and what follows on {name}: at most {most:.2f} times what was appended is written",
        lambda records: amplification(records, SAFS, name, phases) <= most,
    )


def leads(name: str, phases: Sequence[str]) -> Expectation:
    return Expectation(
        f"{phases[0]} and what follows on {name}: SAFS is ahead of all others",
        lambda records: ahead(records, name, phases),
    )


CLAIMS = (
    slides("T30", "ext4", CONVENTIONAL, ONE, 571),
    slides("T30", "nilfs2", CONVENTIONAL, ONE, 510),
    slides("T30", "f2fs", CONVENTIONAL, ONE, 504),
    slides("T30", SLIDES, HOST_AWARE, ONE, 458),
    slides("T30", SAFS, HOST_AWARE, ONE, 458),
    slides("T31", "ext4", CONVENTIONAL, TWO, 988),
    slides("T31", "nilfs2", CONVENTIONAL, TWO, 742),
    slides("T31", SLIDES, HOST_AWARE, TWO, 698),
    slides("T31", SAFS, HOST_AWARE, TWO, 698),
    Claim(
        "T31", f"{application('f2fs', CONVENTIONAL, TWO)}: runs that come to their end", "", 0, 0,
        lambda records: came_to_its_end(records, "f2fs", CONVENTIONAL, TWO),
    ),
    *(
        times_faster(ours, other, phases, paper)
        for ours in (SLIDES, SAFS)
        for other, phases, paper in (
            ("ext4", ONE, 1.25), ("ext4", TWO, 1.42), ("nilfs2", ONE, 1.11), ("nilfs2", TWO, 1.06),
        )
    ),
)  # fmt: skip


def draw(records: Sequence[Record], stem: Path) -> None:
    """Seconds of each application by phase, with the slides' sums."""
    scale, _ = by_seed(records)
    papers = {claim.what: claim.expected(scale)[0] for claim in CLAIMS}

    def bar(file_system: str, name: str, phases: Sequence[str]) -> bars.Bar:
        return bars.of_parts(
            f"{file_system}, {name}",
            records,
            lambda own: [(WORK[phase], seconds_of(own, file_system, name, (phase,))) for phase in phases],
            papers.get(application(file_system, name, phases)),
        )

    panels = []
    for title, phases in (("Application 1", ONE), ("Application 2", TWO)):
        rows = [bar(each.name, name, phases) for name in (HOST_AWARE, CONVENTIONAL, HOST_MANAGED)
                for each in file_systems(name, phases)]  # fmt: skip
        panels.append(bars.Panel(f"{title}, scale {scale:g}", "virtual s", rows))
    bars.draw(panels, stem)


def moved_gib(records: Sequence[Record], file_system: str) -> float:
    """What the host-aware disk was given in application 2 beyond what was appended."""
    found = [cell(records, file_system, phase, HOST_AWARE) for phase in TWO]
    return sum(int(each["total_written_bytes"]) - int(each["load"]["user_written_bytes"]) for each in found) / (1 << 30)


EXPERIMENT = Experiment(
    name="e30-append-only",
    claim="for files that only grow, SAFS gives what a shingled disk gives at best, and the others do not",
    source="SAFS (SDC 2015), applications 1 and 2",
    runs=runs,
    phases=(RAW_WRITE, RAW_READ, *ONE, *TWO),
    expectations=tuple(
        expectation
        for name in (HOST_AWARE, HOST_MANAGED)
        for expectation in (
            gives(name, "AppendHalf", 0.95),
            gives(name, "ReadHalf", 0.90),
            gives(name, "AppendMost", 0.95),
            gives(name, "ReplaceMost", 0.95),
            writes(name, ONE, 1.10),
            writes(name, TWO, 1.25),
            leads(name, ONE),
            leads(name, TWO),
        )
    ),
    claims=CLAIMS,
    draw=draw,
    numbers={"moved_gib": moved_gib},
)

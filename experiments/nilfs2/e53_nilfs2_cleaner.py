# SPDX-License-Identifier: MIT OR Apache-2.0
"""NILFS2 with its cleaner at work on a disk that is nearly full: what the report left for later (FSL-14-03, section 5).

A file of 1 GiB, four times the memory (twice with zones of 256 MiB), on a disk of which NILFS2 gives 2 GiB to users,
is overwritten at random while the cleaner runs without a pause. Varied are the drive, the size of its zones and of
NILFS2's segments, the segments that NILFS2 reserves for its cleaner, and what the firmware does with a write that is
out of order. More than two superblocks would be another NILFS2: its format has two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.lab import (
    IN_MACHINE,
    Claim,
    Expectation,
    Experiment,
    NotRecorded,
    Record,
    bars,
    by_seed,
    console,
    drive,
    fs,
    job,
    run,
    workload,
)

SHINGLED, REGULAR = "wd30ezr-smr", "wd30ezr"
FILL, OVERWRITE, LOG = "Fill", "Overwrite", "log"
MEMORY_MIB = 256
USER_BYTES, ROOMY_BYTES = 2 << 30, 64 << 30
FILE_BYTES, WRITES = 1 << 30, 40_000
# NILFS2 does not make a writer wait for the cleaner: one that is not held back by the disk finds no space at once.
WRITES_PER_FSYNC = 16
ZONES_MIB = (32, 64, 128, 256)
# NILFS2 keeps so many for its cleaner at least (NILFS_MIN_NRSVSEGS), and mkfs.nilfs2 makes none with fewer than 17.
KEPT_SEGMENTS, SEGMENTS_MIN = 8, 17
RESERVED_PERCENT = (5, 10, 20)
SMALL_MIB, LARGE_MIB = 8, 128
# Of the cleaner, if segments are not larger.
STEP_MIB = 128
PROGRAM = IN_MACHINE / "complaints.py"
REPORT = "/run/report.json"
SETTINGS = "/run/nilfs_cleanerd.conf"
STOP = "kill $(pidof nilfs_cleanerd) && while pidof nilfs_cleanerd >/dev/null; do sleep 0.01; done"
STOP_LIMIT_S = 3600


@dataclass(frozen=True)
class Overwritten(workload.Plan):
    """A file is written, and overwritten at random. Each may fail; what the kernel said comes at the end."""

    # Of the cleaner; empty: it does not run.
    settings: str = ""

    @property
    def phases(self) -> tuple[str, ...]:
        return (*self.names, workload.UNMOUNT, LOG)

    def files(self) -> tuple[Path, ...]:
        return (PROGRAM,)

    def steps(self) -> list[job.Step]:
        file = {"path": "file", "seed": self.seed}
        fill = job.load("sequential_write", file | {"length_bytes": FILE_BYTES}, phase=FILL)
        places = {"span_bytes": FILE_BYTES, "count": WRITES, "direct": False, "prepare": False}
        places |= {"fsync_every": WRITES_PER_FSYNC}
        overwrite = job.load("random_overwrite", file | places, phase=OVERWRITE)
        start, stop = [], []
        if self.settings:
            argv = ("/sbin/nilfs_cleanerd", "-c", SETTINGS, job.DEVICE, job.MOUNT_POINT)
            start = [job.write(SETTINGS, self.settings), job.run(argv)]
            stop = [job.run(("/bin/sh", "-c", STOP), limit_s=STOP_LIMIT_S, may_fail=True, phase=workload.UNMOUNT)]
        program = ("/usr/bin/python3", "-I", f"{job.OUT}/{PROGRAM.name}", REPORT)
        return [
            *start,
            fill | {"may_fail": True}, job.sync(phase=FILL),
            overwrite | {"may_fail": True}, job.sync(phase=OVERWRITE),
            *stop,
            job.umount(phase=workload.UNMOUNT),
            job.run(program, phase=LOG), job.read(REPORT, phase=LOG),
        ]  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """What is varied; the rest is the same for all."""

    disk: str = SHINGLED
    zone_mib: int = LARGE_MIB
    segment_mib: int = LARGE_MIB
    reserved_percent: int = 5
    cleaner: bool = True
    roomy: bool = False
    reject: int = 1
    implicit_reset: int = 1

    @property
    def name(self) -> str:
        """Of the variant of NILFS2 in the records."""
        reserve = "" if self.reserved_percent == 5 else f"-reserve-{self.reserved_percent}"
        return f"nilfs2-{self.segment_mib}m{reserve}{'' if self.cleaner else '-idle'}"

    @property
    def profile(self) -> drive.Profile:
        profile = drive.find(self.disk)
        values = {"zone": self.zone_mib, "reject_violations": self.reject, "implicit_reset": self.implicit_reset}
        for key, value in values.items() if self.disk == SHINGLED else ():
            if profile.values["translation"][key]["value"] != value:
                profile = drive.changed(profile, f"translation.{key}", value)
        return profile

    @property
    def capacity_bytes(self) -> int:
        """With segments as large as zones, so much that users get 2 GiB."""
        zone_bytes = self.zone_mib << 20
        full_bytes = max(USER_BYTES + KEPT_SEGMENTS * zone_bytes, SEGMENTS_MIN * zone_bytes)
        return ROOMY_BYTES if self.roomy else full_bytes

    @property
    def memory_mib(self) -> int:
        """The cleaner holds all live blocks of a step in memory (nilfs_gccache_submit_read_data): with no more of it
        than a segment has it looks for free pages without end."""
        return max(MEMORY_MIB, 2 * self.segment_mib)

    def run(self, scale: float, seed: int) -> run.Run:
        nilfs2 = fs.nilfs2_of_segments(self.name, self.segment_mib)
        variant = replace(nilfs2, mkfs=(*nilfs2.mkfs, "-m", str(self.reserved_percent)), daemon=())
        settings = fs.nilfs2_without_pause(max(1, STEP_MIB // self.segment_mib)) if self.cleaner else ""
        plan = Overwritten((FILL, OVERWRITE), dict.fromkeys((FILL, OVERWRITE), scale), seed, settings=settings)
        return run.Run(
            self.profile, variant, plan, memory_mib=self.memory_mib, capacity_bytes=self.capacity_bytes,
            expected=(console.Trouble.FILE_SYSTEM_ERROR,),
        )  # fmt: skip


FULL = Cell()
# A cleaner whose writes are refused tries again and does not end: where it runs, they are counted.
SMALL_COUNTED = Cell(segment_mib=SMALL_MIB, reject=0)
# Without a reset a zone can be used once.
ONCE_COUNTED = Cell(reject=0, implicit_reset=0)
IDLE = replace(FULL, roomy=True, cleaner=False)
REGULAR_IDLE = replace(IDLE, disk=REGULAR, segment_mib=SMALL_MIB)
BY_RESERVE = tuple(Cell(REGULAR, segment_mib=SMALL_MIB, reserved_percent=each) for each in RESERVED_PERCENT)
BY_ZONE = tuple(Cell(zone_mib=each, segment_mib=each) for each in ZONES_MIB if each != LARGE_MIB)
CELLS = (FULL, BY_RESERVE[0], SMALL_COUNTED, ONCE_COUNTED, *BY_ZONE, *BY_RESERVE[1:], IDLE, REGULAR_IDLE)


def runs(scale: float, seed: int) -> list[run.Run]:
    return [each.run(scale, seed) for each in CELLS]


def recorded(records: Sequence[Record], wanted: Cell, phase: str) -> Record:
    """Of this cell, whether it came to its end or not."""
    for each in records:
        if (each["drive"], each["file_system"], each["phase"]) == (wanted.profile.name, wanted.name, phase):
            return each
    raise NotRecorded(f"there is no record of {phase} on {wanted.name} on {wanted.profile.name}.")


def violations(records: Sequence[Record], wanted: Cell) -> int:
    """Writes that were not at their zone's write pointer, from mount to unmount."""
    phases = (run.MOUNT, FILL, OVERWRITE, workload.UNMOUNT)
    return sum(int(recorded(records, wanted, phase)["counters"]["violations"]) for phase in phases)


def writes_per_s(records: Sequence[Record], wanted: Cell) -> float:
    found = recorded(records, wanted, OVERWRITE)
    if "failed" in found:
        raise NotRecorded(f"{OVERWRITE} failed on {wanted.name}: {found['failed']}")
    return WRITES / float(found["virtual_s"])


def complaints(records: Sequence[Record], wanted: Cell) -> dict[str, int]:
    """What the kernel said, by kind, and how often."""
    found: dict[str, int] = recorded(records, wanted, LOG)["load"]["complaints"]
    return found


def spoken(wanted: Cell) -> str:
    """A cell in words."""
    if wanted.disk == REGULAR:
        parts = ["regular", f"segments of {wanted.segment_mib} MiB", f"{wanted.reserved_percent} % reserved"]
    else:
        parts = [f"zones of {wanted.zone_mib} MiB", f"segments of {wanted.segment_mib} MiB"]
    parts += [] if wanted.reject else ["counted only"]
    parts += [] if wanted.implicit_reset else ["no reset"]
    return ", ".join([*parts, *([] if wanted.cleaner else ["no cleaner, not full"])])


SMALL_IN_ORDER = Claim(
    "T47", "writes that are not at a write pointer, segments of 8 MiB", "", 0, 0,
    lambda records: violations(records, SMALL_COUNTED),
)  # fmt: skip


def draw(records: Sequence[Record], stem: Path) -> None:
    _, seeds = by_seed(records)

    def bar(wanted: Cell, value: Callable[[Sequence[Record], Cell], float]) -> bars.Bar:
        try:
            return bars.Bar(spoken(wanted), tuple(value(own, wanted) for own in seeds))
        except NotRecorded:
            return bars.Bar(spoken(wanted), note="did not finish")

    shingled = [each for each in CELLS if each.disk == SHINGLED and each.cleaner]
    panels = (
        bars.Panel(
            "Overwriting 1 GiB at random", "writes of 4 KiB a virtual s", [bar(each, writes_per_s) for each in CELLS]
        ),
        bars.Panel("Writes that are not at a write pointer", "requests", [bar(each, violations) for each in shingled]),
    )
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e53-nilfs2-cleaner",
    claim="NILFS2 with its cleaner writes the zones of a shingled disk in order if its segments are the zones",
    source="NILFS2 report (FSL-14-03), section 5",
    runs=runs,
    phases=(FILL, OVERWRITE, workload.UNMOUNT),
    scalable=False,
    expectations=(
        *(
            Expectation(
                f"zones and segments of {each.zone_mib} MiB: every write is in order, the cleaner's too",
                lambda records, each=each: violations(records, each) == 0,  # type: ignore[misc]
            )
            for each in (FULL, *BY_ZONE)
        ),
        Expectation(
            "segments of 8 MiB in zones of 128 MiB: some write is not in order",
            lambda records: violations(records, SMALL_COUNTED) > 0,
        ),
        Expectation(
            "without a reset nothing is out of order either: the log does not come round",
            lambda records: violations(records, ONCE_COUNTED) == 0,
        ),
        Expectation(
            "on the regular drive the kernel has nothing to say of NILFS2",
            lambda records: not any("NILFS" in kind for each in BY_RESERVE for kind in complaints(records, each)),
        ),
    ),
    claims=(SMALL_IN_ORDER,),
    draw=draw,
)

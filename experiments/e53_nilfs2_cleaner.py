# SPDX-License-Identifier: MIT OR Apache-2.0
"""NILFS2 with its cleaner at work on a disk that is nearly full: what the report left for later (FSL-14-03, section 5).

A file of 5 GiB on a disk of 8 GiB; 4 GiB of it, four times the memory, are overwritten at random while the cleaner runs
without a pause. Varied are the drive, the size of the zones and of NILFS2's segments, the segments that it reserves, and
what the drive's firmware does with a write that is out of order. The number of superblocks is a constant of NILFS2
(NILFS_CNO..., two) and cannot be varied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle import bars, console, drive, fs, job, run, workload
from shingle.experiment import Expectation, Experiment
from shingle.record import Record

SHINGLED, REGULAR = "wd30ezr-smr", "wd30ezr"
FILL, OVERWRITE, LOG = "Fill", "Overwrite", "log"
MEMORY_MIB = 512
FULL_BYTES, ROOMY_BYTES = 4 << 30, 64 << 30
FILE_BYTES, SPAN_BYTES, WRITES = 9 << 28, 2 << 30, 100_000
ZONES_MIB = (32, 64, 128, 256, 512)
RESERVED_PERCENT = (5, 10, 20)
SMALL_MIB, LARGE_MIB = 8, 128
PROGRAM = Path(fs.__file__).with_name("complaints.py")
REPORT = "/run/report.json"
SETTINGS = "/run/nilfs_cleanerd.conf"
# A step of the cleaner is 128 MiB, and it never rests.
NO_PAUSE = """\
protection_period 0
min_clean_segments 0
nsegments_per_clean {segments}
cleaning_interval 0.01
selection_policy timestamp
min_reclaimable_blocks 1%
use_set_suinfo
use_mmap
"""
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
        places = {"span_bytes": SPAN_BYTES, "count": WRITES, "direct": False, "prepare": False}
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
    capacity_bytes: int = FULL_BYTES
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

    def run(self, scale: float, seed: int) -> run.Run:
        nilfs2 = fs.find("nilfs2")
        blocks, reserved = str((self.segment_mib << 20) // 4096), str(self.reserved_percent)
        variant = replace(nilfs2, name=self.name, mkfs=(*nilfs2.mkfs, "-B", blocks, "-m", reserved), daemon=())
        settings = NO_PAUSE.format(segments=max(1, LARGE_MIB // self.segment_mib)) if self.cleaner else ""
        plan = Overwritten((FILL, OVERWRITE), dict.fromkeys((FILL, OVERWRITE), scale), seed, settings=settings)
        return run.Run(
            self.profile, variant, plan, memory_mib=MEMORY_MIB, capacity_bytes=self.capacity_bytes,
            expected=(console.Trouble.FILE_SYSTEM_ERROR,),
        )  # fmt: skip


IDLE = Cell(capacity_bytes=ROOMY_BYTES, cleaner=False)
FULL = Cell()
REGULAR_IDLE = replace(IDLE, disk=REGULAR, segment_mib=SMALL_MIB)
REGULAR_FULL = tuple(
    Cell(disk=REGULAR, segment_mib=SMALL_MIB, reserved_percent=percent) for percent in RESERVED_PERCENT
)
BY_ZONE = tuple(Cell(zone_mib=mib, segment_mib=mib) for mib in ZONES_MIB)
RESERVED = replace(BY_ZONE[0], reserved_percent=RESERVED_PERCENT[-1])
SMALL = Cell(segment_mib=SMALL_MIB)
SMALL_COUNTED = replace(SMALL, reject=0)
# Without it a zone can be used once.
ONCE = Cell(implicit_reset=0)
ONCE_COUNTED = replace(ONCE, reject=0)
SMALL_ONCE_COUNTED = replace(SMALL, reject=0, implicit_reset=0)
CELLS = (
    REGULAR_IDLE, *REGULAR_FULL, IDLE, *BY_ZONE, RESERVED,
    SMALL, SMALL_COUNTED, ONCE, ONCE_COUNTED, SMALL_ONCE_COUNTED,
)  # fmt: skip


def runs(scale: float, seed: int) -> list[run.Run]:
    return [each.run(scale, seed) for each in CELLS]


EXPERIMENT = Experiment(
    name="e53-nilfs2-cleaner",
    claim="NILFS2's cleaner keeps a shingled disk in order if its segments are the zones",
    source="NILFS2 report (FSL-14-03), section 5",
    runs=runs,
    phases=(FILL, OVERWRITE, workload.UNMOUNT),
    scalable=False,
    expectations=(),
)

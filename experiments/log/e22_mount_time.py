# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a mount takes that has to know what is in the log: FAST'17, section 3.3.

The paper's mount reads the descriptor blocks between tail and head, 5 to 6 s of them in about 1 GiB; it does not
say on which disk. Here a mount reads snapshots of the map, and what was logged since the newest
(docs/design/journal-lazy.md). When the newest cannot be read, it scans the log, descriptors and copies alike; one
cell destroys it after the unmount.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, drive, fs, job, run, workload

DRIVE = "st8000as0002"
LAZY, LOST = "ext4-lazy", "ext4-lazy-snapshot-lost"
NAME, CLOSE, AGAIN = "MakeDirs", "Close", "MountAgain"
# Leaves some 0.25 GiB between tail and head.
SCALE = 0.05
GIB = 1 << 30
SYSFS = "/sys/fs/ext4/shd0/journal_lazy"
STATISTICS = ("mount_blocks", "mount_snapshots", "log_used", "rebuilt")
# The marker in the journal superblock says where the newest snapshot begins: offset 20 of what is at 0xBC.
LOSE_THE_NEWEST = f"""
import os, struct, subprocess
def place(log_block):
    bmap = ["/sbin/debugfs", "-R", f"bmap <8> {{log_block}}", "{job.DEVICE}"]
    return 4096 * int(subprocess.run(bmap, capture_output=True, check=True).stdout)
disk = os.open("{job.DEVICE}", os.O_RDWR)
(newest,) = struct.unpack(">I", os.pread(disk, 4, place(0) + 0xBC + 20))
assert newest, "the log has no snapshot"
os.pwrite(disk, bytes(4096), place(newest))
os.fsync(disk)
"""


@dataclass(frozen=True)
class MountedAgain(workload.Plan):
    """The workload, an unmount, and the mount that is looked at."""

    lost: bool = False

    @property
    def phases(self) -> tuple[str, ...]:
        return (*self.names, CLOSE, AGAIN, workload.UNMOUNT)

    def steps(self) -> list[job.Step]:
        *load, unmount, cleaned = super().steps()
        lose = [job.run(["/usr/bin/python3", "-c", LOSE_THE_NEWEST], phase=CLOSE)] if self.lost else []
        again = job.mount("ext4", "journal_lazy") | {"phase": AGAIN}
        return [*load, unmount | {"phase": CLOSE}, *lose, cleaned, again, job.sync(phase=AGAIN), unmount, cleaned]


def runs(scale: float, seed: int) -> list[run.Run]:
    variant = replace(fs.find(LAZY), statistics=tuple(f"{SYSFS}/{name}" for name in STATISTICS))
    return [
        run.Run(drive.find(DRIVE), replace(variant, name=name), MountedAgain((NAME,), {NAME: scale}, seed, lost=lost))
        for name, lost in ((LAZY, False), (LOST, True))
    ]


def log_gib(records: Sequence[Record], file_system: str) -> float:
    return float(cell(records, file_system, AGAIN)["statistics"]["log_used"]) * 4096 / GIB


def more_s(records: Sequence[Record], file_system: str) -> float:
    """What the log adds to the mount: without the time of a mount with an empty one."""
    empty, full = (cell(records, file_system, phase)["virtual_s"] for phase in (run.MOUNT, AGAIN))
    return float(full) - float(empty)


def claim(what: str, file_system: str) -> Claim:
    return Claim(
        "T19", what, "s/GiB", 5, 6, lambda records: more_s(records, file_system) / log_gib(records, file_system), 0.25,
        better="low",
    )  # fmt: skip


CLAIMS = (
    claim("what lies between tail and head adds to a mount", LAZY),
    claim("the same, the newest snapshot lost: all of the log is read", LOST),
)


def read_mib(records: Sequence[Record], file_system: str) -> float:
    return float(cell(records, file_system, AGAIN)["journal_read_bytes"]) / (1 << 20)


EXPERIMENT = Experiment(
    name="e22-mount-time",
    claim="with a snapshot of the map in the log, a mount need not read what lies between tail and head",
    source="FAST'17, section 3.3",
    runs=runs,
    scale=SCALE,
    scaling="The log (10 GiB) is not scaled, but what lies in it is; the disk is not.",
    phases=(NAME, CLOSE, AGAIN, workload.UNMOUNT),
    expectations=(
        Expectation("the log holds 0.2 to 0.3 GiB", lambda records: 0.2 < log_gib(records, LAZY) < 0.3),
        Expectation(
            "with a snapshot less than a fiftieth of the log is read, without one all of it",
            lambda records: (
                read_mib(records, LAZY) < 1024 * log_gib(records, LAZY) / 50
                and read_mib(records, LOST) > 1024 * log_gib(records, LOST)
            ),
        ),
        Expectation(
            "both find the same blocks",
            lambda records: len({cell(records, name, AGAIN)["statistics"]["rebuilt"] for name in (LAZY, LOST)}) == 1,
        ),
    ),
    claims=CLAIMS,
    draw=bars.of_claims(bars.Group("Section 3.3: what the log adds to a mount", "s for each GiB of log", CLAIMS)),
)

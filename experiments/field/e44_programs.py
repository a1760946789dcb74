# SPDX-License-Identifier: MIT OR Apache-2.0
"""What programs that people run feel on a shingled disk: databases, mail, backups, downloads, photos, packages, video.

Each works once in a folder of its own on an otherwise empty disk, one after the other; the disk is quiet before each.
lab/in_machine/programs.py has their patterns. `ext4-tuned` is stock ext4 with the settings of `ext4lazy tune` (e61).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, programs, run

CONVENTIONAL, SHINGLED = "wd30ezr", ("st8000as0002", "wd40efax")
DRIVES = (*SHINGLED, CONVENTIONAL)
STOCK, TUNED, SMR = "ext4", "ext4-tuned", "ext4-smr-edge"
LINUX = (STOCK, TUNED, SMR, "f2fs", "nilfs2", "btrfs", "xfs")
# What disks are sold with.
SOLD_WITH = ("ntfs3", "exfat")
FILE_SYSTEMS = (*LINUX, *SOLD_WITH)
PROGRAMS = (
    "SqliteWal", "SqliteRollback", "Postgres", "Mail", "Torrent", "Rsync", "Packages", "Photos", "Bundle", "Video",
)  # fmt: skip
# exFAT has no hard links.
CANNOT = {"exfat": ("Rsync",)}
# What is synced each time.
OPERATIONS = {
    "SqliteWal": "transaction", "SqliteRollback": "transaction", "Postgres": "transaction", "Mail": "delivery",
    "Packages": "package",
}  # fmt: skip
# What is done first writes what is synced in one place, and no journal besides.
FIRST = {"st8000as0002": ("nilfs2", "f2fs"), "wd40efax": ("nilfs2",)}


def able(file_system: str) -> tuple[str, ...]:
    """The programs that can work there."""
    return tuple(each for each in PROGRAMS if each not in CANNOT.get(file_system, ()))


def runs(scale: float, seed: int) -> list[run.Run]:
    tuned = replace(fs.with_allocation(fs.find(STOCK), goal=True, stream=True), name=TUNED)
    variants = [tuned if name == TUNED else fs.find(name) for name in FILE_SYSTEMS]
    plans = {each.name: programs.plan(able(each.name), scale=scale, seed=seed) for each in variants}
    return [run.Run(drive.find(disk), each, plans[each.name], may_fail=True) for disk in DRIVES for each in variants]


def work_s(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    """Until all is synced."""
    return float(cell(records, file_system, program, disk)["virtual_s"])


def cleaning_s(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    """What the disk then goes on cleaning."""
    return float(cell(records, file_system, program, disk)["cleaning_s"])


def until_quiet_s(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    return float(busy_s(cell(records, file_system, program, disk)))


def longest_s(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    """The longest that the program waited for one of its operations."""
    waits = cell(records, file_system, program, disk)["load"]["latency_ns"]
    return max(float(each["max"]) for each in waits.values()) / 1e9


def all_s(records: Sequence[Record], disk: str, file_system: str) -> float:
    """All programs that can work there, with the cleaning."""
    return sum(until_quiet_s(records, disk, file_system, each) for each in able(file_system))


def all_cleaning_s(records: Sequence[Record], disk: str, file_system: str) -> float:
    """The cleaning after these programs alone."""
    return sum(cleaning_s(records, disk, file_system, each) for each in able(file_system))


def times(records: Sequence[Record], disk: str, file_system: str, program: str, than: str = STOCK) -> float:
    """How many times as long as with another file system until the disk is quiet."""
    return until_quiet_s(records, disk, file_system, program) / until_quiet_s(records, disk, than, program)


def synced(records: Sequence[Record]) -> bool:
    """Each transaction, message and package was flushed to the disk at least once."""
    found = [each for each in records if each["phase"] in OPERATIONS]
    return all(each["counters"]["flushes"] >= each["load"]["operations"][OPERATIONS[each["phase"]]] for each in found)


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for disk in DRIVES:
        rows = []
        for name in FILE_SYSTEMS:

            def parts(own: Sequence[Record], name: str = name, disk: str = disk) -> list[tuple[str, float]]:
                return [
                    ("programs", sum(work_s(own, disk, name, each) for each in able(name))),
                    ("cleaning", all_cleaning_s(own, disk, name)),
                ]

            rows.append(bars.of_parts(name, records, parts))
        panels.append(bars.Panel(disk, "virtual s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e44-programs",
    claim="ext4 that puts data in order serves programs better than ext4, with what a shingled disk then cleans",
    runs=runs,
    phases=PROGRAMS,
    scaling="The disks and their caches are not scaled.",
    expectations=(
        Expectation("each transaction, message and package was flushed to the disk", synced),
        Expectation(
            "all programs together are done, and a shingled disk is quiet, with data in order before it is with stock"
            " ext4, Btrfs and XFS, and after NILFS2; before F2FS on the wd40efax, after it on the st8000as0002",
            lambda records: all(
                (all_s(records, disk, SMR) < all_s(records, disk, other)) == (other not in FIRST[disk])
                for disk in SHINGLED
                for other in LINUX
                if other != SMR
            ),
        ),
        Expectation(
            "what is left to clean is less than a fifth of what stock ext4, NTFS and exFAT leave on the st8000as0002,"
            " and up to a fifth more on the wd40efax, which cleans meanwhile",
            lambda records: all(
                all_cleaning_s(records, disk, SMR) < part * all_cleaning_s(records, disk, each)
                for disk, part in zip(SHINGLED, (1 / 5, 6 / 5), strict=True)
                for each in (STOCK, *SOLD_WITH)
            ),
        ),
        Expectation(
            "and with no program is such a disk quiet later than with stock ext4",
            lambda records: all(times(records, disk, SMR, each) < 1 for disk in SHINGLED for each in PROGRAMS),
        ),
        Expectation(
            "on the conventional disk no program but the sparse bundle takes over a fifth longer than with stock ext4",
            lambda records: all(
                times(records, CONVENTIONAL, SMR, each) <= 1.2 for each in PROGRAMS if each != "Bundle"
            ),
        ),
    ),
    numbers={
        "work_s": work_s,
        "cleaning_s": cleaning_s,
        "until_quiet_s": until_quiet_s,
        "longest_s": longest_s,
        "all_s": all_s,
        "times": times,
    },
    draw=draw,
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the programs' own settings save on a shingled disk: with each program of e44 that has one, the same with it.

lab/in_machine/programs.py says what each setting gives up. The disk is quiet before each program.
"""

from collections.abc import Sequence
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, programs, run

DRIVES = ("st8000as0002", "wd40efax")
STOCK, SMR = "ext4", "ext4-smr"
FILE_SYSTEMS = (STOCK, SMR)
# The program as it is, and with a setting.
SETTINGS = {
    "SqliteNormal": "SqliteWal",
    "SqliteBatch": "SqliteWal",
    "PostgresAsync": "Postgres",
    "PackagesUnsafe": "Packages",
    "TorrentAllocated": "Torrent",
}
DATABASES = ("SqliteWal", "Postgres")
PROGRAMS = tuple(dict.fromkeys((*SETTINGS.values(), *SETTINGS)))
# At least so many times.
FASTER = {"PackagesUnsafe": 5, "SqliteBatch": 3}


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = programs.plan(PROGRAMS, scale=scale, seed=seed)
    return [run.Run(drive.find(disk), fs.find(name), plan) for disk in DRIVES for name in FILE_SYSTEMS]


def work_s(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    """Until all is synced."""
    return float(cell(records, file_system, program, disk)["virtual_s"])


def cleaning_s(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    """What the disk then goes on cleaning."""
    return float(cell(records, file_system, program, disk)["cleaning_s"])


def saved(records: Sequence[Record], disk: str, file_system: str, setting: str) -> float:
    """How many times as fast the program is with the setting, without the cleaning."""
    return work_s(records, disk, file_system, SETTINGS[setting]) / work_s(records, disk, file_system, setting)


def until_quiet(records: Sequence[Record], disk: str, file_system: str, setting: str) -> float:
    """The same with the cleaning."""
    both = [busy_s(cell(records, file_system, each, disk)) for each in (SETTINGS[setting], setting)]
    return float(both[0] / both[1])


def place(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    """The middle of the first bands that a program left dirty, from 0 (the outer edge) to 1; 0 if it left none."""
    dirty = sorted(sector for _, sector, _ in cell(records, file_system, program, disk)["bands_dirty_by_class"])
    return 512 * dirty[len(dirty) // 2] / drive.capacity_of(drive.find(disk)) if dirty else 0.0


def bands(records: Sequence[Record], disk: str, file_system: str, program: str) -> float:
    """That the drive cleaned, meanwhile and afterwards."""
    return float(cell(records, file_system, program, disk)["bands_cleaned"])


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for disk in DRIVES:
        rows = []
        for program in PROGRAMS:
            for name in FILE_SYSTEMS:

                def parts(
                    own: Sequence[Record], name: str = name, disk: str = disk, program: str = program
                ) -> list[tuple[str, float]]:
                    took, cleaned = work_s(own, disk, name, program), cleaning_s(own, disk, name, program)
                    return [("program", took), ("cleaning", cleaned)]

                rows.append(bars.of_parts(f"{program}, {name}", records, parts))
        panels.append(bars.Panel(disk, "virtual s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e45-program-settings",
    claim="settings that programs have make some of them five times as fast on a shingled disk",
    runs=runs,
    phases=PROGRAMS,
    scaling="The disks and their caches are not scaled.",
    expectations=(
        Expectation(
            "packages whose files are not synced are five times as fast, and SQLite three times with a hundred rows in"
            " a transaction",
            lambda records: all(
                saved(records, disk, name, each) >= least
                for disk in DRIVES
                for name in FILE_SYSTEMS
                for each, least in FASTER.items()
            ),
        ),
        Expectation(
            "no setting makes a program slower until the disk is quiet, but for allocating a torrent's files, and"
            " PostgreSQL's asynchronous commits under stock ext4 where their files lie farther inside on the disk",
            lambda records: all(
                until_quiet(records, disk, name, each) >= 1
                for disk in DRIVES
                for name in FILE_SYSTEMS
                for each in SETTINGS
                if each != "TorrentAllocated"
                and not (
                    (name, each) == (STOCK, "PostgresAsync")
                    and place(records, disk, name, each) > place(records, disk, name, SETTINGS[each])
                )
            ),
        ),
        Expectation(
            "with each setting of the databases ext4 with data in order leaves less to clean than stock ext4",
            lambda records: all(
                cleaning_s(records, disk, SMR, each) < cleaning_s(records, disk, STOCK, each)
                for disk in DRIVES
                for each, program in SETTINGS.items()
                if program in DATABASES
            ),
        ),
    ),
    numbers={"work_s": work_s, "cleaning_s": cleaning_s, "saved": saved, "until_quiet": until_quiet, "bands": bands},
    draw=draw,
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the settings that every ext4 has already do for a shingled disk: no module, no new kernel.

Three files of /sys/fs/ext4 say where data go: `inode_goal` is where the search for a free inode begins, and files and
directories made below it are no longer spread over the disk; `mb_stream_req` is the size up to which a file's data go
to the group's preallocation, one stream for each processor; `mb_group_prealloc` is how much that takes at a time.
`packed_meta_blocks` of mke2fs puts all bitmaps and inode tables at the beginning. A file server's load on three
drive-managed disks, on a fresh file system and on an aged one; and what else changes: FAST'17's phases, on a
conventional disk too.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, run, workload

CONVENTIONAL = "wd5000ys"
DRIVES = ("st8000as0002", "wd40efax", "wd40nmzw")
PLAIN, LAZY = "ext4", "ext4-lazy"
NOTHING, GOAL, STREAM, BOTH, PACKED = "", "-goal", "-stream", "-tuned", "-packed"
SHOWN = {
    NOTHING: "as it is",
    GOAL: "inode_goal",
    STREAM: "mb_stream_req, mb_group_prealloc",
    BOTH: "all three",
    PACKED: "all three, packed_meta_blocks",
}
AGED = "-aged"
POSTMARK = "Postmark"
PHASES = (workload.DIRECTORIES, workload.FILES)
SCALE = 0.1


def variant(name: str, setting: str) -> fs.FileSystem:
    goal, stream = setting not in (NOTHING, STREAM), setting not in (NOTHING, GOAL)
    return fs.with_allocation(fs.find(name), goal=goal, stream=stream, packed=setting == PACKED)


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((POSTMARK,), scale=scale, seed=seed)
    found = []
    for disk in DRIVES:
        for age, old in ((None, ""), (drive.Age(), AGED)):
            for name in (PLAIN, LAZY):
                for setting in SHOWN:
                    named = replace(variant(name, setting), name=name + setting + old)
                    found.append(run.Run(drive.find(disk), named, plan, age=age))
    for disk, names, setting in product((DRIVES[0], CONVENTIONAL), PHASES, (NOTHING, BOTH)):
        plan = workload.plan(names, scale=scale / 2, seed=seed)
        named = replace(variant(PLAIN, setting), name=PLAIN + setting)
        found.append(run.Run(drive.find(disk), named, plan))
    return found


def until_quiet_s(records: Sequence[Record], file_system: str, disk: str) -> float:
    """Run time plus the time that the drive then takes to clean up."""
    return float(busy_s(cell(records, file_system, POSTMARK, disk)))


def gain(records: Sequence[Record], setting: str, disk: str = DRIVES[0], name: str = PLAIN, old: str = "") -> float:
    """How many times sooner the disk is quiet with a setting than without."""
    return until_quiet_s(records, name + old, disk) / until_quiet_s(records, name + setting + old, disk)


def phase_times(records: Sequence[Record], disk: str, name: str) -> float:
    """The time of a phase of FAST'17's with its cleaning, with all three settings, over that without."""
    return float(busy_s(cell(records, PLAIN + BOTH, name, disk)) / busy_s(cell(records, PLAIN, name, disk)))


def small_things_s(records: Sequence[Record], file_system: str, disk: str = DRIVES[0]) -> float:
    """All phases with directories and small files, with their cleaning."""
    return sum(float(busy_s(cell(records, file_system, name, disk))) for names in PHASES for name in names)


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for disk in DRIVES:
        rows = []
        for name, old, setting in product((PLAIN, LAZY), ("", AGED), SHOWN):
            file_system = name + setting + old

            def parts(own: Sequence[Record], each: str = file_system, disk: str = disk) -> list[tuple[str, float]]:
                found = cell(own, each, POSTMARK, disk)
                return [("until all is synced", found["virtual_s"]), ("cleaning", found["cleaning_s"])]

            rows.append(bars.of_parts(f"{name}{', aged' if old else ''}, {SHOWN[setting]}", records, parts))
        panels.append(bars.Panel(disk, "virtual s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e61-own-settings",
    claim="settings that every ext4 has make a shingled disk quiet ten times sooner after a file server's load",
    runs=runs,
    phases=(POSTMARK, *workload.DIRECTORIES, *workload.FILES),
    scale=SCALE,
    scaling="The journal, the disks, their age and the persistent cache are not scaled.",
    expectations=(
        Expectation(
            "ext4 with all three settings is quiet ten times sooner, on a fresh file system and on an aged one",
            lambda records: all(gain(records, BOTH, disk, PLAIN, old) >= 10 for disk in DRIVES for old in ("", AGED)),
        ),
    ),
    numbers={
        "gain": gain,
        "phase_times": phase_times,
        "until_quiet_s": until_quiet_s,
        "small_things_s": small_things_s,
    },
    draw=draw,
)

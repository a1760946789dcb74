# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every drive boots, and each file system does on it what the table says (catalogue/drive_file_systems.toml).

`./shingle test` tries small copies of the drives: one file system of the field on each, all of them on the
host-managed ones. `./shingle test drive_file_systems -- -m every_drive` tries all on all, at their full size.
"""

import pytest

from harness import Bench
from shingle.catalogue import drive, fs, suitability
from shingle.catalogue.drive import Profile
from shingle.machine import job
from shingle.machine.console import Trouble

PROFILES = drive.profiles()
ALL = [(name, column) for name in PROFILES for column in suitability.columns()]
# A small drive has this many zones besides its conventional ones.
ZONES = 64
SMALL_BYTES = 32 << 30
MKFS_LIMIT_S = 24 * 3600
# F2FS keeps a table of all segments: 15 TB do not fit into 1 GiB.
MEMORY_MIB = 4096


def small_bytes(profile: Profile) -> int:
    """A capacity at which a copy of the drive formats in a moment."""
    translation = profile.values["translation"]
    if not drive.is_host_managed(profile):
        return min(SMALL_BYTES, drive.capacity_of(profile))
    conventional = translation["conventional_first"]["value"] + translation["conventional_last"]["value"]
    return int((conventional + ZONES) * translation["zone"]["value"]) << 20


def enforces(profile: Profile) -> bool:
    """Whether the firmware refuses what is not written in order, without showing zones."""
    return bool(profile.values.get("translation", {}).get("kind") == "enforcing")


def fast(name: str, column: str) -> bool:
    if enforces(PROFILES[name]):
        return column in ("ext4", "nilfs2")
    if drive.is_host_managed(PROFILES[name]):
        return column != "ext4-lazy"  # as ext4, but for a large journal
    # One of the ordinary disks shows that zonefs wants zones.
    return column == "ext4" or (column == "zonefs" and name == "st8000as0002")


def try_out(bench: Bench, name: str, column: str, capacity_bytes: int) -> None:
    profile, variant = PROFILES[name], fs.find(column)
    entry = suitability.expected(profile, column)
    mkfs = variant.mkfs_argv(host_managed=drive.is_host_managed(profile))
    steps = [job.run(mkfs, limit_s=MKFS_LIMIT_S, may_fail=not entry.works), job.sync()]
    if entry.works:
        steps += used(variant)
    booted = bench.boot(
        steps,
        drive=bench.empty(profile=profile, capacity_bytes=capacity_bytes),
        files=variant.programs,
        memory_mib=MEMORY_MIB,
        expected=(Trouble.FILE_SYSTEM_ERROR,) if entry.outcome == "fails" else (),
    )
    made = booted.outcome.steps[0]
    said = f"{made.extra['stdout_tail']}{made.extra['stderr_tail']}"
    assert (made.status == 0) == entry.works, said
    assert entry.says in said
    assert ("I/O error, dev shd0" in booted.outcome.console) == (entry.outcome == "fails")


def used(variant: fs.FileSystem) -> list[job.Step]:
    """Writes a file, and reads it back after a second mount."""
    there = "/mnt/seq/0" if variant.one_file_per_zone else "/mnt/file"
    made = "head -c 4194304 /dev/urandom >/run/file"
    write = (
        f"{made} && dd if=/run/file of={there} bs=1M oflag=direct,append conv=notrunc,fsync && cmp /run/file {there}"
    )
    return [
        job.mount(variant.kernel_name, variant.options),
        job.run(["/bin/sh", "-c", write]),
        job.umount(),
        job.mount(variant.kernel_name, variant.options),
        job.run(["/usr/bin/cmp", "/run/file", there]),
        job.umount(),
    ]


@pytest.mark.machine
@pytest.mark.parametrize(("name", "column"), [pair for pair in ALL if fast(*pair)])
def test_a_small_copy_of_the_drive_takes_it_or_not_as_the_table_says(bench: Bench, name: str, column: str) -> None:
    try_out(bench, name, column, small_bytes(PROFILES[name]))


@pytest.mark.machine
@pytest.mark.every_drive
@pytest.mark.parametrize(("name", "column"), ALL)
def test_the_drive_takes_it_or_not_as_the_table_says(bench: Bench, name: str, column: str) -> None:
    try_out(bench, name, column, drive.capacity_of(PROFILES[name]))


def test_every_drive_takes_a_file_system_that_the_field_would_put_on_it() -> None:
    for profile in PROFILES.values():
        field: tuple[str, ...] = ("ext4", "xfs")
        if drive.is_host_managed(profile):
            field = ("btrfs", "f2fs")
        elif enforces(profile):
            field = ("nilfs2",)
        assert any(suitability.expected(profile, name).works for name in field), profile.name


def test_the_page_shows_the_table() -> None:
    page = suitability.PAGE.read_text()
    assert suitability.page_with(suitability.markdown(), page) == page, "run ./shingle file-systems --drives --write"

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ext4lazy advise` says of the computer and its disks: the rest is for test_ext4lazy.py and test_volumes.py."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lazy_tools.volumes import ext4lazy, fakes, loop, make, needs_loop, stock, tool


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (99, "99 s"), (100, "2 min"), (5400, "90 min"), (9000, "2.5 h"), (86400 * 1.5, "36 h"),
     (86400 * 3.2, "3.2 days")],
)  # fmt: skip
def test_times_are_in_units_that_people_use(seconds: float, text: str) -> None:
    assert tool.time_text(seconds) == text


@pytest.mark.parametrize(
    ("loaded", "modinfo", "says"),
    [
        (True, "exit 1", "loaded"),
        (False, '[ "$*" = "-k $(uname -r) -n ext4lazy" ]', f"built for Linux {os.uname().release}"),
        (False, "exit 1", f"none for Linux {os.uname().release}; DKMS builds it"),
    ],
)
def test_the_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], loaded: bool, modinfo: str,
    says: str,
) -> None:  # fmt: skip
    known = folder / "filesystems"
    known.write_text("nodev\tsysfs\n\text4\n" + ("\text4lazy\n" if loaded else ""))
    monkeypatch.setattr(tool, "FILE_SYSTEMS", known)
    monkeypatch.setenv("PATH", fakes(folder, modinfo=modinfo))
    assert tool.main(["advise", str(make(folder / "a.img"))]) == tool.OK
    assert re.search(rf"^  module: +{re.escape(says)}", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(("byte", "says"), [(b"\1", "on; the module must be signed"), (b"\0", "off")])
def test_secure_boot(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], byte: bytes, says: str
) -> None:
    variable = folder / "sys" / tool.SECURE_BOOT
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\6\0\0\0" + byte)
    monkeypatch.setattr(tool, "SYSFS", folder / "sys")
    assert tool.main(["advise", str(make(folder / "a.img"))]) == tool.OK
    assert re.search(rf"^  Secure Boot: +{says}", capsys.readouterr().out, re.MULTILINE)


def test_the_free_space_and_a_journal_that_does_not_fit(folder: Path) -> None:
    volume = make(folder / "a.img", kind="ext3")
    assert re.search(r"^  free space: +\d.* MiB$", ext4lazy("advise", volume).stdout, re.MULTILINE)
    said = ext4lazy("advise", "--journal-mib", "64", volume)
    assert said.returncode == tool.FAILED
    assert "Converting takes" not in said.stdout
    assert re.search(r"has room for .* MiB: expected 64 MiB for the journal; remove files", said.stderr)


@needs_loop
@pytest.mark.parametrize(
    ("limit", "rotates", "says"),
    [
        (30, True, ["timeout: +30 s for /dev/sdq; a shingled disk may need 180 s", "spin-down: .* hdparm -S 241"]),
        (180, False, ["timeout: +180 s for /dev/sdq$"]),
    ],
)  # fmt: skip
def test_the_disk_below_a_partition_and_a_mapping(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: int, rotates: bool,
    says: list[str],
) -> None:  # fmt: skip
    """The device is a mapping over a partition of sdq."""
    system = folder / "sys"
    disk = system / "block/sdq"
    for place in ("device", "queue", "sdq1"):
        (disk / place).mkdir(parents=True)
    (disk / "device/timeout").write_text(f"{limit}\n")
    (disk / "queue/rotational").write_text(f"{int(rotates)}\n")
    (disk / "sdq1/partition").write_text("1\n")
    (system / "block/dm-0/slaves").mkdir(parents=True)
    (system / "block/dm-0/slaves/sdq1").symlink_to(disk / "sdq1")
    (system / "dev/block").mkdir(parents=True)
    with loop(make(folder / "a.img")) as device:
        number = device.stat().st_rdev
        (system / f"dev/block/{os.major(number)}:{os.minor(number)}").symlink_to(system / "block/dm-0")
        monkeypatch.setattr(tool, "SYSFS", system)
        assert tool.main(["advise", str(device)]) == tool.OK
    said = capsys.readouterr().out
    for line in says:
        assert re.search(f"^  {line}", said, re.MULTILINE), said
    assert ("spin-down" in said) is rotates


@needs_loop
def test_of_a_mounted_volume(folder: Path) -> None:
    point = folder / "point"
    point.mkdir()
    with loop(make(folder / "a.img", kind="ext3", mib=64)) as device:
        stock("mount", device, point)
        try:
            said = ext4lazy("advise", point)
        finally:
            stock("umount", point)
    assert said.returncode == tool.OK, said.stderr
    assert f"It is mounted on {point}: unmount it first.\n" in said.stdout
    assert f"ext4lazy convert {device}" in said.stdout


@pytest.mark.parametrize("option", ["nodelalloc", "nobarrier", "journal_data"])
def test_options_in_the_superblock_that_are_refused_are_removed(folder: Path, option: str) -> None:
    volume = make(folder / "a.img", mib=128, journal_mib=16)
    stock("tune2fs", "-o", option, volume)
    assert re.search(rf"^  mount options: +{option}, by default; ", ext4lazy("advise", volume).stdout, re.MULTILINE)
    said = ext4lazy("convert", volume)
    assert said.returncode == tool.OK, said.stderr
    assert option not in tool.read_volume(volume).header["Default mount options"]


def test_options_in_fstab_that_are_refused_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """findmnt finds the line, by a UUID or another name."""
    volume = make(folder / "a.img")
    fstab = folder / "fstab"
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(fstab))
    fstab.write_text(
        f"{volume} /data ext4 noatime,barrier=0,usrjquota=aquota.user,jqfmt=vfsv0,data=ordered 0 2\n"
        "/dev/other / ext4 nodelalloc 0 1\n"
    )
    line = r"^  /etc/fstab: +barrier=0, usrjquota=aquota.user; journal_lazy refuses that"
    assert re.search(line, ext4lazy("advise", volume).stdout, re.MULTILINE)
    stock("tune2fs", "-O", "quota", volume)
    assert re.search(r"^  /etc/fstab: +barrier=0; ", ext4lazy("advise", volume).stdout, re.MULTILINE)
    fstab.write_text(f"{volume} /data ext4 defaults,noatime 0 2\n")
    assert "fstab" not in ext4lazy("advise", volume).stdout


@pytest.mark.parametrize("option", ["nojournal_checksum", "data=journal", "usrquota"])
def test_options_of_the_superblock_that_are_refused_are_named(folder: Path, option: str) -> None:
    volume = make(folder / "a.img")
    stock("tune2fs", "-E", f"mount_opts={option}", volume)
    line = rf"^  superblock: +{option}; journal_lazy refuses that: tune2fs -E mount_opts= "
    assert re.search(line, ext4lazy("advise", volume).stdout, re.MULTILINE)
    said = ext4lazy("convert", volume)
    assert said.returncode == tool.FAILED
    assert f"has the mount option {option} in its superblock" in said.stderr
    stock("tune2fs", "-E", "mount_opts=", volume)
    assert "superblock:" not in ext4lazy("advise", volume).stdout


@pytest.mark.parametrize("kind", ["ext3", "ext4"])
def test_data_relocate_wants_extents(folder: Path, kind: str) -> None:
    said = ext4lazy("advise", make(folder / "a.img", kind=kind, mib=64)).stdout
    assert ("  extents:" in said) == (kind == "ext3")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""mount.ext4lazy and fsck.ext4lazy: what they call, and when."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lazy_tools import volumes
from lazy_tools.volumes import digest, kept, make, stock


def fake(folder: Path, name: str, text: str = "") -> None:
    """A program that says how it was called."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >>{folder}/calls\n{text}\n')
    path.chmod(0o755)


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def mount(folder: Path, *options: str, module: bool) -> subprocess.CompletedProcess[str]:
    """mount.ext4lazy in a world where the module is there, or is not."""
    known = folder / "filesystems"
    known.write_text("nodev\tsysfs\n\text4\n" + ("\text4lazy\n" if module else ""))
    script = folder / "mount.ext4lazy"
    script.write_text((volumes.TOOLS / "mount.ext4lazy").read_text().replace("/proc/filesystems", str(known)))
    fake(folder, "mount")
    fake(folder, "modprobe", "exit 1")
    return subprocess.run(
        ["sh", script, "/dev/sdz", "/mnt/a b", *options],
        env={"PATH": f"{folder}:{volumes.PATH}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "-o journal_lazy"),
        (("-o", "rw,noatime"), "-o rw,noatime,journal_lazy"),
        (("-o", "journal_nolazy"), "-o journal_nolazy"),
        (("-o", "ro", "-o", "journal_lazy,commit=30"), "-o ro,journal_lazy,commit=30"),
        (("-o", "remount,journal_lazy_drain"), "-o remount,journal_lazy_drain"),
        (("-n", "-v", "-o", "rw"), "-o rw,journal_lazy"),
    ],
)
def test_with_the_module_it_mounts_lazily(folder: Path, options: tuple[str, ...], expected: str) -> None:
    done = mount(folder, *options, module=True)
    assert done.returncode == 0, done.stderr
    flags = " -n -v" if "-n" in options else ""
    assert calls(folder) == [f"mount -i{flags} -t ext4lazy {expected} /dev/sdz /mnt/a b"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ""),
        (("-o", "rw,journal_lazy,noatime,journal_lazy_drain"), "-o rw,noatime "),
        (("-o", "journal_lazy"), ""),
    ],
)
def test_without_the_module_it_mounts_plain_ext4_and_says_so_in_one_line(
    folder: Path, options: tuple[str, ...], expected: str
) -> None:
    done = mount(folder, *options, module=False)
    assert done.returncode == 0, done.stderr
    assert calls(folder) == ["modprobe -q ext4lazy", f"mount -i -t ext4 {expected}/dev/sdz /mnt/a b"]
    assert len(done.stderr.splitlines()) == 1
    assert "mounting /dev/sdz as plain ext4" in done.stderr


def test_a_mount_that_fails_is_not_tried_as_something_else(folder: Path) -> None:
    fake(folder, "mount", "exit 32")
    script = (volumes.TOOLS / "mount.ext4lazy").read_text()
    (folder / "filesystems").write_text("\text4lazy\n")
    helper = folder / "helper"
    helper.write_text(script.replace("/proc/filesystems", str(folder / "filesystems")))
    done = subprocess.run(
        ["sh", helper, "/dev/sdz", "/mnt"], env={"PATH": f"{folder}:{volumes.PATH}"}, capture_output=True, check=False
    )
    assert done.returncode == 32
    assert len(calls(folder)) == 1


def fsck(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    fake(programs, "e2fsck", "exit 1")
    fake(programs, "ext4lazy", "exit 4")
    return subprocess.run(
        ["sh", volumes.TOOLS / "fsck.ext4lazy", *map(str, arguments)],
        env=os.environ | {"PATH": f"{programs}:{volumes.PATH}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_at_boot_a_kept_log_is_left_alone(folder: Path) -> None:
    volume = kept(folder).path
    before = digest(volume)
    for arguments in (("-a",), ("-p",), ("-a", "-C0"), ("-a", "-C", "0"), ("-p", "-M")):
        done = fsck(folder, *arguments, volume)
        assert done.returncode == 0, done.stderr
        assert "is kept by journal_lazy; not checked" in done.stdout
    assert calls(folder / "programs") == []
    assert digest(volume) == before


@pytest.mark.parametrize("arguments", [("-p", "-f"), ("-y",), (), ("-f",)])
def test_what_a_person_asks_for_is_e2fsck_s(folder: Path, arguments: tuple[str, ...]) -> None:
    volume = kept(folder).path
    done = fsck(folder, *arguments, volume)
    assert done.returncode == 1
    assert calls(folder / "programs") == [" ".join(["e2fsck", *arguments, str(volume)])]
    assert "sending the whole log home before the check (as asked)" in done.stdout


def test_without_writing_a_copy_is_checked(folder: Path) -> None:
    volume = kept(folder).path
    done = fsck(folder, "-n", volume)
    assert done.returncode == 4
    assert calls(folder / "programs") == [f"ext4lazy check {volume}"]


def damaged(volume: Path) -> None:
    volumes.change(volume, ["ssv state 2"])


def aborted(volume: Path) -> None:
    volumes.sign(volume, at_20=5)


def often_mounted(volume: Path) -> None:
    volumes.change(volume, ["ssv max_mnt_count 3", "ssv mnt_count 3"])


def long_unchecked(volume: Path) -> None:
    volumes.change(volume, ["ssv checkinterval 86400", "ssv lastcheck 20200101"])


@pytest.mark.parametrize(
    ("happened", "why"),
    [
        (damaged, 'its state is "not clean with errors"'),
        (aborted, "its journal was aborted"),
        (often_mounted, "it was mounted 3 times"),
        (long_unchecked, "a check was due on"),
    ],
)
def test_at_boot_a_volume_in_need_gets_e2fsck(folder: Path, happened: object, why: str) -> None:
    volume = kept(folder).path
    assert callable(happened)
    happened(volume)
    done = fsck(folder, "-a", volume)
    assert done.returncode == 1, done.stdout
    assert why in done.stdout
    assert calls(folder / "programs") == [f"e2fsck -a {volume}"]


def test_any_other_volume_is_e2fsck_s_without_a_word(folder: Path) -> None:
    plain = make(folder / "plain.img")
    crashed = kept(folder).path
    volumes.sign(crashed, at_c4=99)
    for volume in (plain, crashed):
        done = fsck(folder, "-a", volume)
        assert done.returncode == 1
        assert done.stdout == ""
    assert calls(folder / "programs") == [f"e2fsck -a {volume}" for volume in (plain, crashed)]


def test_the_helpers_and_the_program_read_the_same_marker(folder: Path) -> None:
    """One is sh, the other Python; both must be right about the same bytes."""
    volume = kept(folder).path
    for fields, ours in (({}, True), ({"at_bc": 1}, False), ({"at_c0": 1}, False), ({"at_c8": 77}, False)):
        volumes.sign(volume, **fields)
        state = volumes.tool.read_volume(volume).journal_super().state
        assert (state == "kept") is ours
        assert ("kept by journal_lazy" in fsck(folder, "-a", volume).stdout) is ours
    stock("e2fsck", "-fy", volume, accept=(0, 1))

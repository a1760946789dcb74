# SPDX-License-Identifier: MIT OR Apache-2.0
"""mount.ext4lazy and fsck.ext4lazy: what they call, and when."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
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


# What modprobe says under Secure Boot.
REJECTED = "could not insert ext4lazy: Key was rejected by service"


def mount(
    folder: Path, *options: str, module: bool, device: Path = Path("/dev/sdz")
) -> subprocess.CompletedProcess[str]:
    """mount.ext4lazy in a world where the module is there, or is not."""
    known = folder / "filesystems"
    known.write_text("nodev\tsysfs\n\text4\n" + ("\text4lazy\n" if module else ""))
    script = folder / "mount.ext4lazy"
    script.write_text((volumes.TOOLS / "mount.ext4lazy").read_text().replace("/proc/filesystems", str(known)))
    fake(folder, "mount")
    fake(folder, "modprobe", f"echo 'modprobe: ERROR: {REJECTED}' >&2; exit 1")
    fake(folder, "ext4lazy", f'[ {device} = /dev/sdz ] || exec {sys.executable} {volumes.TOOLS}/ext4lazy.py "$@"')
    return subprocess.run(
        ["sh", script, device, "/mnt/a b", *options],
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
    asked = "ext4lazy due --log /dev/sdz"
    assert calls(folder) == ["modprobe ext4lazy", asked, f"mount -i -t ext4 {expected}/dev/sdz /mnt/a b"]
    assert len(done.stderr.splitlines()) == 1
    assert "mounting /dev/sdz as plain ext4" in done.stderr
    assert REJECTED in done.stderr


@pytest.mark.parametrize(
    ("loaded", "installed", "used", "options", "kind", "called"),
    [
        ("0.1+a", "0.2+b", False, "rw", "ext4lazy", ["modprobe -r ext4lazy", "modprobe ext4lazy"]),
        ("0.1+a", "0.2+b", True, "rw", "ext4", ["modprobe -r ext4lazy"]),
        ("0.1+a", "", True, "rw", "ext4", []),
        ("0.2+a", "0.2+b", False, "rw", "ext4lazy", ["modprobe -r ext4lazy", "modprobe ext4lazy"]),
        ("0.2+a", "0.2+b", True, "rw", "ext4lazy", ["modprobe -r ext4lazy"]),
        ("0.2+b", "0.2+b", False, "rw", "ext4lazy", []),
        ("0.1+a", "0.2+b", True, "remount,rw", "ext4lazy", []),
    ],
)
def test_an_older_module_is_unloaded(
    folder: Path, loaded: str, installed: str, used: bool, options: str, kind: str, called: list[str]
) -> None:
    """If no volume is mounted with it; and version 0.1 mounts nothing any more."""
    known, version = folder / "filesystems", folder / "version"
    known.write_text("\text4\n\text4lazy\n")
    version.write_text(f"{loaded}\n")
    script = folder / "mount.ext4lazy"
    text = (volumes.TOOLS / "mount.ext4lazy").read_text().replace("/proc/filesystems", str(known))
    script.write_text(text.replace("/sys/module/ext4lazy/version", str(version)))
    fake(folder, "mount")
    fake(folder, "modinfo", f"echo {installed}")
    load = f"echo '\text4lazy' >>{known}; echo {installed} >{version}"
    fake(folder, "modprobe", f"[ $1 = -r ] || {{ {load}; exit; }}; {'exit 1' if used else f': >{known}; rm {version}'}")
    done = subprocess.run(
        ["sh", script, "/dev/sdz", "/mnt", "-o", options],
        env={"PATH": f"{folder}:{volumes.PATH}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [call for call in calls(folder) if not call.startswith("modinfo")]
    assert found[:-1] == called
    assert found[-1].startswith(f"mount -i -t {kind} -o {options}")
    assert ("version 0.1, which is loaded" in done.stderr) == (kind == "ext4")


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


def umount(folder: Path, log: str, *options: str, terminal: bool = True) -> tuple[int, str]:
    fake(folder, "umount", f"exit {32 if '-f' in options else 0}")
    # The uppermost of those that are mounted there is the last.
    fake(folder, "findmnt", "echo /dev/below; echo /dev/sdz")
    fake(folder, "ext4lazy", f"echo {log}")
    argv = ["sh", volumes.TOOLS / "umount.ext4lazy", "/mnt/a b", *options]
    if terminal:
        return volumes.at_terminal(*argv, path=f"{folder}:{volumes.PATH}")
    environment = os.environ | {"PATH": f"{folder}:{volumes.PATH}"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_at_a_terminal_an_unmount_says_that_the_log_is_kept(folder: Path) -> None:
    status, said = umount(folder, "kept", "-n", "-v")
    assert (status, len(said.splitlines())) == (0, 1)
    assert "/dev/sdz keeps its newest metadata in its log" in said
    assert said.endswith("ext4lazy drain /dev/sdz\n")
    assert calls(folder) == [
        "findmnt -n -v -o SOURCE --mountpoint /mnt/a b", "umount -i -n -v /mnt/a b", "ext4lazy status --short /dev/sdz",
    ]  # fmt: skip


@pytest.mark.parametrize(("log", "terminal"), [("empty", True), ("stock", True), ("in use", True), ("kept", False)])
def test_otherwise_an_unmount_is_quiet(folder: Path, log: str, terminal: bool) -> None:
    assert umount(folder, log, terminal=terminal) == (0, "")


def test_an_unmount_that_fails_says_nothing_of_the_log(folder: Path) -> None:
    assert umount(folder, "kept", "-f") == (32, "")


def asked_of(folder: Path) -> list[str]:
    """What was run besides the question whether a check is due."""
    return [call for call in calls(folder / "programs") if not call.startswith("ext4lazy due ")]


def fsck(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    fake(programs, "e2fsck", "exit 1")
    fake(programs, "ext4lazy", f'[ $1 != check ] || exit 4\nexec {sys.executable} {volumes.TOOLS}/ext4lazy.py "$@"')
    return subprocess.run(
        ["sh", volumes.TOOLS / "fsck.ext4lazy", *map(str, arguments)],
        env=os.environ | {"PATH": f"{programs}:{volumes.PATH}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_at_boot_a_kept_log_is_left_alone(folder: Path) -> None:
    volume = kept(folder).path
    before = digest(volume)
    # systemd says -a, or -y or -n with fsck.repair=yes or no on the kernel's command line.
    for arguments in (
        ("-a",),
        ("-p",),
        ("-y",),
        ("-n",),
        ("-n", "-C0"),
        ("-a", "-C0"),
        ("-a", "-C", "0"),
        ("-p", "-M"),
    ):
        done = fsck(folder, *arguments, volume)
        assert done.returncode == 0, done.stderr
        assert "is kept by journal_lazy; not checked" in done.stdout
    assert asked_of(folder) == []
    assert digest(volume) == before


@pytest.mark.parametrize("arguments", [("-p", "-f"), ("-fy",), (), ("-f",)])
def test_what_a_person_asks_for_is_e2fsck_s(folder: Path, arguments: tuple[str, ...]) -> None:
    volume = kept(folder).path
    done = fsck(folder, *arguments, volume)
    assert done.returncode == 1
    assert asked_of(folder) == [" ".join(["e2fsck -f", *arguments, str(volume)])]
    assert "sending the whole log home before the check (as asked)" in done.stdout


@pytest.mark.parametrize("due", [False, True])
def test_without_writing_a_copy_is_checked(folder: Path, due: bool) -> None:
    """When that is asked for, and with fsck.repair=no when a check is due."""
    volume = kept(folder).path
    if due:
        damaged(volume)
    done = fsck(folder, "-n" if due else "-fn", volume)
    assert done.returncode == 4
    assert asked_of(folder) == [f"ext4lazy check {volume}"]


def test_a_check_that_a_signal_ended_was_cancelled(folder: Path) -> None:
    """fsck(8) takes a status for bits: 130 would say that a reboot is due."""
    volume = kept(folder).path
    programs = folder / "programs"
    fsck(folder, "-a", volume)
    tool = programs / "ext4lazy"
    tool.write_text(tool.read_text().replace("exit 4", "kill -INT 0"))
    done = subprocess.run(
        ["sh", volumes.TOOLS / "fsck.ext4lazy", "-fn", volume],
        env=os.environ | {"PATH": f"{programs}:{volumes.PATH}"}, capture_output=True, check=False, process_group=0,
    )  # fmt: skip
    assert done.returncode == 32


def damaged(volume: Path) -> None:
    volumes.change(volume, ["ssv state 2"])


def aborted(volume: Path) -> None:
    volumes.sign(volume, at_20=5)


def damaged_as_only_the_log_knows(volume: Path) -> None:
    """With errors=continue the kernel logs the superblock; a crash leaves the old one at home."""
    copy = volume.with_suffix(".copy")
    copy.write_bytes(volume.read_bytes())
    volumes.change(copy, ["ssv state 3"])
    volumes.log(volume, copy, [5, 0, 6])
    volumes.sign(volume)


def half_converted(volume: Path) -> None:
    volumes.change(volume, [f"ssv mnt_count {volumes.tool.UNCHECKED + 1}"])


def often_mounted(volume: Path) -> None:
    volumes.change(volume, ["ssv max_mnt_count 3", "ssv mnt_count 3"])


def long_unchecked(volume: Path) -> None:
    volumes.change(volume, ["ssv checkinterval 86400", "ssv lastcheck 20200101"])


@pytest.mark.parametrize(
    ("happened", "why"),
    [
        (damaged, "an error is recorded in it"),
        (damaged_as_only_the_log_knows, "an error is recorded in it"),
        (half_converted, "its conversion was not checked"),
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
    assert asked_of(folder) == [f"e2fsck -f -a {volume}"]


def test_only_the_newest_superblock_in_the_log_counts(folder: Path) -> None:
    """An error was recorded, and e2fsck's work is in the log behind it; neither has a transaction without a commit."""
    volume = kept(folder).path
    damaged_as_only_the_log_knows(volume)
    copy = volume.with_suffix(".copy")
    volumes.change(copy, ["ssv state 1"])
    volumes.log(volume, copy, [0])
    volumes.sign(volume)
    assert "not checked" in fsck(folder, "-a", volume).stdout
    volumes.change(copy, ["ssv state 3"])
    volumes.log(volume, copy, [0], commit=False)
    volumes.sign(volume)
    assert "not checked" in fsck(folder, "-a", volume).stdout


@pytest.mark.parametrize("block_size", [1024, 4096])
@pytest.mark.parametrize("shift", [0, 300, 1500, 2900])
def test_the_newest_superblock_is_found_wherever_the_log_lies(folder: Path, block_size: int, shift: int) -> None:
    """Over several descriptors, and around the end of the journal."""
    volume = volumes.make(folder / "a.img", mib=64, journal_mib=3 * block_size // 1024, block_size=block_size)
    tool = volumes.tool
    copy = volume.with_suffix(".copy")
    for count in range(1, 4):
        copy.write_bytes(volume.read_bytes())
        volumes.change(copy, [f"ssv mnt_count {count}"])
        home = 1 if block_size == 1024 else 0
        volumes.log(volume, copy, [*range(20, 320), home, *range(400, 700)], block_size=block_size)
    places = [
        start + n for first, last, start in tool.read_volume(volume).journal_runs() for n in range(last - first + 1)
    ]
    data = bytearray(volume.read_bytes())
    old = [bytes(data[place * block_size : (place + 1) * block_size]) for place in places]
    for number, place in enumerate(places[1:]):
        data[place * block_size : (place + 1) * block_size] = old[1 + (number - shift) % (len(places) - 1)]
    volume.write_bytes(data)
    volumes.sign(volume, block_size=block_size, at_1c=1 + shift)
    volumes.sign(volume, block_size=block_size)
    stocks = stock("debugfs", "-R", f"logdump -b {home}", volume)
    assert stocks.count(f"FS block {home} logged") == 3, stocks
    found = tool.superblock_in_log(tool.read_volume(volume), tool.read_volume(volume).journal_super())
    assert found[0x34] == 3


def test_after_an_unmount_only_the_end_of_the_log_is_read(folder: Path) -> None:
    """The rest could be 10 GiB: here it cannot be read at all. With a transaction behind the marker, it is read."""
    volume = kept(folder).path
    tool = volumes.tool
    before = tool.read_volume(volume).journal_super()
    used = tool.parse_log(stock("debugfs", "-R", "logdump -a", volume), before).used
    copy = volume.with_suffix(".copy")
    copy.write_bytes(volume.read_bytes())
    volumes.change(copy, ["ssv state 3"])
    volumes.log(volume, copy, [5, 0, 6])
    end = {"at_cc": before.sequence + 1, "at_e8": before.start + used + 5}
    volumes.sign(volume, **end)
    with volume.open("r+b") as file:
        file.seek(volumes.journal_at(volume) + before.start * volumes.BLOCK)
        first = file.read(volumes.BLOCK)
        file.seek(-volumes.BLOCK, os.SEEK_CUR)
        file.write(bytes(volumes.BLOCK))
    assert volumes.ext4lazy("due", volume).stdout == "due: an error is recorded in it\n"
    with volume.open("r+b") as file:
        file.seek(volumes.journal_at(volume) + before.start * volumes.BLOCK)
        file.write(first)
    volumes.change(copy, ["ssv state 1"])
    volumes.log(volume, copy, [0])
    volumes.sign(volume, **end)
    assert "not checked" in fsck(folder, "-a", volume).stdout


def test_what_the_log_brings_home_is_checked(folder: Path) -> None:
    """The superblock at home knows of an error, the one in the log does not: e2fsck alone would call it clean."""
    volume = kept(folder)
    volumes.change(volume.replayed, ["sif d3/f links_count 7"])
    volumes.log(volume.path, volume.replayed, volume.homes)
    volumes.sign(volume.path)
    volumes.change(volume.path, ["ssv state 2"])
    programs = folder / "programs"
    fsck(folder, "-a", volume.path)
    (programs / "e2fsck").unlink()
    done = subprocess.run(
        ["sh", volumes.TOOLS / "fsck.ext4lazy", "-a", volume.path],
        env=os.environ | {"PATH": f"{programs}:{volumes.PATH}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    stock("e2fsck", "-fn", volume.path)


def unreadable(volume: Path) -> None:
    """Its journal superblock does not fit its checksum."""
    with volume.open("r+b") as file:
        file.seek(volumes.journal_at(volume) + 0x50)
        file.write(b"\x12\x34")


def cut_short(volume: Path) -> None:
    """More was committed than its log has; and a check is due."""
    volumes.sign(volume, at_cc=99)
    damaged(volume)


@pytest.mark.parametrize(
    ("damage", "said"),
    [(unreadable, "does not fit its checksum: to go on loses all"), (cut_short, "expected 99, which was committed")],
)
def test_a_log_that_e2fsck_and_a_mount_would_discard_is_left_alone(
    folder: Path, damage: Callable[[Path], None], said: str
) -> None:
    volume = kept(folder).path
    damage(volume)
    before = digest(volume)
    for arguments in (("-a",), ("-y",), ("-f",)):
        done = fsck(folder, *arguments, volume)
        assert (done.returncode, asked_of(folder)) == (4, [])
        assert said in done.stderr
    done = mount(folder, module=False, device=volume)
    assert done.returncode == 32
    assert said in done.stderr
    assert [call for call in calls(folder) if call.startswith("mount")] == []
    assert digest(volume) == before


def test_what_is_whole_is_mounted_as_plain_ext4(folder: Path) -> None:
    volume = kept(folder).path
    assert mount(folder, module=False, device=volume).returncode == 0
    assert [call for call in calls(folder) if call.startswith("mount")] == [f"mount -i -t ext4 {volume} /mnt/a b"]


def test_with_inline_data_plain_ext4_only_reads(folder: Path) -> None:
    """Stock ext4 can lose small synced files there in a power cut."""
    volume = folder / "inline.img"
    with volume.open("wb") as file:
        file.truncate(32 << 20)
    stock("mke2fs", "-q", "-t", "ext4", "-O", "inline_data", volume)
    done = mount(folder, "-o", "rw,noatime", module=False, device=volume)
    assert done.returncode == 0
    assert "with inline_data" in done.stderr and "read-only" in done.stderr
    (called,) = (call for call in calls(folder) if call.startswith("mount"))
    assert called == f"mount -i -t ext4 -o rw,noatime,ro {volume} /mnt/a b"


@pytest.mark.parametrize(
    "arguments", [("-a", "-b", "8193"), ("-a", "-b8193"), ("-p", "-E", "journal_only"), ("-ab", "1")]
)
def test_what_only_e2fsck_understands_is_passed_on(folder: Path, arguments: tuple[str, ...]) -> None:
    volume = kept(folder).path
    assert fsck(folder, *arguments, volume).returncode == 1
    assert asked_of(folder) == [" ".join(["e2fsck", *arguments, str(volume)])]


def test_any_other_volume_is_e2fsck_s_without_a_word(folder: Path) -> None:
    plain = make(folder / "plain.img")
    crashed = kept(folder).path
    volumes.sign(crashed, at_c4=99)
    for volume in (plain, crashed):
        done = fsck(folder, "-a", volume)
        assert done.returncode == 1
        assert done.stdout == ""
    assert asked_of(folder) == [f"e2fsck -a {volume}" for volume in (plain, crashed)]


def test_the_helpers_and_the_program_read_the_same_marker(folder: Path) -> None:
    """One is sh, the other Python; both must be right about the same bytes."""
    volume = kept(folder).path
    for fields, ours in (({}, True), ({"at_bc": 1}, False), ({"at_c0": 1}, False), ({"at_c8": 77}, False)):
        volumes.sign(volume, **fields)
        state = volumes.tool.read_volume(volume).journal_super().state
        assert (state == "kept") is ours
        assert ("kept by journal_lazy" in fsck(folder, "-a", volume).stdout) is ours
    stock("e2fsck", "-fy", volume, accept=(0, 1))

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`ext4lazy tidy`: what it opens, and what it says. That it tidies up is for tests/kernel/test_data_in_order.py."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lazy_tools.volumes import TOOLS, load, systemd_accepts

tidy = load(TOOLS / "tidy.py")
UNIT = "ext4lazy-tidy@.service"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that the kernel is asked to write again; it does not."""
    found: list[int] = []
    monkeypatch.setattr(tidy, "ask", lambda fd, *_: found.append(os.dup(fd)))
    monkeypatch.setattr(tidy, "write_back", lambda *_: None)
    return found


def rewrite(folder: Path, path: Path, inode: int, refused: dict[str, str] | None = None) -> None:
    mount = tidy.Mount(folder, 1 << 20)
    mover = tidy.Mover(mount, 1000, {} if refused is None else refused)
    mover.rewrite(tidy.File(str(path), inode, []), [tidy.Piece(0, 0, 4096)], 1 << 20)


def test_a_file_is_opened_to_be_read(folder: Path, asked: list[int]) -> None:
    """A program that is opened for writing cannot be run, and watchers are told of a file that was."""
    program = folder / "program"
    shutil.copy("/bin/true", program)
    rewrite(folder, program, program.stat().st_ino)
    (fd,) = asked
    assert int(Path(f"/proc/self/fdinfo/{fd}").read_text().partition("flags:")[2].split()[0], 8) & os.O_ACCMODE == 0
    subprocess.run([program], check=True)
    os.close(fd)


def test_what_the_name_means_by_now_is_left_alone(folder: Path, asked: list[int]) -> None:
    """A folder of the path may be a link to another by now: to a file system with an inode of that number, a device."""
    file = folder / "file"
    file.write_text("contents")
    other = Path("/proc/version")
    rewrite(folder, other, other.stat().st_ino)
    rewrite(folder, file, file.stat().st_ino + 1)
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    rewrite(folder, fifo, fifo.stat().st_ino)
    refused: dict[str, str] = {}
    (folder / "link").symlink_to(file)
    rewrite(folder, folder / "link", file.stat().st_ino, refused)
    assert refused == {str(folder / "link"): os.strerror(errno.ELOOP)}
    assert asked == []


@pytest.mark.parametrize("code", [errno.ENOTTY, errno.EBADF])
def test_an_older_module_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """It does not know the ioctl, or wants a descriptor for writing."""

    def ask(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tidy, "ask", ask)
    (folder / "file").write_text("contents")
    with pytest.raises(tidy.Failure, match=r"older than this program: expected .*rmmod ext4lazy"):
        rewrite(folder, folder / "file", (folder / "file").stat().st_ino)


@pytest.mark.parametrize(("code", "status"), [(errno.EIO, 4), (errno.EUCLEAN, 4), (errno.EPERM, 0)])
def test_a_file_that_cannot_be_read_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, status: int
) -> None:
    name = f"{folder}/a\n\udcff"

    def planned(*arguments: dict[str, str]) -> object:
        arguments[-1][name] = os.strerror(code)
        return tidy.Plan([], [])

    monkeypatch.setattr(tidy, "room_of", lambda _: tidy.Room())
    monkeypatch.setattr(tidy, "planned", planned)
    options = argparse.Namespace(rate=20, goal=50, full=90, dry_run=False)
    assert tidy.run(tidy.Mount(folder, 1 << 20), options) == status
    said = capsys.readouterr().out
    assert f"1 files stay: {os.strerror(code)}\n" in said
    assert (f"{name!r}: {os.strerror(code)}\n" in said) == (status == 4)
    assert "\udcff" not in said


@pytest.mark.parametrize("whole", [False, True], ids=["a-bind-mount", "the-volume"])
def test_a_part_that_is_mounted_read_only_stays(folder: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """What cannot be written at all ends the run."""

    def ask(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    flags = argparse.Namespace(f_flag=os.ST_RDONLY if whole else 0)
    monkeypatch.setattr(tidy, "ask", ask)
    monkeypatch.setattr(tidy, "write_back", lambda *_: None)
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    path, refused = folder / "file", dict[str, str]()
    path.write_bytes(b"")
    with pytest.raises(OSError, match="Read-only") if whole else contextlib.nullcontext():
        rewrite(folder, path, path.stat().st_ino, refused)
    assert refused == ({} if whole else {str(path): "Read-only file system"})


def test_there_is_one_at_a_time(folder: Path) -> None:
    mount = tidy.Mount(folder, 1 << 20)
    with tidy.alone(mount), pytest.raises(tidy.Failure, match="by another ext4lazy"), tidy.alone(mount):
        pass
    with tidy.alone(mount):
        pass


def test_the_second_one_is_told_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mount = tidy.Mount(folder, 1 << 20)
    monkeypatch.setattr(tidy, "mount_of", lambda _: mount)
    monkeypatch.setattr(sys, "argv", ["tidy", str(folder)])
    with tidy.alone(mount):
        assert tidy.main() == 8
    assert capsys.readouterr().err == (
        f"ext4lazy: {folder} is being tidied by another ext4lazy: expected one at a time.\n"
    )


def test_another_reason_to_wait_is_no_other_run(folder: Path) -> None:
    with pytest.raises(BlockingIOError), tidy.alone(tidy.Mount(folder, 1 << 20)):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_mount_points_are_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = folder / "mounts"
    place = folder / os.fsdecode(b"b\x0b\xff \xe2\x80\xa8")
    place.mkdir()
    line = os.fsencode(place).replace(b" ", b"\\040")
    mounts.write_bytes(b"/dev/a /\xff\x1c\x85 ext4 rw 0 0\n/dev/b " + line + b" ext4 rw,data_relocate 0 0\n")
    monkeypatch.setattr(tidy, "MOUNTS", mounts)
    assert tidy.mount_of(str(place)) == tidy.Mount(place, 8 << 20)
    with pytest.raises(tidy.Failure, match="nothing is mounted on"):
        tidy.mount_of(str(folder))


def test_a_wrong_use_is_one_sentence(folder: Path) -> None:
    said = subprocess.run(
        [sys.executable, TOOLS / "tidy.py", folder], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (said.returncode, said.stderr.count("\n")) == (8, 1)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_stops_it_before_the_volume_is_unmounted(folder: Path) -> None:
    """And it mounts nothing: RequiresMountsFor= would mount a volume that its owner has unmounted."""
    text = systemd_accepts(folder, UNIT)
    assert "\nAfter=%i.mount\nPartOf=%i.mount\n" in text
    # ProtectSystem=full makes /usr read-only, and the volume may lie below it.
    assert "\nReadWritePaths=%f\n" in text
    assert "Requires" not in text

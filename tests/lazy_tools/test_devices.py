# SPDX-License-Identifier: MIT OR Apache-2.0
"""ext4lazy on block devices: loop devices over small images, which need root, and the host's own ext4."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lazy_tools.volumes import ext4lazy, fakes, kept, loop, make, needs_loop, stock, tool

pytestmark = needs_loop


def test_nobody_can_mount_what_is_being_converted(folder: Path) -> None:
    said, point = folder / "said", folder / "point"
    point.mkdir()
    with loop(make(folder / "old.img", kind="ext3", mib=128)) as device:
        path = fakes(
            folder, tune2fs=f'real mount {device} {point} 2>>{said} && umount {point} && echo mounted >>{said}\n'
            'real tune2fs "$@"',
        )  # fmt: skip
        done = ext4lazy("convert", device, path=path)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = said.read_text().splitlines()
        assert "mounted" not in lines
        assert sum("already mounted or mount point busy" in line for line in lines) == 3
        stock("e2fsck", "-fn", device)
        stock("mount", device, point)
        stock("umount", point)


def test_nobody_can_mount_the_copy_that_is_being_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop device stands in for the snapshot, which has the UUID of the volume."""
    said, point = folder / "said", folder / "point"
    point.mkdir()
    with loop(make(folder / "a.img")) as device, loop(make(folder / "b.img")) as copy:
        monkeypatch.setattr(tool, "_snapshot", lambda *_: contextlib.nullcontext(copy))
        monkeypatch.setenv(
            "PATH", fakes(folder, e2fsck=f'real mount {copy} {point} 2>>{said} && umount {point}\nreal e2fsck "$@"')
        )
        assert tool.check(device, folder) == tool.OK
    assert said.read_text().count("already mounted or mount point busy") == 1


def test_without_a_loop_device_the_old_journal_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "LOOP_CONFIGURE", 0x4CFF)
    with loop(make(folder / "old.img", kind="ext3", mib=128)) as device:
        with pytest.raises(tool.Failure, match="the kernel makes no loop device"):
            tool.convert(device, None, dry_run=False)
        assert tool.read_volume(device).has_journal


def test_a_command_that_outlives_the_program_still_keeps_the_device(folder: Path) -> None:
    point, said = folder / "point", folder / "said"
    point.mkdir()
    with loop(make(folder / "old.img", kind="ext3", mib=128)) as device:
        path = fakes(
            folder, tune2fs=f"kill -9 $PPID; sleep 0.2; real mount {device} {point} && umount {point}; echo $? >{said}"
        )
        assert ext4lazy("convert", device, path=path).returncode == -9
        assert said.read_text() == "32\n"


@contextlib.contextmanager
def mounted(device: Path, point: Path, *, namespace: bool = False) -> Iterator[None]:
    """Mounted on a folder, here or in a mount namespace of its own."""
    point.mkdir(exist_ok=True)
    if not namespace:
        stock("mount", device, point)
        try:
            yield
        finally:
            stock("umount", point)
        return
    script = f"mount {device} {point} && echo ready && read line"
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "ready\n"
        yield
        keeper.communicate("\n")


@pytest.mark.parametrize("command", ["convert", "drain", "check"])
@pytest.mark.parametrize("over", ["image", "device"])
@pytest.mark.parametrize("namespace", [False, True])
def test_a_mount_over_a_loop_device_is_seen(folder: Path, command: str, over: str, namespace: bool) -> None:
    image = make(folder / "old.img", kind="ext3", mib=128)
    with contextlib.ExitStack() as stack:
        path = image if over == "image" else stack.enter_context(loop(image))
        used = stack.enter_context(loop(path))
        stack.enter_context(mounted(used, folder / "point", namespace=namespace))
        said = ext4lazy(command, path)
        # Stock ext4 replayed the log when it was mounted: there is nothing to drain.
        fine = command == "drain" and not namespace
        assert said.returncode == (tool.OK if fine else tool.FAILED)
        where = "is in use" if namespace else f"is mounted on {folder}/point"
        assert where in (said.stdout if fine else said.stderr), said.stderr
    assert "metadata_csum" not in stock("dumpe2fs", "-h", image)


def test_an_idle_loop_device_is_no_obstacle_but_cannot_be_mounted(folder: Path) -> None:
    image = make(folder / "old.img", kind="ext3", mib=128)
    said = folder / "said"
    with loop(image) as device:
        path = fakes(folder, tune2fs=f'real mount {device} {folder} 2>>{said} && umount {folder}; real tune2fs "$@"')
        done = ext4lazy("convert", image, path=path)
        assert done.returncode == 0, done.stderr
        assert said.read_text().count("mount point busy") == 3


@pytest.mark.parametrize("command", ["convert", "drain"])
@pytest.mark.parametrize("over", ["image", "device"])
def test_nor_while_e2fsck_writes_below_it(folder: Path, command: str, over: str) -> None:
    """e2fsck asks for the device alone, but not for what lies over it."""
    image = kept(folder).path if command == "drain" else make(folder / "old.img", kind="ext3", mib=128)
    said, point = folder / "said", folder / "point"
    point.mkdir()
    with contextlib.ExitStack() as stack:
        path = image if over == "image" else stack.enter_context(loop(image))
        idle = stack.enter_context(loop(path))
        tried = f'real mount {idle} {point} 2>>{said} && umount {point}; real e2fsck "$@"'
        done = ext4lazy(command, path, path=fakes(folder, e2fsck=tried))
        assert done.returncode == 0, done.stderr
    assert said.read_text().count("mount point busy") == (1 if command == "drain" else 2)


def test_drain_does_not_make_a_file_system_read_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read-only bind comes first in the list; the host's ext4 stands in for journal_lazy."""
    real = tool.run
    monkeypatch.setattr(tool, "statistics_of", lambda _: {"live_blocks": "0"})
    monkeypatch.setattr(
        tool, "run", lambda argv, **rest: real([str(one).replace(",journal_lazy_drain", "") for one in argv], **rest)
    )
    bind, point = folder / "bind", folder / "point"
    with loop(make(folder / "a.img")) as device, contextlib.ExitStack() as stack:
        bind.mkdir()
        with mounted(device, point):
            stock("mount", "--bind", point, bind)
            stack.callback(stock, "umount", bind)
            stock("mount", "-o", "remount,bind,ro", bind)
        assert tool.main(["drain", str(device)]) == tool.FAILED
        assert f"is mounted on {bind} read-only" in capsys.readouterr().err
        with mounted(device, point):
            stock("mount", "-o", "remount,noatime", point)
            assert tool.main(["drain", str(device)]) == tool.OK
            (point / "file").write_text("written")
            options = [
                line.split()[5] for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line
            ]
            assert options == ["ro,relatime", "rw,noatime"]


def test_a_device_can_be_named_as_in_fstab_and_by_where_it_is_mounted(folder: Path) -> None:
    image = make(folder / "a.img")
    uuid = re.search(r"UUID: +(\S+)", stock("dumpe2fs", "-h", image))
    assert uuid is not None
    with loop(image) as device:
        said = ext4lazy("status", f"UUID={uuid[1]}")
        assert said.stdout.startswith(f"{device}: ext4, 32 MiB, not mounted"), said.stderr
        with mounted(device, folder / "point"):
            said = ext4lazy("status", folder / "point")
            assert said.stdout.startswith(f"{device}: ext4, 32 MiB, mounted on {folder}/point as ext4"), said.stderr
        with loop(image) as second:
            said = ext4lazy("convert", f"UUID={uuid[1]}")
            assert said.stderr == f"ext4lazy: UUID={uuid[1]} names {device} and {second}: expected one device.\n"
    assert "no device is mounted on" in ext4lazy("status", folder).stderr
    assert "names no device: expected one" in ext4lazy("status", f"UUID={uuid[1]}").stderr


@pytest.mark.parametrize("command", ["check", "convert", "drain", "status"])
def test_a_missing_journal_device_is_named(folder: Path, command: str) -> None:
    log, image = folder / "log.img", folder / "a.img"
    for path in (log, image):
        with path.open("wb") as file:
            file.truncate(64 << 20)
    stock("mke2fs", "-q", "-b", "4096", "-O", "journal_dev", log)
    with loop(log) as device:
        stock("mke2fs", "-q", "-t", "ext3", "-b", "4096", "-J", f"device={device}", image)
    uuid = re.search(r"Journal UUID: +(\S+)", stock("dumpe2fs", "-h", image))
    assert uuid is not None
    said = ext4lazy(command, image)
    assert said.returncode == tool.FAILED
    assert said.stderr == f"ext4lazy: {image}: its journal device, UUID {uuid[1]}, is not here.\n"

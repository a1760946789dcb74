# SPDX-License-Identifier: MIT OR Apache-2.0
"""How a program that runs as root could lose a byte: two at once, links, forged texts, closed streams, cut writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lazy_tools import volumes
from lazy_tools.volumes import digest, ext4lazy, fakes, kept, loop, make, needs_loop, stock, tool

TOOL = volumes.TOOLS / "ext4lazy.py"


def convertible(folder: Path, name: str = "old.img") -> Path:
    return make(folder / name, kind="ext3", mib=64)


@pytest.mark.parametrize("command", ["drain", "check", "convert"])
def test_nothing_else_is_done_to_an_image_that_is_being_converted(folder: Path, command: str) -> None:
    volume, said = convertible(folder), folder / "said"
    path = fakes(
        folder, tune2fs=f'{sys.executable} {TOOL} {command} {volume} >>{said} 2>&1; echo $? >>{said}\nreal tune2fs "$@"'
    )
    assert ext4lazy("convert", volume, path=path).returncode == 0
    sentences = said.read_text().splitlines()
    assert len(sentences) == 6, "at each of three commands of tune2fs"
    assert all("is in use by another ext4lazy" in one for one in sentences[::2]), sentences
    assert set(sentences[1::2]) == {str(tool.FAILED)}


def test_an_image_that_is_being_drained_is_not_converted(folder: Path) -> None:
    volume, said = kept(folder).path, folder / "said"
    path = fakes(folder, e2fsck=f'{sys.executable} {TOOL} convert {volume} >{said} 2>&1\nreal e2fsck "$@"')
    assert ext4lazy("drain", volume, path=path).returncode == 0
    assert "is in use by another ext4lazy" in said.read_text()


def test_two_checks_at_once_are_fine(folder: Path) -> None:
    volume, said = kept(folder).path, folder / "said"
    second = f"{sys.executable} {TOOL} check --scratch {folder}/second {volume} >{said} 2>&1"
    path = fakes(folder, e2fsck=f'[ -e {said} ] || PATH={volumes.PATH} {second}\nreal e2fsck "$@"')
    assert ext4lazy("check", "--scratch", folder / "first", volume, path=path).returncode == 0
    assert "no errors" in said.read_text()


def test_a_link_is_followed_once(folder: Path) -> None:
    """udev points /dev/disk/by-label/data at another disk with that label, in the middle of a conversion."""
    volume, other, link = convertible(folder), convertible(folder, "other.img"), folder / "link"
    before = digest(other)
    link.symlink_to(volume)
    path = fakes(folder, tune2fs=f'real ln -sfn {other} {link}; real tune2fs "$@"')
    assert ext4lazy("convert", link, path=path).returncode == 0
    assert digest(other) == before
    assert "metadata_csum" in stock("dumpe2fs", "-h", volume)


def test_a_name_is_no_option(folder: Path) -> None:
    volume = convertible(folder, "-f")
    argv = [sys.executable, TOOL, "convert", "--", "-f"]
    done = subprocess.run(argv, cwd=folder, env={"PATH": volumes.PATH}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "metadata_csum" in stock("dumpe2fs", "-h", volume)


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_without_standard_streams_nothing_is_printed_into_the_volume(folder: Path, closed: str) -> None:
    """tune2fs opens the volume as its standard output then, and prints there."""
    volume = convertible(folder)
    done = subprocess.run(["sh", "-c", f"{TOOL} convert {volume} {closed}"], check=False, env={"PATH": volumes.PATH})
    assert done.returncode == 0
    assert volume.read_bytes()[:1024] == bytes(1024)
    assert "metadata_csum" in stock("dumpe2fs", "-h", volume)
    stock("e2fsck", "-fn", volume)


def test_no_module_comes_from_the_caller_s_environment(folder: Path) -> None:
    (folder / "json.py").write_text(f"open({str(folder / 'run')!r}, 'w')\n")
    done = subprocess.run(
        [TOOL, "status", make(folder / "a.img")], cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (folder / "run").exists()


def test_a_write_that_was_cut_short_is_continued(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = folder / "file", os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, data[:100], at))
    data = os.urandom(4096)
    with path.open("wb") as file:
        tool.written_whole(file.fileno(), data, 512)
    assert path.read_bytes() == bytes(512) + data


def test_a_disk_does_not_write_on_the_terminal(folder: Path) -> None:
    """Its label could hide what convert is about to do, and to what."""
    volume = convertible(folder)
    volumes.change(volume, ["ssv volume_name \x1b[2Jx"])
    before = digest(volume)
    _, said = volumes.at_terminal(sys.executable, TOOL, "convert", volume, answer="n\n")
    assert "\\x1b[2Jx" in said
    assert "\x1b" not in said
    assert digest(volume) == before


@needs_loop
def test_drain_touches_no_file_system_that_lies_over_the_volume(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[object] = []
    monkeypatch.setattr(tool, "statistics_of", lambda _: {"live_blocks": "0"})
    monkeypatch.setattr(tool, "run", lambda argv, **_: ran.append(argv))
    point = folder / "point"
    point.mkdir()
    with loop(make(folder / "a.img")) as device, loop(make(folder / "b.img")) as other:
        stock("mount", device, point)
        stock("mount", other, point)
        try:
            assert tool.main(["drain", str(device)]) == tool.FAILED
        finally:
            stock("umount", point)
            stock("umount", point)
    assert f"something else is mounted over {device} on {point}" in capsys.readouterr().err
    assert ran == []


def test_without_room_nothing_long_begins(folder: Path) -> None:
    volume, ran = convertible(folder), folder / "ran"
    said = ext4lazy("convert", "--journal-mib", "4096", volume, path=fakes(folder, e2fsck=f"touch {ran}; exit 0"))
    assert said.returncode == tool.FAILED
    assert said.stderr.endswith("remove files, or take a smaller one with --journal-mib.\n")
    assert not ran.exists()

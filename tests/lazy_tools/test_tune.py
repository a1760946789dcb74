# SPDX-License-Identifier: MIT OR Apache-2.0
"""`ext4lazy tune`: settings of a mounted ext4, and the unit that sets them after each mount.

That a kernel takes them, and what they do, is for e61, which runs on the real one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lazy_tools import volumes
from lazy_tools.volumes import fakes, make, stock, systemd_accepts, tool
from shingle.catalogue import fs

UNIT = "ext4lazy-tune@.service"


@pytest.fixture
def settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an image that a kernel says is mounted as plain ext4, over a loop device."""
    volume = make(folder / "mounted.img")
    volumes.say_mounted(volume, "/ /data/my\\040disk rw,noatime shared:1 - ext4 /dev/loop7 rw", monkeypatch)
    monkeypatch.setattr(tool, "SYSTEMD", folder / "nothing")
    monkeypatch.setattr(tool, "UNITS", folder / "units")
    found = folder / "sys/fs/ext4/loop7"
    found.mkdir(parents=True)
    for name, value in tool.UNTUNED.items():
        (found / name).write_text(f"{value}\n")
    return found


def told(settings: Path) -> dict[str, int]:
    return {name: int((settings / name).read_text()) for name in tool.TUNED}


def test_settings_are_written_and_taken_back(settings: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    volume = str(folder / "mounted.img")
    assert tool.main(["tune", volume]) == tool.OK
    assert told(settings) == tool.TUNED
    said = capsys.readouterr().out
    assert "/data/my disk: new files are kept together" in said
    assert "Without systemd" in said and "run it then" in said
    assert tool.main(["tune", volume]) == tool.OK
    assert tool.main(["tune", volume, "--undo"]) == tool.OK
    assert told(settings) == tool.UNTUNED


def test_what_the_tool_sets_is_what_was_measured() -> None:
    measured = fs.with_allocation(fs.find("ext4"), goal=True, stream=True).settings
    assert {Path(name).name: int(value) for name, value in measured} == tool.TUNED


@pytest.mark.parametrize("more", [(), ("-O", "bigalloc", "-C", "16384")])
def test_a_preallocation_is_at_most_a_block_group(settings: Path, folder: Path, more: tuple[str, ...]) -> None:
    small = make(folder / "mounted.img", block_size=1024)
    stock("mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", *more, small)
    assert tool.main(["tune", str(small)]) == tool.OK
    assert told(settings) == tool.TUNED | {"mb_group_prealloc": 8192}


@pytest.mark.parametrize(("cluster", "at_first"), [(16384, 128), (65536, 32), (262144, 32)])
def test_with_clusters_it_is_taken_back_to_what_the_kernel_begins_with(
    settings: Path, folder: Path, cluster: int, at_first: int
) -> None:
    """ext4_mb_init(): max(512 >> s_cluster_bits, 32)."""
    volume = folder / "mounted.img"
    stock("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", str(cluster), volume)
    assert tool.main(["tune", str(volume), "--undo"]) == tool.OK
    assert told(settings) == tool.UNTUNED | {"mb_group_prealloc": at_first}


def test_if_one_is_refused_none_is_changed(
    settings: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = Path.write_text

    def refuse(path: Path, text: str) -> int:
        if path.name == "mb_group_prealloc" and text == "32768\n":
            raise OSError(22, "Invalid argument", str(path))
        return written(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    assert tool.main(["tune", str(folder / "mounted.img")]) == tool.FAILED
    assert told(settings) == tool.UNTUNED
    assert "mb_group_prealloc: Invalid argument" in capsys.readouterr().err


def test_what_is_not_mounted_or_not_ext4_is_refused(
    settings: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make(folder / "other.img")
    assert tool.main(["tune", str(other)]) == tool.FAILED
    assert "is not mounted: expected a mounted ext4" in capsys.readouterr().err
    shutil.rmtree(settings)
    assert tool.main(["tune", str(folder / "mounted.img")]) == tool.FAILED
    assert "expected ext4" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="no systemd")
def test_systemd_sets_them_after_each_mount(
    settings: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = folder / "asked"
    monkeypatch.setenv("PATH", fakes(folder, systemctl=f'echo "$*" >>{asked}'))
    monkeypatch.setattr(tool, "SYSTEMD", folder)
    volume = str(folder / "mounted.img")
    assert tool.main(["tune", volume, "--now"]) == tool.OK
    assert not asked.exists() and not tool.UNITS.exists()
    assert tool.main(["tune", volume]) == tool.OK
    addition = tool.UNITS / "data-my\\x20disk.mount.d/ext4lazy-tune.conf"
    assert "\nUpholds=ext4lazy-tune@data-my\\x20disk.service\n" in addition.read_text()
    assert "sets this again when a volume is mounted on /data/my disk" in capsys.readouterr().out
    for _ in range(2):
        assert tool.main(["tune", volume, "--undo"]) == tool.OK
        assert not addition.parent.exists()
    assert asked.read_text() == "daemon-reload\n" * 3


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="no systemd")
def test_of_two_mount_points_the_one_that_is_named_is_kept(
    settings: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", fakes(folder, systemctl=":"))
    monkeypatch.setattr(tool, "SYSTEMD", folder)
    second = folder / "second"
    second.mkdir()
    monkeypatch.setattr(tool, "find_device", lambda _: folder / "mounted.img")
    assert tool.main(["tune", str(second)]) == tool.OK
    unit = stock("systemd-escape", "--path", second).strip()
    assert [path.name for path in tool.UNITS.iterdir()] == [f"{unit}.mount.d"]
    assert tool.main(["tune", str(second), "--undo"]) == tool.OK
    assert not list(tool.UNITS.iterdir())
    assert f"sets nothing any more when a volume is mounted on {second}" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="no systemd")
def test_it_is_taken_back_of_a_directory_where_no_ext4_is_mounted_any_more(
    settings: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", fakes(folder, systemctl=":"))
    monkeypatch.setattr(tool, "SYSTEMD", folder)
    place = folder / "place"
    place.mkdir()
    unit = stock("systemd-escape", "--path", place).strip()
    addition = tool.UNITS / f"{unit}.mount.d/ext4lazy-tune.conf"
    addition.parent.mkdir(parents=True)
    addition.write_text("")
    assert tool.main(["tune", str(place), "--undo"]) == tool.OK
    assert not addition.parent.exists()
    assert f"sets nothing any more when a volume is mounted on {place}" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_understands_the_unit(folder: Path) -> None:
    text = systemd_accepts(folder, UNIT)
    # Upheld, a unit that fails is started for ever.
    assert "ExecStart=-/usr/sbin/ext4lazy tune --now %f\n" in text

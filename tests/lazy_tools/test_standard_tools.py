# SPDX-License-Identifier: MIT OR Apache-2.0
"""What standard tools do to a volume whose log is kept: each has a sentence in the guide, and draining first helps.

The volume's files are at home with their data; only the log knows of them.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lazy_tools import volumes
from lazy_tools.volumes import BLOCK, PATH, digest, ext4lazy, loop, make, needs_loop, stock
from shingle.paths import ROOT

GUIDE = " ".join((ROOT / "docs/guide/owners-guide.md").read_text().split())
CONTENTS = b"contents\n"
GONE = b"y" * BLOCK


@pytest.fixture
def volume(folder: Path) -> Path:
    """As journal_lazy leaves it: file data at home, metadata in the log alone."""
    path, replayed = make(folder / "kept.img"), folder / "replayed.img"
    replayed.write_bytes(path.read_bytes())
    # A file that is gone again makes the others lie far behind.
    large = folder / "large"
    large.write_bytes(GONE * 4096)
    volumes.change(replayed, [f"write {large} large"])
    volumes.add_files(replayed)
    volumes.change(replayed, ["rm large"])
    data = replayed.read_bytes()
    homes = [n for n in volumes.differing(path, replayed) if data[n * BLOCK : (n + 1) * BLOCK] != GONE]
    of_files = [n for n in homes if data[n * BLOCK : n * BLOCK + len(CONTENTS)] == CONTENTS]
    assert len(of_files) == volumes.FILES
    with path.open("r+b") as file:
        for n in of_files:
            file.seek(n * BLOCK)
            file.write(data[n * BLOCK : (n + 1) * BLOCK])
    volumes.log(path, replayed, [n for n in homes if n not in of_files])
    volumes.sign(path)
    assert ext4lazy("status", "--short", path).stdout == "kept\n"
    return path


def lost(path: Path) -> int:
    """Files that are not as they were, after e2fsck has replayed and mended what it can."""
    stock("e2fsck", "-fy", path, accept=(0, 1, 2, 3, 4, 5))
    found = [stock("debugfs", "-R", f"cat /d{n}/f", path) for n in range(1, volumes.FILES + 1)]
    return sum(text.encode() != CONTENTS for text in found)


def need(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name, path=PATH) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


def by_zerofree(path: Path) -> Path:
    stock("zerofree", path)
    return path


def by_resize2fs(path: Path) -> Path:
    # The end of the image is cut off, as one does with a partition.
    stock("resize2fs", "-f", "-M", path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(32 << 20)
    assert size < 32 << 20
    return path


def by_e2image(path: Path) -> Path:
    stock("e2image", "-ra", path, path.with_suffix(".copy"))
    return path.with_suffix(".copy")


def by_partclone(path: Path) -> Path:
    packed, restored = path.with_suffix(".packed"), path.with_suffix(".restored")
    log = path.with_suffix(".log")
    # It takes a volume whose log is to be replayed for one in use.
    stock("partclone.ext4", "-c", "-F", "-L", log, "-s", path, "-o", packed)
    # What was on the other disk before is no zeros.
    restored.write_bytes(b"x" * path.stat().st_size)
    stock("partclone.ext4", "-r", "-L", log, "-s", packed, "-O", restored)
    return restored


@pytest.mark.parametrize("drained", [False, True], ids=["kept", "drained"])
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("zerofree", by_zerofree),
        ("resize2fs", by_resize2fs),
        ("e2image", by_e2image),
        ("partclone.ext4", by_partclone),
    ],
)
def test_what_loses_files(volume: Path, name: str, use: Callable[[Path], Path], drained: bool) -> None:
    need(name)
    if drained:
        assert ext4lazy("drain", volume).returncode == 0
    result = use(volume)
    assert (lost(result) == 0) is drained
    assert f"`{name.partition('.')[0]}" in GUIDE


@pytest.mark.parametrize("drained", [False, True], ids=["kept", "drained"])
@needs_loop
def test_dump_of_the_device_lacks_the_files(volume: Path, drained: bool) -> None:
    need("dump", "restore")
    if drained:
        assert ext4lazy("drain", volume).returncode == 0
    backup = volume.with_suffix(".dump")
    with loop(volume) as device:
        stock("dump", "-0", "-f", backup, device)
    names = stock("restore", "-t", "-f", backup)
    assert ("./d1/f" in names) is drained
    assert "`dump`" in GUIDE


def test_resize2fs_without_force_refuses(volume: Path) -> None:
    stock("resize2fs", "-M", volume, accept=(1,))
    assert lost(volume) == 0


@pytest.mark.parametrize(
    "command",
    [
        ("tune2fs", "-L", "new"),
        ("tune2fs", "-c", "20"),
        ("tune2fs", "-U", "random"),
        ("tune2fs", "-O", "^has_journal"),
        ("tune2fs", "-f", "-f", "-O", "^has_journal"),
        ("tune2fs", "-m", "1"),
    ],
    ids=" ".join,
)
def test_tune2fs_replays_first(volume: Path, command: tuple[str, ...]) -> None:
    assert "Recovering journal" in stock(*command, volume)
    assert ext4lazy("status", "--short", volume).stdout in ("empty\n", "none\n")
    assert lost(volume) == 0
    assert "`tune2fs` and `e2label` replay it first" in GUIDE


def test_e2label_replays_first(volume: Path) -> None:
    stock("e2label", volume, "new")
    assert lost(volume) == 0


@pytest.mark.parametrize("options", [("-p",), ("-fy",), ("-fyD",), ("-fy", "-E", "discard")], ids=" ".join)
def test_e2fsck_replays_first(volume: Path, options: tuple[str, ...]) -> None:
    stock("e2fsck", *options, volume, accept=(0, 1))
    assert lost(volume) == 0


@pytest.mark.parametrize(
    "command",
    ["e2fsck -p", "e2fsck -fn", "dumpe2fs -h", "tune2fs -l", "resize2fs -f -M", "zerofree", "partclone.ext4"],
)
def test_an_incompatible_feature_would_keep_everybody_off(volume: Path, command: str) -> None:
    """So a kept log has none of its own (docs/decisions/0008): e2fsck, too, could not give the files back."""
    name, *options = command.split()
    need(name)
    volumes.change(volume, ["feature FEATURE_I31"])
    before = digest(volume)
    options += ["-c", "-o", str(volume.with_suffix(".copy")), "-s"] if name == "partclone.ext4" else []
    stock(name, *options, volume, accept=(1, 8, 67))
    assert digest(volume) == before


@needs_loop
def test_fsck_goes_by_the_line_in_fstab(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fstab = volume.with_suffix(".fstab")
    monkeypatch.setenv("FSTAB_FILE", str(fstab))
    with loop(volume) as device:
        fstab.write_text("")
        assert "fsck.ext4 " in stock("fsck", "-N", device)
        fstab.write_text(f"{device} /data ext4lazy defaults 0 2\n")
        monkeypatch.setattr(volumes, "PATH", f"{volumes.TOOLS}:{PATH}")
        assert "fsck.ext4lazy " in stock("fsck", "-N", device)
    assert "without one, `fsck` runs e2fsck" in GUIDE


@contextlib.contextmanager
def unwritable(backing: Path) -> Iterator[Path]:
    """Through --read-only: what --setro sets stays with the number of the loop device."""
    device = stock("losetup", "--find", "--show", "--read-only", backing).strip()
    try:
        yield Path(device)
    finally:
        stock("losetup", "--detach", device)


@pytest.mark.parametrize("drained", [False, True], ids=["kept", "drained"])
@needs_loop
def test_a_read_only_device_is_refused(volume: Path, drained: bool) -> None:
    """A replay writes, also for `mount -o ro`. The guide has an overlay, and tests/stock_kernel runs it."""
    if drained:
        assert ext4lazy("drain", volume).returncode == 0
    place = volume.parent / "mnt"
    place.mkdir()
    with unwritable(volume) as device:
        stock("mount", "-t", "ext4", "-o", "ro", device, place, accept=(0,) if drained else (32,))
        if drained:
            stock("umount", place)
    assert "`mount -t ext4` of a read-only device" in GUIDE


@pytest.mark.parametrize("mib", [64, 2048])
def test_the_usual_journal_is_made_as_the_guide_says(folder: Path, mib: int) -> None:
    """Whatever the volume's size: a command that fails here would leave it without a journal."""
    text = (ROOT / "docs/guide/owners-guide.md").read_text()
    commands = [line.split() for line in text.splitlines() if re.match(r"tune2fs -\S", line)]
    path = make(folder / "converted.img", mib=mib)
    for argv in commands:
        stock(*(str(path) if word == "/dev/sdX1" else word for word in argv))
    assert [argv[1] for argv in commands] == ["-O", "-j"]
    assert volumes.tool.read_volume(path).has_journal
    stock("e2fsck", "-fn", path)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""convert of a volume with many full directories, which get room for checksums: no name is lost."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lazy_tools.volumes import ext4lazy, stock

# Of 256 bytes each: the second block of a directory is full to its end.
NAMES = {1024: 7, 4096: 31}


def full_directories(folder: Path, count: int, block_size: int, mib: int = 128) -> Path:
    """Links to one file. Each directory has two blocks without room for a checksum."""
    tree = folder / "tree"
    tree.mkdir()
    (tree / "file").write_text("contents\n")
    for number in range(count):
        below = tree / f"d{number}"
        below.mkdir()
        for name in range(NAMES[block_size]):
            os.link(tree / "file", below / f"{name:04}{'n' * 244}")
    volume = folder / "old.img"
    with volume.open("wb") as file:
        file.truncate(mib << 20)
    stock("mke2fs", "-q", "-t", "ext3", "-b", str(block_size), "-J", "size=4", "-d", tree, volume)
    return volume


def names(volume: Path, count: int) -> list[str]:
    script = volume.with_suffix(".ls")
    script.write_text("".join(f"ls -p /d{number}\n" for number in range(count)))
    lines = stock("debugfs", "-f", script, volume).splitlines()
    # Of /INODE/MODE/UID/GID/NAME/SIZE/
    return sorted(f"{line.split('/')[1]} {line.split('/')[5]}" for line in lines if line.startswith("/"))


@pytest.mark.parametrize(("block_size", "count"), [(4096, 600), (1024, 400)])
def test_convert_keeps_more_names_than_the_journal_holds(folder: Path, block_size: int, count: int) -> None:
    volume = full_directories(folder, count, block_size)
    stock("e2fsck", "-fn", volume)
    before = names(volume, count)
    said = ext4lazy("convert", "--journal-mib", "4", volume)
    assert said.returncode == 0, said.stdout + said.stderr
    # What fits goes through the journal, with blocks of 1 KiB, too.
    assert ("written in place (a log of" in said.stdout) == (block_size == 4096)
    stock("e2fsck", "-fn", volume)
    assert names(volume, count) == before
    assert len(before) == count * (2 + NAMES[block_size])


def test_a_full_volume_whose_directories_get_no_checksums_is_not_ready(folder: Path) -> None:
    """e2fsck ends with status 0, and no kernel reads these directories."""
    volume = full_directories(folder, 10, 4096, mib=24)
    before, big = names(volume, 10), folder / "big"
    big.write_bytes(b"full" * (24 << 18))
    stock("debugfs", "-w", "-R", f"write {big} big", volume)
    stock("e2fsck", "-fp", volume, accept=(0, 1))
    assert re.search(r"Free blocks: +0\n", stock("dumpe2fs", "-h", volume))
    said = ext4lazy("convert", "--journal-mib", "4", volume)
    assert said.returncode == 8, said.stdout
    assert "has directories without checksums, as nothing was free for these" in said.stderr
    stock("debugfs", "-w", "-R", "rm big", volume)
    stock("e2fsck", "-fp", volume, accept=(0, 1))
    assert ext4lazy("convert", "--journal-mib", "4", volume).returncode == 0
    assert names(volume, 10) == before

# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH103, PTH123
"""Runs in the machine: files whose contents are in their inodes, and the ways in which they come out of there.

inline_work.py write KIND...       small files below /mnt, synced, all of them in their inodes
inline_work.py convert KIND...     each gets a block of its own, synced
inline_work.py overwrite KIND...   other contents, synced
inline_work.py a KIND...           fails and says how many files do not hold what `write` wrote
inline_work.py b KIND...           the same of `overwrite`
"""

from __future__ import annotations

import mmap
import os
import random
import sys
from collections.abc import Callable

ROOT = "/mnt"
FILES = 50
BYTES = 100
GROWN = 5000


def content(kind: str, number: int, letter: str) -> bytes:
    return random.Random(f"{kind} {number} {letter}").randbytes(BYTES)


def path(kind: str, number: int) -> str:
    return f"{ROOT}/{kind}/{number}"


def by_fallocate(fd: int, name: str) -> None:
    os.posix_fallocate(fd, 0, GROWN)


def by_mmap(fd: int, name: str) -> None:
    with mmap.mmap(fd, BYTES) as mapped:
        mapped[0] = mapped[0]


def by_truncate(fd: int, name: str) -> None:
    os.ftruncate(fd, GROWN)


def by_path(fd: int, name: str) -> None:
    """Nobody has it open for writing."""
    os.truncate(name, GROWN)


KINDS: dict[str, Callable[[int, str], None]] = {
    each.__name__: each for each in (by_fallocate, by_mmap, by_truncate, by_path)
}


def each_file(kind: str, letter: str | None, flags: int, *, blocks: bool) -> None:
    for number in range(FILES):
        fd = os.open(path(kind, number), flags, 0o644)
        if letter:
            os.pwrite(fd, content(kind, number, letter), 0)
        else:
            KINDS[kind](fd, path(kind, number))
        if flags & os.O_RDWR:
            os.fsync(fd)
        # Otherwise the test is none. What is in the inode counts as one sector.
        assert (os.fstat(fd).st_blocks > 1) == blocks, path(kind, number)
        os.close(fd)


def check(kinds: tuple[str, ...], letter: str) -> None:
    wrong: dict[str, int] = {}
    for kind in kinds:
        for number in range(FILES):
            with open(path(kind, number), "rb") as file:
                if file.read().rstrip(b"\0") != content(kind, number, letter).rstrip(b"\0"):
                    wrong[kind] = wrong.get(kind, 0) + 1
    sys.exit(f"lost, of {FILES} each: {wrong}" if wrong else 0)


def main(verb: str, *kinds: str) -> None:
    if verb in ("a", "b"):
        check(kinds, verb)
    for kind in kinds:
        if verb == "write":
            os.makedirs(f"{ROOT}/{kind}")
            each_file(kind, "a", os.O_RDWR | os.O_CREAT, blocks=False)
        elif verb == "convert":
            each_file(kind, None, os.O_RDONLY if kind == "by_path" else os.O_RDWR, blocks=True)
        elif verb == "overwrite":
            each_file(kind, "b", os.O_RDWR, blocks=True)
    # A commit, and no more: nothing goes home.
    fd = os.open(ROOT, os.O_RDONLY)
    os.fsync(fd)


main(*sys.argv[1:])

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Many images in one file of states, as the crash explorer's disk reads it."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

BLOCK = 4096
MIB = 1 << 20
_ZERO = bytes(BLOCK)


def blocks(image: Path) -> Iterator[tuple[int, bytes]]:
    """Those that are not zero."""
    with image.open("rb") as file:
        at = 0
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) & -BLOCK
            except OSError:
                return
            data = os.pread(file.fileno(), MIB, at)
            for begin in range(0, len(data), BLOCK):
                block = data[begin : begin + BLOCK]
                if block != _ZERO:
                    yield (at + begin) // BLOCK, block
            at += len(data)


def digest(image: Path) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for number, block in blocks(image):
        whole.update(number.to_bytes(4))
        whole.update(block)
    return whole.hexdigest()


class Pool:
    """What crates/crash-drive/src/states.rs reads: states as tables into a pool of blocks."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._numbers: dict[bytes, int] = {}
        self._data: list[bytes] = []
        self._states: list[list[tuple[int, int]]] = []

    def add(self, image: Path) -> int:
        entries = []
        for number, block in blocks(image):
            key = hashlib.blake2b(block, digest_size=16).digest()
            pool = self._numbers.setdefault(key, len(self._data))
            if pool == len(self._data):
                self._data.append(block)
            entries.append((number, pool))
        self._states.append(entries)
        return len(self._states) - 1

    def write(self, target: Path) -> None:
        tables, first = [], 0
        for state in self._states:
            tables.append(struct.pack("<2I", first, len(state)))
            first += len(state)
        end = 40 + 8 * len(tables) + 8 * first
        offset = end + -end % BLOCK
        with target.open("wb") as file:
            file.write(b"SHGLCRS1")
            file.write(struct.pack("<6IQ", self._blocks, len(tables), len(self._data), 0, 1, 0, offset))
            file.writelines(tables)
            file.writelines(struct.pack("<2I", *entry) for state in self._states for entry in state)
            file.write(bytes(offset - end))
            file.writelines(self._data)

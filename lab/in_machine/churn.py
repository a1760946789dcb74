#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ages a file system as a file server does: files come, go, grow and are overwritten. Runs inside the machine.

    churn.py fill FOLDER PERCENT SEED [OF]                  files until so much of the file system is used
    churn.py round FOLDER PERCENT BYTES SEED REPORT [OF]    so much is written, and as much stays used
    churn.py free FOLDER REPORT                             only what is free

PERCENT is of OF bytes, or of what statfs() calls the size.

Sizes are those of Filebench's file server: a gamma distribution, mean 128 KiB. The report is JSON; where the kernel can
tell (FS_IOC_GETFSMAP), it has the free bytes by the length of their stretch. The names are kept outside of the disk.
"""

import importlib.util
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

NOTES = Path("/run/churn.json")
KIB, BLOCK = 1 << 10, 4 << 10
# filebench, workloads/fileserver.f
SHAPE, MEAN_BYTES, APPENDED_BYTES = 1.5, 128 * KIB, 16 * KIB
IN_FOLDER = 64
# Of ten changes; when the disk is as full as it shall be, a file goes first.
MADE, APPENDED = 5, 3
PIECE = b"shingle " * (MEAN_BYTES // 8)


class Server:
    def __init__(self, folder: str, percent: str, seed: str, of: str = "") -> None:
        self.folder = folder
        room = os.statvfs(os.path.dirname(folder))  # noqa: PTH120
        self.most = int(of or room.f_blocks * room.f_frsize) * int(percent) // 100
        self.random = random.Random(seed)
        # Names, and the size of each.
        self.sizes: list[tuple[int, int]] = []
        self.used = self.made = self.written = 0
        self.counts: Counter[str] = Counter()

    def path(self, name: int) -> str:
        return f"{self.folder}/{name // IN_FOLDER}/{name}"

    def size(self) -> int:
        return 1 + int(self.random.gammavariate(SHAPE, MEAN_BYTES / SHAPE))

    def write(self, fd: int, size: int, start: int) -> None:
        end = start + size
        while start < end:
            start += os.pwrite(fd, PIECE[: end - start], start)
        self.written += size

    def make(self) -> None:
        if self.made % IN_FOLDER == 0:
            os.mkdir(f"{self.folder}/{self.made // IN_FOLDER}")  # noqa: PTH102
        size = self.size()
        fd = os.open(self.path(self.made), os.O_CREAT | os.O_WRONLY, 0o644)
        self.write(fd, size, 0)
        os.close(fd)
        self.sizes.append((self.made, size))
        self.made += 1
        self.used += rounded(size)

    def remove(self) -> None:
        place = self.random.randrange(len(self.sizes))
        self.sizes[place], self.sizes[-1] = self.sizes[-1], self.sizes[place]
        name, size = self.sizes.pop()
        os.unlink(self.path(name))  # noqa: PTH108
        self.used -= rounded(size)

    def change(self, *, append: bool) -> None:
        """A file grows, or a piece of it is overwritten."""
        place = self.random.randrange(len(self.sizes))
        name, size = self.sizes[place]
        piece = 1 + int(self.random.expovariate(1 / APPENDED_BYTES))
        start = size if append else self.random.randrange(size)
        if not append:
            piece = min(piece, size - start)
        fd = os.open(self.path(name), os.O_WRONLY)
        self.write(fd, piece, start)
        os.close(fd)
        if append:
            self.sizes[place] = (name, size + piece)
            self.used += rounded(size + piece) - rounded(size)

    def turn(self) -> None:
        while self.used > self.most:
            self.counts["remove"] += 1
            self.remove()
        what = self.random.randrange(10)
        kind = "make" if what < MADE else "append" if what < MADE + APPENDED else "overwrite"
        self.counts[kind] += 1
        if kind == "make":
            self.make()
        else:
            self.change(append=kind == "append")


def rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def free_bytes(folder: str) -> dict[str, int] | None:
    """By the length of the stretch, in KiB, rounded down to a power of two; None where the kernel does not tell."""
    spec = importlib.util.spec_from_file_location("tidy", Path(__file__).with_name("tidy.py"))
    assert spec is not None and spec.loader is not None
    tidy = importlib.util.module_from_spec(spec)
    sys.modules["tidy"] = tidy
    spec.loader.exec_module(tidy)
    found: Counter[int] = Counter()
    try:
        for _, length, owner in tidy.disk_map(Path(folder)):
            if owner == tidy.FREE:
                found[1 << (length // KIB).bit_length() - 1] += length
    except OSError:
        return None
    return {str(size): found[size] for size in sorted(found)}


def fill(folder: str, percent: str, seed: str, *of: str) -> None:
    os.mkdir(folder)  # noqa: PTH102
    server = Server(folder, percent, f"fill {seed}", *of)
    while server.used < server.most:
        server.make()
    NOTES.write_text(json.dumps([server.sizes, server.used, server.made]))


def one_round(folder: str, percent: str, size: str, seed: str, report: str, *of: str) -> None:
    server = Server(folder, percent, f"round {seed}", *of)
    sizes, server.used, server.made = json.loads(NOTES.read_text())
    server.sizes = [tuple(each) for each in sizes]
    before = time.monotonic_ns()
    while server.written < int(size):
        server.turn()
    os.sync()
    ns = time.monotonic_ns() - before
    NOTES.write_text(json.dumps([server.sizes, server.used, server.made]))
    told = {
        "name": "churn",
        "args": {"percent": int(percent), "bytes": int(size), "seed": seed},
        "operations": dict(server.counts),
        "parts": [{"name": "round", "ns": ns}],
        "user_written_bytes": server.written,
        "user_read_bytes": 0,
        "free_bytes": free_bytes(folder),
    }
    Path(report).write_text(json.dumps(told))


def free(folder: str, report: str) -> None:
    Path(report).write_text(json.dumps({"name": "free", "free_bytes": free_bytes(folder)}))


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {"fill": fill, "round": one_round, "free": free}
    verbs[sys.argv[1]](*sys.argv[2:])

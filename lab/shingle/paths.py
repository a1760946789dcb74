# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where things are: the clone, and the cache outside it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
# Programs that the lab runs inside the machine, each on its own: they import nothing of the lab.
IN_MACHINE = ROOT / "lab/in_machine"


def cache() -> Path:
    """The cache outside the clone, the one that the front door uses."""
    named = os.environ.get("SHINGLE_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shingle"


def run_directory() -> Path:
    """Where a run's files live while it lasts: in memory if the machine has a tmpfs for that."""
    shm = Path("/dev/shm")
    return shm if os.access(shm, os.W_OK) else Path(tempfile.gettempdir())


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the cache's lock `name`, so that two builds of the same thing wait for each other."""
    directory = cache() / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def used(entry: Path) -> None:
    """Notes that an entry of the cache was used, so that it is not the next to go."""
    os.utime(entry)


def prune(folder: Path, *, keep: int) -> None:
    """Removes the entries of a cache folder that were not used for longest, but for `keep` of them."""
    entries = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for entry in entries[:-keep]:
        shutil.rmtree(entry, ignore_errors=True)


def files_below(directory: Path) -> list[Path]:
    """Every file below `directory`, in an order that does not depend on the host."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


class ContentKey:
    """A hash over named contents. Time stamps, owners and the clone's place never enter it."""

    def __init__(self, kind: str) -> None:
        self._hash = hashlib.sha256(f"{kind}\0".encode())

    def text(self, name: str, value: str) -> ContentKey:
        data = value.encode()
        self._hash.update(f"{name}\0{len(data)}\0".encode() + data)
        return self

    def file(self, name: str, path: Path) -> ContentKey:
        with path.open("rb") as file:
            return self.text(name, hashlib.file_digest(file, "sha256").hexdigest())

    def tree(self, root: Path, paths: Iterable[Path]) -> ContentKey:
        for path in sorted(paths):
            self.file(str(path.relative_to(root)), path)
        return self

    def hexdigest(self) -> str:
        return self._hash.hexdigest()[:24]

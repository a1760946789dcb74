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

from shingle.failure import Failure

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
# Programs that the lab runs inside the machine, each on its own: they import nothing of the lab.
IN_MACHINE = ROOT / "lab/in_machine"
# What owners run, and what experiments and tests run in the machine.
TIDY = ROOT / "packaging/tools/tidy.py"


def cache() -> Path:
    """The cache outside the clone, the one that the front door uses."""
    named = os.environ.get("SHINGLE_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shingle"


MEMORY = Path("/dev/shm")
_RUN = "shingle-run-"
# A run's drive, console and results; containers often have 64 MiB.
_RUN_NEEDS_BYTES = 1 << 30


def room(folder: Path) -> int:
    """Bytes that may be written there; 0 if nothing may."""
    if not os.access(folder, os.W_OK):
        return 0
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize


def run_directory() -> Path:
    """Where a run's files live while it lasts: in memory if the machine has a tmpfs for that."""
    return MEMORY if room(MEMORY) >= _RUN_NEEDS_BYTES else Path(tempfile.gettempdir())


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """A folder that is gone when the block is left; what killed runs have left beside it goes now.

    Its owner holds a lock on it, which the kernel takes away with the process. Folders are made and swept one at a
    time, since one that is made a moment ago has no lock yet.
    """
    within = run_directory()
    with locked("runs"):
        _sweep(within)
        made = tempfile.TemporaryDirectory(prefix=_RUN, dir=within)
        held = os.open(made.name, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with made as name:
            yield Path(name)
    finally:
        os.close(held)


def _sweep(within: Path) -> None:
    """Removes the folders of runs whose process is gone."""
    for left in within.glob(f"{_RUN}*"):
        with contextlib.suppress(OSError):
            folder = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(folder)


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
    found = []
    for path in folder.iterdir():
        # Another process may remove the same ones meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                found.append((path.stat().st_mtime, path))
    for _, entry in sorted(found)[:-keep]:
        shutil.rmtree(entry, ignore_errors=True)


def put_whole(path: Path, data: bytes) -> None:
    """Writes a file that appears whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; it was not written.") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


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

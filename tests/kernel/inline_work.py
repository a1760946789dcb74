# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH103, PTH108, PTH110, PTH123
"""Runs in the machine: files whose contents are in their inodes, and the ways in which they come out of there.

inline_work.py write KIND...       small files below /mnt, synced, all of them in their inodes
inline_work.py convert KIND...     each gets a block of its own, synced
inline_work.py append KIND...      zeros behind the contents, written back but not synced; commits come amid that
inline_work.py beyond KIND...      zeros far behind the contents; fails if the journal's thread then starts a handle
inline_work.py inside KIND...      other contents over those in the inodes, with fdatasync
inline_work.py drop KIND...        each gets a block whose page is dropped again, while a commit still has to write it
inline_work.py whole KIND...       fails and says how many files hold neither what `write` wrote nor zeros
inline_work.py overwrite KIND...   other contents, synced
inline_work.py a KIND...           fails and says how many files do not hold what `write` wrote
inline_work.py b KIND...           the same of `overwrite`
inline_work.py random SEED MODEL   small files grow and shrink in all ways at random, and MODEL says what they must hold
inline_work.py model MODEL         fails and says which files hold something else
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import random
import sys
import threading
import time
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
ROOT = "/mnt"
TRACING = "/sys/kernel/tracing"
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


def append(kind: str) -> None:
    """Writeback moves the contents from the inode into a block."""
    for number in range(FILES):
        fd = os.open(path(kind, number), os.O_RDWR)
        os.pwrite(fd, bytes(GROWN - BYTES), BYTES)
        # SYNC_FILE_RANGE_WRITE
        if libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), 2):
            raise OSError(ctypes.get_errno(), "sync_file_range")
        assert os.fstat(fd).st_blocks > 1, path(kind, number)
        os.close(fd)
        if number % 5 == 0:
            commit()


def beyond(kind: str) -> None:
    """The rest of the first block is zeroed, which the next commit has to write. It cannot wait for room in the log."""
    with open(f"{TRACING}/events/ext4/ext4_journal_start_inode/enable", "w") as file:
        file.write("1")
    for number in range(FILES):
        fd = os.open(path(kind, number), os.O_RDWR)
        os.pwrite(fd, bytes(10), GROWN - 10)
        os.close(fd)
    commit()
    with open(f"{TRACING}/trace") as file:
        tasks = [line.split()[0] for line in file if "ext4_journal_start" in line]
    assert len(tasks) > FILES, tasks
    own = [task for task in tasks if task.startswith("jbd2/")]
    sys.exit(f"{len(own)} of {len(tasks)} handles are of {own[0]}" if own else 0)


def overwrite_inside(kind: str) -> None:
    for number in range(FILES):
        fd = os.open(path(kind, number), os.O_RDWR)
        os.pwrite(fd, content(kind, number, "b"), 0)
        os.fdatasync(fd)
        assert os.fstat(fd).st_blocks == 1, path(kind, number)
        os.close(fd)


def by_removal(fd: int, name: str) -> None:
    os.unlink(name)
    os.close(fd)


# FALLOC_FL_PUNCH_HOLE and FALLOC_FL_ZERO_RANGE with FALLOC_FL_KEEP_SIZE, FALLOC_FL_COLLAPSE_RANGE
DROPS: dict[str, Callable[[int, str], None]] = {
    "by_punch": lambda fd, _: fallocate(fd, 3, 0, BLOCK),
    "by_zero": lambda fd, _: fallocate(fd, 17, 0, BLOCK),
    "by_collapse": lambda fd, _: fallocate(fd, 8, 0, BLOCK),
    "by_shrinking": lambda fd, _: os.ftruncate(fd, 0),
    "by_removal": by_removal,
}
# More than the queue takes, so that the commit waits before it comes to the files of the test.
BLOCK, MIB, OWED = 4096, 1 << 20, 2000
FOREIGN = b"\xee"


def drop(kind: str) -> None:
    """The commit is busy with other small files."""
    # What is free holds what was somebody else's, also what ext4 keeps back.
    with open("/sys/fs/ext4/shd0/reserved_clusters", "w") as file:
        file.write("0")
    fd = os.open(f"{ROOT}/foreign", os.O_RDWR | os.O_CREAT)
    try:
        while True:
            os.write(fd, FOREIGN * MIB)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    os.fsync(fd)
    os.close(fd)
    os.unlink(f"{ROOT}/foreign")
    os.sync()
    others = [os.open(f"{ROOT}/owed-{number}", os.O_RDWR | os.O_CREAT, 0o644) for number in range(OWED)]
    for fd in others:
        os.write(fd, bytes(BYTES))
    os.sync()
    fds = [os.open(path(kind, number), os.O_RDWR) for number in range(FILES)]
    # What is last on the transaction's list is written first.
    for fd in (*fds, *others):
        os.ftruncate(fd, 3 * BLOCK)
    os.utime(ROOT)
    committing = threading.Thread(target=os.fsync, args=(os.open(ROOT, os.O_RDONLY),))
    committing.start()
    time.sleep(0.02)
    for number, fd in enumerate(fds):
        DROPS[kind](fd, path(kind, number))
    assert committing.is_alive(), "the commit had ended before"
    committing.join()


def check_whole(kinds: tuple[str, ...]) -> None:
    wrong, old = {}, 0
    for kind in kinds:
        for number in range(FILES):
            held = b""
            if os.path.exists(path(kind, number)):
                with open(path(kind, number), "rb") as file:
                    held = file.read()
            is_old = held[:BYTES] == content(kind, number, "a")
            old += is_old
            wrong[kind] = wrong.get(kind, 0) + bool(held[BYTES * is_old :].strip(b"\0"))
    if any(wrong.values()):
        sys.exit(f"neither old nor new, of {FILES} each: {wrong}")
    # Otherwise no commit came between the two.
    assert old, "all files are new"


def commit() -> None:
    """No more than that: nothing goes home."""
    fd = os.open(ROOT, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def check(kinds: tuple[str, ...], letter: str) -> None:
    wrong: dict[str, int] = {}
    for kind in kinds:
        for number in range(FILES):
            with open(path(kind, number), "rb") as file:
                if file.read().rstrip(b"\0") != content(kind, number, letter).rstrip(b"\0"):
                    wrong[kind] = wrong.get(kind, 0) + 1
    sys.exit(f"lost, of {FILES} each: {wrong}" if wrong else 0)


# --- At random ----------------------------------------------------------------

SMALL_FILES = 12
OPERATIONS = 2000
# FALLOC_FL_KEEP_SIZE, with FALLOC_FL_PUNCH_HOLE, with FALLOC_FL_ZERO_RANGE
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 3, 17


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    if libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        raise OSError(ctypes.get_errno(), f"fallocate {mode}")


def one_operation(chance: random.Random, name: str, held: bytearray) -> None:
    """A change of a file, and of what it must hold."""
    # Half of all places are where the inode's room ends.
    at = chance.choice((0, 10, 59, 60, 61, 150, 250, 300, 1024, 4095, 4096, 5000))
    length = chance.choice((1, 20, 60, 100, 200, 3000))
    what = chance.choice(("write", "write", "truncate", "path", "empty", "mmap", "allocate", "keep", "punch", "zero"))
    if what == "path":
        os.truncate(name, at)
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    if what == "write":
        data = chance.randbytes(length)
        os.pwrite(fd, data, at)
        held.extend(bytes(max(0, at + length - len(held))))
        held[at : at + length] = data
    elif what in ("truncate", "path", "empty"):
        size = 0 if what == "empty" else at
        os.ftruncate(fd, size)
        held.extend(bytes(max(0, size - len(held))))
        del held[size:]
    elif what == "mmap" and held:
        with mmap.mmap(fd, len(held)) as mapped:
            mapped[at % len(held)] = held[at % len(held)] = chance.randrange(256)
    elif what == "allocate":
        fallocate(fd, 0, at, length)
        held.extend(bytes(max(0, at + length - len(held))))
    elif what == "keep":
        fallocate(fd, KEEP_SIZE, at, length)
    elif what in ("punch", "zero"):
        fallocate(fd, PUNCH_HOLE if what == "punch" else ZERO_RANGE, at, length)
        end = min(len(held), at + length)
        held[at:end] = bytes(max(0, end - at))
    if chance.random() < 0.3:
        os.fsync(fd)
    os.close(fd)


def differing(model: dict[str, str]) -> list[str]:
    wrong = []
    for name, held in model.items():
        with open(name, "rb") as file:
            if file.read().hex() != held:
                wrong.append(name)
    return wrong


def at_random(seed: str, output: str) -> None:
    chance = random.Random(seed)
    files = {f"{ROOT}/random{number}": bytearray() for number in range(SMALL_FILES)}
    for name in files:
        os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o644))
    for number in range(OPERATIONS):
        name, held = chance.choice(list(files.items()))
        if chance.random() < 0.05:
            os.unlink(name)
            os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o644))
            held.clear()
        one_operation(chance, name, held)
        if number % 50 == 0:
            with open("/proc/sys/vm/drop_caches", "w") as file:
                file.write("3")
            wrong = differing({name: held.hex() for name, held in files.items()})
            assert not wrong, f"seed {seed}, operation {number}: {wrong}"
    os.sync()
    with open(output, "w") as file:
        json.dump({name: held.hex() for name, held in files.items()}, file)


def check_model(source: str) -> None:
    with open(source) as file:
        wrong = differing(json.load(file))
    sys.exit(f"other contents: {wrong}" if wrong else 0)


def main(verb: str, *kinds: str) -> None:
    if verb == "random":
        at_random(*kinds)
        return
    if verb == "model":
        check_model(*kinds)
    if verb in ("a", "b"):
        check(kinds, verb)
    if verb == "whole":
        check_whole(kinds)
        return
    if verb in ("drop", "inside"):
        # No commit behind it.
        for kind in kinds:
            drop(kind) if verb == "drop" else overwrite_inside(kind)
        return
    for kind in kinds:
        if verb == "write":
            os.makedirs(f"{ROOT}/{kind}")
            each_file(kind, "a", os.O_RDWR | os.O_CREAT, blocks=False)
        elif verb == "convert":
            each_file(kind, None, os.O_RDONLY if kind == "by_path" else os.O_RDWR, blocks=True)
        elif verb == "append":
            append(kind)
        elif verb == "beyond":
            beyond(kind)
        elif verb == "overwrite":
            each_file(kind, "b", os.O_RDWR, blocks=True)
    commit()


main(*sys.argv[1:])

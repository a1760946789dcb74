# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH101, PTH102, PTH108, PTH112, PTH123, PTH208
"""Runs in the machine: files whose blocks are overwritten, and a comparison of each block.

For test_data_in_order.py, the crash explorer and the torture (stress.sh).

data_work.py make FILES BLOCKS [LEAVE_MIB]   files of that many blocks, synced; all but so much of the rest is taken
data_work.py overwrite SEED TURNS [MARKS]    overwrites runs and single blocks, with and without a sync; says in file
                                             MARKS what is synced; `alone`: makes no other files meanwhile
data_work.py small SEED TURNS MARKS          small files are synced in their inodes and grow out of them; MARKS as above
data_work.py log TURNS                       overwrites file 0 in order, two blocks at a time, as databases do
data_work.py scattered TURNS                 overwrites blocks anywhere
data_work.py popular TURNS                   overwrites the first block of file 0 and some other one
data_work.py grow TURNS                      appends 100 bytes to a file of its own; these four sync each time
data_work.py check                           each block is the newest, from the disk
data_work.py places FILE                     prints where the blocks of a file are
data_work.py beside TURNS                    direct writes, mapped and buffered ones of the same files at a time
data_work.py cuts TURNS                      overwrites, and truncates and punches holes beside
data_work.py quota                           overwrites of somebody who is at the limit of the quota
data_work.py swap                            swapon of a file that somebody writes to
data_work.py late                            a direct write that takes long, and the same block overwritten meanwhile
data_work.py again                           the same, and the block is written again as it is
data_work.py versions DIR                    prints which version of each block the files there hold
data_work.py states FILE ANSWERS OPTIONS     each state of a crash explorer's disk is mounted, and its blocks are told

A block is one of the file system. It holds its file, its number and its version over and over; those of a small file
have 32 bytes. Notes of all versions are kept on the host's side. DATA_ROOT and DATA_NOTES in the environment name
another folder and another file.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

ROOT = os.environ.get("DATA_ROOT", "/mnt/data")
NOTES = os.environ.get("DATA_NOTES", "/run/out/notes.json")
# Of what is mounted.
BLOCK = os.statvfs("/mnt").f_frsize
BLOCKS_A_PAGE = mmap.PAGESIZE // BLOCK
MIB = 1 << 20
# EXT4_IOC_MOVE_EXT and EXT4_IOC_REWRITE
_MOVE_EXT, _REWRITE = 0xC028660F, 0x4010662F
# Files that come and go, and take what others leave; small files that grow. crash_blocks.py has the same.
PASSING, SMALL = 1000, 1 << 60
libc = ctypes.CDLL(None, use_errno=True)


def contents(file: int, number: int, version: int, size: int = BLOCK) -> bytes:
    return struct.pack("<8sQQQ", b"in order", file, number, version) * (size // 32)


def checked(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


class Notes:
    """What every block must hold, and everything that was ever written, in order."""

    def __init__(self) -> None:
        self.version = 0
        self.files: dict[int, list[int]] = {}
        self.log: list[tuple[int, int, int]] = []

    @classmethod
    def read(cls) -> Notes:
        notes = cls()
        with open(NOTES) as file:
            said = json.load(file)
        notes.version, notes.log = said["version"], [tuple(each) for each in said["log"]]
        notes.files = {int(name): versions for name, versions in said["files"].items()}
        return notes

    def save(self) -> None:
        with open(NOTES, "w") as file:
            json.dump({"version": self.version, "files": self.files, "log": self.log}, file)

    def next(self, file: int, number: int) -> bytes:
        """What is about to be written there."""
        self.version += 1
        self.files[file][number] = self.version
        self.log.append((self.version, file, number))
        return contents(file, number, self.version, size_of_block(file))


def path(file: int) -> str:
    return f"{ROOT}/{file}"


def size_of_block(file: int, of_file_system: int = BLOCK) -> int:
    return 32 if file >= SMALL else of_file_system


def put(notes: Notes, fd: int, file: int, first: int, count: int) -> None:
    data = b"".join(notes.next(file, first + each) for each in range(count))
    assert os.pwrite(fd, data, first * size_of_block(file)) == len(data)


def put_mapped(notes: Notes, fd: int, file: int, first: int, count: int) -> None:
    with mmap.mmap(fd, 0) as mapped:
        for number in range(first, first + count):
            mapped[number * BLOCK : (number + 1) * BLOCK] = notes.next(file, number)


def begin_writing(fd: int) -> None:
    """Writeback begins, and nobody waits for it, or for the memory that it lacks (jbd2.provoke=unsubmitted)."""
    try:
        checked(libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), 2), "sync_file_range")
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise


def move_extents(fd: int, first: int, count: int) -> None:
    """Blocks of a file change places with those of a file without a name. Nothing happens without room for one, where
    none has a place yet, and where ext4 does not know how: with clusters or encryption."""
    donor = os.open(ROOT, os.O_RDWR | os.O_TMPFILE)
    try:
        os.posix_fallocate(donor, first * BLOCK, count * BLOCK)
        argument = struct.pack("<IIQQQQ", 0, donor, first, first, count, 0)
        fcntl.ioctl(fd, _MOVE_EXT, argument)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EBUSY, errno.ENODATA, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(donor)


def rewrite(fd: int, first: int, count: int) -> None:
    """Blocks are written again as they are, if they move (with data_relocate)."""
    try:
        fcntl.ioctl(fd, _REWRITE, struct.pack("<QQ", first * BLOCK, count * BLOCK))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise


def make(files: str, blocks: str, leave_mib: str | None = None) -> None:
    notes = Notes()
    os.mkdir(ROOT)
    for file in range(int(files)):
        notes.files[file] = [0] * int(blocks)
        fd = os.open(path(file), os.O_RDWR | os.O_CREAT)
        put(notes, fd, file, 0, int(blocks))
        os.fsync(fd)
        os.close(fd)
    if leave_mib is not None:
        fd = os.open("/mnt/reserved", os.O_RDWR | os.O_CREAT)
        room = os.fstatvfs(fd)
        os.posix_fallocate(fd, 0, room.f_bavail * room.f_frsize - int(leave_mib) * MIB)
        os.close(fd)
    os.sync()
    notes.save()


# --- Overwriting ----------------------------------------------------------------


class Overwriter:
    def __init__(self, notes: Notes, seed: int, marks: str | None) -> None:
        self.notes = notes
        self.chance = random.Random(seed)
        self.alone = marks == "alone"
        self.marks = None if self.alone else marks
        self.own = [file for file in notes.files if file < PASSING]
        self.fds = {file: os.open(path(file), os.O_RDWR) for file in self.own}
        self.passing: list[int] = []
        self.made = PASSING + 1000 * seed
        assert self.made + 1000 < SMALL, f"seed {seed} is too large"

    def mark(self, text: str) -> None:
        if self.marks is not None:
            # One write is one marker.
            with open(self.marks, "a") as file:
                file.write(f"{text}\n")

    def sync(self, file: int, how: Callable[[int], None]) -> None:
        version = self.notes.version
        how(self.fds[file])
        self.mark(f"synced {file} {version}")

    def turn(self) -> None:
        file = self.chance.choice(self.own)
        blocks = len(self.notes.files[file])
        how = self.chance.choice((put, put_mapped))
        for _ in range(self.chance.choice((1, 1, 6))):
            count = self.chance.choice((1, 1, 1, 2, 7, 30))
            how(self.notes, self.fds[file], file, self.chance.randrange(blocks - count + 1), count)
        what = self.chance.randrange(10)
        if what < 2:
            self.sync(file, os.fsync)
        elif what < 4:
            self.sync(file, os.fdatasync)
        elif what < 6:
            self.commit_beside()
        elif what < 7:
            self.tidy()
        elif what < 9 and not self.alone:
            self.pass_by()

    def commit_beside(self) -> None:
        """A commit that has no data to wait for but what others have just begun to write."""
        synced = self.chance.choice(self.own)
        os.fsync(self.fds[synced])
        for file in self.own:
            if file != synced:
                put(self.notes, self.fds[file], file, self.chance.randrange(len(self.notes.files[file])), 1)
        os.utime(self.fds[synced])
        for file in self.own:
            if file != synced:
                begin_writing(self.fds[file])
        self.sync(synced, os.fsync)

    def tidy(self) -> None:
        """Blocks get another place, as a defragmenter or tidy.py does it, and are written back amid the commit."""
        synced, *others = self.chance.sample(self.own, len(self.own))
        how = self.chance.choice((move_extents, rewrite))
        for file in others:
            count = self.chance.choice((1, 7, 30))
            first = self.chance.randrange(len(self.notes.files[file]) - count + 1)
            how(self.fds[file], first, count)
        os.utime(self.fds[synced])

        def write_back() -> None:
            time.sleep(0.005)
            for file in others:
                begin_writing(self.fds[file])

        together(partial(self.sync, synced, os.fsync), write_back)

    def pass_by(self) -> None:
        """A file that takes blocks which are free, or should not be."""
        self.made += 1
        file, count = self.made, self.chance.choice((1, 8, 64))
        self.notes.files[file] = [0] * count
        fd = os.open(path(file), os.O_RDWR | os.O_CREAT)
        put(self.notes, fd, file, 0, count)
        self.fds[file] = fd
        if self.chance.randrange(2):
            self.sync(file, os.fsync)
        else:
            begin_writing(fd)
        os.close(self.fds.pop(file))
        self.passing.append(file)
        if len(self.passing) > 6:
            gone = self.passing.pop(0)
            self.mark(f"unlinked {gone}")
            os.unlink(path(gone))
            del self.notes.files[gone]


def overwrite(seed: str, turns: str, marks: str | None = None) -> None:
    """Ends early if the disk fails; what counts then is what the notes say of the last sync."""
    notes = Notes.read()
    work = Overwriter(notes, int(seed), marks)
    try:
        for number in range(int(turns)):
            work.turn()
            if number % 20 == 19:
                version = notes.version
                os.sync()
                for file in notes.files:
                    work.mark(f"synced {file} {version}")
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EROFS):
            raise
        print(f"ended with {errno.errorcode[error.errno]}")
    finally:
        notes.save()


def small(seed: str, turns: str, marks: str) -> None:
    """Each turn makes a file or lets one grow; what follows is its sync, a commit of another, or nothing."""
    notes = Notes.read()
    work = Overwriter(notes, int(seed), marks)
    first = SMALL + 1000 * int(seed)
    grown = 0
    for _ in range(int(turns)):
        file = first + work.chance.randrange(int(turns) // 2)
        new = file not in notes.files
        if new:
            notes.files[file] = []
            work.fds[file] = os.open(path(file), os.O_RDWR | os.O_CREAT)
        fd, before = work.fds[file], len(notes.files[file])
        count = work.chance.choice((1, 2, 3)) if new else work.chance.choice((2, 40, 150))
        # Now and then over what is there.
        start = before - min(before, work.chance.choice((0, 0, 1, 2)))
        # What is in the inode counts as one sector.
        was_inside = not new and os.fstat(fd).st_blocks < 2
        notes.files[file] += [0] * (start + count - before)
        put(notes, fd, file, start, count)
        what = work.chance.randrange(8)
        if new or what < 2:
            work.sync(file, work.chance.choice((os.fsync, os.fdatasync)))
        elif what < 7:
            begin_writing(fd)
            grown += was_inside and os.fstat(fd).st_blocks > 1
        if what in (3, 4, 5):
            other = work.chance.choice(work.own)
            put(notes, work.fds[other], other, 0, 1)
            work.sync(other, os.fsync)
    notes.save()
    assert grown > int(turns) // 20, f"{grown} synced files grew out of their inodes"


def log(turns: str) -> None:
    notes = Notes.read()
    fd = os.open(path(0), os.O_RDWR)
    for number in range(int(turns)):
        put(notes, fd, 0, number * 2 % len(notes.files[0]), 2)
        os.fdatasync(fd)
    notes.save()


def scattered(turns: str) -> None:
    notes = Notes.read()
    chance = random.Random(7)
    fds = {file: os.open(path(file), os.O_RDWR) for file in notes.files}
    for _ in range(int(turns)):
        file = chance.choice(sorted(fds))
        put(notes, fds[file], file, chance.randrange(len(notes.files[file])), 1)
        os.fdatasync(fds[file])
    notes.save()


def popular(turns: str) -> None:
    notes = Notes.read()
    chance = random.Random(9)
    fd = os.open(path(0), os.O_RDWR)
    blocks = len(notes.files[0])
    for _ in range(int(turns)):
        put(notes, fd, 0, 0, 1)
        put(notes, fd, 0, chance.randrange(blocks // 4, blocks), 1)
        os.fdatasync(fd)
    notes.save()


def grow(turns: str) -> None:
    fd = os.open("/mnt/grown", os.O_RDWR | os.O_CREAT)
    lines = [f"{number:099}\n".encode() for number in range(int(turns))]
    for line in lines:
        os.write(fd, line)
        os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(fd, 1 << 20, 0) == b"".join(lines), "what was appended differs"


def check() -> None:
    """From the disk: what is clean is dropped from memory first, the mapping stays."""
    notes = Notes.read()
    wrong = []
    for file, versions in sorted(notes.files.items()):
        fd = os.open(path(file), os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.fstat(fd).st_size != len(versions) * BLOCK:
            wrong.append(f"{file} has {os.fstat(fd).st_size} bytes")
        for number, version in enumerate(versions):
            got = os.pread(fd, BLOCK, number * BLOCK)
            if got != contents(file, number, version):
                wrong.append(f"file {file}, block {number}: {got[:32]!r} instead of version {version}")
        os.close(fd)
    if wrong:
        sys.exit("\n".join([*wrong[:9], f"{len(wrong)} blocks are wrong"]))
    print(f"compared {sum(map(len, notes.files.values()))} blocks")


def extents(fd: int) -> list[tuple[int, int, int]]:
    """First block, place and length of each extent."""
    most = 4000
    head = struct.pack("<QQIIII", 0, (1 << 64) - 1, 1, 0, most, 0)
    got = bytearray(head + bytes(56 * most))
    fcntl.ioctl(fd, 0xC020660B, got)
    found = struct.unpack_from("<QQIIII", got)[3]
    each = [struct.unpack_from("<QQQ", got, 32 + 56 * number) for number in range(found)]
    return [(logical // BLOCK, place // BLOCK, size // BLOCK) for logical, place, size in each]


def places(file: str) -> None:
    fd = os.open(path(int(file)), os.O_RDONLY)
    print(json.dumps(extents(fd)))


# --- Others at the same time ------------------------------------------------------


def together(*works: Callable[[], None]) -> None:
    """What one of them raises ends the program."""
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def beside(turns: str) -> None:
    """Pages of a file belong to one of three writers each, so the newest of each block is known."""
    notes = Notes.read()
    lock = threading.Lock()
    file = 0
    blocks = len(notes.files[file])
    fd = os.open(path(file), os.O_RDWR)

    def told(number: int) -> bytes:
        with lock:
            return notes.next(file, number)

    def drawn(chance: random.Random, writer: int) -> int:
        page = chance.randrange(blocks // BLOCKS_A_PAGE // 3) * 3 + writer
        return page * BLOCKS_A_PAGE + chance.randrange(BLOCKS_A_PAGE)

    def direct() -> None:
        chance = random.Random(1)
        own, page = os.open(path(file), os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, BLOCK)
        for _ in range(int(turns)):
            number = drawn(chance, 0)
            page[:] = told(number)
            os.pwrite(own, page, number * BLOCK)
            os.preadv(own, [page], number * BLOCK)
            assert page[:] == contents(file, number, notes.files[file][number]), f"read block {number}: {page[:32]!r}"

    def buffered() -> None:
        chance = random.Random(2)
        for _ in range(int(turns)):
            number = drawn(chance, 1)
            os.pwrite(fd, told(number), number * BLOCK)
            begin_writing(fd)
            time.sleep(0.01)

    def mapped() -> None:
        chance = random.Random(3)
        with mmap.mmap(fd, 0) as pages:
            for _ in range(int(turns)):
                number = drawn(chance, 2)
                pages[number * BLOCK : (number + 1) * BLOCK] = told(number)
                pages.flush(number // BLOCKS_A_PAGE * mmap.PAGESIZE, mmap.PAGESIZE)

    together(direct, buffered, mapped)
    notes.save()


def cuts(turns: str) -> None:
    """File 0 is cut, and grows again, and gets holes; file 1 is overwritten; both are written back all the while."""
    notes = Notes.read()
    lock = threading.Lock()
    done = threading.Event()
    fds = [os.open(path(file), os.O_RDWR) for file in (0, 1)]

    def cutting() -> None:
        chance = random.Random(4)
        versions = notes.files[0]
        for _ in range(int(turns)):
            with lock:
                for _ in range(4):
                    put(notes, fds[0], 0, chance.randrange(len(versions)), 1)
            begin_writing(fds[0])
            first = chance.randrange(len(versions) - 8)
            if chance.randrange(2):
                os.ftruncate(fds[0], first * BLOCK)
            else:
                checked(
                    libc.fallocate(fds[0], 3, ctypes.c_int64(first * BLOCK), ctypes.c_int64(8 * BLOCK)), "fallocate"
                )
                os.ftruncate(fds[0], (first + 8) * BLOCK)
            with lock:
                put(notes, fds[0], 0, first, len(versions) - first)
        done.set()

    def overwriting() -> None:
        chance = random.Random(5)
        while not done.is_set():
            with lock:
                put(notes, fds[1], 1, chance.randrange(len(notes.files[1])), 1)
            begin_writing(fds[1])
            time.sleep(0.005)

    def writing_back() -> None:
        while not done.is_set():
            os.fdatasync(fds[0])
            os.sync()
            time.sleep(0.003)

    together(cutting, overwriting, writing_back)
    notes.save()


def write_directly(data: bytes) -> None:
    own, page = os.open(path(0), os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, BLOCK)
    page[:] = data
    os.pwrite(own, page, 0)


def late() -> None:
    """The direct write began first and ends last, so it is what counts."""
    notes = Notes.read()
    fd = os.open(path(0), os.O_RDWR)
    with mmap.mmap(fd, 0) as pages:
        # In memory before, as a page is read under a lock that direct I/O takes, too.
        assert pages[:BLOCK] == contents(0, 0, notes.files[0][0])
        mapped, direct = notes.next(0, 0), notes.next(0, 0)

        def meanwhile() -> None:
            time.sleep(0.3)
            pages[:BLOCK] = mapped
            pages.flush(0, BLOCK)

        together(partial(write_directly, direct), meanwhile)
    os.sync()
    notes.save()


def again() -> None:
    """The direct write is what counts, whenever the block is written again. More than is throttled is refused."""
    notes = Notes.read()
    fd = os.open(path(0), os.O_RDWR)
    try:
        fcntl.ioctl(fd, _REWRITE, struct.pack("<QQ", 0, 65 * MIB))
    except OSError as error:
        assert error.errno == errno.EINVAL, error
    else:
        raise AssertionError("65 MiB at once")
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def meanwhile() -> None:
        time.sleep(0.3)
        fcntl.ioctl(fd, _REWRITE, struct.pack("<QQ", 0, BLOCK))

    together(partial(write_directly, notes.next(0, 0)), meanwhile)
    os.sync()
    notes.save()


# --- Limits -----------------------------------------------------------------------

_SETQUOTA, _GETQUOTA = 0x80000800, 0x80000700
_BLOCK_LIMITS = 1


def _space(user: int) -> int:
    got = ctypes.create_string_buffer(72)
    checked(libc.quotactl(ctypes.c_int(_GETQUOTA - (1 << 32)), b"/dev/shd0", user, got), "quotactl")
    return int(struct.unpack_from("<QQQ", got)[2])


def quota() -> None:
    """Overwriting takes no more room than there was, whatever the limit."""
    user = 1000
    notes = Notes.read()
    for file in notes.files:
        os.chown(path(file), user, user)
    os.chmod(ROOT, 0o777)
    os.sync()
    used = _space(user)
    wanted = struct.pack("<8QI4x", used // 1024, used // 1024, 0, 0, 0, 0, 0, 0, _BLOCK_LIMITS)
    checked(libc.quotactl(ctypes.c_int(_SETQUOTA - (1 << 32)), b"/dev/shd0", user, wanted), "quotactl")
    os.seteuid(user)
    chance = random.Random(6)
    for _ in range(200):
        file = chance.choice([*notes.files])
        fd = os.open(path(file), os.O_RDWR)
        put(notes, fd, file, chance.randrange(len(notes.files[file])), 1)
        os.fsync(fd)
        os.close(fd)
    # The limit holds all the same.
    fd = os.open(f"{ROOT}/more", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, bytes(64 * BLOCK), 0)
        sys.exit("the quota has no limit")
    except OSError as error:
        assert error.errno == errno.EDQUOT, error
    os.close(fd)
    os.seteuid(0)
    os.unlink(f"{ROOT}/more")
    os.sync()
    notes.save()
    print(f"used {used} before and {_space(user)} after")


def swap() -> None:
    """Somebody writes to a mapping of the file until swapon is over, which makes that an error."""
    name, size = "/mnt/swap", 1024 * BLOCK
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(fd, bytes(size), 0)
    header = bytearray(BLOCK)
    struct.pack_into("<3I", header, 1024, 1, size // BLOCK - 1, 0)
    header[-10:] = b"SWAPSPACE2"
    os.pwrite(fd, header, 0)
    os.fsync(fd)
    writer = os.fork()
    if writer == 0:
        with mmap.mmap(fd, 0) as pages:
            while True:
                for number in range(1, size // BLOCK, 7):
                    pages[number * BLOCK] = 1
                # A program that only computes takes no time in the machine, and nobody else gets any.
                time.sleep(0.001)
    time.sleep(0.1)
    os.fdatasync(fd)
    before = extents(fd)
    checked(libc.swapon(name.encode(), 0), "swapon")
    _, status = os.waitpid(writer, 0)
    os.sync()
    after = extents(fd)
    checked(libc.swapoff(name.encode()), "swapoff")
    assert os.WTERMSIG(status) == signal.SIGBUS, status
    assert len(before) > 1, f"nothing moved before: {before}"
    # As the kernel says it of the places that it knows; without the header, which is block 0.
    span = max(place + count for _, place, count in after) - min(place + (not first) for first, place, _ in after)
    print(f"spans {span * BLOCK // 1024} KiB")


# --- States of the crash explorer ---------------------------------------------

# MS_RDONLY and MS_NOATIME
_LOOK = 1 | 1024


def versions_of(directory: str) -> dict[int, list[int | str | None]]:
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return {file: versions_in(f"{directory}/{file}", file) for file in sorted(map(int, names))}


def versions_in(name: str, file: int) -> list[int | str | None]:
    """The version of each block; None: zeros; or what else a block begins with."""
    found: list[int | str | None] = []
    # `states` mounts what it looks at.
    size = size_of_block(file, os.statvfs(name).f_frsize)
    with open(name, "rb") as opened:
        while block := opened.read(size):
            version = struct.unpack_from("<24xQ", block.ljust(32, b"\0"))[0]
            if block == contents(file, len(found), version, size):
                found.append(version)
            else:
                found.append(block[:32].hex() if block.strip(b"\0") else None)
    return found


def looked(state: int, options: str) -> dict[str, object]:
    with open("/sys/block/shd0/shingle/state", "w") as file:
        file.write(str(state))
    # mount(2) takes noatime as a flag.
    own = ",".join(word for word in options.split(",") if word != "noatime")
    if libc.mount(b"/dev/shd0", b"/mnt", b"ext4", _LOOK, own.encode()) < 0:
        return {"error": f"not mounted: {os.strerror(ctypes.get_errno())}"}
    try:
        return {"files": versions_of(ROOT)}
    except OSError as error:
        return {"error": str(error)}
    finally:
        checked(libc.umount2(b"/mnt", 0), "umount")


def versions(directory: str) -> None:
    print(json.dumps(versions_of(directory)))


def states(checks: str, answers: str, options: str) -> None:
    with open(checks) as file, open(answers, "w") as out:
        for wanted in map(json.loads, file):
            with open("/dev/kmsg", "w") as log:
                log.write(f"<4>crash: {wanted['name']}")
            print(json.dumps({"name": wanted["name"], **looked(wanted["state"], options)}), file=out, flush=True)


VERBS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        make, overwrite, small, log, scattered, popular, grow, check, places, beside, cuts, late, again, quota, swap,
        versions, states,
    )
}  # fmt: skip

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])

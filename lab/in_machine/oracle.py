#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH207, PTH102, PTH103, PTH110, PTH116, PTH119, PTH123, PTH208
"""Runs in the machine: an oracle for data and for names. What is read back is held against a model that needs no disk.

oracle.py reserve FILE MIB            a file of blocks that nobody uses, which leaves so much free space
oracle.py fill DIR SEED [MIB]         fills all free space, or so much of it, with files of a pattern, each synced
oracle.py compare DIR SEED            compares what fill wrote, byte for byte
oracle.py churn DIR SEED TURNS        long names, directories, attributes and synced files come and go
oracle.py check DIR SEED TURNS        compares what churn left with what it must have left
oracle.py drain MOUNTPOINT            sends everything in the log home (EXT4_IOC_CHECKPOINT)
oracle.py unlock MOUNTPOINT [DIR]     adds the key of encrypted directories; makes DIR one of them
oracle.py states FILE ANSWERS OPTIONS each state of a crash explorer's disk is mounted, filled, drained and compared

The pattern of a block depends on the seed, the file and the offset, so a block of another file, of another place or of
another time is told from the right one. A difference ends the program with a sentence that names seed, file and place.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import os
import random
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_MIB = 1 << 20
# The smallest block of ext4: each such piece of a pattern is stamped.
_PIECE = 1024
_FILE_BYTES = 4 * _MIB
_CHECKPOINT = 0x4004662B
_ADD_KEY, _SET_POLICY = 0xC0506617, 0x800C6613
# malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# For extent trees that grow when the disk is full.
_HELD_BACK = 64
# Of so many wrong pieces one line each.
_SHOWN = 5


class Pattern:
    """The contents of all files of a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._base = random.Random(f"pattern {seed}").randbytes(_MIB)

    def chunk(self, file: int, number: int) -> bytes:
        """The MiB of that number of a file."""
        chunk = bytearray(self._base)
        for place in range(0, _MIB, _PIECE):
            struct.pack_into("<QQQ", chunk, place, self._seed, file, number * _MIB + place)
        return bytes(chunk)

    def write(self, fd: int, file: int, size: int, start: int = 0) -> int:
        """Writes a file from `start` to `size`; returns where it ended, which is earlier on a full disk."""
        place = start
        while place < size:
            number, within = divmod(place, _MIB)
            chunk = self.chunk(file, number)[within : within + size - place]
            try:
                place += os.pwrite(fd, chunk, place)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return place
        return place

    def wrong(self, path: str, file: int, size: int) -> list[str]:
        """What differs in a file: a line for each of the first pieces, and their number."""
        found: list[str] = []
        count = 0
        fd = os.open(path, os.O_RDONLY)
        try:
            there = os.fstat(fd).st_size
            if there != size:
                return [f"{path} has {there} bytes instead of {size}"]
            for number in range(-(-size // _MIB)):
                left = min(_MIB, size - number * _MIB)
                got, right = os.pread(fd, left, number * _MIB), self.chunk(file, number)[:left]
                if got == right:
                    continue
                for at in range(0, left, _PIECE):
                    if got[at : at + _PIECE] != right[at : at + _PIECE]:
                        count += 1
                        if len(found) < _SHOWN:
                            found.append(f"{path}, offset {number * _MIB + at}: {got[at : at + 24]!r}")
        finally:
            os.close(fd)
        return [*found, f"{path}: {count} pieces of {_PIECE} bytes differ"] if count else []


def _put(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def fail(sentences: list[str], seed: int) -> None:
    """The last line is what the host shows first."""
    if sentences:
        shown = sentences[: 4 * _SHOWN]
        sys.exit("\n".join([*shown, f"{len(sentences)} differences, the last: {sentences[-1]}; SEED={seed}"]))


def sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


# --- Data ---------------------------------------------------------------------


def reserve(path: str, leave_mib: str) -> None:
    os.sync()
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    room = os.fstatvfs(fd)
    size = room.f_bfree * room.f_frsize - int(leave_mib) * _MIB
    if size > 0:
        os.posix_fallocate(fd, 0, size)
    os.fsync(fd)
    os.close(fd)
    print(f"reserved {max(size, 0)} bytes")


def _told(directory: str) -> str:
    """Where the sizes are kept: not on the disk in question."""
    return f"{os.environ.get('ORACLE_NOTES', '/run')}/fill{directory.replace('/', '-')}"


def _hold_back(directory: str, clusters: int) -> None:
    """What ext4 keeps for itself is free space that a stale block may be written to."""
    device = os.stat(directory).st_dev
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    for kind in ("ext4", "ext4lazy"):
        path = f"/sys/fs/{kind}/{name}/reserved_clusters"
        if os.path.exists(path):
            with open(path, "w") as file:
                file.write(str(clusters))


def fill(directory: str, seed_text: str, most_mib: str | None = None) -> None:
    """Freed blocks are free once their transaction is committed, hence the sync."""
    os.sync()
    os.makedirs(directory, exist_ok=True)
    pattern, sizes = Pattern(int(seed_text)), list[int]()
    left = int(most_mib) * _MIB if most_mib else 1 << 62
    if most_mib is None:
        _hold_back(directory, _HELD_BACK)
    for most in (_FILE_BYTES, _FILE_BYTES // 64):
        full = False
        while left > 0 and not full:
            number, wanted = len(sizes), min(most, left)
            end = _filled(pattern, f"{directory}/{number}", number, wanted)
            full = end is None or end < wanted
            sizes += [] if end is None else [end]
            left -= end or 0
        # What a transaction that is not committed has freed.
        os.sync()
    sync_file(directory)
    with open(_told(directory), "w") as file:
        json.dump(sizes, file)
    room = os.statvfs(directory)
    print(f"filled {sum(sizes)} bytes in {len(sizes)} files; {room.f_bfree} blocks are free")


def _filled(pattern: Pattern, path: str, number: int, size: int) -> int | None:
    """The size that a file came to; None: there is no room for the file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return None
    end = pattern.write(fd, number, size)
    os.fsync(fd)
    os.close(fd)
    return end


def compare(directory: str, seed_text: str) -> None:
    pattern = Pattern(int(seed_text))
    with open(_told(directory)) as file:
        sizes = json.load(file)
    there = sorted(os.listdir(directory))
    expected = sorted(str(number) for number in range(len(sizes)))
    wrong = [] if there == expected else [f"{directory} holds other names: {sorted({*there} ^ {*expected})[:9]}"]
    for number, size in enumerate(sizes):
        wrong += pattern.wrong(f"{directory}/{number}", number, size)
    fail(wrong, int(seed_text))
    print(f"compared {sum(sizes)} bytes in {len(sizes)} files")


def drain(mount_point: str) -> None:
    fd = os.open(mount_point, os.O_RDONLY)
    fcntl.ioctl(fd, _CHECKPOINT, struct.pack("I", 0))
    os.close(fd)


# --- Names --------------------------------------------------------------------


@dataclass
class Inode:
    kind: str
    owner: int = 0
    file: int = 0
    size: int = 0
    links: int = 1
    attributes: dict[str, bytes] = field(default_factory=dict)


class World:
    """A model, and with `real` the same on the disk."""

    def __init__(self, root: str, seed: int, *, real: bool) -> None:
        self.root, self.seed, self.real = root, seed, real
        self.inodes: dict[str, Inode] = {}
        self.pattern = Pattern(seed)
        self.files = 0
        self.operations = 0

    def _do(self, call: Callable[..., object], *arguments: object) -> None:
        self.operations += 1
        if self.real:
            call(*arguments)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def mkdir(self, name: str) -> None:
        self.inodes[name] = Inode("d")
        self._do(os.mkdir, self.path(name))

    def rmdir(self, name: str) -> None:
        del self.inodes[name]
        self._do(os.rmdir, self.path(name))

    def link(self, name: str, other: str) -> None:
        self.inodes[other] = self.inodes[name]
        self.inodes[name].links += 1
        self._do(os.link, self.path(name), self.path(other))

    def unlink(self, name: str) -> None:
        self.inodes.pop(name).links -= 1
        self._do(os.unlink, self.path(name))

    def own(self, name: str, owner: int) -> None:
        self.inodes[name].owner = owner
        self._do(os.chown, self.path(name), owner, owner)

    def attribute(self, name: str, key: str, value: bytes) -> None:
        self.inodes[name].attributes[key] = value
        self._do(os.setxattr, self.path(name), key, value)

    def sync(self, name: str) -> None:
        self._do(sync_file, self.path(name))

    def write(self, name: str, size: int) -> None:
        self.files += 1
        self.inodes[name] = Inode("f", file=self.files, size=size)
        self._do(self._write, self.path(name), self.files, size)

    def _write(self, path: str, file: int, size: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if file % 4 == 0:
            # Where there are inline data, they grow out of the inode in a call that writes nothing.
            os.pwrite(fd, b"inline"[:size], 0)
            os.fsync(fd)
            os.posix_fallocate(fd, 0, size)
        end = self.pattern.write(fd, file, size)
        if end < size:
            sys.exit(f"{path}: the disk is full after {end} of {size} bytes")
        os.fsync(fd)
        os.close(fd)

    def move(self, how: str) -> None:
        """All that is live in the log, where the kernel has JBD2_LAZY_DEBUG."""
        for path in glob.glob(f"/sys/fs/ext4*/*/journal_lazy/{how}") if self.real else ():
            _put(path, "1000000")

    def compare(self, name: str) -> None:
        self._do(self._compare, name)

    def _compare(self, name: str) -> None:
        inode = self.inodes[name]
        fail(self.pattern.wrong(self.path(name), inode.file, inode.size), self.seed)


_MOVES = ("demote", "relog")


def _long(random_: random.Random, number: int) -> str:
    """ext4's longest names have 255 bytes."""
    return f"{number:05}-{random_.randrange(1 << 32):08x}-{'n' * random_.randrange(180, 236)}"


def turns(world: World, seed: int, count: int) -> Iterator[int]:
    """The same names and sizes for the same seed, whether they are only thought of or real."""
    for turn in range(count):
        choose = random.Random(f"{seed} {turn}")
        wide, dirs, data = f"wide{turn}", f"dirs{turn}", f"data{turn}"
        names = [f"{wide}/{_long(choose, number)}" for number in range(choose.randrange(400, 1500))]
        world.mkdir(wide)
        world.mkdir(data)
        world.write(f"{wide}/origin", 100)
        for number, name in enumerate(names):
            world.link(f"{wide}/origin", name)
            if number % 60 == 59:
                world.sync(wide)
        _directories(world, choose, dirs)
        choose.shuffle(names)
        half = len(names) // 2
        for name in names[:half]:
            world.unlink(name)
        world.sync(wide)
        if choose.randrange(4):
            for name in names[half:]:
                world.unlink(name)
            world.unlink(f"{wide}/origin")
            world.rmdir(wide)
        # Freed in the running transaction, and now and then told to go home, or into the log again.
        moved = choose.randrange(6)
        if moved < len(_MOVES):
            world.move(_MOVES[moved])
        # What was freed is free when its transaction is committed; then it becomes file data at once.
        world.sync(data)
        for number in range(8):
            world.write(f"{data}/{number}", choose.randrange(1, 160_000))
        if turn > 1:
            _forget(world, turn - 2)
        yield turn


def _directories(world: World, choose: random.Random, base: str) -> None:
    """A block of its own for each, and now and then attributes and a small sync."""
    world.mkdir(base)
    for number in range(choose.randrange(500, 1300)):
        name = f"{base}/{number}"
        world.mkdir(name)
        if number % 7 == 0:
            world.own(name, 1000 + choose.randrange(6))
        if number % 9 == 0:
            world.attribute(name, "user.a", choose.randbytes(choose.randrange(1, 700)))
        if number % 11 == 0:
            world.mkdir(f"{name}/{_long(choose, number)}")
        if number % 40 == 39:
            world.sync(name)


def _forget(world: World, turn: int) -> None:
    """All that a turn left: directories first become empty."""
    tops = (f"wide{turn}", f"dirs{turn}", f"data{turn}")
    for name in sorted((name for name in world.inodes if name.split("/")[0] in tops), reverse=True):
        inode = world.inodes[name]
        if inode.kind == "d":
            world.rmdir(name)
            continue
        if name.startswith("data"):
            world.compare(name)
        world.unlink(name)


def churn(root: str, seed_text: str, count: str) -> None:
    os.makedirs(root, exist_ok=True)
    world = World(root, int(seed_text), real=True)
    for _ in turns(world, int(seed_text), int(count)):
        pass
    print(f"operations {world.operations}")


def check(root: str, seed_text: str, count: str) -> None:
    seed = int(seed_text)
    world = World(root, seed, real=False)
    for _ in turns(world, seed, int(count)):
        pass
    wrong, found = [], set()
    for folder, folders, names in os.walk(root, onerror=_raise):
        for path in (f"{folder}/{name}" for name in (*folders, *names)):
            name = path[len(root) + 1 :]
            found.add(name)
            if name in world.inodes:
                wrong += _differs(world, path, world.inodes[name])
    strange = sorted(found ^ set(world.inodes))
    wrong += [f"{root}/{name} is {'there' if name in found else 'gone'}" for name in strange]
    fail(wrong, seed)
    print(f"checked {len(found)} names")


def _raise(error: OSError) -> None:
    raise error


def _differs(world: World, path: str, inode: Inode) -> list[str]:
    there = os.lstat(path)
    if (there.st_uid, there.st_gid) != (inode.owner, inode.owner):
        return [f"{path} belongs to {there.st_uid}, {there.st_gid} instead of {inode.owner}"]
    for key, value in inode.attributes.items():
        if os.getxattr(path, key) != value:
            return [f"{path} has another {key}"]
    if inode.kind == "d":
        return []
    if there.st_nlink != inode.links:
        return [f"{path} has {there.st_nlink} links instead of {inode.links}"]
    return world.pattern.wrong(path, inode.file, inode.size) if inode.links == 1 else []


# --- Encryption ---------------------------------------------------------------


def unlock(mount_point: str, secret: str | None = None) -> None:
    key = hashlib.sha512(b"key").digest()
    fd = os.open(mount_point, os.O_RDONLY)
    argument = struct.pack("II32s", 2, 0, b"") + struct.pack("II32x", len(key), 0) + key
    identifier = fcntl.ioctl(fd, _ADD_KEY, argument)[8:24]
    os.close(fd)
    if secret is not None:
        os.mkdir(secret)
        fd = os.open(secret, os.O_RDONLY)
        # AES-256 in XTS and CTS, names padded to 32 bytes.
        fcntl.ioctl(fd, _SET_POLICY, struct.pack("4B4x16s", 2, 1, 4, 3, identifier))
        os.close(fd)


# --- States of the crash explorer ---------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
# mount(2) takes it as a flag.
_NOATIME = 1024


def _checked(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _tree(root: str) -> dict[str, str]:
    """What is there, but for what fill wrote; contents are hashed."""
    found = {}
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if f"{folder}/{name}" != f"{root}/filled")
        for path in (f"{folder}/{name}" for name in (*folders, *names)):
            there = os.lstat(path)
            what = f"{there.st_mode:o} {there.st_uid} {there.st_gid}"
            if stat.S_ISREG(there.st_mode):
                fd = os.open(path, os.O_RDONLY)
                what += f" {there.st_size} {there.st_nlink} {hashlib.sha1(os.read(fd, there.st_size)).hexdigest()}"
                os.close(fd)
            found[path] = what
    return found


def _state(number: int, options: str) -> str:
    """What is wrong with a state; nothing if it cannot be mounted, which is the explorer's own business."""
    _put("/sys/block/shd0/shingle/state", str(number))
    words = options.split(",")
    flags = _NOATIME if "noatime" in words else 0
    own = ",".join(word for word in words if word != "noatime")
    if _libc.mount(b"/dev/shd0", b"/mnt", b"ext4", flags, own.encode()) < 0:
        return f"not mounted: {os.strerror(ctypes.get_errno())}"
    try:
        before = _tree("/mnt")
        fill("/mnt/filled", str(number))
        drain("/mnt")
        _put("/proc/sys/vm/drop_caches", "3")
        compare("/mnt/filled", str(number))
        after = _tree("/mnt")
        if after != before:
            other = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
            return f"{other[0]} was {before.get(other[0], 'gone')} and is {after.get(other[0], 'gone')}"
    except (OSError, SystemExit) as error:
        return str(error).splitlines()[-1]
    finally:
        _checked(_libc.umount2(b"/mnt", 0), "umount")
    return ""


def states(checks: str, answers: str, options: str) -> None:
    with open(checks) as file, open(answers, "w") as out:
        for line in file:
            wanted = json.loads(line)
            # In one write, or it is two messages.
            _put("/dev/kmsg", f"<4>crash: {wanted['name']}")
            print(json.dumps({"name": wanted["name"], "wrong": _state(wanted["state"], options)}), file=out, flush=True)


VERBS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (reserve, fill, compare, churn, check, drain, unlock, states)
}


def _keep_memory() -> None:
    """By default free() gives a MiB back, and the next one costs 256 page faults, which are dear in the machine."""
    for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        _libc.mallopt(parameter, 32 * _MIB)


def main(verb: str, *arguments: str) -> None:
    _keep_memory()
    VERBS[verb](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])

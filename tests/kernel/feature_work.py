# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH102, PTH103, PTH104, PTH108, PTH112, PTH115, PTH123, PTH208, PTH211
"""Runs in the machine: work that uses one feature of ext4 each, and a listing of everything that it left.

feature_work.py WORK ROUND     does it once more, below /mnt/WORK
feature_work.py list FILE      paths, types, modes, owners, times, flags, projects, attributes, contents, quota
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import random
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator

ROOT = "/mnt"
libc = ctypes.CDLL(None, use_errno=True)


def data(name: object, size: int) -> bytes:
    """Bytes that belong to a name."""
    return random.Random(str(name)).randbytes(size)


def write(path: str, content: bytes, *, sync: bool = False) -> None:
    with open(path, "wb") as file:
        file.write(content)
        if sync:
            os.fsync(file.fileno())


@contextlib.contextmanager
def opened(path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def ioctl(path: str, request: int, argument: bytes | int = 0, flags: int = os.O_RDONLY) -> bytes:
    with opened(path, flags) as fd:
        got = fcntl.ioctl(fd, request, argument)
        return got if isinstance(got, bytes) else b""


def checked(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


# --- Work ---------------------------------------------------------------------


def files(base: str, turn: int) -> None:
    """Many small files, of which those of the turn before go, renames, links, holes, a truncation."""
    here = f"{base}/{turn}"
    os.mkdir(here)
    for number in range(90):
        write(f"{here}/{number}", data((turn, number), number * 41))
    for number in range(0, 90, 5):
        os.rename(f"{here}/{number}", f"{here}/renamed-{number}")
    for number in range(1, 90, 7):
        os.unlink(f"{here}/{number}") if number % 5 else None
    os.link(f"{here}/2", f"{here}/link")
    os.symlink("2", f"{here}/short")
    os.symlink("x" * 200, f"{here}/long")
    with open(f"{here}/holes", "wb") as file:
        for number in range(0, 2000, 7):
            file.seek(number * 9000)
            file.write(data((turn, "hole", number), 3000))
        file.truncate(1500 * 9000)
    if turn > 1:
        for name in os.listdir(f"{base}/{turn - 1}"):
            if not name.startswith("re"):
                os.unlink(f"{base}/{turn - 1}/{name}")


def htree(base: str, turn: int) -> None:
    """A directory that needs an index, of two levels in blocks of 1 KiB, and one that shrinks again."""
    for wide in ("stays", "shrinks"):
        os.makedirs(f"{base}/{wide}", exist_ok=True)
        for number in range(700):
            name = f"{base}/{wide}/{turn}-{number:04}-{'n' * 120}"
            os.link(f"{base}/{wide}/one", name) if number else write(f"{base}/{wide}/one", b"1")
    for name in os.listdir(f"{base}/shrinks"):
        if name != "one":
            os.unlink(f"{base}/shrinks/{name}")


def tiny(base: str, turn: int) -> None:
    """Files and directories that fit into an inode, that grow out of it, and back."""
    for number in range(60):
        write(f"{base}/{turn}-{number}", data((turn, number), number * 3))
        os.makedirs(f"{base}/d{number % 20}", exist_ok=True)
        os.symlink("t", f"{base}/d{number % 20}/{turn}-{number}")
    for number in range(0, 60, 3):
        with open(f"{base}/{turn}-{number}", "ab") as file:
            file.write(data((turn, "more", number), 5000))
    for number in range(0, 60, 6):
        os.truncate(f"{base}/{turn}-{number}", 20)
    if turn > 1:
        for number in range(0, 60, 4):
            os.unlink(f"{base}/{turn - 1}-{number}")


def xattr(base: str, turn: int, large: int = 3000) -> None:
    """Attributes in the inode, in a block that is shared, in one of their own."""
    large = large if large > 4096 else min(large, os.statvfs(ROOT).f_bsize - 700)
    for number in range(60):
        path = f"{base}/{turn}-{number}"
        write(path, b"a")
        os.setxattr(path, "user.small", data((turn, number), 20))
        os.setxattr(path, "user.shared", data("shared", 400))
        os.setxattr(path, "user.large", data((turn, number, "large"), large // (1 + number % 3)))
    for number in range(0, 60, 4):
        os.removexattr(f"{base}/{turn}-{number}", "user.large")
    for number in range(1, 60, 4):
        os.setxattr(f"{base}/{turn}-{number}", "user.large", data((turn, "again", number), large // 2))
    if turn > 1:
        for number in range(0, 60, 2):
            os.unlink(f"{base}/{turn - 1}-{number}")


def eainode(base: str, turn: int) -> None:
    """Values too large for a block, each in an inode of its own; freed, they become file data at once."""
    xattr(base, turn, 40_000)
    for number in range(40):
        write(f"{base}/data-{turn}-{number}", data((turn, "reuse", number), 12_000), sync=True)


def quota(base: str, turn: int) -> None:
    """Files of several users, groups and projects, some of which change hands."""
    for number in range(60):
        path = f"{base}/{turn}-{number}"
        write(path, data((turn, number), 3000 + 100 * number))
        os.chown(path, 1000 + number % 5, 2000 + number % 3)
        if "project" in features():
            set_project(path, 3000 + number % 4)
    for number in range(0, 60, 3):
        os.chown(f"{base}/{turn}-{number}", 1000, 2002)
    if turn > 1:
        for number in range(0, 60, 2):
            os.unlink(f"{base}/{turn - 1}-{number}")


# FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR: struct fsxattr
GET_XATTR, SET_XATTR = 0x801C581F, 0x401C5820


def set_project(path: str, project: int) -> None:
    found = bytearray(ioctl(path, GET_XATTR, bytes(28)))
    struct.pack_into("I", found, 12, project)
    ioctl(path, SET_XATTR, bytes(found))


# FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
CASEFOLD, EXTENTS, VERITY, ENCRYPT = 0x40000000, 0x80000, 0x100000, 0x800


def flags_of(path: str) -> int:
    return struct.unpack("Q", ioctl(path, GET_FLAGS, bytes(8)))[0] & 0xFFFFFFFF


def set_flags(path: str, flags: int) -> None:
    ioctl(path, SET_FLAGS, struct.pack("Q", flags))


def casefold(base: str, turn: int) -> None:
    """Names that differ in case are one; the directory is large enough for hashes."""
    folded = f"{base}/folded"
    if not os.path.isdir(folded):
        os.mkdir(folded)
        set_flags(folded, flags_of(folded) | CASEFOLD)
    for number in range(200):
        write(f"{folded}/Straße-{turn}-{number:03}-{'N' * 60}", data((turn, number), 10))
    for number in range(0, 200, 3):
        os.unlink(f"{folded}/STRASSE-{turn}-{number:03}-{'n' * 60}")
    os.mkdir(f"{folded}/Sub{turn}")
    write(f"{folded}/sUB{turn}/in", b"in")


# FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_SET_ENCRYPTION_POLICY
ADD_KEY, SET_POLICY = 0xC0506617, 0x800C6613
KEY = hashlib.sha512(b"key").digest()


def add_key() -> bytes:
    """The key's identifier."""
    argument = struct.pack("II32s", 2, 0, b"") + struct.pack("II32x", len(KEY), 0) + KEY
    return ioctl(ROOT, ADD_KEY, argument)[8:24]


def encrypt(base: str, turn: int) -> None:
    """A directory with an fscrypt policy of version 2: names, links and contents are encrypted."""
    identifier = add_key()
    secret = f"{base}/secret"
    if not os.path.isdir(secret):
        os.mkdir(secret)
        # AES-256 in XTS and CTS, names padded to 32 bytes.
        ioctl(secret, SET_POLICY, struct.pack("4B4x16s", 2, 1, 4, 3, identifier))
    for number in range(120):
        write(f"{secret}/{turn}-{number}-{'s' * 60}", data((turn, number), number * 60))
    for number in range(0, 120, 4):
        os.rename(f"{secret}/{turn}-{number}-{'s' * 60}", f"{secret}/{turn}-moved-{number}")
    os.symlink("target", f"{secret}/short-{turn}")
    os.symlink("t" * 150, f"{secret}/long-{turn}")
    os.mkdir(f"{secret}/below-{turn}")
    write(f"{secret}/below-{turn}/file", data((turn, "below"), 50_000))
    if turn > 1:
        for number in range(1, 120, 2):
            os.unlink(f"{secret}/{turn - 1}-{number}-{'s' * 60}")


# FS_IOC_ENABLE_VERITY, FS_IOC_MEASURE_VERITY
ENABLE_VERITY, MEASURE_VERITY = 0x40806685, 0xC0046686


def verity(base: str, turn: int) -> None:
    """Files with a Merkle tree behind their data."""
    for number in range(24):
        path = f"{base}/{turn}-{number}"
        write(path, data((turn, number), 1 + number * 40_000))
        ioctl(path, ENABLE_VERITY, struct.pack("IIIIQIIQ", 1, 1, page_or_block(), 0, 0, 0, 0, 0) + bytes(88))
    if turn > 1:
        for number in range(0, 24, 2):
            os.unlink(f"{base}/{turn - 1}-{number}")


def page_or_block() -> int:
    return min(4096, os.statvfs(ROOT).f_bsize)


def ranges(base: str, turn: int) -> None:
    """fallocate(2) in all its modes, and moving a file between extents and indirect blocks."""
    keep, punch, collapse, zero, insert = 0x1, 0x2, 0x8, 0x10, 0x20
    block = os.statvfs(ROOT).f_bsize
    unit = max(block, 65536)
    for number in range(8):
        path = f"{base}/{turn}-{number}"
        write(path, data((turn, number), 40 * unit), sync=True)
        with opened(path, os.O_RDWR) as fd:
            for start in range(1, 30, 3):
                fallocate(fd, keep | punch, start * unit + block, block)
            fallocate(fd, zero, 5 * unit, unit)
            fallocate(fd, 0, 60 * unit, 4 * unit)
            if flags_of(path) & EXTENTS:
                fallocate(fd, collapse, 3 * unit, 2 * unit)
                fallocate(fd, insert, 7 * unit, unit)
    if turn > 1:
        for number in range(0, 8, 2):
            os.unlink(f"{base}/{turn - 1}-{number}")


def fallocate(fd: int, mode: int, start: int, length: int) -> None:
    result = libc.fallocate(fd, mode, ctypes.c_long(start), ctypes.c_long(length))
    if result < 0 and ctypes.get_errno() == errno.EOPNOTSUPP:
        return  # not of files with indirect blocks
    checked(result, "fallocate")


# EXT4_IOC_MOVE_EXT
MOVE_EXTENT = 0xC028660F


def defrag(base: str, turn: int) -> None:
    """The blocks of files change places with those of others, while the names stay."""
    block = os.statvfs(ROOT).f_bsize
    for number in range(10):
        path, donor = f"{base}/{turn}-{number}", f"{base}/donor"
        write(path, data((turn, number), 20 * block), sync=True)
        with opened(donor, os.O_RDWR | os.O_CREAT) as other, opened(path, os.O_RDWR) as fd:
            fallocate(other, 0, 0, 20 * block)
            os.fsync(other)
            fcntl.ioctl(fd, MOVE_EXTENT, struct.pack("IIQQQQ", 0, other, 0, 0, 10 + number, 0))
        os.unlink(donor)


def orphans(base: str, turn: int) -> None:
    """Files that are unlinked while this process holds them, for ever."""
    held = []
    for number in range(50):
        path = f"{base}/{turn}-{number}"
        write(path, data((turn, number), 9000), sync=True)
        held.append(os.open(path, os.O_RDWR))
        os.unlink(path)
    write(f"{base}/{len(held)}", b"", sync=True)
    while True:
        time.sleep(10)


WORK: dict[str, Callable[[str, int], None]] = {
    each.__name__: each
    for each in (files, htree, tiny, xattr, eainode, quota, casefold, encrypt, verity, ranges, defrag, orphans)
}


# --- The listing --------------------------------------------------------------


def features() -> set[str]:
    """What /run/features names: written by the test."""
    with contextlib.suppress(FileNotFoundError), open("/run/features") as file:
        return set(file.read().split())
    return set()


def entry(path: str) -> dict[str, object]:
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    line: dict[str, object] = {
        "mode": found.st_mode, "owner": [found.st_uid, found.st_gid], "links": found.st_nlink,
        "size": found.st_size, "blocks": found.st_blocks, "mtime": found.st_mtime_ns, "ctime": found.st_ctime_ns,
    }  # fmt: skip
    if kind == stat.S_IFLNK:
        line["target"] = os.readlink(path)
        return line
    line["attributes"] = {
        name: hashlib.sha256(os.getxattr(path, name)).hexdigest() for name in sorted(os.listxattr(path))
    }
    flags = flags_of(path)
    line["flags"] = flags
    line["project"] = struct.unpack_from("I", ioctl(path, GET_XATTR, bytes(28)), 12)[0]
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            line["content"] = hashlib.sha256(file.read()).hexdigest()
        if flags & VERITY:
            line["digest"] = ioctl(path, MEASURE_VERITY, struct.pack("HH", 0, 32) + bytes(32)).hex()
    return line


def usage() -> dict[str, object]:
    """What quota counts: Q_GETQUOTA of every kind and id that the work uses."""
    counted: dict[str, object] = {}
    if "quota" not in features():
        return counted  # on a frozen file system even the question waits
    device = os.environ.get("DEVICE", "/dev/shd0").encode()
    for kind, first in ((0, 1000), (1, 2000), (2, 3000)):
        for number in (0, *range(first, first + 6)):
            got = ctypes.create_string_buffer(72)
            command = ctypes.c_int(0x800007 << 8 | kind)
            if libc.quotactl(command, device, number, got) == 0:
                limits = struct.unpack("8QI4x", got.raw)
                counted[f"{kind}:{number}"] = [limits[2], limits[5]]
    return counted


def listing() -> dict[str, object]:
    if "encrypt" in features():
        add_key()
    paths: dict[str, object] = {}
    for folder, names, others in os.walk(ROOT):
        if folder == ROOT:
            names[:] = [name for name in names if name != "lost+found"]
        names.sort()
        for name in sorted([*names, *others]):
            paths[f"{folder}/{name}"] = entry(f"{folder}/{name}")
    label = ioctl(ROOT, 0x81009431, bytes(256)).rstrip(b"\0").decode()
    blocks = os.statvfs(ROOT)
    whole = {"blocks": blocks.f_blocks, "inodes": blocks.f_files - blocks.f_ffree, "label": label}
    return {"paths": paths, "quota": usage(), "file system": whole}


def main() -> None:
    verb, argument = sys.argv[1:3]
    if verb == "list":
        with open(argument, "w") as file:
            json.dump(listing(), file, indent=1, sort_keys=True)
        return
    base = f"{ROOT}/{verb}"
    os.makedirs(base, exist_ok=True)
    WORK[verb](base, int(argument))


main()

#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gets free stretches back on an ext4 that is mounted with data_relocate, and joins files that were torn apart.

    ext4lazy tidy MOUNTPOINT [--dry-run] [--rate MIB] [--goal PERCENT] [--full PERCENT]

The disk is divided into regions as long as the stretches that the stream of data looks for. Regions are emptied, the
emptiest first, until so much of what is free (--goal) lies in stretches: the kernel is asked to write their blocks
again (EXT4_IOC_REWRITE), and data_relocate puts these at the head of the stream. Log-structured file systems clean like
this (Rosenblum and Ousterhout, SOSP'91, section 3.4). Then parts of files that take far longer to read
than in one piece are joined, until half the goal is left in stretches, and regions are emptied again. Nobody else is
disturbed: contents and times of files stay, and a crash or a kill at any instant leaves whole files.
(docs/design/data-in-order.md, Tidying)
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import fcntl
import heapq
import itertools
import os
import re
import stat
import struct
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
# FS_IOC_FIEMAP, FS_IOC_GETFSMAP, and EXT4_IOC_REWRITE, _IOW('f', 47, struct ext4_rewrite_range)
IOC_FIEMAP, IOC_GETFSMAP, IOC_REWRITE = 0xC020660B, 0xC0C0583B, 0x4010662F
FSMAP, FSMAP_HEAD, FSMAP_SPECIAL = 64, 192, 0x10
FREE, UNKNOWN = 1, 2
EXTENT_LAST, EXTENT_NOT_WRITTEN = 0x1, 0x2 | 0x4 | 0x8 | 0x200 | 0x800  # no place yet, encoded, inline, unwritten
# A seek takes as long as reading so much. What takes so many times as long to read as in one piece is joined.
SEEK_BYTES, TORN = MIB, 4
AT_ONCE = 4096  # records of a map, regions of a plan
JOINED_AT_MOST = 1 << 16
# A region is emptied so often at most in a run.
TURNS = 3
# Stretches are made beyond the goal by such a part of what is free.
BEYOND = 16
REWRITE_MAX = 64 * MIB  # EXT4_REWRITE_MAX
# What is moved at once while there is no stretch: longer runs stay where they are, rather than being torn.
SHORT_BYTES = 64 << 10
# Of one call the kernel reads ahead no more than its own limit.
AHEAD_BYTES = 128 << 10
# SYNC_FILE_RANGE_WRITE, and _WAIT_BEFORE, which waits for what is being written.
SYNC_WRITE, SYNC_WAIT = 2, 1
# The disk cannot be read, or what it says is wrong.
DAMAGE = {os.strerror(code) for code in (errno.EIO, errno.EUCLEAN, errno.EBADMSG)}
# By its name nothing else is opened than a file, and nobody notices.
QUIETLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME | os.O_NONBLOCK
MOUNTS = Path("/proc/self/mounts")
libc = ctypes.CDLL(None, use_errno=True)


TOO_OLD = (
    "the module ext4lazy that is loaded is older than this program: expected one that writes blocks again;"
    " unmount its volumes, then run rmmod ext4lazy."
)


class Failure(Exception):
    """The text is the sentence for the user."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file that lie in a row."""

    logical: int
    physical: int
    size: int


@dataclass
class File:
    """Or a part of one, or only its name."""

    path: str
    inode: int
    pieces: list[Piece]

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    @property
    def seeks(self) -> int:
        # What follows its predecessor on the disk is read with it.
        pairs = zip(self.pieces, self.pieces[1:], strict=False)
        return sum(before.physical + before.size != piece.physical for before, piece in pairs)

    @property
    def rows(self) -> list[Piece]:
        """Pieces that follow one another in the file, as one; where they lie does not matter."""
        found: list[Piece] = []
        for piece in self.pieces:
            last = found[-1] if found else None
            if last is not None and last.logical + last.size == piece.logical:
                found[-1] = Piece(last.logical, last.physical, last.size + piece.size)
            else:
                found.append(piece)
        return found

    @property
    def is_torn(self) -> bool:
        whole = SEEK_BYTES + self.size
        return self.seeks * SEEK_BYTES + whole > TORN * whole

    def parts(self, size: int) -> Iterator[File]:
        """Each of so many bytes or a little more; long pieces are no part of any."""
        part: list[Piece] = []
        for piece in self.pieces:
            if piece.size < size:
                part.append(piece)
            if part and piece.logical + piece.size - part[0].logical >= size:
                yield File(self.path, self.inode, part)
                part = []
        if part:
            yield File(self.path, self.inode, part)


@dataclass
class Region:
    """One that is to be emptied."""

    used: int
    # Of it, in files.
    found: int = 0
    files: list[File] = field(default_factory=list)
    # Number of the file, logical, physical and size: there may be as many as blocks.
    pieces: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, file: File, piece: Piece) -> None:
        if not self.files or self.files[-1] is not file:
            self.files.append(file)
        self.found += piece.size
        self.pieces.extend((len(self.files) - 1, piece.logical, piece.physical, piece.size))

    def by_file(self) -> Iterator[tuple[File, list[Piece]]]:
        """To be read in the order of the disk, but the pieces of a file in its own."""
        found: dict[int, list[Piece]] = {}
        for at in sorted(range(0, len(self.pieces), 4), key=lambda at: self.pieces[at + 2]):
            number, *piece = self.pieces[at : at + 4]
            found.setdefault(number, []).append(Piece(*piece))
        for number, pieces in found.items():
            yield self.files[number], sorted(pieces, key=lambda piece: piece.logical)


@dataclass(frozen=True)
class Mount:
    directory: Path
    stretch: int


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))


def mount_of(named: str) -> Mount:
    path = Path(named).resolve()
    # Names are bytes, and of what Python takes for the end of a line only this one is escaped.
    lines = [line.split(" ") for line in os.fsdecode(MOUNTS.read_bytes()).split("\n")]
    found = [each for each in lines if len(each) > 3 and re.sub(r"\\(\d{3})", _unescaped, each[1]) == str(path)]
    if not found:
        raise Failure(f"nothing is mounted on {path}: expected the mount point of an ext4.")
    options = found[-1][3].split(",")
    if found[-1][2] not in ("ext4", "ext4lazy") or "data_relocate" not in options or "rw" not in options:
        raise Failure(f"{path} is not mounted read-write with data_relocate: blocks that are written again would stay.")
    stretch = next((int(each.partition("=")[2]) for each in options if each.startswith("data_stretch_kb=")), 8192)
    return Mount(path, stretch << 10)


# --- Where everything is ------------------------------------------------------------


def disk_map(directory: Path) -> Iterator[tuple[int, int, int]]:
    """First byte, length and owner of everything on the disk: FREE, UNKNOWN (files, directories), or metadata."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        first = bytes(FSMAP)
        while True:
            last = struct.pack("<II4Q24x", 0xFFFFFFFF, 0xFFFFFFFF, *([(1 << 64) - 1] * 3), 0)
            asked = bytearray(struct.pack("<4I48x", 0, 0, AT_ONCE, 0) + first + last + bytes(FSMAP * AT_ONCE))
            fcntl.ioctl(fd, IOC_GETFSMAP, asked)
            count = struct.unpack_from("<I", asked, 12)[0]
            records = [struct.unpack_from("<II4Q", asked, FSMAP_HEAD + FSMAP * number) for number in range(count)]
            for _, flags, physical, owner, _, length in records:
                yield physical, length, owner if flags & FSMAP_SPECIAL else UNKNOWN
            if not records or records[-1][1] & 0x20:
                return
            first = bytes(asked[FSMAP_HEAD + FSMAP * (count - 1) : FSMAP_HEAD + FSMAP * count])
    finally:
        os.close(fd)


@dataclass
class Room:
    """What is free, and what of it lies in stretches, in bytes; and the same of each region."""

    free: int = 0
    long: int = 0
    used_of: array[int] = field(default_factory=lambda: array("Q"))
    long_of: array[int] = field(default_factory=lambda: array("Q"))
    # Metadata lie in them, and they stay.
    fixed: bytearray = field(default_factory=bytearray)


def room_of(mount: Mount) -> Room:
    room = Room()
    for physical, length, owner in disk_map(mount.directory):
        is_long = owner == FREE and length >= mount.stretch
        room.free += length if owner == FREE else 0
        room.long += length if is_long else 0
        at = physical
        while at < physical + length:
            number = at // mount.stretch
            end = min(physical + length, (number + 1) * mount.stretch)
            more = number + 1 - len(room.fixed)
            if more > 0:
                room.used_of.frombytes(bytes(8 * more))
                room.long_of.frombytes(bytes(8 * more))
                room.fixed.extend(bytes(more))
            if owner != FREE:
                room.used_of[number] += end - at
                room.fixed[number] |= owner != UNKNOWN
            elif is_long:
                room.long_of[number] += end - at
            at = end
    return room


def pieces_of(fd: int) -> list[Piece]:
    """Where a file is; what has no place yet, or no data, is left out."""
    found: list[Piece] = []
    start, at_once = 0, 64
    while True:
        head = struct.pack("<QQIIII", start, (1 << 64) - 1 - start, 0, 0, at_once, 0)
        asked = bytearray(head + bytes(56 * at_once))
        at_once = AT_ONCE
        fcntl.ioctl(fd, IOC_FIEMAP, asked)
        count = struct.unpack_from("<I", asked, 20)[0]
        flags = EXTENT_LAST
        for number in range(count):
            logical, physical, size, flags = struct.unpack_from("<QQQ16xI", asked, 32 + 56 * number)
            start = logical + size
            if not flags & EXTENT_NOT_WRITTEN:
                found.append(Piece(logical, physical, size))
        if flags & EXTENT_LAST or count == 0:
            return found


def files_below(directory: Path, refused: dict[str, str]) -> Iterator[File]:
    """All regular files of this file system, each once."""
    device, seen = directory.stat().st_dev, set()
    folders = [str(directory)]
    while folders:
        folder = folders.pop()
        try:
            info = Path(folder).stat()
            if info.st_dev != device or info.st_ino in seen:
                continue
            # Mounted at two places, it is looked at once.
            seen.add(info.st_ino)
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            refused[folder] = os.strerror(error.errno or 0)
            continue
        folders += [entry.path for entry in listed if entry.is_dir(follow_symlinks=False)]
        for entry in listed:
            if not entry.is_file(follow_symlinks=False):
                continue
            try:
                fd = os.open(entry.path, QUIETLY)
            except OSError as error:
                refused[entry.path] = os.strerror(error.errno or 0)
                continue
            try:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode) or info.st_dev != device or info.st_ino in seen:
                    continue
                if info.st_nlink > 1:
                    seen.add(info.st_ino)
                pieces = pieces_of(fd)
            except OSError as error:
                refused[entry.path] = os.strerror(error.errno or 0)
                continue
            finally:
                os.close(fd)
            yield File(entry.path, info.st_ino, pieces)


# --- What is worth it -----------------------------------------------------------------


@dataclass
class Plan:
    regions: list[Region]
    # Parts of files, as they follow one another, and how many seeks a byte of each takes.
    torn: list[tuple[float, File]]

    @property
    def size(self) -> int:
        return sum(part.size for _, part in self.torn) + sum(region.used for region in self.regions)


@dataclass
class Had:
    """What does not come again, so that all comes to an end."""

    # Of a region, how often it was emptied: others may write to it meanwhile.
    turns: Counter[int] = field(default_factory=Counter)
    # Joined, by inode and first byte.
    parts: set[tuple[int, int]] = field(default_factory=set)


def wanted_of(mount: Mount, room: Room, goal: int, full: int, had: Had) -> dict[int, Region]:
    """The emptiest regions. Each gives a stretch, of which its own data take their part."""
    used_of = room.used_of
    movable = (
        number
        for number, used in enumerate(used_of)
        if used and not room.fixed[number] and had.turns.get(number, 0) < TURNS
    )
    lacking = room.free * goal // 100 - room.long
    # A little more: what moves cuts stretches, and each pass looks at all files.
    lacking += room.free // BEYOND if lacking > 0 else 0
    wanted: dict[int, Region] = {}
    for number in sorted(movable, key=lambda number: (used_of[number], number)):
        if lacking <= 0 or used_of[number] * 100 > mount.stretch * full or len(wanted) == AT_ONCE:
            break
        gain = mount.stretch - used_of[number] - room.long_of[number]
        if gain > 0:
            wanted[number] = Region(used_of[number])
            lacking -= gain
    return wanted


def planned(mount: Mount, room: Room, goal: int, full: int, had: Had, refused: dict[str, str]) -> Plan:
    wanted = wanted_of(mount, room, goal, full, had)
    torn: list[tuple[float, int, File]] = []
    order = itertools.count()
    for file in files_below(mount.directory, refused):
        named = File(file.path, file.inode, [])
        for part in file.parts(mount.stretch):
            if part.is_torn and (part.inode, part.pieces[0].logical) not in had.parts:
                # Of its pieces there may be very many.
                rows = File(part.path, part.inode, part.rows)
                heapq.heappush(torn, (part.seeks / part.size, next(order), rows))
                if len(torn) > JOINED_AT_MOST:
                    heapq.heappop(torn)
        for piece in file.pieces:
            last = (piece.physical + piece.size - 1) // mount.stretch
            for place in range(piece.physical // mount.stretch, last + 1):
                if place in wanted:
                    first = max(piece.physical, place * mount.stretch)
                    end = min(piece.physical + piece.size, (place + 1) * mount.stretch)
                    wanted[place].add(named, Piece(piece.logical + first - piece.physical, first, end - first))
    # Directories, or blocks of extents, lie in the others.
    whole = {number: region for number, region in wanted.items() if region.found == region.used}
    had.turns.update(wanted.keys())
    had.turns.update(dict.fromkeys(wanted.keys() - whole.keys(), TURNS))
    return Plan(list(whole.values()), [(seeks, part) for seeks, _, part in sorted(torn, key=lambda each: each[1])])


def joinable(mount: Mount, room: Room, plan: Plan, goal: int) -> list[File]:
    """Half the goal is left: what is joined gives its place back in pieces. The last stretch that it takes is cut."""
    spare = room.long - room.free * goal // 200 - mount.stretch
    chosen = set[int]()
    for number, (_, part) in sorted(enumerate(plan.torn), key=lambda each: each[1][0], reverse=True):
        if part.size <= spare:
            spare -= part.size
            chosen.add(number)
    # In their order, so that the parts of a file follow one another on the disk, too.
    return [part for number, (_, part) in enumerate(plan.torn) if number in chosen]


# --- Writing again --------------------------------------------------------------------


class Mover:
    def __init__(self, mount: Mount, rate_mib: int, refused: dict[str, str]) -> None:
        self.directory = mount.directory
        self.device, self.rate = mount.directory.stat().st_dev, rate_mib * MIB
        self.total, self.refused = 0, refused
        # When the next may be written.
        self.moved, self.due, self.said = 0, 0.0, 0.0

    def rewrite(self, file: File, pieces: list[Piece], at_most: int) -> None:
        """These pieces, in the order of the file; they are written in this order, too."""
        at_most = min(at_most, REWRITE_MAX)
        try:
            fd = os.open(file.path, QUIETLY)
        except OSError as error:
            self.refused[file.path] = os.strerror(error.errno or 0)
            return
        try:
            info = os.fstat(fd)
            # The folders of its path may be others by now.
            if (info.st_dev, info.st_ino) != (self.device, file.inode) or not stat.S_ISREG(info.st_mode):
                return
            try:
                ask(fd, pieces, at_most)
            except OSError as error:
                if error.errno in (errno.ENOTTY, errno.EBADF):
                    raise Failure(TOO_OLD) from None
                # Not by itself: it may be seen through a mount of its folder.
                if error.errno == errno.EROFS and os.statvfs(self.directory).f_flag & os.ST_RDONLY:
                    raise
                # What was asked before is written all the same.
                self.refused[file.path] = os.strerror(error.errno or 0)
            write_back(fd, pieces, file.path)
        finally:
            os.close(fd)
        self.count(sum(piece.size for piece in pieces))

    def count(self, size: int) -> None:
        self.moved += size
        now = time.monotonic()
        self.due = max(self.due, now) + size / self.rate
        time.sleep(self.due - now)
        if now - self.said > 1:
            self.said = now
            self.say(f"\r{self.moved // MIB:,} of {self.total // MIB:,} MiB written again\033[K")

    def say(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(text)


def ask(fd: int, pieces: list[Piece], at_most: int) -> None:
    """The kernel reads what is there, and is to write it again."""
    for piece in pieces:
        end = piece.logical + piece.size
        for start in range(piece.logical, end, AHEAD_BYTES):
            os.posix_fadvise(fd, start, min(AHEAD_BYTES, end - start), os.POSIX_FADV_WILLNEED)
    for piece in pieces:
        end = piece.logical + piece.size
        for start in range(piece.logical, end, at_most):
            fcntl.ioctl(fd, IOC_REWRITE, struct.pack("<QQ", start, min(at_most, end - start)))


def write_back(fd: int, pieces: list[Piece], path: str) -> None:
    start, end = pieces[0].logical, pieces[-1].logical + pieces[-1].size
    # Both at once would be a sync, for which what is synced often stays where it is.
    for what in (SYNC_WRITE, SYNC_WAIT):
        if libc.sync_file_range(fd, ctypes.c_int64(start), ctypes.c_int64(end - start), what) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)


def empty(mount: Mount, room: Room, plan: Plan, mover: Mover) -> None:
    at_most = mount.stretch if room.long else SHORT_BYTES
    for region in plan.regions:
        for file, pieces in region.by_file():
            mover.rewrite(file, pieces, at_most)
        # The next one's data go where this one's were: that is free after the commit.
        commit(mount)
        at_most = mount.stretch


def commit(mount: Mount) -> None:
    fd = os.open(mount.directory, os.O_RDONLY)
    try:
        if libc.syncfs(fd) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)


def said(mount: Mount, room: Room) -> str:
    percent = 100 * room.long / max(1, room.free)
    return (
        f"{room.long / MIB:.1f} of {room.free / MIB:.1f} MiB in stretches of {mount.stretch >> 10} KiB, {percent:.0f} %"
    )


def run(mount: Mount, asked: argparse.Namespace) -> int:
    """The exit status, as fsck(8) has it."""
    refused: dict[str, str] = {}
    mover, had = Mover(mount, asked.rate, refused), Had()
    room = room_of(mount)
    print(f"free before: {said(mount, room)}")
    while True:
        turns = had.turns.total()
        plan = planned(mount, room, asked.goal, asked.full, had, refused)
        print(f"to write again: {len(plan.regions)} regions and {len(plan.torn)} parts of files, ", end="")
        print(f"{plan.size / MIB:.1f} MiB", flush=True)
        if asked.dry_run:
            break
        mover.total = mover.moved + sum(region.used for region in plan.regions)
        empty(mount, room, plan, mover)
        room = room_of(mount)
        parts = joinable(mount, room, plan, asked.goal)
        mover.total = mover.moved + sum(part.size for part in parts)
        for part in parts:
            mover.rewrite(part, part.pieces, mount.stretch)
        had.parts.update((part.inode, part.pieces[0].logical) for part in parts)
        commit(mount)
        room = room_of(mount)
        mover.say("\r\033[K")
        print(f"{len(parts)} parts joined; free now: {said(mount, room)}", flush=True)
        # Joining may leave regions to be emptied, and these room to join more.
        if not parts and had.turns.total() == turns:
            break
    for reason, count in Counter(refused.values()).items():
        print(f"{count} files stay: {reason}")
    damaged = [(path, reason) for path, reason in refused.items() if reason in DAMAGE]
    for path, reason in damaged:
        print(f"{path!r}: {reason}")
    return 4 if damaged else 0


@contextlib.contextmanager
def alone(mount: Mount) -> Iterator[None]:
    """Two would undo each other's work, and write twice as much as --rate says."""
    fd = os.open(mount.directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"{mount.directory} is being tidied by another ext4lazy: expected one at a time.") from None
        yield
    finally:
        os.close(fd)


def main() -> int:
    parser = argparse.ArgumentParser(prog="ext4lazy tidy", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mountpoint", metavar="MOUNTPOINT", help="where the volume is mounted")
    parser.add_argument("-n", "--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--rate", type=int, default=20, metavar="MIB", help="write at most so much a second (20)")
    parser.add_argument(
        "--goal", type=int, default=50, metavar="PERCENT", help="until so much of what is free is in stretches (50)"
    )
    parser.add_argument(
        "--full", type=int, default=90, metavar="PERCENT", help="regions of which more is in use stay (90)"
    )
    asked = parser.parse_args()
    try:
        if asked.rate < 1 or not (1 <= asked.goal <= 99 and 1 <= asked.full <= 99):
            raise Failure("--rate takes 1 and more, --goal and --full take 1 to 99.")
        mount = mount_of(asked.mountpoint)
        if asked.dry_run:
            return run(mount, asked)
        with alone(mount):
            return run(mount, asked)
    except KeyboardInterrupt:
        print("stopped; what was written again stays there, and the rest where it was")
        return 130
    except Failure as failure:
        sys.stderr.write(f"ext4lazy: {failure}\n")
    except OSError as error:
        sys.stderr.write(f"ext4lazy: {error.filename or asked.mountpoint}: {error.strerror}.\n")
    return 8


if __name__ == "__main__":
    sys.exit(main())

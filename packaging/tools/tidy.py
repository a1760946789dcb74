#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gets free stretches back on an ext4 that is mounted with data_relocate, and joins files that were torn apart.

    ext4lazy tidy MOUNTPOINT [--dry-run] [--rate MIB] [--full PERCENT]

The disk is divided into regions as long as the stretches that the stream of data looks for. Regions of which little is
in use are emptied, the emptiest first: the kernel is asked to write these blocks again (EXT4_IOC_REWRITE), and
data_relocate puts them at the head of the stream. So do files whose pieces are so short that reading them is mostly
seeking. Nobody else is disturbed: contents and times of files stay, and a crash or a kill at any instant leaves whole
files. (docs/design/data-in-order.md, Tidying)
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import fcntl
import os
import re
import stat
import struct
import sys
import time
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
# Pieces shorter than this on average take longer to seek for than to read.
TORN_BYTES = MIB
AT_ONCE = 4096  # records of a map
REWRITE_MAX = 64 * MIB  # EXT4_REWRITE_MAX
# SYNC_FILE_RANGE_WRITE, and _WAIT_BEFORE, which waits for what is being written.
SYNC_WRITE, SYNC_WAIT = 2, 1
libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """The text is the sentence for the user."""


@dataclass(frozen=True)
class Piece:
    """Bytes of a file that lie in a row."""

    logical: int
    physical: int
    size: int


@dataclass
class File:
    path: Path
    inode: int
    pieces: list[Piece]

    @property
    def is_torn(self) -> bool:
        size = sum(piece.size for piece in self.pieces)
        # What follows its predecessor on the disk is read with it.
        runs = 1 + sum(
            before.physical + before.size != piece.physical
            for before, piece in zip(self.pieces, self.pieces[1:], strict=False)
        )
        return runs > 1 and size < runs * TORN_BYTES


@dataclass
class Region:
    number: int
    used: int = 0
    # Metadata lie in it, and they stay.
    is_fixed: bool = False
    found: int = 0
    pieces: list[tuple[File, Piece]] = field(default_factory=list)


@dataclass(frozen=True)
class Mount:
    directory: Path
    stretch: int


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))


def mount_of(named: str) -> Mount:
    path = Path(named).resolve()
    lines = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [fields for fields in lines if re.sub(r"\\(\d{3})", _unescaped, fields[1]) == str(path)]
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


def regions_of(mount: Mount) -> dict[int, Region]:
    """Those in which something is; what is in none is free."""
    found: dict[int, Region] = {}
    for physical, length, owner in disk_map(mount.directory):
        if owner == FREE:
            continue
        at = physical
        while at < physical + length:
            number = at // mount.stretch
            end = min(physical + length, (number + 1) * mount.stretch)
            region = found.setdefault(number, Region(number))
            region.used += end - at
            region.is_fixed |= owner != UNKNOWN
            at = end
    return found


def pieces_of(fd: int) -> list[Piece]:
    """Where a file is; what has no place yet, or no data, is left out."""
    found: list[Piece] = []
    start = 0
    while True:
        head = struct.pack("<QQIIII", start, (1 << 64) - 1 - start, 0, 0, AT_ONCE, 0)
        asked = bytearray(head + bytes(56 * AT_ONCE))
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


def files_below(directory: Path, refused: Counter[str]) -> Iterator[File]:
    """All regular files of this file system, each once."""
    device, seen = directory.stat().st_dev, set()
    for folder, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if os.lstat(f"{folder}/{name}").st_dev == device)
        for name in sorted(files):
            path = Path(folder, name)
            try:
                info = path.lstat()
                if not stat.S_ISREG(info.st_mode) or info.st_dev != device or info.st_ino in seen:
                    continue
                if info.st_nlink > 1:
                    seen.add(info.st_ino)
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME)
            except OSError as error:
                refused[os.strerror(error.errno or 0)] += 1
                continue
            try:
                yield File(path, info.st_ino, pieces_of(fd))
            finally:
                os.close(fd)


# --- What is worth it -----------------------------------------------------------------


@dataclass
class Plan:
    regions: list[Region]
    torn: list[File]

    @property
    def size(self) -> int:
        torn = sum(piece.size for file in self.torn for piece in file.pieces)
        return torn + sum(region.used for region in self.regions)


def planned(mount: Mount, full: int, refused: Counter[str]) -> Plan:
    most = mount.stretch * full // 100
    wanted = {
        number: region for number, region in regions_of(mount).items() if not region.is_fixed and region.used <= most
    }
    torn = []
    for file in files_below(mount.directory, refused):
        if file.is_torn:
            # All of it moves, and leaves its regions.
            torn.append(file)
        for piece in file.pieces:
            last = (piece.physical + piece.size - 1) // mount.stretch
            for number in range(piece.physical // mount.stretch, last + 1):
                if number in wanted:
                    first = max(piece.physical, number * mount.stretch)
                    end = min(piece.physical + piece.size, (number + 1) * mount.stretch)
                    part = Piece(piece.logical + first - piece.physical, first, end - first)
                    wanted[number].found += part.size
                    if not file.is_torn:
                        wanted[number].pieces.append((file, part))
    # Directories, and blocks of extents, lie in the others: these cannot be emptied.
    regions = [region for region in wanted.values() if region.found == region.used and region.pieces]
    return Plan(sorted(regions, key=lambda region: (region.used, region.number)), torn)


# --- Writing again --------------------------------------------------------------------


class Mover:
    def __init__(self, rate_mib: int, total: int, refused: Counter[str]) -> None:
        self.rate = rate_mib * MIB
        self.total, self.refused = total, refused
        self.moved, self.began, self.said = 0, time.monotonic(), 0.0

    def rewrite(self, file: File, pieces: list[Piece], at_most: int) -> None:
        """Each piece is written before the next is asked for, so that they lie in this order."""
        at_most = min(at_most, REWRITE_MAX)
        try:
            fd = os.open(file.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NOATIME)
        except OSError as error:
            self.refused[os.strerror(error.errno or 0)] += 1
            return
        try:
            if os.fstat(fd).st_ino != file.inode:
                return
            for piece in pieces:
                for start in range(piece.logical, piece.logical + piece.size, at_most):
                    size = min(at_most, piece.logical + piece.size - start)
                    fcntl.ioctl(fd, IOC_REWRITE, struct.pack("<QQ", start, size))
                    # Both at once would be a sync, for which what is synced often stays where it is.
                    for what in (SYNC_WRITE, SYNC_WAIT):
                        if libc.sync_file_range(fd, ctypes.c_int64(start), ctypes.c_int64(size), what) < 0:
                            code = ctypes.get_errno()
                            raise OSError(code, os.strerror(code))
                    self.count(size)
        except OSError as error:
            if error.errno in (errno.EIO, errno.EROFS):
                raise
            self.refused[os.strerror(error.errno or 0)] += 1
        finally:
            os.close(fd)

    def count(self, size: int) -> None:
        self.moved += size
        spent = time.monotonic() - self.began
        time.sleep(max(0.0, self.moved / self.rate - spent))
        if sys.stderr.isatty() and spent - self.said > 1:
            self.said = spent
            sys.stderr.write(f"\r{self.moved // MIB:,} of {self.total // MIB:,} MiB written again\033[K")


def tidied(mount: Mount, plan: Plan, rate_mib: int, refused: Counter[str]) -> Mover:
    mover = Mover(rate_mib, plan.size, refused)
    for file in plan.torn:
        mover.rewrite(file, file.pieces, mount.stretch)
    for region in plan.regions:
        by_file: dict[Path, tuple[File, list[Piece]]] = {}
        for file, piece in region.pieces:
            by_file.setdefault(file.path, (file, []))[1].append(piece)
        for file, pieces in by_file.values():
            mover.rewrite(file, pieces, mount.stretch)
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    return mover


def free_stretches(mount: Mount) -> int:
    room = os.statvfs(mount.directory)
    return room.f_blocks * room.f_frsize // mount.stretch - len(regions_of(mount))


def main() -> int:
    parser = argparse.ArgumentParser(prog="ext4lazy tidy", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mountpoint", metavar="MOUNTPOINT", help="where the volume is mounted")
    parser.add_argument("-n", "--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--rate", type=int, default=20, metavar="MIB", help="write at most so much a second (20)")
    parser.add_argument("--full", type=int, default=50, metavar="PERCENT", help="empty regions up to so full (50)")
    asked = parser.parse_args()
    refused: Counter[str] = Counter()
    try:
        if asked.rate < 1 or not 1 <= asked.full <= 99:
            raise Failure("--rate takes 1 and more, --full takes 1 to 99.")
        mount = mount_of(asked.mountpoint)
        before = free_stretches(mount)
        plan = planned(mount, asked.full, refused)
        what = f"{len(plan.regions)} regions and {len(plan.torn)} files in pieces, {plan.size / MIB:.1f} MiB"
        if asked.dry_run:
            print(f"free stretches of {mount.stretch >> 10} KiB: {before}")
            print(f"would write again: {what}")
            return 0
        try:
            moved = tidied(mount, plan, asked.rate, refused).moved
        except KeyboardInterrupt:
            print("stopped; what was written again stays there, and the rest where it was")
            return 130
        # What was given up is free after the commit.
        os.sync()
        now = free_stretches(mount)
        print(f"free stretches of {mount.stretch >> 10} KiB: {before} before, {now} now")
        print(f"planned: {what}; written again: {moved / MIB:.1f} MiB")
        for reason, count in refused.items():
            print(f"{count} files stay: {reason}")
        return 0
    except Failure as failure:
        sys.stderr.write(f"ext4lazy: {failure}\n")
    except OSError as error:
        sys.stderr.write(f"ext4lazy: {error.filename or asked.mountpoint}: {error.strerror}.\n")
    return 8


if __name__ == "__main__":
    sys.exit(main())

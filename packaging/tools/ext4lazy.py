#!/usr/bin/python3 -I
# SPDX-License-Identifier: MIT OR Apache-2.0
"""ext4lazy: look after ext4 volumes that are mounted with journal_lazy.

One file and the standard library, so that it runs on an owner's machine. All
that e2fsprogs can do, e2fsprogs does; what is read here by hand is the journal
superblock, because the marker of journal_lazy is there and no other program
knows it. The layout is that of fs/jbd2/lazy_mount.c.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import dataclasses
import errno
import fcntl
import io
import json
import mmap
import os
import random
import re
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# packaging/build puts the date and the commit behind it.
VERSION = "0.2"

OK, MENDED, DAMAGED, FAILED = 0, 1, 4, 8  # of the exit status, as fsck(8) has it
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOUR_S = 3600.0

JOURNAL_MAGIC = 0xC03B3998
MARKER_OFFSET = 0xBC
MARKER_MAGIC = 0x4C5A5931  # "LZY1"
MARKER_VERSION = 2
CHECKSUM_OFFSET = 0xFC
CSUM_V3 = 0x10
DESCRIPTOR, COMMIT = 1, 2
SAME_UUID, LAST_TAG = 2, 8
NEAR = 64  # blocks before the end of the log, in which the last transaction of an unmount begins
# EXT4_IOC_CHECKPOINT, _IOW('f', 43, __u32)
IOC_CHECKPOINT = 0x4004662B
LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LOOP_GET_STATUS64 = 0x4C82, 0x4C0A, 0x4C05
BLKROGET = 0x125E
LOOP_CONFIG, LOOP_FLAGS_AT, LOOP_AUTOCLEAR = 304, 60, 4

# 10 GiB on 8 TB is what the paper and docs/design/journal-lazy.md measured.
JOURNAL_SHARE = 800
JOURNAL_MOST = 10 * GIB
JOURNAL_LEAST = 256 * MIB
JOURNAL_BLOCKS = 1024, 10_240_000  # what tune2fs takes
# The log begins behind this part of the volume, which is for directories, as soon as groups are free to that share. A
# disk is fastest there, and data_relocate begins behind the log (docs/results/full-cache.md).
JOURNAL_BEHIND_SHARE = 512
JOURNAL_FREE = 7 / 8

# `convert` sets the mount count to this in the very write that ends a command of tune2fs, and e2fsck -f sets it to 0:
# a conversion whose last check was cut off can be told from one that is done.
UNCHECKED = 15_000

# Where copies of the metadata go: for a check, and while directories are written anew.
SCRATCH = Path("/var/tmp")
# debugfs reads lines of 8 KiB, and with blocks of 1 KiB it loses the end of a transaction of 250.
LOG_AT_ONCE = 100

# In the superblock of ext4: features that anybody may ignore.
COMPATIBLE, HAS_JOURNAL = 0x5C, 4
# Texts there: where, and how long.
TEXTS = {
    "label": (0x78, 16),
    "last mount point": (0x88, 64),
    "first error": (0x1A8, 32),
    "last error": (0x1E0, 32),
    "mount options": (0x200, 64),
}

SYSTEMD = Path("/run/systemd/system")
UNITS = Path("/etc/systemd/system")
SYSFS = Path("/sys")
MOUNTINFO = Path("/proc/self/mountinfo")
FILE_SYSTEMS = Path("/proc/filesystems")
# Its fifth byte is 1 if it is on.
SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

# The kernel's limit for a request is 30 s, and a shingled disk can be busy with itself for longer.
TIMEOUT_S = 180


class Failure(Exception):
    """Something outside this program is not as expected; the text is the sentence for the user."""


# --- Stock programs -----------------------------------------------------------


class Stopped(Exception):
    """A signal asked this program to end."""


@dataclass
class Signals:
    """SIGINT and the like: a stock program is told to end and waited for, and nothing is left behind."""

    got: int = 0
    held: int = 0
    child: subprocess.Popen[str] | None = None

    def catch(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _: object) -> None:
        again, self.got = self.got, number
        if self.child is not None:
            self.child.terminate()
        elif not self.held and not again:
            raise Stopped

    def check(self) -> None:
        if self.got:
            raise Stopped

    @contextlib.contextmanager
    def between_programs(self) -> Iterator[None]:
        """A signal ends a stock program, or the next one is not run; it interrupts nothing else."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1


signals = Signals()


def _run(
    argv: Sequence[str | Path], *, show: bool = False, keep: Sequence[int] = (), whole: bool = False
) -> subprocess.CompletedProcess[str]:
    """`keep` are descriptors that the program holds open too, so that they outlive this process if it is killed.

    `whole` is for what takes no time and must not be cut short: no signal reaches it, not from the terminal either.
    """
    if not whole:
        signals.check()
    environment = os.environ | {"LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"}
    with signals.between_programs():
        try:
            process = subprocess.Popen(
                [str(one) for one in argv],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=None if show else subprocess.PIPE,
                stderr=None if show else subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=keep,
                process_group=0 if whole else None,
            )
        except FileNotFoundError:
            raise Failure(f"{argv[0]} is not installed.") from None
        if not whole:
            signals.child = process
            if signals.got:
                process.terminate()
        output, _ = process.communicate()
        signals.child = None
    if not whole:
        signals.check()
    return subprocess.CompletedProcess([], process.returncode, output)


def run(
    argv: Sequence[str | Path],
    *,
    accept: Sequence[int] = (0,),
    show: bool = False,
    keep: Sequence[int] = (),
    whole: bool = False,
) -> str:
    """What a stock program prints; `show` passes it on to the user as it comes."""
    done = _run(argv, show=show, keep=keep, whole=whole)
    output = done.stdout or ""
    if done.returncode not in accept:
        last = f": {output.strip().splitlines()[-1].rstrip('.')}" if output.strip() else ""
        raise Failure(f"{' '.join(map(str, argv))} ended with status {done.returncode}{last}.")
    return output


def devices_with(tag: str, value: str) -> list[Path]:
    """Those of blkid's cache that are as it says: for two seconds it takes what it read for what is there."""
    found = sorted(run(["blkid", "-t", f"{tag}={value}", "-o", "device"], accept=(0, 2)).split())
    field = {"PARTUUID": "PART_ENTRY_UUID", "PARTLABEL": "PART_ENTRY_NAME"}.get(tag, tag)
    probe = ["blkid", "-p", "-o", "value", "-s", field]
    return [Path(one) for one in found if run([*probe, one], accept=(0, 2, 8)).strip() == value]


# --- The volume -----------------------------------------------------------------


@dataclass(frozen=True)
class JournalSuper:
    """The journal superblock, as far as it matters here."""

    block_size: int
    blocks: int
    first: int
    sequence: int
    start: int
    error: int
    checksums_v3: bool
    marked: bool
    # By the marker: the newest transaction when it was written, and the block behind that.
    known: int
    end: int

    @property
    def state(self) -> str:
        if self.start == 0:
            return "empty"
        return "kept" if self.marked else "stock"


def crc32c(data: bytes) -> int:
    """The checksum of jbd2: Castagnoli, seeded with all ones, not inverted at the end."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def parse_journal_super(data: bytes) -> JournalSuper:
    """The first 1024 bytes of a journal."""
    if len(data) < 1024:
        raise Failure("the journal superblock is cut short: expected 1024 bytes.")
    magic, kind, _, block_size, blocks, first, sequence, start, error, _, incompat, _ = struct.unpack_from(">12I", data)
    if magic != JOURNAL_MAGIC or kind not in (3, 4):
        raise Failure("the journal does not begin with a journal superblock.")
    if not 0 < first < blocks or start >= blocks:
        raise Failure(f"the journal superblock says that the log of {blocks} blocks begins at {first} and {start}.")
    v3 = kind == 4 and bool(incompat & CSUM_V3)
    if v3:
        blank = data[:CHECKSUM_OFFSET] + bytes(4) + data[CHECKSUM_OFFSET + 4 : 1024]
        if crc32c(blank) != struct.unpack_from(">I", data, CHECKSUM_OFFSET)[0]:
            raise Failure("the journal superblock does not fit its checksum.")
    signature = struct.unpack_from(">4I", data, MARKER_OFFSET)
    marked = start != 0 and signature == (MARKER_MAGIC, MARKER_VERSION, sequence, start)
    known, end = (struct.unpack_from(">I", data, MARKER_OFFSET + at)[0] for at in (16, 44))
    return JournalSuper(block_size, blocks, first, sequence, start, error, v3, marked, known, end)


MOUNT_IT = "copy the whole device, then mount it as ext4lazy, run ext4lazy check DIRECTORY, and drain it mounted"
LOST = "files may be lost, so compare them with a backup"


def need_transactions(path: Path, journal: JournalSuper, reached: int, does: str, advice: str) -> None:
    """Stock recovery takes a damaged block for the end of the log; the marker names a transaction that was durable."""
    if journal.marked and 0 < (journal.known - reached) & 0xFFFFFFFF < 1 << 31:
        raise Failure(
            f"{path}: e2fsck {does} its log up to transaction {reached}: expected {journal.known},"
            f" which was committed; {advice}."
        )


def need_replayed(path: Path, before: JournalSuper | None, volume: Volume, advice: str = LOST) -> None:
    """e2fsck writes the next transaction but one behind the last that it replayed; after an error the old one stays."""
    if before is None or not volume.has_journal or volume.external_journal is not None:
        return
    after = volume.journal_super().sequence
    reached = (after - (1 if after == before.sequence else 2)) & 0xFFFFFFFF
    need_transactions(path, before, reached, "replayed", advice)


@dataclass(frozen=True)
class Volume:
    """An ext4 volume on a block device or in an image file, by what dumpe2fs says of it."""

    path: Path
    header: dict[str, str]

    @property
    def features(self) -> set[str]:
        return set(self.header.get("Filesystem features", "").split())

    def number(self, key: str) -> int:
        try:
            return int(self.header[key].split()[0])
        except (KeyError, ValueError, IndexError):
            raise Failure(f"{self.path}: dumpe2fs says no {key.lower()}.") from None

    @property
    def block_size(self) -> int:
        return self.number("Block size")

    @property
    def size(self) -> int:
        return self.number("Block count") * self.block_size

    @property
    def has_journal(self) -> bool:
        return "has_journal" in self.features

    @property
    def external_journal(self) -> str | None:
        return self.header.get("Journal UUID")

    def journal_place(self) -> tuple[Path, int]:
        """The device of the journal and the block of it where the journal superblock is."""
        if self.external_journal is None:
            # -c: bitmaps that do not fit their checksums are no matter here.
            said = run(["debugfs", "-c", "-R", "bmap <8> 0", self.path])
            numbers = re.findall(r"^(\d+)$", said, flags=re.MULTILINE)
            if len(numbers) != 1 or numbers == ["0"]:
                raise Failure(f"{self.path}: debugfs does not say where the journal begins.")
            return self.path, int(numbers[0])
        found = devices_with("UUID", self.external_journal)
        if not found:
            raise Failure(f"{self.path}: its journal device, UUID {self.external_journal}, is not here.")
        # Behind the superblock of the device, which is at byte 1024.
        return found[0], 1024 // self.block_size + 1

    def need_journal(self) -> None:
        """e2fsck does not say which journal device it misses."""
        if self.external_journal is not None:
            self.journal_place()

    def journal_super(self) -> JournalSuper:
        """Read by hand; the volume must have a journal."""
        device, block = self.journal_place()
        with device.open("rb") as file:
            file.seek(block * self.block_size)
            return parse_journal_super(file.read(1024))

    def need_readable_log(self, advice: str) -> JournalSuper | None:
        """e2fsck -p puts an empty journal in the place of one that it cannot read, and says that all is well.

        The journal superblock as it is before the replay, if there will be one.
        """
        if "needs_recovery" not in self.features:
            return None
        try:
            self.journal_place()
        except Failure:
            return None  # e2fsck has a copy of the journal's inode
        try:
            journal = self.journal_super()
        except Failure as failure:
            raise Failure(
                f"{self.path} has a log, and {str(failure).rstrip('.')}: to go on loses all that is in the log alone;"
                f" copy the whole device, then {advice}."
            ) from None
        need_transactions(self.path, journal, end_of_log(self, journal), "would replay", MOUNT_IT)
        return journal

    def journal_runs(self) -> list[tuple[int, int, int]]:
        """Of the journal's inode: the first and last block of each run, and where it begins on the volume."""
        said = run(["debugfs", "-c", "-R", "stat <8>", self.path])
        found = re.finditer(r"\((\d+)(?:-(\d+))?\):(\d+)(?:-(\d+))?", said)
        return [(int(match[1]), int(match[2] or match[1]), int(match[3])) for match in found]

    def journal_pieces(self) -> int:
        """Runs of neighbouring blocks that the journal consists of."""
        end, pieces = -1, 0
        for first, last, start in self.journal_runs():
            pieces += start != end + 1
            end = start + last - first
        return pieces

    def directories(self) -> int:
        return sum(self._in_groups("used director"))

    def free_blocks(self) -> list[int]:
        """Of each group; empty if debugfs counts clusters."""
        return self._in_groups("free block")

    def _in_groups(self, what: str) -> list[int]:
        """As the group descriptors count it; no bitmap is read."""
        said = run(["debugfs", "-c", "-R", "stats", self.path])
        return [int(one) for one in re.findall(rf"(?:^ +|, )(\d+) {what}", said, flags=re.MULTILINE)]


def read_volume(path: Path) -> Volume:
    with path.open("rb") as file:
        file.seek(KIB)
        superblock = file.read(KIB)
    try:
        # 1: the volume is described, but its journal could not be; a conversion that was cut off can leave that.
        said = run(["dumpe2fs", "-h", path], accept=(0, 1))
    except Failure as failure:
        raise Failure(f"{path}: dumpe2fs finds no ext4 there ({str(failure).rstrip('.')}).") from None
    # dumpe2fs prints these as they are, and a line break in one of them could pass for what it says of the volume.
    for what, (at, length) in TEXTS.items():
        if re.search(rb"[\r\n]", superblock[at : at + length].partition(b"\0")[0]):
            raise Failure(f"{path}: the superblock has a line break in its {what}: expected one line; is it forged?")
    header: dict[str, str] = {}
    for line in said.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            header.setdefault(key.strip(), value.strip())
    if "Block count" not in header:
        raise Failure(f"{path}: dumpe2fs finds no ext4 there.")
    return Volume(path, header)


# --- Who uses it ------------------------------------------------------------------


@dataclass(frozen=True)
class Mount:
    device: str  # major:minor
    directory: Path
    kind: str
    options: str  # of this mount, then of the file system

    @property
    def where(self) -> str:
        return shown(str(self.directory))

    @property
    def read_only(self) -> bool:
        return "ro" in self.options.split(",")


def _loops_over(path: Path) -> list[str]:
    """The names of the loop devices over a file or a block device, and of those over them."""
    info, found = path.stat(), []
    for loop in sorted(SYSFS.glob("block/loop*/loop")):
        name = loop.parent.name
        with contextlib.suppress(OSError):
            named = os.fsdecode((loop / "backing_file").read_bytes()).removesuffix("\n")
            if _is_over(Path("/dev") / name, info) or path.samefile(named):
                found.append(name)
                found += _loops_over(Path("/dev") / name)
    return found


def _is_over(loop: Path, below: os.stat_result) -> bool:
    """Asks the kernel: the name that sysfs has is that of a mount namespace, perhaps not of this one."""
    try:
        with loop.open("rb") as file:
            device, inode, number = struct.unpack_from("3Q", fcntl.ioctl(file, LOOP_GET_STATUS64, bytes(232)))
    except OSError:
        return False
    if stat.S_ISBLK(below.st_mode):
        return bool(number == below.st_rdev)
    return (device, inode) == (below.st_dev, below.st_ino)


def mounted(path: Path) -> Mount | None:
    """Where this process sees it mounted, itself or a loop device over it; a mount to be written comes first."""
    info = path.stat()
    devices = {f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"} if stat.S_ISBLK(info.st_mode) else set()
    for name in _loops_over(path):
        with contextlib.suppress(OSError):
            devices.add((SYSFS / "block" / name / "dev").read_text().strip())
    found = [mount for mount in _mounts() if mount.device in devices]
    return min(found, key=lambda mount: mount.read_only, default=None)


def _mounts() -> Iterator[Mount]:
    # Mount points are bytes, and of what Python takes for a space only these two are escaped.
    for line in os.fsdecode(MOUNTINFO.read_bytes()).split("\n"):
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) > 5:
            name = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
            yield Mount(fields[2], Path(name), rest[0], f"{fields[5]},{rest[-1]}")


def find_device(named: str) -> Path:
    """A device, an image file, UUID=... and the like as in /etc/fstab, or a mount point."""
    tag, _, value = named.partition("=")
    if tag in ("UUID", "LABEL", "PARTUUID", "PARTLABEL"):
        found = devices_with(tag, value)
        if len(found) != 1:
            names = " and ".join(map(str, found)) or "no device"
            raise Failure(f"{named} names {names}: expected one device.")
        return found[0]
    if not named:
        raise Failure("the name is empty: expected a device, an image file or a mount point.")
    path = Path(named)
    if not path.exists():
        raise Failure(f"{path} does not exist.")
    if path.is_dir():
        at = path.resolve()
        devices = [SYSFS / "dev/block" / mount.device for mount in _mounts() if mount.directory == at]
        if not devices or not devices[-1].exists():
            raise Failure(f"no device is mounted on {path}: expected a device, an image file or a mount point.")
        return Path("/dev") / devices[-1].resolve().name.replace("!", "/")
    if not (path.is_block_device() or path.is_file()):
        raise Failure(f"{path} is something else: expected a device, an image file or a mount point.")
    # A link below /dev/disk may name another disk before this is over, and a name with "-" in front is no option.
    return path.resolve()


@contextlib.contextmanager
def held(path: Path, what: str, *, itself: bool = True) -> Iterator[list[int]]:
    """As long as one of these descriptors is open, a block device cannot be mounted, checked or held by others.

    Not `itself`: only the loop devices over it. e2fsck asks for the device alone, and knows nothing of these.
    """
    mount = mounted(path)
    if mount is not None:
        raise Failure(f"{path} is mounted on {mount.where}: {what} needs it unmounted.")
    with contextlib.ExitStack() as stack:
        descriptors = []
        if itself and stat.S_ISBLK(path.stat().st_mode):
            try:
                descriptors.append(os.open(path, os.O_RDONLY | os.O_EXCL))
            except PermissionError:
                raise
            except OSError as error:
                raise Failure(f"{path} is in use ({os.strerror(error.errno or 0)}): {what} needs it alone.") from None
            stack.callback(os.close, descriptors[-1])
        for name in _loops_over(path):
            # One that is attached and not used is no obstacle, but must not be mounted now either.
            try:
                descriptors.append(os.open(f"/dev/{name}", os.O_RDONLY | os.O_EXCL))
            except OSError as error:
                if error.errno != errno.EBUSY:
                    continue
                raise Failure(f"{path} is in use through /dev/{name}: {what} needs it alone.") from None
            stack.callback(os.close, descriptors[-1])
        yield descriptors


@contextlib.contextmanager
def loop_over(path: Path) -> Iterator[tuple[Path, int]]:
    """A loop device that lives as long as its descriptor, and its lock, which keeps udev and so the desktop off."""
    with contextlib.ExitStack() as stack:
        try:
            below = stack.enter_context(path.open("r+b"))
            control = stack.enter_context(Path("/dev/loop-control").open("rb"))
            device = Path(f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}")
            file = stack.enter_context(device.open("r+b", buffering=0))
            fcntl.flock(file, fcntl.LOCK_EX)
            config = bytearray(LOOP_CONFIG)
            struct.pack_into("I", config, 0, below.fileno())
            struct.pack_into("I", config, LOOP_FLAGS_AT, LOOP_AUTOCLEAR)
            fcntl.ioctl(file, LOOP_CONFIGURE, config)
        except OSError as error:
            raise Failure(f"the kernel makes no loop device over {path} ({error.strerror}): expected one.") from None
        yield device, file.fileno()


def refuse_in_use(path: Path, what: str) -> None:
    with held(path, what):
        pass


def refuse_part(path: Path) -> None:
    """Half of a mirror looks like a file system of its own; so does a disk that was one before it got partitions."""
    done = _run(["blkid", "-p", "-o", "export", "-s", "TYPE", "-s", "PTTYPE", path])
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    found = "several at once" if done.returncode == 8 else said.get("TYPE", "")
    if found and not found.startswith("ext"):
        raise Failure(f"{path} is of type {found}: expected ext4, and not a part of something larger.")
    if "PTTYPE" in said:
        raise Failure(f"{path} has a partition table ({said['PTTYPE']}): expected a volume, as one of its partitions.")


def refuse_read_only(path: Path, what: str) -> None:
    writable = os.access(path, os.W_OK)
    if writable and stat.S_ISBLK(path.stat().st_mode):
        with path.open("rb") as file:
            writable = not struct.unpack("i", fcntl.ioctl(file, BLKROGET, bytes(4)))[0]
    if not writable:
        raise Failure(f"{path} cannot be written to: {what} writes to it.")


@contextlib.contextmanager
def only_run(path: Path, what: str, *, reads: bool = False) -> Iterator[int]:
    """No second run of this program changes an image file; a block device is held while it is changed."""
    with path.open("rb") as file:
        if stat.S_ISREG(path.stat().st_mode):
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if reads else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Failure(f"{path} is in use by another ext4lazy: {what} needs it alone.") from None
        yield file.fileno()


def _statistics_folder(mount: Mount) -> Path | None:
    name = (SYSFS / "dev/block" / mount.device).resolve().name
    folders = [SYSFS / "fs" / kind / name / "journal_lazy" for kind in ("ext4lazy", "ext4")]
    return next((folder for folder in folders if folder.is_dir()), None)


def statistics_of(mount: Mount) -> dict[str, str] | None:
    """What the kernel says in journal_lazy/ of a mounted volume; None if it is not mounted with the option."""
    folder = _statistics_folder(mount)
    if folder is None:
        return None
    found = {}
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError):
            found[path.name] = path.read_text().strip()
    return found


# --- The disk ---------------------------------------------------------------------


@dataclass(frozen=True)
class Speed:
    """Of reads, past the page cache where the place allows it."""

    bytes_per_s: float
    random_s: float


def measure(path: Path, size: int) -> Speed:
    """Two seconds of reads: three runs in sequence, and single blocks at random places with a fixed seed."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        disk = os.open(path, flags | os.O_DIRECT)
    except OSError:
        disk = os.open(path, flags)
    try:
        places = random.Random(1)
        with mmap.mmap(-1, 4 * MIB) as buffer:
            read, began = 0, time.monotonic()
            for part in range(3):
                at = (size * part // 3) & -MIB
                until = time.monotonic() + 0.4
                while time.monotonic() < until and at + len(buffer) <= size:
                    read += os.preadv(disk, [buffer], at)
                    at += len(buffer)
            in_sequence_s = time.monotonic() - began
            with memoryview(buffer)[: 4 * KIB] as block:
                took, count, until = 0.0, 0, time.monotonic() + 0.8
                while count < 64 and time.monotonic() < until and size >= MIB:
                    at = places.randrange(size // (4 * KIB)) * 4 * KIB
                    began = time.monotonic()
                    os.preadv(disk, [block], at)
                    took, count = took + time.monotonic() - began, count + 1
    finally:
        os.close(disk)
    if read == 0 or count == 0:
        return Speed(100e6, 0.012)
    return Speed(read / in_sequence_s, took / count)


def check_s(volume: Volume, directories: int, speed: Speed) -> float:
    """e2fsck -f: the inode tables in use once in sequence, and an arm's movement for each directory."""
    inodes = volume.number("Inode count") - volume.number("Free inodes")
    table = inodes * (volume.number("Inode size") if "Inode size" in volume.header else 128)  # of revision 0
    groups = volume.size / (volume.number("Blocks per group") * volume.block_size)
    return table / speed.bytes_per_s + directories * speed.random_s + 2 * groups * volume.block_size / speed.bytes_per_s


def replay_s(log_bytes: int, blocks: int, speed: Speed) -> float:
    """Stock recovery: the log once, and an arm's movement for each block that goes home."""
    return log_bytes / speed.bytes_per_s + blocks * speed.random_s


def disks(path: Path) -> list[Path]:
    """The disks below a block device, through partitions, device-mapper and md, as folders of sysfs."""
    info = path.stat()
    if not stat.S_ISBLK(info.st_mode):
        return []
    found, above = set(), [SYSFS / "dev/block" / f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"]
    while above:
        folder = above.pop().resolve()
        if (folder / "partition").exists():
            folder = folder.parent
        below = list(folder.glob("slaves/*"))
        above += below
        if not below:
            found.add(folder)
    return sorted(found)


# --- Words ----------------------------------------------------------------------


def size_text(size: float) -> str:
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size / KIB:.3g} KiB"


def time_text(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * HOUR_S:
        return f"{seconds / HOUR_S:.2g} h"
    return f"{seconds / HOUR_S / 24:.2g} days"


def shown(text: str) -> str:
    """A disk says its label, and where it was mounted: nothing of that may move a terminal's cursor."""
    return "".join(f"\\x{ord(one):02x}" if unicodedata.category(one) == "Cc" else one for one in text)


def say(name: str, text: str) -> None:
    print(f"  {name + ':':22} {shown(text)}")


# --- advise and convert -----------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One command of the conversion, and why."""

    why: str
    argv: tuple[str, ...]
    accept: tuple[int, ...]
    seconds: float = 0.0


def wanted_journal(volume: Volume) -> int:
    """Bytes: what the paper had, in proportion, and never more than an eighth of a small volume."""
    wanted = min(JOURNAL_MOST, max(JOURNAL_LEAST, volume.size // JOURNAL_SHARE))
    return min(wanted, volume.size // 8, JOURNAL_BLOCKS[1] * volume.block_size) // MIB * MIB


def journal_location(volume: Volume, journal: int) -> int | None:
    """The block that begins the first place before the middle of the volume where the journal fits, in few pieces as a
    rule; None if there is none, or debugfs counts clusters: then tune2fs begins to look in the middle."""
    per_group = volume.number("Blocks per group")
    blocks = journal // volume.block_size
    first = volume.number("Block count") // JOURNAL_BEHIND_SHARE // per_group + 1
    begin, free = first, 0
    groups = volume.free_blocks()
    for end in range(first, len(groups) // 2):
        free += groups[end]
        while free - groups[begin] >= blocks:
            free -= groups[begin]
            begin += 1
        if free >= blocks and free >= JOURNAL_FREE * per_group * (end - begin + 1):
            return begin * per_group + volume.number("First block")
    return None


def refused_defaults(volume: Volume) -> list[str]:
    """Default mount options in the superblock that journal_lazy refuses."""
    defaults = volume.header.get("Default mount options", "").split()
    return [option for option in ("journal_data", "nodelalloc", "nobarrier") if option in defaults]


def refused_in_fstab(volume: Volume) -> list[str]:
    if not shutil.which("findmnt"):
        return []
    return _refused(volume, _run(["findmnt", "--fstab", "-n", "-o", "OPTIONS", "-S", volume.path]).stdout.split("\n"))


def refused_in_superblock(volume: Volume) -> list[str]:
    """What `tune2fs -E mount_opts=` set."""
    return _refused(volume, [volume.header.get("Mount options", "")])


def _refused(volume: Volume, lines: Sequence[str]) -> list[str]:
    """As ext4_lazy_refusal() has it. The feature quota makes the options of quota files harmless."""
    named = ["data=journal", "nodelalloc", "nobarrier", "barrier=0", "journal_async_commit", "nojournal_checksum"]
    if "quota" not in volume.features:
        named += ["quota", "usrquota", "grpquota", "usrjquota=", "grpjquota="]
    options = [option for line in lines for option in line.strip().split(",")]
    return [option for option in options if option.partition("=")[0] + "=" in named or option in named]


def conversion(volume: Volume, journal: int, *, directories: int = 0, speed: Speed | None = None) -> list[Step]:
    """What is left to do. Everything is read off the volume, so that a conversion that was cut off goes on."""
    speed = speed or Speed(100e6, 0.012)
    path = str(volume.path)
    steps: list[Step] = []
    once = check_s(volume, directories, speed)
    check = Step("check", ("e2fsck", "-f", "-p", path), (0, 1), once)

    def change(why: str, *argv: str, seconds: float = 0.0) -> None:
        steps.append(Step(why, ("tune2fs", "-C", str(UNCHECKED), *argv, path), (0,), seconds))

    if "fast_commit" in volume.features:
        change("no fast commit", "-O", "^fast_commit")
    if volume.external_journal is None:
        present = journal_bytes(volume)
        least, most = (blocks * volume.block_size for blocks in JOURNAL_BLOCKS)
        if (present < journal or not volume.has_journal) and not least <= journal <= most:
            raise Failure(
                f"{path} has blocks of {size_text(volume.block_size)} and cannot have a journal of"
                f" {journal // MIB} MiB: expected {least // MIB} to {most // MIB} MiB."
            )
        if volume.has_journal and present < journal:
            change("the small journal goes", "-O", "^has_journal")
        if present < journal:
            location = journal_location(volume, journal)
            where = "" if location is None else f",location={location}"
            change("the large journal", "-J", f"size={journal // MIB}{where}", seconds=journal / speed.bytes_per_s)
    for option in refused_defaults(volume):
        change(f"no {option} by default", "-o", f"^{option}")
    if "metadata_csum" not in volume.features:
        # Every block of metadata is read and written. 64bit is not needed: the journal's own tags are wide anyway.
        # The error that is set here makes e2fsck -p look at everything at boot, until the last check is done. It comes
        # last: with an error tune2fs refuses this command, and what the check writes then goes through the new journal.
        change("metadata checksums", "-E", "force_fsck", "-O", "metadata_csum", seconds=3 * once)
    if steps:
        return [check, *steps, check]
    unchecked = volume.number("Mount count") >= UNCHECKED or volume.header.get("Filesystem state") != "clean"
    return [check] if unchecked else []


def refuse_no_room(volume: Volume, steps: Sequence[Step], journal: int) -> None:
    """The old journal makes room, too. Until a log is replayed the superblock counts what was free before it."""
    free = volume.number("Free blocks") * volume.block_size + journal_bytes(volume)
    if journal > free and any("-J" in step.argv for step in steps):
        raise Failure(
            f"{volume.path} has room for {size_text(free)}: expected {size_text(journal)} for the journal;"
            " remove files, or take a smaller one with --journal-mib."
        )


def journal_bytes(volume: Volume) -> int:
    """0 if dumpe2fs does not say: there is none, or it cannot be read."""
    if "Total journal blocks" in volume.header:
        return volume.number("Total journal blocks") * volume.block_size
    said = volume.header.get("Total journal size") or volume.header.get("Journal size") or "0"
    match = re.fullmatch(r"(\d+)([KMGkmg]?)", said)
    if match is None:
        raise Failure(f"{volume.path}: dumpe2fs says {said!r} of the journal: expected its size.")
    return int(match[1]) * {"": 1, "K": KIB, "M": MIB, "G": GIB}[match[2].upper()]


def advise(path: Path, journal_mib: int | None) -> int:
    volume = read_volume(path)
    _refuse_foreign(volume)
    journal = _journal_wanted(volume, journal_mib)
    print(f"{path}: ext4, {size_text(volume.size)}, blocks of {size_text(volume.block_size)}")
    say("metadata checksums", "yes" if "metadata_csum" in volume.features else "no; journal_lazy needs them")
    say("fast commit", "on; journal_lazy refuses it" if "fast_commit" in volume.features else "off")
    if refused := ", ".join(refused_defaults(volume)):
        say("mount options", f"{refused}, by default; journal_lazy refuses that")
    if refused := ", ".join(refused_in_superblock(volume)):
        say(
            "superblock",
            f"{refused}; journal_lazy refuses that: tune2fs -E mount_opts= {shlex.quote(str(volume.path))}",
        )
    if refused := ", ".join(refused_in_fstab(volume)):
        say("/etc/fstab", f"{refused}; journal_lazy refuses that, so remove it from the line")
    if "extent" not in volume.features:
        say("extents", "no; data_relocate moves no file that has none")
    if volume.external_journal is not None:
        say("journal", f"on a device of its own, UUID {volume.external_journal}")
    elif volume.has_journal:
        pieces = volume.journal_pieces()
        small = f"; {size_text(journal)} would be right" if journal_bytes(volume) < journal else ""
        parts = "in one piece" if pieces == 1 else f"in {pieces} pieces"
        at = size_text(volume.journal_runs()[0][2] * volume.block_size) if pieces else "an unknown place"
        say("journal", f"{size_text(journal_bytes(volume))}, {parts}, at {at} of {size_text(volume.size)}{small}")
        place = journal_location(volume, journal)
        text = "there is no place for it before the middle"
        say("a new journal", text if place is None else f"would begin at {size_text(place * volume.block_size)}")
    else:
        say("journal", f"none; {size_text(journal)} would be right")
    say("free space", size_text(volume.number("Free blocks") * volume.block_size))
    if "needs_recovery" in volume.features and volume.has_journal:
        say("log", "holds metadata; what is said here is of the time before it")
    _advise_of_system(path)
    directories = volume.directories()
    speed = measure(path, volume.size)
    what = "this disk reads" if stat.S_ISBLK(path.stat().st_mode) else "this file reads"
    say(what, f"{speed.bytes_per_s / 1e6:.0f} MB/s in sequence, {speed.random_s * 1e3:.1f} ms at random")
    steps = conversion(volume, journal, directories=directories, speed=speed)
    if not steps:
        print(f"Nothing is to be converted: mount -t ext4lazy {path} DIRECTORY")
        return OK
    for step in steps:
        say(step.why, f"{' '.join(step.argv)}: {time_text(step.seconds)}")
    refuse_no_room(volume, steps, journal)
    total = sum(step.seconds for step in steps)
    print(f"Converting takes about {time_text(total)} on this disk; a shingled disk may need several times that.")
    mount = mounted(path)
    if mount is not None:
        print(f"It is mounted on {mount.where}: unmount it first.")
    print(f"It can be stopped and run again: ext4lazy convert {_size_option(journal_mib)}{path}")
    return OK


def _advise_of_system(path: Path) -> None:
    """What this computer lacks, and what its disks need."""
    release = os.uname().release
    loaded = "ext4lazy" in FILE_SYSTEMS.read_text().split()
    built = shutil.which("modinfo") and _run(["modinfo", "-k", release, "-n", "ext4lazy"]).returncode == 0
    missing = f"none for Linux {release}; DKMS builds it for kernels of the 6.12 line whose headers are installed"
    say("module", "loaded" if loaded else f"built for Linux {release}" if built else missing)
    with contextlib.suppress(OSError):
        if (SYSFS / SECURE_BOOT).read_bytes()[4:5] == b"\1":
            say("Secure Boot", "on; the module must be signed: mokutil --test-key /var/lib/dkms/mok.pub")
        else:
            say("Secure Boot", "off")
    for disk in disks(path):
        with contextlib.suppress(OSError, ValueError):
            limit = int((disk / "device/timeout").read_text())
            more = f"; a shingled disk may need {TIMEOUT_S} s" if limit < TIMEOUT_S else ""
            say("timeout", f"{limit} s for /dev/{disk.name}{more}")
            if (disk / "queue/rotational").read_text().strip() == "1":
                say("spin-down", f"no disk tells when it stops; hdparm -S 241 /dev/{disk.name} makes that 30 min")


def agreed(volume: Volume, steps: Sequence[Step], journal_mib: int | None = None) -> bool:
    """Asks a person at a terminal, who may have named the wrong device; a script knows what it does."""
    if not sys.stdin.isatty():
        return True
    with contextlib.redirect_stdout(sys.stderr):  # what it prints may go to a file
        return _agreed(volume, steps, journal_mib)


def _agreed(volume: Volume, steps: Sequence[Step], journal_mib: int | None) -> bool:
    print(f"{volume.path}: ext4, {size_text(volume.size)}")
    if stat.S_ISBLK(volume.path.stat().st_mode) and shutil.which("lsblk"):
        disk = run(["lsblk", "-n", "-s", "-o", "MODEL", volume.path], accept=(0, 1, 32)).split("\n")
        say("disk", ", ".join(dict.fromkeys(one.strip() for one in disk if one.strip())) or "of no model")
    for name, key in (("label", "volume name"), ("last mounted on", "Last mounted on"), ("UUID", "UUID")):
        say(name, volume.header.get(key, volume.header.get(f"Filesystem {key}", "?")))
    for step in steps:
        say(step.why, " ".join(step.argv))
    size = _size_option(journal_mib)
    print(f"How long that takes: ext4lazy advise {size}{shlex.quote(str(volume.path))}")
    held, signals.held = signals.held, 0  # a signal ends the question at once, also one that came just before it
    try:
        signals.check()
        print("Convert it? [y/N] ", end="", flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    finally:
        signals.held = held


@contextlib.contextmanager
def awake(why: str) -> Iterator[None]:
    """The computer is not put to sleep and not shut down while this runs, where systemd can be asked for that."""
    if not SYSTEMD.is_dir() or not shutil.which("systemd-inhibit"):
        yield
        return
    # It lasts until `cat` has read all, which is when this program ends, however that ends.
    # A lid that is closed passes a lock on sleep by.
    what = "--what=sleep:idle:shutdown:handle-lid-switch"
    argv = ["systemd-inhibit", what, "--who=ext4lazy", f"--why={why}", "--mode=block", "cat"]
    null = subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=null, stderr=null, process_group=0):
        yield


def convert(path: Path, journal_mib: int | None, *, dry_run: bool, yes: bool = False) -> int:
    """Makes a volume ready for journal_lazy, or says what would be done."""
    device = stat.S_ISBLK(path.stat().st_mode)
    with signals.between_programs(), contextlib.ExitStack() as stack:
        lock = stack.enter_context(only_run(path, "converting"))
        with held(path, "converting"):
            volume = read_volume(path)
            _refuse_foreign(volume)
            if refused := refused_in_superblock(volume):
                clear = f"tune2fs -E mount_opts= {shlex.quote(str(path))}"
                raise Failure(
                    f"{path} has the mount option {', '.join(refused)} in its superblock, and journal_lazy refuses it:"
                    f" expected none of these; {clear} removes all of them."
                )
            refuse_part(path)
            volume.need_journal()
            # Half of a conversion is no matter for e2fsck -f and a yes to all it asks.
            forget = f"debugfs -w -c -R 'feature ^needs_recovery' {shlex.quote(str(path))}"
            before = volume.need_readable_log(f"{forget}, then convert again")
            refuse_read_only(path, "converting")
            journal = _journal_wanted(volume, journal_mib)
            steps = conversion(volume, journal)
            if "needs_recovery" not in volume.features:
                refuse_no_room(volume, steps, journal)
            kept = not steps and _is_kept(volume)
        ready = not steps
        if kept or (dry_run and ready):
            print(f"{path}: nothing to convert.")
            return OK
        if dry_run:
            for step in steps:
                print(f"{step.why}: {' '.join(step.argv)}")
            return OK
        if "needs_recovery" in volume.features:
            print(f"{path}: its log is replayed first, which takes an hour or more if that is long.", flush=True)
        if not (yes or agreed(volume, steps, journal_mib)):
            raise Failure(f"{path} is left as it is.")
        stack.enter_context(awake(f"{path} is being converted"))
        if device and any("-J" in step.argv for step in steps):
            # Better now than when the old journal is gone.
            with loop_over(path):
                pass
        try:
            changed = _carry_out(path, journal_mib, steps, before, lock)
        except (Failure, Stopped) as error:
            had_one = volume.has_journal or volume.number("Mount count") >= UNCHECKED
            gone = _without_journal(path) if had_one else ""
            raise type(error)(f"{str(error).removesuffix('.')}{gone}.") from None
    if ready and not changed:
        print(f"{path}: nothing to convert.")
        return OK
    # Only for types that it knows by itself mount(8) makes a loop device without being asked.
    loop = "" if stat.S_ISBLK(path.stat().st_mode) else "-o loop "
    print(f"{path} is ready: mount {loop}-t ext4lazy {path} DIRECTORY")
    return OK


def _carry_out(
    path: Path, journal_mib: int | None, steps: Sequence[Step], before: JournalSuper | None, lock: int
) -> bool:
    """Whether something was to be changed. After every command the volume is read again: no plan goes by what was."""
    # Also of a volume that seems to be ready: a disk that ignores flushes can have the end of the last check alone.
    check, last = steps[0] if steps else Step("check", ("e2fsck", "-f", "-p", str(path)), (0, 1)), None
    device = stat.S_ISBLK(path.stat().st_mode)
    _check(check, path, [lock])
    need_replayed(path, before, read_volume(path))
    while True:
        # tune2fs does not ask for the device alone; e2fsck does, and so comes when it is free again.
        with held(path, "converting") as keep:
            volume = read_volume(path)
            journal = _journal_wanted(volume, journal_mib)
            steps = conversion(volume, journal)[1:-1]
            if not steps:
                break
            if steps[0] == last:
                raise Failure(f"{' '.join(steps[0].argv)} succeeded and changed nothing.")
            last = steps[0]
            refuse_no_room(volume, steps, journal)
            if device and "-J" in last.argv:
                # This command refuses a device that is held: it gets another device over it.
                with loop_over(path) as (over, descriptor):
                    why = f"{last.why} ({over} is {path})"
                    step = dataclasses.replace(last, why=why, argv=(*last.argv[:-1], str(over)))
                    _do(step, volume, [lock, *keep, descriptor])
            else:
                _do(last, volume, [lock, *keep])
    if last is not None:
        _check(check, path, [lock], converted=True)
    _need_checksums(path)
    return last is not None


def _need_checksums(path: Path) -> None:
    """e2fsck ends well, too, when a full directory got no block for its checksums, and then no kernel reads it."""
    volume = read_volume(path)
    if volume.number("Free blocks") >= volume.directories():
        return
    print(f"little is free, so it is checked once more: e2fsck -f -n {path}", flush=True)
    if _run(["e2fsck", "-f", "-n", path]).returncode:
        raise Failure(
            f"{path} has directories without checksums, as nothing was free for these: mount -t ext4 it, remove some"
            f" files, unmount it, run e2fsck -f {shlex.quote(str(path))}, then convert again."
        )


def _without_journal(path: Path) -> str:
    """A conversion can end between the old journal and the new one, and any kernel would mount that."""
    with path.open("rb") as file:
        file.seek(KIB + COMPATIBLE)
        if file.read(1)[0] & HAS_JOURNAL:
            return ""
    return "; it has no journal now: convert again before you mount it"


def _is_kept(volume: Volume) -> bool:
    with contextlib.suppress(Failure):
        return volume.has_journal and volume.journal_super().state == "kept"
    return False


def _check(check: Step, path: Path, keep: Sequence[int], *, converted: bool = False) -> None:
    """`converted`: all commands of the plan came to their end, and all checksums are there."""
    with held(path, "converting"):
        volume = read_volume(path)
        if _to_be_packed(volume):
            _pack(volume)
    with held(path, "converting", itself=False) as loops:
        _do(check, volume, [*keep, *loops], converted=converted)


# With these e2fsck needs more than the metadata that e2image copies.
_MORE_THAN_METADATA = {"bigalloc", "ea_inode", "encrypt", "orphan_file", "verity"}


def _to_be_packed(volume: Volume) -> bool:
    """tune2fs found directories whose blocks have no room for a checksum, and left them to e2fsck."""
    return (
        volume.header.get("Filesystem state", "").startswith("not clean")
        and "metadata_csum" in volume.features
        and "needs_recovery" not in volume.features
        and volume.has_journal
        and volume.external_journal is None
        and not _MORE_THAN_METADATA & volume.features
    )


def _pack(volume: Volume) -> None:
    """e2fsck writes directories anew block by block, and a power cut in the middle loses names.

    So it does that in a copy of the metadata, and what it changed becomes the log of the volume's journal, which is
    empty: all of it is there as soon as the journal superblock is, and everybody replays it.
    """
    size, path = volume.block_size, volume.path
    print("directories: e2fsck -f -p on a copy of the metadata", flush=True)
    with contextlib.ExitStack() as stack:
        try:
            if volume.journal_super().start != 0:
                return
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ext4lazy-", dir=SCRATCH))
            before, after, logged, replayed = (Path(name) / each for each in ("before", "after", "logged", "replayed"))
            run(["e2image", "-r", path, before])
            _copy(before, after)
            run(["e2fsck", "-f", "-p", after], accept=(0, 1))
            # The superblock is the last check's.
            superblock = KIB // size
            changed = [number for number in differing(before, after, size) if number != superblock]
            if not changed:
                return
            _copy(before, logged)
            _log(changed, size, after, logged)
            written = differing(before, logged, size)
            # debugfs says nothing, or ends well, when its log is not whole: an end that is missing is names that are.
            _copy(logged, replayed)
            run(["e2fsck", "-p", "-E", "journal_only", replayed], accept=(0, 1))
            if {*differing(after, replayed, size)} - {*written, superblock}:
                raise Failure(
                    f"a log of {len(changed)} blocks is not whole in this journal; a power cut now can lose names"
                )
        except (Failure, OSError) as failure:
            # No room for a copy, or e2fsck finds more than -p repairs; the check that follows says what.
            print(f"directories: written in place ({str(failure).rstrip('.')})", flush=True)
            return
        # Until the journal superblock says otherwise the log is empty.
        journal = volume.journal_place()[1]
        log = [(number * size, size) for number in written if number not in (superblock, journal)]
        with path.open("r+b", buffering=0) as target, logged.open("rb") as source:
            for places in (log, [(KIB, KIB)], [(journal * size, size)]):
                for at, length in places:
                    written_whole(target.fileno(), os.pread(source.fileno(), length, at), at)
                os.fsync(target.fileno())


def _copy(source: Path, target: Path) -> None:
    """Of a sparse file. It is not to fill the disk, which may be that of the running system."""
    free = os.statvfs(target.parent)
    if 2 * source.stat().st_blocks * 512 > free.f_bavail * free.f_frsize:
        raise Failure(f"{target.parent} has too little room for copies of the metadata")
    run(["cp", "--sparse=always", source, target])


def written_whole(file: int, data: bytes, at: int) -> None:
    """The kernel may write less than it was given: half a block of a log would end it there."""
    while data:
        count = os.pwrite(file, data, at)
        data, at = data[count:], at + count


def _log(numbers: Sequence[int], size: int, contents: Path, image: Path) -> None:
    """These blocks become the log of an image; nothing is sent home."""
    script = ["jo -c"]
    with contents.open("rb") as source:
        for at in range(0, len(numbers), LOG_AT_ONCE):
            part = numbers[at : at + LOG_AT_ONCE]
            blocks = image.with_suffix(f".{at}")
            with blocks.open("wb") as file:
                for number in part:
                    source.seek(number * size)
                    file.write(source.read(size))
            script.append(f"jw -b {','.join(map(str, part))} {blocks}")
    commands = image.with_suffix(".commands")
    commands.write_text("\n".join([*script, "jc", ""]))
    run(["debugfs", "-w", "-f", commands, image])


def differing(old: Path, new: Path, size: int) -> list[int]:
    """The blocks in which two sparse files differ."""
    found: set[int] = set()
    with old.open("rb") as one, new.open("rb") as other:
        for at in {*_data_in(one.fileno()), *_data_in(other.fileno())}:
            first, second = os.pread(one.fileno(), MIB, at), os.pread(other.fileno(), MIB, at)
            if first != second:
                blocks = range(0, max(len(first), len(second)), size)
                found.update((at + n) // size for n in blocks if first[n : n + size] != second[n : n + size])
    return sorted(found)


def _data_in(file: int) -> Iterator[int]:
    """Where each MiB of a file begins that is not just a hole."""
    at, end = 0, os.fstat(file).st_size
    while at < end:
        try:
            at = os.lseek(file, at, os.SEEK_DATA) & -MIB
        except OSError:
            return
        yield at
        at += MIB


def _refuse_foreign(volume: Volume) -> None:
    """The Hurd keeps other things where Linux keeps a checksum."""
    system = volume.header.get("Filesystem OS type", "")
    if system != "Linux":
        raise Failure(f"{volume.path} is a file system of {system or 'no system'}: expected one of Linux.")
    for feature in sorted({"read-only", "shared_blocks"} & volume.features):
        raise Failure(f"{volume.path} has the feature {feature}, and Linux never writes to it: expected one without.")


def _journal_wanted(volume: Volume, journal_mib: int | None) -> int:
    return journal_mib * MIB if journal_mib else wanted_journal(volume)


def _do(step: Step, volume: Volume, keep: Sequence[int] = (), *, converted: bool = False) -> None:
    print(f"{step.why}: {' '.join(step.argv)}", flush=True)
    progress = ("-C", "0") if step.argv[0] == "e2fsck" and sys.stdout.isatty() else ()
    done = _run((*step.argv[:-1], *progress, step.argv[-1]), show=True, keep=keep)
    if done.returncode in step.accept:
        return
    hint = _after_check(volume, done.returncode, converted=converted) if step.argv[0] == "e2fsck" else ""
    raise Failure(f"{' '.join(step.argv)} ended with status {done.returncode}{hint}.")


def _after_check(volume: Volume, status: int, *, converted: bool) -> str:
    """What the owner is to do when e2fsck did not end well."""
    if status < 0 or status & 32:
        return "; convert again"  # it was killed, or somebody cancelled it
    advice = f"{_by_hand(volume)}, then convert again"
    with contextlib.suppress(Failure):
        volume = read_volume(volume.path)
    recovered = "metadata_csum" in volume.features and "needs_recovery" not in volume.features
    if converted or status & (DAMAGED | FAILED) != DAMAGED or not recovered:
        return f"; {advice}"
    # A disk that ignores flushes can have the flag and lack the checksums after a power cut. e2fsck finds real damage
    # without them just as well, and the next run adds them again.
    remove = (
        "do not run e2fsck -y, which clears each file without a checksum, but"
        f" debugfs -w -c -R 'feature ^metadata_csum' {shlex.quote(str(volume.path))}, then convert again"
    )
    # Such a disk can have the end of the last check, too, and then the mount count says that it is done.
    if volume.number("Mount count") >= UNCHECKED:
        return f"; its conversion was cut off: {remove}"
    return f"; {advice}; if a power cut ended a conversion of it, {remove}"


def _by_hand(volume: Volume) -> str:
    """What e2fsck -p leaves to the owner."""
    path = shlex.quote(str(volume.path))
    if "quota" not in volume.features:
        return f"run e2fsck -f {path}"
    # e2fsck reads the quota, and for it the bitmaps, before it repairs anything.
    anew = f"debugfs -w -c -R 'feature ^quota' {path}; e2fsck -f {path}; tune2fs -O quota {path}"
    return f"run e2fsck -f {path} (if it gives up at the quota: {anew}; quota limits are lost)"


# --- status ---------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What stock debugfs finds in the log."""

    used: int
    copies: int
    live: int
    cold: int


def parse_log(dump: str, journal: JournalSuper) -> Found:
    """Of `logdump -a`. Within a transaction the copies come first, then what it revokes, as recovery has it."""
    newest: dict[int, int] = {}
    tags: list[tuple[int, int]] = []
    revoked: list[int] = []
    copies, head = 0, journal.start
    for line in dump.splitlines():
        if match := re.match(r"\s+FS block (\d+) logged at (?:sequence \d+, )?journal block (\d+)", line):
            tags.append((int(match[1]), int(match[2])))
        elif match := re.match(r"\s+Revoke FS block (\d+)", line):
            revoked.append(int(match[1]))
        elif match := re.match(r"Found expected sequence \d+, type 2 \(commit block\) at block (\d+)", line):
            copies += len(tags)
            newest.update(tags)
            for home in revoked:
                newest.pop(home, None)
            tags, revoked = [], []
            head = int(match[1]) + 1
    room = journal.blocks - journal.first
    used = (head - journal.start) % room
    cold = sum((place - journal.start) % room < used / 2 for place in newest.values())
    return Found(used, copies, len(newest), cold)


WARNING = (
    "Programs that do not replay the log see metadata as it was before: e2fsck -n, dumpe2fs, debugfs, boot loaders,\n"
    "mount -o noload. Copies by dd, partclone, e2image or dump lack files; zerofree and resize2fs -f destroy files.\n"
    "Before any of these: ext4lazy drain"
)


def log_state(mount: Mount | None, volume: Volume) -> str:
    if mount is not None:
        return "stock" if statistics_of(mount) is None else "in use"
    return volume.journal_super().state if volume.has_journal else "none"


def status(path: Path, *, scan: bool, as_json: bool, short: bool) -> int:
    mount = mounted(path)
    volume = read_volume(path)
    if short:
        print(log_state(mount, volume))
        return OK
    facts: dict[str, object] = {"device": str(path), "size_bytes": volume.size}
    if mount is not None:
        facts |= {"mounted_on": str(mount.directory), "type": mount.kind}
        said = statistics_of(mount)
        if said is None:
            facts |= {"log": "stock"}
        else:
            facts |= {"log": "in use", **said}
            live, used, whole = (int(said[name]) for name in ("live_blocks", "log_used", "log_blocks"))
            _estimate(facts, volume, used, live, whole)
    elif not volume.has_journal:
        facts |= {"log": "none"}
    else:
        journal = volume.journal_super()
        facts |= {"log": journal.state, "log_blocks": journal.blocks - journal.first, "journal_error": journal.error}
        if journal.state != "empty":
            # debugfs 1.47 takes the tags of a log on another device for longer than they are, and counts nonsense.
            if scan and volume.external_journal is None:
                log = parse_log(run(["debugfs", "-R", "logdump -a", path]), journal)
                facts |= {"log_used": log.used, "copies": log.copies, "live_blocks": log.live, "cold_blocks": log.cold}
                _estimate(facts, volume, log.used, log.live, journal.blocks - journal.first)
            else:
                most = journal.blocks - journal.first
                speed = measure(path, volume.size)
                facts |= {"most_blocks": most, "replay_s": round(replay_s(most * volume.block_size, most, speed), 1)}
    if as_json:
        print(json.dumps(facts))
        return OK
    _print_status(path, volume, facts)
    return OK


def _estimate(facts: dict[str, object], volume: Volume, used: int, live: int, whole: int) -> None:
    speed = measure(volume.path, volume.size)
    facts["replay_s"] = round(replay_s(used * volume.block_size, live, speed), 1)
    facts["log_share"] = round(used / whole, 3)
    facts["live_share"] = round(live / used, 3) if used else 0.0


_STATES = {
    "none": "there is no journal",
    "empty": "empty; the volume is plain ext4",
    "kept": "kept by journal_lazy; everybody else replays it",
    "stock": "that of stock ext4, without journal_lazy",
    "in use": "in use by journal_lazy",
}


def _print_status(path: Path, volume: Volume, facts: dict[str, object]) -> None:
    where = (
        f"mounted on {shown(str(facts['mounted_on']))} as {facts['type']}" if "mounted_on" in facts else "not mounted"
    )
    print(f"{path}: ext4, {size_text(volume.size)}, {where}")
    say("log", _STATES[str(facts["log"])])
    if facts.get("journal_error"):
        say("error", f"the journal was aborted with error {facts['journal_error']}; run e2fsck")
    if "log_used" in facts:
        share = f"{float(str(facts['log_share'])):.0%}"
        whole = int(str(facts["log_blocks"])) * volume.block_size
        say("used", f"{share} of {size_text(whole)}, from the oldest block that is needed to the newest")
        say("live", f"{facts['live_blocks']} blocks, {float(str(facts['live_share'])):.0%} of what is used")
    elif "most_blocks" in facts:
        whole = int(str(facts["most_blocks"])) * volume.block_size
        apart = volume.external_journal is not None
        more = "mounted, the kernel says how much" if apart else "--scan reads the log and says how much"
        say("used", f"at most {size_text(whole)}; {more}")
    if "cold_blocks" in facts:
        say("cold", f"{facts['cold_blocks']} of them in the older half of it")
    if "relogged" in facts:
        say("cleaner", f"{facts.get('relogged', '?')} blocks logged again, "
            f"{facts.get('swept', '?')} sent home, {facts.get('emergency', '?')} because the log was full")  # fmt: skip
        say("memory", f"{size_text(float(str(facts.get('memory_bytes', 0))))}")
    if "replay_s" in facts:
        most = "at most " if "most_blocks" in facts else ""
        say("a stock replay takes", f"{most}about {time_text(float(str(facts['replay_s'])))}, more on a shingled disk")
    if facts["log"] in ("kept", "in use"):
        print(WARNING)


# --- drain ----------------------------------------------------------------------


def drain(path: Path) -> int:
    """Everything home, the log empty: plain ext4 for every program."""
    mount = mounted(path)
    if mount is not None:
        return _drain_mounted(path, mount)
    with only_run(path, "draining") as lock:
        return _drain_unmounted(path, lock)


def _drain_unmounted(path: Path, lock: int) -> int:
    refuse_in_use(path, "draining")
    volume = read_volume(path)
    refuse_part(path)
    if not volume.has_journal or ("needs_recovery" not in volume.features and volume.journal_super().start == 0):
        _need_bitmaps(volume)
        print(f"{path}: the log is empty, there is nothing to drain.")
        if "orphan_present" in volume.features or "First orphan inode" in volume.header:
            # e2fsck frees them after the replay; was it cut off there?
            print(f"Files that were deleted while they were open are perhaps half freed: {_by_hand(volume)}")
            return DAMAGED
        return _say_errors(volume)
    refuse_read_only(path, "draining")
    before = volume.need_readable_log(_by_hand(volume))
    try:
        with awake(f"{path} is being drained"), held(path, "draining", itself=False) as loops:
            run(["e2fsck", "-p", "-E", "journal_only", path], accept=(0, 1), show=True, keep=[lock, *loops])
    except Failure as failure:
        raise Failure(f"{str(failure).rstrip('.')}; {_by_hand(volume)}.") from None
    after = read_volume(path)
    if "needs_recovery" in after.features or (after.external_journal is None and after.journal_super().start != 0):
        raise Failure(f"{path}: e2fsck left the log as it was; {_by_hand(volume)}.")
    _need_bitmaps(after)
    need_replayed(path, before, after)
    print(f"{path} is plain ext4.")
    # The superblock that came out of the log may be older than the error.
    return _say_errors(volume)


def _say_errors(volume: Volume) -> int:
    if "errors" not in volume.header.get("Filesystem state", ""):
        return OK
    print(f"An error was recorded in it: {_by_hand(volume)}")
    return DAMAGED


def _need_bitmaps(volume: Volume) -> None:
    """After a replay e2fsck frees inodes that were deleted while open, and a power cut can leave half of that."""
    said = run(["debugfs", "-R", "show_super_stats -h", volume.path])
    if "Block count:" in said:
        return
    raise Failure(f"{volume.path}: the log is empty, and the bitmaps do not fit their checksums; {_by_hand(volume)}.")


def _drain_mounted(path: Path, mount: Mount) -> int:
    before = statistics_of(mount)
    if before is None:
        options = mount.options.split(",")
        if "journal_lazy" in options or "norecovery" in options:
            raise Failure(f"{path} is mounted on {mount.where} by a kernel that cannot drain it: unmount it first.")
        print(f"{path} is mounted on {mount.where} without journal_lazy: there is nothing to drain.")
        return OK
    with contextlib.suppress(OSError):
        if mount.kind == "ext4lazy" and (SYSFS / "module/ext4lazy/version").read_text().startswith("0.1"):
            raise Failure(
                f"{path} is mounted on {mount.where} by version 0.1 of the module, which can write old metadata over"
                " files: do not drain it; NEWS.Debian of ext4lazy-dkms says what to do."
            )
    if mount.read_only:
        # To remount it would make the file system read-only where only this mount is, or the other way round.
        raise Failure(f"{path} is mounted on {mount.where} read-only: expected a mount that can be written to.")
    directory = os.open(mount.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        device = os.fstat(directory).st_dev
        if f"{os.major(device)}:{os.minor(device)}" != mount.device:
            raise Failure(f"something else is mounted over {path} on {mount.where}: unmount that first.")
        # Else options of /etc/fstab come in that this mount does not have.
        run(["mount", "-i", "--options-source", "mtab", "-o", "remount,journal_lazy_drain", mount.directory])
        with awake(f"{mount.where} is being drained"):
            fcntl.ioctl(directory, IOC_CHECKPOINT, struct.pack("I", 0))
    except OSError as error:
        raise Failure(f"{mount.where}: the kernel did not checkpoint ({error.strerror}).") from None
    finally:
        os.close(directory)
    after = statistics_of(mount) or {}
    print(f"{path}: {before.get('live_blocks')} blocks were in the log, {after.get('live_blocks')} are now.")
    print(f"Unmounting {mount.where} leaves the log empty; until then metadata may come to it again.")
    return OK


# --- due ------------------------------------------------------------------------


class Log:
    """A log that is kept, block by block."""

    def __init__(self, volume: Volume, journal: JournalSuper, file: int) -> None:
        self.size, self.journal, self.file = volume.block_size, journal, file
        external = volume.external_journal is not None
        self.runs = [(0, journal.blocks, 0)] if external else volume.journal_runs()
        self.firsts = [first for first, _, _ in self.runs]

    def block(self, number: int) -> bytes:
        first, _, start = self.runs[bisect.bisect_right(self.firsts, number) - 1]
        return os.pread(self.file, self.size, (start + number - first) * self.size)

    def around(self, number: int) -> int:
        return self.journal.first + (number - self.journal.first) % (self.journal.blocks - self.journal.first)

    def walk(self, at: int, sequence: int) -> tuple[int | None, int]:
        """From the transaction that begins there: the block of the newest copy of the superblock, and the transaction
        that is not there any more. Only the blocks that describe others are read."""
        home = 1 if self.size == KIB else 0
        found, copy = None, None
        for _ in range(self.journal.blocks):
            data = self.block(at)
            magic, kind, of = struct.unpack_from(">3I", data) if len(data) == self.size else (0, 0, 0)
            if magic != JOURNAL_MAGIC or of != sequence:
                break
            if kind == COMMIT:
                found, copy, sequence = copy or found, None, sequence + 1 & 0xFFFFFFFF
            elif kind == DESCRIPTOR:
                tag, count, flags = 12, 0, 0
                while not flags & LAST_TAG and tag + 16 <= self.size - 4:
                    low, flags, high, _ = struct.unpack_from(">4I", data, tag)
                    tag, count = tag + (16 if flags & SAME_UUID else 32), count + 1
                    if high << 32 | low == home:
                        copy = self.around(at + count)
                at += count
            at = self.around(at + 1)
        return found, sequence


@contextlib.contextmanager
def kept_log(volume: Volume, journal: JournalSuper) -> Iterator[Log | None]:
    """None if nobody says where it lies, or its tags are of another kind."""
    with volume.journal_place()[0].open("rb", buffering=0) as file:
        log = Log(volume, journal, file.fileno())
        yield log if log.runs and journal.checksums_v3 else None


def end_of_log(volume: Volume, journal: JournalSuper) -> int:
    """The last transaction that stock recovery would come to, if no block is damaged that only a checksum tells."""
    with kept_log(volume, journal) as log:
        if log is None or not journal.marked:
            return journal.known
        reached = journal.sequence
        with contextlib.suppress(OSError):  # a block that cannot be read
            reached = log.walk(journal.start, journal.sequence)[1]
        return reached - 1 & 0xFFFFFFFF


def superblock_in_log(volume: Volume, journal: JournalSuper) -> bytes | None:
    """The newest copy of the superblock in a log that is kept."""
    with kept_log(volume, journal) as log:
        if log is None:
            return None
        # An unmount logs the superblock last, and its marker says where the log ends.
        place = None
        if journal.end:
            near = (log.walk(log.around(journal.end - back), journal.known)[0] for back in range(3, NEAR))
            place = next((copy for copy in near if copy), None)
        place = place or log.walk(journal.start, journal.sequence)[0]
        offset = 0 if volume.block_size == KIB else KIB
        return None if place is None else log.block(place)[offset : offset + KIB]


def _reason(superblock: bytes) -> str | None:
    """Why a check is due, by a superblock."""
    times, most, _, state = struct.unpack_from("<HhHH", superblock, 0x34)
    last, interval = struct.unpack_from("<2I", superblock, 0x40)
    if state & 3 != 1:
        return "an error is recorded in it" if state & 2 else "it is not clean"
    if times >= UNCHECKED:
        return "its conversion was not checked"
    if 0 < most <= times:
        return f"it was mounted {times} times"
    if interval and last + interval <= time.time():
        return f"a check was due on {time.strftime('%Y-%m-%d', time.localtime(last + interval))}"
    return None


def _loses_its_log(volume: Volume) -> bool:
    """e2fsck, and a mount, discard a log or the end of one that they cannot read, and say that all is well."""
    try:
        volume.need_readable_log(_by_hand(volume))
    except Failure as failure:
        sys.stderr.write(f"ext4lazy: {shown(str(failure))}\n")
        return True
    return False


def due(path: Path, log: bool) -> int:
    """One line for fsck.ext4lazy: plain, kept, or "due:" and why e2fsck should have a volume whose log is kept.

    With `log`: whether all of the log can be replayed. DAMAGED: it cannot, and e2fsck or a mount would discard it.
    """
    volume = read_volume(path)
    if log:
        return DAMAGED if mounted(path) is None and _loses_its_log(volume) else OK
    try:
        journal = volume.journal_super() if volume.has_journal else None
    except Failure:
        if _loses_its_log(volume):
            return DAMAGED
        raise
    if journal is None or journal.state != "kept":
        print("plain")
        return OK
    with path.open("rb") as file:
        file.seek(KIB)
        home = file.read(KIB)
    why = "its journal was aborted" if journal.error else _reason(home)
    if why is None:
        newest = superblock_in_log(volume, journal)
        why = _reason(newest) if newest else None
    print(f"due: {why}" if why else "kept")
    return OK


# --- check ----------------------------------------------------------------------


def check(path: Path, scratch: Path) -> int:
    """Replays and checks a copy; the volume itself is only read."""
    mount = mounted(path)
    if mount is not None:
        return _scrub(path, mount)
    with only_run(path, "checking", reads=True):
        return _check_copy(path, scratch)


def _check_copy(path: Path, scratch: Path) -> int:
    refuse_in_use(path, "checking")
    volume = read_volume(path)
    volume.need_journal()
    before = volume.need_readable_log(_by_hand(volume))
    with signals.between_programs(), _copy_of(volume, scratch) as copy:
        journal = volume.has_journal and volume.external_journal is None
        if journal and volume.journal_super().start != 0:
            print(f"replaying the log in a copy of {path}", flush=True)
            said = run(["e2fsck", "-p", "-E", "journal_only", copy], accept=(OK, MENDED))
            need_replayed(path, before, read_volume(copy), MOUNT_IT)
            if re.search("FIXED|CLEARED", said):
                # Behind the replay it has checked everything, and has mended what the next check would find.
                return _say_damage(path, copy, said)
        elif volume.external_journal is not None and "needs_recovery" in volume.features:
            raise Failure(f"{path} has its log on another device: drain it, then run e2fsck -f.")
        # A snapshot has the volume's UUID and label, and what is written to it is lost: nobody shall mount it.
        with held(copy, "checking a copy"):
            done = _run(["e2fsck", "-f", "-n", copy])
        if done.returncode == 0:
            print(f"{path}: no errors, with its log replayed.")
            return OK
        if done.returncode & ~DAMAGED:
            sys.stdout.write(done.stdout.replace(str(copy), str(path)))
            raise Failure(f"e2fsck -f -n ended with status {done.returncode}.")
        return _say_damage(path, copy, done.stdout)


def _say_damage(path: Path, copy: Path, said: str) -> int:
    sys.stdout.write(said.replace(str(copy), str(path)))
    print(f"{path}: errors, with its log replayed; e2fsck -f replays it for good and repairs them.")
    return DAMAGED


def _scrub(path: Path, mount: Mount) -> int:
    """A log in use is the kernel's to check, if it can."""
    folder = _statistics_folder(mount)
    if folder is None or not (folder / "scrub").exists():
        raise Failure(f"{path} is mounted on {mount.where}: checking needs it unmounted (this kernel offers no scrub).")
    print(f"{mount.where}: the kernel reads its whole log", flush=True)
    (folder / "scrub").write_text("1\n")
    damaged = int((statistics_of(mount) or {}).get("damaged_blocks", 0))
    if not damaged:
        print(f"{mount.where}: no damage in the log.")
        return OK
    print(
        f"{mount.where}: {damaged} damaged blocks of the log since it was mounted. The kernel's messages name them,"
        " and say where e2fsck is needed."
    )
    return DAMAGED


@contextlib.contextmanager
def _copy_of(volume: Volume, scratch: Path) -> Iterator[Path]:
    """A copy that may be written: of an image a file, of a device a snapshot that only holds what changes."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ext4lazy-", dir=scratch) as name:
        folder = Path(name)
        if stat.S_ISBLK(volume.path.stat().st_mode):
            with _snapshot(volume, folder) as device:
                yield device
            return
        needed, free = volume.path.stat().st_blocks * 512, shutil.disk_usage(folder).free
        target = folder / "copy.img"
        try:
            run(["cp", "--reflink=always", volume.path, target])
        except Failure:
            if needed > free:
                raise Failure(
                    f"{scratch} has {size_text(free)} left: expected {size_text(needed)} for a copy of {volume.path};"
                    " --scratch names another folder."
                ) from None
            run(["cp", "--reflink=auto", "--sparse=always", volume.path, target])
        target.chmod(0o600)
        yield target


@contextlib.contextmanager
def _snapshot(volume: Volume, folder: Path) -> Iterator[Path]:
    """A device-mapper snapshot: reads come from the volume, writes go to a file."""
    if os.geteuid() != 0:
        raise Failure(f"checking {volume.path} needs root, for a snapshot of the device.")
    # What a replay writes is at most the journal; the check itself writes nothing.
    room = journal_bytes(volume) * 5 // 4 + 64 * MIB
    free = shutil.disk_usage(folder).free
    if free < room:
        raise Failure(
            f"{folder.parent} has {size_text(free)} left: expected {size_text(room)} for what a replay writes;"
            " --scratch names another folder."
        )
    changes = folder / "changes"
    with changes.open("wb") as file:
        file.truncate(room)
    sectors = int(run(["blockdev", "--getsz", volume.path]))
    name = folder.name
    with contextlib.ExitStack() as stack:
        loop = run(["losetup", "--find", "--show", changes], whole=True).strip()
        stack.callback(run, ["losetup", "--detach", loop], accept=(0, 1), whole=True)  # 1: it is gone already
        changes.unlink()
        table = f"0 {sectors} snapshot {volume.path.resolve()} {loop} N 8"
        try:
            run(["dmsetup", "create", name, "--table", table], whole=True)
        except Failure as failure:
            raise Failure(
                f"the kernel makes no snapshot of {volume.path} ({str(failure).rstrip('.')}):"
                " expected device-mapper with the target snapshot, and dmsetup."
            ) from None
        stack.callback(run, ["dmsetup", "remove", "--retry", name], whole=True)
        run(["dmsetup", "mknodes", name], whole=True)
        device = Path("/dev/mapper") / name
        # If this process is killed, the kernel removes both: a snapshot that stayed would keep the volume from a mount.
        stack.enter_context(device.open("rb"))
        run(["losetup", "--detach", loop], whole=True)
        run(["dmsetup", "remove", "--deferred", name], whole=True)
        stack.callback(run, ["dmsetup", "message", name, "0", "@cancel_deferred_remove"], whole=True)
        yield device


# --- tune -------------------------------------------------------------------------

# What each ext4 has in /sys/fs/ext4. The search for a free inode begins at the first, so that new files and directories
# are not spread over the disk. The data of files up to 4 GiB go to one preallocation of 128 MiB for each processor.
TUNED = {"inode_goal": 12, "mb_stream_req": 1 << 20, "mb_group_prealloc": 32768}
# As the kernel sets them at each mount (ext4_mb_init()). The last is in clusters; LEAST of them, if they are large.
UNTUNED = {"inode_goal": 0, "mb_stream_req": 16, "mb_group_prealloc": 512}
LEAST = 32


def tune(path: Path, *, undo: bool, now: bool, at: Path | None = None) -> int:
    """Tells a mounted ext4 to keep new files together, or to place them as it does by itself.

    `at`: the one of its mount points that was named.
    """
    mount = mounted(path)
    if mount is None:
        raise Failure(f"{path} is not mounted: expected a mounted ext4, because a mount forgets the settings.")
    name = (SYSFS / "dev/block" / mount.device).resolve().name
    folders = [SYSFS / "fs" / kind / name for kind in ("ext4lazy", "ext4")]
    folder = next((folder for folder in folders if (folder / "inode_goal").exists()), None)
    if folder is None:
        raise Failure(f"{path} is mounted on {mount.where} as {mount.kind}: expected ext4.")
    settings = UNTUNED if undo else TUNED
    # A preallocation is at most a block group, in clusters.
    volume, at_once = read_volume(path), settings["mb_group_prealloc"]
    if "bigalloc" in volume.features:
        group = volume.number("Clusters per group")
        if undo:
            at_once = max(at_once * volume.block_size // volume.number("Cluster size"), LEAST)
    else:
        group = volume.number("Blocks per group")
    _set(folder, settings | {"mb_group_prealloc": min(at_once, group)})
    print(f"{mount.where}: new files are {'placed as ext4 does by itself' if undo else 'kept together from now on'}.")
    if not now:
        print(_keep(at or mount.directory, undo=undo))
    return OK


def untune(directory: Path) -> int:
    """Takes `tune` back of a directory, whatever is mounted there by now."""
    at = directory.resolve()
    print(_keep(at, undo=True))
    kinds = [mount.kind for mount in _mounts() if mount.directory == at]
    return tune(find_device(str(at)), undo=True, now=True) if kinds and kinds[-1] in ("ext4", "ext4lazy") else OK


def _set(folder: Path, settings: dict[str, int]) -> None:
    """Writes settings of a mount; if one is refused, none is changed."""
    before = {name: (folder / name).read_text() for name in settings}
    try:
        for name, value in settings.items():
            (folder / name).write_text(f"{value}\n")
    except OSError:
        for name, text in before.items():
            with contextlib.suppress(OSError):
                (folder / name).write_text(text)
        raise


def _keep(directory: Path, *, undo: bool) -> str:
    """Has systemd set them again whenever a volume is mounted there, or no longer; says what will be."""
    if not SYSTEMD.is_dir():
        return f"Without systemd nobody sets this again after a mount{'' if undo else ': run it then'}."
    unit = run(["systemd-escape", "--path", directory]).strip()
    addition = UNITS / f"{unit}.mount.d/ext4lazy-tune.conf"
    if undo:
        addition.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            addition.parent.rmdir()
    else:
        addition.parent.mkdir(parents=True, exist_ok=True)
        # Wants= would be for mounts that systemd itself begins; this is for one by hand, too.
        addition.write_text(
            f"# By `ext4lazy tune`; `--undo` removes it.\n[Unit]\nUpholds=ext4lazy-tune@{unit}.service\n"
        )
    run(["systemctl", "daemon-reload"])
    what = "sets nothing any more" if undo else "sets this again"
    return f"systemd {what} when a volume is mounted on {shown(str(directory))} again."


# --- The command line -------------------------------------------------------------


def sized(text: str, asked: argparse.Namespace) -> str:
    """What says "again" to the owner names the size that the journal was to have."""
    if not getattr(asked, "journal_mib", None):
        return text
    return re.sub(r"(convert|run) again", rf"\1 again with --journal-mib {asked.journal_mib}", text)


def _size_option(journal_mib: int | None) -> str:
    return f"--journal-mib {journal_mib} " if journal_mib else ""


def _fill_standard_streams() -> None:
    """A program that is started without one opens the volume as that, and what it prints is written there."""
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(null, True)
    os.close(null)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))
    for stream in (sys.stdout, sys.stderr):
        # Names of files are bytes.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")


def main(arguments: Sequence[str] | None = None) -> int:
    _fill_standard_streams()
    parser = argparse.ArgumentParser(
        prog="ext4lazy", description="Looks after ext4 volumes that are mounted with journal_lazy."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("device", metavar="DEVICE", help="a block device, an image file, UUID=... or a mount point")
        return made

    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is no size in MiB: expected a number above 0")
        return int(text)

    size = {"type": positive, "metavar": "MIB", "help": "the journal's size in MiB (by default 1/800 of the volume, "
            "256 MiB to 10 GiB)"}  # fmt: skip
    command("advise", "Say what journal_lazy needs that the volume lacks, and how long converting takes. Only reads.") \
        .add_argument("--journal-mib", **size)  # type: ignore[arg-type]  # fmt: skip
    changing = command(
        "convert", "Make a volume ready for journal_lazy. It must not be mounted; run again, it goes on."
    )
    changing.add_argument("--journal-mib", **size)  # type: ignore[arg-type]
    changing.add_argument("-n", "--dry-run", action="store_true", help="only say what would be done")
    changing.add_argument("-y", "--yes", action="store_true", help="do not ask; without a terminal it never asks")
    showing = command("status", "Show the log: how much is used, what of it is needed, how long a replay takes.")
    showing.add_argument("--scan", action="store_true", help="read the log of a volume that is not mounted")
    showing.add_argument("--json", action="store_true", help="one JSON object")
    showing.add_argument("--short", action="store_true", help="one word: none, empty, kept, stock or in use")
    command("drain", "Send everything home and leave the log empty: plain ext4 for every program.")
    checking = command("check", "Replay the log in a copy and run e2fsck on it. The volume is only read.")
    checking.add_argument("--scratch", type=Path, default=SCRATCH, metavar="FOLDER", help="where the copy goes")
    tuning = command(
        "tune", "Have a mounted ext4 keep new files together: no module is needed. Now and after each mount."
    )
    tuning.add_argument("--undo", action="store_true", help="place new files as ext4 does by itself")
    tuning.add_argument("--now", action="store_true", help="until the next unmount only")
    # Its options are its own: tidy.py.
    commands.add_parser("tidy", add_help=False, help="Write data again, in order, on a volume with data_relocate.")
    command("due", "Say whether e2fsck is due at boot: plain, kept, or due and why. For fsck.ext4lazy.") \
        .add_argument("--log", action="store_true", help="only say whether the log can be replayed")  # fmt: skip
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["tidy"]:
        return _tidy(given[1:])
    asked = parser.parse_args(given)
    try:
        status = _run_command(asked)
        sys.stdout.flush()
        return status
    except Stopped as stopped:
        more = "; run again, it goes on" if asked.command in ("convert", "drain") else ""
        more = f"{more}{str(stopped).removesuffix('.')}"
        sys.stderr.write(f"ext4lazy: stopped by {signal.Signals(signals.got).name}{sized(more, asked)}.\n")
        return 128 + signals.got
    except Failure as failure:
        sys.stderr.write(f"ext4lazy: {shown(sized(str(failure), asked))}\n")
    except PermissionError as error:
        sys.stderr.write(f"ext4lazy: {error.filename or asked.device} may not be opened: expected root.\n")
    except OSError as error:
        output = error.filename is None and error.errno in (errno.EPIPE, errno.ENOSPC)
        where = "what it prints cannot be written" if output else error.filename or asked.device
        sys.stderr.write(f"ext4lazy: {where}: {error.strerror}.\n")
        if output:
            # What is left in the buffer has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return FAILED


def _tidy(arguments: list[str]) -> int:
    """A program of its own, which is killed without harm at any instant: its signals are not ours."""
    for folder in (Path(__file__).resolve().parent, Path("/usr/libexec/ext4lazy")):
        if (program := folder / "tidy.py").exists():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.execv(sys.executable, [sys.executable, "-I", str(program), *arguments])
    sys.stderr.write("ext4lazy: /usr/libexec/ext4lazy/tidy.py is missing: the package ext4lazy-tools has it.\n")
    return 8


def _run_command(asked: argparse.Namespace) -> int:
    if asked.command == "tune" and asked.undo and not asked.now and Path(asked.device).is_dir():
        return untune(Path(asked.device))
    directory = Path(asked.device).resolve() if Path(asked.device).is_dir() else None
    asked.device = find_device(asked.device)
    if asked.command == "advise":
        return advise(asked.device, asked.journal_mib)
    if asked.command == "convert":
        return convert(asked.device, asked.journal_mib, dry_run=asked.dry_run, yes=asked.yes)
    if asked.command == "status":
        return status(asked.device, scan=asked.scan, as_json=asked.json, short=asked.short)
    if asked.command == "drain":
        return drain(asked.device)
    if asked.command == "due":
        return due(asked.device, asked.log)
    if asked.command == "tune":
        return tune(asked.device, undo=asked.undo, now=asked.now, at=directory)
    return check(asked.device, asked.scratch)


if __name__ == "__main__":
    signals.catch()
    sys.exit(main())

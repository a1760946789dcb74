# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes zonefs on a zoned block device; runs inside the machine, because no package of Debian 12 has mkzonefs.

As zonefs-tools' program of that name does without options: every zone is reset, and the first one gets the
superblock (struct zonefs_super, fs/zonefs/zonefs.h of the kernel). A first zone that is sequential is then
finished, so that nothing can follow.

usage: mkzonefs.py DEVICE
"""

import array
import fcntl
import mmap
import os
import stat
import struct
import sys
import uuid
import zlib
from pathlib import Path

SUPER_BYTES = 4096
SECTOR_BYTES = 512
MAGIC = 0x5A4F4653  # "ZOFS"
UUID = uuid.UUID("5b1e6e00-0000-4000-8000-000000000001")
PERMISSIONS = 0o640

# linux/blkzoned.h and linux/fs.h
BLKREPORTZONE, BLKRESETZONE, BLKFINISHZONE = 0xC0101282, 0x40101283, 0x40101288
BLKGETSIZE64 = 0x80081272
CONVENTIONAL = 1


def superblock() -> bytes:
    """Little-endian: magic, CRC, label, UUID, features, user, group, permissions; zeros to the end of the block."""
    body = struct.pack("<64s16sQIII", b"", UUID.bytes, 0, 0, 0, PERMISSIONS).ljust(SUPER_BYTES - 8, b"\0")
    # The kernel's crc32_le(~0, ...) over the block with its CRC taken as 0, without the last inversion.
    crc = zlib.crc32(struct.pack("<II", MAGIC, 0) + body) ^ 0xFFFFFFFF
    return struct.pack("<II", MAGIC, crc) + body


def first_zone(device: int) -> tuple[int, int]:
    """Length in sectors and type of the first zone."""
    report = array.array("B", struct.pack("=QII", 0, 1, 0) + bytes(64))
    fcntl.ioctl(device, BLKREPORTZONE, report)
    _, length, _, kind = struct.unpack_from("=QQQB", report, 16)
    return length, kind


def main(path: str) -> None:
    if Path("/sys/block", Path(path).name, "queue/zoned").read_text().strip() == "none":
        sys.exit(f"{path} is not a zoned block device")
    device = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_EXCL)
    assert stat.S_ISBLK(os.fstat(device).st_mode)
    size = array.array("Q", [0])
    fcntl.ioctl(device, BLKGETSIZE64, size)
    length, kind = first_zone(device)
    # Conventional zones cannot be reset, except with all others.
    fcntl.ioctl(device, BLKRESETZONE, struct.pack("=QQ", 0, size[0] // SECTOR_BYTES))
    block = mmap.mmap(-1, SUPER_BYTES)  # direct writes come from whole pages
    block.write(superblock())
    os.pwrite(device, block, 0)
    if kind != CONVENTIONAL:
        fcntl.ioctl(device, BLKFINISHZONE, struct.pack("=QQ", 0, length))
    os.fsync(device)


if __name__ == "__main__":
    main(sys.argv[1])

# SPDX-License-Identifier: MIT OR Apache-2.0
"""data_stream: no request looks through a whole disk for a stretch (ext4_stream_next() of mballoc.c)."""

from dataclasses import replace

import pytest

from harness import Bench
from kernel.test_data_in_order import RELOCATE, SMR, boot, python

pytestmark = pytest.mark.machine

# As many groups as a disk of 256 GB has, and more than a request looks into.
GROUPS, GROUP_KIB = 2048, 256
MANY_GROUPS = replace(
    SMR, name="ext4-smr-many-groups", min_capacity_bytes=GROUPS * GROUP_KIB << 10,
    mkfs=("/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-g", "256", "-N", "1536", "-m", "0", "-J", "size=4"),
)  # fmt: skip
OPTIONS = f"{RELOCATE},data_stretch_kb=64"

# The disk is full but for two runs of each group, a little shorter than a stretch, and for one stretch, which the
# stream of the next mount meets last: that begins where the file begins.
FILL = f"""
import ctypes, fcntl, os, struct
file = os.open('/mnt/full', os.O_RDWR | os.O_CREAT)
end = 0
for kib in (1024, 64):
    try:
        while os.pwrite(file, bytes(kib << 10), end << 10) == kib << 10:
            end += kib
    except OSError:
        pass
os.fsync(file)
def place(kib):
    return struct.unpack('i', fcntl.ioctl(file, 1, struct.pack('i', kib)))[0]
def punch(kib, length):
    assert ctypes.CDLL(None).fallocate(file, 3, ctypes.c_long(kib << 10), ctypes.c_long(length << 10)) == 0
first = place(0)
last = max((kib for kib in range(0, end - 511, 512) if place(kib + 511) == place(kib) + 511),
           key=lambda kib: (place(kib) - first) % {GROUPS * GROUP_KIB})
for kib in range(0, end, 128):
    punch(kib, 62)
punch(last, 512)
"""
# Of each block that is overwritten: the blocks that were read for it, and whether it has moved.
OVERWRITE = """
import os
file = os.open('/mnt/full', os.O_RDWR)
def number(path):
    return int(open(path).read().split()[0])
def overwrite(kib):
    reads, moved = number('/sys/block/shd0/stat'), number('/sys/fs/ext4/shd0/data_relocated_blocks')
    os.pwrite(file, b'data' * 1024, kib << 10)
    os.fsync(file)
    print(number('/sys/block/shd0/stat') - reads, number('/sys/fs/ext4/shd0/data_relocated_blocks') - moved)
# Reads all bitmaps.
open('/proc/fs/ext4/shd0/mb_groups').read()
overwrite(100)
open('/proc/sys/vm/drop_caches', 'w').write('1')
for number_of in range(1, 30):
    overwrite(1024 * number_of + 100)
"""


def in_vain(bench: Bench) -> None:
    formatted = bench.formatted(MANY_GROUPS, capacity_bytes=GROUPS * GROUP_KIB << 10, seed=23)
    steps = [
        *bench.mounted(formatted, python(FILL, "fill"), options=OPTIONS),
        *bench.mounted(formatted, python(OVERWRITE), options=OPTIONS),
    ]
    booted = boot(bench, steps, formatted.file, save=True)
    reads, moved = zip(*(map(int, line.split()) for line in booted.text("python.txt").splitlines()), strict=True)
    found = next((at for at, blocks in enumerate(moved) if blocks), len(moved))
    # The first looks into 1,024 bitmaps in memory, each other one reads those of some 60 groups.
    assert 10 < found < 20, f"moved: {moved}"
    assert max(reads) < 40, f"read: {reads}"
    bench.assert_clean(booted.saved_drive, recover=True)


def test_a_search_ends_before_the_disk_does(bench: Bench) -> None:
    in_vain(bench)

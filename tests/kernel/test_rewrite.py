# SPDX-License-Identifier: MIT OR Apache-2.0
"""EXT4_IOC_REWRITE, with which `ext4lazy tidy` has blocks written again: of whom they are, and which of them move."""

import pytest

from harness import Bench
from kernel import stress
from kernel.test_data_in_order import BOTH, CAPACITY_BYTES, RELOCATE, boot, formatted_for, python
from shingle.machine import job

pytestmark = pytest.mark.machine

REWRITE = """
import fcntl, os, struct, threading, time
def rewrite(file, size):
    fcntl.ioctl(file, 0x4010662F, struct.pack('<QQ', 0, size))
def moved():
    return int(open('/sys/fs/ext4/shd0/data_relocated_blocks').read())
"""
# A file that is open for reading only does not know whose it is.
OPENED_MEANWHILE = """
file = os.open('/mnt/file', os.O_RDONLY)
rewrite(file, 1 << 20)
writing = threading.Thread(target=os.sync)
writing.start()
time.sleep(0.3)
os.open('/mnt/file', os.O_RDWR)
writing.join()
print(moved())
"""
WRITE = "import os; file = os.open('/mnt/file', os.O_RDWR | os.O_CREAT); os.pwrite(file, b'old.' * 262144, 0)"


def charged(bench: Bench) -> None:
    """Its owner opens the file for writing when the new blocks are taken, and the old ones not yet free. There mutants
    wait for a second."""
    made = ["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-O", "quota", "-J", "size=16", job.DEVICE]
    steps = [
        job.run(made), job.mount("ext4", f"usrquota,{RELOCATE}"), python(WRITE), job.umount(),
        job.mount("ext4", f"usrquota,{RELOCATE}"), python(REWRITE + OPENED_MEANWHILE), job.umount(),
    ]  # fmt: skip
    empty = bench.empty(capacity_bytes=CAPACITY_BYTES)
    booted = boot(bench, steps, empty, save=True, kernel_arguments=("jbd2.provoke=slow-exchange",))
    assert int(booted.text("python.txt")) == 256
    bench.assert_clean(booted.saved_drive, recover=True)


def test_what_moves_is_charged_to_its_owner(sanitizing_bench: Bench) -> None:
    charged(sanitizing_bench)


# Every second block first: extents of one block, so many that they fill several leaves. Then the blocks between.
COUNT = 340 * 4
IN_LEAVES = f"""
file = os.open('/mnt/file', os.O_RDWR | os.O_CREAT)
for number in (*range(0, 2 * {COUNT}, 2), *range(1, 2 * {COUNT}, 2)):
    os.pwrite(file, b'%04d' % number * 1024, number << 12)
    if number >= 2 * {COUNT} - 2:
        os.fsync(file)
for turn in range(3):
    rewrite(file, {COUNT} << 13)
    os.fsync(file)
    print(moved())
"""
COMPARE = f"""
data = open('/mnt/file', 'rb').read()
assert data == b''.join(b'%04d' % number * 1024 for number in range(2 * {COUNT})), 'other data'
"""


def across_leaves(bench: Bench) -> None:
    """What lies in one piece on both sides of the end of a leaf of the tree moves, too."""
    formatted = formatted_for(bench)
    steps = [
        *bench.mounted(formatted, python(REWRITE + IN_LEAVES), options=f"{BOTH},data_stretch_kb=65536"),
        *bench.mounted(formatted, python(COMPARE, "compare"), options=BOTH),
    ]
    booted = boot(bench, steps, formatted.file, save=True)
    first, second, third = map(int, booted.text("python.txt").split())
    assert first == second - first == third - second == 2 * COUNT, f"moved {first}, {second} and {third} blocks"
    stress.assert_no_complaint(booted)
    bench.assert_clean(booted.saved_drive, recover=True)


def test_a_run_across_the_end_of_a_leaf_moves(bench: Bench) -> None:
    across_leaves(bench)

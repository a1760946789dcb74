# SPDX-License-Identifier: MIT OR Apache-2.0
"""Data that cannot be written, in ext4 as it is: what others deleted is not shown, and nothing but the data is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel.test_features import CAPACITY_BYTES
from shingle.catalogue import faults
from shingle.machine import job
from shingle.machine.console import Trouble

pytestmark = pytest.mark.machine

MKFS = job.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", job.DEVICE, "256M"])
PLACE = """
import fcntl, struct
def place(file, number):
    return struct.unpack('i', fcntl.ioctl(file, 1, struct.pack('i', number)))[0]
"""


def python(text: str) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", text], stdout="said.txt")


def mounted(text: str, options: str = "") -> list[job.Step]:
    return [job.mount("ext4", options), python(text), job.umount()]


def with_bad_blocks(bench: Bench, drive: Path, first: int, blocks: int, *texts: str) -> Booted:
    """These programs, each in a mount of its own, on a drive that refuses to write some blocks."""
    source = bench.folder / "plan.toml"
    source.write_text(f"[[failed_write]]\nfirst_sector = {first * 8}\nsectors = {blocks * 8}\n")
    steps = [step for text in texts for step in mounted(text, "errors=remount-ro")]
    booted = bench.boot(
        steps, drive=drive, faults=faults.compiled(bench.built.crates, source, bench.folder / "plan"), save=True,
        expected=tuple(Trouble), kernel_arguments=("jbd2.provoke=slow-put",),
    )  # fmt: skip
    assert "I/O error, dev shd0" in booted.outcome.console
    bench.assert_clean(booted.saved_drive)
    return booted


# Of a file of 64 MiB that is deleted, so that the next one is where it was.
DELETED = """
import os
file = os.open('/mnt/deleted', os.O_WRONLY | os.O_CREAT)
os.pwrite(file, b'else' * (16 << 20), 0)
os.fsync(file)
os.unlink('/mnt/deleted')
"""
NEW = """
import os
file = os.open('/mnt/new', os.O_RDWR | os.O_CREAT)
os.pwrite(file, b'new.' * 16384, 0)
try:
    os.fsync(file)
    print('synced')
except OSError:
    print('refused')
"""
SHOWN = """
data = open('/mnt/new', 'rb').read()
print(data.count(b'else'))
"""


def nothing_of_others(bench: Bench) -> None:
    """The write ends before writeback gives its own reference up, for which mutants wait a second."""
    made = bench.boot([MKFS, *mounted(DELETED)], drive=bench.empty(capacity_bytes=CAPACITY_BYTES), save=True)
    whole = bench.boot(mounted(NEW + PLACE + "print(place(file, 0))"), drive=made.saved_drive)
    said, first = whole.text("said.txt").split()
    assert said == "synced"
    drop = "open('/proc/sys/vm/drop_caches', 'w').write('3')"
    booted = with_bad_blocks(bench, made.saved_drive, int(first), 16, f"{NEW}{drop}{SHOWN}", SHOWN)
    again = bench.boot(mounted(SHOWN), drive=booted.saved_drive)
    print(booted.text("said.txt"), again.text("said.txt"))
    assert again.text("said.txt").split() == ["0"], "shows what was deleted"


def test_a_file_whose_data_could_not_be_written_shows_nothing_of_others(bench: Bench) -> None:
    nothing_of_others(bench)


WRITTEN = f"""{PLACE}
import os
file = os.open('/mnt/file', os.O_RDWR | os.O_CREAT)
os.pwrite(file, b'old.' * 262144, 0)
os.fsync(file)
print(place(file, 100))
"""
# The first truncation zeroes the end of a block, for which the transaction waits.
CUT_SHORT = """
import os
file = os.open('/mnt/file', os.O_RDWR)
os.ftruncate(file, (512 << 10) + 100)
os.pwrite(file, b'new.' * 1024, 100 << 12)
os.ftruncate(file, 8192)
other = os.open('/mnt/other', os.O_WRONLY | os.O_CREAT)
os.write(other, b'a file after it')
os.fsync(other)
"""


def over_a_bad_sector(bench: Bench) -> None:
    """What a truncation drops could not be written. That is no error of the file system, as it is none for a commit."""
    made = bench.boot([MKFS, *mounted(WRITTEN)], drive=bench.empty(capacity_bytes=CAPACITY_BYTES), save=True)
    with_bad_blocks(bench, made.saved_drive, int(made.text("said.txt")), 1, CUT_SHORT)


def test_a_truncation_over_a_bad_sector_is_no_error_of_the_file_system(bench: Bench) -> None:
    over_a_bad_sector(bench)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""ext4 whose journal lies on another disk: what fsync(2) promised is there after a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Bench
from shingle.machine import job, machine, trace

pytestmark = pytest.mark.machine

FILES, BYTES = 12, 65536
# What a file that is gone has left on nearly all of the medium.
OLD = """
with open("/mnt/old", "wb") as file:
    for _ in range(110):
        file.write(bytes([238]) * 1048576)
"""
# Each file is named on standard output when its fsync(2) has returned.
SYNCED = """
import os
for number in range(FILES):
    file = os.open(f"/mnt/{number}", os.O_CREAT | os.O_WRONLY)
    os.write(file, bytes([number + 1]) * BYTES)
    os.fsync(file)
    os.close(file)
    os.write(1, b"%d\\n" % number)
"""
# The data are on their way, the transaction is committed for the sake of the directory, and nobody is promised them.
UNSYNCED = """
import ctypes, os
libc = ctypes.CDLL(None)
folder = os.open("/mnt", os.O_RDONLY)
for number in range(FILES):
    file = os.open(f"/mnt/{number}", os.O_CREAT | os.O_WRONLY)
    os.write(file, bytes([number + 1]) * BYTES)
    libc.sync_file_range(file, ctypes.c_long(0), ctypes.c_long(0), 7)
    os.close(file)
    os.fsync(folder)
"""
# Overwritten in place, where nothing but a time of the inode waits for a commit.
OVERWRITTEN = """
import os, time
for number in range(FILES):
    with open(f"/mnt/{number}", "wb") as file:
        file.write(bytes(BYTES))
os.sync()
for number in range(FILES):
    time.sleep(0.1)
    file = os.open(f"/mnt/{number}", os.O_WRONLY)
    os.write(file, bytes([number + 1]) * BYTES)
    os.fsync(file)
    os.close(file)
    os.write(1, b"%d\\n" % number)
"""
# Of each file: its data, or what belonged to another one, or neither.
READ = """
import os
for number in range(FILES):
    path = f"/mnt/{number}"
    if os.path.exists(path):
        data = open(path, "rb").read()
        whole = data == bytes([number + 1]) * BYTES
        print(number, "whole" if whole else "stale" if 238 in data else "neither")
"""
PARTS = 12


def python(program: str, name: str) -> job.Step:
    text = program.replace("FILES", str(FILES)).replace("BYTES", str(BYTES))
    return job.run(["/usr/bin/python3", "-I", "-c", text], stdout=name)


def made(bench: Bench) -> tuple[Path, Path]:
    """A file system on the first disk, its journal on the second."""
    saved = bench.folder / "journal.drive"
    make = ["/sbin/mke2fs", "-q", "-b", "4096"]
    steps = [
        job.run([*make, "-O", "journal_dev", "/dev/shd1", "16384"]),
        job.run([*make, "-t", "ext4", "-E", "nodiscard", "-J", "device=/dev/shd1", "/dev/shd0", "32768"]),
        job.mount("ext4"), python(OLD, "old.txt"), job.sync(), job.run(["/bin/rm", "/mnt/old"]), job.umount(),
        job.save(disk=1),
    ]  # fmt: skip
    first, second = bench.empty(), bench.empty(profile="wd30ezr")
    return bench.boot(steps, drive=first, save=True, others=(machine.Disk(second, saved),)).saved_drive, saved


def cut_everywhere(bench: Bench, options: str, program: str) -> tuple[list[str], int]:
    """The power fails at many requests. What was wrong afterwards, and how many files were promised."""
    first, second = made(bench)
    steps = [job.mount("ext4", options), python(program, "promised.txt")]
    other = bench.folder / "whole.trace"
    whole = bench.boot(steps, drive=first, trace=True, others=(machine.Disk(second, trace=other),))
    requests = sum(len(trace.read(file).requests) for file in (whole.trace_file, other))
    wrong, promises, seen = list[str](), 0, 0
    for part in range(1, PARTS):
        cut = requests * part // PARTS
        saved = bench.folder / f"cut-{part}.drive"
        left = bench.boot(steps, drive=first, save=True, cut=cut, others=(machine.Disk(second, saved),))
        assert left.outcome.power_cut, f"no cut at request {cut} of {requests}"
        told = left.out / "promised.txt"
        promised = told.read_text().split() if told.exists() else []
        read = bench.boot(
            [job.mount("ext4"), python(READ, "read.txt"), job.umount()],
            drive=left.saved_drive, others=(machine.Disk(saved),),
        )  # fmt: skip
        found = dict(line.split() for line in read.text("read.txt").splitlines())
        wrong += [f"{cut=}: {number} is stale" for number, state in found.items() if state == "stale"]
        wrong += [f"{cut=}: {number} was promised" for number in promised if found.get(number) != "whole"]
        promises += len(promised)
        seen += len(found)
    assert seen > FILES, "hardly a file was there after the cuts"
    return wrong, promises


@pytest.mark.parametrize("program", [SYNCED, OVERWRITTEN], ids=["new", "overwritten"])
@pytest.mark.parametrize("options", ["", "journal_lazy,data_relocate"], ids=["stock", "smr"])
def test_what_fsync_promised_is_there_with_a_journal_on_another_disk(bench: Bench, options: str, program: str) -> None:
    wrong, promises = cut_everywhere(bench, options, program)
    assert not wrong, "\n".join(wrong)
    assert promises > FILES


def test_no_commit_of_another_disk_is_ahead_of_data(bench: Bench) -> None:
    """Nobody was promised these files, but what belonged to others must not be in them."""
    wrong, _ = cut_everywhere(bench, "", UNSYNCED)
    assert not wrong, "\n".join(wrong)

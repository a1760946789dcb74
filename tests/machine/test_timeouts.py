# SPDX-License-Identifier: MIT OR Apache-2.0
"""A request that takes too long: the host resets the link, tries again, and gives up, as the SCSI layer does."""

import json
from pathlib import Path

import pytest

from harness import Bench, Booted
from shingle.catalogue import drive, faults
from shingle.machine import job
from shingle.machine.console import Trouble

pytestmark = pytest.mark.machine

# What no file system has to do with: a block written around the caches, and how long that took in virtual time.
WRITE = """
import os, time, mmap, sys
block = mmap.mmap(-1, 4096)
block.write(b"7" * 4096)
fd = os.open("/dev/shd0", os.O_RDWR | os.O_DIRECT)
began = time.monotonic()
try:
    os.pwrite(fd, block, 8192)
    said = "written"
except OSError as error:
    said = error.strerror
print(said, round(time.monotonic() - began, 3))
back = mmap.mmap(-1, 4096)
os.preadv(fd, [back], 8192)
print(bytes(back[:1]))
"""
RULE = '[[slow]]\nrequests = "write"\nlatency_ms = {latency_ms}\ntimes = {times}\n'


def written(
    bench: Bench, rule: str, *before: job.Step, more: tuple[Path, ...] = (), profile: str = "st8000as0002"
) -> tuple[str, float, str, int, Booted]:
    """What the program was told, after how long, what is on the disk then, and how often the link was reset."""
    source, program = bench.folder / "plan.toml", bench.folder / "write.py"
    source.write_text(rule)
    program.write_text(WRITE)
    steps = [
        *before,
        job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{program.name}"], stdout="said.txt"),
        job.read("/sys/block/shd0/shingle/counters"),
    ]
    booted = bench.boot(
        steps, drive=bench.empty(profile=profile), files=(program, *more), expected=tuple(Trouble),
        faults=faults.compiled(bench.built.crates, source, bench.folder / "plan"),
    )  # fmt: skip
    first, held = booted.text("said.txt").splitlines()
    said, _, seconds = first.rpartition(" ")
    return said, float(seconds), held, json.loads(str(booted.outcome.steps[-1].extra["text"]))["resets"], booted


def test_a_write_that_takes_too_long_is_sent_again(bench: Bench) -> None:
    said, seconds, held, resets, booted = written(bench, RULE.format(latency_ms=70_000, times=2))
    assert (said, held, resets) == ("written", "b'7'", 2)
    # Twice thirty seconds, and a second for each reset; the clock of timeouts has ticks.
    assert 62 < seconds < 66
    assert booted.outcome.console.count("took longer than 30 s: the link is reset") == 2


def test_after_six_times_it_is_given_up(bench: Bench) -> None:
    said, seconds, _, resets, booted = written(bench, RULE.format(latency_ms=70_000, times=6))
    assert (said, resets) == ("Input/output error", 6)
    assert 185 < seconds < 200
    assert "is given up after 5 retries" in booted.outcome.console


def test_more_patience_needs_no_reset(bench: Bench) -> None:
    patient = job.write("/sys/block/shd0/queue/io_timeout", "180000")
    said, seconds, held, resets, _ = written(bench, RULE.format(latency_ms=70_000, times=2), patient)
    assert (said, held, resets) == ("written", "b'7'", 0)
    assert 70 <= seconds < 71


def test_a_disk_with_zones_has_all_the_time_it_wants(bench: Bench) -> None:
    said, seconds, held, resets, _ = written(bench, RULE.format(latency_ms=70_000, times=1), profile="safs5000ha")
    assert (said, held, resets) == ("written", "b'7'", 0)
    assert 70 <= seconds < 71


def test_what_waits_beside_it_is_not_counted(bench: Bench) -> None:
    """Reads that are quick by themselves ride along in the resets, and none of them fails."""
    reads = """
import os, mmap, time
fd, block = os.open("/dev/shd0", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
for number in range(3000):
    os.preadv(fd, [block], 4096 * (9973 * number % 200000))
    time.sleep(0.02)
"""
    program = bench.folder / "read.py"
    program.write_text(reads)
    beside = job.background([job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{program.name}"], stdout="read.txt")])
    said, _, _, resets, booted = written(bench, RULE.format(latency_ms=70_000, times=3), beside, more=(program,))
    assert (said, resets) == ("written", 3)
    assert booted.text("read.txt") == ""
    assert "is given up" not in booted.outcome.console


# A band for each write, more than the queue holds, always.
WRITERS = """
import os, mmap, threading, time
began = time.monotonic()
def write(number):
    fd, block, at = os.open("/dev/shd0", os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 4096), number
    while time.monotonic() - began < 120:
        at = (at * 7919 + 12345) % 4001
        os.pwrite(fd, block, at << 25)
        written[number] += 1
written = [0] * 64
threads = [threading.Thread(target=write, args=(number,)) for number in range(64)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(min(written), sum(written))
"""


def test_what_is_sent_again_keeps_its_order(bench: Bench) -> None:
    """A drive that cleans a band for each write is late with some of its queue, and each of them gets its turn."""
    program = bench.folder / "many.py"
    program.write_text(WRITERS)
    full = drive.changed(drive.find("st8000as0002"), "translation.cache_entries", 64)
    full = drive.changed(full, "buffer.dirty_extents_max", 4)
    steps = [
        job.write("/sys/block/shd0/queue/io_timeout", "4000"),
        job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{program.name}"], stdout="many.txt"),
        job.read("/sys/block/shd0/shingle/counters"),
    ]
    booted = bench.boot(
        steps, drive=bench.empty(profile=full, capacity_bytes=140 << 30), files=(program,), expected=tuple(Trouble)
    )
    resets = json.loads(str(booted.outcome.steps[-1].extra["text"]))["resets"]
    assert resets >= 5
    assert "is given up" not in booted.outcome.console
    fewest, written_in_all = map(int, booted.text("many.txt").split())
    assert fewest >= 1 and written_in_all >= 100


def test_two_runs_are_equal(bench: Bench) -> None:
    first, second = (written(bench, RULE.format(latency_ms=70_000, times=2)) for _ in range(2))
    assert first[:4] == second[:4]

# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a mount takes with 10 GiB of log and a million live blocks in it, in virtual time, on a disk of full size.

Prints its figures: `./shingle test --long test_mount_time -- -s`; minutes of host time.
"""

import pytest

from harness import PROFILE, Bench, Booted
from kernel import stress
from shingle.catalogue import drive, fs
from shingle.catalogue.drive import FormattedDrive
from shingle.machine import job
from shingle.machine.machine import NS_PER_S, StepResult

pytestmark = [pytest.mark.machine, pytest.mark.long]

LAZY = "journal_lazy"
LEAVES = 760_000
LIVE = 1_000_000
# More than a mount of the same volume with an empty log.
CLEAN_S, CRASHED_S = 0.25, 20.0
# Blocks of a log of 10 GiB: an eighth of it, and the largest transaction.
PERIOD, LARGEST = (10 << 30) // 4096 // 8, 49_152
# A transaction is taken for larger than it is, by what its descriptors could need.
EARLY = 25_000
HOST_LIMIT_S = 3000.0
SYSFS = "/sys/fs/ext4/shd0/journal_lazy"
NAMES = ("live_blocks", "log_used", "logged_blocks", "snapshot_blocks", "mount_snapshots", "mount_blocks")
# First up to the next snapshot, then for as long as there is none.
ALMOST_DUE = f"""
import os
number = 0
def commit():
    global number
    os.mkdir(f"/mnt/more{{number}}")
    for each in range(4000):
        os.mkdir(f"/mnt/more{{number}}/{{each}}")
    number += 1
    os.sync()
def statistic(name):
    with open("{SYSFS}/" + name) as file:
        return int(file.read())
before = statistic("snapshots")
while statistic("snapshots") == before:
    commit()
taken = statistic("logged_blocks")
while statistic("logged_blocks") < taken + {PERIOD} - {EARLY}:
    commit()
print(number, "commits, the last of them of", statistic("logged_blocks") - taken, "log blocks since the snapshot")
assert statistic("snapshots") == before + 1, "the log holds a younger snapshot"
"""


def statistics() -> list[job.Step]:
    return [stress.statistic(name) for name in NAMES]


def full_size() -> int:
    return drive.capacity_of(drive.find(PROFILE))


def mounts(booted: Booted) -> list[StepResult]:
    return [step for step in booted.outcome.steps if step.do == "mount"]


def seconds(step: StepResult) -> float:
    return (step.end_ns - step.start_ns) / NS_PER_S


def formatted_10g(bench: Bench) -> FormattedDrive:
    return bench.formatted(fs.find("ext4-lazy"), capacity_bytes=full_size())


def a_million() -> list[job.Step]:
    return [job.load("makedirs", {"count": LEAVES}), job.sync()]


def boot(bench: Bench, *steps: job.Step, drive_file: object, **more: object) -> Booted:
    booted = bench.boot(list(steps), drive=drive_file, memory_mib=2048, host_limit_s=HOST_LIMIT_S, **more)  # type: ignore[arg-type]
    stress.assert_no_complaint(booted)
    return booted


def test_a_clean_mount_takes_a_quarter_of_a_second_more_than_stock(bench: Bench) -> None:
    formatted = formatted_10g(bench)
    booted = boot(
        bench,
        *bench.mounted(formatted),
        *bench.mounted(formatted),
        *bench.mounted(formatted, *a_million(), *statistics(), options=LAZY),
        *bench.mounted(formatted, options=LAZY),
        *bench.mounted(formatted, stress.statistic("mount_snapshots"), stress.statistic("mount_blocks"), options=LAZY),
        drive_file=formatted.file,
    )
    _, stock, _, *lazy = mounts(booted)
    found = stress.statistics(booted)
    more = [seconds(step) - seconds(stock) for step in lazy]
    share = found["snapshot_blocks"] / found["logged_blocks"]
    # Of 12 bytes a copy, if all of the log were live.
    most = 12 * 8 / 4060 + 0.001
    print(f"stock {seconds(stock):.3f} s, lazy {' and '.join(f'{each:+.3f} s' for each in more)}; {found}; {share:.2%}")
    assert found["live_blocks"] >= LIVE and share <= most, found
    assert max(more) <= CLEAN_S


def test_a_mount_after_a_crash_takes_twenty_seconds_more_than_stock_at_most(bench: Bench) -> None:
    """Just before a snapshot is due."""
    formatted = formatted_10g(bench)
    ran = boot(
        bench,
        *bench.mounted(formatted),
        *bench.mounted(formatted),
        *bench.mounted(
            formatted,
            *a_million(),
            job.run(["/usr/bin/python3", "-c", ALMOST_DUE], stdout="due.txt", limit_s=2400),
            *statistics(),
            job.read(f"{SYSFS}/map_digest") | {"phase": "ran"},
            job.save(),
            options=LAZY,
        ),
        drive_file=formatted.file,
        save=True,
    )
    _, stock, _ = mounts(ran)
    left = stress.statistics(ran)
    again = boot(
        bench,
        *bench.mounted(formatted, *statistics(), stress.statistic("map_digest"), options=LAZY),
        drive_file=ran.saved_drive,
    )
    (lazy,) = mounts(again)
    found = stress.statistics(again)
    more = seconds(lazy) - seconds(stock)
    print(f"stock {seconds(stock):.3f} s, lazy {more:+.3f} s; {ran.text('due.txt').strip()}; {found}")
    assert found["map_digest"] == left["ran"] and left["live_blocks"] >= LIVE
    # What is scanned is bounded in blocks, so the rate tells what the worst case takes.
    assert PERIOD - 2 * EARLY < found["mount_blocks"] < PERIOD + 2 * LARGEST, found
    worst = more * (PERIOD + 2 * LARGEST) / found["mount_blocks"]
    print(f"with the largest transaction before it, and another one cut off: at most {worst:+.2f} s")
    assert worst <= CRASHED_S

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Allocations fail below our functions: a mount works or is refused, blocks move or stay, no data are lost."""

import re
from pathlib import Path

import pytest

from harness import Bench
from kernel import stress, test_data_in_order
from kernel.test_data_in_order import BOTH, work
from shingle.machine import job

pytestmark = [pytest.mark.machine, pytest.mark.sanitize]

SEED = 3
PROGRAM = Path(__file__).with_name("failing.py")
LAZY = "journal_lazy"


def failing(*arguments: str, stdout: str) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{PROGRAM.name}", *arguments], stdout=stdout)


def mix(path: str, operations: int, **more: object) -> job.Step:
    return job.load("mix", {"threads": 4, "operations": operations, "seed": SEED, "path": path} | more)


def count(text: str, what: str) -> int:
    found = re.search(rf"^{what} (\d+)$", text, re.MULTILINE)
    assert found, text
    return int(found[1])


def hungry(bench: Bench, *, percent: int, operations: int, journal_mib: int) -> None:
    variant = stress.on_journal(journal_mib)
    formatted = bench.formatted(variant, capacity_bytes=1 << 30, seed=SEED)
    steps = [
        *bench.mounted(formatted, mix("first", operations), options=LAZY),
        # Every allocation of a mount that rebuilds the map, one after the other.
        failing("mounts", LAZY, stdout="mounts.txt"),
        *bench.mounted(
            formatted,
            failing("start", str(percent), stdout="start.txt"),
            mix("second", operations),
            job.sync(),
            job.sleep(12),
            stress.statistic("relogged"),
            stress.statistic("log_reads"),
            options=LAZY,
        ),
        failing("stop", stdout="stop.txt"),
        *bench.mounted(
            formatted,
            mix("first", operations, stage="verify"),
            mix("second", operations, stage="verify"),
            options=LAZY,
        ),
    ]
    booted = bench.boot(
        steps, drive=formatted.file, save=True, seed=SEED, memory_mib=512, host_limit_s=900, files=(PROGRAM,)
    )
    print(booted.text("start.txt"), booted.text("mounts.txt"), booted.text("stop.txt"))
    # All that a lazy mount allocates, and what is allocated later; a test in which nothing fails tests nothing.
    # Only a log that is kept and read can refuse; some thirty more allocations are those of every lazy mount.
    refused, worked = (count(booted.text("mounts.txt"), each) for each in ("refused", "worked"))
    assert refused > 5 and refused + worked > 30
    assert count(booted.text("stop.txt"), "failed") > 0
    bench.assert_clean(booted.saved_drive, recover=True)


def test_a_mount_works_or_is_refused_and_a_mounted_one_loses_nothing(sanitizing_bench: Bench) -> None:
    hungry(sanitizing_bench, percent=20, operations=300, journal_mib=stress.JOURNAL_MIB)


@pytest.mark.long
@pytest.mark.parametrize("percent", [2, 10, 50, 100])
def test_the_same_with_few_and_with_all_allocations_failing(sanitizing_bench: Bench, percent: int) -> None:
    hungry(sanitizing_bench, percent=percent, operations=3000, journal_mib=stress.TINY_JOURNAL_MIB)


def unmoved(bench: Bench, percent: int) -> int:
    """How many blocks moved all the same, while of each hundred allocations below the exchange so many failed."""
    formatted = test_data_in_order.formatted_for(bench)
    steps = bench.mounted(
        formatted, work("make", 2, 2048), failing("start", str(percent), "ext4_ext_relocate", stdout="start.txt"),
        work("overwrite", SEED, 300), failing("stop", stdout="stop.txt"), test_data_in_order.moved(), work("check"),
        # Short runs move, so a tree has many leaves, and a split takes blocks.
        options=f"{BOTH},data_stretch_kb=64",
    )  # fmt: skip
    booted = test_data_in_order.boot(bench, steps, formatted.file, save=True, tools=(PROGRAM,))
    assert count(booted.text("stop.txt"), "failed") > 20
    test_data_in_order.assert_kept(bench, booted)
    return stress.statistics(booted)["moved"]


def some_unmoved(bench: Bench) -> None:
    assert unmoved(bench, percent=10) > 500


def test_blocks_move_or_stay_and_lose_nothing(sanitizing_bench: Bench) -> None:
    some_unmoved(sanitizing_bench)
    assert unmoved(sanitizing_bench, percent=100) == 0

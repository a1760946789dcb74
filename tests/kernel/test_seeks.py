# SPDX-License-Identifier: MIT OR Apache-2.0
"""What was logged together is read together: a cold directory costs a few seeks, not one for each block."""

import pytest

from harness import Bench
from kernel import stress
from shingle.catalogue import fs
from shingle.machine import job
from shingle.runs.record import counter_changes

pytestmark = pytest.mark.machine

SEED = 47
FILES = 10_000
# FAST'17, section 4.2.1: what reading such a directory costs ext4-lazy.
MOST_SEEKS = 3
LAZY_256M = fs.ext4("ext4-lazy-256m", "journal_lazy on a 256 MiB journal", 256, "journal_lazy")
DIRECTORY = "/mnt/many"


def python(program: str) -> job.Step:
    return job.run(["/usr/bin/python3", "-c", program])


def test_a_cold_directory_of_10000_files_is_read_with_three_seeks(bench: Bench) -> None:
    formatted = bench.formatted(LAZY_256M, capacity_bytes=64 << 30, seed=SEED)
    make = f"import os; os.mkdir('{DIRECTORY}'); [open(f'{DIRECTORY}/file{{n}}', 'x').close() for n in range({FILES})]"
    # The interpreter's own files are the host's; what is counted is the listing, with an lstat of each.
    look = f"import os; assert sum(not each.stat().st_size for each in os.scandir('{DIRECTORY}')) == {FILES}"
    steps = [
        *bench.mounted(formatted, python(make), job.sync(), options="journal_lazy"),
        *bench.mounted(
            formatted,
            # The mount's own reads in the background come first.
            job.sleep(30),
            job.drop_caches(),
            python(look) | {"phase": "look"},
            stress.statistic("log_reads"),
            options="journal_lazy",
        ),
    ]
    booted = bench.boot(steps, drive=formatted.file, seed=SEED)
    stress.assert_no_complaint(booted)
    (look_step,) = (step for step in booted.outcome.steps if step.phase == "look")
    changed = counter_changes(look_step.before, look_step.after)
    print({name: value for name, value in changed.items() if value})
    assert changed["journal_read_bytes"] > 0
    assert changed["seeks"] <= MOST_SEEKS, changed

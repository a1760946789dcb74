# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ingredients of the tests that try to break journal_lazy: a small journal, little memory, and a reader of the raw
device who drops the caches all the while."""

from __future__ import annotations

import re

from harness import Bench, Booted
from shingle.build.tools import FSX
from shingle.catalogue import fs
from shingle.machine import job

# Small enough that the log wraps many times in a short test. Half of it is live then, and the cleaner copies; in a
# quarter of it more would be, and blocks go home.
JOURNAL_MIB = 16
TINY_JOURNAL_MIB = 4


def on_journal(mib: int) -> fs.FileSystem:
    return fs.ext4(f"ext4-lazy-{mib}m", f"journal_lazy on a journal of {mib} MiB", mib, "journal_lazy")


LAZY_16M = on_journal(JOURNAL_MIB)
CAPACITY_BYTES = 4 << 30
MEMORY_MIB = 256
COUNTED = ("inserted", "dropped", "demoted", "emergency", "swept", "relogged", "log_reads", "live_blocks")
STATISTICS = "/sys/fs/ext4/shd0/journal_lazy"
# What no test may leave in the kernel's log.
_COMPLAINTS = re.compile(
    r"WARNING|BUG|KASAN|Call Trace|possible|inconsistent|EXT4-fs error|JBD2: .*(error|abort)|I/O err|JBD2 unexpected"
    r"|Aborting journal|EXT4-fs .*(allocation failed|should not happen|i_reserved_data_blocks)"
)


def fsx(operations: int, *, seed: int) -> job.Step:
    """fsx on one file: a difference to what it wrote fails the step, and its log names the seed."""
    argv = [f"{job.OUT}/{FSX.name}", "-N", str(operations), "-S", str(seed), "-P", "/run", f"{job.MOUNT_POINT}/fsx"]
    return job.run(argv, stdout=f"fsx-{seed}.txt")


def raw_reader() -> list[job.Step]:
    """User space that reads the device below the mounted file system, with caches dropped again and again."""
    return [
        job.write("/proc/sys/vm/drop_caches", "3"),
        # Bitmaps, inode tables and the first directories; what it reads stays in the cache until the next round.
        job.run(["/bin/dd", f"if={job.DEVICE}", "of=/dev/null", "bs=1M", "count=96"]),
        job.sleep(1),
    ]


def statistic(name: str) -> job.Step:
    return job.read(f"{STATISTICS}/{name}") | {"phase": name}


def statistics(booted: Booted) -> dict[str, int]:
    """What the job's `statistic` steps read last."""
    return {str(step.phase): int(str(step.extra["text"])) for step in booted.outcome.steps if step.do == "read"}


def assert_no_complaint(booted: Booted) -> None:
    complaints = [line for line in booted.outcome.console.splitlines() if _COMPLAINTS.search(line)]
    assert not complaints, "\n".join(complaints)


def run(
    bench: Bench,
    *load: job.Step,
    seed: int,
    host_limit_s: float,
    capacity_bytes: int = CAPACITY_BYTES,
    policy: str = "watermarks",
    journal_mib: int = JOURNAL_MIB,
) -> Booted:
    """The load on a fresh small journal, disturbed; then unmounted, replayed and checked by stock e2fsck.

    With the policy `off` the cleaner leaves all to whoever finds the log full.
    """
    variant = on_journal(journal_mib)
    formatted = bench.formatted(variant, capacity_bytes=capacity_bytes, seed=seed)
    steps = bench.mounted(
        formatted,
        job.write(f"{STATISTICS}/policy", policy),
        job.background(raw_reader()),
        *load,
        job.stop_background(),
        job.sync(),
        *(statistic(name) for name in COUNTED),
        options=variant.options,
    )
    booted = bench.boot(
        steps,
        drive=formatted.file,
        save=True,
        seed=seed,
        memory_mib=MEMORY_MIB,
        host_limit_s=host_limit_s,
        files=(FSX.program(),),
    )
    assert_no_complaint(booted)
    bench.assert_clean(booted.saved_drive, recover=True)
    return booted

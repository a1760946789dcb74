# SPDX-License-Identifier: MIT OR Apache-2.0
"""What journal_lazy costs in memory."""

import pytest

from harness import Bench
from kernel import stress
from shingle import job

pytestmark = pytest.mark.machine

# Of all that is allocated for a lazy journal, per block of the log; the paper's map takes 66 per entry.
MOST_BYTES_PER_BLOCK = 20.0
JOURNALS = {"the smallest": ["-b", "1024", "-J", "size=1"], "4 MiB": ["-J", "size=4"], "70 MiB": ["-J", "size=70"],
            "1 GiB": ["-J", "size=1024"]}  # fmt: skip


@pytest.mark.parametrize("journal", list(JOURNALS))
def test_a_block_of_the_log_takes_at_most_20_bytes(bench: Bench, journal: str) -> None:
    steps = [
        job.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", *JOURNALS[journal], job.DEVICE]),
        job.mount("ext4", "journal_lazy"),
        job.load("createfiles", {"count": 300}),
        job.sync(),
        stress.statistic("memory_bytes"),
        stress.statistic("log_blocks"),
        job.read("/sys/fs/ext4/shd0/journal_lazy/memory_per_block"),
        job.umount(),
    ]
    booted = bench.boot(steps, drive=bench.empty(capacity_bytes=4 << 30), save=True)
    memory, blocks, shown = (float(str(step.extra["text"])) for step in booted.outcome.steps if step.do == "read")
    assert 12 <= memory / blocks <= shown <= MOST_BYTES_PER_BLOCK, (memory, blocks, shown)
    assert shown <= memory / blocks + 0.011
    bench.assert_clean(booted.saved_drive, recover=True)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What journal_lazy costs in memory."""

import pytest

from harness import Bench
from kernel import stress
from shingle.machine import job

pytestmark = pytest.mark.machine

# Of all that is allocated for a lazy journal, per block of the log, and once: the page in which the snapshots of a
# small log are made. The paper's map takes 66 per entry.
MOST_BYTES_PER_BLOCK, A_PAGE = 20.0, 4096
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
        job.umount(),
    ]
    booted = bench.boot(steps, drive=bench.empty(capacity_bytes=4 << 30), save=True)
    memory, blocks = (float(str(step.extra["text"])) for step in booted.outcome.steps if step.do == "read")
    assert 12 * blocks <= memory <= MOST_BYTES_PER_BLOCK * blocks + A_PAGE, (memory, blocks)
    bench.assert_clean(booted.saved_drive, recover=True)


def test_without_memory_for_the_map_the_volume_is_plain_ext4(bench: Bench) -> None:
    """A map of 128 MiB in a machine of 128: the log that was kept is replayed, and checkpoints are stock."""
    manifest = job.load("manifest", {"output": "/run/out/manifest.txt"})
    first, second = (job.load("createfiles", {"count": 300, "path": name}) for name in ("first", "second"))
    make = ["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_journal_init=1", "-J", "size=32768", job.DEVICE]
    mount = job.mount("ext4", "journal_lazy")
    kept = bench.boot(
        [job.run(make), mount, first, job.sync(), manifest, job.umount()],
        drive=bench.empty(capacity_bytes=128 << 30), save=True, memory_mib=1024,
    )  # fmt: skip
    steps = [mount, manifest, second, job.sync(), job.read("/proc/mounts"), job.umount()]
    booted = bench.boot(steps, drive=kept.saved_drive, save=True, memory_mib=128)
    stress.assert_no_complaint(booted)
    assert "no memory for the map of the journal, mounting without" in booted.outcome.console
    (mounts,) = (str(step.extra["text"]) for step in booted.outcome.steps if step.do == "read")
    assert "journal_lazy" not in mounts
    assert booted.text("manifest.txt") == kept.text("manifest.txt")
    bench.assert_clean(booted.saved_drive)


def test_a_log_of_nine_million_blocks_takes_transactions(bench: Bench) -> None:
    """What a descriptor costs is counted for the largest transaction, which is not a third of the log here."""
    options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
    steps = [
        job.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-J", "size=9000", "-E", options, job.DEVICE]),
        job.mount("ext4", "journal_lazy"),
        job.load("makedirs", {"count": 50, "seed": 1}),
        job.sync(),
        job.umount(),
    ]
    stress.assert_no_complaint(bench.boot(steps, drive=bench.empty(capacity_bytes=24 << 30), memory_mib=1024))

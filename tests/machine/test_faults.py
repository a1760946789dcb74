# SPDX-License-Identifier: MIT OR Apache-2.0
"""Faults in the machine: what the kernel's file systems make of a drive in which things go wrong."""

import json
from pathlib import Path

import pytest

from harness import Bench
from shingle.catalogue import faults
from shingle.catalogue.drive import FormattedDrive
from shingle.failure import Failure
from shingle.machine import job

pytestmark = pytest.mark.machine

CUTS = 4
_LOG = ["/bin/dmesg"]
LIST = "ls -l /mnt 2>&1 >/dev/null; true"


def plan(bench: Bench, text: str) -> Path:
    """A plan, checked and compiled by the host's tool."""
    source = bench.folder / "plan.toml"
    source.write_text(text)
    return faults.compiled(bench.built.crates, source, bench.folder / "plan")


def shell(script: str, stdout: str) -> job.Step:
    return job.run(["/bin/sh", "-c", script], stdout=stdout)


def inode_table(bench: Bench, formatted: FormattedDrive) -> int:
    """The first sector of the inode table that holds the root directory's inode."""
    booted = bench.boot(
        [shell("/sbin/dumpe2fs /dev/shd0 | grep -m1 'Inode table at'", "where.txt")], drive=formatted.file
    )
    block = int(booted.text("where.txt").split("Inode table at ")[1].split("-")[0])
    return block * 8


def with_files(bench: Bench, formatted: FormattedDrive) -> Path:
    """The drive with 64 files, more than the first block of the inode table holds."""
    make = shell("for i in $(seq 64); do echo $i > /mnt/$i; done", "made.txt")
    return bench.boot(bench.mounted(formatted, make), drive=formatted.file, save=True).saved_drive


def test_ext4_meets_an_unreadable_inode_table_with_an_error_and_goes_read_only(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    # Not the block with the root directory's inode, or the mount would fail: 16 inodes on each.
    unreadable = inode_table(bench, formatted) + 8
    broken = plan(bench, f"[[unreadable]]\nfirst_sector = {unreadable}\nsectors = 8\n")
    steps = [
        job.mount("ext4", "errors=remount-ro"),
        shell(LIST, "errors.txt"),
        # Linux 6.12 no longer shows it in the mount's flags, and answers with EIO instead of EROFS.
        shell("echo more >> /mnt/1; echo $?", "write.txt"),
        job.run(_LOG, stdout="log.txt"),
        job.read("/sys/block/shd0/shingle/counters"),
    ]
    booted = bench.boot(steps, drive=with_files(bench, formatted), faults=broken)
    assert "Input/output error" in booted.text("errors.txt")
    log = booted.text("log.txt")
    assert "critical medium error, dev shd0" in log
    assert "EXT4-fs error (device shd0)" in log
    assert "Remounting filesystem read-only" in log
    assert booted.text("write.txt") != "0\n"
    assert json.loads(str(booted.outcome.steps[-1].extra["text"]))["faults"] > 0


def test_without_the_plan_nothing_of_this_happens(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    steps = [
        job.mount("ext4", "errors=remount-ro"),
        shell(LIST, "errors.txt"),
        shell("echo more >> /mnt/1; echo $?", "write.txt"),
        job.read("/sys/block/shd0/shingle/counters"),
    ]
    booted = bench.boot(steps, drive=with_files(bench, formatted))
    assert booted.text("errors.txt") == ""
    assert booted.text("write.txt") == "0\n"
    assert json.loads(str(booted.outcome.steps[-1].extra["text"]))["faults"] == 0


@pytest.mark.parametrize(("variant", "check"), [("ext4-128m", None), ("btrfs", "/bin/btrfs check --readonly")])
def test_torn_and_reordered_writes_recover(bench: Bench, variant: str, check: str | None) -> None:
    formatted = bench.formatted(variant)
    kind = "ext4" if check is None else "btrfs"
    steps = [*formatted.classes(), job.mount(kind)]
    for number in range(6):
        steps += [job.load("createfiles", {"count": 60, "seed": number, "path": f"files{number}"}), job.sync()]
    broken = plan(bench, '[power_cut]\ntorn = "subset"\nreorder = true\n')
    whole = bench.boot(steps, drive=formatted.file, faults=broken)
    requests = sum(whole.outcome.steps[-1].after[f"{each}_requests"] for each in ("read", "written"))
    survived = 0
    for part in range(1, CUTS + 1):
        cut = requests * part // (CUTS + 1)
        left = bench.boot(steps, drive=formatted.file, save=True, cut=cut, faults=broken)
        assert left.outcome.power_cut, f"no cut at request {cut} of {requests}"
        plain = bench.boot(steps, drive=formatted.file, save=True, cut=cut)
        survived += left.saved_drive.read_bytes() != plain.saved_drive.read_bytes()
        if check is None:
            bench.assert_clean(left.saved_drive, recover=True)
        else:
            # The log is replayed by a mount; then the tool has nothing to say.
            mounted = bench.boot([job.mount(kind), job.umount()], drive=left.saved_drive, save=True)
            bench.assert_image_clean(bench.exported(mounted.saved_drive), check.split())
    assert survived > 0, "the plan left nothing that a plain power cut would not have left"


FSYNC = job.run(["/bin/sh", "-c", "echo durable > /mnt/marker && sync /mnt/marker && sync"])


@pytest.mark.parametrize("lies", [True, False])
def test_a_lying_flush_loses_what_was_synced_and_an_honest_one_does_not(bench: Bench, lies: bool) -> None:
    formatted = bench.formatted("ext4-128m")
    steps = [*formatted.classes(), job.mount("ext4"), FSYNC]
    broken = plan(bench, f"[lies]\nflush = {'true' if lies else 'false'}\nfua = {'true' if lies else 'false'}\n")
    # A request more, at once: the power is cut as it reaches the drive.
    after = [*steps, job.run(["/bin/dd", "if=/dev/shd0", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"])]
    whole = bench.boot(after, drive=formatted.file, faults=broken)
    counted = whole.outcome.steps[-1].before
    requests = counted["read_requests"] + counted["written_requests"] + counted["flushes"]
    left = bench.boot(after, drive=formatted.file, save=True, cut=requests + 1, faults=broken)
    assert left.outcome.power_cut
    read = [job.mount("ext4"), shell("cat /mnt/marker 2>&1; true", "marker.txt")]
    found = bench.boot(read, drive=left.saved_drive).text("marker.txt") == "durable\n"
    assert found != lies


def test_latencies_are_told_in_full(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    steps = [job.mount("ext4"), FSYNC, shell("cat /sys/block/shd0/shingle/latency", "latency.json"), job.umount()]
    booted = bench.boot(steps, drive=formatted.file)
    told = json.loads(booted.text("latency.json"))
    after = booted.outcome.steps[2].after
    for name, histogram in told.items():
        assert sum(count for _, count in histogram["buckets"]) == histogram["count"]
        assert after["latency_us"][name][2] == histogram["max_ns"] // 1000
    assert told["flushes"]["count"] == after["flushes"] > 0


def test_a_wrong_plan_is_refused_with_its_line(bench: Bench) -> None:
    with pytest.raises(Failure, match=r"plan\.toml:2: slow\.latency: no such key.*latency_ms"):
        plan(bench, "[[slow]]\nlatency = 5\n")
    elsewhere = plan(bench, '[[zone]]\nzone = 3\ncondition = "offline"\n')
    with pytest.raises(Failure, match="ended with status 2") as caught:
        bench.boot([job.sync()], drive=bench.empty(), faults=elsewhere)
    assert "no sequential zone of this drive" in caught.value.detail[-1]

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Single reads and writes that fail, of the log and of home blocks: the right error, no hang, no wrong data, and the
same record of the error in the superblock as stock ext4 leaves (docs/reference/regressions.md)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from kernel.test_regressions import (
    CAPACITY_BYTES,
    ENDLESS,
    LAZY,
    LOGS,
    SEED,
    Life,
    compared,
    errors_in,
    mounted,
    plan,
    statistics,
    work,
    worked,
)
from kernel.test_scrub import copies
from kernel.test_snapshots import Log
from shingle.catalogue import fs
from shingle.failure import Failure
from shingle.machine import job, trace
from shingle.machine.console import Trouble

pytestmark = pytest.mark.machine

__all__ = ["worked"]
SECTORS = 8
FATAL = f"{LAZY},errors=remount-ro"
LOST = {"EIO", "EROFS"}


def rule(kind: str, first_block: int, blocks: int, **more: object) -> str:
    lines = (f"first_sector = {first_block * SECTORS}", f"sectors = {blocks * SECTORS}")
    return "\n".join((f"[[{kind}]]", *lines, *(f"{name} = {value}" for name, value in more.items()), ""))


def of_log(life: Life) -> tuple[int, int]:
    """First block and length, without the journal's superblock."""
    assert life.formatted is not None
    ((first, sectors),) = life.formatted.layout.journal
    return first // SECTORS + 1, sectors // SECTORS - 1


def shown(image: Path, *options: str) -> str:
    """With `-h` the superblock only: bitmaps at home are of several times while the log has newer ones."""
    return subprocess.run(["/sbin/dumpe2fs", *options, image], capture_output=True, text=True, check=True).stdout


def of_tables(bench: Bench, life: Life) -> tuple[int, int]:
    """All inode tables, which lie side by side here."""
    places = re.findall(r"Inode table at (\d+)-(\d+)", shown(bench.recovered(life.drive)))
    first, last = min(int(each) for each, _ in places), max(int(each) for _, each in places)
    return first, last + 1 - first


def faults_in(booted: Booted, step: int) -> int:
    """How many happened in a step, counted from the end."""
    done = booted.outcome.steps[step]
    return int(done.after["faults"] - done.before["faults"])


def assert_kept(bench: Bench, life: Life, *, errors: bool = True) -> None:
    """Of what was synced nothing is lost, whoever mounts; the error of the journal is remembered."""
    for options in (LAZY, ""):
        again, after = life.boot(
            bench, mounted(work("check", SEED), options=options), save=True, expected=(Trouble.FILE_SYSTEM_ERROR,)
        )
        assert compared(again) > 10
        assert ("error recorded from previous mount: IO failure" in again.outcome.console) == errors
        assert ("clean with errors" in shown(bench.exported(after.drive), "-h")) == errors
    bench.assert_clean(life.drive, recover=True)


# --- 5. Writes that fail ------------------------------------------------------


@pytest.mark.parametrize(
    ("log_mib", "kind", "after"),
    [(64, "failed_write", 0), (64, "failed_write", 150), (64, "lost_write", 400), (16, "failed_write", 400),
     *(pytest.param(mib, kind, after, marks=pytest.mark.long)
       for mib in (64, 16) for kind in ("failed_write", "lost_write") for after in (1, 20, 77, 300))],
)  # fmt: skip
def test_a_write_of_the_log_that_fails_ends_the_journal(
    bench: Bench, worked: Callable[[int], Life], log_mib: int, kind: str, after: int
) -> None:
    """Refused at once, or lost on the way to the medium, which the next FLUSH or FUA says."""
    life = worked(log_mib)
    broken = plan(bench, rule(kind, *of_log(life), after=after, times=1))
    steps = mounted(work("load", SEED, ENDLESS, "EIO,EROFS"), *statistics(), options=FATAL)
    ran, hurt = life.boot(bench, steps, save=True, faults=broken)
    found = stress.statistics(ran)
    print(f"log of {log_mib} MiB, SEED={SEED}, {kind} after {after}: {errors_in(hurt)}; {found}")
    assert ran.outcome.steps[-1].after["faults"] == 1 and "I/O error, dev shd0" in ran.outcome.console
    assert errors_in(hurt) and errors_in(hurt) <= LOST
    # The first is the tombstone, the second the first transaction: it counts when it is in the log.
    assert found["mount_snapshots"] > 0 and (found["logged_blocks"] > 0) == (after > 1), found
    assert_kept(bench, hurt)


def test_a_snapshot_that_cannot_be_written_ends_the_journal(bench: Bench, worked: Callable[[int], Life]) -> None:
    """The same course twice: the second time the disk refuses the place of the newest snapshot."""
    life = worked(64)
    assert life.formatted is not None
    steps = mounted(work("load", SEED, 4, "EIO,EROFS"), *statistics(), options=FATAL)
    whole, left = life.boot(bench, steps, save=True)
    assert stress.statistics(whole)["snapshots"] > 0
    snapshot = Log(bench, life.formatted, left.drive).snapshot()
    first, _ = of_log(life)
    broken = plan(bench, rule("failed_write", first - 1 + snapshot.log_blk + snapshot.blocks // 2, 1, times=1))
    ran, hurt = life.boot(bench, steps, save=True, faults=broken)
    print(f"{snapshot}, SEED={SEED}: {errors_in(hurt)}; {stress.statistics(ran)}")
    assert "cannot write a snapshot to the log (-5)" in ran.outcome.console
    assert_kept(bench, hurt)


LAZY_64M = fs.ext4("ext4-lazy-64m", "journal_lazy on a 64 MiB journal", 64, LAZY)


def directories(name: str) -> job.Step:
    return job.run(["/bin/sh", "-c", f"i=0; while [ $i -lt 50 ]; do mkdir /mnt/{name}$i; i=$((i + 1)); done; sync"])


def test_an_error_while_unmounting_leaves_the_log_to_the_next_mount(bench: Bench) -> None:
    """The journal's superblock cannot be written at the end. needs_recovery stays, and nobody wipes the log."""
    formatted = bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    ((first, _),) = formatted.layout.journal
    broken = plan(bench, rule("failed_write", first // SECTORS, 1, times=1))
    # So little that nothing but the unmount writes there, if a mount before has signed it.
    made = bench.boot(bench.mounted(formatted, directories("early"), options=LAZY), drive=formatted.file, save=True)
    ran = bench.boot(
        bench.mounted(formatted, directories("late"), stress.statistic("live_blocks"), options=LAZY),
        drive=made.saved_drive, save=True, faults=broken,
    )  # fmt: skip
    assert [step.do for step in ran.outcome.steps if step.after and step.after["faults"] > step.before["faults"]] == [
        "umount"
    ]
    assert stress.statistics(ran)["live_blocks"] > 50
    count = job.run(["/bin/sh", "-c", "ls -d /mnt/*[0-9] | wc -l"], stdout="count.txt")
    for options in (LAZY, ""):
        again = bench.boot(
            bench.mounted(formatted, count, options=options),
            drive=ran.saved_drive, save=True, expected=(Trouble.FILE_SYSTEM_ERROR,),
        )  # fmt: skip
        assert int(again.text("count.txt")) == 100, "the log was wiped"
        bench.assert_clean(again.saved_drive, recover=True)


DEMOTE = "for i in 1 2 3 4 5 6; do echo 4096 > /sys/fs/ext4/shd0/journal_lazy/demote; done; sync; sleep 3"


@pytest.mark.parametrize("log_mib", [64, 16])
def test_a_write_home_that_fails_ends_the_journal(bench: Bench, worked: Callable[[int], Life], log_mib: int) -> None:
    """The log keeps what did not get home: the tail does not pass it."""
    life = worked(log_mib)
    broken = plan(bench, rule("failed_write", *of_tables(bench, life), times=1))
    demote = job.run(["/bin/sh", "-c", DEMOTE], may_fail=True)
    steps = [work("start", SEED, ENDLESS, "EIO,EROFS"), job.sleep(1), demote, job.sleep(6), work("stop"), *statistics()]
    ran, hurt = life.boot(bench, mounted(*steps, options=FATAL), save=True, faults=broken)
    found = stress.statistics(ran)
    print(f"log of {log_mib} MiB, SEED={SEED}: {errors_in(hurt)}; {found}")
    assert ran.outcome.steps[-1].after["faults"] == 1 and "Remounting filesystem read-only" in ran.outcome.console
    assert errors_in(hurt) and errors_in(hurt) <= LOST
    assert found["demoted"] > 20, found
    assert_kept(bench, hurt)


# --- 5. Reads that fail -------------------------------------------------------


def first_errors(booted: Booted) -> set[str]:
    return set(booted.text("check.txt").splitlines()[0].split()[1:])


@pytest.mark.parametrize(
    ("log_mib", "where", "after", "times"),
    [(64, "mount", 0, 2), (16, "mount", 3, 2), (64, "reads", 20, 1), (16, "reads", 14, 1), (64, "reads", 40, 400)],
)
def test_reads_of_the_log_that_fail_are_errors_and_never_other_data(
    bench: Bench, worked: Callable[[int], Life], log_mib: int, where: str, after: int, times: int
) -> None:
    """In the scan of a mount, or when a block is wanted; a single one is tried again, many are EIO."""
    life = worked(log_mib)
    broken = plan(bench, rule("transient_read", *of_log(life), after=after, times=times))
    steps = mounted(
        stress.statistic("map_digest"), job.drop_caches(), work("check", SEED, "notes", "EIO"),
        options=f"ro,{LAZY},errors=continue",
    )  # fmt: skip
    whole = mounted(stress.statistic("map_digest"), options=f"ro,{LAZY}")
    right, _ = life.boot(bench, whole)
    ran, _ = life.boot(bench, [*steps, *whole], faults=broken)
    print(f"log of {log_mib} MiB, SEED={SEED}, {times} after {after}: {first_errors(ran)}, {compared(ran)} files")
    digests = [step.extra["text"] for step in (*right.outcome.steps, *ran.outcome.steps) if step.do == "read"]
    assert len(digests) == 3 and len(set(digests)) == 1
    reads = next(step for step in ran.outcome.steps if step.do == "exec")
    met = {"mount": reads.before["faults"], "reads": reads.after["faults"] - reads.before["faults"]}
    assert met[where] >= 1, (where, met)
    assert first_errors(ran) == ({"EIO"} if times > 2 else set())
    assert compared(ran) > 10


def test_a_read_of_home_that_fails_is_an_error_and_never_other_data(
    bench: Bench, worked: Callable[[int], Life]
) -> None:
    life = worked(16)
    broken = plan(bench, rule("transient_read", *of_tables(bench, life), after=2, times=2))
    steps = mounted(work("check", SEED, "notes", "EIO"), options=f"ro,{LAZY},errors=continue")
    ran, _ = life.boot(bench, steps, faults=broken)
    print(f"log of 16 MiB, SEED={SEED}: {first_errors(ran)}, {ran.outcome.steps[-1].after['faults']} faults")
    assert first_errors(ran) <= {"EIO"} and ran.outcome.steps[-1].after["faults"] > 0
    assert compared(ran) > 10


# --- 11. What an error leaves in the superblock -------------------------------

RECORD = re.compile(r"^(Filesystem state|FS Error count|(?:First|Last) error (?!time)[^:]+): +(.*)$", re.M)
WATCHED = "a/t1/last"
# It is on the medium long before the host is told, so a cut in between has it, and a panic has not come yet.
SLOW_SUPERBLOCK = rule("slow", 0, 1, requests='"write"', latency_ms=2000)
READER = job.run(["/bin/dd", f"if={job.DEVICE}", "of=/dev/null", "bs=4k", "skip=230000", "count=1", "iflag=direct"])


def record(bench: Bench, drive: Path) -> dict[str, str]:
    """As an e2fsck at boot finds it."""
    return dict(RECORD.findall(shown(bench.exported(drive), "-h")))


def inode_block(image: Path, path: str) -> int:
    told = subprocess.run(["/sbin/debugfs", "-R", f"imap /{path}", image], capture_output=True, text=True, check=True)
    found = re.search(r"located at block (\d+)", told.stdout)
    assert found is not None, told.stdout
    return int(found[1])


def met_an_error(options: str) -> list[job.Step]:
    """The same for all reactions, up to the error."""
    return [
        job.mount("ext4", options), job.run(["/bin/dd", "if=/dev/zero", "of=/mnt/new", "bs=4k", "count=9"]), job.sync(),
        job.background([READER, job.sleep(0.3)]), job.drop_caches(),
        job.run(["/bin/ls", "-l", f"/mnt/{WATCHED}"], may_fail=True), job.sleep(7), job.stop_background(), job.sync(),
        job.umount(),
    ]  # fmt: skip


EXPECTED = (Trouble.FILE_SYSTEM_ERROR,)


def after_an_error(bench: Bench, life: Life, options: str, unreadable: int) -> dict[str, str]:
    broken = rule("unreadable", unreadable, 1)
    ran, hurt = life.boot(bench, met_an_error(options), save=True, faults=plan(bench, broken), expected=EXPECTED)
    assert "unable to read itable block" in ran.outcome.console
    return record(bench, hurt.drive)


def after_a_panic(bench: Bench, life: Life, options: str, unreadable: int) -> dict[str, str]:
    """What is on the medium when the panic comes; the power goes while the host waits for the superblock's write."""
    broken = rule("unreadable", unreadable, 1)
    with pytest.raises(Failure, match="panicked") as failure:
        life.boot(bench, met_an_error(options), faults=plan(bench, broken), expected=EXPECTED)
    assert "panic forced after error" in str(failure.value)
    slow = plan(bench, broken + SLOW_SUPERBLOCK)
    other = options.replace("panic", "remount-ro")
    seen, _ = life.boot(bench, met_an_error(other), faults=slow, expected=EXPECTED, trace=True)
    requests = trace.read(seen.trace_file).requests
    # A mount may have met the block while it read ahead.
    failed = max(requests["arrival_ns"][(requests["flags"] & trace.FAILED) > 0])
    written = (requests["op"] == trace.OPERATIONS.index("write")) & (requests["sector"] < SECTORS)
    told = min(requests["arrival_ns"][written & (requests["arrival_ns"] > failed)])
    # The request after next is more than 0.3 s later.
    cut = int((requests["arrival_ns"] <= told).sum()) + 2
    left, hurt = life.boot(bench, met_an_error(options), save=True, faults=slow, cut=cut, expected=EXPECTED)
    assert left.outcome.power_cut and "panic forced" not in left.outcome.console
    return record(bench, hurt.drive)


@pytest.mark.parametrize("reaction", ["continue", "remount-ro", "panic"])
def test_an_error_is_recorded_as_stock_ext4_records_it(bench: Bench, reaction: str) -> None:
    """A block of inodes cannot be read: in the log, or, with stock ext4, at home."""
    formatted = bench.formatted(LOGS[64], capacity_bytes=CAPACITY_BYTES, seed=SEED)
    first = mounted(work("load", SEED, 6), *statistics())
    ran, lazy = Life(formatted, formatted.file, ()).boot(bench, first, save=True)
    log = Log(bench, formatted, lazy.drive)
    home = inode_block(bench.recovered(lazy.drive), WATCHED)
    copy = log.places[{each: number for number, each, _ in copies(log)}[home]] // 4096
    _, stock = lazy.boot(bench, mounted(options=""), save=True)
    found = stress.statistics(ran)
    look = after_a_panic if reaction == "panic" else after_an_error
    records = [
        look(bench, life, ",".join(filter(None, [options, f"errors={reaction}"])), unreadable)
        for life, options, unreadable in ((lazy, LAZY, copy), (stock, "", home))
    ]
    print(f"log of 64 MiB, SEED={SEED}, home block {home}, log block {copy}: {records}; {found}")
    assert found["snapshots"] > 0, found
    assert records[0] == records[1]
    assert records[0]["First error err"] == "EIO" and records[0]["FS Error count"] != "0", records
    assert "errors" in records[0]["Filesystem state"], records


@pytest.mark.parametrize("reaction", ["continue", "remount-ro"])
def test_a_commit_that_fails_is_remembered_as_stock_ext4_remembers_it(bench: Bench, reaction: str) -> None:
    formatted = bench.formatted(LOGS[64], capacity_bytes=CAPACITY_BYTES, seed=SEED)
    life = Life(formatted, formatted.file, ())
    broken = plan(bench, rule("failed_write", *of_log(life), after=60, times=1))
    told = []
    for options in (LAZY, ""):
        wanted = ",".join(filter(None, [options, f"errors={reaction}"]))
        _, hurt = life.boot(
            bench, mounted(work("load", SEED, ENDLESS, "EIO,EROFS"), options=wanted), save=True, faults=broken,
            expected=EXPECTED,
        )  # fmt: skip
        assert errors_in(hurt) <= LOST and errors_in(hurt)
        errno_ = re.findall(r"^Journal errno: +(.*)$", shown(bench.exported(hurt.drive), "-h"), re.M)
        _, again = hurt.boot(bench, mounted(work("check", SEED), options=options), save=True, expected=EXPECTED)
        after = record(bench, again.drive)
        told.append((errno_, after["Filesystem state"]))
    print(f"log of 64 MiB, SEED={SEED}, errors={reaction}: {told}")
    assert told[0] == told[1]
    assert told[0][1] == "clean with errors"


# All are in one transaction, which the first fsync commits and the disk refuses: the owners, and the block of a file
# that is then written once more, with O_DSYNC.
FOUR = """
import errno, mmap, os
files = [os.open(f'/mnt/{name}', os.O_RDWR | os.O_CREAT) for name in 'ab']
os.mkdir('/mnt/c')
files.append(os.open('/mnt/c', 0))
mapping = os.open('/mnt/d', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
again = os.open('/mnt/d', os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
block = mmap.mmap(-1, 4096)
os.sync()
for file in files:
    os.fchown(file, 1, 1)
os.pwrite(mapping, block, 0)
for synced in (*(lambda file=file: os.fsync(file) for file in files), lambda: os.pwrite(again, block, 0)):
    try:
        synced()
        print('synced')
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


@pytest.mark.parametrize("options", [LAZY, ""], ids=["lazy", "stock"])
def test_an_fsync_behind_a_commit_that_failed_fails_too(bench: Bench, options: str) -> None:
    """A fault of jbd2: what is neither running nor committing any more was taken for durable."""
    formatted = bench.formatted(LOGS[64], capacity_bytes=CAPACITY_BYTES, seed=SEED)
    life = Life(formatted, formatted.file, ())
    # A new time of the last write would need a handle, and that sees the abort first.
    wanted = ",".join(filter(None, [options, "errors=continue", "lazytime"]))
    said = []
    for after in range(8):
        broken = plan(bench, rule("failed_write", *of_log(life), after=after, times=1))
        four = job.run(["/usr/bin/python3", "-I", "-c", FOUR], stdout="four.txt", may_fail=True)
        booted = bench.boot(
            bench.mounted(formatted, four, options=wanted), drive=formatted.file, faults=broken, expected=EXPECTED
        )
        said.append(booted.text("four.txt").split())
    print(f"by the number of the write that failed: {said}")
    assert ["EIO"] * 4 in said
    assert not [each for each in said if "EIO" in each and "synced" in each]

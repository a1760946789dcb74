# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a kept log is worth while the file system is read-only, and behind that."""

from dataclasses import replace

import pytest

from harness import Bench
from kernel import stress
from kernel.test_features import CHECKPOINT, EXTERNAL, FREEZE, JOURNAL, THAW, ioctl, python, remount
from kernel.test_kept_log import (
    CAPACITY_BYTES,
    LAZY,
    SEED,
    formatted_64m,
    kept,
    left_by_a_lazy_mount,
    load,
    manifest,
    steps_named,
)
from kernel.test_regressions import within
from shingle.machine import job, trace
from shingle.machine.console import Trouble

pytestmark = pytest.mark.machine


def test_a_remount_to_read_only_drains_if_told_to(bench: Bench) -> None:
    """The power goes while it is read-only: nothing in the log is needed."""
    formatted = formatted_64m(bench)
    live = stress.statistic("live_blocks")
    steps = bench.mounted(
        formatted, *load(), live | {"phase": "before"}, remount("ro"), live | {"phase": "behind"},
        manifest("lazy.txt"), job.save(), options=f"{LAZY},journal_lazy_drain",
    )  # fmt: skip
    drained = bench.boot(steps, drive=formatted.file, save=True)
    stress.assert_no_complaint(drained)
    found = stress.statistics(drained)
    assert found["before"] > 100 and found["behind"] == 0, found
    stock = bench.boot(bench.mounted(formatted, manifest("stock.txt"), options="ro,noload"), drive=drained.saved_drive)
    assert stock.text("stock.txt") == drained.text("lazy.txt")


# As on the root file system at boot. A loop device, because the mount has the disk for itself.
CHECK = f"losetup /dev/loop0 {job.DEVICE} && /sbin/e2fsck -fy /dev/loop0; losetup -d /dev/loop0"


def checked_below(*steps: job.Step) -> list[job.Step]:
    """A read-only mount below which e2fsck looks, then somebody who wants to write."""
    check = job.run(["/bin/sh", "-c", CHECK], stdout="e2fsck.txt")
    return [job.mount("ext4", f"ro,{LAZY}"), *steps, check, remount("rw") | {"may_fail": True}]


WRITE_MOUNTED = ("bdev_allow_write_mounted=1",)
REFUSED = "the log was emptied while the file system was read-only"


def test_a_log_that_e2fsck_replayed_below_a_read_only_mount_is_not_written_to(bench: Bench) -> None:
    """Nor does the unmount bring it back: what e2fsck repaired since would be overwritten by the next replay."""
    formatted = formatted_64m(bench)
    lazy = left_by_a_lazy_mount(bench, formatted)
    checkpoint = ioctl(CHECKPOINT, "struct.pack('I', 0)") | {"may_fail": True}
    steps = [*formatted.classes(), *checked_below(manifest("read.txt")), checkpoint, job.umount()]
    booted = bench.boot(steps, drive=lazy.saved_drive, save=True, kernel_arguments=WRITE_MOUNTED)
    assert "recovering journal" in booted.text("e2fsck.txt"), booted.text("e2fsck.txt")
    assert [step.status != 0 for step in steps_named(booted, "exec")] == [False, True, True]
    assert REFUSED in booted.outcome.console
    # What runs at the next start, and gives up where it would have to ask.
    bench.assert_image_clean(bench.exported(booted.saved_drive), ("/sbin/e2fsck", "-fp"))
    again = bench.boot(bench.mounted(formatted, manifest("again.txt"), options=LAZY), drive=booted.saved_drive)
    assert again.text("again.txt") == booted.text("read.txt") == lazy.text("written.txt")
    assert kept(again) == []


def test_a_log_without_copies_that_e2fsck_emptied_is_not_written_to(bench: Bench) -> None:
    """The power goes in the first commit: the journal's superblock names a log in which nothing is."""
    formatted = formatted_64m(bench)
    first = job.run(["/bin/sh", "-c", "mkdir /mnt/first; sync"]) | {"phase": "first"}
    steps = bench.mounted(formatted, first, options=LAZY)
    whole = bench.boot(steps, drive=formatted.file)
    began, ended = within(whole, "first")
    late = job.run(["/bin/sh", "-c", "mkdir /mnt/late && sync"], may_fail=True)
    empty = 0
    for number in range(began + 1, ended + 2):
        cut = bench.boot(steps, drive=formatted.file, save=True, cut=number)
        booted = bench.boot(
            [*formatted.classes(), *checked_below(), late, job.save()],
            drive=cut.saved_drive, save=True, kernel_arguments=WRITE_MOUNTED,
        )  # fmt: skip
        refused, failed = (step.status != 0 for step in steps_named(booted, "exec")[1:])
        look = job.run(["/bin/sh", "-c", "ls /mnt"], stdout="list.txt")
        again = bench.boot(bench.mounted(formatted, look, options=LAZY), drive=booted.saved_drive)
        assert ("late" in again.text("list.txt")) == (not failed), "what was synced is gone"
        assert refused == failed == bool(kept(booted)) == (REFUSED in booted.outcome.console)
        empty += kept(booted) == [0]
    print(f"cuts {began} to {ended}: {empty} with a log in which nothing is")
    assert empty > 0


@pytest.mark.parametrize("protect", [False, True], ids=["writable", "protected"])
def test_an_error_in_a_kept_log_waits_for_a_drive_that_can_be_written(bench: Bench, protect: bool) -> None:
    """The journal was aborted. Of a write-protected drive the log is read, and not a sector is written."""
    formatted = formatted_64m(bench)
    trigger = job.write("/sys/fs/ext4/shd0/trigger_fs_error", "told to")
    steps = bench.mounted(formatted, *load(), manifest("written.txt"), trigger, options=f"{LAZY},errors=remount-ro")
    expected = (Trouble.FILE_SYSTEM_ERROR,)
    ran = bench.boot(steps, drive=formatted.file, save=True, expected=expected)
    setro = [job.run(["/sbin/blockdev", "--setro", job.DEVICE])] if protect else []
    read = [job.mount("ext4", f"ro,{LAZY}"), manifest("read.txt"), job.umount()]
    booted = bench.boot([*setro, *read], drive=ran.saved_drive, save=True, trace=True, expected=expected)
    assert booted.text("read.txt") == ran.text("written.txt")
    assert kept(booted), booted.outcome.console
    writes = len(trace.read(booted.trace_file).select("write"))
    assert (writes == 0) == protect, f"{writes} writes"
    last = bench.boot(
        bench.mounted(formatted, manifest("read.txt"), options=LAZY),
        drive=booted.saved_drive, save=True, expected=expected,
    )  # fmt: skip
    assert last.text("read.txt") == ran.text("written.txt")
    assert ("Filesystem error recorded from previous mount" in last.outcome.console) == protect


# The log of `EXTERNAL`, past the cache of its own device and through it.
LOG_BYTES = 64 << 20
BELOW = f"tail -c +{(1 << 30) + 1} {job.DEVICE} | head -c {LOG_BYTES}"
SAME = f"head -c {LOG_BYTES} /dev/loop1 > /tmp/cached; {BELOW} | cmp - /tmp/cached"


def test_what_e2fsck_reads_of_an_external_log_is_what_is_on_the_disk(bench: Bench) -> None:
    """Copies go into the log past the cache of its device, which somebody has read before."""
    fill = job.run(["/bin/dd", "if=/dev/loop1", "of=/dev/null", "bs=1M"])
    more = job.load("createfiles", {"count": 300, "path": "more"})
    volume = replace(EXTERNAL, before_made=(job.run([*JOURNAL, "/dev/loop1"]),))
    same = job.run(["/bin/sh", "-c", SAME])
    steps = [*volume.made(), *volume.mounted(*load(), fill, more, job.sync(), remount("ro"), same)]
    volume.boot(bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES))


# Of a file that stock ext4 wrote: the name goes, and the inode is the head of the list of orphans.
MAKE_ORPHAN = f"""
import subprocess
number = int(open('/run/out/number').read())
def debugfs(*commands):
    for command in commands:
        subprocess.run(['/sbin/debugfs', '-w', '-R', command, '{job.DEVICE}'], check=True)
debugfs(f'sif <{{number}}> links_count 0', f'sif <{{number}}> dtime 0', 'unlink /orphan',
        f'ssv last_orphan {{number}}', 'ssv checksum calc')
"""
ORPHAN = "import os; f = open('/mnt/orphan', 'wb'); f.write(bytes(5 << 20)); f.flush(); os.fsync(f.fileno());"
ORPHAN += "open('/run/out/number', 'w').write(str(os.fstat(f.fileno()).st_ino))"


@pytest.mark.parametrize("back", [False, True], ids=["unmounted", "remounted"])
def test_an_orphan_without_a_log_is_deleted_for_good_by_a_read_only_mount(bench: Bench, back: bool) -> None:
    """The superblock does not ask for recovery, and the deletion is logged. Unmounted, it must be at home: nobody would
    replay that log. Mounted to be written, the log is kept, though the superblock in it is older than the request."""
    formatted = formatted_64m(bench)
    wrote = [remount("rw"), *load(), job.save(), manifest("written.txt")] if back else [manifest("written.txt")]
    steps = [
        *bench.mounted(formatted, python(ORPHAN), options=""),
        python(MAKE_ORPHAN),
        job.mount("ext4", f"ro,{LAZY}"), *wrote, job.umount(),
    ]  # fmt: skip
    ran = bench.boot(steps, drive=formatted.file, save=True)
    stress.assert_no_complaint(ran)
    assert "1 orphan inode deleted" in ran.outcome.console, ran.outcome.console
    if not back:
        bench.assert_clean(ran.saved_drive)
    for options in (f"ro,{LAZY}", LAZY, ""):
        again = bench.boot(
            bench.mounted(formatted, manifest("again.txt"), options=options), drive=ran.saved_drive, save=True
        )
        stress.assert_no_complaint(again)
        assert "orphan inode deleted" not in again.outcome.console
        assert len(kept(again)) == (back and options != ""), again.outcome.console
        assert again.text("again.txt") == ran.text("written.txt")
        bench.assert_clean(again.saved_drive, recover=True)


def test_an_error_that_is_logged_while_frozen_does_not_hide_the_log(bench: Bench) -> None:
    """The log was drained, so the superblock that is logged then does not ask for recovery; the one at home does."""
    formatted = formatted_64m(bench)
    trigger = job.write("/sys/fs/ext4/shd0/trigger_fs_error", "told to")
    # A file that is opened first, or removed, would log the superblock once more.
    touch = job.run(["/usr/bin/touch", "/mnt/first"])
    files = job.load("createfiles", {"count": 300, "seed": SEED})
    steps = bench.mounted(
        formatted,
        touch,
        ioctl(FREEZE),
        trigger,
        job.sleep(7),
        ioctl(THAW),
        files,
        job.sync(),
        manifest("written.txt"),
        job.save(),
        options=f"{LAZY},journal_lazy_drain,errors=continue",
    )
    expected = (Trouble.FILE_SYSTEM_ERROR,)
    ran = bench.boot(steps, drive=formatted.file, save=True, expected=expected)
    read = bench.mounted(formatted, stress.statistic("live_blocks"), options=f"ro,{LAZY}")
    booted = bench.boot(read, drive=ran.saved_drive, save=True, expected=expected)
    assert kept(booted)[0] == stress.statistics(booted)["live_blocks"] > 100, "a read-only mount sent the log home"
    again = bench.boot(
        bench.mounted(formatted, manifest("again.txt"), options=LAZY), drive=booted.saved_drive, expected=expected
    )
    assert len(kept(again)) == 1 and again.text("again.txt") == ran.text("written.txt")

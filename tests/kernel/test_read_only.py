# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a kept log is worth while the file system is read-only, and behind that."""

import pytest

from harness import Bench
from kernel import stress
from kernel.test_kept_log import LAZY, formatted_64m, kept, left_by_a_lazy_mount, load, manifest, steps_named
from shingle import job

pytestmark = pytest.mark.machine


def remount(options: str, *, may_fail: bool = False) -> job.Step:
    return job.run(["/bin/mount", "-o", f"remount,{options}", job.MOUNT_POINT], may_fail=may_fail)


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


def test_a_log_that_e2fsck_replayed_below_a_read_only_mount_is_not_written_to(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    lazy = left_by_a_lazy_mount(bench, formatted)
    steps = [
        *formatted.classes(),
        job.mount("ext4", f"ro,{LAZY}"),
        manifest("read.txt"),
        job.run(["/bin/sh", "-c", CHECK], stdout="e2fsck.txt"),
        remount("rw", may_fail=True),
        job.umount(),
        *bench.mounted(formatted, manifest("again.txt"), options=LAZY)[-3:],
    ]
    allowed = ("bdev_allow_write_mounted=1",)
    booted = bench.boot(steps, drive=lazy.saved_drive, save=True, kernel_arguments=allowed)
    assert "recovering journal" in booted.text("e2fsck.txt"), booted.text("e2fsck.txt")
    assert steps_named(booted, "exec")[-1].status != 0
    assert "the log was emptied while the file system was read-only" in booted.outcome.console
    assert booted.text("again.txt") == booted.text("read.txt") == lazy.text("written.txt")
    assert len(kept(booted)) == 1
    bench.assert_clean(booted.saved_drive, recover=True)


# Of a file that stock ext4 wrote: the name goes, and the inode is the head of the list of orphans.
MAKE_ORPHAN = f"""
import os, re, subprocess
number = int(open('/run/out/number').read())
def debugfs(*commands):
    for command in commands:
        subprocess.run(['/sbin/debugfs', '-w', '-R', command, '{job.DEVICE}'], check=True)
debugfs(f'sif <{{number}}> links_count 0', f'sif <{{number}}> dtime 0', 'unlink /orphan',
        f'ssv last_orphan {{number}}', 'ssv checksum calc')
"""
ORPHAN = "import os; f = open('/mnt/orphan', 'wb'); f.write(bytes(5 << 20)); f.flush(); os.fsync(f.fileno());"
ORPHAN += "open('/run/out/number', 'w').write(str(os.fstat(f.fileno()).st_ino))"


def python(text: str) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", text])


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

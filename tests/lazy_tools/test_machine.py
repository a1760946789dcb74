# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tools on what journal_lazy itself left or has mounted, not on a log made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import Bench
from kernel.test_features import CAPACITY_BYTES, PLAIN, kept_log, work
from kernel.test_remembered_errors import ERROR, LAZY, after_errors, boot
from lazy_tools.test_helpers import fsck
from lazy_tools.volumes import TOOLS, stock, tool
from shingle.machine import job

pytestmark = pytest.mark.machine


@pytest.mark.parametrize("cut", [False, True], ids=["unmount", "cut"])
@pytest.mark.parametrize("error", [False, True], ids=["well", "error"])
def test_an_error_that_the_kernel_recorded_is_seen(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch, cut: bool, error: bool
) -> None:
    steps = [work("files", 2), *([ERROR] if error else []), job.sleep(7)]
    drive = after_errors(bench, f"{LAZY},errors=continue", *steps, cut=cut)
    image = bench.exported(drive)
    home = stock("dumpe2fs", "-h", image)
    assert ("with errors" in home) == (error and not cut), "a power cut leaves the error in the log alone"
    done = fsck(folder, "-a", image)
    if error:
        assert "(an error is recorded in it)" in done.stdout, done.stdout + done.stderr
    else:
        assert "is kept by journal_lazy; not checked" in done.stdout, done.stdout + done.stderr
    if cut:
        return
    reads, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *where: reads.append(where) or pread(*where))
    volume = tool.read_volume(image)
    assert tool.superblock_in_log(volume, volume.journal_super()) is not None
    assert len(reads) < tool.NEAR, "an unmount leaves the superblock at the end of the log"


# The first mount in the list is a read-only bind: there is a second one of the file system while it is made.
BIND = """
mkdir /run/bind /run/other
mount --bind /mnt /run/bind && mount -o remount,bind,ro /run/bind
umount /mnt && mount -i -t ext4 -o journal_lazy,noatime /dev/shd0 /mnt
"""
AFTER = "grep shd0 /proc/self/mountinfo; touch /mnt/written && echo written; umount /run/bind"


def test_drain_of_a_mounted_volume_leaves_it_as_it_is(bench: Bench) -> None:
    drive = bench.empty(capacity_bytes=CAPACITY_BYTES)
    ext4lazy = f"/usr/bin/python3 -I {TOOLS}/ext4lazy.py"
    steps = [
        work("files", 2),
        job.run(["/bin/sh", "-ec", BIND]),
        job.run(["/bin/sh", "-c", f"{ext4lazy} drain {job.DEVICE} 2>&1"], stdout="drain", may_fail=True),
        job.run(["/bin/sh", "-c", AFTER], stdout="after"),
    ]
    booted = boot(bench, [job.write("/run/features", ""), *kept_log(PLAIN), *PLAIN.mounted(*steps)], drive)
    said = booted.text("drain")
    assert " 0 are now" in said, said
    bind, mount, written = booted.text("after").splitlines()
    assert "/run/bind ro," in bind
    assert "/mnt rw,noatime" in mount
    assert " rw," in mount.partition(" - ")[2]
    assert "journal_lazy_drain" in mount
    assert written == "written"
    assert tool.read_volume(bench.exported(booted.saved_drive)).journal_super().state == "empty"

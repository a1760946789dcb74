# SPDX-License-Identifier: MIT OR Apache-2.0
"""An error that the file system recorded is still recorded after a power cut, a mount and an unmount.

With errors=continue the record goes through the log; with errors=remount-ro and errors=panic the superblock is written
at home. Whichever is newer must be what an e2fsck at boot finds there. Stock ext4 is held to the same.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel.test_features import CAPACITY_BYTES, PLAIN, kept_log, work
from shingle.machine import job
from shingle.machine.console import Trouble

pytestmark = pytest.mark.machine

LAZY = "journal_lazy"
ERROR = job.write("/sys/fs/ext4/shd0/trigger_fs_error", "told to")
# As dumpe2fs calls them; of the times only that there is one.
FIELDS = ("Filesystem state", "FS Error count", "First error function", "First error line #", "First error err",
          "Last error function", "Last error line #", "Last error err")  # fmt: skip
# What the record of an error by trigger_fs_error is.
ONE = {"function": "trigger_test_error", "err": "EFSCORRUPTED"}


def recorded(bench: Bench, drive: Path) -> dict[str, str]:
    """What is at home, without a look at the log."""
    shown = subprocess.run(
        ["/sbin/dumpe2fs", "-h", bench.exported(drive)], capture_output=True, text=True, check=True
    ).stdout
    found = {name: value for name, value in re.findall(r"^([^:\n]+): +(.*)$", shown, re.M) if name in FIELDS}
    assert ("First error time" in shown) == ("Last error time" in shown) == ("FS Error count" in found), shown
    return found


def boot(bench: Bench, steps: Sequence[job.Step], drive: Path) -> Booted:
    return bench.boot(
        steps, drive=drive, files=(Path(__file__).with_name("feature_work.py"),), save=True,
        expected=(Trouble.FILE_SYSTEM_ERROR,),
    )  # fmt: skip


def after_errors(bench: Bench, options: str, *steps: job.Step, cut: bool) -> Path:
    """A drive whose log was in use, with what these steps did in one more mount."""
    volume = kept_log(PLAIN)[:-3] if not options else kept_log(PLAIN)
    last = [job.save()] if cut else []
    known = job.write("/run/features", "")
    return boot(
        bench,
        [known, *volume, *PLAIN.mounted(*steps, *last, options=options)],
        bench.empty(capacity_bytes=CAPACITY_BYTES),
    ).saved_drive


def mounted_again(bench: Bench, options: str, drive: Path) -> Path:
    """After a mount and an unmount in which nothing happens."""
    return boot(bench, PLAIN.mounted(options=options), drive).saved_drive


def assert_recorded(found: dict[str, str], count: int) -> None:
    assert found["Filesystem state"].removeprefix("not ") == "clean with errors", found
    assert found["FS Error count"] == str(count), found
    for which in ("First", "Last"):
        assert {key: found[f"{which} error {key}"] for key in ONE} == ONE, found


@pytest.mark.parametrize("options", [LAZY, ""], ids=["lazy", "stock"])
@pytest.mark.parametrize("cut", [False, True], ids=["unmount", "cut"])
@pytest.mark.parametrize("reaction", ["continue", "remount-ro"])
# Home has what was logged 30 seconds later, with stock ext4.
@pytest.mark.parametrize("seconds", [7, pytest.param(90, marks=pytest.mark.long)])
def test_a_recorded_error_stays(bench: Bench, options: str, cut: bool, reaction: str, seconds: int) -> None:
    wanted = ",".join(filter(None, [options, f"errors={reaction}"]))
    ran = after_errors(bench, wanted, work("files", 2), ERROR, job.sleep(seconds), cut=cut)
    found = recorded(bench, mounted_again(bench, options, ran))
    assert_recorded(found, 1)
    assert found["Filesystem state"] == "clean with errors", found


@pytest.mark.parametrize("options", [LAZY, ""], ids=["lazy", "stock"])
def test_the_newer_of_two_records_stays(bench: Bench, options: str) -> None:
    """Home knows of one error since an unmount, and the log of two more."""
    wanted = ",".join(filter(None, [options, "errors=continue"]))
    one = after_errors(bench, wanted, ERROR, job.sleep(1), cut=False)
    assert_recorded(recorded(bench, one), 1)
    steps = [ERROR, ERROR, job.sleep(7), job.save()]
    three = boot(bench, PLAIN.mounted(*steps, options=wanted), one).saved_drive
    assert_recorded(recorded(bench, three), 1)
    again = mounted_again(bench, options, three)
    assert_recorded(recorded(bench, again), 3)
    # e2fsck sees it and resets it; what is in the log must not come back.
    check = job.run(["/sbin/e2fsck", "-p", job.DEVICE], stdout="checked", may_fail=True)
    checked = boot(bench, [check, *PLAIN.mounted(options=options)], again)
    assert "contains a file system with errors, check forced" in checked.text("checked"), checked.text("checked")
    assert recorded(bench, checked.saved_drive) == {"Filesystem state": "clean"}

# SPDX-License-Identifier: MIT OR Apache-2.0
"""An error shuts the file system down while overwritten blocks are on their way to a new place."""

from collections import Counter

import pytest

from harness import Bench
from kernel import stress
from kernel.test_data_in_order import BOTH, WRITE_ONE, boot, formatted_for, moved, python, refusal
from shingle.machine import job
from shingle.machine.console import Trouble

pytestmark = pytest.mark.machine

# SYNC_FILE_RANGE_WRITE does not wait. A commit comes after 5 s, if the journal is not aborted.
OVERWRITE = """
import ctypes, os, threading, time
file = os.open('/mnt/file', os.O_RDWR)
os.pwrite(file, b'new.' * 1024, 0)
assert not ctypes.CDLL(None).sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), 2)
print(open('/sys/fs/ext4/shd0/data_relocated_blocks').read())
def fail():
    with open('/sys/fs/ext4/shd0/trigger_fs_error', 'w') as trigger:
        trigger.write('an error')
failing = threading.Thread(target=fail)
failing.start()
time.sleep(15)
failing.join()
"""
READ = "print(*(open('/mnt/file', 'rb').read(4096)[at : at + 4] for at in range(0, 4096, 4)), sep='\\n')"


def refused_at_the_end(bench: Bench) -> None:
    """The drive refuses the write: no commit may map the new place. Mutants are slow between flag and abort."""
    formatted = formatted_for(bench)
    made = boot(bench, bench.mounted(formatted, python(WRITE_ONE), options=BOTH), formatted.file, save=True)
    steps = [
        job.mount("ext4", f"{BOTH},errors=remount-ro,noatime"), python(OVERWRITE),
        job.run(["/bin/umount", "/mnt"], may_fail=True),
    ]  # fmt: skip
    booted = boot(
        bench, steps, made.saved_drive, save=True, faults=refusal(bench, formatted, after=0),
        kernel_arguments=("jbd2.provoke=slow-shutdown",), expected=tuple(Trouble),
    )  # fmt: skip
    # Otherwise the test is none.
    assert int(booted.text("python.txt")) == 1 and "I/O error, dev shd0" in booted.outcome.console
    steps = bench.mounted(formatted, python(READ), moved(), options=BOTH)
    again = boot(bench, steps, booted.saved_drive, expected=tuple(Trouble))
    assert stress.statistics(again)["moved"] == 0
    held = Counter(again.text("python.txt").split())
    assert held == {"b'old.'": 1024}, f"holds {held}"


def test_an_error_elsewhere_does_not_commit_what_could_not_be_written(sanitizing_bench: Bench) -> None:
    refused_at_the_end(sanitizing_bench)

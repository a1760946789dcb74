# SPDX-License-Identifier: MIT OR Apache-2.0
"""The machine boots, runs a job, says what went wrong, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import Bench
from shingle.failure import Failure
from shingle.machine import job
from shingle.paths import ROOT, run_folder

pytestmark = pytest.mark.machine


def test_boots_to_a_program_of_the_host(bench: Bench) -> None:
    booted = bench.boot([job.run(["/bin/uname", "-r"], stdout="uname.txt")])
    assert booted.text("uname.txt").startswith(bench.built.kernel.version)
    assert booted.outcome.steps[0].start_ns < 10**9


def test_an_hour_of_sleep_takes_no_hour(bench: Bench) -> None:
    booted = bench.boot([job.sleep(3600)])  # the host waits 15 minutes at most (`host_limit_s`)
    step = booted.outcome.steps[0]
    assert 3600 <= (step.end_ns - step.start_ns) / 1e9 < 3601


def test_the_host_is_read_only_for_the_guest(bench: Bench) -> None:
    victim = ROOT / "build" / "must-not-appear"
    victim.parent.mkdir(exist_ok=True)
    with pytest.raises(Failure):
        bench.boot([job.run(["/usr/bin/touch", str(victim)])])
    assert not victim.exists()


def test_a_failing_step_is_named(bench: Bench) -> None:
    with pytest.raises(Failure, match="exec /bin/false, failed"):
        bench.boot([job.run(["/bin/false"])])


def test_a_panic_is_an_error_with_the_console(bench: Bench) -> None:
    with pytest.raises(Failure, match="panicked") as caught:
        bench.boot([job.sync()], kernel_arguments=("init=/bin/false",))
    assert caught.value.detail


def test_a_guest_that_spins_ends_at_the_host_limit(bench: Bench) -> None:
    with pytest.raises(Failure, match="did not finish within 3 s of host time"):
        bench.boot([job.run(["/bin/sh", "-c", "while :; do :; done"])], host_limit_s=3)
    assert not machines_of(bench)


def test_a_guest_that_runs_out_of_memory_says_so(bench: Bench) -> None:
    # Locked, because else the guest reads the pages of the program itself again and again.
    eat = "import ctypes; ctypes.CDLL(None).mlockall(3); x = [bytearray(1 << 20) for _ in range(4096)]"
    with pytest.raises(Failure, match=r"ran out of memory"):
        bench.boot([job.run(["/usr/bin/python3", "-c", eat])], memory_mib=192, host_limit_s=900)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing(bench: Bench, number: signal.Signals) -> None:
    bench.formatted("ext4")
    command = [sys.executable, "-m", "shingle", "compare", "--drive", "st8000as0002", "--fs", "ext4"]
    command += ["--workload", "MakeDirs", "--scale", "1", "--capacity-gib", "64", "--memory-mib", "777"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lab")}
    program = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not machines("mem=777M") and time.monotonic() < deadline:
            time.sleep(0.1)
        (folder,) = {folder_of(machine) for machine in machines("mem=777M")}
        program.send_signal(number)
        _, said = program.communicate(timeout=20)
    finally:
        program.kill()
        program.wait()
    time.sleep(0.5)
    assert not machines("mem=777M")
    assert b"Traceback" not in said
    if number != signal.SIGKILL:
        assert program.returncode == 128 + number
    else:
        # Nobody could; the next run does.
        with run_folder():
            assert not folder.exists()
    assert not folder.exists()


def folder_of(machine: int) -> Path:
    """The folder of a machine's run, where its console is; other tests have theirs beside it."""
    return Path(f"/proc/{machine}/fd/1").readlink().parent


def machines_of(bench: Bench) -> list[int]:
    return machines(str(bench.folder))


def machines(argument: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"linux") and any(argument.encode() in word for word in words):
            found.append(int(path.parent.name))
    return found

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes end: at their limit, with a failing neighbour, and when this program is told to stop."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shingle import process
from shingle.failure import Failure

LAB = Path(__file__).resolve().parents[1]


def alive(marker: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", marker.encode()]:
                return True
        except OSError:
            continue
    return False


def soon(condition, *, limit_s: float = 60) -> bool:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_program_that_takes_too_long_is_ended_and_named() -> None:
    with pytest.raises(Failure, match="napping did not end within 1 s"):
        process.run(["sleep", "1001"], what="napping", limit_s=1)
    assert not alive("1001")


def test_a_failing_program_shows_its_command_and_its_last_words() -> None:
    with pytest.raises(Failure) as caught:
        process.run(["sh", "-c", "echo why not; exit 3"], what="trying", limit_s=10)
    assert str(caught.value) == "trying failed with status 3."
    assert caught.value.detail[-1] == "why not"


def test_results_come_in_the_order_asked_for() -> None:
    def slow() -> int:
        time.sleep(0.2)
        return 1

    assert process.in_parallel([slow, lambda: 2], width=2) == [1, 2]


def test_one_failure_ends_the_others_at_once() -> None:
    def fail() -> str:
        assert soon(lambda: alive("1002"))
        raise Failure("no luck.")

    def nap() -> str:
        return process.run(["sleep", "1002"], what="napping", limit_s=600)

    began = time.monotonic()
    with pytest.raises(Failure, match="no luck"):
        process.in_parallel([nap, fail], width=2)
    assert time.monotonic() - began < 300
    assert not alive("1002")
    assert process.run(["echo", "still works"], what="echo", limit_s=10) == "still works\n"


def test_a_command_does_not_run_when_its_parent_died_first() -> None:
    for parent, said in ((os.getpid(), "runs\n"), (os.getppid(), "")):
        command = process._bound(["echo", "runs"], parent)
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == said


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_nothing_is_left_running_when_the_program_is_told_to_stop(number: signal.Signals, status: int) -> None:
    nap = str(2000 + number)
    code = (
        "from shingle import process\n"
        "from shingle.cli import main\n"
        "import click\n"
        "@main.cli.command('nap')\n"
        "def nap():\n"
        f"    task = lambda: process.run(['sleep', '{nap}'], what='nap', limit_s=60)\n"
        "    process.in_parallel([task, task], width=2)\n"
        "main.main()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(LAB)}
    program = subprocess.Popen([sys.executable, "-c", code, "nap"], env=environment, stderr=subprocess.DEVNULL)
    try:
        assert soon(lambda: alive(nap))
        program.send_signal(number)
        assert program.wait(timeout=20) == status
        assert soon(lambda: not alive(nap))
    finally:
        program.kill()
        program.wait()

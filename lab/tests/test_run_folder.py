# SPDX-License-Identifier: MIT OR Apache-2.0
"""Folders of runs: gone with the run, swept when it was killed; and machines that fit nowhere (rows A11, A15)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shingle import paths
from shingle.failure import Failure
from shingle.machine import machine
from shingle.machine.machine import Boot, Machine
from shingle.paths import ROOT

HOLDS = """
import sys, time
from pathlib import Path
from shingle import paths
paths.run_directory = lambda: Path(sys.argv[1])
with paths.run_folder() as folder:
    (folder / "x").touch()
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "run_directory", lambda: tmp_path)
    return tmp_path


def test_a_folder_is_gone_after_its_run(memory: Path) -> None:
    with paths.run_folder() as first, paths.run_folder() as second:
        assert first.is_dir() and second.is_dir() and first != second
    assert list(memory.iterdir()) == []


def test_what_a_killed_run_left_goes_and_what_another_run_uses_stays(memory: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(memory)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lab")}
    holders = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, alive = (Path(each.stdout.readline().strip()) for each in holders if each.stdout is not None)
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait(timeout=60)
        assert (killed / "x").exists()
        with paths.run_folder() as own:
            assert set(memory.iterdir()) == {alive, own}
    finally:
        for each in holders:
            each.kill()
            each.communicate()


def test_a_machine_that_fits_neither_place_is_one_sentence_before_the_boot(
    fake_machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "room", lambda folder: 64 << 20)
    with pytest.raises(Failure, match=r"1,024 MiB of memory needs .* /dev/shm has 64 MiB and /tmp has 64 MiB") as told:
        machine.run(fake_machine, Boot(steps=()), tmp_path)
    assert told.value.status == 2
    assert list(tmp_path.iterdir()) == []


def test_a_small_dev_shm_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "room", lambda folder: 64 << 20 if folder == paths.MEMORY else 1 << 40)
    assert machine.memory_folder(1024) == Path("/tmp")
    monkeypatch.setattr(paths, "room", lambda folder: 64 << 20)
    assert paths.run_directory() != paths.MEMORY

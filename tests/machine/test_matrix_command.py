# SPDX-License-Identifier: MIT OR Apache-2.0
"""A matrix that is stopped half-way, in good order or not, leaves nothing running and goes on where it was."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import wait_for
from shingle.paths import ROOT
from shingle.runs import matrix, record

pytestmark = [pytest.mark.machine, pytest.mark.long]

SCALE = 0.002
ASKED = ("matrix", "paper", "--scale", str(SCALE), "--seeds", "1", "--only", "e11", "--jobs", "2", "--folder")
LIMIT_S = 900
# Of the cells' own time to end their machines.
GONE_S = 30


def processes() -> Iterator[tuple[int, int, str]]:
    """Number, parent and command line of all that run."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            yield int(process.name), int(parent), words


def started_by(root: int) -> dict[int, str]:
    """Command lines of a process and of all that it started: Snakemake, cells, machines."""
    known = {number: (parent, words) for number, parent, words in processes()}
    found = {root: known[root][1]}
    while more := {n: words for n, (parent, words) in known.items() if parent in found and n not in found}:
        found |= more
    return found


def shingle(*arguments: str | Path) -> None:
    done = subprocess.run([ROOT / "shingle", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_a_stopped_matrix_goes_on_where_it_stopped(folder: Path, how: signal.Signals) -> None:
    place = folder / "matrix"
    cells = [
        place / each.record for each in matrix.matrix(matrix.find("paper"), scale=SCALE, seeds=1, only=["e11"]).cells
    ]

    def recorded() -> list[Path]:
        return [each for each in cells if each.exists()]

    def machine_runs() -> bool:
        assert stopped.poll() is None, "it ended before it could be stopped"
        return bool(recorded()) and any("/linux mem=" in words for words in started_by(stopped.pid).values())

    with subprocess.Popen([ROOT / "shingle", *ASKED, place], stdout=subprocess.DEVNULL) as stopped:
        try:
            wait_for(machine_runs, "a record, and a machine at work", LIMIT_S)
            were = started_by(stopped.pid)
        finally:
            stopped.send_signal(how)
        assert stopped.wait(timeout=LIMIT_S) == (130 if how == signal.SIGINT else -how)
    wait_for(lambda: not any(were.get(n) == words for n, _, words in processes()), "all of it ends", GONE_S)
    # A record says how long its run took of the host, so the same bytes are the same run.
    kept = {each: each.read_bytes() for each in recorded()}
    assert 0 < len(kept) < len(cells), "stopped too late to tell anything"
    assert list(place.rglob(".*.part")) == []

    shingle(*ASKED, place)
    assert {each: each.read_bytes() for each in kept} == kept
    ran = folder / "run.jsonl"
    shingle("run", "e11", "--scale", str(SCALE), "--record", ran)
    joined, at_once = (
        [record.deterministic(each) for each in record.read(file)] for file in (place / "e11.jsonl", ran)
    )
    assert joined == at_once

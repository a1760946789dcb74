# SPDX-License-Identifier: MIT OR Apache-2.0
"""A set of experiments on a real Slurm: a killed job, a node that is restarted, the same records as without."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.slurm import PACKAGES, Slurm, missing

from harness import wait_for
from shingle.paths import ROOT
from shingle.runs import matrix, record

pytestmark = pytest.mark.slurm

SCALE = 0.01
SET = ("matrix", "paper", "--only", "e11", "--scale", str(SCALE), "--seeds", "1")
# Without accounting there is no sacct to ask.
SITE = (
    "--slurm-status-command",
    "squeue",
    "--default-resources",
    "slurm_account=none",
    "slurm_partition=cells",
    "runtime=30",
)
LIMIT_S = 1500


@pytest.fixture
def slurm(folder: Path) -> Iterator[Slurm]:
    assert os.getuid() == 0, "munged and slurmd on one host want root"
    assert not missing(), f"this host lacks {', '.join(missing())}: apt-get install {PACKAGES}"
    with Slurm(folder / "slurm").up() as cluster:
        yield cluster


@contextlib.contextmanager
def started(slurm: Slurm, place: Path) -> Iterator[subprocess.Popen[str]]:
    argv = slurm.seen_by(ROOT / "shingle", *SET, "--folder", place, "--profile", "slurm", "--", *SITE)
    with subprocess.Popen(
        argv, env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)


def comparable(file: Path) -> list[dict[str, object]]:
    """Records without what the host's speed decides."""
    return [{name: value for name, value in each.items() if name != "host"} for each in record.read(file)]


def test_a_killed_job_and_a_restarted_node_cost_no_record(slurm: Slurm, folder: Path) -> None:
    place, plain = folder / "cluster", folder / "plain"
    cells = matrix.matrix(matrix.find("paper"), scale=SCALE, seeds=1, only=["e11"]).cells

    # A job that somebody kills is missing at the end; the others have their records.
    with started(slurm, place) as first:
        wait_for(slurm.running, "a job runs", LIMIT_S)
        victim = next(iter(slurm.running()))
        slurm.call("scancel", victim)
        said, _ = first.communicate(timeout=LIMIT_S)
    print(said, *slurm.states(), *map(Path.read_text, place.rglob("slurm_logs/**/*.log")), sep="\n")
    assert first.returncode == 1
    assert f"1 of {len(cells)} cells have no record" in said
    (lost,) = [each for each in cells if not (place / each.record).exists()]

    # The same command tries it again. Its node loses power, and Slurm starts the job anew.
    kept = {each.record: (place / each.record).read_bytes() for each in cells if each != lost}
    with started(slurm, place) as second:
        wait_for(slurm.running, "the job that was killed runs again", LIMIT_S)
        ((number, node),) = slurm.running().items()
        slurm.kill_node(node)
        wait_for(lambda: not slurm.running(), "the job is queued again", LIMIT_S)
        slurm.start_node(node, "-b")
        said, _ = second.communicate(timeout=LIMIT_S)
    print(said, *slurm.states(), sep="\n")
    assert second.returncode == 0
    assert "restarts=1" in slurm.call("scontrol", "show", "job", number).lower()
    assert all((place / each).read_bytes() == content for each, content in kept.items())

    argv = [ROOT / "shingle", *SET, "--folder", plain]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert comparable(place / "e11.jsonl") == comparable(plain / "e11.jsonl")

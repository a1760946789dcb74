# SPDX-License-Identifier: MIT OR Apache-2.0
"""The crash explorer: 500 states of all its workloads, and that it finds what it is for."""

from pathlib import Path

import pytest

import harness
from shingle import crash, crash_workload

pytestmark = pytest.mark.machine

STATES = 500
SEED = 1


def described(tallies: dict[str, crash.Tally]) -> str:
    failures = [found for tally in tallies.values() for found in tally.failures]
    return "\n".join("\n  ".join((found.replay, *found.problems)) for found in failures[: crash.SHOWN])


def test_states_of_every_workload_and_depth_are_as_they_should_be() -> None:
    workloads = list(crash_workload.WORKLOADS.values())
    tallies = crash.explore(workloads, STATES, SEED, harness.built)
    assert not described(tallies), described(tallies)
    assert sum(tally.states for tally in tallies.values()) >= STATES
    for name, tally in tallies.items():
        # Cut once, cut in a recovery, cut in a recovery from that; with what was not durable lost, kept, in part.
        assert set(tally.by_depth) == {1, 2, 3}, name
        assert set(tally.by_fate) >= set("lks"), name
        # Only a lazy mount that finds its own log shows anything.
        assert tally.kept > tally.states // 4, name


def test_a_disk_that_ignores_flushes_is_found_out(folder: Path) -> None:
    workload = crash_workload.find("tiny")
    tallies = crash.explore([workload], 40, SEED, harness.built, flush_ignored=True)
    failures = tallies["tiny"].failures
    assert len(failures) > 5, f"{tallies['tiny'].states} states, {len(failures)} wrong; SEED={SEED}"
    # By its name a state comes back, and with it what is wrong; also one that was cut in a recovery.
    found = max(failures, key=lambda each: each.name.count("/"))
    again = crash.replay(workload, SEED, found.name, harness.built, keep=folder / "image", flush_ignored=True)
    assert [each.problems for each in again.failures] == [found.problems]
    assert (folder / "image").stat().st_size == workload.disk_mib << 20

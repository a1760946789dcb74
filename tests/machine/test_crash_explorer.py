# SPDX-License-Identifier: MIT OR Apache-2.0
"""The crash explorer: 500 states of all its workloads, and that it finds what it is for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import harness
from shingle.failure import Failure
from shingle.machine.console import Trouble
from shingle.verify import crash, crash_round, crash_workload

pytestmark = pytest.mark.machine

STATES = 500
SEED = 1


def described(failures: Sequence[crash_round.Found]) -> str:
    return "\n".join("\n  ".join((found.replay, *found.problems)) for found in failures[: crash.SHOWN])


def test_states_of_every_workload_and_depth_are_as_they_should_be() -> None:
    workloads = list(crash_workload.WORKLOADS.values())
    explored = crash.explore(workloads, STATES, SEED, harness.built)
    assert not explored.total.failures, described(explored.total.failures)
    # A record may have fewer distinct states than its share: a mount that has nothing to recover writes little.
    assert explored.total.states > STATES - 5 * len(workloads)
    for name, tally in explored.tallies.items():
        # Cut once, cut in a recovery, cut in a recovery from that; with what was not durable lost, kept, in part.
        assert set(tally.by_depth) == {1, 2, 3}, name
        assert set(tally.by_fate) >= set("lks"), name
        # Only a lazy mount that finds its own log shows anything.
        assert tally.kept > tally.states // 4, name
    # Half of all states as users would leave them: with snapshots in the log; and data is compared.
    assert crash.lacking(explored, workloads) is None
    for workload in workloads:
        assert explored.tallies[workload.name].compared > 0, workload.name


def test_a_disk_that_ignores_flushes_is_found_out(folder: Path) -> None:
    workload = crash_workload.find("tiny")
    total = crash.explore([workload], 40, SEED, harness.built, flush_ignored=True).total
    assert len(total.failures) > total.states // 4, f"{len(total.failures)} of {total.states} wrong; SEED={SEED}"
    # By its name a state comes back, and with it what is wrong; also one that was cut in a recovery.
    found = max(total.failures, key=lambda each: each.name.count("/"))
    again = crash.replay(workload, SEED, found.name, harness.built, keep=folder / "image", flush_ignored=True)
    assert [each.name for each in again.total.failures] == [found.name]
    # The first is e2fsck's; how often the kernel repeats itself depends on the states before.
    assert again.total.failures[0].problems[0] == found.problems[0]
    assert (folder / "image").stat().st_size == workload.disk_mib << 20


def test_a_kernel_whose_tail_passes_live_blocks_is_found_out() -> None:
    mutant = {"kernel": "mutant:no-tail-rule", "complains": (Trouble.WARNING, Trouble.FILE_SYSTEM_ERROR)}
    workload = replace(crash_workload.find("tiny"), **mutant)  # type: ignore[arg-type]
    # The head that comes to a live copy ends the journal, before anything is lost.
    with pytest.raises(Failure, match="Input/output error"):
        crash.explore([workload], 40, SEED, harness.built)


def test_a_kernel_whose_fsync_forgets_what_moved_is_found_out() -> None:
    workload = replace(crash_workload.find("relocated"), kernel="mutant:relocate-fsync-forgets")
    total = crash.explore([workload], 60, SEED, harness.built).total
    assert any("was synced" in problem for found in total.failures for problem in found.problems), f"SEED={SEED}"


def test_a_kernel_that_loses_small_files_as_they_grow_is_found_out() -> None:
    workload = replace(crash_workload.find("grown"), kernel="mutant:unwritten-inline-files")
    total = crash.explore([workload], 60, SEED, harness.built).total
    assert any("holds zeros" in problem for found in total.failures for problem in found.problems), f"SEED={SEED}"

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Damaged logs: 200 of those that `./shingle crash --damage` makes, of each kind some."""

import pytest

import harness
from shingle.verify import crash, damage

pytestmark = pytest.mark.machine

LOGS = 200
SEED = 1


def described(found: damage.Found) -> str:
    where = [f"{target} {way}: {detail}" for target, way, detail in found.state.done]
    return "\n  ".join((found.replay, *where, *found.problems))


def test_damaged_logs_are_recovered_or_refused_and_never_bring_the_kernel_down() -> None:
    tally = damage.explore(list(damage.WORKLOADS.values()), LOGS, SEED, harness.built).tally
    assert not tally.wrong, "\n".join(map(described, tally.wrong[: crash.SHOWN]))
    # Most kinds of damage in most ways; some of it cost something, or the damage was never met.
    assert tally.states >= LOGS * 9 // 10
    assert {target for target, _ in tally.ways} >= {"superblock", "marker", "descriptor", "copy", "snapshot", "commit"}
    for outcome in (damage.Outcome.RECOVERED, damage.Outcome.LOSS_NAMED, damage.Outcome.REFUSED):
        assert sum(count for (_, each), count in tally.lazy.items() if each is outcome) > 0, outcome

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernel's own map, snapshots, scan and mount under random histories, in user space, against a trivial model.

Another seed, or more histories:

    SHINGLE_MODEL_SEED=7 SHINGLE_MODEL_HISTORIES=20000 ./shingle test model
"""

from __future__ import annotations

import contextlib
import os
import time

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from model import build, histories

SEED = int(os.environ.get("SHINGLE_MODEL_SEED", "18"))
SHORT = int(os.environ.get("SHINGLE_MODEL_HISTORIES", "2000"))
LONG = 100_000
# A mutant is found in so many histories, or it is not.
MUTANT_HISTORIES = 3000
HISTORY = st.sampled_from(histories.LENGTHS).flatmap(lambda length: st.binary(min_size=length, max_size=length))


class Wrong(AssertionError):
    """A history after which something is not true."""


def explore(runner: histories.Runner, count: int, mutant: str = "") -> int:
    """Runs `count` histories; the first failure ends it. Returns how many ran."""
    ran = 0
    failed: list[bytes] = []

    @seed(SEED)
    @settings(
        max_examples=count, deadline=None, database=None, print_blob=False, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(HISTORY)
    def one(history: bytes) -> None:
        nonlocal ran
        ran += 1
        if runner.run(history):
            failed.append(history)
            raise Wrong

    with contextlib.suppress(Wrong):
        one()
    if failed:
        # Steps do not shrink as bytes do, hence not by hypothesis.
        history = histories.shrunk(runner, failed[0])
        raise Wrong(f"{runner.run(history)}\nseed {SEED}, history {ran}; replay it with\n"
                    f"  {histories.replay_command(history, mutant)}")  # fmt: skip
    return ran


def hold(count: int) -> None:
    """Nothing fails in `count` histories, and all that can happen did."""
    started = time.monotonic()
    print(f"seed {SEED}, {count} histories: SHINGLE_MODEL_SEED={SEED} ./shingle test model")
    with histories.running() as runner:
        ran = explore(runner, count)
    print(f"{ran} histories in {time.monotonic() - started:.0f} s")
    print(", ".join(f"{name} {value:,}" for name, value in runner.statistics.items()))
    assert runner.statistics, "the program did not say what it reached"
    assert runner.status == 0, "memory was not given back"
    assert [name for name, value in runner.statistics.items() if not value] == [], "never reached"


def test_histories_hold() -> None:
    hold(SHORT)


@pytest.mark.long
def test_very_many_histories_hold() -> None:
    hold(LONG)


def test_a_log_that_is_kept_is_what_is_tested() -> None:
    """Were the files under test renamed, the model would test less without a word."""
    for name in build.WHOLE:
        assert (build.ROOT / build.JBD2 / name).exists(), name


@pytest.mark.parametrize("mutant", build.mutants())
def test_a_mutant_is_found(mutant: str) -> None:
    """With a guard taken out of the kernel's files, a history fails, and soon."""
    started = time.monotonic()
    with histories.running(mutant=mutant) as runner, pytest.raises(Wrong) as found:
        explore(runner, MUTANT_HISTORIES, mutant)
    print(f"{mutant}: {time.monotonic() - started:.1f} s\n{found.value}")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Negative controls: with a rule taken out of the kernel, the test that guards it fails.

Each test here runs the same load on the kernel as it is, where it must pass, and on the mutant.
"""

from pathlib import Path

import pytest

from harness import Bench
from kernel import stress
from shingle import job
from shingle.failure import Failure

pytestmark = pytest.mark.machine

SEED = 5


def mutant_fails(folder: Path, name: str, *load: job.Step, capacity_bytes: int = stress.CAPACITY_BYTES) -> str:
    """Runs the load on the mutant and returns how it failed."""
    bench = Bench(folder, f"mutant:{name}")
    try:
        stress.run(bench, *load, seed=SEED, host_limit_s=400, capacity_bytes=capacity_bytes)
    except (Failure, AssertionError) as failure:
        return str(failure)
    pytest.fail(f"the load passes on the kernel with '{name}', so it guards nothing; SEED={SEED}")


def test_stale_blocks_reach_the_page_cache_without_its_hook(bench: Bench, folder: Path) -> None:
    load = job.load("mix", {"threads": 4, "operations": 1500, "verify_every": 250, "seed": SEED})
    stress.run(bench, load, seed=SEED, host_limit_s=400)
    mutant_fails(folder, "no-page-cache-hook", load)


def test_file_data_is_overwritten_without_the_freed_block_rule(bench: Bench, folder: Path) -> None:
    load = job.load("dirty_reuse", {"rounds": 12, "seed": SEED})
    booted = stress.run(bench, load, seed=SEED, host_limit_s=400, capacity_bytes=1 << 30)
    assert stress.statistics(booted)["emergency"] > 0
    how = mutant_fails(folder, "no-freed-block-rule", load, capacity_bytes=1 << 30)
    # Not just any failure: the data of a file is not what was written.
    assert "differ" in how, how

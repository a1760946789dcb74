# SPDX-License-Identifier: MIT OR Apache-2.0
"""Negative controls: with a rule taken out of the kernel, the test that guards it fails.

Each test here runs the same load on a kernel that has the rule, where it must pass, and on the mutant.
"""

from pathlib import Path

import pytest

from harness import Bench
from kernel import stress
from shingle import job
from shingle.failure import Failure

pytestmark = pytest.mark.machine

SEED = 5


def mutant_bench(folder: Path, name: str) -> Bench:
    below = folder / name
    below.mkdir()
    return Bench(below, f"mutant:{name}")


def manifests_before_and_after_a_raw_read(bench: Bench) -> tuple[str, str]:
    """What a tree looks like from the caches, and after user space read the whole device below it."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=1 << 30, seed=SEED)
    manifest = [job.load("manifest", {"output": f"/run/out/{name}.txt"}) for name in ("before", "after")]
    steps = bench.mounted(
        formatted,
        job.load("createfiles", {"count": 300, "threads": 2, "seed": SEED}),
        job.sync(),
        manifest[0],
        job.drop_caches(),
        job.run(["/bin/dd", f"if={job.DEVICE}", "of=/dev/null", "bs=1M", "count=1024"]),
        manifest[1],
        options="journal_lazy",
    )
    booted = bench.boot(steps, drive=formatted.file, seed=SEED, memory_mib=2048)
    return booted.text("before.txt"), booted.text("after.txt")


def test_stale_blocks_reach_the_page_cache_without_its_hook(bench: Bench, folder: Path) -> None:
    before, after = manifests_before_and_after_a_raw_read(bench)
    assert len(before.splitlines()) > 300
    assert after == before
    try:
        before, after = manifests_before_and_after_a_raw_read(mutant_bench(folder, "no-page-cache-hook"))
    except Failure:
        return  # the tree could not even be walked
    assert after != before, f"nothing depends on the hook; SEED={SEED}"


def reuse_while_demoting(bench: Bench) -> None:
    """Directories are freed, and their blocks become file data, while the journal is told to demote all it holds."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=1 << 30, seed=SEED)
    steps = bench.mounted(
        formatted,
        job.background([job.write("/sys/fs/ext4/shd0/journal_lazy/demote", "4096"), job.sleep(0.01)]),
        job.load("dirty_reuse", {"rounds": 6, "commit_only": True, "seed": SEED}),
        job.stop_background(),
        stress.statistic("demoted"),
        options="journal_lazy",
    )
    booted = bench.boot(steps, drive=formatted.file, seed=SEED, memory_mib=512, host_limit_s=400)
    stress.assert_no_complaint(booted)
    assert stress.statistics(booted)["demoted"] > 200


def test_file_data_is_overwritten_without_the_freed_block_rule(folder: Path) -> None:
    reuse_while_demoting(mutant_bench(folder, "control"))
    with pytest.raises(Failure) as failure:
        reuse_while_demoting(mutant_bench(folder, "no-freed-block-rule"))
    # Not just any failure: the data of a file are not what was written.
    said = f"{failure.value}\n{failure.value.detail}"
    assert "dirty_reuse" in said and "which was not written there" in said, said

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Negative controls: with a rule taken out of the kernel, the test that guards it fails.

Each test here runs the same load on a kernel that has the rule, where it must pass, and on the mutant.
"""

from pathlib import Path

import pytest

from harness import Bench
from kernel import stress
from shingle import fs, job
from shingle.failure import Failure

pytestmark = pytest.mark.machine

SEED = 5
# Large enough for snapshots.
LAZY_64M = fs.ext4("ext4-lazy-64m", "journal_lazy on a 64 MiB journal", 64, "journal_lazy")


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


def tree_after_demotion_and_crash(bench: Bench) -> None:
    """Blocks go home, a snapshot is written, and the power goes before they are there."""
    formatted = bench.formatted(LAZY_64M, capacity_bytes=1 << 30, seed=SEED)

    def manifest(name: str) -> job.Step:
        return job.load("manifest", {"output": f"/run/out/{name}"})

    steps = bench.mounted(
        formatted,
        job.load("makedirs", {"count": 300, "seed": SEED, "path": "before"}),
        job.sync(),
        job.write("/sys/fs/ext4/shd0/journal_lazy/demote", "16384"),
        job.load("makedirs", {"count": 1200, "seed": SEED, "path": "behind"}),
        # A commit, and no more: a sync of everything would bring them home.
        job.run(["/bin/sync", "/mnt"]),
        stress.statistic("demoted"),
        stress.statistic("snapshots"),
        job.save(),
        manifest("ran.txt"),
        options="journal_lazy",
    )
    ran = bench.boot(steps, drive=formatted.file, seed=SEED, save=True)
    found = stress.statistics(ran)
    assert found["demoted"] > 100 and found["snapshots"] > 0, found
    again = bench.boot(bench.mounted(formatted, manifest("again.txt"), options="journal_lazy"), drive=ran.saved_drive)
    stress.assert_no_complaint(again)
    assert again.text("again.txt") == ran.text("ran.txt")


def test_blocks_on_their_way_home_are_lost_without_their_place_in_a_snapshot(folder: Path) -> None:
    tree_after_demotion_and_crash(mutant_bench(folder, "control"))
    with pytest.raises((Failure, AssertionError)):
        tree_after_demotion_and_crash(mutant_bench(folder, "snapshot-forgets-demoted"))

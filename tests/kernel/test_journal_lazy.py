# SPDX-License-Identifier: MIT OR Apache-2.0
"""journal_lazy under stress, and what it refuses."""

import pytest

from harness import Bench
from kernel import stress
from shingle.catalogue import fs
from shingle.machine import job

pytestmark = pytest.mark.machine

SEED = 11


def mix(operations: int) -> job.Step:
    """Parallel create, rename, unlink, append and more, held against a model."""
    return job.load("mix", {"threads": 8, "operations": operations, "verify_every": operations // 4, "seed": SEED})


# Who makes room in the log, and what then counts.
POLICIES = {"off": "emergency", "watermarks": "relogged", "fixed": "relogged"}


def assert_was_exercised(booted: stress.Booted, counter: str = "relogged") -> None:
    """A stress that never filled the log or read from it has tested nothing."""
    found = stress.statistics(booted)
    assert found[counter] > 0, found
    assert found["log_reads"] > 0, found
    assert found["dropped"] > 0, found


@pytest.mark.parametrize(
    ("policy", "journal_mib", "counter"),
    [
        ("off", stress.JOURNAL_MIB, "emergency"),
        ("watermarks", stress.JOURNAL_MIB, "relogged"),
        ("watermarks", stress.TINY_JOURNAL_MIB, "swept"),
    ],
)
def test_files_survive_a_small_journal_and_a_raw_reader(
    bench: Bench, policy: str, journal_mib: int, counter: str
) -> None:
    load = mix(4000), stress.fsx(20_000, seed=SEED)
    booted = stress.run(bench, *load, seed=SEED, host_limit_s=400, policy=policy, journal_mib=journal_mib)
    assert_was_exercised(booted, counter)


@pytest.mark.sanitize
def test_files_survive_below_the_sanitizers(sanitizing_bench: Bench) -> None:
    booted = stress.run(sanitizing_bench, mix(1000), stress.fsx(3_000, seed=SEED), seed=SEED, host_limit_s=500)
    assert_was_exercised(booted)


# Host time of the long tests: half an hour on an idle machine, and nobody's business on a busy one.
LONG_S = 3 * 3600.0


@pytest.mark.long
def test_files_survive_200000_operations(bench: Bench) -> None:
    booted = stress.run(bench, mix(20_000), stress.fsx(200_000, seed=SEED), seed=SEED, host_limit_s=LONG_S)
    assert_was_exercised(booted)


@pytest.mark.long
@pytest.mark.sanitize
def test_files_survive_40000_operations_below_the_sanitizers(sanitizing_bench: Bench) -> None:
    booted = stress.run(sanitizing_bench, mix(2_000), stress.fsx(40_000, seed=SEED), seed=SEED, host_limit_s=LONG_S)
    assert_was_exercised(booted)


@pytest.mark.sanitize
@pytest.mark.parametrize("policy", ["off", "fixed"])
def test_freed_directories_never_overwrite_file_data(sanitizing_bench: Bench, policy: str) -> None:
    reuse = job.load("dirty_reuse", {"rounds": 3, "names": 3000, "seed": SEED})
    booted = stress.run(sanitizing_bench, reuse, seed=SEED, host_limit_s=500, capacity_bytes=1 << 30, policy=policy)
    assert stress.statistics(booted)[POLICIES[policy]] > 0


REFUSED = {
    "data=journal": ("", "data=journal"),
    "nodelalloc": ("", "nodelalloc"),
    "barrier=0": ("", "barrier=0"),
    "journal_async_commit,data=writeback": ("", "journal_async_commit"),
    "usrjquota=aquota.user,jqfmt=vfsv1": ("^quota", "usrjquota="),
    "usrquota,grpquota": ("^quota", "usrquota, grpquota"),
    "grpquota": ("^quota", "use the quota feature"),
    "": ("fast_commit", "fast commit"),
    "nojournal_checksum": ("", "nojournal_checksum"),
    "norecovery": ("^has_journal", "mounted w/o journal"),
    "noatime": ("^metadata_csum", "v3 checksums"),
}


@pytest.mark.parametrize("options", list(REFUSED))
def test_what_does_not_go_together_is_refused_with_a_reason(bench: Bench, options: str) -> None:
    features, reason = REFUSED[options]
    mkfs = ["/sbin/mke2fs", "-q", "-F", "-t", "ext4", *(["-O", features] if features else []), job.DEVICE]
    wanted = ",".join(filter(None, ["journal_lazy", options]))
    steps = [
        job.run(mkfs),
        job.mount("ext4", wanted, may_fail=True),
        # The same without the option mounts: it was journal_lazy that was refused.
        job.mount("ext4", options.replace("norecovery", "")),
        job.umount(),
    ]
    booted = bench.boot(steps, drive=bench.empty(capacity_bytes=1 << 30))
    refused = booted.outcome.steps[1]
    assert refused.status == 22, refused
    said = [line for line in booted.outcome.console.splitlines() if "journal_lazy" in line]
    assert said and reason in said[0], booted.outcome.console


REFUSED_LATER = ("journal_nolazy", "barrier=0", "nodelalloc", "usrjquota=aquota.user,jqfmt=vfsv1", "usrquota")


def test_a_remount_is_refused_what_a_mount_is(bench: Bench) -> None:
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=stress.CAPACITY_BYTES)
    steps = bench.mounted(
        formatted,
        *(job.run(["/bin/mount", "-o", f"remount,{options}", "/mnt"], may_fail=True) for options in REFUSED_LATER),
        job.read("/proc/mounts"),
        options="journal_lazy",
    )
    booted = bench.boot(steps, drive=formatted.file)
    remounts = [step for step in booted.outcome.steps if step.do == "exec"]
    assert all(step.status != 0 for step in remounts) and len(remounts) == len(REFUSED_LATER)
    said = [line for line in booted.outcome.console.splitlines() if "remount" in line and "journal_lazy" in line]
    assert len(said) == len(REFUSED_LATER), booted.outcome.console
    mounts = next(str(step.extra["text"]) for step in booted.outcome.steps if step.do == "read")
    assert any("/mnt" in line and "journal_lazy" in line for line in mounts.splitlines()), mounts


def test_a_refused_remount_changes_nothing(bench: Bench) -> None:
    """The options are looked at before any is applied: no file is written meanwhile under one that is refused."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=stress.CAPACITY_BYTES)
    # What a remount that fails late does not take back.
    more = "max_dir_size_kb=77,inode_readahead_blks=64"
    remounts = [
        job.run(["/bin/mount", "-o", f"remount,{more},{options}", "/mnt"], may_fail=True) for options in REFUSED_LATER
    ]
    mounts = job.read("/proc/mounts")
    steps = bench.mounted(formatted, mounts, *remounts, mounts, options="journal_lazy")
    booted = bench.boot(steps, drive=formatted.file)
    assert all(step.status != 0 for step in booted.outcome.steps if step.do == "exec")
    before, after = (str(step.extra["text"]) for step in booted.outcome.steps if step.do == "read")
    assert "journal_lazy" in before and after == before


def test_without_the_option_nothing_is_lazy(bench: Bench) -> None:
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=stress.CAPACITY_BYTES)
    steps = bench.mounted(formatted, job.read("/proc/mounts"), job.run(["/bin/ls", "/sys/fs/ext4/shd0"], stdout="ls"))
    booted = bench.boot(steps, drive=formatted.file)
    assert "journal_lazy" not in booted.text("ls")
    assert not any("/mnt" in line and "journal_lazy" in line for line in booted.results().splitlines())
    assert fs.find("ext4").options == ""

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cleaner makes room in the log before anybody waits for it, and never touches what is being freed."""

import pytest

from harness import Bench, Booted
from kernel import stress
from shingle.catalogue import fs
from shingle.machine import job
from shingle.runs.record import counter_changes

pytestmark = pytest.mark.machine

SEED = 31
LAZY = "journal_lazy"
CAPACITY_BYTES = 8 << 30
# Large enough that the reserve is not most of it, small enough to wrap within seconds.
LAZY_64M = fs.ext4("ext4-lazy-64m", "journal_lazy on a 64 MiB journal", 64, LAZY)
LAZY_128M = fs.ext4("ext4-lazy-128m", "journal_lazy on a 128 MiB journal", 128, LAZY)
# To fill that log some five times takes 541 to 845 seeks (15 runs, seeds 31 to 38: threads meet otherwise in each);
# 975 to 1,079 where nothing is read ahead and a sweep is of 2 MiB (seeds 31 to 34).
MOST_SEEKS = 900
POLICY = "/sys/fs/ext4/shd0/journal_lazy/policy"
STATISTICS = ("relogged", "swept", "emergency", "log_used", "log_blocks", "live_blocks")


def statistics() -> list[job.Step]:
    return [stress.statistic(name) for name in STATISTICS]


def manifest(name: str) -> job.Step:
    return job.load("manifest", {"output": f"/run/out/{name}"})


def wrap_the_log() -> list[job.Step]:
    """Cold files once, then trees that come and go: several revolutions of 64 MiB, with many commits."""
    steps = [job.load("createfiles", {"count": 3000, "seed": SEED, "path": "cold"}), job.sync()]
    for number in range(12):
        name = f"files{number}"
        steps += [job.load("createfiles", {"count": 1500, "seed": number, "path": name}), job.sync(), job.sleep(1)]
        steps += [job.load("removefiles", {"path": name}), job.sync(), job.sleep(1)]
    return steps


def cleaned(bench: Bench, policy: str, *more: job.Step) -> Booted:
    formatted = bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    steps = [
        *bench.mounted(
            formatted,
            job.write(POLICY, policy),
            job.run(["/bin/cat", POLICY], stdout="policy.txt"),
            *wrap_the_log(),
            *more,
            *statistics(),
            manifest("ran.txt"),
            options=LAZY,
        ),
        *bench.mounted(formatted, manifest("again.txt"), options=LAZY),
    ]
    booted = bench.boot(steps, drive=formatted.file, save=True, seed=SEED)
    stress.assert_no_complaint(booted)
    assert booted.text("policy.txt") == f"{policy}\n"
    assert booted.text("again.txt") == booted.text("ran.txt")
    assert len(booted.text("ran.txt").splitlines()) > 3000
    bench.assert_clean(booted.saved_drive, recover=True)
    return booted


def test_cleaning_by_watermarks_leaves_nothing_to_do_in_an_emergency(bench: Bench) -> None:
    off = stress.statistics(cleaned(bench, "off"))
    watermarks = stress.statistics(cleaned(bench, "watermarks"))
    assert off["relogged"] == off["swept"] == 0 < off["emergency"], off
    assert watermarks["emergency"] == 0 < watermarks["relogged"] + watermarks["swept"], watermarks


def test_the_fixed_policy_only_writes_again(bench: Bench) -> None:
    fixed = stress.statistics(cleaned(bench, "fixed"))
    assert fixed["relogged"] > 0 == fixed["swept"], fixed


def many_files() -> list[job.Step]:
    """More live blocks than an idle disk leaves in 64 MiB of log, and few enough that nothing goes home before."""
    return commits_without_a_pause(60, files=200)


def commits_without_a_pause(count: int, *, files: int) -> list[job.Step]:
    steps = []
    for number in range(count):
        steps += [job.load("createfiles", {"count": files, "seed": number, "path": f"more{number}"}), job.sync()]
    return steps


def test_an_idle_disk_is_used_to_make_room(bench: Bench) -> None:
    formatted = bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    before = [job.read(f"{stress.STATISTICS}/{name}") for name in ("swept", "live_blocks")]
    steps = bench.mounted(
        formatted, *many_files(), *before, job.sleep(60), *statistics(), manifest("ran.txt"), options=LAZY
    )
    again = bench.mounted(formatted, manifest("again.txt"), options=LAZY)
    booted = bench.boot([*steps, *again], drive=formatted.file, save=True, seed=SEED)
    stress.assert_no_complaint(booted)
    swept, live, *_ = (int(str(step.extra["text"])) for step in booted.outcome.steps if step.do == "read")
    found = stress.statistics(booted)
    assert swept == 0 < found["swept"], found
    assert found["live_blocks"] < 0.5 * found["log_blocks"], found
    assert live - found["live_blocks"] > 1000, (live, found)
    assert booted.text("again.txt") == booted.text("ran.txt")
    bench.assert_clean(booted.saved_drive, recover=True)


def test_a_full_log_goes_home_in_long_sweeps(bench: Bench) -> None:
    """More new directories than the log and the memory hold: the arm does not move for each few blocks.

    Writers may outrun a sweep once or twice, as in half of the seeds, and then wait for a sixteenth of the log.
    """
    formatted = bench.formatted(LAZY_128M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    directories = {"count": 60_000, "width": 4, "shape": "filebench", "threads": 8, "path": "dirs", "seed": SEED}
    steps = [
        *bench.mounted(
            formatted,
            job.load("makedirs", directories) | {"phase": "full"},
            *statistics(),
            manifest("ran.txt"),
            options=LAZY,
        ),
        *bench.mounted(formatted, manifest("again.txt"), options=LAZY),
    ]
    booted = bench.boot(steps, drive=formatted.file, save=True, seed=SEED, memory_mib=256)
    stress.assert_no_complaint(booted)
    assert booted.text("again.txt") == booted.text("ran.txt")
    bench.assert_clean(booted.saved_drive, recover=True)
    (full,) = (step for step in booted.outcome.steps if step.phase == "full")
    changed = counter_changes(full.before, full.after)
    found = stress.statistics(booted)
    print(found, {name: value for name, value in changed.items() if value})
    assert found["swept"] > 50_000 and found["emergency"] < found["log_blocks"] // 8, found
    assert changed["journal_read_bytes"] > 20 << 20, changed
    assert changed["seeks"] <= MOST_SEEKS, changed


# FIFREEZE and FITHAW.
FREEZE, THAW = 0xC0045877, 0xC0045878


def on_mount_point(request: int) -> job.Step:
    program = f"import fcntl, os; fcntl.ioctl(os.open('/mnt', os.O_RDONLY), {request:#x}, 0)"
    return job.run(["/usr/bin/python3", "-c", program])


def test_a_frozen_file_system_is_left_alone(bench: Bench) -> None:
    """Though much of the log is live and the disk idle: what would be cleaned is cleaned after the thaw."""
    formatted = bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    steps = bench.mounted(
        formatted,
        *many_files(),
        stress.statistic("swept"),
        on_mount_point(FREEZE),
        job.sleep(30),
        on_mount_point(THAW),
        job.load("createfiles", {"count": 100, "seed": SEED, "path": "last"}),
        job.sync(),
        job.sleep(30),
        *statistics(),
        options=LAZY,
    )
    booted = bench.boot(steps, drive=formatted.file, save=True, seed=SEED)
    stress.assert_no_complaint(booted)
    *_, frozen, thawed = (
        sum(changed for name, changed in counter_changes(step.before, step.after).items() if "_written_" in name)
        for step in booted.outcome.steps
        if step.do == "sleep"
    )
    assert frozen == 0 < thawed
    bench.assert_clean(booted.saved_drive, recover=True)


@pytest.mark.parametrize("option", ["journal_lazy_drain", "journal_lazy_keep"])
def test_a_volume_that_is_drained_at_a_freeze_mounts_anywhere(bench: Bench, option: str) -> None:
    """A read-only snapshot of it by a stock kernel, which cannot replay: with the option to drain it need not."""
    formatted = bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    load = [job.load("makedirs", {"count": 200, "seed": SEED}), manifest("ran.txt"), on_mount_point(FREEZE), job.save()]
    steps = bench.mounted(formatted, *load, on_mount_point(THAW), options=f"{LAZY},{option}")
    frozen = bench.boot(steps, drive=formatted.file, save=True, seed=SEED)
    stress.assert_no_complaint(frozen)
    protected = [*formatted.classes(), job.run(["/sbin/blockdev", "--setro", job.DEVICE])]
    if option == "journal_lazy_keep":
        stock = bench.boot([*protected, job.mount("ext4", "ro", may_fail=True)], drive=frozen.saved_drive)
        assert stock.outcome.steps[-1].status != 0
        return
    steps = [*protected, job.mount("ext4", "ro"), manifest("stock.txt"), job.umount()]
    assert bench.boot(steps, drive=frozen.saved_drive).text("stock.txt") == frozen.text("ran.txt")

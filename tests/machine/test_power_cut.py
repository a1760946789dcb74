# SPDX-License-Identifier: MIT OR Apache-2.0
"""Power cuts: the machine dies at a chosen request, and what was durable is a file system."""

import random
from pathlib import Path

import pytest

from harness import Bench
from shingle.catalogue import fs
from shingle.catalogue.drive import FormattedDrive
from shingle.failure import Failure
from shingle.machine import job, trace

pytestmark = pytest.mark.machine

MARKER = job.run(["/bin/sh", "-c", "echo durable > /mnt/marker && sync /mnt/marker"])
PARTS = 12
NESTED = 4
STATISTICS = "/sys/fs/ext4/shd0/journal_lazy"


def many_commits() -> list[job.Step]:
    """Trees that come and go, with a sync after each."""
    steps = [MARKER]
    for number in range(8):
        steps += [job.load("createfiles", {"count": 60, "seed": number, "path": f"files{number}"}), job.sync()]
        if number % 2:
            steps += [job.load("removefiles", {"path": f"files{number}"}), job.sync()]
    return steps


def job_of(bench: Bench, formatted: FormattedDrive, options: str) -> list[job.Step]:
    return bench.mounted(formatted, *many_commits(), options=options)


def requests_of(bench: Bench, steps: list[job.Step], formatted: FormattedDrive) -> int:
    """How many requests reach the drive when nobody pulls the plug."""
    whole = bench.boot(steps, drive=formatted.file, trace=True)
    return len(trace.read(whole.trace_file).requests)


@pytest.mark.parametrize("options", ["", "journal_lazy"])
def test_what_a_power_cut_leaves_recovers_to_a_clean_file_system(bench: Bench, options: str) -> None:
    formatted = bench.formatted("ext4-128m")
    steps = job_of(bench, formatted, options)
    requests = requests_of(bench, steps, formatted)
    # Every part of the run is cut; journal_lazy needs fewer requests, because nothing goes home.
    assert requests > 4 * PARTS
    for part in range(1, PARTS):
        cut = requests * part // PARTS
        left = bench.boot(steps, drive=formatted.file, save=True, cut=cut)
        assert left.outcome.power_cut, f"no cut at request {cut} of {requests}"
        bench.assert_clean(left.saved_drive, recover=True)


def test_what_the_kernel_complains_of_before_a_cut_is_no_less_wrong(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    complains = job.write("/dev/kmsg", "BUG: KASAN: none of ours")
    with pytest.raises(Failure, match="kernel bug"):
        bench.boot([complains, *job_of(bench, formatted, "")], drive=formatted.file, cut=60)


def test_the_same_cut_leaves_the_same_bytes(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    steps = job_of(bench, formatted, "journal_lazy")
    left = [bench.boot(steps, drive=formatted.file, save=True, cut=60).saved_drive.read_bytes() for _ in range(2)]
    assert left[0] == left[1]


@pytest.mark.parametrize("options", ["", "journal_lazy"])
def test_what_was_synced_survives(bench: Bench, options: str) -> None:
    formatted = bench.formatted("ext4-128m")
    marked = requests_of(bench, bench.mounted(formatted, MARKER, options=options), formatted)
    left = bench.boot(job_of(bench, formatted, options), drive=formatted.file, save=True, cut=marked + 20)
    assert left.outcome.power_cut
    read = bench.mounted(formatted, job.run(["/bin/cat", "/mnt/marker"], stdout="marker.txt"))
    again = bench.boot(read, drive=left.saved_drive, save=True)
    assert again.text("marker.txt") == "durable\n"
    bench.assert_clean(again.saved_drive)


def manifest(name: str) -> job.Step:
    return job.load("manifest", {"output": f"/run/out/{name}"})


def generation(bench: Bench, formatted: FormattedDrive, number: int) -> list[job.Step]:
    """A mount of journal_lazy that creates, removes and syncs; each of its number makes other files."""
    files = [
        job.load("createfiles", {"count": 60, "seed": 10 * number + part, "path": f"files{number}-{part}"})
        for part in range(3)
    ]
    removal = job.load("removefiles", {"path": f"files{number}-0"})
    steps = [files[0], job.sync(), files[1], removal, job.sync(), files[2]]
    return bench.mounted(formatted, *steps, options="journal_lazy")


def assert_one_tree_for_all(bench: Bench, formatted: FormattedDrive, drive: Path, replay: str) -> bool:
    """Stock replay, a stock mount and a lazy one agree. Returns whether the lazy one took the log over."""
    bench.assert_clean(drive, recover=True)
    lazy = bench.boot(bench.mounted(formatted, manifest("tree.txt"), options="ro,journal_lazy"), drive=drive)
    stock = bench.boot(bench.mounted(formatted, manifest("tree.txt"), options="ro"), drive=drive)
    assert lazy.text("tree.txt") == stock.text("tree.txt"), replay
    return "blocks in the log" in lazy.outcome.console


@pytest.mark.parametrize("seed", [1, 2])
def test_cuts_upon_cuts_leave_one_tree_to_whoever_mounts(bench: Bench, seed: int) -> None:
    """Each mount of journal_lazy goes on with the log that the last cut left, and is cut itself."""
    choose = random.Random(seed)
    formatted = bench.formatted("ext4-128m")
    drive, cuts, kept = formatted.file, list[int](), 0
    for depth in range(NESTED):
        # At first late enough to leave a log; then from the mount on.
        cuts.append(choose.randrange(10 if depth else 40, 70))
        left = bench.boot(generation(bench, formatted, depth), drive=drive, save=True, cut=cuts[-1])
        drive = left.saved_drive
        kept += assert_one_tree_for_all(bench, formatted, drive, f"SEED={seed} cuts={cuts}")
    assert kept == NESTED, f"the log was not always taken over; SEED={seed} cuts={cuts}"


@pytest.mark.parametrize("policy", ["fixed", "watermarks"])
def test_cuts_while_the_cleaner_works(bench: Bench, policy: str) -> None:
    choose = random.Random(policy)
    formatted = bench.formatted(fs.ext4("ext4-lazy-16m", "journal_lazy on a 16 MiB journal", 16, "journal_lazy"))
    steps = [job.write(f"{STATISTICS}/policy", policy)]
    for number in range(10):
        steps += [job.load("createfiles", {"count": 500, "seed": number, "path": f"files{number}"}), job.sync()]
        if number % 2:
            steps += [job.load("removefiles", {"path": f"files{number - 1}"}), job.sync()]
    steps += [job.read(f"{STATISTICS}/{name}") | {"phase": name} for name in ("relogged", "swept")]
    steps = bench.mounted(formatted, *steps, options="journal_lazy")
    whole = bench.boot(steps, drive=formatted.file, trace=True)
    assert any(int(str(step.extra["text"])) > 0 for step in whole.outcome.steps if step.do == "read")
    requests = len(trace.read(whole.trace_file).requests)
    for _ in range(4):
        # The cleaner begins when the log has been filled for the first time.
        cut = choose.randrange(requests // 3, requests)
        left = bench.boot(steps, drive=formatted.file, save=True, cut=cut)
        assert_one_tree_for_all(bench, formatted, left.saved_drive, f"policy={policy} cut={cut}")


@pytest.mark.long
def test_every_cut_of_a_mount_that_goes_on_with_a_log(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    drive = bench.boot(generation(bench, formatted, 0), drive=formatted.file, save=True, cut=55).saved_drive
    steps = generation(bench, formatted, 1)
    whole = bench.boot(steps, drive=drive, trace=True)
    for cut in range(1, len(trace.read(whole.trace_file).requests)):
        left = bench.boot(steps, drive=drive, save=True, cut=cut)
        assert assert_one_tree_for_all(bench, formatted, left.saved_drive, f"cut={cut}"), f"cut={cut}"

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Power cuts: the machine dies at a chosen request, and what was durable is a file system."""

import pytest

from harness import Bench
from shingle import job, trace
from shingle.drive import FormattedDrive

pytestmark = pytest.mark.machine

MARKER = job.run(["/bin/sh", "-c", "echo durable > /mnt/marker && sync /mnt/marker"])
PARTS = 12


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
    assert requests > 100
    for part in range(1, PARTS):
        cut = requests * part // PARTS
        left = bench.boot(steps, drive=formatted.file, save=True, cut=cut)
        assert left.outcome.power_cut, f"no cut at request {cut} of {requests}"
        bench.assert_clean(left.saved_drive, recover=True)


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

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Power cuts: the machine dies at a chosen request, and what was durable is a file system."""

import pytest
from harness import Bench
from shingle import job, trace

pytestmark = pytest.mark.machine

LOAD = job.load("createfiles", {"count": 500, "seed": 2})
MARKER = job.run(["/bin/sh", "-c", "echo durable > /mnt/marker && sync /mnt/marker"])


@pytest.mark.parametrize("options", ["", "journal_lazy"])
@pytest.mark.parametrize("cut", [40, 120, 400])
def test_what_a_power_cut_leaves_recovers_to_a_clean_file_system(bench: Bench, options: str, cut: int) -> None:
    formatted = bench.formatted("ext4-128m")
    steps = bench.mounted(formatted, MARKER, LOAD, job.sync(), job.load("removefiles", {}), job.sync(), options=options)
    cut_off = bench.boot(steps, drive=formatted.file, save=True, cut=cut)
    if not cut_off.outcome.power_cut:
        pytest.skip(f"the run has fewer than {cut} requests")
    bench.assert_clean(cut_off.saved_drive, recover=True)


def test_the_same_cut_leaves_the_same_bytes(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    steps = bench.mounted(formatted, MARKER, LOAD, job.sync())
    images = [
        bench.boot(steps, drive=formatted.file, save=True, cut=100).saved_drive.read_bytes() for _ in range(2)
    ]  # fmt: skip
    assert images[0] == images[1]


def test_what_was_synced_survives(bench: Bench) -> None:
    formatted = bench.formatted("ext4-128m")
    whole = bench.boot(bench.mounted(formatted, MARKER), drive=formatted.file, trace=True)
    requests = len(trace.read(whole.trace_file).requests)
    steps = bench.mounted(formatted, MARKER, LOAD, job.sync(), options="journal_lazy")
    cut_off = bench.boot(steps, drive=formatted.file, save=True, cut=requests + 50)
    assert cut_off.outcome.power_cut
    read = bench.mounted(formatted, job.run(["/bin/cat", "/mnt/marker"], stdout="marker.txt"))
    again = bench.boot(read, drive=cut_off.saved_drive, save=True)
    assert again.text("marker.txt") == "durable\n"
    bench.assert_clean(again.saved_drive)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What was freed before an unmount stays free behind the next mount: no synced byte of a file is overwritten.

The log is of 64 MiB, so that it has snapshots. A block is logged before one, logged again behind it, and freed before
the next: a mount that reads the snapshots must not take the first copy for the newest. The volume is then filled with
files of a pattern, each synced, and all that is in the log is sent home.
"""

import re

import pytest

from harness import Bench
from kernel import stress, test_snapshots
from shingle.machine import job
from shingle.paths import ROOT

pytestmark = pytest.mark.machine

SEED = 18
CAPACITY_BYTES = 1 << 30
ORACLE = ROOT / "lab/in_machine/oracle.py"
NAMES, DIRECTORIES = 1500, 2600


def oracle(*arguments: str) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{ORACLE.name}", *arguments], stdout=f"{arguments[0]}.txt")


def python(text: str) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", f"import os\nwide = '/mnt/wide'\n{text}"])


MAKE = f"""
os.mkdir(wide)
open(f'{{wide}}/origin', 'w').close()
for number in range({NAMES}):
    os.link(f'{{wide}}/origin', f'{{wide}}/{{number:05}}' + 'n' * 240)
"""
REMOVE_HALF = f"""
for number in range(0, {NAMES}, 2):
    os.unlink(f'{{wide}}/{{number:05}}' + 'n' * 240)
"""
REMOVE_REST = """
for name in os.listdir(wide):
    os.unlink(f'{wide}/{name}')
os.rmdir(wide)
"""


# A period each, what a snapshot is due after. The second one takes no block that was freed.
DIRECTORIES_MADE = f"""
for number in range({DIRECTORIES}):
    os.makedirs(f'/mnt/dirs/{{number}}')
"""
DIRECTORIES_CHANGED = f"""
for number in range({DIRECTORIES}):
    open(f'/mnt/dirs/{{number}}/file', 'w').close()
"""


def history() -> list[job.Step]:
    steps = [oracle("reserve", "/mnt/reserved", "100")]
    for program in (MAKE, DIRECTORIES_MADE, REMOVE_HALF, REMOVE_REST, DIRECTORIES_CHANGED):
        steps += [python(program), job.sync()]
    return steps


def filled_and_drained() -> list[job.Step]:
    return [
        oracle("fill", "/mnt/filled", str(SEED)), oracle("drain", "/mnt"), job.drop_caches(),
        oracle("compare", "/mnt/filled", str(SEED)),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [False, True], ids=["unmounted", "power cut"])
def test_freed_blocks_stay_free_behind_a_mount_that_reads_snapshots(bench: Bench, cut: bool) -> None:
    formatted = bench.formatted(test_snapshots.LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    counted = [stress.statistic(name) for name in ("snapshots", "live_blocks", "map_digest")]
    steps = bench.mounted(
        formatted, *history(), *counted, *([job.save()] if cut else []), options=test_snapshots.LAZY
    )  # fmt: skip
    ran = bench.boot(steps, drive=formatted.file, seed=SEED, save=True, files=(ORACLE,))
    stress.assert_no_complaint(ran)
    before = stress.statistics(ran)
    assert before["snapshots"] > 1, before
    # The map first: where it differs, data is lost sooner or later.
    mounted = [stress.statistic(name) for name in ("mount_snapshots", "live_blocks", "map_digest")]
    steps = bench.mounted(formatted, *mounted, *filled_and_drained(), options=test_snapshots.LAZY)
    again = bench.boot(steps, drive=ran.saved_drive, seed=SEED, save=True, files=(ORACLE,), host_limit_s=400)
    stress.assert_no_complaint(again)
    after = stress.statistics(again)
    assert after["mount_snapshots"] > 0, after
    # An oracle that leaves room says nothing about what is written there.
    free = re.search(r"(\d+) blocks are free", again.text("fill.txt"))
    assert free is not None and int(free[1]) < 200, again.text("fill.txt")
    assert "compared" in again.text("compare.txt")
    if cut:
        assert after["map_digest"] == before["map_digest"], (before, after)
    bench.assert_clean(again.saved_drive, recover=True)

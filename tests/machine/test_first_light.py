# SPDX-License-Identifier: MIT OR Apache-2.0
"""The demo's claim at a smaller size, on the full 8 TB drive: what journal_lazy writes and leaves to clean."""

import pytest

from harness import Bench
from shingle.catalogue import workload
from shingle.catalogue.drive import find as find_drive
from shingle.catalogue.fs import find as find_fs
from shingle.runs import run
from shingle.runs.record import Record
from shingle.runs.run import Run

pytestmark = pytest.mark.machine

JOURNAL, SUPERBLOCK = 4, 8


def make_directories(bench: Bench, fs_name: str) -> tuple[Record, Record]:
    """What the workload and the unmount did."""
    plan = workload.plan(["MakeDirs"], scale=0.1, seed=1)
    result = run.perform(bench.built, Run(find_drive("st8000as0002"), find_fs(fs_name), plan))
    of_phase = {record["phase"]: record for record in result.records}
    return of_phase["MakeDirs"], of_phase[workload.UNMOUNT]


def test_lazy_writes_metadata_once_and_leaves_next_to_nothing_to_clean(bench: Bench) -> None:
    lazy, lazy_unmount = make_directories(bench, "ext4-lazy")
    baseline, _ = make_directories(bench, "ext4-10g")
    assert lazy["metadata_written_bytes"] == 0
    assert lazy["data_written_bytes"] == 0
    assert lazy["bands_dirty"] <= 4
    assert lazy["bands_cleaned"] <= 4
    assert lazy["cleaning_s"] <= 5
    # Each band left is named: the superblock, the journal's superblock, the ends of the log.
    assert all(bits & ~(JOURNAL | SUPERBLOCK) == 0 for _, _, bits in lazy["bands_dirty_by_class"])
    # The log is kept: the unmount is no bill that comes later.
    assert lazy_unmount["metadata_written_bytes"] == 0
    assert lazy_unmount["virtual_s"] <= 5
    assert baseline["metadata_written_bytes"] > 100 << 20
    assert baseline["bands_cleaned"] > 4 * lazy["bands_cleaned"]
    assert baseline["cleaning_s"] > 2 * lazy["cleaning_s"]

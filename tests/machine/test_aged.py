# SPDX-License-Identifier: MIT OR Apache-2.0
"""An aged file system is full of holes, clean, and the same each time."""

from dataclasses import replace

import pytest

from harness import CAPACITY_BYTES, PROFILE, Bench
from shingle.catalogue import drive, fs
from shingle.failure import Failure

pytestmark = pytest.mark.machine


def test_ageing_fills_and_fragments_and_leaves_a_clean_file_system(bench: Bench) -> None:
    age = replace(drive.Age(), rounds=1)
    profile = drive.find(PROFILE)
    aged = drive.aged(bench.built, profile, fs.find("ext4"), age, capacity_bytes=CAPACITY_BYTES)
    fresh = bench.formatted("ext4")
    assert aged.key != fresh.key
    assert aged.layout == fresh.layout
    bench.assert_clean(aged.file)
    assert aged.file.stat().st_size > fresh.file.stat().st_size


def test_a_file_system_that_cannot_reserve_space_is_refused(bench: Bench) -> None:
    with pytest.raises(Failure, match="nilfs2 cannot be aged"):
        drive.aged(bench.built, drive.find(PROFILE), fs.find("nilfs2"), drive.Age())

# SPDX-License-Identifier: MIT OR Apache-2.0
"""fsck.ext4lazy on a log that journal_lazy left, after an unmount and after a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import Bench
from kernel.test_features import work
from kernel.test_remembered_errors import ERROR, LAZY, after_errors
from lazy_tools.test_helpers import fsck
from lazy_tools.volumes import stock, tool
from shingle import job

pytestmark = pytest.mark.machine


@pytest.mark.parametrize("cut", [False, True], ids=["unmount", "cut"])
@pytest.mark.parametrize("error", [False, True], ids=["well", "error"])
def test_an_error_that_the_kernel_recorded_is_seen(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch, cut: bool, error: bool
) -> None:
    steps = [work("files", 2), *([ERROR] if error else []), job.sleep(7)]
    drive = after_errors(bench, f"{LAZY},errors=continue", *steps, cut=cut)
    image = bench.exported(drive)
    home = stock("dumpe2fs", "-h", image)
    assert ("with errors" in home) == (error and not cut), "a power cut leaves the error in the log alone"
    done = fsck(folder, "-a", image)
    if error:
        assert "(an error is recorded in it)" in done.stdout, done.stdout + done.stderr
    else:
        assert "is kept by journal_lazy; not checked" in done.stdout, done.stdout + done.stderr
    if cut:
        return
    reads, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *where: reads.append(where) or pread(*where))
    volume = tool.read_volume(image)
    assert tool.superblock_in_log(volume, volume.journal_super()) is not None
    assert len(reads) < tool.NEAR, "an unmount leaves the superblock at the end of the log"

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Without data_stream and data_relocate ext4 sends the disk what it sends without their patches."""

from dataclasses import replace

import numpy as np
import pytest

from harness import Bench
from shingle.build import build
from shingle.catalogue import synced, workload
from shingle.catalogue.drive import find as find_drive
from shingle.catalogue.fs import find as find_fs
from shingle.machine import trace as traces
from shingle.paths import ROOT
from shingle.runs import run
from shingle.runs.run import Keep, Run

pytestmark = [pytest.mark.machine, pytest.mark.long]

SEED, CAPACITY_BYTES = 7, 64 << 30
# With 512 MiB the file server's requests come 0.1 ms sooner from some place on, and then not all are merged alike: most
# likely because the patches change the size of objects, and with it when pages are reclaimed.
MEMORY_MIB = 2048
# Of kernel/patches: those that bring the two options.
IN_ORDER = ("0011", "0012", "0013")
# Not the moments.
WHAT = ["op", "sector", "sectors", "class", "flags"]
PLANS = {
    "file-server": workload.plan(["CreateFiles", "Postmark", "RemoveFiles"], scale=0.02, seed=SEED),
    "overwrites": synced.Synced((synced.OVERWRITE,), {synced.OVERWRITE: 0.02}, SEED),
}


def without_the_patches(bench: Bench) -> build.Built:
    whole = build.recipe("main", bench.built.crates)
    gone = [path for number in IN_ORDER for path in (ROOT / "kernel/patches").glob(f"{number}-*.patch")]
    assert len(gone) == len(IN_ORDER)
    fewer = replace(whole, patches=tuple(path for path in whole.patches if path not in gone))
    options = [path.read_text() for path in build.fragments("main")]
    return replace(bench.built, kernel=build.build_recipe("without data in order", "main", fewer, options))


def requests(bench: Bench, built: build.Built, fs_name: str, plan: workload.Plan) -> traces.Requests:
    wanted = Run(
        find_drive("st8000as0002"), find_fs(fs_name), plan, memory_mib=MEMORY_MIB, capacity_bytes=CAPACITY_BYTES
    )
    kept = run.perform(built, wanted, keep=Keep(bench.folder / built.kernel.key)).trace
    assert kept is not None
    return traces.read(kept).requests


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("fs_name", ["ext4", "ext4-lazy"])
def test_each_request_is_the_same_without_the_options(bench: Bench, fs_name: str, plan: workload.Plan) -> None:
    before = without_the_patches(bench)
    assert before.kernel.key != bench.built.kernel.key
    theirs, ours = (requests(bench, built, fs_name, plan) for built in (before, bench.built))
    moments = sum(theirs["arrival_ns"] != ours["arrival_ns"]) if len(theirs) == len(ours) else "?"
    print(f"{fs_name}: {len(theirs)} requests, {moments} of them at another moment, SEED={SEED}")
    assert len(theirs) > 500
    assert np.array_equal(theirs[WHAT], ours[WHAT])
    # With the options on they are others.
    assert not np.array_equal(ours[WHAT], requests(bench, bench.built, "ext4-smr", plan)[WHAT])

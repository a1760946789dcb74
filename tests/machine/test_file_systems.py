# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every file system completes a workload, and its own checker is content with what it left."""

import pytest

from harness import Bench
from shingle import run, workload
from shingle.drive import find as find_drive
from shingle.fs import FILE_SYSTEMS
from shingle.run import Keep, Run

pytestmark = pytest.mark.machine

CAPACITY_BYTES = 64 << 30


@pytest.mark.parametrize("name", [name for name, each in FILE_SYSTEMS.items() if not each.one_file_per_zone])
def test_a_workload_completes_and_the_image_is_clean(bench: Bench, name: str) -> None:
    variant = FILE_SYSTEMS[name]
    plan = workload.plan(["CreateFiles", "FindFiles", "RemoveFiles", "Postmark"], scale=0.001, seed=3)
    wanted = Run(find_drive("st8000as0002"), variant, plan, memory_mib=512, capacity_bytes=CAPACITY_BYTES)
    result = run.perform(bench.built, wanted, keep=Keep(bench.folder, trace=False, drive=True))
    assert [record["phase"] for record in result.records] == ["mount", *plan.phases]
    postmark = result.records[-2]
    assert postmark["total_written_bytes"] > 0
    for request_class in ("metadata", "journal", "superblock"):
        value = postmark[f"{request_class}_written_bytes"]
        assert (value is not None) == variant.reports(request_class)
    if variant.check is not None:
        assert result.saved is not None
        image = bench.recovered(result.saved) if variant.keeps_log else bench.exported(result.saved)
        bench.assert_image_clean(image, variant.check)

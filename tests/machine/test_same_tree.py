# SPDX-License-Identifier: MIT OR Apache-2.0
"""A tree written under journal_lazy reads back the same under stock ext4: names, sizes, hashes."""

import pytest

from harness import Bench
from shingle.machine import job

pytestmark = pytest.mark.machine


def manifest(name: str) -> job.Step:
    """Names, modes, links, sizes and hashes of everything below the mount point."""
    return job.load("manifest", {"output": f"/run/out/{name}"})


@pytest.mark.parametrize("variant", ["ext4-lazy", "ext4-lazy-1g"])
def test_lazy_and_stock_see_the_same_files(bench: Bench, variant: str) -> None:
    formatted = bench.formatted(variant)
    load = [
        job.load("createfiles", {"count": 2000, "seed": 4}),
        job.load("postmark", {"files": 200, "directories": 50, "transactions": 400, "seed": 4}),
        job.sync(),
        job.load("removefiles", {"path": "files"}),
    ]
    lazy = bench.boot(
        bench.mounted(formatted, *load, manifest("lazy.txt"), options="journal_lazy"), drive=formatted.file, save=True
    )
    bench.assert_clean(lazy.saved_drive, recover=True)
    stock = bench.boot(bench.mounted(formatted, manifest("stock.txt"), options="ro"), drive=lazy.saved_drive)
    assert len(lazy.text("lazy.txt").splitlines()) > 200
    assert stock.text("stock.txt") == lazy.text("lazy.txt")

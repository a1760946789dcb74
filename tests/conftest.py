# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures of the tests that cross languages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Bench
from shingle.paths import run_directory

LONG = os.environ.get("SHINGLE_SANITIZE") == "1"
STOCK_KERNEL = os.environ.get("SHINGLE_STOCK_KERNEL") == "1"
CLIENTS = os.environ.get("SHINGLE_CLIENTS") == "1"
BROWSER = os.environ.get("SHINGLE_BROWSER") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests only run when they are asked for."""
    skip = pytest.mark.skip(reason="long: only with `./shingle test --sanitize`")
    if "every_drive" not in config.option.markexpr:
        asked_for = [item for item in items if "every_drive" not in item.keywords]
        config.hook.pytest_deselected(items=[item for item in items if "every_drive" in item.keywords])
        items[:] = asked_for
    stock = pytest.mark.skip(reason="downloads a kernel: only with `./shingle test --stock-kernel`")
    for item in items:
        # The mark, not the folder of that name: what needs no kernel there runs always.
        if item.get_closest_marker("stock_kernel") and not STOCK_KERNEL:
            item.add_marker(stock)
        if "browser" in item.keywords and not BROWSER:
            item.add_marker(pytest.mark.skip(reason="needs a browser: only with `./shingle test --browser`"))
        if "clients" in item.keywords:
            if not CLIENTS:
                item.add_marker(pytest.mark.skip(reason="only with `./shingle test --clients`"))
        elif "long" in item.keywords and not LONG:
            item.add_marker(skip)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, gone after the test."""
    with tempfile.TemporaryDirectory(prefix="shingle-test-", dir=run_directory()) as name:
        yield Path(name)


@pytest.fixture
def bench(folder: Path) -> Bench:
    """A test bench with the ordinary kernel."""
    return Bench(folder)


@pytest.fixture
def sanitizing_bench(folder: Path) -> Bench:
    """A test bench with KASAN, lockdep and PREEMPT; ext4 only."""
    return Bench(folder, "sanitize")

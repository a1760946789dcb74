# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures of the tests that cross languages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Bench
from shingle.checks import suite
from shingle.paths import run_directory

LONG = os.environ.get("SHINGLE_LONG") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long, or needs what a host may lack, only runs when it is asked for."""
    if "every_drive" not in config.option.markexpr:
        asked_for = [item for item in items if "every_drive" not in item.keywords]
        config.hook.pytest_deselected(items=[item for item in items if "every_drive" in item.keywords])
        items[:] = asked_for
    for item in items:
        # The mark, not the folder of that name: what needs no kernel there runs always.
        parts = [part for part in suite.PARTS if item.get_closest_marker(part)]
        for part in parts:
            if os.environ.get(f"SHINGLE_{part.upper()}") != "1":
                option = part.replace("_", "-")
                item.add_marker(pytest.mark.skip(reason=f"only with `./shingle test --{option}`"))
        if "long" in item.keywords and not parts and not LONG:
            item.add_marker(pytest.mark.skip(reason="long: only with `./shingle test --long`"))


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

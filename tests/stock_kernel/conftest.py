# SPDX-License-Identifier: MIT OR Apache-2.0
"""The package, its module and a guest, made once for all tests on Debian's own kernel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from shingle.build import build
from shingle.debian import stock_kernel
from shingle.machine.progress import Terminal


@pytest.fixture(scope="session")
def workshop() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shingle-stock-", dir="/var/tmp") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def kernel() -> stock_kernel.Kernel:
    with Terminal(Console(stderr=True)) as progress:
        return stock_kernel.kernel(progress)


@pytest.fixture(scope="session")
def module(kernel: stock_kernel.Kernel) -> stock_kernel.Module:
    with Terminal(Console(stderr=True)) as progress:
        return stock_kernel.module(kernel, progress)


@pytest.fixture(scope="session")
def guest(kernel: stock_kernel.Kernel, module: stock_kernel.Module, workshop: Path) -> stock_kernel.Guest:
    return stock_kernel.guest(kernel, module, build.build_crates().load, workshop)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures of the lab's own tests: a machine that is a script, and a cache that is nobody's."""

from pathlib import Path

import pytest

from shingle.machine.machine import Machine


@pytest.fixture
def fake_machine() -> Machine:
    return Machine(Path(__file__).with_name("fake_linux.py"), Path("/bin/true"))


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHINGLE_CACHE", str(tmp_path_factory.mktemp("cache")))

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The POSIX conformance suite, as its registry has it, installed once into the cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shingle.build import build
from shingle.paths import cache, locked

VERSION = "0.2.2"
_LIMIT_S = 1800


def program() -> Path:
    root = cache() / f"pjdfstest-{VERSION}"
    binary = root / "bin" / "pjdfstest"
    with locked("pjdfstest"):
        if not binary.exists():
            subprocess.run(
                ["cargo", "install", "--quiet", "--locked", "--version", VERSION, "--root", str(root), "pjdfstest"],
                env=build.cargo_environment(), timeout=_LIMIT_S, check=True,
            )  # fmt: skip
    return binary

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The file system exerciser, as its registry has it, installed once into the cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shingle.build import build
from shingle.machine import job
from shingle.paths import cache, locked

VERSION = "0.3.2"
_LIMIT_S = 600


def program() -> Path:
    root = cache() / f"fsx-{VERSION}"
    binary = root / "bin" / "fsx"
    with locked("fsx"):
        if not binary.exists():
            subprocess.run(
                ["cargo", "install", "--quiet", "--locked", "--version", VERSION, "--root", str(root), "fsx"],
                env=build.cargo_environment(), timeout=_LIMIT_S, check=True,
            )  # fmt: skip
    return binary


def step(operations: int, *, seed: int, file: str = "/mnt/fsx") -> job.Step:
    """Runs it on one file; a difference to what it wrote fails the step, and its log names the seed."""
    argv = [f"{job.OUT}/{program().name}", "-N", str(operations), "-S", str(seed), "-P", "/run", file]
    return job.run(argv, stdout=f"fsx-{seed}.txt")

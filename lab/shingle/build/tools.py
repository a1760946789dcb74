# SPDX-License-Identifier: MIT OR Apache-2.0
"""Test programs that other people keep, as their registry has them; each is installed once into the cache."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from shingle.build import build
from shingle.paths import cache, locked


@dataclass(frozen=True)
class Tool:
    """A program of a Rust package of the same name."""

    name: str
    version: str
    limit_s: int

    def program(self) -> Path:
        root = cache() / f"{self.name}-{self.version}"
        binary = root / "bin" / self.name
        with locked(self.name):
            if not binary.exists():
                install = ["cargo", "install", "--quiet", "--locked", "--version", self.version, "--root", str(root)]
                environment = build.cargo_environment()
                subprocess.run([*install, self.name], env=environment, timeout=self.limit_s, check=True)
        return binary


# The file system exerciser.
FSX = Tool("fsx", "0.3.2", limit_s=600)
# The POSIX conformance suite.
PJDFSTEST = Tool("pjdfstest", "0.2.2", limit_s=1800)

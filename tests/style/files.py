# SPDX-License-Identifier: MIT OR Apache-2.0
"""The project's files, as git knows them."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from shingle.paths import ROOT

_BINARY = {".png", ".xz"}


@functools.cache
def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = sorted({ROOT / name for name in listed.stdout.split("\0") if name})
    return [path for path in paths if path.is_file()]


@functools.cache
def texts() -> list[tuple[str, str]]:
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in files() if path.suffix not in _BINARY]

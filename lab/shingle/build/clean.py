# SPDX-License-Identifier: MIT OR Apache-2.0
"""Empties the cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from shingle.paths import BUILD, cache, locked


def clean(*, everything: bool) -> int:
    """Removes what was built and formatted; returns the bytes that were freed."""
    folders = [cache() / "kernels", cache() / "drives", cache() / "crates", cache() / "profiles"]
    if everything:
        folders += [cache() / "ccache", cache() / "cargo", BUILD]
    with locked("kernel"), locked("crates"):
        freed = sum(_size(folder) for folder in folders)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    return freed


def _size(folder: Path) -> int:
    """Bytes on disk: a saved drive is mostly holes."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())

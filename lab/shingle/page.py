# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pages of docs/ with parts that are made from records."""

from __future__ import annotations

from pathlib import Path

from shingle.failure import Failure
from shingle.paths import ROOT


def replaced(page: str, begin: str, end: str, made: str, path: Path) -> str:
    """The page of that path with `made` between its two marks."""
    before, found, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not found or not last:
        raise Failure(f"{path.relative_to(ROOT)} has lost the marks between which its table stands.")
    return f"{before}{begin}{made}{end}{after}"

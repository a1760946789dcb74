# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plans of faults: what goes wrong in a drive, as a TOML file (docs/reference/faults.md)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from shingle.build import build


def compiled(crates: build.Crates, plan: Path, target: Path) -> Path:
    """Writes a plan as the machine reads it; a wrong plan is a failure with line, key, and what was expected."""
    build.tool_output(crates, "faults", "check", plan, "-o", target)
    return target


def check(crates: build.Crates, plan: Path) -> None:
    """Refuses a wrong plan before anything else is done for it."""
    with tempfile.TemporaryDirectory(prefix="shingle-") as scratch:
        compiled(crates, plan, Path(scratch) / "plan")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The native program `shingle-drive`, which does the work of `drives` and `replay`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shingle import process
from shingle.build import build
from shingle.cli.base import err, out
from shingle.failure import Failure
from shingle.machine.progress import Terminal

# An hour of native work is far more than any of these takes.
_LIMIT_S = 3600.0


def common_options(seed: int, new: bool, record: Path | None) -> list[str | Path]:
    options: list[str | Path] = ["--seed", str(seed)]
    options += ["--new"] if new else []
    return options + ([] if record is None else ["--record", record])


def crates() -> build.Crates:
    with Terminal(err) as progress:
        return build.build_crates(progress=progress)


def run_tool(*arguments: str | Path) -> None:
    """Runs `shingle-drive` and prints what it says; its error sentence becomes ours."""
    tool = crates().tool
    with (
        Terminal(err) as progress,
        progress.task(f"shingle-drive {arguments[0]}"),
        process.started([tool, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running,
    ):
        printed, said = running.communicate(timeout=_LIMIT_S)
    out.file.write(printed.decode(errors="replace"))
    if running.returncode != 0:
        lines = said.decode(errors="replace").strip().splitlines() or [f"shingle-drive {arguments[0]} failed."]
        usage = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        raise Failure(usage[0] if usage else lines[-1].removeprefix("shingle-drive: "), status=2 if usage else 1)

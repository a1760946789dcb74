# SPDX-License-Identifier: MIT OR Apache-2.0
"""fio inside the machine: a job file becomes steps, and what it prints becomes a record's `load`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from shingle.failure import Failure
from shingle.machine import job
from shingle.machine.machine import NS_PER_S

# What of a job file goes with the scale: `size=5g`, `runtime=3600`.
_SCALED = re.compile(r"^(size|runtime)=(\d+)([kmg]?)$", re.M)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}
_BLOCK_BYTES = 4096
_ENGINE = re.compile(r"^\s*ioengine=(\S+)", re.M)
_PLACE = re.compile(r"^\s*(?:directory|filename)=(\S+)", re.M)
# The terse format, version 3: where the fields are (fio's HOWTO, "Terse output").
_TERSE = "3;fio-"
_READ_KIB, _READ_MS, _WRITTEN_KIB, _WRITTEN_MS = 5, 8, 46, 49


def check(path: Path, text: str) -> None:
    """Refuses, before a machine is booted, a job file with an option or engine that fio does not know, or no place."""
    with tempfile.TemporaryDirectory(prefix="shingle-fio-") as scratch:
        said = subprocess.run(
            ["fio", "--parse-only", path.resolve()],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    if said.returncode != 0:
        lines = (said.stdout + said.stderr).strip().splitlines()
        raise Failure(f"{path}: fio does not take it: {lines[0] if lines else 'no reason given'}.", status=2)
    known = _asked("--enghelp").stdout.split()
    for engine in _ENGINE.findall(text):
        if engine not in known:
            raise Failure(f"{path}: fio knows no ioengine {engine!r} (`fio --enghelp` lists them).", status=2)
    places = _PLACE.findall(text)
    if not any(Path(place).is_relative_to(job.MOUNT_POINT) for place in places):
        raise Failure(f"{path}: no directory and no filename is below {job.MOUNT_POINT}, the file system.", status=2)


def _asked(*arguments: str | Path, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["fio", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def scaled(text: str, scale: float, time_scale: float) -> str:
    """The job file at a scale: sizes in whole blocks, times in seconds."""

    def times(found: re.Match[str]) -> str:
        key, number, unit = found.groups()
        factor, least = (time_scale, 1) if key == "runtime" else (scale, _BLOCK_BYTES)
        value = round((int(number) << _SHIFTS[unit]) * factor)
        return f"{key}={max(1, value // least) * least}"

    return _SCALED.sub(times, text)


def steps(name: str, text: str, *, seed: int, only_create: bool) -> list[job.Step]:
    """Runs the jobs, or only makes their files."""
    file = f"/run/{name}.fio"
    argv = [
        "/usr/bin/fio", "--eta=never", "--output-format=terse", "--terse-version=3", "--group_reporting",
        # Its own clock is the processor's, which does not know virtual time.
        "--clocksource=clock_gettime",
        # The drive keeps what is written.
        "--zero_buffers", f"--randseed={seed}", *(["--create_only=1"] if only_create else []), file,
    ]  # fmt: skip
    return [job.write(file, text), job.run(argv, phase=name)]


def load_of(said: str) -> dict[str, Any] | None:
    """What fio's output says of all jobs together; None if it is not fio's."""
    lines = [line.split(";") for line in said.splitlines() if line.startswith(_TERSE)]
    if not lines:
        return None

    def sums(field: int) -> int:
        return sum(int(line[field]) for line in lines)

    run_ms = max(int(line[field]) for line in lines for field in (_READ_MS, _WRITTEN_MS))
    return {
        "name": "fio",
        "user_written_bytes": sums(_WRITTEN_KIB) << 10,
        "user_read_bytes": sums(_READ_KIB) << 10,
        "parts": [{"name": "run", "ns": run_ms * NS_PER_S // 1000}],
    }

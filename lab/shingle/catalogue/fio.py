# SPDX-License-Identifier: MIT OR Apache-2.0
"""fio inside the machine: a job file becomes steps, and what it prints becomes a record's `load`."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shingle.failure import Failure
from shingle.machine import job
from shingle.machine.machine import NS_PER_S

# What of a job file goes with the scale: `size=5g`, `runtime=3600`.
_SCALED = re.compile(r"^(size|runtime)=(\d+)([kmg]?)$", re.M)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}
_BLOCK_BYTES = 4096
# fio's names of what it counts, and the meter's (crates/load/src/meter.rs); each with where its latencies are.
_KINDS = {
    "read": ("read", "clat_ns"),
    "write": ("write", "clat_ns"),
    "trim": ("discard", "clat_ns"),
    "sync": ("fsync", "lat_ns"),
}
_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))


@dataclass(frozen=True)
class _Option:
    line: int
    job: str
    key: str
    value: str


def _options(text: str) -> list[_Option]:
    """The options of a job file with their lines; those of [global] have that for their job."""
    found, job_name = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare[0] in "#;":
            continue
        if bare.startswith("["):
            job_name = bare.strip("[]")
            found.append(_Option(number, job_name, "", ""))
        else:
            key, _, value = bare.partition("=")
            found.append(_Option(number, job_name, key.strip(), value.strip()))
    return found


def check(path: Path, text: str) -> None:
    """Refuses, before a machine is booted, a job file with an option or engine that fio does not know, or no place."""
    options = _options(text)
    with tempfile.TemporaryDirectory(prefix="shingle-fio-") as scratch:
        said = _asked("--parse-only", path.resolve(), cwd=scratch)
    if said.returncode != 0:
        lines = (said.stdout + said.stderr).strip().splitlines() or ["no reason given"]
        wrong = re.search(r"<([^>]+)>", lines[0])
        at = [each.line for each in options if wrong is not None and each.key == wrong[1].partition("=")[0].strip()]
        raise Failure(f"{_where(path, at)}: fio does not take it: {lines[0]}.", status=2)
    known = _asked("--enghelp").stdout.split()
    for each in options:
        if each.key == "ioengine" and each.value.partition(":")[0] not in known:
            told = f"fio knows no ioengine {each.value!r} (`fio --enghelp` lists them)"
            raise Failure(f"{_where(path, [each.line])}: {told}.", status=2)
    _check_places(path, options)


def _where(path: Path, lines: Sequence[int]) -> str:
    return f"{path}, line {lines[0]}" if lines else f"{path}"


def _check_places(path: Path, options: Sequence[_Option]) -> None:
    """Every job works below the mount point, or on a device: all else of the machine cannot be written."""
    for each in options:
        if each.key == "directory" and not all(_below(place, job.MOUNT_POINT) for place in each.value.split(":")):
            told = f"directory={each.value} is not below {job.MOUNT_POINT}, where the file system is"
            raise Failure(f"{_where(path, [each.line])}: {told}.", status=2)
    of_all: dict[str, str] = {}
    for begin in (each for each in options if not each.key):
        # What a job does not say, the last [global] before it does.
        own = {each.key: each.value for each in options if each.job == begin.job and each.line > begin.line}
        if begin.job == "global":
            of_all |= own
            continue
        said = of_all | own
        files = said.get("filename", "").split(":")
        if "directory" not in said and not all(_below(each, job.MOUNT_POINT) or _below(each, "/dev") for each in files):
            told = f"the job [{begin.job}] has no directory; expected directory={job.MOUNT_POINT}, the file system"
            raise Failure(f"{_where(path, [begin.line])}: {told}.", status=2)


def _below(place: str, folder: str) -> bool:
    return Path(place).is_relative_to(folder) and ".." not in Path(place).parts


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


def seeded(seed: int) -> list[str]:
    """Another seed, other places: as long as fio repeats itself (randrepeat, its default) 3.33 passes over the seed."""
    return ["--randrepeat=0", f"--randseed={seed}"]


def steps(name: str, text: str, *, seed: int, only_create: bool) -> list[job.Step]:
    """Runs the jobs, or only makes their files."""
    file, said = f"/run/{name}.fio", f"{name}.fio.json"
    argv = [
        # With the whole histogram of latencies, since percentiles of several groups cannot be put together.
        "/usr/bin/fio", "--eta=never", "--output-format=json+", "--group_reporting",
        # Its own clock is the processor's, which does not know virtual time.
        "--clocksource=clock_gettime",
        # The drive keeps what is written.
        "--zero_buffers", *seeded(seed), *(["--create_only=1"] if only_create else []), file,
    ]  # fmt: skip
    folders = {place for each in _options(text) if each.key == "directory" for place in each.value.split(":")}
    wanted = sorted(folders - {job.MOUNT_POINT, f"{job.MOUNT_POINT}/"})
    return [
        *([job.run(["/usr/bin/mkdir", "-p", *wanted], phase=name)] if wanted else []),
        job.write(file, text),
        job.run(argv, stdout=said, phase=name),
        job.read(f"{job.OUT}/{said}", phase=name),
    ]


def load_of(said: str) -> dict[str, Any] | None:
    """What fio's output says of all jobs together, as a generator would; None if it is not fio's.

    Times are of the calls as fio sees them (completion latency), in virtual ns. Groups of jobs (`stonewall`) run one
    after another.
    """
    begin = re.search(r"^\{", said, re.M)
    if begin is None:
        return None
    told = json.loads(said[begin.start() :])
    if "fio version" not in told:
        return None
    groups = told["jobs"]
    operations: dict[str, int] = {}
    latencies: dict[str, dict[str, int]] = {}
    for kind, (name, where) in _KINDS.items():
        done = [group[kind] for group in groups if group.get(kind, {}).get("total_ios", 0)]
        if done:
            operations[name] = sum(each["total_ios"] for each in done)
            latencies[name] = _summary([each[where] for each in done])
    run_ms = sum(max(group[kind]["runtime"] for kind in ("read", "write", "trim")) for group in groups)
    return {
        "name": "fio",
        "operations": operations,
        "user_written_bytes": sum(group["write"]["io_bytes"] for group in groups),
        "user_read_bytes": sum(group["read"]["io_bytes"] for group in groups),
        "parts": [{"name": "run", "ns": run_ms * NS_PER_S // 1000}],
        "latency_ns": latencies,
    }


def _summary(parts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """As the meter of the generators has it, of several histograms: buckets are less than 2 % wide."""
    buckets: Counter[int] = Counter()
    for each in parts:
        for ns, count in each["bins"].items():
            buckets[int(ns)] += count
    total = sum(buckets.values())
    mean = sum(each["mean"] * each["N"] for each in parts) / sum(each["N"] for each in parts)
    found = {"count": total, "min": min(each["min"] for each in parts), "mean": int(mean)}
    ordered = sorted(buckets.items())
    reached = list(itertools.accumulate(count for _, count in ordered))
    for name, quantile in _QUANTILES:
        found[name] = ordered[bisect.bisect_left(reached, math.ceil(quantile * total))][0]
    return found | {"max": max(each["max"] for each in parts)}

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a command of the user's inside the machine: what it prints and its status go through, its phases get records."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from shingle import process
from shingle.build import build
from shingle.catalogue import command, drive, workload
from shingle.catalogue.command import Command
from shingle.catalogue.drive import FormattedDrive
from shingle.failure import Failure
from shingle.machine import job, machine, watch
from shingle.machine.machine import NS_PER_S, StepResult
from shingle.paths import room, run_directory, run_folder
from shingle.runs import run
from shingle.runs.record import Record
from shingle.runs.run import Run

_COPY_LIMIT_S = 3600
_PERCENTILES = (("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999))

# Of a kind of request: how many took so long, by the first nanosecond of a bucket less than 1 % wide.
Histogram = dict[int, int]


@dataclass(frozen=True)
class Executed:
    """How the command ended, and what it was for the drive. One that could not be started has no records."""

    status: int
    records: tuple[Record, ...] = ()
    phases: tuple[str, ...] = ()
    # What the command itself cannot say.
    said: tuple[str, ...] = ()


def execute(
    built: build.Built,
    wanted: Run,
    plan: Command,
    formatted: FormattedDrive,
    *,
    spin_limit_s: float,
    streams: tuple[IO[bytes], IO[bytes]],
    traces: Path | None = None,
) -> Executed:
    """Runs the command and takes out of the machine what was asked for; `streams` get what it prints, as it comes.

    The folder `traces` gets the trace of each disk.
    """
    with run_folder() as out:
        watch.about(out, wanted.label, drive.cache_limits(wanted.profile))
        plan.put(out, built.crates.guest)
        steps = _with_copies(run.steps_of(wanted, formatted.classes(), save=False), wanted, plan)
        boot = run.boot_of(built, wanted, formatted, steps, out)
        boot = replace(boot, spin_limit_s=spin_limit_s)
        if traces is not None:
            boot = _traced(boot, traces)
        names = (command.STDOUT, command.STDERR)
        printed = [_Stream(out / name, to) for name, to in zip(names, streams, strict=True)]

        def pass_on() -> None:
            for each in printed:
                each.pass_on()

        began = time.monotonic()
        try:
            outcome = machine.run(built.machine, boot, out, beside=pass_on)
        except machine.StepFailed as failure:
            raise _explained(failure) from None
        run_s = time.monotonic() - began
        end = _end_of(outcome.steps)
        missing = _take_out(plan, out)
    if end.failed is not None and end.status != command.EXIT_LIMIT:
        return Executed(end.status, said=(end.failed,))
    sliced, phases = _sliced(boot.steps, outcome.steps, plan)
    records = run.records_of(built, wanted, formatted, sliced, phases, run_s=run_s)
    said = [*end.left, *missing]
    if end.failed is not None:
        said.insert(0, end.failed)
        # The last phase of the command; the unmount comes after it.
        records[-2]["failed"] = end.failed
    status = end.status or (command.EXIT_OURS if missing else 0)
    return Executed(status, records, phases, tuple(said))


def _traced(boot: machine.Boot, folder: Path) -> machine.Boot:
    """The same, and each disk's trace goes to a file of its name."""
    others = (replace(disk, trace=folder / f"shd{number}.trace") for number, disk in enumerate(boot.others, 1))
    return replace(boot, trace=folder / "shd0.trace", others=tuple(others))


class _Stream:
    """A growing file of the machine's, passed on as it grows."""

    def __init__(self, path: Path, to: IO[bytes]) -> None:
        self._path = path
        self._to = to
        self._offset = 0

    def pass_on(self) -> None:
        if not self._path.exists() or self._path.stat().st_size == self._offset:
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            shutil.copyfileobj(file, self._to)
            self._offset = file.tell()
        self._to.flush()


def check_room(plan: Command, capacity_bytes: int) -> None:
    """Refuses files that the drive, or the folder of a run, cannot hold."""
    size = command.size_bytes(plan.brought)
    if size > 0.8 * capacity_bytes:
        raise Failure(f"--in brings {size >> 20:,} MiB, too much for a drive of {capacity_bytes >> 20:,} MiB.")
    folder = run_directory()
    if size > room(folder):
        raise Failure(f"--in brings {size >> 20:,} MiB, and {folder} has room for {room(folder) >> 20:,} MiB.")


def _with_copies(steps: list[job.Step], wanted: Run, plan: Command) -> list[job.Step]:
    """The steps, and those that copy out what was asked for: after the unmount, so that no record has them.

    What is in memory is gone then, so it is copied before; that asks nothing of a disk.
    """
    if not plan.taken:
        return steps
    copies: list[job.Step] = []
    for number, each in enumerate(plan.taken):
        place = Path(each.inside)
        argv = ("/bin/tar", "-c", "--sort=name", "-C", str(place.parent), "-f", f"{job.OUT}/{_archive(number)}",
                "--", place.name)  # fmt: skip
        copies.append(job.run(argv, limit_s=_COPY_LIMIT_S, may_fail=True))
    if wanted.variant.kernel_name == "tmpfs":
        end = next(number for number, step in enumerate(steps) if step["do"] == "umount")
        return [*steps[:end], *copies, *steps[end:]]
    return [*steps, *wanted.variant.mount_steps(), *copies, *wanted.variant.served(job.umount())]


def _archive(number: int) -> str:
    return f"taken-{number}.tar"


def _take_out(plan: Command, out: Path) -> list[str]:
    """Puts what was copied where it was asked for, each whole or not at all; says what is not there."""
    missing = []
    for number, each in enumerate(plan.taken):
        archive = out / _archive(number)
        with tempfile.TemporaryDirectory(prefix=f".{each.target.name}.", dir=each.target.parent) as part:
            with contextlib.suppress(process.Ended):
                argv = ["/bin/tar", "-x", "--no-same-owner", "-C", part, "-f", str(archive)]
                process.run(argv, what="tar", limit_s=_COPY_LIMIT_S)
            made = Path(part) / Path(each.inside).name
            if made.exists() or made.is_symlink():
                made.rename(each.target)
            else:
                missing.append(f"--out {each.inside}: the machine has no such file in the end.")
    return missing


@dataclass(frozen=True)
class _End:
    """How the command ended: its status, and a sentence if it was not started, or was killed at its limit."""

    status: int
    failed: str | None
    # A sentence about what it left running.
    left: tuple[str, ...]


def _end_of(steps: Sequence[StepResult]) -> _End:
    ran, programs = (next(step for step in steps if step.do == do) for do in ("command", "end_programs"))
    names = ", ".join(programs.extra["ended"])
    left = (f"still running when the command had ended, and ended now: {names}.",) if names else ()
    if ran.status != 0:
        not_started = command.EXIT_NOT_FOUND if ran.status == errno.ENOENT else command.EXIT_NO_PROGRAM
        status = ran.status if ran.status == command.EXIT_LIMIT else not_started
        return _End(status, f"{ran.extra['error']}.", left)
    if "signal" in ran.extra:
        return _End(128 + int(ran.extra["signal"]), None, left)
    return _End(int(ran.extra["exited"]), None, left)


def _explained(failure: machine.StepFailed) -> Failure:
    """What is wrong if the machine did not come to the end of its steps."""
    last = failure.steps[-1]
    if last.phase != command.SETUP or last.do != "exec":
        return failure
    shown = str(last.extra.get("stderr_tail", "")).splitlines()[-10:]
    return Failure(f"what comes before the command failed: {last.extra.get('error')}.", detail=shown)


def _sliced(
    asked: Sequence[job.Step], steps: Sequence[StepResult], plan: Command
) -> tuple[list[StepResult], tuple[str, ...]]:
    """The command's step as a step for each phase that it marked, each with its load; and the phases of the run."""
    (name,) = plan.names
    at = next(index for index, step in enumerate(steps) if step.do == "command")
    ran = steps[at]
    marks = ran.extra.get("marks", [])
    readings = _readings(asked, 0)
    names = [name, *(mark["phase"] for mark in marks)]
    times = [ran.start_ns, *(mark["at_ns"] for mark in marks), steps[readings[1]].start_ns]
    counters = [ran.before, *(mark["counters"] for mark in marks), ran.after]
    loads = _loads([steps[index] for index in readings], [mark["latency"] for mark in marks], times)
    others = [_of_other(asked, steps, ran, disk, times) for disk in range(1, plan.disks)]
    parts = []
    for number, phase in enumerate(names):
        last = number == len(names) - 1
        parts.append(
            StepResult(
                do="command",
                phase=phase,
                index=ran.index,
                start_ns=times[number],
                end_ns=ran.end_ns if last else times[number + 1],
                status=0,
                before=counters[number],
                after=counters[number + 1],
                extra={"load": loads[number], **_merged([each[number] for each in others])},
            )
        )
    rest = [replace(step, phase=names[-1]) if step.phase == name else step for step in steps[at + 1 :]]
    setup = (command.SETUP,) if plan.prepares else ()
    return [*steps[:at], *parts, *rest], (run.MOUNT, *setup, *names, workload.UNMOUNT)


def _readings(asked: Sequence[job.Step], disk: int) -> list[int]:
    """The two steps that read a disk's latencies, before the command and after it."""
    path = command.latency_of(disk)
    return [index for index, step in enumerate(asked) if step.get("path") == path]


def _of_other(
    asked: Sequence[job.Step], steps: Sequence[StepResult], ran: StepResult, disk: int, times: Sequence[int]
) -> list[dict[str, Any]]:
    """What another disk than the first counted in each part: its name, counters before and after, load."""
    name = f"shd{disk}"
    marks = [mark["others"][name] for mark in ran.extra.get("marks", [])]
    whole = ran.as_counted_by(name)
    counters = [whole.before, *(mark["counters"] for mark in marks), whole.after]
    readings = [steps[index] for index in _readings(asked, disk)]
    loads = _loads(readings, [mark["latency"] for mark in marks], times)
    return [
        {"disk": name, "before": counters[number], "after": counters[number + 1], "load": load}
        for number, load in enumerate(loads)
    ]


def _merged(others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What other disks counted in one part, as a step has it; nothing without such disks."""
    if not others:
        return {}
    counted = {when: {each["disk"]: each[when] for each in others} for when in ("before", "after")}
    return {"others": counted, "loads": {each["disk"]: each["load"] for each in others}}


def _loads(readings: Sequence[StepResult], marked: Sequence[str], times: Sequence[int]) -> list[dict[str, Any]]:
    """A disk's load in each part of the command: between its two readings, and the marks."""
    before, after = (_histograms(step.extra["text"]) for step in readings)
    latencies = [before, *map(_histograms, marked), after]
    return [
        _load(latencies[number], latencies[number + 1], end - begin)
        for number, (begin, end) in enumerate(itertools.pairwise(times))
    ]


def _histograms(text: str) -> dict[str, Histogram]:
    return {kind: dict(each["buckets"]) for kind, each in json.loads(text).items()}


def _load(before: Mapping[str, Histogram], after: Mapping[str, Histogram], ns: int) -> dict[str, Any]:
    """What the drive was asked for during a phase: how many requests of each kind, and how long they took."""
    grown = {kind: _grown(before.get(kind, {}), histogram) for kind, histogram in after.items()}
    latency = {kind: _latency(histogram) for kind, histogram in grown.items() if histogram}
    seconds = ns / NS_PER_S
    return {
        "name": "command",
        "longest_stall_ns": max((each["max"] for each in latency.values()), default=0),
        "latency_ns": latency,
        "per_s": {kind: round(each["count"] / seconds, 3) for kind, each in latency.items()} if seconds else {},
    }


def _grown(before: Histogram, after: Histogram) -> Histogram:
    return {first: count - before.get(first, 0) for first, count in after.items() if count > before.get(first, 0)}


def _latency(histogram: Histogram) -> dict[str, int]:
    count = sum(histogram.values())
    total = sum(first * number for first, number in histogram.items())
    shares = {name: _quantile(histogram, -(-count * permille // 1000)) for name, permille in _PERCENTILES}
    return {"count": count, "min": min(histogram), "mean": total // count, **shares, "max": max(histogram)}


def _quantile(histogram: Histogram, wanted: int) -> int:
    """The time that so many do not exceed."""
    firsts = sorted(histogram)
    sums = itertools.accumulate(histogram[first] for first in firsts)
    return next(first for first, so_far in zip(firsts, sums, strict=True) if so_far >= wanted)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boots the simulated machine, watches it, and says what became of it.

A run has three possible ends: an `Outcome` (the job finished), an `Outcome`
with `power_cut` set (the cut that was asked for), or a `Failure` whose detail
is the end of the console. There is no fourth: every wait has a deadline, and
the process group is gone when `run` returns.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shingle import process
from shingle.failure import Failure
from shingle.machine import console, job, spin
from shingle.paths import MEMORY, room

NS_PER_S = 1_000_000_000
# The guest's clock at power-on: 2026-01-01 00:00:00 UTC. Any fixed moment would do.
START_NS = 1_767_225_600 * NS_PER_S
# What a system call costs the simulated host, calibrated to the paper's (about
# 160,000 creates in 10 s in memory); see docs/design/determinism.md.
DEFAULT_CALL_NS = 2_000
DEFAULT_NAME_NS = 60_000

_POLL_S = 0.1
_EXIT_POWER_CUT = 3

Counters = Mapping[str, Any]


@dataclass(frozen=True)
class Machine:
    """The two programs that make a machine: the kernel, and the guest's first process."""

    linux: Path
    init: Path
    # For the kernel, in every boot.
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Disk:
    """A disk beside the first: its drive, and the files of it alone."""

    drive: Path
    save: Path | None = None
    trace: Path | None = None
    faults: Path | None = None


@dataclass(frozen=True)
class Boot:
    """Everything that decides what a run does. Equal boots give equal bytes."""

    steps: tuple[job.Step, ...]
    drive: Path | None = None
    save: Path | None = None
    trace: Path | None = None
    # A plan as `faults.compiled` writes it.
    faults: Path | None = None
    # /dev/shd1 and so on.
    others: tuple[Disk, ...] = ()
    seed: int = 1
    memory_mib: int = 1024
    call_ns: int = DEFAULT_CALL_NS
    name_ns: int = DEFAULT_NAME_NS
    cut: int | None = None
    kernel_arguments: tuple[str, ...] = ()
    # Programs that the job runs from /run/out. Some folders of the host (/tmp, /run) are the guest's own, and a path
    # that differs from clone to clone would reach the guest's memory.
    files: tuple[Path, ...] = ()
    host_limit_s: float = 900.0
    virtual_limit_s: float | None = None
    # Processor time that a program may take without a system call (spin.py).
    spin_limit_s: float | None = None
    interactive: bool = False
    # What the console may show without the run being a failed one, for tests that provoke it.
    expected: tuple[console.Trouble, ...] = ()


@dataclass(frozen=True)
class StepResult:
    do: str
    phase: str | None
    index: int
    start_ns: int
    end_ns: int
    status: int
    before: Counters
    after: Counters
    extra: Mapping[str, Any]

    def as_counted_by(self, disk: str) -> StepResult:
        """The same step, with the counters of another disk than the first (`shd1`)."""
        others = self.extra["others"]
        return replace(self, before=others["before"][disk], after=others["after"][disk])


@dataclass(frozen=True)
class Tick:
    now_ns: int
    phase: str | None
    counters: Counters


@dataclass(frozen=True)
class Outcome:
    steps: tuple[StepResult, ...]
    ticks: tuple[Tick, ...]
    console: str
    status: int
    host_s: float
    power_cut: bool = False


def command_line(machine: Machine, boot: Boot, out: Path) -> list[str]:
    """The UML process's arguments (seam 1)."""
    arguments = [
        str(machine.linux),
        f"mem={boot.memory_mib}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        f"init={machine.init}",
        "norandmaps",
        "time-travel=inf-cpu",
        f"time-travel-start={START_NS}",
        # A guest without memory, or one that asks for a reboot, ends; it does not go on without some process.
        "sysctl.vm.panic_on_oom=1",
        "noreboot",
        f"shingle.seed={boot.seed}",
        f"vcpu.call_ns={boot.call_ns}",
        f"vcpu.name_ns={boot.name_ns}",
        f"shingle.out={out}",
    ]
    for number, disk in enumerate((boot, *boot.others)):
        for name in ("drive", "save", "trace", "faults"):
            if (path := getattr(disk, name)) is not None:
                arguments.append(f"shingle.{name}{number or ''}={path}")
    if boot.cut is not None:
        arguments.append(f"shingle.cut={boot.cut}")
    return [*arguments, *machine.arguments, *boot.kernel_arguments]


def memory_folder(memory_mib: int) -> Path:
    """Where a machine's memory lives: a file as large as what the guest touches of it, in memory if there is room."""
    folders = (MEMORY, Path("/tmp"))
    for folder in folders:
        if room(folder) >= memory_mib << 20:
            return folder
    found = " and ".join(f"{folder} has {room(folder) >> 20:,} MiB" for folder in folders)
    raise Failure(
        f"a machine of {memory_mib:,} MiB of memory needs as much in /dev/shm, or in /tmp, and {found}: make /dev/shm"
        " larger (mount -o remount,size=8G /dev/shm; --shm-size=8g of a container), or the machine smaller.",
        status=2,
    )


def environment(memory: Path = MEMORY) -> dict[str, str]:
    """The same small environment everywhere: the kernel passes what it does not know to init."""
    # Where a kernel that counts its lines writes the counters (verify/coverage.py).
    counted = {name: os.environ[name] for name in ("GCOV_PREFIX",) if name in os.environ}
    return counted | {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": str(memory),
        "HOME": "/",
        "TERM": "linux",
        "LC_ALL": "C",
    }


def run(
    machine: Machine,
    boot: Boot,
    out: Path,
    *,
    watch: Callable[[Tick], None] | None = None,
    beside: Callable[[], None] | None = None,
) -> Outcome:
    """Runs one machine to its end. `out` is a directory of this run alone, and stays the caller's.

    `watch` gets each tick; `beside` is called again and again while the machine runs, and once after.
    """
    variables = environment(memory_folder(boot.memory_mib))
    job.put(out, boot.steps, disks=1 + len(boot.others))
    for file in boot.files:
        shutil.copy(file, out / file.name)
    console_log = out / "console.log"
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if boot.interactive:
            stack.enter_context(_terminal_restored())
            child = stack.enter_context(
                process.started(
                    command_line(machine, boot, out),
                    stdin=None,
                    env=variables,
                    cwd=Path("/"),
                    foreground=True,
                )
            )
        else:
            log = stack.enter_context(console_log.open("wb"))
            child = stack.enter_context(
                process.started(
                    command_line(machine, boot, out),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    cwd=Path("/"),
                )
            )
        try:
            limit = _watch(child, boot, out, began, watch, beside)
        finally:
            if beside is not None:
                beside()
    status = child.returncode
    host_s = time.monotonic() - began
    text = console_log.read_text(errors="replace") if console_log.exists() else ""
    return _judge(boot, out, text, status, host_s, limit)


def _watch(
    child: subprocess.Popen[bytes],
    boot: Boot,
    out: Path,
    began: float,
    watch: Callable[[Tick], None] | None,
    beside: Callable[[], None] | None,
) -> str | None:
    """Waits for the machine; returns which limit it broke, if any."""
    progress = Follower(out / "progress.jsonl")
    spins = None if boot.spin_limit_s is None else spin.Detector(child.pid, boot.spin_limit_s)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_POLL_S)
        if beside is not None:
            beside()
        if spins is not None:
            spins.look()
        for tick in progress.new_ticks():
            if watch is not None:
                watch(tick)
            if boot.virtual_limit_s is not None and tick.now_ns > boot.virtual_limit_s * NS_PER_S:
                child.kill()
                child.wait()
                return f"{boot.virtual_limit_s:.0f} s of virtual time"
        if child.returncode is not None or process.stopping():
            return None
        if not boot.interactive and time.monotonic() - began > boot.host_limit_s:
            child.kill()
            child.wait()
            return f"{boot.host_limit_s:.0f} s of host time"


def _judge(boot: Boot, out: Path, text: str, status: int, host_s: float, limit: str | None) -> Outcome:
    """Turns what is left of a run into an outcome, or raises the failure that explains it."""
    if process.stopping():
        raise Failure("stopped before it was done.", status=130)
    results = read_results(out / "results.jsonl")
    # With a plan of faults, an error of the file system is an answer.
    plans = [boot.faults, *(disk.faults for disk in boot.others)]
    answers = (console.Trouble.FILE_SYSTEM_ERROR,) if any(plans) else ()
    trouble = console.diagnose(text, (*boot.expected, *answers))
    detail = console.tail(text)
    if limit is not None:
        # What is still waiting when the time is over has often said why long before its last lines.
        said = "." if trouble is None else f", and {trouble.trouble.value}: {trouble.line}"
        raise Failure(
            f"the simulated machine did not finish within {limit} ({_where(boot, results)}){said}", detail=detail
        )
    if trouble is not None:
        raise Failure(
            f"the simulated machine {trouble.trouble.value} ({_where(boot, results)}): {trouble.line}",
            detail=detail,
        )
    if boot.cut is not None and status == _EXIT_POWER_CUT:
        return Outcome(results.steps, read_ticks(out), text, status, host_s, power_cut=True)
    if results.end is None:
        raise Failure(
            f"the simulated machine ended with status {status} before its job was done ({_where(boot, results)}).",
            detail=detail,
        )
    if results.end != "ok" or status != 0:
        raise StepFailed(_failed_step(boot, results, status), results.steps, detail)
    return Outcome(results.steps, read_ticks(out), text, status, host_s)


class StepFailed(Failure):
    """A step of the job failed; `steps` are those that were done, the failed one last."""

    def __init__(self, sentence: str, steps: tuple[StepResult, ...], detail: Sequence[str]) -> None:
        super().__init__(sentence, detail=detail)
        self.steps = steps


@dataclass(frozen=True)
class Results:
    steps: tuple[StepResult, ...]
    end: str | None
    reason: str = ""


def read_results(path: Path) -> Results:
    """Reads `results.jsonl`; a last line that was cut off in the middle counts as not written."""
    steps: list[StepResult] = []
    for line in _whole_lines(path):
        entry: dict[str, Any] = json.loads(line)
        if entry.get("event") == "end":
            return Results(tuple(steps), str(entry.get("status")), str(entry.get("message", "")))
        if entry.get("event") == "step":
            steps.append(_step(entry))
    return Results(tuple(steps), None)


def read_ticks(out: Path) -> tuple[Tick, ...]:
    return tuple(_tick(line) for line in _whole_lines(out / "progress.jsonl"))


def _step(entry: dict[str, Any]) -> StepResult:
    known = {"event", "do", "phase", "index", "start_ns", "end_ns", "status", "before", "after"}
    return StepResult(
        do=entry["do"],
        phase=entry.get("phase"),
        index=entry["index"],
        start_ns=entry["start_ns"],
        end_ns=entry["end_ns"],
        status=entry["status"],
        before=entry.get("before") or {},
        after=entry.get("after") or {},
        extra={key: value for key, value in entry.items() if key not in known},
    )


def _tick(line: str) -> Tick:
    entry = json.loads(line)
    return Tick(entry["now_ns"], entry.get("phase"), entry["counters"] or {})


def _whole_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = path.read_text()
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line.strip()]


def _where(boot: Boot, results: Results) -> str:
    done = len(results.steps)
    if done == 0 and results.end is None:
        return "no step of its job was finished"
    if done >= len(boot.steps):
        return "after the last step of its job"
    step = boot.steps[done]
    named = step.get("phase") or step.get("name") or " ".join(map(str, step.get("argv", [])))  # type: ignore[call-overload]
    return f"in step {done + 1} of {len(boot.steps)}, {step['do']}{f' {named}' if named else ''}"


def _failed_step(boot: Boot, results: Results, status: int) -> str:
    for result in results.steps:
        if result.status != 0 and not boot.steps[result.index].get("may_fail"):
            step = boot.steps[result.index]
            what = " ".join(map(str, step.get("argv", []))) or str(step.get("name", ""))  # type: ignore[call-overload]
            reason = result.extra.get("error") or f"status {result.status}"
            return f"step {result.index + 1} of the job, {result.do}{f' {what}' if what else ''}, failed: {reason}."
    reason = results.reason or f"status {status}"
    return f"the simulated machine's job failed: {reason}."


class Follower:
    """Reads the ticks that were added to a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_ticks(self) -> list[Tick]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [_tick(line.decode()) for line in whole.splitlines() if line.strip()]


@contextlib.contextmanager
def _terminal_restored() -> Iterator[None]:
    """UML puts the terminal into raw mode; this puts it back."""
    if not sys.stdin.isatty():
        yield
        return
    saved = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)

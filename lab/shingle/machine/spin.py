# SPDX-License-Identifier: MIT OR Apache-2.0
"""Finds a program inside the machine that computes without end.

Virtual time moves when a system call is made or every task waits, so a program that waits by looking at its own memory
again and again waits for ever: nothing else in the machine goes on meanwhile. One that measures its own speed finds no
end to it, and computes for as long as that takes. From outside, each process of the machine is one of the host's,
stopped by the kernel at every system call and page fault. One that takes processor time and is never stopped has made
no call.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from shingle.failure import Failure

_LOOK_S = 0.5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = 4096


class Spins(Failure):
    """A program was found that spins."""


@dataclass
class _Seen:
    """When a process was last stopped: how often it had been, and its processor time then."""

    stops: int
    cpu_s: float


class Detector:
    """Looks at the processes of a machine, which are the group that its own process leads."""

    def __init__(self, machine: int, limit_s: float) -> None:
        self._machine = machine
        self._limit_s = limit_s
        self._seen: dict[int, _Seen] = {}
        self._looked_s = 0.0

    def look(self) -> None:
        """Raises `Spins` if a process took all of its limit since it was last stopped."""
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        now = {}
        for pid in _group(self._machine):
            with contextlib.suppress(OSError, ValueError, IndexError):
                now[pid] = _Seen(_stops(pid), _cpu_s(pid))
        for pid, seen in now.items():
            before = self._seen.get(pid)
            if before is None or before.stops != seen.stops:
                self._seen[pid] = seen
            elif seen.cpu_s - before.cpu_s >= self._limit_s:
                raise Spins(
                    f"{_name(pid)} spins: it took {seen.cpu_s - before.cpu_s:.0f} s of the processor without a system"
                    " call, and no virtual time passes while a program computes, so it never sees what it waits for, or"
                    " how fast it is; let it wait in the kernel (sleep, poll, a lock), or give a long computation a"
                    " larger --spin-limit."
                )
        self._seen = {pid: seen for pid, seen in self._seen.items() if pid in now}


def _group(leader: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != leader:
            with contextlib.suppress(OSError, ValueError, IndexError):
                if int(_stat(int(folder.name))[2]) == leader:
                    found.append(int(folder.name))
    return found


def _stat(pid: int) -> list[str]:
    """What proc(5) has of a process from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _stops(pid: int) -> int:
    """How often it was stopped; that the host gave the processor to another process does not count."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches:"))


def _name(pid: int) -> str:
    """The file that the program was started from: its name is at the end of its stack, in front of eight zeros
    (the kernel's fs/exec.c)."""
    with contextlib.suppress(OSError, ValueError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        # The guest's memory is a file without a name; the rest of the process is the machine's.
        for line in reversed([each for each in lines if each.endswith(" (deleted)")]):
            end = int(line.split()[0].partition("-")[2], 16)
            with contextlib.suppress(OSError, OverflowError):
                memory.seek(end - _PAGE_BYTES)
                text, _, zeros = memory.read(_PAGE_BYTES).rpartition(b"\0" * 9)
                name = text.rpartition(b"\0")[2]
                if not zeros and name.startswith(b"/"):
                    return name.decode(errors="replace")
    return "a program"

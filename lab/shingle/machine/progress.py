# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a person sees while something takes time: virtual time, host time, throughput, cache fill."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from shingle.machine.machine import NS_PER_S, Tick

_MIB = 1 << 20
# Where there is no terminal, a line now and then shows that something is alive.
_PLAIN_INTERVAL_S = 30.0
_VERBOSE_INTERVAL_S = 5.0
_CLASSES = ("data", "metadata", "superblock", "journal")


@dataclass(frozen=True)
class CacheLimits:
    """What fills a drive's persistent cache up: bytes, or entries of its map."""

    size_bytes: int
    entries: int

    def fill(self, tick: Tick) -> float:
        """How full the cache is, by bytes or by entries, whichever is fuller."""
        size, entries = int(tick.counters.get("cache_bytes", 0)), int(tick.counters.get("cache_entries", 0))
        return max(size / self.size_bytes, entries / self.entries)


def describe(tick: Tick, before: Tick | None, host_s: float, limits: CacheLimits | None = None) -> str:
    """One line about a running machine."""
    parts = [tick.phase or "…", f"virtual {tick.now_ns / NS_PER_S:,.0f} s", f"host {host_s:,.0f} s"]
    if before is not None and tick.now_ns > before.now_ns:
        moved = _host_bytes(tick) - _host_bytes(before)
        parts.append(f"{moved / _MIB / ((tick.now_ns - before.now_ns) / NS_PER_S):,.0f} MiB/s")
    if limits is not None:
        parts.append(f"cache {limits.fill(tick):.1%}")
    return " · ".join(parts)


def _host_bytes(tick: Tick) -> int:
    return sum(
        tick.counters.get(f"{name}_{direction}_bytes", 0) for name in _CLASSES for direction in ("written", "read")
    )


class Progress:
    """Where everything that takes time reports. This one says nothing; `Terminal` shows it."""

    def say(self, text: str) -> None:
        """A line that stays."""

    @contextlib.contextmanager
    def task(self, label: str) -> Iterator[Callable[[str], None]]:
        """Something that goes on; what it yields takes the latest word about it."""
        yield lambda text: None

    @contextlib.contextmanager
    def machine(self, label: str, limits: CacheLimits | None = None) -> Iterator[Callable[[Tick], None]]:
        """A machine that runs; what it yields takes its ticks."""
        began = time.monotonic()
        before: Tick | None = None
        with self.task(label) as tell:

            def watch(tick: Tick) -> None:
                nonlocal before
                tell(describe(tick, before, time.monotonic() - began, limits))
                before = tick

            yield watch

    @contextlib.contextmanager
    def runs(self, total: int) -> Iterator[Callable[[bool], None]]:
        """Several runs; what it yields is called as each ends, with whether it was run, not found in records."""
        yield lambda ran: None


def left(done: int, ran: int, total: int, host_s: float) -> str:
    """How many runs are done, and a guess from those that were run how long the others take."""
    text = f"{done} of {total} runs done"
    if not ran or done == total:
        return text
    minutes = host_s / ran * (total - done) / 60
    if minutes < 1:
        return f"{text}, less than a minute left"
    return f"{text}, about {f'{minutes:.0f} min' if minutes < 90 else f'{minutes / 60:.1f} h'} left"


def _now_s() -> float:
    return time.monotonic()


@dataclass
class _Line:
    began: float
    text: str = ""
    said_s: float = 0.0

    @property
    def age_s(self) -> float:
        return _now_s() - self.began


class Terminal(Progress):
    """Lines for several tasks at once, redrawn on a terminal, printed now and then elsewhere."""

    # Every few seconds a line that stays, on a terminal, too.
    verbose = False

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: dict[str, _Line] = {}
        self._live: Live | None = None

    def __enter__(self) -> Terminal:
        if self._console.is_terminal and not self.verbose:
            self._live = Live(console=self._console, refresh_per_second=5, transient=True, get_renderable=self._table)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def say(self, text: str) -> None:
        style = "dim" if self._console.is_terminal else None
        self._console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def task(self, label: str) -> Iterator[Callable[[str], None]]:
        line = _Line(_now_s())
        self._lines[label] = line

        def tell(text: str) -> None:
            line.text = text
            if self._live is None and line.age_s - line.said_s > self._interval_s:
                line.said_s = line.age_s
                self.say(f"{label}: {text}")

        if self._live is None:
            self.say(label)
        try:
            yield tell
        finally:
            self._lines.pop(label, None)

    @property
    def _interval_s(self) -> float:
        return _VERBOSE_INTERVAL_S if self.verbose else _PLAIN_INTERVAL_S

    @contextlib.contextmanager
    def runs(self, total: int) -> Iterator[Callable[[bool], None]]:
        if total < 2:
            yield lambda ran: None
            return
        began, done, really = time.monotonic(), 0, 0
        line = self._lines.setdefault("all", _Line(_now_s()))
        lock = threading.Lock()

        def count(ran: bool) -> None:
            nonlocal done, really
            with lock:
                done, really = done + 1, really + ran
                line.text = left(done, really, total, time.monotonic() - began)
                if self._live is None:
                    self.say(line.text)

        line.text = left(0, 0, total, 0)
        try:
            yield count
        finally:
            self._lines.pop("all", None)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for label, line in list(self._lines.items()):
            table.add_row(Spinner("dots"), label, line.text or f"{line.age_s:.0f} s")
        return table


SILENT = Progress()

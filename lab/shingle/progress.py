# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a person sees while machines run: virtual time, host time, throughput, cache fill."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from shingle.machine import NS_PER_S, Tick

_MIB = 1 << 20
# Where there is no terminal, a line now and then shows that something is alive.
_PLAIN_INTERVAL_S = 30.0
_CLASSES = ("data", "metadata", "superblock", "journal")


def describe(tick: Tick, before: Tick | None, host_s: float) -> str:
    """One line about a running machine."""
    parts = [tick.phase or "…", f"virtual {tick.now_ns / NS_PER_S:,.0f} s", f"host {host_s:,.0f} s"]
    if before is not None and tick.now_ns > before.now_ns:
        moved = _host_bytes(tick) - _host_bytes(before)
        parts.append(f"{moved / _MIB / ((tick.now_ns - before.now_ns) / NS_PER_S):,.0f} MiB/s")
    if (fill := cache_fill(tick)) is not None:
        parts.append(f"cache {fill:.1%}")
    return " · ".join(parts)


def cache_fill(tick: Tick) -> float | None:
    """How full the persistent cache is, by bytes or by map entries, whichever is fuller."""
    counters = tick.counters
    fills = [
        counters[f"cache_{unit}"] / counters[f"cache_{unit}_max"]
        for unit in ("bytes", "entries")
        if counters.get(f"cache_{unit}_max")
    ]
    return max(fills) if fills else None


def _host_bytes(tick: Tick) -> int:
    return sum(
        tick.counters.get(f"{name}_{direction}_bytes", 0) for name in _CLASSES for direction in ("written", "read")
    )


@dataclass
class _Line:
    began: float = field(default_factory=time.monotonic)
    text: str = "starting"
    last: Tick | None = None
    said: float = 0.0


class Progress:
    """Lines for several machines at once, redrawn on a terminal, printed now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: dict[str, _Line] = {}
        self._live: Live | None = None

    def say(self, text: str) -> None:
        self._console.print(f"[dim]{text}[/dim]" if self._console.is_terminal else text, highlight=False)

    @contextlib.contextmanager
    def machine(self, label: str) -> Iterator[Callable[[Tick], None]]:
        line = _Line()
        self._lines[label] = line
        self._draw()

        def watch(tick: Tick) -> None:
            host_s = time.monotonic() - line.began
            line.text = describe(tick, line.last, host_s)
            line.last = tick
            if self._live is not None:
                self._draw()
            elif host_s - line.said > _PLAIN_INTERVAL_S:
                line.said = host_s
                self.say(f"{label}: {line.text}")

        try:
            yield watch
        finally:
            del self._lines[label]
            self._draw()

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=5, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def _draw(self) -> None:
        if self._live is None:
            return
        table = Table.grid(padding=(0, 1))
        for label, line in list(self._lines.items()):
            table.add_row(Spinner("dots"), label, line.text)
        self._live.update(table)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shows the runs that are going on: what the drive does, why, and how its cache and its latencies are.

A run writes a line of counters for each virtual second into its folder
(seam 2 of docs/reference/interfaces.md). A machine that runs holds its folder open
under a fixed number, and so it is found, whoever started it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shingle.failure import Failure
from shingle.machine.machine import NS_PER_S, Follower, Tick
from shingle.machine.progress import CacheLimits

# What the block driver renames the run's folder to (machine/arch/um/drivers/shingle_user.c).
_OUT_FD = 64
ABOUT = "about.json"
CLASSES = ("data", "metadata", "journal", "superblock")
# By number, as in the drive's report (crates/smr-drive/src/activity.rs).
ACTIVITIES = (
    "idle",
    "seeking",
    "reading",
    "writing",
    "streaming",
    "caching",
    "cleaning_idle",
    "cleaning_forced",
    "cleaning_due",
    "commanded",
)
_WHY = {
    "idle": "nobody asks for anything",
    "seeking": "on its way",
    "reading": "the host reads",
    "writing": "the buffer is written home",
    "streaming": "a sequential run is written to its bands",
    "caching": "the buffer is appended to the persistent cache",
    "cleaning_idle": "nobody asks for anything",
    "cleaning_forced": "a write waits for room in the cache",
    "cleaning_due": "the drive cleans all the time",
    "commanded": "a zone command",
}
_MIB = 1 << 20
_INTERVAL_S = 0.5
_PLAIN_INTERVAL_S = 5.0
# Rates are over so many ticks: a virtual second each.
_WINDOW = 10
_BAR = 24
_PANEL_ROWS = 27


def about(out: Path, label: str, limits: CacheLimits | None) -> None:
    """Leaves in a run's folder what a watcher wants to know of it."""
    sizes = None if limits is None else [limits.size_bytes, limits.entries]
    (out / ABOUT).write_text(json.dumps({"label": label, "cache": sizes}) + "\n")


@dataclass
class Watched:
    """A run as it is seen from outside."""

    out: Path
    label: str
    limits: CacheLimits | None
    follower: Follower
    since: float
    first: Tick | None = None
    ticks: list[Tick] = field(default_factory=list)

    def look(self) -> bool:
        """Reads what is new; whether anything is."""
        fresh = self.follower.new_ticks()
        if fresh and self.first is None:
            self.first = fresh[0]
        self.ticks = [*self.ticks, *fresh][-_WINDOW - 1 :]
        return bool(fresh)


def running() -> list[Path]:
    """The folders of the machines that run."""
    found = set()
    for link in Path("/proc").glob(f"[0-9]*/fd/{_OUT_FD}"):
        with contextlib.suppress(OSError):
            out = link.readlink()
            if (out / "job.json").exists():
                found.add(out)
    return sorted(found)


def opened(out: Path) -> Watched:
    label, limits = out.name, None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads((out / ABOUT).read_text())
        label = str(told["label"])
        limits = None if told["cache"] is None else CacheLimits(*told["cache"])
    return Watched(out, label, limits, Follower(out / "progress.jsonl"), (out / "job.json").stat().st_mtime)


def runs(console: Console, *, find: Callable[[], list[Path]] = running) -> None:
    """Shows the runs until the last of them has ended."""
    folders = find()
    if not folders:
        raise Failure("no run is going on; start one in another terminal, with ./shingle compare for example.")
    watched: dict[Path, Watched] = {}
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with contextlib.ExitStack() as stack:
        if live is not None:
            stack.enter_context(live)
        said_s = 0.0
        while folders:
            for out in folders:
                watched.setdefault(out, opened(out)).look()
            shown = [watched[out] for out in folders]
            if live is not None:
                live.update(_fitting(shown, console.height), refresh=True)
            elif time.monotonic() - said_s > _PLAIN_INTERVAL_S:
                said_s = time.monotonic()
                for each in shown:
                    console.print(line(each), soft_wrap=True, markup=False)
            time.sleep(_INTERVAL_S)
            folders = find()
    console.print("the run has ended." if len(watched) == 1 else "the runs have ended.")


def _fitting(shown: Sequence[Watched], rows: int) -> RenderableType:
    """As many runs in full as have room, the others in a line each."""
    full = max(1, (rows - len(shown)) // _PANEL_ROWS)
    # What was started last is what one wants to see.
    newest = sorted(shown, key=lambda each: each.since, reverse=True)
    parts: list[RenderableType] = [panel(each) for each in newest[:full]]
    return Group(*parts, *(Text(line(each)) for each in newest[full:]))


@dataclass(frozen=True)
class _Window:
    """What happened between two ticks."""

    before: Tick
    now: Tick

    @property
    def seconds(self) -> float:
        return max((self.now.now_ns - self.before.now_ns) / NS_PER_S, 1e-9)

    def grown(self, name: str) -> int:
        return _number(self.now.counters, name) - _number(self.before.counters, name)

    def rate_mib(self, name: str) -> float:
        return self.grown(name) / _MIB / self.seconds


def _number(counters: Mapping[str, Any], name: str) -> int:
    value = counters.get(name, 0)
    return value if isinstance(value, int) else 0


def _window(run: Watched) -> _Window | None:
    return _Window(run.ticks[0], run.ticks[-1]) if len(run.ticks) > 1 else None


def _arm(counters: Mapping[str, Any]) -> tuple[int, int, str]:
    """Cylinder, how many there are, and what the arm does."""
    arm = counters.get("arm") or [0, 1, 0]
    return int(arm[0]), max(1, int(arm[1])), ACTIVITIES[int(arm[2])]


def _cleaning(counters: Mapping[str, Any]) -> str:
    """The band that is being cleaned, and why."""
    job = counters.get("cleaning")
    if not job:
        return ""
    band, why, classes, permille = (int(each) for each in job)
    of = "+".join(name for bit, name in enumerate(CLASSES) if classes >> bit & 1) or "tail"
    reason = _WHY.get(ACTIVITIES[why], "")
    return f"band {band:,} ({of}), {permille / 10:.0f} % done: {reason}"


def line(run: Watched) -> str:
    """A run in one line, for places that are no terminal."""
    if not run.ticks:
        return f"{run.label}: no tick yet"
    tick = run.ticks[-1]
    counters = tick.counters
    parts = [f"{run.label}: {tick.phase or '…'}", f"virtual {tick.now_ns / NS_PER_S:,.0f} s"]
    window = _window(run)
    if window is not None:
        written = sum(window.rate_mib(f"{name}_written_bytes") for name in CLASSES)
        read = sum(window.rate_mib(f"{name}_read_bytes") for name in CLASSES)
        parts.append(f"{written:,.1f} MiB/s written, {read:,.1f} read")
    if run.limits is not None:
        parts.append(f"cache {run.limits.fill(tick):.1%}, {_number(counters, 'bands_dirty'):,} bands dirty")
    cylinder, cylinders, activity = _arm(counters)
    if "arm" in counters:
        parts.append(f"arm at {cylinder / cylinders:.0%} of the stroke, {activity.replace('_', ' ')}")
    if _cleaning(counters):
        parts.append(_cleaning(counters))
    return " · ".join(parts)


def panel(run: Watched) -> RenderableType:
    """A run, as a panel for a terminal."""
    if not run.ticks:
        return Panel(Text("no tick yet"), title=run.label)
    tick = run.ticks[-1]
    window = _window(run)
    whole = None if run.first is None or run.first is tick else _Window(run.first, tick)
    head = Text(f"virtual {tick.now_ns / NS_PER_S:,.0f} s · {tick.phase or 'between phases'}", style="bold")
    return Panel(
        Group(head, _requests(tick, window), _drive(run, tick), _times(window, whole)),
        title=run.label,
        title_align="left",
    )


def _requests(tick: Tick, window: _Window | None) -> Table:
    """Throughput and latencies by class."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("class")
    heads = ("written MiB/s", "p50 ms", "p99 ms", "max ms", "read MiB/s", "p50 ms", "p99 ms", "max ms")
    for name in heads:
        table.add_column(name, justify="right")
    latencies: Mapping[str, Sequence[int]] = tick.counters.get("latency_us") or {}
    for name in CLASSES:
        cells: list[str] = []
        for direction in ("written", "read"):
            rate = 0.0 if window is None else window.rate_mib(f"{name}_{direction}_bytes")
            times = latencies.get(f"{name}_{direction}")
            cells += [f"{rate:,.1f}", *(["-"] * 3 if times is None else [f"{us / 1000:,.1f}" for us in times])]
        table.add_row(name, *cells)
    flushes = latencies.get("flushes")
    if flushes is not None:
        a_second = "" if window is None else f"{window.grown('flushes') / window.seconds:,.1f} /s"
        table.add_row("flush", a_second, *(f"{us / 1000:,.1f}" for us in flushes))
    return table


def _drive(run: Watched, tick: Tick) -> Table:
    """Cache, bands, arm, streams."""
    counters = tick.counters
    table = Table.grid(padding=(0, 2))
    if run.limits is not None:
        size, entries = _number(counters, "cache_bytes"), _number(counters, "cache_entries")
        told = f"{size / (1 << 30):.2f} of {run.limits.size_bytes / (1 << 30):.1f} GiB"
        table.add_row("cache, bytes", _bar(size / run.limits.size_bytes), told)
        told = f"{entries:,} of {run.limits.entries:,}"
        table.add_row("cache, entries", _bar(entries / run.limits.entries), told)
    idle, forced = _number(counters, "bands_cleaned_idle"), _number(counters, "bands_cleaned_forced")
    table.add_row(
        "bands", f"{_number(counters, 'bands_dirty'):,} dirty", f"cleaned: {idle:,} in idle time, {forced:,} forced"
    )
    if "arm" in counters:
        cylinder, cylinders, activity = _arm(counters)
        table.add_row("arm", _bar(cylinder / cylinders), f"cylinder {cylinder:,} of {cylinders:,} from outside")
        table.add_row("", activity.replace("_", " "), _WHY[activity])
    table.add_row("cleaning", "", _cleaning(counters) or "no band")
    streams = counters.get("streams") or [0, 0]
    table.add_row("streams", f"{streams[0]} streaming", f"{streams[1]} candidates")
    volatile = _number(counters, "volatile_bytes")
    table.add_row("buffer", f"{volatile / _MIB:,.1f} MiB", "acknowledged, not on the medium")
    if _number(counters, "resets"):
        table.add_row("resets", f"{_number(counters, 'resets'):,}", "of the link: a request took too long")
    if _number(counters, "faults"):
        table.add_row("faults", f"{_number(counters, 'faults'):,}", "of the plan, so far")
    return table


def _times(window: _Window | None, whole: _Window | None) -> Table:
    """How much of the time the arm did what: lately, and since the first tick."""
    table = Table.grid(padding=(0, 2))
    for name in ACTIVITIES:
        shares = [
            0.0 if each is None else each.grown(f"{name}_ns") / NS_PER_S / each.seconds for each in (window, whole)
        ]
        if any(share > 0 for share in shares):
            table.add_row(name.replace("_", " "), _bar(shares[0]), f"{shares[0]:4.0%} now, {shares[1]:4.0%} of the run")
    return table


def _bar(share: float) -> ProgressBar:
    return ProgressBar(total=1.0, completed=min(1.0, max(0.0, share)), width=_BAR)

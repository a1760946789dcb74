# SPDX-License-Identifier: MIT OR Apache-2.0
"""Figures of runs, as the FAST'17 paper draws them (its Figures 8 and 12).

Top: throughput over virtual time. Middle: how full the persistent cache is.
Bottom: where on the drive each class of write went. The same run gives the
same bytes: no dates, no random identifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from shingle.evidence import plot
from shingle.machine import trace as traces
from shingle.machine.machine import NS_PER_S, Tick
from shingle.machine.progress import CacheLimits
from shingle.machine.trace import Trace

# In the order in which they are drawn: where metadata are scattered data are, too, and would hide them.
_COLOURS = {"data": plot.CYAN, "metadata": plot.RED, "journal": plot.BLUE, "superblock": plot.YELLOW}
_OPERATIONS = {"written": (1, plot.INK), "read": (0, plot.GREEN)}
_BINS = 200
_GIB = 1 << 30
_SECTOR = 512


@dataclass(frozen=True)
class Series:
    """What a figure needs of one run."""

    label: str
    trace: Trace
    ticks: tuple[Tick, ...]
    phases: tuple[tuple[str, float, float], ...]  # name, begin and end in virtual seconds
    limits: CacheLimits | None = None


def draw(series: Sequence[Series], *, title: str, capacity_bytes: int, stem: Path) -> tuple[Path, Path]:
    """Draws the runs side by side and writes `stem`.svg and `stem`.png."""
    plt = plot.pyplot()
    with plt.rc_context(plot.STYLE):
        figure, axes = plt.subplots(
            3,
            len(series),
            figsize=(1.2 + 3.1 * len(series), 5.4),
            sharex=True,
            sharey="row",
            squeeze=False,
            gridspec_kw={"height_ratios": (2, 1, 2)},
        )
        length_s = max(_length_s(one) for one in series)
        axes[0][0].set_xlim(0, length_s)
        for column, one in enumerate(series):
            throughput, fill, offsets = axes[0][column], axes[1][column], axes[2][column]
            start = _start_ns(one)
            _draw_phases(throughput, one, start, length_s)
            _draw_throughput(throughput, one, start)
            _draw_fill(fill, one, start)
            _draw_offsets(offsets, one, start)
            offsets.set_ylim(0, capacity_bytes / _GIB)
            offsets.set_xlabel("virtual time (s)")
        axes[1][0].set_ylim(0, max(0.1, 110 * max(_fullest(one) for one in series)))
        axes[0][0].set_ylabel("throughput (MiB/s)")
        axes[1][0].set_ylabel("cache fill (%)")
        axes[2][0].set_ylabel("offset of writes (GiB)")
        figure.suptitle(title, fontsize=9)
        lines = [Line2D([], [], color=colour) for _, colour in _OPERATIONS.values()]
        dots = [Line2D([], [], marker="o", linestyle="", markersize=3, color=colour) for colour in _COLOURS.values()]
        names = [*_OPERATIONS, *_COLOURS]
        figure.legend([*lines, *dots], names, loc="lower center", ncols=len(names))
        figure.tight_layout(rect=(0, 0.04, 1, 0.97))
        return plot.save(figure, stem)


def _length_s(one: Series) -> float:
    """How long a run is: to its last request or its last tick."""
    ends = [int(one.trace.requests["completion_ns"].max())] if len(one.trace.requests) else []
    ends += [one.ticks[-1].now_ns] if one.ticks else []
    return max(1.0, (max(ends, default=0) - _start_ns(one)) / NS_PER_S)


def _start_ns(one: Series) -> int:
    """Where the figure's time begins: with the first phase, after the mount has settled."""
    if one.phases:
        return round(one.phases[0][1] * NS_PER_S)
    requests = one.trace.requests
    return int(requests["arrival_ns"].min()) if len(requests) else 0


def _seconds(times_ns: npt.NDArray[Any], start: int) -> npt.NDArray[np.float64]:
    """Times as the figure counts them; some are before its beginning."""
    seconds: npt.NDArray[np.float64] = (times_ns.astype(np.int64) - start) / NS_PER_S
    return seconds


def _draw_phases(axes: Axes, one: Series, start: int, length_s: float) -> None:
    """Shades the phases; what is white between them is the drive's cleaning."""
    axes.set_title(f"{one.label}: quiet after {_length_s(one):,.0f} s", pad=34)
    free = 0.0
    for name, begin, end in one.phases:
        begin, end = begin - start / NS_PER_S, end - start / NS_PER_S
        axes.axvspan(begin, end, color="#e9e5da", linewidth=0)
        place = max(begin, free)
        free = place + 0.06 * length_s
        axes.annotate(name, (place, 1.02), xycoords=("data", "axes fraction"), fontsize=5.5, rotation=45)


def _draw_throughput(axes: Axes, one: Series, start: int) -> None:
    requests = one.trace.requests
    moving = requests[np.isin(requests["op"], (0, 1))]
    if not len(moving):
        return
    seconds = _seconds(moving["completion_ns"], start)
    edges = np.linspace(0, max(float(seconds.max()), 1e-3), _BINS + 1)
    width = edges[1] - edges[0]
    for op, shade in _OPERATIONS.values():
        chosen = moving["op"] == op
        volume, _ = np.histogram(seconds[chosen], bins=edges, weights=moving["sectors"][chosen] * float(_SECTOR))
        axes.step(edges[:-1], volume / width / (1 << 20), where="post", color=shade, linewidth=0.7)


def _draw_fill(axes: Axes, one: Series, start: int) -> None:
    # Spells in which writes waited for room: what the fill alone does not show.
    forced = one.trace.happened("forced_ended")
    for begin, end in zip(_seconds(forced["completion_ns"], start), _seconds(forced["arrival_ns"], start), strict=True):
        axes.axvspan(begin, end, color="#f2d0a9", linewidth=0)
    if one.limits is not None and one.ticks:
        times = [(tick.now_ns - start) / NS_PER_S for tick in one.ticks]
        fill = [100 * one.limits.fill(tick) for tick in one.ticks]
        # Not a colour of a class: what is to be cleaned is data as well as metadata.
        axes.fill_between(times, fill, color=plot.PURPLE, linewidth=0, alpha=0.7)


def _fullest(one: Series) -> float:
    """The most that the persistent cache was filled."""
    return 0.0 if one.limits is None else max((one.limits.fill(tick) for tick in one.ticks), default=0.0)


def _draw_offsets(axes: Axes, one: Series, start: int) -> None:
    for name, colour in _COLOURS.items():
        writes = one.trace.select("write", request_class=name)
        axes.scatter(
            _seconds(writes["completion_ns"], start),
            writes["sector"] * float(_SECTOR) / _GIB,
            # The dots grow with the request, as the paper's do.
            s=0.4 + np.sqrt(writes["sectors"] / 64.0),
            # So that each is seen below the other.
            alpha=0.5,
            color=colour,
            linewidths=0,
            rasterized=True,
        )


def read_trace(path: Path) -> Trace:
    return traces.read(path)

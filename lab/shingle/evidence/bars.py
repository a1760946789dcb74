# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bars of what was measured here, with the paper's value or range marked on them.

The length of a bar is the mean over the seeds, its whisker the standard deviation. A bar that is not within the paper's
range, or beyond it on the better side, is hatched.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shingle.evidence import plot
from shingle.runs.claims import Claim, Judged, Verdict, by_seed, judged, number
from shingle.runs.record import NotRecorded, Record

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

NO_RECORD = "no record"
_HEIGHT_IN, _ROW_IN, _LEGEND_IN, _WIDTH_IN = 0.8, 0.2, 0.45, 7.2
# A value and the paper's get a text each, if they are so much of the longest bar apart.
_APART = 0.15
# Longer labels leave no room for bars.
_LABEL_CHARACTERS = 60
_VERDICTS: dict[Verdict, str] = {
    "reproduced": "here, as the paper",
    "above": "here, off the paper",
    "below": "here, off the paper",
    "not at this scale": "here, not comparable at this scale",
}
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "oooo", "++++")


@dataclass(frozen=True)
class Bar:
    """One row: its values, one for each seed, and what the paper says; None leaves a side open.

    `parts` stack up to the mean. `note` takes the place of a value that is missing.
    """

    label: str
    values: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    look: str = "here"
    parts: tuple[tuple[str, float], ...] = ()
    note: str = NO_RECORD


@dataclass(frozen=True)
class Panel:
    """Bars that share an axis; its label says the unit."""

    title: str
    axis: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Group:
    """Claims that become a panel."""

    title: str
    axis: str
    claims: Sequence[Claim]


def of_claims(*groups: Group) -> Callable[[Sequence[Record], Path], None]:
    """What draws an experiment all of whose figure is claims."""
    return lambda records, stem: draw([_panel(group, records) for group in groups], stem)


def of_parts(
    label: str,
    records: Sequence[Record],
    parts: Callable[[Sequence[Record]], Sequence[tuple[str, float]]],
    paper: float | None = None,
) -> Bar:
    """A stacked bar; if one of its parts was not recorded, its row says so."""
    _, seeds = by_seed(records)
    try:
        found = [parts(seed) for seed in seeds]
    except NotRecorded as missing:
        note = "did not finish" if " failed on " in str(missing) else NO_RECORD
        return Bar(label, low=paper, high=paper, note=note)
    means = tuple((same[0][0], statistics.fmean(value for _, value in same)) for same in zip(*found, strict=True))
    return Bar(label, tuple(sum(value for _, value in each) for each in found), paper, paper, parts=means)


def _panel(group: Group, records: Sequence[Record]) -> Panel:
    rows = judged(group.claims, records)
    scaled = {row.scale for row in rows if row.claim.linear and 0 < row.scale < 1}
    title = f"{group.title} (the paper's values times {scaled.pop():g})" if scaled else group.title
    labels = _without_what_all_say([row.claim.what for row in rows])
    return Panel(title, group.axis, [_bar(label, row) for label, row in zip(labels, rows, strict=True)])


def _bar(label: str, row: Judged) -> Bar:
    low, high = row.claim.expected(row.scale or 1.0)
    return Bar(label, row.values, low, high, _VERDICTS.get(row.verdict, "here"))


def _without_what_all_say(labels: Sequence[str]) -> list[str]:
    """Labels without their first and last words, as far as these are the same for all."""
    if len(labels) < 2:
        return list(labels)
    words = [label.split() for label in labels]
    head = _shared(words)
    tail = _shared([each[head:][::-1] for each in words])
    return [" ".join(each[head : len(each) - tail]).rstrip(":") or label
            for each, label in zip(words, labels, strict=True)]  # fmt: skip


def _shared(labels: Sequence[Sequence[str]]) -> int:
    """How many words are the same in front of all."""
    columns = zip(*labels, strict=False)
    return next((at for at, column in enumerate(columns) if len(set(column)) > 1), min(map(len, labels)))


def draw(panels: Sequence[Panel], stem: Path) -> None:
    """Draws the panels one below the other and writes `stem`.svg and `stem`.png."""
    if not any(bar.values for panel in panels for bar in panel.bars):
        raise NotRecorded("none of what the figure shows is recorded.")
    # Only here: matplotlib takes half a second to start, and every reader of claims loads the experiments.
    plt = plot.pyplot()

    heights = [_HEIGHT_IN + _ROW_IN * len(panel.bars) for panel in panels]
    height = sum(heights) + _LEGEND_IN
    with plt.rc_context(plot.STYLE):
        figure, axes = plt.subplots(
            len(panels), figsize=(_WIDTH_IN, height), squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        legend: dict[str, Artist] = {}
        # A part has the same colour in all panels, and no other part has it.
        names = list(dict.fromkeys(name for panel in panels for bar in panel.bars for name, _ in bar.parts))
        for own, panel in zip(axes[:, 0], panels, strict=True):
            legend |= _draw_panel(own, panel, names)
        if list(legend) != ["here"]:
            figure.legend(legend.values(), legend.keys(), loc="lower center", ncols=4, fontsize=7)
        # The constrained layout is solved in an order of addresses: its last digits are others each time.
        # This one is repeated: the narrower the axes, the further what is written beside the bars sticks out.
        for _ in range(3):
            figure.tight_layout(rect=(0, _LEGEND_IN / height, 1, 1), h_pad=0.8)
        plot.save(figure, stem)


def _draw_panel(axes: Axes, panel: Panel, names: Sequence[str]) -> dict[str, Artist]:
    """Draws it, and returns what its legend needs."""
    looks = {
        "here": (plot.BLUE, ""),
        "here, as the paper": (plot.BLUE, ""),
        "here, off the paper": (plot.YELLOW, "////"),
        "here, not comparable at this scale": (plot.GREY, "...."),
    }
    legend: dict[str, Artist] = {}
    edge = {"edgecolor": plot.INK, "linewidth": 0.5, "height": 0.66}
    longest = max((max(*bar.values, bar.low or 0.0, bar.high or 0.0) for bar in panel.bars if bar.values), default=0.0)
    for place, bar in enumerate(panel.bars):
        mean = statistics.fmean(bar.values) if bar.values else 0.0
        left = 0.0
        for name, value in bar.parts:
            kind = names.index(name) % len(plot.COLOURS)
            drawn = axes.barh(place, value, left=left, color=plot.COLOURS[kind], hatch=_HATCHES[kind], **edge)  # type: ignore[arg-type]
            legend.setdefault(name, drawn[0])
            left += value
        if bar.values and not bar.parts:
            colour, hatch = looks[bar.look]
            legend.setdefault(bar.look, axes.barh(place, mean, color=colour, hatch=hatch, **edge)[0])  # type: ignore[arg-type]
        if len(bar.values) > 1:
            axes.errorbar(mean, place, xerr=statistics.stdev(bar.values), color=plot.INK, capsize=2, linewidth=0.8)
        legend |= _mark(axes, place, bar.low, bar.high)
        _write(axes, place, bar, mean, longest)
    axes.set_yticks(range(len(panel.bars)), [textwrap.fill(bar.label, _LABEL_CHARACTERS) for bar in panel.bars])
    axes.set_ylim(len(panel.bars) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    # The title begins at the edge of the figure: long names leave too little room above the bars.
    axes.set_title(" ")
    axes.annotate(
        panel.title, (0.01, 1.0), (0, 6), xycoords=("figure fraction", "axes fraction"),
        textcoords="offset points", weight="bold",
    ).set_in_layout(False)  # fmt: skip
    axes.set_xlabel(panel.axis)
    return legend


def _write(axes: Axes, place: int, bar: Bar, mean: float, longest: float) -> None:
    """The value behind its bar and the paper's behind its mark, or both behind the farther one if that is near."""
    here = _shown(mean) if bar.values else bar.note
    paper = _paper(bar)
    mark = max(bar.low or 0.0, bar.high or 0.0)
    style = {"textcoords": "offset points", "va": "center", "fontsize": 7}
    if paper and mark - mean > _APART * longest:
        axes.annotate(here, (mean, place), (6, 0), **style)  # type: ignore[arg-type]
        axes.annotate(paper, (mark, place), (6, 0), **style)  # type: ignore[arg-type]
        return
    text = f"{here}  ({paper})" if paper else here
    axes.annotate(text, (max(mean, mark), place), (6, 0), **style)  # type: ignore[arg-type]


def _shown(value: float) -> str:
    """Two digits that count; all of them in front of the point. The tables have more."""
    return f"{value:,.0f}" if abs(value) >= 10 or value == 0 else f"{value:.2g}"


def _paper(bar: Bar) -> str:
    """What the paper says, in words."""
    if bar.low is None and bar.high is None:
        return ""
    if bar.low == bar.high:
        return f"paper: {number(bar.low or 0.0)}"
    if bar.low is not None and bar.high is not None:
        return f"paper: {number(bar.low)} to {number(bar.high)}"
    return f"paper: {'at most' if bar.low is None else 'at least'} {number(bar.high or bar.low or 0.0)}"


def _mark(axes: Axes, place: int, low: float | None, high: float | None) -> dict[str, Artist]:
    """Marks what the paper says."""
    style = {"color": plot.INK, "markeredgecolor": plot.PAPER, "markeredgewidth": 0.6, "clip_on": False, "zorder": 5}
    if low is not None and high is not None and low != high:
        return {"the paper's range": axes.plot([low, high], [place, place], "|-", **style | {  # type: ignore[arg-type]
            "markeredgecolor": plot.INK, "markeredgewidth": 1.6, "linewidth": 1.6, "ms": 7})[0]}  # fmt: skip
    if low is not None and high is not None:
        return {"the paper's value": axes.plot([low], [place], "D", ms=5, **style)[0]}  # type: ignore[arg-type]
    if low is not None:
        return {"at least, says the paper": axes.plot([low], [place], ">", ms=6, **style)[0]}  # type: ignore[arg-type]
    if high is not None:
        return {"at most, says the paper": axes.plot([high], [place], "<", ms=6, **style)[0]}  # type: ignore[arg-type]
    return {}

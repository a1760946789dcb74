# SPDX-License-Identifier: MIT OR Apache-2.0
"""The one style of all figures: colours, text, and files that are the same bytes for the same records."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shingle.paths import put_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Paul Tol's bright scheme, which the colour-blind can tell apart. Where two mean different things, they differ in shape
# or hatching, too.
BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, GREY = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb",
)  # fmt: skip
COLOURS = (BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, GREY)
# Text, axes and the paper's values. The report turns these two into the reader's own colours.
INK, PAPER = "#1a1a19", "#ffffff"
# The room that a curve's name takes.
_NAME_PX, _NAME_WIDTH_PX = 13, 90
STYLE: Any = {
    "svg.hashsalt": "shingle",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
}


def pyplot() -> Any:
    """matplotlib's, which needs no display. It takes half a second to start: only those that draw call this."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def name_at_end(axes: Axes) -> None:
    """Writes each curve's label where it ends; curves that are the same share one."""
    import numpy as np

    same: dict[tuple[tuple[float, ...], ...], list[Line2D]] = {}
    for line in axes.get_lines():
        curve = tuple(tuple(np.asarray(each, dtype=float).tolist()) for each in line.get_data())
        same.setdefault(curve, []).append(line)
    # Both have the axes find their limits, which is put off until somebody asks.
    axes.get_xlim(), axes.get_ylim()
    ends = []
    for (xs, ys), lines in same.items():
        names = ", ".join(str(line.get_label()) for line in lines)
        across, up = axes.transData.transform((xs[-1], ys[-1]))
        ends.append((float(up), float(across), xs[-1], ys[-1], names, lines[0].get_color()))
    placed: list[tuple[float, float]] = []
    for up, across, x, y, names, colour in sorted(ends):
        place = up
        # From below: a name that would lie over another one is pushed up.
        for other, beside in placed:
            if abs(across - beside) < _NAME_WIDTH_PX and abs(place - other) < _NAME_PX:
                place = other + _NAME_PX
        placed.append((place, across))
        shift = (place - up) * 72 / axes.figure.dpi
        axes.annotate(
            names, (x, y), (5, shift), textcoords="offset points", va="center", fontsize=7, color=colour,
            annotation_clip=False,
        )  # fmt: skip


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Writes `stem`.svg and `stem`.png, the same bytes for the same figure, and is done with it."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    for path, metadata in ((svg, {"Date": None, "Creator": None}), (png, {"Software": None})):
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix[1:], metadata=metadata, dpi=150)
        put_whole(path, drawn.getvalue())
    pyplot().close(figure)
    return svg, png

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The one style of all figures: colours, text, and files that are the same bytes for the same records."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shingle.paths import put_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Paul Tol's bright scheme, which the colour-blind can tell apart. Where two mean different things, they differ in shape
# or hatching, too.
BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, GREY = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb",
)  # fmt: skip
COLOURS = (BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, GREY)
# Text, axes and the paper's values. The report turns these two into the reader's own colours.
INK, PAPER = "#1a1a19", "#ffffff"
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


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Writes `stem`.svg and `stem`.png, the same bytes for the same figure, and is done with it."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    for path, metadata in ((svg, {"Date": None, "Creator": None}), (png, {"Software": None})):
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix[1:], metadata=metadata, dpi=150)
        put_whole(path, drawn.getvalue())
    pyplot().close(figure)
    return svg, png

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The figure of docs/results/performance.md, from the record that the example `performance` of drive-tool writes.

python -m shingle.evidence.speed_figure RECORD FIGURE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shingle.evidence import plot

_FILLS = {0: ("empty", plot.GREEN), 50: ("half full", plot.YELLOW), 100: ("full", plot.RED)}


def draw(record: Path, figure: Path) -> None:
    """Draws the times of a write and of an event; the same record gives the same bytes."""
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    plt = plot.pyplot()
    with plt.rc_context(plot.STYLE):
        drawing, axes = plt.subplots(figsize=(6.4, 3.4))
        for percent, (name, colour) in _FILLS.items():
            of_fill = [row for row in rows if row["percent"] == percent]
            size = [row["tb"] for row in of_fill]
            axes.plot(size, [row["write_us"] for row in of_fill], "o-", color=colour, label=f"a write, cache {name}")
            axes.plot(size, [row["event_us"] for row in of_fill], "--", color=colour, label=f"an event, cache {name}")
        axes.set(xscale="log", ylim=(0, None), xlabel="size of the drive, TB", ylabel="processor time, µs")
        axes.legend()
        drawing.tight_layout()
        figure.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(figure, metadata={"Date": None})
        plt.close(drawing)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"{sys.argv[0]}: {len(sys.argv) - 1} arguments: expected RECORD FIGURE")
    draw(Path(sys.argv[1]), Path(sys.argv[2]))

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory of the map, over how much of the log is live, beside the paper's.

The paper's map is a tree with an entry of 66 bytes for each live block (its own parts sum to 56: it contradicts itself
there), on top of what the log needs. Here all is allocated at mount by the size of the log, so it is known beforehand
and a commit allocates nothing; the price is that a log with little in it costs as much as a full one.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Claim, Expectation, Experiment, Record, cell, fs, plot, run, workload

DRIVE, WORKLOAD = "st8000as0002", "MakeDirs"
# Parts of the experiment's scale: the 800,000 directories at 1 fill 1.1 million blocks.
PARTS = (0.1, 0.25, 0.5, 1.0)
LAZY, SMALL = "ext4-lazy", "ext4-lazy-1g"
PAPER_ENTRY_BYTES = 66
MOST_BYTES_PER_BLOCK = 20
SYSFS = "/sys/fs/ext4/shd0/journal_lazy"
STATISTICS = ("live_blocks", "log_blocks", "memory_bytes")


def variant(part: float) -> str:
    return f"{LAZY}-{part:g}"


def counted(of: fs.FileSystem, name: str) -> fs.FileSystem:
    return replace(of, name=name, statistics=tuple(f"{SYSFS}/{each}" for each in STATISTICS))


def runs(scale: float, seed: int) -> list[run.Run]:
    large = fs.find(LAZY)
    cells = [(part, counted(large, variant(part))) for part in PARTS]
    cells.append((PARTS[0], counted(fs.find(SMALL), SMALL)))
    made = []
    for part, each in cells:
        plan = workload.plan((WORKLOAD,), scale=scale * part, seed=seed)
        made += [replace(one, variant=each) for one in run.cells(DRIVE, (LAZY,), plan)]
    return made


def statistic(records: Sequence[Record], name: str, what: str) -> int:
    return int(cell(records, name, WORKLOAD)["statistics"][what])


def memory_mib(records: Sequence[Record], name: str) -> float:
    return statistic(records, name, "memory_bytes") / (1 << 20)


def bytes_per_live_block(records: Sequence[Record], name: str) -> float:
    return statistic(records, name, "memory_bytes") / statistic(records, name, "live_blocks")


def draw(records: Sequence[Record], stem: Path) -> None:
    plt = plot.pyplot()

    names = [variant(part) for part in PARTS]
    live = [statistic(records, name, "live_blocks") / 1e6 for name in names]
    with plt.rc_context(plot.STYLE):
        figure, axes = plt.subplots(figsize=(4.6, 3.0))
        axes.plot(live, [memory_mib(records, name) for name in names], color=plot.BLUE, marker="o", ms=3,
                  label="journal_lazy, a log of 10 GiB")  # fmt: skip
        axes.plot([statistic(records, SMALL, "live_blocks") / 1e6], [memory_mib(records, SMALL)], color=plot.BLUE,
                  marker="s", ms=3, linestyle="", label="journal_lazy, a log of 1 GiB")  # fmt: skip
        axes.plot([0, live[-1]], [0, live[-1] * 1e6 * PAPER_ENTRY_BYTES / (1 << 20)], color=plot.INK, linestyle="--",
                  label=f"the paper's {PAPER_ENTRY_BYTES} bytes a live block")  # fmt: skip
        axes.set_xlabel("live blocks in the log (millions)")
        axes.set_ylabel("memory of the map (MiB)")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=6)
        figure.tight_layout()
        plot.save(figure, stem)


EXPERIMENT = Experiment(
    name="e20-map-memory",
    claim="the map takes at most 20 bytes per log block, less than the paper's once a third of the log is live",
    source="FAST'17, section 4.4, the memory of the map",
    runs=runs,
    phases=(WORKLOAD,),
    expectations=(
        Expectation(
            "all that is allocated is at most 20 bytes per log block, whatever is live",
            lambda records: all(
                statistic(records, name, "memory_bytes")
                <= MOST_BYTES_PER_BLOCK * statistic(records, name, "log_blocks")
                for name in (*(variant(part) for part in PARTS), SMALL)
            ),
        ),
        Expectation(
            "with a million live blocks it is less than 66 bytes for each",
            lambda records: (
                statistic(records, variant(1.0), "live_blocks") > 900_000
                and bytes_per_live_block(records, variant(1.0)) < PAPER_ENTRY_BYTES
            ),
        ),
    ),
    claims=(
        Claim(
            "T16", "memory of the map with a million live blocks", "MiB", 63, 63,
            lambda records: memory_mib(records, variant(1.0)), 0.10, full_size=True, better="low",
        ),
    ),
    draw=draw,
)  # fmt: skip

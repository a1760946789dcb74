# SPDX-License-Identifier: MIT OR Apache-2.0
"""Data in order on a conventional disk, which does not need it: what FAST'17's directories and files pay.

The phases of the paper's Figure 7 (e11), without and with data_relocate, with the log in the middle of the disk, where
mke2fs puts it. With `-edge` it lies near the outer edge, where `ext4lazy convert` puts it: there with both.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Expectation, Experiment, Record, cell, fs, run, workload

DRIVE = "wd5000ys"
STOCK, OFF, ON = "ext4-10g", "ext4-lazy", "ext4-smr"
EDGE = "-edge"
FIGURE_7 = (*workload.DIRECTORIES, *workload.FILES)
# Their times differ from seed to seed by more than 1 %; the mean of five is in the text.
SPREAD = ("FindFiles", "RemoveFiles")
SCALE = 0.1
MOST, MOST_SPREAD = 1.01, 1.03


def variants() -> list[fs.FileSystem]:
    found = [fs.find(name) for name in (STOCK, OFF, ON)]
    found += [fs.with_log_near_the_edge(fs.find(name)) for name in (OFF, ON)]
    return [fs.mounted_with(each, "noatime") for each in found]


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for names in (workload.DIRECTORIES, workload.FILES):
        plan = workload.plan(names, scale=scale, seed=seed)
        (first,) = run.cells(DRIVE, (OFF,), plan)
        cells += [replace(first, variant=each) for each in variants()]
    return run.on_the_papers_host(cells, scale)


def ratio(records: Sequence[Record], phase: str, place: str = "") -> float:
    """Of the times with and without data in order, the log at the same place."""
    ours, theirs = (float(cell(records, name + place, phase)["virtual_s"]) for name in (ON, OFF))
    return ours / theirs


def deviation(seeds: Sequence[Sequence[Record]], phase: str, place: str = "") -> float:
    return statistics.stdev(ratio(records, phase, place) for records in seeds)


def no_longer(records: Sequence[Record], phases: Sequence[str], place: str = "") -> bool:
    return all(ratio(records, each, place) <= (MOST_SPREAD if place and each in SPREAD else MOST) for each in phases)


EXPERIMENT = Experiment(
    name="e62-not-needed",
    claim="on a conventional disk, no phase of directories and files takes more than 1 % longer with data in order",
    runs=runs,
    phases=(*FIGURE_7, workload.UNMOUNT),
    scale=SCALE,
    scaling="The journal (10 GiB) and the disk are not scaled.",
    expectations=(
        Expectation(
            "no phase of Figure 7 takes more than 1 % longer, the log in the middle",
            lambda records: no_longer(records, FIGURE_7),
        ),
        Expectation(
            f"nor with the log near the edge, but {' and '.join(SPREAD)} of one seed, by at most 3 %",
            lambda records: no_longer(records, FIGURE_7, EDGE),
        ),
        Expectation(
            "so it is with files alone, which have more seeds",
            lambda records: no_longer(records, workload.FILES, EDGE),
        ),
    ),
    numbers={"ratio": ratio, "deviation": deviation},
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small journal is a bottleneck of its own: FAST'17, section 4.1, Figure 6.

Filebench's CreateFiles makes 100,000 files of 10 KiB in more than 60,000 directories, 1 GiB that fits into
memory; the writing back is not timed. With a journal of 128 MiB it waits for checkpoints; with 10 GiB it does not.
"""

from collections.abc import Sequence

from shingle.lab import Claim, Experiment, Record, bars, cell, parts_s, run, workload

DRIVE = "wd5000ys"
STOCK, BASELINE = "ext4-128m", "ext4-10g"
NAME = "CreateGigabyte"


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = run.cells(DRIVE, (STOCK, BASELINE), workload.plan((NAME,), scale=scale, seed=seed))
    return run.on_the_papers_host(cells)


def made_s(records: Sequence[Record], file_system: str) -> float:
    """Without the sync: what the load itself took."""
    return parts_s(cell(records, file_system, NAME))


def directories_s(records: Sequence[Record], file_system: str) -> float:
    """Until all directories are there, and the first file is made."""
    return parts_s(cell(records, file_system, NAME), "inner")


TIMES = (
    Claim("T6a", "ext4-128m", "s", 460, 460, lambda records: made_s(records, STOCK), 0.25),
    Claim("T6a", "ext4-10g", "s", 10, 10, lambda records: made_s(records, BASELINE), 0.25, basis="fitted"),
)
DIRECTORIES = Claim(
    "T6b", "ext4-128m: until the directories are there", "s", 140, 140,
    lambda records: directories_s(records, STOCK), 0.25,
)  # fmt: skip
RATIO = Claim(
    "T6a", "times faster on ext4-10g", "", 46, 46,
    lambda records: made_s(records, STOCK) / made_s(records, BASELINE), 0.25, basis="fitted",
)  # fmt: skip

EXPERIMENT = Experiment(
    name="e15-journal-bottleneck",
    claim="a journal of 128 MiB makes the creation of files wait for checkpoints, 10 GiB do not",
    source="FAST'17, section 4.1, Figure 6",
    runs=runs,
    scalable=False,
    phases=(NAME, workload.UNMOUNT),
    expectations=(),
    claims=(*TIMES, DIRECTORIES, RATIO),
    draw=bars.of_claims(
        bars.Group("Figure 6: making 100,000 files", "s", (*TIMES, DIRECTORIES)),
        bars.Group("Figure 6: gain of a larger journal", "times", (RATIO,)),
    ),
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server's load on drive-managed SMR disks: a partition of 400 GB, and whole disks.

FAST'17, section 4.3.2, Figures 12 to 14 and Table 4. The size of the persistent cache decides when forced
cleaning begins, and it is not scaled: at a tenth no cache ever fills. How much reaches the disk
depends on how long the host holds it back: the paper's share of the write-back cache was read from its conventional
disk (e18), and nothing here was chosen after a look at these disks.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import (
    Basis,
    Claim,
    Experiment,
    Record,
    bars,
    busy_s,
    bytes_claim,
    cell,
    drive,
    fs,
    parts_s,
    run,
    seconds,
    speedup,
    workload,
)

PARTITIONED = "st8000as0002"
WHOLE = {"st8000as0002": 5.4, "st4000lm016": 2.0, "st5000as0011": 2.0, "wd40nmzw": 1.7}
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
NAME = "Postmark"
SCALE = 0.1
# The same host as for Table 3, which was chosen because that comes out (e12).
CHOSEN: Basis = "fitted"
BASELINE_PART, LAZY_PART = f"{BASELINE}-400gb", f"{LAZY}-400gb"


def on_partition(file_system: str) -> fs.FileSystem:
    found = fs.on_the_first(fs.find(file_system), run.PAPER_SMALL_PARTITION_BYTES)
    return replace(found, name=f"{file_system}-400gb")


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    cells = [run.Run(drive.find(PARTITIONED), on_partition(name), plan) for name in (BASELINE, LAZY)]
    for name in WHOLE:
        cells += run.cells(name, (BASELINE, LAZY), plan)
    # The baseline fills the cache, and then a write waits for longer than Linux's six times 30 s (e42).
    cells = [replace(each, variant=fs.with_patience(each.variant)) for each in cells]
    return run.on_the_papers_host(cells, scale)


def transactions_s(records: Sequence[Record], file_system: str, name: str) -> float:
    """Figure 14 "only includes numbers from the transaction phase of the benchmark"."""
    return parts_s(cell(records, file_system, NAME, name), "transactions")


def whole_disk(name: str, paper: float) -> Claim:
    return Claim(
        "T13", f"Postmark on the whole {name}: times faster on {LAZY}", "", paper, paper,
        speedup(BASELINE, LAZY, NAME, name), 0.25, full_size=True, better="high", basis=CHOSEN,
    )  # fmt: skip


def between(file_system: str, slow: str, fast: str) -> Claim:
    return Claim(
        "T14", f"transactions on {file_system}: times faster on {fast} than on {slow}", "", 2, 2,
        lambda records: transactions_s(records, file_system, slow) / transactions_s(records, file_system, fast),
        0.25, full_size=True, basis=CHOSEN,
    )  # fmt: skip


TIMES = (
    Claim(
        "T12a", f"partition of 400 GB, {LAZY_PART}", "s", 461, 461,
        seconds(LAZY_PART, NAME), 0.25, full_size=True, better="low", basis=CHOSEN,
    ),
    Claim(
        "T12b", f"partition of 400 GB, {BASELINE_PART}", "s", 922, None,
        seconds(BASELINE_PART, NAME), full_size=True, basis=CHOSEN,
    ),
)  # fmt: skip
TABLE_4 = (
    bytes_claim("T12c", BASELINE_PART, NAME, "data", 32_917, CHOSEN),
    bytes_claim("T12c", BASELINE_PART, NAME, "metadata", 563, CHOSEN),
    bytes_claim("T12c", BASELINE_PART, NAME, "journal", 1_212, CHOSEN),
    bytes_claim("T12d", LAZY_PART, NAME, "data", 32_847, CHOSEN),
    bytes_claim("T12d", LAZY_PART, NAME, "metadata", 0, CHOSEN),
    bytes_claim("T12d", LAZY_PART, NAME, "journal", 1_069, CHOSEN),
)
FIGURE_13 = tuple(whole_disk(name, paper) for name, paper in WHOLE.items())
FIGURE_14 = (between(BASELINE, "st8000as0002", "wd40nmzw"), between(LAZY, "wd40nmzw", "st8000as0002"))


def until_quiet_ratio(records: Sequence[Record], name: str) -> float:
    """With the cleaning after it."""
    return busy_s(cell(records, BASELINE, NAME, name)) / busy_s(cell(records, LAZY, NAME, name))


def spread_percent(seeds: Sequence[Sequence[Record]], file_system: str) -> float:
    """By how much Postmark's longest time on the whole disk is above its shortest."""
    took = [float(cell(records, file_system, NAME, PARTITIONED)["virtual_s"]) for records in seeds]
    return 100 * (max(took) / min(took) - 1)


EXPERIMENT = Experiment(
    name="e14-smr-postmark",
    claim="a file server on a shingled disk stays fast for longer, because fewer bands are dirtied",
    source="FAST'17, section 4.3.2, Figures 12 to 14 and Table 4",
    runs=runs,
    phases=(NAME, workload.UNMOUNT),
    expectations=(),
    scale=SCALE,
    scaling="The persistent cache is not scaled: times and ratios mean something at the paper's size only.",
    claims=(*TIMES, *TABLE_4, *FIGURE_13, *FIGURE_14),
    draw=bars.of_claims(
        bars.Group("Figure 13: on whole disks, ext4-lazy against ext4-10g", "times as fast", FIGURE_13),
        bars.Group("Figure 12: Postmark on 400 GB of the disk", "s", TIMES[::-1]),
        bars.Group("Table 4: what it writes there", "MiB", TABLE_4),
        bars.Group("Figure 14: transactions, one disk against the other", "times as fast", FIGURE_14),
    ),
    numbers={"until_quiet_ratio": until_quiet_ratio, "spread_percent": spread_percent},
)

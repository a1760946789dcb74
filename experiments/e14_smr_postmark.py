# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server's load on drive-managed SMR disks: a partition of 400 GB, and whole disks.

FAST'17, section 4.3.2, Figures 12 to 14 and Table 4. The map of the persistent cache decides when the
baseline falls into forced cleaning, and it is not scaled: at a tenth no cache ever fills.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle import drive, fs, run, workload
from shingle.claims import Claim, bytes_claim, seconds
from shingle.experiment import Experiment
from shingle.record import Record, cell

PARTITIONED = "st8000as0002"
WHOLE = {"st8000as0002": 5.4, "st4000lm016": 2.0, "st5000as0011": 2.0, "wd40nmzw": 1.7}
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
NAME = "Postmark"
PARTITION_BYTES = 400_000_000_000
SCALE = 0.1


def on_partition(file_system: str) -> fs.FileSystem:
    found = fs.on_the_first(fs.find(file_system), PARTITION_BYTES)
    return replace(found, name=f"{file_system}-400gb")


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    cells = [run.Run(drive.find(PARTITIONED), on_partition(name), plan) for name in (BASELINE, LAZY)]
    for name in WHOLE:
        cells += run.cells(name, (BASELINE, LAZY), plan)
    return run.on_the_papers_host(cells, scale)


def ratio(records: Sequence[Record], name: str) -> float:
    return seconds(BASELINE, NAME, name)(records) / seconds(LAZY, NAME, name)(records)


def whole_disk(name: str, paper: float) -> Claim:
    return Claim(
        "T13", f"Postmark on the whole {name}: times faster on ext4-lazy", "", paper, paper,
        lambda records: ratio(records, name), 0.25, full_size=True, better="high",
    )  # fmt: skip


def lazy_s(records: Sequence[Record]) -> float:
    return float(cell(records, f"{LAZY}-400gb", NAME)["virtual_s"])


def baseline_s(records: Sequence[Record]) -> float:
    return float(cell(records, f"{BASELINE}-400gb", NAME)["virtual_s"])


EXPERIMENT = Experiment(
    name="e14-smr-postmark",
    claim="a file server on a shingled disk stays fast for longer, because metadata does not fill the cache's map",
    source="FAST'17, section 4.3.2, Figures 12 to 14 and Table 4",
    runs=runs,
    phases=(NAME, workload.UNMOUNT),
    expectations=(),
    scale=SCALE,
    scaling="The persistent cache is not scaled: times and ratios mean something at the paper's size only.",
    claims=(
        Claim("T12a", "partition of 400 GB, ext4-lazy", "s", 461, 461, lazy_s, 0.25, full_size=True, better="low"),
        Claim("T12b", "partition of 400 GB, ext4-10g", "s", 922, None, baseline_s, full_size=True),
        bytes_claim("T12c", f"{BASELINE}-400gb", NAME, "data", 32_917),
        bytes_claim("T12c", f"{BASELINE}-400gb", NAME, "metadata", 563),
        bytes_claim("T12c", f"{BASELINE}-400gb", NAME, "journal", 1_212),
        bytes_claim("T12d", f"{LAZY}-400gb", NAME, "data", 32_847),
        bytes_claim("T12d", f"{LAZY}-400gb", NAME, "metadata", 0),
        bytes_claim("T12d", f"{LAZY}-400gb", NAME, "journal", 1_069),
        *(whole_disk(name, paper) for name, paper in WHOLE.items()),
        Claim(
            "T14", "ext4-10g: times faster on wd40nmzw than on st8000as0002", "", 2, 2,
            lambda records: seconds(BASELINE, NAME, "st8000as0002")(records)
            / seconds(BASELINE, NAME, "wd40nmzw")(records),
            0.25, full_size=True,
        ),
        Claim(
            "T14", "ext4-lazy: times faster on st8000as0002 than on wd40nmzw", "", 2, 2,
            lambda records: seconds(LAZY, NAME, "wd40nmzw")(records)
            / seconds(LAZY, NAME, "st8000as0002")(records),
            0.25, full_size=True,
        ),
    ),
)  # fmt: skip

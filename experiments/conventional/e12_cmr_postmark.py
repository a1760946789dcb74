# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server's load on a conventional disk: Postmark as the paper changed it (FAST'17, section 4.2.2, Table 3)."""

from shingle.lab import Basis, Claim, Experiment, bars, bytes_claim, cell, run, workload, written_mib_s

DRIVE = "wd5000ys"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
NAME = "Postmark"
SCALE = 0.1
# The host's strict share of dirty pages was chosen because Table 3 comes out with it (e18).
CHOSEN: Basis = "fitted"


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = run.cells(DRIVE, (BASELINE, LAZY), workload.plan((NAME,), scale=scale, seed=seed))
    return run.on_the_papers_host(cells, scale)


TABLE_3 = (
    bytes_claim("T9a", BASELINE, NAME, "data", 34_185, CHOSEN),
    bytes_claim("T9a", BASELINE, NAME, "metadata", 480, CHOSEN),
    bytes_claim("T9a", BASELINE, NAME, "journal", 1_890, CHOSEN),
    bytes_claim("T9b", LAZY, NAME, "data", 33_878, CHOSEN),
    bytes_claim("T9b", LAZY, NAME, "metadata", 0, CHOSEN),
    bytes_claim("T9b", LAZY, NAME, "journal", 1_855, CHOSEN),
)
THROUGHPUT = Claim(
    "T9c", "throughput on ext4-10g", "MiB/s", 24.24, 24.24,
    lambda records: written_mib_s(cell(records, BASELINE, NAME)), 0.25, basis=CHOSEN,
)  # fmt: skip
GAIN = Claim(
    "T9c", "throughput on ext4-lazy over that on ext4-10g", "", 1.05, 1.05,
    lambda records: written_mib_s(cell(records, LAZY, NAME)) / written_mib_s(cell(records, BASELINE, NAME)), 0.02,
    better="high", basis=CHOSEN,
)  # fmt: skip

EXPERIMENT = Experiment(
    name="e12-cmr-postmark",
    claim="a file server gains some percent on a conventional disk, because metadata is not written home",
    source="FAST'17, section 4.2.2, Figure 9 and Table 3",
    runs=runs,
    phases=(NAME, workload.UNMOUNT),
    expectations=(),
    scale=SCALE,
    scaling="Files, directories and transactions are scaled; memory is scaled, but not below 3 GiB.",
    claims=(*TABLE_3, THROUGHPUT, GAIN),
    draw=bars.of_claims(
        bars.Group("Table 3: Postmark on a conventional disk", "MiB", TABLE_3),
        bars.Group("Figure 9: throughput", "MiB/s", (THROUGHPUT,)),
        bars.Group("Figure 9: gain", "times", (GAIN,)),
    ),
)

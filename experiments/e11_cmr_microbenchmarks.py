# SPDX-License-Identifier: MIT OR Apache-2.0
"""The microbenchmarks of FAST'17 on a conventional disk (section 4.2.1, Figure 7, Table 2).

The paper runs each on a cold cache. Here the phases follow each other in one mount: the caches
are dropped between them, and what the one before left in the journal stays there, as in the paper. Mounted with
noatime, as in e13.
"""

from dataclasses import replace

from shingle import bars, fs, run, workload
from shingle.claims import Claim, bytes_claim, metadata_read, speedup_claim
from shingle.experiment import Experiment

DRIVE = "wd5000ys"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
SCALE = 0.1


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for workloads in (workload.DIRECTORIES, workload.FILES):
        plan = workload.plan(workloads, scale=scale, seed=seed)
        cells += run.cells(DRIVE, (BASELINE, LAZY), plan)
    cells = [replace(each, variant=fs.mounted_with(each.variant, "noatime")) for each in cells]
    return run.on_the_papers_host(cells, scale)


def faster(target: str, name: str, low: float, high: float) -> Claim:
    return speedup_claim(target, BASELINE, LAZY, name, low, high)


def reads(target: str, file_system: str, name: str, paper_mib: float) -> Claim:
    return Claim(
        target, f"{name} on {file_system}: metadata read", "MiB", paper_mib, paper_mib,
        metadata_read(file_system, name), 0.10, linear=True,
    )  # fmt: skip


FIGURE_7 = (
    faster("T7a", "MakeDirs", 1.5, 2),
    faster("T7a", "CreateFiles", 1.5, 2),
    faster("T7b", "ListDirs", 3, 5),
    faster("T7b", "TarDirs", 3, 5),
    faster("T7b", "RemoveDirs", 3, 5),
    faster("T7b", "FindFiles", 3, 5),
    faster("T7b", "RemoveFiles", 3, 5),
    faster("T7c", "TarFiles", 1, 1.5),
)
TABLE_2 = (
    reads("T7d", BASELINE, "MakeDirs", 143.7),
    bytes_claim("T7d", BASELINE, "MakeDirs", "metadata", 4631),
    bytes_claim("T7d", BASELINE, "MakeDirs", "journal", 4735),
    reads("T7e", LAZY, "MakeDirs", 144),
    bytes_claim("T7e", LAZY, "MakeDirs", "metadata", 0),
    bytes_claim("T7e", LAZY, "MakeDirs", "journal", 4707),
    reads("T7f", BASELINE, "RemoveDirs", 4066.4),
    bytes_claim("T7f", BASELINE, "RemoveDirs", "metadata", 322.4),
    bytes_claim("T7f", BASELINE, "RemoveDirs", "journal", 1119),
    reads("T7g", LAZY, "RemoveDirs", 4066.4),
    bytes_claim("T7g", LAZY, "RemoveDirs", "metadata", 0),
    bytes_claim("T7g", LAZY, "RemoveDirs", "journal", 472),
)

EXPERIMENT = Experiment(
    name="e11-cmr-microbenchmarks",
    claim="on a conventional disk, metadata that is only logged makes directories 1.5 to 5 times faster",
    source="FAST'17, section 4.2.1, Figure 7 and Table 2",
    runs=runs,
    phases=(*workload.DIRECTORIES, *workload.FILES, workload.UNMOUNT),
    expectations=(),
    scale=SCALE,
    scaling="The journal (10 GiB) and the disk are not scaled.",
    claims=(*FIGURE_7, *TABLE_2),
    draw=bars.of_claims(
        bars.Group("Figure 7: ext4-lazy against ext4-10g", "times faster", FIGURE_7),
        bars.Group("Table 2: metadata read, metadata and journal written", "MiB", TABLE_2),
    ),
)

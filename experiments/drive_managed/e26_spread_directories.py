# SPDX-License-Identifier: MIT OR Apache-2.0
"""FAST'17's directories where the paper's kernel put them: spread over the disk (section 4.2.1, Figure 7 and Table 2;
section 4.3.1, Figure 11). Files lie where their directories do.

The machine has one processor, the paper's host four cores, on which eight threads made files: so once more with calls
that change a name at a quarter of their cost, and with the memory that brings out Table 3 (e18).

Linux 4.6, the paper's, went on to the next flex_bg after 512 directories, and Linux 6.12 does after 8,192
(fs.with_spread_directories).
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import (
    Expectation,
    Experiment,
    Record,
    bars,
    bytes_claim,
    cell,
    cleaning_claim,
    drive,
    fs,
    lazy_cleaning_claim,
    reads_claim,
    run,
    speedup_claim,
    workload,
)

CONVENTIONAL, SHINGLED = "wd5000ys", "st8000as0002"
BASELINE, LAZY = "ext4-10g-spread", "ext4-lazy-spread"
SMR_BASELINE, SMR_LAZY = "ext4-10g-spread-smr", "ext4-lazy-spread-smr"
DIRECTORIES, FILES = ("MakeDirs", "ListDirs", "RemoveDirs"), ("CreateFiles", "RemoveFiles")
CORES = 4
LESS_GIB = 10
SCALE = 0.1


def spread(name: str, new_name: str) -> fs.FileSystem:
    return replace(fs.with_spread_directories(fs.mounted_with(fs.find(name), "noatime")), name=new_name)


def runs(scale: float, seed: int) -> list[run.Run]:
    conventional = [spread("ext4-10g", BASELINE), spread("ext4-lazy", LAZY)]
    shingled = [
        fs.on_the_first(each, run.PAPER_PARTITION_BYTES)
        for each in (spread("ext4-10g", SMR_BASELINE), spread("ext4-lazy", SMR_LAZY))
    ]
    cells = []
    for names in (DIRECTORIES, FILES):
        plan = workload.plan(names, scale=scale, seed=seed)
        cells += [run.Run(drive.find(CONVENTIONAL), each, plan) for each in conventional]
        cells += [run.Run(drive.find(SHINGLED), each, plan) for each in shingled]
    cells += [on_cores(each) for each in cells if each.plan.names == FILES]
    cells = run.on_the_papers_host(cells, scale)
    # Cheaper calls, where their cost hides what metadata cost.
    plan = workload.plan(FILES[:1], scale=scale, seed=seed)
    compared = (BASELINE, LAZY, of_cores(SMR_BASELINE), of_cores(SMR_LAZY))
    return [
        *cells,
        *(
            with_less(replace(each, plan=plan))
            for each in cells
            if each.plan.names == FILES and each.variant.name in compared
        ),
    ]


def on_cores(cell: run.Run) -> run.Run:
    return replace(cell, variant=replace(cell.variant, name=of_cores(cell.variant.name)), name_ns=cell.name_ns // CORES)


def with_less(cell: run.Run) -> run.Run:
    memory_mib = cell.memory_mib * (LESS_GIB << 10) // run.PAPER_MEMORY_MIB
    return replace(cell, variant=replace(cell.variant, name=of_less(cell.variant.name)), memory_mib=memory_mib)


def of_less(name: str) -> str:
    return f"{name}-{LESS_GIB}-gib"


def of_cores(name: str) -> str:
    return f"{name}-{CORES}-cores"


def logged_bytes(records: Sequence[Record], file_system: str) -> int:
    return int(cell(records, file_system, "RemoveDirs")["journal_written_bytes"])


FASTER = (
    speedup_claim("T7a", BASELINE, LAZY, "MakeDirs", 1.5, 2),
    speedup_claim("T7b", BASELINE, LAZY, "ListDirs", 3, 5),
    speedup_claim("T7b", BASELINE, LAZY, "RemoveDirs", 3, 5),
    speedup_claim("T7a", BASELINE, LAZY, "CreateFiles", 1.5, 2),
    speedup_claim("T7b", BASELINE, LAZY, "RemoveFiles", 3, 5),
    speedup_claim("T7a", of_cores(BASELINE), of_cores(LAZY), "CreateFiles", 1.5, 2),
    speedup_claim("T7a", of_less(BASELINE), of_less(LAZY), "CreateFiles", 1.5, 2),
    speedup_claim("T11b", SMR_BASELINE, SMR_LAZY, "MakeDirs", 1.5, 2.5),
    speedup_claim("T11b", SMR_BASELINE, SMR_LAZY, "ListDirs", 13, 13),
    speedup_claim("T11b", SMR_BASELINE, SMR_LAZY, "CreateFiles", 1.5, 2.5),
    speedup_claim("T11b", of_cores(SMR_BASELINE), of_cores(SMR_LAZY), "CreateFiles", 1.5, 2.5),
    speedup_claim("T11b", of_less(of_cores(SMR_BASELINE)), of_less(of_cores(SMR_LAZY)), "CreateFiles", 1.5, 2.5),
)
TABLE_2 = (
    bytes_claim("T7d", BASELINE, "MakeDirs", "metadata", 4631),
    bytes_claim("T7d", BASELINE, "MakeDirs", "journal", 4735),
    bytes_claim("T7e", LAZY, "MakeDirs", "journal", 4707),
    reads_claim("T7f", BASELINE, "RemoveDirs", 4066.4),
    bytes_claim("T7f", BASELINE, "RemoveDirs", "metadata", 322.4),
    bytes_claim("T7f", BASELINE, "RemoveDirs", "journal", 1119),
    reads_claim("T7g", LAZY, "RemoveDirs", 4066.4),
    bytes_claim("T7g", LAZY, "RemoveDirs", "journal", 472),
)
CLEANING = (
    cleaning_claim("T11c", SMR_BASELINE, "MakeDirs", 846),
    lazy_cleaning_claim("T11c", SMR_LAZY, "MakeDirs", 0),
    cleaning_claim("T11d", SMR_BASELINE, "RemoveDirs", 590),
    lazy_cleaning_claim("T11d", SMR_LAZY, "RemoveDirs", 10),
    cleaning_claim("T11d", SMR_BASELINE, "RemoveFiles", 366),
    lazy_cleaning_claim("T11d", SMR_LAZY, "RemoveFiles", 20),
)

EXPERIMENT = Experiment(
    name="e26-spread-directories",
    claim="where the paper's kernel put directories decides what a shingled disk has to clean after they are removed",
    source="FAST'17, sections 4.2.1 and 4.3.1, Table 2 and Figure 11, varied",
    varied=True,
    runs=runs,
    phases=(*DIRECTORIES, *FILES, workload.UNMOUNT),
    expectations=(
        Expectation(
            "RemoveDirs on the baseline logs more than twice as many bytes as it writes home",
            lambda records: (
                logged_bytes(records, BASELINE) > 2 * cell(records, BASELINE, "RemoveDirs")["metadata_written_bytes"]
            ),
        ),
        Expectation(
            "and more than twice as many as with journal_lazy, whose run is shorter",
            lambda records: logged_bytes(records, BASELINE) > 2 * logged_bytes(records, LAZY),
        ),
        Expectation(
            "on the shingled disk it leaves more than fifty times as many bands dirty as with journal_lazy",
            lambda records: (
                cell(records, SMR_BASELINE, "RemoveDirs")["bands_dirty"]
                > 50 * cell(records, SMR_LAZY, "RemoveDirs")["bands_dirty"]
            ),
        ),
    ),
    scale=SCALE,
    scaling="The journal (10 GiB), the disks and their flex_bgs are not scaled.",
    claims=(*FASTER, *TABLE_2, *CLEANING),
    draw=bars.of_claims(
        bars.Group("Figures 7 and 11: ext4-lazy against ext4-10g", "times faster", FASTER),
        bars.Group("Table 2: metadata read, metadata and journal written", "MiB", TABLE_2),
        bars.Group("Figure 11: what the drive cleans afterwards", "s", CLEANING),
    ),
)

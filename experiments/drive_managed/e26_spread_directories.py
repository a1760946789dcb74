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
    Reason,
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
    reasons=(
        Reason("a mechanism", "calls are 62 of the 73 s of MakeDirs on the shingled disk (e25)", ("T11b",)),
        Reason("a parameter", "how much of the memory may be dirty: 10 GiB give CreateFiles' gain", ("T7a", "T11b")),
        Reason("a mechanism", "how many blocks a commit of scattered removals has", ("T7f",)),
        Reason("a mechanism", "bands of the journal in which runs end", ("T11c",)),
    ),
    finding=(
        "With the rule of the paper's kernel what the drive has to clean is as in the paper, with a profile that was "
        "frozen before: 923, 548 and 355 s after MakeDirs, RemoveDirs and RemoveFiles (the paper: 846, 590 and 366), "
        "in 790, 668 and 486 bands; with today's rule 728, 113 and 50 s (e13). So does what journal_lazy logs in "
        "RemoveDirs (T7g). What the baseline logs there is above the paper's, as it is below with today's rule "
        "(T7f; 728 MiB, e11): it commits 1.6 times as often, because it takes 4,976 s and not 2,768, and each "
        "commit has 1.6 times as many blocks, because directories that are removed one after the other share fewer; "
        "on the shingled disk it logs 2,883 MiB in 3,026 s. For the same reason more goes home, 528 MiB (the paper: "
        "322). What is in the log is read with few seeks, so ListDirs, RemoveDirs and RemoveFiles gain more than "
        "the paper's. CreateFiles gains 1.36 on the conventional disk, and 1.35 with calls at a quarter of their "
        "cost, because bytes count: 7,369 MiB to 5,414. How many they are, the memory decides, as in Postmark "
        "(e18): with 10 GiB, not 16, the baseline writes 2,606 MiB of metadata home and not 2,044, and the gain is "
        "1.68. (A disk without a write buffer gains less, not more: 1.28, and 1.30 with it; at a tenth, by hand.) "
        "On the shingled disk it gains 2.65, because the baseline writes metadata in 100,088 requests, which with "
        "the data's pieces fill the map though not the cache, and 50 bands are cleaned while it runs; with calls at "
        "a quarter they are 4,345, and the gain is 1.39, with 10 GiB of memory 1.87. What it leaves to clean, for "
        "which the paper has no number, depends on that, too: 1,691 s, and 755; journal_lazy leaves 369 and 376, "
        "which are data. RemoveFiles leaves 355 s either way; MakeDirs was not tried with cheaper calls."
    ),
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

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The microbenchmarks of FAST'17 on a drive-managed SMR disk, with what the disk cleans afterwards (Figure 11).

A file system of 2 TB on the first part of the 8 TB disk, as the paper's partition. It is mounted with noatime: the
first reading of a new directory writes its access time, which leaves bands to clean, and in the paper there are none.
"""

from collections.abc import Sequence

from shingle import bars, drive, fs, run, workload
from shingle.claims import Claim, cleaning, speedup_claim
from shingle.experiment import Experiment
from shingle.record import Record, cell

DRIVE = "st8000as0002"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
SCALE = 0.1


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for workloads in (workload.DIRECTORIES, workload.FILES):
        plan = workload.plan(workloads, scale=scale, seed=seed)
        variants = [
            fs.mounted_with(fs.on_the_first(fs.find(name), run.PAPER_PARTITION_BYTES), "noatime")
            for name in (BASELINE, LAZY)
        ]
        cells += [run.Run(drive.find(DRIVE), variant, plan) for variant in variants]
    return run.on_the_papers_host(cells, scale)


def faster(target: str, name: str, low: float, high: float) -> Claim:
    return speedup_claim(target, BASELINE, LAZY, name, low, high)


def cleans(target: str, file_system: str, name: str, paper_s: float) -> Claim:
    """Seconds of cleaning; they go with the number of bands, and that with the workload."""
    return Claim(
        target, f"{name} on {file_system}: cleaning", "s", paper_s, paper_s, cleaning(file_system, name), 0.25,
        linear=True,
    )  # fmt: skip


def lazily_cleans(target: str, name: str, paper_s: float) -> Claim:
    """A few bands of the journal, whatever the size of the workload."""
    return Claim(target, f"{name} on {LAZY}: cleaning", "s", None, paper_s, cleaning(LAZY, name), 0.25, better="low")


def streamed_share(records: Sequence[Record], file_system: str, name: str) -> float:
    """The part of what is written that the disk puts in place at once, past its persistent cache."""
    counters = cell(records, file_system, name)["counters"]
    return float(counters["streamed_bytes"]) / float(counters["streamed_bytes"] + counters["cached_bytes"])


FASTER = (
    faster("T11b", "MakeDirs", 1.5, 2.5),
    faster("T11b", "CreateFiles", 1.5, 2.5),
    faster("T11b", "ListDirs", 13, 13),
)
CLEANING = (
    cleans("T11c", BASELINE, "MakeDirs", 846),
    lazily_cleans("T11c", "MakeDirs", 0),
    cleans("T11d", BASELINE, "RemoveDirs", 590),
    lazily_cleans("T11d", "RemoveDirs", 10),
    cleans("T11d", BASELINE, "RemoveFiles", 366),
    lazily_cleans("T11d", "RemoveFiles", 20),
    *(
        Claim("T11e", f"{name} on {system}: cleaning", "s", 0, 0, cleaning(system, name))
        for name in ("ListDirs", "TarDirs", "FindFiles", "TarFiles")
        for system in (BASELINE, LAZY)
    ),
)
# "All of which are streamed, bypassing the persistent cache"; of the baseline's writes nine tenths are.
STREAMED = Claim(
    "T11f", f"MakeDirs on {LAZY}: streamed part of what is written", "", 1, 1,
    lambda records: streamed_share(records, LAZY, "MakeDirs"), 0.01,
)  # fmt: skip

EXPERIMENT = Experiment(
    name="e13-smr-microbenchmarks",
    claim="on a shingled disk the gain is larger, and next to nothing is left to clean",
    source="FAST'17, section 4.3.1, Figure 11",
    runs=runs,
    phases=(*workload.DIRECTORIES, *workload.FILES, workload.UNMOUNT),
    finding=(
        "What is left to clean goes with the flex_bgs that were touched, one band to three for each, and not with the "
        "directories. Linux 6.12 puts 8,192 directories into a flex_bg before it goes on, Linux 4.6 did after 512: "
        "with the old rule a tenth of the directories leaves 182 bands to MakeDirs and 171 to RemoveDirs (e26), "
        "here all of them leave 248 and 147. A band for each of the partition's 930 flex_bgs, at the 0.76 s that "
        "RemoveDirs' bands take, would be 710 s, which is what the paper's times look like. That MakeDirs here comes "
        "near the paper's is another matter: its few bands take 2.9 s each, not 0.8, and why was not traced. "
        "CreateFiles gains less than the paper's (e26 has it with the old rule). MakeDirs on ext4-lazy leaves bands "
        "of the journal: runs end in them."
    ),
    expectations=(),
    scale=SCALE,
    scaling="The journal (10 GiB), the disk and its persistent cache are not scaled.",
    claims=(*FASTER, *CLEANING, STREAMED),
    draw=bars.of_claims(
        bars.Group("Figure 11: ext4-lazy against ext4-10g", "times faster", FASTER),
        bars.Group("Figure 11: what the drive cleans afterwards", "s", CLEANING),
        bars.Group("Section 4.3.1: written past the persistent cache", "part", (STREAMED,)),
    ),
)

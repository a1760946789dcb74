# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a load costs the drive in all: the phase, the cleaning after it, the unmount, and the cleaning after that.

At the paper's size no load fills a log of 10 GiB, and what is in the log costs nothing yet. Here logs are so small
that each load writes its log more than three times, and at the unmount everything in the log is sent home
(`journal_lazy_drain`). A small log is harder for journal_lazy than a large one, because more of it is live. So two
loads run on a log of 1 GiB, too, which they do not fill, and which is drained as well.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Expectation, Experiment, Record, cell, drive, fs, run, workload

DRIVE = "st8000as0002"
STOCK, KEPT, DRAINED = "stock", "lazy", "lazy-drained"
LARGE_STOCK, LARGE_DRAINED = "stock-large", "lazy-large-drained"
LARGE_MIB, ON_LARGE = 1024, ("MakeDirs", "Postmark")
SMALL = (STOCK, KEPT, DRAINED)
OPTIONS = {
    STOCK: "",
    KEPT: "journal_lazy",
    DRAINED: "journal_lazy,journal_lazy_drain",
    LARGE_STOCK: "",
    LARGE_DRAINED: "journal_lazy,journal_lazy_drain",
}
SCALE = 0.1
# For each load its part of the experiment's scale, the log in MiB, and the calls that count as its operations.
LOADS = {
    "MakeDirs": (1, 128, ("mkdir",)),
    "Postmark": (3, 128, ("create", "unlink", "open")),
    "PostmarkBelow": (3, 32, ("create", "unlink", "open")),
}
WRAPS = 3
NS_PER_S = 1e9


def named(file_system: str, load: str) -> str:
    return f"{file_system}-{load}"


def variant(file_system: str, load: str) -> fs.FileSystem:
    journal_mib = LOADS[load][1] if file_system in SMALL else LARGE_MIB
    return fs.ext4(named(file_system, load), "for a whole bill", journal_mib, OPTIONS[file_system])


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = [
        run.Run(
            drive.find(DRIVE),
            replace(variant(file_system, load), keeps_log=file_system == KEPT),
            workload.plan((load,), scale=scale * share, seed=seed),
        )
        for load, (share, _, _) in LOADS.items()
        for file_system in OPTIONS
        if file_system in SMALL or load in ON_LARGE
    ]
    return run.on_the_papers_host(cells, scale)


def parts(records: Sequence[Record], load: str, file_system: str) -> list[Record]:
    """The load and the unmount."""
    return [cell(records, named(file_system, load), name) for name in (load, workload.UNMOUNT)]


def operations(records: Sequence[Record], load: str, file_system: str) -> int:
    done = cell(records, named(file_system, load), load)["load"]["operations"]
    return sum(int(done[each]) for each in LOADS[load][2])


def phase_s(records: Sequence[Record], load: str, file_system: str) -> float:
    return float(cell(records, named(file_system, load), load)["virtual_s"])


def busy_s(records: Sequence[Record], load: str, file_system: str) -> float:
    """In which the drive's arm worked, for whomever, to the end of the last cleaning."""
    return sum(float(each["counters"]["busy_ns"]) for each in parts(records, load, file_system)) / NS_PER_S


def busy_ms_each(records: Sequence[Record], load: str, file_system: str) -> float:
    return 1e3 * busy_s(records, load, file_system) / operations(records, load, file_system)


def cleaning_s(records: Sequence[Record], load: str, file_system: str) -> float:
    """Of that, in which it rewrote bands."""
    return sum(float(each["counters"]["cleaning_ns"]) for each in parts(records, load, file_system)) / NS_PER_S


def total(records: Sequence[Record], load: str, file_system: str, field: str) -> float:
    return sum(float(each[field]) for each in parts(records, load, file_system))


def user_bytes(records: Sequence[Record], load: str, file_system: str) -> float:
    return float(cell(records, named(file_system, load), load)["load"]["user_written_bytes"])


def wraps(records: Sequence[Record], load: str, file_system: str) -> float:
    """How often the log was written in the load."""
    found = cell(records, named(file_system, load), load)
    return float(found["journal_written_bytes"]) / float(found["configuration"]["journal_bytes"])


EXPERIMENT = Experiment(
    name="e34-whole-bill",
    claim="what journal_lazy puts off is counted when the log has wrapped and is drained",
    runs=runs,
    phases=(*LOADS, workload.UNMOUNT),
    scale=SCALE,
    scaling="The disk and its persistent cache are not scaled.",
    expectations=(
        Expectation(
            f"with journal_lazy each load writes its log at least {WRAPS} times",
            lambda records: all(wraps(records, load, DRAINED) >= WRAPS for load in LOADS),
        ),
    ),
    numbers={
        "phase_s": phase_s,
        "busy_s": busy_s,
        "busy_ms_each": busy_ms_each,
        "cleaning_s": cleaning_s,
        "total": total,
        "user_bytes": user_bytes,
        "wraps": wraps,
        "operations": operations,
    },
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a load costs the drive in all: the phase, the cleaning after it, the unmount, and the cleaning after that.

At the paper's size no load fills a log of 10 GiB, and what is in the log costs nothing yet. Here logs are so small
that each load writes its log more than three times, and at the unmount everything in the log is sent home
(`journal_lazy_drain`). A small log is harder for journal_lazy than a large one, because more of it is live. So two
loads run on a log of 1 GiB, too, which they do not fill, and which is drained as well. And seven times the paper's
directories are made on a log of the paper's size, so that it wraps.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Expectation, Experiment, Record, cell, drive, fs, run, workload

DRIVE = "st8000as0002"
STOCK, KEPT, DRAINED = "stock", "lazy", "lazy-drained"
LARGE_STOCK, LARGE_DRAINED = "stock-large", "lazy-large-drained"
LARGE_MIB, ON_LARGE = 1024, ("MakeDirs", "Postmark")
SMALL = (STOCK, KEPT, DRAINED)
# On the paper's log, a load that writes all of it three times at least.
PAPERS_STOCK, PAPERS_DRAINED = "stock-10g", "lazy-10g-drained"
PAPERS = (PAPERS_STOCK, PAPERS_DRAINED)
PAPERS_MIB, PAPERS_LOAD, PAPERS_SHARE = 10240, "MakeDirs", 70
OPTIONS = {
    STOCK: "",
    KEPT: "journal_lazy",
    DRAINED: "journal_lazy,journal_lazy_drain",
    LARGE_STOCK: "",
    LARGE_DRAINED: "journal_lazy,journal_lazy_drain",
    PAPERS_STOCK: "",
    PAPERS_DRAINED: "journal_lazy,journal_lazy_drain",
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


def journal_mib(file_system: str, load: str) -> int:
    if file_system in PAPERS:
        return PAPERS_MIB
    return LOADS[load][1] if file_system in SMALL else LARGE_MIB


def loads_of(file_system: str) -> tuple[str, ...]:
    if file_system in PAPERS:
        return (PAPERS_LOAD,)
    return tuple(LOADS) if file_system in SMALL else ON_LARGE


def runs(scale: float, seed: int) -> list[run.Run]:
    cells = []
    for file_system, options in OPTIONS.items():
        for load in loads_of(file_system):
            share = PAPERS_SHARE if file_system in PAPERS else LOADS[load][0]
            name = named(file_system, load)
            variant = fs.ext4(name, "for a whole bill", journal_mib(file_system, load), options)
            variant = replace(variant, keeps_log=file_system == KEPT)
            plan = workload.plan((load,), scale=scale * share, seed=seed)
            cells.append(run.Run(drive.find(DRIVE), variant, plan))
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


def seeking_s(records: Sequence[Record], load: str, file_system: str) -> float:
    """In which the drive's arm was on its way, to the end of the last cleaning."""
    return sum(float(each["counters"]["seeking_ns"]) for each in parts(records, load, file_system)) / NS_PER_S


def total(records: Sequence[Record], load: str, file_system: str, field: str) -> float:
    return sum(float(each[field]) for each in parts(records, load, file_system))


def user_bytes(records: Sequence[Record], load: str, file_system: str) -> float:
    return float(cell(records, named(file_system, load), load)["load"]["user_written_bytes"])


def rewritten_bytes(records: Sequence[Record], load: str, file_system: str) -> float:
    """By cleaning."""
    return sum(float(each["counters"]["rewritten_bytes"]) for each in parts(records, load, file_system))


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
        # These were written before their cells were run.
        Expectation(
            f"and seven times the paper's directories write the paper's log at least {WRAPS} times",
            lambda records: all(wraps(records, PAPERS_LOAD, each) >= WRAPS for each in PAPERS),
        ),
        Expectation(
            "drained, it keeps the arm busy on the paper's log at least as long as stock ext4",
            lambda records: busy_s(records, PAPERS_LOAD, PAPERS_DRAINED) >= busy_s(records, PAPERS_LOAD, PAPERS_STOCK),
        ),
        # Written after the cause of a threefold was found: what a full log may cost from now on.
        Expectation(
            "and making the directories takes at most half as long again",
            lambda records: (
                phase_s(records, PAPERS_LOAD, PAPERS_DRAINED) <= 1.5 * phase_s(records, PAPERS_LOAD, PAPERS_STOCK)
            ),
        ),
    ),
    numbers={
        "phase_s": phase_s,
        "busy_s": busy_s,
        "busy_ms_each": busy_ms_each,
        "cleaning_s": cleaning_s,
        "seeking_s": seeking_s,
        "total": total,
        "user_bytes": user_bytes,
        "rewritten_bytes": rewritten_bytes,
        "wraps": wraps,
        "operations": operations,
    },
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""BFQ in the place of CFQ: the NILFS2 report's workloads with and without its waiting for a task's next read.

FSL-14-03, section 4, compares noop and CFQ. BFQ descends from CFQ, but CFQ did not wait for the next read of a task
whose reads lie far apart. BFQ as it is set by default does more often, for low latency, and with slice_idle=0 never.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, fs, load_bytes_s, run, workload

DRIVE = "wd30ezr"
NONE, WAITING, AT_ONCE = "nilfs2-128m", "nilfs2-128m-bfq", "nilfs2-128m-bfq-at-once"
PAPER_PERCENT = {"random-read": 100, "random-read-direct": 100, "random-write-direct": 99.5, "fileserver": 100 / 1.15}
# As in e50, which has these workloads, their parameters and the report's memory.
SEGMENT_MIB = 128
MEMORY_MIB, SCALE, SHORTER, ERROR = 2048, 0.1, 5, 0.03


def runs(scale: float, seed: int) -> list[run.Run]:
    none = fs.with_scheduler(fs.nilfs2_of_segments(NONE, SEGMENT_MIB), "none")
    waiting = fs.with_scheduler(fs.nilfs2_of_segments(WAITING, SEGMENT_MIB), "bfq")
    cells = []
    for name in PAPER_PERCENT:
        plan = workload.plan((name,), scale=scale, seed=seed)
        plan = replace(plan, time_scale=scale if scale >= 1 else scale / SHORTER)
        (each,) = run.cells(DRIVE, ("nilfs2",), plan)
        for variant in (none, waiting, replace(fs.without_idling(waiting), name=AT_ONCE)):
            cells.append(replace(each, variant=variant, memory_mib=round(MEMORY_MIB * scale)))
    return cells


def percent(file_system: str, name: str) -> Callable[[Sequence[Record]], float]:
    return lambda records: (
        100 * load_bytes_s(cell(records, file_system, name)) / load_bytes_s(cell(records, NONE, name))
    )


def claim(file_system: str, name: str) -> Claim:
    target = {"fileserver": "T42", "random-write-direct": "T45"}.get(name, "T43")
    what = f"{name} under bfq{' that does not wait' if file_system == AT_ONCE else ''}"
    paper = PAPER_PERCENT[name]
    return Claim(target, what, "% of none", paper, paper, percent(file_system, name), ERROR)


CLAIMS = tuple(claim(file_system, name) for name in PAPER_PERCENT for file_system in (WAITING, AT_ONCE))

EXPERIMENT = Experiment(
    name="e55-bfq-idling",
    claim="most of what random reads through the page cache lose under BFQ is that it waits for the next of one task",
    source="FSL-14-03, section 4, Figures 1, 3 and 5, varied",
    varied=True,
    runs=runs,
    phases=tuple(PAPER_PERCENT),
    scale=SCALE,
    # The files would be in memory.
    scalable=False,
    scaling="As in e50.",
    expectations=(
        Expectation(
            "random reads are faster if BFQ does not wait",
            lambda records: (
                load_bytes_s(cell(records, AT_ONCE, "random-read"))
                > 1.05 * load_bytes_s(cell(records, WAITING, "random-read"))
            ),
        ),
    ),
    claims=CLAIMS,
    draw=bars.of_claims(bars.Group("FSL-14-03, Figures 1, 3 and 5, varied", "% of the throughput with none", CLAIMS)),
)

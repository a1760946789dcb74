# SPDX-License-Identifier: MIT OR Apache-2.0
"""NILFS2 on a disk whose firmware enforces that zones are written in order, and on the same disk without that.

FSL-14-03, sections 3.1.2, 3.2.2 and 4, Figures 1 to 8. The report's personalities of Filebench are workloads/*.toml;
its micro-benchmarks are run by fio, workloads/*.fio. Its scheduler noop is today's `none`; its CFQ is gone, and BFQ,
which descends from it, merges as it did. The cleaner runs as it is shipped: it keeps an hour of checkpoints, and waits
until less than a tenth of the disk is free, so that it does nothing. The report does not say how large NILFS2's
segments were; here they are the disk's zones, because with mkfs.nilfs2's own 8 MiB NILFS2 does not write in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, fs, load_bytes_s, run, workload

SMR, REGULAR = "wd30ezr-smr", "wd30ezr"
NONE, MERGING = "nilfs2-128m", "nilfs2-128m-bfq"
SEGMENT_MIB = 128
MACRO = ("webserver", "mailserver", "fileserver")
MICRO = (
    "random-read",
    "random-read-direct",
    "random-write",
    "random-write-direct",
    "sequential-read",
    "sequential-write",
)
SCALE = 0.1
# Below the paper's size, an hour at a tenth is not 360 s but 72, of a rate that is the same throughout. Reads in order
# come from memory, half a million a second, and cost the host five times their virtual time, writes in order twice: of
# them it is 7 and 18 s. (18 s of random writes would be mostly what memory takes at first.)
SHORTER, SHORTEST = 5, {"sequential-read": 50, "sequential-write": 20}
# FSL-14-03, 3.1.2.
MEMORY_MIB = 2048
# The report's standard deviations are below 5 % of the mean of five runs (3.2.2): 3 % in the ratio of two such means.
ERROR = 0.03


def runs(scale: float, seed: int) -> list[run.Run]:
    memory_mib = round(MEMORY_MIB * scale)
    none = fs.with_scheduler(fs.nilfs2_of_segments(NONE, SEGMENT_MIB), "none")
    merging = fs.with_scheduler(fs.nilfs2_of_segments(MERGING, SEGMENT_MIB), "bfq")
    found = []
    for name in (*MACRO, *MICRO):
        plan = workload.plan((name,), scale=scale, seed=seed)
        plan = replace(plan, time_scale=scale if scale >= 1 else scale / SHORTEST.get(name, SHORTER))
        for drive, variant in ((SMR, none), (REGULAR, none), (REGULAR, merging)):
            (each,) = run.cells(drive, ("nilfs2",), plan)
            found.append(replace(each, variant=variant, memory_mib=memory_mib))
    return found


def percent(over: tuple[str, str, str], under: tuple[str, str, str]) -> Callable[[Sequence[Record]], float]:
    """Of the throughput of the second cell (file system, workload, drive)."""
    return lambda records: 100 * load_bytes_s(cell(records, *over)) / load_bytes_s(cell(records, *under))


def on_smr(target: str, name: str, paper: float, error: float = ERROR) -> Claim:
    value = percent((NONE, name, SMR), (NONE, name, REGULAR))
    return Claim(target, f"{name}: prototype", "% of the regular disk", paper, paper, value, error)


def when_merging(target: str, name: str, paper: float) -> Claim:
    value = percent((MERGING, name, REGULAR), (NONE, name, REGULAR))
    return Claim(target, f"{name}: regular disk under bfq", "% of none", paper, paper, value, ERROR)


def violations(records: Sequence[Record]) -> int:
    return sum(int(each["counters"]["violations"]) for each in records if each["drive"] == SMR)


PROTOTYPE = (
    on_smr("T40", "webserver", 98.7),
    on_smr("T41", "mailserver", 93.7),
    on_smr("T42", "fileserver", 95.1),
    on_smr("T43", "random-read", 100),
    on_smr("T43", "random-read-direct", 100),
    on_smr("T44", "random-write", 96),
    on_smr("T45", "random-write-direct", 85),
    on_smr("T46", "sequential-read", 100),
    # With ERROR, no difference would be the report's difference, too.
    on_smr("T46", "sequential-write", 98, 0.015),
)
SCHEDULERS = (
    when_merging("T40", "webserver", 111),
    when_merging("T41", "mailserver", 101),
    # "15% higher than the regular disk with CFQ".
    when_merging("T42", "fileserver", 100 / 1.15),
    when_merging("T43", "random-read", 100),
    when_merging("T43", "random-read-direct", 100),
    when_merging("T44", "random-write", 99.5),
    when_merging("T45", "random-write-direct", 99.5),
    when_merging("T46", "sequential-read", 100),
    when_merging("T46", "sequential-write", 99.5),
)
DIRECT = Claim(
    "T45", "random-write-direct: regular disk", "% of random-write", 8, 8,
    percent((NONE, "random-write-direct", REGULAR), (NONE, "random-write", REGULAR)), 0.25,
)  # fmt: skip
IN_ORDER = Claim("T47", "writes out of order on the prototype", "", 0, 0, violations)

EXPERIMENT = Experiment(
    name="e50-nilfs2-prototype",
    claim="NILFS2 writes every zone of an enforcing disk in order, and loses little by it",
    source="FSL-14-03, section 4, Figures 1 to 8",
    runs=runs,
    phases=(*MACRO, *MICRO, workload.UNMOUNT),
    scale=SCALE,
    # All files would be in memory.
    scalable=False,
    scaling=(
        "Files or the one file's size and memory are scaled, and the time, below full size to a fifth of that again"
        " (sequential-read to a fiftieth, sequential-write to a twentieth); the disk, NILFS2's segments and times,"
        " threads, and the sizes of small files and of requests are not."
    ),
    expectations=(
        Expectation(
            "no write of NILFS2 is out of order",
            lambda records: any(each["drive"] == SMR for each in records) and violations(records) == 0,
        ),
    ),
    claims=(*PROTOTYPE, *SCHEDULERS, DIRECT, IN_ORDER),
    draw=bars.of_claims(
        bars.Group("Figures 1, 3, 5 and 7: the prototype", "% of the regular disk's throughput", PROTOTYPE),
        bars.Group("Figures 1, 3, 5 and 7: the merging scheduler", "% of the throughput with none", SCHEDULERS),
        bars.Group("Figure 5: direct against buffered random writes", "%", (DIRECT,)),
    ),
    numbers={"writes_s": lambda records, drive, name: load_bytes_s(cell(records, NONE, name, drive)) / 4096},
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether a scheduler that merges makes small reads faster: the test that FSL-14-03 proposes in its "Future Work".

The report has its web server 11 % faster under CFQ, and believes that merging is why. Here a hundred threads read 4 KiB
blocks of the disk itself: neighbours, which can be merged, and random ones of a small range, which hardly ever can.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from shingle.lab import (
    Claim,
    Expectation,
    Experiment,
    Record,
    bars,
    by_seed,
    cell,
    drive,
    fs,
    load_bytes_s,
    run,
    workload,
)

DRIVE = "wd30ezr"
NONE, MERGING = "raw", ("raw-mq-deadline", "raw-bfq")
ADJACENT, NEAR = "raw-adjacent", "raw-near"
SCALE = 0.1
# What the report explains by merging (FSL-14-03, 4.1).
GAIN = 1.11


def runs(scale: float, seed: int) -> list[run.Run]:
    found = []
    for name in (ADJACENT, NEAR):
        plan = workload.plan((name,), scale=scale, seed=seed)
        for file_system in (NONE, *MERGING):
            scheduler = file_system.removeprefix("raw-") if file_system in MERGING else "none"
            variant = fs.with_scheduler(fs.without(file_system), scheduler)
            found.append(run.Run(drive.find(DRIVE), variant, plan, memory_mib=512))
    return found


def mib_s(records: Sequence[Record], file_system: str, name: str) -> float:
    return load_bytes_s(cell(records, file_system, name)) / (1 << 20)


def request_kib(records: Sequence[Record], file_system: str, name: str) -> float:
    """Mean size of what reaches the disk."""
    found = cell(records, file_system, name)
    return float(found["total_read_bytes"]) / 1024 / float(found["counters"]["read_requests"])


def merges(file_system: str) -> Expectation:
    return Expectation(
        f"{file_system}: neighbours reach the disk in requests more than 11 % larger, random blocks do not",
        lambda records: (
            request_kib(records, file_system, ADJACENT) > GAIN * request_kib(records, NONE, ADJACENT)
            and request_kib(records, file_system, NEAR) < GAIN * request_kib(records, NONE, NEAR)
        ),
    )


def percent(file_system: str, name: str) -> Callable[[Sequence[Record]], float]:
    return lambda records: 100 * mib_s(records, file_system, name) / mib_s(records, NONE, name)


def claims(file_system: str) -> tuple[Claim, Claim]:
    """The report gives no numbers of this test; merging explains its gain if neighbours gain as much, and only they."""
    scheduler, least = file_system.removeprefix("raw-"), 100 * GAIN
    return (
        Claim("T40", f"neighbours under {scheduler}", "% of none", least, None, percent(file_system, ADJACENT)),
        Claim("T40", f"random places under {scheduler}", "% of none", None, least, percent(file_system, NEAR)),
    )


def draw(records: Sequence[Record], stem: Path) -> None:
    _, seeds = by_seed(records)
    panels = []
    for name, title in ((ADJACENT, "Neighbours"), (NEAR, "Random places of 64 MiB")):
        rows = [bars.Bar(each, tuple(mib_s(seed, each, name) for seed in seeds)) for each in (NONE, *MERGING)]
        panels.append(bars.Panel(f"{title}: reads of 4 KiB by 100 threads", "MiB/s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e51-read-merging",
    claim="a scheduler that merges reads neighbouring blocks of many threads faster than none, and only those",
    source="FSL-14-03, Future Work",
    runs=runs,
    phases=(ADJACENT, NEAR),
    scale=SCALE,
    scaling="The time is scaled.",
    expectations=tuple(merges(name) for name in MERGING),
    claims=tuple(claim for name in MERGING for claim in claims(name)),
    draw=draw,
    numbers={"request_kib": request_kib},
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What makes forced checkpoints slow, or not: e15's small journal on disks that keep fewer writes, under BFQ, with
directories spread over the disk, and without merging.

The paper's ext4-128m takes 460 s. Its journal traffic and its 10 s with 10 GiB are met here; what differs is the time
that the disk takes for a block that goes home. What decides it and nobody wrote down is varied: whether the disk may
keep and sort writes (`hdparm -W`), how many requests it is given at a time, whether the host merges neighbours, and the
scheduler (BFQ descends from CFQ, the paper's). And what the paper's kernel is known to have done otherwise: it spread
directories over more of the disk (e26 says how that is had today).
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import (
    Claim,
    Expectation,
    Experiment,
    NotRecorded,
    Record,
    bars,
    cell,
    drive,
    fs,
    parts_s,
    run,
    workload,
)

DRIVE, STOCK = "wd5000ys", "ext4-128m"
NAME = "CreateGigabyte"
SPREAD = f"{STOCK}-spread"
UNMERGED = f"{SPREAD}-unmerged"
BUFFER, QUEUE = "buffer.dirty_extents_max", "interface.queue_depth"
UNBUFFERED = drive.changed_name(DRIVE, BUFFER, 1)
ONE_BY_ONE = drive.changed_name(UNBUFFERED, QUEUE, 1)


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    buffered = drive.find(DRIVE)
    unbuffered = drive.changed(buffered, BUFFER, 1)
    cells = []
    for profile in (buffered, unbuffered):
        for each in run.cells(profile, (STOCK,), plan):
            bfq = fs.with_scheduler(replace(each.variant, name=f"{STOCK}-bfq"), "bfq")
            cells += [each, replace(each, variant=bfq), spread(each)]
    for each in run.cells(drive.changed(unbuffered, QUEUE, 1), (STOCK,), plan):
        cells.append(spread(each))
        cells.append(replace(cells[-1], variant=replace(fs.without_merging(cells[-1].variant), name=UNMERGED)))
    return run.on_the_papers_host(cells)


def spread(cell: run.Run) -> run.Run:
    return replace(cell, variant=replace(fs.with_spread_directories(cell.variant), name=SPREAD))


def made_s(records: Sequence[Record], file_system: str, disk: str) -> float:
    """Without the sync: what the load itself took."""
    for each in records:
        if (each["drive"], each["file_system"], each["phase"]) == (disk, file_system, NAME):
            return parts_s(each)
    raise NotRecorded(f"there is no record of {NAME} on {file_system} on {disk}.")


def claim(what: str, file_system: str, disk: str) -> Claim:
    return Claim("T6a", what, "s", 460, 460, lambda found: made_s(found, file_system, disk), 0.25)


CLAIMS = (
    claim("ext4-128m, as in e15", STOCK, DRIVE),
    claim("the same under BFQ", f"{STOCK}-bfq", DRIVE),
    claim("without the disk's write buffer", STOCK, UNBUFFERED),
    claim("without the buffer, under BFQ", f"{STOCK}-bfq", UNBUFFERED),
    claim("directories spread as in 2016", SPREAD, DRIVE),
    claim("the same, without the disk's write buffer", SPREAD, UNBUFFERED),
    claim("the same, and one request at a time", SPREAD, ONE_BY_ONE),
    claim("the same, and neighbours not merged", UNMERGED, ONE_BY_ONE),
)


def one_by_one(records: Sequence[Record], file_system: str) -> Record:
    return cell(records, file_system, NAME, ONE_BY_ONE)


def home_blocks(records: Sequence[Record], file_system: str) -> float:
    return float(one_by_one(records, file_system)["metadata_written_bytes"]) / 4096


def directories_share(records: Sequence[Record], file_system: str) -> float:
    found = one_by_one(records, file_system)
    return parts_s(found, "inner") / parts_s(found)


EXPERIMENT = Experiment(
    name="e17-write-buffer",
    claim="how long a small journal makes ext4 wait depends on the disk's write buffer and the host's merging",
    source="FAST'17, section 4.1, Figure 6, varied",
    varied=True,
    runs=runs,
    scalable=False,
    phases=(NAME,),
    expectations=(
        Expectation(
            "without the disk's write buffer the load takes more than four times as long",
            lambda records: made_s(records, STOCK, UNBUFFERED) > 4 * made_s(records, STOCK, DRIVE),
        ),
        Expectation(
            "with the buffer the scheduler changes less than a tenth",
            lambda records: 0.9 < made_s(records, f"{STOCK}-bfq", DRIVE) / made_s(records, STOCK, DRIVE) < 1.1,
        ),
        Expectation(
            "one request at a time: without merging it takes more than four times as long",
            lambda records: made_s(records, UNMERGED, ONE_BY_ONE) > 4 * made_s(records, SPREAD, ONE_BY_ONE),
        ),
    ),
    claims=CLAIMS,
    draw=bars.of_claims(bars.Group("Figure 6, varied: making 100,000 files with a journal of 128 MiB", "s", CLAIMS)),
    numbers={
        "home_blocks": home_blocks,
        "home_ms": lambda records, name: 1e3 * made_s(records, name, ONE_BY_ONE) / home_blocks(records, name),
        "directories_share": directories_share,
    },
)

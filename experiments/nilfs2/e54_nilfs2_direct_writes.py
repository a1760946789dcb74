# SPDX-License-Identifier: MIT OR Apache-2.0
"""What writes past the page cache wait for on NILFS2: the kernel's checkpoint, and the disk's write cache.

FSL-14-03, section 4.2, Figures 5 and 6. NILFS2 hands each of 100 threads' direct writes to the page cache and syncs it
before the next. The report's kernel, Linux 3.8.2, wrote a whole checkpoint for that, because a write had made the inode
dirty; since Linux 3.18 (commit b9f661407268, "nilfs2: improve the performance of fdatasync()") it is a log of the data
alone. The mount option order=strict has the checkpoint back.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shingle.lab import (
    Claim,
    Expectation,
    Experiment,
    Record,
    bars,
    cell,
    drive,
    fs,
    load_bytes_s,
    run,
    workload,
)

SMR, REGULAR = "wd30ezr-smr", "wd30ezr"
WRITE_CACHE = "buffer.write_cache"
CACHED = drive.changed_name(SMR, WRITE_CACHE, 1)
TODAY, CHECKPOINT = "nilfs2-128m", "nilfs2-128m-strict"
BUFFERED, DIRECT = "random-write", "random-write-direct"
# As in e50, which has these workloads, their parameters and the report's memory.
SEGMENT_MIB = 128
MEMORY_MIB, SCALE, SHORTER, ERROR = 2048, 0.1, 5, 0.03


def runs(scale: float, seed: int) -> list[run.Run]:
    today = fs.with_scheduler(fs.nilfs2_of_segments(TODAY, SEGMENT_MIB), "none")
    checkpoint = replace(fs.mounted_with(today, "order=strict"), name=CHECKPOINT)
    prototype, regular = drive.find(SMR), drive.find(REGULAR)
    cells = []
    for profile, variant, name in (
        (regular, today, BUFFERED),
        (regular, today, DIRECT),
        (regular, checkpoint, DIRECT),
        (prototype, checkpoint, DIRECT),
        (drive.changed(prototype, WRITE_CACHE, 1), checkpoint, DIRECT),
    ):
        plan = workload.plan((name,), scale=scale, seed=seed)
        plan = replace(plan, time_scale=scale if scale >= 1 else scale / SHORTER)
        cells.append(run.Run(profile, variant, plan, memory_mib=round(MEMORY_MIB * scale)))
    return cells


def percent(over: tuple[str, str, str], under: tuple[str, str, str]) -> Callable[[Sequence[Record]], float]:
    return lambda records: 100 * load_bytes_s(cell(records, *over)) / load_bytes_s(cell(records, *under))


def of_buffered(what: str, file_system: str) -> Claim:
    value = percent((file_system, DIRECT, REGULAR), (TODAY, BUFFERED, REGULAR))
    return Claim("T45", f"direct writes on the regular disk, {what}", "% of buffered ones", 8, 8, value, 0.25)


def of_regular(what: str, disk: str) -> Claim:
    value = percent((CHECKPOINT, DIRECT, disk), (CHECKPOINT, DIRECT, REGULAR))
    return Claim("T45", f"direct writes on the prototype, {what}", "% of the regular disk", 85, 85, value, ERROR)


CLAIMS = (
    of_buffered("a log for each", TODAY),
    of_buffered("a checkpoint for each", CHECKPOINT),
    of_regular("a checkpoint for each", SMR),
    of_regular("a checkpoint for each, with a write cache", CACHED),
)

EXPERIMENT = Experiment(
    name="e54-nilfs2-direct-writes",
    claim="direct writes to NILFS2 waited for a whole checkpoint in the report's kernel",
    source="FSL-14-03, section 4.2, Figures 5 and 6, varied",
    varied=True,
    runs=runs,
    phases=(BUFFERED, DIRECT),
    scale=SCALE,
    # The file would be in memory.
    scalable=False,
    scaling="As in e50.",
    expectations=(
        Expectation(
            "with a checkpoint for each, direct writes are less than a fifth of buffered ones",
            lambda records: percent((CHECKPOINT, DIRECT, REGULAR), (TODAY, BUFFERED, REGULAR))(records) < 20,
        ),
        Expectation(
            "without a write cache each misses a revolution of 11 ms: fewer than 100 a second",
            lambda records: load_bytes_s(cell(records, CHECKPOINT, DIRECT, SMR)) < 100 * 4096,
        ),
    ),
    claims=CLAIMS,
    draw=bars.of_claims(
        bars.Group("FSL-14-03, Figure 5, varied: direct writes on the regular disk", "% of buffered ones", CLAIMS[:2]),
        bars.Group("the same: direct writes on the prototype", "% of the regular disk", CLAIMS[2:]),
    ),
    numbers={"writes_s": lambda records, name, drive: load_bytes_s(cell(records, name, DIRECT, drive)) / 4096},
)

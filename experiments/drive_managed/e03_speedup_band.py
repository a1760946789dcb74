# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the gain on whole disks depends on: Figure 13's extremes, over the range of what nobody knows.

The ST8000AS0002 gains least of the paper's value, the WD40NMZW hardly at all (e14). Varied are: the drive's map of
the persistent cache (180,000 entries in public logs, 250,000 in Skylight); the size of the cache, which is "about 25
GiB" (FAST'17, section 2.1), while Figure 12 and Table 4 have 29 GiB written before it is full (33,916 MiB less 211 s
of 20 MiB/s); the idle time before it cleans; what an entry of the cache costs; the cost of a system call; how much
the WD40NMZW can put off; whether the directories lie at the top of the file system or below one; and the age of the
file system, of which the paper expects more (section 4.2.1) and which it did not measure.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import (
    Claim,
    Expectation,
    Experiment,
    Record,
    bars,
    busy_s,
    cell,
    drive,
    fs,
    machine,
    run,
    seconds,
    speedup,
    workload,
)

SEAGATE, WESTERN = "st8000as0002", "wd40nmzw"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
NAME, BELOW = "Postmark", "PostmarkBelow"
CHANGES = (
    (SEAGATE, "translation.cache", 29),
    (WESTERN, "translation.cache", 20),
    (SEAGATE, "translation.cache_entries", 250_000),
    (SEAGATE, "translation.idle", 5),
    (SEAGATE, "translation.entry_time", 3),
)
SLOW_CALLS, AGED, PART = 2, "-aged", "-400gb"


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    profiles = [drive.changed(drive.find(name), key, value) for name, key, value in CHANGES]
    cells = [each for profile in profiles for each in run.cells(profile, (BASELINE, LAZY), plan)]
    for each in run.cells(profiles[0], (BASELINE, LAZY), plan):
        part = fs.on_the_first(each.variant, run.PAPER_SMALL_PARTITION_BYTES)
        cells.append(replace(each, variant=replace(part, name=each.variant.name + PART)))
    for each in run.cells(SEAGATE, (BASELINE, LAZY), plan):
        costs = {"name_ns": machine.DEFAULT_NAME_NS * SLOW_CALLS, "call_ns": machine.DEFAULT_CALL_NS * SLOW_CALLS}
        cells.append(replace(each, **costs))
    for each in run.cells(SEAGATE, (BASELINE, LAZY), plan):
        aged = replace(each.variant, name=each.variant.name + AGED)
        cells.append(replace(each, variant=aged, age=drive.Age()))
    cells += run.cells(SEAGATE, (BASELINE, LAZY), workload.plan((BELOW,), scale=scale, seed=seed))
    # The baseline fills the cache, and then a write waits for longer than Linux's six times 30 s (e42).
    cells = [replace(each, variant=fs.with_patience(each.variant)) for each in cells]
    return run.on_the_papers_host(cells, scale)


def claim(drive_name: str, what: str, paper: float, suffix: str = "") -> Claim:
    return Claim(
        "T13", f"Postmark on the whole {what}: times faster on {LAZY}", "", paper, paper,
        speedup(BASELINE + suffix, LAZY + suffix, NAME, drive_name), 0.25, full_size=True, better="high",
    )  # fmt: skip


PAPER = {SEAGATE: 5.4, WESTERN: 1.7}
CLAIMS = (
    *(
        claim(drive.changed_name(name, key, value), f"{name}, {key.partition('.')[2]} {value:,}", PAPER[name])
        for name, key, value in CHANGES
    ),
    claim(SEAGATE, f"{SEAGATE}, system calls {SLOW_CALLS} times as dear", PAPER[SEAGATE]),
    claim(SEAGATE, f"{SEAGATE}, aged", PAPER[SEAGATE], AGED),
)
LARGER = drive.changed_name(*CHANGES[0])
PARTS = (
    Claim(
        "T12a", f"partition of 400 GB, cache 29, {LAZY}", "s", 461, 461,
        seconds(LAZY + PART, NAME, LARGER), 0.25, full_size=True, better="low",
    ),
    Claim(
        "T12b", f"partition of 400 GB, cache 29, {BASELINE}", "s", 922, None,
        seconds(BASELINE + PART, NAME, LARGER), full_size=True,
    ),
)  # fmt: skip


def quiet_s(records: Sequence[Record], file_system: str, name: str) -> float:
    """Until the disk has cleaned, too."""
    return busy_s(cell(records, file_system, NAME, name))


EXPERIMENT = Experiment(
    name="e03-speedup-band",
    claim="a file server whose directories lie at the top gains on a whole disk; how much, the cache decides",
    source="FAST'17, section 4.3.2, Figure 13, varied",
    varied=True,
    runs=runs,
    phases=(NAME, BELOW, workload.UNMOUNT),
    scale=0.1,
    scaling="The persistent cache is not scaled: ratios mean something at the paper's size only.",
    expectations=(
        Expectation(
            "run and cleaning together take at most two thirds as long with journal_lazy, whatever is varied",
            lambda records: all(
                quiet_s(records, LAZY + suffix, name) * 1.5 <= quiet_s(records, BASELINE + suffix, name)
                for name, suffix in (*((each["drive"], "") for each in records), (SEAGATE, AGED), (LARGER, PART))
            ),
        ),
        Expectation(
            "with all directories under one parent, the baseline's run and cleaning together take less than a tenth",
            lambda records: 10 * busy_s(cell(records, BASELINE, BELOW, SEAGATE)) < quiet_s(records, BASELINE, SEAGATE),
        ),
    ),
    claims=(*CLAIMS, *PARTS),
    draw=bars.of_claims(
        bars.Group("Figure 13, varied: whole disks, ext4-lazy against ext4-10g", "times faster", CLAIMS),
        bars.Group("Figure 12, varied: Postmark on 400 GB of the disk", "s", PARTS),
    ),
)

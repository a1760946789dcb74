# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the log is, how large it is, and whether anything leaves it: columns that the papers do not have.

FAST'17 (section 6) names file systems that keep metadata in a log of its own (DualFS: never home) or on a device of its
own (MFS). Here are ext4 with its journal on another device, which costs no time at all; journal_lazy that only logs
again and sends nothing home; and journal_lazy on the 1 GiB journal that users already have.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, by_seed, cell, drive, fs, run, workload

DRIVE = "st8000as0002"
STOCK, BASELINE, LAZY, SMALL = "ext4", "ext4-10g", "ext4-lazy", "ext4-lazy-1g"
ELSEWHERE, NEVER_HOME = "ext4-10g-elsewhere", "ext4-lazy-never-home"
VARIANTS = (STOCK, BASELINE, ELSEWHERE, SMALL, NEVER_HOME, LAZY)
LAZY_FILES = "/sys/fs/ext4/shd0/journal_lazy"
PLANS = (("MakeDirs", "RemoveDirs"), ("CreateFiles", "RemoveFiles"), ("Postmark",))
SCALE = 0.1


def variants() -> list[fs.FileSystem]:
    own = {
        ELSEWHERE: fs.with_log_elsewhere(fs.ext4(ELSEWHERE, "", None), 10240),
        NEVER_HOME: replace(fs.find(LAZY), name=NEVER_HOME, settings=((f"{LAZY_FILES}/policy", "fixed"),)),
    }
    found = [own[name] if name in own else fs.find(name) for name in VARIANTS]
    found = [replace(each, statistics=(f"{LAZY_FILES}/demoted",)) if each.keeps_log else each for each in found]
    return [fs.mounted_with(fs.on_the_first(each, run.PAPER_PARTITION_BYTES), "noatime") for each in found]


def runs(scale: float, seed: int) -> list[run.Run]:
    plans = [workload.plan(names, scale=scale, seed=seed) for names in PLANS]
    return run.on_the_papers_host(
        [run.Run(drive.find(DRIVE), each, plan) for plan in plans for each in variants()], scale
    )


def spent_s(records: Sequence[Record], file_system: str, name: str) -> float:
    return busy_s(cell(records, file_system, name))


PHASES = tuple(name for names in PLANS for name in names)


def ahead_of(other: str, what: str) -> Expectation:
    return Expectation(
        f"{LAZY} is ahead of {what} in every phase with its cleaning",
        lambda records: all(spent_s(records, LAZY, name) <= spent_s(records, other, name) for name in PHASES),
    )


def draw(records: Sequence[Record], stem: Path) -> None:
    _, seeds = by_seed(records)
    panels = [
        bars.Panel(
            f"{name} on {DRIVE}, with the cleaning after it",
            "s",
            [bars.Bar(each, tuple(spent_s(seed, each, name) for seed in seeds)) for each in VARIANTS],
        )
        for name in PHASES
    ]
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e41-log-variants",
    claim="a log on another device, however fast, gains less than metadata that stays in the log",
    source="FAST'17, section 6",
    runs=runs,
    phases=(*PHASES, workload.UNMOUNT),
    expectations=(
        Expectation(
            f"{NEVER_HOME} sends nothing home",
            lambda records: all(cell(records, NEVER_HOME, name)["statistics"]["demoted"] == 0 for name in PHASES),
        ),
        ahead_of(ELSEWHERE, "a log elsewhere that costs nothing"),
        Expectation(
            f"{SMALL} is ahead of {STOCK}, whose journal is as large, in every phase with its cleaning",
            lambda records: all(spent_s(records, SMALL, name) <= spent_s(records, STOCK, name) for name in PHASES),
        ),
    ),
    scale=SCALE,
    scaling="Journals, the disk and its persistent cache are not scaled.",
    draw=draw,
)

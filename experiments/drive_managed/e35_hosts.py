# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server on a shingled disk, over what the host may hold back.

How many dirty pages may stay decides how much reaches the disk (e18), and e14 ran under one setting, which was chosen
because Table 3 came out. Here it is every setting: the kernel's default, half of the write-back cache, and a strict
half, with two sizes of memory.

It runs at a tenth, and so memory and the drive's cache with its map are a tenth, too; a band is not.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, run, workload

DRIVE = "st8000as0002"
BASELINE, LAZY = "ext4-10g", "ext4-lazy"
FILE_SYSTEMS = (BASELINE, LAZY)
NAME = "Postmark"
DEFAULT, HALF, STRICT = "default", "half", "strict-half"
SETTINGS = (DEFAULT, HALF, STRICT)
MEMORY_GIB = (16, 4)
# A tenth of the drive's, whatever the scale: it names the drive.
CACHE_GIB, CACHE_ENTRIES = 2.5, 18_000
SCALE = 0.1


def named(file_system: str, setting: str, gib: int) -> str:
    return f"{file_system}-{setting}-{gib}-gib"


def set_up(cell_: run.Run, setting: str, gib: int, scale: float) -> run.Run:
    variant = cell_.variant
    if setting != DEFAULT:
        variant = fs.with_writeback(variant, run.PAPER_WRITEBACK_PERCENT, strict=setting == STRICT)
    name = named(cell_.variant.name, setting, gib)
    return replace(cell_, variant=replace(variant, name=name), memory_mib=round((gib << 10) * scale))


def runs(scale: float, seed: int) -> list[run.Run]:
    profile = drive.changed(drive.find(DRIVE), "translation.cache", CACHE_GIB)
    profile = drive.changed(profile, "translation.cache_entries", CACHE_ENTRIES)
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    return [
        set_up(each, setting, gib, scale)
        for gib in MEMORY_GIB
        for setting in SETTINGS
        for each in run.cells(profile, FILE_SYSTEMS, plan)
    ]


def found(records: Sequence[Record], file_system: str, setting: str, gib: int) -> Record:
    return cell(records, named(file_system, setting, gib), NAME)


def gain(records: Sequence[Record], other: str, setting: str, gib: int, cleaned: bool) -> float:
    """How many times as fast journal_lazy is on one host; `cleaned`: with the cleaning afterwards."""
    both = [found(records, each, setting, gib) for each in (other, LAZY)]
    took = [busy_s(each) if cleaned else float(each["virtual_s"]) for each in both]
    return took[0] / took[1]


def gains(records: Sequence[Record], other: str, cleaned: bool) -> list[float]:
    return [gain(records, other, each, gib, cleaned) for gib in MEMORY_GIB for each in SETTINGS]


def least(records: Sequence[Record], other: str, cleaned: bool) -> float:
    return min(gains(records, other, cleaned))


def most(records: Sequence[Record], other: str, cleaned: bool) -> float:
    return max(gains(records, other, cleaned))


def draw(records: Sequence[Record], stem: Path) -> None:
    shown = [
        bars.Panel(
            f"Postmark, {gib} GiB of memory",
            "s",
            [
                bars.Bar(f"{each}, {setting}", (float(found(records, each, setting, gib)["virtual_s"]),))
                for setting in SETTINGS
                for each in FILE_SYSTEMS
            ],
        )
        for gib in MEMORY_GIB
    ]
    bars.draw(shown, stem)


EXPERIMENT = Experiment(
    name="e35-hosts",
    claim="what a file server gains with journal_lazy is a range over hosts",
    source="FAST'17, section 4.3.2, Figure 13, varied",
    varied=True,
    runs=runs,
    phases=(NAME, workload.UNMOUNT),
    scale=SCALE,
    scaling="Memory, the persistent cache and its map are scaled; the journal (10 GiB) and the bands are not.",
    expectations=(
        Expectation(
            "journal_lazy is not slower than stock ext4 on any host, cleaning included",
            lambda records: least(records, BASELINE, True) >= 1,
        ),
        Expectation(
            "the gain of one host is at least one and a half times that of another",
            lambda records: most(records, BASELINE, False) >= 1.5 * least(records, BASELINE, False),
        ),
    ),
    draw=draw,
    numbers={"least": least, "most": most, "gain": gain},
)

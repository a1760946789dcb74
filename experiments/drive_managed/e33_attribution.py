# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which part of what journal_lazy saves is lazy journaling, and which is read-ahead.

journal_lazy reads its log ahead, up to 4 MiB at a time. Stock ext4 has nothing like it. So the directories of e13 are
made, listed, archived and removed on four file systems: with and without journal_lazy, each with and without that
read-ahead. What stock ext4 reads ahead lies at home (machine/ablations/home-readahead.patch says how it is equal).

The same is done where the paper's kernel put directories (e26), and with next to no read-ahead of the drive, which
nobody outside of its maker knows. Postmark is run as the drive is made.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, drive, fs, run, seconds, workload

DRIVE = "st8000as0002"
STOCK, STOCK_AHEAD, LAZY_PLAIN, LAZY = "ext4-10g", "ext4-10g-readahead", "ext4-lazy-plain", "ext4-lazy"
FILE_SYSTEMS = (STOCK, STOCK_AHEAD, LAZY_PLAIN, LAZY)
PHASES = workload.DIRECTORIES
SERVER = "Postmark"
READING = ("ListDirs", "TarDirs", "RemoveDirs")
# KiB that the drive reads ahead; the profile has 2,048.
AHEAD, LEAST_KIB = "read_ahead.segment", 4
SCALE = 0.1


def prepared(name: str) -> fs.FileSystem:
    return fs.mounted_with(fs.on_the_first(fs.find(name), run.PAPER_PARTITION_BYTES), "noatime")


def spread(variant: fs.FileSystem) -> fs.FileSystem:
    return replace(fs.with_spread_directories(variant), name=f"{variant.name}-spread")


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan(PHASES, scale=scale, seed=seed)
    server = workload.plan((SERVER,), scale=scale, seed=seed)
    middle = drive.find(DRIVE)
    least = drive.changed(middle, AHEAD, LEAST_KIB)
    variants = [prepared(name) for name in FILE_SYSTEMS]
    cells = [
        *(run.Run(middle, each, plan) for each in variants),
        *(run.Run(middle, spread(each), plan) for each in variants),
        *(run.Run(least, each, plan) for each in variants),
        *(run.Run(middle, each, server) for each in variants),
    ]
    return run.on_the_papers_host(cells, scale)


SETTINGS = {
    "as made": ("", DRIVE),
    "spread": ("-spread", DRIVE),
    "drive reads little ahead": ("", drive.changed_name(DRIVE, AHEAD, LEAST_KIB)),
}


def phase_s(records: Sequence[Record], file_system: str, name: str, setting: str = "as made") -> float:
    suffix, on = SETTINGS[setting]
    return seconds(file_system + suffix, name, on)(records)


def gain(records: Sequence[Record], slow: str, fast: str, name: str, setting: str = "as made") -> float:
    """How many times as fast."""
    return phase_s(records, slow, name, setting) / phase_s(records, fast, name, setting)


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = [
        bars.Panel(
            f"{name}, {setting}",
            "s",
            [bars.Bar(each, (phase_s(records, each, name, setting),)) for each in FILE_SYSTEMS],
        )
        for setting in SETTINGS
        for name in READING
    ]
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e33-attribution",
    claim="of what reading directories gains with journal_lazy, the most is its read-ahead",
    source="FAST'17, section 4.3.1, Figure 11, varied",
    varied=True,
    runs=runs,
    phases=(*PHASES, SERVER, workload.UNMOUNT),
    scale=SCALE,
    scaling="The journal (10 GiB), the disk and its persistent cache are not scaled.",
    expectations=(
        Expectation(
            "without its read-ahead journal_lazy lists and removes directories more slowly than stock ext4",
            lambda records: all(gain(records, STOCK, LAZY_PLAIN, each) < 1 for each in ("ListDirs", "RemoveDirs")),
        ),
        Expectation(
            "with it, it lists and removes them at least twice as fast as without it",
            lambda records: all(gain(records, LAZY_PLAIN, LAZY, each) > 2 for each in ("ListDirs", "RemoveDirs")),
        ),
        Expectation(
            "stock ext4 with an equal read-ahead lists and removes them at least twice as fast as without it",
            lambda records: all(gain(records, STOCK, STOCK_AHEAD, each) > 2 for each in ("ListDirs", "RemoveDirs")),
        ),
        Expectation(
            "making them takes the same time with and without the read-ahead, within a twentieth",
            lambda records: all(
                0.95 < gain(records, slow, fast, "MakeDirs") < 1.05
                for slow, fast in ((STOCK, STOCK_AHEAD), (LAZY_PLAIN, LAZY))
            ),
        ),
        Expectation(
            "and so does a file server",
            lambda records: all(
                0.95 < gain(records, slow, fast, SERVER) < 1.05
                for slow, fast in ((STOCK, STOCK_AHEAD), (LAZY_PLAIN, LAZY))
            ),
        ),
    ),
    draw=draw,
    numbers={"gain": gain, "phase_s": phase_s},
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file server on a shingled disk, over what the host may hold back.

How many dirty pages may stay decides how much reaches the disk (e18), and e14 ran under one setting, which was chosen
because Table 3 came out. Here it is every setting: the kernel's default, half of the write-back cache, and a strict
half, with four sizes of memory, both layouts of directories, and the file systems that an owner could choose instead.
Filebench's file server runs for a time, on two of the sizes.

It runs at a tenth, and so memory, the drive and its cache with its map are a tenth, too; a band is not. (On all of the
drive F2FS needs more memory than a tenth of 4 GiB for its segments.) Each host waits for the disk as long as it takes:
Linux gives up after 30 s, six times, and then stock ext4 loses writes (e42).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, busy_s, cell, drive, fs, load_bytes_s, plot, run, workload

DRIVE = "st8000as0002"
BASELINE, LAZY, IN_ORDER = "ext4-10g", "ext4-lazy", "ext4-smr"
FILE_SYSTEMS = (BASELINE, LAZY, IN_ORDER, "f2fs", "nilfs2", "xfs", "btrfs")
# All directories at the top, each in a group of its own; all below one.
NAME, BELOW = "Postmark", "PostmarkBelow"
LAYOUTS = {NAME: "directories at the top", BELOW: "directories below one"}
# For a fifth of its scale of an hour.
FILEBENCH, FILEBENCH_GIB, SHORTER = "fileserver", (4, 16), 5
DEFAULT, HALF, STRICT = "default", "half", "strict-half"
SETTINGS = (DEFAULT, HALF, STRICT)
MEMORY_GIB = (4, 8, 16, 32)
# A tenth of the drive's, whatever the scale: it names the drive.
CACHE_GIB, CACHE_ENTRIES = 2.5, 18_000
CAPACITY_GIB = 7450
SCALE = 0.1


def named(file_system: str, setting: str, gib: int) -> str:
    return f"{file_system}-{setting}-{gib}-gib"


def set_up(cell_: run.Run, setting: str, gib: int, scale: float) -> run.Run:
    variant = cell_.variant
    if setting != DEFAULT:
        variant = fs.with_writeback(variant, run.PAPER_WRITEBACK_PERCENT, strict=setting == STRICT)
    variant = fs.with_patience(variant)
    name = named(cell_.variant.name, setting, gib)
    capacity_bytes = round(CAPACITY_GIB * scale) << 30
    memory_mib = round((gib << 10) * scale)
    return replace(cell_, variant=replace(variant, name=name), memory_mib=memory_mib, capacity_bytes=capacity_bytes)


def runs(scale: float, seed: int) -> list[run.Run]:
    profile = drive.changed(drive.find(DRIVE), "translation.cache", CACHE_GIB)
    profile = drive.changed(profile, "translation.cache_entries", CACHE_ENTRIES)
    filebench = workload.plan((FILEBENCH,), scale=scale, seed=seed)
    filebench = replace(filebench, time_scale=scale / SHORTER)
    plans = {name: workload.plan((name,), scale=scale, seed=seed) for name in LAYOUTS}
    return [
        set_up(each, setting, gib, scale)
        for gib in MEMORY_GIB
        for setting in SETTINGS
        for plan in (*plans.values(), *((filebench,) if gib in FILEBENCH_GIB else ()))
        for each in run.cells(profile, FILE_SYSTEMS, plan)
    ]


def took(records: Sequence[Record], file_system: str, setting: str, gib: int, name: str, cleaned: bool) -> float:
    """Seconds of one host; `cleaned`: with the cleaning afterwards."""
    found = cell(records, named(file_system, setting, gib), name)
    return busy_s(found) if cleaned else float(found["virtual_s"])


def seconds(records: Sequence[Record], file_system: str, name: str, cleaned: bool) -> list[float]:
    """On every host."""
    return [took(records, file_system, each, gib, name, cleaned) for gib in MEMORY_GIB for each in SETTINGS]


def gain(records: Sequence[Record], setting: str, gib: int, cleaned: bool, name: str = NAME) -> float:
    """How many times as fast as stock ext4 journal_lazy is on one host."""
    stock, lazy = (took(records, each, setting, gib, name, cleaned) for each in (BASELINE, LAZY))
    return stock / lazy


def gains(records: Sequence[Record], cleaned: bool, name: str = NAME, file_system: str = LAZY) -> list[float]:
    pairs = (seconds(records, each, name, cleaned) for each in (BASELINE, file_system))
    return [stock / other for stock, other in zip(*pairs, strict=True)]


def least(records: Sequence[Record], cleaned: bool, name: str = NAME, file_system: str = LAZY) -> float:
    return min(gains(records, cleaned, name, file_system))


def most(records: Sequence[Record], cleaned: bool, name: str = NAME, file_system: str = LAZY) -> float:
    return max(gains(records, cleaned, name, file_system))


def shortest(records: Sequence[Record], file_system: str, name: str, cleaned: bool) -> float:
    return min(seconds(records, file_system, name, cleaned))


def longest(records: Sequence[Record], file_system: str, name: str, cleaned: bool) -> float:
    return max(seconds(records, file_system, name, cleaned))


def first_of_all(records: Sequence[Record], file_system: str, name: str) -> int:
    """On how many hosts none of the others is done earlier, with the cleaning."""
    others = [seconds(records, each, name, True) for each in FILE_SYSTEMS if each != file_system]
    own = seconds(records, file_system, name, True)
    return sum(mine <= min(rest) for mine, *rest in zip(own, *others, strict=True))


def rates(records: Sequence[Record], file_system: str) -> list[float]:
    """What Filebench's file server reads and writes on each host, in MiB a second."""
    hosts = [(setting, gib) for gib in FILEBENCH_GIB for setting in SETTINGS]
    return [load_bytes_s(cell(records, named(file_system, *host), FILEBENCH)) / (1 << 20) for host in hosts]


def slowest(records: Sequence[Record], file_system: str) -> float:
    return min(rates(records, file_system))


def fastest(records: Sequence[Record], file_system: str) -> float:
    return max(rates(records, file_system))


def busiest_of_all(records: Sequence[Record], file_system: str) -> int:
    """On how many of these hosts none of the others reads and writes more."""
    others = [rates(records, each) for each in FILE_SYSTEMS if each != file_system]
    return sum(mine >= max(rest) for mine, *rest in zip(rates(records, file_system), *others, strict=True))


def most_cleaning_s(records: Sequence[Record], file_system: str) -> float:
    """After Filebench's file server, on any host."""
    names = [named(file_system, setting, gib) for gib in FILEBENCH_GIB for setting in SETTINGS]
    return max(float(cell(records, name, FILEBENCH)["cleaning_s"]) for name in names)


def draw(records: Sequence[Record], stem: Path) -> None:
    plt = plot.pyplot()

    with plt.rc_context(plot.STYLE):
        figure, rows = plt.subplots(len(LAYOUTS), len(SETTINGS), figsize=(7.2, 5.2), sharex=True, sharey="row")
        for (name, layout), row in zip(LAYOUTS.items(), rows, strict=True):
            for setting, axes in zip(SETTINGS, row, strict=True):
                for colour, each in zip(plot.COLOURS, FILE_SYSTEMS, strict=True):
                    values = [took(records, each, setting, gib, name, True) for gib in MEMORY_GIB]
                    axes.plot(MEMORY_GIB, values, "o-", color=colour, ms=3, label=each)
                axes.set_title(f"{layout}, {setting}")
                axes.set_xscale("log", base=2)
                axes.set_xticks(MEMORY_GIB, [str(gib) for gib in MEMORY_GIB])
                axes.set_yscale("log")
        for axes in rows[:, 0]:
            axes.set_ylabel("run and cleaning (virtual s)")
        for axes in rows[-1]:
            axes.set_xlabel("memory (GiB)")
        rows[0, 0].legend(fontsize=6)
        figure.tight_layout()
        plot.save(figure, stem)


EXPERIMENT = Experiment(
    name="e35-hosts",
    claim="what a file server gains with journal_lazy is a range over hosts",
    source="FAST'17, section 4.3.2, Figure 13, varied",
    varied=True,
    runs=runs,
    phases=(*LAYOUTS, FILEBENCH, workload.UNMOUNT),
    scale=SCALE,
    scaling="Memory, the drive, its cache and its map are scaled; the journal (10 GiB) and the bands are not.",
    # The first two were there when two file systems, two sizes of memory and one layout were run. The last was written
    # before the rest was run; the two before it say what was found, and the page says what was expected.
    expectations=(
        Expectation(
            "with directories at the top journal_lazy is not slower than stock ext4 on any host, cleaning included",
            lambda records: least(records, True) >= 1,
        ),
        Expectation(
            "and the gain of one host is at least one and a half times that of another",
            lambda records: most(records, False) >= 1.5 * least(records, False),
        ),
        Expectation(
            "with directories below one it is never slower and gains at most 30 %, cleaning included",
            lambda records: least(records, True, BELOW) >= 1 and most(records, True, BELOW) <= 1.3,
        ),
        Expectation(
            "with data in order ext4 is at least ten times as fast as stock ext4 on every host, cleaning included",
            lambda records: least(records, True, NAME, IN_ORDER) >= 10,
        ),
        Expectation(
            "and it is ahead of all others on at least half of the hosts, cleaning included",
            lambda records: 2 * first_of_all(records, IN_ORDER, NAME) >= len(MEMORY_GIB) * len(SETTINGS),
        ),
        # Written before any run of Filebench's.
        Expectation(
            "Filebench's file server is faster with data in order than on stock ext4 on every host",
            lambda records: all(
                ours > stock for ours, stock in zip(rates(records, IN_ORDER), rates(records, BASELINE), strict=True)
            ),
        ),
    ),
    draw=draw,
    numbers={
        "least": least,
        "most": most,
        "gain": gain,
        "shortest": shortest,
        "longest": longest,
        "first_of_all": first_of_all,
        "slowest": slowest,
        "fastest": fastest,
        "busiest_of_all": busiest_of_all,
        "most_cleaning_s": most_cleaning_s,
    },
)

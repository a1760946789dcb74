# SPDX-License-Identifier: MIT OR Apache-2.0
"""A file is overwritten at random, 4 KiB at a time, until the cache has long been full.

On a disk that is half full, 70 and 90 % full; where the blocks are drawn with a skew (Zipf, 1.1) and where each is as
likely; synced after every 16 blocks, as by a database, and on the fullest disk also not synced but at each part's end.
What is written goes in ten parts, each with its time and latencies, so that one sees what comes after the drive's
persistent cache is full. All file systems have the same disk; those of ext4 have logs of 1 GiB.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, cell, drive, fio, fs, job, run, workload

DRIVE = "st8000as0002"
# A tenth of the drive's, whatever the scale: it names the drive.
CACHE_GIB, CACHE_ENTRIES = 2.5, 18_000
# At scale 1.
CAPACITY_BYTES = 1000 << 30
SPAN_BYTES, WRITTEN_BYTES = 160 << 30, 50_000_000_000
SCALE = 0.1
STOCK, OFF, ON = "ext4-1g", "ext4-lazy-1g", "ext4-smr-1g"
FILE_SYSTEMS = (STOCK, OFF, ON, "f2fs", "nilfs2", "btrfs", "xfs")
# On a disk that is 90 % full and follows one sequential run at a time: a file system that writes at two places in turn
# has all that is synced in its cache. How many a drive follows, with a flush behind each write, is not public.
CACHED, CACHED_STREAM_RUNS = (STOCK, OFF, ON, "f2fs"), 1
SKEWED, EVEN = "zipf", "uniform"
DISTRIBUTIONS = {SKEWED: "zipf:1.1:0.5", EVEN: "random"}
FULL_PERCENT = (50, 70, 90)
BLOCK_BYTES = 4096
# After how many blocks there is an fsync; 0: never.
SYNCED, UNSYNCED = 16, 0
# How full, and how often synced.
WAYS = (*((full, SYNCED) for full in FULL_PERCENT), (FULL_PERCENT[-1], UNSYNCED))
PREPARE = "Prepare"
PARTS = tuple(f"Part{number}" for number in range(1, 11))
LAST = PARTS[-1]
MOST_S = 5.0


@dataclass(frozen=True)
class Overwrites(workload.Plan):
    """The disk is filled to a share, with the file that is then overwritten."""

    distribution: str = ""
    full_percent: int = 0
    fsync_every: int = SYNCED

    def steps(self) -> list[job.Step]:
        scale = self.scales[LAST]
        span = round(SPAN_BYTES * scale) >> 20 << 20
        filler = (round(CAPACITY_BYTES * scale * self.full_percent / 100) >> 20 << 20) - span
        clean = job.wait_clean(limit_s=workload.CLEAN_LIMIT_S)
        found = [
            job.load("sequential_write", {"path": "filler", "length_bytes": filler}, phase=PREPARE),
            job.load("sequential_write", {"path": "random", "length_bytes": span}, phase=PREPARE),
            job.sync(phase=PREPARE), job.drop_caches(), clean,
        ]  # fmt: skip
        for number, part in enumerate(PARTS):
            text = "\n".join([
                "[overwrite]", f"directory={job.MOUNT_POINT}", "filename=random", f"size={span}", "rw=randwrite",
                f"random_distribution={DISTRIBUTIONS[self.distribution]}", f"bs={BLOCK_BYTES}", "norandommap=1",
                f"io_size={round(WRITTEN_BYTES * scale / len(PARTS))}", f"fsync={self.fsync_every}", "ioengine=psync",
                "overwrite=1", "fallocate=none", "invalidate=0", "disk_util=0", "thread=1", "",
            ])  # fmt: skip
            # Each part draws for itself. The centre, of which the blocks are hashed, keeps the popular ones the same.
            found += fio.steps(part, text, seed=self.seed * len(PARTS) + number, only_create=False)
            found.append(job.sync(phase=part))
        return [*found, clean, job.umount(phase=workload.UNMOUNT), clean]


def named(file_system: str, distribution: str, full_percent: int, fsync_every: int = SYNCED) -> str:
    return f"{file_system}-{distribution}-{full_percent}{'' if fsync_every else '-unsynced'}"


def variant(name: str) -> fs.FileSystem:
    options = {STOCK: "", ON: "journal_lazy,data_relocate"}
    return fs.ext4(name, name, 1024, options[name]) if name in options else fs.find(name)


def cached(file_system: str) -> str:
    return f"{file_system}-cached"


def runs(scale: float, seed: int) -> list[run.Run]:
    profile = drive.changed(drive.find(DRIVE), "translation.cache", CACHE_GIB)
    profile = drive.changed(profile, "translation.cache_entries", CACHE_ENTRIES)
    other = drive.changed(profile, "translation.stream_runs", CACHED_STREAM_RUNS)
    names = (PREPARE, *PARTS)

    def one(on: drive.Profile, name: str, told: str, distribution: str, full: int, every: int) -> run.Run:
        return run.Run(
            on,
            replace(variant(name), name=named(told, distribution, full, every)),
            Overwrites(names, dict.fromkeys(names, scale), seed, distribution=distribution, full_percent=full,
                       fsync_every=every),
            memory_mib=max(512, round(run.PAPER_MEMORY_MIB * scale)),
            capacity_bytes=max(1, round(CAPACITY_BYTES * scale) >> 30) << 30,
            may_fail=True,
        )  # fmt: skip

    return [
        one(profile, name, name, distribution, full, every)
        for distribution in DISTRIBUTIONS
        for full, every in WAYS
        for name in FILE_SYSTEMS
    ] + [
        one(other, name, cached(name), distribution, FULL_PERCENT[-1], SYNCED)
        for distribution in DISTRIBUTIONS
        for name in CACHED
    ]


def found(
    records: Sequence[Record], file_system: str, distribution: str, full: int, part: str, every: int = SYNCED
) -> Record:
    return cell(records, named(file_system, distribution, full, every), part)


def kib_s(
    records: Sequence[Record], file_system: str, distribution: str, full: int, part: str = LAST, every: int = SYNCED
) -> float:
    """What the program writes in a second of one part, until all of it is synced."""
    each = found(records, file_system, distribution, full, part, every)
    return float(each["load"]["user_written_bytes"] / each["virtual_s"] / 1024)


def gain(records: Sequence[Record], file_system: str, distribution: str, full: int, every: int = SYNCED) -> float:
    """Of data in order over a file system, in the last part."""
    ours, theirs = (kib_s(records, name, distribution, full, LAST, every) for name in (ON, file_system))
    return ours / theirs


def all_s(records: Sequence[Record], file_system: str, distribution: str, full: int, every: int = SYNCED) -> float:
    """All parts, and the cleaning after the last."""
    parts = [found(records, file_system, distribution, full, part, every) for part in PARTS]
    return sum(float(each["virtual_s"]) for each in parts) + float(parts[-1]["cleaning_s"])


def rewritten(records: Sequence[Record], file_system: str, distribution: str, full: int, every: int = SYNCED) -> float:
    """Bytes that the drive rewrites per byte of the user's, all parts and the cleaning after the last."""
    parts = [found(records, file_system, distribution, full, part, every) for part in PARTS]
    user = sum(each["load"]["user_written_bytes"] for each in parts)
    return float(sum(each["counters"]["rewritten_bytes"] for each in parts) / user)


def latency_ms(records: Sequence[Record], file_system: str, distribution: str, full: int, of: str) -> float:
    """Of the last part: a percentile or the maximum of its fsyncs."""
    return float(found(records, file_system, distribution, full, LAST)["load"]["latency_ns"]["fsync"][of]) / 1e6


def longest_s(records: Sequence[Record], file_system: str, distribution: str, full: int, every: int = SYNCED) -> float:
    """Of all parts, a write or an fsync."""
    parts = [
        found(records, file_system, distribution, full, part, every)["load"]["latency_ns"] for part in PARTS
    ]  # fmt: skip
    return max(float(kind["max"]) for part in parts for kind in part.values()) / 1e9


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for distribution in DISTRIBUTIONS:
        for full, every in WAYS:
            rows = []
            for name in FILE_SYSTEMS:

                def rates(
                    own: Sequence[Record], name: str = name, distribution: str = distribution, full: int = full,
                    every: int = every,
                ) -> list[tuple[str, float]]:  # fmt: skip
                    return [("the last tenth", kib_s(own, name, distribution, full, LAST, every))]

                rows.append(bars.of_parts(name, records, rates))
            synced = "" if every else ", not synced"
            panels.append(bars.Panel(f"{distribution}, {full} % full{synced}", "KiB/s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e47-overwrites",
    claim="ext4 that puts data in order is overwritten at random several times as fast, once the cache is full",
    runs=runs,
    phases=(PREPARE, *PARTS),
    scale=SCALE,
    scaling="The disk, its cache and map, the file, what is written and memory are scaled; bands and the log are not.",
    expectations=(
        Expectation(
            "with a skew, in the last tenth, not synced but at its end, at least ten times the bandwidth without data"
            " in order",
            lambda records: gain(records, OFF, SKEWED, FULL_PERCENT[-1], UNSYNCED) >= 10,
        ),
        Expectation(
            "synced after every 16 blocks, at least three times",
            lambda records: all(gain(records, OFF, SKEWED, full) >= 3 for full in FULL_PERCENT),
        ),
        Expectation(
            f"with a skew no write or fsync takes more than {MOST_S:g} s",
            lambda records: all(longest_s(records, ON, SKEWED, full) <= MOST_S for full in FULL_PERCENT),
        ),
        Expectation(
            "without a skew, on a disk that is nearly full, all is written and the disk quiet no later than without it",
            lambda records: all_s(records, ON, EVEN, 90) <= all_s(records, OFF, EVEN, 90),
        ),
    ),
    numbers={
        "kib_s": kib_s,
        "gain": gain,
        "all_s": all_s,
        "rewritten": rewritten,
        "latency_ms": latency_ms,
        "longest_s": longest_s,
    },
    draw=draw,
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What reading and a file server gain with journal_lazy, over what nobody knows about the drive, its host and its past.

e02 does this for making directories. Here are the directories' other phases, as in e33, and Postmark, as in e35: at a
tenth, for which Postmark's drive has a tenth of the cache and of its map, and the host a tenth of the memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.lab import Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, job, machine, run, workload

DRIVE = "st8000as0002"
STOCK, LAZY = "ext4-10g", "ext4-lazy"
FILE_SYSTEMS = (STOCK, LAZY)
DIRECTORIES, SERVER = workload.DIRECTORIES, ("Postmark",)
READING = ("ListDirs", "TarDirs", "RemoveDirs")
PHASES = (*DIRECTORIES, *SERVER)
CACHE, ENTRIES, AHEAD = "translation.cache", "translation.cache_entries", "read_ahead.segment"
ENTRY_MS, PASS = "translation.entry_time", "translation.writes_pass"
CACHE_GIB, MAP_ENTRIES = 25, 180_000
SCALE = 0.1
# Of the cache and its map, for Postmark, whatever the scale: it names the drive.
PART = 0.1
MEMORY_GIB = 16

Changes = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Setting:
    """What is not as in the middle. `used`: half of the map's entries are taken when the load begins. `at_once`: each
    phase begins while the drive has not cleaned after the one before."""

    changes: Changes = ()
    calls: float = 1
    aged: bool = False
    used: bool = False
    at_once: bool = False


MIDDLE = "as made"
SETTINGS = {
    MIDDLE: Setting(),
    "entries-fast-little-ahead": Setting(((ENTRY_MS, 0.1), (AHEAD, 256))),
    "entries-fast-much-ahead": Setting(((ENTRY_MS, 0.1), (AHEAD, 8192))),
    "entries-slow-little-ahead": Setting(((ENTRY_MS, 0.9), (AHEAD, 256))),
    "entries-slow-much-ahead": Setting(((ENTRY_MS, 0.9), (AHEAD, 8192))),
    "calls-quarter": Setting(calls=0.25),
    "calls-fourfold": Setting(calls=4),
    "aged": Setting(aged=True),
    "cache-half-full": Setting(used=True),
    "not-cleaned": Setting(at_once=True),
    "writes-pass": Setting(((PASS, 1),)),
}


# What a setting does not reach: nothing comes before the first phase and before Postmark, and before the second phase
# the drive has cleaned.
UNREACHED = {("not-cleaned", "MakeDirs"), ("not-cleaned", "Postmark"), *(("cache-half-full", each) for each in READING)}


@dataclass(frozen=True)
class Plan(workload.Plan):
    """A plan whose drive is not at rest when a phase begins."""

    entries: int = 0
    at_once: bool = False

    def steps(self) -> list[job.Step]:
        steps = super().steps()
        if self.at_once:
            steps = [*(each for each in steps[:-1] if each["do"] != "wait_clean"), steps[-1]]
        if self.entries:
            fill = {"span_bytes": 4 << 30, "count": self.entries, "seed": self.seed}
            steps = [job.load("random_overwrite", fill), *steps]
        return steps


def named(file_system: str, setting: str) -> str:
    return file_system if setting == MIDDLE else f"{file_system}-{setting}"


def set_up(name: str, setting: str, names: Sequence[str], scale: float, seed: int) -> run.Run:
    """One load on one file system."""
    own = SETTINGS[setting]
    part = PART if names == SERVER else 1
    profile = drive.find(DRIVE)
    for key, value in ((CACHE, CACHE_GIB * part), (ENTRIES, round(MAP_ENTRIES * part)), *own.changes):
        if value != profile.values[key.partition(".")[0]][key.partition(".")[2]]["value"]:
            profile = drive.changed(profile, key, value)
    plan = workload.plan(names, scale=scale, seed=seed)
    entries = round(MAP_ENTRIES * part / 2) if own.used else 0
    variant = fs.mounted_with(fs.find(name), "noatime")
    if names == DIRECTORIES:
        variant = fs.on_the_first(variant, run.PAPER_PARTITION_BYTES)
    made = run.Run(
        profile,
        replace(variant, name=named(name, setting)),
        Plan(plan.names, plan.scales, plan.seed, entries=entries, at_once=own.at_once),
        memory_mib=max(512, round((MEMORY_GIB << 10) * scale)),
        name_ns=round(machine.DEFAULT_NAME_NS * own.calls),
        call_ns=round(machine.DEFAULT_CALL_NS * own.calls),
        age=drive.Age() if own.aged else None,
    )
    return run.on_the_papers_host([made], scale)[0] if names == DIRECTORIES else made


def runs(scale: float, seed: int) -> list[run.Run]:
    return [
        set_up(name, setting, names, scale, seed)
        for names in (DIRECTORIES, SERVER)
        for setting in SETTINGS
        for name in FILE_SYSTEMS
    ]


def found(records: Sequence[Record], file_system: str, phase: str, setting: str) -> Record:
    """Each setting has a file system of its own name, so the drive's changed name is not needed."""
    return cell(records, named(file_system, setting), phase)


def gain(records: Sequence[Record], phase: str, setting: str = MIDDLE, cleaned: bool = False) -> float:
    """How many times as fast with journal_lazy; `cleaned`: with the cleaning after it."""
    both = [found(records, each, phase, setting) for each in FILE_SYSTEMS]
    took = [busy_s(each) if cleaned else float(each["virtual_s"]) for each in both]
    return took[0] / took[1]


def reached(setting: str, phase: str) -> bool:
    """Whether a setting changes anything for a phase."""
    return (setting, phase) not in UNREACHED


def gains(records: Sequence[Record], phase: str, cleaned: bool) -> list[float]:
    return [gain(records, phase, setting, cleaned) for setting in SETTINGS if reached(setting, phase)]


def least(records: Sequence[Record], phase: str, cleaned: bool = False) -> float:
    return min(gains(records, phase, cleaned))


def most(records: Sequence[Record], phase: str, cleaned: bool = False) -> float:
    return max(gains(records, phase, cleaned))


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = [
        bars.Panel(
            f"{phase}: journal_lazy against stock ext4",
            "times as fast",
            [bars.Bar(setting, (gain(records, phase, setting),)) for setting in SETTINGS if reached(setting, phase)],
        )
        for phase in (*READING, *SERVER)
    ]
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e38-sensitivity",
    claim="journal_lazy reads directories and serves files faster over the range of what nobody knows",
    source="FAST'17, sections 4.3.1 and 4.3.2, varied",
    varied=True,
    runs=runs,
    phases=(*PHASES, workload.UNMOUNT),
    scale=SCALE,
    scaling="Memory is a tenth. For Postmark the persistent cache and its map are, too; the journal and bands are not.",
    expectations=(
        Expectation(
            "journal_lazy lists and removes directories faster than stock ext4 under each setting",
            lambda records: min(least(records, "ListDirs"), least(records, "RemoveDirs")) > 1,
        ),
        Expectation(
            "Postmark is done, and the disk is quiet, sooner with journal_lazy under each setting",
            lambda records: least(records, "Postmark", True) > 1,
        ),
        Expectation(
            "what it gains in listing directories depends on what the drive reads ahead: by two times and more",
            lambda records: (
                gain(records, "ListDirs", "entries-slow-little-ahead")
                >= 2 * gain(records, "ListDirs", "entries-slow-much-ahead")
            ),
        ),
        Expectation(
            "whether writes pass one that waits changes no gain by more than a quarter",
            lambda records: all(
                0.75 < gain(records, each, "writes-pass") / gain(records, each, MIDDLE) < 1.25 for each in PHASES
            ),
        ),
        Expectation(
            "a cache that is half full, and a drive that did not clean in between, change no gain by more than a half",
            lambda records: all(
                0.5 < gain(records, each, setting) / gain(records, each, MIDDLE) < 1.5
                for each in PHASES
                for setting in ("cache-half-full", "not-cleaned")
                if reached(setting, each)
            ),
        ),
    ),
    numbers={"gain": gain, "least": least, "most": most, "reached": lambda _, setting, phase: reached(setting, phase)},
    draw=draw,
)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""A disk of an array is replaced: by what md writes, in order, and by what a file system's resilver writes.

Arrays of four equal disks lose one of them and rebuild on a fifth, idle and while ten blocks of 4 KiB a second are
overwritten and synced: md with RAID 1, 5, 6 and 10, half full of one file, and Btrfs with two copies of everything.
RAID 5 under load is rebuilt with other chunks, without a bitmap, at other speeds, with ext4's data in order above it,
and of conventional disks with a drive-managed one as the new disk. A resilver is a generator on one disk: pieces of
32 KiB, ten at a time, in the order of the disk or in none, which is what RAIDZ writes (Ars Technica, June 2020: records
that are split into 24 to 44 KiB; OpenZFS, issue 10214). The published cases are of the WD40EFAX: more than nine days
where conventional disks took some sixteen hours under ZFS, and hardly a difference under md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shingle.lab import IN_MACHINE, Expectation, Experiment, Record, bars, busy_s, cell, drive, fs, job, run, workload

CONVENTIONAL = "wd30ezr"
PUBLISHED = "wd40efax"
SHINGLED = (PUBLISHED, "st8000as0002")
# Of md, and Btrfs.
LEVELS = ("1", "5", "6", "10", "btrfs")
IDLE, LOADED = "", "-loaded"
# Of RAID 5 under load: what array.sh is told.
SETTINGS = {
    "chunk-64-kib": {"CHUNK_KIB": "64"},
    "chunk-4-mib": {"CHUNK_KIB": "4096"},
    "no-bitmap": {"BITMAP": "none"},
    "hurried": {"SYNC_MIN_KIB": "200000"},
    "held-back": {"SYNC_MAX_KIB": "20000"},
    "in-order": {"OPTIONS": "journal_lazy,data_relocate"},
}
# Of RAID 5 under load on conventional disks: the new one is drive-managed.
MIXED = "mixed-with-"
FILL, REBUILD, RESILVER = "Fill", "Rebuild", "Resilver"
ORDERED, SCATTERED = "resilver-ordered", "resilver-scattered"
MEMBERS = 4
MEMBER_GIB, RESILVER_BYTES = 4, 32 << 30
PIECE_BYTES, AT_ONCE = 32 << 10, 10
PROGRAMS = (IN_MACHINE / "array.sh", IN_MACHINE / "overwrite.py")
REPORT = "/run/report.json"
LIMIT_S = 30 * 24 * 3600


@dataclass(frozen=True)
class Array(workload.Plan):
    """An array of the machine's first four disks is filled, and rebuilds on the fifth; `level` as LEVELS has it."""

    level: str = ""
    loaded: bool = False
    setting: str = ""

    def files(self) -> tuple[Path, ...]:
        return PROGRAMS

    def steps(self) -> list[job.Step]:
        def step(*words: str, phase: str) -> job.Step:
            argv = ("/bin/sh", f"{job.OUT}/{PROGRAMS[0].name}", *words)
            env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **SETTINGS.get(self.setting, {})}
            return job.run(argv, env=env, limit_s=LIMIT_S, phase=phase)

        gib = max(1, round(MEMBER_GIB * self.scales[FILL]))
        report = (REPORT,) if self.loaded else ()
        load = (str(self.seed), REPORT) if self.loaded else ()
        clean = job.wait_clean(limit_s=LIMIT_S)
        return [
            step("make", self.level, str(gib), phase=FILL), job.sync(phase=FILL), clean,
            step("rebuild", *load, phase=REBUILD), *(job.read(each, phase=REBUILD) for each in report), clean,
            step("stop", phase=workload.UNMOUNT), job.umount(phase=workload.UNMOUNT), clean,
        ]  # fmt: skip


@dataclass(frozen=True)
class Resilver(workload.Plan):
    """A part of an empty disk is written once, in small pieces."""

    scattered: bool = False

    def steps(self) -> list[job.Step]:
        told = {
            "name": RESILVER, "filename": job.DEVICE, "rw": "randwrite" if self.scattered else "write",
            "bs": PIECE_BYTES, "size": round(RESILVER_BYTES * self.scales[RESILVER]), "iodepth": AT_ONCE,
            "ioengine": "libaio", "direct": 1, "randrepeat": 0, "randseed": self.seed, "allow_mounted_write": 1,
            # One word over and over, which takes no memory of the host.
            "buffer_pattern": "0x5a5a5a5a",
        }  # fmt: skip
        argv = ("/usr/bin/fio", "--minimal", *(f"--{key}={value}" for key, value in told.items()))
        clean = job.wait_clean(limit_s=LIMIT_S)
        return [
            job.run(argv, stdout="fio.txt", limit_s=LIMIT_S, phase=RESILVER), job.sync(phase=RESILVER), clean,
            job.umount(phase=workload.UNMOUNT), clean,
        ]  # fmt: skip


def array(level: str, load: str, setting: str = "") -> str:
    """The name in records of what stands in a file system's place."""
    name = f"raid{level}{load}" if level.isdigit() else f"{level}{load}"
    return f"{name}-{setting}" if setting else name


def runs(scale: float, seed: int) -> list[run.Run]:
    arrays = [(level, load, "") for level in LEVELS for load in (IDLE, LOADED)]
    arrays += [("5", LOADED, each) for each in SETTINGS]
    names = (FILL, REBUILD)
    scales = dict.fromkeys(names, scale)
    found = []
    for disk in (CONVENTIONAL, *SHINGLED):
        profile = drive.find(disk)
        for level, load, setting in arrays:
            array_of = Array(names, scales, seed, level=level, loaded=load == LOADED, setting=setting)
            variant = fs.without(array(level, load, setting))
            found.append(run.Run(profile, variant, array_of, others=(profile,) * MEMBERS))
        if disk != CONVENTIONAL:
            others = (drive.find(CONVENTIONAL),) * (MEMBERS - 1)
            array_of = Array(names, scales, seed, level="5", loaded=True)
            mixed = fs.without(array("5", LOADED, MIXED + disk))
            found.append(run.Run(others[0], mixed, array_of, others=(*others, profile)))
        for name in (ORDERED, SCATTERED):
            alone = Resilver((RESILVER,), {RESILVER: scale}, seed, scattered=name == SCATTERED)
            found.append(run.Run(profile, fs.without(name), alone))
    return found


def rebuild_s(records: Sequence[Record], disk: str, level: str, load: str = IDLE, setting: str = "") -> float:
    """How long the array is without redundancy."""
    return float(cell(records, array(level, load, setting), REBUILD, disk)["virtual_s"])


def cleaning_s(found: Record) -> float:
    """Until the last of the disks is quiet."""
    return float(max(each["cleaning_s"] for each in (found, *found.get("disks", ()))))


def array_cleaning_s(records: Sequence[Record], disk: str, level: str, load: str = IDLE, setting: str = "") -> float:
    """The same, after a rebuild."""
    return cleaning_s(cell(records, array(level, load, setting), REBUILD, disk))


def cleaning_meanwhile(records: Sequence[Record], disk: str, level: str, counter: str, setting: str = "") -> float:
    """Of the cleaning that did not wait until the new disk was idle, during a rebuild under load: a counter."""
    return float(cell(records, array(level, LOADED, setting), REBUILD, disk)["disks"][-1]["counters"][counter])


def resilver_s(records: Sequence[Record], disk: str, name: str) -> float:
    """Until the disk is quiet."""
    return float(busy_s(cell(records, name, RESILVER, disk)))


def rewritten(records: Sequence[Record], disk: str, name: str) -> float:
    """Bytes that cleaning rewrites for each byte of a resilver."""
    found = cell(records, name, RESILVER, disk)
    return float(found["counters"]["rewritten_bytes"] / found["total_written_bytes"])


def terabyte_days(records: Sequence[Record], disk: str, name: str) -> float:
    """What a terabyte would take at this rate."""
    return resilver_s(records, disk, name) * 1e12 / RESILVER_BYTES / 86_400


def times(records: Sequence[Record], disk: str, name: str) -> float:
    """How many times longer a resilver takes than on the conventional disk."""
    return resilver_s(records, disk, name) / resilver_s(records, CONVENTIONAL, name)


def longest_s(records: Sequence[Record], disk: str, level: str, setting: str = "") -> float:
    """The longest wait for an overwrite during a rebuild."""
    return float(cell(records, array(level, LOADED, setting), REBUILD, disk)["load"]["longest_ns"]) / 1e9


def each_second(records: Sequence[Record]) -> float:
    """The fewest overwrites that a program began in a second of a rebuild under load, on the whole."""
    loads = [each["load"] for each in records if each["phase"] == REBUILD and each["load"] is not None]
    return float(min(each["overwrites"] / each["begun_ns"] for each in loads) * 1e9)


def least_saved(records: Sequence[Record]) -> float:
    """The smallest part of the seconds of cleaning after a rebuild under load that data in order save."""
    parts = [
        array_cleaning_s(records, disk, "5", LOADED, "in-order") / array_cleaning_s(records, disk, "5", LOADED)
        for disk in SHINGLED
    ]
    return 1 - max(parts)


def draw(records: Sequence[Record], stem: Path) -> None:
    panels = []
    for disk in (CONVENTIONAL, *SHINGLED):
        rows = []
        for name in (*(array(level, load) for level in LEVELS for load in (IDLE, LOADED)), ORDERED, SCATTERED):

            def parts(own: Sequence[Record], each: str = name, disk: str = disk) -> list[tuple[str, float]]:
                found = cell(own, each, RESILVER if each in (ORDERED, SCATTERED) else REBUILD, disk)
                return [("until all is written", found["virtual_s"]), ("cleaning", cleaning_s(found))]

            rows.append(bars.of_parts(name, records, parts))
        panels.append(bars.Panel(disk, "virtual s", rows))
    bars.draw(panels, stem)


EXPERIMENT = Experiment(
    name="e43-rebuild",
    claim="a drive-managed disk that is new to an array of md rebuilds about as fast as a conventional one",
    runs=runs,
    phases=(FILL, REBUILD, RESILVER),
    scaling="The disks and their caches are not scaled; an array has 4 GiB of each disk, a resilver writes 32 GiB.",
    expectations=(
        Expectation(
            "no idle rebuild takes a drive-managed disk more than half as long again as the conventional one",
            lambda records: all(
                rebuild_s(records, disk, level) <= 1.5 * rebuild_s(records, CONVENTIONAL, level)
                for disk in SHINGLED
                for level in LEVELS
            ),
        ),
        Expectation(
            "a resilver in no order takes the WD40EFAX at least five times as long as the conventional disk, and each"
            " drive-managed disk twice as long",
            lambda records: (
                times(records, PUBLISHED, SCATTERED) >= 5
                and all(times(records, disk, SCATTERED) >= 2 for disk in SHINGLED)
            ),
        ),
        Expectation(
            "each resilver in no order wrote all of its pieces",
            lambda records: all(
                cell(records, SCATTERED, RESILVER, disk)["total_written_bytes"] >= RESILVER_BYTES
                for disk in (CONVENTIONAL, *SHINGLED)
            ),
        ),
        Expectation(
            "and each in the disk's order",
            lambda records: all(
                cell(records, ORDERED, RESILVER, disk)["total_written_bytes"] >= RESILVER_BYTES
                for disk in (CONVENTIONAL, *SHINGLED)
            ),
        ),
        Expectation(
            "ten overwrites a second are begun, however long the array takes for each, and none fails",
            lambda records: (
                each_second(records) >= 9.5
                and all(each["load"]["failed"] == 0 for each in records if each["load"] and "failed" in each["load"])
            ),
        ),
        # These say what was found. What was expected, before any run of theirs, is on the page.
        Expectation(
            "among conventional disks a drive-managed one is whole again after at most a fifth more than its like take",
            lambda records: all(
                rebuild_s(records, CONVENTIONAL, "5", LOADED, MIXED + disk)
                <= 1.2 * max(rebuild_s(records, each, "5", LOADED) for each in (disk, CONVENTIONAL))
                for disk in SHINGLED
            ),
        ),
        Expectation(
            "chunks, and that it may hurry, change a rebuild of RAID 5 under load by at most a tenth",
            lambda records: all(
                0.9 <= rebuild_s(records, disk, "5", LOADED, each) / rebuild_s(records, disk, "5", LOADED) <= 1.1
                for disk in (CONVENTIONAL, *SHINGLED)
                for each in ("chunk-64-kib", "chunk-4-mib", "hurried")
            ),
        ),
        Expectation(
            "without a bitmap it is sooner done, by at most a third",
            lambda records: all(
                0.67 <= rebuild_s(records, disk, "5", LOADED, "no-bitmap") / rebuild_s(records, disk, "5", LOADED) <= 1
                for disk in (CONVENTIONAL, *SHINGLED)
            ),
        ),
        Expectation(
            "with ext4's data in order above it, drive-managed disks clean less afterwards by three fifths at least",
            lambda records: least_saved(records) >= 0.6,
        ),
    ),
    numbers={
        "rebuild_s": rebuild_s,
        "least_saved": least_saved,
        "cleaning_s": array_cleaning_s,
        "longest_s": longest_s,
        "cleaning_meanwhile": cleaning_meanwhile,
        "resilver_s": resilver_s,
        "rewritten": rewritten,
        "terabyte_days": terabyte_days,
        "times": times,
    },
    draw=draw,
)

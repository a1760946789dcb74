# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a user would pick instead today: the file systems of the kernel, side by side, on three drive-managed disks; and
those that write zones in order on a host-managed one, where SAFS takes part in the work that only appends.

Across file systems only all bytes together, the time and the time of cleaning are compared: what is metadata and what a
journal differs from one to the next. A workload that a file system does not bring to its end is a result, too.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.table import Table

from shingle.lab import (
    Expectation,
    Experiment,
    NotFinished,
    NotRecorded,
    Record,
    busy_s,
    by_seed,
    cell,
    fs,
    number,
    run,
    table,
    workload,
)
from shingle.lab import (
    drive as drives,
)

LAZY, BASELINE = "ext4-lazy", "ext4-10g"
# journal_lazy and data_relocate: what owners get.
SMR = "ext4-smr"
# The same with the log, and so with the stream behind it, near the outer edge, where a revolution passes most sectors.
EDGE = f"{SMR}-edge"
DRIVE_MANAGED = ("st8000as0002", "wd40efax", "wd40nmzw")
OURS = (SMR, EDGE)
ANYWHERE = ("ext4", BASELINE, LAZY, *OURS, "nilfs2", "f2fs", "btrfs", "xfs")
# What the place of the log gains by itself.
PLACED = (BASELINE, LAZY)
# A directory of few names takes a block of ext4, unless it is kept in its inode, as the others do.
INLINE = (BASELINE, LAZY, *OURS)
QUICKEST = f"{EDGE}-inline"
# SAFS takes part in what only appends.
HOST_MANAGED, IN_ORDER, APPENDING = "hc620", ("f2fs", "btrfs"), ("safs",)
DIRECTORIES = ("MakeDirs", "RemoveDirs")
FILES = ("CreateFiles", "FindFiles", "RemoveFiles")
# At the top of a file system ext4 spreads directories over the disk, as in the paper; a user's lie below some other.
SERVER, BELOW = ("Postmark",), ("PostmarkBelow",)
APPENDED = ("AppendMost", "ReplaceMost")
# How long these wait for a stream to go on before they clean what it has left open is a guess, and decides who is quiet
# first where little is written: here they wait for no longer than for anything else.
HASTY, HASTY_S = ("wd40efax", "wd40nmzw"), 1
QUIET_FIRST = (EDGE, "btrfs")
SPREAD = (DIRECTORIES, FILES, SERVER)
GENERAL = (*SPREAD, BELOW)
SCALE = 0.1
# Slower by no more than this counts as equal.
EQUAL = 1.01


def runs(scale: float, seed: int) -> list[run.Run]:
    found = []
    for names in (*SPREAD, APPENDED, BELOW):
        plan = workload.plan(names, scale=scale, seed=seed)
        for name in DRIVE_MANAGED:
            found += run.cells(name, ANYWHERE, plan)
            placed = run.cells(name, PLACED, plan)
            found += [replace(each, variant=fs.with_log_near_the_edge(each.variant)) for each in placed]
        found += run.cells(HOST_MANAGED, (*IN_ORDER, *(APPENDING if names is APPENDED else ())), plan)
    for names in GENERAL:
        plan = workload.plan(names, scale=scale, seed=seed)
        inline = [each for name in DRIVE_MANAGED for each in run.cells(name, INLINE, plan)]
        inline = [replace(each, variant=fs.with_inline_data(each.variant)) for each in inline]
        found += inline
        # What the guide tells owners of a new volume.
        found += [
            replace(each, variant=fs.with_tables_together(each.variant)) for each in inline if EDGE in each.variant.name
        ]
    for name in HASTY:
        profile = drives.changed(drives.find(name), "translation.stream_memory", HASTY_S)
        for names in (DIRECTORIES, FILES):
            found += [
                replace(each, variant=fs.with_inline_data(each.variant)) if each.variant.name == EDGE else each
                for each in run.cells(profile, QUIET_FIRST, workload.plan(names, scale=scale, seed=seed))
            ]
    return [replace(each, may_fail=True) for each in found]


def spent_s(record: Record) -> float:
    return float(record["virtual_s"])


def ranked(records: Sequence[Record]) -> list[Record]:
    """Those that came to their end, the fastest first; then the others."""
    return sorted(records, key=lambda each: ("failed" in each, spent_s(each)))


def tables(records: Sequence[Record]) -> Iterator[Table]:
    """For each drive: who comes first in each phase, by how much, and how long the disk stays busy afterwards."""
    for drive in dict.fromkeys(each["drive"] for each in records):
        shown = Table(title=drive, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        shown.add_column("phase", no_wrap=True)
        shown.add_column("file system", no_wrap=True)
        for heading in ("virtual time", "times the first's", "MiB written", "MiB read", "cleaning afterwards"):
            shown.add_column(heading, justify="right")
        own = [each for each in records if each["drive"] == drive and each["phase"] != run.MOUNT]
        for label, phase in dict.fromkeys((each["workload"], each["phase"]) for each in own):
            rows = ranked([each for each in own if (each["workload"], each["phase"]) == (label, phase)])
            after = f"{phase} after {label.split(',')[-1]}" if phase == workload.UNMOUNT else phase
            for place, each in enumerate(rows):
                shown.add_row(
                    after if place == 0 else "",
                    each["file_system"],
                    *times(each, rows[0]),
                    table.mib(each["total_written_bytes"]),
                    table.mib(each["total_read_bytes"]),
                    table.seconds(each["cleaning_s"]),
                    end_section=each is rows[-1],
                )
        yield shown


def times(each: Record, first: Record) -> tuple[str, str]:
    if "failed" in each:
        return "failed", ""
    part = f"{spent_s(each) / spent_s(first):,.2f}" if spent_s(first) else ""
    return table.seconds(spent_s(each)), part


def overview(records: Sequence[Record], drive: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: until the disk is quiet, for each file system and group of workloads; the first is bold."""
    groups = [names for names in (*GENERAL, APPENDED) if of_workload(on(records, drive), names)]
    file_systems = dict.fromkeys(each["file_system"] for each in on(records, drive))
    columns = []
    for names in groups:
        quiet = {each: _quiet_s(records, drive, each, names) for each in file_systems}
        least = min((sum(found) for found in quiet.values() if isinstance(found, tuple)), default=0.0)
        columns.append([_entry(quiet[each], least) for each in file_systems])
    rows = [[each, *entries] for each, *entries in zip(file_systems, *columns, strict=True)]
    return ["file system", *(", ".join(names) for names in groups)], rows


def _quiet_s(records: Sequence[Record], drive: str, name: str, names: Sequence[str]) -> tuple[float, float] | str:
    """Seconds of the phases with the unmount, and of the cleaning after each; or why there are none."""
    try:
        whole = whole_s(records, drive, name, names)
    except NotFinished as failure:
        return str(failure)
    except NotRecorded:
        return ""
    own = of_workload(records, names)
    ran = sum(spent_s(cell(own, name, phase, drive)) for phase in (*names, workload.UNMOUNT))
    return ran, whole - ran


def _entry(found: tuple[float, float] | str, least: float) -> str:
    if isinstance(found, str):
        return "did not finish" if found else ""
    ran, cleaned = found
    text = f"{number(ran)} + {number(cleaned)} s"
    return f"**{text}**" if ran + cleaned == least else f"{text}, {number((ran + cleaned) / least)}"


def page(records: Sequence[Record]) -> str:
    """Of the first seed; only some cells have more."""
    _, (records, *_) = by_seed(records)
    parts = [_HEAD]
    for drive in dict.fromkeys(each["drive"] for each in records):
        headings, rows = overview(records, drive)
        parts.append(f"\n## {drive}\n| " + " | ".join(headings) + " |\n|---|" + "--:|" * (len(headings) - 1) + "\n")
        parts += ["| " + " | ".join(row) + " |\n" for row in rows]
    failed = [each for each in records if "failed" in each]
    if failed:
        parts.append("\n## What did not finish\n")
        parts += [f"* {each['phase']} on {each['file_system']}, {each['drive']}: {each['failed']}\n" for each in failed]
    return "".join(parts)


_HEAD = f"""<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
# File systems on shingled disks, side by side

*Made by `./shingle claims --write` from results/e40*.jsonl; do not edit.* `./shingle matrix field` runs it (the papers'
workloads at a tenth, one seed) and prints each phase with its bytes. An entry is virtual seconds: of all phases and the
unmount, + what the disk then goes on cleaning; and how many times as long as the first, which is bold, both take
together. Drives, journals and persistent caches are not scaled. `{LAZY}` is journal_lazy with a journal of 10 GiB, and
`{BASELINE}` ext4 with the same journal. `{SMR}` puts data in order, too (`journal_lazy,data_relocate`), and with
`-edge` the log lies near the outer edge (`-J location=16G`) and not in the middle of the disk. With `-inline` small
directories are kept in their inodes (`-O inline_data`), and with `-g64` the inode tables of 64 groups lie together
(`-G 64 -i 32768`). A drive with `-stream_memory-1` waits 1 s, and not 10, for a stream to go on.
"""


def on(records: Sequence[Record], drive: str) -> list[Record]:
    return [each for each in records if each["drive"] == drive]


def of_workload(records: Sequence[Record], names: Sequence[str]) -> list[Record]:
    """An unmount is of the workload before it."""
    return [each for each in records if each["workload"] == ",".join(names)]


def whole_s(records: Sequence[Record], drive: str, file_system: str, names: Sequence[str]) -> float:
    """All phases, the unmount and all cleaning: until the disk is quiet."""
    own = of_workload(records, names)
    found = [cell(own, file_system, phase, drive) for phase in (*names, workload.UNMOUNT)]
    return sum(map(busy_s, found))


def ahead(records: Sequence[Record], drive: str, names: Sequence[str]) -> bool:
    """Of ext4 with the same journal and with its own."""
    ours = whole_s(records, drive, LAZY, names)
    return all(ours < whole_s(records, drive, other, names) for other in (BASELINE, "ext4"))


def first(records: Sequence[Record], drive: str, names: Sequence[str], ours_name: str = SMR) -> bool:
    """Of all file systems that bring it to its end."""
    ours = whole_s(records, drive, ours_name, names)

    def later(other: str) -> bool:
        try:
            return ours < whole_s(records, drive, other, names)
        except NotFinished:
            return True

    return all(later(other) for other in ANYWHERE if other not in OURS)


def never_slower(records: Sequence[Record], names: Sequence[str]) -> bool:
    """Phase by phase; of the unmount, which writes the map's snapshot, the finding tells."""
    own = of_workload(records, names)
    return all(
        spent_s(cell(own, LAZY, phase, drive)) <= EQUAL * spent_s(cell(own, BASELINE, phase, drive))
        for drive in DRIVE_MANAGED
        for phase in names
    )


def leads(drive: str, names: Sequence[str]) -> Expectation:
    return Expectation(
        f"{', '.join(names)}, unmount and cleaning on {drive}: {LAZY} is ahead of ext4",
        lambda records: ahead(records, drive, names),
    )


def ran_s(records: Sequence[Record], drive: str, file_system: str, names: str) -> float:
    """All phases and the unmount, without the cleaning."""
    own = of_workload(records, names.split(","))
    return sum(spent_s(cell(own, file_system, phase, drive)) for phase in (*names.split(","), workload.UNMOUNT))


def cleans_s(records: Sequence[Record], drive: str, file_system: str, names: str) -> float:
    """What the drive itself works for all phases and the unmount, without what it waits in between."""
    own = of_workload(records, names.split(","))
    found = [cell(own, file_system, phase, drive) for phase in (*names.split(","), workload.UNMOUNT)]
    return sum(float(each["counters"]["cleaning_ns"]) for each in found) / 1e9


def works_least(records: Sequence[Record], drive: str, names: Sequence[str]) -> bool:
    """The phases and what the drive cleans for them, of all file systems that bring them to their end."""

    def works_s(file_system: str) -> float:
        try:
            return sum(each(records, drive, file_system, ",".join(names)) for each in (ran_s, cleans_s))
        except NotFinished:
            return math.inf

    return all(works_s(QUICKEST) < works_s(other) for other in ANYWHERE if other not in OURS)


def gains(records: Sequence[Record], *loads: str) -> list[float]:
    """Over ext4 with the same journal and with its own, with the cleaning, on each drive."""
    return [
        whole_s(records, drive, other, names.split(",")) / whole_s(records, drive, LAZY, names.split(","))
        for drive in DRIVE_MANAGED
        for other in (BASELINE, "ext4")
        for names in loads
    ]


def placed(records: Sequence[Record]) -> list[float]:
    """By the log's place alone: with it near the edge, the part of the time with it in the middle."""
    return [
        whole_s(records, drive, f"{name}-edge", names) / whole_s(records, drive, name, names)
        for drive in DRIVE_MANAGED
        for name in PLACED
        for names in (*GENERAL, APPENDED)
    ]


def placed_least(seeds: Sequence[Sequence[Record]]) -> float:
    return min(placed(seeds[0]))


def placed_most(seeds: Sequence[Sequence[Record]]) -> float:
    return max(placed(seeds[0]))


def gain_least(seeds: Sequence[Sequence[Record]], *loads: str) -> float:
    return min(gains(seeds[0], *loads))


def gain_most(seeds: Sequence[Sequence[Record]], *loads: str) -> float:
    return max(gains(seeds[0], *loads))


def unmount_ms(seeds: Sequence[Sequence[Record]], file_system: str, which: str) -> float:
    """The shortest or the longest on a drive-managed disk."""
    found = [
        1e3 * spent_s(each)
        for each in seeds[0]
        if each["phase"] == workload.UNMOUNT and each["file_system"] == file_system and each["drive"] in DRIVE_MANAGED
    ]
    return min(found) if which == "least" else max(found)


def part(records: Sequence[Record], name: str) -> float:
    """Of the baseline's time, on the first drive."""
    return spent_s(cell(records, LAZY, name, DRIVE_MANAGED[0])) / spent_s(
        cell(records, BASELINE, name, DRIVE_MANAGED[0])
    )


def part_deviation(seeds: Sequence[Sequence[Record]], name: str) -> float:
    return statistics.stdev(part(records, name) for records in seeds)


EXPERIMENT = Experiment(
    name="e40-field",
    claim="on drive-managed disks journal_lazy is ahead of ext4 in metadata and file-server work",
    runs=runs,
    phases=(*DIRECTORIES, *FILES, *SERVER, *BELOW, *APPENDED, workload.UNMOUNT),
    scale=SCALE,
    scaling="Drives, journals and persistent caches are not scaled.",
    expectations=(
        *(leads(drive, names) for drive in DRIVE_MANAGED for names in SPREAD),
        *(
            Expectation(
                f"{name}: with data in order the disk is quiet sooner than with any other, on each drive-managed disk",
                lambda records, name=name: all(first(records, each, (name,)) for each in DRIVE_MANAGED),  # type: ignore[misc]
            )
            for (name,) in (SERVER, BELOW)
        ),
        Expectation(
            f"{', '.join(APPENDED)}: so it is if the log lies near the outer edge",
            lambda records: all(first(records, each, APPENDED, EDGE) for each in DRIVE_MANAGED),
        ),
        *(
            Expectation(
                f"{', '.join(names)}: {QUICKEST} and each drive-managed disk work for less time than with any other,"
                " without what the disk waits",
                lambda records, names=names: all(works_least(records, each, names) for each in DRIVE_MANAGED),  # type: ignore[misc]
            )
            for names in (DIRECTORIES, FILES)
        ),
        *(
            Expectation(
                f"{', '.join(names)}: {LAZY} is never more than 1 % slower than {BASELINE}",
                lambda records, names=names: never_slower(records, names),  # type: ignore[misc]
            )
            for names in SPREAD
        ),
    ),
    tables=tables,
    page=page,
    numbers={
        "until_quiet_s": lambda records, drive, name, names: whole_s(records, drive, name, names.split(",")),
        "ran_s": ran_s,
        "cleans_s": cleans_s,
        "placed_least": placed_least,
        "placed_most": placed_most,
        "gain_least": gain_least,
        "gain_most": gain_most,
        "unmount_ms": unmount_ms,
        "part": part,
        "part_deviation": part_deviation,
    },
)

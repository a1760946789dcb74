# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables on the terminal, made from records and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from shingle.runs.record import Record, rates

NOT_AVAILABLE = "n/a"
_MIB = 1 << 20
_CLASS_NAMES = ((1, "data"), (2, "metadata"), (4, "journal"), (8, "superblock"))


@dataclass(frozen=True)
class Column:
    heading: str
    text: Callable[[Record], str]


def mib(value: int | None) -> str:
    if value is None:
        return NOT_AVAILABLE
    if value and value < _MIB:
        return f"{value / _MIB:.2f}"
    return f"{value / _MIB:,.0f}"


def seconds(value: float) -> str:
    return f"{value:,.1f} s" if value < 600 else f"{value:,.0f} s"


def count(value: Any) -> str:
    return NOT_AVAILABLE if value is None else f"{value:,}"


def setting(record: Record) -> str:
    """The drive, and what a change of a name costs on its host."""
    return f"{record['drive']}, {record['configuration']['name_ns'] / 1000:g} us"


def _bytes(field: str) -> Callable[[Record], str]:
    return lambda record: mib(record[field])


def _metadata_read(record: Record) -> str:
    """Metadata is metadata wherever it is read from: journal_lazy reads it from the journal."""
    home, journal = record["metadata_read_bytes"], record["journal_read_bytes"]
    return mib(None if home is None else home + (journal or 0))


def _rewritten(record: Record) -> str:
    """Bytes that cleaning wrote for each byte of the host's; none in a record of before it was counted."""
    rewritten, written = record["counters"].get("rewritten_bytes"), record["total_written_bytes"]
    if rewritten is None or not written:
        return NOT_AVAILABLE
    return f"{rewritten / written:,.{2 if rewritten < 100 * written else 0}f}"


COLUMNS = (
    Column("virtual\ntime", lambda record: "failed" if "failed" in record else seconds(record["virtual_s"])),
    Column("data\nMiB written", _bytes("data_written_bytes")),
    Column("metadata\nMiB written", _bytes("metadata_written_bytes")),
    Column("journal\nMiB written", _bytes("journal_written_bytes")),
    Column("superblock\nMiB written", _bytes("superblock_written_bytes")),
    Column("metadata\nMiB read", _metadata_read),
    Column("bands\ndirty", lambda record: count(record["bands_dirty"])),
    Column("bands\ncleaned", lambda record: count(record["bands_cleaned"])),
    Column("rewritten\nper byte", _rewritten),
    Column("cleaning\nafterwards", lambda record: seconds(record["cleaning_s"])),
)


def of_records(records: Sequence[Record], *, phases: Sequence[str]) -> Table:
    """One block of rows per phase, one row per file system; with their setting, if the runs differ in it."""
    settings = {setting(record): None for record in records}
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("phase", no_wrap=True)
    if len(settings) > 1:
        table.add_column("drive,\ncost of a name change", no_wrap=True)
    table.add_column("file system", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for phase in phases:
        rows = [record for record in records if record["phase"] == phase]
        for number, record in enumerate(rows):
            cells = [record["file_system"], *(column.text(record) for column in COLUMNS)]
            if len(settings) > 1:
                cells.insert(0, setting(record))
            last = number == len(rows) - 1
            table.add_row(phase if number == 0 else "", *cells, end_section=last)
    return table


# What fits 80 columns, the phase on a line of its own.
_NARROW = (
    Column("virtual\ntime", COLUMNS[0].text),
    Column("data\nMiB", _bytes("data_written_bytes")),
    Column("metadata\nMiB", _bytes("metadata_written_bytes")),
    Column("journal\nMiB", _bytes("journal_written_bytes")),
    Column("meta MiB\nread", _metadata_read),
    Column("bands\ndirty", lambda record: count(record["bands_dirty"])),
    Column("cleaning\nafterwards", lambda record: seconds(record["cleaning_s"])),
)


def narrow(records: Sequence[Record], *, phases: Sequence[str]) -> Table:
    """The same in 80 columns, without the superblock and the bands that were cleaned."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("file system", overflow="fold")
    for column in _NARROW:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for phase in phases:
        rows = [record for record in records if record["phase"] == phase]
        if rows:
            table.add_row(f"[bold]{phase}[/bold]")
        for record in rows:
            cells = (column.text(record) for column in _NARROW)
            table.add_row(f" {record['file_system']}", *cells, end_section=record is rows[-1])
    return table


_LATENCIES = (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"), ("longest", "max"))
# Which of a load's bytes an operation moves.
_MOVED = {"read": "read_bytes", "write": "written_bytes"}


def loads(records: Sequence[Record], *, phases: Sequence[str]) -> Table | None:
    """What the loads did whose latencies were measured, a row for each kind of operation; None if there is none."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
    settings = {setting(record): None for record in records}
    table.add_column("file system", overflow="fold")
    table.add_column("operation", no_wrap=True)
    for heading in ("a second", "MiB/s", *(f"{name} ms" for name, _ in _LATENCIES)):
        table.add_column(heading, justify="right", no_wrap=True)
    for phase in phases:
        measured = [each for each in records if each["phase"] == phase and (each["load"] or {}).get("latency_ns")]
        if measured:
            table.add_row(f"[bold]{phase}[/bold]")
        for each in measured:
            name = f"{each['file_system']} on {setting(each)}" if len(settings) > 1 else each["file_system"]
            for row in _operations(each["load"]):
                table.add_row(f" {name}", *row, end_section=False)
                name = ""
    return table if table.row_count else None


def _operations(load: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    a_second = load.get("per_s") or rates(load).get("per_s", {})
    for operation, latency in load["latency_ns"].items():
        moved = a_second.get(_MOVED.get(operation, ""), 0)
        yield (
            operation,
            f"{a_second[operation]:,.1f}" if operation in a_second else NOT_AVAILABLE,
            mib(moved) if moved else "",
            *(_milliseconds(latency[key]) for _, key in _LATENCIES),
        )


def _milliseconds(ns: int) -> str:
    return f"{ns / 1e6:,.3f}" if ns < 10_000_000 else f"{ns / 1e6:,.1f}"


def show(console: Console, records: Sequence[Record], *, phases: Sequence[str], wide: bool = False) -> None:
    """Prints the table of records: with all columns, or where a terminal is too narrow for them with fewer."""
    whole = of_records(records, phases=phases)
    fits = Measurement.get(console, console.options.update(max_width=1000), whole).maximum <= console.width
    if wide or fits or not console.is_terminal:
        put(console, whole, wide=wide)
    else:
        _show_narrow(console, records, phases=phases)
    done = loads(records, phases=phases)
    if done is not None:
        console.print()
        put(console, done, wide=wide)


def show_disks(console: Console, records: Sequence[Record]) -> None:
    """Prints what the disks beside the first did, a row for each in each phase; nothing if there is only one."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for heading in ("phase", "disk", "drive"):
        table.add_column(heading, no_wrap=True)
    for heading in ("MiB\nwritten", "MiB\nread", "bands\ndirty", "bands\ncleaned", "cleaning\nafterwards"):
        table.add_column(heading, justify="right", no_wrap=True)
    for record in records:
        for disk in record.get("disks", ()):
            moved = (mib(disk["total_written_bytes"]), mib(disk["total_read_bytes"]))
            bands = (count(disk["bands_dirty"]), count(disk["bands_cleaned"]), seconds(disk["cleaning_s"]))
            table.add_row(record["phase"], disk["disk"], disk["drive"], *moved, *bands)
    if table.row_count:
        console.print()
        put(console, table)


def _show_narrow(console: Console, records: Sequence[Record], *, phases: Sequence[str]) -> None:
    settings = list(dict.fromkeys(setting(record) for record in records))
    for each in settings:
        if len(settings) > 1:
            console.print(f"{each} per name change")
        put(console, narrow([record for record in records if setting(record) == each], phases=phases))
    console.print("with --wide: superblock, bands cleaned", style="dim")


def put(console: Console, table: Table, *, wide: bool = False) -> None:
    """Prints a table; where there is no terminal, wide enough for every column."""
    if console.is_terminal and not wide:
        console.print(table)
        return
    whole = Console(file=console.file, width=190, force_terminal=False)
    with whole.capture() as capture:
        whole.print(table)
    console.file.write("".join(f"{text.rstrip()}\n" for text in capture.get().splitlines()))


def dirty_bands(record: Record) -> str:
    """What the bands that a phase left to clean hold: '3 bands (journal 2, superblock 1)'."""
    held: dict[str, int] = {}
    for _, _, bits, *_ in record["bands_dirty_by_class"]:
        name = "+".join(name for bit, name in _CLASS_NAMES if bits & bit) or "unknown"
        held[name] = held.get(name, 0) + 1
    total = record["bands_dirty"]
    named = ", ".join(f"{name} {number}" for name, number in sorted(held.items()))
    if total > sum(held.values()):
        named = f"{named} of the first {sum(held.values())}" if held else ""
    return f"{total} band{'' if total == 1 else 's'}{f' ({named})' if named else ''}"

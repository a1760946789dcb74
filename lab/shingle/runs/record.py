# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records: one JSON line per phase of a run. docs/reference/records.md describes every field.

Everything but `host` is the same, byte for byte, for the same command and seed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from shingle.catalogue import fio
from shingle.catalogue.fs import FileSystem
from shingle.failure import Failure
from shingle.machine.machine import NS_PER_S, Counters, StepResult

SCHEMA_VERSION = 1
CLASSES = ("data", "metadata", "superblock", "journal")

Record = dict[str, Any]


class NotRecorded(Failure):
    """Records lack a cell, as those of a stopped experiment do."""


class NotFinished(NotRecorded):
    """The cell was run, and its file system did not bring the workload to its end."""


# Counters that are a state or a maximum, not a sum: a difference of them means nothing.
_STATES = frozenset(
    {"cache_entries", "cache_bytes", "cache_entries_max", "cache_bytes_max", "bands_dirty", "volatile_bytes",
     "last_host_ns", "clean_at_ns", "clean"}
)  # fmt: skip


def of_run(
    steps: Sequence[StepResult],
    phases: Sequence[str],
    *,
    variant: FileSystem,
    common: Mapping[str, Any],
    host: Mapping[str, Any],
    failed: str | None = None,
    others: Sequence[str] = (),
) -> list[Record]:
    """The records of a run's phases, in order; if its last step `failed`, of those up to it.

    `others` are the drives behind /dev/shd1 and so on.
    """
    reached = phases if failed is None else phases[: phases.index(steps[-1].phase or "") + 1]
    records = [_of_phase(name, steps, variant, common, host) for name in reached]
    if others:
        for each in records:
            named = enumerate(others, 1)
            each["disks"] = [_of_disk(f"shd{number}", drive, each["phase"], steps) for number, drive in named]
    if failed is not None:
        records[-1]["failed"] = failed
    return records


def _of_disk(disk: str, drive: str, phase: str, steps: Sequence[StepResult]) -> dict[str, Any]:
    """What a record says of a disk beside the first."""
    own = [index for index, step in enumerate(steps) if step.phase == phase]
    first, last, settled = steps[own[0]], steps[own[-1]], _settled(steps, own[-1])
    begin, end, after = (each.as_counted_by(disk) for each in (first, last, settled))
    sums = counter_changes(begin.before, after.after)
    loads = [steps[index].extra["loads"][disk] for index in own if "loads" in steps[index].extra]
    return {
        "disk": disk,
        "drive": drive,
        "total_written_bytes": sums.get("written_bytes", 0),
        "total_read_bytes": sum(sums.get(f"{each}_read_bytes", 0) for each in CLASSES),
        "bands_dirty": end.after.get("bands_dirty", 0),
        "bands_cleaned": sums.get("bands_cleaned", 0),
        "cleaning_s": _seconds(max(0, after.after.get("clean_at_ns", 0) - last.end_ns)),
        "counters": sums,
        "load": loads[0] if loads else None,
    }


def _of_phase(
    name: str,
    steps: Sequence[StepResult],
    variant: FileSystem,
    common: Mapping[str, Any],
    host: Mapping[str, Any],
) -> Record:
    own = [index for index, step in enumerate(steps) if step.phase == name]
    if not own:
        raise Failure(f"the machine reported no phase {name!r}.")
    first, last = steps[own[0]], steps[own[-1]]
    settled = _settled(steps, own[-1])
    begin, end, after = first.before, last.after, settled.after
    sums = counter_changes(begin, after)
    loads = [load for index in own if (load := _load(steps[index])) is not None]
    record: Record = {"schema": SCHEMA_VERSION, **common, "phase": name}
    record["virtual_s"] = _seconds(last.end_ns - first.start_ns)
    for direction in ("written", "read"):
        for request_class in CLASSES:
            field = f"{request_class}_{direction}_bytes"
            record[field] = sums.get(field) if variant.reports(request_class) else None
    for direction in ("written", "read"):
        record[f"total_{direction}_bytes"] = sum(sums.get(f"{c}_{direction}_bytes", 0) for c in CLASSES)
    record["bands_dirty"] = end.get("bands_dirty", 0)
    record["bands_dirty_by_class"] = end.get("bands_dirty_by_class", [])
    record["bands_cleaned"] = sums.get("bands_cleaned", 0)
    record["cleaning_s"] = _seconds(max(0, after.get("clean_at_ns", 0) - last.end_ns))
    record["counters"] = sums
    record["load"] = loads[0] if loads else None
    record["statistics"] = _statistics(steps, own[-1], variant.statistics)
    errors = [step.extra["error"] for index in own if (step := steps[index]).do == "load" and step.status != 0]
    if errors:
        record["failed"] = str(errors[0])
    record["host"] = dict(host)
    return record


def _load(step: StepResult) -> Any:
    """What a generator reported, or fio or another program that the plan ran, which leaves JSON in a file."""
    if step.do == "read":
        said = str(step.extra["text"])
        found = fio.load_of(said) or json.loads(said)
    else:
        found = step.extra.get("load")
    return found if found is None else found | rates(found)


def rates(load: Mapping[str, Any]) -> dict[str, Any]:
    """What a load did in a second of its own time, as a field `per_s`; empty if it counts nothing."""
    seconds = sum(part["ns"] for part in load.get("parts", ())) / NS_PER_S
    if not seconds or not load.get("operations"):
        return {}
    counts = {name: round(count / seconds, 3) for name, count in load["operations"].items()}
    bytes_s = {f"{name}_bytes": round(load[f"user_{name}_bytes"] / seconds) for name in ("written", "read")}
    return {"per_s": counts | bytes_s}


_SETTLING = ("read", "drop_caches", "wait_clean", "sleep", "umount", "mount", "write", "exec")


def _settled(steps: Sequence[StepResult], last: int) -> StepResult:
    """The end of what belongs to a phase: dropping caches and waiting included."""
    settled = steps[last]
    for step in steps[last + 1 :]:
        # Some file systems are mounted again when the caches are dropped (FileSystem.served).
        if step.phase is not None or step.do not in _SETTLING:
            break
        settled = step
    return settled


def _statistics(steps: Sequence[StepResult], last: int, paths: Sequence[str]) -> dict[str, int] | None:
    """What the files that the variant names said at the end of a phase, by their names."""
    said = steps[last + 1 : last + 1 + len(paths)]
    if not paths or any(step.do != "read" for step in said):
        return None
    return {Path(path).name: int(str(step.extra["text"])) for path, step in zip(paths, said, strict=True)}


def counter_changes(before: Counters, after: Counters) -> dict[str, int]:
    """How much each summing counter grew."""
    return {
        name: value - before.get(name, 0)
        for name, value in after.items()
        if isinstance(value, int) and name not in _STATES
    }


def _seconds(ns: int) -> float:
    return round(ns / NS_PER_S, 9)


@functools.cache
def schema() -> dict[str, Any]:
    text = Path(__file__).with_name("record.schema.json").read_text()
    parsed: dict[str, Any] = json.loads(text)
    return parsed


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    """Made once: to check the schema itself takes ten times as long as to check a record."""
    return jsonschema.Draft202012Validator(schema())


def check(record: Record) -> None:
    """Refuses a record that does not follow the schema."""
    error = best_match(_validator().iter_errors(record))
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "the record"
        raise Failure(f"a record does not follow its schema: {place}: {error.message}")


def line(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"))


def write(path: Path, records: Iterable[Record]) -> None:
    """Adds records to a file, all or none: what cannot be written whole is taken back."""
    checked = list(records)
    for record in checked:
        check(record)
    data = "".join(line(record) + "\n" for record in checked).encode()
    try:
        with path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                written = 0
                while written < len(data):
                    written += file.write(data[written:])
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(before)
                raise
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; these records are not in it.") from None


def check_target(path: Path) -> None:
    """Refuses, before anything long begins, a file to which records cannot be added: it holds others, or no records."""
    there = path.exists()
    try:
        if there and path.is_file():
            read(path)
        with path.open("ab"):
            pass
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; expected a file that records can be added to.", status=2) from None
    if not there:
        path.unlink()


def replace(path: Path, records: Iterable[Record]) -> None:
    """Makes a file of these records and nothing else. It appears whole, or what was there stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        write(part, records)
        with part.open() as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path) -> list[Record]:
    """The records of a file; a line that is none is a failure that names it."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; expected a file of records.", status=2) from None
    records: list[Record] = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (UnicodeDecodeError, json.JSONDecodeError):
            why = "cut off, as by a full disk or a kill" if number == len(lines) and records else "no JSON"
            told = f"{path}, line {number}: {why}; expected a record (docs/reference/records.md)."
            raise Failure(told, status=2) from None
        try:
            check(record)
        except Failure as failure:
            raise Failure(f"{path}, line {number}: {failure}", status=2) from None
        records.append(record)
    return records


def cell(records: Sequence[Record], file_system: str, phase: str, drive: str | None = None) -> Record:
    """The first record of this phase, brought to its end; on any drive, if none is named."""
    for record in records:
        if record["file_system"] == file_system and record["phase"] == phase and drive in (None, record["drive"]):
            if "failed" in record:
                raise NotFinished(f"{phase} failed on {file_system}: {record['failed']}")
            return record
    raise NotRecorded(f"there is no record of {phase} on {file_system}{f' on {drive}' if drive else ''}.")


def deterministic(record: Record) -> Record:
    """A record without what the host decides: the part that must repeat byte for byte."""
    return {name: value for name, value in record.items() if name != "host"}

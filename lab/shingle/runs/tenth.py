# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether experiments at a tenth still give the same records, under whichever keys (results/tenth.jsonl).

Records are costly. If nothing but the keys of kernel, drive and guest is new in what the same experiments record at a
tenth of their scale, a change has most likely moved no number. The file holds no records but a digest of each
phase, and all keys under which these were seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shingle.paths import ROOT
from shingle.runs.experiment import Experiment, records_of
from shingle.runs.record import Record

FILE = ROOT / "results/tenth.jsonl"
SCALE, SEED = 0.1, 1
# What belongs to the run's place, not to what was measured.
_APART = ("versions", "host")
# Keys of the version that decide what is measured; others say it in words, or follow from these.
_KEYS = ("kernel", "drive_model", "guest")
Keys = dict[str, str]
# What is kept of a phase beside its digest, so that a difference has a size.
_MEASURES = ("virtual_s", "cleaning_s", "bands_dirty", "total_written_bytes", "total_read_bytes")
# The digest, then the measures in this order.
Phase = list[str | float]


@dataclass(frozen=True)
class Seen:
    """Digests of an experiment's phases, by drive, file system, workload and phase, and the keys that gave them."""

    experiment: str
    phases: dict[str, Phase]
    keys: tuple[Keys, ...]


def scale_of(chosen: Experiment) -> float:
    """A tenth of the largest scale that is recorded; without records, of the experiment's own."""
    recorded = [float(each["scale"]) for each in records_of(chosen)]
    return SCALE * max(recorded, default=chosen.scale)


def seen(chosen: Experiment, records: Sequence[Record]) -> Seen:
    """The digests of what an experiment recorded in one go."""
    phases: dict[str, Phase] = {}
    for each in records:
        name = "/".join((each["drive"], each["file_system"], each["workload"], each["phase"]))
        alike = sum(other == name or other.startswith(f"{name}#") for other in phases)
        phases[f"{name}#{alike + 1}" if alike else name] = [digest(each), *(each[measure] for measure in _MEASURES)]
    # An ablation has a kernel of its own.
    keys = {tuple(found.items()): found for found in map(keys_of, records)}
    return Seen(chosen.name, phases, tuple(keys.values()))


def digest(each: Record) -> str:
    """Of everything in a record but its keys, its host, and what follows from the rest (`rates`)."""
    told = {name: value for name, value in each.items() if name not in _APART}
    if told["load"] is not None:
        told["load"] = {name: value for name, value in told["load"].items() if name != "per_s"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def keys_of(each: Record) -> Keys:
    return {name: each["versions"][name] for name in _KEYS if name in each["versions"]}


def read(path: Path = FILE) -> list[Seen]:
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Seen(one["experiment"], one["phases"], tuple(one["keys"])) for one in lines]


def differing(before: Seen, now: Seen) -> list[str]:
    """The phases that are not the same any more; those of a cell that is new say nothing."""
    return sorted(name for name, phase in before.phases.items() if now.phases.get(name) != phase)


def largest(before: Seen, now: Seen) -> tuple[float, str]:
    """How far apart the measures are, as a share of the larger one, and which they are; of phases that both have."""
    found = [
        (abs(float(ours) - float(theirs)) / max(abs(float(ours)), abs(float(theirs))), f"{measure} of {name}")
        for name in before.phases.keys() & now.phases.keys()
        for measure, ours, theirs in zip(_MEASURES, now.phases[name][1:], before.phases[name][1:], strict=True)
        if ours != theirs
    ]
    return max(found, default=(0.0, "none of the measures"))


def latest(known: Iterable[Seen], name: str) -> Seen | None:
    return next((each for each in reversed(list(known)) if each.experiment == name), None)


def added(known: Sequence[Seen], now: Seen) -> list[Seen]:
    """The file's lines with what was seen now: other keys of the last line, or another line."""
    before = latest(known, now.experiment)
    if before is None or differing(before, now):
        return [*known, now]
    more = tuple(each for each in now.keys if each not in before.keys)
    with_more = replace(before, phases={**before.phases, **now.phases}, keys=(*before.keys, *more))
    return [with_more if each is before else each for each in known]


def write(lines: Iterable[Seen], path: Path = FILE) -> None:
    path.write_text("".join(f"{json.dumps(_told(each), sort_keys=True)}\n" for each in lines))


def _told(each: Seen) -> Mapping[str, object]:
    return {"experiment": each.experiment, "phases": each.phases, "keys": list(each.keys)}

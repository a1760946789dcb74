# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records of any run as tables, as a figure and as CSV: also those of no experiment, as `compare` leaves them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shingle.evidence import bars
from shingle.evidence.bars import Bar, Panel
from shingle.failure import Failure
from shingle.runs.record import Record


def runs_side_by_side(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Records that belong into one table, with what they have in common."""
    groups: dict[str, list[Record]] = {}
    for each in records:
        made = each["configuration"]
        title = f"{each['experiment'] or 'compare'}: {each['drive']}, {_scales(each)}, seed {each['seed']}, "
        title += f"{made['memory_mib']} MiB of memory, {made['name_ns'] / 1000:g} us per name change"
        groups.setdefault(title, []).append(each)
    yield from groups.items()


def _scales(record: Record) -> str:
    return ", ".join(f"{name} {scale:g}" for name, scale in record["configuration"]["scales"].items())


def phases(records: Sequence[Record]) -> list[str]:
    """In the order of the records."""
    return list(dict.fromkeys(each["phase"] for each in records))


def draw(records: Sequence[Record], stem: Path) -> None:
    """A panel for each phase of each drive: how long it took, cleaning afterwards included, by file system."""
    panels: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for each in records:
        place = f"{each['drive']}, scale {each['configuration']['scales'].get(each['phase'], each['scale']):g}"
        panels.setdefault((place, each["phase"]), {}).setdefault(each["file_system"], []).append(each)
    if not panels:
        raise Failure("there is no record to draw.")
    bars.draw([
        Panel(f"{phase} on {place}", "seconds of virtual time", [_bar(*each) for each in of.items()])
        for (place, phase), of in panels.items()
    ], stem)  # fmt: skip


def _bar(file_system: str, records: Sequence[Record]) -> Bar:
    done = [each for each in records if "failed" not in each]
    if not done:
        return Bar(file_system, note="did not finish")
    spent = [(float(each["virtual_s"]), float(each["cleaning_s"])) for each in done]
    parts = [("work", sum(work for work, _ in spent) / len(spent)), ("cleaning", sum(c for _, c in spent) / len(spent))]
    return Bar(file_system, tuple(work + cleaning for work, cleaning in spent), parts=tuple(parts))


def as_csv(records: Sequence[Record]) -> str:
    """A line for each record, a column for each number or word in it; of nested ones with a dot."""
    flat = [dict(_flat("", each)) for each in records]
    columns = list(dict.fromkeys(name for each in flat for name in each))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(prefix: str, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, dict):
            yield from _flat(f"{prefix}{name}.", each)
        elif not isinstance(each, list):
            yield f"{prefix}{name}", "" if each is None else each

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What claims expect, fixed before a run: results/expectations.jsonl has every value that an expectation ever had.

A claim whose range, tolerance or basis is not that of its last line there fails a test. `./shingle claims --fix WHY`
adds a line with the reason. docs/results/claims.md lists all changes, so that a reader sees which of them came after a
measurement.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from shingle.paths import ROOT
from shingle.runs.claims import Claim, number
from shingle.runs.experiment import Experiment

FILE = ROOT / "results/expectations.jsonl"


@dataclass(frozen=True)
class Fixed:
    """What a claim expected from some day on, and why it was changed; the first line of a claim has no reason."""

    experiment: str
    target: str
    what: str
    low: float | None
    high: float | None
    tolerance: float
    basis: str
    date: str
    why: str = ""

    @property
    def claim(self) -> tuple[str, str, str]:
        return self.experiment, self.target, self.what


def read(path: Path = FILE) -> list[Fixed]:
    return [Fixed(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def write(lines: Iterable[Fixed], path: Path = FILE) -> None:
    path.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in lines))


def of(chosen: Experiment, claim: Claim, date: str = "") -> Fixed:
    """What the code expects now."""
    return Fixed(
        chosen.number, claim.target, claim.what, claim.low, claim.high, claim.tolerance, claim.basis, date
    )  # fmt: skip


def latest(known: Sequence[Fixed]) -> dict[tuple[str, str, str], Fixed]:
    return {each.claim: each for each in known}


def unfixed(known: Sequence[Fixed], experiments: Sequence[Experiment]) -> list[Fixed]:
    """What the code expects and the file does not have as its last word."""
    last = latest(known)
    now = [of(chosen, claim) for chosen in experiments for claim in chosen.claims]
    return [each for each in now if each.claim not in last or _differs(last[each.claim], each)]


def _differs(one: Fixed, other: Fixed) -> bool:
    return replace(one, date="", why="") != replace(other, date="", why="")


def fixed(known: Sequence[Fixed], experiments: Sequence[Experiment], why: str, today: datetime.date) -> list[Fixed]:
    """The file's lines with those that the code has otherwise."""
    last = latest(known)
    return [
        *known,
        *(
            replace(each, date=today.isoformat(), why=why if each.claim in last else "")
            for each in unfixed(known, experiments)
        ),
    ]


def changes(known: Sequence[Fixed]) -> Iterator[tuple[Fixed, Fixed]]:
    """What was changed: a claim's line, and the one before it."""
    last: dict[tuple[str, str, str], Fixed] = {}
    for each in known:
        if each.claim in last:
            yield each, last[each.claim]
        last[each.claim] = each


def changes_page(path: Path = FILE) -> str:
    """The table of docs/results/claims.md: changes of one day for one reason are one row."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for now, before in changes(read(path)):
        grouped.setdefault((now.date, now.why, _change(before, now)), []).append(f"{now.experiment} {now.target}")
    rows = (
        f"| {date} | {', '.join(dict.fromkeys(claims))} | {change} | {why} |\n"
        for (date, why, change), claims in grouped.items()
    )
    return _CHANGES + "".join(rows)


_CHANGES = """\
Every range, tolerance and basis is fixed in `results/expectations.jsonl`, and a test holds the code to it. A change
needs `./shingle claims --fix "WHY"`. These were made:

| day | rows | change | why |
|---|---|---|---|
"""


def _change(before: Fixed, now: Fixed) -> str:
    told = []
    if (before.low, before.high) != (now.low, now.high):
        told.append(f"{_range(before)} became {_range(now)}")
    if before.tolerance != now.tolerance:
        told.append(f"a tolerance of {before.tolerance:.0%} became {now.tolerance:.0%}")
    if before.basis != now.basis:
        told.append(f"{before.basis} became {now.basis}")
    return ", ".join(told)


def _range(each: Fixed) -> str:
    low, high = ("" if value is None else number(value) for value in (each.low, each.high))
    return low if low == high else f"{low}..{high}"

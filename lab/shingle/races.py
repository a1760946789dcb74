# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads what KCSAN says on a console: which data races are journal_lazy's, and which are stock's own.

On a kernel of build.KCSAN only the files that the series writes or changes are watched, jbd2's among them, which has
races of its own that are known upstream. A report is ours if one of the two functions that it names is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shingle import console, coverage
from shingle.failure import Failure
from shingle.paths import ROOT

_TIME = re.compile(r"^\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
_RULE = "=" * 20
# gcc's copies of a function.
_CLONE = re.compile(r"\.(isra|constprop|part|cold)\b.*")
_HEAD = re.compile(r"BUG: KCSAN: (?:data-race|assert: race) in (.+)$")


@dataclass(frozen=True)
class Race:
    """One report: the functions that it names, and all of it."""

    functions: frozenset[str]
    lines: tuple[str, ...]

    @property
    def ours(self) -> bool:
        return bool(self.functions & our_functions())


def our_functions() -> frozenset[str]:
    """The functions of the whole files in kernel/."""
    names = set[str]()
    for path in sorted((ROOT / "kernel").glob("*/**/*.[ch]")):
        names |= set(coverage.functions_in(path.read_text()).values())
    return frozenset(names)


def split(text: str) -> tuple[str, list[Race]]:
    """A console without its reports of races, and these."""
    rest: list[str] = []
    races: list[Race] = []
    report: list[str] = []
    names: frozenset[str] | None = None
    for line in console.lines(text):
        plain = _TIME.sub("", line)
        if names is None:
            if head := _HEAD.search(plain):
                names, report = frozenset(re.split(r" / ", head[1])), [plain]
            else:
                rest.append(line)
        elif plain.startswith(_RULE):
            races.append(Race(frozenset(_CLONE.sub("", name) for name in names), tuple(report)))
            names = None
        else:
            report.append(plain)
    return "\n".join(rest), races


def without_others(text: str) -> str:
    """A console without the races that are stock's; one of ours is a failure."""
    rest, races = split(text)
    for race in races:
        if race.ours:
            raise Failure(f"the kernel saw a data race: {', '.join(sorted(race.functions))}.", detail=race.lines[:60])
    return rest

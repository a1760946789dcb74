# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads what KCSAN says on a console: which data races are journal_lazy's, and which are stock's own.

On a kernel of build.KCSAN only the files that the series writes or changes are watched, jbd2's among them, which has
races of its own that are known upstream. A report is ours if one of our functions is in one of its two stacks; the
others are counted. A function of stock that a patch changes is not ours.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass

from shingle.failure import Failure
from shingle.machine import console
from shingle.paths import ROOT
from shingle.verify import coverage

_TIME = re.compile(r"^\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
_RULE = "=" * 20
_SHOWN = 8
# gcc's copies of a function.
_CLONE = re.compile(r"\.(isra|constprop|part|cold)\b.*")
_HEAD = re.compile(r"BUG: KCSAN: (?:data-race|assert: race) in (.+)$")
# JBD2_FULL_COMMIT_ONGOING of journal->j_flags: a commit changes it, and every handle reads j_flags without a lock
# (is_handle_aborted()), whoever calls.
_FULL_COMMIT_ONGOING = 0x200
# mballoc's search reads a group's counters without the group's lock, and asks again under it (ext4_mb_scan_group(),
# into which gcc puts ext4_mb_good_group_nolock(), and ext4_mb_find_by_goal()). Others change them under it, whoever
# calls.
_GROUP_SEARCH = frozenset({"ext4_mb_good_group", "ext4_mb_scan_group", "ext4_mb_find_by_goal"})
_GROUP_CHANGES = frozenset({"mb_mark_used", "mb_free_blocks", "mb_set_largest_free_order"})
_CHANGED = re.compile(r"^value changed: (0x[0-9a-f]+) -> (0x[0-9a-f]+)$")
_FRAME = re.compile(r"^ ([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+")


@dataclass(frozen=True)
class Race:
    """One report: the functions that it names, and all of it."""

    functions: frozenset[str]
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        return " / ".join(sorted(self.functions))

    @property
    def ours(self) -> bool:
        changes = [int(found[1], 16) ^ int(found[2], 16) for found in map(_CHANGED.match, self.lines) if found]
        if "jbd2_journal_commit_transaction" in self.functions and changes == [_FULL_COMMIT_ONGOING]:
            return False
        if self.functions & _GROUP_SEARCH and self.functions & _GROUP_CHANGES:
            return False
        stacks = {_CLONE.sub("", frame[1]) for frame in map(_FRAME.match, self.lines) if frame}
        return bool((self.functions | stacks) & our_functions())


@functools.cache
def our_functions() -> frozenset[str]:
    """The functions of the whole files in kernel/, and those that its patches add to others."""
    names = set[str]()
    for path in sorted((ROOT / "kernel").glob("*/**/*.[ch]")):
        names |= set(coverage.functions_in(path.read_text()).values())
    for path in sorted((ROOT / "kernel/patches").glob("*.patch")):
        names |= set(coverage.functions_in(_added(path.read_text())).values())
    return frozenset(names)


def _added(patch: str) -> str:
    """What a patch adds; what it does not ends a function."""
    return "\n".join(line[1:] if line.startswith("+") else "}" for line in patch.splitlines())


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
    if names is not None:
        # The end of the console cut it off, or it swallowed what follows: that is looked at, too.
        races.append(Race(frozenset(_CLONE.sub("", name) for name in names), tuple(report)))
        rest += report[1:]
    return "\n".join(rest), races


def without_others(text: str, others: Counter[str]) -> str:
    """A console without the races that are stock's, which are counted; one of ours is a failure."""
    rest, races = split(text)
    for race in races:
        if race.ours:
            raise Failure(f"the kernel saw a data race: {race.name}.", detail=race.lines[:60])
        others[race.name] += 1
    return rest


def left_out(others: Counter[str]) -> str:
    """What is said of the races that are stock's."""
    if not others:
        return "no data race was reported"
    most = ", ".join(f"{name} ({count})" for name, count in others.most_common(_SHOWN))
    return f"{others.total()} reports of races in stock code, of {len(others)} kinds, were left out: {most}"

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a state of the disk after a power cut was promised to be, how it is looked at, and how it is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shingle.verify import e2fsck as fsck
from shingle.verify.crash_workload import LAZY, STATISTICS, STOCK

_SAID = re.compile(r"; kernel: crash: \S+")
# What is promised of a path: its entry, or None: it is not there.
Promises = dict[str, str | None]


def promises(marks: Sequence[tuple[int, str]], place: int, before: Mapping[str, str | None]) -> Promises:
    """What holds after a cut at `place`, if `before` held at the record's beginning."""
    held = dict(before)
    for at, text in marks:
        if at >= place:
            break
        word, _, rest = text.partition(" ")
        if word == "touch":
            held.pop(rest, None)
        elif word == "gone":
            held[rest] = None
        elif word == "keep":
            path, _, entry = rest.partition("\t")
            held[path] = entry
    return held


def broken_promises(held: Mapping[str, str | None], tree: Mapping[str, str]) -> list[str]:
    found = []
    for path, entry in sorted(held.items()):
        there = tree.get(path)
        if there != entry:
            found.append(f"{path} was synced as {entry or 'gone'} and is {there or 'gone'}")
    return found


@dataclass(frozen=True)
class State:
    """A distinct state: what `shingle-crash states` prints of it."""

    name: str
    source: int
    place: int
    fate: str
    hash: str
    cut: int
    replayed: int
    # Of the replay and of the check: `status` and `text`.
    e2fsck: tuple[Mapping[str, Any], Mapping[str, Any]]

    @property
    def complaints(self) -> list[str]:
        """What stock e2fsck finds wrong."""
        told = zip(("replay", "check"), self.e2fsck, (fsck.is_replayed, fsck.is_content), strict=True)
        return [
            f"e2fsck, {what}, ended with {said['status']}: {said['text']}"
            for what, said, is_well in told
            if not is_well(said["status"], said["text"])
        ]

    @property
    def depth(self) -> int:
        """How often the power was cut, this cut included."""
        return 1 + self.name.count("/") // 2


@dataclass(frozen=True)
class View:
    """One way to look at a state: the mount's options, and which image of it."""

    name: str
    options: str
    replayed: bool = False
    again: bool = False
    read: str | None = None


def views(state: State, *, snapshots: bool = False) -> list[View]:
    """Stock, lazy, what e2fsck replayed; read-only or, at every second place, writable, and stock again after lazy.

    `snapshots`: a lazy mount more, that is asked for the snapshots it read.
    """
    kept = f"{STATISTICS}/rebuilt"
    asked = [View(_ASKED, f"ro,{LAZY}", read=f"{STATISTICS}/mount_snapshots")] if snapshots else []
    if state.place % 2:
        return [
            View("stock", f"ro,{STOCK}"),
            *asked,
            View("lazy", f"ro,{LAZY}", read=kept),
            View("replayed", f"ro,{STOCK}", replayed=True),
        ]
    return [
        View("stock", STOCK),
        *asked,
        View("lazy", LAZY, read=kept),
        View("stock after lazy", f"ro,{STOCK}", again=True),
        View("replayed", f"ro,{STOCK}", replayed=True),
    ]


_ASKED = "lazy, for its snapshots"


@dataclass(frozen=True)
class Judgement:
    problems: tuple[str, ...]
    refused: bool = False
    kept: bool = False
    # The lazy mount read snapshots.
    snapshots: bool = False


def judge(
    state: State,
    looked: Sequence[View],
    answers: Sequence[Mapping[str, Any]],
    trees: Mapping[str, Mapping[str, str]],
    held: Mapping[str, str | None],
    may_refuse: str | None = None,
) -> Judgement:
    """What is wrong with a state."""
    problems = state.complaints
    refused = kept = snapshots = False
    first: str | None = None
    for view, answer in zip(looked, answers, strict=True):
        error = _SAID.sub("", answer.get("error") or "")
        if error:
            if view.name in ("lazy", _ASKED) and may_refuse is not None and may_refuse in error:
                refused = True
            else:
                problems.append(f"{view.name} ({view.options}): {error}")
            continue
        told = answer.get("read") not in ("", "0", None)
        kept, snapshots = kept or (view.name == "lazy" and told), snapshots or (view.name == _ASKED and told)
        tree = str(answer["tree"])
        if first is None:
            first = tree
            problems += [f"{view.name}: {each}" for each in broken_promises(held, trees[tree])]
        elif tree != first:
            problems.append(f"{view.name} shows another tree: {difference(trees[first], trees[tree])}")
    return Judgement(tuple(problems), refused, kept, snapshots)


def difference(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    """The first paths that differ."""
    paths = sorted(path for path in {*a, *b} if a.get(path) != b.get(path))
    shown = [f"{path}: {a.get(path, 'gone')} | {b.get(path, 'gone')}" for path in paths[:3]]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return "; ".join(shown) + more

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Power cuts and kills of what owners run: `./shingle lazy cuts` (docs/design/crash-explorer.md, The owners' tools).

`ext4lazy convert` and `ext4lazy drain` run in the machine on the crash explorer's disk, which records what they write.
Of each record cuts are drawn, on an honest disk and on one that lies about FLUSH. Each state that is left is treated
twice as an owner would: once by what a machine does by itself at boot, and once by the sentences that the tool prints,
followed to the letter until it says that it is done. All files that were there before must be there after both.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from shingle import process
from shingle.build import build
from shingle.failure import Failure
from shingle.page import replaced
from shingle.paths import ROOT
from shingle.verify import crash_round
from shingle.verify.owner_advice import NO_VOLUME, TOOL, run
from shingle.verify.owner_round import Problem, Round, State
from shingle.verify.owner_volumes import Kind

DISKS = ("honest", "lying")
RECORDS = ROOT / "results/owner-cuts.jsonl"
PAGE = ROOT / "docs/results/owner-cuts.md"
_BEGIN, _END = "<!-- owner-cuts: made by `./shingle lazy cuts --write` -->", "<!-- end -->"
# Records differ from seed to seed.
_PER_ROUND = 80
SHOWN = 10


@dataclass
class Explored:
    """What a run found, and what it took."""

    seed: int
    states: list[State] = field(default_factory=list)
    # By volume: the writes of all records.
    writes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu_s: float = 0.0

    @property
    def wrong(self) -> list[State]:
        return [state for state in self.states if state.problems]

    def of(self, title: str, disk: str) -> list[State]:
        return [state for state in self.states if state.kind.title == title and state.disk == disk]


def replay_command(state: State) -> str:
    return f"./shingle lazy cuts --volume {state.kind.title} --seed {state.seed} --replay {state.disk}:{state.name}"


def explore(
    kinds: Sequence[Kind],
    states: int,
    seed: int,
    built: build.Built,
    *,
    disks: Sequence[str] = DISKS,
    kills: int = 0,
    program: Path = TOOL,
    tell: Callable[[str], None] = lambda text: None,
    width: int = 4,
) -> Explored:
    """About so many distinct states: of each tool the same share, of each of its volumes, of each disk; and kills."""
    explored = Explored(seed)
    began, cpu_before_s = time.monotonic(), process.children_cpu_s()
    tools = Counter(kind.tool for kind in kinds)
    killed = [kind for kind in kinds if not kind.mounted]

    def one(kind: Kind) -> None:
        seen: set[str] = set()
        left = {disk: -(-states // (len(tools) * tools[kind.tool] * len(disks))) for disk in disks}
        kills_left = -(-kills // len(killed)) if kind in killed else 0
        own_seed = seed
        while any(left.values()) or kills_left:
            with crash_round.round_folder() as folder:
                part = Round(kind, own_seed, built, folder, program)
                explored.writes[kind.title] += part.record.writes
                before = len(seen)
                for disk in disks:
                    found = part.explore(disk, min(left[disk], _PER_ROUND), seen)
                    left[disk] -= len(found)
                    explored.states += found
                some = part.killed(min(kills_left, _PER_ROUND))
                kills_left -= len(some)
                explored.states += some
            own_seed += 1
            wrong = len(failures(explored))
            rate = len(explored.states) / (time.monotonic() - began)
            tell(f"{len(explored.states)} states, {rate:.1f}/s, {wrong} not as they should be")
            if len(seen) == before and not some:
                break

    process.in_parallel([partial(one, kind) for kind in kinds], width=width)
    explored.seconds, explored.cpu_s = time.monotonic() - began, process.children_cpu_s() - cpu_before_s
    return explored


def replay(kind: Kind, seed: int, name: str, built: build.Built, keep: Path | None = None) -> Explored:
    """Treats one state again; `keep` gets it as it was, as a raw image."""
    disk, _, cut = name.partition(":")
    if disk not in DISKS or not re.fullmatch(r"\d+([lk]|[so]\d+)", cut):
        raise Failure(f"{name!r} is no state; expected a disk and a cut, as in lying:120s77.", status=2)
    began = time.monotonic()
    with crash_round.round_folder() as folder:
        state = Round(kind, seed, built, folder).replay(name, keep)
    return Explored(seed, [state], seconds=time.monotonic() - began)


def failures(explored: Explored) -> list[State]:
    """States that are not as they should be, but for what a disk that lies can do to any ext4.

    That is: at boot it is mounted and cannot be read, until the tool runs again; or a log was written or sent
    home, and the disk has that it is there, or empty, but not all that is or was in it. The advice has an end, but
    where e2fsck replays over the only superblock what tune2fs wrote in the log's place.
    """
    return [state for state in explored.states if state.problems and not _excused(state)]


def _excused(state: State) -> bool:
    if state.disk != "lying" or any(what is Problem.NO_END and NO_VOLUME not in said for what, said in state.problems):
        return False
    return state.replays or all(what is Problem.BOOT for what, _ in state.problems)


def lines(explored: Explored, built: build.Built) -> list[dict[str, Any]]:
    """A line of the record for each volume and disk, and one for all."""
    versions = {
        "linux": built.kernel.version, "kernel": built.kernel.key, "e2fsprogs": _e2fsprogs(),
        "tool": hashlib.sha256(TOOL.read_bytes()).hexdigest()[:16],
    }  # fmt: skip
    groups = {(state.kind.title, state.disk): None for state in explored.states}
    found = []
    for title, disk in groups:
        states = explored.of(title, disk)
        problems = Counter(what.value for state in states for what in {what for what, _ in state.problems})
        found.append({
            "schema": 1, "tool": states[0].kind.tool, "volume": title, "disk": disk, "seed": explored.seed,
            "states": len(states), "by_fate": dict(sorted(Counter(state.fate for state in states).items())),
            "by_command": dict(sorted(Counter(_plain(state.command) for state in states).items())),
            "writes": explored.writes[title], "places": len({(state.seed, state.place) for state in states}),
            "stopped_at_boot": sum(state.stopped for state in states),
            "advised": sum(any(_ADVISED.search(did) for did in state.did) for state in states),
            "problems": dict(sorted(problems.items())),
            "log_of_these": dict(sorted(Counter(state.log for state in states if state.problems).items())),
            "failures": sum(state.kind.title == title and state.disk == disk for state in failures(explored)),
            "versions": versions,
        })  # fmt: skip
    host = {
        "seconds": round(explored.seconds, 1), "cpu_s": round(explored.cpu_s, 1), "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    return [*found, {
        "schema": 1, "tool": "all", "seed": explored.seed, "states": len(explored.states),
        "failures": len(failures(explored)), "host": host, "versions": versions,
    }]  # fmt: skip


_ADVISED = re.compile(r"debugfs -w|e2fsck -f -y")


def _plain(command: str) -> str:
    return re.sub(r" /\S+$", " copy" if "after" in command else "", command)


def _e2fsprogs() -> str:
    _, said = run("e2fsck", "-V")
    return said.split()[1]


def write_record(path: Path, explored: Explored, built: build.Built) -> None:
    with path.open("a") as file:
        for line in lines(explored, built):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def table(explored: Explored) -> Table:
    """A row for each volume and disk."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for heading in ("volume", "disk"):
        shown.add_column(heading, no_wrap=True)
    columns = ("states", "stopped\nat boot", *(problem.value.replace(", ", ",\n") for problem in Problem))
    for heading in columns:
        shown.add_column(heading, justify="right")
    for title, disk in {(state.kind.title, state.disk): None for state in explored.states}:
        states = explored.of(title, disk)
        counts = (sum(any(what is problem for what, _ in state.problems) for state in states) for problem in Problem)
        shown.add_row(
            title, disk, f"{len(states):,}", f"{sum(state.stopped for state in states):,}",
            *(f"{count:,}" for count in counts),
        )  # fmt: skip
    return shown


def markdown(records: Path) -> str:
    """The records as a table: a row for each volume and disk."""
    heads = ("volume", "disk", "states", "stopped at boot", "advice needed", *(each.value for each in Problem))
    rows = ["| " + " | ".join(heads) + " |", "|---|---|" + "--:|" * (len(heads) - 2)]
    sums: dict[tuple[str, str], Counter[str]] = {}
    for line in map(json.loads, records.read_text().splitlines() if records.exists() else []):
        if line["tool"] == "all":
            continue
        what = {"states": line["states"], "stopped": line["stopped_at_boot"], "advised": line["advised"]}
        for key in (line["volume"], line["disk"]), (f"{line['tool']}, all but stock", line["disk"]):
            if line["volume"] != "drain/stock" or key[0] == line["volume"]:
                sums.setdefault(key, Counter()).update(what | line["problems"])
    for (volume, disk), found in sorted(sums.items()):
        counts = (found[each] for each in ("states", "stopped", "advised", *(each.value for each in Problem)))
        rows.append(f"| {volume} | {disk} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return "\n".join(rows)


def page_with(page: str, records: Path) -> str:
    """The page with that table between its two marks."""
    return replaced(page, _BEGIN, _END, f"\n{markdown(records)}\n", PAGE)


def write_page() -> None:
    PAGE.write_text(page_with(PAGE.read_text(), RECORDS))

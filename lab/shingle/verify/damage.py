# SPDX-License-Identifier: MIT OR Apache-2.0
"""Damaged logs: `./shingle crash --damage` (docs/design/crash-explorer.md, Damaged logs).

A workload is recorded as the crash explorer does it, and cut near its end. The log that this leaves is damaged in as
many ways as are asked for, each drawn from the seed and a number. Every one is mounted with journal_lazy, once more
after that, and, as it was, by stock ext4. What must not happen: that the kernel complains of itself, hangs, or shows
other files than before and says nothing.
"""

from __future__ import annotations

import enum
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich import box
from rich.table import Table

from shingle import process
from shingle.build import build
from shingle.catalogue import fs
from shingle.failure import Failure, unknown_name
from shingle.machine import job
from shingle.machine.console import Trouble, diagnose, lines
from shingle.verify import crash_round, crash_state, crash_workload
from shingle.verify.crash_workload import LAZY, STATISTICS, STOCK, Workload

# Logs differ from round to round; boots cost a second.
PER_ROUND = 250
# Of a boot; a state that hangs is found by it.
_BOOT_LIMIT_S = 300.0
_VIEWS = ("lazy", "again", "stock")
_FILE_SYSTEM_SAID = re.compile(r"EXT4-fs (error|warning)|JBD2: .*(damaged|lost|corrupt|[Ii]nvalid|error)")
_LOST = re.compile(r"(\d+) blocks of metadata are lost")
_NUMBERS = re.compile(r"\b(0x[0-9a-f]+|\d+)\b")
# What is said beside the reason.
_NO_REASON = (
    "kept ", "recovery complete", "the snapshot of", "the log behind the snapshot", "the kept log is damaged",
    "error loading journal", "mount failed", "recovery failed", "journal r", "get root inode failed",
    "Could not load journal inode", "shut down", "journal_lazy: cannot start",
)  # fmt: skip
# What the scrub finds meanwhile.
_FOUND = re.compile(r"the tail is moved past it$|is lost with log block|is damaged, nothing is lost$")
_PREFIX = re.compile(r"^\[ *\d+\.\d+\] (EXT4-fs|JBD2)[^:]*: (\S*shd0\S*: )?")


def _snapshots(workload: Workload, seed: int) -> list[job.Step]:
    """Four mounts, so that there are snapshots of several ages, and something behind the newest."""
    steps = []
    for turn in range(4):
        load = crash_workload.marked(
            workload.kind, seed + turn, 220, fsync_one_in=2, path=f"turn{turn}", wide=200, dirs=40,
            **({"clear": crash_workload.WORK} if turn == 2 else {}),
        )  # fmt: skip
        steps += [*crash_workload.mounted(load), *([job.umount()] if turn < 3 else [])]
    return steps


# Of the crash explorer's workloads those whose logs differ most; and two with snapshots, which small logs do not have.
WORKLOADS = {
    each.name: each
    for each in (
        *(crash_workload.WORKLOADS[name] for name in ("cleaner", "small-blocks")),
        replace(crash_workload.WORKLOADS["storm"], journal_mib=4, disk_mib=32),
        replace(crash_workload.WORKLOADS["quota"], journal_mib=8, disk_mib=32),
        Workload("snapshots", "snapshots in a log of 4 KiB blocks", "mixed", _snapshots, journal_mib=32, disk_mib=96),
        Workload(
            "small-snapshots", "many snapshots in a log of 1 KiB blocks", "mixed", _snapshots, block_bytes=1024,
            journal_mib=8, disk_mib=48,
        ),
    )
}  # fmt: skip


class Outcome(enum.Enum):
    """What became of a damaged log, best first."""

    RECOVERED = "recovered"
    LOSS_NAMED = "loss named"
    REFUSED = "refused"
    # Only below a checksum that was made right, or of a block that is a whole one of another time.
    UNSAID = "unsaid"
    WRONG = "wrong"


@dataclass(frozen=True)
class State:
    """A damaged log: what `shingle-crash damage` prints of it."""

    number: int | None
    hash: str
    state: int
    done: tuple[tuple[str, str, str], ...]
    ends: bool
    cut: str
    blocks: int

    @property
    def name(self) -> str:
        return "healthy" if self.number is None else str(self.number)

    @property
    def what(self) -> str:
        """The row of the table that it counts in."""
        return "several" if len(self.done) > 1 else self.done[0][0]

    @property
    def label(self) -> str:
        return " and ".join(f"{target} {way}" for target, way, _ in self.done) + (", the log ends" if self.ends else "")

    @property
    def consistent(self) -> bool:
        """Whether some of it cannot be told from what was written: its checksum is right, or the log just ends."""
        return self.ends or any(
            way == "forged"
            or (target, way) == ("marker", "zeroed")
            or (way in ("stale", "exchanged", "torn") and target in ("copy", "superblock", "behind"))
            for target, way, _ in self.done
        )


@dataclass(frozen=True)
class Seen:
    """One mount of a state."""

    tree: Mapping[str, str] | None
    error: str
    digest: str
    said: str

    @property
    def named(self) -> bool:
        """Whether a loss was."""
        told = [line for line in lines(self.said) if "nothing is lost" not in line and "scanning the whole" not in line]
        return any(_FILE_SYSTEM_SAID.search(line) for line in told)


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    reason: str = ""
    problems: tuple[str, ...] = ()


def reason(seen: Seen) -> str:
    """Why a mount was refused: the last thing that the kernel said and that has a reason, without names and numbers."""
    said = [_PREFIX.sub("", line) for line in lines(seen.said) if "EXT4-fs" in line or "JBD2" in line]
    told = [line for line in said if not (line.startswith(_NO_REASON) or _FOUND.search(line))] or said[:1]
    return _NUMBERS.sub("N", told[-1] if told else seen.error)[:100]


def judge(state: State, healthy: Seen, lazy: Seen, again: Seen) -> Verdict:
    """What became of a state under journal_lazy, and whether that is as it should be."""
    for view, seen in (("lazy", lazy), ("again", again)):
        # A file system that finds errors says so; it must not be unwell itself.
        trouble = diagnose(seen.said, (Trouble.FILE_SYSTEM_ERROR,))
        if trouble is not None:
            return Verdict(Outcome.WRONG, problems=(f"{view}: the kernel says: {trouble.line}",))
    if lazy.tree is None:
        return Verdict(Outcome.REFUSED, reason(lazy))
    if again.tree is None and any(each[:2] == ("superblock", "forged") for each in state.done):
        # Transaction ids that begin anew meet the older ones with the same numbers.
        return Verdict(Outcome.REFUSED, reason(again))
    if again.tree is None:
        return Verdict(Outcome.WRONG, problems=(f"mounted once, then no more: {reason(again)}",))
    assert healthy.tree is not None
    if again.tree != lazy.tree and not again.named:
        differs = crash_state.difference(lazy.tree, again.tree)
        return Verdict(Outcome.WRONG, problems=(f"the second mount shows another tree: {differs}",))
    if lazy.tree == healthy.tree:
        # Bitmaps are not in the tree; what the map does not have must have been named, or replayed by stock recovery.
        if lazy.digest in (healthy.digest, "0") or "damaged" in lazy.said or lazy.named or state.consistent:
            return Verdict(Outcome.RECOVERED)
        return Verdict(Outcome.WRONG, problems=("the map is another one, and nothing was said",))
    if lazy.named:
        lost = sum(map(int, _LOST.findall(lazy.said)))
        return Verdict(Outcome.LOSS_NAMED, "blocks named" if lost else "found when it was used")
    differs = crash_state.difference(healthy.tree, lazy.tree)
    if state.consistent:
        return Verdict(Outcome.UNSAID, problems=(differs,))
    return Verdict(Outcome.WRONG, problems=(f"other files, and nothing was said: {differs}",))


def judge_stock(healthy: Seen, stock: Seen) -> Outcome:
    """What stock recovery makes of the same log."""
    if stock.tree is None:
        return Outcome.REFUSED
    if stock.tree == healthy.tree:
        return Outcome.RECOVERED
    return Outcome.LOSS_NAMED if stock.named else Outcome.UNSAID


@dataclass(frozen=True)
class Found:
    """A state that is not as it should be."""

    workload: str
    seed: int
    state: State
    problems: tuple[str, ...]

    @property
    def replay(self) -> str:
        return f"./shingle crash --damage --workload {self.workload} --seed {self.seed} --replay {self.state.name}"


@dataclass
class Tally:
    """What was found, by what was damaged."""

    hashes: set[str] = field(default_factory=set)
    lazy: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    stock: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[Found] = field(default_factory=list)
    unsaid: list[Found] = field(default_factory=list)
    stock_trouble: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    seconds: float = 0.0

    @property
    def states(self) -> int:
        return sum(self.lazy.values())

    def add(self, other: Tally) -> None:
        self.hashes |= other.hashes
        for name in ("lazy", "stock", "ways", "reasons", "stock_trouble"):
            getattr(self, name).update(getattr(other, name))
        self.wrong += other.wrong
        self.unsaid += other.unsaid
        self.rounds += other.rounds


class Log:
    """The log that one workload with one seed leaves, and what is done to it; all in the folder of the round."""

    def __init__(self, workload: Workload, seed: int, machines: crash_round.Machines, folder: Path) -> None:
        self.workload = workload
        self.seed = seed
        self._round = crash_round.Round(workload, seed, machines, folder)

    def damaged(self, numbers: Sequence[int], keep: Path | None = None) -> Tally:
        states = self._damaged_states(numbers, keep)
        tally = Tally(rounds=1)
        left = [state for state in states if state.number is not None]
        while left:
            seen, last, died = self._looked([states[0], *left])
            if died is not None:
                # What was found of the others was not written out.
                name, _, view = last.partition("/")
                culprit = next((state for state in left if state.name == name), None)
                if culprit is None:
                    raise Failure(f"the log of {self.workload.name}, seed {self.seed}: {died}")
                verdict = Verdict(Outcome.WRONG, problems=(f"{view}: {died}",))
                self._count_damage(tally, culprit, verdict, Outcome.WRONG)
                left.remove(culprit)
                continue
            healthy = seen["healthy"]["lazy"]
            if healthy.tree is None:
                raise Failure(f"the log of {self.workload.name}, seed {self.seed}, is not healthy: {healthy.said}")
            for state in left:
                self._judged(tally, state, healthy, seen[state.name])
            break
        return tally

    def _judged(self, tally: Tally, state: State, healthy: Seen, views: Mapping[str, Seen]) -> None:
        verdict = judge(state, healthy, views["lazy"], views["again"])
        trouble = diagnose(views["stock"].said, (Trouble.FILE_SYSTEM_ERROR,))
        if trouble is not None:
            tally.stock_trouble[_NUMBERS.sub("N", _PREFIX.sub("", trouble.line))] += 1
        self._count_damage(tally, state, verdict, judge_stock(healthy, views["stock"]))

    def _count_damage(self, tally: Tally, state: State, verdict: Verdict, stock: Outcome) -> None:
        tally.hashes.add(state.hash)
        tally.lazy[state.what, verdict.outcome] += 1
        tally.stock[state.what, stock] += 1
        tally.ways.update((target, way) for target, way, _ in state.done)
        if verdict.outcome is Outcome.REFUSED:
            tally.reasons[verdict.reason] += 1
        found = Found(self.workload.name, self.seed, state, verdict.problems)
        if verdict.outcome is Outcome.WRONG:
            tally.wrong.append(found)
        elif verdict.outcome is Outcome.UNSAID:
            tally.unsaid.append(found)

    def _damaged_states(self, numbers: Sequence[int], keep: Path | None) -> list[State]:
        source = self._round.source()
        image = self._round.folder / "journal.img"
        self._round.tool("cut", source.disk, source.record, "0l", "--raw", "-o", image)
        said = process.run(
            ["/sbin/debugfs", "-R", "dump_extents -l <8>", image], what="debugfs dump_extents", limit_s=60
        )  # fmt: skip
        image.unlink()
        plan = {
            "disk": str(source.disk), "record": str(source.record),
            "journal": fs.parse_ext4_journal(said, block_bytes=self.workload.block_bytes).journal,
            "block_bytes": self.workload.block_bytes, "seed": self._round.derived("damage"), "numbers": list(numbers),
            "seen": [],
        }  # fmt: skip
        (self._round.folder / "damage.json").write_text(json.dumps(plan))
        raw: list[str | Path] = [] if keep is None else ["--raw", keep]
        told = self._round.tool(
            "damage", self._round.folder / "damage.json", "-o", self._round.folder / "states.disk", *raw
        )
        return [
            State(**line | {"done": tuple(tuple(each) for each in line["done"])})
            for line in map(json.loads, told.splitlines())
        ]

    def _looked(self, states: Sequence[State]) -> tuple[dict[str, dict[str, Seen]], str, str | None]:
        """Mounts each state three times; which was the last, and why the machine came down there, if it did."""
        checks = self._round.folder / "checks.jsonl"
        with checks.open("w") as file:
            for state in states:
                for view in _VIEWS:
                    mount = {
                        "state": None if view == "again" else state.state,
                        "options": STOCK if view == "stock" else f"ro,{LAZY}" if view == "again" else LAZY,
                        "read": None if view == "stock" else f"{STATISTICS}/map_digest",
                        "damaged": True,
                    }  # fmt: skip
                    file.write(json.dumps({"name": f"{state.name}/{view}", "mounts": [mount]}) + "\n")
        step: job.Step = {"do": "check_states", "checks": checks.name, "answers": "answers.jsonl"}
        name, died = f"look{self._round.tally.boots}.out", None
        try:
            self._round.boot(
                name, [step], self._round.folder / "states.disk", "main", files=(checks,), expected=tuple(Trouble)
            )
        except Failure as failure:
            if process.stopping():
                raise
            died = " ".join((str(failure), *failure.detail))
        out = self._round.folder / name
        console = (out / "console.log").read_text(errors="replace")
        names = [f"{state.name}/{view}" for state in states for view in _VIEWS]
        said = crash_round.by_state(console, names)
        trees, answers = crash_round.read_answers(out / "answers.jsonl")
        seen: dict[str, dict[str, Seen]] = {}
        for each in (each for each in names if each in answers):
            number, _, view = each.partition("/")
            answer = answers[each][0]
            tree = trees[answer["tree"]] if "tree" in answer else None
            error, digest = str(answer.get("error") or ""), str(answer.get("read") or "")
            seen.setdefault(number, {})[view] = Seen(tree, error, digest, said.get(each, ""))
        return seen, next(reversed(said), ""), died


@dataclass(frozen=True)
class Explored:
    tally: Tally
    seconds: float


def explore(
    workloads: Sequence[Workload],
    states: int,
    seed: int,
    machines: crash_round.Machines,
    *,
    tell: Callable[[str], None] = lambda text: None,
    width: int = 2,
) -> Explored:
    """So many damaged logs, the same share of each workload, `width` rounds side by side."""
    share = -(-states // len(workloads))
    rounds = max(1, -(-share // PER_ROUND))
    total, lock, began = Tally(), threading.Lock(), time.monotonic()

    def one(workload: Workload, own_seed: int) -> None:
        with crash_round.round_folder() as folder:
            tally = Log(workload, own_seed, machines, folder).damaged(range(-(-share // rounds)))
        with lock:
            total.add(tally)
            rate = total.states / (time.monotonic() - began)
            tell(f"{total.states} logs, {rate:.1f}/s, {len(total.wrong)} not as they should be")

    tasks = [lambda w=workload, s=seed + number: one(w, s) for number in range(rounds) for workload in workloads]
    process.in_parallel(tasks, width=width)
    return Explored(total, time.monotonic() - began)


def replay(workload: Workload, seed: int, name: str, machines: crash_round.Machines, *, keep: Path | None) -> Explored:
    """Damages one log again, in the same way."""
    if not name.isdigit():
        raise Failure(f"{name!r} is no damage; expected its number.", status=2)
    began = time.monotonic()
    with crash_round.round_folder() as folder:
        tally = Log(workload, seed, machines, folder).damaged([int(name)], keep)
    return Explored(tally, time.monotonic() - began)


def find(name: str) -> Workload:
    if name not in WORKLOADS:
        raise unknown_name("workload whose log is damaged", name, WORKLOADS)
    return WORKLOADS[name]


_COLUMNS = (Outcome.RECOVERED, Outcome.LOSS_NAMED, Outcome.REFUSED, Outcome.UNSAID, Outcome.WRONG)


def tables(explored: Explored) -> list[Table]:
    """By what was damaged, with what stock recovery makes of it; and why mounts were refused."""
    tally = explored.tally
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    shown.add_column("damaged", no_wrap=True)
    for heading in ("logs", *(outcome.value for outcome in _COLUMNS), *(f"stock\n{o.value}" for o in _COLUMNS[:-1])):
        shown.add_column(heading, justify="right")
    targets = sorted({target for target, _ in tally.lazy})
    for target in [*targets, None]:

        def count(counter: Counter[tuple[str, Outcome]], outcome: Outcome, only: str | None = target) -> int:
            return sum(n for (t, o), n in counter.items() if o is outcome and only in (None, t))

        row = [count(tally.lazy, outcome) for outcome in _COLUMNS]
        shown.add_row(
            target or "all", f"{sum(row):,}", *(f"{n:,}" for n in row),
            *(f"{count(tally.stock, outcome):,}" for outcome in _COLUMNS[:-1]),
        )  # fmt: skip
    reasons = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    reasons.add_column("refused", justify="right")
    reasons.add_column("because")
    for why, n in tally.reasons.most_common():
        reasons.add_row(f"{n:,}", why)
    return [shown, reasons]


def write_record(path: Path, explored: Explored, built: build.Built, seed: int) -> None:
    tally = explored.tally
    by_target: dict[str, dict[str, dict[str, int]]] = {}
    for kind, counter in (("lazy", tally.lazy), ("stock", tally.stock)):
        for (target, outcome), n in sorted(counter.items(), key=lambda item: (item[0][0], item[0][1].value)):
            by_target.setdefault(target, {}).setdefault(kind, {})[outcome.value] = n
    ways: dict[str, dict[str, int]] = {}
    for (target, way), n in sorted(tally.ways.items()):
        ways.setdefault(target, {})[way] = n
    line = {
        "schema": 1, "workload": "damage", "seed": seed, "rounds": tally.rounds, "states": tally.states,
        "distinct": len(tally.hashes), "by_target": by_target, "ways": ways,
        "refused": dict(tally.reasons.most_common()),
        "failures": len(tally.wrong),
        "unsaid": [f"{f.workload} {f.seed} {f.state.name}: {f.state.label}" for f in tally.unsaid],
        "stock_complains": dict(tally.stock_trouble.most_common()),
        "host": {
            "seconds": round(explored.seconds, 1), "processors": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
        },
        "versions": {"linux": built.kernel.version, "kernel": built.kernel.key},
    }  # fmt: skip
    with path.open("a") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""One workload with one seed: what is recorded of it, the states that come from the records, and how they are checked.

The workload is recorded once, and so are recoveries of some of the states that it can leave, and recoveries of some of
the states that those can leave (docs/design/crash-explorer.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shingle import process
from shingle.build import build
from shingle.catalogue import fs
from shingle.failure import Failure
from shingle.machine import job, machine
from shingle.machine.console import Trouble, diagnose, lines
from shingle.paths import IN_MACHINE, run_folder
from shingle.verify import crash_workload
from shingle.verify.crash_blocks import Blocks
from shingle.verify.crash_state import Judgement, Promises, State, View, judge, promises, views
from shingle.verify.crash_workload import LAZY, MOUNTED, STOCK, Workload

# Which share of a round's states is cut from the workload, from a recovery, from a recovery of a recovery.
_SHARES = (0.5, 0.3, 0.2)
# Of so many nested states one more recovery is recorded, within these limits.
_STATES_A_RECOVERY = 60
_RECOVERIES_MIN, _RECOVERIES_MAX = 3, 16
_PER_BOOT = 400
_ORACLE = IN_MACHINE / "oracle.py"
_MEMORY_MIB = 256
_BOOT_LIMIT_S = 900.0
_TOOL_LIMIT_S = 900.0
_MIB = 1 << 20
_TIME = re.compile(r"^\[ *\d+\.\d+\] ")
_ANNOUNCED = re.compile(r"crash: (\S+)$")


@dataclass
class Source:
    """A record and what came before it."""

    name: str
    disk: Path
    record: Path
    marks: list[tuple[int, str]]
    before: Promises
    blocks: Blocks | None = None
    # Cuts that were tried, and where they were.
    tried: int = 0
    boundaries: int = 0
    writes: int = 0
    boundaries_cut: set[int] = field(default_factory=set)
    writes_cut: set[int] = field(default_factory=set)

    @property
    def depth(self) -> int:
        """How often the power was cut before."""
        return self.name.count("/") // 2

    @property
    def early(self) -> int:
        """The event with which the first mount was over."""
        return next((at for at, text in self.marks if text == MOUNTED), 0)


@dataclass
class Tally:
    """What was explored."""

    # Of the states: what is equal counts once, also in a sum.
    hashes: set[str] = field(default_factory=set)
    by_depth: Counter[int] = field(default_factory=Counter)
    by_fate: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    # With snapshots in the log that the lazy mount read.
    snapshots: int = 0
    # Filled, drained and compared.
    compared: int = 0
    # Blocks whose version was compared with what may be there.
    blocks: int = 0
    # Blocks of data that moved while there was a record, where the workload has data_relocate.
    moved: int = 0
    refused: int = 0
    boundaries: int = 0
    boundaries_cut: int = 0
    writes: int = 0
    writes_cut: int = 0
    rounds: int = 0
    boots: int = 0
    host_s: float = 0.0
    failures: list[Found] = field(default_factory=list)

    @property
    def states(self) -> int:
        """How many distinct states."""
        return len(self.hashes)

    def close(self, sources: Sequence[Source]) -> None:
        """Takes over where the records were cut."""
        for source in sources:
            self.boundaries, self.writes = self.boundaries + source.boundaries, self.writes + source.writes
            self.boundaries_cut += len(source.boundaries_cut)
            self.writes_cut += len(source.writes_cut)

    def add(self, other: Tally) -> None:
        self.hashes |= other.hashes
        for name in (
            "kept",
            "snapshots",
            "compared",
            "blocks",
            "moved",
            "refused",
            "boundaries",
            "boundaries_cut",
            "writes",
            "writes_cut",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rounds, self.boots, self.host_s = (
            self.rounds + other.rounds, self.boots + other.boots, self.host_s + other.host_s,
        )  # fmt: skip
        self.by_depth += other.by_depth
        self.by_fate += other.by_fate
        self.failures += other.failures


@dataclass(frozen=True)
class Found:
    """A state that is not as it should be."""

    workload: str
    seed: int
    name: str
    problems: tuple[str, ...]
    flush_ignored: bool = False

    @property
    def replay(self) -> str:
        lie = " --flush-ignored" if self.flush_ignored else ""
        return f"./shingle crash --workload {self.workload} --seed {self.seed} --replay {self.name}{lie}"


Machines = Callable[[str], build.Built]


class Round:
    """One workload with one seed, in a folder of its own."""

    def __init__(
        self, workload: Workload, seed: int, machines: Machines, folder: Path, *, flush_ignored: bool = False
    ) -> None:  # fmt: skip
        self.workload = workload
        self.seed = seed
        self.folder = folder
        self.flush_ignored = flush_ignored
        self._machines = machines
        self._sources: dict[str, Source] = {}
        self._seen: set[str] = set()
        self.tally = Tally(rounds=1)

    # The disks differ: FUA or not, and how long requests take and overtake each other.
    @property
    def _kind(self) -> list[str]:
        delay_us = (300, 3000, 12000)[self.seed % 3]
        return ["--delay-us", str(delay_us), *(["--no-fua"] if self.seed % 2 else [])]

    def tool(self, *arguments: str | Path) -> str:
        argv = [self._machines("main").crates.crash, *arguments]
        return process.run(argv, what=f"shingle-crash {arguments[0]}", limit_s=_TOOL_LIMIT_S)

    def boot(self, name: str, steps: Sequence[job.Step], disk: Path, kernel: str, **more: Any) -> machine.Outcome:
        out = self.folder / name
        out.mkdir()
        boot = machine.Boot(
            steps=tuple(steps), drive=disk, seed=self.seed, memory_mib=_MEMORY_MIB, host_limit_s=_BOOT_LIMIT_S,
            kernel_arguments=("loglevel=5", "printk.devkmsg=on", "shingle.memory_mb=2048"), **more,
        )  # fmt: skip
        self.tally.boots += 1
        return machine.run(self._machines(kernel).machine, boot, out)

    def _formatted(self) -> Path:
        image, disk = self.folder / "base.img", self.folder / "base.disk"
        with image.open("wb") as file:
            file.truncate(self.workload.disk_mib * _MIB)
        extended = f"lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed={fs.HASH_SEED}"
        size = self.workload.made_mib or self.workload.disk_mib
        process.run(
            ["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-U", fs.UUID, "-N", "1024", "-E", extended,
             *self.workload.extended, image, f"{size}M"],
            what="mke2fs", limit_s=60, env=os.environ | {"E2FSPROGS_FAKE_TIME": "1767225600"},
        )  # fmt: skip
        self.tool("disk", image, *self._kind, "-o", disk)
        image.unlink()
        return disk

    def _recorded(
        self, name: str, disk: Path, steps: Sequence[job.Step], before: Promises, blocks: Blocks | None = None
    ) -> Source:  # fmt: skip
        """`blocks`: what its machine begins with."""
        number = len(self._sources)
        record, notes = self.folder / f"{number}.record", self.folder / "notes.json"
        files = list(self.workload.programs)
        if blocks is not None:
            notes.write_text(blocks.notes())
            files.append(notes)
        counted = [job.read(crash_workload.MOVED)] if self.workload.options else []
        ran = self.boot(
            f"{number}.out", [*steps, *counted], disk, self.workload.kernel, trace=record, files=tuple(files),
            expected=self.workload.complains,
        )  # fmt: skip
        self.tally.moved += int(str(ran.steps[-1].extra["text"])) if counted else 0
        marks = [(int(at), str(text)) for at, text in map(json.loads, self.tool("marks", record).splitlines())]
        source = Source(name, disk, record, marks, before)
        if self.workload.has_blocks:
            earlier = blocks or Blocks()
            source.blocks = Blocks.noted(self.folder / f"{number}.out/notes.json", earlier.before, earlier.began_with)
        self._sources[name] = source
        return source

    def source(self, name: str = "") -> Source:
        """The record that begins with this chain of cuts and recoveries, as in `120s77/L/`; made if it is not there."""
        if name in self._sources:
            return self._sources[name]
        if not name:
            steps = self.workload.steps(self.workload, self.derived("workload"))
            return self._recorded("", self._formatted(), steps, {})
        *chain, cut, recovery = name.rstrip("/").split("/")
        parent = self.source("".join(f"{part}/" for part in chain))
        disk = self.folder / f"{len(self._sources)}.disk"
        self.tool("cut", parent.disk, parent.record, cut, *self._lie, *self._kind, "-o", disk)
        return self._nested(parent, cut, recovery, disk)

    def _nested(self, parent: Source, cut: str, recovery: str, disk: Path) -> Source:
        name = f"{parent.name}{cut}/{recovery}/"
        seed = self.derived(name)
        load = self.workload.deeper(self.workload, seed, name.count("/") // 2)
        beside = recovery == "L" and self.workload.beside
        wrapped = [job.background(list(beside)), load, job.stop_background()] if beside else [load]
        steps = crash_workload.mounted(*wrapped, options=self._options(recovery))
        place = int(re.match(r"\d+", cut)[0])  # type: ignore[index]
        blocks = parent.blocks and parent.blocks.after(parent.marks, place)
        return self._recorded(name, disk, steps, promises(parent.marks, place, parent.before), blocks)

    def _options(self, recovery: str) -> str:
        return self.workload.lazy if recovery == "L" else STOCK

    @property
    def _lie(self) -> list[str]:
        return ["--flush-ignored"] if self.flush_ignored else []

    def derived(self, what: str) -> int:
        """A seed of its own for each part of a round."""
        text = f"{self.workload.name} {self.seed} {what}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")

    def _chosen_sources(self, count: int) -> list[Source]:
        """The workload's record, and recoveries of some states, and of some states of those."""
        levels = [[self.source()]]
        for depth in (1, 2):
            level = []
            recoveries = round(count * _SHARES[depth] / _STATES_A_RECOVERY)
            for number in range(min(max(recoveries, _RECOVERIES_MIN), _RECOVERIES_MAX)):
                parent = levels[-1][number % len(levels[-1])]
                recovery = "LSL"[(number + depth) % 3]
                disk = self.folder / f"{len(self._sources)}.disk"
                seed = self.derived(f"parent {depth} {number}")
                # After the first mount of the workload, or a cut leaves nothing to recover.
                after = parent.early if depth == 1 else 0
                cut = self.tool(
                    "cut", parent.disk, parent.record, f"random:{seed}", "--after", str(after), *self._lie, *self._kind,
                    "-o", disk,
                ).strip()  # fmt: skip
                name = f"{parent.name}{cut}/{recovery}/"
                if name not in self._sources:
                    level += self._recovery(parent, cut, recovery, disk)
            # Without any, the next level begins where this one did.
            levels.append(level or levels[-1])
        return list({source.name: source for level in levels for source in level}.values())

    def _recovery(self, parent: Source, cut: str, recovery: str, disk: Path) -> list[Source]:
        """The record of a recovery; none, and a failure, if the state cannot be recovered."""
        try:
            return [self._nested(parent, cut, recovery, disk)]
        except Failure as failure:
            # The next record takes this one's number.
            shutil.rmtree(self.folder / f"{len(self._sources)}.out", ignore_errors=True)
            said = "\n".join((str(failure), *failure.detail))
            if process.stopping():
                raise
            if recovery == "L" and self.workload.may_refuse is not None and self.workload.may_refuse in said:
                return []
            problem = f"a recovery of it ({self._options(recovery)}) did not end well: {said}"
            self._wrong(f"{parent.name}{cut}", (problem,))
            return []

    def explore(self, count: int) -> Tally:
        """Checks about so many distinct states."""
        sources = self._chosen_sources(count)
        depths = Counter(source.depth for source in sources)
        wanted = {
            source.name: max(1, round(count * _SHARES[source.depth] / depths[source.depth])) for source in sources
        }
        while any(wanted.values()):
            # A boot's worth at a time, of each source its share.
            left = sum(wanted.values())
            part = [(source, -(-wanted[source.name] * min(_PER_BOOT, left) // left), None) for source in sources]
            states = self._states(part)
            if not states:
                break
            self._look(states, sources)
            got = Counter(state.source for state in states)
            for number, (source, asked, _) in enumerate(part):
                # A record that has no more distinct states than it gave is done with.
                wanted[source.name] = wanted[source.name] - asked if got[number] == asked else 0
        self.tally.close(sources)
        return self.tally

    def replay(self, name: str) -> Tally:
        """Checks one state."""
        head, slash, cut = name.rpartition("/")
        source = self.source(f"{head}{slash}")
        self._look(self._states([(source, 1, [cut])]), [source])
        return self.tally

    def image(self, name: str, target: Path) -> None:
        """Writes a state as a raw image."""
        head, slash, cut = name.rpartition("/")
        source = self.source(f"{head}{slash}")
        self.tool("cut", source.disk, source.record, cut, *self._lie, "--raw", "-o", target)

    def _states(self, wanted: Sequence[tuple[Source, int, list[str] | None]]) -> list[State]:
        plan = {
            "flush_ignored": self.flush_ignored,
            "seen": sorted(self._seen),
            "sources": [
                {
                    "name": source.name, "disk": str(source.disk), "record": str(source.record), "count": count,
                    "early": source.early if source.name else 0, "seed": self.derived(f"cuts {source.name}"),
                    "skip": source.tried, "cuts": cuts,
                }
                for source, count, cuts in wanted
            ],
        }  # fmt: skip
        (self.folder / "plan.json").write_text(json.dumps(plan))
        said = self.tool(
            "states", self.folder / "plan.json", "-o", self.folder / "states.disk", "--scratch", self.folder
        )
        states = []
        for line in map(json.loads, said.splitlines()):
            if "hash" in line:
                states.append(State(**line))
                self._seen.add(line["hash"])
                continue
            source, _, _ = wanted[line["source"]]
            source.tried += line["tried"]
            source.boundaries, source.writes = line["boundaries"], line["writes"]
            source.boundaries_cut.update(line["boundaries_cut"])
            source.writes_cut.update(line["writes_cut"])
        return states

    def _look(self, states: Sequence[State], sources: Sequence[Source]) -> None:
        """Boots machines that look at these states. One that brings its machine down has failed; the rest goes on."""
        left = list(states)
        looked = {state.name: views(state, snapshots=True) for state in states}
        wrong_before = len(self.tally.failures)
        while left:
            name = f"look{self.tally.boots}.out"
            died: str | None = None
            try:
                self._boot_to_look(name, left, looked)
            except Failure as failure:
                died = str(failure)
            said = by_state((self.folder / name / "console.log").read_text(errors="replace"), looked)
            if died is not None:
                # What it found of the states before was not written out.
                if process.stopping() or not said:
                    raise Failure(died)
                culprit = list(said)[-1]
                self._count(next(state for state in left if state.name == culprit), Judgement((died,)))
                left = [state for state in left if state.name != culprit]
                continue
            trees, answers = read_answers(self.folder / name / "answers.jsonl")
            for state in left:
                held = self._held(state, sources)
                judged = judge(state, looked[state.name], answers[state.name], trees, held, self.workload.may_refuse)
                trouble = diagnose(said[state.name])
                if trouble is not None:
                    judged = replace(
                        judged, problems=(*judged.problems, f"the kernel says: {_TIME.sub('', trouble.line)}")
                    )
                self._count(state, judged)
            break
        wrong = {found.name for found in self.tally.failures[wrong_before:]}
        if self.workload.has_blocks:
            self._look_at_blocks([state for state in states if state.name not in wrong], sources)
        self._fill_and_drain([state for state in states[:: self.workload.filled_one_in] if state.name not in wrong])

    def _fill_and_drain(self, states: Sequence[State]) -> None:
        """What a lazy mount would write over the files of others is found by filling all that is free."""
        for state, answer, problems in self._answers("filled and drained", states, _ORACLE):
            if answer["wrong"].startswith(_NOT_MOUNTED) and self.workload.may_refuse is not None:
                # Which the other looks have judged.
                continue
            self.tally.compared += 1
            problems += [f"filled and drained: {answer['wrong']}"] if answer["wrong"] else []
            if problems:
                self._wrong(state.name, tuple(problems))

    def _look_at_blocks(self, states: Sequence[State], sources: Sequence[Source]) -> None:
        """No block is older than its file's last sync, or of another file."""
        for state, answer, problems in self._answers("its blocks", states, crash_workload.BLOCKS_PROGRAM):
            source = sources[state.source]
            assert source.blocks is not None
            files = {int(file): versions for file, versions in answer.get("files", {}).items()}
            self.tally.blocks += sum(map(len, files.values()))
            problems += [f"its blocks: {answer['error']}"] if "error" in answer else []
            problems += source.blocks.wrong(files, source.blocks.held(source.marks, state.place))
            if problems:
                self._wrong(state.name, tuple(problems[:_WRONG_SHOWN]))

    def _answers(
        self, what: str, states: Sequence[State], program: Path
    ) -> Iterator[tuple[State, dict[str, Any], list[str]]]:  # fmt: skip
        """What a program in the machine says of each state, and what the kernel complains of meanwhile.

        A state that brings the machine down has failed.
        """
        left = list(states)
        while left:
            checks, name = self.folder / "asked.jsonl", f"asked{self.tally.boots}.out"
            checks.write_text("".join(json.dumps({"name": each.name, "state": each.cut}) + "\n" for each in left))
            argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{program.name}", "states", f"{job.OUT}/{checks.name}"]
            step = job.run([*argv, f"{job.OUT}/answers.jsonl", LAZY])
            died: str | None = None
            disk = self.folder / "states.disk"
            try:
                self.boot(name, [step], disk, "main", files=(checks, program), expected=tuple(Trouble))
            except Failure as failure:
                died = str(failure)
            found = _lines_of(self.folder / name / "answers.jsonl")
            said = by_state((self.folder / name / "console.log").read_text(errors="replace"), [e.name for e in left])
            for state, answer in zip(left, found, strict=False):
                trouble = diagnose(said.get(state.name, ""))
                line = None if trouble is None else _TIME.sub("", trouble.line)
                yield state, answer, [] if line is None else [f"{what}, the kernel says: {line}"]
            if died is None:
                return
            if process.stopping() or len(found) >= len(left):
                raise Failure(died)
            self._wrong(left[len(found)].name, (f"{what}: {died}",))
            left = left[len(found) + 1 :]

    def _boot_to_look(self, name: str, states: Sequence[State], looked: Mapping[str, Sequence[View]]) -> None:
        checks = self.folder / "checks.jsonl"
        with checks.open("w") as file:
            for state in states:
                mounts = [
                    {
                        "state": None if view.again else state.replayed if view.replayed else state.cut,
                        "options": view.options, "read": view.read,
                    }
                    for view in looked[state.name]
                ]  # fmt: skip
                file.write(json.dumps({"name": state.name, "mounts": mounts}) + "\n")
        step: job.Step = {"do": "check_states", "checks": checks.name, "answers": "answers.jsonl"}
        # What the kernel complains of is told apart by state.
        disk, expected = self.folder / "states.disk", tuple(Trouble)
        self.boot(name, [step], disk, "main", files=(checks,), expected=expected)

    def _held(self, state: State, sources: Sequence[Source]) -> Promises:
        source = sources[state.source]
        return promises(source.marks, state.place, source.before)

    def _count(self, state: State, judged: Judgement) -> None:
        self.tally.hashes.add(state.hash)
        self.tally.by_depth[state.depth] += 1
        self.tally.by_fate[state.fate] += 1
        self.tally.kept += judged.kept
        self.tally.snapshots += judged.snapshots
        self.tally.refused += judged.refused
        if judged.problems:
            self._wrong(state.name, judged.problems)

    def _wrong(self, name: str, problems: tuple[str, ...]) -> None:
        found = Found(self.workload.name, self.seed, name, problems, self.flush_ignored)
        self.tally.failures.append(found)


# Of the blocks of a state.
_WRONG_SHOWN = 9
# As the oracle says it.
_NOT_MOUNTED = "not mounted"


def _lines_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that may have been cut off."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def read_answers(path: Path) -> tuple[dict[str, dict[str, str]], dict[str, list[dict[str, Any]]]]:
    trees: dict[str, dict[str, str]] = {}
    answers: dict[str, list[dict[str, Any]]] = {}
    if path.exists():
        text = path.read_text()
        for line in map(json.loads, text[: text.rfind("\n") + 1].splitlines()):
            if "tree" in line:
                trees[line["tree"]] = line["entries"]
            else:
                answers[line["name"]] = line["views"]
    return trees, answers


def by_state(console: str, names: Collection[str]) -> dict[str, str]:
    """What the kernel said while it was at each of these states."""
    said: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines(console):
        announced = _ANNOUNCED.search(line)
        if announced and announced[1] in names:
            current = said.setdefault(announced[1], [])
        else:
            current.append(line)
    return {name: "\n".join(each) for name, each in said.items()}


@contextlib.contextmanager
def round_folder() -> Iterator[Path]:
    with run_folder() as name:
        yield name

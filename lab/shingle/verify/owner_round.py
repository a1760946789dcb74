# SPDX-License-Identifier: MIT OR Apache-2.0
"""One volume of an owner with one seed: what its tool writes, the states that cuts leave, and what becomes of them."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shingle import process
from shingle.build import build
from shingle.failure import Failure
from shingle.machine import job, machine
from shingle.machine.console import Trouble, diagnose
from shingle.verify import crash_round, crash_state, e2fsck
from shingle.verify.crash_workload import LAZY, MARKS, STOCK
from shingle.verify.owner_advice import LIMIT_S, PATH, TOOL, last, owner, run
from shingle.verify.owner_volumes import FILES, Kind
from shingle.verify.state_pool import BLOCK, MIB, Pool, digest

# The first with which the tool is not yet under way, and the last.
_BEGUN, _DONE = "begun", "done"
AT_BOOT = "at boot"
_UUID = "5b1e6e00-0000-4000-8000-000000000003"
_HASH_SEED = "5b1e6e00-0000-4000-8000-000000000004"
_BATCH = 100
_MAGIC, _EVENT = b"SHGLREC1", struct.Struct("<IIQQI4x")
# What convert checks and makes a log of (packaging/tools/ext4lazy.py, _pack).
_COPY = " /var/tmp/ext4lazy-"
_WRITE, _FLUSH, _COMPLETE, _MARK = 1, 2, 3, 4


@dataclass(frozen=True)
class Event:
    kind: int
    begin: int
    text: str = ""


def events(record: bytes) -> list[Event]:
    """What crates/crash-drive/src/record.rs wrote, without the data of writes."""
    found, at = [], len(_MAGIC)
    while at < len(record):
        kind, _, _, _, size = _EVENT.unpack_from(record, at)
        start = at + _EVENT.size
        found.append(Event(kind, at, record[start : start + size].decode(errors="replace") if kind == _MARK else ""))
        at = start + (size + 7 & -8)
    return found


@dataclass
class Record:
    """What a tool wrote, and the disk before it."""

    disk: Path
    file: Path
    events: list[Event]
    # Of each command that wrote: its words, and the places behind its writes and their ends.
    commands: list[tuple[str, list[int]]]
    # All files, as they were before.
    tree: Mapping[str, str]

    @property
    def writes(self) -> int:
        return sum(event.kind == _WRITE for event in self.events)

    @property
    def logging(self) -> int:
        """Where convert begins what writes a log, the check of its copy, or what sends one home, the last
        command."""
        marks = [at for at, event in enumerate(self.events) if event.kind == _MARK]
        return next((at for at in marks if _COPY in self.events[at].text), marks[-1])

    def command(self, place: int) -> str:
        said = [event.text for event in self.events[:place] if event.kind == _MARK]
        return said[-1] if said else _BEGUN


def by_command(found: Sequence[Event]) -> list[tuple[str, list[int]]]:
    commands: list[tuple[str, list[int]]] = [(_BEGUN, [])]
    wrote = set()
    for at, event in enumerate(found):
        if event.kind == _MARK:
            commands.append((event.text, []))
        elif event.kind in (_WRITE, _COMPLETE):
            commands[-1][1].append(at + 1)
            if event.kind == _WRITE:
                wrote.add(len(commands) - 1)
    return [each for number, each in enumerate(commands) if number in wrote]


def draw(record: Record, disk: str, chance: random.Random) -> str:
    """A cut, in the explorer's words; of each command as many as of the others."""
    _, places = chance.choice(record.commands)
    place, seed = chance.choice(places), chance.randrange(1 << 20)
    fate = chance.choice("lksso" if disk == "honest" else "sso")
    return f"{place}{fate}{seed}" if fate in "so" else f"{place}{fate}"


class Problem(enum.Enum):
    """What is wrong with a state."""

    BOOT = "unreadable at boot"
    NO_END = "the advice does not end"
    UNCLEAN = "called done, and e2fsck complains"
    NOT_MOUNTED = "called done, and not mounted"
    LOST = "lost"


@dataclass
class State:
    """A distinct state and what became of it on the host; the machine's part comes later."""

    kind: Kind
    seed: int
    disk: str
    name: str
    command: str
    hash: str
    # Of what kind, and in words.
    problems: list[tuple[Problem, str]] = field(default_factory=list)
    did: list[str] = field(default_factory=list)
    # A log was being written or sent home, or had been.
    replays: bool = False
    # What ext4lazy status says of the log of a state that is not as it should be.
    log: str = ""
    # e2fsck -p did not get on at boot.
    stopped: bool = False
    # Images for the machine: what it is, how it is mounted, its number.
    looks: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def place(self) -> str:
        return self.name.rstrip("0123456789") if self.fate in "so" else self.name

    @property
    def fate(self) -> str:
        return re.sub(r"[\d.]", "", self.name)


def _copied(image: Path, target: Path) -> None:
    run("cp", "--sparse=always", image, target)


class Round:
    def __init__(self, kind: Kind, seed: int, built: build.Built, folder: Path, program: Path = TOOL) -> None:
        self.kind = kind
        self.seed = seed
        self.folder = folder
        self.program = program
        self._built = built
        self._boots = 0
        self.record = self._recorded()

    def _derived(self, what: str) -> int:
        text = f"{self.kind.title} {self.seed} {what}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())

    @property
    def _lies(self) -> Mapping[str, list[str]]:
        return {"honest": [], "lying": ["--flush-ignored"]}

    def _tool(self, *arguments: str | Path) -> str:
        argv = [self._built.crates.crash, *arguments]
        return process.run(argv, what=f"shingle-crash {arguments[0]}", limit_s=LIMIT_S)

    def _boot(self, name: str, steps: Sequence[job.Step], disk: Path, **more: Any) -> Path:
        out = self.folder / f"{name}{self._boots}.out"
        self._boots += 1
        out.mkdir()
        boot = machine.Boot(
            steps=tuple(steps), drive=disk, seed=self.seed, memory_mib=256, host_limit_s=LIMIT_S,
            kernel_arguments=("loglevel=5", "printk.devkmsg=on", "shingle.memory_mb=2048"), **more,
        )  # fmt: skip
        machine.run(self._built.machine, boot, out)
        return out

    def _disk(self, image: Path, name: str, *, quick: bool = True) -> Path:
        """A disk of the explorer; by the seed it has FUA or not, and is quick or slow."""
        seed, target = self._derived("disk"), self.folder / name
        own = ["--delay-us", str((300, 3000, 12000)[seed % 3]), *(["--no-fua"] if seed // 3 % 2 else [])]
        self._tool("disk", image, *([] if quick else own), "-o", target)
        return target

    def _recorded(self) -> Record:
        kind, base = self.kind, self.folder / "base.img"
        with base.open("wb") as file:
            file.truncate(kind.disk_mib * MIB)
        journal = () if "ext2" in kind.mkfs else ("-J", f"size={kind.journal_mib}")
        process.run(
            ["/sbin/mke2fs", "-q", "-F", *kind.mkfs, "-U", _UUID, "-b", str(kind.block_bytes), *journal,
             "-E", ",".join(("nodiscard", f"hash_seed={_HASH_SEED}", *kind.extended)), base],
            what="mke2fs", limit_s=60, env=os.environ | {"E2FSPROGS_FAKE_TIME": "1767225600"},
        )  # fmt: skip
        filled = self.folder / "filled.record"
        mount = job.mount("ext4", kind.mount)
        files = [self._python("first"), job.umount(), mount, self._python("second")]
        steps = [mount, *files, *([] if kind.unclean else [job.umount()])]
        disk = self._disk(base, "empty.disk")
        self._boot("fill", steps, disk, trace=filled)
        # An unclean one: what was written until the last sync; the machine's own end may have unmounted it.
        self._tool("cut", disk, filled, f"{len(events(filled.read_bytes()))}k", "--raw", "-o", base)
        disk, record = self._disk(base, "base.disk", quick=False), self.folder / "tool.record"
        for name in ("e2fsck", "tune2fs"):
            program = self.folder / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >{MARKS}\nexec /sbin/{name} "$@"\n')
            program.chmod(0o755)
        shutil.copy(self.program, self.folder / "ext4lazy")
        names = ("e2fsck", "tune2fs", "ext4lazy")
        argv = ["/usr/bin/python3", "-I", f"{job.OUT}/ext4lazy", kind.tool, job.DEVICE]
        step = job.run(argv, stdout="said", env={"PATH": f"{job.OUT}:{PATH}", "LC_ALL": "C"})
        before = [mount, self._python("third")] if kind.mounted else []
        self._boot(
            "tool", [*before, job.mark(_BEGUN), step, job.mark(_DONE)], disk, trace=record,
            files=tuple(self.folder / name for name in names),
        )  # fmt: skip
        found = events(record.read_bytes())
        begun = next(at for at, event in enumerate(found) if event.text == _BEGUN)
        if kind.mounted:
            # What came before is on the medium: no power cut in this suite takes it away.
            self._tool("cut", disk, record, f"{begun}k", "--raw", "-o", base)
            disk = self._disk(base, "begun.disk")
            record.write_bytes(_MAGIC + record.read_bytes()[found[begun].begin :])
            found = events(record.read_bytes())
        done = next((at for at, event in enumerate(found) if event.text == _DONE), len(found))
        record.write_bytes(record.read_bytes()[: found[done].begin])
        found = found[:done]
        pool = self.pool()
        looks = [("base", [(STOCK, pool.add(base))])]
        answer = self._looked(pool, looks)["base"][0]
        if not isinstance(answer, Mapping):
            raise Failure(f"{kind.title}: the volume as it was before: {answer}")
        return Record(disk, record, found, by_command(found), answer)

    def _python(self, place: str) -> job.Step:
        return job.run(
            ["/usr/bin/python3", "-I", "-c", FILES, place, str(self._derived(place)), str(self.kind.block_bytes)]
        )

    def image(self, disk: str, cut: str, target: Path) -> None:
        self._tool("cut", self.record.disk, self.record.file, cut, *self._lies[disk], "--raw", "-o", target)

    def states(self, disk: str, count: int, seen: set[str]) -> Iterator[tuple[State, Path]]:
        """So many that are not in `seen`, as images."""
        chance, image = random.Random(self._derived(disk)), self.folder / "state.img"
        for _ in range(count * 20):
            if count == 0:
                return
            cut = draw(self.record, disk, chance)
            state = self.state(disk, cut, image)
            if state.hash not in seen:
                seen.add(state.hash)
                count -= 1
                yield state, image

    def state(self, disk: str, cut: str, image: Path) -> State:
        self.image(disk, cut, image)
        place = int(re.match(r"\d+", cut)[0])  # type: ignore[index]
        command = self.record.command(place)
        replays = self.kind.logged or (self.kind.tool == "convert" and place > self.record.logging)
        return State(self.kind, self.seed, disk, cut, command, digest(image), replays=replays)

    def explore(self, disk: str, count: int, seen: set[str]) -> list[State]:
        """So many distinct states of a disk, judged."""
        pool, states = self.pool(), []
        for state, image in self.states(disk, count, seen):
            self.treat(state, image, pool)
            states.append(state)
        self.judge(states, pool)
        return states

    def pool(self) -> Pool:
        return Pool(self.kind.disk_mib * MIB // BLOCK)

    def replay(self, name: str, keep: Path | None = None) -> State:
        """One state, by the disk and the cut."""
        disk, _, cut = name.partition(":")
        image, pool = self.folder / "state.img", self.pool()
        state = self.state(disk, cut, image)
        if keep is not None:
            shutil.copy(image, keep)
        self.treat(state, image, pool)
        self.judge([state], pool)
        return state

    def killed(self, count: int) -> list[State]:
        """The tool is killed at so many random times, every second time with what it runs."""
        if count == 0:
            return []
        chance, image = random.Random(self._derived("kills")), self.folder / "state.img"
        base = self.folder / "base.img"
        _copied(base, image)
        began = time.monotonic()
        run(sys.executable, "-I", self.program, self.kind.tool, image)
        whole_s = time.monotonic() - began
        pool, states = self.pool(), []
        for number in range(count):
            _copied(base, image)
            after_s, alone = chance.uniform(0, whole_s), number % 2 == 1
            said = self._kill(image, after_s, alone=alone)
            name = f"{after_s:.3f}{'t' if alone else 'g'}"
            state = State(self.kind, self.seed, "kill", name, said, "")
            self.treat(state, image, pool)
            states.append(state)
        self.judge(states, pool)
        return states

    def _kill(self, image: Path, after_s: float, *, alone: bool) -> str:
        """Which command was under way."""
        with subprocess.Popen(
            [sys.executable, "-I", self.program, self.kind.tool, image], env={"PATH": PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
        ) as running:  # fmt: skip
            time.sleep(after_s)
            if alone:
                running.kill()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
            # The output ends when the last of them has ended.
            said, _ = running.communicate(timeout=LIMIT_S)
        commands = re.findall(r": ((?:e2fsck|tune2fs) .*)$", said, flags=re.MULTILINE)
        return commands[-1].replace(str(image), job.DEVICE) if commands else _BEGUN

    def treat(self, state: State, image: Path, pool: Pool) -> None:
        """At boot, and by the tool's words."""
        boot = self.folder / "boot.img"
        _copied(image, boot)
        status, said = run("e2fsck", "-p", boot)
        state.stopped = status & ~3 != 0
        if state.stopped:
            state.did.append(f"at boot: e2fsck -p: {status}: {last(said)}")
            self._by_words(state, boot, pool, "stopped at boot")
        else:
            state.looks.append((AT_BOOT, STOCK, pool.add(boot)))
        _, said = run(sys.executable, "-I", self.program, "status", "--json", image)
        state.log = str(json.loads(said)["log"]) if said.startswith("{") else "unreadable"
        self._by_words(state, image, pool, "")

    def _by_words(self, state: State, image: Path, pool: Pool, where: str) -> None:
        did, ended = owner(self.program, state.kind.tool, image)
        named = f"{where}, " if where else ""
        state.did += [f"{named}{each}" for each in did]
        if not ended:
            state.problems.append((Problem.NO_END, f"{named}{did[-1]}"))
            return
        status, said = run(*e2fsck.CHECK, image)
        if not e2fsck.is_content(status, said):
            state.problems.append((Problem.UNCLEAN, f"{named}e2fsck -fn: {status}: {' '.join(said.split())[:300]}"))
        number = pool.add(image)
        state.looks.append((f"{named}stock", STOCK, number))
        if state.kind.tool == "convert" and not where:
            state.looks.append(("lazy", LAZY, number))

    def judge(self, states: Sequence[State], pool: Pool) -> None:
        """Mounts what became of the states, and compares."""
        looks = [
            (str(number), [(options, image) for _, options, image in state.looks])
            for number, state in enumerate(states)
        ]
        answers = self._looked(pool, looks)
        for number, state in enumerate(states):
            for (name, _, _), answer in zip(state.looks, answers[str(number)], strict=True):
                wrong = Problem.BOOT if name == AT_BOOT else Problem.NOT_MOUNTED
                if isinstance(answer, str):
                    state.problems.append((wrong, f"{name}: {answer}"))
                elif answer != self.record.tree:
                    wrong = Problem.BOOT if name == AT_BOOT else Problem.LOST
                    state.problems.append((wrong, f"{name}: {crash_state.difference(self.record.tree, answer)}"))

    def _looked(
        self, pool: Pool, looks: Sequence[tuple[str, Sequence[tuple[str, int]]]]
    ) -> dict[str, list[Mapping[str, str] | str]]:
        """By name, for each mount its tree or what is wrong."""
        disk, checks = self.folder / "look.disk", self.folder / "checks.jsonl"
        pool.write(disk)
        with checks.open("w") as file:
            for name, mounts in looks:
                for at, (options, number) in enumerate(mounts):
                    each = {"state": number, "options": options, "damaged": True}
                    file.write(json.dumps({"name": f"{name}/{at}", "mounts": [each]}) + "\n")
        step: job.Step = {"do": "check_states", "checks": checks.name, "answers": "answers.jsonl"}
        out = self._boot("look", [step], disk, files=(checks,), expected=tuple(Trouble))
        trees, answers = crash_round.read_answers(out / "answers.jsonl")
        names = [f"{name}/{at}" for name, mounts in looks for at in range(len(mounts))]
        said = crash_round.by_state((out / "console.log").read_text(errors="replace"), names)
        shutil.rmtree(out)
        found: dict[str, list[Mapping[str, str] | str]] = {name: [] for name, _ in looks}
        for asked in names:
            answer, trouble = answers[asked][0], diagnose(said.get(asked, ""))
            error = answer.get("error") or (f"the kernel says: {trouble.line}" if trouble else None)
            found[asked.partition("/")[0]].append(str(error) if error else comparable(trees[answer["tree"]]))
        return found


def comparable(tree: Mapping[str, str]) -> dict[str, str]:
    """Without the sizes of directories: e2fsck packs them."""
    return {path: re.sub(r"^(d \S+ \S+ \S+) \d+ ", r"\1 ", entry) for path, entry in tree.items()}

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Power cuts and kills of what owners run: `./shingle lazy cuts` (docs/crash-explorer.md, The owners' tools).

`ext4lazy convert` and `ext4lazy drain` run in the machine on the crash explorer's disk, which records what they write.
Of each record cuts are drawn, on an honest disk and on one that lies about FLUSH. Each state that is left is treated
twice as an owner would: once by what a machine does by itself at boot, and once by the sentences that the tool prints,
followed to the letter until it says that it is done. All files that were there before must be there after both.
"""

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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from shingle import process
from shingle.build import build
from shingle.failure import Failure, unknown_name
from shingle.machine import job, machine
from shingle.machine.console import Trouble, diagnose
from shingle.page import replaced
from shingle.paths import ROOT
from shingle.verify import crash
from shingle.verify.crash_workload import LAZY, MARKS, STOCK

TOOL = ROOT / "packaging/tools/ext4lazy.py"
DISKS = ("honest", "lying")
RECORDS = ROOT / "results/owner-cuts.jsonl"
PAGE = ROOT / "docs/crash-explorer.md"
_BEGIN, _END = "<!-- owner-cuts: made by `./shingle lazy cuts --write` -->", "<!-- end -->"
_BLOCK = 4096
_MIB = 1 << 20
_LIMIT_S = 600.0
# The first with which the tool is not yet under way, and the last.
_BEGUN, _DONE = "begun", "done"
AT_BOOT = "at boot"
# An owner who was told so often what to do next gives up.
_TURNS = 8
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_UUID = "5b1e6e00-0000-4000-8000-000000000003"
_HASH_SEED = "5b1e6e00-0000-4000-8000-000000000004"
_BATCH = 100
# Records differ from seed to seed.
_PER_ROUND = 80
SHOWN = 10

# --- Volumes ------------------------------------------------------------------

# What is there before: some hundred files with all that a listing compares, and directories of several blocks.
_FILES = """
import os, random, sys
chance, top = random.Random(sys.argv[2]), f'/mnt/{sys.argv[1]}'
os.mkdir(top)
for number in range(8):
    place = f'{top}/{number}'
    os.mkdir(place)
    os.chmod(place, chance.choice((0o755, 0o700, 0o1777)))
    for name in range(chance.randrange(8, 20)):
        path = f'{place}/{name}' + 'n' * chance.randrange(40)
        with open(path, 'wb') as file:
            file.write(chance.randbytes(chance.choice((0, 60, 900, 5000, 20000))))
            if chance.randrange(9) == 0:
                file.seek(chance.randrange(1 << 18), 1)
                file.write(b'behind a hole')
        os.chown(path, chance.randrange(4000), chance.randrange(4000))
        os.chmod(path, chance.choice((0o644, 0o600, 0o4755)))
        if chance.randrange(3) == 0:
            os.setxattr(path, 'user.kind', chance.randbytes(chance.choice((9, 300))))
        if chance.randrange(9) == 0:
            os.symlink(f'../{name}', path + '-link')
def linked(name, lengths):
    place = f'{top}/{name}'
    os.mkdir(place)
    with open(f'{place}/file', 'w') as file:
        file.write(name)
    for number, length in enumerate(lengths):
        os.link(f'{place}/file', f'{place}/' + f'{number:04}'.ljust(length, 'n'))
linked('wide', [chance.randrange(100, 240) for _ in range(40)])
# A block, to its last byte, with '.', '..' and 'file': there is no room for a checksum.
for number in range(3):
    linked(f'full{number}', [248] * ((int(sys.argv[3]) - 24 - 16 - 216) // 256) + [208])
os.sync()
"""


@dataclass(frozen=True)
class Kind:
    """A volume, and what is run on it."""

    tool: str
    name: str
    summary: str
    mkfs: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    journal_mib: int = 4
    block_bytes: int = 4096
    # How the files come onto it.
    mount: str = STOCK
    # The machine stops without an unmount.
    unclean: bool = False
    # The tool runs while it is mounted.
    mounted: bool = False
    disk_mib: int = 48
    # Only when it is named.
    asked_for: bool = False

    @property
    def logged(self) -> bool:
        """There is something in the log at first."""
        return self.unclean or self.mount == LAZY

    @property
    def title(self) -> str:
        return f"{self.tool}/{self.name}"


_OLD = ("-O", "^metadata_csum,^64bit")
_KINDS = (
    Kind("convert", "ext3", "no checksums, no extents, a small journal", ("-t", "ext3")),
    Kind("convert", "ext2", "no checksums, no extents, no journal", ("-t", "ext2")),
    Kind("convert", "old", "ext4 of 2012: extents and uninit_bg, no checksums", ("-t", "ext4", "-O",
         "^metadata_csum,^64bit,uninit_bg")),
    Kind("convert", "old-1k", "the same with blocks of 1 KiB", ("-t", "ext4", *_OLD), block_bytes=1024, disk_mib=40),
    Kind("convert", "crashed", "no checksums, and not unmounted", ("-t", "ext4", *_OLD), unclean=True),
    Kind("convert", "journal", "checksums, a journal that is too small", ("-t", "ext4")),
    Kind("convert", "quota", "quota and fast commits, no checksums", ("-t", "ext4", "-O",
         "^metadata_csum,quota,fast_commit"), ("quotatype=usrquota:grpquota",)),
    Kind("convert", "kept", "a log that is kept, in a journal that is too small", ("-t", "ext4"), mount=LAZY),
    Kind("drain", "kept", "a log that is kept", ("-t", "ext4"), mount=LAZY),
    Kind("drain", "kept-1k", "the same with blocks of 1 KiB", ("-t", "ext4"), block_bytes=1024, mount=LAZY),
    Kind("drain", "crashed", "a log that is kept, and not unmounted", ("-t", "ext4"), mount=LAZY, unclean=True),
    Kind("drain", "quota", "a log that is kept, with quota and an orphan file", ("-t", "ext4", "-O",
         "quota,orphan_file"), ("quotatype=usrquota:grpquota",), mount=LAZY, unclean=True),
    Kind("drain", "inline", "a log that is kept, with small files in their inodes", ("-t", "ext4", "-O",
         "inline_data"), journal_mib=12, mount=LAZY),
    Kind("drain", "stock", "a log of stock ext4, for comparison", ("-t", "ext4"), unclean=True, asked_for=True),
    Kind("drain", "mounted", "of a mounted volume", ("-t", "ext4"), mount=LAZY, mounted=True),
    Kind("drain", "mounted-1k", "of a mounted volume with blocks of 1 KiB", ("-t", "ext4"), block_bytes=1024,
         mount=LAZY, mounted=True),
)  # fmt: skip
KINDS = {each.title: each for each in _KINDS}


def find(title: str) -> Kind:
    if title not in KINDS:
        raise unknown_name("volume of the owners' tools", title, KINDS)
    return KINDS[title]


# --- Records ------------------------------------------------------------------

_MAGIC, _EVENT = b"SHGLREC1", struct.Struct("<IIQQI4x")
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
    def last(self) -> int:
        """Where the last command begins."""
        return max(at for at, event in enumerate(self.events) if event.kind == _MARK)

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


# --- What an owner does -------------------------------------------------------


def _run(*argv: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [*map(str, argv)], env={"PATH": _PATH, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


_THIS = re.compile(r"(debugfs -w -c -R '[^']*' \S+), then convert again")
_GIVEN_UP = re.compile(r"if it gives up at the quota: (.*?; tune2fs -O quota \S+);")
_BY_HAND = re.compile(r"[Rr]un e2fsck -f\b")
_AGAIN = re.compile(r"run again, it goes on|convert again")


def owner(program: Path, tool: str, image: Path) -> tuple[list[str], bool]:
    """Runs the tool and does what it says, again and again; what was done, and whether the tool came to an end."""
    done = []
    for _ in range(_TURNS):
        status, said = _run(sys.executable, "-I", program, tool, image)
        done.append(f"{tool}: {status}: {_last(said)}")
        if status == 0:
            return done, True
        if this := _THIS.search(said):
            status, said = _run("sh", "-c", this[1])
            done.append(f"{this[1]}: {status}: {_last(said)}")
        elif _BY_HAND.search(said):
            # An owner who is asked hundreds of questions says yes to all.
            status, _ = _run("e2fsck", "-f", "-y", image)
            done.append(f"e2fsck -f -y: {status}")
            if status & 8 and (this := _GIVEN_UP.search(said)):
                status, said = _run("sh", "-c", this[1].replace("e2fsck -f", "e2fsck -f -y"))
                done.append(f"{this[1]}: {status}: {_last(said)}")
        elif not _AGAIN.search(said):
            break
    return done, False


def _last(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1]


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
    # A log was being sent home, or had been.
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


# --- Many images in one file of states ----------------------------------------


_ZERO = bytes(_BLOCK)


def blocks(image: Path) -> Iterator[tuple[int, bytes]]:
    """Those that are not zero."""
    with image.open("rb") as file:
        at = 0
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) & -_BLOCK
            except OSError:
                return
            data = os.pread(file.fileno(), _MIB, at)
            for begin in range(0, len(data), _BLOCK):
                block = data[begin : begin + _BLOCK]
                if block != _ZERO:
                    yield (at + begin) // _BLOCK, block
            at += len(data)


def digest(image: Path) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for number, block in blocks(image):
        whole.update(number.to_bytes(4))
        whole.update(block)
    return whole.hexdigest()


class Pool:
    """What crates/crash-drive/src/states.rs reads: states as tables into a pool of blocks."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._numbers: dict[bytes, int] = {}
        self._data: list[bytes] = []
        self._states: list[list[tuple[int, int]]] = []

    def add(self, image: Path) -> int:
        entries = []
        for number, block in blocks(image):
            key = hashlib.blake2b(block, digest_size=16).digest()
            pool = self._numbers.setdefault(key, len(self._data))
            if pool == len(self._data):
                self._data.append(block)
            entries.append((number, pool))
        self._states.append(entries)
        return len(self._states) - 1

    def write(self, target: Path) -> None:
        tables, first = [], 0
        for state in self._states:
            tables.append(struct.pack("<2I", first, len(state)))
            first += len(state)
        end = 40 + 8 * len(tables) + 8 * first
        offset = end + -end % _BLOCK
        with target.open("wb") as file:
            file.write(b"SHGLCRS1")
            file.write(struct.pack("<6IQ", self._blocks, len(tables), len(self._data), 0, 1, 0, offset))
            file.writelines(tables)
            file.writelines(struct.pack("<2I", *entry) for state in self._states for entry in state)
            file.write(bytes(offset - end))
            file.writelines(self._data)


def _copied(image: Path, target: Path) -> None:
    _run("cp", "--sparse=always", image, target)


# --- A round: one kind with one seed ------------------------------------------


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
        return process.run(argv, what=f"shingle-crash {arguments[0]}", limit_s=_LIMIT_S)

    def _boot(self, name: str, steps: Sequence[job.Step], disk: Path, **more: Any) -> Path:
        out = self.folder / f"{name}{self._boots}.out"
        self._boots += 1
        out.mkdir()
        boot = machine.Boot(
            steps=tuple(steps), drive=disk, seed=self.seed, memory_mib=256, host_limit_s=_LIMIT_S,
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
            file.truncate(kind.disk_mib * _MIB)
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
        step = job.run(argv, stdout="said", env={"PATH": f"{job.OUT}:{_PATH}", "LC_ALL": "C"})
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
            ["/usr/bin/python3", "-I", "-c", _FILES, place, str(self._derived(place)), str(self.kind.block_bytes)]
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
        replays = self.kind.logged or (self.kind.tool == "convert" and place > self.record.last)
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
        return Pool(self.kind.disk_mib * _MIB // _BLOCK)

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
        _run(sys.executable, "-I", self.program, self.kind.tool, image)
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
            [sys.executable, "-I", self.program, self.kind.tool, image], env={"PATH": _PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
        ) as running:  # fmt: skip
            time.sleep(after_s)
            if alone:
                running.kill()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
            # The output ends when the last of them has ended.
            said, _ = running.communicate(timeout=_LIMIT_S)
        commands = re.findall(r": ((?:e2fsck|tune2fs) .*)$", said, flags=re.MULTILINE)
        return commands[-1].replace(str(image), job.DEVICE) if commands else _BEGUN

    def treat(self, state: State, image: Path, pool: Pool) -> None:
        """At boot, and by the tool's words."""
        boot = self.folder / "boot.img"
        _copied(image, boot)
        status, said = _run("e2fsck", "-p", boot)
        state.stopped = status & ~3 != 0
        if state.stopped:
            state.did.append(f"at boot: e2fsck -p: {status}: {_last(said)}")
            self._by_words(state, boot, pool, "stopped at boot")
        else:
            state.looks.append((AT_BOOT, STOCK, pool.add(boot)))
        _, said = _run(sys.executable, "-I", self.program, "status", "--json", image)
        state.log = str(json.loads(said)["log"]) if said.startswith("{") else "unreadable"
        self._by_words(state, image, pool, "")

    def _by_words(self, state: State, image: Path, pool: Pool, where: str) -> None:
        did, ended = owner(self.program, state.kind.tool, image)
        named = f"{where}, " if where else ""
        state.did += [f"{named}{each}" for each in did]
        if not ended:
            state.problems.append((Problem.NO_END, f"{named}{did[-1]}"))
            return
        if "orphan_file" in " ".join(state.kind.mkfs):
            # A file of orphans that is empty again is something that -n complains about.
            _run("e2fsck", "-f", "-p", image)
        status, said = _run("e2fsck", "-f", "-n", image)
        if status != 0:
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
                    state.problems.append((wrong, f"{name}: {crash.difference(self.record.tree, answer)}"))

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
        trees, answers = crash.read_answers(out / "answers.jsonl")
        names = [f"{name}/{at}" for name, mounts in looks for at in range(len(mounts))]
        said = crash.by_state((out / "console.log").read_text(errors="replace"), names)
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


# --- Many rounds --------------------------------------------------------------


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
            with crash.round_folder() as folder:
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
    with crash.round_folder() as folder:
        state = Round(kind, seed, built, folder).replay(name, keep)
    return Explored(seed, [state], seconds=time.monotonic() - began)


def failures(explored: Explored) -> list[State]:
    """States that are not as they should be, but for what a disk that lies can do to any ext4.

    That is: at boot it is mounted and cannot be read, until the tool runs again; or a log was sent home, and the disk
    has that the log is empty, but not all that was in it.
    """
    return [
        state
        for state in explored.states
        if state.problems
        and not (state.disk == "lying" and (state.replays or all(what is Problem.BOOT for what, _ in state.problems)))
    ]


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
    _, said = _run("e2fsck", "-V")
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

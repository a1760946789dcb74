# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records what a build does to its tree, for the load generator `replay` (docs/reference/build-traces.md).

strace watches the build. A process computes between two of its calls: the user time that it tells as it ends is shared
out over these times, so that what else the host does is not counted. Jobs are what make starts: a job is a process and
all below it, unless another make is among them. What make itself does goes to the job that it starts next. A job waits
for the jobs that wrote what it reads.
"""

from __future__ import annotations

import functools
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shingle import process
from shingle.failure import Failure

MAGIC = "shingle-build 1"
# Loaded into each process: has the kernel asked, as it ends, for its user time.
_TELL = Path(__file__).with_name("tell_user_time.c")
# Less computing than this is put off until the next operation: a scheduler's time slice is of that order.
SLICE_US = 5_000
_TRACED = "%file,%desc,%process,nanosleep,clock_nanosleep,futex,pause,rt_sigsuspend,getrusage"
_STRACE = (
    "strace",
    "-f",
    "-ttt",
    "-T",
    "-y",
    "-s",
    "0",
    "--seccomp-bpf",
    "-e",
    f"trace={_TRACED}",
    "-e",
    "signal=none",
)

_LINE = re.compile(r"(\d+) +(\d+)\.(\d{6}) (.*)", re.DOTALL)
_CALL = re.compile(r"(\w+)\((.*)\) += (0x[0-9a-f]+|-?\d+|\?)(?:<(.*?)>)?(?: [^<]*)?(?: <(\d+)\.(\d{6})>)?$", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>")
_USER = re.compile(r"ru_utime={tv_sec=(\d+), tv_usec=(\d+)}")
_DESCRIPTOR = re.compile(r"\d+<(/[^>]*)>")
_CWD = re.compile(r"AT_FDCWD<([^>]*)>")
_NAME = re.compile(r'"([^"]*)"')
_CLONES = frozenset({"clone", "clone3", "vfork", "fork"})
# Calls whose paths can be relative, or that say what processes do.
_ALWAYS = _CLONES | {"execve", "chdir", "getrusage", "access", "stat", "lstat", "unlink", "rename", "mkdir", "rmdir",
                     "chmod", "readlink", "creat", "open", "utime"}  # fmt: skip
_STATS = frozenset(
    {"stat", "lstat", "newfstatat", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "statx"}
)
_READS = frozenset({"read", "pread64", "readv"})
_WRITES = frozenset({"write", "writev"})
_ATTRIBUTES = frozenset({"chmod", "fchmodat", "utimensat", "utime", "chown", "fchownat"})


@dataclass(frozen=True)
class Call:
    """A system call that succeeded, or the end of a process (`exit`)."""

    pid: int
    name: str
    arguments: str
    result: int
    # The path of the descriptor that was returned.
    returned: str
    # Since the process's last call ended.
    before_us: int


@dataclass
class Job:
    """Operations in order: the first word says what it is, then the path, then numbers."""

    operations: list[tuple[str | int, ...]] = field(default_factory=list)
    after: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Trace:
    """What was there before with its size in bytes, None for a directory; and the jobs in the order of their start."""

    tree: dict[str, int | None]
    jobs: list[Job]


def record(tree: Path, command: Sequence[str], target: Path) -> Trace:
    """Runs the command in the tree, under strace, and writes its trace."""
    for tool in ("strace", "gcc"):
        if shutil.which(tool) is None:
            raise Failure(f"recording needs {tool}; the package {tool} has it.", status=2)
    before = _listed(tree)
    with tempfile.TemporaryDirectory(prefix="shingle-build-") as scratch:
        log, told = Path(scratch) / "strace.log", Path(scratch) / "tell.so"
        process.run(["gcc", "-shared", "-fPIC", "-o", told, _TELL], what=f"compiling {_TELL.name}", limit_s=60)
        argv = [*_STRACE, "-E", f"LD_PRELOAD={told}", "-o", str(log), *command]
        status = subprocess.run(argv, cwd=tree, check=False).returncode
        if status != 0:
            raise Failure(f"{command[0]} ended with status {status}; nothing is written.")
        with log.open(errors="surrogateescape") as lines:
            trace = Trace(before, jobs_of(tree.resolve(), before, lines))
    write(target, trace)
    return trace


def _listed(tree: Path) -> dict[str, int | None]:
    """Regular files and directories, in sorted order; a link counts as a file of what it shows."""
    found: dict[str, int | None] = {}
    for folder, folders, files in os.walk(tree):
        folders.sort()
        place = Path(folder).relative_to(tree)
        found |= {str(place / name): None for name in folders if not Path(folder, name).is_symlink()}
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file():
                found[str(place / name)] = path.stat().st_size
    return dict(sorted(found.items()))


# --- Reading strace ------------------------------------------------------------


def calls(lines: Iterable[str], root: str) -> Iterator[Call]:
    """Calls that succeeded and can concern the tree, in the order of their ends."""
    begun: dict[int, tuple[str, int]] = {}
    ended_us: dict[int, int] = {}
    waiting_us: dict[int, int] = {}
    for line in lines:
        matched = _LINE.match(line.rstrip("\n"))
        if matched is None:
            continue
        pid, at_us, text = int(matched[1]), int(matched[2]) * 1_000_000 + int(matched[3]), matched[4]
        if resumed := _RESUMED.match(text):
            start, at_us = begun.pop(pid)
            text = start + text[resumed.end() :]
        else:
            waiting_us[pid] = waiting_us.get(pid, 0) + max(0, at_us - ended_us.get(pid, at_us))
            if text.endswith("<unfinished ...>"):
                begun[pid] = (text.removesuffix("<unfinished ...>"), at_us)
                continue
        if text.startswith("+++"):
            yield Call(pid, "exit", "", 0, "", waiting_us.pop(pid))
            ended_us.pop(pid, None)
            continue
        call = _CALL.match(text)
        if call is None:
            continue
        ended_us[pid] = at_us + (0 if call[5] is None else int(call[5]) * 1_000_000 + int(call[6]))
        failed = call[3].startswith("-") or call[3] == "?"
        if not failed and (call[1] in _ALWAYS or root in text):
            yield Call(pid, call[1], call[2], int(call[3], 0), call[4] or "", waiting_us.pop(pid))


def user_times(seen: Sequence[Call]) -> dict[int, float]:
    """What part of the time between its calls each process computed, from the user time that it told as it ended."""
    between_us: dict[int, int] = {}
    user_us: dict[int, int] = {}
    for call in seen:
        between_us[call.pid] = between_us.get(call.pid, 0) + call.before_us
        if call.name == "getrusage" and (told := _USER.search(call.arguments)):
            user_us[call.pid] = int(told[1]) * 1_000_000 + int(told[2])
    return {pid: us / between_us[pid] for pid, us in user_us.items() if between_us[pid]}


# --- Jobs ----------------------------------------------------------------------


def jobs_of(tree: Path, before: dict[str, int | None], lines: Iterable[str]) -> list[Job]:
    """The jobs of a build. They are found last: a job is known only when all that it started is."""
    seen = list(calls(lines, str(tree)))
    parents = {call.result: call.pid for call in seen if call.name in _CLONES}
    makes = {call.pid for call in seen if call.name == "execve" and _NAME.findall(call.arguments)[0].endswith("/make")}
    for pid in list(makes):
        while (pid := parents.get(pid, 0)) and pid not in makes:
            makes.add(pid)
    return _Sorter(tree, before, parents, makes).sorted(seen)


@dataclass
class _Open:
    """A file that a job writes: where it is in it, and what it wrote since it was last closed."""

    position: int = 0
    flags: str = ""
    pieces: list[tuple[int, int]] = field(default_factory=list)

    def wrote(self, at: int, length: int) -> None:
        """Keeps the pieces apart and in order; what touches becomes one."""
        first, last = at, at + length
        kept = []
        for begin, size in self.pieces:
            if begin > last or begin + size < first:
                kept.append((begin, size))
            else:
                first, last = min(first, begin), max(last, begin + size)
        self.pieces = sorted([*kept, (first, last - first)])
        self.position = at + length


class _Work:
    """A job as it grows."""

    def __init__(self) -> None:
        self.operations: list[list[str | int]] = []
        self.think_us = 0.0
        self.touched: dict[str, list[str | int]] = {}
        self.written: dict[str, _Open] = {}

    def add(self, *operation: str | int) -> list[str | int]:
        if self.think_us >= SLICE_US:
            self.compute()
        self.operations.append(list(operation))
        return self.operations[-1]

    def compute(self) -> None:
        if self.think_us >= 1:
            self.operations.append(["t", round(self.think_us)])
            self.think_us = 0.0

    def close(self, path: str, *, made: bool = True) -> None:
        """Tells what was written to a file, and, if nothing was, that it was `made`."""
        opened = self.written.get(path)
        if opened is not None and (opened.pieces or (made and opened.flags)):
            self.add("w", path, opened.flags or "-", *(number for piece in opened.pieces for number in piece))
            opened.flags, opened.pieces = "", []

    def close_all(self) -> None:
        for path in self.written:
            self.close(path)

    def follow(self, other: _Work) -> None:
        """Takes over what another did before."""
        self.operations, self.think_us, self.touched = other.operations, other.think_us, other.touched
        other.operations, other.think_us, other.touched = [], 0.0, {}


class _Sorter:
    """Gives each call to its job."""

    def __init__(self, tree: Path, before: dict[str, int | None], parents: dict[int, int], makes: set[int]) -> None:
        self._root = f"{tree}/"
        self._sizes = {path: size for path, size in before.items() if size is not None}
        self._parents, self._makes = parents, makes
        self._work: dict[int, _Work] = {}
        self._cwd: dict[int, str] = {}
        self._jobs: list[_Work] = []

    def sorted(self, seen: Sequence[Call]) -> list[Job]:
        computed = user_times(seen)
        first = seen[0].pid
        self._cwd[first] = self._root.rstrip("/")
        self._work[first] = _Work()
        if first not in self._makes:
            self._jobs.append(self._work[first])
        for call in seen:
            work = self._work.get(call.pid)
            if work is None:
                # A child can be seen before its parent's clone has returned.
                work = self._started(call.pid, self._parents[call.pid])
            work.think_us += call.before_us * computed.get(call.pid, 0.0)
            if call.name == "exit":
                self._exited(call.pid, work)
            else:
                self._called(call, work)
        rest = self._work[first]
        if rest not in self._jobs:
            self._jobs.append(rest)
        for work in self._jobs:
            work.close_all()
            work.compute()
        return _with_dependencies([work for work in self._jobs if work.operations])

    def _started(self, pid: int, parent: int) -> _Work:
        above = self._work.get(parent) or self._started(parent, self._parents[parent])
        self._cwd[pid] = self._cwd[parent]
        if parent not in self._makes:
            self._work[pid] = above
            return above
        work = self._work[pid] = _Work()
        work.follow(above)
        if pid not in self._makes:
            self._jobs.append(work)
        return work

    def _exited(self, pid: int, work: _Work) -> None:
        """What a make did last goes to the make above it."""
        work.close_all()
        parent = self._parents.get(pid)
        if pid in self._makes and parent is not None:
            above = self._work[parent]
            work.compute()
            above.operations += work.operations
            work.operations = []

    def _inside(self, path: str) -> str | None:
        """A path relative to the tree, None if it is elsewhere."""
        path = os.path.normpath(path)
        return path.removeprefix(self._root) if path.startswith(self._root) else None

    def _named(self, call: Call, number: int = 0) -> str | None:
        """The path that is an argument of a call."""
        names = _NAME.findall(call.arguments)
        if number >= len(names):
            return None
        folder = _CWD.search(call.arguments)
        given = folder[1] if folder else self._cwd[call.pid]
        if folder is None and (descriptor := _DESCRIPTOR.match(call.arguments)):
            given = descriptor[1]
        return self._inside(str(Path(given) / names[number]))

    def _called(self, call: Call, work: _Work) -> None:
        name = call.name
        if name in ("open", "openat", "creat"):
            self._opened(call, work)
        elif name in _STATS:
            self._touched(self._named(call), work)
        elif name == "chdir":
            given = _NAME.findall(call.arguments)[0]
            self._cwd[call.pid] = os.path.normpath(Path(self._cwd[call.pid]) / given)
        elif name in ("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat"):
            if (path := self._named(call)) is not None:
                work.close(path)
                rmdir = name == "rmdir" or "AT_REMOVEDIR" in call.arguments
                work.add("m" if name.startswith("mkdir") else "x" if rmdir else "u", path)
        elif name.startswith("rename"):
            old, new = self._named(call), self._named(call, 1)
            if old is not None and new is not None:
                work.close(old)
                work.add("n", old, new)
                self._sizes[new] = self._sizes.get(old, 0)
        elif name in _ATTRIBUTES:
            if (path := self._named(call)) is not None:
                work.close(path)
                work.add("a", path)
        else:
            self._moved(call, work)

    def _opened(self, call: Call, work: _Work) -> None:
        path = self._inside(call.returned)
        if path is None or "O_DIRECTORY" in call.arguments:
            self._touched(path, work)
            return
        reads = "O_RDONLY" in call.arguments or ("O_RDWR" in call.arguments and "O_TRUNC" not in call.arguments)
        if reads:
            # A shell's own output is closed by dup2.
            work.close(path)
        if reads and (path not in work.touched or work.touched[path][0] == "s"):
            work.touched[path] = work.add("r", path, 0)
        if "O_RDONLY" not in call.arguments:
            opened = work.written.setdefault(path, _Open())
            flags = ("c" if path not in self._sizes else "") + ("t" if "O_TRUNC" in call.arguments else "")
            opened.flags += flags
            if flags:
                self._sizes[path] = 0
            opened.position = self._sizes[path] if "O_APPEND" in call.arguments else 0

    def _touched(self, path: str | None, work: _Work) -> None:
        if path is not None and path not in work.touched:
            work.touched[path] = work.add("s", path)

    def _moved(self, call: Call, work: _Work) -> None:
        """Calls on descriptors."""
        paths = [self._inside(path) for path in _DESCRIPTOR.findall(call.arguments)]
        if not paths or paths[0] is None:
            return
        path, name = paths[0], call.name
        opened = work.written.get(path)
        numbers = call.arguments.split(", ")
        if name in _READS or name == "mmap":
            length = int(numbers[1]) if name == "mmap" else call.result
            _read(work, path, min(length, self._sizes.get(path, length)))
        elif name in ("copy_file_range", "sendfile"):
            source, target = (paths[0], paths[-1]) if name == "copy_file_range" else (paths[-1], paths[0])
            _read(work, source or "", call.result)
            self._write(work, target, None, call.result)
        elif name in _WRITES:
            self._write(work, path, None, call.result)
        elif name == "pwrite64":
            self._write(work, path, int(numbers[-1]), call.result)
        elif name == "lseek" and opened is not None:
            opened.position = call.result
        elif name == "ftruncate":
            work.close(path)
            work.add("l", path, int(numbers[-1]))
            self._sizes[path] = int(numbers[-1])
        elif name == "fchmod":
            work.close(path)
            work.add("a", path)
        elif name == "close":
            # A shell opens what a command of it will write.
            work.close(path, made=False)

    def _write(self, work: _Work, path: str | None, at: int | None, length: int) -> None:
        if path is None or length == 0:
            return
        opened = work.written.setdefault(path, _Open())
        opened.wrote(opened.position if at is None else at, length)
        self._sizes[path] = max(self._sizes.get(path, 0), opened.position)


def _read(work: _Work, path: str, length: int) -> None:
    operation = work.touched.get(path)
    if operation is not None and operation[0] == "r":
        operation[2] = int(operation[2]) + length


def _with_dependencies(works: Sequence[_Work]) -> list[Job]:
    """Who waits for whom: readers for the last writer of a file, writers too, and what is made in a directory that a
    job made for that job."""
    writer: dict[str, int] = {}
    jobs = []
    for number, work in enumerate(works):
        job = Job([tuple(operation) for operation in work.operations])
        for operation in job.operations:
            if operation[0] in ("t", "s"):
                continue
            paths = [str(each) for each in operation[1 : 3 if operation[0] == "n" else 2]]
            for path in paths:
                folder = path.rpartition("/")[0]
                job.after |= {writer[each] for each in (path, folder) if each in writer}
            if operation[0] != "r":
                writer |= dict.fromkeys(paths, number)
        job.after.discard(number)
        jobs.append(job)
    return jobs


# --- The file ------------------------------------------------------------------


def text_of(trace: Trace) -> Iterator[str]:
    """The lines of a trace. Paths are numbered in the order in which they are declared."""
    yield MAGIC
    names = {path: number for number, path in enumerate(trace.tree)}
    for path, size in trace.tree.items():
        yield f"- {path}" if size is None else f"{size} {path}"
    made = [
        str(path)
        for job in trace.jobs
        for operation in job.operations
        if operation[0] != "t"
        for path in operation[1 : 3 if operation[0] == "n" else 2]
    ]
    for path in dict.fromkeys(made):
        if path not in names:
            names[path] = len(names)
            yield f"+ {path}"
    for job in trace.jobs:
        yield " ".join(("job", *map(str, sorted(job.after))))
        for kind, *rest in job.operations:
            yield " ".join((str(kind), *(str(names[each]) if each in names else str(each) for each in rest)))


def write(target: Path, trace: Trace) -> None:
    text = "".join(f"{line}\n" for line in text_of(trace))
    target.write_bytes(lzma.compress(text.encode("utf-8", "surrogateescape"), preset=9 | lzma.PRESET_EXTREME))


def text(source: Path) -> bytes:
    """A trace as the load generator reads it."""
    return lzma.decompress(source.read_bytes())


@functools.cache
def digest(source: Path) -> str:
    """SHA-256 of a trace as the load generator reads it."""
    return hashlib.sha256(text(source)).hexdigest()

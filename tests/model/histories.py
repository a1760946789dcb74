# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs histories (history.c), each a row of bytes, and says what failed.

python3 tests/model/histories.py replay HEX      one history, step by step
python3 tests/model/histories.py coverage        which lines of the kernel's files histories reach

Standard library only; hypothesis makes the histories of the tests (test_histories.py).
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model import build

# Bytes of a history: a few steps, to be found quickly, and many, to get far.
LENGTHS = (60, 200, 600, 2000)
# The first bytes say how large the log is and so on.
HEADER = 7
COVERAGE_HISTORIES = 3000
COVERAGE_SEED = 1


def replay_command(history: bytes, mutant: str = "") -> str:
    return f"python3 tests/model/histories.py replay {history.hex()}{' ' + mutant if mutant else ''}"


def environment(program: Path, mutant: str) -> dict[str, str]:
    return os.environ | {
        "MODEL_MUTANT": mutant,
        "ASAN_OPTIONS": "malloc_context_size=3:quarantine_size_mb=4",
        # It was compiled elsewhere.
        "GCOV_PREFIX": str(program.parent),
        "GCOV_PREFIX_STRIP": "99",
    }


class Runner:
    """The program, which runs one history after the other in a process of its own."""

    def __init__(self, program: Path, mutant: str = "") -> None:
        self._program = program
        self._environment = environment(program, mutant)
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = self._start()
        self.statistics: dict[str, int] = {}
        self.status = 0

    def _start(self) -> subprocess.Popen[bytes]:
        self._messages.seek(0)
        self._messages.truncate()
        return subprocess.Popen(
            [self._program],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
        )

    def run(self, history: bytes) -> str:
        """What failed, or nothing."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(struct.pack("=I", len(history)) + history)
            self._process.stdin.flush()
        header = self._process.stdout.read(4)
        if len(header) == 4:
            return self._process.stdout.read(*struct.unpack("=I", header)).decode()
        self._process.wait()
        said = self._said()
        self._process = self._start()
        return f"the program ended:\n{said[-3000:]}"

    def _said(self) -> str:
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace")

    def close(self) -> None:
        """Ends the program, and learns what its histories reached."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self.status = self._process.wait()
        self._process.stdout.close()
        for line in self._said().splitlines():
            if found := re.fullmatch(r"(\w+) (\d+)", line):
                self.statistics[found[1]] = int(found[2])
        self._messages.close()


@contextlib.contextmanager
def running(flags: Sequence[str] = build.CHECKED, mutant: str = "") -> Iterator[Runner]:
    runner = Runner(build.binary(flags, mutated=bool(mutant)), mutant)
    try:
        yield runner
    finally:
        runner.close()


def kind(failure: str) -> str:
    """A failure without its numbers."""
    return re.sub(r"\d+", "N", failure.splitlines()[0]) if failure else ""


def shrunk(runner: Runner, history: bytes) -> bytes:
    """A shorter history with the same kind of failure: steps are taken out, then bytes made 0."""
    wanted = kind(runner.run(history))

    def fails(candidate: bytes) -> bool:
        return kind(runner.run(candidate)) == wanted

    size = len(history) // 2
    while size:
        at = len(history) - size
        while at >= HEADER:
            candidate = history[:at] + history[at + size :]
            if fails(candidate):
                history = candidate
            at -= size
        size //= 2
    for at, byte in enumerate(history):
        candidate = history[:at] + b"\0" + history[at + 1 :]
        if byte and fails(candidate):
            history = candidate
    return history


def replay(history: bytes, mutant: str = "") -> int:
    program = build.binary(mutated=bool(mutant))
    command = [program, "--replay", history.hex()]
    return subprocess.run(command, env=environment(program, mutant), check=False).returncode


def coverage(histories: int = COVERAGE_HISTORIES) -> str:
    """gcov's lines and branches of each kernel file."""
    program = build.binary(build.COVERED)
    folder = program.parent
    for old in folder.glob("*.gcda"):
        old.unlink()
    random_bytes = random.Random(COVERAGE_SEED)
    with running(build.COVERED) as runner:
        for _ in range(histories):
            history = random_bytes.randbytes(random_bytes.choice(LENGTHS))
            if failure := runner.run(history):
                print(f"{failure}\n  {replay_command(history)}", file=sys.stderr)
    names = [name for name in build.WHOLE if (folder / name).exists()]
    report = []
    for name in names:
        data = next(folder.glob(f"*-{name.removesuffix('.c')}.gcda"))
        done = subprocess.run(
            ["gcov", "-b", "-o", str(folder), str(data)], cwd=folder, capture_output=True, text=True, check=True
        )
        part = done.stdout.split(f"{name}'\n", 1)[1].split("\n\n", 1)[0]
        lines = re.search(r"Lines executed:([\d.]+)% of (\d+)", part)
        taken = re.search(r"Taken at least once:([\d.]+)% of (\d+)", part)
        assert lines and taken, done.stdout
        report.append(f"{name:<20} {lines[1]:>6} % of {lines[2]:>4} lines  {taken[1]:>6} % of {taken[2]:>4} branches")
        listing = (folder / f"{name}.gcov").read_text().splitlines()
        report += [f"    {line}" for line in listing if line.lstrip().startswith("#####")]
    return "\n".join([f"{histories} histories, seed {COVERAGE_SEED}", *report])


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["replay"] and len(arguments) in (2, 3):
        return replay(bytes.fromhex(arguments[1]), *arguments[2:])
    if arguments[:1] == ["coverage"] and len(arguments) in (1, 2):
        print(coverage(*map(int, arguments[1:])))
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH108, PTH110, PTH112, PTH120, PTH123, PTH208
"""Runs in the machine: a load that notes what it has synced, and a reader that holds the disk against the notes.

regression_work.py load SEED TURNS [ERRNO,ERRNO]   two processes work in /mnt/a and /mnt/b; these errors end one quietly
regression_work.py start SEED TURNS [ERRNO,ERRNO]  the same in the background
regression_work.py patient SEED TURNS              the same, but on a file system that is read-only they wait
regression_work.py stop                            ends what is in the background, and says what it ended with
regression_work.py check PREFIX [ERRNO]            compares what was synced; such errors of a first reading are counted
regression_work.py wait                            waits until it has ended by itself
regression_work.py full SEED ROUNDS                fills the disk with names and data, deletes half, fills it again
regression_work.py used FILE                       what quota counts, and what is there, for each user and group

Notes lie beside the results, PREFIX-a and PREFIX-b, on the host's disk: a power cut leaves them. A line is written
before something changes (`drop`) and after it was synced (`keep`, `count`, `gone`). A load that begins with notes goes
on behind its last turn.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator

sys.dont_write_bytecode = True
# oracle.py lies beside this program there.
sys.path.insert(0, os.path.dirname(__file__))
import oracle  # noqa: E402

ROOT, OUT = "/mnt", "/run/out"
NAMES = "ab"
# Of each, so that quota has something to count.
OWNERS = range(1000, 1004)
FILES, DIRECTORIES, LINKS = 8, 90, 60


class Notes:
    """What must be there, and what must not."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Of a file its number and size; of a directory how many entries it has.
        self.kept: dict[str, tuple[int, int]] = {}
        self.counted: dict[str, int] = {}
        self.gone: set[str] = set()
        self.turn = 0
        if os.path.exists(path):
            with open(path) as file:
                for line in file.read().split("\n")[:-1]:
                    self._take(line)

    def _take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "drop":
            self.kept = {path: what for path, what in self.kept.items() if not below(path, rest)}
            self.counted = {path: count for path, count in self.counted.items() if not below(path, rest)}
        elif word == "keep":
            path, number, size = rest.split()
            self.kept[path] = int(number), int(size)
            self.gone.discard(path)
        elif word == "count":
            path, count = rest.split()
            self.counted[path] = int(count)
        elif word == "gone":
            self.gone.add(rest)
        elif word == "turn":
            self.turn = int(rest) + 1

    def say(self, line: str) -> None:
        # Opened and closed each time: with the close it is on the host.
        with open(self.path, "a") as file:
            file.write(line + "\n")


def below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


# --- The load -----------------------------------------------------------------


class Worker:
    """Every step can be done again after it failed half-way."""

    def __init__(self, name: str, seed: int) -> None:
        self.notes = Notes(f"{OUT}/notes-{name}")
        self.seed = file_seed(name, seed)
        self.pattern = oracle.Pattern(self.seed)
        self.root = f"{ROOT}/{name}"

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, number: int, size: int) -> None:
        self.notes.say(f"drop {name}")
        fd = os.open(self.path(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            end = self.pattern.write(fd, number, size)
            os.fchown(fd, OWNERS[number % len(OWNERS)], OWNERS[number % 2])
            os.fsync(fd)
        finally:
            os.close(fd)
        if end == size:
            self.notes.say(f"keep {name} {number} {size}")

    def shorten(self, name: str, number: int, size: int) -> None:
        self.notes.say(f"drop {name}")
        fd = os.open(self.path(name), os.O_RDWR)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)
        self.notes.say(f"keep {name} {number} {size}")

    def rename(self, old: str, new: str, number: int, size: int) -> None:
        self.notes.say(f"drop {old}")
        self.notes.say(f"drop {new}")
        if os.path.exists(self.path(old)):
            os.rename(self.path(old), self.path(new))
        oracle.sync_file(os.path.dirname(self.path(new)))
        self.notes.say(f"gone {old}")
        self.notes.say(f"keep {new} {number} {size}")

    def directories(self, name: str, count: int) -> None:
        for number in range(count):
            os.makedirs(self.path(f"{name}/{number}"), exist_ok=True)
            if number % 30 == 29:
                oracle.sync_file(self.path(f"{name}/{number}"))
        oracle.sync_file(self.path(name))
        self.notes.say(f"count {name} {count}")

    def wide(self, name: str, count: int) -> None:
        """Several blocks of names, which are freed soon."""
        os.makedirs(self.path(name), exist_ok=True)
        self.write(f"{name}/one", 0, 10)
        for number in range(count):
            link = self.path(f"{name}/{number:04}-{'n' * 200}")
            if not os.path.exists(link):
                os.link(self.path(f"{name}/one"), link)
        oracle.sync_file(self.path(name))
        self.notes.say(f"count {name} {count + 1}")

    def remove(self, name: str) -> None:
        self.notes.say(f"drop {name}")
        if os.path.exists(self.path(name)):
            shutil.rmtree(self.path(name))
        oracle.sync_file(self.root)
        self.notes.say(f"gone {name}")

    def steps(self, turn: int) -> Iterator[Callable[[], None]]:
        choose = random.Random(f"{self.seed} {turn}")
        top = f"t{turn}"
        # Drawn before: a step that is done again must do the same.
        links, count = choose.randrange(LINKS, 3 * LINKS), choose.randrange(DIRECTORIES // 2, DIRECTORIES)
        last = choose.randrange(1, 200_000)
        yield lambda: os.makedirs(self.path(top), exist_ok=True)
        yield lambda: self.wide(f"{top}/wide", links)
        for number in range(FILES):
            file, size = turn * FILES + number + 1, choose.randrange(1, 90_000)
            name = f"{top}/{number}"
            yield lambda name=name, file=file, size=size: self.write(name, file, size)  # type: ignore[misc]
            if number % 3 == 1:
                size //= 2
                yield lambda name=name, file=file, size=size: self.shorten(name, file, size)  # type: ignore[misc]
            if number % 3 == 2:
                new = f"{top}/renamed-{number}"
                yield lambda name=name, new=new, file=file, size=size: self.rename(name, new, file, size)  # type: ignore[misc]
        yield lambda: self.directories(f"{top}/dirs", count)
        # What is freed becomes data at once.
        yield lambda: self.remove(f"{top}/wide")
        yield lambda: self.write(f"{top}/last", turn * FILES, last)
        if turn % 3 == 2:
            yield lambda: self.remove(f"t{turn - 2}")

    def work(self, turns: int, *, patient: bool) -> None:
        os.makedirs(self.root, exist_ok=True)
        first = self.notes.turn
        for turn in range(first, first + turns):
            for step in self.steps(turn):
                while not os.path.exists(STOP):
                    try:
                        step()
                        break
                    except OSError as error:
                        if not patient or error.errno != errno.EROFS:
                            raise
                        time.sleep(0.02)
            self.notes.say(f"turn {turn}")
            if os.path.exists(STOP):
                return


def file_seed(name: str, seed: int) -> int:
    return seed * 10 + NAMES.index(name)


# Where a load is told to end, and where each of its processes says that it did.
STOP = "/run/load-stop"


def done(name: str) -> str:
    return f"/run/load-{name}-done"


def process(name: str, seed: int, turns: int, allowed: str, *, patient: bool) -> None:
    """One process of the load; what it ended with is told."""
    quiet = {getattr(errno, each) for each in allowed.split(",") if each}
    said = ""
    worker = Worker(name, seed)
    try:
        worker.work(turns, patient=patient)
    except OSError as error:
        worker.notes.say(f"error {errno.errorcode[error.errno or 0]}")
        if error.errno not in quiet:
            said = f"{name}: {error}; SEED={seed}"
    except BaseException as error:
        said = f"{name}: {error!r}; SEED={seed}"
    with open(done(name), "w") as file:
        file.write(said)


def start(seed: str, turns: str, allowed: str = "", *, patient: bool = False) -> None:
    """Goes on when this program has ended, until `stop`."""
    for path in (STOP, *map(done, NAMES)):
        if os.path.exists(path):
            os.unlink(path)
    for name in NAMES:
        if os.fork() == 0:
            os.setsid()
            process(name, int(seed), int(turns), allowed, patient=patient)
            os._exit(0)


def patient(seed: str, turns: str, allowed: str = "") -> None:
    start(seed, turns, allowed, patient=True)


def wait() -> None:
    while not all(os.path.exists(done(name)) for name in NAMES):
        time.sleep(0.01)
    said = []
    for name in NAMES:
        with open(done(name)) as file:
            said.append(file.read())
    if any(said):
        sys.exit("\n".join(filter(None, said)))


def stop() -> None:
    with open(STOP, "w"):
        pass
    wait()


def load(seed: str, turns: str, allowed: str = "") -> None:
    start(seed, turns, allowed)
    wait()


# --- The comparison -----------------------------------------------------------


def differences(name: str, prefix: str, seed: int) -> list[str]:
    notes, worker = Notes(f"{OUT}/{prefix}-{name}"), Worker(name, seed)
    wrong = []
    for path, (number, size) in notes.kept.items():
        if not os.path.lexists(worker.path(path)):
            wrong.append(f"{path} was synced and is gone")
            continue
        wrong += worker.pattern.wrong(worker.path(path), number, size)
    for path, count in notes.counted.items():
        there = list(os.scandir(worker.path(path))) if os.path.isdir(worker.path(path)) else []
        if len(there) != count:
            wrong.append(f"{path} has {len(there)} entries instead of {count}")
        for each in there:
            if each.is_dir():
                os.listdir(each.path)
    wrong += [f"{path} was removed and is there" for path in notes.gone if os.path.lexists(worker.path(path))]
    return [f"{name}/{each}" for each in wrong]


def check(seed: str, prefix: str = "notes", allowed: str = "") -> None:
    if allowed:
        print("errors", *sorted(errno.errorcode[each] for each in first_errors()))
    wrong = [each for name in NAMES for each in differences(name, prefix, int(seed))]
    oracle.fail(wrong, int(seed))
    every = [Notes(f"{OUT}/{prefix}-{name}") for name in NAMES]
    print(f"compared {sum(len(notes.kept) for notes in every)} files")


def first_errors() -> set[int]:
    """Of a walk that reads everything."""
    seen: list[int] = []

    def note(error: OSError) -> None:
        seen.append(error.errno or 0)

    for folder, _, names in os.walk(ROOT, onerror=note):
        for name in names:
            try:
                with open(f"{folder}/{name}", "rb") as file:
                    file.read(1)
            except OSError as error:
                note(error)
    return set(seen)


# --- A full disk --------------------------------------------------------------


def full(seed: str, rounds: str) -> None:
    choose = random.Random(int(seed))
    longest = 0.0
    refused = 0

    def timed(call: Callable[[], object]) -> bool:
        nonlocal longest, refused
        began = time.monotonic()
        try:
            call()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            refused += 1
            return False
        finally:
            longest = max(longest, time.monotonic() - began)
        return True

    for turn in range(int(rounds)):
        base = f"{ROOT}/names{turn}"
        os.mkdir(base)
        number = 0
        # A block for each directory; some space is left for the data.
        while number < 2500 and timed(lambda: os.mkdir(f"{base}/{number}")):  # noqa: B023
            number += 1
        oracle.fill(f"{ROOT}/filled", str(int(seed) + turn))
        for more in range(60):
            timed(lambda: os.mkdir(f"{base}/more{more}"))  # noqa: B023
        oracle.compare(f"{ROOT}/filled", str(int(seed) + turn))
        names = sorted(os.listdir(base))
        for name in choose.sample(names, len(names) // 2):
            timed(lambda: os.rmdir(f"{base}/{name}"))  # noqa: B023
        timed(os.sync)
        oracle.fill(f"{ROOT}/again", str(int(seed) + 100 + turn))
        timed(lambda: shutil.rmtree(f"{ROOT}/filled"))
        oracle.compare(f"{ROOT}/again", str(int(seed) + 100 + turn))
        timed(lambda: shutil.rmtree(f"{ROOT}/again"))
        timed(lambda: shutil.rmtree(base) if turn % 2 else None)  # noqa: B023
        timed(os.sync)
    print(f"refused {refused}\nlongest {longest:.3f}")


# --- Quota --------------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)


def used(path: str) -> None:
    """Q_GETQUOTA of users and groups beside a walk."""
    os.sync()
    told, there = {}, {}
    for kind in (0, 1):
        for owner in OWNERS:
            got = ctypes.create_string_buffer(72)
            command = ctypes.c_int(0x800007 << 8 | kind)
            if libc.quotactl(command, b"/dev/shd0", owner, got) == 0:
                limits = struct.unpack("8QI4x", got.raw)
                told[f"{kind}:{owner}"] = [limits[2], limits[5]]
            there[f"{kind}:{owner}"] = [0, 0]
    seen = set()
    for folder, folders, names in os.walk(ROOT):
        for name in (*folders, *names):
            found = os.lstat(f"{folder}/{name}")
            if found.st_ino in seen:
                continue
            seen.add(found.st_ino)
            for key in (f"0:{found.st_uid}", f"1:{found.st_gid}"):
                if key in there:
                    there[key][0] += found.st_blocks * 512
                    there[key][1] += 1
    with open(path, "w") as file:
        json.dump({"told": told, "there": there}, file)


VERBS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (load, start, patient, wait, stop, check, full, used)
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])

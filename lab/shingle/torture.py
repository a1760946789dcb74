# SPDX-License-Identifier: MIT OR Apache-2.0
"""Torture of journal_lazy: one volume, mount after mount, with a power cut at the end of each (docs/journal-lazy.md).

A *life* is a boot of the kernel with every checker: it mounts what the last cut left, compares what the last life had
synced with its model, byte for byte, and works: threads whose files are held against a model, and fsx on files of
its own, while blocks are sent home and logged again and the caches are dropped. Then everything is synced, and while
the next stress runs the power is cut: what the disk holds then is where the next life begins. The machine goes on to
an orderly unmount, and asks for memory that leaked. Stock e2fsck replays and checks a copy of what each cut left.

Everything follows from the seed: a series that failed comes back with the same command.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shingle import build, drive, fsx, job, machine, process
from shingle.failure import Failure
from shingle.paths import run_directory

STRESS = Path(__file__).with_name("stress.sh")
FSX_SETTINGS = STRESS.with_name("fsx.toml")
BLOCK_SIZES = (1024, 4096)
POLICIES = ("watermarks", "fixed", "off")
STATISTICS = "/sys/fs/ext4/shd0/journal_lazy"
_DRIVE = "st8000as0002"
_CAPACITY_BYTES = 1 << 30
_MEMORY_MIB = 512
_LIFE_LIMIT_S = 1800.0
_E2FSCK_LIMIT_S = 300.0
_THREADS, _PROCESSES = 4, 2
# Lines of what a stress that failed had said.
_HEARD = 30
# fsx does so many operations while the threads of the mix do one.
FSX_SHARE = 40
_LEAKS = "/sys/kernel/debug/kmemleak"
_LEAK_HEAD = re.compile(r"^unreferenced object", re.MULTILINE)


@dataclass(frozen=True)
class Life:
    """What one life of a series did."""

    number: int
    seed: int
    block_bytes: int
    operations: int
    seconds: float
    # Blocks of the log that it took over, and its policy.
    kept: int
    policy: str


def operations_of(mix: int) -> int:
    return _THREADS * mix + _PROCESSES * FSX_SHARE * mix


def assert_clean(image: Path, what: str) -> None:
    """Stock e2fsck replays the journal of an image and then finds nothing."""
    for arguments, accepted in (("-E", "journal_only", "-fy"), (0, 1)), (("-fn",), (0,)):
        done = subprocess.run(
            ["/sbin/e2fsck", *arguments, image], capture_output=True, text=True, timeout=_E2FSCK_LIMIT_S, check=False
        )
        if done.returncode not in accepted:
            said = (done.stdout + done.stderr).splitlines()[-12:]
            raise Failure(f"e2fsck is not content with {what}.", detail=said)


class Series:
    """The lives of one volume."""

    def __init__(self, built: build.Built, seed: int, block_bytes: int, mix: int, folder: Path, leaks: bool) -> None:
        self._built = built
        self._seed = seed
        self._block_bytes = block_bytes
        self._mix = mix
        self._folder = folder
        self._leaks = leaks
        self._disk = folder / "0.drive"
        drive.create(built.crates, drive.find(_DRIVE), self._disk, seed=seed, capacity_bytes=_CAPACITY_BYTES)

    def _random(self, number: int) -> random.Random:
        return random.Random(f"{self._seed} {self._block_bytes} {number}")

    def _stress(self, name: str, seed: int, mix: int) -> job.Step:
        arguments = (job.OUT, name, str(seed), str(mix), str(FSX_SHARE * mix))
        return job.run(["/bin/sh", f"{job.OUT}/{STRESS.name}", *arguments], stdout=f"{name}.txt")

    def _verify(self, name: str, seed: int) -> job.Step:
        same = {"path": name, "seed": seed, "threads": _THREADS, "operations": self._mix, "files_max": 150}
        return job.load("mix", same | {"verify_every": self._mix, "stage": "verify"})

    def _looks_for_leaks(self, number: int) -> bool:
        """A leak needs no many lives to show, and kmemleak takes a fifth of the time."""
        return self._leaks and number % 4 == 0

    def _steps(self, number: int) -> tuple[int, str, list[job.Step]]:
        choose = self._random(number)
        seed, policy = choose.randrange(1 << 30), choose.choice(POLICIES)
        steps: list[job.Step] = []
        if number == 0:
            journal_mib = 4 if self._block_bytes == 1024 else 16
            made = ("-b", str(self._block_bytes), "-J", f"size={journal_mib}", "-E", "lazy_itable_init=0")
            steps.append(job.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", *made, job.DEVICE]))
        steps += [
            job.mount("ext4", "journal_lazy"),
            job.write(f"{STATISTICS}/policy", policy),
            job.read(f"{STATISTICS}/rebuilt") | {"phase": "rebuilt"},
        ]
        if number > 0:
            before = self._random(number - 1).randrange(1 << 30)
            steps += [
                self._verify(f"life{number - 1}", before),
                job.run(["/bin/sh", "-c", "rm -rf /mnt/*.fsx? /mnt/c*"]),
            ]
        if number > 1:
            steps.append(job.run(["/bin/rm", "-rf", f"/mnt/life{number - 2}"]))
        steps += [
            self._stress(f"life{number}", seed, self._mix),
            job.sync(),
            # What is synced is there after the cut, whatever was under way.
            job.background([self._stress(f"c{number}", seed + 7, 1_000_000)]),
            job.sleep(choose.uniform(0.2, 20)),
            job.save(),
            job.stop_background(),
            # A group of processes of its own.
            job.run(["/bin/sh", "-c", "kill -s KILL -- -$(cat /run/stress.pid)"]),
            job.sleep(1),
            self._verify(f"life{number}", seed),
            job.umount(),
        ]
        if self._looks_for_leaks(number):
            # An object is suspected when it is older than five seconds, and reported by the second scan.
            steps += [
                job.sleep(6),
                job.write(_LEAKS, "scan"),
                job.sleep(6),
                job.write(_LEAKS, "scan"),
                job.read(_LEAKS),
            ]
        return seed, policy, steps

    def live(self, number: int) -> Life:
        try:
            return self._live(number)
        except Failure as failure:
            place = f"life {number} with blocks of {self._block_bytes}, seed {self._seed}, --mix {self._mix}"
            raise Failure(f"{place}: {failure}", detail=failure.detail) from None

    def _live(self, number: int) -> Life:
        began = time.monotonic()
        seed, policy, steps = self._steps(number)
        out, after = self._folder / f"{number}.out", self._folder / f"{number + 1}.drive"
        out.mkdir()
        boot = machine.Boot(
            steps=tuple(steps), drive=self._disk, save=after, seed=seed, memory_mib=_MEMORY_MIB,
            host_limit_s=_LIFE_LIMIT_S, files=(STRESS, FSX_SETTINGS, self._built.crates.load, fsx.program()),
            kernel_arguments=("kmemleak=on",) if self._looks_for_leaks(number) else (),
        )  # fmt: skip
        try:
            outcome = machine.run(self._built.machine, boot, out)
        except Failure as failure:
            heard = [line for path in sorted(out.glob("*.txt")) for line in path.read_text().splitlines()[-_HEARD:]]
            raise Failure(str(failure), detail=[*heard, *failure.detail], status=failure.status) from None
        said = [str(step.extra["text"]) for step in outcome.steps if step.do == "read"]
        if self._looks_for_leaks(number) and _LEAK_HEAD.search(said[-1]):
            raise Failure("memory leaked.", detail=said[-1].splitlines()[:30])
        image = self._folder / "image"
        drive.export(self._built.crates, after, image)
        assert_clean(image, f"what the power cut of life {number} left")
        image.unlink()
        self._disk.unlink()
        self._disk = after
        for path in out.iterdir():
            path.unlink()
        return Life(
            number, seed, self._block_bytes, operations_of(self._mix), time.monotonic() - began, int(said[0]), policy
        )  # fmt: skip


def series(
    built: build.Built, operations: int, seed: int, *, mix: int, block_sizes: tuple[int, ...] = BLOCK_SIZES,
    leaks: bool = True, tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Life]:  # fmt: skip
    """Lives until so many operations are done, a volume of each block size side by side."""
    with tempfile.TemporaryDirectory(prefix="shingle-torture-", dir=run_directory()) as name:
        volumes = []
        for block_bytes in block_sizes:
            folder = Path(name) / str(block_bytes)
            folder.mkdir()
            volumes.append(Series(built, seed, block_bytes, mix, folder, leaks))
        done, number = 0, 0
        while done < operations:
            tell(f"{done:,} of {operations:,} operations; life {number}")
            tasks = [partial(volume.live, number) for volume in volumes]
            for life in process.in_parallel(tasks, width=len(tasks)):
                done += life.operations
                yield life
            number += 1


def described(life: Life) -> str:
    """One line on a life."""
    return (
        f"life {life.number}, seed {life.seed}, blocks of {life.block_bytes}, {life.policy}: {life.kept:,} blocks "
        f"taken over, {life.operations:,} operations in {life.seconds:.0f} s"
    )


def write_record(path: Path, life: Life, kernel: str, seed: int, *, processors: int) -> None:
    line = {
        "schema": 1, "workload": "torture", "processors": processors, "seed": seed, "life": life.number,
        "life_seed": life.seed, "block_bytes": life.block_bytes, "policy": life.policy, "kept": life.kept,
        "operations": life.operations, "host": {"seconds": round(life.seconds, 1)},
        "versions": {"kernel": kernel},
    }  # fmt: skip
    with path.open("a") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")

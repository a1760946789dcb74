# SPDX-License-Identifier: MIT OR Apache-2.0
"""Torture of journal_lazy: volumes that live many times, with a power cut at each end (docs/results/torture.md).

A *life* is a boot of the kernel with every checker: it mounts what the last cut left, compares what the last life had
synced with its models, byte for byte, and works: threads whose files are held against a model, fsx on files of its
own, long names and directories that come and go and whose blocks become synced data at once, and blocks that say which
they are and are overwritten in all ways, while blocks are sent home and logged again and the caches are dropped. Then
everything is synced, and while the next stress runs the power is cut: what the disk holds then is where the next life
begins. The machine goes on: after an unmount and a mount it fills the free space with files of a pattern, sends the log
home, and compares everything. Stock e2fsck replays and checks a copy of what each cut left.

Each volume has a log of another size and another feature. Everything follows from the seed and the volume's number:
what failed comes back with the command that the failure names.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich import box
from rich.table import Table

from shingle import process
from shingle.build import build
from shingle.build.tools import FSX
from shingle.catalogue import drive
from shingle.failure import Failure, unknown_name
from shingle.machine import job, machine
from shingle.page import replaced
from shingle.paths import BUILD, IN_MACHINE, ROOT, run_folder
from shingle.verify import e2fsck
from shingle.verify.crash_workload import BLOCKS_PROGRAM

STRESS = IN_MACHINE / "stress.sh"
FSX_SETTINGS = IN_MACHINE / "fsx.toml"
ORACLE = IN_MACHINE / "oracle.py"
# What stress.sh runs, with it.
PROGRAMS = (STRESS, FSX_SETTINGS, ORACLE, BLOCKS_PROGRAM)
POLICIES = ("watermarks", "fixed", "off")
# From so many blocks on a log is one as users have it. Version 1 wrote snapshots into these only.
LARGE_FROM = 4096
# Mounts of one volume.
LIVES = 4
_DRIVE = "st8000as0002"
_GIB, _MIB = 1 << 30, 1 << 20
_MEMORY_MIB = 512
_LIFE_LIMIT_S = 1800.0
_E2FSCK_LIMIT_S = 300.0
# A task that waits for so many virtual seconds in the kernel waits for ever. The console then has where each is.
_HUNG = ("sysctl.kernel.hung_task_timeout_secs=600", "sysctl.kernel.hung_task_panic=1")
_THREADS, _PROCESSES = 4, 2
# Lines of what a stress that failed had said.
_HEARD = 30
# fsx does so many operations while the threads of the mix do one.
FSX_SHARE = 40
# One turn of names, some 5,000 operations, and one of overwriting blocks for so many of the mix.
MIX_A_TURN = 200
# With data_relocate one block moves for so many operations at least; in a series of the usual mix, for some ten.
MOVED_ONE_IN = 20
_LEAKS = "/sys/kernel/debug/kmemleak"
_LEAK_HEAD = re.compile(r"^unreferenced object", re.MULTILINE)

# --- What a volume is like ----------------------------------------------------


@dataclass(frozen=True)
class Feature:
    """How a volume with a feature that the documents recommend is made and mounted."""

    mkfs: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    options: str = ""
    block_bytes: int = 4096
    # The journal on another device.
    external: bool = False
    # Most of the work is in an encrypted directory.
    secret: bool = False
    # MiB that the filler leaves free: so little that freed blocks are soon used again.
    room: int = 150

    @property
    def base(self) -> str:
        return "/mnt/secret" if self.secret else "/mnt"

    def mount_options(self, *, relocates: bool = False) -> str:
        return ",".join(filter(None, ("journal_lazy", self.options, "data_relocate" if relocates else "")))


FEATURES = {
    "plain": Feature(),
    "inline_data": Feature(("-O", "inline_data", "-I", "512")),
    "quota": Feature(("-O", "quota,project"), ("quotatype=usrquota:grpquota:prjquota",), "prjquota"),
    "1k-blocks": Feature(block_bytes=1024),
    "external-journal": Feature(external=True),
    # A small file or directory takes four times as much.
    "bigalloc": Feature(("-O", "bigalloc", "-C", "16384"), room=300),
    "encryption": Feature(("-O", "encrypt"), secret=True),
}
# MiB; 0 is a small log: 4 MiB, or 16 with blocks of 4 KiB. Volumes side by side take turns.
LOGS_MIB = (64, 0, 64, 256, 64, 0, 64, 1024)


@dataclass(frozen=True)
class Shape:
    """What is drawn for a volume."""

    number: int
    log_mib: int
    feature: str

    @property
    def made(self) -> Feature:
        return FEATURES[self.feature]

    @property
    def log_blocks(self) -> int:
        return self.log_mib * _MIB // self.made.block_bytes

    @property
    def file_system_bytes(self) -> int:
        """An external journal lies behind it. mke2fs gives a log less than half of what is free."""
        return _GIB if self.log_mib <= 256 else 3 * _GIB

    @property
    def disk_bytes(self) -> int:
        return self.file_system_bytes + (_GIB if self.made.external else 0)

    def mke2fs(self, device: str, journal: str | None) -> list[str]:
        """`journal`: the device of an external one."""
        extended = ",".join(("lazy_itable_init=0,lazy_journal_init=1,nodiscard", *self.made.extended))
        where = f"device={journal}" if journal else f"size={self.log_mib}"
        return [
            "/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", str(self.made.block_bytes), "-J", where, *self.made.mkfs,
            "-E", extended, device, f"{self.file_system_bytes // _MIB}M",
        ]  # fmt: skip

    def made_journal(self, journal: str) -> list[str]:
        made = ["/sbin/mke2fs", "-q", "-F", "-O", "journal_dev", "-b", str(self.made.block_bytes), journal]
        return [*made, f"{self.log_mib}M"]


def shapes(seed: int, without: Sequence[str] = ()) -> Iterator[Shape]:
    """The volumes of a series: each feature once before any comes again."""
    for name in without:
        if name not in FEATURES:
            raise unknown_name("feature of the torture", name, FEATURES)
    choose = random.Random(f"{seed} features")
    number = itertools.count()
    while True:
        names = [name for name in FEATURES if name not in without]
        choose.shuffle(names)
        for name, volume in zip(names, number, strict=False):
            log_mib = LOGS_MIB[volume % len(LOGS_MIB)]
            if log_mib == 0:
                log_mib = 4 if FEATURES[name].block_bytes == 1024 else 16
            if FEATURES[name].block_bytes == 1024:
                # Blocks are four times as many.
                log_mib = min(log_mib, 64)
            yield Shape(volume, log_mib, name)


# --- What a life did ----------------------------------------------------------

# Of a mount, in /sys/fs/ext4/DEVICE/journal_lazy; summed over the mounts of a life.
COUNTED = (
    "snapshots", "snapshot_blocks", "mount_snapshots", "mount_blocks", "logged_blocks", "relogged", "demoted", "swept",
    "emergency", "scrubbed_blocks", "log_reads",
)  # fmt: skip
# Blocks of data that got another place, one folder above; a kernel without data_relocate does not tell it.
MOVED = "data_relocated_blocks"
# As it is at the end of a life's first mount.
FIRST = ("rebuilt", "log_blocks", "live_blocks")


@dataclass(frozen=True)
class Life:
    """What one life of a volume did."""

    number: int
    seed: int
    shape: Shape
    operations: int
    seconds: float
    policy: str
    # What COUNTED and FIRST name; what the kernel does not tell is not there.
    counts: Mapping[str, int] = field(default_factory=dict)
    # Bytes that the oracle for data wrote and compared.
    compared_bytes: int = 0
    # Whether data_relocate was on.
    relocates: bool = False

    @property
    def wraps(self) -> int:
        return self.counts.get("logged_blocks", 0) // max(1, self.counts.get("log_blocks", self.shape.log_blocks))

    @property
    def shipped(self) -> bool:
        """Whether the log is as users have it."""
        return self.counts.get("log_blocks", self.shape.log_blocks) >= LARGE_FROM


def turns_of(mix: int) -> int:
    return max(2, mix // MIX_A_TURN)


def operations_of(mix: int, names: int) -> int:
    return _THREADS * mix + _PROCESSES * FSX_SHARE * mix + names


def counts_of(texts: Sequence[str]) -> dict[str, int]:
    """From what `grep . NAMES` said of each mount of a life."""
    counts: dict[str, int] = {}
    for text in texts:
        for name, value in re.findall(r"^(\w+):(\d+)$", text, re.MULTILINE):
            is_summed = name in (*COUNTED, MOVED)
            counts[name] = counts.get(name, 0) + int(value) if is_summed else counts.get(name, int(value))
    return counts


# The schema since which e2fsck must have repaired nothing before it checks.
_JUDGED = 4
# What a series with such logs promises, and what is said when there is none of it.
_SHIPPED = {
    "snapshots": "no snapshot was written",
    "mount_snapshots": "no mount read a snapshot",
    "demoted": "no block was demoted",
    "relogged": "no block was logged again",
    "wraps": "the log was never filled once round",
    "scrubbed_blocks": "no log block was scrubbed",
    "compared_bytes": "the oracle for data compared nothing",
}
_SMALL = tuple(name for name in _SHIPPED if name != "scrubbed_blocks")


def total(lives: Sequence[Life], name: str) -> int:
    if name in ("wraps", "compared_bytes"):
        return sum(getattr(life, name) for life in lives)
    return sum(life.counts.get(name, 0) for life in lives)


@dataclass(frozen=True)
class Series:
    """What is asked for. The same again does the same, but for what no seed decides under QEMU."""

    seed: int
    mix: int
    operations: int
    only: int | None = None
    without: Sequence[str] = ()
    relocates: bool = False
    # Of the command: those that choose the kernel.
    options: Sequence[str] = ()

    def again(self, volume: int) -> str:
        """The command that runs one volume's lives again."""
        words = [
            *self.options,
            *(["--data-in-order"] if self.relocates else ()),
            *(["--without", ",".join(self.without)] if self.without else ()),
            "--seed", str(self.seed), "--mix", str(self.mix), "--volume", str(volume),
        ]  # fmt: skip
        return f"./shingle torture {' '.join(words)}"


def lacking(lives: Sequence[Life], without: Sequence[str] = (), *, counts_all: bool = True) -> list[str]:
    """What a series promised and did not do, a sentence each.

    `without`: features that the series leaves out. The module for Debian's kernel does not count all of it, and what it
    does not count cannot be asked for.
    """
    found = []
    shipped, small = [each for each in lives if each.shipped], [each for each in lives if not each.shipped]
    for group, names, what in (
        (shipped, tuple(_SHIPPED), f"logs of {LARGE_FROM:,} blocks and more"), (small, _SMALL, "small logs"),
    ):  # fmt: skip
        told = {name for life in group for name in life.counts} | {"compared_bytes"}
        told |= {"wraps"} if "logged_blocks" in told else set()
        for name in names:
            if group and (counts_all or name in told) and total(group, name) == 0:
                found.append(f"In {len(group)} lives with {what} {_SHIPPED[name]}.")
    for life in lives:
        # Clusters stay where they are.
        if life.relocates and life.shape.feature != "bigalloc":
            moved, least = life.counts.get(MOVED, 0), life.operations // MOVED_ONE_IN
            if moved < least:
                found.append(
                    f"Life {life.number} of volume {life.shape.number} moved {moved:,} blocks of data; expected"
                    f" {least:,} at least."
                )
    for life in shipped:
        if life.counts.get("snapshots", 0 if counts_all else 1) == 0:
            found.append(f"Life {life.number} of volume {life.shape.number} wrote no snapshot.")
    volumes = {life.shape for life in lives}
    wanted = set(FEATURES) - set(without)
    never = sorted(wanted - {shape.feature for shape in volumes})
    if len(volumes) >= len(wanted) and never:
        found.append(f"In {len(volumes)} volumes none had {', '.join(never)}.")
    return found


def table(lives: Sequence[Life]) -> Table:
    """A row for each size of the log, and the sum."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for heading in _HEADINGS:
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows(lives):
        shown.add_row(*row)
    return shown


_HEADINGS = (
    "log", "blocks of", "lives", "operations", "snapshots\nwritten", "read at\nmount", "blocks\ndemoted",
    "logged\nagain", "wraps", "scrubbed", "data blocks\nmoved", "MiB of data\ncompared",
)  # fmt: skip


def rows(lives: Sequence[Life]) -> list[tuple[str, ...]]:
    sizes = sorted({(life.shape.log_mib, life.shape.made.block_bytes) for life in lives})
    found = []
    for log_mib, block_bytes in sizes:
        own = [each for each in lives if (each.shape.log_mib, each.shape.made.block_bytes) == (log_mib, block_bytes)]
        found.append((f"{log_mib} MiB", f"{block_bytes:,}", *_sums(own)))
    return found if len(found) == 1 else [*found, ("all", "", *_sums(lives))]


def _sums(lives: Sequence[Life]) -> tuple[str, ...]:
    names = ("snapshots", "mount_snapshots", "demoted", "relogged", "wraps", "scrubbed_blocks", MOVED)
    told = [f"{total(lives, name):,}" if _is_told(lives, name) else "" for name in names]
    operations = sum(life.operations for life in lives)
    return (f"{len(lives):,}", f"{operations:,}", *told, f"{total(lives, 'compared_bytes') // _MIB:,}")


def _is_told(lives: Sequence[Life], name: str) -> bool:
    """Debian's kernel counts little, and one without data_relocate no blocks that moved."""
    wanted = "logged_blocks" if name == "wraps" else name
    return any(wanted in life.counts for life in lives)


def markdown(lives: Sequence[Life]) -> str:
    """The same as a table of docs/results/torture.md."""
    head = " | ".join(heading.replace("\n", " ") for heading in _HEADINGS)
    lines = [f"| {head} |", "|" + "--:|" * len(_HEADINGS)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows(lives))]) + "\n"


# --- The page -----------------------------------------------------------------

PAGE, RECORDS = ROOT / "docs/results/torture.md", ROOT / "results/torture.jsonl"
# A kernel with fewer operations has one row: a table for each would make the page longer than anybody reads.
_FEW_OPERATIONS = 4_000_000
_BEGIN, _END = "<!-- from results/torture.jsonl -->\n", "<!-- end -->\n"


def page_with(page: str, records: Path) -> str:
    """The page with the sums of the records between its two marks."""
    parts, few = [], []
    read = read_records(records)
    for kernel, where in dict.fromkeys((kernel, where) for kernel, where, *_ in read):
        own = [(seed, life) for *of, seed, life in read if of == [kernel, where]]
        seeds, lives = ", ".join(map(str, sorted({seed for seed, _ in own}))), [life for _, life in own]
        if sum(life.operations for life in lives) < _FEW_OPERATIONS:
            few.append(f"| {where} | `{kernel[:12]}` | {seeds} | {' | '.join(_sums(lives))} |")
        else:
            parts.append(f"On {where}, kernel `{kernel}` (seeds: {seeds}):\n\n{markdown(lives)}")
    if few:
        heads = [heading.replace("\n", " ") for heading in ("on", "kernel", "seeds", *_HEADINGS[2:])]
        lines = [f"| {' | '.join(heads)} |", "|---|---|---|" + "--:|" * (len(heads) - 3), *few]
        parts.append("Shorter series, all logs together:\n\n" + "\n".join(lines) + "\n")
    text = "\n".join(parts) or "No series of this configuration is recorded yet.\n"
    return replaced(page, _BEGIN, _END, text, PAGE)


def write_page() -> None:
    PAGE.write_text(page_with(PAGE.read_text(), RECORDS))


# --- Checks on the host -------------------------------------------------------


def assert_clean(image: Path, what: str, journal: Path | None = None) -> None:
    """Stock e2fsck replays the journal of an image and then finds nothing."""
    outside = () if journal is None else ("-j", str(journal))
    for argv, is_well in (e2fsck.REPLAY, e2fsck.is_replayed), (e2fsck.CHECK, e2fsck.is_content):
        done = subprocess.run(
            [*argv, *outside, image],
            capture_output=True, text=True, timeout=_E2FSCK_LIMIT_S, check=False,
        )  # fmt: skip
        if not is_well(done.returncode, done.stdout):
            said = (done.stdout + done.stderr).splitlines()[-12:]
            raise Failure(f"e2fsck is not content with {what}.", detail=said)


def cut_off(image: Path, start: int, size: int, target: Path) -> Path:
    """A part of an image as a sparse file of its own."""
    with image.open("rb") as source, target.open("wb") as file:
        source.seek(start)
        for place in range(0, size, _MIB):
            data = source.read(_MIB)
            if data.strip(b"\0"):
                file.seek(place)
                file.write(data)
        file.truncate(size)
    return target


# --- Lives under User-Mode Linux ----------------------------------------------


class Volume:
    """The lives of one volume."""

    def __init__(self, built: build.Built, asked: Series, shape: Shape, folder: Path, leaks: bool) -> None:
        self._built = built
        self._asked = asked
        self._relocates, self._mix = asked.relocates, asked.mix
        self.shape = shape
        self._folder = folder
        self._leaks = leaks
        self._disk = folder / "0.drive"
        self._device = "/dev/loop0" if shape.made.external else job.DEVICE
        self._journal = "/dev/loop1" if shape.made.external else None
        self._statistics = f"/sys/fs/ext4/{self._device.rpartition('/')[2]}/journal_lazy"
        drive.create(built.crates, drive.find(_DRIVE), self._disk, seed=asked.seed, capacity_bytes=shape.disk_bytes)

    def _random(self, number: int) -> random.Random:
        return random.Random(f"{self._asked.seed} {self.shape} {number}")

    def _own_seed(self, number: int) -> int:
        return self._random(number).randrange(1 << 30)

    def _oracle(self, verb: str, *arguments: object, name: str = "") -> job.Step:
        argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{ORACLE.name}", verb, *map(str, arguments)]
        return job.run(argv, stdout=f"{name or verb}.txt")

    def _stress(self, name: str, seed: int, mix: int, turns: int) -> job.Step:
        arguments = (job.OUT, self.shape.made.base, name, str(seed), str(mix), str(FSX_SHARE * mix), str(turns))
        return job.run(["/bin/sh", f"{job.OUT}/{STRESS.name}", *arguments], stdout=f"{name}.txt")

    def _verify(self, number: int) -> list[job.Step]:
        seed, name, base = self._own_seed(number), f"life{number}", self.shape.made.base
        same = {"path": name, "seed": seed, "threads": _THREADS, "operations": self._mix, "files_max": 150}
        return [
            job.load("mix", same | {"verify_every": self._mix, "stage": "verify"}, directory=base),
            self._oracle("check", f"{base}/{name}.names", seed, turns_of(self._mix)),
            job.run(
                ["/usr/bin/python3", "-I", f"{job.OUT}/{BLOCKS_PROGRAM.name}", "check"], stdout="blocks.txt",
                env={"DATA_ROOT": f"{base}/{name}.blocks", "DATA_NOTES": f"{base}/{name}.notes"},
            ),
        ]  # fmt: skip

    def _counts(self, name: str) -> job.Step:
        own = f"cd {self._statistics} && grep -s . {' '.join((*COUNTED, *FIRST))} /dev/null"
        command = f"{own}; cd {self._statistics}/.. && grep -s . {MOVED} /dev/null || true"
        return job.run(["/bin/sh", "-c", command], stdout=f"{name}.counts")

    def _looks_for_leaks(self, number: int) -> bool:
        """A leak needs no many lives to show, and kmemleak takes a fifth of the time."""
        return self._leaks and number % LIVES == 0

    def _devices(self) -> list[job.Step]:
        if not self.shape.made.external:
            return []
        places = ((0, 0, self.shape.file_system_bytes), (1, self.shape.file_system_bytes, self.shape.log_mib * _MIB))
        loop = "losetup --direct-io=on -o {} --sizelimit {} /dev/loop{} " + job.DEVICE
        return [job.run(["/bin/sh", "-c", loop.format(start, size, number)]) for number, start, size in places]

    def _mounted(self) -> list[job.Step]:
        options = self.shape.made.mount_options(relocates=self._relocates)
        steps = [job.mount("ext4", options) | {"device": self._device}]
        return [*steps, self._oracle("unlock", "/mnt")] if self.shape.made.secret else steps

    def _made(self) -> list[job.Step]:
        steps = []
        if self._journal is not None:
            steps.append(job.run(self.shape.made_journal(self._journal)))
        steps += [job.run(self.shape.mke2fs(self._device, self._journal)), *self._mounted()]
        if self.shape.made.secret:
            steps.append(self._oracle("unlock", "/mnt", self.shape.made.base))
        return [*steps, self._oracle("reserve", "/mnt/reserved", self.shape.made.room), job.umount()]

    def _removed(self, *names: str) -> job.Step:
        base = self.shape.made.base
        every = " ".join(f"{folder}/{name}" for name in names for folder in sorted({"/mnt", base}))
        return job.run(["/bin/sh", "-c", f"rm -rf {every}"])

    def steps(self, number: int) -> tuple[int, str, list[job.Step]]:
        choose = self._random(number)
        seed, policy = choose.randrange(1 << 30), choose.choice(POLICIES)
        steps = [*self._devices(), *(self._made() if number == 0 else []), *self._mounted()]
        steps.append(job.write(f"{self._statistics}/policy", policy))
        if number > 0:
            steps += [*self._verify(number - 1), self._removed("*.fsx?", "c*")]
        if number > 1:
            steps.append(self._removed(f"life{number - 2}*"))
        steps += [
            self._stress(f"life{number}", seed, self._mix, turns_of(self._mix)),
            job.sync(),
            # What is synced is there after the cut, whatever was under way.
            job.background([self._stress(f"c{number}", seed + 7, 1_000_000, 1_000_000)]),
            job.sleep(choose.uniform(0.2, 6)),
            job.save(),
            job.stop_background(),
            # A group of processes of its own.
            job.run(["/bin/sh", "-c", "kill -s KILL -- -$(cat /run/stress.pid)"]),
            job.sleep(1),
            *self._verify(number),
            self._counts("first"),
            job.umount(),
            *self._compared(number, seed),
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

    def _compared(self, number: int, seed: int) -> list[job.Step]:
        """The oracle for data, behind a mount that takes the log over: a stale block in it is written over a file."""
        return [
            *self._mounted(),
            self._removed("*.fsx?", "c*"),
            self._oracle("fill", "/mnt/filled", seed),
            self._counts("second"),
            self._oracle("drain", "/mnt"),
            job.drop_caches(),
            self._oracle("compare", "/mnt/filled", seed),
            *self._verify(number),
            job.umount(),
        ]

    def live(self, number: int) -> Life:
        try:
            return self._live(number)
        except Failure as failure:
            shape = self.shape
            place = f"life {number} of volume {shape.number} ({shape.feature}, a log of {shape.log_mib} MiB)"
            again = f"Again: {self._asked.again(shape.number)}"
            raise Failure(f"{place}: {failure} {again}", detail=failure.detail) from None

    def _live(self, number: int) -> Life:
        began = time.monotonic()
        seed, policy, steps = self.steps(number)
        out, after = self._folder / f"{number}.out", self._folder / f"{number + 1}.drive"
        out.mkdir()
        boot = machine.Boot(
            steps=tuple(steps), drive=self._disk, save=after, seed=seed, memory_mib=_MEMORY_MIB,
            host_limit_s=_LIFE_LIMIT_S, files=(*PROGRAMS, self._built.crates.load, FSX.program()),
            kernel_arguments=(*_HUNG, *(("kmemleak=on",) if self._looks_for_leaks(number) else ())),
        )  # fmt: skip
        try:
            outcome = machine.run(self._built.machine, boot, out)
        except Failure as failure:
            heard = [line for path in sorted(out.glob("*.txt")) for line in path.read_text().splitlines()[-_HEARD:]]
            kept = BUILD / f"torture-{self._asked.seed}-{self.shape.number}-{number}.log"
            shutil.copy(out / "console.log", kept)
            raise Failure(
                f"{failure} The whole console is in {kept.relative_to(ROOT)}.",
                detail=[*heard, *failure.detail], status=failure.status,
            ) from None  # fmt: skip
        said = [str(step.extra["text"]) for step in outcome.steps if step.do == "read"]
        if self._looks_for_leaks(number) and _LEAK_HEAD.search(said[-1]):
            raise Failure("memory leaked.", detail=said[-1].splitlines()[:30])
        self._checked(after, number)
        self._disk.unlink()
        self._disk = after
        counts = counts_of([(out / f"{name}.counts").read_text() for name in ("first", "second")])
        names = _number(r"^operations (\d+)$", (out / f"life{number}.txt").read_text())
        compared = _number(r"^compared (\d+) bytes", (out / "compare.txt").read_text())
        for path in out.iterdir():
            path.unlink()
        operations = operations_of(self._mix, names)
        seconds = time.monotonic() - began
        return Life(number, seed, self.shape, operations, seconds, policy, counts, compared, self._relocates)

    def _checked(self, disk: Path, number: int) -> None:
        image, journal = self._folder / "image", None
        drive.export(self._built.crates, disk, image)
        if self.shape.made.external:
            start, size = self.shape.file_system_bytes, self.shape.log_mib * _MIB
            journal = cut_off(image, start, size, self._folder / "journal")
        assert_clean(image, f"what the power cut of life {number} left", journal)
        image.unlink()


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise Failure(f"the machine said nothing like {pattern!r}: {text[-300:]!r}.")
    return int(found[1])


def series(
    built: build.Built, asked: Series, *, leaks: bool = True, width: int = 2,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Life]:  # fmt: skip
    """Lives until so many operations are done, `width` volumes side by side; or those of `only` one volume."""
    drawn = shapes(asked.seed, asked.without)
    done = 0
    while done < asked.operations:
        chosen = [next(drawn) for _ in range(width)]
        if asked.only is not None:
            chosen = [shape for shape in chosen if shape.number == asked.only]
            if not chosen:
                continue
        with run_folder() as name:
            volumes = []
            for shape in chosen:
                folder = name / str(shape.number)
                folder.mkdir()
                volumes.append(Volume(built, asked, shape, folder, leaks))
            for number in range(LIVES):
                tell(f"{done:,} of {asked.operations:,} operations; life {number} of volume {chosen[0].number}")
                for life in process.in_parallel([partial(each.live, number) for each in volumes], width=width):
                    done += life.operations
                    yield life
                if done >= asked.operations and asked.only is None:
                    return
        if asked.only is not None:
            return


def described(life: Life) -> str:
    """One line on a life."""
    shape, counts = life.shape, life.counts
    snapshots = f"{counts.get('snapshots', 0):,} snapshots"
    moved = f", {counts.get(MOVED, 0):,} blocks of data moved" if life.relocates else ""
    return (
        f"volume {shape.number}, life {life.number}, seed {life.seed}: {shape.feature}, log of {shape.log_mib} MiB, "
        f"{life.policy}: {counts.get('rebuilt', 0):,} blocks taken over, {snapshots}{moved}, "
        f"{life.wraps} wraps, {life.operations:,} operations in {life.seconds:.0f} s"
    )


# --- Records ------------------------------------------------------------------


def write_record(path: Path, life: Life, kernel: str, seed: int, *, processors: int, kcsan: bool = False) -> None:
    line = {
        "schema": 4, "workload": "torture", "processors": processors, "seed": seed, "volume": life.shape.number,
        "feature": life.shape.feature, "log_mib": life.shape.log_mib, "life": life.number, "life_seed": life.seed,
        "policy": life.policy, "operations": life.operations, "wraps": life.wraps,
        "compared_bytes": life.compared_bytes, "counts": dict(life.counts), "host": {"seconds": round(life.seconds, 1)},
        "versions": {"kernel": kernel},
    }  # fmt: skip
    if kcsan:
        line["kcsan"] = True
    if life.relocates:
        line["relocates"] = True
    with path.open("a") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read_records(path: Path) -> list[tuple[str, str, int, Life]]:
    """Kernel, kind of machine, the series' seed and life of each line; the first schema had no snapshots: left out."""
    found = []
    for line in map(json.loads, path.read_text().splitlines()):
        if line["schema"] == 1:
            continue
        shape = Shape(line["volume"], line["log_mib"], line["feature"])
        life = Life(
            line["life"], line["life_seed"], shape, line["operations"], line["host"]["seconds"], line["policy"],
            line["counts"], line["compared_bytes"], line.get("relocates", False),
        )  # fmt: skip
        where = "one processor" if line["processors"] == 1 else f"{line['processors']} processors"
        where += " with KCSAN" if line.get("kcsan") else ""
        where += ", data in order" if life.relocates else ""
        # `e2fsck -fy` went before the check of what the cut left, and repaired it.
        where += ", repaired first" if line["schema"] < _JUDGED else ""
        found.append((line["versions"]["kernel"], where, line["seed"], life))
    return found

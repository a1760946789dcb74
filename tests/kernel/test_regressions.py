# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a kernel's regression suite asks of ext4 and its journal, asked of journal_lazy under load (docs/regressions.md).

Each row runs with a log of 64 MiB, which is a shipped size, and most with one of 16 MiB, too. The log went round or has
snapshots before the row begins, and the row says so with the kernel's own statistics. What was synced is compared byte
for byte with notes that a power cut cannot reach (regression_work.py).
"""

from __future__ import annotations

import hashlib
import mmap
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from kernel.test_snapshots import Log
from shingle import faults, fs, job
from shingle.console import Trouble
from shingle.drive import FormattedDrive
from shingle.paths import ROOT, run_directory
from shingle.record import counter_changes

pytestmark = pytest.mark.machine

LAZY = "journal_lazy"
SEED = 18
CAPACITY_BYTES = 1 << 30
LOGS = {mib: fs.ext4(f"ext4-lazy-{mib}m", f"journal_lazy on a {mib} MiB journal", mib, LAZY) for mib in (64, 16)}
BOTH = pytest.mark.parametrize("log_mib", list(LOGS))
PROGRAM = Path(__file__).with_name("regression_work.py")
ORACLE = ROOT / "lab/shingle/oracle.py"
COUNTED = ("snapshots", "demoted", "relogged", "logged_blocks", "log_blocks", "live_blocks", "rebuilt",
           "mount_snapshots", "log_reads")  # fmt: skip
# A turn of the load logs some 350 blocks.
TURNS = {64: 30, 16: 14}
ENDLESS = "100000"


def work(verb: str, *arguments: object, stdout: str | None = None, may_fail: bool = False) -> job.Step:
    argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{PROGRAM.name}", verb, *map(str, arguments)]
    return job.run(argv, stdout=stdout or f"{verb}.txt", may_fail=may_fail)


def oracle(*arguments: str) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{ORACLE.name}", *arguments], stdout=f"{arguments[0]}.txt")


def statistics() -> list[job.Step]:
    return [stress.statistic(name) for name in COUNTED]


@dataclass(frozen=True)
class Life:
    """A drive, and the notes of what was synced on it."""

    formatted: FormattedDrive
    drive: Path
    notes: tuple[Path, ...]
    requests: int = 0

    def boot(self, bench: Bench, steps: Sequence[job.Step], **more: object) -> tuple[Booted, Life]:
        """Goes on with this drive; the notes go along. Without `save` the drive is the one before."""
        files = (PROGRAM, ORACLE, *self.notes)
        booted = bench.boot([*self.formatted.classes(), *steps], drive=self.drive, files=files, seed=SEED, **more)  # type: ignore[arg-type]
        return booted, Life(
            self.formatted, booted.saved or self.drive, tuple(sorted(booted.out.glob("notes-?"))), requests_of(booted)
        )


def requests_of(booted: Booted) -> int:
    """That reached the drive by the end of the last step."""
    after = booted.outcome.steps[-1].after if booted.outcome.steps else {}
    return sum(after.get(name, 0) for name in ("read_requests", "written_requests", "flushes"))


def mounted(*steps: job.Step, options: str = LAZY) -> list[job.Step]:
    return [job.mount("ext4", options), *steps, job.umount()]


def compared(booted: Booted) -> int:
    return int(booted.text("check.txt").rpartition("compared ")[2].split()[0])


@pytest.fixture(scope="module")
def worked() -> Iterator[Callable[[int], Life]]:
    """A drive for each size of log, on which a lazy mount has worked long enough for snapshots; made once."""
    with tempfile.TemporaryDirectory(prefix="shingle-test-", dir=run_directory()) as name:
        folder = Path(name)

        @cache
        def of(log_mib: int) -> Life:
            below = folder / str(log_mib)
            below.mkdir()
            bench = Bench(below)
            formatted = bench.formatted(LOGS[log_mib], capacity_bytes=CAPACITY_BYTES, seed=SEED)
            # Freed blocks are soon used again.
            steps = mounted(oracle("reserve", "/mnt/reserved", "120"), work("load", SEED, TURNS[log_mib]), *statistics())
            booted, life = Life(formatted, formatted.file, ()).boot(bench, steps, save=True)
            stress.assert_no_complaint(booted)
            found = stress.statistics(booted)
            print(f"log of {log_mib} MiB, SEED={SEED}: {found}; {life.requests} requests")
            assert found["snapshots"] > 1, found
            if log_mib < 64:
                assert found["relogged"] + found["demoted"] > 0 and found["logged_blocks"] > found["log_blocks"], found
            return life

        yield of


# --- 1. Power cuts at random instants under load ------------------------------


def plan(bench: Bench, text: str) -> Path:
    source = bench.folder / "plan.toml"
    source.write_text(text)
    return faults.compiled(bench.built.crates, source, bench.folder / f"plan-{len(list(bench.folder.iterdir()))}")


def reordering(bench: Bench) -> Path:
    """A disk that had written any part of what was not flushed, in any order."""
    return plan(bench, '[power_cut]\ntorn = "subset"\nreorder = true\n')


CUTS = 3


@pytest.mark.parametrize(("log_mib", "seed"), [(64, 1), (64, 2), (16, 3)])
def test_cuts_under_load_lose_nothing_that_was_synced(
    bench: Bench, worked: Callable[[int], Life], log_mib: int, seed: int
) -> None:
    """Cut upon cut; the last one is looked at by stock ext4, too, and its free space becomes data."""
    choose = random.Random(seed)
    life, broken, cuts = worked(log_mib), reordering(bench), list[int]()
    for _ in range(CUTS):
        cuts.append(choose.randrange(100, 1200))
        steps = mounted(work("check", SEED), work("load", SEED, ENDLESS))
        left, life = life.boot(bench, steps, save=True, cut=cuts[-1], faults=broken)
        print(f"log of {log_mib} MiB, SEED={seed}, cuts={cuts}")
        assert left.outcome.power_cut
        bench.assert_clean(life.drive, recover=True)
    stock, _ = life.boot(bench, mounted(work("check", SEED), options=""))
    filled = [oracle("fill", "/mnt/filled", str(seed)), oracle("drain", "/mnt"), job.drop_caches()]
    lazy, last = life.boot(
        bench,
        mounted(*statistics(), work("check", SEED), *filled, oracle("compare", "/mnt/filled", str(seed)), work("check", SEED)),
        save=True,
    )
    stress.assert_no_complaint(lazy)
    found = stress.statistics(lazy)
    print(found, lazy.text("fill.txt"))
    assert found["mount_snapshots"] > 0 and found["rebuilt"] > 0, found
    assert compared(stock) == compared(lazy) > 20
    bench.assert_clean(last.drive, recover=True)


# --- 2. What the log's replay writes, block by block --------------------------


BLOCK = 4096


def outside(log: Log) -> Iterator[int]:
    """All blocks but those of the log, and the superblock's, which counts mounts."""
    inside = {place // BLOCK for place in log.places}
    return (number for number in range(1, CAPACITY_BYTES // BLOCK) if number not in inside)


def blocks(image: Path, numbers: Iterable[int]) -> dict[int, bytes]:
    """A sum of each block that is not empty."""
    found = {}
    with image.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        empty = bytes(BLOCK)
        for number in numbers:
            block = content[number * BLOCK : (number + 1) * BLOCK]
            if block != empty:
                found[number] = hashlib.blake2b(block, digest_size=8).digest()
        content.close()
    return found


def differing(one: Mapping[int, bytes], other: Mapping[int, bytes]) -> set[int]:
    return {number for number in {*one, *other} if one.get(number) != other.get(number)}


# What a mount has read is what it shows; the rest of the device is still as it is at home.
READ_ALL = """
import os
for folder, folders, names in os.walk('/mnt'):
    for name in names:
        os.lstat(f'{folder}/{name}')
os.listxattr('/mnt')
print(len(open('/proc/fs/ext4/shd0/mb_groups').read().splitlines()))
"""


@BOTH
def test_what_a_mount_shows_is_what_a_replay_writes(bench: Bench, worked: Callable[[int], Life], log_mib: int) -> None:
    """Each block outside the log: as e2fsck's replay left it on a copy, as the stock kernel's replay did, as a lazy
    mount shows it while all is in the log, and as it is at home after that mount sent everything there."""
    cut = random.Random(log_mib).randrange(500, 1500)
    steps = mounted(work("load", SEED, ENDLESS))
    left, life = worked(log_mib).boot(bench, steps, save=True, cut=cut, faults=reordering(bench))
    assert left.outcome.power_cut
    log = Log(bench, life.formatted, life.drive)
    numbers = list(outside(log))
    home, replayed = blocks(log.image, numbers), blocks(bench.recovered(life.drive), numbers)
    in_log = differing(home, replayed)
    show = [job.run(["/usr/bin/python3", "-I", "-c", READ_ALL]), *statistics(),
            job.run(["/bin/dd", f"if={job.DEVICE}", f"of={job.OUT}/shown", "bs=1M", "conv=sparse"])]  # fmt: skip
    lazy, _ = life.boot(bench, mounted(*show, options=f"ro,{LAZY}"), memory_mib=2048)
    shown = blocks(lazy.out / "shown", numbers)
    (lazy.out / "shown").unlink()
    seen = in_log - differing(replayed, shown)
    _, sent = life.boot(bench, mounted(oracle("drain", "/mnt"), job.save()), save=True)
    _, stock = life.boot(bench, mounted(job.save(), options=""), save=True)
    drained, recovered = (blocks(bench.exported(each.drive), numbers) for each in (sent, stock))
    found = stress.statistics(lazy)
    print(f"log of {log_mib} MiB, SEED={SEED}, cut={cut}: {len(replayed)} blocks, {len(in_log)} of them newer in the log, "
          f"{len(seen)} shown so; {found}")  # fmt: skip
    assert found["mount_snapshots"] > 0 and found["log_reads"] > 0 and found["rebuilt"] >= len(in_log) > 500, found
    # What was not read from the log is as it is at home: nothing is a third thing.
    assert not differing(shown, replayed) & differing(shown, home)
    assert len(seen) > 0.9 * len(in_log)
    assert not differing(drained, replayed), sorted(differing(drained, replayed))[:20]
    assert not differing(recovered, replayed), sorted(differing(recovered, replayed))[:20]


# --- 3. Shutdown with each of its flags ---------------------------------------

SHUTDOWN = 0x8004587D
# EXT4_GOING_FLAGS_DEFAULT freezes first, _LOGFLUSH commits, _NOLOGFLUSH does neither.
FLAGS = {"default": 0, "logflush": 1, "nologflush": 2}


def ioctl(request: int, argument: str = "0") -> job.Step:
    text = f"import fcntl, os, struct; fcntl.ioctl(os.open('/mnt', os.O_RDONLY), {request:#x}, {argument})"
    return job.run(["/usr/bin/python3", "-I", "-c", text])


def loaded(*steps: job.Step, allowed: str = "") -> list[job.Step]:
    """The load runs beside these steps."""
    return [work("start", SEED, ENDLESS, allowed), *steps, work("stop")]


def errors_in(life: Life) -> set[str]:
    """Those that the load met."""
    lines = "".join(path.read_text() for path in life.notes).splitlines()
    return {line.removeprefix("error ") for line in lines if line.startswith("error ")}


@pytest.mark.parametrize("flags", list(FLAGS))
@pytest.mark.parametrize("log_mib", [64, pytest.param(16, marks=pytest.mark.long)])
def test_a_shutdown_under_load_keeps_what_was_synced(
    bench: Bench, worked: Callable[[int], Life], log_mib: int, flags: str
) -> None:
    down = ioctl(SHUTDOWN, f"struct.pack('I', {FLAGS[flags]})")
    steps = [
        *mounted(*loaded(job.sleep(1.37), *statistics(), down, job.sleep(0.5), allowed="EIO,EROFS,ESHUTDOWN")),
        *mounted(work("check", SEED), job.save()),
    ]  # fmt: skip
    ran, life = worked(log_mib).boot(bench, steps, save=True, expected=(Trouble.FILE_SYSTEM_ERROR,))
    found = stress.statistics(ran)
    print(f"log of {log_mib} MiB, SEED={SEED}, {flags}: {compared(ran)} files, {errors_in(life)}, {found}")
    assert errors_in(life) and errors_in(life) <= {"EIO", "EROFS", "ESHUTDOWN"}
    assert found["logged_blocks"] > 100 and found["mount_snapshots"] > 0, found
    assert compared(ran) > 10
    bench.assert_clean(life.drive, recover=True)
    stock, _ = life.boot(bench, mounted(work("check", SEED), options=""))
    assert compared(stock) == compared(ran)


# --- 4. Freeze and thaw under load --------------------------------------------

FREEZE, THAW = 0xC0045877, 0xC0045878
FREEZES = 6


@BOTH
def test_freezes_under_load_hold_still_and_lose_nothing(
    bench: Bench, worked: Callable[[int], Life], log_mib: int
) -> None:
    choose = random.Random(log_mib)
    still = [ioctl(FREEZE), job.sleep(8) | {"phase": "frozen"}]
    steps: list[job.Step] = []
    for _ in range(FREEZES):
        steps += [job.sleep(choose.uniform(0.05, 1.5)), *still, ioctl(THAW)]
    # Others may not write to the log, either: the cleaner is told that everything shall go home.
    last = [job.sleep(1), *still, job.save(), job.run(["/bin/sh", "-c", f"for n in a b; do cp {job.OUT}/notes-$n {job.OUT}/frozen-$n; done"]), ioctl(THAW)]
    again = mounted(work("check", SEED))
    ran, life = worked(log_mib).boot(
        bench, [*mounted(*loaded(*steps, *last, job.sleep(0.5)), *statistics()), *again], save=True
    )
    stress.assert_no_complaint(ran)
    frozen = [
        sum(changed for name, changed in counter_changes(step.before, step.after).items() if "_written_" in name)
        for step in ran.outcome.steps
        if step.phase == "frozen"
    ]
    found = stress.statistics(ran)
    print(f"log of {log_mib} MiB, SEED={SEED}: written while frozen: {frozen}; {compared(ran)} files; {found}")
    assert frozen == [0] * (FREEZES + 1)
    assert found["snapshots"] > 0, found
    # What an LVM snapshot would have been.
    taken = tuple(ran.out.glob("frozen-?"))
    for options in (LAZY, ""):
        steps = mounted(work("check", SEED, "frozen"), options=options)
        copy = bench.boot([*life.formatted.classes(), *steps], drive=life.drive, files=(PROGRAM, ORACLE, *taken))
        assert compared(copy) > 10
    bench.assert_clean(life.drive, recover=True)

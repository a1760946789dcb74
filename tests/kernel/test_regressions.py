# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a kernel's regression suite asks of ext4, asked of journal_lazy under load (docs/reference/regressions.md).

Each row runs with a log of 64 MiB, which is a shipped size, and most with one of 16 MiB, too. The log went round or has
snapshots before the row begins, and the row says so with the kernel's own statistics. What was synced is compared byte
for byte with notes that a power cut cannot reach (regression_work.py).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from kernel.test_snapshots import Log
from shingle.catalogue import faults, fs
from shingle.catalogue.drive import FormattedDrive
from shingle.machine import job
from shingle.machine.console import Trouble
from shingle.paths import ROOT, run_directory
from shingle.runs.record import counter_changes
from shingle.verify import e2fsck

pytestmark = pytest.mark.machine

LAZY = "journal_lazy"
SEED = 18
CAPACITY_BYTES = 1 << 30
LOGS = {mib: fs.ext4(f"ext4-lazy-{mib}m", f"journal_lazy on a {mib} MiB journal", mib, LAZY) for mib in (64, 16)}
BOTH = pytest.mark.parametrize("log_mib", list(LOGS))
PROGRAM = Path(__file__).with_name("regression_work.py")
ORACLE = ROOT / "lab/in_machine/oracle.py"
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

    # None: made in the machine itself.
    formatted: FormattedDrive | None
    drive: Path
    notes: tuple[Path, ...]
    requests: int = 0

    def boot(self, bench: Bench, steps: Sequence[job.Step], **more: object) -> tuple[Booted, Life]:
        """Goes on with this drive; the notes go along. Without `save` the drive is the one before."""
        files = (PROGRAM, ORACLE, *self.notes)
        classes = self.formatted.classes() if self.formatted else []
        booted = bench.boot([*classes, *steps], drive=self.drive, files=files, seed=SEED, **more)  # type: ignore[arg-type]
        return booted, Life(
            self.formatted, booted.saved or self.drive, tuple(sorted(booted.out.glob("notes-?"))), requests_of(booted)
        )


REQUESTS = ("read_requests", "written_requests", "flushes")


def requests_of(booted: Booted) -> int:
    """That reached the drive by the end of the last step."""
    after = booted.outcome.steps[-1].after if booted.outcome.steps else {}
    return sum(after.get(name, 0) for name in REQUESTS)


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
            steps = mounted(
                oracle("reserve", "/mnt/reserved", "120"), work("load", SEED, TURNS[log_mib]), *statistics()
            )
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
        check = work("check", SEED) | {"phase": "check"}
        _, begun = within(life.boot(bench, mounted(check))[0], "check")
        cuts.append(begun + choose.randrange(100, 1200))
        steps = mounted(check, work("load", SEED, ENDLESS))
        left, life = life.boot(bench, steps, save=True, cut=cuts[-1], faults=broken)
        print(f"log of {log_mib} MiB, SEED={seed}, cuts={cuts}, load from {begun}")
        assert left.outcome.power_cut and left.outcome.steps[-1].phase == "check", "the load had not begun"
        bench.assert_clean(life.drive, recover=True)
    stock, _ = life.boot(bench, mounted(work("check", SEED), options=""))
    filled = [oracle("fill", "/mnt/filled", str(seed)), oracle("drain", "/mnt"), job.drop_caches()]
    lazy, last = life.boot(
        bench,
        mounted(
            *statistics(), work("check", SEED), *filled, oracle("compare", "/mnt/filled", str(seed)),
            work("check", SEED),
        ),
        save=True,
    )  # fmt: skip
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
    assert life.formatted is not None
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
    newer = f"{len(replayed)} blocks, {len(in_log)} of them newer in the log, {len(seen)} shown so"
    print(f"log of {log_mib} MiB, SEED={SEED}, cut={cut}: {newer}; {found}")
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
    copy = job.run(["/bin/sh", "-c", f"cd {job.OUT}; cp notes-a frozen-a; cp notes-b frozen-b"])
    last = [job.sleep(1), *still, job.save(), copy, ioctl(THAW)]
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
    assert found["mount_snapshots"] > 0 and found["logged_blocks"] > 500, found
    # What an LVM snapshot would have been.
    taken = tuple(ran.out.glob("frozen-?"))
    for options in (LAZY, ""):
        steps = mounted(work("check", SEED, "frozen"), options=options)
        held = bench.boot(steps, drive=life.drive, files=(PROGRAM, ORACLE, *taken))
        assert compared(held) > 10
    bench.assert_clean(life.drive, recover=True)


# --- 6. Quota after recovery --------------------------------------------------

QUOTA = ("/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-O", "quota", "-E",
         "quotatype=usrquota:grpquota,lazy_itable_init=0,lazy_journal_init=0,nodiscard")  # fmt: skip


@pytest.mark.parametrize(("log_mib", "turns"), [(64, 12), (16, 8)])
def test_quota_after_a_recovery_is_what_is_there(bench: Bench, log_mib: int, turns: int) -> None:
    choose = random.Random(log_mib)
    empty = bench.empty(capacity_bytes=CAPACITY_BYTES)
    life = Life(None, empty, ())
    make = job.run([*QUOTA, "-J", f"size={log_mib}", job.DEVICE])
    ran, life = life.boot(bench, [make, *mounted(work("load", SEED, turns), *statistics())], save=True)
    found = stress.statistics(ran)
    assert found["snapshots"] > 0, found
    cuts, most = list[int](), life.requests
    for _ in range(2):
        cuts.append(choose.randrange(150, most))
        left, life = life.boot(
            bench, mounted(work("load", SEED, ENDLESS)), save=True, cut=cuts[-1], faults=reordering(bench)
        )
        assert left.outcome.power_cut
        # e2fsck compares quota with its own count.
        bench.assert_clean(life.drive, recover=True)
        counts = []
        for options in (LAZY, ""):
            again, _ = life.boot(
                bench, mounted(work("check", SEED), work("used", f"{job.OUT}/used.json"), options=options), save=True
            )
            counts.append(json.loads(again.text("used.json")))
        bench.assert_clean(again.saved_drive)
        assert counts[0] == counts[1]
        assert counts[0]["told"] == counts[0]["there"], counts[0]
        assert sum(files for _, files in counts[0]["told"].values()) > 40
    print(f"log of {log_mib} MiB, SEED={SEED}, cuts={cuts}: {found}; {counts[0]['told']}")


# --- 7. Online resize amid cuts -----------------------------------------------

RESIZE = 0x40086610
REFUSES = "the log holds another superblock"
GROWN_BLOCKS = 500_000


def within(booted: Booted, phase: str) -> tuple[int, int]:
    """The requests between which a step was done."""
    step = next(step for step in booted.outcome.steps if step.phase == phase)
    began, ended = (sum(each.get(name, 0) for name in REQUESTS) for each in (step.before, step.after))
    return began, ended


@BOTH
def test_cuts_in_an_online_resize_lose_nothing_that_was_synced(bench: Bench, log_mib: int) -> None:
    """The volume grows group by group, 600 MiB at first, under load. A lazy mount refuses what a cut within leaves, and
    says why; then e2fsck replays. Behind the resize it does not."""
    empty = bench.empty(capacity_bytes=2 << 30)
    make = job.run([*LOGS[log_mib].mkfs, "-O", "^flex_bg", job.DEVICE, "600M"])
    first = [make, *mounted(work("load", SEED, 8), *statistics())]
    ran, life = Life(None, empty, ()).boot(bench, first, save=True)
    found = stress.statistics(ran)
    assert found["snapshots"] > 0, found
    grow = ioctl(RESIZE, f"struct.pack('Q', {GROWN_BLOCKS})") | {"phase": "resize"}
    steps: list[job.Step] = [work("start", SEED, ENDLESS), job.sleep(0.4), grow]
    began, ended = within(life.boot(bench, mounted(*steps, work("stop")))[0], "resize")
    choose, refused = random.Random(log_mib), list[bool]()
    cuts = [choose.randrange(began, ended), choose.randrange(began, ended), choose.randrange(ended + 30, ended + 200)]
    for number in cuts:
        left, cut = life.boot(bench, mounted(*steps, work("wait")), save=True, cut=number, faults=reordering(bench))
        assert left.outcome.power_cut
        image = bench.exported(cut.drive)
        done = subprocess.run([*e2fsck.REPLAY, image], capture_output=True, text=True, check=False)
        # Stock ext4, too, leaves the last group so between two steps of a resize, and then e2fsck repairs it.
        between = number < ended and "Last group block bitmap uninitialized." in done.stdout
        assert between or e2fsck.is_replayed(done.returncode, done.stdout), done.stdout
        bench.assert_image_clean(image)
        replay = job.run([*e2fsck.REPLAY, job.DEVICE], may_fail=True)
        look = mounted(work("check", SEED), work("load", SEED, 1), work("check", SEED))
        looked, _ = cut.boot(bench, [job.mount("ext4", f"ro,{LAZY}", may_fail=True)])
        refused.append(looked.outcome.steps[-1].status != 0)
        assert not refused[-1] or REFUSES in looked.outcome.console, looked.outcome.console
        lazy, after = cut.boot(bench, [*([replay] if refused[-1] else []), *look], save=True)
        assert compared(lazy) > 10
        bench.assert_clean(after.drive, recover=True)
    print(f"log of {log_mib} MiB, SEED={SEED}, cuts={cuts}, resize {began} to {ended}, refused {refused}; {found}")
    assert not refused[-1]


# With noinit_itable a resize writes zeros for seconds while it makes bitmaps: a sync ends their transaction before the
# superblock's begins.
AT_ONCE = f"{LAZY},noinit_itable"
GROWS_AMID_SYNCS = """
import fcntl, os, struct, threading
ended, ready = threading.Event(), threading.Barrier(5)
def syncing(name):
    file = os.open(f'/mnt/{name}', os.O_RDWR | os.O_CREAT)
    os.fsync(file)
    ready.wait()
    while not ended.is_set():
        os.pwrite(file, os.urandom(4096), 0)
        os.fsync(file)
beside = [threading.Thread(target=syncing, args=(number,)) for number in range(4)]
for each in beside:
    each.start()
ready.wait()
fcntl.ioctl(os.open('/mnt', os.O_RDONLY), RESIZE, struct.pack('Q', 64 * 32768))
ended.set()
for each in beside:
    each.join()
"""
# Each call has its data on disk when it returns.
FILLS_WHAT_GROWS = """
import errno, fcntl, mmap, os, struct, threading
with open('/sys/fs/ext4/shd0/reserved_clusters', 'w') as reserved:
    reserved.write('0')
data = mmap.mmap(-1, 1 << 23)
ended, done = threading.Event(), 0
def filling():
    global done
    while not ended.is_set():
        file = os.open(f'/mnt/new{done}', os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        data[:] = b'%016d' % done * (len(data) // 16)
        try:
            os.pwrite(file, data, 0)
            done += 1
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            os.sync()
        os.close(file)
beside = threading.Thread(target=filling)
beside.start()
fcntl.ioctl(os.open('/mnt', os.O_RDONLY), RESIZE, struct.pack('Q', 30 * 32768))
ended.set()
beside.join()
print(done)
"""
COMPARES = """
import os
wrong = []
for number in range(int(open('/run/out/done.txt').read())):
    with open(f'/mnt/new{number}', 'rb') as file:
        data = file.read()
    wrong += [f'{number}:{at}' for at in range(0, len(data), 4096) if data[at : at + 16] != b'%016d' % number]
print(*wrong)
"""


def resized_to_less(bench: Bench) -> None:
    """The power fails when the log has the bitmap of group 63, and not yet the superblock. Then the volume grows to 30
    groups only: group 15 first, and files fill it, also the block where that bitmap was to be. The resize ends with a
    flush."""
    empty = bench.empty(capacity_bytes=8 << 30)
    make = job.run([*LOGS[16].mkfs, "-G", "64", "-i", "262144", job.DEVICE, "1920M"])
    _, life = Life(None, empty, ()).boot(bench, [make, *mounted()], save=True)
    resize = python(GROWS_AMID_SYNCS.replace("RESIZE", hex(RESIZE))) | {"phase": "resize"}
    grow = mounted(resize, options=AT_ONCE)
    began, ended = within(life.boot(bench, grow)[0], "resize")

    def cut_at(number: int) -> tuple[bool, Life]:
        """Whether a lazy mount finds the bitmaps without the superblock, and the drive."""
        cut = life.boot(bench, grow, save=True, cut=number)[1]
        looked, _ = cut.boot(bench, [job.mount("ext4", f"ro,{LAZY}", may_fail=True)])
        refused = looked.outcome.steps[-1].status != 0
        assert not refused or REFUSES in looked.outcome.console, looked.outcome.console
        return refused, cut

    # The last instant without the superblock.
    while ended - began > 1:
        middle = (began + ended) // 2
        refused, cut = cut_at(middle)
        began, ended = (began, middle) if refused else (middle, ended)
    refused, cut = cut_at(began)
    assert not refused
    dump = ["/sbin/debugfs", "-R", "logdump -a", bench.exported(cut.drive)]
    log = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    assert f"FS block {15 * 32768 + 48} logged" in log, f"the last group's bitmap is not in the log: {log}"
    fill = python(FILLS_WHAT_GROWS.replace("RESIZE", hex(RESIZE)), stdout="done.txt")
    steps = mounted(
        oracle("reserve", "/mnt/reserved", "20"), fill, oracle("drain", "/mnt"), job.drop_caches(),
        python(COMPARES, stdout="wrong.txt"), options=AT_ONCE,
    )  # fmt: skip
    booted, after = cut.boot(bench, steps, save=True)
    wrong = booted.text("wrong.txt").split()
    print(f"log of 16 MiB, SEED={SEED}, cut={began}: {booted.text('done.txt').strip()} files, wrong at {wrong}")
    assert wrong == [], "a bitmap is in the file"
    bench.assert_clean(after.drive, recover=True)


def test_a_smaller_resize_after_one_cut_off_keeps_its_bitmaps_out_of_files(bench: Bench) -> None:
    resized_to_less(bench)


# --- 8. Orphans ---------------------------------------------------------------

# A file of many extents, which are not in memory when it is cut short while somebody else syncs: so the truncation
# takes several transactions. Others are open until the end.
FRAGMENTS, STAYS = 20_000, 1200
FRAGMENTED = f"""
import os
f = os.open('/mnt/long', os.O_RDWR | os.O_CREAT)
for number in range({FRAGMENTS}):
    os.posix_fallocate(f, number * 8192, 4096)
for number in range({STAYS}):
    os.pwrite(f, b'%4096d' % number, number * 8192)
os.fsync(f)
"""
HELD = """
import os, time
held = []
for number in range(40):
    held.append(os.open(f'/mnt/open{number}', os.O_RDWR | os.O_CREAT))
    os.write(held[-1], b'open' * 9000)
    os.fsync(held[-1])
    os.unlink(f'/mnt/open{number}')
os.fsync(os.open('/mnt', 0))
if os.fork() == 0:
    os.setsid()
    while True:
        os.utime(held[0])
        os.fsync(held[0])
"""
CUT_SHORT = f"import os; os.truncate('/mnt/long', {STAYS * 8192}); os.sync()"
STILL = f"""
import os
f = os.open('/mnt/long', 0)
wrong = [n for n in range({STAYS}) if os.pread(f, 4096, n * 8192) != b'%4096d' % n]
assert not wrong, wrong
print(os.fstat(f).st_size, os.fstat(f).st_blocks, os.statvfs('/mnt').f_bfree, os.statvfs('/mnt').f_ffree)
"""


def python(text: str, *, stdout: str | None = None) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", text], stdout=stdout)


@pytest.mark.parametrize("orphan_file", [False, True], ids=["list", "file"])
def test_orphans_and_half_a_truncation_are_cleaned_up(bench: Bench, orphan_file: bool) -> None:
    """The next mount deletes what was open and ends what was begun, as a stock mount does."""
    feature = ("-O", "orphan_file") if orphan_file else ()
    empty = bench.empty(capacity_bytes=CAPACITY_BYTES)
    make = job.run([*stress.on_journal(4).mkfs, *feature, job.DEVICE])
    first = [make, *mounted(python(FRAGMENTED), work("load", SEED, 4), *statistics())]
    ran, life = Life(None, empty, ()).boot(bench, first, save=True)
    found = stress.statistics(ran)
    assert found["demoted"] + found["relogged"] > 0, found
    steps = mounted(python(HELD), job.drop_caches(), python(CUT_SHORT) | {"phase": "truncate"})[:-1]
    began, ended = within(life.boot(bench, steps)[0], "truncate")
    choose, said = random.Random(int(orphan_file)), list[list[str]]()
    cuts = sorted(choose.sample(range(began + 1, ended), 3))
    for number in cuts:
        left, cut = life.boot(bench, steps, save=True, cut=number, faults=reordering(bench))
        assert left.outcome.power_cut
        answers = []
        for options in (LAZY, ""):
            look = mounted(python(STILL, stdout="still.txt"), work("check", SEED), options=options)
            again, after = cut.boot(bench, look, save=True)
            answers.append(again.text("still.txt"))
            said.append(re.findall(r"(\d+ (?:truncate|orphan inode))s? (?:cleaned up|deleted)", again.outcome.console))
            bench.assert_clean(after.drive, recover=True)
        assert answers[0] == answers[1] and said[-1] == said[-2], (answers, said)
        assert "40 orphan inode" in said[-1], said
        assert int(answers[0].split()[0]) in (STAYS * 8192, (2 * FRAGMENTS - 1) * 4096), answers
    print(f"log of 4 MiB, SEED={SEED}, cuts={cuts} of {began} to {ended}: {said[::2]}; {found}")
    assert any("1 truncate" in each for each in said)


# --- 9. A full disk -----------------------------------------------------------


@pytest.mark.parametrize(("log_mib", "leave_mib"), [(64, 50), (16, 50)])
def test_a_full_disk_neither_stalls_nor_loses_data(bench: Bench, log_mib: int, leave_mib: int) -> None:
    formatted = bench.formatted(LOGS[log_mib], capacity_bytes=CAPACITY_BYTES, seed=SEED)
    steps = mounted(
        oracle("reserve", "/mnt/reserved", str(leave_mib)), work("full", SEED, 4), stress.statistic("emergency"),
        stress.statistic("swept"), *statistics(),
    )  # fmt: skip
    again = mounted(job.run(["/bin/ls", "-lR", "/mnt"], stdout="ls.txt"))
    ran, life = Life(formatted, formatted.file, ()).boot(bench, [*steps, *again], save=True)
    stress.assert_no_complaint(ran)
    found = stress.statistics(ran)
    told = dict(line.split() for line in ran.text("full.txt").splitlines() if line.startswith(("refused", "longest")))
    print(f"log of {log_mib} MiB, SEED={SEED}: {told}; {found}")
    assert int(told["refused"]) > 50
    # Of one call, in seconds of the disk's time; stock ext4 on the same log has the same.
    assert float(told["longest"]) < 60
    assert found["snapshots"] > 1, found
    if log_mib < 64:
        assert found["relogged"] + found["demoted"] > 0 and found["logged_blocks"] > found["log_blocks"], found
    bench.assert_clean(life.drive, recover=True)


# --- 10. Remounts under load --------------------------------------------------

# Until nobody has a file open for writing.
RELENTLESS = """
import subprocess, sys, time
for turn in range(2000):
    done = subprocess.run(['/bin/mount', '-o', 'remount,' + sys.argv[1], '/mnt'], capture_output=True)
    if done.returncode == 0:
        break
    time.sleep(0.003)
else:
    sys.exit(done.stderr.decode())
print(turn)
"""
REFUSED = ("journal_nolazy", "ro,journal_nolazy", "barrier=0", "nodelalloc", "usrquota")


@BOTH
def test_remounts_under_load_keep_what_was_synced(bench: Bench, worked: Callable[[int], Life], log_mib: int) -> None:
    """Read-only and back, with the option given or absent; what is refused leaves the options as they were."""
    steps: list[job.Step] = [work("patient", SEED, ENDLESS)]
    for number, more in enumerate(("", f",{LAZY}", "")):
        for mode in ("ro", "rw"):
            argv = ["/usr/bin/python3", "-I", "-c", RELENTLESS, mode + more]
            steps += [job.sleep(0.7), job.run(argv, stdout=f"{mode}{number}"), job.read("/proc/mounts")]
        steps += [
            job.run(["/bin/mount", "-o", f"remount,max_dir_size_kb=77,{options}", "/mnt"], may_fail=True)
            | {"phase": "refused"}
            for options in REFUSED
        ]
    steps += [work("stop"), job.read("/proc/mounts"), *statistics()]
    ran, life = worked(log_mib).boot(bench, [*mounted(*steps), *mounted(work("check", SEED), job.save())], save=True)
    stress.assert_no_complaint(ran)
    found = {str(step.phase): str(step.extra["text"]) for step in ran.outcome.steps if step.do == "read"}
    assert all(step.status != 0 for step in ran.outcome.steps if step.phase == "refused")
    mounts = [line.split()[3] for step in ran.outcome.steps if step.do == "read" and step.phase is None
              for line in str(step.extra["text"]).splitlines() if " /mnt ext4 " in line]  # fmt: skip
    assert [each.split(",")[0] for each in mounts] == ["ro", "rw"] * 3 + ["rw"], mounts
    assert len({each.partition(",")[2] for each in mounts}) == 1 and LAZY in mounts[0].split(","), mounts
    print(f"log of {log_mib} MiB, SEED={SEED}: {compared(ran)} files; {found['snapshots']} snapshots, {mounts[0]}")
    assert int(found["snapshots"]) > 0 and int(found["logged_blocks"]) > 300
    assert compared(ran) > 10
    bench.assert_clean(life.drive, recover=True)
    stock, _ = life.boot(bench, mounted(work("check", SEED), options=""))
    assert compared(stock) == compared(ran)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Snapshots of the map in the log: a mount reads little, finds what a scan of the whole log would, and nobody else
notices them."""

import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from shingle.catalogue import fs
from shingle.catalogue.drive import FormattedDrive
from shingle.machine import job
from shingle.verify import e2fsck

pytestmark = pytest.mark.machine

SEED = 41
LAZY = "journal_lazy"
CAPACITY_BYTES = 8 << 30
LAZY_64M = fs.ext4("ext4-lazy-64m", "journal_lazy on a 64 MiB journal", 64, LAZY)
SYSFS = "/sys/fs/ext4/shd0/journal_lazy"
# Log blocks since the last snapshot that an unmount may leave; what is written between two others.
CLOSING, PERIOD = 512, 16384 // 8
# A snapshot has 12 bytes for each copy. If every block of the log were live, so much of what is logged: 2.4 %, and a
# block of it may be begun only.
SNAPSHOT_SHARE = 12 * 16384 / 4060 / PERIOD + 1 / PERIOD
# Where the log ends, so many blocks are looked at for a sign that it is only damaged there.
SEARCHED = 257
NAMES = ("map_digest", "mount_snapshots", "mount_blocks", "rebuilt", "logged_blocks", "snapshot_blocks", "snapshots",
         "demoted", "relogged", "log_used", "live_blocks")  # fmt: skip


def manifest(name: str) -> job.Step:
    return job.load("manifest", {"output": f"/run/out/{name}"})


def statistics() -> list[job.Step]:
    return [stress.statistic(name) for name in NAMES]


def formatted_64m(bench: Bench) -> FormattedDrive:
    return bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)


def some_snapshots() -> list[job.Step]:
    """Copies, newer copies and revokes, some 6,000 log blocks of them, in several transactions."""
    steps = []
    for number in range(3):
        steps += [
            job.load("makedirs", {"count": 900, "seed": SEED + number, "path": f"dirs{number}"}),
            job.load("createfiles", {"count": 300, "seed": SEED + number, "path": f"files{number}"}),
            job.sync(),
            job.load("removefiles", {"path": f"files{number}"}),
            job.sync(),
        ]
    return steps


def wrap_the_log(policy: str, rounds: int) -> list[job.Step]:
    """A revolution of 64 MiB and more, with blocks that stay, die, and go home."""
    steps = [job.write(f"{SYSFS}/policy", policy), job.load("makedirs", {"count": 2500, "seed": SEED, "path": "cold"})]
    for number in range(rounds):
        name = f"dirs{number}"
        steps += [job.load("makedirs", {"count": 1500, "seed": number, "path": name}), job.sync(), job.sleep(1)]
        steps += [job.load("removedirs", {"path": name}), job.sync(), job.sleep(1)]
    return steps


@dataclass(frozen=True)
class Snapshot:
    log_blk: int
    blocks: int


class Log:
    """The log of a drive, seen from the host."""

    def __init__(self, bench: Bench, formatted: FormattedDrive, drive: Path) -> None:
        self.image = bench.exported(drive)
        # Of all log blocks, the superblock included, where they are.
        self.places = [
            (first + 8 * number) * 512
            for first, sectors in formatted.layout.journal
            for number in range(sectors // 8)
        ]  # fmt: skip

    def block(self, number: int) -> bytes:
        with self.image.open("rb") as file:
            file.seek(self.places[number])
            return file.read(4096)

    def snapshot(self) -> Snapshot:
        """What a mount would read: the layout is in docs/design/journal-lazy.md."""
        marker = struct.unpack_from(">9I", self.block(0), 0x5C + 4 * 24)
        return Snapshot(marker[5], marker[6])


def put(place: int, data: bytes) -> job.Step:
    program = (
        "import mmap, os, zlib; m = mmap.mmap(-1, 4096);"
        f"m.write(zlib.decompress(bytes.fromhex('{zlib.compress(data).hex()}')));"
        f"os.pwritev(os.open('{job.DEVICE}', os.O_RDWR | os.O_DIRECT | os.O_DSYNC), [m], {place})"
    )
    return job.run(["/usr/bin/python3", "-c", program])


def looked_at(*steps: job.Step) -> list[job.Step]:
    """Mounted without a write, so that it can be done again and again."""
    return [job.mount("ext4", f"ro,{LAZY}"), stress.statistic("map_digest"), stress.statistic("mount_snapshots"),
            *steps, job.umount()]  # fmt: skip


def found(booted: Booted) -> list[tuple[int, int]]:
    """Digest and snapshots of each mount that was looked at."""
    values = [int(str(step.extra["text"])) for step in booted.outcome.steps if step.do == "read"]
    return list(zip(values[::2], values[1::2], strict=True))


def crashed(bench: Bench, formatted: FormattedDrive, *load: job.Step) -> Booted:
    steps = bench.mounted(formatted, *load, *statistics(), job.save(), manifest("ran.txt"), options=LAZY)
    booted = bench.boot(steps, drive=formatted.file, save=True, seed=SEED)
    stress.assert_no_complaint(booted)
    return booted


def damaged_first_block(log: Log) -> job.Step:
    """The newest snapshot cannot be used, and no mount looks at others."""
    return put(log.places[log.snapshot().log_blk], bytes(4096))


def test_a_mount_after_a_crash_builds_the_map_that_ran_from_little(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    steps = bench.mounted(formatted, *statistics(), manifest("again.txt"), options=LAZY)
    again = bench.boot(steps, drive=ran.saved_drive, save=True)
    stress.assert_no_complaint(again)
    before, after = stress.statistics(ran), stress.statistics(again)
    assert before["snapshots"] >= 2 and before["demoted"] == 0, before
    assert after["map_digest"] == before["map_digest"] and after["mount_snapshots"] == 1, (before, after)
    assert 2 * after["mount_blocks"] < before["log_used"], (before, after)
    assert again.text("again.txt") == ran.text("ran.txt")
    bench.assert_clean(again.saved_drive, recover=True)


def test_an_unmount_leaves_next_to_nothing_to_scan(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    steps = [
        *bench.mounted(formatted, *some_snapshots(), manifest("written.txt"), options=LAZY),
        *bench.mounted(formatted, *statistics(), manifest("read.txt"), options=LAZY),
    ]
    booted = bench.boot(steps, drive=formatted.file, save=True)
    stress.assert_no_complaint(booted)
    after = stress.statistics(booted)
    assert after["mount_snapshots"] == 1 and after["mount_blocks"] < CLOSING + SEARCHED + 50, after
    assert booted.text("read.txt") == booted.text("written.txt")
    bench.assert_clean(booted.saved_drive, recover=True)


def test_stock_tools_and_kernels_see_nothing_of_it(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    assert Log(bench, formatted, ran.saved_drive).snapshot().blocks > 4
    stock = bench.boot(bench.mounted(formatted, manifest("stock.txt")), drive=ran.saved_drive, save=True)
    stress.assert_no_complaint(stock)
    assert stock.text("stock.txt") == ran.text("ran.txt")
    bench.assert_clean(stock.saved_drive)
    image = bench.exported(ran.saved_drive)
    replay = [*e2fsck.REPLAY, str(image)]
    done = subprocess.run(replay, capture_output=True, text=True, timeout=120, check=False)
    assert e2fsck.is_replayed(done.returncode, done.stdout), done.stdout + done.stderr
    bench.assert_image_clean(image)


def test_each_block_of_a_snapshot_may_be_bad(bench: Bench) -> None:
    """Turned to zeros, one bit flipped, or another block of the same kind in its place: the whole log is scanned."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    snapshot = log.snapshot()
    numbers = list(range(snapshot.log_blk, snapshot.log_blk + snapshot.blocks))
    assert len(numbers) > 4, snapshot
    steps = looked_at(manifest("whole.txt"))
    for number, other in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
        good = log.block(number)
        flipped = bytearray(good)
        flipped[number * 97 % 4096] ^= 1
        for bad in (bytes(4096), bytes(flipped), log.block(other)):
            steps += [put(log.places[number], bad), *looked_at()]
        steps.append(put(log.places[number], good))
    steps += [damaged_first_block(log), *looked_at(manifest("scanned.txt"))]
    booted = bench.boot(steps, drive=ran.saved_drive, host_limit_s=400)
    stress.assert_no_complaint(booted)
    (digest, used), *damaged = found(booted)
    assert used == 1 and len(damaged) == 3 * len(numbers) + 1
    assert damaged == [(digest, 0)] * len(damaged)
    assert booted.text("whole.txt") == booted.text("scanned.txt") == ran.text("ran.txt")


@pytest.mark.parametrize(("policy", "counter"), [("watermarks", "relogged"), ("off", "demoted")])
def test_a_log_that_went_round_has_a_snapshot_that_is_worth_a_scan(bench: Bench, policy: str, counter: str) -> None:
    """With tail and head far beyond old snapshots, and blocks copied or on their way home when the power went."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *wrap_the_log(policy, 9))
    before = stress.statistics(ran)
    assert before["logged_blocks"] > 1.2 * 16384 and before["snapshots"] > 7, before
    assert before[counter] > 0, before
    assert before["snapshot_blocks"] <= SNAPSHOT_SHARE * before["logged_blocks"], before
    log = Log(bench, formatted, ran.saved_drive)
    steps = [*looked_at(), damaged_first_block(log), *looked_at(manifest("scanned.txt"))]
    booted = bench.boot(steps, drive=ran.saved_drive)
    stress.assert_no_complaint(booted)
    (loaded, used), (scanned, none) = found(booted)
    assert loaded == scanned and used == 1 and none == 0
    assert booted.text("scanned.txt") == ran.text("ran.txt")
    again = bench.boot(bench.mounted(formatted, manifest("again.txt"), options=LAZY), drive=ran.saved_drive, save=True)
    assert again.text("again.txt") == ran.text("ran.txt")
    bench.assert_clean(again.saved_drive, recover=True)


def test_many_short_mounts_leave_little_to_scan(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    steps = []
    for number in range(14):
        work = job.load("makedirs", {"count": 60, "seed": number, "path": f"dirs{number}"})
        steps += bench.mounted(formatted, stress.statistic("mount_snapshots"), work, options=LAZY)
    steps += bench.mounted(formatted, *statistics(), manifest("read.txt"), options=LAZY)
    booted = bench.boot(steps, drive=formatted.file, save=True)
    stress.assert_no_complaint(booted)
    after = stress.statistics(booted)
    assert after["mount_snapshots"] == 1 and after["mount_blocks"] < CLOSING + SEARCHED + 50, after
    bench.assert_clean(booted.saved_drive, recover=True)


def crc32c(data: bytes) -> int:
    """As the journal superblock has it: begun with all ones, and not inverted at the end."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


def test_a_log_of_version_1_is_replayed(bench: Bench) -> None:
    """Its snapshots could bring freed blocks back: nobody looks at them again, and stock recovery has the log."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    superblock = bytearray(log.block(0))
    assert struct.unpack_from(">2I", superblock, 0xBC) == (0x4C5A5931, 2)
    struct.pack_into(">I", superblock, 0xC0, 1)
    struct.pack_into(">I", superblock, 0xFC, 0)
    struct.pack_into(">I", superblock, 0xFC, crc32c(superblock[:1024]))
    steps = [
        put(log.places[0], bytes(superblock)),
        *bench.mounted(formatted, stress.statistic("rebuilt"), manifest("again.txt"), options=LAZY),
        *bench.mounted(formatted, stress.statistic("rebuilt"), options=LAZY),
    ]
    booted = bench.boot(steps, drive=ran.saved_drive, save=True)
    stress.assert_no_complaint(booted)
    first, second = (int(str(step.extra["text"])) for step in booted.outcome.steps if step.do == "read")
    assert first == 0, "the map was built from a log of version 1"
    assert second >= 0 and booted.text("again.txt") == ran.text("ran.txt")
    bench.assert_clean(booted.saved_drive, recover=True)

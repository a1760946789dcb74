# SPDX-License-Identifier: MIT OR Apache-2.0
"""A running system finds damage in the log, writes what it knows once more, and moves the tail past it: so that stock
recovery never meets it."""

import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from kernel.test_cleaner import many_files
from kernel.test_damage import COMMIT, DESCRIPTOR, LAST_TAG, REVOKE, SAME_UUID, Block, blocks_of
from kernel.test_snapshots import (
    LAZY,
    SEED,
    SYSFS,
    Log,
    crashed,
    damaged_first_block,
    formatted_64m,
    manifest,
    put,
    some_snapshots,
    wrap_the_log,
)
from shingle.catalogue import faults
from shingle.catalogue.drive import FormattedDrive
from shingle.machine import console, job
from shingle.verify import e2fsck

pytestmark = pytest.mark.machine

NAMES = ("damaged_blocks", "damage_left")
SCRUB = job.write(f"{SYSFS}/scrub", "1")
# Within what a commit block says.
FLIPPED = 50
# What is damaged here is damaged below a file system that is mounted.
WRITABLE = ("bdev_allow_write_mounted=y",)
# A burst of an idle disk, and what it waits for in between (kernel/fs/jbd2/lazy_scrub.c).
PAUSE_S, IDLE_S = 1800, 5
# A piece of a sweep (kernel/fs/jbd2/lazy_clean.c).
AT_ONCE = 256


def copies_of(log: Log, block: Block) -> Iterator[tuple[int, int]]:
    """Log block and home block of each copy behind a descriptor."""
    data, at, flags, number = log.block(block.number), 12, 0, block.number
    while not flags & LAST_TAG:
        low, flags, high = struct.unpack_from(">3I", data, at)
        at += 16 if flags & SAME_UUID else 32
        number += 1
        yield number, high << 32 | low


def copies(log: Log) -> list[tuple[int, int, int]]:
    """Log block, home block and transaction of each copy in the log."""
    return [
        (number, home, block.transaction)
        for block in blocks_of(log)
        if block.kind == DESCRIPTOR
        for number, home in copies_of(log, block)
    ]


def flipped(log: Log, number: int) -> job.Step:
    """Bit 0 of some byte of a log block is the other way round."""
    data = bytearray(log.block(number))
    data[FLIPPED] ^= 1
    return put(log.places[number], bytes(data))


def committed() -> list[job.Step]:
    """The cleaner rests from a mount to the first commit."""
    return [job.run(["/bin/touch", "/mnt"]), job.sync()]


def counted() -> list[job.Step]:
    return [stress.statistic(name) for name in NAMES]


def found(booted: Booted) -> list[tuple[int, ...]]:
    values = [int(str(step.extra["text"])) for step in booted.outcome.steps if step.phase in NAMES]
    return [tuple(values[at : at + len(NAMES)]) for at in range(0, len(values), len(NAMES))]


def replayed(bench: Bench, formatted: FormattedDrive, drive: Path, **more: object) -> Booted:
    """Mounted by stock ext4, which replays the log, and checked by stock e2fsck."""
    steps = [*formatted.classes(), job.mount("ext4"), manifest("replayed.txt"), job.umount()]
    booted = bench.boot(steps, drive=drive, save=True, **more)
    stress.assert_no_complaint(booted)
    bench.assert_clean(booted.saved_drive)
    return booted


def one_of_each(log: Log) -> dict[str, int]:
    """A log block of each kind, from the tail on, and the tail does not pass two of them at once."""
    blocks, all_copies = blocks_of(log), copies(log)
    last = {home: number for number, home, _ in all_copies}
    # Transactions are counted from 2 here, as in a new log of stock ext4; a lazy one begins with a later id.
    skipped = blocks[0].transaction - 2

    def of(kind: int, transaction: int) -> int:
        wanted = (kind, transaction + skipped)
        return next(each.number for each in blocks if (each.kind, each.transaction) == wanted)

    superseded = next(number for number, home, at in all_copies if at == 3 + skipped and last[home] != number)
    newest = next(number for number, home, at in all_copies if at == 8 + skipped and last[home] == number)
    # The first snapshot that comes.
    snapshot = next(each.number for each in blocks if log.block(each.number)[16:20] == b"LZYS")
    kinds = {
        "descriptor": of(DESCRIPTOR, 2),
        "superseded": superseded,
        "snapshot": snapshot + 1,
        "revoke": of(REVOKE, 7),
        "newest": newest,
        "commit": of(COMMIT, 9),
    }
    return dict(sorted(kinds.items(), key=lambda each: each[1]))


def test_each_kind_of_block_may_go_bad_and_stock_recovery_does_not_notice(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    bad = list(one_of_each(log).values())
    steps: list[job.Step] = [manifest("before.txt"), *committed(), SCRUB, *counted()]
    for number in bad:
        steps += [flipped(log, number), SCRUB, *counted()]
    steps += [job.drop_caches(), manifest("after.txt"), job.save()]
    booted = bench.boot(
        bench.mounted(formatted, *steps, options=LAZY), drive=ran.saved_drive, save=True, kernel_arguments=WRITABLE
    )
    assert found(booted) == [(number, 0) for number in range(len(bad) + 1)]
    for number in bad:
        assert f"log block {number}" in booted.outcome.console
    again = replayed(bench, formatted, booted.saved_drive)
    assert again.text("replayed.txt") == booted.text("after.txt") == booted.text("before.txt") == ran.text("ran.txt")


def checked(bench: Bench, image: Path) -> tuple[bool, int, str]:
    """Whether stock e2fsck complains about a log, what it finds then, and how many files there are."""
    replay = subprocess.run([*e2fsck.REPLAY, image], capture_output=True, text=True, check=False)
    done = subprocess.run([*e2fsck.CHECK, image], capture_output=True, text=True, check=False)
    return (
        bool(re.search("error|corrupt", replay.stdout)),
        done.returncode,
        done.stdout.splitlines()[-1].partition(": ")[2],
    )


def test_stock_recovery_would_have_noticed(bench: Bench) -> None:
    """So that the test above means something."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    whole = checked(bench, bench.exported(ran.saved_drive))
    assert whole[:2] == (False, 0)
    for number in one_of_each(log).values():
        image = bench.exported(ran.saved_drive)
        with image.open("r+b") as file:
            file.seek(log.places[number] + FLIPPED)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        assert checked(bench, image) != whole, number
        image.unlink()


def test_an_unmount_right_after_the_mount_leaves_no_damage_behind(bench: Bench) -> None:
    unmounted_at_once(bench)


def unmounted_at_once(bench: Bench) -> None:
    """A commit block and the newest snapshot are bad. Nothing is lost, unless stock recovery has to read them."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    commit = next(block for block in blocks_of(log) if block.kind == COMMIT)
    bad = [put(log.places[commit.number], bytes(4096)), damaged_first_block(log)]
    booted = bench.boot([*bad, *bench.mounted(formatted, *counted(), options=LAZY)], drive=ran.saved_drive, save=True)
    # Otherwise the test is none.
    assert found(booted) == [(2, 1)]
    again = replayed(bench, formatted, booted.saved_drive)
    assert again.text("replayed.txt") == ran.text("ran.txt")


def test_unreadable_sectors_are_left_behind(bench: Bench) -> None:
    """Of a descriptor, of a copy that a newer one replaced, and of a revoke block."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    kinds = one_of_each(log)
    numbers = (kinds["descriptor"], kinds["superseded"], kinds["revoke"])
    source = bench.folder / "plan.toml"
    source.write_text(
        "".join(f"[[unreadable]]\nfirst_sector = {log.places[number] // 512}\nsectors = 8\n" for number in numbers)
    )
    plan = faults.compiled(bench.built.crates, source, bench.folder / "plan")
    steps = [manifest("before.txt"), *committed(), SCRUB, *counted(), job.save()]
    booted = bench.boot(bench.mounted(formatted, *steps, options=LAZY), drive=ran.saved_drive, save=True, faults=plan)
    assert found(booted) == [(len(numbers), 0)]
    for number in numbers:
        assert re.search(rf"log block {number}\b.* cannot be read", booted.outcome.console)
    again = replayed(bench, formatted, booted.saved_drive, faults=plan)
    assert again.text("replayed.txt") == booted.text("before.txt") == ran.text("ran.txt")


def test_a_sweep_goes_on_behind_a_copy_that_cannot_be_read(bench: Bench) -> None:
    """The idle cleaner sends home what is before it and behind it; what stays is in the log, and nothing is lost."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *many_files())
    log = Log(bench, formatted, ran.saved_drive)
    newest = {home: number for number, home, _ in copies(log)}
    # In the second piece of the first sweep, and far from what a mount reads with its neighbours.
    oldest = min(newest.values())
    bad = next(newest[home] for home in sorted(newest)[AT_ONCE + 50 :] if newest[home] < oldest + 500)
    source = bench.folder / "plan.toml"
    source.write_text(f"[[unreadable]]\nfirst_sector = {log.places[bad] // 512}\nsectors = 8\n")
    plan = faults.compiled(bench.built.crates, source, bench.folder / "plan")
    steps = [*committed(), job.sleep(60), stress.statistic("swept"), job.save()]
    swept = bench.boot(
        bench.mounted(formatted, *steps, options=LAZY)[:-1], drive=ran.saved_drive, save=True, faults=plan,
        expected=tuple(console.Trouble),
    )  # fmt: skip
    assert "I/O error" in swept.outcome.console or "critical medium error" in swept.outcome.console
    assert stress.statistics(swept)["swept"] > 3 * AT_ONCE, stress.statistics(swept)
    assert replayed(bench, formatted, swept.saved_drive).text("replayed.txt") == ran.text("ran.txt")


def directory_block(bench: Bench, log: Log, drive: Path) -> tuple[str, int]:
    """A directory whose only block is in the log, and the log block of its newest copy."""
    newest = {home: number for number, home, _ in copies(log)}
    image = bench.recovered(drive)
    for name in range(1, 9):
        path = f"dirs1/{name:08}"
        shown = subprocess.run(
            ["/sbin/debugfs", "-R", f"blocks /{path}", image], capture_output=True, text=True, check=True
        )
        home = int(shown.stdout.split()[0])
        if home in newest:
            return path, newest[home]
    raise AssertionError("no directory's block is in the log")


def test_what_is_lost_is_one_block_and_e2fsck_is_called_for(bench: Bench) -> None:
    """The newest copy of a block that nobody has in memory: reads fail, what is at home is not shown, and all else
    goes on."""
    formatted = formatted_64m(bench)
    ran = crashed(bench, formatted, *some_snapshots())
    log = Log(bench, formatted, ran.saved_drive)
    path, number = directory_block(bench, log, ran.saved_drive)
    fails = (
        f"import errno, os\ntry: print(os.listdir('/mnt/{path}'))\n"
        "except OSError as error: assert error.errno in (errno.EIO, errno.EUCLEAN), error\n"
        "else: raise SystemExit('it was read')"
    )
    steps = [
        *committed(),
        job.drop_caches(),
        flipped(log, number),
        SCRUB,
        *counted(),
        job.run(["/usr/bin/python3", "-c", fails]),
        job.load("createfiles", {"count": 100, "seed": SEED, "path": "later"}),
        job.sync(),
    ]
    booted = bench.boot(
        bench.mounted(formatted, *steps, options=f"{LAZY},errors=continue"),
        drive=ran.saved_drive, save=True, expected=(console.Trouble.FILE_SYSTEM_ERROR,), kernel_arguments=WRITABLE,
    )  # fmt: skip
    assert found(booted) == [(1, 0)]
    assert f"cannot be read from log block {number}; run e2fsck" in booted.outcome.console
    # It cannot replay all of this log, and says so.
    image = bench.exported(booted.saved_drive)
    subprocess.run([*e2fsck.REPLAY, image], capture_output=True, check=False)
    mended = subprocess.run(["/sbin/e2fsck", "-fy", image], capture_output=True, text=True, check=False)
    assert mended.returncode in (0, 1), mended.stdout
    bench.assert_image_clean(image)


def test_a_scrub_goes_on_in_a_log_that_went_round_meanwhile(bench: Bench) -> None:
    """Where it stopped, there is another transaction now, or the middle of one."""
    formatted = formatted_64m(bench)
    scrubbed = stress.statistic("scrubbed_blocks")
    steps: list[job.Step] = []
    for lap in range(3):
        # What the cleaner re-logs is committed with jbd2's next, and only then idle begins.
        steps += [*wrap_the_log("watermarks", 5 + lap), job.sleep(PAUSE_S), *committed(), job.sleep(3 * IDLE_S)]
        steps += [scrubbed | {"phase": f"lap {lap}"}, *counted(), job.run(["/bin/rm", "-r", "/mnt/cold"]), job.sync()]
    booted = bench.boot(bench.mounted(formatted, *steps, options=LAZY), drive=formatted.file, save=True)
    stress.assert_no_complaint(booted)
    values = stress.statistics(booted)
    assert 0 < values["lap 0"] < values["lap 1"] < values["lap 2"], values
    assert found(booted) == [(0, 0)] * 3
    assert "the tail is moved past it" not in booted.outcome.console


def test_an_idle_disk_is_scrubbed_and_a_resting_one_is_not_woken(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    scrubbed = stress.statistic("scrubbed_blocks")
    steps = [
        job.load("makedirs", {"count": 500, "seed": 3}),
        job.sync(),
        job.sleep(PAUSE_S),
        scrubbed | {"phase": "too soon"},
        *committed(),
        job.sleep(2 * IDLE_S),
        scrubbed | {"phase": "idle"},
        job.read(f"{SYSFS}/log_used") | {"phase": "used"},
        job.sleep(3 * PAUSE_S),
        scrubbed | {"phase": "resting"},
    ]
    booted = bench.boot(bench.mounted(formatted, *steps, options=LAZY), drive=formatted.file, save=True)
    stress.assert_no_complaint(booted)
    values = stress.statistics(booted)
    assert values["too soon"] == 0 < values["idle"] == values["used"] == values["resting"], values

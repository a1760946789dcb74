# SPDX-License-Identifier: MIT OR Apache-2.0
"""The log outlives the mount: what journal_lazy leaves, who can read it, and what the next mount makes of it."""

import re
import subprocess
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from kernel.test_scrub import copies
from kernel.test_snapshots import Log
from shingle.catalogue import fs
from shingle.catalogue.drive import FormattedDrive
from shingle.machine import job, trace
from shingle.machine.machine import StepResult
from shingle.runs.record import counter_changes

pytestmark = pytest.mark.machine

SEED = 23
LAZY_64M = fs.ext4("ext4-lazy-64m", "journal_lazy on a 64 MiB journal", 64, "journal_lazy")
LAZY = "journal_lazy"
CAPACITY_BYTES = 8 << 30
DIGEST = "/sys/fs/ext4/shd0/journal_lazy/map_digest"
KEPT = re.compile(r"JBD2: .*: kept (\d+) blocks in the log")


def manifest(name: str) -> job.Step:
    return job.load("manifest", {"output": f"/run/out/{name}"})


def load() -> list[job.Step]:
    """Files and directories that come and go: copies, newer copies and revokes."""
    return [
        job.load("createfiles", {"count": 600, "seed": SEED}),
        job.load("postmark", {"files": 100, "directories": 20, "transactions": 300, "seed": SEED}),
        job.sync(),
        job.load("removefiles", {"path": "files"}),
        job.load("createfiles", {"count": 300, "seed": SEED + 1, "path": "again"}),
        job.sync(),
    ]


def formatted_64m(bench: Bench) -> FormattedDrive:
    return bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)


def kept(booted: Booted) -> list[int]:
    """How many live blocks each mount found in the log."""
    return [int(count) for count in KEPT.findall(booted.outcome.console)]


def written(step: StepResult, request_class: str) -> int:
    return counter_changes(step.before, step.after)[f"{request_class}_written_bytes"]


def steps_named(booted: Booted, do: str) -> list[StepResult]:
    return [step for step in booted.outcome.steps if step.do == do]


def left_by_a_lazy_mount(bench: Bench, formatted: FormattedDrive) -> Booted:
    steps = bench.mounted(formatted, *load(), manifest("written.txt"), options=LAZY)
    return bench.boot(steps, drive=formatted.file, save=True)


def test_unmount_writes_nothing_home_and_the_next_mount_reads_it_from_the_log(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    steps = [
        *bench.mounted(formatted, *load(), manifest("written.txt"), options=LAZY),
        *bench.mounted(formatted, manifest("read.txt"), options=LAZY),
        *bench.mounted(formatted, job.load("removefiles", {"path": "again"}), options=LAZY),
        *bench.mounted(formatted, manifest("removed.txt"), options=LAZY),
    ]
    booted = bench.boot(steps, drive=formatted.file, save=True)
    stress.assert_no_complaint(booted)
    assert len(booted.text("written.txt").splitlines()) > 300
    assert booted.text("read.txt") == booted.text("written.txt")
    assert len(booted.text("removed.txt").splitlines()) < len(booted.text("read.txt").splitlines()) - 300
    assert len(kept(booted)) == 3 and all(kept(booted)), booted.outcome.console
    for step in (*steps_named(booted, "mount"), *steps_named(booted, "umount")):
        assert written(step, "metadata") == 0, step
    bench.assert_clean(booted.saved_drive, recover=True)


def test_a_stock_mount_takes_the_volume_back_and_a_lazy_one_starts_anew(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    stock_files = job.load("createfiles", {"count": 50, "path": "stock"})
    steps = [
        *bench.mounted(formatted, *load(), manifest("lazy.txt"), options=LAZY),
        # Replays the kept log; the marker turns invalid.
        *bench.mounted(formatted, manifest("stock.txt"), stock_files, manifest("more.txt")),
        *bench.mounted(formatted, manifest("again.txt"), options=LAZY),
        *bench.mounted(formatted, manifest("kept.txt"), options=LAZY),
    ]
    booted = bench.boot(steps, drive=formatted.file, save=True)
    stress.assert_no_complaint(booted)
    assert booted.text("stock.txt") == booted.text("lazy.txt")
    assert booted.text("more.txt") != booted.text("stock.txt")
    assert booted.text("kept.txt") == booted.text("again.txt") == booted.text("more.txt")
    # The lazy mount after the stock one found no log of its own; the one after that did.
    assert len(kept(booted)) == 1, booted.outcome.console
    bench.assert_clean(booted.saved_drive, recover=True)


def test_a_log_that_stock_ext4_left_in_a_crash_is_replayed_first(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    lazy = left_by_a_lazy_mount(bench, formatted)
    files = job.load("createfiles", {"count": 50, "path": "stock"})
    crash = bench.mounted(formatted, files, job.sync(), job.save(), manifest("stock.txt"))
    stock = bench.boot(crash, drive=lazy.saved_drive, save=True)
    again = bench.boot(bench.mounted(formatted, manifest("lazy.txt"), options=LAZY), drive=stock.saved_drive, save=True)
    assert again.text("lazy.txt") == stock.text("stock.txt")
    assert kept(again) == []
    bench.assert_clean(again.saved_drive, recover=True)


def test_a_log_that_stock_ext4_would_not_look_at_is_not_taken_over(bench: Bench) -> None:
    """Somebody took needs_recovery away: stock ext4 throws the log away, and all must see the same tree."""
    formatted = formatted_64m(bench)
    lazy = left_by_a_lazy_mount(bench, formatted)
    forget = job.run(["/sbin/debugfs", "-w", "-R", "feature -needs_recovery", job.DEVICE])
    trees = []
    for options in (LAZY, ""):
        steps = [forget, *bench.mounted(formatted, manifest("tree.txt"), options=options)]
        booted = bench.boot(steps, drive=lazy.saved_drive)
        assert kept(booted) == []
        trees.append(booted.text("tree.txt"))
    assert trees[0] == trees[1] != lazy.text("written.txt")


def test_draining_leaves_plain_ext4(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    steps = [
        *bench.mounted(formatted, *load(), options=LAZY),
        *bench.mounted(formatted, manifest("lazy.txt"), options=f"{LAZY},journal_lazy_drain"),
    ]
    drained = bench.boot(steps, drive=formatted.file, save=True)
    stress.assert_no_complaint(drained)
    bench.assert_clean(drained.saved_drive)
    stock = bench.boot(bench.mounted(formatted, manifest("stock.txt"), options="ro,noload"), drive=drained.saved_drive)
    assert stock.text("stock.txt") == drained.text("lazy.txt")


def test_a_write_protected_drive_is_read_without_a_single_write(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    lazy = left_by_a_lazy_mount(bench, formatted)
    steps = [
        *formatted.classes(),
        job.run(["/sbin/blockdev", "--setro", job.DEVICE]),
        # Stock ext4 has to write to recover, and so refuses.
        job.mount("ext4", "ro", may_fail=True),
        job.mount("ext4", f"ro,{LAZY}"),
        manifest("read.txt"),
        job.umount(),
    ]
    booted = bench.boot(steps, drive=lazy.saved_drive, trace=True)
    stress.assert_no_complaint(booted)
    assert steps_named(booted, "mount")[0].status != 0
    assert booted.text("read.txt") == lazy.text("written.txt")
    requests = trace.read(booted.trace_file)
    assert len(requests.select("read")) > 0 and len(requests.select("write")) == 0


def test_what_a_power_cut_leaves_is_the_map_that_ran(bench: Bench) -> None:
    formatted = formatted_64m(bench)
    before = [*load(), job.read(DIGEST) | {"phase": "ran"}, job.save()]
    steps = bench.mounted(formatted, *before, manifest("ran.txt"), options=LAZY)
    ran = bench.boot(steps, drive=formatted.file, save=True)
    after = [job.read(DIGEST) | {"phase": "rebuilt"}, manifest("rebuilt.txt")]
    rebuilt = bench.boot(bench.mounted(formatted, *after, options=LAZY), drive=ran.saved_drive)
    stress.assert_no_complaint(rebuilt)
    assert stress.statistics(rebuilt)["rebuilt"] == stress.statistics(ran)["ran"] != 0
    assert rebuilt.text("rebuilt.txt") == ran.text("ran.txt")


# How the volume is made; the rest is what every mke2fs does.
KINDS = {
    "1 KiB blocks": ["-b", "1024", "-J", "size=16"],
    "indirect blocks": ["-O", "^extent,^64bit", "-J", "size=16"],
    "bigalloc": ["-O", "bigalloc", "-J", "size=16"],
    "inline data": ["-O", "inline_data", "-I", "512", "-J", "size=16"],
    "orphan file": ["-O", "orphan_file", "-J", "size=16"],
    "quota": ["-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota", "-J", "size=16"],
    "smallest journal": ["-J", "size=4"],
}


def made(*options: str, size: str = "") -> list[job.Step]:
    """Formats in the machine itself; for what has no variant of its own."""
    return [job.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", *options, job.DEVICE, *([size] if size else [])])]


def mounted(*steps: job.Step, options: str = LAZY) -> list[job.Step]:
    return [job.mount("ext4", options), *steps, job.umount()]


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_volume_comes_back_from_its_log(bench: Bench, kind: str) -> None:
    steps = [*made(*KINDS[kind]), *mounted(*load(), manifest("written.txt")), *mounted(manifest("read.txt"))]
    lazy = bench.boot(steps, drive=bench.empty(capacity_bytes=2 << 30), save=True)
    stress.assert_no_complaint(lazy)
    assert kept(lazy), lazy.outcome.console
    stock = bench.boot(mounted(manifest("stock.txt"), options=""), drive=lazy.saved_drive)
    assert stock.text("stock.txt") == lazy.text("read.txt") == lazy.text("written.txt")
    bench.assert_clean(lazy.saved_drive, recover=True)


def test_directories_without_an_index_are_read_at_home_and_in_the_log(bench: Bench) -> None:
    """A look ahead, as stock ext4 does in such a directory, goes home only for blocks that are there."""
    files = [job.load("createfiles", {"count": 600, "seed": number, "path": f"files{number}"}) for number in range(2)]
    steps = [
        *made("-O", "^dir_index", "-J", "size=16"),
        *mounted(files[0], options=""),
        *mounted(files[1], job.drop_caches(), manifest("written.txt")),
        *mounted(manifest("read.txt")),
    ]
    lazy = bench.boot(steps, drive=bench.empty(capacity_bytes=2 << 30), save=True)
    stress.assert_no_complaint(lazy)
    assert lazy.text("read.txt") == lazy.text("written.txt")
    assert len(lazy.text("read.txt").splitlines()) > 1200
    bench.assert_clean(lazy.saved_drive, recover=True)


# Of 16 blocks with group descriptors each tells of 8 GiB.
LARGE_GIB, DESCRIPTOR_BLOCKS = 128, 16
# fs/ext4/lazy.c: copies that lie so near are one place, and a mount visits no more than so many.
NEAR, PLACES = 64, 8


def test_group_descriptors_that_lie_apart_in_the_log_are_gathered(bench: Bench) -> None:
    formatted = bench.formatted(LAZY_64M, capacity_bytes=LARGE_GIB << 30, seed=SEED)
    work: list[job.Step] = []
    for number in range(2 * DESCRIPTOR_BLOCKS):
        # Each directory of the root gets a group of its own; what follows keeps the copies apart.
        work += [job.load("createfiles", {"count": 300, "seed": number, "path": f"spread{number}"}), job.sync()]
    ran = bench.boot(
        bench.mounted(formatted, *work, manifest("ran.txt"), options=LAZY), drive=formatted.file, save=True
    )
    stress.assert_no_complaint(ran)
    crash = [*bench.mounted(formatted, *work, job.save(), options=LAZY)]
    before, after = (
        places(bench, formatted, drive)
        for drive in (bench.boot(crash, drive=formatted.file, save=True).saved_drive, ran.saved_drive)
    )
    print(f"of {DESCRIPTOR_BLOCKS} blocks in {before} places, after the unmount in {after}")
    assert before > PLACES >= after
    again = bench.boot(bench.mounted(formatted, manifest("again.txt"), options=LAZY), drive=ran.saved_drive)
    assert kept(again) and again.text("again.txt") == ran.text("ran.txt")


def places(bench: Bench, formatted: FormattedDrive, drive: Path) -> int:
    """In how many places of the log the newest copies of the group descriptors are."""
    newest = {home: number for number, home, _ in copies(Log(bench, formatted, drive))}
    at = sorted(newest[home] for home in range(1, 1 + DESCRIPTOR_BLOCKS) if home in newest)
    return sum(number - last > NEAR for last, number in zip([-NEAR, *at], at, strict=False))


def test_a_block_that_looks_like_the_journal_comes_back_whole(bench: Bench) -> None:
    """jbd2 stores such a block with another first word; an attribute in an inode of its own can be one."""
    value = "bytes.fromhex('c03b3998') + bytes(range(256)) * 40"
    program = f"import os; os.{{}}; assert os.getxattr('/mnt/file', 'user.x') == {value}"
    write = ["/usr/bin/python3", "-c", program.format(f"setxattr('/mnt/file', 'user.x', {value})")]
    read = job.run(["/usr/bin/python3", "-c", program.format("sync()")])
    create = job.run(["/usr/bin/touch", "/mnt/file"])
    # The last 16 buffers that were looked at stay in memory on one processor, whatever is dropped.
    others = job.load("createfiles", {"count": 100})
    steps = [
        *made("-O", "ea_inode", "-J", "size=16"),
        *mounted(create, job.run(write), others, job.sync(), job.drop_caches(), read),
        *mounted(read),
    ]
    lazy = bench.boot(steps, drive=bench.empty(capacity_bytes=2 << 30), save=True)
    stress.assert_no_complaint(lazy)
    bench.boot(mounted(read, options=""), drive=lazy.saved_drive)
    bench.assert_clean(lazy.saved_drive, recover=True)


def orphan_flags(bench: Bench) -> None:
    """Behind a replay e2fsck looks into the orphan file, though nobody has opened a file since the mount."""
    change = [job.run(["/bin/mkdir", "/mnt/new"]), job.sync(), job.save()]
    kept_log = [*made("-O", "orphan_file", "-J", "size=16"), *mounted(job.run(["/usr/bin/touch", "/mnt/file"]))]
    remounted = [job.run(["/bin/mount", "-o", "remount,rw", "/mnt"]), *change]
    for steps in (mounted(*change), mounted(*remounted, options=f"ro,{LAZY}")):
        cut = bench.boot([*kept_log, *steps], drive=bench.empty(capacity_bytes=2 << 30), save=True)
        image = bench.exported(cut.saved_drive)
        # e2fsck would clear the flag at once.
        for command in (["/sbin/debugfs", "-w", "-R", "journal_run", image], ["/sbin/dumpe2fs", "-h", image]):
            said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert "orphan_present" in said.stdout, "the flag is lost"


def test_a_replay_keeps_the_flag_of_the_orphan_file(bench: Bench) -> None:
    orphan_flags(bench)


def test_a_volume_that_grew_online_comes_back_from_a_crash(bench: Bench) -> None:
    # EXT4_IOC_RESIZE_FS; resize2fs wants a mount table that the guest does not have.
    resize = "import fcntl, os, struct; fcntl.ioctl(os.open('/mnt', 0), 0x40086610, struct.pack('Q', 500_000))"
    grow = job.run(["/usr/bin/python3", "-c", resize])
    files = [job.load("createfiles", {"count": 300, "seed": number, "path": f"files{number}"}) for number in range(3)]
    steps = [
        *made("-J", "size=16", size="600M"),
        *mounted(files[0]),
        *mounted(files[1], grow, files[2], job.sync(), job.save(), manifest("grown.txt")),
    ]
    grown = bench.boot(steps, drive=bench.empty(capacity_bytes=2 << 30), save=True)
    again = bench.boot(mounted(manifest("again.txt")), drive=grown.saved_drive, save=True)
    stress.assert_no_complaint(again)
    assert kept(again) and again.text("again.txt") == grown.text("grown.txt")
    bench.assert_clean(grown.saved_drive, recover=True)
    bench.assert_clean(again.saved_drive, recover=True)


def test_a_log_that_ends_too_early_is_refused(bench: Bench) -> None:
    """Its middle is overwritten: stock recovery would take the hole for the end."""
    formatted = formatted_64m(bench)
    lazy = left_by_a_lazy_mount(bench, formatted)
    first = formatted.layout.journal[0][0] // 8
    # More than a transaction, so that it is not copies alone that are lost.
    damage = job.run(["/bin/dd", "if=/dev/zero", f"of={job.DEVICE}", "bs=4096", f"seek={first + 40}", "count=2000"])
    steps = [damage, job.sync(), job.mount("ext4", LAZY, may_fail=True)]
    booted = bench.boot(steps, drive=lazy.saved_drive)
    assert steps_named(booted, "mount")[0].status != 0
    assert "was committed" in booted.outcome.console, booted.outcome.console

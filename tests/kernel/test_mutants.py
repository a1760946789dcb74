# SPDX-License-Identifier: MIT OR Apache-2.0
"""Negative controls: with a guard taken out of the kernel, a test fails (tests/mutants/README.md).

Each load runs on the control, which has every guard, where it must pass, and on the mutant, where it must fail with the
sign of what the guard is for. The quickest are in `./shingle test`; all with `./shingle test --long mutants`.
"""

from __future__ import annotations

import errno
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import harness
from harness import Bench
from kernel import (
    stress,
    test_cleaner,
    test_external_journal,
    test_failed_writes,
    test_features,
    test_inline_data,
    test_kept_log,
    test_read_only,
    test_regression_faults,
    test_regressions,
    test_remembered_errors,
    test_scrub,
    test_snapshots,
    test_snapshots_keep_data,
)
from kernel.test_journal_lazy import mix
from kernel.test_snapshots import Log
from shingle.build import build
from shingle.catalogue import faults, fs
from shingle.failure import Failure
from shingle.machine import job
from shingle.machine.console import Trouble
from shingle.paths import ROOT
from shingle.verify import crash, crash_workload, e2fsck

pytestmark = pytest.mark.machine

SEED = 5
# Large enough for snapshots.
LAZY_64M = fs.ext4("ext4-lazy-64m", "journal_lazy on a 64 MiB journal", 64, "journal_lazy")
CAPACITY_BYTES = 1 << 30
LAZY = "journal_lazy"


def manifest(name: str) -> job.Step:
    return job.load("manifest", {"output": f"/run/out/{name}"})


def python(text: str, *, stdout: str | None = None) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", text], stdout=stdout)


# --- Loads --------------------------------------------------------------------


def raw_read(bench: Bench) -> None:
    """User space reads the whole device below a tree whose caches were dropped."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    steps = bench.mounted(
        formatted,
        job.load("createfiles", {"count": 300, "threads": 2, "seed": SEED}),
        job.sync(),
        manifest("before.txt"),
        job.drop_caches(),
        job.run(["/bin/dd", f"if={job.DEVICE}", "of=/dev/null", "bs=1M", "count=1024"]),
        manifest("after.txt"),
        options=LAZY,
    )
    booted = bench.boot(steps, drive=formatted.file, seed=SEED, memory_mib=2048)
    assert len(booted.text("before.txt").splitlines()) > 300
    assert booted.text("after.txt") == booted.text("before.txt"), "the tree changed"


# Blocks of 1 KiB are what the device is mounted with first, so that a mount leaves the page cache as it is. mke2fs
# zeroes the inode tables: ext4lazyinit would change group descriptors that user space writes to, and stock ext4
# complains then.
SMALL = test_kept_log.made("-b", "1024", "-J", "size=16", "-E", "lazy_itable_init=0", size="1G")
# Where the bitmaps, the inode tables and the first directories of these are.
FRONT_BYTES = 24 << 20


def left_alone(text: str) -> job.Step:
    """A process that opens the device as `device`, runs a piece of Python, and keeps what it has to the end."""
    return python(
        "import mmap, os, sys, time\n"
        "done, tell = os.pipe()\n"
        "if os.fork():\n"
        "    os.close(tell)\n"
        "    sys.exit(not os.read(done, 1))\n"
        f"device = os.open('{job.DEVICE}', os.O_RDWR)\n{text}\n"
        "os.write(tell, b'.')\n"
        "time.sleep(10 ** 6)"
    )


# A byte of each block is written as it is at home already. Some of these blocks are in memory, and newer, so it is one
# that never changes: in front of a directory block's checksum, behind what an inode and the superblock hold.
WRITE_PARTS = f"""
direct = os.open('{job.DEVICE}', os.O_RDONLY | os.O_DIRECT)
home = mmap.mmap(-1, 1 << 20)
for at in range(0, {FRONT_BYTES}, 1 << 20):
    os.preadv(direct, [home], at)
    for place in range(1012, 1 << 20, 1024):
        os.pwrite(device, home[place:place + 1], at + place)
"""


def raw_write(bench: Bench) -> None:
    """User space writes a byte of each block, before the mount and below it: the rest comes from home."""
    files = job.load("createfiles", {"count": 300, "threads": 2, "seed": SEED})
    steps = [
        *SMALL,
        left_alone(""),
        *test_kept_log.mounted(files, manifest("1.txt")),
        left_alone(WRITE_PARTS),
        *test_kept_log.mounted(
            manifest("2.txt"), job.sync(), job.drop_caches(), left_alone(WRITE_PARTS), manifest("3.txt")
        ),
    ]
    allowed = ("bdev_allow_write_mounted=1",)
    drive = bench.empty(capacity_bytes=CAPACITY_BYTES)
    booted = bench.boot(steps, drive=drive, seed=SEED, save=True, memory_mib=512, kernel_arguments=allowed)
    assert len(booted.text("1.txt").splitlines()) > 300
    assert booted.text("2.txt") == booted.text("3.txt") == booted.text("1.txt"), "the tree changed"
    bench.assert_clean(booted.saved_drive, recover=True)


def stale_and(bench: Bench, counter: str, *then: job.Step) -> None:
    """User space has read the whole device when the journal does something with its copies."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    steps = bench.mounted(
        formatted,
        job.write(f"{stress.STATISTICS}/policy", "off"),
        job.load("createfiles", {"count": 300, "threads": 2, "seed": SEED}),
        job.sync(),
        manifest("before.txt"),
        job.drop_caches(),
        job.run(["/bin/dd", f"if={job.DEVICE}", "of=/dev/null", "bs=1M", "count=1024"]),
        *then,
        job.sync(),
        stress.statistic(counter),
        job.drop_caches(),
        manifest("after.txt"),
        options=LAZY,
    )
    booted = bench.boot(steps, drive=formatted.file, seed=SEED, save=True, memory_mib=2048)
    assert stress.statistics(booted)[counter] > 20
    assert booted.text("after.txt") == booted.text("before.txt"), "the tree changed"
    bench.assert_clean(booted.saved_drive, recover=True)


def stale_and_demoted(bench: Bench) -> None:
    stale_and(bench, "demoted", *[DEMOTE[0]] * 80)


def stale_and_relogged(bench: Bench) -> None:
    stale_and(bench, "relogged", *[RELOG_ALL] * 4)


# The journal of a mount that is cut off aborts.
ABORTED = (Trouble.FILE_SYSTEM_ERROR,)


def outlived(bench: Bench) -> None:
    """User space maps the device, which keeps buffers in memory from a mount that was cut off to the next."""
    keep = f"kept = mmap.mmap(device, {FRONT_BYTES}, prot=mmap.PROT_READ)\nkept[::1024]"
    cut_off = "import fcntl, os, struct; fcntl.ioctl(os.open('/mnt', 0), 0x8004587D, struct.pack('I', 2))"
    files = [job.load("createfiles", {"count": 200, "seed": number, "path": f"files{number}"}) for number in range(2)]
    steps = [
        *SMALL,
        *test_kept_log.mounted(
            files[0], job.sync(), manifest("synced.txt"), left_alone(keep), files[1], python(cut_off),
            options=f"{LAZY},commit=900",
        ),
        # A bitmap that was never committed is wrong in memory, to stock ext4 as well: nobody may look at it.
        *test_kept_log.mounted(manifest("again.txt"), options=f"{LAZY},no_prefetch_block_bitmaps,noinit_itable"),
    ]  # fmt: skip
    allowed = ("bdev_allow_write_mounted=1",)
    drive = bench.empty(capacity_bytes=CAPACITY_BYTES)
    booted = bench.boot(
        steps, drive=drive, seed=SEED, save=True, memory_mib=512, kernel_arguments=allowed, expected=ABORTED
    )
    assert booted.text("again.txt") == booted.text("synced.txt"), "the tree changed"
    bench.assert_clean(booted.saved_drive, recover=True)


def reuse_while(
    bench: Bench, counter: str, *disturb: job.Step, journal_mib: int = 16, rounds: int = 8, seed: int = SEED
) -> None:
    """Directories are freed, and their blocks become file data, while the journal is told what to do with all of it.

    A stale block that goes home before its place is used again does no harm, so when it goes matters: the size of the
    journal and the number of rounds are those with which a kernel without the guard was seen to fail.
    """
    formatted = bench.formatted(stress.on_journal(journal_mib), capacity_bytes=CAPACITY_BYTES, seed=seed)
    steps = bench.mounted(
        formatted,
        job.background(list(disturb)),
        job.load("dirty_reuse", {"rounds": rounds, "commit_only": True, "seed": seed}),
        job.stop_background(),
        stress.statistic(counter),
        options=LAZY,
    )
    booted = bench.boot(steps, drive=formatted.file, seed=seed, memory_mib=512, host_limit_s=400)
    stress.assert_no_complaint(booted)
    assert stress.statistics(booted)[counter] > 200


DEMOTE = (job.write(f"{stress.STATISTICS}/demote", "4096"), job.sleep(0.01))
RELOG_ALL = job.write(f"{stress.STATISTICS}/relog", "4096")
RELOG_OLDEST = (job.write(f"{stress.STATISTICS}/relog", "64"), job.sleep(0.0005))


def reuse_while_demoting(bench: Bench) -> None:
    # A demotion takes a 64th of the log at a time.
    reuse_while(bench, "demoted", *DEMOTE[:1] * 8, *DEMOTE, journal_mib=32)


def reuse_while_relogging(bench: Bench) -> None:
    """What was filed again too often is found in the map, and goes home at last."""
    reuse_while(bench, "relogged", *[RELOG_ALL] * 30, *DEMOTE, rounds=28, seed=6)


def reuse_while_relogging_the_oldest(bench: Bench) -> None:
    """The same with less to do each time, which meets the blocks sooner after they were freed."""
    reuse_while(bench, "relogged", *RELOG_OLDEST * 60, *DEMOTE)


def states(bench: Bench, workload: str, count: int, **changes: object) -> None:
    """The crash explorer finds nothing wrong."""
    chosen = replace(
        crash_workload.find(workload),
        kernel=bench.variant,
        complains=(Trouble.WARNING, Trouble.FILE_SYSTEM_ERROR),
        **changes,  # type: ignore[arg-type]
    )

    def machines(variant: str) -> build.Built:
        # What checks a state is the kernel in question, too.
        return harness.built(bench.variant if variant == "main" else variant)

    total = crash.explore([chosen], count, SEED, machines).total
    shown = "\n".join("\n  ".join((found.replay, *found.problems)) for found in total.failures[: crash.SHOWN])
    assert not total.failures, f"{len(total.failures)} of {total.states} states are wrong\n{shown}"


def half_resized(bench: Bench) -> None:
    """The power goes while the volume grows, group by group, and new groups hold files already.

    The superblock at home says 600 MiB then, the one in the log more: a lazy mount cannot go on from there.
    """
    grow = "import fcntl, os, struct; fcntl.ioctl(os.open('/mnt', 0), 0x40086610, struct.pack('Q', 4_000_000))"
    spread = (
        "import os\n"
        "for n in range(60):\n"
        "    os.mkdir(f'/mnt/{n}')\n"
        "    f = os.open(f'/mnt/{n}/file', 66)\n"
        "    os.write(f, bytes(9000))\n"
        "os.sync()"
    )
    load = [job.background([python(grow)]), job.sleep(2), python(spread), job.save(), manifest("written.txt")]
    steps = [
        *test_kept_log.made("-O", "^flex_bg", "-J", "size=16", size="600M"),
        *test_kept_log.mounted(*load)[:-1],
    ]
    ran = bench.boot(steps, drive=bench.empty(capacity_bytes=17 << 30), seed=SEED, save=True)
    steps = [job.mount("ext4", LAZY, may_fail=True)]
    lazy = bench.boot(steps, drive=ran.saved_drive)
    if lazy.outcome.steps[0].status == 0:
        again = bench.boot(test_kept_log.mounted(manifest("again.txt")), drive=ran.saved_drive)
        assert again.text("again.txt") == ran.text("written.txt"), "the tree changed"
    assert "the log holds another superblock" in lazy.outcome.console, lazy.outcome.console
    # Stock ext4 does not look either, and is wrong until its next mount; so e2fsck replays.
    replay = job.run([*e2fsck.REPLAY, job.DEVICE], may_fail=True)
    steps = [replay, *test_kept_log.mounted(manifest("stock.txt"), options="")]
    stock = bench.boot(steps, drive=ran.saved_drive, save=True)
    assert stock.text("stock.txt") == ran.text("written.txt")
    bench.assert_clean(stock.saved_drive)


def tail_states(bench: Bench) -> None:
    states(bench, "tiny", 40)


def two_crashes(bench: Bench) -> None:
    """What was synced between them is there for whoever replays the log."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    drive = formatted.file
    for number in range(2):
        files = job.load("createfiles", {"count": 100, "seed": number, "path": f"files{number}"})
        steps = bench.mounted(formatted, files, job.sync(), job.save(), manifest("written.txt"), options=LAZY)
        ran = bench.boot(steps, drive=drive, seed=SEED, save=True)
        drive = ran.saved_drive
    for options in (LAZY, ""):
        again = bench.boot(bench.mounted(formatted, manifest("again.txt"), options=options), drive=drive)
        stress.assert_no_complaint(again)
        assert again.text("again.txt") == ran.text("written.txt"), "the tree changed"


def busy(bench: Bench) -> None:
    """Many handles at once and a commit now and then."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    disturb = job.background([job.sync(), job.sleep(0.05)])
    steps = bench.mounted(formatted, disturb, mix(800), job.stop_background(), options=LAZY)
    booted = bench.boot(steps, drive=formatted.file, seed=SEED, memory_mib=256, host_limit_s=300)
    stress.assert_no_complaint(booted)


def full_log(bench: Bench) -> None:
    """The smallest log, and no cleaner."""
    stress.run(bench, mix(1200), seed=SEED, host_limit_s=300, policy="off", journal_mib=stress.TINY_JOURNAL_MIB)


def two_mounts(bench: Bench) -> None:
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    files = [job.load("createfiles", {"count": 200, "seed": number, "path": f"files{number}"}) for number in range(2)]
    steps = [
        *bench.mounted(formatted, files[0], manifest("written.txt"), options=LAZY),
        *bench.mounted(formatted, manifest("read.txt"), files[1], options=LAZY),
    ]
    booted = bench.boot(steps, drive=formatted.file, seed=SEED, save=True)
    stress.assert_no_complaint(booted)
    assert booted.text("read.txt") == booted.text("written.txt"), "the tree changed"
    bench.assert_clean(booted.saved_drive, recover=True)


def superblock(bench: Bench) -> None:
    """A superblock is logged (a new label); then tune2fs -c changes it, past the log. A replay must not undo that."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    label = "import fcntl, os; fcntl.ioctl(os.open('/mnt', 0), 0x41009432, b'label' + bytes(251))"
    # s_max_mnt_count, written as libext2fs does.
    tune = f"import os; os.pwrite(os.open('{job.DEVICE}', 1), bytes((77, 0)), 1024 + 54)"
    steps = bench.mounted(formatted, python(label), job.sync(), python(tune), options=LAZY)
    allowed = ("bdev_allow_write_mounted=1",)
    drive = bench.boot(steps, drive=formatted.file, seed=SEED, save=True, kernel_arguments=allowed).saved_drive
    shown = subprocess.run(
        ["/sbin/dumpe2fs", "-h", bench.recovered(drive)], capture_output=True, text=True, check=True
    ).stdout
    assert "label" in shown
    assert re.search(r"^Maximum mount count: +77$", shown, re.M), "an older superblock came back"


def demoted_and_crashed(bench: Bench) -> None:
    """Blocks go home, a snapshot is written, and the power goes before they are there."""
    formatted = bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    steps = bench.mounted(
        formatted,
        job.load("makedirs", {"count": 300, "seed": SEED, "path": "before"}),
        job.sync(),
        job.write(f"{stress.STATISTICS}/demote", "16384"),
        job.load("makedirs", {"count": 2400, "seed": SEED, "path": "behind"}),
        # A commit, and no more: a sync of everything would bring them home.
        job.run(["/bin/sync", "/mnt"]),
        stress.statistic("demoted"),
        stress.statistic("snapshots"),
        job.save(),
        manifest("ran.txt"),
        options=LAZY,
    )
    ran = bench.boot(steps, drive=formatted.file, seed=SEED, save=True)
    found = stress.statistics(ran)
    assert found["demoted"] > 100 and found["snapshots"] > 0, found
    again = bench.boot(bench.mounted(formatted, manifest("again.txt"), options=LAZY), drive=ran.saved_drive)
    stress.assert_no_complaint(again)
    assert again.text("again.txt") == ran.text("ran.txt"), "the tree changed"


def freed_and_unmounted(bench: Bench) -> None:
    test_snapshots_keep_data.test_freed_blocks_stay_free_behind_a_mount_that_reads_snapshots(bench, cut=False)


# Log blocks that a test makes unreadable: old enough that a snapshot covers them.
UNREADABLE = range(100, 700)


def unreadable(bench: Bench) -> None:
    """Copies that cannot be read are an error to who needs them, and are not copied by the cleaner."""
    formatted = bench.formatted(LAZY_64M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    load = [job.load("makedirs", {"count": 2000, "seed": SEED}), job.sync()]
    ran = test_snapshots.crashed(
        bench, formatted, *load, job.load("makedirs", {"count": 600, "path": "new"}), job.sync()
    )
    places = Log(bench, formatted, ran.saved_drive).places
    plan = bench.folder / "plan.toml"
    plan.write_text(
        "\n".join(f"[[unreadable]]\nfirst_sector = {places[number] // 512}\nsectors = 8" for number in UNREADABLE)
    )
    walk = (
        "import os, sys; seen = []; [0 for _ in os.walk('/mnt', onerror=lambda e: seen.append(e.errno))];"
        "print(*sorted(set(seen)))"
    )
    steps = [
        *formatted.classes(),
        job.mount("ext4", f"errors=continue,{LAZY}"),
        python(walk, stdout="errors"),
        # It ends at the first copy that it cannot read.
        python(
            f"try: open('{stress.STATISTICS}/relog', 'w').write('16384')\nexcept OSError as e: assert e.errno == 5, e"
        ),
        job.sync(),
        stress.statistic("relogged"),
        job.umount(),
    ]
    compiled = faults.compiled(bench.built.crates, plan, bench.folder / "plan")
    broken = bench.boot(steps, drive=ran.saved_drive, save=True, faults=compiled)
    seen = {int(number) for number in broken.text("errors").split()}
    assert seen == {errno.EIO}, f"the tree changed: {seen}"
    again = bench.boot(bench.mounted(formatted, manifest("again.txt"), options=LAZY), drive=broken.saved_drive)
    assert again.text("again.txt") == ran.text("ran.txt"), "the tree changed"
    assert stress.statistics(broken)["relogged"] > 0


def high_homes(bench: Bench) -> None:
    """Metadata beyond 16 TiB."""
    mkfs = [
        "/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-J", "size=16", "-N", "400000",
        "-O", "64bit,sparse_super2,^resize_inode", "-E", "num_backup_sb=0,lazy_itable_init=1,nodiscard", job.DEVICE,
    ]  # fmt: skip
    # Each in a group that its name decides on.
    files = [python("import os; [os.makedirs(f'/mnt/{n}/{n}') for n in range(60)]"), job.sync()]
    options = f"{LAZY},noinit_itable"
    steps = [
        job.run(mkfs),
        job.mount("ext4", options), *files, manifest("written.txt"), job.umount(),
        job.mount("ext4", options), job.drop_caches(), manifest("read.txt"), job.umount(),
    ]  # fmt: skip
    large = bench.altered(harness.PROFILE, capacity=20 << 40)
    drive = bench.empty(profile=large, capacity_bytes=20 << 40)
    booted = bench.boot(steps, drive=drive, memory_mib=2048, host_limit_s=300)
    stress.assert_no_complaint(booted)
    assert booted.text("read.txt") == booted.text("written.txt"), "the tree changed"


def wrapping_tids(bench: Bench) -> None:
    """The journal's transactions count through 2^32, and what was logged before is still needed."""
    formatted = bench.formatted(stress.LAZY_16M, capacity_bytes=CAPACITY_BYTES, seed=SEED)
    place = formatted.layout.journal[0][0] * 512 + 24
    # A lazy log begins as many ids later as it has blocks.
    first = (1 << 32) - (stress.JOURNAL_MIB << 20) // 4096 - 16
    start = python(f"import os; os.pwrite(os.open('{job.DEVICE}', 1), bytes.fromhex('{first:08x}'), {place})")
    once = "import os; f = os.open('/mnt/file', 66);[(os.pwrite(f, b'x', n), os.fsync(f)) for n in range(40)]"
    steps = [
        start,
        *bench.mounted(
            formatted, job.load("createfiles", {"count": 300, "seed": SEED}), python(once), manifest("1.txt"),
            options=LAZY,
        ),
        *bench.mounted(formatted, manifest("2.txt"), python(once), manifest("3.txt"), job.save(), options=LAZY),
    ]  # fmt: skip
    ran = bench.boot(steps, drive=formatted.file, seed=SEED, save=True)
    stress.assert_no_complaint(ran)
    assert ran.text("2.txt") == ran.text("1.txt"), "the tree changed"
    assert re.search(r"transactions 429496\d+ to \d{1,3};", ran.outcome.console), ran.outcome.console
    again = bench.boot(bench.mounted(formatted, manifest("4.txt"), options=LAZY), drive=ran.saved_drive, save=True)
    assert again.text("4.txt") == ran.text("3.txt"), "the tree changed"
    bench.assert_clean(again.saved_drive, recover=True)


def small_blocks(bench: Bench) -> None:
    test_kept_log.test_every_kind_of_volume_comes_back_from_its_log(bench, "1 KiB blocks")


def forgotten_error(bench: Bench) -> None:
    test_remembered_errors.test_a_recorded_error_stays(bench, LAZY, cut=True, reaction="continue", seconds=7)


def inline_files(bench: Bench) -> None:
    test_inline_data.test_what_a_file_holds_after_its_conversion_stays(bench, LAZY, test_inline_data.INLINE, cut=False)


def grown_inline_files(bench: Bench) -> None:
    test_inline_data.test_synced_contents_survive_that_a_file_grows(bench, LAZY)


def failed_split(bench: Bench) -> None:
    """An extent tree cannot grow, 50 times; the blocks that it had for that become file data."""
    grow = (
        "import os; f = os.open('/mnt/tree', os.O_RDWR | os.O_CREAT); failed = n = 0\n"
        "while failed < 50:\n"
        "    try: os.posix_fallocate(f, n * 8192, 4096)\n"
        "    except OSError as e: assert e.errno == 5, e; failed += 1\n"
        "    else: assert not failed; n += 1\n"
        # The failures leave the number of its blocks in memory only.
        "os.utime(f); os.fsync(f)"
    )
    fill = (
        "import os, random; n = 0\n"
        "try:\n"
        "    while True:\n"
        "        f = os.open(f'/mnt/{n}', os.O_RDWR | os.O_CREAT); n += 1\n"
        "        os.write(f, random.Random(n).randbytes(65536)); os.fsync(f); os.close(f)\n"
        "except OSError as e: assert e.errno == 28, e"
    )
    provoke = "/sys/module/jbd2/parameters/provoke"
    volume = replace(test_features.PLAIN, size="64M")
    drive = bench.empty(capacity_bytes=CAPACITY_BYTES)
    trees = [job.write(provoke, "split"), python(grow), job.write(provoke, "nothing")]
    # ext4 holds some blocks back on a full disk, and the ones in question may be among them.
    trees.append(job.write("/sys/fs/ext4/shd0/reserved_clusters", "0"))
    steps = [*volume.made(), *volume.mounted(*trees, python(fill), manifest("written.txt"))]
    ran = bench.boot(steps, drive=drive, seed=SEED, save=True)
    again = bench.boot(volume.mounted(manifest("again.txt"), options=""), drive=ran.saved_drive, save=True)
    # Not e2fsck: after such a failure ext4 leaks the blocks that were to hold data, with and without journal_lazy.
    assert again.text("again.txt") == ran.text("written.txt"), "the tree changed"
    stress.assert_no_complaint(again)


def commit_at_unmount(bench: Bench) -> None:
    """A commit is writing the superblock when it gets what an unmount puts there; then others replay the log."""
    volume = test_features.FILES
    steps = [*volume.made(), *volume.mounted(job.load("createfiles", {"count": 20, "seed": SEED}))]
    provoked = ("jbd2.provoke=commit-at-unmount",)
    drive = bench.empty(capacity_bytes=CAPACITY_BYTES)
    ran = bench.boot(steps, drive=drive, seed=SEED, save=True, kernel_arguments=provoked)
    stock = bench.boot(volume.mounted(job.sync(), options=""), drive=ran.saved_drive, save=True)
    stress.assert_no_complaint(stock)
    bench.assert_clean(stock.saved_drive)


def orphan_without_a_log(bench: Bench) -> None:
    test_read_only.test_an_orphan_without_a_log_is_deleted_for_good_by_a_read_only_mount(bench, back=False)


replayed_below = test_read_only.test_a_log_that_e2fsck_replayed_below_a_read_only_mount_is_not_written_to
frozen_error = test_read_only.test_an_error_that_is_logged_while_frozen_does_not_hide_the_log


def second_fsync(bench: Bench) -> None:
    test_regression_faults.test_an_fsync_behind_a_commit_that_failed_fails_too(bench, LAZY)


def overwritten_elsewhere(bench: Bench) -> None:
    elsewhere = test_external_journal.test_what_fsync_promised_is_there_with_a_journal_on_another_disk
    elsewhere(bench, "", test_external_journal.OVERWRITTEN)


def protected_error(bench: Bench) -> None:
    test_read_only.test_an_error_in_a_kept_log_waits_for_a_drive_that_can_be_written(bench, protect=True)


# --- Which guard, which load --------------------------------------------------

OVERWRITTEN = r"dirty_reuse.*which was not written there"
OTHER_TREE = r"the tree changed|failed checksum|bad (block|extra)|invalid|Structure needs cleaning|Bad message|orrupt"


@dataclass(frozen=True)
class Guard:
    hazard: str
    mutant: str
    load: Callable[[Bench], None]
    # What the failure says: any other would be a test that fails for another reason.
    sign: str
    # In every `./shingle test`.
    quick: bool = False


GUARDS = (
    Guard("H1", "stale-trusted", raw_read, OTHER_TREE, quick=True),
    Guard("H1", "stale-trusted", raw_write, OTHER_TREE + "|__jbd2_lazy_filed"),
    Guard("H1", "stale-goes-home", stale_and_demoted, OTHER_TREE, quick=True),
    Guard("H1", "stale-goes-home", stale_and_relogged, OTHER_TREE + "|__jbd2_lazy_filed"),
    Guard("H2", "no-freed-block-rule", reuse_while_demoting, OVERWRITTEN, quick=True),
    Guard("H2", "relog-cancels-revoke", reuse_while_relogging_the_oldest, OVERWRITTEN),
    Guard("H2", "split-not-forgotten", failed_split, OTHER_TREE, quick=True),
    Guard("H3", "relogs-freed-blocks", reuse_while_relogging, OVERWRITTEN),
    # The head that comes to a live copy ends the journal, before anything is lost.
    Guard("H4", "no-tail-rule", tail_states, "states are wrong|Input/output error"),
    Guard("H5", "no-tombstone", two_crashes, OTHER_TREE, quick=True),
    Guard(
        "H6",
        "no-escape",
        test_kept_log.test_a_block_that_looks_like_the_journal_comes_back_whole,
        "hash validation failed",
    ),
    Guard("H7", "clean-though-changed", busy, r"kernel bug|panick|transaction.c|commit.c"),
    Guard("H8", "no-emergency", full_log, r"JBD2: |Read-only|abort"),
    Guard("H9", "no-refresh", two_mounts, "block bitmap and bg descriptor inconsistent", quick=True),
    Guard("H9", "no-resize-check", half_resized, "block_group >= groups_count"),
    Guard("H10", "superblock-not-logged", superblock, "an older superblock", quick=True),
    Guard("H11", "cleans-when-frozen", test_cleaner.test_a_frozen_file_system_is_left_alone, r"assert \d+ == 0"),
    Guard(
        "H13",
        "revokes-not-applied",
        test_kept_log.test_what_a_power_cut_leaves_is_the_map_that_ran,
        r"assert \d+ == \d+",
    ),
    Guard(
        "H14", "snapshot-unchecked", test_snapshots.test_each_block_of_a_snapshot_may_be_bad, r"assert \[\(.*== \[\("
    ),
    Guard("H14", "snapshot-forgets-demoted", demoted_and_crashed, OTHER_TREE),
    Guard("H14", "snapshot-knows-the-freed", freed_and_unmounted, "pieces of 1024 bytes differ", quick=True),
    Guard("H16", "read-errors-ignored", unreadable, OTHER_TREE),
    Guard("H17", "blocks-are-pages", small_blocks, OTHER_TREE + "|Input/output error", quick=True),
    Guard("H17", "home-has-32-bits", high_homes, OTHER_TREE),
    Guard("H18", "trust-outlives-mount", outlived, OTHER_TREE, quick=True),
    Guard("H20", "no-drain", test_kept_log.test_draining_leaves_plain_ext4, r"umount.*BUG|e2fsck"),
    Guard(
        "H20",
        "tombstone-though-erased",
        test_features.erased_before_a_commit,
        r"panick|kernel bug|buffer.c",
        quick=True,
    ),
    Guard("H21", "tids-do-not-wrap", wrapping_tids, OTHER_TREE + r"|WARNING: .*/lazy_mount\.c"),
    Guard("H21", "head-does-not-wrap", full_log, r"panick|kernel bug|jmap"),
    Guard("H23", "older-error-record", forgotten_error, "'clean' == 'clean with errors'", quick=True),
    Guard("H24", "logged-inline-files", inline_files, "lost, of 50 each", quick=True),
    Guard("H25", "superblock-without-access", commit_at_unmount, "Invalid checksum recovering", quick=True),
    Guard(
        "H26",
        "error-clears-recovery",
        test_regression_faults.test_an_error_while_unmounting_leaves_the_log_to_the_next_mount,
        "the log was wiped",
        quick=True,
    ),
    Guard(
        "H20",
        "no-drain-at-remount",
        test_read_only.test_a_remount_to_read_only_drains_if_told_to,
        r"assert \(\d+ > 100",
    ),
    Guard("H26", "orphan-flag-at-home", test_kept_log.orphan_flags, "the flag is lost"),
    Guard("H26", "kept-without-flag", orphan_without_a_log, "needs_recovery flag is clear, but journal has data"),
    Guard(
        "H27",
        "replayed-log-trusted",
        test_read_only.test_a_log_without_copies_that_e2fsck_emptied_is_not_written_to,
        "what was synced is gone",
    ),
    Guard("H27", "emptied-log-sealed", replayed_below, "e2fsck -fp is not content"),
    Guard(
        "H27",
        "external-log-cached",
        test_read_only.test_what_e2fsck_reads_of_an_external_log_is_what_is_on_the_disk,
        "cmp",
    ),
    Guard("H28", "unwritten-inline-files", grown_inline_files, "lost, of 50 each", quick=True),
    Guard("H28", "inline-fdatasync-forgets", test_inline_data.inside, "lost, of 50 each", quick=True),
    Guard("H30", "restored-without-checksum", test_inline_data.no_room, "checksum invalid|Bad message", quick=True),
    Guard("H31", "owed-data-dropped", test_inline_data.dropped, "neither old nor new", quick=True),
    Guard("H31", "owed-data-truncated", test_inline_data.shrunk, "neither old nor new", quick=True),
    Guard("H31", "owed-data-removed", test_inline_data.removed, "neither old nor new", quick=True),
    Guard("H32", "damage-sealed", test_scrub.unmounted_at_once, "Directory block|== 'dirs0", quick=True),
    Guard("H32", "snapshot-damage-forgotten", test_scrub.unmounted_at_once, r"\(1, 1\)", quick=True),
    Guard("H34", "owed-error-counts", test_failed_writes.over_a_bad_sector, "Input/output error", quick=True),
    Guard("H35", "failed-data-shown", test_failed_writes.nothing_of_others, "shows what was deleted", quick=True),
    Guard("H33", "resize-keeps-log", test_regressions.resized_to_less, "a bitmap is in the file", quick=True),
    Guard("H28", "committed-though-aborted", second_fsync, "synced"),
    Guard("H28", "nothing-to-commit", second_fsync, "synced"),
    Guard("H28", "mapped-though-aborted", second_fsync, "synced"),
    Guard(
        "H29", "commit-ahead-of-data", test_external_journal.test_no_commit_of_another_disk_is_ahead_of_data, "stale"
    ),
    Guard("H29", "flush-promised-only", overwritten_elsewhere, "was promised"),
    Guard("H26", "flag-of-an-old-copy", frozen_error, "a read-only mount sent the log home"),
    Guard("H23", "error-moved-anyway", protected_error, r"[1-9]\d* writes"),
)


def mutant_bench(folder: Path, name: str) -> Bench:
    below = folder / name
    below.mkdir()
    return Bench(below, f"mutant:{name}")


@pytest.mark.parametrize(
    "guard",
    [pytest.param(each, id=each.mutant, marks=() if each.quick else pytest.mark.long) for each in GUARDS],
)
def test_a_guard_that_is_gone_is_missed(folder: Path, guard: Guard) -> None:
    guard.load(mutant_bench(folder, build.CONTROL))
    with pytest.raises((Failure, AssertionError)) as failure:
        guard.load(mutant_bench(folder, guard.mutant))
    detail = getattr(failure.value, "detail", ())
    said = "\n".join((type(failure.value).__name__, str(failure.value), *map(str, detail)))
    print(f"{guard.hazard} {guard.mutant}: {said[:2000]}")
    # Whatever else its console shows.
    assert "did not finish within" not in said, said
    assert re.search(guard.sign, said, re.DOTALL), said


def test_each_mutant_has_a_line_in_the_list() -> None:
    """That each has a guard, too, is seen where those of data in order are (test_mutants_data.py)."""
    listed = (ROOT / "tests/mutants/README.md").read_text()
    assert [name for name in sorted({guard.mutant for guard in GUARDS}) if f"`{name}`" not in listed] == []
    assert [number for number in range(1, 30) if f"| H{number} |" not in listed] == []

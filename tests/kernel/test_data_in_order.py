# SPDX-License-Identifier: MIT OR Apache-2.0
"""data_relocate: overwritten blocks get a new place, and no byte of them is lost (docs/design/data-in-order.md).

Each test moves blocks, by the kernel's own count, and compares every block of every file with notes that are kept on
the host's side. The cuts come from one record of a disk that loses what is in its buffer and writes in any order.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import ktap, stress
from kernel.test_regression_faults import rule
from kernel.test_regressions import plan
from shingle import process
from shingle.build.tools import FSX
from shingle.catalogue import fs
from shingle.catalogue.drive import FormattedDrive
from shingle.machine import job
from shingle.machine.console import Trouble
from shingle.paths import IN_MACHINE, TIDY
from shingle.verify import e2fsck
from shingle.verify.crash_blocks import Blocks

pytestmark = pytest.mark.machine

PROGRAM, CHURN = IN_MACHINE / "data_work.py", IN_MACHINE / "churn.py"
FEATURES = Path(__file__).with_name("feature_work.py")
RELOCATE = "data_relocate"
BOTH = f"journal_lazy,{RELOCATE}"
SMR = fs.ext4("ext4-smr-64m", "all data in one stream, on a 64 MiB journal", 64, BOTH)
# A page has four blocks, which are overwritten and move one by one.
SMALL_BLOCKS = replace(SMR, name="ext4-smr-64m-1k", mkfs=tuple("1024" if word == "4096" else word for word in SMR.mkfs))
CAPACITY_BYTES = 1 << 30
SEED = 23
MOVED = "/sys/fs/ext4/shd0/data_relocated_blocks"
FILES, BLOCKS = 6, 256
# A disk that takes discards, and FITRIM.
TRIMS, TRIM = "wd40efax", 0xC0185879


def stretches(bench: Bench) -> None:
    """KUnit beside mballoc's: which runs of free clusters a request gets, in which order, each once."""
    booted = bench.boot([job.sync()], kernel_arguments=("kunit.enable=1",), host_limit_s=300)
    report = ktap.parse(booted.outcome.console)
    assert not report.failed, f"KUnit: {report.failed}"
    # With blocks of 1 and 4 KiB; those of 64 KiB are larger than a page here.
    for name in ("stretches", "freed"):
        assert f"# test_stream_{name}: pass:2 fail:0 skip:1 total:3" in booted.outcome.console


def test_the_stream_takes_long_stretches_first(sanitizing_bench: Bench) -> None:
    stretches(sanitizing_bench)


def work(verb: str, *arguments: object) -> job.Step:
    argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{PROGRAM.name}", verb, *map(str, arguments)]
    return job.run(argv, stdout=f"{verb}.txt")


def moved(name: str = "moved") -> job.Step:
    return job.read(MOVED) | {"phase": name}


def formatted_for(bench: Bench, variant: fs.FileSystem = SMR, **more: str) -> FormattedDrive:
    return bench.formatted(variant, capacity_bytes=CAPACITY_BYTES, seed=SEED, **more)


def boot(
    bench: Bench, steps: Sequence[job.Step], drive: Path, notes: Path | None = None, tools: Sequence[Path] = (),
    **more: object,
) -> Booted:  # fmt: skip
    """The notes go along from one machine to the next."""
    files = (PROGRAM, FSX.program(), *tools, *([] if notes is None else [notes]))
    booted = bench.boot(
        steps, drive=drive, seed=SEED, files=files, memory_mib=512, host_limit_s=900, **more  # type: ignore[arg-type]
    )  # fmt: skip
    if "expected" not in more:
        stress.assert_no_complaint(booted)
    return booted


def assert_kept(bench: Bench, booted: Booted, **more: object) -> None:
    """The kernel that is shipped reads the same, and stock e2fsck is content."""
    shipped = Bench(bench.folder, "main")
    shipped._numbers = bench._numbers
    steps = [job.mount("ext4"), work("check"), job.umount()]
    boot(shipped, steps, booted.saved_drive, booted.out / "notes.json", **more)
    bench.assert_clean(booted.saved_drive, recover=True)


# --- One mount and the next ---------------------------------------------------------


@pytest.mark.parametrize("variant", [SMR, SMALL_BLOCKS], ids=["4k", "1k"])
@pytest.mark.parametrize("options", [BOTH, pytest.param(RELOCATE, marks=pytest.mark.long)])
def test_overwritten_blocks_move_and_stay_whole(sanitizing_bench: Bench, options: str, variant: fs.FileSystem) -> None:
    moves(sanitizing_bench, options, variant)


def moves(bench: Bench, options: str = BOTH, variant: fs.FileSystem = SMR) -> None:
    formatted = formatted_for(bench, variant)
    steps = [
        *bench.mounted(
            formatted, work("make", FILES, BLOCKS), moved("before"), work("overwrite", 1, 60), work("check"),
            moved(), options=options,
        ),
        *bench.mounted(formatted, work("check"), work("overwrite", 2, 30), work("check"), options=options),
    ]  # fmt: skip
    booted = boot(bench, steps, formatted.file, save=True)
    counted = stress.statistics(booted)
    assert counted["before"] == 0 < counted["moved"], counted
    assert_kept(bench, booted)


def test_a_remount_says_whether_blocks_move(sanitizing_bench: Bench) -> None:
    formatted = formatted_for(sanitizing_bench)

    def again(options: str) -> job.Step:
        return job.run(["/bin/mount", "-o", f"remount,{options}", "/mnt"])

    overwritten = [work("overwrite", 3, 20), job.sync(), work("check")]
    steps = sanitizing_bench.mounted(
        formatted, work("make", FILES, BLOCKS), *overwritten, moved("without"), again(RELOCATE), *overwritten,
        moved("with"), again(f"no{RELOCATE}"), *overwritten, moved("without again"), options="journal_lazy",
    )  # fmt: skip
    booted = boot(sanitizing_bench, steps, formatted.file, save=True)
    counted = stress.statistics(booted)
    assert counted["without"] == 0 < counted["with"] == counted["without again"], counted
    assert_kept(sanitizing_bench, booted)


def stays_where_it_is_hot(bench: Bench) -> None:
    """What is overwritten and synced in the same place again and again stays, all else moves."""
    formatted = formatted_for(bench)
    grown, logged, scattered, popular = 60, 200, 300, 100
    steps = [
        *bench.mounted(formatted, work("make", FILES, BLOCKS), work("log", logged), moved("log"), work("check"),
                       options=BOTH),
        *bench.mounted(formatted, work("grow", grown), moved("grow"), options=BOTH),
        # So that the files are in many regions.
        *bench.mounted(formatted, work("scattered", scattered), moved("scattered"), work("check"),
                       options=f"{BOTH},data_stretch_kb=64"),
        *bench.mounted(formatted, work("popular", popular), moved("popular"), work("check"),
                       options=f"{BOTH},data_stretch_kb=128"),
    ]  # fmt: skip
    booted = boot(bench, steps, formatted.file, save=True)
    counted = stress.statistics(booted)
    assert 0 < counted["log"] < logged / 8, f"moved: {counted}"
    assert counted["grow"] > grown * 0.8, f"moved: {counted}"
    assert counted["scattered"] > scattered * 0.9, f"moved: {counted}"
    assert counted["popular"] > 2 * popular * 0.9, f"moved: {counted}"
    assert_kept(bench, booted)


def test_blocks_stay_where_fsync_overwrites_again_and_again(sanitizing_bench: Bench) -> None:
    stays_where_it_is_hot(sanitizing_bench)


# --- Beside others -------------------------------------------------------------------

ALONE = {
    "direct I/O": ("beside", 100),
    "truncate and punch hole": ("cuts", 60),
}


@pytest.mark.parametrize("other", list(ALONE))
def test_blocks_move_beside(sanitizing_bench: Bench, other: str) -> None:
    formatted = formatted_for(sanitizing_bench)
    steps = sanitizing_bench.mounted(
        formatted, work("make", FILES, BLOCKS), work(*ALONE[other]), work("check"), moved(), options=BOTH
    )
    booted = boot(sanitizing_bench, steps, formatted.file, save=True)
    assert stress.statistics(booted)["moved"] > 20
    assert_kept(sanitizing_bench, booted)


@pytest.mark.parametrize("operations", [600, pytest.param(20_000, marks=pytest.mark.long)])
def test_blocks_move_below_fsx(sanitizing_bench: Bench, operations: int) -> None:
    """Mapped and buffered writes, truncation, holes, collapsed and inserted ranges, with writeback all the while."""
    formatted = formatted_for(sanitizing_bench)
    steps = sanitizing_bench.mounted(
        formatted, job.background([job.sync(), job.sleep(0.01)]), stress.fsx(operations, seed=SEED),
        job.stop_background(), moved(), options=BOTH,
    )  # fmt: skip
    booted = boot(sanitizing_bench, steps, formatted.file, save=True)
    assert stress.statistics(booted)["moved"] > operations // 20
    sanitizing_bench.assert_clean(booted.saved_drive, recover=True)


def test_a_swap_file_stays_where_it_is(sanitizing_bench: Bench) -> None:
    swap_stays(sanitizing_bench)


def swap_stays(bench: Bench, provoke: str = "nothing") -> None:
    """swapon asks where the file is, and only then ends all writes to it: what is dirty is written in between."""
    formatted = formatted_for(bench)
    steps = bench.mounted(formatted, work("swap"), moved(), options=BOTH)
    booted = boot(bench, steps, formatted.file, save=True, kernel_arguments=(f"jbd2.provoke={provoke}",))
    assert stress.statistics(booted)["moved"] > 3
    known = re.search(r"on /mnt/swap\..* across:(\d+)k", booted.outcome.console)
    spans = re.search(r"spans (\d+) KiB", booted.text("swap.txt"))
    assert known is not None and spans is not None
    assert known[1] == spans[1], f"the swap code knows {known[1]} KiB, which became {spans[1]}"
    bench.assert_clean(booted.saved_drive, recover=True)


# --- Tidying ---------------------------------------------------------------------------


def tidy(name: str, *more: str) -> job.Step:
    argv = ["/usr/bin/python3", "-I", f"{job.OUT}/{TIDY.name}", "/mnt", "--rate", "1000", *more]
    return job.run(argv, stdout=f"{name}.txt")


def planned(booted: Booted, name: str) -> tuple[int, int]:
    """Regions and parts of files of the first plan."""
    found = re.search(r"(\d+) regions and (\d+) parts of files", booted.text(f"{name}.txt"))
    assert found is not None, "there is no plan"
    return int(found[1]), int(found[2])


def long_percent(booted: Booted, name: str) -> tuple[int, int]:
    """Of what is free, what lies in stretches; before and after."""
    said = re.findall(r"free (?:before|now): .* (\d+) %$", booted.text(f"{name}.txt"), re.MULTILINE)
    return int(said[0]), int(said[-1])


def tidied(bench: Bench) -> None:
    """Files that were torn apart become whole, contents and times stay."""
    formatted = formatted_for(bench)
    times = ["/bin/sh", "-c", "find /mnt/data -type f -printf '%p %s %T@ %C@\\n' | sort"]
    steps = bench.mounted(
        formatted, work("make", 30, 64), work("overwrite", 1, 400), job.sync(), job.run(times, stdout="before.times"),
        tidy("before", "--dry-run"), tidy("tidied"), tidy("after", "--dry-run"), work("check"),
        job.run(times, stdout="after.times"), moved(), options=f"{BOTH},data_stretch_kb=1024",
    )  # fmt: skip
    booted = boot(bench, steps, formatted.file, save=True, tools=(TIDY,))
    print(*(booted.text(f"{name}.txt") for name in ("before", "tidied", "after")), sep="\n")
    assert booted.text("before.times") == booted.text("after.times")
    assert planned(booted, "before")[1] > 20, "nothing was torn apart"
    assert planned(booted, "after")[1] == 0, "files are in pieces"
    assert_kept(bench, booted)


def test_tidying_joins_files(sanitizing_bench: Bench) -> None:
    tidied(sanitizing_bench)


def tidied_full(bench: Bench) -> None:
    """A disk that is nearly full and has no free stretch left gets them back: what moves goes into what was emptied."""
    formatted = formatted_for(bench)

    def churn(verb: str, *more: object) -> job.Step:
        return job.run(
            ["/usr/bin/python3", "-I", f"{job.OUT}/{CHURN.name}", verb, "/mnt/server", "75", *map(str, more)]
        )

    rounds = [churn("round", 160 << 20, seed, f"{job.OUT}/round.json") for seed in (1, 2, 3)]
    steps = bench.mounted(
        formatted, churn("fill", SEED), work("make", FILES, BLOCKS), *rounds, work("overwrite", 1, 60), job.sync(),
        tidy("full"), work("check"), moved(), options=f"{BOTH},data_stretch_kb=4096",
    )  # fmt: skip
    booted = boot(bench, steps, formatted.file, save=True, tools=(TIDY, CHURN))
    print(booted.text("full.txt"))
    before, now = long_percent(booted, "full")
    assert before < 10, "there are stretches without tidying"
    assert now >= 50, "the goal was not reached"
    assert_kept(bench, booted)


def test_tidying_a_nearly_full_disk_gets_stretches_back(sanitizing_bench: Bench) -> None:
    tidied_full(sanitizing_bench)


# --- No room ---------------------------------------------------------------------------


def test_a_full_disk_can_be_overwritten(sanitizing_bench: Bench) -> None:
    """Blocks move until the disk is full; then they stay, and no write fails."""
    formatted = formatted_for(sanitizing_bench)
    full = job.run(["/bin/sh", "-c", "dd if=/dev/zero of=/mnt/full bs=1M; sync"], may_fail=True)
    steps = sanitizing_bench.mounted(
        formatted, work("make", FILES, BLOCKS), work("overwrite", 1, 20), job.sync(), moved("room"), full,
        moved("full"), work("overwrite", 2, 40, "alone"), job.sync(), moved("later"), work("check"), options=BOTH,
    )  # fmt: skip
    booted = boot(sanitizing_bench, steps, formatted.file, save=True)
    counted = stress.statistics(booted)
    assert 0 < counted["room"] <= counted["full"] == counted["later"], counted
    assert_kept(sanitizing_bench, booted)


def test_whoever_is_at_the_limit_of_the_quota_can_overwrite(sanitizing_bench: Bench) -> None:
    made = ["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-O", "quota", "-J", "size=16", job.DEVICE]
    steps = [
        job.run(made), job.mount("ext4", f"usrquota,{RELOCATE}"), work("make", FILES, BLOCKS),
        work("overwrite", 1, 10), moved(), work("quota"), work("check"), job.umount(),
    ]  # fmt: skip
    booted = boot(sanitizing_bench, steps, sanitizing_bench.empty(capacity_bytes=CAPACITY_BYTES), save=True)
    assert stress.statistics(booted)["moved"] > 0
    used = re.search(r"used (\d+) before and (\d+) after", booted.text("quota.txt"))
    assert used is not None and used[1] == used[2], booted.text("quota.txt")
    assert_kept(sanitizing_bench, booted)


# A program that runs is written again, as by its owner, who may only read it; a stranger may not.
REWRITTEN = """
import fcntl, os, shutil, struct, subprocess
shutil.copy('/bin/sleep', '/mnt/program')
os.sync()
size = os.stat('/mnt/program').st_size
ask = lambda: fcntl.ioctl(os.open('/mnt/program', os.O_RDONLY), 0x4010662F, struct.pack('QQ', 0, size))
running = subprocess.Popen(['/mnt/program', '60'])
ask()
assert subprocess.run(['/mnt/program', '0']).returncode == 0
os.sync()
running.kill()
running.wait()
os.setuid(65534)
try:
    ask()
except PermissionError:
    print('refused')
"""


def test_a_program_that_runs_can_be_written_again(sanitizing_bench: Bench) -> None:
    formatted = formatted_for(sanitizing_bench)
    steps = sanitizing_bench.mounted(formatted, python(REWRITTEN, "rewritten"), moved(), options=RELOCATE)
    booted = boot(sanitizing_bench, steps, formatted.file)
    assert booted.text("rewritten.txt").split("\n")[0] == "refused"
    assert stress.statistics(booted)["moved"] > 0


# --- What may be on the disk after a failure ------------------------------------------


def wrong_blocks(bench: Bench, image: Path, blocks: Blocks, marks: Sequence[tuple[int, str]], place: int) -> list[str]:
    """What blocks of the files of an image hold, whose journal was replayed, and must not."""
    target = bench.folder / "dumped"
    subprocess.run(["rm", "-rf", target], check=True)
    target.mkdir()
    command = ["/sbin/debugfs", "-R", f"rdump /data {target}", image]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    said = subprocess.run([sys.executable, PROGRAM, "versions", target / "data"], check=True, capture_output=True)
    files = {int(file): versions for file, versions in json.loads(said.stdout).items()}
    return blocks.wrong(files, blocks.held(marks, place))


def wrong_at_the_end(bench: Bench, booted: Booted, image: Path) -> list[str]:
    marks = [(0, line) for line in booted.text("marks.txt").splitlines()]
    return wrong_blocks(bench, image, Blocks.noted(booted.out / "notes.json"), marks, 1)


MARKS = "/sys/block/shd0/shingle/mark"


def refusal(bench: Bench, formatted: FormattedDrive, after: int) -> Path:
    """A drive refuses a write of data after so many. All is data but the log: journal_lazy keeps metadata there."""
    ((first, sectors),) = formatted.layout.journal
    parts = ((64, first // 8 - 64), ((first + sectors) // 8, (CAPACITY_BYTES >> 12) - (first + sectors) // 8))
    return plan(bench, "".join(rule("failed_write", *part, after=after, times=1) for part in parts))


def refused(bench: Bench) -> None:
    """The drive refuses a write of data: what was synced before is there, as it was or newer.

    Though what is free is trimmed then, as by fstrim.timer: what the aborted transaction freed is not.
    """
    formatted = formatted_for(bench, profile=TRIMS)
    argument = "struct.pack('QQQ', 0, 2**63, 0)"
    trim = f"import fcntl, os, struct; fcntl.ioctl(os.open('/mnt', os.O_RDONLY), {TRIM:#x}, {argument})"
    made = boot(bench, bench.mounted(formatted, work("make", FILES, BLOCKS), options=BOTH), formatted.file, save=True)
    moves_found = 0
    for after in (5, 40):
        broken = refusal(bench, formatted, after)
        steps = [
            job.mount("ext4", f"{BOTH},errors=continue"), work("overwrite", 1, 400, f"{job.OUT}/marks.txt"), moved(),
            job.run(["/usr/bin/python3", "-c", trim], may_fail=True),
            job.run(["/bin/umount", "/mnt"], may_fail=True), job.save(),
        ]  # fmt: skip
        notes = made.out / "notes.json"
        booted = boot(bench, steps, made.saved_drive, notes, save=True, faults=broken, expected=tuple(Trouble))
        assert "I/O error, dev shd0" in booted.outcome.console
        moves_found += stress.statistics(booted)["moved"]
        wrong = wrong_at_the_end(bench, booted, bench.recovered(booted.saved_drive))
        assert not wrong, f"after {after} writes, SEED={SEED}:\n" + "\n".join(wrong[:9])
    assert moves_found > 0


def test_a_write_that_fails_loses_nothing_that_was_synced(sanitizing_bench: Bench) -> None:
    refused(sanitizing_bench)


def test_without_flushes_blocks_stay(sanitizing_bench: Bench) -> None:
    """With barrier=0 the record of a commit may be durable before what it maps."""
    bench, formatted = sanitizing_bench, formatted_for(sanitizing_bench)
    steps = bench.mounted(
        formatted, work("make", FILES, BLOCKS), work("overwrite", 1, 60), work("check"), moved(),
        options=f"{RELOCATE},barrier=0",
    )  # fmt: skip
    assert stress.statistics(boot(bench, steps, formatted.file))["moved"] == 0


# --- What could not be written ---------------------------------------------------------

# Overwrites a file, which fails, and reads it as soon as nothing keeps its pages any more.
UNWRITTEN = """
import os
new, blocks = b'new.' * 1024, 64
file = os.open('/mnt/file', os.O_RDWR)
os.pwrite(file, new * blocks, 0)
try:
    os.fsync(file)
    print('synced')
except OSError:
    print('refused')
open('/proc/sys/vm/drop_caches', 'w').write('3')
for place in range(blocks):
    try:
        print('new' if os.pread(file, len(new), place * len(new)) == new else 'other')
    except OSError:
        print('unreadable')
"""
WRITE_ONE = "import os; file = os.open('/mnt/file', os.O_RDWR | os.O_CREAT); os.pwrite(file, b'old.' * 65536, 0)"


def python(text: str, name: str = "python") -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", text], stdout=f"{name}.txt")


def unwritten(bench: Bench) -> None:
    """A drive refuses one write: the new place in memory holds what somebody else has deleted, and nobody reads it."""
    formatted = formatted_for(bench)
    made = boot(bench, bench.mounted(formatted, python(WRITE_ONE), options=BOTH), formatted.file, save=True)
    steps = [
        # A new time of access would need a handle, and that sees the abort first.
        job.mount("ext4", f"{BOTH},errors=continue,noatime"), python(UNWRITTEN), moved(),
        job.run(["/bin/umount", "/mnt"], may_fail=True),
    ]  # fmt: skip
    booted = boot(
        bench, steps, made.saved_drive, faults=refusal(bench, formatted, after=0), expected=tuple(Trouble)
    )  # fmt: skip
    said = Counter(booted.text("python.txt").split())
    assert stress.statistics(booted)["moved"] > 0
    assert said["refused"] == 1 and said["new"] + said["unreadable"] == 64, f"read: {said}"


def test_what_could_not_be_written_is_never_read_as_something_else(sanitizing_bench: Bench) -> None:
    unwritten(sanitizing_bench)


# --- Who knows a place, and flushes that go away ----------------------------------------

# FIBMAP is what md asks of a file for its bitmap, where it then writes by itself.
FIBMAP = """
import fcntl, os, struct
file = os.open('/mnt/file', os.O_RDWR)
place = lambda: struct.unpack('i', fcntl.ioctl(file, 1, struct.pack('i', 0)))[0]
# Moves as long as nobody asked.
os.pwrite(file, b'new.' * 1024, 4096)
os.fsync(file)
known = place()
for turn in range(3):
    os.pwrite(file, b'new.' * 1024, 0)
    os.fsync(file)
print('stays' if place() == known else 'has moved')
"""


def known(bench: Bench) -> None:
    formatted = formatted_for(bench)
    steps = bench.mounted(formatted, python(WRITE_ONE), job.sync(), python(FIBMAP, "fibmap"), moved(), options=BOTH)
    booted = boot(bench, steps, formatted.file)
    assert stress.statistics(booted)["moved"] > 0
    assert booted.text("fibmap.txt").split("\n")[0] == "stays"


def test_a_block_stays_whose_place_somebody_was_told(sanitizing_bench: Bench) -> None:
    known(sanitizing_bench)


def known_before(bench: Bench) -> None:
    """Somebody was told before blocks could move at all."""
    formatted = formatted_for(bench)
    remount = "import subprocess; subprocess.run(['/bin/mount', '-o', 'remount,data_relocate', '/mnt'], check=True)"
    text = FIBMAP.replace("for turn", f"{remount}\nfor turn")
    steps = bench.mounted(
        formatted, python(WRITE_ONE), job.sync(), python(text, "fibmap"), work("make", FILES, BLOCKS),
        work("overwrite", 1, 10), moved(),
    )  # fmt: skip
    booted = boot(bench, steps, formatted.file)
    assert stress.statistics(booted)["moved"] > 0
    assert booted.text("fibmap.txt").split("\n")[0] == "stays"


def test_a_block_stays_whose_place_somebody_was_told_before_a_remount(sanitizing_bench: Bench) -> None:
    known_before(sanitizing_bench)


def asynchronous(bench: Bench) -> None:
    """With data=journal encrypted files are ordered; with journal_async_commit their commit may overtake the data."""
    formatted = formatted_for(bench, replace(SMR, name="ext4-smr-encrypt", mkfs=(*SMR.mkfs, "-O", "encrypt")))

    def inside(verb: str, *arguments: str) -> job.Step:
        root = "DATA_ROOT=/mnt/encrypt/secret/data"
        return job.run(["/usr/bin/env", root, "/usr/bin/python3", "-I", f"{job.OUT}/{PROGRAM.name}", verb, *arguments])

    def keys(turn: str) -> job.Step:
        return job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{FEATURES.name}", "encrypt", turn])

    journalled = f"{RELOCATE},data=journal"
    steps = [
        *bench.mounted(formatted, keys("1"), inside("make", "2", "64"), inside("overwrite", "5", "10"), moved("waits"),
                       options=journalled),
        *bench.mounted(formatted, keys("2"), inside("overwrite", "6", "10"), moved("overtakes"),
                       options=f"{journalled},journal_async_commit"),
    ]  # fmt: skip
    counted = stress.statistics(boot(bench, steps, formatted.file, tools=(FEATURES,)))
    assert counted["overtakes"] == 0 < counted["waits"], f"moved: {counted}"


def test_nothing_moves_if_the_commit_may_overtake_it(sanitizing_bench: Bench) -> None:
    asynchronous(sanitizing_bench)


# Overwrites, waits for the data, and switches flushes off ahead of the commit.
UNFLUSHED = """
import ctypes, glob, os, subprocess
file = os.open('/mnt/file', os.O_RDWR)
os.pwrite(file, b'new.' * 65536, 0)
assert ctypes.CDLL(None).sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0
commits = lambda: int(open(glob.glob('/proc/fs/jbd2/*/info')[0]).read().split()[0])
before = commits()
subprocess.run(['/bin/mount', '-o', 'remount,barrier=0', '/mnt'], check=True)
print(commits() - before, 'commits')
"""


def unflushed(bench: Bench) -> None:
    """Without flushes the record of a commit may be durable ahead of what it maps: that is committed before."""
    formatted = formatted_for(bench)
    steps = bench.mounted(
        formatted, python(WRITE_ONE), job.sync(), python(UNFLUSHED, "unflushed"), moved(), options=RELOCATE
    )
    booted = boot(bench, steps, formatted.file)
    assert stress.statistics(booted)["moved"] > 0
    assert booted.text("unflushed.txt").split("\n")[0] == "1 commits"


def test_what_moved_is_committed_before_flushes_end(sanitizing_bench: Bench) -> None:
    unflushed(sanitizing_bench)


# --- What cannot be read -----------------------------------------------------------------


def debugfs(image: Path, request: str) -> str:
    done = subprocess.run(
        ["/sbin/debugfs", "-R", request, image], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def bitmaps(bench: Bench) -> None:
    """Only one group's bitmap of blocks can be read: all new data go there."""
    formatted = formatted_for(bench)
    # Bitmaps of groups in which nothing ever was are made, not read.
    everywhere = job.run(["/bin/sh", "-c", "fallocate -l 800M /mnt/full; sync; rm /mnt/full"])
    steps = bench.mounted(formatted, work("make", FILES, BLOCKS), everywhere, options=RELOCATE)
    made = boot(bench, steps, formatted.file, save=True)
    said = debugfs(bench.recovered(made.saved_drive), "stats")
    places = [int(place) for place in re.findall(r"block bitmap at (\d+)", said)]
    assert len(places) == CAPACITY_BYTES >> 27
    steps = [
        job.mount("ext4", "data_stream,errors=continue"), work("overwrite", 1, 60), work("check"),
        job.run(["/bin/umount", "/mnt"], may_fail=True),
    ]  # fmt: skip
    failing = plan(bench, "".join(rule("unreadable", place, 1) for place in places[:-1]))
    booted = boot(bench, steps, made.saved_drive, made.out / "notes.json", faults=failing, expected=tuple(Trouble))
    assert "Cannot read block bitmap" in booted.outcome.console


def test_a_group_whose_bitmap_cannot_be_read_has_no_stretch(sanitizing_bench: Bench) -> None:
    bitmaps(sanitizing_bench)


# --- Power cuts ---------------------------------------------------------------------------

_DISK_MIB = 32
CUT_OPTIONS = f"{RELOCATE},data_stretch_kb=128"


@dataclass(frozen=True)
class Record:
    """What a machine wrote to a disk of the crash explorer."""

    bench: Bench
    disk: Path
    file: Path
    kind: tuple[str, ...]
    marks: list[tuple[int, str]]
    blocks: Blocks
    moved: int

    def tool(self, *arguments: str | Path) -> str:
        return process.run([self.bench.built.crates.crash, *arguments], what="shingle-crash", limit_s=600)

    def looked(self, seed: int) -> tuple[str, list[str]]:
        """One cut, and what is wrong with what it leaves."""
        image = self.bench.folder / "cut.img"
        early = next(at for at, text in self.marks if text == "begun")
        cut = self.tool(
            "cut", self.disk, self.file, f"random:{seed}", "--after", str(early), *self.kind, "--raw", "-o", image
        ).strip()
        done = subprocess.run([*e2fsck.REPLAY, image], capture_output=True, text=True, timeout=300, check=False)
        wrong = [] if e2fsck.is_replayed(done.returncode, done.stdout) else [done.stdout]
        place = int(re.match(r"\d+", cut)[0])  # type: ignore[index]
        wrong += wrong_blocks(self.bench, image, self.blocks, self.marks, place)
        clean = subprocess.run([*e2fsck.CHECK, image], capture_output=True, text=True, timeout=300, check=False)
        if not e2fsck.is_content(clean.returncode, clean.stdout):
            wrong.append(f"e2fsck: {clean.stdout}")
        image.unlink()
        return cut, wrong


def recorded(bench: Bench, seed: int, options: str, turns: int = 140, provoke: str = "nothing") -> Record:
    """A nearly full disk on which blocks that are given up soon get another owner."""
    image, disk, record = (bench.folder / name for name in ("base.img", "base.disk", "record"))
    with image.open("wb") as file:
        file.truncate(_DISK_MIB << 20)
    process.run(
        ["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-N", "512", "-b", "4096", "-J", "size=5", "-E",
         f"lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed={fs.HASH_SEED}", image],
        what="mke2fs", limit_s=60, env=os.environ | {"E2FSPROGS_FAKE_TIME": "1767225600"},
    )  # fmt: skip
    kind = ("--delay-us", str((12000, 3000)[seed % 2]), *(["--no-fua"] if seed % 2 else []))
    crash = bench.built.crates.crash
    process.run([crash, "disk", image, *kind, "-o", disk], what="shingle-crash", limit_s=60)
    steps = [
        job.mount("ext4", f"noatime,{options}"), work("make", FILES, BLOCKS, 4), job.mark("begun"),
        work("overwrite", seed, turns, MARKS), moved(),
    ]  # fmt: skip
    arguments = ("loglevel=5", "printk.devkmsg=on", "shingle.memory_mb=2048", f"jbd2.provoke={provoke}")
    booted = bench.boot(
        steps, drive=disk, seed=seed, memory_mib=256, files=(PROGRAM,), kernel_arguments=arguments, trace=True,
        host_limit_s=600,
    )  # fmt: skip
    stress.assert_no_complaint(booted)
    booted.trace_file.rename(record)
    said = process.run([crash, "marks", record], what="shingle-crash", limit_s=60)
    marks = [(int(at), str(text).strip()) for at, text in map(json.loads, said.splitlines())]
    counted = stress.statistics(booted)["moved"]
    return Record(bench, disk, record, kind, marks, Blocks.noted(booted.out / "notes.json"), counted)


def cut_everywhere(
    bench: Bench, seed: int, options: str, states: int, provoke: str = "nothing"
) -> Counter[str]:  # fmt: skip
    record = recorded(bench, seed, options, provoke=provoke)
    assert record.moved > 200, record.moved
    fates: Counter[str] = Counter()
    for number in range(states):
        cut, wrong = record.looked(number)
        fates[re.sub(r"\d", "", cut)] += 1
        assert not wrong, f"SEED={seed}, options {options}, cut {cut}:\n" + "\n".join(wrong[:9])
    return fates


@pytest.mark.parametrize(
    ("seed", "options", "states"),
    [
        (1, f"journal_lazy,{CUT_OPTIONS}", 30),
        (2, CUT_OPTIONS, 30),
        *(pytest.param(seed, options, 400, marks=pytest.mark.long)
          for seed in range(3, 9) for options in (f"journal_lazy,{CUT_OPTIONS}", CUT_OPTIONS)),
    ],
)  # fmt: skip
def test_after_a_power_cut_no_block_is_older_than_its_sync(
    sanitizing_bench: Bench, seed: int, options: str, states: int
) -> None:
    fates = cut_everywhere(sanitizing_bench, seed, options, states)
    print(f"{dict(fates)}")
    assert len(fates) > 1

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Small files that were in their inodes and come out: their new block is the file's, and no metadata.

ext4 used to log that block, as if it were a directory's. Whatever the log has of it comes back over what the file holds
since, at a replay (in stock ext4: after a crash) and in any read that does not know the log.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from kernel.test_features import CAPACITY_BYTES, PROGRAM, Volume
from shingle.machine import job

pytestmark = pytest.mark.machine

WORK = PROGRAM.with_name("inline_work.py")
INLINE = Volume("inline_data", ("-I", "512"))
SMALL_BLOCKS = Volume("inline_data", ("-b", "1024", "-I", "512"))


# Of inline_work.py.
OPENED = ("by_fallocate", "by_mmap", "by_truncate")
BY_PATH = ("by_path",)


def work(verb: str, kinds: tuple[str, ...] = OPENED) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", f"{job.OUT}/{WORK.name}", verb, *kinds])


def boot(bench: Bench, volume: Volume, options: str, *steps: job.Step, drive: Path | None = None) -> Booted:
    """A mount with these steps, of a new volume or one that there is."""
    made = [] if drive else volume.made()
    return bench.boot(
        [*made, *volume.mounted(*steps, options=options)],
        drive=drive or bench.empty(capacity_bytes=CAPACITY_BYTES),
        files=(WORK,),
        save=True,
    )


def assert_there(bench: Bench, volume: Volume, ran: Booted, check: job.Step) -> None:
    """Whoever mounts it next finds the contents, and e2fsck finds nothing."""
    for options in ("journal_lazy", ""):
        stress.assert_no_complaint(boot(bench, volume, options, check, drive=ran.saved_drive))
    bench.assert_clean(ran.saved_drive, recover=True)


OPTIONS = ["journal_lazy", "", "journal_lazy,data=writeback"]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("volume", [INLINE, pytest.param(SMALL_BLOCKS, marks=pytest.mark.long)], ids=["4k", "1k"])
@pytest.mark.parametrize("cut", [False, True], ids=["unmount", "cut"])
def test_what_a_file_holds_after_its_conversion_stays(bench: Bench, options: str, volume: Volume, cut: bool) -> None:
    steps = [work("write"), job.drop_caches(), work("convert"), work("overwrite"), work("b")]
    ran = boot(bench, volume, options, *steps, *([job.save()] if cut else []))
    stress.assert_no_complaint(ran)
    assert_there(bench, volume, ran, work("b"))


@pytest.mark.long
@pytest.mark.sanitize
@pytest.mark.parametrize("options", ["journal_lazy", ""])
def test_conversions_below_the_sanitizers(sanitizing_bench: Bench, options: str) -> None:
    test_what_a_file_holds_after_its_conversion_stays(sanitizing_bench, options, SMALL_BLOCKS, cut=True)


@pytest.mark.parametrize("options", OPTIONS)
def test_what_was_in_the_inode_is_in_the_block(bench: Bench, options: str) -> None:
    """Synced contents survive the conversion: read from the disk at once, and after a power cut."""
    # No sync with it, which would bring home what the log has.
    drop = job.write("/proc/sys/vm/drop_caches", "3")
    uncached = [work("write"), job.drop_caches(), work("convert"), job.save(), drop, work("a")]
    ran = boot(bench, INLINE, options, *uncached)
    stress.assert_no_complaint(ran)
    assert_there(bench, INLINE, ran, work("a"))


@pytest.mark.parametrize("options", ["journal_lazy", ""])
def test_a_file_may_be_truncated_by_its_path(bench: Bench, options: str) -> None:
    """The first thing that is done with it after the mount, so that it is not known to the journal yet."""
    ran = boot(bench, INLINE, options, work("write", BY_PATH))
    steps = [work("convert", BY_PATH), work("overwrite", BY_PATH), job.save()]
    ran = boot(bench, INLINE, options, *steps, drive=ran.saved_drive)
    stress.assert_no_complaint(ran)
    assert_there(bench, INLINE, ran, work("b", BY_PATH))


@pytest.mark.parametrize("options", OPTIONS)
def test_fdatasync_waits_for_what_was_overwritten_in_the_inode(bench: Bench, options: str) -> None:
    inside(bench, options)


def inside(bench: Bench, options: str = "journal_lazy") -> None:
    ran = boot(bench, INLINE, options, work("write"), work("inside"), job.save())
    stress.assert_no_complaint(ran)
    assert_there(bench, INLINE, ran, work("b"))


GROWN = ("grown",)
GROWN_OPTIONS = [*OPTIONS, "journal_lazy,data_relocate"]


@pytest.mark.parametrize("options", GROWN_OPTIONS)
def test_synced_contents_survive_that_a_file_grows(bench: Bench, options: str) -> None:
    """A power cut behind a commit that comes amid the writeback of what was appended."""
    ran = boot(bench, INLINE, options, work("write", GROWN), work("append", GROWN), job.save())
    stress.assert_no_complaint(ran)
    assert_there(bench, INLINE, ran, work("a", GROWN))


@pytest.mark.parametrize("options", GROWN_OPTIONS)
def test_a_commit_takes_no_data_out_of_an_inode(bench: Bench, options: str) -> None:
    """It would have to start a handle, for which it might have to wait for itself."""
    ran = boot(bench, INLINE, options, work("write", GROWN), work("beyond", GROWN), job.save())
    stress.assert_no_complaint(ran)
    assert_there(bench, INLINE, ran, work("a", GROWN))


# The power is cut behind every third write.
STRIDE = 3


@pytest.mark.long
@pytest.mark.parametrize("options", GROWN_OPTIONS)
def test_synced_contents_survive_a_cut_at_any_write_while_files_grow(bench: Bench, options: str) -> None:
    made = boot(bench, INLINE, options, work("write", GROWN)).saved_drive
    steps = INLINE.mounted(work("append", GROWN), options=options)
    cut, cuts = 1, 0
    while True:
        ran = bench.boot(steps, drive=made, files=(WORK,), save=True, cut=cut)
        if not ran.outcome.power_cut:
            break
        boot(bench, INLINE, options, work("a", GROWN), drive=ran.saved_drive)
        cut, cuts = cut + STRIDE, cuts + 1
    assert cuts > 10, cuts


SEED = 7


@pytest.mark.parametrize("options", ["journal_lazy", pytest.param("", marks=pytest.mark.long)])
@pytest.mark.parametrize("volume", [INLINE, pytest.param(SMALL_BLOCKS, marks=pytest.mark.long)], ids=["4k", "1k"])
def test_files_that_grow_and_shrink_at_random(bench: Bench, options: str, volume: Volume) -> None:
    """Against a model, below dropped caches; after the unmount, and after a power cut behind a sync."""
    words = (str(SEED), f"{job.OUT}/model")
    for last in ([], [job.save()]):
        ran = boot(bench, volume, options, work("random", words), *last)
        stress.assert_no_complaint(ran)
        model = ran.text("model")
        for again in ("journal_lazy", ""):
            steps = [job.write("/run/model", model), *volume.mounted(work("model", ("/run/model",)), options=again)]
            stress.assert_no_complaint(bench.boot(steps, drive=ran.saved_drive, files=(WORK,)))
        bench.assert_clean(ran.saved_drive, recover=True)


DROPS = ("by_punch", "by_zero", "by_collapse", "by_shrinking", "by_removal")


@pytest.mark.parametrize("kind", DROPS)
@pytest.mark.parametrize("options", ["", "data=writeback"], ids=["ordered", "writeback"])
def test_a_page_that_a_commit_has_to_write_is_not_dropped(bench: Bench, kind: str, options: str) -> None:
    dropped(bench, kind, options)


def dropped(bench: Bench, kind: str = DROPS[0], options: str = "") -> None:
    """The power goes when the conversion is committed, and the change that drops the page is not."""
    volume = replace(INLINE, size="256M", mkfs=(*INLINE.mkfs, "-b", "4096"))
    ran = boot(bench, volume, options, work("write", (kind,)), work("drop", (kind,)), job.save())
    stress.assert_no_complaint(ran)
    assert_there(bench, volume, ran, work("whole", (kind,)))


def shrunk(bench: Bench) -> None:
    dropped(bench, "by_shrinking", "data=writeback")


def removed(bench: Bench) -> None:
    dropped(bench, "by_removal", "data=writeback")


GROWS = {
    "allocate": "os.posix_fallocate(file.fileno(), 0, 5000)",
    "append": "os.pwrite(file.fileno(), bytes(4900), 100)",
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("how", GROWS)
def test_contents_survive_a_conversion_for_which_there_is_no_room(bench: Bench, options: str, how: str) -> None:
    no_room(bench, options, how)


def no_room(bench: Bench, options: str = "journal_lazy", how: str = "append") -> None:
    """A file that finds no block stays in its inode, and nobody changes that inode afterwards (not even atime)."""
    options = ",".join(filter(None, [options, "noatime"]))
    volume = replace(INLINE, size="64M")
    full = (
        "import os\n"
        "fd = os.open('/mnt/full', os.O_RDWR | os.O_CREAT)\n"
        "for size in (1 << 20, 4096):\n"
        "    try:\n"
        "        while True: os.posix_fallocate(fd, os.fstat(fd).st_size, size)\n"
        "    except OSError as error: assert error.errno == 28, error\n"
        "for number in range(10):\n"
        "    path = f'/mnt/by_fallocate/{number}'\n"
        "    with open(path, 'r+b') as file:\n"
        f"        try: {GROWS[how]}\n"
        "        except OSError as error: assert error.errno == 28, error\n"
        "        else: raise SystemExit('there was room')\n"
        "    assert os.stat(path).st_blocks == 1\n"
        "os.utime('/mnt')\n"
        "os.fsync(os.open('/mnt', os.O_RDONLY))\n"
    )
    fill = job.run(["/usr/bin/python3", "-I", "-c", full])
    steps = [work("write"), fill, job.save(), job.drop_caches(), work("a")]
    ran = boot(bench, volume, options, *steps)
    stress.assert_no_complaint(ran)
    assert_there(bench, volume, ran, work("a"))

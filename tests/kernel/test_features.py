# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every feature of ext4 under journal_lazy: work that uses it, a lazy remount, a power cut, recovery by all three.

A listing has paths, owners, times, attributes, hashes of contents and quota. The same listing must come

* from the caches and from the next lazy mount, after an unmount;
* from the mount that ran, and after a power cut from a lazy mount and from a stock one;
* from the lazy mount that did more work after that, and from a stock mount behind it;

and stock `e2fsck -fn` must find nothing wrong with any of what was left, once the log is replayed on a copy.
docs/reference/lazy-features.md has the table of features; `test_the_table_of_features_names_what_there_is` holds it
to the code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness import Bench, Booted
from kernel import stress
from kernel.test_kept_log import kept
from shingle.machine import job
from shingle.machine.console import Trouble
from shingle.paths import ROOT
from shingle.verify import e2fsck

pytestmark = pytest.mark.machine

LAZY = "journal_lazy"
CAPACITY_BYTES = 2 << 30
PROGRAM = Path(__file__).with_name("feature_work.py")
PYTHON = ("/usr/bin/python3", "-I", f"{job.OUT}/{PROGRAM.name}")


def work(verb: str, turn: int) -> job.Step:
    return job.run([*PYTHON, verb, str(turn)])


def listed(name: str) -> list[job.Step]:
    """What is there, read from the disk or the log, not from memory."""
    return [job.sync(), job.drop_caches(), job.run([*PYTHON, "list", f"{job.OUT}/{name}"])]


def listing(booted: Booted, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(booted.text(name))
    return found


def assert_same(one: dict[str, object], other: dict[str, object], what: str) -> None:
    for part in one:
        a, b = one[part], other[part]
        assert isinstance(a, dict) and isinstance(b, dict)
        wrong = {key: (a.get(key), b.get(key)) for key in {*a, *b} if a.get(key) != b.get(key)}
        shown = "\n".join(f"{key}: {before}\n  | {after}" for key, (before, after) in sorted(wrong.items())[:5])
        assert not wrong, f"{what}: {len(wrong)} of {part} differ\n{shown}"


@dataclass(frozen=True)
class Volume:
    """How a volume is made and mounted, and what is done on it."""

    features: str = ""
    mkfs: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    work: tuple[str, ...] = ("files",)
    options: str = ""
    device: str = job.DEVICE
    # Before it is made or mounted, in each boot.
    before: tuple[job.Step, ...] = ()
    before_made: tuple[job.Step, ...] = ()
    profile: str = "st8000as0002"
    # mke2fs's own size, where the drive is larger.
    size: str = "1G"

    def empty(self, bench: Bench) -> Path:
        return bench.empty(profile=self.profile, capacity_bytes=CAPACITY_BYTES)

    def made(self) -> list[job.Step]:
        # No zeroing in the background, whose moment would be anybody's.
        extended = ",".join(("lazy_itable_init=0", "lazy_journal_init=0", "nodiscard", *self.extended))
        features = ("-O", self.features) if self.features else ()
        journal = () if "-J" in self.mkfs else ("-J", "size=16")
        mkfs = ["/sbin/mke2fs", "-q", "-F", "-t", "ext4", *journal, *self.mkfs, *features, "-E", extended]
        return [*self.before, *self.before_made, job.run([*mkfs, self.device, self.size])]

    def mounted(self, *steps: job.Step, options: str = LAZY) -> list[job.Step]:
        mount = job.mount("ext4", ",".join(filter(None, [options, self.options]))) | {"device": self.device}
        return [mount, *steps, job.umount()]

    def boot(
        self, bench: Bench, steps: Sequence[job.Step], drive: Path, *, complains: bool = False, **more: object
    ) -> Booted:
        """The same with what the program has to know."""
        known = job.write("/run/features", self.features.replace(",", " "))
        booted = bench.boot([known, *steps], drive=drive, files=(PROGRAM,), save=True, **more)
        if not complains:
            stress.assert_no_complaint(booted)
        return booted


def assert_survives(bench: Bench, volume: Volume, *, image: bool = True) -> None:
    """See above. `image`: the drive as a whole is the file system, so that e2fsck can look at it."""
    do = volume.work
    ran = volume.boot(
        bench,
        [
            *volume.made(),
            *volume.mounted(*(work(verb, 1) for verb in do), *listed("1-written")),
            *volume.mounted(
                *listed("1-read"), *(work(verb, 2) for verb in do), *listed("2-written"), job.save(), job.sync()
            ),
        ],
        volume.empty(bench),
    )
    assert len(kept(ran)) == 1 and kept(ran)[0] > 0, ran.outcome.console
    again = volume.boot(
        bench,
        [
            *volume.before,
            *volume.mounted(*listed("2-lazy"), *(work(verb, 3) for verb in do), *listed("3-written")),
            *volume.mounted(*listed("3-stock"), options=""),
        ],
        ran.saved_drive,
    )
    assert len(kept(again)) == 1 and kept(again)[0] > 0, again.outcome.console
    stock = volume.boot(bench, [*volume.before, *volume.mounted(*listed("2-stock"), options="")], ran.saved_drive)
    written = {turn: listing(booted, f"{turn}-written") for turn, booted in ((1, ran), (2, ran), (3, again))}
    assert all(len(each["paths"]) > 20 for each in written.values())  # type: ignore[arg-type]
    assert_same(written[1], listing(ran, "1-read"), "the second lazy mount")
    assert_same(written[2], listing(again, "2-lazy"), "the lazy mount after the power cut")
    assert_same(written[2], listing(stock, "2-stock"), "the stock mount after the power cut")
    assert_same(written[3], listing(again, "3-stock"), "the stock mount after the lazy ones")
    if image:
        bench.assert_clean(ran.saved_drive, recover=True)
        bench.assert_clean(again.saved_drive)
        bench.assert_clean(stock.saved_drive)
        return
    # The machine has both devices; what e2fsck is not content with fails the step.
    check = job.run([*e2fsck.CHECK, volume.device])
    replay = job.run([*e2fsck.REPLAY, volume.device], may_fail=True)
    for booted, steps in ((ran, [replay, check]), (again, [check]), (stock, [check])):
        volume.boot(bench, [*volume.before, *steps], booted.saved_drive)


# A drive that knows discard.
TRIMS = "wd40efax"
QUOTA = "quotatype=usrquota:grpquota:prjquota"
UTF8 = "encoding=utf8"

# What is seldom used alone, all in one: a few seconds each.
TOGETHER = {
    "new": Volume(
        "quota,project,casefold,encrypt,verity,ea_inode,inline_data,large_dir,orphan_file,metadata_csum_seed",
        ("-I", "512"), (QUOTA, UTF8),
        ("files", "tiny", "eainode", "quota", "casefold", "encrypt", "verity"), options="prjquota",
    ),
    "old": Volume(
        "^extent,^64bit,^flex_bg,^huge_file,^dir_nlink,^extra_isize", ("-b", "1024", "-I", "128"),
        work=("files", "xattr", "htree"), options="data=writeback",
    ),
    "clusters": Volume("bigalloc", ("-C", "16384"), work=("files", "ranges", "xattr")),
}  # fmt: skip


# One by one; what `TOGETHER` has is not repeated for its own sake, but where it fails this says which it is.
ALONE = {
    "data=ordered": Volume(work=("files", "ranges"), options="data=ordered"),
    "data=writeback": Volume(work=("files", "ranges"), options="data=writeback"),
    "dioread_lock": Volume(work=("files", "ranges"), options="dioread_lock"),
    "commit=1": Volume(work=("files", "xattr"), options="commit=1,stripe=16,data_err=abort,lazytime"),
    "indirect blocks": Volume("^extent,^64bit", work=("files", "ranges")),
    "exchange of blocks": Volume(work=("defrag", "files")),
    "htree": Volume(work=("htree",)),
    "htree of small blocks": Volume("large_dir", ("-b", "1024"), work=("htree",)),
    "1 KiB blocks": Volume(mkfs=("-b", "1024"), work=("files", "xattr", "ranges")),
    "2 KiB blocks": Volume(mkfs=("-b", "2048"), work=("files", "xattr", "ranges")),
    "4 KiB blocks": Volume(mkfs=("-b", "4096"), work=("files", "xattr", "ranges")),
    "no 64bit": Volume("^64bit"),
    "no flex_bg": Volume("^flex_bg"),
    "meta_bg": Volume("meta_bg,^resize_inode"),
    "sparse_super2": Volume("sparse_super2"),
    "small inodes": Volume("^extra_isize,^huge_file,^dir_nlink", ("-I", "128"), work=("files", "xattr")),
    "bigalloc": Volume("bigalloc", ("-C", "65536"), work=("files", "ranges", "xattr")),
    "inline data": Volume("inline_data", ("-I", "512"), work=("tiny", "files")),
    "ea_inode": Volume("ea_inode", work=("eainode",)),
    "quota": Volume("quota", work=("quota",)),
    "project quota": Volume("quota,project", extended=(QUOTA,), work=("quota",), options="prjquota"),
    "encryption": Volume("encrypt", work=("encrypt",)),
    "encryption, inline data": Volume("encrypt,inline_data", ("-I", "512"), work=("encrypt", "tiny")),
    "verity": Volume("verity", work=("verity",)),
    "verity, 1 KiB blocks": Volume("verity", ("-b", "1024"), work=("verity",)),
    "casefold": Volume("casefold", extended=(UTF8,), work=("casefold",)),
    "encryption and casefold": Volume("casefold,encrypt", extended=(UTF8,), work=("casefold", "encrypt")),
    "orphan file": Volume("orphan_file", work=("files", "tiny")),
    "mmp": Volume("mmp"),
    "metadata_csum_seed": Volume("metadata_csum_seed"),
    "discard": Volume(options="discard", profile=TRIMS, work=("files", "xattr")),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("volume", list(ALONE))
def test_a_feature_alone(bench: Bench, volume: str) -> None:
    assert_survives(bench, ALONE[volume])


@pytest.mark.parametrize("volume", ["new", "old", pytest.param("clusters", marks=pytest.mark.long)])
def test_features_together(bench: Bench, volume: str) -> None:
    assert_survives(bench, TOGETHER[volume])


# --- What is not a kind of volume ---------------------------------------------

PLAIN = Volume()
FILES = Volume("orphan_file,metadata_csum_seed")


def python(text: str, **more: object) -> job.Step:
    return job.run(["/usr/bin/python3", "-I", "-c", f"import fcntl, os, struct\n{text}"], **more)  # type: ignore[arg-type]


def ioctl(request: int, argument: str = "0") -> job.Step:
    """On the mount point; `argument` is what Python shall pass."""
    return python(f"fcntl.ioctl(os.open('/mnt', os.O_RDONLY), {request:#x}, {argument})")


def remount(options: str) -> job.Step:
    return job.run(["/bin/mount", "-o", f"remount,{options}", "/mnt"])


def looked_at_again(bench: Bench, volume: Volume, drive: Path, *, clean: bool = True) -> tuple[dict[str, object], ...]:
    """What the next lazy mount finds on a drive, and what a stock one does; stock e2fsck has nothing to say."""
    lazy = volume.boot(bench, [*volume.before, *volume.mounted(*listed("tree"))], drive)
    stock = volume.boot(bench, [*volume.before, *volume.mounted(*listed("tree"), options="")], drive)
    if clean:
        bench.assert_clean(drive, recover=True)
        bench.assert_clean(lazy.saved_drive, recover=True)
        bench.assert_clean(stock.saved_drive)
    return listing(lazy, "tree"), listing(stock, "tree")


def assert_found_again(bench: Bench, volume: Volume, ran: Booted, *, clean: bool = True) -> None:
    lazy, stock = looked_at_again(bench, volume, ran.saved_drive, clean=clean)
    written = listing(ran, "written")
    assert_same(written, lazy, "the next lazy mount")
    assert_same(written, stock, "the next stock mount")


def kept_log(volume: Volume) -> list[job.Step]:
    """A fresh volume with something in its log from an earlier mount."""
    return [*volume.made(), *volume.mounted(work("files", 1))]


# Data on the first GiB of the drive, the journal behind it; both are cut off at once.
LOOP = "losetup --direct-io=on -o {start} --sizelimit {size} /dev/loop{number} " + job.DEVICE
EXTERNAL = Volume(
    mkfs=("-J", "device=/dev/loop1"), work=("files", "xattr"), device="/dev/loop0",
    before=tuple(
        job.run(["/bin/sh", "-c", LOOP.format(number=number, start=start, size=size)])
        for number, start, size in ((0, 0, 1 << 30), (1, 1 << 30, 64 << 20))
    ),
)  # fmt: skip


JOURNAL = ("/sbin/mke2fs", "-q", "-F", "-O", "journal_dev", "-b", "4096")


def test_the_journal_may_be_on_another_device(bench: Bench) -> None:
    """An SMR disk for data with its log elsewhere."""
    journal = job.run([*JOURNAL, "/dev/loop1"])
    assert_survives(bench, replace(EXTERNAL, before_made=(journal,)), image=False)


@pytest.mark.parametrize("orphan_file", [pytest.param(False, marks=pytest.mark.long), True])
def test_files_that_were_open_in_a_power_cut_are_gone(bench: Bench, orphan_file: bool) -> None:
    volume = FILES if orphan_file else PLAIN
    steps = [
        *kept_log(volume),
        # No unmount: the files are open until the end.
        *volume.mounted(
            job.background([work("orphans", 1)]), job.sleep(20), work("files", 2), *listed("written"), job.save()
        )[:-1],
    ]  # fmt: skip
    ran = volume.boot(bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES))
    paths = listing(ran, "written")["paths"]
    assert isinstance(paths, dict) and "/mnt/orphans/50" in paths
    written = listing(ran, "written")
    lazy, stock = looked_at_again(bench, volume, ran.saved_drive, clean=False)
    for tree in (lazy, stock):
        # The inodes of the open files were in use.
        whole, before = tree["file system"], written["file system"]
        assert isinstance(whole, dict) and isinstance(before, dict)
        assert whole.pop("inodes") == before["inodes"] - 50
    assert_same({"paths": written["paths"]}, lazy, "the lazy mount")
    assert_same(lazy, stock, "the stock mount")


# FIFREEZE, FITHAW
FREEZE, THAW = 0xC0045877, 0xC0045878


def test_a_file_system_frozen_amid_commits_is_whole(bench: Bench) -> None:
    """What an LVM snapshot takes: a copy of the disk while others wait for the thaw."""
    storm = (
        "d = os.open('/mnt/storm', 0); n = 0\n"
        "while True:\n"
        "    open(f'/mnt/storm/{n}', 'wb').write(bytes(5000)); n += 1\n"
        "    if n > 20: os.unlink(f'/mnt/storm/{n - 20}')\n"
        "    if n % 5 == 0: os.fsync(d)\n"
    )
    steps = [
        *kept_log(PLAIN),
        *PLAIN.mounted(
            work("files", 2), python("os.mkdir('/mnt/storm')"), job.sync(), job.background([python(storm)]),
            job.sleep(0.5), ioctl(FREEZE), job.run([*PYTHON, "list", f"{job.OUT}/written"]), job.save(), job.sleep(7),
            job.run([*PYTHON, "list", f"{job.OUT}/frozen"]), ioctl(THAW), job.sleep(0.1),
        )[:-1],
    ]  # fmt: skip
    ran = PLAIN.boot(bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES))
    assert_same(listing(ran, "written"), listing(ran, "frozen"), "seven seconds later")
    assert_found_again(bench, PLAIN, ran)


def test_read_only_and_back(bench: Bench) -> None:
    """By remount in both directions, and from a mount that began read-only; the power goes while it is read-only."""
    steps = [
        *kept_log(PLAIN),
        *PLAIN.mounted(work("files", 2), remount("ro"), *listed("one"), remount("rw"), work("files", 3), remount("ro")),
        *PLAIN.mounted(
            *listed("two"), remount("rw"), work("xattr", 1), *listed("three"), remount("ro"), *listed("written"),
            job.save(), options="ro,journal_lazy",
        ),
    ]  # fmt: skip
    ran = PLAIN.boot(bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES))
    assert len(kept(ran)) == 2, ran.outcome.console
    assert listing(ran, "one")["paths"] != listing(ran, "two")["paths"]
    assert_same(listing(ran, "three"), listing(ran, "written"), "after the remount")
    assert_found_again(bench, PLAIN, ran)


# EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_DEFAULT, _LOGFLUSH, _NOLOGFLUSH
SHUTDOWN = 0x8004587D


@pytest.mark.parametrize("flags", [0, pytest.param(1, marks=pytest.mark.long), 2])
def test_a_shutdown_is_a_crash_without_a_reboot(bench: Bench, flags: int) -> None:
    steps = [
        *kept_log(PLAIN),
        *PLAIN.mounted(
            work("files", 2), *listed("synced"), work("xattr", 1),
            ioctl(SHUTDOWN, f"struct.pack('I', {flags})"), python("os.access('/mnt/none', 0)"),
        ),
        *PLAIN.mounted(*listed("written"), job.save()),
    ]  # fmt: skip
    ran = PLAIN.boot(
        bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES), expected=(Trouble.FILE_SYSTEM_ERROR,), complains=True
    )
    assert len(kept(ran)) == 2, ran.outcome.console
    synced, written = (paths_of(listing(ran, name)) for name in ("synced", "written"))
    root = {"/mnt/xattr"}
    assert {path: synced[path] for path in synced} == {path: written.get(path) for path in synced}
    # The first two commit what is running; the third does not.
    assert (len(written.keys() - synced.keys() - root) == 60) == (flags != 2), sorted(written.keys() - synced.keys())
    assert_found_again(bench, PLAIN, ran)


def paths_of(tree: dict[str, object]) -> dict[str, object]:
    paths = tree["paths"]
    assert isinstance(paths, dict)
    return paths


@pytest.mark.parametrize("reaction", ["continue", pytest.param("remount-ro", marks=pytest.mark.long)])
def test_an_error_is_remembered(bench: Bench, reaction: str) -> None:
    volume = replace(PLAIN, options=f"errors={reaction}")
    count = "/sys/fs/ext4/shd0/errors_count"
    steps = [
        *kept_log(volume),
        *volume.mounted(
            work("files", 2), *listed("written"), job.write("/sys/fs/ext4/shd0/trigger_fs_error", "told to"),
            job.sleep(7),
        ),
        *volume.mounted(job.read(count)),
        *volume.mounted(job.read(count), job.save(), options=""),
    ]  # fmt: skip
    ran = volume.boot(
        bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES), expected=(Trouble.FILE_SYSTEM_ERROR,), complains=True
    )
    assert [str(step.extra["text"]).strip() for step in ran.outcome.steps if step.do == "read"] == ["1", "1"]
    again = volume.boot(bench, volume.mounted(*listed("tree"), options=""), ran.saved_drive, complains=True)
    assert_same(listing(ran, "written"), listing(again, "tree"), "the stock mount")


# FS_IOC_SETFSLABEL, EXT4_IOC_SETFSUUID (struct fsuuid: length, flags, 16 bytes)
SET_LABEL, SET_UUID = 0x41009432, 0x4008662C


def test_label_and_uuid_stay(bench: Bench) -> None:
    uuid = "0123456789abcdef0123456789abcdef"
    steps = [
        *kept_log(FILES),
        *FILES.mounted(
            work("files", 2), ioctl(SET_LABEL, "b'new label'.ljust(256, b'\\0')"),
            ioctl(SET_UUID, f"struct.pack('II', 16, 0) + bytes.fromhex('{uuid}')"), *listed("written"), job.save(),
        ),
        job.run(["/sbin/blkid", "-p", "-o", "export", job.DEVICE], stdout="unmounted"),
    ]  # fmt: skip
    ran = FILES.boot(bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES))
    whole = listing(ran, "written")["file system"]
    assert isinstance(whole, dict) and whole["label"] == "new label"
    assert "LABEL=new\\ label" in ran.text("unmounted") and "01234567-89ab-cdef" in ran.text("unmounted")
    assert_found_again(bench, FILES, ran)


# EXT4_IOC_CHECKPOINT; 0x2: with zeros in the log behind it
CHECKPOINT = 0x4004662B


@pytest.mark.parametrize("flags", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_checkpoint_makes_it_stock_again(bench: Bench, flags: int) -> None:
    volume = PLAIN
    steps = [
        *kept_log(volume),
        *volume.mounted(
            work("files", 2), *listed("written"), ioctl(CHECKPOINT, f"struct.pack('I', {flags})"),
            stress.statistic("live_blocks"), job.save(), work("xattr", 1), *listed("more"),
        ),
        *volume.mounted(*listed("kept")),
    ]  # fmt: skip
    ran = volume.boot(bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES))
    assert stress.statistics(ran)["live_blocks"] == 0
    # Nothing in the log is needed: not even a look at it.
    home = volume.boot(bench, volume.mounted(*listed("home"), options="ro,noload"), ran.saved_drive)
    assert_same(paths_only(listing(ran, "written")), listing(home, "home"), "what is at home")
    assert_same(listing(ran, "more"), listing(ran, "kept"), "the next lazy mount")
    assert_found_again(bench, volume, ran)


def erased_before_a_commit(bench: Bench) -> None:
    """The block that the first commit of a kept log writes ahead of all is erased with the log."""
    steps = [
        *kept_log(PLAIN),
        *PLAIN.mounted(ioctl(CHECKPOINT, "struct.pack('I', 2)"), work("files", 2), *listed("written")),
        *PLAIN.mounted(*listed("kept")),
    ]
    ran = PLAIN.boot(bench, steps, bench.empty(capacity_bytes=CAPACITY_BYTES))
    assert_same(listing(ran, "written"), listing(ran, "kept"), "the next lazy mount")


def test_a_kept_log_can_be_erased_before_anything_is_committed(bench: Bench) -> None:
    erased_before_a_commit(bench)


def paths_only(tree: dict[str, object]) -> dict[str, object]:
    return {"paths": tree["paths"]}


# FITRIM: struct fstrim_range
TRIM = 0xC0185879


def test_trimming_takes_only_what_is_free(bench: Bench) -> None:
    volume = replace(PLAIN, profile=TRIMS)
    trim = ioctl(TRIM, "struct.pack('QQQ', 0, 2**63, 0)")
    steps = [
        *kept_log(volume),
        *volume.mounted(work("files", 2), trim, work("files", 3), job.sync(), trim, *listed("written"), job.save()),
    ]
    ran = volume.boot(bench, steps, volume.empty(bench))
    assert_found_again(bench, volume, ran)


def test_the_table_of_features_names_what_there_is() -> None:
    """The section of docs/reference/lazy-features.md: rows in quotes, tests in backquotes."""
    text = (ROOT / "docs/reference/lazy-features.md").read_text().split("\n## Features\n")[1].split("\nNot tested")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r'"([^"]+)"', row.split("|")[3])}
    assert named <= set(ALONE), named - set(ALONE)
    assert set(ALONE) - named <= BY_AND_SO_ON, set(ALONE) - named - BY_AND_SO_ON
    tests = "".join(path.read_text() for path in PROGRAM.parent.glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", "".join(rows)):
        assert f"def {name}(" in tests, name


# What the table means by "and so on".
BY_AND_SO_ON = {"2 KiB blocks", "4 KiB blocks", "no flex_bg", "meta_bg", "sparse_super2", "metadata_csum_seed", "mmp",
                "data=writeback"}  # fmt: skip

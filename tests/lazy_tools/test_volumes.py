# SPDX-License-Identifier: MIT OR Apache-2.0
"""All kinds of volume that mke2fs makes and owners have: advised, converted, checked, drained; no file is changed.

Each kind is converted, or refused in one sentence with nothing changed. A log is then kept on it, checked, and
sent home. The files have owners, modes, attributes, holes, links and times; all of it is compared. Small volumes only:
large ones are for docs/design/crash-explorer.md and for tests/stock_kernel.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lazy_tools import volumes
from lazy_tools.volumes import digest, ext4lazy, loop, needs_loop, stock, tool
from shingle.paths import run_directory

# What is in each volume: paths, and what debugfs says of each but not where it is.
PLACES = re.compile(
    r"^(?:EXTENTS|BLOCKS|\(|TOTAL|Inode checksum|Fragment|File ACL|Size of inline).*\n|^ *\n", re.MULTILINE
)
LONG = "long-" * 20


@dataclass(frozen=True)
class Kind:
    name: str
    options: tuple[str, ...] = ("-t", "ext4")
    mib: int = 32
    # What happens to it before it is converted.
    happens: tuple[Callable[[Path], None], ...] = ()
    # The sentence by which it is refused.
    refused: str = ""
    # `convert` has something to do.
    old: bool = True
    files: bool = True
    journal_mib: int | None = None
    # debugfs adds a file without counting it in the quota, and a full volume has no room for one.
    grows: bool = True
    # Its log is kept, and it is ready: convert leaves it alone.
    log: bool = False
    marks: tuple[pytest.MarkDecorator, ...] = ()


def options(features: str, *more: str, kind: str = "ext4") -> tuple[str, ...]:
    return ("-t", kind, *(("-O", features) if features else ()), *more)


# --- What happens to a volume before it is converted --------------------------------


def debugfs(*commands: str) -> Callable[[Path], None]:
    return lambda path: volumes.change(path, commands)


def tune2fs(*arguments: str) -> Callable[[Path], None]:
    return lambda path: void(stock("tune2fs", *arguments, path))


def void(_: object) -> None:
    pass


def filled(path: Path) -> None:
    """Some blocks short of full."""
    volume = tool.read_volume(path)
    size = max(0, volume.number("Free blocks") - 40) * volume.block_size
    contents = path.with_suffix(".filling")
    contents.write_bytes(b"z" * size)
    volumes.change(path, [f"write {contents} filling"])
    contents.unlink()


def without_inodes(path: Path) -> None:
    contents = path.with_suffix(".empty")
    contents.write_bytes(b"")
    free = tool.read_volume(path).number("Free inodes")
    volumes.change(path, [f"write {contents} d/e{n}" for n in range(free)])


def crowded(path: Path) -> None:
    """A directory whose first block is full to its last byte."""
    contents = path.with_suffix(".one")
    contents.write_bytes(b"one")
    volumes.change(path, ["mkdir crowd", "cd crowd", *(f"write {contents} {n:02}{'n' * 246}" for n in range(31))])


def with_orphan(path: Path) -> None:
    """A file that was deleted while it was open."""
    volumes.change(path, ["write /etc/hostname gone", "sif gone links_count 0"])
    number = re.search(r"Inode: (\d+)", stock("debugfs", "-R", "stat gone", path))
    assert number is not None
    volumes.change(path, ["unlink gone", f"ssv last_orphan {number[1]}"])


def logged(path: Path) -> None:
    """As after a crash of stock ext4: a file is in the log alone."""
    contents = path.with_suffix(".logged")
    contents.write_text("in the log\n")
    log(path, f"write {contents} crashed")


def kept(path: Path) -> None:
    logged(path)
    volumes.sign(path, block_size=tool.read_volume(path).block_size)


def log(path: Path, command: str) -> None:
    """What this command of debugfs changes is in the log alone."""
    size, copy = tool.read_volume(path).block_size, path.with_suffix(".copy")
    stock("cp", "--sparse=always", path, copy)
    volumes.change(copy, [command])
    volumes.log(path, copy, tool.differing(path, copy, size), block_size=size)
    copy.unlink()


def sparse(path: Path) -> None:
    stock("fallocate", "--dig-holes", path)


def half_zeroed(path: Path) -> None:
    """Some of its inode tables are zeroed, as when a first mount was short."""
    said = stock("dumpe2fs", path)
    assert "INODE_UNINIT" in said or "BLOCK_UNINIT" in said


def creator(path: Path, number: int) -> None:
    volumes.change(path, [f"ssv creator_os {number}"])


NO_ROOM = "expected 4 MiB for the journal"
FOREIGN = "expected one of Linux"
OLD = "^metadata_csum"
KINDS = [
    # Types and blocks.
    Kind("ext2", options("", kind="ext2")),
    Kind("ext2 of revision 0", ("-t", "ext2", "-r", "0", "-O", "none")),
    Kind("ext3", options("", kind="ext3")),
    Kind("ext4", options(""), old=False),
    Kind("ext4 of Debian 8", options("^metadata_csum,^64bit")),
    *(Kind(f"blocks of {size}", options(OLD, "-b", str(size)), mib=64 if size > 4096 else 32)
      for size in (1024, 2048, 4096, 8192)),
    *(Kind(f"inodes of {size}", options(OLD, "-I", str(size))) for size in (128, 512, 1024)),
    Kind("a volume of 64 MiB in blocks of 4 KiB", options(OLD, "-b", "4096"), mib=64),
    # Features, each on or off.
    Kind("no journal", options(f"{OLD},^has_journal")),
    Kind("no journal, with checksums", options("^has_journal")),
    Kind("no extents", options(f"{OLD},^extents,^64bit")),
    Kind("no flex_bg", options(f"{OLD},^flex_bg")),
    Kind("no dir_index", options(f"{OLD},^dir_index")),
    Kind("no filetype", options(f"{OLD},^filetype")),
    Kind("no large_file, huge_file, dir_nlink, extra_isize",
         options(f"{OLD},^large_file,^huge_file,^dir_nlink,^extra_isize")),
    Kind("no ext_attr", options(f"{OLD},^ext_attr")),
    Kind("no sparse_super", options(f"{OLD},^sparse_super,^resize_inode")),
    Kind("sparse_super2", options(f"{OLD},sparse_super2,^resize_inode")),
    Kind("no resize_inode", options(f"{OLD},^resize_inode")),
    Kind("meta_bg", options(f"{OLD},meta_bg,^resize_inode")),
    Kind("uninit_bg", options(f"{OLD},uninit_bg", "-E", "lazy_itable_init=1")),
    Kind("no uninit_bg", options(f"{OLD},^uninit_bg")),
    Kind("64bit", options(f"{OLD},64bit")),
    Kind("bigalloc", options(f"{OLD},bigalloc", "-C", "16384", "-b", "4096"), mib=64),
    Kind("inline_data", options(f"{OLD},inline_data")),
    Kind("inline_data in inodes of 1024", options(f"{OLD},inline_data", "-I", "1024")),
    Kind("ea_inode", options(f"{OLD},ea_inode")),
    Kind("large_dir", options(f"{OLD},large_dir")),
    Kind("encrypt", options(f"{OLD},encrypt")),
    Kind("verity", options(f"{OLD},verity")),
    Kind("casefold", options(f"{OLD},casefold", "-E", "encoding=utf8"),
         happens=(debugfs("mkdir folded", "sif folded flags 0x40000000"),)),
    Kind("stable_inodes", options(f"{OLD},stable_inodes")),
    Kind("quota", options(f"{OLD},quota"), grows=False),
    Kind("quota of projects", options(f"{OLD},quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"),
         grows=False),
    # Each program waits for whoever might have it mounted.
    Kind("mmp", options(f"{OLD},mmp", "-E", "mmp_update_interval=1"), marks=(pytest.mark.long,)),
    Kind("fast_commit", options(f"{OLD},fast_commit")),
    Kind("orphan_file", options("orphan_file"), old=False),
    Kind("orphan_file without checksums", options(f"{OLD},orphan_file")),
    Kind("metadata_csum_seed", options("metadata_csum_seed"), old=False),
    Kind("all that go together", options("inline_data,ea_inode,large_dir,encrypt,verity,quota,project,stable_inodes"),
         old=False, grows=False),
    # Geometry.
    Kind("flex_bg of 64 groups", options(OLD, "-G", "64", "-g", "1024", "-b", "1024")),
    Kind("groups of 256 blocks", options(OLD, "-g", "256", "-b", "1024")),
    Kind("stride and stripe", options(OLD, "-E", "stride=16,stripe_width=64")),
    Kind("packed_meta_blocks", options(OLD, "-E", "packed_meta_blocks=1")),
    Kind("half reserved", options(OLD, "-m", "50")),
    Kind("few inodes, all used", options(OLD, "-N", "160"), happens=(without_inodes,), grows=False),
    Kind("room to grow", options(OLD, "-E", "resize=1000000", "-b", "1024")),
    Kind("tea hashes", options(OLD), happens=(tune2fs("-E", "hash_alg=tea"),)),
    # The journal.
    Kind("the smallest journal", options(OLD, "-b", "1024", "-J", "size=1")),
    Kind("a journal that is large enough", options(OLD, "-J", "size=8"), mib=64),
    Kind("a journal at the end", options(OLD, "-J", "size=4,location=24m")),
    Kind("a kept log", options("", "-J", "size=4"), happens=(kept,), old=False, log=True),
    Kind("a kept log, and the journal is small", options("", "-J", "size=4"), happens=(kept,),
         journal_mib=8),
    Kind("a log of stock ext4", options("", "-J", "size=4"), happens=(logged,), old=False),
    Kind("a log of stock ext4 without checksums", options(OLD, "-J", "size=4"), happens=(logged,)),
    # What is recorded in the superblock.
    *(Kind(f"errors={value}", options(OLD), happens=(tune2fs("-e", value),))
      for value in ("continue", "remount-ro", "panic")),
    Kind("data=journal by default", options("", "-J", "size=4"), happens=(tune2fs("-o", "journal_data"),)),
    Kind("data=writeback by default", options(OLD), happens=(tune2fs("-o", "journal_data_writeback"),)),
    Kind("mount options in the superblock", options(OLD), happens=(tune2fs("-E", "mount_opts=noauto_da_alloc"),)),
    Kind("a check is due", options(OLD), happens=(tune2fs("-c", "3", "-C", "9", "-i", "1d"),)),
    Kind("an error is recorded", options(""), happens=(debugfs("ssv state 2"),)),
    Kind("not clean", options(OLD), happens=(debugfs("ssv state 0"),)),
    Kind("an orphan", options(OLD), happens=(with_orphan,)),
    Kind("a check that found nothing was cut off", options(""), happens=(tune2fs("-C", "15000"),)),
    *(Kind(f"the label {label!r}", options(OLD, "-L", label))
      for label in ("", "two words", "a: b", "Filesystem state", "ä€", "'\"$(id)`;", "\x1b[2J", "-L")),
    Kind("mounted on a place with a colon", options(OLD, "-M", "/a: b/Block count: 7")),
    # How full it is, and what is in it.
    Kind("nothing in it", options(OLD), files=False),
    Kind("almost full", options(f"{OLD},^has_journal"), happens=(filled,), refused=NO_ROOM),
    Kind("almost full, with a journal", options(OLD, "-J", "size=4"), happens=(filled,)),
    Kind("almost full, and the journal is small", options(OLD, "-J", "size=1", "-b", "1024"), happens=(filled,),
         refused=NO_ROOM),
    Kind("directories full to the last byte", options("^64bit", "-b", "4096", kind="ext3"), happens=(crowded,), mib=64),
    Kind("tables that are not zeroed yet", options(f"{OLD},uninit_bg", "-E", "lazy_itable_init=1,lazy_journal_init=1"),
         happens=(half_zeroed,)),
    Kind("an image with holes", options(OLD), happens=(sparse,)),
    Kind("4 MiB", options(OLD, "-b", "1024"), mib=4, files=False),
    Kind("too small for a journal", options(OLD + ",^has_journal", "-b", "1024"), mib=4, files=False,
         refused="cannot have a journal of 0 MiB: expected 1 to 10000 MiB"),
    # Not ours.
    *(Kind(f"of system {system}", options("", "-o", system, kind="ext2"), refused=FOREIGN)
      for system in ("hurd", "freebsd", "lites")),
    Kind("read-only for good", options(OLD), happens=(tune2fs("-O", "read-only"),), refused="Linux never writes to it"),
    Kind("shared blocks", options(OLD), happens=(debugfs("feature shared_blocks"),),
         refused="Linux never writes to it"),
    Kind("a feature of the future", options(OLD), happens=(debugfs("feature FEATURE_I29"),),
         refused="finds no ext4 there"),
]  # fmt: skip


# --- What is in it -------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shingle-test-", dir=run_directory()) as name:
        root = Path(name)
        fill_tree(root)
        yield root


def fill_tree(root: Path) -> None:
    (root / "d/deeper").mkdir(parents=True)
    (root / LONG).mkdir()
    contents = {"empty": b"", "byte": b"x", "inline": b"i" * 100, "block": b"b" * 4096, "large": os.urandom(200_000)}
    for number, (name, data) in enumerate(contents.items()):
        path = root / "d" / name
        path.write_bytes(data)
        os.chown(path, 1000 + number, 70_000 + number)
        path.chmod((0o600, 0o4755, 0o2644, 0o1777, 0o000)[number])
        os.setxattr(path, "user.name", name.encode())
    with (root / "d/hole").open("wb") as file:
        file.write(b"begin")
        file.seek(300_000)
        file.write(b"end")
    os.setxattr(root / "d/large", "user.second", b"v" * 600)
    os.setxattr(root / "d", "user.of-directory", b"yes")
    os.link(root / "d/byte", root / "d/deeper/link")
    (root / "short").symlink_to("d/byte")
    (root / "d/long").symlink_to("d/" + "x" * 200)
    os.mkfifo(root / "d/fifo")
    os.mknod(root / "d/device", 0o600 | 0o020000, os.makedev(1, 3))
    for number in range(120):
        (root / LONG / f"{number:03}{'-' * 60}").write_text(str(number))
    for path in [*root.rglob("*"), root]:
        os.utime(path, (1e9 + len(path.name), 1.1e9 + len(path.name)), follow_symlinks=False)


def paths_of(tree: Path) -> list[str]:
    return ["/", *(f"/{path.relative_to(tree)}" for path in sorted(tree.rglob("*")))]


def look(path: Path, names: list[str], folder: Path) -> dict[str, tuple[str, str]]:
    """Of each name: what its inode says, and the hash of its data; debugfs replays no log."""
    folder.mkdir()
    script = folder / "script"
    lines = [line for n, name in enumerate(names) for line in (f"stat {name}", f"dump {name} {folder}/{n}")]
    script.write_text("\n".join(lines) + "\n")
    said = stock("debugfs", "-f", script, path)
    found = {}
    texts = re.split(r"^debugfs: stat .*\n", said, flags=re.MULTILINE)[1:]
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        text = re.sub(r"^debugfs: dump .*\n(?:dump: .*\n)?", "", text, flags=re.MULTILINE)
        assert "not found" not in text, text
        if "Type: directory" in text:
            # e2fsck packs directories anew.
            text = re.sub(r"Size: \d+|Blockcount: \d+|Flags: 0x\w+", "", text)
        out = folder / str(number)
        found[name] = PLACES.sub("", text), digest(out) if "Type: regular" in text and out.exists() else ""
    return found


def made(kind: Kind, path: Path, tree: Path) -> None:
    with path.open("wb") as file:
        file.truncate(kind.mib << 20)
    stock("mke2fs", "-q", "-F", *(("-d", str(tree)) if kind.files else ()), *kind.options, path)


# --- The matrix -----------------------------------------------------------------------


def one_sentence(said: str, begins: str = "ext4lazy: ") -> None:
    assert said.startswith(begins), said
    assert len(said.splitlines()) == 1, said
    assert said.endswith(".\n"), said


def refuses(kind: Kind, path: Path, size: tuple[str | Path, ...]) -> None:
    before = digest(path)
    for command in (("advise", *size), ("convert", *size), ("convert", "-n", *size)):
        said = ext4lazy(*command, path)
        assert said.returncode == tool.FAILED, said.stdout
        one_sentence(said.stderr)
        assert kind.refused in said.stderr
        assert digest(path) == before


def converts(kind: Kind, path: Path, size: tuple[str | Path, ...]) -> None:
    before = digest(path)
    said = ext4lazy("advise", *size, path)
    assert said.returncode == 0, said.stderr
    assert ("Nothing is to be converted" in said.stdout) is not kind.old, said.stdout
    assert "\x1b" not in said.stdout
    said = ext4lazy("convert", "--dry-run", *size, path)
    assert said.returncode == 0, said.stderr
    assert digest(path) == before
    said = ext4lazy("convert", *size, path)
    assert said.returncode == 0, said.stdout + said.stderr
    if kind.old:
        loop = "" if path.is_block_device() else "-o loop "
        assert said.stdout.endswith(f"{path} is ready: mount {loop}-t ext4lazy {path} DIRECTORY\n"), said.stdout
    assert ext4lazy("convert", *size, path).stdout.endswith(f"{path}: nothing to convert.\n")
    ready = tool.read_volume(path)
    assert {"metadata_csum", "has_journal"} <= ready.features
    assert "fast_commit" not in ready.features


def drains(kind: Kind, path: Path, folder: Path) -> None:
    """A log is kept on it, and then it is not."""
    said = ext4lazy("drain", path)
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("is plain ext4.\n" if kind.log else "there is nothing to drain.\n"), said.stdout
    contents = path.with_suffix(".drained")
    contents.write_text("in the log\n")
    # 11 is lost+found.
    log(path, f"write {contents} drained" if kind.grows else "sif <11> atime 20300101")
    volumes.sign(path, block_size=tool.read_volume(path).block_size)
    assert ext4lazy("status", "--short", path).stdout == "kept\n"
    assert ext4lazy("due", path).stdout == "kept\n"
    assert "kept by journal_lazy" in ext4lazy("status", "--scan", path).stdout
    before = digest(path)
    said = ext4lazy("check", "--scratch", folder / "scratch", path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert digest(path) == before
    said = ext4lazy("drain", path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.endswith("is plain ext4.\n"), said.stdout
    stock("e2fsck", "-fn", path)
    read, found = ("cat /drained", "in the log") if kind.grows else ("stat <11>", " 2030\n")
    assert found in stock("debugfs", "-R", read, path)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name, marks=kind.marks) for kind in KINDS])
def test_a_kind_of_volume(kind: Kind, folder: Path, tree: Path) -> None:
    path = folder / "a.img"
    made(kind, path, tree)
    names = paths_of(tree) if kind.files else ["/"]
    for happens in kind.happens:
        happens(path)
    files = look(path, names, folder / "before")
    size = ("--journal-mib", str(kind.journal_mib)) if kind.journal_mib else ()
    if kind.refused:
        refuses(kind, path, size)
        assert look(path, names, folder / "after") == files
        return
    converts(kind, path, size)
    stock("e2fsck", "-fn", path)
    assert look(path, names, folder / "after") == files
    drains(kind, path, folder)
    assert look(path, names, folder / "drained") == files


@needs_loop
def test_a_partition_in_an_image(folder: Path, tree: Path) -> None:
    """The volume does not begin where the image does."""
    volume, disk = folder / "volume.img", folder / "disk.img"
    kind = Kind("partition", options(OLD))
    made(kind, volume, tree)
    names = paths_of(tree)
    files = look(volume, names, folder / "before")
    around = os.urandom(1 << 20)
    disk.write_bytes(around + volume.read_bytes() + around)
    argv = ("losetup", "--find", "--show", "--offset", "1MiB", "--sizelimit", f"{kind.mib}MiB", disk)
    device = Path(stock(*argv).strip())
    try:
        assert ext4lazy("advise", device).returncode == 0
        said = ext4lazy("convert", device)
        assert said.returncode == 0, said.stdout + said.stderr
        stock("e2fsck", "-fn", device)
        assert look(device, names, folder / "after") == files
        assert ext4lazy("drain", device).returncode == 0
    finally:
        stock("losetup", "--detach", device)
    data = disk.read_bytes()
    assert (data[: 1 << 20], data[-1 << 20 :]) == (around, around)


@needs_loop
def test_a_journal_on_another_device(folder: Path, tree: Path) -> None:
    journal, image = folder / "journal.img", folder / "a.img"
    with journal.open("wb") as file:
        file.truncate(16 << 20)
    stock("mke2fs", "-q", "-b", "4096", "-O", "journal_dev", journal)
    with loop(journal) as device:
        made(Kind("external", options(OLD, "-b", "4096", "-J", f"device={device}")), image, tree)
        names = paths_of(tree)
        files = look(image, names, folder / "before")
        with loop(image) as volume:
            assert "on a device of its own" in ext4lazy("advise", volume).stdout
            said = ext4lazy("convert", volume)
            assert said.returncode == 0, said.stdout + said.stderr
            assert {"metadata_csum", "has_journal"} <= tool.read_volume(volume).features
            assert ext4lazy("status", "--short", volume).stdout == "empty\n"
            said = ext4lazy("drain", volume)
            assert said.stdout.endswith("there is nothing to drain.\n"), said.stderr
            stock("e2fsck", "-fn", volume)
        assert look(image, names, folder / "after") == files

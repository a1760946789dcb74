# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wrong uses of all tools: one clear sentence, a status other than 0, and nothing is changed or left behind."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lazy_tools import volumes
from lazy_tools.volumes import PATH, digest, kept, loop, make, stock, tool

LIMIT_S = 60
VERBS = ("advise", "convert", "status", "drain", "check", "due")
MIB = 1 << 20


@dataclass(frozen=True)
class Wrong:
    """The command line, in a folder that `world` fills; the sentence that comes last, as an expression; the status."""

    line: str
    says: str
    status: int = 8
    # The sentence of a stock program that is run last, which may say more than one.
    stock: bool = False


def usage(line: str, says: str) -> Wrong:
    return Wrong(line, says, 2)


EXPECTED = "expected a device, an image file or a mount point"
NO_EXT4 = "finds no ext4 there"
# What takes a DEVICE takes none of these, whatever it is asked to do.
NO_VOLUMES = {
    "nowhere": "nowhere does not exist",
    "''": f"the name is empty: {EXPECTED}",
    ".": f"no device is mounted on .*: {EXPECTED}",
    "folder": f"no device is mounted on folder: {EXPECTED}",
    "/proc": f"no device is mounted on /proc: {EXPECTED}",
    "/dev/null": f"/dev/null is something else: {EXPECTED}",
    "fifo": f"fifo is something else: {EXPECTED}",
    "socket": f"socket is something else: {EXPECTED}",
    "dangling": "dangling does not exist",
    "circle": "circle does not exist|circle: Too many levels of symbolic links",
    "kept.img/x": "kept.img/x does not exist",
    "n" * 300: "File name too long",
    "UUID=6d0c7bde-0000-4000-8000-000000000000": "names no device: expected one device",
    "LABEL=nobody": "names no device: expected one device",
    "PARTUUID=0-0": "names no device: expected one device",
    "zeros": NO_EXT4,
    "empty": NO_EXT4,
    "text": NO_EXT4,
    "cut-short": f"{NO_EXT4}|cut-short",
    "random": NO_EXT4,
}
# Only what writes asks blkid.
NO_PARTS = {
    "journal.img": "journal.img",
    "mirror.img": "is of type linux_raid_member: expected ext4, and not a part",
    "luks.img": "is of type crypto_LUKS|finds no ext4 there|several at once",
    "disk.img": r"has a partition table \(dos\): expected a volume, as one of its partitions",
}
CASES = [
    # The command line.
    usage("ext4lazy", "required: COMMAND"),
    usage("ext4lazy destroy old.img", "invalid choice: 'destroy'"),
    usage("ext4lazy --frobnicate", "required: COMMAND|unrecognized"),
    *(usage(f"ext4lazy {verb}", "required: DEVICE") for verb in VERBS),
    *(usage(f"ext4lazy {verb} old.img kept.img", "unrecognized arguments: kept.img") for verb in VERBS),
    *(usage(f"ext4lazy {verb} --force old.img", "unrecognized arguments: --force") for verb in VERBS),
    usage("ext4lazy status --journal-mib 8 old.img", "unrecognized arguments: --journal-mib"),
    usage("ext4lazy drain --yes kept.img", "unrecognized arguments: --yes"),
    usage("ext4lazy convert --journal-mib", "expected one argument"),
    *(usage(f"ext4lazy {verb} --journal-mib={size} old.img", "is no size in MiB: expected a number above 0")
      for verb in ("advise", "convert") for size in ("0", "-1", "x", "1.5", "8M", "''")),
    usage("ext4lazy check --scratch", "expected one argument"),
    # What is no volume.
    *(Wrong(f"ext4lazy {verb} {name}", says) for verb in VERBS for name, says in NO_VOLUMES.items()),
    *(Wrong(f"ext4lazy {verb} {name}", says) for verb in ("convert", "drain") for name, says in NO_PARTS.items()),
    # What does not fit.
    *(Wrong(f"ext4lazy {verb} --journal-mib 4096 old.img", "has room for .*: expected 4 GiB for the journal")
      for verb in ("advise", "convert")),
    *(Wrong(f"ext4lazy {verb} --journal-mib {size} old.img", "cannot have a journal of .* MiB: expected 4 to 40000 MiB")
      for verb in ("advise", "convert") for size in ("40001", "99999999999999999999")),
    Wrong("ext4lazy convert no-journal.img --journal-mib 1", "expected 4 to 40000 MiB"),
    Wrong("ext4lazy check --scratch text kept.img", "text"),
    Wrong("ext4lazy check --scratch text/x kept.img", "text/x"),
    Wrong("ext4lazy check --scratch /proc/x kept.img", "/proc/x"),
    Wrong("ext4lazy check --scratch /dev/null kept.img", "/dev/null"),
    # Forged and damaged.
    *(Wrong(f"ext4lazy {verb} forged.img", "has a line break in its label") for verb in VERBS),
    *(Wrong(f"ext4lazy {verb} bad-journal.img", "journal superblock")
      for verb in ("status", "drain", "convert")),
    Wrong("ext4lazy due bad-journal.img", "journal superblock", status=4),
    *(Wrong(f"ext4lazy {verb} lost-journal.img", "its journal device, UUID .*, is not here")
      for verb in ("convert", "status", "drain", "check")),
    # What it prints has nowhere to go.
    *(Wrong(f"ext4lazy {verb} kept.img >/dev/full", "what it prints cannot be written: No space left on device")
      for verb in ("advise", "status", "due")),
    Wrong("(sleep 1; ext4lazy status kept.img) | true; (exit ${PIPESTATUS[0]})",
          "what it prints cannot be written: Broken pipe"),
    # As another user.
    *(Wrong(f"nobody ext4lazy {verb} secret.img", "secret.img may not be opened: expected root") for verb in VERBS),
    *(Wrong(f"nobody ext4lazy {verb} {'kept' if verb == 'drain' else 'old'}.img", "cannot be written to|is in use")
      for verb in ("convert", "drain")),
    *(Wrong(f"nobody ext4lazy {verb} {{device}}", "may not be opened: expected root") for verb in VERBS),
    # Devices.
    Wrong("ext4lazy convert {read-only}", "cannot be written to: converting writes to it"),
    Wrong("ext4lazy drain {read-only}", "cannot be written to: draining writes to it"),
    *(Wrong(f"ext4lazy {verb} {{{name}}}", "is mounted on .*: .* needs it unmounted")
      for verb in ("convert", "check") for name in ("mounted", "point")),
    # The helpers.
    Wrong("mount.ext4lazy", r"expected DEVICE DIRECTORY \[-o OPTIONS\]", 1),
    Wrong("mount.ext4lazy {device}", r"expected DEVICE DIRECTORY \[-o OPTIONS\]", 1),
    Wrong("mount.ext4lazy {device} folder -N 77", "in another namespace is for nsenter", 1),
    Wrong("mount.ext4lazy {device} folder -x", "[Ii]llegal option", 1),
    Wrong("mount.ext4lazy {device} folder -o", "[Nn]o arg|[Ii]llegal|requires", 1),
    Wrong("mount.ext4lazy /dev/nowhere folder", "nowhere", 32, stock=True),
    Wrong("mount.ext4lazy {device} nowhere", "nowhere", 32, stock=True),
    Wrong("mount.ext4lazy {device} folder -o frobnicate", "bad option", 32, stock=True),
    Wrong("umount.ext4lazy", "expected DIRECTORY", 1),
    Wrong("umount.ext4lazy folder", "not mounted", 32),
    Wrong("umount.ext4lazy nowhere", "nowhere", 32),
    Wrong("umount.ext4lazy folder -Q", "invalid option", 1, stock=True),
    Wrong("fsck.ext4lazy", "expected a DEVICE", 16),
    Wrong("fsck.ext4lazy -a", "expected a DEVICE", 16),
    Wrong("fsck.ext4lazy -a old.img kept.img", "expected one DEVICE", 16),
    Wrong("fsck.ext4lazy -a nowhere", "nowhere", 8, stock=True),
    Wrong("fsck.ext4lazy -a zeros", "zeros", 8, stock=True),
    Wrong("fsck.ext4lazy -Q old.img", "Usage", 16, stock=True),
]  # fmt: skip


# --- The world ------------------------------------------------------------------------


def partitioned(path: Path) -> None:
    """A disk that was a volume of its own before it got partitions: the old superblock is still there."""
    make(path)
    entry = struct.pack("<B3sB3s2I", 0, b"\0\2\0", 0x83, bytes(3), 2048, 4096)
    with path.open("r+b") as file:
        file.seek(446)
        file.write(entry)
        file.seek(510)
        file.write(b"\x55\xaa")


def mirrored(path: Path) -> None:
    make(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + MIB)
    volumes.mirror_half(path)


def forged(path: Path) -> None:
    make(path)
    with path.open("r+b") as file:
        file.seek(1024)
        data = bytearray(file.read(1024))
        data[0x78:0x7C] = b"a\nb\0"
        struct.pack_into("<I", data, 1020, tool.crc32c(bytes(data[:1020])))
        file.seek(1024)
        file.write(data)


def lost_journal(folder: Path) -> None:
    journal, image = folder / "elsewhere", folder / "lost-journal.img"
    with journal.open("wb") as file:
        file.truncate(8 * MIB)
    stock("mke2fs", "-q", "-b", "4096", "-O", "journal_dev", journal)
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    with loop(journal) as device:
        stock("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-J", f"device={device}", image)
    journal.rename(folder / "journal.img")


def make_world(folder: Path) -> None:
    (folder / "folder").mkdir()
    (folder / "zeros").write_bytes(bytes(MIB))
    (folder / "empty").touch()
    (folder / "text").write_text("once upon a time\n" * 999)
    (folder / "random").write_bytes(os.urandom(MIB))
    (folder / "dangling").symlink_to("nothing")
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "fifo")
    kept(folder).replayed.unlink()
    old = make(folder / "old.img", kind="ext3", mib=64)
    volumes.add_files(old)
    (folder / "cut-short").write_bytes(old.read_bytes()[:1500])
    (folder / "secret.img").write_bytes(old.read_bytes())
    (folder / "secret.img").chmod(0o600)
    stock("mke2fs", "-q", "-F", "-b", "4096", folder / "no-journal.img", "64M")
    partitioned(folder / "disk.img")
    mirrored(folder / "mirror.img")
    forged(folder / "forged.img")
    bad = folder / "bad-journal.img"
    bad.write_bytes((folder / "kept.img").read_bytes())
    with bad.open("r+b") as file:
        file.seek(volumes.journal_at(bad) + 0x50)
        file.write(b"\x12\x34")
    (folder / "luks.img").write_bytes(b"LUKS\xba\xbe\0\1" + bytes(MIB))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all that one can be wrong about, and the programs on a PATH."""
    folder = tmp_path_factory.mktemp("world")
    # pytest's own folders, of which there is one more for each process of several.
    for above in (folder, *folder.parents):
        if above == Path(tempfile.gettempdir()):
            break
        above.chmod(0o755)
    make_world(folder)
    programs = folder / "programs"
    programs.mkdir()
    for name in ("ext4lazy", "mount.ext4lazy", "umount.ext4lazy", "fsck.ext4lazy"):
        # Another user may not read the clone.
        (programs / name).write_bytes((volumes.TOOLS / (name + (".py" if name == "ext4lazy" else ""))).read_bytes())
        (programs / name).chmod(0o755)
    nobody = programs / "nobody"
    nobody.write_text('#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"\n')
    nobody.chmod(0o755)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(folder / "socket"))
        if os.geteuid() == 0 and Path("/dev/loop-control").exists():
            lost_journal(folder)
            make_devices(folder, stack)
        yield folder


def make_devices(folder: Path, stack: contextlib.ExitStack) -> None:
    """Files that hold the names of devices."""
    attached = {"device": "old.img", "read-only": "kept.img", "mounted": "mounted.img"}
    make(folder / "mounted.img")
    for name, image in attached.items():
        copy = folder / f"{name}-of-{image}"
        copy.write_bytes((folder / image).read_bytes())
        device = stock("losetup", "-f", "--show", *(("--read-only",) if name == "read-only" else ()), copy).strip()
        stack.callback(stock, "losetup", "--detach", device)
        (folder / name).write_text(device)
    point = folder / "mnt"
    point.mkdir()
    (folder / "point").write_text(str(point))
    stock("mount", "-o", "ro", (folder / "mounted").read_text(), point)
    stack.callback(stock, "umount", point)


def state(folder: Path, line: str) -> dict[str, object]:
    """All that a program could have changed or left."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_relative_to(folder / "mnt") and path != folder / "mnt":
            continue
        info = path.lstat()
        # Whatever writes to a file changes its times.
        found[str(path)] = info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns
    for name in re.findall(r"[a-z-]+\.img", line):
        for path in folder.glob(f"*{name}"):
            found[f"contents of {path}"] = digest(path)
    if os.geteuid() == 0 and Path("/dev/loop-control").exists():
        rows = stock("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").splitlines()
        found["loop devices"] = sorted(row for row in rows if str(folder) in row)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found["mounts"] = sorted(line for line in mounts if str(folder) in line)
    return found


@pytest.mark.parametrize("wrong", [pytest.param(case, id=case.line[:60]) for case in CASES])
def test_a_wrong_use(wrong: Wrong, world: Path) -> None:
    line = wrong.line
    for name in re.findall(r"\{([a-z-]+)\}", line):
        if not (world / name).exists():
            pytest.skip("needs root and loop devices")
        line = line.replace(f"{{{name}}}", shlex.quote((world / name).read_text()))
    if "lost-journal" in line and not (world / "lost-journal.img").exists():
        pytest.skip("needs root and loop devices")
    before = state(world, line)
    environment = {"PATH": f"{world / 'programs'}:{PATH}", "LC_ALL": "C", "HOME": str(world), "COLUMNS": "200"}
    done = subprocess.run(
        ["timeout", "--kill-after=5", str(LIMIT_S), "bash", "-c", line],
        cwd=world, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stderr if not wrong.stock else done.stdout + done.stderr
    assert done.returncode == wrong.status, (done.returncode, done.stdout, done.stderr)
    assert re.search(wrong.says, said), said
    assert "Traceback" not in said
    if not wrong.stock:
        sentences = [text for text in said.splitlines() if not re.match(r"usage: | ", text)]
        assert len(sentences) == 1, said
    assert state(world, line) == before


def test_the_matrix_is_as_large_as_it_says() -> None:
    """Uses that differ in more than the verb."""
    assert len({case.line for case in CASES}) == len(CASES) >= 200
    words = {re.sub(rf"^ext4lazy ({'|'.join(VERBS)})\b", "ext4lazy", case.line) for case in CASES}
    assert len(words) >= 60
    assert {case.line.split()[0].removesuffix("nobody") for case in CASES} >= {
        "ext4lazy", "mount.ext4lazy", "umount.ext4lazy", "fsck.ext4lazy",
    }  # fmt: skip

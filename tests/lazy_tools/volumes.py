# SPDX-License-Identifier: MIT OR Apache-2.0
"""Small volumes whose newest metadata is in the log, made by stock e2fsprogs alone.

What debugfs changed in a copy of a volume becomes a transaction in the
volume's log, and the marker of journal_lazy is put on it by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pty
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from shingle.paths import ROOT

TOOLS = ROOT / "packaging/tools"
BLOCK = 4096
FILES = 6
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def load(path: Path) -> ModuleType:
    """A program of packaging/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


tool = load(TOOLS / "ext4lazy.py")


def stock(*argv: str | Path, accept: Sequence[int] = (0,)) -> str:
    done = subprocess.run(
        list(map(str, argv)),
        env=os.environ | {"PATH": PATH, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in accept, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def systemd_accepts(folder: Path, unit: str) -> str:
    """The text of a unit of a mount point, which systemd finds nothing wrong with."""
    text = (TOOLS / unit).read_text()
    instance = folder / unit.replace("@", "@data")
    instance.write_text(text.replace("/usr/sbin/ext4lazy", "/bin/true"))
    (folder / "data.mount").write_text("[Mount]\nWhat=/dev/null\nWhere=/data\n")
    argv = ["systemd-analyze", "verify", "--man=no", instance]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    return text


def ext4lazy(*argv: str | Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOLS / "ext4lazy.py", *map(str, argv)],
        env=os.environ | {"PATH": path or PATH}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def at_terminal(*argv: str | Path, answer: str = "", path: str = PATH) -> tuple[int, str]:
    """The status of a program at a terminal of its own, and what is seen there; its question gets this answer."""
    master, slave = pty.openpty()
    # `timeout` is outside of the terminal: it would hand a Ctrl-C on, which the program then gets twice.
    command = ["timeout", "60", "setsid", "--ctty", "--wait", *map(str, argv)]
    environment = os.environ | {"PATH": path, "LC_ALL": "C"}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as running:
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # the terminal is gone with its last program
            while data := os.read(master, 4096):
                seen += data
                if answer and seen.endswith(b"[y/N] "):
                    os.write(master, answer.encode())
        os.close(master)
    return running.returncode, seen.decode().replace("\r\n", "\n")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make(path: Path, *, kind: str = "ext4", mib: int = 32, journal_mib: int = 4, block_size: int = BLOCK) -> Path:
    with path.open("wb") as file:
        file.truncate(mib << 20)
    stock("mke2fs", "-q", "-t", kind, "-b", str(block_size), "-J", f"size={journal_mib}", path)
    return path


def change(path: Path, commands: Sequence[str]) -> None:
    """Runs debugfs on the volume."""
    script = path.with_suffix(".debugfs")
    script.write_text("\n".join(commands) + "\n")
    stock("debugfs", "-w", "-f", script, path)
    script.unlink()


def add_files(path: Path, first: int = 1) -> None:
    contents = path.with_suffix(".contents")
    contents.write_text("contents\n")
    change(path, [line for n in range(first, first + FILES) for line in (f"mkdir d{n}", f"write {contents} d{n}/f")])
    contents.unlink()


def names(path: Path) -> list[str]:
    """The names in the root, as a program sees them that replays nothing."""
    listed = stock("debugfs", "-R", "ls -p /", path)
    return sorted(line.split("/")[5] for line in listed.splitlines() if line.startswith("/"))


def differing(old: Path, new: Path) -> list[int]:
    before, after = old.read_bytes(), new.read_bytes()
    blocks = range(len(before) // BLOCK)
    return [n for n in blocks if before[n * BLOCK : (n + 1) * BLOCK] != after[n * BLOCK : (n + 1) * BLOCK]]


def log(
    volume: Path,
    contents: Path,
    homes: Sequence[int],
    revoked: Sequence[int] = (),
    *,
    commit: bool = True,
    block_size: int = BLOCK,
) -> None:
    """One transaction in the volume's log: these blocks as they are in `contents`, and revokes."""
    data = contents.read_bytes()
    blocks = volume.with_suffix(".blocks")
    blocks.write_bytes(b"".join(data[n * block_size : (n + 1) * block_size] for n in homes))
    revoke = f"-r {','.join(map(str, revoked))} " if revoked else ""
    keep = "" if commit else "-c "
    change(volume, ["jo -c", f"jw -b {','.join(map(str, homes))} {revoke}{keep}{blocks}", "jc"])
    blocks.unlink()


def journal_at(volume: Path, block_size: int = BLOCK) -> int:
    return int(stock("debugfs", "-R", "bmap <8> 0", volume)) * block_size


def sign(volume: Path, *, block_size: int = BLOCK, **fields: int) -> None:
    """Puts the marker of journal_lazy into the journal superblock; `fields` are 32-bit words to change, by offset."""
    at = journal_at(volume, block_size)
    with volume.open("r+b") as file:
        file.seek(at)
        data = bytearray(file.read(1024))
        sequence, start = struct.unpack_from(">2I", data, 0x18)
        struct.pack_into(
            ">5I", data, tool.MARKER_OFFSET, tool.MARKER_MAGIC, tool.MARKER_VERSION, sequence, start, sequence
        )
        for name, value in fields.items():
            struct.pack_into(">I", data, int(name.removeprefix("at_"), 16), value)
        data[tool.CHECKSUM_OFFSET : tool.CHECKSUM_OFFSET + 4] = bytes(4)
        struct.pack_into(">I", data, tool.CHECKSUM_OFFSET, tool.crc32c(bytes(data)))
        file.seek(at)
        file.write(data)


@dataclass(frozen=True)
class Kept:
    """A volume whose log is kept, and how it looks with the log replayed."""

    path: Path
    replayed: Path
    homes: list[int]


def kept(folder: Path) -> Kept:
    volume = make(folder / "kept.img")
    replayed = folder / "replayed.img"
    replayed.write_bytes(volume.read_bytes())
    add_files(replayed)
    homes = differing(volume, replayed)
    log(volume, replayed, homes)
    sign(volume)
    return Kept(volume, replayed, homes)


def mirror_half(volume: Path) -> None:
    """Puts the superblock of md, version 1.0, at the end: the file system begins where the device does."""
    at = ((volume.stat().st_size >> 9) - 16 & ~7) << 9
    data = bytearray(260)
    struct.pack_into("<2I", data, 0, 0xA92B4EFC, 1)
    struct.pack_into("<II", data, 72, 1, 0)  # level
    struct.pack_into("<I", data, 92, 2)  # disks
    struct.pack_into("<QQQ", data, 128, 0, (at >> 9) - 8, at >> 9)
    struct.pack_into("<I", data, 220, 2)
    total = sum(struct.unpack("<65I", data))
    struct.pack_into("<I", data, 216, (total & 0xFFFFFFFF) + (total >> 32))
    with volume.open("r+b") as file:
        file.seek(at)
        file.write(data)


# --- Devices ----------------------------------------------------------------------

needs_loop = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists(), reason="needs root and loop devices"
)


@contextlib.contextmanager
def loop(backing: Path) -> Iterator[Path]:
    """A loop device over a file or a device, gone afterwards."""
    device = stock("losetup", "--find", "--show", backing).strip()
    try:
        yield Path(device)
    finally:
        stock("losetup", "--detach", device)


def say_mounted(volume: Path, mount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a kernel say to the tool that the image is mounted over loop7; `mount` is what mountinfo says of it."""
    sys = volume.parent / "sys"
    loop = sys / "block/loop7"
    (loop / "loop").mkdir(parents=True)
    (loop / "loop/backing_file").write_text(f"{volume}\n")
    (loop / "dev").write_text("7:7\n")
    (sys / "dev/block").mkdir(parents=True)
    (sys / "dev/block/7:7").symlink_to("../../block/loop7")
    info = volume.parent / "mountinfo"
    info.write_text(f"36 25 7:7 {mount}\n")
    monkeypatch.setattr(tool, "SYSFS", sys)
    monkeypatch.setattr(tool, "MOUNTINFO", info)


def fakes(folder: Path, **programs: str) -> str:
    """A PATH in which these programs are scripts; `real NAME` in one of them runs the stock program."""
    place = folder / "fakes"
    place.mkdir(exist_ok=True)
    for name, text in programs.items():
        program = place / name
        program.write_text(f'#!/bin/sh\nreal() {{ PATH={PATH} "$@"; }}\n{text}\n')
        program.chmod(0o755)
    return f"{place}:{PATH}"

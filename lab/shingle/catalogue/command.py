# SPDX-License-Identifier: MIT OR Apache-2.0
"""A command of the user's as what is run: its place inside the machine, its environment, files in and out.

All that it names is checked here, on the host, before a machine starts. Inside, the host's files are there to be read,
but some folders are the machine's own: the drive at /mnt, and what is in memory and empty at first.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn, cast

from shingle.catalogue import workload
from shingle.failure import Failure
from shingle.machine import job
from shingle.machine.machine import NS_PER_S, START_NS
from shingle.paths import ContentKey

# As timeout(1), env(1) and docker(1) have them.
EXIT_LIMIT, EXIT_OURS, EXIT_NO_PROGRAM, EXIT_NOT_FOUND = 124, 125, 126, 127
SETUP = "setup"
STDOUT, STDERR = "command.stdout", "command.stderr"
_PHASE_PROGRAM = "/run/bin/shingle-phase"
_SCRIPTS = "/run/exec"
_BROUGHT = "brought.tar"
_SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOME = "/run/home"
_ENVIRONMENT = {
    "PATH": f"{posixpath.dirname(_PHASE_PROGRAM)}:{_SEARCHED}",
    "HOME": _HOME,
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
}
_HOSTNAME = "shingle"
# With several disks only: mdadm makes the nodes of arrays itself.
_OF_DISKS = {"MDADM_NO_UDEV": "1"}
# What udev makes elsewhere, and programs expect.
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
# Where a command may write, and files go in and out.
_WRITABLE = (job.MOUNT_POINT, "/tmp", "/var/tmp", _HOME)
# Where the machine does not show what the host has.
_OWN = (job.MOUNT_POINT, "/tmp", "/var/tmp", "/run", "/dev", "/proc", "/sys")
_RESERVED = ("mount", SETUP, workload.UNMOUNT)


@dataclass(frozen=True)
class Brought:
    """A file or folder of the host's that is copied into the machine."""

    source: Path
    inside: str


@dataclass(frozen=True)
class Taken:
    """A file or folder of the machine's that is copied out afterwards."""

    inside: str
    target: Path


@dataclass(frozen=True)
class Command(workload.Plan):
    """What is brought in and the setup; then the command, a sync, and the unmount."""

    argv: tuple[str, ...] = ()
    setup: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 0.0
    brought: tuple[Brought, ...] = ()
    taken: tuple[Taken, ...] = ()
    # What `argv` begins with, if it is a file of the host's that was named from where the user is.
    script: Brought | None = None
    # Whatever else runs then belongs to the file system.
    but: tuple[str, ...] = ()
    disks: int = 1

    @property
    def prepares(self) -> bool:
        return bool(self.setup is not None or self.brought)

    @property
    def told(self) -> dict[str, object]:
        """What a record says of it; what is brought in by the hash of its contents."""
        script = () if self.script is None else (self.script,)
        return {
            "argv": list(self.argv),
            "program": _program_digest(self.argv[0]),
            "setup": self.setup,
            "environment": dict(self.environment),
            "in": {each.inside: _digest(each) for each in (*self.brought, *script)},
            "limit_s": self.limit_s,
        }

    def steps(self) -> list[job.Step]:
        (name,) = self.names
        env = {**_ENVIRONMENT, **(_OF_DISKS if self.disks > 1 else {}), **self.environment}
        clean = job.wait_clean(limit_s=workload.CLEAN_LIMIT_S)
        phase = SETUP if self.prepares else None
        unpack = ("/bin/tar", "-x", "--no-overwrite-dir", "-C", "/", "-f", f"{job.OUT}/{_BROUGHT}")
        steps = [job.write("/proc/sys/kernel/hostname", _HOSTNAME), job.run(unpack, phase=phase)]
        if self.setup is not None:
            told = job.run(("/bin/sh", "-c", self.setup), env=env, phase=phase)
            steps.append(told | {"cwd": job.MOUNT_POINT})
        if self.prepares:
            steps += [job.sync(phase=phase), job.drop_caches(), clean]
        latencies = [job.read(latency_of(disk)) for disk in range(self.disks)]
        limit_s = self.limit_s
        return [
            *steps,
            *latencies,
            job.command(self.argv, env=env, stdout=STDOUT, stderr=STDERR, limit_s=limit_s, phase=name),
            job.end_programs(but=self.but, phase=name),
            job.sync(phase=name),
            *latencies,
            job.drop_caches(),
            clean,
            job.umount(phase=workload.UNMOUNT),
            clean,
        ]

    def put(self, out: Path, guest: Path) -> None:
        """Leaves what is brought in where the machine's tar finds it, the guest as the program that marks phases."""
        with tarfile.open(out / _BROUGHT, "w", format=tarfile.GNU_FORMAT) as archive:
            _add(archive, Brought(guest, _PHASE_PROGRAM))
            for name, target in _LINKS.items():
                link = tarfile.TarInfo(f"dev/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, target
                archive.addfile(link)
            for each in (*self.brought, *(() if self.script is None else (self.script,))):
                _add(archive, each)


def latency_of(disk: int) -> str:
    """The driver's file with how long requests took."""
    return f"/sys/block/shd{disk}/shingle/latency"


def plan(
    argv: Sequence[str],
    *,
    seed: int,
    limit_s: float,
    setup: str | None = None,
    name: str | None = None,
    brought: Sequence[str] = (),
    taken: Sequence[str] = (),
    environment: Sequence[str] = (),
    but: Sequence[str] = (),
    disks: int = 1,
) -> Command:
    """The command that these words of the command line mean; refuses, with the status of exec, what cannot work."""
    for word in (*argv, *(() if setup is None else (setup,)), *brought, *taken, *environment):
        _check_text(word)
    if setup is not None and not setup.strip():
        raise _refused("--setup is empty; expected a command of sh.")
    files = [_brought(each) for each in brought]
    words, script = _resolved(argv, files)
    _check_apart(files)
    phase = _phase_name(words[0], name)
    return Command(
        (phase,),
        {phase: 1.0},
        seed,
        argv=words,
        setup=setup,
        environment=_environment(environment),
        limit_s=limit_s,
        brought=tuple(files),
        taken=_taken(taken),
        script=script,
        but=tuple(but),
        disks=disks,
    )


def _refused(sentence: str, status: int = EXIT_OURS) -> Failure:
    return Failure(sentence, status=status)


def _check_text(word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError:
        raise _refused(f"{word!a} is no UTF-8, which the machine's job is written in.") from None


def _phase_name(program: str, name: str | None) -> str:
    """The command's own phase, and the workload of its record."""
    if name is None:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(program).stem)[:56] or "command"
        return f"{plain}-command" if plain in _RESERVED else plain
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) or name in _RESERVED:
        raise _refused(
            f"{name!r} is no name for a command: expected letters, digits, dots, - and _, and none of"
            f" {', '.join(_RESERVED)}."
        )
    return name


def _resolved(argv: Sequence[str], brought: Sequence[Brought]) -> tuple[tuple[str, ...], Brought | None]:
    """The words as the machine runs them, and the script that has to be brought in for that."""
    if not argv or not argv[0]:
        raise _refused("no command was given; it stands behind `--`: ./shingle exec -- git init tree.")
    program = argv[0]
    if "/" not in program:
        if shutil.which(program, path=_SEARCHED) is None:
            hint = f"; the file here is ./{program}" if Path(program).is_file() else ""
            raise _refused(f"there is no program {program} in {_SEARCHED}{hint}.", EXIT_NOT_FOUND)
        return tuple(argv), None
    if program.startswith("/"):
        own = _below(posixpath.normpath(program), _OWN)
        if own is None:
            _check_program(Path(program), program)
        elif own != job.MOUNT_POINT and Path(program).exists() and not brought:
            raise _refused(
                f"{program}: {own} is the machine's own and empty there; bring the file with --in, or name it from"
                f" where you are (./{Path(program).name}).",
                EXIT_NOT_FOUND,
            )
        return tuple(argv), None
    _check_program(Path(program), f"{program}; a program on the simulated drive is named by its place, /mnt/…")
    script = Brought(Path(program), f"{_SCRIPTS}/{Path(program).name}")
    return (script.inside, *argv[1:]), script


def _program_digest(program: str) -> str | None:
    """A hash of the host's file that the command begins with; None if it is the machine's own."""
    found = shutil.which(program, path=_SEARCHED)
    if found is None or _below(found, _OWN) is not None:
        return None
    return ContentKey("content").file("file", Path(found)).hexdigest()


def _check_program(path: Path, shown: str) -> None:
    if not path.exists():
        raise _refused(f"this host has no {shown}.", EXIT_NOT_FOUND)
    if not path.is_file() or not os.access(path, os.X_OK):
        raise _refused(f"{path} is no program: expected a file that may be executed (chmod +x).", EXIT_NO_PROGRAM)


def _below(path: str, folders: Sequence[str]) -> str | None:
    return next((each for each in folders if path == each or path.startswith(f"{each}/")), None)


def _pair(option: str, told: str, what: str) -> tuple[str, str | None]:
    first, colon, second = told.partition(":")
    if not first or (colon and not second) or ":" in second:
        raise _refused(f"{option} {told}: expected {what}.")
    return first, second or None


def _inside(option: str, told: str, path: str) -> str:
    """A place in the machine that a command can write to, from what was told of it."""
    place = posixpath.normpath(posixpath.join(job.MOUNT_POINT, path))
    if _below(place, _WRITABLE) is None:
        raise _refused(f"{option} {told}: {place} is not of the machine's own; expected a place below"
                       f" {', '.join(_WRITABLE)}.")  # fmt: skip
    return place


def _brought(told: str) -> Brought:
    source, place = _pair("--in", told, "HOST or HOST:PLACE")
    path = Path(source)
    if not path.exists():
        raise _refused(f"--in {told}: this host has no {source}.")
    inside = _inside("--in", told, path.resolve().name if place is None else place)
    if inside in _WRITABLE and not path.is_dir():
        raise _refused(f"--in {told}: {inside} is a folder, and {source} is a file; expected a name for it.")
    each = Brought(path, inside)
    for file, _ in _members(each):
        mode = file.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            raise _refused(f"--in {told}: {file} is no file, folder or link.")
        if not stat.S_ISLNK(mode) and not os.access(file, os.R_OK):
            raise _refused(f"--in {told}: {file} cannot be read.")
    return each


def _check_apart(files: Sequence[Brought]) -> None:
    places = [each.inside for each in files]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise _refused(f"{place} is brought in twice; name another place (--in HOST:PLACE).")


def _taken(told: Sequence[str]) -> tuple[Taken, ...]:
    found: list[Taken] = []
    for each in told:
        source, target = _pair("--out", each, "PLACE or PLACE:HOST")
        inside = _inside("--out", each, source)
        path = Path(posixpath.basename(inside) if target is None else target)
        if path.exists() or path.is_symlink():
            raise _refused(f"--out {each}: {path} is there already; expected a name that is free.")
        if not os.access(path.parent, os.W_OK | os.X_OK) or not path.parent.is_dir():
            raise _refused(f"--out {each}: {path.parent} is no folder in which {path.name} can be made.")
        if any(path.absolute() == other.target.absolute() for other in found):
            raise _refused(f"--out {each}: {path} is the name of another --out.")
        found.append(Taken(inside, path))
    return tuple(found)


def _environment(told: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in told:
        name, equals, value = each.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise _refused(f"--env {each}: {name!r} is no name of a variable; expected NAME=VALUE, or NAME.")
        if not equals and name not in os.environ:
            raise _refused(f"--env {each}: {name} is not set here; expected NAME=VALUE, or a variable of this host.")
        found[name] = value if equals else os.environ[name]
    return found


def size_bytes(files: Sequence[Brought]) -> int:
    """How much is brought in."""
    return sum(path.lstat().st_size for each in files for path, _ in _members(each))


def _members(each: Brought) -> Iterator[tuple[Path, str]]:
    """What belongs to it and its place inside, in an order that does not depend on the host; links are not followed,
    but for the one that was named."""
    source = each.source.resolve()
    if not source.is_dir():
        yield source, each.inside
        return

    def refuse(error: OSError) -> NoReturn:
        raise _refused(f"--in {each.source}: {error.filename} cannot be read.")

    def inside(path: Path) -> str:
        return posixpath.join(each.inside, *path.relative_to(source).parts)

    # A folder with all that is in it, then the next: tar sets the time of a folder when it leaves it.
    for name, folders, files in os.walk(source, onerror=refuse):
        folder = Path(name)
        folders.sort()
        yield folder, inside(folder)
        for path in (folder / each for each in sorted([*files, *folders])):
            if path.is_symlink() or not path.is_dir():
                yield path, inside(path)


def _add(archive: tarfile.TarFile, each: Brought) -> None:
    """Puts it into an archive with nothing of the host's: its owner is root, its time that of the machine's start."""
    for path, inside in _members(each):
        entry = archive.gettarinfo(path, arcname=inside)
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = START_NS // NS_PER_S
        if not entry.isreg():
            archive.addfile(entry)
            continue
        with path.open("rb") as file:
            archive.addfile(entry, file)


class _Hashed:
    """A file that keeps nothing but the hash of what is written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        return len(data)


def _digest(each: Brought) -> str:
    """A hash of everything of it that the machine sees."""
    sink = _Hashed()
    with tarfile.open(fileobj=cast(IO[bytes], sink), mode="w|", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, each)
    return sink.hash.hexdigest()[:24]

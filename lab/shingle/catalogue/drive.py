# SPDX-License-Identifier: MIT OR Apache-2.0
"""Simulated drives: their profiles, and drives that carry a fresh file system.

Formatting is done once, inside the machine, by the distribution's own mkfs on
the kernel's own block layer; the drive is then set to clean and kept under a
key made of everything that decides its contents. It is no part of a run.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shingle import process
from shingle.build import build
from shingle.catalogue import fs
from shingle.catalogue.fs import Extent, FileSystem, Layout
from shingle.failure import Failure, unknown_name
from shingle.machine import job, machine
from shingle.machine.machine import Tick
from shingle.machine.progress import SILENT, CacheLimits, Progress
from shingle.paths import IN_MACHINE, ROOT, ContentKey, cache, locked, run_folder, used

# mkfs writes some 58 GiB of zeros to an 8 TB drive: hours of virtual time are fine.
_FORMAT_LIMIT_S = 1200.0
_MKFS_VIRTUAL_LIMIT_S = 24 * 3600
_FORMAT_MEMORY_MIB = 1024
_AGE_MEMORY_MIB = 2048
_BYTES = {"B": 1, "GB": 10**9, "TB": 10**12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_AGE_PROGRAM = IN_MACHINE / "age.py"
_AGE_LIMIT_S = 1800.0
_MKE2FS_CONFIG = Path("/etc/mke2fs.conf")


@dataclass(frozen=True)
class Profile:
    """A drive that can be simulated, as its data file describes it."""

    name: str
    path: Path
    values: dict[str, Any]

    def text(self, key: str, default: str = "") -> str:
        return str(self.values.get(key, default))


@dataclass(frozen=True)
class Age:
    """What "aged" means: age.py fills the file system, then `rounds` times removes a share and fills it again."""

    fill: float = 0.6
    rounds: int = 3
    removed_share: float = 0.33
    seed: int = 1

    @property
    def argv(self) -> tuple[str, ...]:
        values = (self.fill, self.rounds, self.removed_share, self.seed)
        return (
            "/usr/bin/python3",
            "-I",
            f"{job.OUT}/{_AGE_PROGRAM.name}",
            f"{job.MOUNT_POINT}/aged",
            *map(str, values),
        )


@dataclass(frozen=True)
class FormattedDrive:
    file: Path
    layout: Layout
    mkfs: tuple[str, ...]
    mkfs_version: str
    capacity_bytes: int
    key: str

    def classes(self) -> list[job.Step]:
        """The steps that tell the drive which requests are the journal's and the superblock's."""
        told: list[job.Step] = []
        if self.layout.journal:
            told.append(job.journal(self.layout.journal))
        if self.layout.superblock:
            told.append(job.superblock(self.layout.superblock))
        return told


def profiles() -> dict[str, Profile]:
    return {name: _read(path) for name, path in _files().items()}


def _files() -> dict[str, Path]:
    return {path.stem: path for path in sorted((ROOT / "drives").glob("*.toml"))}


def _read(path: Path) -> Profile:
    return Profile(path.stem, path, tomllib.loads(path.read_text()))


def find(name: str) -> Profile:
    """The drive of this name, or of a profile in a file of the user's own (`mine.toml`)."""
    if name.endswith(".toml"):
        return _from_file(Path(name))
    known = _files()
    if name not in known:
        raise unknown_name("drive", name, known)
    return _read(known[name])


def _from_file(path: Path) -> Profile:
    """What the drive's own reader has to say of the file, with line and key, it says when the drive is made."""
    try:
        return Profile(path.stem, path.resolve(), tomllib.loads(path.read_text()))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; expected a drive profile.", status=2) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{path} is not TOML: {error}.", status=2) from None


def is_own(profile: Profile) -> bool:
    """Whether it is a file of the user's."""
    return profile.path.parent != ROOT / "drives"


def check(crates: build.Crates, profile: Profile) -> None:
    """Refuses, with line and key, a profile of the user's own that the drive does not take."""
    if is_own(profile):
        said = subprocess.run(
            [crates.tool, "profile", "check", profile.path], capture_output=True, text=True, timeout=60, check=False
        )
        if said.returncode != 0:
            wrong = said.stdout.splitlines() or said.stderr.splitlines()
            raise Failure(wrong[0], detail=wrong[1:], status=2)


def changed(profile: Profile, key: str, value: float) -> Profile:
    """The same drive with another value of one number (`translation.idle`), as a file of its own."""
    section, _, name = key.partition(".")
    if name not in profile.values.get(section, {}):
        raise Failure(f"{profile.path.name} has no {key} to change.")
    head, begin, body = profile.path.read_text().partition(f"\n[{section}]\n")
    number = re.compile(rf"^({re.escape(name)} = \{{ value = )[^,]+", re.MULTILINE)
    text = head + begin + number.sub(rf"\g<1>{value:g}", body, count=1)
    folder = cache() / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    made_name = changed_name(profile.name, key, value)
    path = folder / f"{made_name}-{ContentKey('profile').text('text', text).hexdigest()[:8]}.toml"
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)
    made = Profile(made_name, path, tomllib.loads(text))
    if made.values[section][name]["value"] != value:
        raise Failure(f"{profile.path.name}: {key} is not written as expected.")
    return made


def changed_name(name: str, key: str, value: float) -> str:
    """What `changed` calls the drive `name`, in records too."""
    return f"{name}-{key.partition('.')[2]}-{value:g}"


def capacity_of(profile: Profile) -> int:
    """The capacity that the profile gives the drive, in bytes."""
    try:
        capacity = profile.values["host"]["capacity"]
        return int(capacity["value"] * _BYTES[capacity["unit"]])
    except (KeyError, TypeError):
        raise Failure(f"{profile.path.name} names no capacity in bytes.", status=2) from None


def is_host_managed(profile: Profile) -> bool:
    """Whether Linux shows the drive as a zoned block device."""
    return bool(profile.values.get("translation", {}).get("kind") == "host_managed")


def check_zones(profile: Profile, capacity_bytes: int) -> None:
    """Refuses a host-managed drive so small that all its zones are conventional: Linux does not take it."""
    if not is_host_managed(profile):
        return
    values = profile.values["translation"]
    zones = values["conventional_first"]["value"] + values["conventional_last"]["value"]
    size = zones * values["zone"]["value"] * _BYTES[values["zone"]["unit"]]
    if capacity_bytes <= size:
        raise Failure(
            f"{profile.name} needs more than {size / (1 << 30):.0f} GiB:"
            f" so much of it is conventional zones, and Linux wants sequential ones, too.",
            status=2,
        )


def cache_limits(profile: Profile) -> CacheLimits | None:
    """The size of the drive's persistent cache, if it has one."""
    translation = profile.values.get("translation", {})
    if "cache" not in translation:
        return None
    size = translation["cache"]
    return CacheLimits(int(size["value"] * _BYTES[size["unit"]]), int(translation["cache_entries"]["value"]))


def create(
    crates: build.Crates,
    profile: Profile,
    target: Path,
    *,
    seed: int,
    capacity_bytes: int | None = None,
    used: bool = False,
) -> None:
    """Makes an empty drive. In a `used` one every band was written before, so that cleaning it reads it first, as on
    the disks that were measured; cleaning a new one is about a third cheaper (docs/design/drive-model.md)."""
    options = [] if capacity_bytes is None else ["--capacity-bytes", str(capacity_bytes)]
    options += ["--used"] if used else []
    build.tool_output(crates, "create", "--profile", profile.path, *options, "--seed", str(seed), "-o", target)


def export(crates: build.Crates, source: Path, image: Path) -> None:
    """Writes what the next power-on would read as a sparse raw image."""
    build.tool_output(crates, "export", source, image)


def info(crates: build.Crates, source: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(build.tool_output(crates, "info", "--json", source))
    return parsed


@functools.cache
def program_version(argv: tuple[str, ...]) -> str:
    """The first line of what a program says about its version."""
    try:
        text = process.run(argv, what=" ".join(argv), limit_s=30, accept=range(256))
    except OSError:
        raise Failure(f"{argv[0]} is missing; ./shingle installs it.") from None
    return text.strip().splitlines()[0]


def formatted(
    built: build.Built,
    profile: Profile,
    variant: FileSystem,
    *,
    seed: int = 1,
    capacity_bytes: int | None = None,
    progress: Progress = SILENT,
) -> FormattedDrive:
    """A clean drive with a fresh file system of this variant, from the cache if it is there."""
    size = capacity_bytes or capacity_of(profile)
    fs.check_fits(variant, profile.name, size)
    version = _mkfs_version(built, variant)
    key = _key(built, profile, variant, version, seed, size)
    stored = cache() / "drives" / key
    if not stored.exists():
        with locked(f"drive-{key}"):
            if not stored.exists():
                with progress.machine(f"formatting {profile.name} for {variant.name}, once") as watch:
                    _format(built, profile, variant, stored, seed, size, watch)
    used(stored)
    described = json.loads((stored / "layout.json").read_text())
    return FormattedDrive(stored / "x.drive", _layout(described), _mkfs(profile, variant), version, size, key)


def formatted_key(
    built: build.Built, profile: Profile, variant: FileSystem, *, seed: int, capacity_bytes: int | None
) -> str:
    """The key under which such a drive is kept, whether it was formatted yet or not."""
    size = capacity_bytes or capacity_of(profile)
    return _key(built, profile, variant, _mkfs_version(built, variant), seed, size)


def _mkfs_version(built: build.Built, variant: FileSystem) -> str:
    # Programs of ours are in /run/out in the machine; here they are where they were built.
    here = {f"{job.OUT}/{path.name}": str(path) for path in variant.files(built.crates)}
    return program_version(tuple(here.get(word, word) for word in variant.version))


def _mkfs(profile: Profile, variant: FileSystem) -> tuple[str, ...]:
    return variant.mkfs_argv(host_managed=is_host_managed(profile))


def _key(
    built: build.Built, profile: Profile, variant: FileSystem, version: str, seed: int, capacity_bytes: int
) -> str:
    key = ContentKey("formatted 2, used").text("machine", build.machine_key(built.crates))
    key.file("profile", profile.path).text("seed", str(seed)).text("capacity", str(capacity_bytes))
    key.text("mkfs", "\0".join(_mkfs(profile, variant))).text("version", version)
    for program in variant.files(built.crates):
        key.file(program.name, program)
    if variant.kernel_name == "ext4" and _MKE2FS_CONFIG.exists():
        key.file("mke2fs.conf", _MKE2FS_CONFIG)
    return key.hexdigest()


def aged(
    built: build.Built,
    profile: Profile,
    variant: FileSystem,
    age: Age,
    *,
    seed: int = 1,
    capacity_bytes: int | None = None,
    progress: Progress = SILENT,
) -> FormattedDrive:
    """A clean drive whose file system has been used. It is aged without mount options, so that variants share it."""
    fs.check_can_age(variant, host_managed=is_host_managed(profile))
    fresh = formatted(built, profile, variant, seed=seed, capacity_bytes=capacity_bytes, progress=progress)
    key = ContentKey("aged 1").text("formatted", fresh.key).text("kernel", built.kernel.key)
    key.text("age", repr(age)).file("program", _AGE_PROGRAM).file("python", Path("/usr/bin/python3").resolve())
    digest = key.hexdigest()
    stored = cache() / "drives" / digest
    if not stored.exists():
        with locked(f"drive-{digest}"):
            if not stored.exists():
                with progress.machine(f"ageing {variant.name} on {profile.name}, once") as watch:
                    _age(built, variant, age, fresh, stored, seed, watch)
    used(stored)
    return replace(fresh, file=stored / "x.drive", key=digest)


def _age(
    built: build.Built,
    variant: FileSystem,
    age: Age,
    fresh: FormattedDrive,
    stored: Path,
    seed: int,
    watch: Callable[[Tick], None],
) -> None:
    with (
        build.stored_at(stored) as part,
        run_folder() as scratch,
    ):
        after = scratch / "after.drive"
        steps = (job.mount(variant.kernel_name), job.run(age.argv), job.umount(), job.save())
        boot = machine.Boot(
            steps=steps,
            drive=fresh.file,
            save=after,
            seed=seed,
            files=(_AGE_PROGRAM,),
            memory_mib=_AGE_MEMORY_MIB,
            host_limit_s=_AGE_LIMIT_S,
        )
        try:
            machine.run(built.machine, boot, scratch, watch=watch)
        except Failure as failure:
            raise Failure(f"ageing {variant.name}: {failure}", detail=failure.detail) from None
        build.tool_output(built.crates, "clean", after, "-o", scratch / "clean.drive")
        shutil.copyfile(scratch / "clean.drive", part / "x.drive")


def _format(
    built: build.Built,
    profile: Profile,
    variant: FileSystem,
    stored: Path,
    seed: int,
    capacity_bytes: int,
    watch: Callable[[Tick], None],
) -> None:
    with (
        build.stored_at(stored) as part,
        run_folder() as scratch,
    ):
        out = scratch
        empty, dirty = out / "empty.drive", out / "dirty.drive"
        create(built.crates, profile, empty, seed=seed, capacity_bytes=capacity_bytes, used=True)
        steps = [job.run(_mkfs(profile, variant), stdout="mkfs.txt", limit_s=_MKFS_VIRTUAL_LIMIT_S), job.sync()]
        if variant.probe is not None:
            steps.append(job.run(variant.probe.argv, stdout="layout.txt", limit_s=3600))
        steps.append(job.save())
        boot = machine.Boot(
            steps=tuple(steps),
            drive=empty,
            save=dirty,
            seed=seed,
            files=variant.files(built.crates),
            memory_mib=_FORMAT_MEMORY_MIB,
            host_limit_s=_FORMAT_LIMIT_S,
        )
        try:
            machine.run(built.machine, boot, out, watch=watch)
        except Failure as failure:
            printed = out / "mkfs.txt"
            said = printed.read_text(errors="replace").splitlines()[-5:] if printed.exists() else []
            raise Failure(f"formatting for {variant.name}: {failure}", detail=[*said, *failure.detail]) from None
        layout = Layout() if variant.probe is None else variant.probe.parse((out / "layout.txt").read_text())
        clean = out / "clean.drive"
        build.tool_output(built.crates, "clean", dirty, "-o", clean)
        shutil.copyfile(clean, part / "x.drive")
        described = {
            "journal": layout.journal,
            "superblock": layout.superblock,
            "journal_bytes": layout.journal_bytes,
            "mkfs": _mkfs(profile, variant),
        }
        (part / "layout.json").write_text(json.dumps(described, indent=1) + "\n")


def _layout(described: dict[str, Any]) -> Layout:
    return Layout(
        journal=_extents(described["journal"]),
        superblock=_extents(described["superblock"]),
        journal_bytes=described["journal_bytes"],
    )


def _extents(pairs: list[list[int]]) -> tuple[Extent, ...]:
    return tuple((int(first), int(sectors)) for first, sectors in pairs)

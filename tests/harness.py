# SPDX-License-Identifier: MIT OR Apache-2.0
"""What tests that boot machines share: one `Bench` per test, with a folder that is gone afterwards.

def test_something(bench):
    drive = bench.formatted("ext4-lazy")
    run = bench.boot([*bench.mounted(drive, job.load("makedirs", {"count": 100}))], drive=drive.file, save=True)
    bench.assert_clean(run.saved)
"""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from shingle.build import build
from shingle.catalogue import drive, fs
from shingle.catalogue.drive import FormattedDrive, Profile
from shingle.catalogue.fs import FileSystem
from shingle.machine import job, machine
from shingle.machine.machine import Boot, Outcome
from shingle.machine.progress import Terminal
from shingle.verify import e2fsck

GIB = 1 << 30
# Small enough to format in a second or two, large enough for every file system.
CAPACITY_BYTES = 64 * GIB
PROFILE = "st8000as0002"
_E2FSCK_LIMIT_S = 300


@functools.cache
def built(variant: str = "main") -> build.Built:
    """A machine, built once for all tests that use it."""
    return build.everything(variant, progress=Terminal(Console(stderr=True)))


def wait_for(true: Callable[[], object], what: str, limit_s: float) -> None:
    """Comes back when it is true; a test that waits for longer fails."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"{what} within {limit_s} s"
        time.sleep(0.1)


@dataclass(frozen=True)
class Booted:
    """A finished machine and the files that it left."""

    outcome: Outcome
    out: Path
    saved: Path | None = None
    trace: Path | None = None

    @property
    def saved_drive(self) -> Path:
        assert self.saved is not None, "the test did not ask to save the drive"
        return self.saved

    @property
    def trace_file(self) -> Path:
        assert self.trace is not None, "the test did not ask for a trace"
        return self.trace

    def text(self, name: str) -> str:
        """A file that a step wrote beside the results."""
        return (self.out / name).read_text(errors="replace")

    def results(self) -> str:
        return self.text("results.jsonl")


class Bench:
    """Formats, boots, exports and checks, all inside one folder."""

    def __init__(self, folder: Path, variant: str = "main") -> None:
        self.folder = folder
        self.variant = variant
        self._numbers = itertools.count(1)

    @property
    def built(self) -> build.Built:
        return built(build.chosen(self.variant))

    def formatted(
        self,
        variant: str | FileSystem,
        *,
        profile: str | Profile = PROFILE,
        capacity_bytes: int = CAPACITY_BYTES,
        seed: int = 1,
    ) -> FormattedDrive:
        """A clean drive with a fresh file system, formatted by the ordinary machine."""
        chosen = fs.find(variant) if isinstance(variant, str) else variant
        disk = drive.find(profile) if isinstance(profile, str) else profile
        return drive.formatted(built(), disk, chosen, seed=seed, capacity_bytes=capacity_bytes)

    def altered(self, profile: str, **values: int) -> Profile:
        """A profile with other values of these keys, each of which must occur in it once."""
        text = drive.find(profile).path.read_text()
        for key, value in values.items():
            text, count = re.subn(rf"^{key} = {{ value = [^,]+,", f"{key} = {{ value = {value},", text, flags=re.M)
            assert count == 1, f"{profile} has {count} lines for {key}"
        path = self._path("toml")
        path.write_text(text)
        return Profile(profile, path, tomllib.loads(text))

    def empty(self, *, profile: str | Profile = PROFILE, capacity_bytes: int = CAPACITY_BYTES, seed: int = 1) -> Path:
        """A drive that holds nothing."""
        target = self._path("drive")
        chosen = drive.find(profile) if isinstance(profile, str) else profile
        drive.create(self.built.crates, chosen, target, seed=seed, capacity_bytes=capacity_bytes)
        return target

    def mounted(
        self, formatted: FormattedDrive, *steps: job.Step, options: str = "", kind: str = "ext4"
    ) -> list[job.Step]:
        """The steps between a mount and an unmount, with the drive told its classes."""
        return [*formatted.classes(), job.mount(kind, options), *steps, job.umount()]

    def boot(
        self,
        steps: Sequence[job.Step],
        *,
        drive: Path | None = None,
        save: bool = False,
        trace: bool = False,
        boot: Boot | None = None,
        **changes: object,
    ) -> Booted:
        """Boots a machine for these steps; `changes` are fields of `Boot` (seed, cut, memory_mib, …).

        With `save`, the drive is saved when the steps are done, unless a step does so itself.
        """
        if save and job.save() not in steps:
            steps = [*steps, job.save()]
        out = self._path("out")
        out.mkdir()
        saved = self._path("drive") if save else None
        traced = self._path("trace") if trace else None
        wanted = replace(boot or Boot(steps=()), steps=tuple(steps), drive=drive, save=saved, trace=traced)
        wanted = replace(wanted, **changes)  # type: ignore[arg-type]
        return Booted(machine.run(self.built.machine, wanted, out), out, saved, traced)

    def exported(self, drive_file: Path) -> Path:
        """What the next power-on would read, as a sparse image."""
        image = self._path("img")
        drive.export(self.built.crates, drive_file, image)
        return image

    def recovered(self, drive_file: Path) -> Path:
        """A copy of the image with its ext4 journal replayed, as the next mount would."""
        image = self.exported(drive_file)
        done = subprocess.run(
            [*e2fsck.REPLAY, str(image)],
            capture_output=True, text=True, timeout=_E2FSCK_LIMIT_S, check=False,
        )  # fmt: skip
        said = f"{' '.join(e2fsck.REPLAY)} did not only replay:\n{done.stdout}{done.stderr}"
        assert e2fsck.is_replayed(done.returncode, done.stdout), said
        return image

    def assert_clean(self, drive_file: Path, *, recover: bool = False) -> Path:
        """Stock `e2fsck -fn` finds nothing on the drive; returns the image that it looked at.

        `recover` first replays the journal of a copy, which a power cut leaves, and journal_lazy after an unmount, too:
        `e2fsck -fn` replays nothing and would look at what is at home.
        """
        image = self.recovered(drive_file) if recover else self.exported(drive_file)
        self.assert_image_clean(image)
        return image

    def assert_image_clean(self, image: Path, check: Sequence[str] = e2fsck.CHECK) -> None:
        done = subprocess.run(
            [*check, str(image)], capture_output=True, text=True, timeout=_E2FSCK_LIMIT_S, check=False
        )
        said = f"{' '.join(check)} is not content:\n{done.stdout}{done.stderr}"
        assert e2fsck.is_content(done.returncode, done.stdout), said

    def _path(self, suffix: str) -> Path:
        return self.folder / f"{next(self._numbers):02}.{suffix}"

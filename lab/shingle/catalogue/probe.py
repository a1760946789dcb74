# SPDX-License-Identifier: MIT OR Apache-2.0
"""Probes disks, real and simulated, and watches a real one: the front of `shingle-probe` (crates/probe).

The program does the work and talks to the terminal itself; this finds it, gives names to profiles, and shows a watch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shingle import process
from shingle.build import build
from shingle.catalogue import drive
from shingle.failure import Failure
from shingle.machine.progress import SILENT, Progress
from shingle.paths import ROOT

PAGE = ROOT / "docs/results/probe-recovery.md"
_SHOWN_LOOKS = 12
_COLOURS = {"cleaning": "yellow", "full": "red", "quiet": "green"}


def program(progress: Progress = SILENT) -> Path:
    return build.build_crates(progress=progress).probe


def disk(
    shingle_probe: Path,
    device: Path,
    *,
    destructive: Path | None = None,
    profile: Path | None = None,
    only: str | None = None,
    seed: int = 1,
    as_json: bool = False,
) -> int:
    """Probes a block device of this host; returns the program's status."""
    if destructive is not None:
        _last_word(device)
    again: list[str | Path] = ["--destructive", destructive] if destructive is not None else []
    return _run([shingle_probe, "disk", device, *again, *_options(profile, only, seed, as_json)])


def contents(device: Path) -> str:
    """The disk and what is on it, by lsblk; empty if that knows nothing of it."""
    columns = "NAME,SIZE,MODEL,FSTYPE,LABEL,MOUNTPOINTS"
    done = subprocess.run(["lsblk", "-o", columns, device], capture_output=True, text=True, check=False)
    return done.stdout


def _last_word(device: Path) -> None:
    """Names what will be lost, and asks a person at a terminal."""
    sys.stderr.write(f"This is {device}; all that is on it will be lost:\n{contents(device)}")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write("Write to it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(f"{device} is left as it is.")


def simulated(
    shingle_probe: Path,
    name: str,
    *,
    profile: Path | None = None,
    only: str | None = None,
    seed: int = 1,
    as_json: bool = False,
) -> int:
    """Probes a drive of drives/, in virtual time; returns the program's status."""
    return _run([shingle_probe, "simulated", drive.find(name).path, *_options(profile, only, seed, as_json)])


def table(shingle_probe: Path) -> int:
    """Probes every drive of drives/: what was configured and what was found go to docs/results/probe-recovery.md."""
    paths = [each.path for each in drive.profiles().values()]
    return _run([shingle_probe, "table", *sorted(paths), "--page", PAGE])


def watch_device(shingle_probe: Path, device: Path, *, every_s: float = 5.0, looks: int | None = None) -> None:
    """Shows what a disk seems to be doing until it is stopped; on a pipe, one JSON line a look."""
    seen = _looks(shingle_probe, device, every_s, looks)
    if not sys.stdout.isatty():
        for look in seen:
            sys.stdout.write(json.dumps(look) + "\n")
            sys.stdout.flush()
        return
    last: list[dict[str, Any]] = []
    waiting = Text(f"{device}: a read every {every_s:g} s; the first look takes as long")
    with Live(waiting, console=Console(highlight=False), auto_refresh=False) as live:
        for look in seen:
            last = [*last, look][-_SHOWN_LOOKS:]
            live.update(view(device, last), refresh=True)


def view(device: Path, looks: Sequence[dict[str, Any]]) -> RenderableType:
    """The last looks as a table, and what they speak for."""
    shown = Table(title=str(device), title_justify="left")
    for heading in ("s", "read ms", "others: reads/s", "writes/s", "MB/s written", "ms a write", "queued"):
        shown.add_column(heading, justify="right")
    for each in looks:
        look = each["look"]
        shown.add_row(
            f"{look['at_s']:.0f}",
            f"{look['read_ms']:.1f}",
            f"{look['other_reads_per_s']:.1f}",
            f"{look['other_writes_per_s']:.1f}",
            f"{look['written_per_s'] / 1e6:.1f}",
            f"{look['write_ms']:.1f}",
            str(look["in_flight"]),
        )
    newest = looks[-1]
    return Group(shown, Text(newest["sentence"], style=_COLOURS.get(newest["verdict"], "")))


def _options(profile: Path | None, only: str | None, seed: int, as_json: bool) -> list[str | Path]:
    options: list[str | Path] = ["--seed", str(seed)]
    if profile is not None:
        options += ["--profile", profile]
    if only is not None:
        options += ["--only", only]
    return [*options, "--json"] if as_json else options


def _run(argv: Sequence[str | Path]) -> int:
    # In the terminal's process group: Ctrl-C reaches the program, which then says what it found so far.
    with process.started(argv, stdin=None, foreground=True) as running:
        while True:
            try:
                return running.wait()
            except KeyboardInterrupt:
                continue


def _looks(shingle_probe: Path, device: Path, every_s: float, looks: int | None) -> Iterator[dict[str, Any]]:
    count = ["--looks", str(looks)] if looks is not None else []
    argv: list[str | Path] = [shingle_probe, "watch", device, "--every", str(every_s), *count]
    with process.started(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        for line in running.stdout:
            yield json.loads(line)
        if running.wait() not in (0, 130):
            sentence = running.stderr.read().decode(errors="replace").strip().removeprefix("shingle-probe: ")
            raise Failure(sentence, status=running.returncode)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The guest's job: steps as data (seam 1 of docs/reference/interfaces.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

Step = dict[str, object]

DEVICE = "/dev/shd0"
DISKS_MAX = 16
MOUNT_POINT = "/mnt"
# Where the guest sees the run's folder.
OUT = "/run/out"


def mount(fs: str, options: str = "", *, directory: str = MOUNT_POINT, may_fail: bool = False) -> Step:
    # What is in memory has no disk: tools would take it for mounted.
    device = "none" if fs == "tmpfs" else DEVICE
    step: Step = {"do": "mount", "fs": fs, "options": options, "dir": directory, "device": device}
    return step | {"may_fail": True} if may_fail else step


def umount(*, directory: str = MOUNT_POINT, phase: str | None = None) -> Step:
    return _in_phase({"do": "umount", "dir": directory}, phase)


def load(name: str, args: Mapping[str, object], *, directory: str = MOUNT_POINT, phase: str | None = None) -> Step:
    return _in_phase({"do": "load", "name": name, "dir": directory, "args": dict(args)}, phase)


def sync(*, phase: str | None = None) -> Step:
    return _in_phase({"do": "sync"}, phase)


def drop_caches() -> Step:
    return {"do": "drop_caches"}


def wait_clean(*, limit_s: int, phase: str | None = None) -> Step:
    return _in_phase({"do": "wait_clean", "limit_s": limit_s}, phase)


def run(
    argv: Sequence[str],
    *,
    stdout: str | None = None,
    limit_s: int | None = None,
    env: Mapping[str, str] | None = None,
    phase: str | None = None,
    may_fail: bool = False,
) -> Step:
    """Runs a program of the host inside the machine; `stdout` names a file beside the results."""
    step: Step = {"do": "exec", "argv": list(argv)}
    if stdout is not None:
        step["stdout"] = stdout
    if limit_s is not None:
        step["limit_s"] = limit_s
    if env is not None:
        step["env"] = dict(env)
    if may_fail:
        step["may_fail"] = True
    return _in_phase(step, phase)


def command(
    argv: Sequence[str], *, env: Mapping[str, str], stdout: str, stderr: str, limit_s: float, phase: str
) -> Step:
    """Runs the user's own command in the mounted file system; `stdout` and `stderr` are files beside the results."""
    return {
        "do": "command",
        "name": phase,
        "argv": list(argv),
        "env": dict(env),
        "cwd": MOUNT_POINT,
        "stdout": stdout,
        "stderr": stderr,
        "limit_s": limit_s,
        "phase": phase,
        "may_fail": True,
    }


def end_programs(*, but: Sequence[str], phase: str) -> Step:
    return {"do": "end_programs", "but": list(but), "phase": phase}


def journal(extents: Sequence[tuple[int, int]]) -> Step:
    return {"do": "journal", "extents": [list(extent) for extent in extents]}


def superblock(extents: Sequence[tuple[int, int]]) -> Step:
    return {"do": "superblock", "extents": [list(extent) for extent in extents]}


def write(path: str, text: str) -> Step:
    return {"do": "write", "path": path, "text": text}


def read(path: str, *, phase: str | None = None) -> Step:
    return _in_phase({"do": "read", "path": path}, phase)


def sleep(seconds: float) -> Step:
    return {"do": "sleep", "seconds": seconds}


def mark(text: str) -> Step:
    return {"do": "mark", "text": text}


def save(*, disk: int = 0) -> Step:
    return {"do": "save", **({"disk": disk} if disk else {})}


def shell(*, directory: str) -> Step:
    return {"do": "shell", "dir": directory}


def background(steps: Sequence[Step]) -> Step:
    return {"do": "background", "steps": list(steps)}


def stop_background() -> Step:
    return {"do": "stop_background"}


def put(out: Path, steps: Sequence[Step], *, disks: int = 1) -> None:
    """Writes the job where the guest looks for it."""
    told = {"steps": list(steps), **({"disks": disks} if disks > 1 else {})}
    (out / "job.json").write_text(json.dumps(told, indent=1) + "\n")


def _in_phase(step: Step, phase: str | None) -> Step:
    return step if phase is None else step | {"phase": phase}

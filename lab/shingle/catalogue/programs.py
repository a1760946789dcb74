# SPDX-License-Identifier: MIT OR Apache-2.0
"""A plan of several experiments: programs of in_machine/programs.py, one after the other, each in its own folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shingle.catalogue import workload
from shingle.machine import job
from shingle.paths import IN_MACHINE

SCRIPT = IN_MACHINE / "programs.py"
_REPORT = "/run/report.json"
_LIMIT_S = 7 * 24 * 3600


@dataclass(frozen=True)
class Programs(workload.Plan):
    """Each program prepares its folder, and works when the disk is quiet."""

    def files(self) -> tuple[Path, ...]:
        return (SCRIPT,)

    # Phases that are none of the script's.
    beside: tuple[str, ...] = ()

    def work(self) -> list[job.Step]:
        """All but the unmount."""
        clean = job.wait_clean(limit_s=_LIMIT_S)
        found = []
        for name in (each for each in self.names if each not in self.beside):
            told = (name, f"{job.MOUNT_POINT}/{name}", f"{self.scales[name]:g}", str(self.seed))

            def step(do: str, *more: str, phase: str | None = None, told: tuple[str, ...] = told) -> job.Step:
                argv = ("/usr/bin/python3", "-I", f"{job.OUT}/{SCRIPT.name}", do, *told, *more)
                return job.run(argv, limit_s=_LIMIT_S, phase=phase)

            found += [
                step("prepare"), job.sync(), job.drop_caches(), clean,
                step("work", _REPORT, phase=name), job.sync(phase=name), job.read(_REPORT, phase=name),
                job.drop_caches(), clean,
            ]  # fmt: skip
        return found

    def steps(self) -> list[job.Step]:
        return [*self.work(), job.umount(phase=workload.UNMOUNT), job.wait_clean(limit_s=_LIMIT_S)]


def plan(names: tuple[str, ...], *, scale: float, seed: int) -> Programs:
    """The same scale for all."""
    return Programs(names, dict.fromkeys(names, scale), seed)

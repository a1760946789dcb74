# SPDX-License-Identifier: MIT OR Apache-2.0
"""A prompt inside the simulated machine."""

from __future__ import annotations

import sys

from shingle.build import build
from shingle.catalogue.drive import FormattedDrive
from shingle.catalogue.fs import FileSystem
from shingle.failure import Failure
from shingle.machine import job, machine
from shingle.paths import run_folder

_MEMORY_MIB = 2048


def interactive(built: build.Built, variant: FileSystem, formatted: FormattedDrive, *, seed: int) -> None:
    """Mounts the file system and hands the terminal over until the shell exits."""
    if not sys.stdin.isatty():
        raise Failure("`shell` needs a terminal.", status=2)
    steps = [*formatted.classes(), *variant.mount_steps()]
    steps += [job.shell(directory=job.MOUNT_POINT), *variant.served(job.umount())]
    with run_folder() as scratch:
        boot = machine.Boot(
            steps=tuple(steps),
            drive=formatted.file,
            files=variant.files(built.crates),
            seed=seed,
            memory_mib=_MEMORY_MIB,
            interactive=True,
            kernel_arguments=("quiet",),
        )
        machine.run(built.machine, boot, scratch)

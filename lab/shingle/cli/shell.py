# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle shell`: a prompt inside the machine."""

from __future__ import annotations

import click

from shingle.build import build
from shingle.catalogue import drive
from shingle.catalogue import fs as file_systems
from shingle.cli.base import SEED, err, examples
from shingle.machine.progress import Terminal
from shingle.runs import shell


@click.command("shell", epilog=examples("shell", "shell --drive wd5000ys --fs xfs"))
@click.option("--drive", "drive_name", default="st8000as0002", show_default=True)
@click.option("--fs", "fs_name", default="ext4-lazy", show_default=True)
@click.option("--seed", type=SEED, default=1, show_default=True)
def command(drive_name: str, fs_name: str, seed: int) -> None:
    """A prompt inside the machine, the file system mounted at /mnt. Nothing is kept."""
    profile, variant = drive.find(drive_name), file_systems.find(fs_name)
    if not variant.one_file_per_zone:
        file_systems.check_suits(variant, profile.name, host_managed=drive.is_host_managed(profile))
    file_systems.check_fits(variant, profile.name, drive.capacity_of(profile))
    with Terminal(err) as progress:
        built = build.everything(progress=progress)
        drive.check(built.crates, profile)
        formatted = drive.formatted(built, profile, variant, seed=seed, progress=progress)
    shell.interactive(built, variant, formatted, seed=seed)

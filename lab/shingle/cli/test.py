# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle test`: everything that can be checked."""

from __future__ import annotations

import sys

import click

from shingle.checks import suite
from shingle.cli.base import examples


@click.command("test", epilog=examples("test", "test --long", "test determinism power_cut", "test -- -x -k fsck"))
@click.option("--long", "is_long", is_flag=True, help="Also what takes longer: 70 minutes of one core more.")
@click.option("--stock-kernel", is_flag=True, help="Only the package ext4lazy, on Debian's own kernel under QEMU.")
@click.option("--clients", is_flag=True, help="Only RocksDB, ffmpeg, pjdfstest and others, on SAFS.")
@click.option("--browser", is_flag=True, help="Only the report, in a real browser without a screen.")
@click.option("--slurm", is_flag=True, help="Only a set of experiments on Slurm, which is started on this host.")
@click.argument("names", nargs=-1)
def command(is_long: bool, names: tuple[str, ...], **parts: bool) -> None:
    """Check everything: style, types, units, the machine, the kernel.

    NAMES picks test files by a part of their name; what begins with a dash goes to pytest.
    """
    sys.exit(suite.main(names, long=is_long, parts=[name for name, asked_for in parts.items() if asked_for]))

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle test`: everything that can be checked."""

from __future__ import annotations

import sys

import click

from shingle.checks import suite
from shingle.cli.base import examples


@click.command("test", epilog=examples("test", "test --sanitize", "test determinism power_cut", "test -- -x -k fsck"))
@click.option("--sanitize", is_flag=True, help="The long stress in a KASAN, lockdep and PREEMPT kernel.")
@click.option("--stock-kernel", is_flag=True, help="Only the package ext4lazy, on Debian's own kernel under QEMU.")
@click.option("--clients", is_flag=True, help="Only RocksDB, ffmpeg, pjdfstest and others, on SAFS.")
@click.option("--browser", "in_browser", is_flag=True, help="Only the report, in a real browser without a screen.")
@click.argument("names", nargs=-1)
def command(sanitize: bool, stock_kernel: bool, clients: bool, in_browser: bool, names: tuple[str, ...]) -> None:
    """Check everything: style, types, units, the machine, the kernel.

    NAMES picks test files by a part of their name; what begins with a dash goes to pytest.
    """
    sys.exit(suite.main(names, sanitize=sanitize, stock_kernel=stock_kernel, clients=clients, in_browser=in_browser))

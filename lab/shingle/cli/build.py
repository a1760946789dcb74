# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle build`: the machine, built now."""

from __future__ import annotations

import click

from shingle.build import build
from shingle.cli.base import err, examples, out
from shingle.machine.progress import Terminal


@click.command("build", epilog=examples("build", "build sanitize", "build mutant:NAME"))
@click.argument("flavours", nargs=-1)
def command(flavours: tuple[str, ...]) -> None:
    """Build the machine now, and say where it is."""
    with Terminal(err) as progress:
        for flavour in flavours or ("main",):
            built = build.everything(flavour, progress=progress)
            out.print(f"{flavour}: Linux {built.kernel.version}, {built.kernel.linux}", soft_wrap=True)

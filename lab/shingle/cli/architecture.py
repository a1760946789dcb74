# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle architecture`: the folders, and what imports what."""

from __future__ import annotations

import click

from shingle.checks import architecture
from shingle.cli.base import examples, out


@click.command("architecture", epilog=examples("architecture", "architecture --write"))
@click.option("--write", is_flag=True, help="Put it into ARCHITECTURE.md.")
def command(write: bool) -> None:
    """Show the project's folders, and which package of the lab and which crate needs which."""
    if write:
        architecture.PAGE.write_text(architecture.page_with(architecture.PAGE.read_text()))
    out.print(architecture.markdown().rstrip(), soft_wrap=True, markup=False)

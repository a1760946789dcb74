# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle file-systems`: what there is, and what works on which drive."""

from __future__ import annotations

import click

from shingle.catalogue import fs as file_systems
from shingle.catalogue import suitability
from shingle.cli.base import examples, out


@click.command("file-systems", epilog=examples("file-systems", "file-systems --drives"))
@click.option("--drives", "by_drive", is_flag=True, help="Which works on which drive, as docs/design/zones.md has it.")
@click.option("--write", is_flag=True, help="With --drives: put the table into docs/design/zones.md.")
def command(by_drive: bool, write: bool) -> None:
    """List the file-system variants, or which works on which drive."""
    if by_drive:
        if write:
            suitability.write_page()
        out.print(suitability.markdown().rstrip(), soft_wrap=True, markup=False)
        return
    for variant in file_systems.FILE_SYSTEMS.values():
        out.print(f"{variant.name:16} {variant.summary}", soft_wrap=True)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle clean`: empties the cache."""

from __future__ import annotations

import click

from shingle.build import clean as cleaning
from shingle.cli.base import examples, out


@click.command("clean", epilog=examples("clean", "clean --all"))
@click.option("--all", "everything", is_flag=True, help="Also the compiler's cache, and build/.")
def command(everything: bool) -> None:
    """Remove built kernels and formatted drives from the cache."""
    freed = cleaning.clean(everything=everything)
    out.print(f"freed {freed / (1 << 20):,.0f} MiB")

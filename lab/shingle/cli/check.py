# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle check`: style, types and units in about a minute."""

from __future__ import annotations

import sys

import click

from shingle.checks import suite
from shingle.cli.base import examples


@click.command("check", epilog=examples("check", "check -- -x"))
@click.argument("options", nargs=-1)
def command(options: tuple[str, ...]) -> None:
    """Check style, types, prose, walls, generated pages and the lab's units in a minute. OPTIONS are pytest's."""
    sys.exit(suite.main([*suite.quick(), "-q", "-k", "not clippy", *options]))

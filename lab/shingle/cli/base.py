# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the commands have in common."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console

from shingle.failure import Failure, unknown_name

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

# As the drive takes it.
SEED = click.IntRange(0, (1 << 64) - 1)


def examples(*lines: str) -> str:
    """The end of a command's help: what to type, without the program's name."""
    return "\b\nExamples:\n" + "\n".join(f"  ./shingle {line}" for line in lines)


def check_folder(folder: Path) -> None:
    """Refuses, before anything long begins, a folder in which nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}; expected a folder to draw into.", status=2) from None


def comma_separated(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


class Group(click.Group):
    """A group that answers a wrong command with the right ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


record_option = click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Add one JSON line per phase to this file (docs/reference/records.md).",
)  # fmt: skip
wide_option = click.option("--wide", is_flag=True, help="All columns of the table, whatever the terminal's width.")
figure_option = click.option(
    "--figure", "figure_folder", type=click.Path(file_okay=False, path_type=Path),
    help="Draw the runs into this folder, as SVG and PNG.",
)  # fmt: skip

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the commands have in common."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem
from rich.console import Console

from shingle.catalogue import drive, workload
from shingle.catalogue import fs as file_systems
from shingle.failure import Failure, unknown_name
from shingle.machine.progress import Terminal
from shingle.runs import experiment, run

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_Command = Callable[..., None]

# What a shell sets to ask for completions.
COMPLETION = "_SHINGLE_COMPLETE"
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
        raise Failure(f"{folder}: {error.strerror}; expected a folder to write into.", status=2) from None


def comma_separated(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


class _Names(click.ParamType[str]):
    """A name, or several with commas between, which a shell can complete; whether it is known is checked elsewhere."""

    def __init__(self, name: str, known: Callable[[], Iterable[str]]) -> None:
        self.name = name
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{each}") for each in self._known() if each.startswith(begun)]


DRIVE = _Names("name", drive.profiles)
FILE_SYSTEMS = _Names("names", lambda: file_systems.FILE_SYSTEMS)
WORKLOADS = _Names("names", lambda: workload.WORKLOADS)
EXPERIMENT = _Names("name", lambda: (each.split("-")[0] for each in experiment.names()))


def _quiet(context: click.Context, _: click.Parameter, asked: bool) -> None:
    err.quiet = err.quiet or asked


def _verbose(context: click.Context, _: click.Parameter, asked: bool) -> None:
    Terminal.verbose = Terminal.verbose or asked


def add_verbosity(command: click.Command) -> None:
    """Gives a command, and all commands below it, --quiet and --verbose."""
    command.params += [
        click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=_quiet, help="Show no progress."),
        click.Option(
            ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_verbose,
            help="Progress as lines that stay, one every five seconds.",
        ),
    ]  # fmt: skip
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        add_verbosity(each)


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


def host_options(command: _Command) -> _Command:
    """An option of the command line for each that a run's simulated host has."""
    for each in reversed(run.host_options()):
        values = click.IntRange(each.metadata["least"], each.metadata["most"])
        option = click.option(
            f"--{each.name.replace('_', '-')}", type=values, default=each.default,
            show_default=True, help=each.metadata["help"],
        )  # fmt: skip
        command = option(command)
    return command

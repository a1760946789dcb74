# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line: its verbs, each in a file of its own, and every way out of the program."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

import click

from shingle import process
from shingle.build import build as machine_build
from shingle.cli import (
    architecture,
    build,
    cell,
    cells,
    check,
    claims,
    clean,
    compare,
    completion,
    coverage,
    crash,
    demo,
    draw,
    drives,
    equal,
    execute,
    figures,
    file_systems,
    lazy,
    matrix,
    probe,
    record_build,
    replay,
    report,
    run,
    shell,
    show,
    test,
    torture,
    watch,
    workloads,
)
from shingle.cli.base import COMPLETION, Group, add_verbosity, err, examples
from shingle.failure import Failure
from shingle.paths import ROOT

_EXIT_INTERRUPTED = 130
# What a host lacks is no fault of the program, and no traceback.
_OF_THE_HOST = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
_VERBS = (
    architecture, build, cell, cells, check, claims, clean, compare, completion, coverage, crash, demo, draw, drives,
    equal, execute, figures, file_systems, lazy, matrix, probe, record_build, replay, report, run, shell, show, test,
    torture, watch, workloads,
)  # fmt: skip


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """The commit, with what is changed since, and the kernel that it is made for."""
    if asked:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        commit = said.stdout.strip() or "of no commit"
        click.echo(f"Shingle {commit}, for Linux {machine_build.pinned_version()}")
        context.exit()


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=examples("demo", "test"))
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say which.")
def cli() -> None:
    """Linux's own file systems, in virtual time, on simulated shingled disks."""


for _verb in _VERBS:
    cli.add_command(_verb.command)
    add_verbosity(_verb.command)


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    process.end()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def main() -> None:
    """Runs the command line; every way out is a status and at most one sentence."""
    # A shell that runs us in the background has SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    try:
        cli.main(prog_name="./shingle", standalone_mode=False, complete_var=COMPLETION)
    except Failure as failure:
        err.quiet = False
        for text in failure.detail:
            err.print(f"  {text}", style="dim", markup=False, soft_wrap=True)
        err.print(f"shingle: {failure}", markup=False, soft_wrap=True)
        sys.exit(failure.status)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        err.print("shingle: stopped.")
        sys.exit(_EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno not in _OF_THE_HOST:
            raise
        err.print(f"shingle: {error.filename or 'a file'}: {error.strerror}.", markup=False, soft_wrap=True)
        sys.exit(1)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle completion`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from shingle.cli.base import COMPLETION, out


@click.command("completion", epilog='\b\nFor this session:\n  eval "$(./shingle completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete ./shingle: its commands, options, drives, file systems, workloads."""
    kind = get_completion_class(shell)
    assert kind is not None
    out.file.write(kind(context.find_root().command, {}, "shingle", COMPLETION).source())

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle watch`: what drives are doing, live."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from shingle.catalogue import probe
from shingle.cli.base import err, examples, out
from shingle.machine import watch
from shingle.machine.progress import Terminal


@click.command("watch", epilog=examples("watch", "watch /dev/sdb"))
@click.argument("device", required=False, type=click.Path(path_type=Path))
def command(device: Path | None) -> None:
    """Show what the drives of the running simulations are doing, or a real disk, until you press Ctrl-C.

    Of a real disk, DEVICE, only latencies can be seen: a small read now and then, and what others ask of it.
    """
    with contextlib.suppress(KeyboardInterrupt):
        if device is None:
            watch.runs(out)
            return
        with Terminal(err) as progress:
            program = probe.program(progress)
        probe.watch_device(program, device)

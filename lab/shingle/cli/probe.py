# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle probe`: what kind of drive a disk is."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shingle.catalogue import drive, probe
from shingle.cli.base import SEED, err, examples
from shingle.machine.progress import Terminal


@click.command(
    "probe",
    epilog=examples(
        "probe /dev/sdb",
        "probe /dev/sdb --destructive /dev/sdb --profile mine.toml",
        "probe --drive st8000as0002 --only bands,cleaning",
        "probe --table",
    ),
)
@click.argument("device", required=False, type=click.Path(path_type=Path))
@click.option(
    "--destructive", metavar="DEVICE", type=click.Path(path_type=Path),
    help="The device once more: what is on it will be lost. Without, it is only read.",
)  # fmt: skip
@click.option("--drive", "drive_name", help="A simulated drive instead of a device (`./shingle drives` lists them).")
@click.option(
    "--profile", "profile_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Write a drive profile that the lab can run.",
)  # fmt: skip
@click.option("--only", metavar="TEST,...", help="Only these tests, and those they need (docs/guide/probe.md).")
@click.option("--seed", type=SEED, default=1, show_default=True, help="The same seed, the same requests.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--table", is_flag=True, help="Probe every simulated drive and renew docs/results/probe-recovery.md.")
def command(
    device: Path | None,
    destructive: Path | None,
    drive_name: str | None,
    profile_file: Path | None,
    only: str | None,
    seed: int,
    as_json: bool,
    table: bool,
) -> None:
    """Find out from timing alone what kind of drive a disk is.

    Whether it is conventional or shingled, its persistent cache, its bands, and when it cleans.
    """
    if sum((device is not None, drive_name is not None, table)) != 1:
        raise click.UsageError("expected one of DEVICE, --drive NAME and --table, and no two of them.")
    if destructive is not None and device is None:
        raise click.UsageError("--destructive is for a DEVICE.")
    if drive_name is not None:
        drive.find(drive_name)
    with Terminal(err) as progress:
        program = probe.program(progress)
    if table:
        status = probe.table(program)
    elif device is not None:
        status = probe.disk(
            program, device, destructive=destructive, profile=profile_file, only=only, seed=seed, as_json=as_json
        )
    else:
        assert drive_name is not None
        status = probe.simulated(program, drive_name, profile=profile_file, only=only, seed=seed, as_json=as_json)
    sys.exit(status)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle drives`: the disks, and the front of the native program `shingle-drive`, which does the work."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from shingle.build import build
from shingle.catalogue import drive
from shingle.cli.base import SEED, examples, out
from shingle.cli.drive_tool import common_options, crates, run_tool
from shingle.evidence import validation_page
from shingle.failure import Failure, unknown_name
from shingle.paths import ROOT

_DRIVES = ROOT / "drives"


class _Drives(click.Group):
    """A group in which the name of a drive, or a profile of one's own, is a command: it shows the drive."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        first = args[0] if args else ""
        if first and not first.startswith("-") and first not in self.commands:
            if first not in drive.profiles() and not first.endswith(".toml"):
                raise unknown_name("drive or command", first, [*self.commands, *drive.profiles()])
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@click.group(
    "drives",
    cls=_Drives,
    invoke_without_command=True,
    epilog=examples(
        "drives",
        "drives st8000as0002",
        "drives mine.toml",
        "drives validate --full",
        "drives load st8000as0002 --op randwrite --block 4k --range 512G --count 500000",
    ),
)
@click.pass_context
def command(context: click.Context) -> None:
    """List the drives that can be simulated, or show, load and validate one."""
    if context.invoked_subcommand is None:
        for profile in drive.profiles().values():
            size = drive.capacity_of(profile) / 1e12
            out.print(f"{profile.name:16} {size:6.2f} TB  {profile.text('model')}", soft_wrap=True)


@command.command(epilog=examples("drives show st8000as0002"))
@click.argument("name")
def show(name: str) -> None:
    """Show a drive: every parameter with its source."""
    out.print(drive.find(name).path.read_text().rstrip(), soft_wrap=True, markup=False)


@command.command(
    epilog=examples(
        "drives validate st8000as0002",
        "drives validate --full --page docs/results/drive-validation.md --figure docs/figures "
        "--record results/drives/validation.jsonl",
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--full", is_flag=True, help="Also what takes longer than a moment, and the sensitivity to the unknown.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows here, as JSON lines.")
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), help="Write drive-validation.md here.")
@click.option("--figure", type=click.Path(file_okay=False, path_type=Path), help="Draw the page's figures here.")
def validate(names: tuple[str, ...], full: bool, record: Path | None, page: Path | None, figure: Path | None) -> None:
    """Compare drives with what was measured on real ones; look for mistakes in a profile of your own (x.toml)."""
    profiles = [drive.find(name) for name in names]
    if page is not None and (names or not full):
        raise Failure("--page shows all drives and all rows: it needs --full and no NAME.", status=2)
    for own in (each for each in profiles if drive.is_own(each)):
        drive.check(crates(), own)
        out.print(
            f"{own.path.name}: no mistake in it. No measurements of it are known to compare it with.", soft_wrap=True
        )
    names = tuple(each.name for each in profiles if not drive.is_own(each))
    if profiles and not names:
        return
    with tempfile.TemporaryDirectory(prefix="shingle-") as scratch:
        rows = Path(scratch) / "rows.jsonl"
        options = ["--full"] if full else []
        run_tool("validate", "--drives", _DRIVES, *options, "--record", rows, *names)
        text = rows.read_text()
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(text)
    if page is not None:
        page.write_text(validation_page.page([json.loads(line) for line in text.splitlines()]))
    if figure is not None:
        for path in validation_page.draw(_curves(names), figure):
            out.print(f"figure: {path}", soft_wrap=True)


def _curves(names: tuple[str, ...]) -> list[dict[str, Any]]:
    text = build.tool_output(crates(), "curves", "--drives", _DRIVES, *names)
    return [json.loads(line) for line in text.splitlines()]


@command.command(
    epilog=examples("drives load st8000as0002 --op randwrite --block 4k --range 512G --count 500000 --record x.jsonl")
)
@click.argument("name")
@click.option("--op", type=click.Choice(["randwrite", "randread", "write", "read"]), required=True)
@click.option("--block", default="4k", show_default=True, help="Size of a request.")
@click.option("--range", "size", help="From the drive's start on; all of it if not given.")
@click.option("--count", type=click.IntRange(1), default=100_000, show_default=True, help="Requests.")
@click.option("--depth", type=click.IntRange(1), default=1, show_default=True, help="Requests at a time.")
@click.option("--seed", type=SEED, default=1, show_default=True)
@click.option("--new", is_flag=True, help="A factory-new drive; otherwise every band was written before.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Add JSON lines to this file.")
def load(
    name: str, op: str, block: str, size: str | None, count: int, depth: int, seed: int, new: bool, record: Path | None
) -> None:
    """Make random or sequential requests, and show latencies, stalls and the cache over time. No kernel runs."""
    options: list[str | Path] = ["--op", op, "--block", block, "--count", str(count), "--depth", str(depth)]
    options += [] if size is None else ["--range", size]
    profile = drive.find(name)
    drive.check(crates(), profile)
    run_tool("load", "--profile", profile.path, *options, *common_options(seed, new, record))

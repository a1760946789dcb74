# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle lazy`: what leaves the lab of journal_lazy: packages, patches for review, the owners' program."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import click

from shingle.build import build
from shingle.cli.base import SEED, comma_separated, err, examples, out
from shingle.debian import stock_kernel
from shingle.evidence import claims_page, table
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.paths import BUILD, ROOT
from shingle.review import series, stages
from shingle.verify import owner_cuts, owner_volumes

_PROGRAM = ROOT / "packaging/tools/ext4lazy.py"


@click.group(
    "lazy",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples("lazy advise /dev/sdb1", "lazy package build/deb"),
)
def command() -> None:
    """journal_lazy outside the lab: the package, patches for review, care of volumes (docs/guide/owners-guide.md)."""


def _pass_on(name: str, text: str) -> None:
    @command.command(name, help=text, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def passed_on(arguments: tuple[str, ...]) -> None:
        sys.exit(subprocess.run(["/usr/bin/python3", "-I", _PROGRAM, name, *arguments], check=False).returncode)


for _name, _text in {
    "advise": "Say what a volume lacks for journal_lazy, and how long converting takes. Only reads.",
    "convert": "Make a volume ready for journal_lazy; run again, it goes on.",
    "status": "Show a volume's log: how much is used and needed, and how long a replay takes.",
    "drain": "Send everything home: plain ext4 for every program.",
    "check": "Replay the log in a copy and run e2fsck on it.",
}.items():
    _pass_on(_name, _text)


@command.command("package")
@click.argument("folder", default=BUILD / "packages", type=click.Path(file_okay=False, path_type=Path))
def package_command(folder: Path) -> None:
    """Build the Debian packages ext4lazy-dkms and ext4lazy-tools into FOLDER."""
    with Terminal(err) as progress, progress.task("building the packages"):
        built = stock_kernel.packages(folder)
    for path in built:
        out.print(str(path), soft_wrap=True)


@command.command("cuts")
@click.option("--volume", "titles", help="Only these volumes, separated by commas, as in convert/ext3.")
@click.option("--states", type=click.IntRange(1), default=200, show_default=True, help="Distinct states in all.")
@click.option("--kills", type=click.IntRange(0), default=0, show_default=True, help="So many kills, too.")
@click.option("--disk", type=click.Choice(owner_cuts.DISKS), help="Only this kind of disk.")
@click.option("--seed", type=SEED, default=1, show_default=True, help="The same seed, the same states.")
@click.option("--replay", metavar="STATE", help="Treat one state by its name, which a failure prints.")
@click.option(
    "--keep", type=click.Path(dir_okay=False, path_type=Path), help="With --replay: write the state as a raw image."
)
@click.option("--list", "listed", is_flag=True, help="List the volumes.")
@click.option(
    "--write", is_flag=True, help="Put results/owner-cuts.jsonl into docs/results/owner-cuts.md; run nothing."
)
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path), help="Add JSON lines to this file."
)
def cuts_command(
    titles: str | None,
    states: int,
    kills: int,
    disk: str | None,
    seed: int,
    replay: str | None,
    keep: Path | None,
    listed: bool,
    write: bool,
    record_file: Path | None,
) -> None:
    """Cut the power at every write of convert and drain, and follow their advice (docs/design/crash-explorer.md)."""
    if write:
        owner_cuts.write_page()
        return
    if listed:
        for each in owner_volumes.KINDS.values():
            out.print(f"{each.title:20} {each.summary}", soft_wrap=True)
        return
    usual = [title for title, kind in owner_volumes.KINDS.items() if not kind.asked_for]
    kinds = [owner_volumes.find(title) for title in (comma_separated(titles) if titles else usual)]
    if replay is None and keep is not None:
        raise click.UsageError("--keep is for --replay.")
    if replay is not None and len(kinds) != 1:
        raise click.UsageError("--replay needs the --volume that the state is of.")
    with Terminal(err) as progress:
        built = build.everything("main", progress=progress)
        with progress.task("cutting the power") as tell:
            if replay is not None:
                explored = owner_cuts.replay(kinds[0], seed, replay, built, keep)
            else:
                disks = owner_cuts.DISKS if disk is None else (disk,)
                explored = owner_cuts.explore(kinds, states, seed, built, disks=disks, kills=kills, tell=tell)
    table.put(out, owner_cuts.table(explored))
    out.print(f"seed {seed}; {len(explored.states) / explored.seconds:.1f} states a second", soft_wrap=True)
    if record_file is not None:
        owner_cuts.write_record(record_file, explored, built)
        out.print(f"record: {record_file}", soft_wrap=True)
    failed = owner_cuts.failures(explored)
    for state in explored.states if replay is not None else failed[: owner_cuts.SHOWN]:
        out.print(f"\n{owner_cuts.replay_command(state)}\n  during {state.command}", markup=False, soft_wrap=True)
        for text in (*(f"{what.value}: {said}" for what, said in state.problems), *state.did):
            out.print(f"  {text}", markup=False, soft_wrap=True)
    if failed:
        raise Failure(f"{len(failed)} of {len(explored.states)} states are not as they should be.")


@command.command("series")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--build", "build_each", is_flag=True, help="Also build and boot the kernel after each patch.")
def series_command(folder: Path, build_each: bool) -> None:
    """Write journal_lazy to FOLDER as a series of patches for review, for `git am` and `git send-email`."""
    mails = series.write(folder, claims_page.cover_letter())
    for path in sorted(folder.glob("*.patch")):
        out.print(str(path), soft_wrap=True)
    if build_each:
        with Terminal(err) as progress:
            for number in range(1, len(mails) + 1):
                seconds = series.build_and_boot(mails[:number], progress)
                out.print(f"{mails[number - 1].name}: builds, boots and mounts, {seconds:.0f} s", soft_wrap=True)


@command.command("restage")
@click.option("--since", default="HEAD", show_default=True, help="A commit at which kernel/series fits kernel/.")
def restage_command(since: str) -> None:
    """Renew kernel/series, which says how the files of ours grow from mail to mail, after a change of kernel/."""
    for path in stages.restage(since):
        out.print(str(path.relative_to(ROOT)), soft_wrap=True)


@command.command("diffstat")
def diffstat_command() -> None:
    """Count the lines that the series changes in existing code, and hold them against the paper's."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for change in series.changes():
        totals[change.kind][0] += change.added
        totals[change.kind][1] += change.removed
        if change.kind == "existing":
            out.print(f"  {change.name:28} {change.added:4} added {change.removed:4} removed", soft_wrap=True)
    names = {
        "existing": "existing code",
        "new": "new files",
        "new tests": "new unit tests",
        "build": "Kconfig, Makefile",
        "documentation": "Documentation",
    }
    for kind, name in names.items():
        added, removed = totals[kind]
        out.print(f"{name:30} {added:4} added {removed:4} removed", soft_wrap=True)
    added, removed = totals["existing"]
    paper = series.PAPER_CHANGED_LINES
    out.print(
        f"Changed lines in existing code: {added + removed}, {(added + removed) / paper:.1f} times"
        f" the paper's {paper}.",
        soft_wrap=True,
    )  # fmt: skip

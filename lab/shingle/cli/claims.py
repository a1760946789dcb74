# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle claims`: what the papers say beside what is recorded."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from shingle.build import build
from shingle.cli.base import err, examples, out
from shingle.evidence import claims_page
from shingle.machine.progress import Terminal
from shingle.runs import expectations, experiment, provenance


@click.command("claims", epilog=examples("claims", "claims T7 T9", "claims --record e11.jsonl", "claims --write"))
@click.argument("targets", nargs=-1)
@click.option(
    "--record", "record_files", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of these records instead of those in results/. May be given more than once.",
)  # fmt: skip
@click.option(
    "--write", is_flag=True, help="Renew the pages of docs/results, and the tables in README and the owner's guide."
)
@click.option("--present", is_flag=True, help="Notes the keys of the present code, which is built, for --write.")
@click.option("--fix", metavar="WHY", help="Records that ranges, tolerances or bases were changed, and why.")
def command(
    targets: tuple[str, ...], record_files: tuple[Path, ...], write: bool, present: bool, fix: str | None
) -> None:
    """What the papers say beside what is recorded in results/; TARGETS picks by the beginning of a number.

    Nothing is run: each row names the command that reproduces it.
    """
    if present:
        with Terminal(err) as progress:
            provenance.write(provenance.of_code(build.everything(progress=progress)))
        return
    if fix is not None:
        known, experiments = expectations.read(), experiment.all_of_them()
        lines = expectations.fixed(known, experiments, fix, datetime.datetime.now(datetime.UTC).date())
        expectations.write(lines)
        out.print(f"{len(lines) - len(known)} expectations fixed; renew the pages with --write.")
        return
    if write:
        changed = claims_page.write()
        out.print("\n".join(changed) or "nothing has changed.", markup=False, soft_wrap=True)
        return
    for shown in claims_page.tables(targets, record_files):
        out.print(shown)
        out.print()

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle workloads`: what can be run, with its parameters."""

from __future__ import annotations

import click
from rich.table import Table

from shingle.catalogue import workload
from shingle.cli.base import examples, out
from shingle.evidence.table import put


@click.command("workloads", epilog=examples("workloads", "workloads Postmark"))
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the workloads, or show one with its parameters at scale 1."""
    if name is None:
        files_only = {
            each.needs for each in workload.WORKLOADS.values() if each.name + workload.FILES_ONLY == each.needs
        }
        shown = [each for each in workload.WORKLOADS.values() if each.name not in files_only]
        table = Table.grid(padding=(0, 2))
        for each in shown:
            needs = f" (after {each.needs})" if each.needs and each.needs not in files_only else ""
            table.add_row(each.name, f"{each.summary}{needs}")
        put(out, table)
        return
    chosen = workload.find(name)
    out.print(f"{chosen.name}: {chosen.summary}", soft_wrap=True)
    for key, value in chosen.arguments(1.0).items():
        out.print(f"  {key:16} {value}", markup=False, soft_wrap=True)
    if chosen.needs:
        out.print(f"  needs            {chosen.needs}")

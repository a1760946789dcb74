# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle workloads`: what can be run, with its parameters."""

from __future__ import annotations

import click

from shingle.catalogue import workload
from shingle.cli.base import examples, out


@click.command("workloads", epilog=examples("workloads", "workloads Postmark"))
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the workloads, or show one with its parameters at scale 1."""
    if name is None:
        for each in workload.WORKLOADS.values():
            needs = f" (after {each.needs})" if each.needs else ""
            out.print(f"{each.name:16} {each.summary}{needs}", soft_wrap=True)
        return
    chosen = workload.find(name)
    out.print(f"{chosen.name}: {chosen.summary}", soft_wrap=True)
    for key, value in chosen.arguments(1.0).items():
        out.print(f"  {key:16} {value}", markup=False, soft_wrap=True)
    if chosen.needs:
        out.print(f"  needs            {chosen.needs}")

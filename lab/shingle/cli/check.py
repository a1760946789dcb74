# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle check`: style, types and units in about a minute."""

from __future__ import annotations

import sys

import click

from shingle.build import build
from shingle.checks import suite
from shingle.cli.base import err, examples, out
from shingle.evidence import claims_page
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.runs import experiment, provenance


@click.command("check", epilog=examples("check", "check -- -x", "check --release"))
@click.option("--release", is_flag=True, help="Only whether README's numbers are of the present code, which is built.")
@click.argument("options", nargs=-1)
def command(release: bool, options: tuple[str, ...]) -> None:
    """Check style, types, prose, walls, generated pages and the lab's units in a minute. OPTIONS are pytest's."""
    if release:
        _check_release()
        return
    sys.exit(suite.main([*suite.quick(), "-q", "-k", "not clippy", *options]))


def _check_release() -> None:
    with Terminal(err) as progress:
        now = provenance.of_code(build.everything(progress=progress))
    if now != provenance.present():
        raise Failure("results/present.json has the keys of other code: ./shingle claims --present, then --write.")
    stale = []
    for chosen in claims_page.headlines():
        state = provenance.worst(chosen, experiment.records_of(chosen))
        out.print(f"{chosen.name}: {state}", soft_wrap=True)
        stale += [chosen.number] if state == "stale" else []
    if stale:
        told = f"README or the guide has numbers of older code: {', '.join(stale)}."
        raise Failure(
            f"{told} Show at a tenth that they are the same (./shingle equal {' '.join(stale)}), or run them anew."
        )

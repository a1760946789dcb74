# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle coverage`: which lines of journal_lazy the suites run."""

from __future__ import annotations

import click

from shingle.build import build
from shingle.cli.base import err, examples, out
from shingle.machine.progress import Terminal
from shingle.verify import coverage


@click.command("coverage", epilog=examples("coverage", "coverage kunit crash", "coverage --missing lazy_scrub.c"))
@click.argument("suites", nargs=-1)
@click.option("--page", is_flag=True, help="Only renew docs/results/coverage.md from the records.")
@click.option("--missing", help="Only show the lines that nothing ran, of functions or files with this in their name.")
def command(suites: tuple[str, ...], page: bool, missing: str | None) -> None:
    """Count which lines of journal_lazy the suites run: kunit, tests, torture, crash (docs/results/coverage.md)."""
    coverage.check(suites)
    with Terminal(err) as progress:
        if missing is not None:
            for line in coverage.missing(missing, build.everything(build.COVERAGE, progress=progress).kernel):
                out.print(line, markup=False, soft_wrap=True)
            return
        if not page:
            coverage.run(suites or tuple(coverage.SUITES), progress)
    coverage.write_page()
    out.print(f"{coverage.PAGE}", markup=False, soft_wrap=True)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle crash`: the crash explorer, and damaged logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from shingle.build import build
from shingle.cli.base import SEED, comma_separated, err, examples, out
from shingle.evidence import table
from shingle.failure import Failure
from shingle.machine.progress import Terminal
from shingle.verify import crash, crash_workload, damage


@click.command(
    "crash",
    epilog=examples(
        "crash --states 2000",
        "crash --workload races,tiny --states 500 --seed 7",
        "crash --workload rename --seed 7 --replay 412s77/L/33k --keep state.img",
        "crash --damage --states 10000 --record results/damage.jsonl",
        "crash --list",
    ),
)
@click.option("--workload", "workload_names", help="Only these workloads, separated by commas.")
@click.option("--states", type=click.IntRange(1), default=1000, show_default=True, help="Distinct states in all.")
@click.option("--seed", type=SEED, default=1, show_default=True, help="The same seed, the same states.")
@click.option("--replay", metavar="STATE", help="Check one state by its name, which a failure prints.")
@click.option(
    "--keep", type=click.Path(dir_okay=False, path_type=Path), help="With --replay: write the state as a raw image."
)
@click.option("--damage", "damaged", is_flag=True, help="Damage logs instead: so many, in all kinds of ways.")
@click.option("--flush-ignored", is_flag=True, help="A disk that lies about FLUSH and FUA: states must fail.")
@click.option("--list", "listed", is_flag=True, help="List the workloads.")
@click.option("--write", is_flag=True, help="Put results/crash.jsonl into docs/design/crash-explorer.md; run nothing.")
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Add one JSON line per workload to this file (docs/design/crash-explorer.md).",
)  # fmt: skip
def command(
    workload_names: str | None,
    states: int,
    seed: int,
    replay: str | None,
    keep: Path | None,
    damaged: bool,
    flush_ignored: bool,
    listed: bool,
    write: bool,
    record_file: Path | None,
) -> None:
    """Cut the power everywhere, and check every state that is left (docs/design/crash-explorer.md)."""
    if write:
        crash.write_page()
        return
    known = damage.WORKLOADS if damaged else crash_workload.WORKLOADS
    if listed:
        for each in known.values():
            out.print(f"{each.name:16} {each.summary}", soft_wrap=True)
        return
    names = list(known) if workload_names is None else comma_separated(workload_names)
    workloads = [(damage.find if damaged else crash_workload.find)(name) for name in names]
    if replay is None and keep is not None:
        raise click.UsageError("--keep is for --replay.")
    if replay is not None and len(workloads) != 1:
        raise click.UsageError("--replay needs the --workload that the state is of.")
    with Terminal(err) as progress:
        kernels = {each.kernel for each in workloads} | {"main"}
        built = {each: build.everything(build.chosen(each), progress=progress) for each in sorted(kernels)}
        if damaged:
            with progress.task("damaging logs") as tell:
                _damage(workloads, states, seed, replay, keep, record_file, built, tell)
            return
        if replay is not None:
            with progress.task(f"state {replay} of {names[0]}"):
                explored = crash.replay(
                    workloads[0], seed, replay, built.__getitem__, keep=keep, flush_ignored=flush_ignored
                )
        else:
            with progress.task("cutting the power") as tell:
                explored = crash.explore(
                    workloads, states, seed, built.__getitem__, tell=tell, flush_ignored=flush_ignored
                )
    table.put(out, crash.table(explored))
    out.print(f"seed {seed}; {crash.rate(explored)}", soft_wrap=True)
    if keep is not None:
        out.print(f"image: {keep}", soft_wrap=True)
    if record_file is not None:
        crash.write_records(record_file, explored, built["main"], seed)
        out.print(f"records: {record_file}", soft_wrap=True)
    total = explored.total
    for failure in total.failures[: crash.SHOWN]:
        out.print(f"\n{failure.replay}", markup=False, soft_wrap=True)
        for problem in failure.problems:
            out.print(f"  {problem}", markup=False, soft_wrap=True)
    if total.failures:
        raise Failure(f"{len(total.failures)} of {total.states} states are not as they should be.")
    missing = None if replay is not None else crash.lacking(explored, workloads)
    if missing is not None:
        raise Failure(missing)


def _damage(
    workloads: Sequence[crash_workload.Workload],
    states: int,
    seed: int,
    replay: str | None,
    keep: Path | None,
    record_file: Path | None,
    built: Mapping[str, build.Built],
    tell: Callable[[str], None],
) -> None:
    if replay is not None:
        explored = damage.replay(workloads[0], seed, replay, built.__getitem__, keep=keep)
    else:
        explored = damage.explore(workloads, states, seed, built.__getitem__, tell=tell)
    for shown in damage.tables(explored):
        table.put(out, shown)
    tally = explored.tally
    out.print(f"seed {seed}; {tally.states / explored.seconds:.1f} logs a second", soft_wrap=True)
    for found in [*tally.wrong[: crash.SHOWN], *tally.unsaid[: crash.SHOWN]]:
        out.print(f"\n{found.replay}", markup=False, soft_wrap=True)
        for text in (*(f"{target} {way}: {where}" for target, way, where in found.state.done), *found.problems):
            out.print(f"  {text}", markup=False, soft_wrap=True)
    if record_file is not None:
        damage.write_record(record_file, explored, built["main"], seed)
        out.print(f"record: {record_file}", soft_wrap=True)
    if tally.wrong:
        raise Failure(f"{len(tally.wrong)} of {tally.states} damaged logs are not dealt with as they should be.")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs cells and shows what came of them: what `demo`, `run` and `compare` have in common."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from shingle.build import build
from shingle.catalogue import drive
from shingle.cli.base import check_folder, err, figure_option, out, record_option, wide_option
from shingle.evidence import claims_page, table
from shingle.failure import Failure
from shingle.machine import machine
from shingle.machine.progress import Terminal
from shingle.runs import claims, record, run
from shingle.runs.experiment import Experiment
from shingle.runs.record import Record
from shingle.runs.run import Keep, Result, Run

_Command = Callable[..., None]


@dataclass(frozen=True)
class Options:
    """What `demo`, `run` and `compare` are told besides what they run; the names are those of the options."""

    record_file: Path | None = None
    figure_folder: Path | None = None
    jobs: int | None = None
    wide: bool = False
    resume: bool = False

    def __post_init__(self) -> None:
        if self.resume and (self.record_file is None or self.figure_folder is not None):
            raise Failure(
                "--resume needs the file of records (--record), and cannot draw what is not run again.", status=2
            )


def options(command: _Command) -> _Command:
    """The options of `Options` but for --resume."""
    jobs = click.option(
        "--jobs",
        type=click.IntRange(1),
        help="Machines at a time, if memory allows; as many as processors if not given.",
    )
    for each in (wide_option, jobs, figure_option, record_option):
        command = each(command)
    return command


resume_option = click.option("--resume", is_flag=True, help="Run only what the file of records does not hold yet.")


def experiment_and_claim(chosen: Experiment, scale: float, seeds: Sequence[int], options: Options) -> list[Record]:
    """Runs an experiment and judges it; returns its records. A claim that does not hold is a failure."""
    cells = [each for seed in seeds for each in chosen.cells(scale, seed).values()]
    results = perform(cells, chosen.phases, options)
    broken: list[str] = []
    for seed in seeds:
        records = _records([each for each in results if each.run.plan.seed == seed])
        if len(seeds) > 1:
            out.print(f"seed {seed}:")
        for claim in claims.judged(chosen.claims, records):
            out.print(f"  {claims_page.line(claim)}", soft_wrap=True)
        for shown in () if chosen.tables is None else chosen.tables(records):
            table.put(out, shown)
        if scale == chosen.scale:
            broken += _expectations(chosen, records)
    if scale != chosen.scale:
        out.print(
            f"not checked: what is expected holds at scale {chosen.scale:g}, and this is {scale:g}", soft_wrap=True
        )
    if broken:
        raise Failure("the claim does not hold: " + "; ".join(dict.fromkeys(broken)) + ".")
    return _records(results)


def _expectations(chosen: Experiment, records: Sequence[Record]) -> list[str]:
    """Says what is as expected, and returns what is not."""
    first = chosen.phases[0]
    for each in (one for one in records if one["phase"] == first):
        out.print(f"  left dirty by {first} on {each['file_system']}: {table.dirty_bands(each)}", soft_wrap=True)
    broken = chosen.broken(records)
    for expectation in chosen.expectations:
        if expectation.sentence not in broken:
            out.print(f"  as expected: {expectation.sentence}", soft_wrap=True)
    return broken


def perform(cells: Sequence[Run], phases: Sequence[str], options: Options) -> list[Result]:
    """Builds, runs, prints a table for each seed, and writes what was asked for."""
    began = time.monotonic()
    run.check_memory(cells)
    file, folder = options.record_file, options.figure_folder
    if file is not None:
        record.check_target(file)
    if folder is not None:
        check_folder(folder)
    known = record.read(file) if options.resume and file is not None and file.exists() else []
    unwritten: list[Failure] = []

    def keep_records(result: Result) -> None:
        try:
            if file is not None:
                record.write(file, result.records)
        except Failure as failure:
            # What was run can still be shown.
            unwritten.append(failure)

    with contextlib.ExitStack() as stack:
        progress = Terminal(err)
        keep = None
        if folder is not None:
            keep = Keep(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shingle-traces-"))))
        with progress:
            # Before a kernel is built.
            for profile in run.own_drives(cells):
                drive.check(build.build_crates(progress=progress), profile)
            built = build.everything(progress=progress)
            results = run.side_by_side(
                built, cells, progress, keep=keep, known=known, finished=keep_records, jobs=options.jobs
            )
        seeds = list(dict.fromkeys(each.plan.seed for each in cells))
        for seed in seeds:
            _show([each for each in results if each.run.plan.seed == seed], phases, began, wide=options.wide)
        if options.resume:
            out.print(f"of {len(results)} runs, {sum(each.recorded_before for each in results)} were recorded before")
        if file is not None and not unwritten:
            out.print(f"records: {file}", soft_wrap=True)
        for seed in seeds if folder is not None else ():
            assert folder is not None
            of_seed = [each for each in results if each.run.plan.seed == seed]
            for path in _draw(of_seed, folder, several=len(seeds) > 1):
                out.print(f"figure: {path}", soft_wrap=True)
    if unwritten:
        raise Failure(f"{len(unwritten)} of {len(results)} runs are not recorded: {unwritten[0]}")
    return results


def _show(results: Sequence[Result], phases: Sequence[str], began: float, *, wide: bool) -> None:
    """The table of the runs of one seed, and what they have in common."""
    records = _records(results)
    first = records[0]
    scales = ", ".join(f"{name} {scale:g}" for name, scale in first["configuration"]["scales"].items())
    table.show(out, records, phases=phases, wide=wide)
    for each in records:
        if "failed" in each:
            out.print(f"{each['file_system']} on {each['drive']}, {each['phase']}: {each['failed']}", soft_wrap=True)
    out.print(
        f"drive {first['drive']}, scale {scales}; seed {first['seed']}, "
        f"{first['configuration']['memory_mib']} MiB of memory, {first['configuration']['name_ns'] / 1000:g} us per "
        f"name change; Linux {first['versions']['linux']}; {time.monotonic() - began:.0f} s on this host",
        soft_wrap=True,
    )


def _records(results: Sequence[Result]) -> list[Record]:
    return [each for result in results for each in result.records]


def _draw(results: Sequence[Result], folder: Path, *, several: bool) -> list[Path]:
    # Only here: matplotlib takes half a second to start.
    from shingle.evidence import figure

    series = []
    for result in results:
        if result.trace is not None and result.outcome is not None:
            phases = tuple(_phase_times(result.run, result.outcome))
            limits = drive.cache_limits(result.run.profile)
            trace = figure.read_trace(result.trace)
            series.append(figure.Series(result.run.variant.name, trace, result.outcome.ticks, phases, limits))
    first = results[0].run
    title = f"{first.plan.label} on {first.profile.name}, seed {first.plan.seed}"
    name = f"{first.profile.name}-{'-'.join(first.plan.names)}".lower()
    stem = folder / (f"{name}-seed-{first.plan.seed}" if several else name)
    return list(figure.draw(series, title=title, capacity_bytes=first.size_bytes, stem=stem))


def _phase_times(ran: Run, outcome: machine.Outcome) -> list[tuple[str, float, float]]:
    times = []
    for phase in ran.plan.phases:
        own = [step for step in outcome.steps if step.phase == phase]
        times.append((phase, own[0].start_ns / machine.NS_PER_S, own[-1].end_ns / machine.NS_PER_S))
    return times

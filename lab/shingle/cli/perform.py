# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs cells and shows what came of them: what `demo`, `run` and `compare` have in common."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from shingle.build import build
from shingle.catalogue import drive
from shingle.cli.base import check_folder, err, out
from shingle.evidence import claims_page, table
from shingle.failure import Failure
from shingle.machine import machine
from shingle.machine.progress import Terminal
from shingle.runs import claims, record, run
from shingle.runs.experiment import Experiment
from shingle.runs.record import Record
from shingle.runs.run import Keep, Result, Run


def experiment_and_claim(
    chosen: Experiment,
    record_file: Path | None,
    figure_folder: Path | None,
    scale: float,
    seeds: Sequence[int],
    *,
    resume: bool = False,
    wide: bool = False,
) -> None:
    for seed in seeds:
        _one_seed(chosen, record_file, figure_folder, scale, seed, resume=resume, wide=wide)


def _one_seed(
    chosen: Experiment,
    record_file: Path | None,
    figure_folder: Path | None,
    scale: float,
    seed: int,
    *,
    resume: bool,
    wide: bool,
) -> None:
    cells = list(chosen.cells(scale, seed).values())
    results = perform(cells, record_file, figure_folder, chosen.phases, resume=resume, wide=wide)
    records = _records(results)
    for claim in claims.judged(chosen.claims, records):
        out.print(f"  {claims_page.line(claim)}", soft_wrap=True)
    for shown in () if chosen.tables is None else chosen.tables(records):
        table.put(out, shown)
    if scale != chosen.scale:
        out.print(
            f"not checked: what is expected holds at scale {chosen.scale:g}, and this is {scale:g}", soft_wrap=True
        )
        return
    first = chosen.phases[0]
    for each in (one for one in records if one["phase"] == first):
        out.print(f"  left dirty by {first} on {each['file_system']}: {table.dirty_bands(each)}", soft_wrap=True)
    broken = chosen.broken(records)
    if broken:
        raise Failure("the claim does not hold: " + "; ".join(broken) + ".")
    for expectation in chosen.expectations:
        out.print(f"  as expected: {expectation.sentence}", soft_wrap=True)


def perform(
    cells: Sequence[Run],
    record_file: Path | None,
    figure_folder: Path | None,
    phases: Sequence[str],
    *,
    resume: bool = False,
    wide: bool = False,
) -> list[Result]:
    """Builds, runs, prints the table, and writes what was asked for."""
    began = time.monotonic()
    run.check_memory(cells)
    if record_file is not None:
        record.check_target(record_file)
    if figure_folder is not None:
        check_folder(figure_folder)
    known = record.read(record_file) if resume and record_file is not None and record_file.exists() else []

    def keep_records(result: Result) -> None:
        if record_file is not None:
            record.write(record_file, result.records)

    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Terminal(err))
        built = build.everything(progress=progress)
        keep = None
        if figure_folder is not None:
            keep = Keep(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shingle-traces-"))))
        results = run.side_by_side(built, cells, progress, keep=keep, known=known, finished=keep_records)
        figures = [] if figure_folder is None else _draw(results, figure_folder)
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
    if resume:
        out.print(f"of {len(results)} runs, {sum(each.recorded_before for each in results)} were recorded before")
    if record_file is not None:
        out.print(f"records: {record_file}", soft_wrap=True)
    for path in figures:
        out.print(f"figure: {path}", soft_wrap=True)
    return results


def _records(results: Sequence[Result]) -> list[Record]:
    return [each for result in results for each in result.records]


def _draw(results: Sequence[Result], folder: Path) -> list[Path]:
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
    stem = folder / f"{first.profile.name}-{'-'.join(first.plan.names)}".lower()
    return list(figure.draw(series, title=title, capacity_bytes=first.size_bytes, stem=stem))


def _phase_times(ran: Run, outcome: machine.Outcome) -> list[tuple[str, float, float]]:
    times = []
    for phase in ran.plan.phases:
        own = [step for step in outcome.steps if step.phase == phase]
        times.append((phase, own[0].start_ns / machine.NS_PER_S, own[-1].end_ns / machine.NS_PER_S))
    return times

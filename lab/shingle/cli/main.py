# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line. Every command is a few lines: check names, build, run, show."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console

from shingle import process
from shingle.build import build
from shingle.build import clean as cleaning
from shingle.catalogue import build_trace, drive, probe, suitability, workload
from shingle.catalogue import fs as file_systems
from shingle.checks import suite
from shingle.cli import drives, lazy, matrix
from shingle.cli.help_text import examples
from shingle.evidence import claims_page, figures, table
from shingle.failure import Failure, unknown_name
from shingle.machine import machine, watch
from shingle.machine.progress import Terminal
from shingle.paths import BUILD
from shingle.runs import claims, experiment, record, run, shell
from shingle.runs.experiment import Experiment
from shingle.runs.record import NotRecorded, Record
from shingle.runs.run import Keep, Result, Run
from shingle.verify import coverage, crash, crash_workload, damage, races, smp, torture

_EXIT_INTERRUPTED = 130
_GIB = 1 << 30

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


class Group(click.Group):
    """A group that answers a wrong command with the right ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=examples("demo", "test"))
def cli() -> None:
    """Linux's own file systems, in virtual time, on simulated shingled disks."""


record_option = click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Add one JSON line per phase to this file (docs/records.md).",
)  # fmt: skip
figure_option = click.option(
    "--figure", "figure_folder", type=click.Path(file_okay=False, path_type=Path),
    help="Draw the runs into this folder, as SVG and PNG.",
)  # fmt: skip


@cli.command(epilog=examples("demo", "demo --record demo.jsonl --figure figures"))
@record_option
@figure_option
def demo(record_file: Path | None, figure_folder: Path | None) -> None:
    """Show what journal_lazy saves on an 8 TB shingled disk, in a few minutes."""
    chosen = experiment.find("e01")
    out.print(
        "MakeDirs, RemoveDirs, Postmark and the unmount on a simulated Seagate ST8000AS0002 (8 TB,", soft_wrap=True
    )
    out.print("drive-managed SMR): ext4 as it comes, with a 10 GiB journal, and with journal_lazy.", soft_wrap=True)
    _experiment(chosen, record_file, figure_folder or BUILD / "demo", chosen.scale, (1,))


@cli.command("run", epilog=examples("run e01", "run e11 --scale 0.1 --seeds 5 --record results/e11.jsonl"))
@click.argument("name", metavar="EXPERIMENT")
@click.option("--scale", type=float, help="Of the workload; 1 is the paper's size. The experiment's own if not given.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Repeat with seeds 1 to N.")
@record_option
@click.option("--resume", is_flag=True, help="Run only what the file of records does not hold yet.")
@figure_option
def run_command(
    name: str, scale: float | None, seeds: int, record_file: Path | None, resume: bool, figure_folder: Path | None
) -> None:
    """Run an experiment (a file below experiments/) and check its claim.

    Records are written as each run ends: a stopped experiment goes on with --resume.
    """
    if resume and (record_file is None or figure_folder is not None):
        raise Failure("--resume needs the file of records (--record), and cannot draw what is not run again.", status=2)
    chosen = experiment.find(name)
    out.print(f"{chosen.name}: {chosen.claim}", soft_wrap=True)
    _experiment(chosen, record_file, figure_folder, scale or chosen.scale, range(1, seeds + 1), resume=resume)


@cli.command("claims", epilog=examples("claims", "claims T7 T9", "claims --record e11.jsonl", "claims --write"))
@click.argument("targets", nargs=-1)
@click.option(
    "--record", "record_files", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of these records instead of those in results/. May be given more than once.",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Renew docs/claims.md and docs/field.md.")
def claims_command(targets: tuple[str, ...], record_files: tuple[Path, ...], write: bool) -> None:
    """What the papers say beside what is recorded in results/; TARGETS picks by the beginning of a number.

    Nothing is run: each row names the command that reproduces it.
    """
    if write:
        claims_page.write()
    for shown in claims_page.tables(targets, record_files):
        out.print(shown)
        out.print()


@cli.command("figures", epilog=examples("figures", "figures e11 e14 --folder docs/figures"))
@click.argument("names", metavar="[EXPERIMENT]...", nargs=-1)
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=BUILD / "figures",
    help="Where to; build/figures if not given.",
)  # fmt: skip
def figures_command(names: tuple[str, ...], folder: Path) -> None:
    """Redraw the papers' figures from the records in results/, as SVG and PNG. Nothing is run."""
    drawn = 0
    for chosen in figures.drawn_by(names):
        try:
            stem = figures.draw(chosen, folder, claims_page.records_of(chosen))
        except NotRecorded as missing:
            err.print(f"{missing}", markup=False, soft_wrap=True)
            continue
        drawn += 1
        out.print(f"{stem}.svg and .png", markup=False, soft_wrap=True)
    if not drawn:
        raise Failure("nothing was drawn.")


@cli.command("report", epilog=examples("report", "report --record mine.jsonl -o mine.html"))
@click.option(
    "--record", "record_files", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of these records instead of those in results/. May be given more than once.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=BUILD / "report.html",
    help="Where to; build/report.html if not given.",
)  # fmt: skip
def report_command(record_files: tuple[Path, ...], output: Path) -> None:
    """Write claims, figures and records as one HTML file that needs no network. Nothing is run."""
    # Only here: figures take seconds to draw.
    from shingle.evidence import report

    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(report.html(record_files))
    out.print(f"report: {output}", markup=False, soft_wrap=True)


@cli.command(name="draw", epilog=examples("draw e10 results/e10.jsonl docs/figures/log-space"))
@click.argument("name")
@click.argument("records", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("stem", type=click.Path(path_type=Path))
def draw_command(name: str, records: Path, stem: Path) -> None:
    """Draw an experiment's figure from its records: STEM.svg and STEM.png."""
    chosen = experiment.find(name)
    if chosen.draw is None:
        raise Failure(f"{chosen.name} has no figure of its own.", status=2)
    chosen.draw(record.read(records), stem)
    out.print(f"{stem}.svg and {stem}.png", soft_wrap=True)


def _experiment(
    chosen: Experiment,
    record_file: Path | None,
    figure_folder: Path | None,
    scale: float,
    seeds: Sequence[int],
    *,
    resume: bool = False,
) -> None:
    for seed in seeds:
        _one_seed(chosen, record_file, figure_folder, scale, seed, resume=resume)


def _one_seed(
    chosen: Experiment,
    record_file: Path | None,
    figure_folder: Path | None,
    scale: float,
    seed: int,
    *,
    resume: bool,
) -> None:
    cells = list(chosen.cells(scale, seed).values())
    results = _perform(cells, record_file, figure_folder, chosen.phases, resume=resume)
    records = _records(results)
    for claim in claims.judged(chosen.claims, records):
        out.print(f"  {claims_page.line(claim)}", soft_wrap=True)
    for shown in () if chosen.tables is None else chosen.tables(records):
        table.put(out, shown)
    if scale != chosen.scale:
        return
    first = chosen.phases[0]
    for each in (one for one in records if one["phase"] == first):
        out.print(f"  left dirty by {first} on {each['file_system']}: {table.dirty_bands(each)}", soft_wrap=True)
    broken = chosen.broken(records)
    if broken:
        raise Failure("the claim does not hold: " + "; ".join(broken) + ".")
    for expectation in chosen.expectations:
        out.print(f"  as expected: {expectation.sentence}", soft_wrap=True)


@cli.command(
    epilog=examples(
        "compare --drive st8000as0002 --fs ext4-10g,ext4-lazy --workload MakeDirs --scale 0.1",
        "compare --drive wd5000ys --fs ext4,xfs,btrfs --workload CreateFiles,FindFiles --scale 0.01",
    )
)
@click.option(
    "--drive", "drive_name", required=True, help="A name that `./shingle drives` lists, or a profile: x.toml."
)
@click.option("--fs", "fs_names", required=True, help="File systems, separated by commas.")
@click.option("--workload", "workload_names", required=True, help="Workloads, separated by commas.")
@click.option("--scale", type=float, default=0.01, show_default=True, help="1 is the paper's size.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed, the same bytes.")
@click.option(
    "--memory-mib", type=click.IntRange(128), default=run.DEFAULT_MEMORY_MIB, show_default=True,
    help="Memory of the simulated host.",
)  # fmt: skip
@click.option("--capacity-gib", type=click.IntRange(1), help="A smaller drive of the same kind.")
@click.option(
    "--name-ns", type=click.IntRange(1), default=machine.DEFAULT_NAME_NS, show_default=True,
    help="Virtual time that a system call costs which changes a name.",
)  # fmt: skip
@click.option(
    "--call-ns", type=click.IntRange(1), default=machine.DEFAULT_CALL_NS, show_default=True,
    help="Virtual time that any other system call costs.",
)  # fmt: skip
@click.option(
    "--faults", "fault_plan", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What goes wrong in the drive: a plan as TOML (docs/faults.md).",
)  # fmt: skip
@click.option("--aged", is_flag=True, help="On file systems that have been used (docs/records.md).")
@record_option
@figure_option
def compare(
    drive_name: str,
    fs_names: str,
    workload_names: str,
    scale: float,
    seed: int,
    memory_mib: int,
    capacity_gib: int | None,
    name_ns: int,
    call_ns: int,
    fault_plan: Path | None,
    aged: bool,
    record_file: Path | None,
    figure_folder: Path | None,
) -> None:
    """Run the same workload on several file systems, side by side."""
    plan = workload.plan(_split(workload_names), scale=scale, seed=seed)
    capacity = None if capacity_gib is None else capacity_gib * _GIB
    cells = run.cells(drive_name, _split(fs_names), plan, capacity_bytes=capacity)
    age = drive.Age() if aged else None
    for cell in cells if aged else []:
        file_systems.check_can_age(cell.variant, host_managed=drive.is_host_managed(cell.profile))
    same = {"memory_mib": memory_mib, "name_ns": name_ns, "call_ns": call_ns, "age": age, "faults": fault_plan}
    cells = [replace(cell, **same) for cell in cells]  # type: ignore[arg-type]
    _perform(cells, record_file, figure_folder, plan.phases)


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _perform(
    cells: Sequence[Run],
    record_file: Path | None,
    figure_folder: Path | None,
    phases: Sequence[str],
    *,
    resume: bool = False,
) -> list[Result]:
    """Builds, runs, prints the table, and writes what was asked for."""
    began = time.monotonic()
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
    table.show(out, records, phases=phases)
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


@cli.command("test", epilog=examples("test", "test --sanitize", "test determinism power_cut", "test -- -x -k fsck"))
@click.option("--sanitize", is_flag=True, help="The long stress in a KASAN, lockdep and PREEMPT kernel.")
@click.option("--stock-kernel", is_flag=True, help="Only the package ext4lazy, on Debian's own kernel under QEMU.")
@click.option("--clients", is_flag=True, help="Only RocksDB, ffmpeg, pjdfstest and others, on SAFS.")
@click.option("--browser", "in_browser", is_flag=True, help="Only the report, in a real browser without a screen.")
@click.argument("names", nargs=-1)
def test_command(sanitize: bool, stock_kernel: bool, clients: bool, in_browser: bool, names: tuple[str, ...]) -> None:
    """Check everything: style, types, units, the machine, the kernel.

    NAMES picks test files by a part of their name; what begins with a dash goes to pytest.
    """
    sys.exit(suite.main(names, sanitize=sanitize, stock_kernel=stock_kernel, clients=clients, in_browser=in_browser))


@cli.command("check", epilog=examples("check", "check -- -x"))
@click.argument("options", nargs=-1)
def check_command(options: tuple[str, ...]) -> None:
    """Check style, types and the lab's units in about a minute, without a machine. OPTIONS are pytest's."""
    sys.exit(suite.main([*suite.quick(), "-q", "-k", "not clippy", *options], sanitize=False))


cli.add_command(drives.drives)
cli.add_command(drives.replay)
cli.add_command(lazy.lazy)
for _command in matrix.COMMANDS:
    cli.add_command(_command)


@cli.command("workloads", epilog=examples("workloads", "workloads Postmark"))
@click.argument("name", required=False)
def workloads_command(name: str | None) -> None:
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


@cli.command("file-systems", epilog=examples("file-systems", "file-systems --drives"))
@click.option("--drives", "by_drive", is_flag=True, help="Which works on which drive, as docs/zones.md has it.")
@click.option("--write", is_flag=True, help="With --drives: put the table into docs/zones.md.")
def file_systems_command(by_drive: bool, write: bool) -> None:
    """List the file-system variants, or which works on which drive."""
    if by_drive:
        if write:
            suitability.write_page()
        out.print(suitability.markdown().rstrip(), soft_wrap=True, markup=False)
        return
    for variant in file_systems.FILE_SYSTEMS.values():
        out.print(f"{variant.name:16} {variant.summary}", soft_wrap=True)


@cli.command("watch", epilog=examples("watch", "watch /dev/sdb"))
@click.argument("device", required=False, type=click.Path(path_type=Path))
def watch_command(device: Path | None) -> None:
    """Show what the drives of the running simulations are doing, or a real disk, until you press Ctrl-C.

    Of a real disk, DEVICE, only latencies can be seen: a small read now and then, and what others ask of it.
    """
    with contextlib.suppress(KeyboardInterrupt):
        if device is None:
            watch.runs(out)
            return
        with Terminal(err) as progress:
            program = probe.program(progress)
        probe.watch_device(program, device)


@cli.command("shell", epilog=examples("shell", "shell --drive wd5000ys --fs xfs"))
@click.option("--drive", "drive_name", default="st8000as0002", show_default=True)
@click.option("--fs", "fs_name", default="ext4-lazy", show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
def shell_command(drive_name: str, fs_name: str, seed: int) -> None:
    """A prompt inside the machine, the file system mounted at /mnt. Nothing is kept."""
    profile, variant = drive.find(drive_name), file_systems.find(fs_name)
    if not variant.one_file_per_zone:
        file_systems.check_suits(variant, profile.name, host_managed=drive.is_host_managed(profile))
    file_systems.check_fits(variant, profile.name, drive.capacity_of(profile))
    with Terminal(err) as progress:
        built = build.everything(progress=progress)
        formatted = drive.formatted(built, profile, variant, seed=seed, progress=progress)
    shell.interactive(built, variant, formatted, seed=seed)


@cli.command(
    "probe",
    epilog=examples(
        "probe /dev/sdb",
        "probe /dev/sdb --destructive /dev/sdb --profile mine.toml",
        "probe --drive st8000as0002 --only bands,cleaning",
        "probe --table",
    ),
)
@click.argument("device", required=False, type=click.Path(path_type=Path))
@click.option(
    "--destructive", metavar="DEVICE", type=click.Path(path_type=Path),
    help="The device once more: what is on it will be lost. Without, it is only read.",
)  # fmt: skip
@click.option("--drive", "drive_name", help="A simulated drive instead of a device (`./shingle drives` lists them).")
@click.option(
    "--profile", "profile_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Write a drive profile that the lab can run.",
)  # fmt: skip
@click.option("--only", metavar="TEST,...", help="Only these tests, and those they need (docs/probe.md).")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed, the same requests.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--table", is_flag=True, help="Probe every simulated drive and renew the table of docs/probe.md.")
def probe_command(
    device: Path | None,
    destructive: Path | None,
    drive_name: str | None,
    profile_file: Path | None,
    only: str | None,
    seed: int,
    as_json: bool,
    table: bool,
) -> None:
    """Find out from timing alone what kind of drive a disk is.

    Whether it is conventional or shingled, its persistent cache, its bands, and when it cleans.
    """
    if sum((device is not None, drive_name is not None, table)) != 1:
        raise click.UsageError("expected a DEVICE, or --drive NAME, or --table.")
    if destructive is not None and device is None:
        raise click.UsageError("--destructive is for a DEVICE.")
    if drive_name is not None:
        drive.find(drive_name)
    with Terminal(err) as progress:
        program = probe.program(progress)
    if table:
        status = probe.table(program)
    elif device is not None:
        status = probe.disk(
            program, device, destructive=destructive, profile=profile_file, only=only, seed=seed, as_json=as_json
        )
    else:
        assert drive_name is not None
        status = probe.simulated(program, drive_name, profile=profile_file, only=only, seed=seed, as_json=as_json)
    sys.exit(status)


@cli.command(
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
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed, the same states.")
@click.option("--replay", metavar="STATE", help="Check one state by its name, which a failure prints.")
@click.option(
    "--keep", type=click.Path(dir_okay=False, path_type=Path), help="With --replay: write the state as a raw image."
)
@click.option("--damage", "damaged", is_flag=True, help="Damage logs instead: so many, in all kinds of ways.")
@click.option("--flush-ignored", is_flag=True, help="A disk that lies about FLUSH and FUA: states must fail.")
@click.option("--list", "listed", is_flag=True, help="List the workloads.")
@click.option("--write", is_flag=True, help="Put results/crash.jsonl into docs/crash-explorer.md; run nothing.")
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Add one JSON line per workload to this file (docs/crash-explorer.md).",
)  # fmt: skip
def crash_command(
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
    """Cut the power everywhere, and check every state that is left (docs/crash-explorer.md)."""
    if write:
        crash.write_page()
        return
    known = damage.WORKLOADS if damaged else crash_workload.WORKLOADS
    if listed:
        for each in known.values():
            out.print(f"{each.name:16} {each.summary}", soft_wrap=True)
        return
    names = list(known) if workload_names is None else _split(workload_names)
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


@cli.command(
    "torture",
    epilog=examples(
        "torture --operations 100000",
        "torture --operations 10000000 --seed 7 --record results/torture.jsonl",
        "torture --smp --operations 500000",
        "torture --stock-kernel --operations 100000",
    ),
)
@click.option("--operations", type=click.IntRange(1), default=100_000, show_default=True, help="At least so many.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed, the same series.")
@click.option(
    "--mix", type=click.IntRange(10), default=1000, show_default=True, help="Of a life; a thread's operations."
)
@click.option("--smp", "on_smp", is_flag=True, help="On four processors, emulated by QEMU, which is killed.")
@click.option("--kcsan", is_flag=True, help="With --smp: look for data races instead of wrong orders of locks.")
@click.option("--stock-kernel", "on_stock", is_flag=True, help="The same on Debian's kernel with the module ext4lazy.")
@click.option("--volume", "only", type=click.IntRange(0), help="Only the series' volume of this number, all its lives.")
@click.option("--without", default="", help="Leave out these features, separated by commas (docs/torture.md).")
@click.option("--write", is_flag=True, help="Put the sums of results/torture.jsonl into docs/torture.md; run nothing.")
@click.option("--kernel", "variant", default="sanitize", show_default=True, help="As for ./shingle build.")
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path), help="Add one JSON line to this file."
)
def torture_command(
    operations: int,
    seed: int,
    mix: int,
    on_smp: bool,
    kcsan: bool,
    on_stock: bool,
    only: int | None,
    without: str,
    write: bool,
    variant: str,
    record_file: Path | None,
) -> None:
    """Work journal_lazy hard over many mounts with power cuts between, under every checker (docs/torture.md)."""
    if write:
        torture.write_page()
        return
    done: list[torture.Life] = []
    others = Counter[str]()
    left_out = _split(without)
    with Terminal(err) as progress:
        if on_stock:
            kernel, system = smp.stock(progress)
        else:
            variant = build.chosen(variant)
            if on_smp:
                variant = build.KCSAN if kcsan else build.SMP
            built = build.everything(variant, progress=progress)
            kernel, system = built.kernel.key, smp.composed(built, smp.KCSAN if kcsan else smp.LOCKDEP)
        emulated = on_smp or on_stock
        began, cpu_before_s = time.monotonic(), process.children_cpu_s()
        with progress.task("torture") as tell:
            if emulated:
                series = smp.series(
                    system, operations, seed, mix=mix, others=others, only=only, without=left_out, tell=tell
                )
            else:
                # The kernel that counts lines has no kmemleak.
                leaks = variant == "sanitize"
                series = torture.series(
                    built, operations, seed, mix=mix, only=only, without=left_out, leaks=leaks, tell=tell
                )
            for life in series:
                done.append(life)
                out.print(torture.described(life), soft_wrap=True)
                if not emulated:
                    out.print(f"  {torture.replayed(seed, mix, life)}", soft_wrap=True)
                if record_file is not None:
                    processors = smp.PROCESSORS if emulated else 1
                    torture.write_record(record_file, life, kernel, seed, processors=processors)
    seconds, total = time.monotonic() - began, sum(life.operations for life in done)
    table.put(out, torture.table(done))
    if kcsan:
        out.print(races.left_out(others), soft_wrap=True)
    missing = torture.lacking(done, (*left_out, *(smp.NOT_HERE if emulated else ())))
    if missing:
        raise Failure(missing[0], detail=missing[1:])
    out.print(
        f"{total:,} operations in {len(done)} lives, {seconds:.0f} s, {total / seconds:,.0f} a second, "
        f"{total / (process.children_cpu_s() - cpu_before_s):,.0f} a second of processor time; "
        f"nothing differed, no complaint; seed {seed}",
        soft_wrap=True,
    )


@cli.command("coverage", epilog=examples("coverage", "coverage kunit crash", "coverage --missing lazy_scrub.c"))
@click.argument("suites", nargs=-1)
@click.option("--page", is_flag=True, help="Only renew docs/coverage.md from the records.")
@click.option("--missing", help="Only show the lines that nothing ran, of functions or files with this in their name.")
def coverage_command(suites: tuple[str, ...], page: bool, missing: str | None) -> None:
    """Count which lines of journal_lazy the suites run: kunit, tests, torture, crash (docs/coverage.md)."""
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


@cli.command("build", epilog=examples("build", "build sanitize", "build mutant:NAME"))
@click.argument("variants", nargs=-1)
def build_command(variants: tuple[str, ...]) -> None:
    """Build the machine now, and say where it is."""
    with Terminal(err) as progress:
        for variant in variants or ("main",):
            built = build.everything(variant, progress=progress)
            out.print(f"{variant}: Linux {built.kernel.version}, {built.kernel.linux}", soft_wrap=True)


@cli.command("record-build", epilog=examples("record-build -o traces/kernel-build.xz TREE -- make modules"))
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("command", nargs=-1, required=True)
@click.option(
    "-o", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Where to; compressed by xz."
)
def record_build_command(tree: Path, command: tuple[str, ...], target: Path) -> None:
    """Run COMMAND in TREE, and keep what it does to the tree's files (docs/build-traces.md)."""
    trace = build_trace.record(tree, command, target)
    out.print(f"{target}: {len(trace.tree)} names before, {len(trace.jobs)} jobs", soft_wrap=True)


@cli.command("clean", epilog=examples("clean", "clean --all"))
@click.option("--all", "everything", is_flag=True, help="Also the compiler's cache, and build/.")
def clean_command(everything: bool) -> None:
    """Remove built kernels and formatted drives from the cache."""
    freed = cleaning.clean(everything=everything)
    out.print(f"freed {freed / (1 << 20):,.0f} MiB")


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    process.end()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def main() -> None:
    """Runs the command line; every way out is a status and at most one sentence."""
    # A shell that runs us in the background has SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    try:
        cli.main(prog_name="./shingle", standalone_mode=False)
    except Failure as failure:
        for text in failure.detail:
            err.print(f"  {text}", style="dim", markup=False, soft_wrap=True)
        err.print(f"shingle: {failure}", markup=False, soft_wrap=True)
        sys.exit(failure.status)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        err.print("shingle: stopped.")
        sys.exit(_EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle exec`: a command of the host's, inside the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from shingle.build import build
from shingle.catalogue import command as commands
from shingle.catalogue import drive, faults, workload
from shingle.catalogue import fs as file_systems
from shingle.cli.base import DRIVE, FILE_SYSTEMS, SEED, check_folder, err, examples, host_options, record_option
from shingle.evidence import table
from shingle.failure import Failure
from shingle.machine import job
from shingle.machine.progress import Terminal
from shingle.runs import execute, record, run

_GIB = 1 << 30
_DAY_S = 24 * 3600.0
_SPIN_LIMIT_S = 60.0


@contextmanager
def _of_exec() -> Iterator[None]:
    """A failure of exec itself has a status that few commands end with; what stopped it keeps its own."""
    try:
        yield
    except Failure as failure:
        if failure.status in (1, 2):
            failure.status = commands.EXIT_OURS
        raise


class _Exec(click.Command):
    """A wrong use is one sentence here, too: what follows it may be the output of a script."""

    def make_context(self, *arguments: object, **more: object) -> click.Context:
        try:
            return super().make_context(*arguments, **more)  # type: ignore[arg-type]
        except click.UsageError as error:
            raise Failure(error.format_message(), status=commands.EXIT_OURS) from None


@click.command(
    "exec",
    cls=_Exec,
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "exec -- git init tree",
        "exec --fs ext4-lazy --in src --setup 'cd src && git init -q .' --record x.jsonl -- git -C src add .",
        "exec --drive wd40efax --fs xfs --out result.txt -- ./mine.sh",
        "exec --drive hc620 --drive wd40efax --fs none --trace traces -- ./two-disks.sh",
    ),
)
@click.option(
    "--drive", "drive_names", multiple=True, type=DRIVE,
    help="As `./shingle drives` lists them; st8000as0002 if none. The file system is on the first; others are bare,"
    " /dev/shd1 and so on.",
)  # fmt: skip
@click.option(
    "--fs", "fs_name", default="ext4", show_default=True, type=FILE_SYSTEMS,
    help="As `./shingle file-systems` lists them; none: /mnt is in memory, and /dev/shd0 a bare disk.",
)  # fmt: skip
@click.option("--in", "brought", multiple=True, metavar="HOST[:PLACE]", help="A file or folder to copy in before.")
@click.option("--setup", metavar="CMD", help="A command of sh to run before, which is no part of the command's phases.")
@click.option("--out", "taken", multiple=True, metavar="PLACE[:HOST]", help="A file or folder to copy out afterwards.")
@click.option(
    "--env", "environment", multiple=True, metavar="NAME[=VALUE]", help="A variable; the host's, without value."
)
@click.option("--name", help="Of the command's phase and workload, in records; its file's if not given.")
@click.option("--seed", type=SEED, default=1, show_default=True, help="The same seed, the same bytes.")
@click.option(
    "--faults", "fault_plans", multiple=True, metavar="[NUMBER:]PLAN",
    help="What goes wrong in a disk, /dev/shd0 if no number is given: a plan as TOML (docs/reference/faults.md).",
)  # fmt: skip
@click.option("--capacity-gib", type=click.IntRange(1), help="Smaller drives of the same kinds.")
@host_options
@click.option(
    "--limit", "limit_s", type=click.FloatRange(0, min_open=True), default=_DAY_S, show_default=True,
    help="Virtual seconds after which the command is killed.",
)  # fmt: skip
@click.option(
    "--spin-limit", "spin_limit_s", type=click.FloatRange(1), default=_SPIN_LIMIT_S, show_default=True,
    help="Seconds of this host's processor that a program may take without a system call.",
)  # fmt: skip
@click.option(
    "--trace", "traces", type=click.Path(file_okay=False, path_type=Path),
    help="A folder for the trace of each disk, shd0.trace and so on.",
)  # fmt: skip
@record_option
@click.argument("argv", metavar="-- CMD [ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
def command(
    drive_names: tuple[str, ...],
    fs_name: str,
    brought: tuple[str, ...],
    setup: str | None,
    taken: tuple[str, ...],
    environment: tuple[str, ...],
    name: str | None,
    seed: int,
    fault_plans: tuple[str, ...],
    capacity_gib: int | None,
    limit_s: float,
    spin_limit_s: float,
    traces: Path | None,
    record_file: Path | None,
    argv: tuple[str, ...],
    **host: int,
) -> None:
    """Run a command of this host inside the simulated machine, on the file system of the simulated drive.

    It begins in /mnt, where the file system is; what it prints and its status are exec's. `shingle-phase NAME` in it
    begins another phase. Computing takes no virtual time.
    """
    with _of_exec():
        variant = file_systems.without(fs_name) if fs_name == file_systems.NONE else file_systems.find(fs_name)
        profile, *others = _drives(drive_names, variant, capacity_gib)
        capacity = _capacity(profile, capacity_gib)
        plans = _plans(fault_plans, 1 + len(others))
        belongs = [Path(each).name for each in (*variant.daemon[:1], variant.server) if each is not None]
        plan = commands.plan(
            argv, seed=seed, limit_s=limit_s, setup=setup, name=name, brought=brought, taken=taken,
            environment=environment, but=belongs, disks=1 + len(others),
        )  # fmt: skip
        execute.check_room(plan, capacity)
        size = None if capacity_gib is None else capacity
        wanted = run.Run(
            profile, variant, plan, capacity_bytes=size, faults=plans.pop(0, None), others=tuple(others),
            other_faults=tuple(sorted(plans.items())), **host,  # type: ignore[arg-type]
        )  # fmt: skip
        run.check_memory([wanted])
        if traces is not None:
            check_folder(traces)
        if record_file is not None:
            record.check_target(record_file)
        with Terminal(err) as progress:
            built = build.everything(progress=progress)
            for each in (profile, *others):
                drive.check(built.crates, each)
            for _, fault_plan in wanted.plans():
                faults.check(built.crates, fault_plan)
            built = build.with_kernel(built, variant.kernel, progress=progress)
            formatted = run.prepared(built, wanted, progress)
            run.prepared_others(built, wanted, progress)
        streams = sys.stdout.buffer, sys.stderr.buffer
        done = execute.execute(
            built, wanted, plan, formatted, spin_limit_s=spin_limit_s, streams=streams,
            traces=None if traces is None else traces.resolve(),
        )  # fmt: skip
        _report(done, record_file)
    sys.exit(done.status)


def _capacity(profile: drive.Profile, gib: int | None) -> int:
    return drive.capacity_of(profile) if gib is None else gib * _GIB


def _drives(names: Sequence[str], variant: file_systems.FileSystem, gib: int | None) -> list[drive.Profile]:
    """The drives of these names, the first of which takes the file system; refuses what cannot be."""
    if len(names) > job.DISKS_MAX:
        raise Failure(f"{len(names)} drives are too many; a machine has at most {job.DISKS_MAX}.")
    found = [drive.find(name) for name in names or ("st8000as0002",)]
    nothing = file_systems.without(file_systems.NONE)
    for number, each in enumerate(found):
        run.check_can_live(nothing if number else variant, each, _capacity(each, gib))
    return found


def _plans(given: Sequence[str], disks: int) -> dict[int, Path]:
    """The plans of faults by their disks' numbers; refuses what no disk, or no file, is meant by."""
    plans: dict[int, Path] = {}
    for each in given:
        number, colon, file = each.partition(":")
        disk, path = (int(number), Path(file)) if colon and number.isdecimal() else (0, Path(each))
        if disk >= disks:
            raise Failure(f"--faults {each}: there is no disk {disk}; the last of --drive is {disks - 1}.")
        if disk in plans:
            raise Failure(f"--faults {each}: disk {disk} has a plan already, {plans[disk]}.")
        if not path.is_file():
            raise Failure(f"--faults {each}: {path} is no file.")
        plans[disk] = path
    return plans


def _report(done: execute.Executed, record_file: Path | None) -> None:
    """What is not the command's goes to standard error; --quiet leaves out what is no trouble."""
    if done.records and not err.quiet:
        table.show(err, done.records, phases=[each for each in done.phases if each != workload.UNMOUNT])
        table.show_disks(err, done.records)
        host_s = done.records[0]["host"]["run_s"]
        err.print(f"computing took no virtual time; the machine ran for {host_s:.1f} s of this host", soft_wrap=True)
    if record_file is not None and done.records:
        record.write(record_file, done.records)
        err.print(f"records: {record_file}", soft_wrap=True)
    for sentence in done.said:
        click.echo(f"shingle: {sentence}", err=True)

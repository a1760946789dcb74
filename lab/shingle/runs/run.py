# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a workload on a file system on a drive, and the same on several side by side."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from shingle import process
from shingle.build import build
from shingle.catalogue import build_trace, drive, faults
from shingle.catalogue import fs as file_systems
from shingle.catalogue import workload as workloads
from shingle.catalogue.drive import Age, FormattedDrive, Profile
from shingle.catalogue.fs import FileSystem
from shingle.catalogue.workload import Plan
from shingle.failure import Failure
from shingle.machine import console, job, machine, watch
from shingle.machine.machine import Outcome, StepResult
from shingle.machine.progress import SILENT, Progress
from shingle.paths import ContentKey, run_folder
from shingle.runs import record
from shingle.runs.record import Record

MOUNT = "mount"
# As much as two machines at once leave room for on a small host.
DEFAULT_MEMORY_MIB = 3072
# The host of FAST'17 (section 4): its memory, and the disk's share of the write-back cache, which was fixed "to 50% of
# the total". That it is strict is our reading: with it, a file server writes what it does in the paper (e18).
PAPER_MEMORY_MIB = 16384
PAPER_WRITEBACK_PERCENT = 50
# Of its drive-managed disk, for the microbenchmarks (section 4.3.1) and, smaller, for the file server (4.3.2).
PAPER_PARTITION_BYTES = 2_000_000_000_000
PAPER_SMALL_PARTITION_BYTES = 400_000_000_000
# 64 GiB through FUSE, on a host that does other things too.
HOST_LIMIT_S = 4 * 3600.0
_SETTLE_S = 120
_GIB = 1 << 30
# What a machine needs beside its memory: the drive's contents, the host's share.
RESERVE_MIB = 1024


def _host_option(default: int, *, least: int, most: int, help: str) -> Any:
    """A field of `Run` that is a field of `Boot`, a key of a record's configuration and an option of `compare`, too."""
    return field(default=default, metadata={"least": least, "most": most, "help": help})


@dataclass(frozen=True)
class Run:
    """One cell of a comparison: everything that decides its record."""

    profile: Profile
    variant: FileSystem
    plan: Plan
    memory_mib: int = _host_option(DEFAULT_MEMORY_MIB, least=128, most=1 << 20, help="Memory of the simulated host.")
    call_ns: int = _host_option(
        machine.DEFAULT_CALL_NS,
        least=1,
        most=machine.NS_PER_S,
        help="Virtual time that a system call costs which changes no name.",
    )
    name_ns: int = _host_option(
        machine.DEFAULT_NAME_NS,
        least=1,
        most=machine.NS_PER_S,
        help="Virtual time that a system call costs which changes a name.",
    )
    capacity_bytes: int | None = None
    experiment: str | None = None
    kernel_arguments: tuple[str, ...] = ()
    age: Age | None = None
    # A plan of faults, as TOML (docs/reference/faults.md).
    faults: Path | None = None
    # Disks beside the first, on which nothing is made.
    others: tuple[Profile, ...] = ()
    # Plans of faults of these, by the disk's number from 1 on.
    other_faults: tuple[tuple[int, Path], ...] = ()
    # A workload that the file system does not bring to its end is a result: the record says why.
    may_fail: bool = False
    # What the console may show: it is a result, too.
    expected: tuple[console.Trouble, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.variant.name} on {self.profile.name}"

    @property
    def size_bytes(self) -> int:
        return self.capacity_bytes or drive.capacity_of(self.profile)

    def plans(self) -> tuple[tuple[int, Path], ...]:
        """The plans of faults, each with its disk's number."""
        return (*(() if self.faults is None else ((0, self.faults),)), *self.other_faults)

    def host(self) -> dict[str, Any]:
        """The values of the options of the simulated host, by name."""
        return {each.name: getattr(self, each.name) for each in host_options()}

    def identity(self) -> dict[str, object]:
        """What decides the run's records and is known before anything is built or formatted, as records have it."""
        variant = self.variant
        return {
            "experiment": self.experiment,
            "drive": self.profile.name,
            "file_system": variant.name,
            "workload": self.plan.label,
            "scale": self.plan.scales[self.plan.names[-1]],
            "seed": self.plan.seed,
            "configuration": {
                "capacity_bytes": self.size_bytes,
                **self.host(),
                "mkfs": list(variant.mkfs_argv(host_managed=drive.is_host_managed(self.profile))),
                "mount_options": variant.options,
                "kernel_arguments": list(self.kernel_arguments),
                "aged": None if self.age is None else asdict(self.age),
                "scales": dict(self.plan.scales),
                **({"latency": True} if self.plan.latency else {}),
                **({} if self.faults is None else {"faults": self.faults.read_text()}),
                **({"other_drives": [each.name for each in self.others]} if self.others else {}),
                **(
                    {"other_faults": {str(n): plan.read_text() for n, plan in self.other_faults}}
                    if self.other_faults
                    else {}
                ),
                **({"fio_jobs": self.plan.fio_jobs} if self.plan.fio_jobs else {}),
                **({"scripts": self.plan.scripts} if self.plan.scripts else {}),
                **({"command": self.plan.told} if self.plan.told else {}),
                **({} if variant.kernel == "main" else {"kernel": variant.kernel}),
                **({"settings": dict(variant.settings)} if variant.settings else {}),
                **({"before_mount": [list(argv) for argv in variant.before_mount]} if variant.before_mount else {}),
            },
        }


def host_options() -> tuple[Field[int], ...]:
    """The options of the simulated host, each with its least and its largest value and its help."""
    return tuple(each for each in fields(Run) if "least" in each.metadata)


@dataclass(frozen=True)
class Keep:
    """What of a run stays, in which folder, beside its records."""

    folder: Path
    trace: bool = True
    drive: bool = False


@dataclass(frozen=True)
class Result:
    """What a run gave. One that failed, or was recorded before, has no outcome."""

    run: Run
    records: tuple[Record, ...]
    outcome: Outcome | None = None
    recorded_before: bool = False
    trace: Path | None = None
    saved: Path | None = None


def steps_of(run: Run, classes: Sequence[job.Step], *, save: bool) -> list[job.Step]:
    """The whole job: classes told to the drive, mount, workload, unmount."""
    steps = list(classes)
    steps += [step | {"phase": MOUNT} for step in run.variant.mount_steps()]
    # A mount starts work in the background (ext4 reads all its block bitmaps); it is no part of the first phase.
    steps += [job.sleep(_SETTLE_S), job.wait_clean(limit_s=workloads.CLEAN_LIMIT_S)]
    for step in run.plan.steps():
        steps += run.variant.served(step)
        if step["do"] == "sync":
            steps += [job.read(path) for path in run.variant.statistics]
    if save:
        steps.append(job.save())
    return steps


def perform(
    built: build.Built,
    run: Run,
    *,
    keep: Keep | None = None,
    progress: Progress = SILENT,
    host_limit_s: float = HOST_LIMIT_S,
) -> Result:
    """Runs one cell."""
    built = build.with_kernel(built, run.variant.kernel, progress=progress)
    formatted = prepared(built, run, progress)
    with contextlib.ExitStack() as stack:
        limits = drive.cache_limits(run.profile)
        tell = stack.enter_context(progress.machine(run.label, limits))
        out = stack.enter_context(run_folder())
        watch.about(out, run.label, limits)
        name = f"{run.profile.name}-{run.variant.name}"
        requests = saved = None
        if keep is not None:
            keep.folder.mkdir(parents=True, exist_ok=True)
            requests = keep.folder / f"{name}.trace" if keep.trace else None
            saved = keep.folder / f"{name}.drive" if keep.drive else None
        steps_wanted = steps_of(run, formatted.classes(), save=saved is not None)
        boot = replace(
            boot_of(built, run, formatted, steps_wanted, out),
            save=saved,
            trace=requests,
            host_limit_s=host_limit_s,
        )
        outcome: Outcome | None = None
        failed: str | None = None
        began = time.monotonic()
        try:
            outcome = machine.run(built.machine, boot, out, watch=tell)
            steps = outcome.steps
        except machine.StepFailed as failure:
            steps, failed = failure.steps, str(failure)
            if not run.may_fail or steps[-1].phase not in run.plan.names:
                raise Failure(f"{run.label}: {failure}", detail=failure.detail) from None
        except Failure as failure:
            raise Failure(f"{run.label}: {failure}", detail=failure.detail, status=failure.status) from None
    phases = (MOUNT, *run.plan.phases)
    records = records_of(built, run, formatted, steps, phases, run_s=time.monotonic() - began, failed=failed)
    return Result(run, records, outcome, trace=requests, saved=saved)


def boot_of(
    built: build.Built, run: Run, formatted: FormattedDrive, steps: Sequence[job.Step], out: Path
) -> machine.Boot:
    """The machine of a run; what it needs beside its programs is put into `out`."""
    for trace in run.plan.traces:
        (out / f"{trace.stem}.trace").write_bytes(build_trace.text(trace))
    plans = {number: faults.compiled(built.crates, plan, out / f"faults{number}") for number, plan in run.plans()}
    return machine.Boot(
        steps=tuple(steps),
        drive=formatted.file,
        faults=plans.get(0),
        files=(*run.variant.files(built.crates), *run.plan.files()),
        others=tuple(
            machine.Disk(each.file, faults=plans.get(number))
            for number, each in enumerate(prepared_others(built, run), 1)
        ),
        seed=run.plan.seed,
        kernel_arguments=run.kernel_arguments,
        **run.host(),
        host_limit_s=HOST_LIMIT_S,
        expected=run.expected,
    )


def records_of(
    built: build.Built,
    run: Run,
    formatted: FormattedDrive,
    steps: Sequence[StepResult],
    phases: Sequence[str],
    *,
    run_s: float,
    failed: str | None = None,
) -> tuple[Record, ...]:
    """The records of what a run's machine reported."""
    records = record.of_run(
        steps,
        phases,
        variant=run.variant,
        common=_common(built, run, formatted),
        host=_host(run_s),
        failed=failed,
        others=[each.name for each in run.others],
    )
    for each in records:
        record.check(each)
    return tuple(records)


def _common(built: build.Built, run: Run, formatted: FormattedDrive) -> dict[str, object]:
    """What every record of this run carries: its identity, and what was built and formatted for it."""
    built = build.with_kernel(built, run.variant.kernel)
    identity: dict[str, Any] = run.identity()
    return {
        **identity,
        "configuration": identity["configuration"] | {"journal_bytes": formatted.layout.journal_bytes},
        "versions": {
            "linux": built.kernel.version,
            "kernel": built.kernel.key,
            "drive_model": content(built.crates.drive_object),
            "guest": content(built.crates.guest),
            "profile": content(run.profile.path),
            "mkfs": formatted.mkfs_version,
            "formatted": formatted.key,
            **{f"profile.shd{number}": content(each.path) for number, each in enumerate(run.others, 1)},
        },
    }


def key_of(built: build.Built, run: Run) -> str:
    """A hash of everything that decides the run's records. Nothing is formatted for it."""
    built = build.with_kernel(built, run.variant.kernel)
    formatted = drive.formatted_key(
        built, run.profile, run.variant, seed=run.plan.seed, capacity_bytes=run.capacity_bytes
    )
    said = run.identity() | {
        "steps": steps_of(run, (), save=False),
        "arguments": list(built.arguments),
        "may_fail": run.may_fail,
        "expected": [each.name for each in run.expected],
    }
    key = ContentKey("cell 2").text("run", json.dumps(said, sort_keys=True)).text("formatted", formatted)
    for program in run.plan.files():
        key.file(program.name, program)
    key.text("kernel", built.kernel.key).file("profile", run.profile.path)
    return key.file("drive", built.crates.drive_object).file("guest", built.crates.guest).hexdigest()


def content(path: Path) -> str:
    return ContentKey("content").file("file", path).hexdigest()


def _host(run_s: float) -> dict[str, object]:
    return {
        "run_s": round(run_s, 2),
        "load_1min": round(os.getloadavg()[0], 2),
        "cpus": os.cpu_count() or 1,
    }


def side_by_side(
    built: build.Built,
    runs: Sequence[Run],
    progress: Progress,
    *,
    keep: Keep | None = None,
    known: Sequence[Record] = (),
    finished: Callable[[Result], None] | None = None,
    jobs: int | None = None,
) -> list[Result]:
    """Runs the cells, `jobs` at a time where memory allows; results come in the order asked for.

    What `known` holds of exactly these runs is not run again. `finished` gets each result that is new, in the order
    asked for, as soon as it and all before it are there. Only what is kept for a figure has its outcome.
    """
    for plan in {plan for run in runs for _, plan in run.plans()}:
        faults.check(built.crates, plan)
    for profile in own_drives(runs):
        drive.check(built.crates, profile)
    for flavour in sorted({run.variant.kernel for run in runs}):
        build.with_kernel(built, flavour, progress=progress)
    _prepare_all(built, runs, progress)
    in_order = _InOrder(finished or (lambda _: None))

    def task(number: int, run: Run, done: Callable[[bool], None]) -> Callable[[], Result]:
        def perform_unless_known() -> Result:
            found = _recorded(built, run, known, progress)
            result = found or perform(built, run, keep=_own(keep, run, runs), progress=progress)
            in_order.put(number, None if found else result)
            done(found is None)
            return result if keep is not None else replace(result, outcome=None)

        return perform_unless_known

    width = at_once(runs, available_mib(), jobs or os.cpu_count() or 1)
    with progress.runs(len(runs)) as done:
        return process.in_parallel([task(number, run, done) for number, run in enumerate(runs)], width=width)


def own_drives(runs: Sequence[Run]) -> list[Profile]:
    """Those that are files of the user's, which may have mistakes."""
    return list({each.profile.path: each.profile for each in runs if drive.is_own(each.profile)}.values())


def _own(keep: Keep | None, run: Run, runs: Sequence[Run]) -> Keep | None:
    """A folder for each seed, if there are several."""
    if keep is None or len({each.plan.seed for each in runs}) == 1:
        return keep
    return replace(keep, folder=keep.folder / f"seed-{run.plan.seed}")


class _InOrder:
    """Hands results on in the order of their numbers, from whichever thread."""

    def __init__(self, hand_on: Callable[[Result], None]) -> None:
        self._hand_on = hand_on
        self._lock = threading.Lock()
        self._waiting: dict[int, Result | None] = {}
        self._next = 0

    def put(self, number: int, result: Result | None) -> None:
        with self._lock:
            self._waiting[number] = result
            while self._next in self._waiting:
                ready = self._waiting.pop(self._next)
                self._next += 1
                if ready is not None:
                    self._hand_on(ready)


def _recorded(built: build.Built, run: Run, known: Sequence[Record], progress: Progress) -> Result | None:
    """The run as it was recorded, by the same programs with the same configuration; None unless every phase was."""
    if not known:
        return None
    common = _common(built, run, prepared(built, run, progress))
    same = {each["phase"]: each for each in known if all(each[key] == value for key, value in common.items())}
    phases = (MOUNT, *run.plan.phases)
    found = tuple(same[phase] for phase in phases if phase in same)
    whole = len(found) == len(phases) or any(each.get("failed") for each in found)
    return Result(run, found, recorded_before=True) if whole else None


def prepared(built: build.Built, run: Run, progress: Progress) -> FormattedDrive:
    """The drive that a run starts from."""
    if run.age is not None:
        return drive.aged(
            built,
            run.profile,
            run.variant,
            run.age,
            seed=run.plan.seed,
            capacity_bytes=run.capacity_bytes,
            progress=progress,
        )
    return drive.formatted(
        built, run.profile, run.variant, seed=run.plan.seed, capacity_bytes=run.capacity_bytes, progress=progress
    )


def prepared_others(built: build.Built, run: Run, progress: Progress = SILENT) -> list[FormattedDrive]:
    """The drives beside the first, on which nothing is."""
    nothing = file_systems.without(file_systems.NONE)
    return [
        drive.formatted(
            built, profile, nothing, seed=run.plan.seed, capacity_bytes=run.capacity_bytes, progress=progress
        )
        for profile in run.others
    ]


def _prepare_all(built: build.Built, runs: Sequence[Run], progress: Progress) -> None:
    """Formats and ages what is not in the cache yet, each kind of drive once."""
    unique = {
        (run.profile.name, run.variant.mkfs, run.variant.size_bytes, run.size_bytes, run.plan.seed, run.age): run
        for run in runs
    }

    def task(run: Run) -> Callable[[], FormattedDrive]:
        return lambda: prepared(built, run, progress)

    process.in_parallel([task(run) for run in unique.values()], width=2)


def available_mib() -> int:
    return _meminfo_mib("MemAvailable")


def _meminfo_mib(name: str) -> int:
    for text in Path("/proc/meminfo").read_text().splitlines():
        if text.startswith(f"{name}:"):
            return int(text.split()[1]) >> 10
    return 0


def check_memory(runs: Sequence[Run]) -> None:
    """Refuses a machine that this host cannot hold, nor its /dev/shm."""
    largest, host = max(run.memory_mib for run in runs), _meminfo_mib("MemTotal")
    if largest > host:
        raise Failure(
            f"a machine of {largest:,} MiB of memory does not fit this host, which has {host:,} MiB.", status=2
        )
    machine.memory_folder(largest)


def at_once(runs: Sequence[Run], memory_mib: int, cpus: int) -> int:
    """How many of these machines fit the host at a time."""
    if not runs:
        return 1
    largest = max(run.memory_mib for run in runs) + RESERVE_MIB
    return max(1, min(cpus, memory_mib // largest, len(runs)))


def on_the_papers_host(cells: Sequence[Run], scale: float = 1.0) -> list[Run]:
    """With the memory of the paper's host times the scale of the workload, but no less than usual, and its write-back
    cache."""
    memory_mib = max(DEFAULT_MEMORY_MIB, round(PAPER_MEMORY_MIB * scale))
    return [
        replace(
            cell,
            memory_mib=memory_mib,
            variant=file_systems.with_writeback(cell.variant, PAPER_WRITEBACK_PERCENT, strict=True),
        )
        for cell in cells
    ]


def check_can_live(variant: FileSystem, profile: Profile, capacity_bytes: int) -> None:
    """Refuses a file system on a drive of this kind and size."""
    largest = drive.capacity_of(profile)
    if capacity_bytes > largest:
        raise Failure(
            f"{profile.name} has {largest / _GIB:,.0f} GiB: {capacity_bytes / _GIB:,.0f} are too many.", status=2
        )
    drive.check_zones(profile, capacity_bytes)
    file_systems.check_suits(variant, profile.name, host_managed=drive.is_host_managed(profile))
    file_systems.check_fits(variant, profile.name, capacity_bytes)


def cells(
    drive_name: str | Profile,
    fs_names: Sequence[str],
    plan: Plan,
    *,
    capacity_bytes: int | None = None,
    template: Run | None = None,
) -> list[Run]:
    """The runs of a comparison, checked before anything is built."""
    if not fs_names:
        raise Failure("no file system was named.", status=2)
    profile = drive_name if isinstance(drive_name, Profile) else drive.find(drive_name)
    capacity = capacity_bytes or drive.capacity_of(profile)
    runs = []
    for name in dict.fromkeys(fs_names):
        variant = file_systems.find(name)
        check_can_live(variant, profile, capacity)
        workloads.check_fits(plan, profile.name, capacity)
        run = Run(profile, variant, plan, capacity_bytes=capacity_bytes)
        if template is not None:
            run = replace(template, profile=profile, variant=variant, plan=plan, capacity_bytes=capacity_bytes)
        runs.append(run)
    return runs

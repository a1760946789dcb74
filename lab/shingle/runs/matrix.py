# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sets of experiments as a matrix of cells, run by Snakemake (workflow/Snakefile).

A cell is one run of one experiment at one scale with one seed. It is one process
and leaves one file of records, which appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shingle import process
from shingle.build import build
from shingle.failure import Failure, unknown_name
from shingle.machine.progress import Progress
from shingle.paths import ROOT, cache
from shingle.runs import experiment, record, run
from shingle.runs.experiment import Experiment
from shingle.runs.run import Result, Run

WORKFLOW = ROOT / "workflow"
FOLDER = ROOT / "records"
# Names the program; the front door installs it for `./shingle matrix` only.
SNAKEMAKE = "SHINGLE_SNAKEMAKE"
# What a cell takes to end its machine and to go, and Snakemake after it.
_STOP_LIMIT_S = 60


@dataclass(frozen=True)
class Set:
    name: str
    summary: str
    experiments: Callable[[], list[Experiment]]
    scale: float
    seeds: int


def _with_claims(*, varied: bool) -> list[Experiment]:
    return [each for each in experiment.all_of_them() if each.claims and each.varied == varied]


SETS = {
    each.name: each
    for each in (
        Set(
            "paper",
            "the papers' own cells: what repeats a number of a paper",
            partial(_with_claims, varied=False),
            1.0,
            5,
        ),
        Set("varied", "the same with something changed, to find a reason", partial(_with_claims, varied=True), 1.0, 1),
        Set(
            "field",
            "what a user would pick instead, on three drive-managed disks and a host-managed one",
            lambda: [experiment.find("e40")],
            0.1,
            1,
        ),
    )
}


def find(name: str) -> Set:
    if name not in SETS:
        raise unknown_name("set", name, SETS)
    return SETS[name]


@dataclass(frozen=True)
class Cell:
    """A run with its place in the matrix."""

    experiment: Experiment
    name: str
    scale: float
    seed: int
    run: Run

    @property
    def joined(self) -> str:
        """The file of all records of the experiment, in the folder of the matrix."""
        return f"{self.experiment.number}.jsonl"

    @property
    def record(self) -> str:
        """The file of this cell's records, there too."""
        return f"{self.experiment.number}/scale-{self.scale}/seed-{self.seed}/{self.name}.jsonl"


@dataclass(frozen=True)
class Matrix:
    """The cells that were asked for, in order, and what is not among them, with the reason."""

    chosen: Set
    scale: float
    seeds: int
    only: tuple[str, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]

    @property
    def experiments(self) -> list[Experiment]:
        return list({each.experiment.name: each.experiment for each in self.cells}.values())

    @property
    def config(self) -> list[str]:
        """The same for Snakemake."""
        only = [f"only={','.join(self.only)}"] if self.only else []
        return [f"set={self.chosen.name}", f"scale={self.scale}", f"seeds={self.seeds}", *only]


def matrix(chosen: Set, *, scale: float | None = None, seeds: int | None = None, only: Sequence[str] = ()) -> Matrix:
    """The cells of a set. The seeds of an experiment follow each other, as in `./shingle run --seeds`."""
    wanted = chosen.scale if scale is None else scale
    count = chosen.seeds if seeds is None else seeds
    members = {each.number: each for each in chosen.experiments()}
    names = {each.name for each in members.values()}
    numbers = []
    for name in only:
        number = name.replace("_", "-").split("-")[0]
        if name not in members and name not in names:
            raise unknown_name(f"experiment of the set {chosen.name}", name, names)
        numbers.append(number)
    cells: list[Cell] = []
    notes: list[str] = []
    for number, member in members.items():
        if numbers and number not in numbers:
            continue
        if wanted < 1 and member.claims and all(claim.full_size for claim in member.claims):
            notes.append(f"{member.name} is left out: it says something at the paper's size only.")
            continue
        if wanted < member.scale and not member.scalable:
            notes.append(f"{member.name} is left out: it does not scale, and its own is {member.scale:g}.")
            continue
        # What is dear at the paper's size has a scale of its own below a tenth.
        own = min(wanted, member.scale) if wanted < 1 else wanted
        if own != wanted:
            notes.append(f"{member.name} runs at its own scale, {own:g}.")
        for seed in range(1, count + 1):
            cells += [Cell(member, name, own, seed, each) for name, each in member.cells(own, seed).items()]
    return Matrix(chosen, wanted, count, tuple(numbers), tuple(cells), tuple(notes))


def perform(chosen: Experiment, name: str, *, scale: float, seed: int, record_file: Path, progress: Progress) -> Result:
    """Runs one cell, unless the file holds just what it would record."""
    cell = chosen.cell(name, scale, seed)
    known = record.read(record_file) if record_file.exists() else []
    built = build.everything(progress=progress)
    (result,) = run.side_by_side(built, [cell], progress, known=known)
    if not result.recorded_before:
        record.replace(record_file, result.records)
    return result


# --- Snakemake ----------------------------------------------------------------


def profile_folder(name: str) -> Path:
    """A profile of workflow/profiles by its name, or the user's own by a path."""
    if "/" in name:
        if not Path(name).is_dir():
            raise Failure(f"{name} is no folder; expected a profile of Snakemake, with a config.yaml.", status=2)
        return Path(name).resolve()
    known = {path.parent.name: path.parent for path in sorted((WORKFLOW / "profiles").glob("*/config.yaml"))}
    if name not in known:
        raise unknown_name("profile", name, known)
    return known[name]


def command(
    wanted: Matrix, folder: Path, *, jobs: int | None, profile: Path | None, dry_run: bool, more: Sequence[str]
) -> list[str]:
    program = os.environ.get(SNAKEMAKE)
    if program is None:
        raise Failure(f"{SNAKEMAKE} names no program; start it as `./shingle matrix`, which installs it.", status=2)
    argv = [program, "--snakefile", str(WORKFLOW / "Snakefile"), "--directory", str(folder)]
    argv += ["--config", *wanted.config]
    # params: the cell's key has changed. mtime and input: a joined file is older than a record, or lacks one. Not code:
    # another word in the Snakefile makes no record wrong.
    argv += ["--rerun-triggers", "mtime", "input", "params"]
    # There is nothing to optimise among jobs that do not depend on each other.
    argv += ["--scheduler", "greedy"]
    if profile is not None:
        argv += ["--profile", str(profile), *(() if jobs is None else ("--jobs", str(jobs)))]
    else:
        # A guest that is larger than the host has room for is not refused; it runs alone.
        argv += [
            "--cores",
            str(jobs or default_jobs(wanted)),
            "--resources",
            f"mem_mb={megabytes(run.available_mib())}",
        ]
    # A cell that fails must not cost the night of all others. It has no record, so the next start tries it again.
    argv += ["--keep-going", "--show-failed-logs"]
    # A record that was there whole when Snakemake was killed is noted as unfinished; its cell sees in a second that
    # nothing is to be done.
    argv += ["--rerun-incomplete"]
    # `alone` keeps others away, and its lock is gone with the process, however it ends.
    argv += ["--nolock"]
    # The last of ours takes no value, so that a file may follow.
    return [*argv, *(("--dry-run",) if dry_run else ()), *more]


def megabytes(mib: int) -> int:
    """Snakemake's are of a million bytes."""
    return (mib << 20) // 1_000_000


def default_jobs(wanted: Matrix) -> int:
    """Guests of the paper's size one at a time, others on two processors."""
    return 1 if wanted.scale >= 1 else min(2, os.cpu_count() or 1)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keeps a second matrix out of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"another matrix is at work in {folder}.", status=2) from None
        yield


def snakemake(argv: Sequence[str]) -> int:
    """Runs it to its end, in a process group of its own; a signal stops it, and the cells with it, in good order."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # What it caches of workflows belongs with what is ours, not into the user's home.
    environment["XDG_CACHE_HOME"] = str(cache())
    with process.started(argv, env=environment) as child:
        try:
            return child.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(child.pid, signal.SIGINT)
                child.wait(timeout=_STOP_LIMIT_S)
            raise


def missing(wanted: Matrix, folder: Path) -> list[Cell]:
    return [each for each in wanted.cells if not (folder / each.record).exists()]

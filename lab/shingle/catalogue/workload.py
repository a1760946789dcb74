# SPDX-License-Identifier: MIT OR Apache-2.0
"""The workloads: the papers' parameters times a scale (FAST'17, sections 4.2.1 and 4.2.2, and others), and those that
are files, in workloads/ or the user's own: personalities (.toml), jobs of fio (.fio) and scripts (.sh).

A workload is one phase. Phases that need what another made (RemoveDirs needs a
tree) bring it along. Each phase ends with its sync; before the next one the
caches are dropped and the drive cleans up. The unmount is a phase of its own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shingle.catalogue import build_trace, fio, personality
from shingle.failure import Failure, unknown_name
from shingle.machine import job
from shingle.paths import ROOT

UNMOUNT = "unmount"
# At the least of them MakeDirs makes eight directories.
LEAST_SCALE, MOST_SCALE = 1e-5, 100.0
KERNEL_BUILD = ROOT / "traces/kernel-build.xz"
# The microbenchmarks of section 4.2.1, in an order in which each finds the tree that it needs.
DIRECTORIES = ("MakeDirs", "ListDirs", "TarDirs", "RemoveDirs")
FILES = ("CreateFiles", "FindFiles", "TarFiles", "RemoveFiles")
# Cleaning a full persistent cache takes hours; a drive that is busy for a week is broken.
CLEAN_LIMIT_S = 7 * 24 * 3600

Arguments = dict[str, object]


@dataclass(frozen=True)
class Workload:
    name: str
    generator: str
    summary: str
    arguments: Callable[[float], Arguments]
    needs: str | None = None
    seeded: bool = True
    # What the workload adds at scale 1, to refuse scales that a drive cannot hold.
    writes_bytes: int = 0
    # A recorded build that the generator reads (docs/reference/build-traces.md).
    trace: Path | None = None

    @property
    def timed(self) -> bool:
        """Whether it runs for a time, so that what it got done is its result."""
        return isinstance(self.arguments(1.0).get("duration_s"), float) and self.needs is not None

    def steps(self, *, scale: float, time_scale: float, seed: int, latency: bool = False) -> list[job.Step]:
        arguments = self.arguments(scale)
        duration_s = arguments.get("duration_s")
        if isinstance(duration_s, float) and time_scale != scale:
            arguments = arguments | {"duration_s": duration_s / scale * time_scale}
        if self.trace is not None:
            digest = build_trace.digest(self.trace)
            arguments = arguments | {"trace": f"{job.OUT}/{self.trace.stem}.trace", "sha256": digest}
        if self.seeded:
            arguments = arguments | {"seed": seed}
        if latency:
            arguments = arguments | {"latency": True}
        return [job.load(self.generator, arguments, phase=self.name)]


@dataclass(frozen=True)
class FioJobs(Workload):
    """A job file of fio."""

    text: str = ""
    only_create: bool = False

    def steps(self, *, scale: float, time_scale: float, seed: int, latency: bool = False) -> list[job.Step]:
        return fio.steps(self.name, fio.scaled(self.text, scale, time_scale), seed=seed, only_create=self.only_create)


@dataclass(frozen=True)
class Script(Workload):
    """A script of the user's own, for whatever programs the host has: run by sh, the file system as its folder."""

    text: str = ""

    def steps(self, *, scale: float, time_scale: float, seed: int, latency: bool = False) -> list[job.Step]:
        file = f"/run/{self.name}.sh"
        told = {"SCALE": f"{scale:g}", "SEED": str(seed)}
        run = job.run(["/bin/sh", "-e", file], stdout=f"{self.name}.txt", env=told, phase=self.name)
        return [job.write(file, self.text), run | {"cwd": job.MOUNT_POINT}]


def _scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale))


def _tree_of_directories(scale: float) -> Arguments:
    return {"count": _scaled(800_000, scale), "width": 4, "threads": 8, "path": "dirs"}


def _tree_of_files(scale: float) -> Arguments:
    return {"count": _scaled(600_000, scale), "file_bytes": 4096, "width": 2, "threads": 8, "path": "files"}


def _gigabyte(scale: float) -> Arguments:
    """FAST'17, section 4.1: some 1 GiB; a mean of two entries makes more than 60,000 directories."""
    return {"count": _scaled(100_000, scale), "file_bytes": 10 << 10, "width": 2, "threads": 8, "path": "gigabyte"}


def _one_directory(scale: float) -> Arguments:
    """FAST'17, section 4.4: 10,000 small files in one directory; 4 KiB is our reading of small."""
    count = _scaled(10_000, scale)
    return {"count": count, "file_bytes": 4096, "width": count, "depth": 1, "threads": 1, "path": "flat"}


def _postmark(scale: float) -> Arguments:
    """FAST'17, section 4.2.2. As Postmark does, the directories lie at the top, which is where ext4 spreads them out:
    "the workload spreads out the files across the disk"."""
    return {
        "files": _scaled(10_000, scale),
        "directories": _scaled(25_000, scale),
        "size_min_bytes": 512,
        "size_max_bytes": 1 << 20,
        "transactions": _scaled(100_000, scale),
        "io_bytes": 1 << 20,
        "path": ".",
    }


def _postmark_below(scale: float) -> Arguments:
    """Below a directory ext4 keeps directories together, as those of a user's tree; only at the top it spreads them."""
    return _postmark(scale) | {"path": "below"}


def _overwrite(scale: float) -> Arguments:
    return {"span_bytes": _mebibytes(8 << 30, scale), "count": _scaled(200_000, scale), "block_bytes": 4096}


def _sequential(scale: float) -> Arguments:
    return {"length_bytes": _mebibytes(8 << 30, scale), "io_bytes": 1 << 20}


def _mebibytes(size: int, scale: float) -> int:
    """A scaled size, in whole mebibytes."""
    return max(1, round(size * scale) >> 20) << 20


def _wide_directories(scale: float) -> Arguments:
    return {"count": _scaled(50_000, scale), "operations": 0}


def _churn(scale: float) -> Arguments:
    """So many that the changed blocks, logged, are ten times the working set."""
    return {"count": _scaled(50_000, scale), "operations": _scaled(500_000, scale), "prepare": False}


def _churn_hot(scale: float) -> Arguments:
    return _churn(scale) | {"hot_percent": 10, "hot_operations_percent": 90}


def _appended(each_gib: int, **more: object) -> Callable[[float], Arguments]:
    """SDC 2015, "Measured SAFS Applications": four files, one block to each in turn, until 64 GiB are so full.

    Blocks of 64 KiB are our reading: of 4 KiB they take a simulated FUSE server ten times as long."""
    return lambda scale: {"files": 4, "each_bytes": _mebibytes(each_gib << 30, scale), "io_bytes": 64 << 10, **more}


def _kernel(stage: str) -> Callable[[float], Arguments]:
    """FAST'17, section 4.2.2: make -j16 on four cores with two threads each. A recorded build has the size it has."""
    return lambda _: {"stage": stage, "path": "kernel", "jobs": 16, "processors": 8}


def _compilebench(scale: float) -> Arguments:
    """FAST'17, section 3.1: 128 at a time. A tree is smaller, and fewer instances sync, so that as much is written
    between two syncs as at full size."""
    return {
        "instances": 128,
        "trees": 2,
        "runs": 50,
        "directories_one_in": round(4 / scale),
        "syncs_one_in": max(1, round(1 / scale)),
    }


def _on(path: str) -> Callable[[float], Arguments]:
    return lambda scale: {"path": path}


_GIB = 1 << 30

_ALL = (
    Workload(
        "MakeDirs", "makedirs", "800,000 directories about 10 deep, 8 threads", _tree_of_directories,
        writes_bytes=5 * _GIB,
    ),
    Workload("ListDirs", "listdirs", "ls -lR of MakeDirs' tree", _on("dirs"), "MakeDirs", False),
    Workload("TarDirs", "tardirs", "tar of MakeDirs' tree, to nowhere", _on("dirs"), "MakeDirs", False),
    Workload("RemoveDirs", "removedirs", "rm -r of MakeDirs' tree", _on("dirs"), "MakeDirs", False),
    Workload(
        "CreateFiles", "createfiles", "600,000 files of 4 KiB, 8 threads", _tree_of_files, writes_bytes=6 * _GIB
    ),
    Workload(
        "CreateGigabyte", "createfiles", "100,000 files of 10 KiB in 60,000 directories, 8 threads", _gigabyte,
        writes_bytes=2 * _GIB,
    ),
    Workload("CreateFlat", "createfiles", "10,000 files of 4 KiB in one directory", _one_directory, writes_bytes=_GIB),
    Workload("TarFlat", "tarfiles", "tar of CreateFlat's directory, to nowhere", _on("flat"), "CreateFlat", False),
    Workload("FindFiles", "findfiles", "find in CreateFiles' tree", _on("files"), "CreateFiles", False),
    Workload("TarFiles", "tarfiles", "tar of CreateFiles' tree, to nowhere", _on("files"), "CreateFiles", False),
    Workload("RemoveFiles", "removefiles", "rm -r of CreateFiles' tree", _on("files"), "CreateFiles", False),
    Workload(
        "Postmark",
        "postmark",
        "10,000 files up to 1 MiB in 25,000 directories, 100,000 transactions",
        _postmark,
        writes_bytes=40 * _GIB,
    ),
    Workload(
        "PostmarkBelow", "postmark", "Postmark with its directories in one, not at the top", _postmark_below,
        writes_bytes=40 * _GIB,
    ),
    Workload(
        "RandomOverwrite", "random_overwrite", "200,000 overwrites of 4 KiB in a file of 8 GiB", _overwrite,
        writes_bytes=8 * _GIB,
    ),
    Workload("WideDirs", "churndirs", "50,000 directories to be churned", _wide_directories, writes_bytes=_GIB),
    Workload(
        "ChurnDirs", "churndirs", "500,000 times a file made or removed in one of WideDirs' directories", _churn,
        "WideDirs", writes_bytes=_GIB,
    ),
    Workload(
        "ChurnHotDirs", "churndirs", "ChurnDirs with 90 % of the operations in 10 % of the directories", _churn_hot,
        "WideDirs", writes_bytes=_GIB,
    ),
    Workload("SequentialWrite", "sequential_write", "one file of 8 GiB, written in order", _sequential,
        writes_bytes=8 * _GIB),
    Workload(
        "AppendHalf", "append_in_turn", "32 GiB appended to four files, 64 KiB to each in turn", _appended(8),
        writes_bytes=32 * _GIB,
    ),
    Workload("ReadHalf", "read_in_turn", "AppendHalf's files, 64 KiB of each in turn", _appended(8), "AppendHalf"),
    Workload("RemoveHalf", "removefiles", "AppendHalf's files deleted", _on("appended"), "AppendHalf", False),
    Workload(
        "AppendMost", "append_in_turn", "48 GiB appended to four files, 64 KiB to each in turn", _appended(12),
        writes_bytes=48 * _GIB,
    ),
    Workload(
        "ReplaceMost", "append_in_turn", "each of AppendMost's files deleted, made anew and appended to",
        _appended(12, replace=True), "AppendMost",
    ),
    Workload("RemoveMost", "removefiles", "AppendMost's files deleted", _on("appended"), "AppendMost", False),
    Workload(
        "KernelTree", "replay", "the source tree of a recorded kernel build", _kernel("tree"), writes_bytes=2 * _GIB,
        trace=KERNEL_BUILD,
    ),
    Workload(
        "KernelBuild", "replay", "make -j16 in KernelTree's tree, replayed on 8 virtual processors", _kernel("build"),
        "KernelTree", trace=KERNEL_BUILD, writes_bytes=4 * _GIB,
    ),
    Workload(
        "Compilebench", "compilebench", "128 times at once kernel trees made, compiled, cleaned, read, removed",
        _compilebench, writes_bytes=200 * _GIB, trace=KERNEL_BUILD,
    ),
)  # fmt: skip

FILES_ONLY = "-files"


def of_file(path: Path) -> tuple[Workload, Workload]:
    """Two workloads: the files that a personality or a job file of fio wants, and its work on them."""
    text = _text_of(path)
    return _personality(path, text) if path.suffix == ".toml" else _fio(path, text)


def of_script(path: Path) -> Script:
    text = _text_of(path)
    said = subprocess.run(["sh", "-n", path], capture_output=True, text=True, timeout=60, check=False)
    if said.returncode != 0:
        raise Failure(f"{said.stderr.strip().splitlines()[-1]}; sh does not take the script.", status=2)
    return Script(path.stem, "sh", f"the script {path}", lambda scale: {"script": text}, text=text)


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Failure(f"{path}: {why}; expected a file of a workload: .toml, .fio or .sh.", status=2) from None


def _personality(path: Path, text: str) -> tuple[Workload, Workload]:
    """What its keys mean, `load show personality` says; the scale goes into entries and time."""
    given = personality.read(path, text)
    sets, duration_s = given["filesets"], given["duration_s"]
    writes_bytes = sum(each["entries"] * each["mean_bytes"] for each in sets)
    summary = given.pop("summary", f"the personality {path}")
    name = path.stem

    def arguments(stage: str) -> Callable[[float], Arguments]:
        return lambda scale: {
            **given,
            "filesets": [each | {"entries": _scaled(each["entries"], scale)} for each in sets],
            "duration_s": duration_s * scale,
            "stage": stage,
            "path": name,
        }

    made = Workload(
        name + FILES_ONLY, "personality", f"the files of {name}", arguments("create"), writes_bytes=writes_bytes
    )
    return made, Workload(name, "personality", summary, arguments("run"), made.name)


def _fio(path: Path, text: str) -> tuple[Workload, Workload]:
    name = path.stem
    comment = text.splitlines()[1:2]
    summary = comment[0].lstrip("# ") if comment and comment[0].startswith("#") else f"the jobs of {path}"

    def shown(scale: float) -> Arguments:
        return {"job": fio.scaled(text, scale, scale)}

    made = FioJobs(name + FILES_ONLY, "fio", f"the files of {name}", shown, text=text, only_create=True)
    return made, FioJobs(name, "fio", summary, shown, made.name, text=text)


_OF_FILES = [each for path in sorted((ROOT / "workloads").iterdir()) for each in of_file(path)]
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in (*_ALL, *_OF_FILES)}


@dataclass(frozen=True)
class Plan:
    """The phases of a run: workloads in order, with what they need before them."""

    names: tuple[str, ...]
    scales: Mapping[str, float]
    seed: int
    # Measure each call (256 ns of virtual time per reading of the clock), for `load.latency_ns` of the records.
    latency: bool = False
    # Of what runs for a time; None: as everything else of its phase.
    time_scale: float | None = None

    @property
    def label(self) -> str:
        return ",".join(self.names)

    @property
    def phases(self) -> tuple[str, ...]:
        return (*self.names, UNMOUNT)

    @property
    def timed(self) -> bool:
        """Whether a load of it runs for a time, so that what it got done is its result."""
        return any(WORKLOADS[name].timed for name in self.names)

    @property
    def traces(self) -> frozenset[Path]:
        """Recorded builds that the machine needs, uncompressed."""
        found = (WORKLOADS[name].trace for name in self.names if name in WORKLOADS)
        return frozenset(trace for trace in found if trace is not None)

    @property
    def fio_jobs(self) -> dict[str, str]:
        """The job files of those phases that have one, as they are run."""
        found = ((name, WORKLOADS.get(name)) for name in self.names)
        return {
            name: fio.scaled(each.text, self.scales[name], self._time_scale(name))
            for name, each in found
            if isinstance(each, FioJobs)
        }

    @property
    def scripts(self) -> dict[str, str]:
        """The scripts of those phases that are one."""
        found = ((name, WORKLOADS.get(name)) for name in self.names)
        return {name: each.text for name, each in found if isinstance(each, Script)}

    @property
    def told(self) -> dict[str, object]:
        """What a record says of a command that is run (command.py)."""
        return {}

    def _time_scale(self, name: str) -> float:
        return self.scales[name] if self.time_scale is None else self.time_scale

    def files(self) -> tuple[Path, ...]:
        """Programs that the steps run, found in /run/out."""
        return ()

    def steps(self) -> list[job.Step]:
        """Everything between mounting and the end of the unmount."""
        steps: list[job.Step] = []
        for name in self.names:
            steps += WORKLOADS[name].steps(
                scale=self.scales[name], time_scale=self._time_scale(name), seed=self.seed, latency=self.latency
            )
            steps += [job.sync(phase=name), job.drop_caches(), job.wait_clean(limit_s=CLEAN_LIMIT_S)]
        return [*steps, job.umount(phase=UNMOUNT), job.wait_clean(limit_s=CLEAN_LIMIT_S)]


def find(name: str) -> Workload:
    """The workload of this name, or of a file of the user's own; that one and its files are known from now on."""
    if name.endswith(".sh"):
        script = of_script(Path(name))
        WORKLOADS[script.name] = script
        return script
    if name.endswith((".toml", ".fio")):
        made, wanted = of_file(Path(name))
        if isinstance(wanted, FioJobs):
            fio.check(Path(name), wanted.text)
        WORKLOADS.update({made.name: made, wanted.name: wanted})
        return wanted
    known = {each.lower(): each for each in WORKLOADS}.get(name.lower())
    if known is None:
        raise unknown_name("workload", name, WORKLOADS)
    return WORKLOADS[known]


def plan(names: Sequence[str], *, scale: float, seed: int, scales: Mapping[str, float] | None = None) -> Plan:
    """Orders what was asked for, adds what it needs, and refuses what cannot work."""
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise Failure(
            f"a scale of {scale:g} makes no sense: 1 is the paper's size; expected {LEAST_SCALE:g} to {MOST_SCALE:g}.",
            status=2,
        )
    ordered: list[str] = []
    standing: set[str] = set()
    for name in names:
        workload = find(name)
        if workload.needs is not None and workload.needs not in standing:
            ordered.append(workload.needs)
            standing.add(workload.needs)
        if workload.name in standing:
            raise Failure(f"{workload.name} cannot run twice: its tree is already there.", status=2)
        ordered.append(workload.name)
        if workload.name.startswith("Remove"):
            standing.discard(workload.needs or "")
        elif workload.needs is None:
            standing.add(workload.name)
    if not ordered:
        raise Failure("no workload was named.", status=2)
    each = {name: (scales or {}).get(name, scale) for name in ordered}
    return Plan(tuple(ordered), each, seed)


def check_fits(wanted: Plan, drive: str, capacity_bytes: int) -> None:
    """Refuses a run that would fill the drive."""
    needed = sum(round(WORKLOADS[name].writes_bytes * wanted.scales[name]) for name in wanted.names)
    if needed > 0.8 * capacity_bytes:
        raise Failure(
            f"{wanted.label} at this scale writes some {needed / _GIB:.0f} GiB,"
            f" too much for {drive} with its {capacity_bytes / _GIB:.0f} GiB.",
            status=2,
        )

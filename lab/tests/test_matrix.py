# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sets of experiments: the names of their cells, the file that one leaves, and what their records add up to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from shingle.build import build
from shingle.catalogue import drive, fs, workload
from shingle.cli import main
from shingle.failure import Failure
from shingle.machine.progress import SILENT
from shingle.runs import experiment, matrix, record, run
from shingle.runs.experiment import Experiment
from shingle.runs.run import Run

FAKE_LINUX = Path(__file__).with_name("fake_linux.py")
EMPTY = "formatted"


def runs(scale: float, seed: int) -> list[Run]:
    plan = workload.plan(("MakeDirs",), scale=scale, seed=seed)
    cells = run.cells("wd5000ys", ("ext4", "xfs"), plan)
    return [*cells, replace(cells[0], name_ns=1)]


FAKE = Experiment("e99-fake", "a machine that is a script can be run", runs, ("MakeDirs",), (), scale=0.01)
NAMES = ["wd5000ys_ext4_makedirs", "wd5000ys_xfs_makedirs", "wd5000ys_ext4_makedirs-2"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> build.Built:
    """A lab whose machine is a script, and whose only experiment is the fake one; nothing is built or formatted."""
    file = tmp_path / "content"
    file.write_text("content")
    crates = build.Crates(*[file] * 7)
    built = build.Built(build.Kernel(FAKE_LINUX, file, "6.12", "kernel"), crates)

    def formatted(_built: object, each: Run, _progress: object) -> drive.FormattedDrive:
        return drive.FormattedDrive(file, fs.Layout(), each.variant.mkfs, "1", each.size_bytes, EMPTY)

    monkeypatch.setattr(build, "everything", lambda **_: built)
    monkeypatch.setattr(run, "prepared", formatted)
    monkeypatch.setattr(drive, "formatted_key", lambda *_, **__: EMPTY)
    monkeypatch.setattr(experiment, "find", lambda _: FAKE)
    return built


def perform(record_file: Path, name: str = NAMES[0], seed: int = 1, **changes: object) -> bool:
    """Whether the cell was run."""
    changed = replace(FAKE, runs=lambda scale, seed: [replace(each, **changes) for each in runs(scale, seed)])
    result = matrix.perform(changed, name, scale=0.01, seed=seed, record_file=record_file, progress=SILENT)
    return not result.recorded_before


@pytest.mark.parametrize("name", experiment.names())
def test_cells_have_names_that_hang_on_neither_scale_nor_seed(name: str) -> None:
    chosen = experiment.find(name)
    first = list(chosen.cells(0.1, 1))
    assert len(first) == len(chosen.runs(0.1, 1))
    assert [each for each in first if not re.fullmatch(r"[a-z0-9.-]+(_[a-z0-9.-]+){2}", each)] == []
    assert list(chosen.cells(0.5, 1)) == first
    # e10 tries other seeds on its first only.
    assert first[: len(chosen.runs(0.1, 2))] == list(chosen.cells(0.1, 2))
    assert all(each.experiment == name for each in chosen.cells(0.1, 1).values())


def test_names_are_those_that_records_were_filed_under() -> None:
    assert list(experiment.find("e11").cells(0.1, 1)) == [
        "wd5000ys_ext4-10g_makedirs", "wd5000ys_ext4-lazy_makedirs",
        "wd5000ys_ext4-10g_createfiles", "wd5000ys_ext4-lazy_createfiles",
    ]  # fmt: skip
    assert list(FAKE.cells(0.1, 1)) == NAMES


def test_a_cell_leaves_its_records_and_is_not_run_twice(lab: build.Built, tmp_path: Path) -> None:
    file = tmp_path / "records/x.jsonl"
    assert perform(file)
    kept = file.read_bytes()
    assert [each["phase"] for each in record.read(file)] == [run.MOUNT, "MakeDirs", workload.UNMOUNT]
    assert not perform(file)
    assert file.read_bytes() == kept
    # Of another configuration: all anew, nothing added.
    assert perform(file, memory_mib=4096)
    assert {each["configuration"]["memory_mib"] for each in record.read(file)} == {4096}
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("kind", ["failed_step", "panic", "truncated"])
def test_a_cell_that_fails_leaves_nothing_and_takes_nothing_away(lab: build.Built, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "records/x.jsonl"
    with pytest.raises(Failure):
        perform(file, kernel_arguments=(f"fake={kind}",))
    assert not file.parent.exists()
    perform(file)
    kept = file.read_bytes()
    with pytest.raises(Failure):
        perform(file, kernel_arguments=(f"fake={kind}",))
    assert file.read_bytes() == kept
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["fsync", "getpid"])
def test_an_interrupted_cell_leaves_nothing(
    lab: build.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """While it writes, too."""
    file = tmp_path / "records/x.jsonl"
    monkeypatch.setattr(record.os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform(file)
    assert list(tmp_path.glob("records/**/*.jsonl*")) == list(tmp_path.glob("records/**/.*")) == []


def test_joined_records_are_those_of_run(lab: build.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_set = matrix.Set("fake", "", lambda: [FAKE], 0.01, 2)
    wanted = matrix.matrix(fake_set)
    for cell in reversed(wanted.cells):
        perform(tmp_path / cell.record, cell.name, cell.seed)
    joined = tmp_path / "joined.jsonl"
    joined.write_text("".join((tmp_path / cell.record).read_text() for cell in wanted.cells))
    ran = tmp_path / "run.jsonl"
    arguments = ["run", "e99", "--scale", "0.01", "--seeds", "2", "--record", str(ran)]
    done = CliRunner().invoke(main.cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert len(record.read(ran)) == 2 * 3 * 3
    ours, theirs = ([record.deterministic(each) for each in record.read(file)] for file in (joined, ran))
    assert ours == theirs


def test_a_key_changes_with_what_decides_the_records_and_with_nothing_else(lab: build.Built, tmp_path: Path) -> None:
    (first, *_) = FAKE.cells(0.01, 1).values()
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_bytes(first.profile.path.read_bytes())
    same = run.key_of(lab, first)
    assert run.key_of(lab, next(iter(FAKE.cells(0.01, 1).values()))) == same
    assert run.key_of(lab, replace(first, profile=replace(first.profile, path=elsewhere))) == same
    elsewhere.write_text(elsewhere.read_text() + "\n")
    others = [
        replace(first, memory_mib=4096),
        replace(first, name_ns=1),
        replace(first, variant=replace(first.variant, options="noatime")),
        replace(first, kernel_arguments=("x=y",)),
        replace(first, profile=replace(first.profile, path=elsewhere)),
        *(next(iter(FAKE.cells(*each).values())) for each in ((0.02, 1), (0.01, 2))),
    ]
    keys = {run.key_of(lab, each) for each in others}
    assert len(keys) == len(others) and same not in keys
    assert run.key_of(replace(lab, kernel=replace(lab.kernel, key="another")), first) not in {same, *keys}


def test_the_papers_set_is_what_has_claims_and_says_what_it_leaves_out() -> None:
    full = matrix.matrix(matrix.find("paper"), seeds=1)
    assert {each.number for each in full.experiments} >= {"e11", "e12", "e13", "e14", "e15", "e20"}
    assert full.scale == 1 and not full.notes
    assert all(each.claims for each in full.experiments)
    tenth = matrix.matrix(matrix.find("paper"), scale=0.1, seeds=1)
    for left_out in ("e15", "e20"):
        assert left_out not in {each.number for each in tenth.experiments}
        assert any(note.startswith(f"{left_out}-") and "left out" in note for note in tenth.notes)
    assert all(each.scale == min(0.1, each.experiment.scale) for each in tenth.cells)
    assert any(note.startswith("e24-") and "own scale" in note for note in tenth.notes)
    assert {each.seed for each in matrix.matrix(matrix.find("paper"), scale=0.1).cells} == {1, 2, 3, 4, 5}


def test_cells_of_a_set_have_files_of_their_own() -> None:
    for each in matrix.SETS.values():
        cells = matrix.matrix(each).cells
        assert len({cell.record for cell in cells}) == len(cells) > 0


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(main.cli, arguments)
    assert isinstance(done.exception, Failure) and done.exception.status == 2
    return str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["matrix", "papre"], "no set called 'papre'. Did you mean paper?"),
        (["matrix", "paper", "--only", "e11,e99"], "no experiment of the set paper called 'e99'"),
        (["matrix", "paper", "--only", "e01"], "no experiment of the set paper called 'e01'"),
        (["matrix", "paper", "--profile", "slrum"], "no profile called 'slrum'. Did you mean slurm?"),
        (["matrix", "paper", "--profile", "no/where"], "no/where is no folder"),
        (["matrix", "paper", "--scale", "0"], "a scale of 0 makes no sense"),
        (["cells", "feild"], "Did you mean field?"),
        (["cell", "e11", "wd5000ys_ext4-lazy", "--record", "x"], "Did you mean wd5000ys_ext4-lazy_makedirs?"),
        (["cell", "e98", "x", "--record", "x"], "no experiment called 'e98'"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(arguments: list[str], says: str) -> None:
    assert says in refused(*arguments)


def test_what_snakemake_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = matrix.matrix(matrix.find("paper"), scale=0.1, seeds=2, only=["e11", "e14-smr-postmark"])
    assert wanted.config == ["set=paper", "scale=0.1", "seeds=2", "only=e11,e14"]
    told: Callable[..., list[str]] = matrix.command
    monkeypatch.delenv(matrix.SNAKEMAKE, raising=False)
    with pytest.raises(Failure, match=r"\./shingle matrix"):
        told(wanted, tmp_path, jobs=None, profile=None, dry_run=False, more=())
    monkeypatch.setenv(matrix.SNAKEMAKE, "snakemake")
    local = told(wanted, tmp_path, jobs=3, profile=None, dry_run=False, more=("--until", "cell"))
    assert local[local.index("--cores") + 1] == "3" and local[-2:] == ["--until", "cell"]
    assert any(word.startswith("mem_mb=") for word in local)
    # What a host has room for is no limit of a cluster's.
    slurm = told(wanted, tmp_path, jobs=None, profile=matrix.profile_folder("slurm"), dry_run=True, more=())
    assert "--dry-run" in slurm and "--cores" not in slurm and "--resources" not in slurm
    assert matrix.default_jobs(matrix.matrix(matrix.find("paper"), seeds=1)) == 1


def test_two_matrices_do_not_share_a_folder(tmp_path: Path) -> None:
    with matrix.alone(tmp_path), pytest.raises(Failure, match="another matrix is at work"), matrix.alone(tmp_path):
        pass
    with matrix.alone(tmp_path):
        pass

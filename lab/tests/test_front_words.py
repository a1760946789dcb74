# SPDX-License-Identifier: MIT OR Apache-2.0
"""Options that all commands have, completion, progress, files that appear whole (rows A8, A12, A16, A17)."""

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from shingle import paths
from shingle.build import build
from shingle.catalogue import workload
from shingle.cli import base, compare, demo, main, perform
from shingle.evidence import figures, plot, report
from shingle.failure import Failure, unknown_name
from shingle.machine import progress
from shingle.machine.progress import Terminal
from shingle.paths import ROOT
from shingle.runs import experiment, run


def commands(command: click.Command) -> list[click.Command]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [command, *(each for one in below for each in commands(one))]


def test_every_command_can_be_quiet_and_verbose() -> None:
    for each in (one for verb in main.cli.commands.values() for one in commands(verb)):
        flags = [flag for parameter in each.params for flag in parameter.opts]
        assert {"-q", "--quiet", "-v", "--verbose"} <= set(flags), each.name
        assert len(flags) == len(set(flags)), each.name


def test_quiet_shows_no_progress_and_still_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base.err, "quiet", False)
    CliRunner().invoke(main.cli, ["file-systems", "-q"])
    assert base.err.quiet
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lab")}
    said = subprocess.run(
        [sys.executable, "-m", "shingle", "drives", "-q", "nosuch"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 2
    assert "there is no drive or command" in said.stderr or "No such command" in said.stderr


def test_verbose_lines_stay_and_come_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "verbose", True)
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    now = [0.0]
    monkeypatch.setattr(progress, "_now_s", lambda: now[0])
    with Terminal(console) as shown, shown.task("a run") as tell:
        for now[0] in (1.0, 6.0, 8.0, 12.0):
            tell(f"at {now[0]:.0f}")
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if "a run" in line]
    assert ["at 6" in lines[1], "at 12" in lines[2], len(lines)] == [True, True, 3]


@pytest.mark.parametrize(
    ("done", "ran", "host_s", "said"),
    [
        (0, 0, 100.0, "0 of 10 runs done"),
        (2, 0, 1.0, "2 of 10 runs done"),
        (2, 2, 600.0, "2 of 10 runs done, about 40 min left"),
        (5, 2, 600.0, "5 of 10 runs done, about 25 min left"),
        (2, 2, 3600.0, "2 of 10 runs done, about 4.0 h left"),
        (9, 9, 9.0, "9 of 10 runs done, less than a minute left"),
        (10, 10, 600.0, "10 of 10 runs done"),
    ],
)
def test_how_long_the_other_runs_take_is_guessed_from_those_that_were_run(
    done: int, ran: int, host_s: float, said: str
) -> None:
    assert progress.left(done, ran, 10, host_s) == said


def test_seeds_jobs_and_resume_of_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: dict[str, Any] = {}
    monkeypatch.setattr(
        compare, "perform", lambda cells, phases, options: got.update(cells=cells, phases=phases, options=options)
    )
    words = "compare --drive wd5000ys --fs ext4,xfs --workload MakeDirs --seed 7 --seeds 3 --jobs 1 --resume --record"
    file = tmp_path / "mine.jsonl"
    done = CliRunner().invoke(main.cli, [*words.split(), str(file)], catch_exceptions=False)
    assert done.exit_code == 0
    assert [(each.plan.seed, each.variant.name) for each in got["cells"]] == [
        (seed, name) for seed in (7, 8, 9) for name in ("ext4", "xfs")
    ]
    assert got["options"] == perform.Options(record_file=file, jobs=1, resume=True)
    with pytest.raises(Failure, match="--resume needs the file"):
        perform.Options(resume=True)


def test_jobs_are_as_many_as_memory_allows() -> None:
    runs = run.cells("wd5000ys", ("ext4", "xfs", "f2fs"), workload.plan(("MakeDirs",), scale=0.01, seed=1))
    each = runs[0].memory_mib + run.RESERVE_MIB
    assert [run.at_once(runs, 10 * each, jobs) for jobs in (1, 2, 8)] == [1, 2, 3]
    assert run.at_once(runs, 2 * each, 8) == 2
    assert run.at_once(runs, 1, 8) == 1


@pytest.mark.parametrize(
    ("words", "begun", "some"),
    [
        ("", "comp", {"compare", "completion"}),
        ("compare --drive", "wd", {"wd5000ys", "wd40efax"}),
        ("compare --fs", "ext4,x", {"ext4,xfs"}),
        ("compare --workload", "Make", {"MakeDirs"}),
        ("compare", "--rec", {"--record"}),
        ("run", "e1", {"e10", "e11"}),
    ],
)
def test_a_shell_can_complete_commands_options_and_names(words: str, begun: str, some: set[str]) -> None:
    command = ["shingle", *words.split(), begun]
    asked = {base.COMPLETION: "bash_complete", "COMP_WORDS": " ".join(command), "COMP_CWORD": str(len(command) - 1)}
    said = subprocess.run(
        [sys.executable, "-m", "shingle"],
        env=os.environ | asked | {"PYTHONPATH": str(ROOT / "lab")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    offered = {line.split(",", 1)[1] for line in said.stdout.splitlines()}
    assert some <= offered
    assert all(each.startswith(begun) for each in offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_the_program(shell: str) -> None:
    done = CliRunner().invoke(main.cli, ["completion", shell], catch_exceptions=False)
    assert done.exit_code == 0
    assert f"{base.COMPLETION}={shell}_complete" in done.output


def test_many_names_are_wrapped_and_the_sentence_stays_short() -> None:
    failure = unknown_name(
        "experiment", "e1-a-name-of-length", [f"e{number}-a-name-of-some-length" for number in range(40)]
    )
    assert len(str(failure)) < 120 and "Did you mean" in str(failure)
    assert all(len(line) <= 76 for line in failure.detail)
    assert "e39-a-name-of-some-length" in " ".join(failure.detail)


def test_workloads_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, no_color=True, highlight=False)
    monkeypatch.setattr("shingle.cli.workloads.out", console)
    CliRunner().invoke(main.cli, ["workloads"], catch_exceptions=False)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for each in workload.WORKLOADS.values():
        assert each.name.endswith(workload.FILES_ONLY) or (each.name in text and each.summary in text)


def test_a_file_that_cannot_be_written_is_one_sentence() -> None:
    with pytest.raises(Failure, match=r"/proc/x/y: .*it was not written"):
        paths.put_whole(Path("/proc/x/y"), b"x")


def test_a_figure_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Failure, match=r"figure\.svg: No space left on device; it was not written"):
        plot.save(plot.pyplot().figure(), tmp_path / "figure")
    assert list(tmp_path.iterdir()) == []


def test_the_figure_with_the_longest_labels_has_room_for_its_bars(tmp_path: Path) -> None:
    chosen = experiment.find("e26")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.draw(chosen, tmp_path, experiment.records_of(chosen))


def test_the_report_tells_what_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [experiment.find("e55"), experiment.find("e01")]
    monkeypatch.setattr(experiment, "all_of_them", lambda: few)
    told: list[str] = []
    report.html((), told.append)
    assert told == [f"{few[0].name}, 1 of 2", f"{few[1].name}, 2 of 2"]


def test_the_demo_ends_with_the_gain_in_a_sentence() -> None:
    chosen = experiment.find("e01")
    records = [each for each in experiment.records_of(chosen) if each["seed"] == 1]
    said = demo.gain(records, chosen.phases)
    times = [
        sum(each["virtual_s"] for each in records if each["file_system"] == name and each["phase"] in chosen.phases)
        for name in ("ext4-lazy", "ext4-10g")
    ]
    assert f"with journal_lazy {times[0]:,.0f} s, without {times[1]:,.0f} s, {times[1] / times[0]:.1f} times" in said


def test_a_full_disk_takes_the_records_and_not_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = experiment.find("e01")
    kept = [each for each in experiment.records_of(chosen) if each["seed"] == 1]
    cells = list(chosen.cells(chosen.scale, 1).values())
    results = [
        run.Result(cell, tuple(each for each in kept if each["file_system"] == cell.variant.name)) for cell in cells
    ]

    def side_by_side(*_: object, finished: Callable[[run.Result], None], **__: object) -> list[run.Result]:
        for each in results:
            finished(each)
        return results

    monkeypatch.setattr(build, "everything", lambda **_: None)
    monkeypatch.setattr(run, "side_by_side", side_by_side)
    full = Path("/dev/full")
    with pytest.raises(Failure, match=f"{len(cells)} of {len(cells)} runs are not recorded: /dev/full: No space left"):
        perform.perform(cells, chosen.phases, perform.Options(record_file=full))
    said = capsys.readouterr().out
    assert all(cell.variant.name in said for cell in cells)
    assert "records: " not in said


def test_an_experiment_at_another_scale_says_that_nothing_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = experiment.find("e01")
    records = [each for each in experiment.records_of(chosen) if each["seed"] == 1]
    cell = next(iter(chosen.cells(0.005, 1).values()))
    monkeypatch.setattr(perform, "perform", lambda *_: [run.Result(cell, tuple(records))])
    perform.experiment_and_claim(chosen, 0.005, (1,), perform.Options())
    said = capsys.readouterr().out
    assert "not checked: what is expected holds at scale 0.2, and this is 0.005" in said
    assert "as expected" not in said

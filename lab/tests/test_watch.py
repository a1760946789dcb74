# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle watch`, without a terminal: what it finds, what it shows, and what it says when there is nothing."""

import fcntl
import io
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from shingle.catalogue import probe
from shingle.cli import main
from shingle.failure import Failure
from shingle.machine import watch
from shingle.machine.progress import CacheLimits

SECOND = 10**9
LIMITS = CacheLimits(size_bytes=25 << 30, entries=180_000)


def counters(second: int) -> dict[str, object]:
    """A drive that is cleaning because it must, and has done so for half of the time."""
    return {
        "journal_written_bytes": second * (4 << 20),
        "data_read_bytes": second * (2 << 20),
        "flushes": second * 3,
        "cache_bytes": 5 << 30,
        "cache_entries": 90_000,
        "bands_dirty": 1234,
        "bands_cleaned_idle": 5,
        "bands_cleaned_forced": 6,
        "volatile_bytes": 3 << 20,
        "faults": 2,
        "idle_ns": second * SECOND // 2,
        "cleaning_forced_ns": second * SECOND // 2,
        "arm": [1000, 4000, watch.ACTIVITIES.index("cleaning_forced")],
        "cleaning": [77, watch.ACTIVITIES.index("cleaning_forced"), 0b0110, 250],
        "streams": [2, 3],
        "latency_us": {"journal_written": [1500, 90_000, 1_200_000], "flushes": [10_000, 20_000, 30_000]},
    }


def progress(out: Path, seconds: range) -> Path:
    lines = [
        {"event": "tick", "now_ns": second * SECOND, "phase": "MakeDirs", "counters": counters(second)}
        for second in seconds
    ]
    out.mkdir(exist_ok=True)
    (out / "job.json").write_text("{}")
    (out / "progress.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return out


def shown(run: watch.Watched) -> str:
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(watch.panel(run))
    return console.export_text()


def test_a_running_drive_is_shown(tmp_path: Path) -> None:
    out = progress(tmp_path / "run", range(1, 30))
    watch.about(out, "ext4 on st8000as0002", LIMITS)
    run = watch.opened(out)
    assert run.look()
    text = shown(run)
    for part in (
        "ext4 on st8000as0002",
        "virtual 29 s · MakeDirs",
        "1.5    90.0  1,200.0",
        "5.00 of 25.0 GiB",
        "90,000 of 180,000",
        "1,234 dirty",
        "5 in idle time, 6 forced",
        "cylinder 1,000 of 4,000",
        "a write waits for room",
        "band 77 (metadata+journal), 25 % done",
        "2 streaming",
        "3 candidates",
        "50% now,  50% of the run",
    ):
        assert part in text, f"{part!r} is missing from\n{text}"
    journal = next(row for row in text.splitlines() if "journal" in row and "band" not in row)
    assert "4.0" in journal.split()


def test_a_run_fits_in_one_line_where_there_is_no_terminal(tmp_path: Path) -> None:
    out = progress(tmp_path / "run", range(1, 3))
    watch.about(out, "xfs on wd5000ys", LIMITS)
    run = watch.opened(out)
    assert watch.line(run) == "xfs on wd5000ys: no tick yet"
    run.look()
    text = watch.line(run)
    assert "4.0 MiB/s written, 2.0 read" in text
    assert "cache 50.0%, 1,234 bands dirty" in text
    assert "\n" not in text


def test_a_run_without_a_drive_or_a_cache_is_shown_too(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "job.json").write_text("{}")
    (out / "progress.jsonl").write_text('{"event":"tick","now_ns":5000000000,"phase":null,"counters":null}\n')
    run = watch.opened(out)
    run.look()
    assert "virtual 5 s" in shown(run)
    assert "virtual 5 s" in watch.line(run)


def test_runs_that_do_not_fit_have_a_line_each(tmp_path: Path) -> None:
    runs = [watch.opened(progress(tmp_path / name, range(1, 3))) for name in ("one", "two", "three")]
    for number, run in enumerate(runs):
        run.since = number
        run.look()
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(watch._fitting(runs, rows=40))
    text = console.export_text()
    assert text.count("streaming") == 1
    assert "three" in text.splitlines()[0]
    assert "two: MakeDirs" in text
    assert "one: MakeDirs" in text


def test_it_ends_when_the_runs_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_INTERVAL_S", 0.01)
    out = progress(tmp_path / "run", range(1, 3))
    answers = iter([[out], [out], []])
    console = Console(record=True, width=200, file=io.StringIO())
    watch.runs(console, find=lambda: next(answers))
    assert "virtual 2 s" in console.export_text(clear=False)
    assert console.export_text().splitlines()[-1] == "the run has ended."


def test_without_a_run_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="no run is going on") as caught:
        watch.runs(Console(file=io.StringIO()), find=list)
    assert caught.value.status == 1


def test_ctrl_c_is_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(console: Console) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "runs", interrupted)
    result = CliRunner().invoke(main.cli, ["watch"])
    assert result.exit_code == 0
    assert result.output == ""


def test_a_real_disk_is_the_probe_s_business(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(probe, "program", lambda progress: Path("shingle-probe"))
    monkeypatch.setattr(probe, "watch_device", lambda program, device: asked.append(device))
    assert CliRunner().invoke(main.cli, ["watch", "/dev/sdz"]).exit_code == 0
    assert asked == [Path("/dev/sdz")]


def test_a_machine_is_found_by_the_folder_that_it_holds_open(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    held = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    if held != 64:
        fcntl.fcntl(held, fcntl.F_DUPFD, 64)
    with subprocess.Popen(["/bin/sleep", "60"], pass_fds=(64,)) as child:
        os.close(64)
        try:
            deadline = time.monotonic() + 5
            while tmp_path not in watch.running() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert tmp_path in watch.running()
        finally:
            child.kill()
    assert tmp_path not in watch.running()

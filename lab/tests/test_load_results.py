# SPDX-License-Identifier: MIT OR Apache-2.0
"""What loads did, in a second and for how long: of fio and of generators, in records and tables (row A3)."""

import io
import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from shingle.catalogue import fio, workload
from shingle.evidence import own, table
from shingle.paths import ROOT
from shingle.runs import record

JOBS = """\
[global]
ioengine=psync
size=1m
bs=4k
[mixed]
rw=randrw
fsync=16
[written]
stonewall
rw=write
iodepth=4
"""


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the installed fio says of two groups of jobs, with its notes in front, read as a record has it."""
    folder = tmp_path_factory.mktemp("fio")
    (folder / "mine.fio").write_text(JOBS)
    (step,) = [each for each in fio.steps("mine", JOBS, seed=1, only_create=False) if each["do"] == "exec"]
    argv = [*step["argv"][:-1], str(folder / "mine.fio")]  # type: ignore[index]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("note: ")
    found = fio.load_of(done.stdout)
    assert found is not None
    return found | record.rates(found)


def test_fio_s_operations_bytes_and_latencies_are_those_of_all_groups(load: dict[str, Any]) -> None:
    read, written = load["operations"]["read"], load["operations"]["write"]
    assert read + written == 512 and written > 256
    assert (load["user_read_bytes"], load["user_written_bytes"]) == (read * 4096, written * 4096)
    assert load["operations"]["fsync"] > 0
    for name, latency in load["latency_ns"].items():
        assert latency["count"] == load["operations"][name]
        # Buckets are named by their middle.
        assert latency["min"] <= latency["p50"] * 1.02 <= latency["p99"] * 1.02 <= latency["p999"] * 1.02
        assert latency["p999"] <= latency["max"] * 1.02
    seconds = sum(part["ns"] for part in load["parts"]) / 1e9
    assert load["per_s"]["write"] == pytest.approx(written / seconds, rel=1e-3)
    assert load["per_s"]["read_bytes"] == pytest.approx(read * 4096 / seconds, rel=1e-3)


def test_percentiles_of_two_histograms_are_of_both() -> None:
    parts = [
        {"min": 1, "max": 9, "mean": 2.0, "N": 98, "bins": {"2": 98}},
        {"min": 100, "max": 400, "mean": 250.0, "N": 2, "bins": {"100": 1, "400": 1}},
    ]
    found = fio._summary(parts)
    assert found == {"count": 100, "min": 1, "mean": 6, "p50": 2, "p90": 2, "p99": 100, "p999": 400, "max": 400}


def test_what_is_not_fio_s_is_left_alone() -> None:
    assert fio.load_of("no object") is None
    assert fio.load_of(json.dumps({"complaints": {}})) is None
    assert record.rates({"complaints": {}}) == {}


def test_tables_have_what_the_loads_did(load: dict[str, Any]) -> None:
    first = next(each for each in record.read(ROOT / "results/e01.jsonl") if each["phase"] == "Postmark")
    slow = load | {"latency_ns": load["latency_ns"] | {"write": {"p50": 1, "p99": 2, "p999": 3, "max": 12_345_678_901}}}
    records = [first | {"load": slow}, first | {"file_system": "xfs", "load": load}]
    for width in (80, 190):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, highlight=False)
        table.show(console, records, phases=own.phases(records))
        assert isinstance(console.file, io.StringIO)
        lines = console.file.getvalue().splitlines()
        (heading,) = [line for line in lines if "longest ms" in line]
        assert "a second" in heading and "p99.9 ms" in heading
        (row,) = [line for line in lines if "write" in line and "12,345.7" in line]
        assert f"{load['per_s']['write']:,.1f}" in row
        assert "…" not in heading + row


def test_without_latencies_there_is_no_second_table() -> None:
    assert table.loads(record.read(ROOT / "results/e01.jsonl"), phases=("MakeDirs",)) is None


@pytest.mark.parametrize(("name", "timed"), [("mailserver", True), ("random-write", False), ("MakeDirs", False)])
def test_what_runs_for_a_time_is_known(name: str, timed: bool) -> None:
    assert workload.plan([name], scale=0.1, seed=1).timed == timed


def test_latency_is_asked_of_each_load_of_a_plan_and_stands_in_its_identity() -> None:
    plan = replace(workload.plan(["mailserver"], scale=0.1, seed=1), latency=True)
    loads = [step for step in plan.steps() if step["do"] == "load"]
    assert [step["args"]["latency"] for step in loads] == [True, True]  # type: ignore[index]

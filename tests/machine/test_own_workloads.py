# SPDX-License-Identifier: MIT OR Apache-2.0
"""Workloads that are files: a personality of Filebench's kind and a job of fio, on the enforcing disk and its twin."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import Bench
from shingle.catalogue import drive, fs, workload
from shingle.failure import Failure
from shingle.runs import record, run
from shingle.runs.record import Record

pytestmark = pytest.mark.machine

CAPACITY_BYTES = 64 << 30
PERSONALITY = """\
duration_s = 5
filesets = [{ name = "mails", entries = 400, mean_bytes = 16384, width = 50, prealloc_percent = 80 }]

[[threads]]
count = 4
flow = [
    { do = "deletefile", fileset = "mails" },
    { do = "createfile", fileset = "mails" },
    { do = "appendfilerand", io_bytes = 16384 },
    { do = "fsync" },
    { do = "closefile" },
    { do = "openfile", fileset = "mails" },
    { do = "readwholefile", io_bytes = 1048576 },
    { do = "closefile" },
]
"""
FIO = """\
[global]
directory=/mnt
filename=largefile
size=16m
numjobs=4
thread=1
bs=4k
runtime=5
time_based=1
disk_util=0

[mine]
rw=randwrite
direct=1
"""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def records(bench: Bench, file: str, disk: str) -> list[Record]:
    plan = workload.plan([file], scale=1, seed=3)
    plan = replace(plan, latency=plan.timed)
    # BFQ and others need not keep the order in which NILFS2 writes.
    nilfs2 = fs.find("nilfs2")
    # With segments of less than a zone NILFS2 does not write in order.
    zones = (*nilfs2.mkfs, "-B", str((128 << 20) // 4096))
    variant = replace(nilfs2, mkfs=zones, settings=(("/sys/block/shd0/queue/scheduler", "none"),))
    wanted = run.Run(drive.find(disk), variant, plan, memory_mib=256, capacity_bytes=CAPACITY_BYTES)
    return [record.deterministic(each) for each in run.perform(bench.built, wanted).records]


@pytest.mark.parametrize("disk", ["wd30ezr-smr", "wd30ezr"])
@pytest.mark.parametrize(("name", "text"), [("mine.toml", PERSONALITY), ("mine.fio", FIO)])
def test_a_workload_of_ones_own_runs_on_the_enforcing_disk_and_its_twin(
    bench: Bench, name: str, text: str, disk: str
) -> None:
    file = written(bench.folder, name, text)
    found = records(bench, file, disk)
    assert [each["phase"] for each in found] == ["mount", "mine-files", "mine", "unmount"]
    load = found[2]["load"]
    assert load["user_written_bytes"] > 0
    (ran,) = [part["ns"] for part in load["parts"] if part["name"] == "run"]
    assert 5 <= ran / 1e9 < 6
    # What is asked of a load that runs for a time: how much it did, and how long a call took (row A3).
    for operation, latency in load["latency_ns"].items():
        assert load["per_s"][operation] == pytest.approx(load["operations"][operation] / (ran / 1e9), abs=0.001)
        assert latency["min"] <= latency["p50"] <= latency["p99"] <= latency["p999"] <= latency["max"] * 1.02
    assert load["latency_ns"]["write"]["count"] == load["operations"]["write"]
    assert sum(each["counters"]["violations"] for each in found) == 0
    assert found[1]["total_written_bytes"] > 0


@pytest.mark.parametrize(("name", "text"), [("mine.toml", PERSONALITY), ("mine.fio", FIO)])
def test_a_workload_of_ones_own_is_the_same_twice(bench: Bench, name: str, text: str) -> None:
    file = written(bench.folder, name, text)
    one, two = (records(bench, file, "wd30ezr-smr") for _ in range(2))
    assert json.dumps(one) == json.dumps(two)


SCRIPT = """\
git init -q tree
cd tree
for number in 1 2 3; do
    head -c 1048576 /dev/zero >"file-$SEED-$number"
    git -c user.name=x -c user.email=x@y add .
done
git -c user.name=x -c user.email=x@y commit -qm first
git log --oneline | wc -l
"""


def test_a_script_of_one_s_own_is_a_workload_with_a_record(bench: Bench) -> None:
    file = written(bench.folder, "mine.sh", SCRIPT)
    one, two = (records(bench, file, "wd30ezr") for _ in range(2))
    assert [each["phase"] for each in one] == ["mount", "mine", "unmount"]
    assert one[1]["total_written_bytes"] > 3 << 20
    assert one[1]["configuration"]["scripts"] == {"mine": SCRIPT}
    assert json.dumps(one) == json.dumps(two)


def test_a_script_that_fails_fails_the_run_with_its_last_words(bench: Bench) -> None:
    file = written(bench.folder, "mine.sh", "echo all is lost >&2\nfalse\ntrue\n")
    with pytest.raises(Failure, match="ended with status 1: all is lost"):
        records(bench, file, "wd30ezr")

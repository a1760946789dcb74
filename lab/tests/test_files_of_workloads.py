# SPDX-License-Identifier: MIT OR Apache-2.0
"""Workloads that are files: what the scale changes, what is wrong with a file, and what fio says."""

import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from shingle.catalogue import fio, workload
from shingle.failure import Failure
from shingle.paths import ROOT
from shingle.runs import experiment

PERSONALITY = ROOT / "workloads/mailserver.toml"
JOBS = ROOT / "workloads/random-write.fio"


def test_the_files_come_first_and_the_work_follows() -> None:
    plan = workload.plan(["mailserver"], scale=0.1, seed=5)
    assert plan.names == ("mailserver-files", "mailserver")
    loads = [step for step in plan.steps() if step["do"] == "load"]
    assert [step["args"]["stage"] for step in loads] == ["create", "run"]  # type: ignore[index]
    assert {step["args"]["seed"] for step in loads} == {5}  # type: ignore[index]


def test_the_scale_goes_into_entries_and_time_and_nothing_else() -> None:
    whole, tenth = (workload.find("mailserver").arguments(scale) for scale in (1, 0.1))
    assert (whole.pop("duration_s"), tenth.pop("duration_s")) == (3600, 360)
    sets = whole.pop("filesets"), tenth.pop("filesets")
    assert [each[0].pop("entries") for each in sets] == [512_000, 51_200]  # type: ignore[index]
    assert (whole, sets[0]) == (tenth, sets[1])


def test_a_file_of_ones_own_takes_the_place_of_a_name(tmp_path: Path) -> None:
    own = tmp_path / "errand.toml"
    own.write_text(PERSONALITY.read_text())
    assert workload.plan([str(own)], scale=1, seed=1).names == ("errand-files", "errand")
    assert workload.find("errand-files").writes_bytes == 512_000 * 16384


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine.toml", None, "No such file"),
        ("mine.toml", "entries", "is not TOML"),
        ("mine.toml", "duration_s = 1", "'filesets' is missing"),
        ("mine.fio", None, "No such file"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(Failure, match=said):
        workload.find(str(tmp_path / name))


def test_the_scale_goes_into_the_size_and_the_time_of_a_job() -> None:
    tenth = fio.scaled(JOBS.read_text(), 0.1, 0.1)
    assert f"\nsize={(5 << 30) // 10 // 4096 * 4096}\n" in tenth
    assert "\nruntime=360\n" in tenth
    changed = set(tenth.splitlines()) ^ set(JOBS.read_text().splitlines())
    assert {line.split("=")[0] for line in changed} == {"size", "runtime"}
    assert workload.plan(["random-write"], scale=0.1, seed=1).fio_jobs["random-write"] == tenth


def test_what_runs_for_a_time_can_run_for_less_with_the_same_files() -> None:
    plan = replace(workload.plan(["random-write"], scale=0.1, seed=1), time_scale=0.02)
    assert plan.fio_jobs["random-write"] == fio.scaled(JOBS.read_text(), 0.1, 0.02)
    plan = workload.plan(["mailserver"], scale=0.1, seed=1)
    whole, shorter = (replace(plan, time_scale=each).steps() for each in (None, 0.02))
    loads = [pair for pair in zip(whole, shorter, strict=True) if pair[0]["do"] == "load"]
    assert len(loads) == 2
    for longer, short in loads:
        assert short["args"]["duration_s"] == pytest.approx(0.2 * longer["args"]["duration_s"])
        assert short["args"]["filesets"] == longer["args"]["filesets"]


def test_another_seed_writes_elsewhere_and_the_same_one_does_not(tmp_path: Path) -> None:
    def places(seed: int) -> list[str]:
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        job = ("--name=one", "--ioengine=null", "--rw=randwrite", "--size=1g", "--io_size=1m", f"--write_iolog={log}")
        subprocess.run(["fio", *job, *fio.seeded(seed)], check=True, capture_output=True, cwd=tmp_path)
        return [line.split(" write ")[1] for line in log.read_text().splitlines() if " write " in line]

    first = places(1)
    assert len(first) == 256
    assert first == places(1)
    assert first != places(2)


@pytest.mark.parametrize("distribution", ["zipf", "uniform"])
def test_each_part_of_e47_draws_for_itself_and_popular_blocks_stay_popular(tmp_path: Path, distribution: str) -> None:
    plan = next(each.plan for each in experiment.find("e47-overwrites").runs(0.1, 1) if distribution in each.label)
    texts = [str(step["text"]) for step in plan.steps() if "[overwrite]" in str(step.get("text"))]
    seeds = [each for step in plan.steps() for each in step.get("argv", ()) if str(each).startswith("--rand")]
    parts = []
    for number in (0, 1):
        file, log = tmp_path / f"{number}.fio", tmp_path / f"{number}.log"
        text = re.sub("(?m)^(directory|io_size|ioengine)=.*\n", "", texts[number])
        file.write_text(f"{text}io_size=20m\nioengine=null\nwrite_iolog={log}\n")
        subprocess.run(
            ["fio", *seeds[2 * number : 2 * number + 2], file], check=True, capture_output=True, cwd=tmp_path
        )
        parts.append([line.split(" write ")[1] for line in log.read_text().splitlines() if " write " in line])
    first, second = parts
    assert len(first) == len(second) == 5120
    same = sum(a == b for a, b in zip(first, second, strict=True))
    assert same < 512, "the same blocks in the same order"
    top = [Counter(part).most_common(1)[0] for part in parts]
    if distribution == "zipf":
        assert top[0][0] == top[1][0]
        assert min(times for _, times in top) > 400
    else:
        assert max(times for _, times in top) < 10

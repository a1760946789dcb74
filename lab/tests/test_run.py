# SPDX-License-Identifier: MIT OR Apache-2.0
"""Several runs: in which order their results are handed on, and which are not done again."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest

from shingle.build import build
from shingle.catalogue import workload
from shingle.catalogue.drive import Age
from shingle.cli import compare
from shingle.machine.machine import Boot
from shingle.machine.progress import SILENT
from shingle.paths import ROOT
from shingle.runs import record, run
from shingle.runs.run import Result, Run

BUILT = cast(build.Built, None)
RUNS = run.cells("wd5000ys", ("ext4", "ext4-10g"), workload.plan(("MakeDirs",), scale=0.01, seed=1))
PHASES = (run.MOUNT, *RUNS[0].plan.phases)


def records_of(each: Run) -> list[dict[str, Any]]:
    return [{"file_system": each.variant.name, "seed": 1, "phase": phase} for phase in PHASES]


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the file systems that were really run."""
    names: list[str] = []

    def perform(_built: object, each: Run, **_more: object) -> Result:
        names.append(each.variant.name)
        return Result(each, tuple(records_of(each)))

    monkeypatch.setattr(run, "prepared", lambda *_: None)
    monkeypatch.setattr(run, "_common", lambda _b, each, _f: {"file_system": each.variant.name, "seed": 1})
    monkeypatch.setattr(run, "perform", perform)
    return names


def test_results_are_handed_on_in_order_whichever_ends_first() -> None:
    got: list[Result] = []
    in_order = run._InOrder(got.append)
    first, second, third = (Result(each, ()) for each in (*RUNS, RUNS[0]))
    in_order.put(2, third)
    in_order.put(1, None)
    assert got == []
    in_order.put(0, first)
    assert got == [first, third]
    in_order.put(3, second)
    assert got == [first, third, second]


def test_what_was_recorded_is_not_run_again(performed: list[str]) -> None:
    new: list[Result] = []
    results = run.side_by_side(BUILT, RUNS, SILENT, known=records_of(RUNS[0]), finished=new.append)
    assert performed == ["ext4-10g"]
    assert [each.run.variant.name for each in results] == ["ext4", "ext4-10g"]
    assert [each.run.variant.name for each in new] == ["ext4-10g"]


@pytest.mark.parametrize("lost", PHASES)
def test_a_run_that_lacks_a_phase_is_run_again(performed: list[str], lost: str) -> None:
    known = [each for each in records_of(RUNS[0]) if each["phase"] != lost]
    run.side_by_side(BUILT, RUNS[:1], SILENT, known=known)
    assert performed == ["ext4"]


def test_a_record_of_another_configuration_does_not_count(performed: list[str]) -> None:
    known = [each | {"seed": 2} for each in records_of(RUNS[0])]
    run.side_by_side(BUILT, RUNS[:1], SILENT, known=known)
    assert performed == ["ext4"]


def test_an_option_of_the_host_is_an_option_of_compare_a_field_of_boot_and_a_key_of_records() -> None:
    names = {each.name for each in run.host_options()}
    assert names == {"memory_mib", "call_ns", "name_ns"}
    assert names <= {each.name for each in fields(Boot)}
    assert names <= {each.name for each in compare.command.params}
    described = record.schema()["properties"]["configuration"]
    assert names <= set(described["required"]) & set(described["properties"])
    told = (ROOT / "docs/reference/records.md").read_text()
    assert [name for name in names if not re.search(rf"^\| `configuration\.[^|]*\b{name}`", told, re.M)] == []


def test_a_run_s_identity_has_what_decides_its_records(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("a plan")
    changed = replace(RUNS[0], memory_mib=4096, name_ns=7, kernel_arguments=("x=y",), age=Age(), faults=plan)
    before, after = RUNS[0].identity(), changed.identity()
    assert {key for key in before if before[key] != after[key]} == {"configuration"}
    ours, theirs = cast(dict[str, Any], before["configuration"]), cast(dict[str, Any], after["configuration"])
    assert {key for key in theirs if ours.get(key) != theirs[key]} == {
        "memory_mib", "name_ns", "kernel_arguments", "aged", "faults",
    }  # fmt: skip

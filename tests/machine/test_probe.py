# SPDX-License-Identifier: MIT OR Apache-2.0
"""The probe in the machine: through the block layer of a real kernel it finds what it finds without one."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from harness import PROFILE, Bench
from shingle.catalogue import drive
from shingle.machine import job
from shingle.machine.machine import Boot

pytestmark = pytest.mark.machine

LIMIT_S = 120


def findings(text: str) -> dict[str, Any]:
    return {each["key"]: each for each in json.loads(text)["findings"]}


def native(bench: Bench, test: str) -> dict[str, Any]:
    done = subprocess.run(
        [bench.built.crates.probe, "simulated", drive.find(PROFILE).path, "--fresh", "--only", test, "--json"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return findings(done.stdout)


def compare(bench: Bench, test: str, *keys: str) -> dict[str, Any]:
    empty = bench.empty(capacity_bytes=drive.capacity_of(drive.find(PROFILE)))
    probe = bench.built.crates.probe
    argv = [f"{job.OUT}/{probe.name}", "disk", "/dev/shd0", "--destructive", "/dev/shd0", "--only", test, "--json"]
    run = bench.boot([job.run(argv, stdout="probe.json")], drive=empty, boot=Boot(steps=(), files=(probe,)))
    found, expected = findings(run.text("probe.json")), native(bench, test)
    for key in ("platters.spindle", "seek.mean", *keys):
        assert found[key]["value"] == pytest.approx(expected[key]["value"], rel=0.05), key
    return found


def test_the_probe_finds_the_same_through_a_kernel(bench: Bench) -> None:
    found = compare(bench, "cache-place")
    assert found["kind.writes"]["value"] == "to a log"
    assert found["cache.place"]["value"] == "outer diameter"


@pytest.mark.long
def test_the_probe_finds_the_same_bands_through_a_kernel(bench: Bench) -> None:
    found = compare(bench, "bands", "band.outer", "band.middle", "band.inner", "translation.idle")
    assert found["kind"]["value"] == "drive-managed SMR"
    assert found["cleaning.order"]["value"] == "oldest first"


def test_reading_alone_says_once_what_it_leaves_open(bench: Bench) -> None:
    """Row A5 of what a new user met: ten times "could not tell"."""
    empty = bench.empty(capacity_bytes=drive.capacity_of(drive.find(PROFILE)))
    probe = bench.built.crates.probe
    argv = [f"{job.OUT}/{probe.name}", "disk", "/dev/shd0"]
    said = bench.boot([job.run(argv, stdout="said")], drive=empty, boot=Boot(steps=(), files=(probe,))).text("said")
    assert "spindle" in said or "rotation" in said
    assert "could not tell" not in said
    assert said.count("needs writing") == 1
    assert "shingle probe /dev/shd0 --destructive /dev/shd0" in said


def test_a_disk_that_is_in_use_is_not_probed(bench: Bench) -> None:
    formatted = bench.formatted("ext4")
    probe = bench.built.crates.probe
    asked = job.run([f"{job.OUT}/{probe.name}", "disk", "/dev/shd0", "--json"], may_fail=True)
    run = bench.boot(bench.mounted(formatted, asked), drive=formatted.file, boot=Boot(steps=(), files=(probe,)))
    step = next(step for step in run.outcome.steps if step.do == "exec")
    assert step.status == 2

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What programs write (lab/in_machine/programs.py): each works, syncs what it says, and a setting saves syncs."""

import pytest

from harness import Bench
from shingle.catalogue import fs, programs, workload
from shingle.catalogue.drive import find as find_drive
from shingle.runs import experiment, record, run

pytestmark = pytest.mark.machine

CAPACITY_BYTES = 64 << 30
SETTINGS = (("SqliteNormal", "SqliteWal"), ("PostgresAsync", "Postgres"), ("PackagesUnsafe", "Packages"))


def names() -> tuple[str, ...]:
    """All that experiments run."""
    phases = [phase for each in ("e44", "e45") for phase in experiment.find(each).phases]
    return tuple(dict.fromkeys(each for each in phases if each != workload.UNMOUNT))


def test_each_program_works_and_a_setting_saves_syncs(bench: Bench) -> None:
    plan = programs.plan(names(), scale=0.02, seed=3)
    wanted = run.Run(find_drive("wd30ezr"), fs.find("ext4"), plan, memory_mib=512, capacity_bytes=CAPACITY_BYTES)
    found = {each["phase"]: each for each in run.perform(bench.built, wanted).records}
    flushes = {name: found[name]["counters"]["flushes"] for name in names()}
    for name in names():
        load = found[name]["load"]
        assert sum(load["operations"].values()) > 0, name
        assert load["user_written_bytes"] > 0, name
        assert found[name]["total_written_bytes"] > 0, name
    for setting, program in SETTINGS:
        assert flushes[setting] * 2 < flushes[program], (setting, flushes)
        assert found[setting]["load"]["user_written_bytes"] == found[program]["load"]["user_written_bytes"], setting
    batch, single = (record.cell([*found.values()], "ext4", each) for each in ("SqliteBatch", "SqliteWal"))
    assert batch["load"]["operations"]["transaction"] * 100 == single["load"]["operations"]["transaction"]

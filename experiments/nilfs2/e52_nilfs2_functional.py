# SPDX-License-Identifier: MIT OR Apache-2.0
"""NILFS2's functions on the shingled prototype and on the regular drive: the same tests end the same way.

FSL-14-03, section 3.2.1. The report ran LTP, which Debian does not have; here are fsx, pjdfstest, stress-ng's file
stressors and fio with verification (lab/in_machine/suites.py). A test that fails on both drives says what NILFS2
lacks, one that fails on one of them what the drive does. The report does not say how large NILFS2's segments were; here
they are the drive's zones, because with smaller ones NILFS2 does not write in order (e53).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shingle.lab import (
    FSX,
    IN_MACHINE,
    PJDFSTEST,
    Claim,
    Expectation,
    Experiment,
    Record,
    bars,
    cell,
    drive,
    fs,
    job,
    run,
    workload,
)

SHINGLED, REGULAR = "wd30ezr-smr", "wd30ezr"
NILFS2 = "nilfs2-128m"
SEGMENT_MIB = 128
# The last one stops the file system.
SUITES = ("fsx", "pjdfstest", "fio", "stress-ng", "fiemap")
PROGRAM = IN_MACHINE / "suites.py"
REPORT = "/run/report.json"
MEMORY_MIB = 1024
# What NILFS2 of Linux 6.12 does not do.
LACKS = {"fsx": {"punch_hole"}, "fiemap": {"hole"}}


@dataclass(frozen=True)
class Suites(workload.Plan):
    """The suites one after the other on one file system; a phase each."""

    def files(self) -> tuple[Path, ...]:
        return (PROGRAM, FSX.program(), PJDFSTEST.program())

    def steps(self) -> list[job.Step]:
        steps: list[job.Step] = []
        for name in self.names:
            program = ("/usr/bin/python3", "-I", f"{job.OUT}/{PROGRAM.name}")
            argv = (*program, name, job.MOUNT_POINT, str(self.seed), REPORT)
            steps += [job.run(argv, phase=name), job.read(REPORT, phase=name), job.sync(phase=name)]
        return [*steps, job.umount(phase=workload.UNMOUNT)]


def runs(scale: float, seed: int) -> list[run.Run]:
    variant = fs.nilfs2_of_segments(NILFS2, SEGMENT_MIB)
    plan = Suites(SUITES, dict.fromkeys(SUITES, scale), seed)
    return [run.Run(drive.find(name), variant, plan, memory_mib=MEMORY_MIB) for name in (SHINGLED, REGULAR)]


def ends(records: Sequence[Record], suite: str, name: str) -> Mapping[str, str]:
    """Each test of a suite, and how it ended."""
    found: Mapping[str, str] = cell(records, NILFS2, suite, name)["load"]["ends"]
    return found


def different(records: Sequence[Record]) -> float:
    """Tests that end differently on the drives, or ran on one of them only."""
    count = 0
    for suite in SUITES:
        shingled, regular = (ends(records, suite, name) for name in (SHINGLED, REGULAR))
        count += sum(shingled.get(test) != regular.get(test) for test in {*shingled, *regular})
    return float(count)


def failed(records: Sequence[Record], name: str) -> Mapping[str, set[str]]:
    found = {suite: {test for test, end in ends(records, suite, name).items() if end == "failed"} for suite in SUITES}
    return {suite: tests for suite, tests in found.items() if tests}


def violations(records: Sequence[Record]) -> float:
    """Writes that were not at their zone's write pointer, from mount to unmount."""
    phases = (run.MOUNT, *SUITES, workload.UNMOUNT)
    return float(sum(cell(records, NILFS2, phase, SHINGLED)["counters"]["violations"] for phase in phases))


def count(records: Sequence[Record], name: str) -> int:
    return sum(len(ends(records, suite, name)) for suite in SUITES)


SAME = Claim("T47", "tests that end differently on the two drives", "", 0, 0, different)
IN_ORDER = Claim("T47", "writes that are not at a write pointer", "", 0, 0, violations)

EXPERIMENT = Experiment(
    name="e52-nilfs2-functional",
    claim="NILFS2 does on a disk that enforces zones what it does on a regular one",
    source="NILFS2 report (FSL-14-03), section 3.2.1",
    runs=runs,
    phases=(*SUITES, workload.UNMOUNT),
    scalable=False,
    expectations=(
        Expectation("no test ends differently", lambda records: different(records) == 0),
        Expectation("every write is in order", lambda records: violations(records) == 0),
        Expectation("what fails is what NILFS2 lacks", lambda records: failed(records, REGULAR) == LACKS),
        Expectation("there are 450 tests", lambda records: count(records, SHINGLED) >= 450),
    ),
    claims=(SAME, IN_ORDER),
    draw=bars.of_claims(
        bars.Group("Tests that end differently on the shingled and the regular drive", "tests", (SAME,)),
        bars.Group("Writes that are not at a write pointer", "requests", (IN_ORDER,)),
    ),
)

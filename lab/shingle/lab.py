# SPDX-License-Identifier: MIT OR Apache-2.0
"""The one face of the lab for experiments: what a file below experiments/ may import is here, and nothing else."""

from __future__ import annotations

from shingle.build.tools import FSX, PJDFSTEST
from shingle.catalogue import drive, fio, fs, programs, synced, workload
from shingle.evidence import bars, plot, table
from shingle.machine import console, job, machine
from shingle.paths import IN_MACHINE, TIDY
from shingle.runs import run
from shingle.runs.claims import (
    Basis,
    Claim,
    busy_s,
    by_seed,
    bytes_claim,
    calls_s,
    cleaning,
    cleaning_claim,
    gain_spread,
    lazy_cleaning_claim,
    load_bytes_s,
    number,
    parts_s,
    reads_claim,
    seconds,
    speedup,
    speedup_claim,
    unmount_ms,
    written_mib_s,
)
from shingle.runs.experiment import Expectation, Experiment
from shingle.runs.record import NotFinished, NotRecorded, Record, cell

__all__ = (
    "FSX", "IN_MACHINE", "PJDFSTEST", "TIDY", "Basis", "Claim", "Expectation", "Experiment", "NotFinished",
    "NotRecorded", "Record", "bars", "busy_s", "by_seed", "bytes_claim", "calls_s", "cell", "cleaning",
    "cleaning_claim", "console", "drive", "fio", "fs", "gain_spread", "job", "lazy_cleaning_claim", "load_bytes_s",
    "machine", "number", "parts_s", "plot", "programs", "reads_claim", "run", "seconds", "speedup", "speedup_claim",
    "synced", "table", "unmount_ms", "workload", "written_mib_s",
)  # fmt: skip

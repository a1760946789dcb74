# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle exec` as tests call it, on small drives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from harness import Bench
from shingle.paths import ROOT
from shingle.runs import record
from shingle.runs.record import Record

SMALL = ("--capacity-gib", "64", "--memory-mib", "1024")
LIMIT_S = 900


@dataclass(frozen=True)
class Done:
    status: int
    out: bytes
    err: str
    records: list[Record]

    def phase(self, name: str) -> Record:
        (found,) = (each for each in self.records if each["phase"] == name)
        return found

    def deterministic(self) -> str:
        return json.dumps([record.deterministic(each) for each in self.records])


def argv(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "shingle", "exec", "-q", *SMALL, *arguments]


def environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(ROOT / "lab"),
        "FROM_HOST": "seen",
        "RESTIC_PASSWORD": "x",
    }


def execute(bench: Bench, *arguments: str) -> Done:
    assert bench.built
    file = bench.folder / "x.jsonl"
    file.unlink(missing_ok=True)
    done = subprocess.run(
        argv(["--record", str(file), *arguments]),
        cwd=bench.folder, env=environment(), capture_output=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    records = record.read(file) if file.exists() else []
    return Done(done.returncode, done.stdout, done.stderr.decode(), records)


def shell(bench: Bench, script: str, *options: str) -> Done:
    return execute(bench, *options, "--", "sh", "-c", script)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The machine's own scripts, which need no lab: determinism by cause (docs/design/machine.md), and every way to end."""

import subprocess

import pytest

from harness import Bench
from shingle.paths import ROOT

pytestmark = pytest.mark.machine

_SCRIPTS = {"determinism.sh": 5, "ends.sh": 13}
_LIMIT_S = 600


@pytest.mark.parametrize("script", _SCRIPTS)
def test_a_script_of_the_machine_finds_nothing(bench: Bench, script: str) -> None:
    built = bench.built
    command = ["/bin/sh", ROOT / "machine/tests" / script, built.kernel.linux, built.crates.guest, built.crates.tool]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith("NOT OK")] == []
    assert sum(line.startswith("ok: ") for line in said) >= _SCRIPTS[script]

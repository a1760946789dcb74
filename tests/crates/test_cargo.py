# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Rust workspace's own tests."""

import subprocess

from shingle.build import build
from shingle.paths import ROOT

LIMIT_S = 1500


def test_workspace_passes_its_tests() -> None:
    with build.cargo() as environment:
        done = subprocess.run(
            ["cargo", "test", "--locked", "--workspace", "--quiet"],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "test result: ok" in done.stdout

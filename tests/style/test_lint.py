# SPDX-License-Identifier: MIT OR Apache-2.0
"""Formatters, linters and type checkers have nothing to say."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from shingle.build import build
from shingle.paths import BUILD, IN_MACHINE, ROOT

PYTHON = ["lab", "tests", "experiments", "packaging"]
LIMIT_S = 900


def run(*argv: str, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"$ {' '.join(argv)}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"


def python(*arguments: str) -> None:
    run(sys.executable, "-m", *arguments, env=os.environ | {"RUFF_CACHE_DIR": str(BUILD / "ruff")})


def cargo(*arguments: str) -> None:
    with build.cargo() as environment:
        run("cargo", *arguments, env=environment)


def needs_cargo(command: str) -> None:
    done = subprocess.run(["cargo", command, "--version"], capture_output=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        pytest.skip(f"cargo {command} is not installed")


def test_ruff_has_nothing_to_say() -> None:
    python("ruff", "check", "--config", "lab/pyproject.toml", *PYTHON)


def test_python_is_formatted() -> None:
    python("ruff", "format", "--config", "lab/pyproject.toml", "--check", *PYTHON)


def test_types_hold() -> None:
    mypy = ("mypy", "--config-file", "lab/pyproject.toml", "--cache-dir", str(BUILD / "mypy"))
    python(*mypy, "-p", "shingle")
    inside = sorted(str(path.relative_to(ROOT)) for path in IN_MACHINE.glob("*.py"))
    python(*mypy, "packaging/tools/ext4lazy.py", "packaging/tools/tidy.py", "packaging/dkms/compose.py", *inside)


def test_rust_is_formatted() -> None:
    needs_cargo("fmt")
    # Nothing is built: no wait for another clone's cargo.
    run("cargo", "fmt", "--all", "--check", env=build.cargo_environment())


def test_clippy_has_nothing_to_say() -> None:
    needs_cargo("clippy")
    cargo("clippy", "--locked", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings")


def test_scripts_are_plain_sh() -> None:
    scripts = ["shingle", ".ci/run", *(str(path.relative_to(ROOT)) for path in (ROOT / "packaging").rglob("*"))]
    plain = [
        name for name in scripts if (ROOT / name).is_file() and (ROOT / name).read_bytes().startswith(b"#!/bin/sh\n")
    ]
    assert len(plain) > 10
    for script in plain:
        run("sh", "-n", script)

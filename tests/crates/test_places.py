# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is built names no folder of this host, so that each clone's programs and kernels have the same keys."""

import os
from pathlib import Path

from shingle.build import build
from shingle.paths import ROOT


def test_programs_name_neither_the_clone_nor_the_home_of_cargo() -> None:
    crates = build.build_crates()
    cargo_home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    for program in (crates.guest, crates.load, crates.tool, crates.drive_object):
        made = program.read_bytes()
        assert b"/shingle" in made or program == crates.drive_object, f"{program.name} has no table of lines"
        assert [each for each in (ROOT, cargo_home / "registry") if bytes(each) in made] == [], program.name

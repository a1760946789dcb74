# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `./shingle test` does: one pytest run over everything, so that one closing line sums it up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from shingle.build import build
from shingle.checks import browser
from shingle.failure import unknown_name
from shingle.machine.progress import Terminal
from shingle.paths import ROOT

# From near to far: what fails fast comes first.
FOLDERS = ("tests/style", "lab/tests", "tests/crates", "tests/machine", "tests/kernel")


# What runs only when it is asked for, as it needs what a host may lack: its mark, and where its tests are.
PARTS = {
    "stock_kernel": "stock_kernel",
    "clients": "safs_clients",
    "browser": "tests/browser",
    "slurm": "tests/cluster",
}


def test_files() -> list[Path]:
    files: list[Path] = []
    for folder in FOLDERS:
        files += sorted((ROOT / folder).rglob("test_*.py"))
    return files + [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path not in files]


# pytest's options that are followed by a file.
_OF_A_FILE = ("--ignore", "--deselect")


def split(arguments: Sequence[str], files: Sequence[Path]) -> tuple[list[str], list[str]]:
    """The names of test files, and what is pytest's: all from the first dash on, but for whole paths of test files.

    To pytest a path would be one more file, beside all that `./shingle test` runs.
    """
    first = next((index for index, each in enumerate(arguments) if each.startswith("-")), len(arguments))
    known = {str(path.relative_to(ROOT)) for path in files}
    names, options = list(arguments[:first]), list[str]()
    for before, each in pairwise(("", *arguments[first:])):
        (names if each in known and before not in _OF_A_FILE else options).append(each)
    return names, options


def select(names: Sequence[str], files: Sequence[Path]) -> list[Path]:
    """The test files whose path below the clone contains one of these names."""
    if not names:
        return list(files)
    chosen: list[Path] = []
    for name in names:
        matching = [path for path in files if name in str(path.relative_to(ROOT))]
        if not matching:
            raise unknown_name("test", name, {path.stem.removeprefix("test_") for path in files})
        chosen += [path for path in matching if path not in chosen]
    return chosen


# What of the style is checked in a minute; the kernel's own checkers and the front door take longer.
_QUICK_STYLE = ("test_lint", "test_tidy", "test_architecture", "test_prose", "test_pages")


def quick() -> list[str]:
    """What `./shingle check` runs: format, lint, types, prose, licences, walls, sizes, generated pages, units.

    None of it boots a machine or builds anything.
    """
    style = [ROOT / "tests/style" / f"{name}.py" for name in _QUICK_STYLE]
    units = sorted((ROOT / "lab/tests").glob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in (*style, *units)]


def flavours_for(files: Sequence[Path]) -> list[str]:
    """The kernels that these tests boot, so that building them is seen and not charged to a test."""
    texts = [path.read_text() for path in files]
    words = {"main": "bench", "sanitize": "sanitizing_bench"}
    # A microbenchmark is no bench.
    return [name for name, word in words.items() if any(re.search(rf"(?<![a-z]){word}", text) for text in texts)]


def main(
    names: Sequence[str],
    *,
    long: bool = False,
    parts: Sequence[str] = (),
) -> int:
    """Runs the tests, or these parts of them alone, in a pytest of their own and returns its status.

    Without a choice of the caller's, two files at a time: most tests wait for one machine, which has one processor.
    """
    wanted, options = split(names, test_files())
    files = select(wanted or [PARTS[part] for part in parts], test_files())
    with Terminal(Console(stderr=True, highlight=False)) as progress:
        for flavour in flavours_for(files):
            build.everything(build.chosen(flavour), progress=progress)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "tests/pytest.ini"), "--rootdir", str(ROOT)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'lab'}:{ROOT / 'tests'}"}
    if long:
        environment["SHINGLE_LONG"] = "1"
    environment |= {f"SHINGLE_{part.upper()}": "1" for part in parts}
    if "browser" in parts:
        environment["PYTHONPATH"] += f":{browser.packages()}"
    at_once = [] if wanted or parts else ["-n", "2", "--dist", "loadfile"]
    arguments = [*command, *at_once, *options, *map(str, files)]
    return subprocess.run(arguments, cwd=ROOT, env=environment, check=False).returncode

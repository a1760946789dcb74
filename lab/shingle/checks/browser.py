# SPDX-License-Identifier: MIT OR Apache-2.0
"""What drives a browser, as its registry has it, installed once into the cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from shingle.failure import Failure
from shingle.paths import ROOT, ContentKey, cache, locked

_REQUIREMENTS = ROOT / "tests/browser/requirements.txt"
_LIMIT_S = 600


def packages() -> Path:
    """The folder of the Python packages that the tests in a browser need; each is checked against its hash."""
    key = ContentKey("browser").file("requirements", _REQUIREMENTS).text("python", sys.version).hexdigest()[:16]
    folder = cache() / f"browser-{key}"
    with locked("browser"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--target", str(folder)]
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            done = subprocess.run([*pip, *options, "-r", str(_REQUIREMENTS)], timeout=_LIMIT_S, check=False)
            if done.returncode != 0:
                raise Failure("pip could not install tests/browser/requirements.txt; its message is above.")
            (folder / "complete").touch()
    return folder

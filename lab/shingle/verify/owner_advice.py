# SPDX-License-Identifier: MIT OR Apache-2.0
"""What an owner does: runs the tool, and what it says, to the letter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from shingle.paths import ROOT

TOOL = ROOT / "packaging/tools/ext4lazy.py"
LIMIT_S = 600.0
# An owner who was told so often what to do next gives up.
_TURNS = 8
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(*argv: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [*map(str, argv)], env={"PATH": PATH, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


_THIS = re.compile(r"(debugfs -w -c -R '[^']*' \S+), then convert again")
_GIVEN_UP = re.compile(r"if it gives up at the quota: (.*?; tune2fs -O quota \S+);")
_BY_HAND = re.compile(r"[Rr]un e2fsck -f\b")
# What the tool says where no superblock is left.
NO_VOLUME = "dumpe2fs finds no ext4 there"
_AGAIN = re.compile(r"run again, it goes on|convert again")


def owner(program: Path, tool: str, image: Path) -> tuple[list[str], bool]:
    """Runs the tool and does what it says, again and again; what was done, and whether the tool came to an end."""
    done = []
    for _ in range(_TURNS):
        status, said = run(sys.executable, "-I", program, tool, image)
        done.append(f"{tool}: {status}: {last(said)}")
        if status == 0:
            return done, True
        if this := _THIS.search(said):
            status, said = run("sh", "-c", this[1])
            done.append(f"{this[1]}: {status}: {last(said)}")
        elif _BY_HAND.search(said):
            # An owner who is asked hundreds of questions says yes to all.
            status, _ = run("e2fsck", "-f", "-y", image)
            done.append(f"e2fsck -f -y: {status}")
            if status & 8 and (this := _GIVEN_UP.search(said)):
                status, said = run("sh", "-c", this[1].replace("e2fsck -f", "e2fsck -f -y"))
                done.append(f"{this[1]}: {status}: {last(said)}")
        elif not _AGAIN.search(said):
            break
    return done, False


def last(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1]

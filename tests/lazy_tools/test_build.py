# SPDX-License-Identifier: MIT OR Apache-2.0
"""packaging/build: a mended package is newer than the one before; dpkg-buildpackage is a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lazy_tools.volumes import fakes, stock
from shingle.paths import ROOT


@pytest.fixture
def tree(folder: Path) -> Path:
    """A clone of what the packages are made of."""
    tree = folder / "tree"
    for name in ("packaging", "kernel"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    stock("git", "-C", tree, "init", "-q")
    commit(tree, "2026-01-02T03:04:05Z")
    return tree


def commit(tree: Path, date: str) -> None:
    stock("git", "-C", tree, "add", "-A")
    stock(
        "env", f"GIT_COMMITTER_DATE={date}", "git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit",
        "-q", "--allow-empty", "-m", "a",
    )  # fmt: skip


def built(tree: Path, **environment: str) -> tuple[str, Path]:
    """The version, and what would be installed."""
    out = tree.parent / "out"
    deb = "v=$(sed -n '1s/.*(\\(.*\\)).*/\\1/p' debian/changelog)\ntouch ../ext4lazy-dkms_$v+6.12.9_all.deb"
    path = fakes(tree.parent, **{"dpkg-buildpackage": deb})
    done = subprocess.run(
        [tree / "packaging/build", out],
        env=os.environ | {"PATH": path, "TZ": "Pacific/Auckland"} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (deb,) = out.glob("*.deb")
    (staged,) = out.glob("ext4lazy-[0-9]*/")
    return deb.name.split("_")[1], staged


def newer(one: str, other: str) -> bool:
    return subprocess.run(["dpkg", "--compare-versions", one, "gt", other], check=False).returncode == 0


def test_a_later_commit_gives_a_newer_package(tree: Path) -> None:
    first, staged = built(tree)
    short = stock("git", "-C", tree, "rev-parse", "--short=12", "HEAD").strip()
    assert first == f"0.2+git20260102030405.{short}+6.12.9"
    assert newer(first, "0.2+6.12.117"), "packages of before had no date"
    said = stock("/usr/bin/python3", "-I", staged / "tools/ext4lazy.py", "--version")
    assert said == f"ext4lazy {first.removesuffix('+6.12.9')}\n"
    assert built(tree)[0] == first
    commit(tree, "2026-01-02T03:04:06Z")
    assert newer(built(tree)[0], first)


def test_a_changed_tree_gives_a_newer_package_and_the_next_commit_one_more(tree: Path) -> None:
    first, _ = built(tree)
    (tree / "kernel/fs/ext4/lazy.c").open("a").write("\n")
    changed, _ = built(tree)
    assert newer(changed, first)
    commit(tree, "2026-01-02T03:04:06Z")
    assert newer(built(tree)[0], changed)


def test_without_git_the_date_counts(tree: Path) -> None:
    shutil.rmtree(tree / ".git")
    first, _ = built(tree, GIT_CEILING_DIRECTORIES=str(tree.parent), SOURCE_DATE_EPOCH="1767323045")
    assert first == "0.2+20260102030405+6.12.9"
    assert newer(built(tree, GIT_CEILING_DIRECTORIES=str(tree.parent))[0], first)

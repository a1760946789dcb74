# SPDX-License-Identifier: MIT OR Apache-2.0
"""The front door, on hosts that lack something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shingle.paths import ROOT


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def enter(folder: Path, *arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    if cache is not None:
        environment["SHINGLE_CACHE"] = str(cache)
    return subprocess.run(
        [ROOT / "shingle", *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def without(folder: Path, *packages: str) -> None:
    """A dpkg-query that does not know some packages."""
    cases = "|".join(packages)
    program(
        folder,
        "dpkg-query",
        f'for last; do :; done\ncase $last in {cases}) exit 1;; esac\nexec /usr/bin/dpkg-query "$@"',
    )


def test_without_root_it_prints_the_one_line_that_is_missing(tmp_path: Path) -> None:
    without(tmp_path, "fio", "bison")
    program(tmp_path, "id", "echo 1000")
    entered = enter(tmp_path, "build")
    assert entered.returncode == 2
    assert entered.stderr.splitlines()[-1] == "shingle: apt-get install --no-install-recommends bison fio"


def test_what_stands_behind_two_dashes_is_a_command_s_own(tmp_path: Path) -> None:
    without(tmp_path, "fio")
    program(tmp_path, "id", "echo 1000")
    entered = enter(tmp_path, "exec", "--", "git", "--help", "package", "--clients")
    assert entered.returncode == 125
    assert entered.stderr.splitlines()[-1] == "shingle: apt-get install --no-install-recommends fio"


def test_as_root_it_says_what_apt_get_could_not_do(tmp_path: Path) -> None:
    without(tmp_path, "fio")
    program(tmp_path, "id", "echo 0")
    program(tmp_path, "apt-get", 'echo "E: no network"; exit 100')
    entered = enter(tmp_path, "build")
    assert entered.returncode == 2
    assert "E: no network" in entered.stderr
    assert "apt-get could not install the packages" in entered.stderr


@pytest.mark.parametrize("arguments", [("build",), ("watch", "/dev/null")], ids=" ".join)
def test_an_old_rust_is_replaced_by_the_distribution_s(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program(tmp_path, "cargo", 'echo "cargo 1.60.0 (0000000 2022-01-01)"')
    without(tmp_path, "cargo-web", "rustc-web", "rustfmt-web", "rust-web-clippy")
    program(tmp_path, "id", "echo 1000")
    entered = enter(tmp_path, *arguments)
    assert entered.returncode == 2
    assert "cargo-web rustc-web" in entered.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",), ("compare", "--help"), ("matrix", "--help"), ("--version",), ("drives",), ("file-systems",),
        ("workloads",), ("completion", "bash"), ("show", "results/e01.jsonl"), ("claims", "T13"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_only_reads_the_clone_asks_for_no_package(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program(tmp_path, "cargo", 'echo "cargo 1.60.0 (0000000 2022-01-01)"')
    without(tmp_path, "fio", "bison", "cargo-web", "qemu-system-x86")
    program(tmp_path, "id", "echo 0")
    program(tmp_path, "apt-get", "echo apt-get was called >&2; exit 100")
    entered = enter(tmp_path, *arguments)
    assert entered.stderr == ""
    assert entered.returncode == 0
    assert entered.stdout != ""


def test_a_drive_alone_asks_for_no_kernel(tmp_path: Path) -> None:
    without(tmp_path, "fio", "bison", "linux-source-6.12", "qemu-system-x86")
    program(tmp_path, "id", "echo 1000")
    entered = enter(tmp_path, "drives", "load", "nosuch", "--op", "read")
    assert "there is no drive called 'nosuch'" in entered.stderr


@pytest.mark.parametrize("mib", [40, 400])
def test_a_cache_that_is_too_small_is_said_and_stays_empty(tmp_path: Path, mib: int) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    script = f'mount -t tmpfs -o size={mib}m none "$1" && "$2" drives; echo "status $?"; find "$1" -type f -size +0'
    entered = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", cache, ROOT / "shingle"],
        env=os.environ | {"SHINGLE_CACHE": str(cache)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert f"has room for {mib} MiB; the Python packages take" in entered.stderr
    assert entered.stdout == "status 2\n"


def test_without_a_home_it_says_what_to_set(tmp_path: Path) -> None:
    unset = ("HOME", "SHINGLE_CACHE", "XDG_CACHE_HOME")
    bare = {name: value for name, value in os.environ.items() if name not in unset}
    entered = subprocess.run([ROOT / "shingle", "drives"], env=bare, capture_output=True, text=True, check=False)
    assert entered.returncode == 2
    assert entered.stderr.startswith("shingle: HOME is not set: set it, or SHINGLE_CACHE")


def test_once_set_up_it_installs_nothing(tmp_path: Path) -> None:
    for name in ("apt-get", "pip", "curl", "wget"):
        program(tmp_path, name, f"echo {name} was called >&2; exit 1")
    entered = enter(tmp_path, "file-systems")
    assert entered.returncode == 0
    assert "ext4-lazy" in entered.stdout
    assert entered.stderr == ""


@pytest.mark.parametrize(
    ("option", "some"),
    [
        ("--stock-kernel", {"dkms", "qemu-system-x86"}),
        ("--clients", {"ffmpeg", "rocksdb-tools"}),
        ("--browser", {"chromium", "chromium-driver"}),
    ],
)
def test_what_some_tests_need_is_asked_for_only_then(tmp_path: Path, option: str, some: set[str]) -> None:
    without(tmp_path, *some)
    program(tmp_path, "id", "echo 1000")
    assert enter(tmp_path, "drives").returncode == 0
    entered = enter(tmp_path, "test", option)
    assert entered.returncode == 2
    asked, line = "shingle: apt-get install --no-install-recommends ", entered.stderr.splitlines()[-1]
    assert line.startswith(asked)
    # Where nothing of it is installed it asks for more.
    assert some <= set(line.removeprefix(asked).split())


def test_snakemake_is_installed_for_the_matrix_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    ours = Path(sys.prefix)
    (cache / ours.name).symlink_to(ours)
    # No network, no wheels that lie about.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert enter(tmp_path, "cells", "field", cache=cache).returncode == 0
    entered = enter(tmp_path, "matrix", "field", cache=cache)
    assert entered.returncode == 2
    assert entered.stderr.splitlines()[-1].startswith("shingle: pip could not install lab/requirements-workflow.txt")
    assert [path.name for path in cache.glob("venv-*")] == [ours.name]

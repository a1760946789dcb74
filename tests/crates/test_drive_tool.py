# SPDX-License-Identifier: MIT OR Apache-2.0
"""`shingle-drive` behind the command line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from shingle.build import build
from shingle.catalogue import drive
from shingle.cli import main
from shingle.cli.drives import command as drives
from shingle.failure import Failure
from shingle.paths import ROOT


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--range", "512P", "expected a size such as"), ("--block", "0", "expected a multiple of 512 bytes")],
)
def test_a_wrong_size_is_answered_with_what_was_expected(option: str, value: str, said: str) -> None:
    answered = CliRunner().invoke(drives, ["load", "wd5000ys", "--op", "randwrite", option, value])
    assert isinstance(answered.exception, Failure)
    assert said in str(answered.exception)


OWN = (ROOT / "drives/wd40efax.toml").read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "--workload", "MakeDirs", "--scale", "0.001", "--fs", "ext4", "--drive"),
        ("drives", "validate"),
        ("drives", "load", "--op", "read"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_mistake_in_a_drive_of_one_s_own_is_said_before_anything_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def formatted(*_: object, **__: object) -> None:
        raise AssertionError("a drive was formatted")

    def built(*_: object, **__: object) -> None:
        raise AssertionError("a kernel was built")

    monkeypatch.setattr(drive, "formatted", formatted)
    monkeypatch.setattr(build, "build_kernel", built)
    file = tmp_path / "mine.toml"
    file.write_text(OWN.replace("\nidle =", "\nidel ="))
    line = file.read_text()[: file.read_text().index("\nidel =")].count("\n") + 2
    answered = CliRunner().invoke(main.cli, [*command, str(file)])
    assert isinstance(answered.exception, Failure)
    assert f"mine.toml:{line}: translation.idel: no such key" in str(answered.exception)
    assert answered.exception.status == 2


def test_a_drive_of_one_s_own_is_shown_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN)
    for words, said in (
        (["drives", str(file)], OWN.splitlines()[-1]),
        (["drives", "validate", str(file)], "no mistake"),
    ):
        answered = CliRunner().invoke(main.cli, words)
        assert answered.exit_code == 0, answered.exception
        assert said in answered.output

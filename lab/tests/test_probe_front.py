# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle probe --destructive` says what is on the disk before anything is written."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from shingle.catalogue import probe
from shingle.failure import Failure


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_what_will_be_lost_is_named_and_asked(answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    seen = Terminal()
    monkeypatch.setattr(probe, "_run", lambda argv: ran.append(argv) or 0)
    monkeypatch.setattr(probe, "contents", lambda device: f"sdz 8T archive on {device}\n")
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", seen)
    disk = Path("/dev/sdz")
    if goes_on:
        assert probe.disk(Path("probe"), disk, destructive=disk) == 0
    else:
        with pytest.raises(Failure, match="is left as it is"):
            probe.disk(Path("probe"), disk, destructive=disk)
    assert len(ran) == goes_on
    assert "sdz 8T archive on /dev/sdz" in seen.getvalue()


def test_a_script_is_told_and_not_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(probe, "_run", lambda _: 0)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    disk = Path("/dev/null")
    assert probe.disk(Path("probe"), disk, destructive=disk) == 0
    assert "will be lost" in capsys.readouterr().err
    assert probe.disk(Path("probe"), disk) == 0
    assert capsys.readouterr().err == ""

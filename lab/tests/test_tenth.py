# SPDX-License-Identifier: MIT OR Apache-2.0
"""What counts as the same at a tenth."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shingle.cli import main
from shingle.paths import ROOT
from shingle.runs import experiment, tenth

RECORDS = [json.loads(line) for line in (ROOT / "results/e16.jsonl").read_text().splitlines()]
E16 = experiment.find("e16")


def with_keys(**keys: str) -> list[dict[str, Any]]:
    return [each | {"versions": each["versions"] | keys, "host": each["host"] | {"run_s": 1.0}} for each in RECORDS]


def test_other_keys_and_another_host_are_the_same() -> None:
    before, now = tenth.seen(E16, RECORDS), tenth.seen(E16, with_keys(kernel="other"))
    assert tenth.differing(before, now) == []
    assert len(before.phases) == len(RECORDS)
    (line,) = tenth.added([before], now)
    assert [each["kernel"] for each in line.keys] == [RECORDS[0]["versions"]["kernel"], "other"]
    assert tenth.added([line], now) == [line]


def test_what_follows_from_the_rest_is_no_difference() -> None:
    loaded = [each | {"load": {"operations": {"write": 2}}} for each in RECORDS]
    rated = [each | {"load": each["load"] | {"per_s": {"write": 0.5}}} for each in loaded]
    assert tenth.differing(tenth.seen(E16, loaded), tenth.seen(E16, rated)) == []


@pytest.mark.parametrize("field", ["virtual_s", "bands_dirty", "seed"])
def test_any_other_field_is_a_difference(field: str) -> None:
    changed = with_keys()
    changed[1] |= {field: changed[1][field] + 1}
    before, now = tenth.seen(E16, RECORDS), tenth.seen(E16, changed)
    assert len(tenth.differing(before, now)) == 1
    assert (tenth.largest(before, now)[0] > 0) == (field != "seed")
    assert tenth.added([before], now) == [before, now]


@pytest.mark.parametrize(("number", "scale"), [("e14", 0.1), ("e40", 0.01)])
def test_a_tenth_is_of_what_is_recorded(number: str, scale: float) -> None:
    assert tenth.scale_of(experiment.find(number)) == pytest.approx(scale)


def test_a_phase_that_is_gone_is_a_difference() -> None:
    assert len(tenth.differing(tenth.seen(E16, RECORDS), tenth.seen(E16, RECORDS[:-1]))) == 1


def test_a_phase_that_is_new_is_none_and_is_kept() -> None:
    before, now = tenth.seen(E16, RECORDS[:-1]), tenth.seen(E16, with_keys(kernel="other"))
    assert tenth.differing(before, now) == []
    (line,) = tenth.added([before], now)
    assert line.phases == now.phases and len(line.keys) == 2


def test_the_command_compares_and_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "tenth.jsonl"
    monkeypatch.setattr(tenth.read, "__defaults__", (kept,))
    monkeypatch.setattr(tenth.write, "__defaults__", (kept,))
    file = tmp_path / "e16.jsonl"

    def say(records: list[dict[str, Any]], *more: str) -> tuple[int, str]:
        file.write_text("".join(json.dumps(each) + "\n" for each in records))
        answered = CliRunner().invoke(main.cli, ["equal", "e16", "--record", str(file), *more])
        return answered.exit_code, answered.output

    assert say(RECORDS, "--write") == (0, f"{E16.name}: {len(RECORDS)} phases, seen for the first time\n")
    assert say(with_keys(kernel="other")) == (0, f"{E16.name}: {len(RECORDS)} phases, all equal\n")
    status, told = say([RECORDS[0] | {"virtual_s": 1e9}, *RECORDS[1:]])
    assert status == 1 and f"1 of {len(RECORDS)} phases differ" in told
    assert len(kept.read_text().splitlines()) == 1

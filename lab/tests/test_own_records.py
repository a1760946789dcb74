# SPDX-License-Identifier: MIT OR Apache-2.0
"""One's own records: shown again, as CSV, drawn, and in the report; tables that fit a terminal of 80 columns."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from shingle.cli import main
from shingle.evidence import own, report, table
from shingle.failure import Failure
from shingle.paths import ROOT
from shingle.runs import record
from shingle.runs.record import Record


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `compare --record` leaves them: those of e01, of no experiment."""
    kept = record.read(ROOT / "results/e01.jsonl")
    first = [each for each in kept if each["seed"] == kept[0]["seed"] and each["scale"] == kept[0]["scale"]]
    file = tmp_path_factory.mktemp("own") / "mine.jsonl"
    record.write(file, [each | {"experiment": None} for each in first])
    return file


def shown(records: list[Record], width: int, **more: Any) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    table.show(console, records, phases=own.phases(records), **more)
    assert isinstance(console.file, io.StringIO)
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in console.file.getvalue().splitlines()]


def test_show_prints_the_table_of_the_run(mine: Path) -> None:
    done = CliRunner().invoke(main.cli, ["show", str(mine)], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.startswith("compare: st8000as0002, MakeDirs")
    for each in record.read(mine):
        assert table.seconds(each["virtual_s"]) in done.output
        assert each["file_system"] in done.output and each["phase"] in done.output


def test_csv_has_each_record_and_each_number(mine: Path) -> None:
    done = CliRunner().invoke(main.cli, ["show", str(mine), "--csv"], catch_exceptions=False)
    rows = list(csv.DictReader(io.StringIO(done.output)))
    kept = record.read(mine)
    assert [(row["file_system"], row["phase"], float(row["virtual_s"])) for row in rows] == [
        (each["file_system"], each["phase"], each["virtual_s"]) for each in kept
    ]
    assert [int(row["configuration.memory_mib"]) for row in rows] == [
        each["configuration"]["memory_mib"] for each in kept
    ]


def test_own_records_are_drawn_the_same_again(mine: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = CliRunner().invoke(main.cli, ["show", str(mine), "--figure", str(tmp_path / name)])
        assert done.exit_code == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "ext4-lazy" in (tmp_path / "one.svg").read_text()


def test_the_report_has_own_records_and_nothing_that_they_are_not_of(mine: Path, tmp_path: Path) -> None:
    page = report.html([mine])
    assert f"Made from {len(record.read(mine))} records" in page
    assert "runs-of-your-own" in page
    assert "e13-smr-microbenchmarks" not in page
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(Failure, match="no records"):
        report.html([empty])


def test_claims_say_where_own_records_are_shown(mine: Path) -> None:
    done = CliRunner().invoke(main.cli, ["claims", "--record", str(mine)])
    assert f"./shingle show {mine}" in str(done.exception)


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_gets_whole_words_and_numbers(mine: Path, width: int) -> None:
    kept = record.read(mine)
    lines = shown(kept, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    for each in kept:
        assert table.seconds(each["virtual_s"]) in text and each["phase"] in text
    assert all(heading in text for heading in ("dirty", "afterwards", "metadata", "--wide"))


def test_a_wide_terminal_and_wide_have_all_columns(mine: Path) -> None:
    kept = record.read(mine)
    for lines in (shown(kept, 190), shown(kept, 80, wide=True)):
        assert "superblock" in lines[0] and "…" not in "\n".join(lines)


def test_runs_with_other_settings_are_told_apart_on_a_narrow_terminal(mine: Path) -> None:
    kept = record.read(mine)
    cheaper = [json.loads(json.dumps(each)) for each in kept]
    for each in cheaper:
        each["configuration"]["name_ns"] = 1000
    lines = shown([*kept, *cheaper], 80)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if " us per " in line] == [
        "st8000as0002, 60 us per name change", "st8000as0002, 1 us per name change",
    ]  # fmt: skip

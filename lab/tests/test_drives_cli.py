# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle drives`, and the page that is made from the committed comparison with measurements."""

import json
import re

import pytest
from click.testing import CliRunner

from shingle.catalogue import drive
from shingle.cli.drives import command as drives
from shingle.evidence import validation_page
from shingle.failure import Failure
from shingle.paths import ROOT

RECORD = ROOT / "results/drives/validation.jsonl"


def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def test_the_committed_page_is_made_from_the_committed_record() -> None:
    assert (ROOT / "docs/results/drive-validation.md").read_text() == validation_page.page(rows())


def test_a_row_that_is_off_is_seen_and_counted() -> None:
    judged = [row for row in rows() if row["event"] == "row" and row["kind"] == "predicted"]
    passing = next(row for row in judged if row["verdict"] == "pass")
    before = validation_page.headline(judged)
    passing["verdict"] = "FAIL"
    assert validation_page.headline(judged) != before
    assert "**FAIL**" in validation_page.table([passing])


def test_without_arguments_every_drive_is_listed() -> None:
    listed = CliRunner().invoke(drives, [])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in drive.profiles())


@pytest.mark.parametrize("arguments", [["wd5000ys"], ["show", "wd5000ys"]])
def test_a_drive_is_shown_by_its_name_with_and_without_show(arguments: list[str]) -> None:
    shown = CliRunner().invoke(drives, arguments)
    assert shown.exit_code == 0
    assert "Caviar RE2" in shown.output


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    answered = CliRunner().invoke(drives, ["wd500ys"])
    assert isinstance(answered.exception, Failure)
    assert "Did you mean wd5000ys?" in str(answered.exception)


def test_the_example_of_the_trace_format_is_what_the_reader_reads() -> None:
    text = (ROOT / "docs/reference/trace-format.md").read_text()
    dump = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)$", text, re.MULTILINE)
    data = bytes.fromhex("".join(dump))
    assert data.startswith(b"SHGLTRC1")
    assert len(data) == 8 + 4 * 48
    assert data[8 + 2 * 48 :].startswith(b"a phase")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is said of records whose code is not the present one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from shingle.build import build
from shingle.cli import check, main
from shingle.evidence import claims_page
from shingle.failure import Failure
from shingle.paths import ROOT
from shingle.runs import experiment, provenance, tenth

E16 = experiment.find("e16")
RECORDS = [json.loads(line) for line in (ROOT / "results/e16.jsonl").read_text().splitlines()]
OLD = tenth.keys_of(RECORDS[0])
NEW = OLD | {"kernel": "0123456789abcdef"}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> tenth.Keys:
    """The present code is another kernel than that of the records, and nothing was run at a tenth."""
    monkeypatch.setattr(provenance, "present", lambda: NEW)
    monkeypatch.setattr(tenth, "read", list)
    return NEW


def test_records_of_another_kernel_are_stale(now: tenth.Keys) -> None:
    assert provenance.worst(E16, RECORDS) == "stale"
    told = provenance.told(E16, RECORDS)
    assert f"{len(RECORDS)} of kernel `{OLD['kernel'][:8]}`" in told
    assert ": stale. The present code: `01234567`" in told


def test_unless_they_gave_the_same_at_a_tenth(now: tenth.Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    same = replace(tenth.seen(E16, RECORDS), keys=(OLD, now))
    monkeypatch.setattr(tenth, "read", lambda: [same])
    assert provenance.worst(E16, RECORDS) == "equal at a tenth"
    other = replace(same, phases={}, keys=(now,))
    monkeypatch.setattr(tenth, "read", lambda: [same, other])
    assert provenance.worst(E16, RECORDS) == "stale"


def test_a_record_of_a_kernel_with_changes_is_of_the_present_code(
    now: tenth.Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = "fedcba9876543210"
    monkeypatch.setattr(provenance, "present", lambda: now | {"kernel next": changed})
    renewed = [each | {"versions": each["versions"] | now | {"kernel": changed}} for each in RECORDS]
    assert provenance.worst(E16, renewed) == "present"
    assert "The present code" not in provenance.told(E16, renewed)
    other = [each | {"versions": each["versions"] | {"guest": "0"}} for each in renewed]
    assert provenance.worst(E16, other) == "stale"


def test_one_old_record_makes_all_stale(now: tenth.Keys) -> None:
    renewed = [each | {"versions": each["versions"] | now} for each in RECORDS]
    assert provenance.worst(E16, renewed) == "present"
    assert provenance.worst(E16, [*renewed[1:], RECORDS[0]]) == "stale"


def test_a_release_with_stale_headlines_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "everything", lambda **_: None)
    monkeypatch.setattr(provenance, "of_code", lambda _: provenance.present())
    states = dict.fromkeys((each.name for each in claims_page.headlines()), "present")
    monkeypatch.setattr(provenance, "worst", lambda chosen, _: states[chosen.name])
    assert CliRunner().invoke(main.cli, ["check", "--release"]).exit_code == 0
    states[claims_page.headlines()[0].name] = "stale"
    refused = CliRunner().invoke(main.cli, ["check", "--release"])
    assert isinstance(refused.exception, Failure)
    assert f"numbers of older code: {claims_page.headlines()[0].number}" in str(refused.exception)
    monkeypatch.setattr(provenance, "of_code", lambda _: {"kernel": "new"})
    with pytest.raises(Failure, match="keys of other code"):
        check._check_release()

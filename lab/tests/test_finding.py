# SPDX-License-Identifier: MIT OR Apache-2.0
"""The texts of experiments: their numbers come from records, and what no record gives is marked."""

import statistics
from pathlib import Path

import pytest

from shingle.evidence import claims_page, finding
from shingle.failure import Failure
from shingle.paths import ROOT
from shingle.runs import experiment

TEXTS = sorted((ROOT / "experiments").glob("*/e*.md"))
TABLES = ROOT / "lab/shingle/evidence"


def test_each_text_belongs_to_an_experiment_and_each_experiment_with_claims_has_one() -> None:
    assert {path.with_suffix(".py") for path in TEXTS} <= set(experiment.names().values())
    without = [each.name for each in experiment.all_of_them() if each.claims and not finding.path_of(each).exists()]
    assert without == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_no_number_is_typed_into_a_text(path: Path) -> None:
    """Neither in sentences nor, as an argument that would print itself, between the braces."""
    assert finding.typed_numbers(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It takes 5,640 s.", ["5,640"]),
        ("Half of it,\nsome 0.3 %.", ["0.3"]),
        ("a gain of 3.1 times and 12 bands", ["3.1", "12"]),
        ("It takes {{ phase('Postmark', 'ext4').virtual_s }} s.", []),
        ("The paper: {{ paper('24.2 MiB/s') }}.", []),
        ("Linux 6.12 and 4.6, Table 3, 17 s", ["4.6", "17"]),
        ("e26, T7b, Figure 12, Tables 3 and 4, section 4.3.2, FAST'17, ext4-10g, F2FS, ST8000AS0002, in 2016", []),
        ("`mb_optimize_scan=0` and docs/decisions/0003", []),
        ("{% set a = 7 %}{# 8 #}<!-- 9 -->", ["7"]),
    ],
)
def test_what_is_a_typed_number(text: str, numbers: list[str]) -> None:
    assert [each.partition(": ")[2].rstrip(".,") for each in finding.typed_numbers(text)] == numbers


def test_a_literal_between_the_braces_is_typed_too() -> None:
    assert finding.typed_numbers("It takes {{ 5640 }} s.") != []
    assert finding.typed_numbers('{{ "5,640 s" }}') != []
    assert finding.typed_numbers('{{ given("10 GiB") }} {{ own("slowdown", 0.3) | to(1) }}') == []


def test_a_field_is_the_mean_over_the_seeds_as_the_claims_are() -> None:
    records = experiment.records_of(experiment.find("e14"))
    wanted = ("st8000as0002", "ext4-lazy", "Postmark")
    found = [each for each in records if (each["drive"], each["file_system"], each["phase"]) == wanted]
    assert len(found) > 1
    mean = statistics.fmean(each["counters"]["bands_cleaned_forced"] for each in found)
    template = '{{ e14.phase("Postmark", "ext4-lazy", "st8000as0002").counters.bands_cleaned_forced }}'
    assert finding.filled(template, "test") == f"{mean:,.0f}"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ('{{ e14.phase("Postmark", "ext5").virtual_s }}', "no record of Postmark on ext5"),
        ('{{ e14.phase("Postmark", "ext4-lazy").virtual }}', "has no attribute 'virtual'"),
        ('{{ e14.claim("T13") }}', "one claim of T13"),
        ('{{ paper("some") }}', "marks no number"),
        ("{{ phase }}{{ nothing }}", "undefined"),
        ("{{ e14.phase(", "unexpected"),
    ],
)
def test_a_field_that_no_record_fills_is_a_failure_that_names_the_text(template: str, said: str) -> None:
    with pytest.raises(Failure, match=said):
        finding.filled(template, "e14.md")


@pytest.mark.parametrize(
    ("page", "template", "typed"),
    [
        ("README.md", "front_page.md.j2", ["line 8: 8"]),
        ("docs/guide/owners-guide.md", "owners_guide.md.j2", []),
        ("docs/results/shown.md", "shown.md.j2", []),
    ],
)
def test_a_table_in_a_page_has_no_typed_number_but_its_captions(page: str, template: str, typed: list[str]) -> None:
    assert finding.typed_numbers((TABLES / template).read_text()) == typed
    assert claims_page.with_table(ROOT / page) == (ROOT / page).read_text()

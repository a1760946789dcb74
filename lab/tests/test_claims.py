# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a claim makes of a measured value."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from shingle.cli import main
from shingle.evidence import claims_page, finding
from shingle.evidence.finding import Reason
from shingle.failure import Failure
from shingle.runs import expectations, experiment
from shingle.runs.claims import Claim, judged
from shingle.runs.experiment import Expectation
from shingle.runs.record import cell


def claim(
    low: float | None, high: float | None, tolerance: float = 0.0, *, linear: bool = False, full_size: bool = False,
    better: str | None = None,
) -> Claim:  # fmt: skip
    return Claim(
        "T0", "a number", "s", low, high, lambda records: float(records[0]["virtual_s"]), tolerance,
        linear=linear, full_size=full_size, better=better,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "scale", "measured", "verdict", "error"),
    [
        (claim(100, 100, 0.25), 1.0, 120, "reproduced", 0.2),
        (claim(100, 100, 0.25), 1.0, 130, "above", 0.3),
        (claim(100, 100, 0.25), 1.0, 70, "below", -0.3),
        (claim(100, 100, 0.25, better="low"), 1.0, 70, "below", -0.3),
        (claim(100, 100, 0.25, better="low"), 1.0, 130, "above", 0.3),
        (claim(1.5, 2, better="high"), 1.0, 2.5, "above", 0.25),
        (claim(1.5, 2), 1.0, 1.7, "reproduced", 0.0),
        (claim(1.5, 2), 1.0, 1.2, "below", -0.2),
        (claim(10, None), 1.0, 1000, "reproduced", 0.0),
        (claim(None, 0), 1.0, 0, "reproduced", 0.0),
        (claim(None, 0), 1.0, 1, "above", float("inf")),
        (claim(100, 100, 0.1, linear=True), 0.1, 10.5, "reproduced", 0.05),
        (claim(100, 100, 0.1), 0.1, 10.5, "below", -0.895),
        (claim(100, 100, full_size=True), 0.1, 100, "not at this scale", 0.0),
    ],
)
def test_a_value_is_judged_by_range_tolerance_and_scale(
    made: Claim, scale: float, measured: float, verdict: str, error: float
) -> None:
    assert made.judge(measured, scale) == (verdict, pytest.approx(error))


def test_seeds_are_averaged_and_the_largest_scale_counts() -> None:
    records = [{"scale": 0.1, "seed": 1, "virtual_s": 1.0}]
    records += [{"scale": 1.0, "seed": seed, "virtual_s": value} for seed, value in ((1, 90.0), (2, 110.0))]
    (found,) = judged([claim(100, 100, 0.25)], records)
    assert (found.scale, found.values, found.mean, found.verdict) == (1.0, (90.0, 110.0), 100.0, "reproduced")
    assert found.deviation == pytest.approx(14.142, abs=0.001)


def test_a_seed_that_lacks_the_run_does_not_count() -> None:
    records = [
        {"file_system": name, "drive": "x", "phase": "MakeDirs", "seed": seed, "scale": 1.0, "virtual_s": 100.0}
        for name, seed in (("ext4", 1), ("xfs", 2))
    ]
    made = replace(claim(100, 100), value=lambda found: float(cell(found, "ext4", "MakeDirs")["virtual_s"]))
    assert [each.values for each in judged([made], records)] == [(100.0,)]


def test_without_records_nothing_is_claimed() -> None:
    (found,) = judged([claim(100, 100)], [])
    assert found.verdict == "not run"
    assert claims_page.ours(found) == ""


def test_every_claim_of_an_experiment_can_be_written() -> None:
    for chosen in claims_page.experiments():
        assert chosen.source, chosen.name
        for each in judged(chosen.claims, []):
            assert all(isinstance(text, str) for text in claims_page.cells(each))


def test_what_is_off_is_listed_with_its_targets_and_the_reason() -> None:
    chosen = claims_page.experiments()[0]
    records = [{"scale": 1.0, "seed": 1, "virtual_s": 50.0}]
    rows = judged([claim(100, 100), claim(50, 50)], records)
    told = claims_page.not_reproduced(chosen, [Reason("a parameter", "the weather", ("T0",))], rows)
    link = f"[{chosen.number}]({chosen.number}.md)"
    assert told == f"* {link}, 1 of 2 rows (T0): a parameter: the weather (T0).\n"
    assert "not looked into" in claims_page.not_reproduced(chosen, (), rows)
    assert claims_page.not_reproduced(chosen, (), rows[1:]) == ""


def test_what_was_run_is_told_with_its_memory_and_seeds_if_they_differ() -> None:
    def ran(file_system: str, seed: int, memory_mib: int) -> dict[str, object]:
        return {
            "scale": 1.0, "drive": "wd5000ys", "file_system": file_system, "workload": "Postmark", "seed": seed,
            "configuration": {"memory_mib": memory_mib}, "host": {"run_s": 60.0},
        }  # fmt: skip

    assert claims_page.setting([ran("xfs", 1, 512)]) == "scale 1, 512 MiB of memory, 1 minutes of one core."
    records = [ran("xfs", 1, 512), ran("xfs", 2, 512), ran("ext4", 1, 1024)]
    told = "scale 1, 512 to 1024 MiB of memory, 3 minutes of one core for 1 to 2 seeds."
    assert claims_page.setting(records) == told


def test_whatever_is_off_has_a_reason_and_no_reason_is_of_something_else() -> None:
    for chosen in claims_page.experiments():
        rows = judged(chosen.claims, experiment.records_of(chosen))
        off = {each.claim.target for each in rows if each.verdict in ("above", "below", "did not finish")}
        reasons = finding.of(chosen).reasons
        named = {target for each in reasons for target in each.targets}
        assert bool(off) == bool(reasons), chosen.name
        assert named <= off, chosen.name
        assert named == off or any(not each.targets for each in reasons), chosen.name


def test_a_target_that_nobody_knows_is_answered_with_all() -> None:
    answered = CliRunner().invoke(main.cli, ["claims", "T99"])
    assert isinstance(answered.exception, Failure)
    assert "T7a" in str(answered.exception)


def test_a_claim_whose_run_is_missing_is_not_run() -> None:
    records = [{"file_system": "ext4", "drive": "x", "phase": "MakeDirs", "seed": 1, "scale": 1.0, "virtual_s": 100}]
    here, missing = (
        Claim("T0", name, "s", 100, 100, lambda found, name=name: float(cell(found, name, "MakeDirs")["virtual_s"]))
        for name in ("ext4", "xfs")
    )
    assert [each.verdict for each in judged((here, missing), records)] == ["reproduced", "not run"]


def test_a_claim_whose_workload_did_not_come_to_its_end_is_not_taken_for_one_that_was_not_run() -> None:
    failed = {"file_system": "ext4", "drive": "x", "phase": "MakeDirs", "seed": 1, "scale": 1.0, "failed": "ENOSPC"}
    made = replace(claim(100, 100), value=lambda found: float(cell(found, "ext4", "MakeDirs")["virtual_s"]))
    (found,) = judged([made], [failed])
    assert found.verdict == "did not finish"
    assert claims_page.ours(found) == ""
    chosen = claims_page.experiments()[0]
    assert "1 of 1 rows (T0)" in claims_page.not_reproduced(chosen, (), [found])


def test_an_expectation_is_held_by_every_seed_that_has_its_cells() -> None:
    def holds(name: str) -> Expectation:
        return Expectation(name, lambda records: float(cell(records, name, "MakeDirs")["virtual_s"]) < 10)

    records = [
        {"file_system": name, "drive": "x", "phase": "MakeDirs", "seed": seed, "scale": 1.0, "virtual_s": value}
        for name, seed, value in (("ext4", 1, 5.0), ("xfs", 1, 5.0), ("xfs", 2, 50.0))
    ]
    chosen = replace(claims_page.experiments()[0], expectations=(holds("ext4"), holds("xfs"), holds("f2fs")))
    assert chosen.held(records) == [True, False, None]


def test_what_must_be_found_is_found_in_the_committed_records() -> None:
    broken = {each.name: each.held(experiment.records_of(each)) for each in experiment.all_of_them()}
    assert [name for name, held in broken.items() if False in held] == []


def test_what_is_expected_is_as_it_was_fixed() -> None:
    known = expectations.read()
    assert expectations.unfixed(known, experiment.all_of_them()) == [], 'run ./shingle claims --fix "WHY"'
    assert all(now.why and now != before for now, before in expectations.changes(known))


def test_a_changed_expectation_is_told_with_its_reason(tmp_path: Path) -> None:
    file, today = tmp_path / "expectations.jsonl", datetime.date(2026, 1, 2)
    chosen = claims_page.experiments()[0]
    first, wider = (replace(chosen, claims=(claim(100, 100, tolerance),)) for tolerance in (0.0, 0.25))
    known = expectations.fixed([], [first], "not asked for", today)
    assert expectations.unfixed(known, [first]) == []
    assert [each.tolerance for each in expectations.unfixed(known, [wider])] == [0.25]
    expectations.write(expectations.fixed(known, [wider], "the day was long", today), file)
    row = f"| 2026-01-02 | {chosen.number} T0 | a tolerance of 0% became 25% | the day was long |"
    assert row in expectations.changes_page(file)


def test_rows_are_counted_by_what_was_chosen_for_them() -> None:
    records = [{"scale": 1.0, "seed": 1, "virtual_s": 100.0}]
    made = [claim(100, 100), claim(50, 50, better="high"), replace(claim(100, 100), basis="fitted")]
    told = claims_page.headline(judged(made, records), judged([claim(1, 1)], records))
    assert "| predicted: nothing was chosen for them | 1 | 2 | 1 | 0 |" in told
    assert "met with it | 1 | 1 | 0 | 0 |" in told
    assert "| varied, to find reasons | 0 | 1 | 0 | 0 |" in told

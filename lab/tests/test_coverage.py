# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/results/coverage.md is made from its records, and what it excuses is there and needs the excuse."""

from shingle.paths import ROOT
from shingle.verify import coverage

_SOURCE = """\
static inline int one(int a)
{
\treturn a;
}

static void __must_check
two_with_a_long_head(struct thing *thing,
\t\t     int b)
{
\tif (b) {
\t\tone(b);
\t}
}

struct thing {
\tint three;
};
"""


def test_lines_of_a_c_file_know_their_function() -> None:
    named = coverage.functions_in(_SOURCE)
    assert {named[number] for number in (3, 4)} == {"one"}
    assert {named[number] for number in range(10, 14)} == {"two_with_a_long_head"}
    assert set(named) == {3, 4, 10, 11, 12, 13}


def test_numbers_are_packed_and_come_back() -> None:
    numbers = {1, 2, 3, 7, 9, 10}
    assert coverage._packed(numbers) == "1-3 7 9-10"
    assert coverage._unpacked("1-3 7 9-10") == numbers
    assert coverage._unpacked("") == set()


def test_what_ran_in_any_suite_ran() -> None:
    key = ("a.c", "f")
    one = {key: coverage.Lines({1, 2, 3}, {1})}
    two = {key: coverage.Lines({1, 2, 3}, {3}), ("a.c", "g"): coverage.Lines({9}, set())}
    assert coverage.together([one, two]) == {key: coverage.Lines({1, 2, 3}, {1, 3}), ("a.c", "g"): coverage.Lines({9})}


def test_the_page_is_made_from_the_records() -> None:
    assert coverage.PAGE.read_text() == coverage.page(), "renew it: ./shingle coverage --page"
    assert len(coverage.page().splitlines()) <= 200


def test_each_function_that_runs_too_little_has_a_reason_and_no_other() -> None:
    assert set(coverage.reasons()) == set(coverage.below())


def test_each_reason_names_a_function_of_the_sources() -> None:
    for name in coverage.reasons():
        file, _, function = name.partition(":")
        if function != coverage.HOOKS:
            assert function in (ROOT / "kernel" / file).read_text(), name

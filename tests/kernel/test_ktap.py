# SPDX-License-Identifier: MIT OR Apache-2.0
"""The reader of kernel test results, on saved consoles."""

from kernel import ktap

CONSOLE = """\
[    0.010000] KTAP version 1
[    0.010000] 1..1
[    0.010000]     KTAP version 1
[    0.010000]     # Subtest: jbd2_jmap
[    0.010000]     # module: jbd2
[    0.010000]     1..3
[    0.010000]     ok 1 lookup_of_nothing_finds_nothing
[    0.010000]     # stale_slot_is_dropped: EXPECTATION FAILED at fs/jbd2/jmap-test.c:40
[    0.010000]     not ok 2 stale_slot_is_dropped
[    0.010000]     ok 3 needs_memory # SKIP too little
[    0.010000] # jbd2_jmap: pass:1 fail:1 skip:1 total:3
[    0.010000] not ok 1 jbd2_jmap
"""


def test_cases_are_read_with_their_suite() -> None:
    report = ktap.parse(CONSOLE)
    assert report.planned == 3
    assert [case.passed for case in report.cases] == [True, False, True]
    assert report.cases[2].skipped
    assert report.failed == ["jbd2_jmap.stale_slot_is_dropped"]


def test_a_console_that_was_cut_off_has_fewer_cases_than_planned() -> None:
    report = ktap.parse("\n".join(CONSOLE.splitlines()[:7]))
    assert len(report.cases) < report.planned


def test_parameters_of_a_case_are_in_no_plan() -> None:
    below = "        # Subtest: lookup\n        ok 1 block_bits=10 of four\n        not ok 2 block_bits=12\n"
    report = ktap.parse(CONSOLE.replace("    ok 1 lookup", f"{below}    not ok 1 lookup"))
    assert [case.name for case in report.cases if case.is_parameter] == ["block_bits=10", "block_bits=12"]
    assert "lookup.block_bits=12" in report.failed
    assert len([case for case in report.cases if not case.is_parameter]) == report.planned

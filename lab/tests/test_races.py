# SPDX-License-Identifier: MIT OR Apache-2.0
"""KCSAN's reports: ours are failures, stock's are none, and nothing else of the console is lost."""

import pytest

from shingle import races
from shingle.failure import Failure

_REPORT = """\
[   12.100000] ==================================================================
[   12.100000] BUG: KCSAN: data-race in {first} / {second}
[   12.100000]
[   12.100000] write to 0xffff888003a1b0c8 of 8 bytes by task 51 on cpu 1:
[   12.100000]  {first}+0x1c/0x40
[   12.100000] ==================================================================
"""


def said(first: str, second: str) -> str:
    return f"[   12.0] before\n{_REPORT.format(first=first, second=second)}[   13.0] after\n"


def test_a_race_of_ours_is_a_failure_that_shows_the_report() -> None:
    with pytest.raises(Failure, match="jbd2_journal_revoke, jmap_find") as caught:
        races.without_others(said("jmap_find.isra.0", "jbd2_journal_revoke"))
    assert any("write to" in line for line in caught.value.detail)


def test_a_race_of_stock_s_is_left_out_and_the_rest_stays() -> None:
    rest = races.without_others(said("jbd2_journal_revoke", "jbd2_journal_commit_transaction"))
    assert [line.split()[-1] for line in rest.splitlines() if "====" not in line] == ["before", "after"]

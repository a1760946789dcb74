# SPDX-License-Identifier: MIT OR Apache-2.0
"""KCSAN's reports: ours are failures, stock's are none, and nothing else of the console is lost."""

from collections import Counter

import pytest

from shingle.failure import Failure
from shingle.verify import races

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
    with pytest.raises(Failure, match="jbd2_journal_revoke / jmap_find") as caught:
        races.without_others(said("jmap_find.isra.0", "jbd2_journal_revoke"), Counter())
    assert any("write to" in line for line in caught.value.detail)


def test_a_report_that_the_console_s_end_cuts_off_counts_and_hides_nothing() -> None:
    cut = said("jmap_find", "jbd2_journal_revoke").rpartition("[   12.100000] =====")[0]
    with pytest.raises(Failure, match="jbd2_journal_revoke / jmap_find"):
        races.without_others(cut, Counter())
    stock = said("dput", "dget").rpartition("[   12.100000] =====")[0]
    assert "WARNING: CPU: 1" in races.without_others(f"{stock}[   12.2] WARNING: CPU: 1 PID: 7\n", Counter())


def test_a_race_below_a_function_of_ours_is_ours() -> None:
    report = said("start_this_handle", "__jbd2_log_wait_for_space").replace(
        " start_this_handle+", " start_this_handle+0x1/0x2\n[   12.100000]  lazy_clean_relog+", 1
    )
    with pytest.raises(Failure, match="start_this_handle"):
        races.without_others(report, Counter())


@pytest.mark.parametrize(("after", "ours"), [("0x00b0", False), ("0x02b2", True), ("0x00b2", True)])
def test_a_commit_that_begins_or_ends_is_not_ours_below_a_function_of_ours(after: str, ours: bool) -> None:
    report = said("ext4_mark_iloc_dirty", "jbd2_journal_commit_transaction").replace(
        " ext4_mark_iloc_dirty+",
        f" ext4_mark_iloc_dirty+0x1/0x2\n[   12.1]  ext4_ext_relocate+0x1/0x2\n[   12.1]\n"
        f"[   12.1] value changed: 0x02b0 -> {after}\n[   12.1]  ext4_dirty_inode+",
        1,
    )
    others = Counter[str]()
    if ours:
        with pytest.raises(Failure, match="ext4_mark_iloc_dirty"):
            races.without_others(report, others)
    else:
        races.without_others(report, others)
        assert others.total() == 1


@pytest.mark.parametrize(
    ("reader", "ours"), [("ext4_mb_good_group", False), ("ext4_mb_scan_group", False), ("ext4_stream_next", True)]
)
def test_a_group_s_counters_are_ours_only_if_we_read_them(reader: str, ours: bool) -> None:
    report = said("mb_mark_used", reader).replace(
        " mb_mark_used+",
        " mb_mark_used+0x1/0x2\n[   12.1]  ext4_stream_take+0x1/0x2\n[   12.1]  ext4_mb_new_blocks+",
        1,
    )
    others = Counter[str]()
    if ours:
        with pytest.raises(Failure, match="mb_mark_used"):
            races.without_others(report, others)
    else:
        races.without_others(report, others)
        assert others.total() == 1


def test_a_race_of_stock_s_is_left_out_and_counted_and_the_rest_stays() -> None:
    others = Counter[str]()
    text = said("jbd2_journal_revoke", "jbd2_journal_commit_transaction")
    rest = races.without_others(text + text, others)
    lines = [line.split()[-1] for line in rest.splitlines() if "====" not in line]
    assert lines == ["before", "after", "before", "after"]
    assert races.left_out(others) == (
        "2 reports of races in stock code, of 1 kinds, were left out: "
        "jbd2_journal_commit_transaction / jbd2_journal_revoke (2)"
    )
    assert races.left_out(Counter()) == "no data race was reported"


def test_functions_that_patches_add_are_ours_and_those_that_they_change_are_not() -> None:
    ours = races.our_functions()
    assert {"ext4_ext_relocate", "mpage_relocate_buffers", "ext4_abort_relocation"} <= ours
    assert {"mpage_map_one_extent", "ext4_end_bio", "ext4_map_blocks"} & ours == set()

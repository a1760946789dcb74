# SPDX-License-Identifier: MIT OR Apache-2.0
"""The committed table of power cuts is made from the committed records; and what counts as a failure."""

from __future__ import annotations

import pytest

from shingle.verify import owner_advice, owner_cuts, owner_round, owner_volumes
from shingle.verify.owner_cuts import Explored
from shingle.verify.owner_round import Problem, State


def test_the_page_has_the_table_of_the_records() -> None:
    page = owner_cuts.PAGE.read_text()
    assert page == owner_cuts.page_with(page, owner_cuts.RECORDS), "run ./shingle lazy cuts --write"


@pytest.mark.parametrize(
    ("disk", "replays", "problem", "fails"),
    [
        ("honest", True, Problem.BOOT, True),
        ("kill", False, Problem.LOST, True),
        ("lying", False, Problem.BOOT, False),
        ("lying", True, Problem.LOST, False),
        ("lying", False, Problem.LOST, True),
        ("lying", False, Problem.NO_END, True),
        ("lying", True, Problem.NO_END, True),
    ],
)
def test_only_a_disk_that_lies_about_a_replay_may_lose(disk: str, replays: bool, problem: Problem, fails: bool) -> None:
    state = State(owner_volumes.find("convert/old"), 1, disk, "7l", "", "", [(problem, "")], replays=replays)
    good = State(owner_volumes.find("convert/old"), 1, disk, "8l", "", "")
    assert owner_cuts.failures(Explored(1, [state, good])) == ([state] if fails else [])


def test_advice_may_end_nowhere_only_where_no_superblock_is_left() -> None:
    gone = (Problem.NO_END, f"convert: 8: /dev/shd0: {owner_advice.NO_VOLUME}.")
    state = State(owner_volumes.find("convert/crashed"), 1, "lying", "7s1", "", "", [gone], replays=True)
    assert not owner_cuts.failures(Explored(1, [state]))


def test_a_record_is_cut_at_its_commands() -> None:
    def event(kind: int, text: bytes = b"") -> bytes:
        return owner_round._EVENT.pack(kind, 0, 0, 0, len(text)) + text.ljust(len(text) + 7 & -8, b"\0")

    events = [event(2), event(4, b"e2fsck"), event(1, bytes(512)), event(3), event(4, b"tune2fs"), event(2)]
    found = owner_round.events(b"SHGLREC1" + b"".join(events))
    assert [each.text for each in found if each.text] == ["e2fsck", "tune2fs"]
    assert owner_round.by_command(found) == [("e2fsck", [3, 4])], "a command that wrote nothing has no cuts"

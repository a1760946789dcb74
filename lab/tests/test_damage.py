# SPDX-License-Identifier: MIT OR Apache-2.0
"""The judgement on damaged logs, without a machine."""

from shingle.verify import damage
from shingle.verify.damage import Outcome, Seen, State

TREE = {"a": "f 644 1", "d": "d 755"}
OTHER = {"a": "f 644 0", "d": "d 755"}
HEALTHY = Seen(TREE, "", "77", "")


def state(target: str = "descriptor", way: str = "zeroed", ends: bool = False) -> State:
    return State(3, "", 1, ((target, way, "log block 9"),), ends, "7l", 40)


def outcome(lazy: Seen, again: Seen | None = None, of: State | None = None) -> Outcome:
    return damage.judge(of or state(), HEALTHY, lazy, again or lazy).outcome


def test_a_tree_as_it_was_is_recovered_if_the_map_is_too() -> None:
    assert outcome(HEALTHY) is Outcome.RECOVERED
    # Stock recovery emptied the log.
    assert outcome(Seen(TREE, "", "0", "")) is Outcome.RECOVERED
    assert outcome(Seen(TREE, "", "78", "")) is Outcome.WRONG
    assert outcome(Seen(TREE, "", "78", "JBD2: shd0-8: log block 9 is damaged, nothing is lost")) is Outcome.RECOVERED


def test_other_files_must_be_announced() -> None:
    lost = (
        "JBD2: shd0-8: descriptor in log block 9 of transaction 3 is damaged, 2 blocks of metadata are lost; run e2fsck"
    )
    assert outcome(Seen(OTHER, "", "78", lost)) is Outcome.LOSS_NAMED
    assert outcome(Seen(OTHER, "", "77", "EXT4-fs error (device shd0): bad checksum")) is Outcome.LOSS_NAMED
    assert outcome(Seen(OTHER, "", "77", "EXT4-fs (shd0): mounted filesystem")) is Outcome.WRONG


def test_what_was_made_consistent_may_go_unnoticed_and_is_counted_apart() -> None:
    assert outcome(Seen(OTHER, "", "77", ""), of=state("descriptor", "forged")) is Outcome.UNSAID
    assert outcome(Seen(OTHER, "", "77", ""), of=state("copy", "stale")) is Outcome.UNSAID
    assert outcome(Seen(OTHER, "", "77", ""), of=state("descriptor", "stale")) is Outcome.WRONG
    assert outcome(Seen(OTHER, "", "77", ""), of=state("commit", ends=True)) is Outcome.UNSAID


def test_a_kernel_that_is_unwell_is_wrong_whatever_it_shows() -> None:
    oops = "BUG: unable to handle page fault for address: 0"
    assert outcome(Seen(TREE, "", "77", oops)) is Outcome.WRONG
    assert outcome(HEALTHY, Seen(TREE, "", "77", "WARNING: CPU: 0 PID: 1 at fs/jbd2/lazy.c:1")) is Outcome.WRONG


def test_the_second_mount_shows_the_same() -> None:
    assert outcome(HEALTHY, Seen(OTHER, "", "77", "")) is Outcome.WRONG
    assert outcome(HEALTHY, Seen(None, "mounting", "", "")) is Outcome.WRONG


def test_a_refusal_has_a_reason_without_numbers() -> None:
    said = "[    1.5] JBD2: shd0-8: the kept log ends with transaction 7, but 9 was committed"
    verdict = damage.judge(state(), HEALTHY, Seen(None, "EUCLEAN", "", said), HEALTHY)
    assert (verdict.outcome, verdict.reason) == (
        Outcome.REFUSED, "the kept log ends with transaction N, but N was committed"
    )  # fmt: skip

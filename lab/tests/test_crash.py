# SPDX-License-Identifier: MIT OR Apache-2.0
"""The crash explorer's judgement, without a machine."""

import json
import random

from shingle.verify import crash, crash_round, crash_state, crash_workload
from shingle.verify.crash_blocks import SMALL, Blocks
from shingle.verify.crash_state import State, View

MARKS = [
    (3, "mounted"),
    (5, "touch a"),
    (9, "keep a\tf 644 1"),
    (12, "touch b"),
    (14, "gone b"),
    (20, "touch a"),
]


def test_a_promise_holds_from_the_sync_to_the_next_change() -> None:
    def at(place: int) -> crash_state.Promises:
        return crash_state.promises(MARKS, place, {"old": "x", "a": "before"})

    assert at(5) == {"old": "x", "a": "before"}
    assert at(6) == {"old": "x"}
    assert at(10) == {"old": "x", "a": "f 644 1"}
    assert at(15) == {"old": "x", "a": "f 644 1", "b": None}
    assert at(21) == {"old": "x", "b": None}


def test_promises_agree_with_a_trivial_model() -> None:
    choose = random.Random(1)
    for _ in range(200):
        marks: list[tuple[int, str]] = []
        for at in range(choose.randrange(30)):
            path = choose.choice("abc")
            words = (f"touch {path}", f"gone {path}", f"keep {path}\te{at}", "other mark")
            marks.append((at * 2, choose.choice(words)))
        place = choose.randrange(70)
        held = crash_state.promises(marks, place, {"c": "old"})
        for path in "abc":
            # Only the last note of a path before the cut counts.
            last = [text for at, text in marks if at < place and text.split()[:2][1:] == [path]]
            if not last:
                assert held.get(path, "none") == {"c": "old"}.get(path, "none")
            elif last[-1].startswith("touch"):
                assert path not in held
            else:
                assert held[path] == (last[-1].partition("\t")[2] or None)


# What e2fsck says of a replay and of a check where nothing is wrong.
REPLAYED = {"status": 0, "text": "e2fsck 1.47.0 (5-Feb-2023)\nIMAGE: recovering journal\n"}
CHECKED = {"status": 0, "text": "Pass 1: Checking inodes, blocks, and sizes\n"}


def state(name: str = "7l", replay: dict[str, object] = REPLAYED, check: dict[str, object] = CHECKED) -> State:
    return State(name, 0, 7, "l", "", 0, 1, (replay, check))


TREES = {"1": {"a": "f 644 1", "d": "d 755"}, "2": {"d": "d 755"}}
LOOKED = [View("stock", "ro"), View("lazy", "ro,journal_lazy", read="rebuilt")]


def judged(*answers: dict[str, object], **more: object) -> crash_state.Judgement:
    held = more.pop("held", {})
    return crash_state.judge(state(), LOOKED, answers, TREES, held, **more)  # type: ignore[arg-type]


def test_one_tree_for_all_is_no_problem() -> None:
    good = judged({"tree": "1"}, {"tree": "1", "read": "12"}, held={"a": "f 644 1", "b": None})
    assert good.problems == () and good.kept


def test_every_kind_of_problem_is_one() -> None:
    assert "another tree: a: f 644 1 | gone" in judged({"tree": "1"}, {"tree": "2"}).problems[0]
    assert judged({"tree": "1"}, {"tree": "1"}, held={"a": "f 600 1"}).problems
    assert judged({"tree": "1"}, {"tree": "1"}, held={"d": None}).problems
    assert judged({"error": "mounting: EIO"}, {"tree": "1"}).problems
    for found in (
        state(check={"status": 4, "text": "Block bitmap differences: +7\nFix? no\n"}),
        state(replay={"status": 1, "text": f"{REPLAYED['text']}Free blocks count wrong (5, counted=6).\nFix? yes\n"}),
        state(replay={"status": 0, "text": "IMAGE: recovering journal\nJournal checksum error found in IMAGE\n"}),
    ):
        (problem,) = crash_state.judge(found, LOOKED, [{"tree": "1"}] * 2, TREES, {}).problems
        assert problem.startswith("e2fsck, ")


def test_only_a_lazy_mount_may_refuse_and_only_with_its_sentence() -> None:
    refused = {"error": "kernel: the log holds another superblock"}
    may = {"may_refuse": "another superblock"}
    assert judged({"tree": "1"}, refused, **may) == crash_state.Judgement((), refused=True)
    assert judged({"tree": "1"}, refused).problems
    assert judged(refused, {"tree": "1"}, **may).problems


def test_a_lazy_mount_that_read_snapshots_is_counted() -> None:
    looked = crash_state.views(state(), snapshots=True)
    assert [view.name for view in looked if view.read and "mount_snapshots" in view.read] == [crash_state._ASKED]
    for read, expected in (("0", False), ("", False), ("3", True)):
        answers = [{"tree": "1", "read": read if view.name == crash_state._ASKED else "12"} for view in looked]
        judged = crash_state.judge(state(), looked, answers, TREES, {})
        assert (judged.snapshots, judged.kept, judged.problems) == (expected, True, ())
    assert not [view for view in crash_state.views(state()) if view.name == crash_state._ASKED]


def test_a_run_without_snapshots_in_its_logs_fails() -> None:
    all_ = list(crash_workload.WORKLOADS.values())

    def lacking(snapshots: int, compared: int, workloads: list[crash_workload.Workload]) -> str | None:
        tally = crash_round.Tally(hashes=set(map(str, range(100))), snapshots=snapshots, compared=compared)
        tallies = {each.name: crash_round.Tally() for each in workloads} | {"storm": tally}
        return crash.lacking(crash.Explored(tallies, 1, 1), workloads)

    assert lacking(60, 10, all_) is None
    assert "Only 49 of 100" in str(lacking(49, 10, all_))
    assert lacking(0, 10, all_[:1]) is None
    assert "filled, drained and compared" in str(lacking(60, 0, all_))


def test_a_run_in_which_no_block_moved_fails() -> None:
    workload = crash_workload.find("relocated")

    def lacking(moved: int, blocks: int) -> str | None:
        tally = crash_round.Tally(hashes={"1"}, compared=1, rounds=2, moved=moved, blocks=blocks)
        return crash.lacking(crash.Explored({workload.name: tally}, 1, 1), [workload])

    assert lacking(200, 1) is None
    assert lacking(199, 1) == "Only 199 blocks of relocated moved in 2 rounds."
    assert lacking(200, 0) == "No block of relocated was compared."


def test_no_block_is_older_than_its_sync_or_of_another() -> None:
    blocks = Blocks(9, {0: 2}, [(1, 0, 0), (2, 0, 1), (5, 0, 0), (9, 0, 0)])
    marks = [(10, "synced 0 2"), (20, "synced 0 6\n"), (30, "unlinked 0")]

    def wrong(place: int, *versions: int | str | None) -> list[str]:
        return blocks.wrong({0: versions}, blocks.held(marks, place))

    assert wrong(5, 1, None) == wrong(5, 9) == wrong(15, 1, 2) == wrong(25, 5, 2) == wrong(25, 9, 2) == []
    assert wrong(25, 1, 2) == ["file 0, block 0 has version 1, and 5 was synced"]
    assert wrong(25, 5, None) == ["file 0, block 1 holds zeros"]
    assert wrong(5, "6f74686572", 2) == ["file 0, block 0 holds 6f74686572"]
    assert wrong(5, 2, 2) == ["file 0, block 0 has version 2, which was not written there"]
    assert wrong(25, 5) == ["file 0 has 1 blocks instead of 2"]
    assert blocks.wrong({}, blocks.held(marks, 25)) == ["file 0 was synced and is gone"]
    assert blocks.wrong({}, blocks.held(marks, 35)) == []


def test_a_small_file_that_grows_has_at_least_what_was_synced() -> None:
    blocks = Blocks(4, {}, [(1, SMALL, 0), (2, SMALL, 1), (3, SMALL, 1), (4, SMALL, 2)])
    held = blocks.held([(10, f"synced {SMALL} 2")], 20)

    def wrong(*versions: int | str | None) -> list[str]:
        return blocks.wrong({SMALL: versions}, held)

    assert wrong(1, 2) == wrong(1, 3) == wrong(1, 3, None) == wrong(1, 3, 4) == []
    assert wrong(1) == [f"file {SMALL} has 1 blocks instead of 3"]
    assert wrong(1, None, 4) == [f"file {SMALL}, block 1 holds zeros"]


def test_what_was_synced_before_a_cut_is_still_there_after_the_next() -> None:
    before = Blocks(5, {0: 1}, [(1, 0, 0), (5, 0, 0), (6, 1000, 0)])
    after = before.after([(10, "synced 0 5"), (20, "synced 1000 6")], 15)
    assert json.loads(after.notes()) == {"version": 5, "files": {"0": [0]}, "log": []}
    again = Blocks(7, after.files, [(7, 0, 0)], after.before, after.began_with)
    assert again.wrong({0: [1]}, again.held([], 1)) == ["file 0, block 0 has version 1, and 5 was synced"]
    assert again.wrong({0: [5]}, again.held([], 1)) == again.wrong({0: [7], 1000: [6]}, again.held([], 1)) == []
    assert again.wrong({0: [5]}, again.held([(3, "synced 0 7")], 9)) != []


def test_depth_is_the_number_of_cuts() -> None:
    assert [state(name).depth for name in ("7l", "7l/L/3k", "7l/L/3k/S/1l")] == [1, 2, 3]


def test_what_the_kernel_says_is_told_apart_by_state() -> None:
    states = [state(name) for name in ("1l", "2k", "3l")]
    console = "boot\n[ 0.1] crash: 1l\nfine\ncrash: 2k\nWARNING: CPU: 0 PID: 1 at fs\nmore\ncrash: 3l\n"
    said = crash_round.by_state(console, [each.name for each in states])
    assert list(said.items()) == [("1l", "fine"), ("2k", "WARNING: CPU: 0 PID: 1 at fs\nmore"), ("3l", "")]


def test_a_failure_says_how_it_is_replayed() -> None:
    found = crash_round.Found("tiny", 7, "3l/L/2k", ("x",))
    assert found.replay == "./shingle crash --workload tiny --seed 7 --replay 3l/L/2k"
    assert crash._NAME.fullmatch(found.name)
    assert not crash._NAME.fullmatch("3l/X/2k")


def test_the_page_shows_the_records() -> None:
    page = crash.PAGE.read_text()
    assert page == crash.page_with(page, crash.RECORDS), "run ./shingle crash --write"

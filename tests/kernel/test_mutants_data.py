# SPDX-License-Identifier: MIT OR Apache-2.0
"""Negative controls of data_relocate: with a guard taken out, a test of test_data_in_order.py fails.

The patches are in tests/mutants, beside those of journal_lazy. The quickest are in `./shingle test`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from harness import Bench
from kernel import (
    stress,
    test_data_in_order,
    test_mutants,
    test_no_memory,
    test_rewrite,
    test_shutdown,
    test_stream_search,
)
from kernel.test_data_in_order import BLOCKS, BOTH, FILES, RELOCATE, boot, formatted_for, moved, work
from shingle.build import build
from shingle.failure import Failure
from shingle.machine import job
from shingle.machine.console import Trouble
from shingle.paths import ROOT

pytestmark = pytest.mark.machine

HOLDS = r"holds|blocks are wrong"
CUT_SEEDS = (2, 4, 6, 8)


def late_direct(bench: Bench, verb: str) -> None:
    """A direct write that takes a second, while the same block is written through a mapping, or again as it is."""
    formatted = formatted_for(bench)
    steps = bench.mounted(
        formatted, work("make", FILES, BLOCKS), work("overwrite", 1, 10), moved(), work(verb), work("check"),
        options=BOTH,
    )  # fmt: skip
    booted = boot(bench, steps, formatted.file, kernel_arguments=("jbd2.provoke=slow-direct",))
    assert stress.statistics(booted)["moved"] > 0


def cut(bench: Bench, states: int, provoke: str = "nothing") -> None:
    """With one seed a mutant may come through, as two did once the program that they run had changed."""
    for seed in CUT_SEEDS:
        record = Bench(bench.folder / str(seed), bench.variant)
        record.folder.mkdir()
        test_data_in_order.cut_everywhere(record, seed, test_data_in_order.CUT_OPTIONS, states, provoke)


def split(bench: Bench) -> None:
    """The first split of a leaf of a file's tree fails; what was synced before is there."""
    formatted = formatted_for(bench)
    mounted = bench.mounted(
        formatted, work("make", 1, 4096), job.write("/sys/module/jbd2/parameters/provoke", "split"),
        work("overwrite", 2, 600, f"{job.OUT}/marks.txt"), moved(), job.save(),
        # In short regions none is hot.
        options=f"{RELOCATE},errors=continue,data_stretch_kb=64",
    )  # fmt: skip
    booted = boot(bench, mounted[:-1], formatted.file, save=True, expected=tuple(Trouble))
    assert stress.statistics(booted)["moved"] > 0
    wrong = test_data_in_order.wrong_at_the_end(bench, booted, bench.recovered(booted.saved_drive))
    assert not wrong, "\n".join(wrong[:9])
    assert "ended with" in booted.text("overwrite.txt"), "no split failed"


def unreadable(bench: Bench) -> None:
    """The mapping of a file is in memory, and the tree that it came from cannot be read any more."""
    formatted = formatted_for(bench)
    steps = bench.mounted(
        formatted, work("make", FILES, BLOCKS), job.write("/sys/module/jbd2/parameters/provoke", "unreadable-tree"),
        work("overwrite", 1, 40, "alone"), work("check"), moved(), options=BOTH,
    )  # fmt: skip
    booted = boot(bench, steps, formatted.file)
    assert stress.statistics(booted)["moved"] == 0


@dataclass(frozen=True)
class Guard:
    mutant: str
    load: Callable[[Bench], None]
    # What the failure says.
    sign: str
    quick: bool = False
    # The configuration of the kernel: only this one has swap files.
    base: str = "main"


GUARDS = (
    Guard("relocate-no-wait", partial(cut, states=60), HOLDS),
    Guard("relocate-before-commit", partial(cut, states=60, provoke="slow-ordered"), HOLDS),
    Guard("relocate-unsubmitted", partial(cut, states=60, provoke="unsubmitted"), HOLDS),
    Guard("relocate-free-at-once", partial(cut, states=250), HOLDS),
    Guard("relocate-error-committed", test_data_in_order.refused, HOLDS),
    Guard("relocate-refused-is-read", test_data_in_order.unwritten, "read: .*other"),
    Guard("relocate-shutdown-committed", test_shutdown.refused_at_the_end, HOLDS),
    Guard("relocate-known-elsewhere", test_data_in_order.known, "has moved"),
    Guard("relocate-known-before", test_data_in_order.known_before, "has moved"),
    Guard("relocate-async-commit", test_data_in_order.asynchronous, "moved"),
    Guard("relocate-unflushed", test_data_in_order.unflushed, "0 commits"),
    Guard("trim-though-aborted", test_data_in_order.refused, HOLDS),
    Guard("relocate-beside-direct", partial(late_direct, verb="late"), HOLDS, quick=True),
    Guard("rewrite-beside-direct", partial(late_direct, verb="again"), "Possible data corruption", quick=True),
    Guard("relocate-across-leaves", test_rewrite.across_leaves, "moved [0-9]+, ", quick=True),
    Guard("rewrite-without-quota", test_rewrite.charged, "Update quota info|QUOTA WARNING", quick=True),
    Guard("relocate-fsync-forgets", partial(cut, states=60), r"and \d+ was synced"),
    Guard("relocate-needs-the-tree", unreadable, "Input/output error: ./mnt"),
    Guard("relocate-split-committed", split, HOLDS),
    Guard("relocate-leaks", test_no_memory.some_unmoved, "e2fsck -fn is not content", base="sanitize"),
    Guard("stream-needs-each-bitmap", test_data_in_order.bitmaps, "blocks are wrong|Input/output error"),
    Guard("stream-forgets-freed", test_data_in_order.stretches, "KUnit: .*test_stream_freed", base="sanitize"),
    Guard("relocate-tears", test_data_in_order.stretches, "KUnit: .*test_stream_stretches", base="sanitize"),
    Guard("stream-full-each-time", test_data_in_order.stretches, "KUnit: .*test_stream_stretches", base="sanitize"),
    Guard("stream-looks-on", test_stream_search.in_vain, "moved: ", quick=True),
    Guard("stream-reads-on", test_stream_search.in_vain, "read: |moved: ", quick=True),
    Guard("relocate-old-place", test_data_in_order.moves, HOLDS, quick=True),
    Guard("relocate-first-buffer", partial(test_data_in_order.moves, variant=test_data_in_order.SMALL_BLOCKS), HOLDS),
    Guard("relocate-never-hot", test_data_in_order.stays_where_it_is_hot, "moved: .*log"),
    Guard("relocate-all-hot", test_data_in_order.stays_where_it_is_hot, "moved: .*scattered"),
    Guard("relocate-growing-hot", test_data_in_order.stays_where_it_is_hot, "moved: .*grow"),
    Guard("relocate-popular-hot", test_data_in_order.stays_where_it_is_hot, "moved: .*popular"),
    Guard("relocate-stale-cache", test_data_in_order.moves, HOLDS, quick=True),
    Guard(
        "relocate-swap-files", partial(test_data_in_order.swap_stays, provoke="slow-swapon"), "became", base="sanitize"
    ),
)


def mutant_bench(folder: Path, name: str, base: str) -> Bench:
    below = folder / name
    below.mkdir()
    return Bench(below, f"mutant:{name}:{base}")


@pytest.mark.parametrize(
    "guard", [pytest.param(each, id=each.mutant, marks=() if each.quick else pytest.mark.long) for each in GUARDS]
)
def test_a_guard_that_is_gone_is_missed(folder: Path, guard: Guard) -> None:
    guard.load(mutant_bench(folder, build.CONTROL, guard.base))
    with pytest.raises((Failure, AssertionError)) as failure:
        guard.load(mutant_bench(folder, guard.mutant, guard.base))
    said = "\n".join((str(failure.value), *map(str, getattr(failure.value, "detail", ()))))
    print(f"{guard.mutant}: {said[:2000]}")
    # Whatever else its console shows.
    assert "did not finish within" not in said, said
    assert re.search(guard.sign, said, re.DOTALL), said


def test_each_mutant_has_a_guard_and_a_line_in_the_design() -> None:
    guarded = {guard.mutant for guard in GUARDS}
    assert guarded | {guard.mutant for guard in test_mutants.GUARDS} == set(build.mutants()) - {build.CONTROL}
    listed = (ROOT / "docs/design/data-in-order.md").read_text()
    assert [name for name in sorted(guarded) if f"`{name}`" not in listed] == []

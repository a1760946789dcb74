# SPDX-License-Identifier: MIT OR Apache-2.0
"""How large a journal must be that nobody waits for it: FAST'17, section 4.1, and what mke2fs has made of it since.

"For a 190 MiB/s disk and a 30 second dirty timer, a journal size of 30 s x 190 MiB/s = 5,700 MiB will guarantee that
when the journal wraps, the transactions at the tail will be checkpointed." Directories fill 5 GiB of journal at the
paper's size, so here the timers are a twentieth, and the rule's journal is 285 MiB: MakeDirs at a tenth wraps it. A
commit follows after one second, which is the least that can be set, and not a twentieth of five. The journal that is
never full is the one that mke2fs makes today.
"""

from collections.abc import Sequence
from dataclasses import replace

from shingle.lab import Claim, Expectation, Experiment, Record, bars, cell, drive, fs, parts_s, run, workload

DRIVE, NAME = "st8000as0002", "MakeDirs"
DIRTY_S, RATE_MIB_S = 1.5, 190
RULE_MIB = round(DIRTY_S * RATE_MIB_S)
LARGE, RULE, SMALL = "ext4", f"ext4-{RULE_MIB}m", f"ext4-{RULE_MIB // 10}m"
TIMERS = (
    ("/proc/sys/vm/dirty_expire_centisecs", f"{100 * DIRTY_S:.0f}"),
    ("/proc/sys/vm/dirty_writeback_centisecs", "25"),
)
SCALE = 0.1


def runs(scale: float, seed: int) -> list[run.Run]:
    plan = workload.plan((NAME,), scale=scale, seed=seed)
    variants = [
        fs.find(LARGE),
        fs.ext4(RULE, "ext4 with the journal of the rule", RULE_MIB),
        fs.ext4(SMALL, "ext4 with a tenth of that", RULE_MIB // 10),
    ]
    return [
        run.Run(drive.find(DRIVE), replace(fs.mounted_with(each, "commit=1"), settings=TIMERS), plan)
        for each in variants
    ]


def made_s(records: Sequence[Record], file_system: str) -> float:
    """Without the sync: what the load itself took."""
    return parts_s(cell(records, file_system, NAME))


def times_as_long(records: Sequence[Record], file_system: str) -> float:
    return made_s(records, file_system) / made_s(records, LARGE)


def wraps(records: Sequence[Record], file_system: str) -> float:
    made = cell(records, file_system, NAME)
    return float(made["journal_written_bytes"]) / float(made["configuration"]["journal_bytes"])


RULES = (
    Claim(
        "T6c", f"{NAME} with a journal of the disk's rate times the dirty timer, over 1 GiB", "", 1, 1,
        lambda records: times_as_long(records, RULE), 0.05, better="low",
    ),
)  # fmt: skip
DEFAULTS = (
    Claim(
        "T21", "journal that mke2fs makes on more than 128 GiB", "MiB", 1024, 1024,
        lambda records: cell(records, LARGE, NAME)["configuration"]["journal_bytes"] / (1 << 20), basis="constructed",
    ),
)  # fmt: skip


def logged_mib_s(records: Sequence[Record]) -> float:
    """With a journal that never fills."""
    return float(cell(records, LARGE, NAME)["journal_written_bytes"]) / (1 << 20) / made_s(records, LARGE)


EXPERIMENT = Experiment(
    name="e21-journal-size",
    claim="with a journal of the disk's rate times the dirty timer, nobody waits for it",
    source="FAST'17, section 4.1; e2fsprogs 1.43.2",
    runs=runs,
    phases=(NAME,),
    expectations=(
        Expectation("the journal of the rule wraps", lambda records: wraps(records, RULE) > 1.4),
        Expectation("a tenth of it does not suffice", lambda records: times_as_long(records, SMALL) > 1.2),
    ),
    scale=SCALE,
    scaling="The disk and its cache are not scaled, the timers are a twentieth.",
    claims=(*RULES, *DEFAULTS),
    draw=bars.of_claims(
        bars.Group("Section 4.1: making directories, over the same with 1 GiB of journal", "times as long", RULES),
        bars.Group("e2fsprogs 1.43.2: the default journal", "MiB", DEFAULTS),
    ),
    numbers={"made_s": made_s, "logged_mib_s": logged_mib_s},
)

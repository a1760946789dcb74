# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads the console of a simulated machine: what went wrong, and which lines show it.

Results never travel this way; the console is only read for reasons.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Container
from dataclasses import dataclass

TAIL_LINES = 15

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Trouble(enum.Enum):
    """The ways in which a kernel says that it is unwell, most telling first."""

    CONTENTS = "has more on its drives than fits into the memory of the host that was set apart"
    OUT_OF_MEMORY = "ran out of memory"
    PANIC = "panicked"
    BUG = "hit a kernel bug"
    FILE_SYSTEM_ERROR = "reported a file-system error"
    WARNING = "printed a kernel warning"


_PATTERNS: tuple[tuple[Trouble, re.Pattern[str]], ...] = (
    (Trouble.CONTENTS, re.compile(r"the drives' contents no longer fit")),
    (Trouble.OUT_OF_MEMORY, re.compile(r"Out of memory: |Out of memory and no killable|oom-kill:")),
    (Trouble.OUT_OF_MEMORY, re.compile(r"Kernel panic - not syncing: .*out.of.memory", re.IGNORECASE)),
    (Trouble.PANIC, re.compile(r"Kernel panic - not syncing")),
    (Trouble.BUG, re.compile(r"\bBUG: |\bBUG \S+ \(|kernel BUG at |KASAN: |UBSAN: |Oops[: ]|detected stalls? on")),
    (
        Trouble.BUG,
        re.compile(r"INFO: (possible |inconsistent |suspicious |task .* blocked|trying to register)"),
    ),
    (
        Trouble.FILE_SYSTEM_ERROR,
        re.compile(
            r"EXT4-fs error|EXT4-fs .*(allocation failed|should not happen|i_reserved_data_blocks)"
            r"|JBD2: .*(error|corrupt)|JBD2 unexpected|Aborting journal|I/O error, dev "
        ),
    ),
    (
        Trouble.WARNING,
        re.compile(
            r"WARNING: (CPU:|possible |inconsistent |suspicious |bad |held |Nested lock|chain_key|.*unsafe lock order"
            r"|.*lock.* held)"
        ),
    ),
)


@dataclass(frozen=True)
class Diagnosis:
    trouble: Trouble
    line: str


def lines(text: str) -> list[str]:
    """The console's lines without terminal escapes."""
    return [line.rstrip() for line in _ESCAPES.sub("", text).split("\n") if line.strip()]


def diagnose(text: str, expected: Container[Trouble] = ()) -> Diagnosis | None:
    """The most telling trouble on the console that was not expected, with the first line that shows it."""
    found: dict[Trouble, str] = {}
    for line in lines(text):
        for trouble, pattern in _PATTERNS:
            if pattern.search(line):
                found.setdefault(trouble, line)
                break
    for trouble in Trouble:
        if trouble in found and trouble not in expected:
            return Diagnosis(trouble, found[trouble])
    return None


def tail(text: str) -> list[str]:
    return lines(text)[-TAIL_LINES:]

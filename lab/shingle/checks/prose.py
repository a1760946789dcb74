# SPDX-License-Identifier: MIT OR Apache-2.0
"""A few rules for the prose of the pages: turns at which a reader stumbles, and what to write instead.

Spelling is codespell's. Each rule has a sentence that it refuses, so that none is dead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    pattern: str
    instead: str
    refuses: str

    def found(self, text: str) -> bool:
        return re.search(self.pattern, text) is not None


# Where a sentence begins: a line may begin in the middle of one.
_START = r"(?:[.:] |\| |\* |^# .*|\n\n)"
RULES = (
    Rule(r"\bhangs? on\b", "depends on", "What a number hangs on."),
    Rule(r"\b(?:comes?|came) out\b", "say what is measured, met or made", "Table 3 comes out."),
    Rule(rf"{_START}Of (?:the|a|an|its|these|those|all|each|such)\b", "begin with the noun", "It is so. Of the drive."),
    Rule(rf"{_START}Who\b(?![^.]*\?)", "begin with a noun: a reader, an owner", "It is so. Who reads gets it."),
    Rule(r"\bbit on the way\b", "the pitfalls we met", "And what bit on the way."),
    Rule(r"\b(?:is|are) told by\b", "a message says that", "It is told by a sentence."),
    Rule(r"\bfrom the begin of\b", "from the start of", "Time from the begin of the phase."),
)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def found(name: str, text: str) -> Iterator[str]:
    """What a page says that a rule refuses: file, paragraph's first line, and what to write."""
    plain = _CODE.sub(lambda match: "\n" * match[0].count("\n") or "x", text)
    for rule in RULES:
        for match in re.finditer(rule.pattern, plain):
            line = plain.count("\n", 0, match.start()) + match[0].count("\n") + 1
            yield f"{name}:{line}: {' '.join(match[0].split())!r}: {rule.instead}"

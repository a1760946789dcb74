# SPDX-License-Identifier: MIT OR Apache-2.0
"""Errors that a person can act on: one sentence, and the lines that show it."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Sequence

# So many names are read in a sentence.
_IN_A_LINE = 12


class Failure(Exception):
    """Something outside this program is not as it should be; `str()` is the sentence for the user."""

    def __init__(self, sentence: str, *, detail: Sequence[str] = (), status: int = 1) -> None:
        super().__init__(sentence)
        self.detail = tuple(detail)
        self.status = status


def unknown_name(kind: str, name: str, known: Iterable[str]) -> Failure:
    """The failure for a name that does not exist: the right ones, the nearest match first."""
    names = sorted(known)
    by_folded = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.5)
    hint = f" Did you mean {by_folded[near[0]]}?" if near else ""
    if len(names) > _IN_A_LINE:
        shown = textwrap.wrap(", ".join(names), 76, break_on_hyphens=False)
        return Failure(f"there is no {kind} called {name!r}.{hint} Those above are known.", detail=shown, status=2)
    return Failure(f"there is no {kind} called {name!r}.{hint} Known: {', '.join(names)}.", status=2)

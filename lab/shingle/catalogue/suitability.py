# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which file system works on which drive: the table of drive_file_systems.toml, and the page that shows it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shingle.catalogue import drive
from shingle.catalogue.drive import Profile
from shingle.page import replaced
from shingle.paths import ROOT

TABLE = Path(__file__).with_name("drive_file_systems.toml")
PAGE = ROOT / "docs/design/zones.md"
_BEGIN = "<!-- `./shingle file-systems --drives --write` makes what follows -->\n"
_END = "<!-- end of what is made -->\n"


@dataclass(frozen=True)
class Expected:
    """What becomes of a file system on a drive, and part of what its tool says if it does not work."""

    outcome: str
    says: str = ""

    @property
    def works(self) -> bool:
        return self.outcome == "works"


@functools.cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(TABLE.read_text())


def columns() -> list[str]:
    return list(_table()["columns"])


def _group(profile: Profile) -> Mapping[str, Any]:
    group: Mapping[str, Any] = _table()["group"]["host_managed" if drive.is_host_managed(profile) else "ordinary"]
    return group


def expected(profile: Profile, file_system: str) -> Expected:
    own = _table().get("drive", {}).get(profile.name, {})
    return Expected(**own.get(file_system, _group(profile)[file_system]))


def markdown() -> str:
    """The table as the page has it: a row for each drive, the tools' messages below."""
    notes: list[str] = []
    lines = [
        f"| drive | shown as | {' | '.join(columns())} |",
        f"|---|---|{'---|' * len(columns())}",
    ]
    for profile in drive.profiles().values():
        cells = [f"`{profile.name}`", str(_group(profile)["shown_as"])]
        for name in columns():
            entry = expected(profile, name)
            if entry.works:
                cells.append(entry.outcome)
                continue
            if entry.says not in notes:
                notes.append(entry.says)
            cells.append(f"{entry.outcome} ({notes.index(entry.says) + 1})")
        lines.append(f"| {' | '.join(cells)} |")
    shown = (f"`{note}`" if note else "Its status tells, it says nothing." for note in notes)
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(shown, 1))]
    return "\n".join(lines) + "\n"


def page_with(made: str, page: str) -> str:
    """The page with this table between its two marks."""
    return replaced(page, _BEGIN, _END, made, PAGE)


def write_page() -> None:
    PAGE.write_text(page_with(markdown(), PAGE.read_text()))

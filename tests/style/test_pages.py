# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pages of docs/: each says at once what it is for, is listed by reader, and is short."""

import re
from pathlib import Path

import pytest

from shingle.paths import ROOT
from style.files import texts

LINES = 200
FOLDERS = ("guide", "how-to", "reference", "design", "results", "decisions")
# What stays longer, and why.
LONG = {
    "ARCHITECTURE.md": "half of it is made: the folders, and who needs whom",
    "docs/design/safs-design.md": "of SAFS, divided with its crates",
    "docs/reference/interfaces.md": "one list, which is the specification of a C header and of a job",
    "docs/reference/safs-format.md": "a format, looked up by its numbers",
    "docs/results/drive-validation.md": "made: a table for each drive",
    "docs/results/probe-recovery.md": "made: a table for each drive",
}
PAGES = [path for folder in FOLDERS for path in sorted((ROOT / "docs" / folder).rglob("*.md"))]


def lead(text: str) -> str:
    """The paragraph below the title."""
    return text.partition("\n# ")[2].partition("\n")[2].strip().partition("\n\n")[0]


def test_there_are_pages_in_each_folder_and_none_elsewhere() -> None:
    assert {path.parent.name for path in PAGES} == set(FOLDERS)
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == {"README.md"}


# A decision's title says what was decided.
@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.parent.name != "decisions"], ids=lambda path: path.name
)
def test_the_first_line_says_what_the_page_is_for(path: Path) -> None:
    assert lead(path.read_text()).startswith("*")


def test_no_page_is_long_but_those_that_have_a_reason() -> None:
    long = {
        str(path.relative_to(ROOT))
        for path in (*PAGES, *ROOT.glob("*.md"), ROOT / "docs/README.md")
        if len(path.read_text().splitlines()) > LINES and path.name != "CHANGELOG.md"
    }
    assert long == set(LONG)


# A kernel file is a key of every record, so its comment waits for the next change of that file.
OLD_PLACES = {("kernel/fs/jbd2/lazy_snapshot.c", "journal-lazy.md")}


def test_pages_that_a_file_names_are_there() -> None:
    gone = {
        (name, page)
        for name, text in texts()
        if name != "tests/style/test_prose.py"
        for page in re.findall(r"(?<![\w/.-])docs/([\w/-]+\.md)", text)
        if not (ROOT / "docs" / page).exists()
    }
    assert gone - OLD_PLACES == set()


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    of_experiments = ROOT / "docs/results"
    missing = [
        path.name
        for path in PAGES
        if path.parent.name != "decisions"
        and not (path.parent == of_experiments and path.name.startswith("e"))
        and f"({path.relative_to(ROOT / 'docs')})" not in index
    ]
    assert missing == []

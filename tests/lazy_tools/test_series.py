# SPDX-License-Identifier: MIT OR Apache-2.0
"""The series for review: mails that apply one after the other and leave what kernel/ says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from shingle import kernel_tree, lazy_series
from shingle.failure import Failure


@pytest.fixture(scope="module")
def mails(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return lazy_series.write(tmp_path_factory.mktemp("series"))


def git(repository: Path, *arguments: str | Path) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(["git", "-C", repository, *identity, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_git_am_takes_them_and_the_diffstat_is_what_git_counts(mails: list[Path], tmp_path: Path) -> None:
    repository = tmp_path / "linux"
    repository.mkdir()
    touched = set[str]().union(*(kernel_tree.touched_by(mail.read_text()) for mail in mails))
    lazy_series.pristine(touched, repository)
    existing = {name for name in touched if (repository / name).exists()}
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "base")
    base = git(repository, "rev-parse", "HEAD").strip()
    for mail in mails:
        git(repository, "am", "-q", mail)
    counted = {}
    for line in git(repository, "diff", "--numstat", base).splitlines():
        added, removed, name = line.split("\t")
        counted[name] = (int(added), int(removed))
    assert counted == {change.name: (change.added, change.removed) for change in lazy_series.changes()}
    assert existing == {change.name for change in lazy_series.changes() if not change.kind.startswith("new")}


def test_each_says_why_in_lines_that_fit_a_mail(mails: list[Path]) -> None:
    for mail in mails:
        head = mail.read_text().split("\n---\n", 1)[0]
        subject, _, body = head.partition("\n\n")
        assert re.search(r"^Subject: \[PATCH \d+/\d+\] (jbd2|ext4|Documentation): ", subject, flags=re.MULTILINE), (
            subject
        )
        assert len(body.split()) >= 15, mail.name
        assert max(map(len, body.splitlines())) <= 75, mail.name


def test_a_makefile_names_no_file_that_is_still_to_come(mails: list[Path]) -> None:
    present: set[str] = set()
    for mail in mails:
        text = mail.read_text()
        present |= {name for name in kernel_tree.touched_by(text) if name.endswith(".c")}
        for part in re.split(r"(?=^diff --git )", text, flags=re.MULTILINE)[1:]:
            name = next(iter(kernel_tree.touched_by(part)))
            if Path(name).name != "Makefile":
                continue
            for line in re.findall(r"^\+(?:obj|jbd2)-.*", part, flags=re.MULTILINE):
                for stem in re.findall(r"([\w-]+)\.o\b", line):
                    assert f"{Path(name).parent}/{stem}.c" in present, f"{mail.name}: {line}"


def test_documentation_is_part_of_it(mails: list[Path]) -> None:
    texts = "".join(mail.read_text() for mail in mails)
    for name in ("admin-guide/ext4.rst", "filesystems/ext4/journal.rst"):
        assert f"+++ b/Documentation/{name}" in texts


def test_a_folder_that_holds_a_series_is_refused(mails: list[Path]) -> None:
    with pytest.raises(Failure, match="expected an empty folder"):
        lazy_series.write(mails[0].parent)

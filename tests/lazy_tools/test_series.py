# SPDX-License-Identifier: MIT OR Apache-2.0
"""The series for review: mails that apply one after the other and leave what kernel/ says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shingle.build import kernel_tree
from shingle.evidence import claims_page
from shingle.failure import Failure
from shingle.review import series, stages


@pytest.fixture(scope="module")
def mails(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return series.write(tmp_path_factory.mktemp("series"))


def git(repository: Path, *arguments: str | Path) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(["git", "-C", repository, *identity, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_git_am_takes_them_and_the_diffstat_is_what_git_counts(mails: list[Path], tmp_path: Path) -> None:
    repository = tmp_path / "linux"
    repository.mkdir()
    touched = set[str]().union(*(kernel_tree.touched_by(mail.read_text()) for mail in mails))
    series.pristine(touched, repository)
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
    assert counted == {change.name: (change.added, change.removed) for change in series.changes()}
    assert existing == {change.name for change in series.changes() if not change.kind.startswith("new")}


def test_each_says_why_in_lines_that_fit_a_mail(mails: list[Path]) -> None:
    for mail in mails:
        head = mail.read_text().split("\n---\n", 1)[0]
        subject, _, body = head.partition("\n\n")
        assert re.search(r"^Subject: \[PATCH \d+/\d+\] (jbd2|ext4|Documentation): ", subject, flags=re.MULTILINE), (
            subject
        )
        assert len(body.split()) >= 15, mail.name
        assert max(map(len, body.splitlines())) <= 72, mail.name


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


def test_patches_touch_what_is_upstreams_and_stages_what_is_ours() -> None:
    ours = set(stages.final())
    for mail in stages.SERIES:
        assert kernel_tree.touched_by(mail.patch().read_text()) & ours == set(), mail.number
        if mail.changes().exists():
            assert kernel_tree.touched_by(mail.changes().read_text()) <= ours - set(mail.brings), mail.number
    names = {path.name for path in (stages.KERNEL / "patches").glob("*")}
    assert names == {mail.patch().name for mail in stages.SERIES}
    assert {path.name for path in (stages.KERNEL / "series").glob("*")} <= names


def test_every_file_of_ours_comes_with_one_mail() -> None:
    brought = [name for mail in stages.SERIES for name in mail.brings]
    assert sorted(brought) == sorted(stages.final())


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A copy of kernel/, committed."""
    copy = tmp_path / "kernel"
    shutil.copytree(stages.KERNEL, copy)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "kernel")
    return copy


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


# A line of lazy_read.c that a later mail than the file's first one brings.
LATER = "\tfolio_batch_init(&batch);"


def test_a_stage_that_does_not_fit_to_the_letter_is_refused(kernel: Path) -> None:
    stages.stages(kernel)
    replace_in(kernel / "fs/jbd2/lazy_read.c", LATER, "\t/* changed */")
    with pytest.raises(Failure, match="does not fit kernel/ any more"):
        stages.stages(kernel)


def test_restage_brings_a_change_to_every_stage_that_has_its_place(kernel: Path) -> None:
    before = stages.stages(kernel)
    name, path = "fs/jbd2/lazy_read.c", kernel / "fs/jbd2/lazy_read.c"
    replace_in(path, LATER, "\t/* changed late */")
    replace_in(path, "/* Waits for read-ahead. */", "/* changed early */")
    assert stages.restage("HEAD", kernel) != []
    after = stages.stages(kernel)
    assert after[-1][name] == path.read_bytes()
    late = [b"changed late" in stage.get(name, b"") for stage in after]
    early = [b"changed early" in stage.get(name, b"") for stage in after]
    assert early == [name in stage for stage in before]
    assert late == [b"folio_batch_init(" in stage.get(name, b"") for stage in before]
    assert 0 < sum(late) < sum(early)
    assert stages.restage("HEAD", kernel) == []


def test_documentation_is_part_of_it(mails: list[Path]) -> None:
    texts = "".join(mail.read_text() for mail in mails)
    for name in ("admin-guide/ext4.rst", "filesystems/ext4/journal.rst"):
        assert f"+++ b/Documentation/{name}" in texts


def test_the_cover_letter_comes_first_and_has_the_measured_seconds(tmp_path: Path) -> None:
    mails = series.write(tmp_path, claims_page.cover_letter())
    cover, *rest = sorted(tmp_path.glob("*.patch"))
    assert rest == mails
    text = cover.read_text()
    assert f"Subject: [PATCH 00/{len(mails)}] ext4: journal_lazy and data in order" in text
    assert re.search(r"^   data_relocate +[\d,]+ \+ \d+$", text, re.MULTILINE) and "***" not in text


def test_a_folder_that_holds_a_series_is_refused(mails: list[Path]) -> None:
    with pytest.raises(Failure, match="expected an empty folder"):
        series.write(mails[0].parent)

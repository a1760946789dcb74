# SPDX-License-Identifier: MIT OR Apache-2.0
"""The house inspects itself: licences, places that are nobody else's, patches, claims."""

import re
import subprocess
from pathlib import Path

import pytest

from shingle.evidence import claims_page
from shingle.paths import ROOT
from shingle.runs import experiment, record
from style.files import files, texts

# JSON has no comments; patches belong to the files that they change; licences and pictures speak for themselves.
_NO_SPDX = {".json", ".jsonl", ".patch", ".svg", ".png", ".lock", ".xz"}
# Debian's formats for these have no place for it.
_NO_COMMENTS = {"kernel/UPSTREAM", "packaging/debian/changelog", "packaging/debian/ext4lazy-dkms.NEWS"}
_BIG_BYTES = 1 << 20
# Written in pieces, so that this file does not contain them.
_NOWHERE = ["/work" + "/", "/ro" + "ot/", "pypi" + ".org", "deb.deb" + "ian.org", "static.crates" + ".io"]


def test_every_file_says_its_licence() -> None:
    silent = [
        name
        for name, text in texts()
        if Path(name).suffix not in _NO_SPDX
        and not name.startswith("LICENSES/")
        and name not in _NO_COMMENTS
        and "SPDX-License-Identifier:" not in "\n".join(text.splitlines()[:5])
    ]
    assert silent == []


def test_what_the_kernel_links_is_gpl() -> None:
    wrong = [
        name
        for name, text in texts()
        if name.startswith(("kernel/fs/", "kernel/include/", "machine/arch/"))
        and "GPL-2.0-only" not in text.splitlines()[0]
    ]
    assert wrong == []


def test_no_file_names_a_place_of_one_machine_or_a_registry() -> None:
    named = [f"{name}: {place}" for name, text in texts() for place in _NOWHERE if place in text]
    assert named == []


def test_no_file_is_big() -> None:
    assert [str(path) for path in files() if path.stat().st_size > _BIG_BYTES] == []


def hunks(patch: str) -> list[list[str]]:
    found: list[list[str]] = []
    for line in patch.splitlines():
        if line.startswith("@@ ") or line.startswith(("diff ", "--- ", "-- ")):
            found.append([])
        elif found and line[:1] in (" ", "+", "-"):
            found[-1].append(line)
    return [hunk for hunk in found if any(line[0] in "+-" for line in hunk)]


@pytest.mark.parametrize("patch", sorted(ROOT.glob("**/patches/*.patch")), ids=lambda path: path.name)
def test_patches_have_at_most_three_lines_of_context(patch: Path) -> None:
    for hunk in hunks(patch.read_text()):
        kinds = "".join(line[0] for line in hunk)
        before, after = len(kinds) - len(kinds.lstrip(" ")), len(kinds) - len(kinds.rstrip(" "))
        assert max(before, after) <= 3, hunk


def test_every_record_of_an_experiment_has_its_file() -> None:
    known = experiment.names()
    of_experiments = set((ROOT / "results").glob("e[0-9]*.jsonl"))
    for path in sorted(of_experiments):
        for each in record.read(path):
            assert each["experiment"] in known, path.name
    # Others have records of their own, and the page that describes them is named.
    described = (ROOT / "results/README.md").read_text()
    for path in sorted(set((ROOT / "results").glob("*.jsonl")) - of_experiments):
        assert f"`{path.name}`" in described, path.name


def test_every_experiment_says_its_claim() -> None:
    for name, path in experiment.names().items():
        loaded = experiment.load(path)
        assert loaded.name == name
        assert loaded.claim
        assert loaded.expectations or loaded.claims


def test_the_committed_claims_are_made_from_the_committed_records() -> None:
    for path, text in claims_page.pages().items():
        assert path.read_text() == text, "renew it: ./shingle claims --write"


@pytest.mark.parametrize(
    ("number", "figure"),
    [("e10", "log-space"), ("e20", "map-memory"), ("e30", "append-only"), ("e42", "full-cache")],
)
def test_the_committed_figures_are_drawn_from_the_committed_records(number: str, figure: str, tmp_path: Path) -> None:
    """Those that pages show."""
    chosen = experiment.find(number)
    assert chosen.draw is not None
    chosen.draw(record.read(ROOT / f"results/{number}.jsonl"), tmp_path / figure)
    assert (tmp_path / f"{figure}.svg").read_bytes() == (ROOT / f"docs/figures/{figure}.svg").read_bytes()


def test_ci_calls_the_tests_and_nothing_else() -> None:
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) == 1
    assert lines[0].endswith("./shingle test")


# Titles are held from then on; many of those before are longer.
TITLES_SINCE = "2026-11-24T12:29:00+00:00"
TITLE = re.compile(r"[a-z][\w/-]*(, [\w/-]+)*(: [\w/-]+)*: \S")


def wrong_titles(titles: list[str]) -> list[str]:
    return [title for title in titles if len(title) > 72 or not TITLE.match(title)]


def test_a_commit_s_title_has_a_scope_and_at_most_72_characters() -> None:
    assert wrong_titles(["lab: a table", "jbd2: lazy: a fix", "safs: " + 66 * "x"]) == []
    assert len(wrong_titles(["A table", "lab:", "safs: " + 67 * "x"])) == 3
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    log = ["git", "log", "--no-merges", f"--since={TITLES_SINCE}", "--format=%s"]
    said = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True)
    assert wrong_titles(said.stdout.splitlines()) == []

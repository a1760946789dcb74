# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pages keep a few rules of style, and are spelled as codespell thinks right."""

import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from shingle.checks import prose
from shingle.checks.prose import Rule
from shingle.paths import ROOT
from style.files import texts

# Mistakes on purpose, an option of ffmpeg, and a path in pieces.
_WANTED = "feild,idel,dmeo,alls,ot"


def pages() -> Mapping[str, str]:
    return {name: text for name, text in texts() if name.endswith(".md")}


def test_the_pages_keep_the_rules() -> None:
    assert len(pages()) > 40
    assert [each for name, text in pages().items() for each in prose.found(name, text)] == []


def anchors(text: str) -> set[str]:
    """Of its headings, as GitHub and others make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.replace("`", "").lower()).replace(" ", "-") for each in headings}


def dead_links(name: str, text: str) -> list[str]:
    """Links of a page to files that are not there, or to headings that those do not have."""
    plain = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", plain):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path.read_text())):
            found.append(f"{name}: {target}")
    return found


def test_links_lead_somewhere() -> None:
    # An experiment's text becomes a page in docs/, from where its links lead.
    named = [(name, text) for name, text in pages().items() if not name.startswith("experiments/")]
    assert [each for name, text in named for each in dead_links(name, text)] == []


def test_a_dead_link_is_seen() -> None:
    assert dead_links("docs/x.md", "[a](nowhere.md) [b](claims.md#nothing) [c](#d)\n# D") == [
        "docs/x.md: nowhere.md",
        "docs/x.md: claims.md#nothing",
        "docs/x.md: #d",
    ]


@pytest.mark.parametrize("rule", prose.RULES, ids=lambda rule: rule.refuses)
def test_a_rule_refuses_its_sentence(rule: Rule) -> None:
    assert rule.found(rule.refuses)
    assert list(prose.found("x.md", f"Before.\n\n{rule.refuses}\n")) != []
    assert list(prose.found("x.md", f"Before.\n\n```\n{rule.refuses}\n```\n")) == []


def spelled(*names: str) -> str:
    command = [sys.executable, "-m", "codespell_lib", "-L", _WANTED, *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_words_are_spelled_right() -> None:
    names = [
        name
        for name, _ in texts()
        if name.endswith((".md", ".py")) and not name.startswith(("crates/safs/", "crates/safs-sim/"))
    ]
    assert spelled(*names) == ""


def test_a_misspelled_word_is_seen(tmp_path_factory: pytest.TempPathFactory) -> None:
    page = tmp_path_factory.mktemp("prose") / "page.md"
    page.write_text("It is writ" + "en.\n")
    assert "==> written" in spelled(str(page))

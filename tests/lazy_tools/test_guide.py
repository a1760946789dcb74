# SPDX-License-Identifier: MIT OR Apache-2.0
"""The owners' guide has a test for each of its blocks; tests/stock_kernel runs them, which takes Debian's kernel."""

from __future__ import annotations

import re
from pathlib import Path

from lazy_tools.volumes import load
from shingle.paths import ROOT

guide = load(ROOT / "tests/stock_kernel/test_guide.py")


def test_every_block_has_its_section() -> None:
    assert list(guide.sections()) == list(guide.SECTIONS)


def test_the_guide_installs_what_the_packages_are_built_with() -> None:
    control = (ROOT / "packaging/debian/control").read_text()
    (needed,) = re.findall(r"^Build-Depends: (.*)$", control, re.MULTILINE)
    # debhelper brings xz-utils and patch with dpkg-dev; a dh-sequence is a package of its own name.
    wanted = {re.split(r"[ (:]", each.strip())[0] for each in needed.split(",")} - {"patch", "xz-utils"}
    named = {"debhelper-compat": "debhelper", "dh-sequence-dkms": "dh-dkms"}
    assert {named.get(each, each) for each in wanted} <= set(guide.PREPARE.split())


def test_the_commands_in_the_guide_have_their_options() -> None:
    """Those of ours, also outside of blocks."""
    page = (ROOT / "packaging/tools/ext4lazy.8").read_text().replace("\\-", "-")
    text = Path(guide.GUIDE).read_text()
    for command, words in re.findall(r"\bext4lazy (advise|convert|status|drain|check|due)\b([^`\n]*)", text):
        assert f".B ext4lazy {command}" in page
        assert all(option in page for option in re.findall(r"--[a-z-]+", words.partition("#")[0]))

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The module's sources: a kernel that changed is noticed when they are composed, not when they are loaded."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from lazy_tools.volumes import load
from shingle.paths import ROOT

compose = load(ROOT / "packaging/dkms/compose.py")


def test_a_text_that_is_not_there_as_often_as_expected_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("one two two")
    compose.rename(tmp_path, [compose.Rename("a.c", "two", "three", times=2)])
    assert (tmp_path / "a.c").read_text() == "one three three"
    with pytest.raises(compose.Failure, match=r"a\.c holds 'one' 1 times: expected 2"):
        compose.rename(tmp_path, [compose.Rename("a.c", "one", "x", times=2)])


def test_a_cache_that_keeps_the_kernel_s_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "fs/ext4").mkdir(parents=True)
    (tmp_path / "fs/ext4/new.c").write_text('c = kmem_cache_create(\n\t"ext4_new", 8, 0, 0, NULL);')
    with pytest.raises(compose.Failure, match="ext4_new"):
        compose.check_caches(tmp_path)


def test_documentation_is_no_part_of_the_module() -> None:
    patch = (
        "diff --git a/Documentation/x.rst b/Documentation/x.rst\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
        "diff --git a/fs/ext4/a.c b/fs/ext4/a.c\n--- a/fs/ext4/a.c\n+++ b/fs/ext4/a.c\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert compose._only_module(patch) == patch[patch.index("diff --git a/fs") :]


def tarball(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"linux-source-6.12/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


SOURCE = {
    "Makefile": "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 3\n",
    "fs/jbd2/journal.c": "int a;\n",
    "fs/ext4/super.c": "int b;\n",
    **dict.fromkeys(compose._FILES, "/* header */\n"),
}


def test_a_source_that_the_patches_do_not_fit_names_both_versions(tmp_path: Path) -> None:
    source = tarball(tmp_path / "linux.tar", SOURCE)
    pinned = (ROOT / "kernel/UPSTREAM").read_text().strip()
    with pytest.raises(compose.Failure, match=rf"does not apply to Linux 6\.12\.3; it is made for Linux {pinned}"):
        compose.compose(source, ROOT / "kernel", tmp_path / "out", "0.2")
    assert not (tmp_path / "out").exists()


def test_what_is_no_kernel_source_is_refused(tmp_path: Path) -> None:
    source = tarball(tmp_path / "linux.tar", {"Makefile": SOURCE["Makefile"]})
    with pytest.raises(compose.Failure, match="is no kernel source"):
        compose.compose(source, ROOT / "kernel", tmp_path / "out", "0.2")

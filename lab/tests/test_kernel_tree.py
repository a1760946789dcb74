# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernel tree: versions, options, and a source that changes by content only."""

from pathlib import Path

import pytest

from shingle.build import kernel_tree
from shingle.build.kernel_tree import Recipe
from shingle.failure import Failure

MAKEFILE = "# SPDX\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\n"
PATCH = """--- a/fs/Makefile
+++ b/fs/Makefile
@@ -1,3 +1,4 @@
 obj-y += one.o
 obj-y += two.o
+obj-y += three.o
 obj-y += four.o
"""
ANOTHER = """--- a/fs/Makefile
+++ b/fs/Makefile
@@ -1,3 +1,3 @@
 obj-y += one.o
-obj-y += two.o
+obj-y += broken.o
 obj-y += four.o
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "linux"
    (tree / ".shingle" / "pristine").mkdir(parents=True)
    (tree / "fs").mkdir()
    (tree / "fs/Makefile").write_text("obj-y += one.o\nobj-y += two.o\nobj-y += four.o\n")
    return tree


def recipe(tmp_path: Path, *patches: str, **overlay: str) -> Recipe:
    paths = []
    for number, text in enumerate(patches):
        path = tmp_path / f"{number}.patch"
        path.write_text(text)
        paths.append(path)
    files = {}
    for name, text in overlay.items():
        path = tmp_path / name
        path.write_text(text)
        files[f"fs/{name}.c"] = path
    return Recipe(files, tuple(paths))


def apply(tree: Path, wanted: Recipe, *, found: str = "6.12.117") -> None:
    kernel_tree.apply(tree, wanted, found=found, pinned="6.12.117")


def test_version_is_read_from_the_makefile() -> None:
    assert kernel_tree.version_of(MAKEFILE) == "6.12.117"
    with pytest.raises(Failure, match="declares no version"):
        kernel_tree.version_of("all:\n")


def test_recipes_replace_each_other_and_leave_nothing_behind(tree: Path, tmp_path: Path) -> None:
    original = (tree / "fs/Makefile").read_text()
    apply(tree, recipe(tmp_path, PATCH, ours="int ours;\n"))
    assert "three.o" in (tree / "fs/Makefile").read_text()
    assert (tree / "fs/ours.c").read_text() == "int ours;\n"
    apply(tree, recipe(tmp_path, ANOTHER))
    assert "three.o" not in (tree / "fs/Makefile").read_text()
    assert "broken.o" in (tree / "fs/Makefile").read_text()
    assert not (tree / "fs/ours.c").exists()
    apply(tree, recipe(tmp_path))
    assert (tree / "fs/Makefile").read_text() == original


def test_a_header_that_vanishes_is_told_before_it_goes(tree: Path, tmp_path: Path) -> None:
    header = tmp_path / "ours.h"
    header.write_text("int ours;\n")
    told: list[bool] = []

    def change(overlay: dict[str, Path]) -> None:
        place = tree / "fs/ours.h"
        kernel_tree.apply(
            tree,
            Recipe(overlay, ()),
            found="6.12.117",
            pinned="6.12.117",
            vanishing=lambda: told.append(place.exists()),
        )

    change({"fs/ours.h": header})
    header.write_text("int other;\n")
    change({"fs/ours.h": header})
    assert told == []
    change({})
    assert told == [True] and not (tree / "fs/ours.h").exists()


def test_a_file_that_comes_out_the_same_is_not_touched(tree: Path, tmp_path: Path) -> None:
    apply(tree, recipe(tmp_path, PATCH))
    before = (tree / "fs/Makefile").stat().st_mtime_ns
    apply(tree, recipe(tmp_path, PATCH))
    assert (tree / "fs/Makefile").stat().st_mtime_ns == before


def test_patches_apply_on_top_of_each_other(tree: Path, tmp_path: Path) -> None:
    second = (
        PATCH.replace("-1,3 +1,4", "-1,4 +1,5")
        .replace("three.o", "five.o")
        .replace(" obj-y += four.o", " obj-y += three.o\n obj-y += four.o")
    )
    apply(tree, recipe(tmp_path, PATCH, second))
    assert "five.o" in (tree / "fs/Makefile").read_text()


def test_another_version_that_does_not_take_the_patches_is_named_beside_ours(tree: Path, tmp_path: Path) -> None:
    (tree / "fs/Makefile").write_text("obj-y += other.o\n")
    with pytest.raises(Failure, match=r"Linux 6\.12\.200, Shingle is made for Linux 6\.12\.117"):
        apply(tree, recipe(tmp_path, PATCH), found="6.12.200")


def test_a_patch_that_fails_on_the_pinned_version_is_our_fault(tree: Path, tmp_path: Path) -> None:
    (tree / "fs/Makefile").write_text("obj-y += other.o\n")
    with pytest.raises(Failure, match=r"0\.patch does not apply to Linux 6\.12\.117"):
        apply(tree, recipe(tmp_path, PATCH))


def test_options_that_were_not_taken_over_are_named() -> None:
    fragments = ["CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=n\n", 'CONFIG_D="fd:0"\n']
    kernel_tree.check_options(fragments, 'CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_D="fd:0"\n')
    with pytest.raises(Failure, match="CONFIG_A, CONFIG_B, CONFIG_D"):
        kernel_tree.check_options(fragments, "CONFIG_B=y\n")


def test_a_later_fragment_has_the_last_word() -> None:
    assert kernel_tree.requested_options(["CONFIG_F=2048\n", "CONFIG_F=4096\n"]) == {"CONFIG_F": "4096"}

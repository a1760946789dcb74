# SPDX-License-Identifier: MIT OR Apache-2.0
"""Keys change with content and with nothing else; what is stored is stored whole."""

import os
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from shingle import paths
from shingle.build import build, kernel_tree
from shingle.build.kernel_tree import Recipe
from shingle.failure import Failure
from shingle.machine.progress import SILENT
from shingle.paths import ContentKey


def key_of(root: Path) -> str:
    return ContentKey("test").tree(root, paths.files_below(root)).hexdigest()


def test_keys_do_not_change_with_time_stamps_or_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file.c").write_text("int x;\n")
    os.utime(tmp_path / "two/sub/file.c", (1, 1))
    assert key_of(tmp_path / "one") == key_of(tmp_path / "two")


def test_keys_change_with_content_and_names(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int x;\n")
    first = key_of(tmp_path)
    (tmp_path / "a.c").write_text("int y;\n")
    second = key_of(tmp_path)
    (tmp_path / "a.c").rename(tmp_path / "b.c")
    assert len({first, second, key_of(tmp_path)}) == 3


def test_neighbouring_values_do_not_run_together() -> None:
    one = ContentKey("k").text("a", "bc").text("d", "e").hexdigest()
    assert one != ContentKey("k").text("a", "b").text("cd", "e").hexdigest()


def test_the_kernel_key_changes_with_the_drive_and_not_with_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "source_key", lambda: "source")
    monkeypatch.setattr(build, "compiler_version", lambda: "gcc")

    def crates(drive: str, guest: str) -> build.Crates:
        folder = tmp_path / f"{drive}-{guest}"
        folder.mkdir(exist_ok=True)
        (folder / "drive.o").write_text(drive)
        (folder / "guest").write_text(guest)
        names = ("tool", "guest", "load", "drive.o", "probe", "crash", "safs")
        return build.Crates(*(folder / name for name in names))

    first = build.kernel_key("main", crates("1", "1"))
    assert first == build.kernel_key("main", crates("1", "2"))
    assert first != build.kernel_key("main", crates("2", "1"))
    assert first != build.kernel_key("sanitize", crates("1", "1"))


def test_the_kernel_key_does_not_change_with_what_a_mail_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "source_key", lambda: "source")
    monkeypatch.setattr(build, "compiler_version", lambda: "gcc")
    one, two = "diff --git a/x b/x\n+int x;\n", "diff --git a/y b/y\n+int y;\n"

    def key(text: str) -> str:
        (tmp_path / "1.patch").write_text(text)
        return build._kernel_key(Recipe({}, (tmp_path / "1.patch",)), [])

    assert key(f"Because.\n---\n{one}{two}") == key(f"Therefore.\n---\n{one}{two}") == key(one + two)
    assert len({key(one), key(two), key(one + two), key(two + one), key("--- a/x\n"), key("--- a/y\n")}) == 6


def test_another_drive_builds_nothing_again() -> None:
    held = {path.name for path in build._crate_sources() if path.parent == paths.ROOT / "drives"}
    assert "st8000as0002.toml" in held
    assert "st5000as0011.toml" not in held


def test_what_was_used_last_stays_in_the_cache(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        os.utime(tmp_path / str(number), (number, number))
    paths.used(tmp_path / "0")
    paths.prune(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "4"]


def test_entries_that_another_process_removes_meanwhile_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "old", "new"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "old", (0, 0))
    is_dir = Path.is_dir

    def removed_after_a_look(path: Path) -> bool:
        there = is_dir(path)
        if path.name == "gone" and there:
            path.rmdir()
        return there

    monkeypatch.setattr(Path, "is_dir", removed_after_a_look)
    paths.prune(tmp_path, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_variants_are_known_by_name() -> None:
    assert [path.stem for path in build.fragments("main")] == [
        "10-machine", "20-ext4", "30-other-file-systems", "40-several-disks", "92-statistics",
    ]  # fmt: skip
    assert [path.stem for path in build.fragments("sanitize")[-2:]] == ["90-sanitize", "91-faults"]
    with pytest.raises(Failure, match="Did you mean sanitize"):
        build.fragments("sanitise")
    with pytest.raises(Failure, match="no mutant called 'nothing'"):
        build.fragments("mutant:nothing")


def test_a_kernel_with_changes_has_their_patches_behind_those_of_all(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch()
    crates = build.Crates(*[program] * len(fields(build.Crates)))
    shipped = build.recipe("main", crates)
    assert build.changes()
    for flavour, patch in build.changes().items():
        changed = build.recipe(flavour, crates)
        assert changed.patches == (*shipped.patches, patch)
        assert changed.overlay == shipped.overlay
        assert build.fragments(flavour) == build.fragments("main")
        assert build.kernel_key(flavour, crates) != build.kernel_key("main", crates)


def test_the_pinned_version_is_a_version() -> None:
    assert build.pinned_version().count(".") == 2


def test_what_is_stored_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "store" / "key"
    with pytest.raises(RuntimeError), build.stored_at(target) as part:
        (part / "half").write_text("")
        raise RuntimeError
    assert list(target.parent.iterdir()) == []
    with build.stored_at(target) as part:
        (part / "whole").write_text("")
    assert (target / "whole").exists()


SAID = """\
  CC      fs/jbd2/lazy.o
  CC      fs/jbd2/checkpoint.o
../linux/fs/jbd2/lazy.c: In function 'lazy_begin':
../linux/fs/jbd2/lazy.c:120:9: error: 'nosuch' undeclared (first use in this function)
  120 |         nosuch = 1;
      |         ^~~~~~
make[4]: *** [../linux/scripts/Makefile.build:229: fs/jbd2/lazy.o] Error 1
make: *** [Makefile:224: __sub-make] Error 2
"""


def _built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Failure:
    """What a kernel's build says whose make is this script; its objects lie in `objects`."""
    out = tmp_path / "objects"
    out.mkdir()
    (out / ".unfinished").touch()
    make = build._Make(("sh", "-c", script, "make"), dict(os.environ), out, tmp_path / "log", "6.12.117")
    make.log.touch()
    monkeypatch.setattr(build, "_configured", lambda *_: make)
    with pytest.raises(Failure) as told:
        build._build_kernel("main", "main", Recipe({}, ()), (), tmp_path / "stored", SILENT)
    assert not (tmp_path / "stored").exists()
    return told.value


def test_after_a_compiler_s_error_objects_stay_and_its_first_line_is_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(SAID)
    failure = _built(tmp_path, monkeypatch, f"cat {tmp_path}/said; exit 2")
    assert str(failure) == "kernel/fs/jbd2/lazy.c:120:9: error: 'nosuch' undeclared (first use in this function)"
    assert failure.detail[0].strip() == "120 |         nosuch = 1;"
    assert not (tmp_path / "objects/.unfinished").exists()


def test_after_a_make_that_was_killed_no_object_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = _built(tmp_path, monkeypatch, "kill -9 $$")
    assert "building the kernel (main) failed" in str(failure)
    assert (tmp_path / "objects/.unfinished").exists()


def test_after_a_header_has_vanished_no_object_of_any_flavour_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BUILD", tmp_path)
    for name in ("main", "sanitize"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requested.config").touch()
    (tmp_path / "linux").mkdir()
    build._forget_objects()
    assert sorted(path.parent.name for path in tmp_path.glob("*/.unfinished")) == ["main", "sanitize"]


@pytest.mark.parametrize(
    ("place", "mib", "said"),
    [("a clone", 1 << 20, "no folder with spaces"), ("clone", 40, "has room for 40 MiB"), ("clone", 400, "400 MiB")],
)
def test_where_nothing_can_be_built_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, mib: int, said: str
) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path / place)
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    monkeypatch.setattr(build, "room", lambda _: mib << 20)
    monkeypatch.setattr(build, "crates_key", lambda: "key")
    with pytest.raises(Failure, match=said) as told:
        build.build_crates()
    assert told.value.status == 2
    assert [path for path in paths.cache().rglob("*") if path.is_file()] == []


def test_a_place_for_no_kernel_is_said_before_another_clone_s_build_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(_: str) -> None:
        raise AssertionError("waited")

    monkeypatch.setattr(build, "ROOT", tmp_path / "a clone")
    monkeypatch.setattr(build, "locked", waited)
    monkeypatch.setattr(build, "_kernel_key", lambda *_: "key")
    with pytest.raises(Failure, match="no folder with spaces"):
        build.build_recipe("main", "main", Recipe({}, ()), ())


def test_another_release_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(**_: object) -> None:
        raise AssertionError("something was built")

    monkeypatch.setattr(build, "build_crates", built)
    monkeypatch.setattr(build, "pinned_version", lambda: "6.13.117")
    with pytest.raises(Failure, match=r"Linux 6\.12; kernel/UPSTREAM names 6\.13\.117") as told:
        build.everything()
    assert told.value.status == 2


def apply_what_is_ours(tree: Path, patch: Path, *, ours: list[str]) -> None:
    """Applies a patch's changes of files that are in kernel/ and machine/; Linux's own files are not at hand here."""
    include = [f"--include={name}" for name in ours]
    # In a folder of somebody's repository git would change nothing and be content.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    command = ["git", "apply", *include, patch]
    ended = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{patch.name}: {ended.stderr}"


def test_patches_on_top_of_our_files_apply(tmp_path: Path) -> None:
    # A change of the kernel is told here, in a second, what it leaves behind in mutants and ablations.
    on_top = [[patch] for patch in build.changes().values()] + [list(build.mutants().values())]
    overlay = kernel_tree.overlay_of(build.ROOT / "machine", build.ROOT / "kernel")
    met = 0
    for number, patches in enumerate(on_top):
        tree = tmp_path / str(number)
        for name, path in overlay.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tree / name)
        for patch in patches:
            met += len(kernel_tree.touched_by(patch.read_text()) & set(overlay))
            apply_what_is_ours(tree, patch, ours=list(overlay))
    assert met > len(on_top)

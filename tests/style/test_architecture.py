# SPDX-License-Identifier: MIT OR Apache-2.0
"""Walls and sizes: no circles, imports from the top down, functions and files that can be read."""

from pathlib import Path

import grimp
import pytest

from shingle.checks import architecture, rust_modules, sizes
from shingle.checks.sizes import Listed, Long
from shingle.paths import IN_MACHINE, ROOT
from style.files import texts


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return architecture.imports()


@pytest.fixture(scope="module")
def found() -> list[Long]:
    return sizes.too_long(texts())


def test_there_is_no_circle_between_modules_packages_and_crates(graph: grimp.ImportGraph) -> None:
    assert len(graph.modules) > 80
    assert architecture.circle(architecture.modules(graph)) == []
    assert architecture.circle(architecture.packages(graph)) == []
    crates = architecture.crates()
    assert crates["smr-drive"] == {"zoned"} == crates["safs"]
    assert architecture.circle(crates) == []


def test_a_circle_is_seen() -> None:
    assert sorted(set(architecture.circle({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}))) == ["a", "b", "c"]


def test_there_is_no_circle_between_the_modules_of_a_crate() -> None:
    roots = [path for path in sorted(ROOT.glob("crates/*/src/*.rs")) if path.name in ("lib.rs", "main.rs")]
    assert len(roots) > 15
    modules = {str(path.relative_to(ROOT)): rust_modules.graph(path) for path in roots}
    drive = modules["crates/smr-drive/src/lib.rs"]
    assert len(drive) > 50
    assert "crate::translation::layer" in drive["crate::translation::zones::host_aware"]
    assert {name: found for name, graph in modules.items() if (found := architecture.circle(graph))} == {}


MADE = {
    "lib.rs": "mod a;\npub mod b;\nmod c;\npub use a::{One, deep::Two as Other};\n",
    "a/mod.rs": "pub mod deep;\npub struct One;\n#[cfg(test)]\nmod tests {\n    use crate::c::Three;\n}\n",
    "a/deep.rs": '// crate::c::Three\npub struct Two;\nfn text() -> &\'static str { "crate::c" }\n',
    "b.rs": "use crate::{One, Other};\npub fn b(_: One, _: Other) {}\n",
    "c.rs": "use super::b;\npub struct Three;\nfn c() { b::b(todo!(), todo!()) }\n",
}


def _graph_of(folder: Path, files: dict[str, str]) -> dict[str, set[str]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return rust_modules.graph(folder / "lib.rs")


def test_modules_of_a_crate_need_what_their_paths_lead_to(tmp_path: Path) -> None:
    graph = _graph_of(tmp_path, MADE)
    assert graph == {
        "crate": set(),
        "crate::a": set(),
        "crate::a::deep": set(),
        "crate::b": {"crate::a", "crate::a::deep"},
        "crate::c": {"crate::b"},
    }
    assert architecture.circle(graph) == []


def test_a_circle_in_a_crate_is_seen_also_through_a_re_export(tmp_path: Path) -> None:
    back = "pub struct Two;\npub fn two() { let _ = super::super::c::Three; }\n"
    graph = _graph_of(tmp_path, MADE | {"a/deep.rs": back})
    assert sorted(set(architecture.circle(graph))) == ["crate::a::deep", "crate::b", "crate::c"]


def test_imports_go_from_the_top_down(graph: grimp.ImportGraph) -> None:
    known = {name for names in architecture.LAYERS for name in names}
    assert {name.split(".")[1] for name in graph.modules if "." in name} == known
    assert architecture.upward(graph) == []


def test_an_import_from_below_or_beside_is_seen(graph: grimp.ImportGraph) -> None:
    changed = architecture.imports()
    changed.add_import(importer="shingle.machine.job", imported="shingle.runs.run")
    changed.add_import(importer="shingle.evidence.table", imported="shingle.review.series")
    assert architecture.upward(changed) == [
        "shingle.evidence imports shingle.review",
        "shingle.machine imports shingle.runs",
    ]


def test_experiments_import_the_lab_s_face_and_programs_in_the_machine_nothing_of_it() -> None:
    experiments = sorted((ROOT / "experiments").rglob("*.py"))
    assert len(experiments) > 30
    faces = {path.name: set(architecture.imported_of_the_lab(path)) for path in experiments}
    assert {name: each for name, each in faces.items() if each != {architecture.FACE}} == {}
    assert [path.name for path in IN_MACHINE.glob("*.py") if architecture.imported_of_the_lab(path)] == []


def test_the_page_shows_the_folders_and_who_needs_whom() -> None:
    page = architecture.PAGE.read_text()
    assert page == architecture.page_with(page), "renew it: ./shingle architecture --write"


def test_functions_and_files_are_short_or_listed_with_a_reason(found: list[Long]) -> None:
    assert sizes.unlisted(found) == []
    assert sizes.no_longer_long(found) == [], "nothing of this is long any more: remove the rows"
    assert all(each.reason for each in sizes.LISTED)


RUST = "impl A {\n    pub fn long(\n        &self,\n    ) -> u8 {\n" + "        1;\n" * 70 + "    }\n}\n"
RUST += "fn one() {}\nfn two() -> u8 {\n    2\n}\n"
C = "struct a;\nint declared(int a);\nstatic int long_one(int a,\n\t\tint b)\n{\n" + "\tx();\n" * 80 + "}\n"
PYTHON = "def long() -> None:\n" + "    x()\n" * 70 + "\n\ndef short() -> None:\n    x()\n"


@pytest.mark.parametrize(
    ("name", "text", "function", "lines"),
    [("a.rs", RUST, "long", 74), ("a.c", C, "long_one", 84), ("a.py", PYTHON, "long", 71)],
)
def test_a_long_function_is_seen(name: str, text: str, function: str, lines: int) -> None:
    long = Long(name, function, lines)
    assert sizes.too_long([(name, text)]) == [long]
    assert sizes.unlisted([long], [Listed("a.*", "other", "why")]) == [f"{name}: {function}() has {lines} lines"]
    assert sizes.unlisted([long], [Listed("a.*", "long*", "why")]) == []


def test_a_long_file_and_a_row_without_use_are_seen() -> None:
    assert sizes.too_long([("a.sh", "true\n" * 701), ("b.md", "x\n" * 900)]) == [Long("a.sh", "", 701)]
    row = Listed("b.sh", "", "why")
    assert sizes.no_longer_long([Long("a.sh", "", 701)], [row]) == [row]

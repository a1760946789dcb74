# SPDX-License-Identifier: MIT OR Apache-2.0
"""Walls: which package of the lab may import which, and the part of ARCHITECTURE.md that shows what does."""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import grimp

from shingle import process
from shingle.page import replaced
from shingle.paths import ROOT

PACKAGE = "shingle"
FACE = "shingle.lab"
# A layer may import those below it. What stands side by side does not import each other.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("checks", "lab", "verify"),
    ("evidence", "review", "debian"),
    ("runs",),
    ("catalogue",),
    ("build",),
    ("machine", "page"),
    ("process", "paths"),
    ("failure",),
)
PAGE = ROOT / "ARCHITECTURE.md"
_BEGIN, _END = "<!-- `./shingle architecture --write` makes what follows -->\n", "<!-- end of what is made -->\n"
_DEPTH = 3

Graph = Mapping[str, Iterable[str]]


def imports() -> grimp.ImportGraph:
    """The lab's modules and their imports, those inside functions included."""
    return grimp.build_graph(PACKAGE, cache_dir=None)


def modules(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    return {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}


def packages(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    """The lab's packages, and modules beside them, each with those that it imports."""
    found: dict[str, set[str]] = {}
    for importer, imported in modules(graph).items():
        own = _package(importer)
        if own:
            found.setdefault(own, set()).update(name for each in imported if (name := _package(each)) not in ("", own))
    return found


def _package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def circle(graph: Graph) -> list[str]:
    """One circle, its first name once more at its end; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def upward(graph: grimp.ImportGraph) -> list[str]:
    """Imports from a layer into one above it, or into its own side by side."""
    layers = [grimp.Layer(*names, independent=True) for names in LAYERS]
    broken = graph.find_illegal_dependencies_for_layers(layers, containers={PACKAGE})
    return sorted(f"{each.importer} imports {each.imported}" for each in broken)


def imported_of_the_lab(path: Path) -> list[str]:
    """The modules of the lab that a file outside it imports."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
        elif isinstance(node, ast.Import):
            found += [each.name for each in node.names]
    return [each for each in found if each.split(".")[0] == PACKAGE]


def crates() -> dict[str, set[str]]:
    """The workspace's crates, each with those of them that it or its tests need."""
    said = process.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"],
        what="cargo metadata", limit_s=60, cwd=ROOT,
    )  # fmt: skip
    found = json.loads(said)["packages"]
    ours = {each["name"] for each in found}
    return {each["name"]: {need["name"] for need in each["dependencies"]} & ours for each in found}


def tree() -> list[str]:
    """The folders down to the third level, as git knows them; a package of the lab with its first sentence."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    folders: set[PurePosixPath] = set()
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            folders |= {parent for parent in PurePosixPath(name).parents if 0 < len(parent.parts) <= _DEPTH}
    lines = []
    for folder in sorted(folders):
        text = "  " * (len(folder.parts) - 1) + f"{folder.name}/"
        about = _about(ROOT / folder)
        lines.append(f"{text:28} {about}".rstrip())
    return lines


def _about(folder: Path) -> str:
    start = folder / "__init__.py"
    if not start.exists():
        return ""
    return (ast.get_docstring(ast.parse(start.read_text())) or "").partition("\n")[0]


def markdown() -> str:
    """The folders, and who imports whom, the highest first."""
    order = {name: number for number, names in enumerate(LAYERS) for name in names}

    def table(head: str, graph: Graph, position: Mapping[str, int]) -> list[str]:
        rows = [f"| {head} | needs |", "|---|---|"]
        for name in sorted(graph, key=lambda each: (position.get(each, 0), each)):
            needs = sorted(graph[name], key=lambda each: (position.get(each, 0), each))
            rows.append(f"| `{name}` | {', '.join(f'`{each}`' for each in needs) or '-'} |")
        return rows

    found = crates()
    sorter = graphlib.TopologicalSorter(found)
    sorter.prepare()
    height: dict[str, int] = {}
    while sorter.is_active():
        ready = sorter.get_ready()
        height |= dict.fromkeys(ready, -len(height))
        sorter.done(*ready)
    return "\n".join([
        "```", *tree(), "```", "", *table("package of `lab/shingle`", packages(imports()), order),
        "", *table("crate", found, height), "",
    ])  # fmt: skip


def page_with(page: str) -> str:
    """The page with this between its two marks."""
    return replaced(page, _BEGIN, _END, markdown(), PAGE)

# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which module of a crate needs which, from its paths: `crate::`, `super::`, `self::` and names that a `use` brought.

A module is a file. A declaration (`mod x;`) and a re-export (`pub use`) need nothing; whoever uses the re-export needs
the module it comes from. Tests do not count: neither `mod tests` nor files that are compiled for tests alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Name = tuple[str, ...]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_STRING = re.compile(r'b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.S)
_TESTS = re.compile(r"#\[cfg\((?:test|any\(test[^\]]*)\)\]\s*(?:pub(?:\([^)]*\))? )?mod (\w+)\s*([;{])")
_MOD = re.compile(r"\bmod (\w+)\s*;")
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_PATH = re.compile(r"(?<![\w:])((?:crate|self|super)(?:::\w+)+|[a-z]\w*(?:::\w+)+)")


@dataclass
class Module:
    """What a file says: names that it re-exports or imports, and paths that it uses."""

    name: Name
    children: set[str] = field(default_factory=set)
    exported: dict[str, Name] = field(default_factory=dict)
    exported_whole: list[Name] = field(default_factory=list)
    paths: set[Name] = field(default_factory=set)


def graph(root: Path) -> dict[str, set[str]]:
    """The modules below a crate's root file, by their paths, each with those that it needs."""
    found: dict[Name, Module] = {}
    _read(root, (), found, is_root=True)
    needs: dict[str, set[str]] = {}
    for name, module in found.items():
        targets = {_module_of(path, found) for path in module.paths} - {name, None}
        needs["::".join(("crate", *name))] = {"::".join(("crate", *target)) for target in targets if target is not None}
    return needs


def _read(path: Path, name: Name, found: dict[Name, Module], *, is_root: bool = False) -> None:
    text = _without_tests(_STRING.sub('""', _COMMENT.sub("", path.read_text())))
    module = found[name] = Module(name)
    folder = path.parent if is_root or path.name == "mod.rs" else path.with_suffix("")
    for match in _MOD.finditer(text):
        child = next(
            (each for each in (folder / f"{match[1]}.rs", folder / match[1] / "mod.rs") if each.exists()), None
        )
        if child is not None:
            module.children.add(match[1])
            _read(child, (*name, match[1]), found)
    imported: dict[str, Name] = {}
    for match in _USE.finditer(text):
        for leaf, alias in _leaves(match[2]):
            full = _absolute(leaf, module)
            if full is None:
                continue
            if match[1] and alias == "*":
                module.exported_whole.append(full[:-1])
            elif match[1]:
                module.exported[alias] = full
            else:
                module.paths.add(full)
                imported[alias] = full
    for match in _PATH.finditer(_USE.sub(";", text)):
        words = tuple(match[1].split("::"))
        if words[0] in imported:
            module.paths.add((*imported[words[0]], *words[1:]))
        elif (full := _absolute(words, module)) is not None:
            module.paths.add(full)


def _without_tests(text: str) -> str:
    while match := _TESTS.search(text):
        end = match.end()
        depth = 1 if match[2] == "{" else 0
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[: match.start()] + text[end:]
    return text


def _leaves(tree: str) -> Iterator[tuple[Name, str]]:
    """The paths of a `use`, and the name that each has here; `*` for all names of a module."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    prefix = tuple(filter(None, head.strip().rstrip(":").split("::")))
    if not brace:
        path, _, alias = tree.partition(" as ")
        words = tuple(word.strip() for word in path.split("::"))
        yield words, alias.strip() or words[-1]
        return
    depth, start, inner = 0, 0, rest[: rest.rindex("}")]
    for at, letter in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            for words, alias in _leaves(inner[start:at]) if inner[start:at].strip() else ():
                yield (*prefix, *words) if words != ("self",) else prefix, prefix[-1] if words == ("self",) else alias
            start = at + 1


def _absolute(words: Name, module: Module) -> Name | None:
    """A path from the crate's root, without `crate`; None for what another crate has."""
    here = module.name
    if words[0] == "crate":
        return words[1:]
    if words[0] == "self":
        return (*here, *words[1:])
    if words[0] in module.children:
        return (*here, *words)
    rest = list(words)
    while rest and rest[0] == "super":
        here, rest = here[:-1], rest[1:]
    return (*here, *rest) if len(rest) < len(words) else None


def _module_of(path: Name, found: dict[Name, Module], depth: int = 0) -> Name | None:
    """The module in which the last known name of a path is defined, re-exports followed."""
    here: Name = ()
    for number, word in enumerate(path):
        module = found[here]
        if word in module.children:
            here = (*here, word)
            continue
        if depth < len(found):
            if word in module.exported:
                return _module_of((*module.exported[word], *path[number + 1 :]), found, depth + 1)
            if len(module.exported_whole) == 1 and word == "*":
                return _module_of(module.exported_whole[0], found, depth + 1)
        break
    return here if here or path else None

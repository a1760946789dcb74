# SPDX-License-Identifier: MIT OR Apache-2.0
"""Functions of more than 70 lines and files of more than 700, and why those that there are stay."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FUNCTION_LINES, FILE_LINES = 70, 700
SUFFIXES = (".py", ".rs", ".c", ".h", ".sh", ".js", ".css")

# rustfmt puts a function's closing brace below the beginning of its first line, and kernel style below column 0.
_RUST = re.compile(r"^( *)(?:pub(?:\([a-z]+\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)")
_C = re.compile(r"^\w[^;]*?(\w+)\(")


@dataclass(frozen=True)
class Long:
    """A function, or a file if it has no name, and its lines."""

    file: str
    name: str
    lines: int

    def __str__(self) -> str:
        where = f"{self.file}: {self.name}()" if self.name else self.file
        return f"{where} has {self.lines} lines"


@dataclass(frozen=True)
class Listed:
    """What stays long: a file and a function of it by pattern (without: the file itself), and why."""

    file: str
    name: str
    reason: str

    def covers(self, found: Long) -> bool:
        return fnmatch.fnmatchcase(found.file, self.file) and fnmatch.fnmatchcase(found.name, self.name)


LISTED = (
    Listed("crates/safs-sim/src/suites/steps.rs", "step_model", "a case for each step"),
    Listed("crates/safs/src/check.rs", "check_cell", "a case for each kind of key"),
    Listed("crates/safs/src/check.rs", "check_extent", "each sentence is one condition on one extent"),
    Listed(
        "crates/safs/src/namespace.rs", "rename", "two directories change in one batch, each step on what the last left"
    ),
    Listed("crates/safs/src/recovery.rs", "roll_forward", "the log is read first, then followed"),
    Listed("kernel/fs/ext4/lazy.c", "", "one side of a lazy journal: mounts, unmounts, remounts, sysfs"),
    Listed("kernel/fs/jbd2/*.c", "", "one invariant each: the map, the scan, the cleaner"),
    Listed("kernel/fs/jbd2/jmap-test.c", "equals_a_plain_array_over_many_revolutions", "one history, told in order"),
    Listed("machine/arch/um/drivers/shingle_kern.c", "", "the kernel's half of the driver; drives are keyed by it"),
    Listed("packaging/tools/ext4lazy.py", "", "owners get one file that needs nothing but Python"),
    Listed("tests/lazy_tools/test_ext4lazy.py", "", "its tests: one for each sentence that it prints"),
    Listed("tests/model/history.c", "*", "one history of the model; a step has a case for each operation"),
    Listed("tests/model/stock.c", "", "what jbd2 calls of the kernel, in user space"),
)


def measured(name: str, text: str) -> list[Long]:
    """The file and its functions, each with its lines."""
    lines = text.splitlines()
    suffix = Path(name).suffix
    found = [Long(name, "", len(lines))]
    if suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(Long(name, node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
    elif suffix == ".rs":
        found += _braced(name, lines, _RUST)
    elif suffix in (".c", ".h"):
        found += _braced(name, lines, _C)
    return found


def _braced(name: str, lines: list[str], head: re.Pattern[str]) -> list[Long]:
    found = []
    for number, line in enumerate(lines):
        match = head.match(line)
        if match is None:
            continue
        indent, function = match.groups() if head is _RUST else ("", match[1])
        for end in range(number, len(lines)):
            if lines[end] == f"{indent}}}":
                found.append(Long(name, function, end - number + 1))
                break
            # A declaration, or all of it in one line.
            if lines[end].endswith((";", "}")) and not any(each.endswith("{") for each in lines[number : end + 1]):
                break
            if lines[end].endswith("}") and end == number:
                break
    return found


def too_long(files: Iterable[tuple[str, str]]) -> list[Long]:
    limits = {True: FILE_LINES, False: FUNCTION_LINES}
    found = [each for name, text in files if name.endswith(SUFFIXES) for each in measured(name, text)]
    return [each for each in found if each.lines > limits[each.name == ""]]


def unlisted(found: Iterable[Long], listed: Iterable[Listed] = LISTED) -> list[str]:
    return [str(each) for each in found if not any(one.covers(each) for one in listed)]


def no_longer_long(found: Iterable[Long], listed: Iterable[Listed] = LISTED) -> list[Listed]:
    """Rows of the list that nothing needs any more."""
    there = list(found)
    return [one for one in listed if not any(one.covers(each) for each in there)]

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle coverage`: which lines of journal_lazy which suite runs (docs/results/coverage.md).

A kernel of its own counts (build.COVERAGE): gcc's counters are in the files that we write or change and nowhere else,
and User-Mode Linux, an ordinary program, writes them out when it ends in order. A machine that is killed or whose power
is cut counts nothing. The suites are the ordinary commands, which the environment sends to that kernel.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shingle import process
from shingle.build import build
from shingle.failure import Failure, unknown_name
from shingle.machine.progress import SILENT, Progress
from shingle.paths import ROOT, run_folder
from shingle.review import series

RECORDS = ROOT / "results/coverage.jsonl"
PAGE = ROOT / "docs/results/coverage.md"
REASONS = ROOT / "lab/shingle/verify/coverage.toml"
# What is aimed at: of all lines, and of each function unless it has a reason.
AIM = 0.9
# Lines of ours in a file of upstream's count together.
HOOKS = "(our lines)"
_GCOV_LIMIT_S = 60.0


# What counts sleeps at random, too (JBD2_LAZY_DEBUG): this one says how much is cleaned in time.
_NEEDS_NO_DELAYS = "tests/kernel/test_cleaner.py::test_cleaning_by_watermarks_leaves_nothing_to_do_in_an_emergency"


def _tests() -> tuple[str, ...]:
    apart = {"test_kunit", "test_mutants", "test_ktap"}
    found = sorted((ROOT / "tests/kernel").glob("test_*.py"))
    names = [f"tests/kernel/{path.name}" for path in found if path.stem not in apart]
    return ("test", *names, "--", f"--deselect={_NEEDS_NO_DELAYS}")


def _command(line: str) -> tuple[str, Callable[[], tuple[str, ...]]]:
    return f"`./shingle {line}`", lambda: tuple(line.split())


SUITES: Mapping[str, tuple[str, Callable[[], tuple[str, ...]]]] = {
    "kunit": ("the unit tests beside the code", lambda: ("test", "test_kunit")),
    "tests": ("tests/kernel, without the long ones", _tests),
    "torture": _command("torture --operations 300000 --mix 1000 --volume 0"),
    "crash": _command("crash --states 300"),
}


@dataclass
class Lines:
    """The lines of a function that gcc made code of, and those that ran."""

    all: set[int] = field(default_factory=set)
    ran: set[int] = field(default_factory=set)


# By file and function.
Counts = dict[tuple[str, str], Lines]


def check(names: Iterable[str]) -> None:
    for name in names:
        if name not in SUITES:
            raise unknown_name("suite", name, SUITES)


# --- Running ------------------------------------------------------------------


def run(names: Sequence[str], progress: Progress = SILENT) -> None:
    """Runs these suites on the kernel that counts; keeps what they ran in place of what was recorded of them."""
    kernel = build.everything(build.COVERAGE, progress=progress).kernel
    for name in names:
        began = time.monotonic()
        with run_folder() as folder:
            with progress.task(f"coverage: {name}"):
                if _suite(name, folder) != 0:
                    raise Failure(f"the suite {name} failed on the kernel that counts: nothing of it is recorded.")
            found = counted(folder, kernel)
        if not any(lines.ran for lines in found.values()):
            raise Failure(f"the suite {name} counted nothing.")
        _keep(name, kernel.key, found, time.monotonic() - began)


def _suite(name: str, folder: Path) -> int:
    _, arguments = SUITES[name]
    environment = os.environ | {"SHINGLE_KERNEL": build.COVERAGE, "GCOV_PREFIX": str(folder)}
    # None of it outlives this program.
    with process.started([sys.executable, "-m", "shingle", *arguments()], env=environment) as suite:
        return suite.wait()


def counted(folder: Path, kernel: build.Kernel) -> Counts:
    """What gcov makes of the counters below a folder."""
    notes = kernel.linux.parent / "notes"
    counts: Counts = {}
    with tempfile.TemporaryDirectory(prefix="shingle-gcov-") as scratch:
        for name in build.watched():
            stem = Path(name).with_suffix("")
            for number, data in enumerate(sorted(folder.rglob(f"{stem}.gcda"))):
                own = Path(scratch) / str(number) / stem
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(data, own.with_suffix(".gcda"))
                shutil.copy(notes / f"{stem}.gcno", own.with_suffix(".gcno"))
                said = process.run(
                    ["gcov", "--json-format", "--stdout", own.with_suffix(".gcda")],
                    what="gcov", limit_s=_GCOV_LIMIT_S, cwd=Path(scratch),
                )  # fmt: skip
                _add(counts, said, notes)
    return counts


def _add(counts: Counts, said: str, notes: Path) -> None:
    for line in said.splitlines():
        if not line.startswith("{"):
            continue
        for file in json.loads(line)["files"]:
            name = _ours(file["file"])
            if name is None:
                continue
            known = _functions(name, notes)
            for each in file["lines"]:
                number = each["line_number"]
                # gcov does not name what was inlined; of a function that a macro makes, the source shows no body.
                function = known.get(number) or (each.get("function_name") if _is_own(name) else None)
                if function is None:
                    continue
                lines = counts.setdefault((name, function), Lines())
                lines.all.add(number)
                if each["count"] > 0:
                    lines.ran.add(number)


def _ours(file: str) -> str | None:
    """A file's place in the kernel tree, if it is one that we write or change and no test."""
    for name in (*build.watched(), *_headers()):
        if (file == name or file.endswith(f"/{name}")) and not name.endswith("-test.c"):
            return name
    return None


def _headers() -> list[str]:
    kernel = ROOT / "kernel"
    return [str(path.relative_to(kernel)) for path in sorted(kernel.glob("*/**/*.h")) if "trace" not in path.parts]


def _is_own(name: str) -> bool:
    return (ROOT / "kernel" / name).exists()


@functools.cache
def _functions(name: str, notes: Path) -> dict[int, str]:
    """Which function a line belongs to; of a file of upstream's, only the lines that we put there."""
    if _is_own(name):
        return functions_in((ROOT / "kernel" / name).read_text())
    with tempfile.TemporaryDirectory(prefix="shingle-gcov-") as scratch:
        series.pristine({name}, Path(scratch))
        before = (Path(scratch) / name).read_text().splitlines()
    after = (notes / name).read_text().splitlines()
    found: dict[int, str] = {}
    for kind, _, _, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind in ("insert", "replace"):
            found |= dict.fromkeys(range(first + 1, last + 1), HOOKS)
    return found


_NAME = re.compile(r"(\w+)\(")


def functions_in(text: str) -> dict[int, str]:
    """The function that each line of a C file in the kernel's style belongs to."""
    found: dict[int, str] = {}
    name, head, inside = "", "", False
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            found[number] = name
            inside = line != "}"
        elif line == "{" and (match := _NAME.search(head)):
            name, inside = match[1], True
        elif line[:1].isalpha() or line[:1] == "_":
            head = line
        elif line[:1] not in ("\t", " ") or not head:
            head = ""
        else:
            # A name may stand on the second line of a long head.
            head += line
    return found


# --- Records ------------------------------------------------------------------


def _packed(numbers: Iterable[int]) -> str:
    """12 13 14 20 as "12-14 20"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _unpacked(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _keep(suite: str, kernel: str, found: Counts, seconds: float) -> None:
    """Of other suites only what the same kernel counted stays: lines of other sources are other lines."""
    kept = [line for line in _lines() if line["suite"] != suite and line["versions"]["kernel"] == kernel]
    functions = {
        f"{file}:{name}": [_packed(lines.all), _packed(lines.ran)] for (file, name), lines in sorted(found.items())
    }
    new = {
        "schema": 1, "workload": "coverage", "suite": suite, "functions": functions,
        "host": {"seconds": round(seconds, 1)}, "versions": {"kernel": kernel},
    }  # fmt: skip
    order = list(SUITES)
    with RECORDS.open("w") as file:
        for line in sorted([*kept, new], key=lambda line: order.index(line["suite"])):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def recorded() -> dict[str, Counts]:
    """By suite."""
    found: dict[str, Counts] = {}
    for line in _lines():
        counts: Counts = {}
        for name, (every, ran) in line["functions"].items():
            file, _, function = name.partition(":")
            counts[file, function] = Lines(_unpacked(every), _unpacked(ran))
        found[line["suite"]] = counts
    return found


def together(suites: Iterable[Counts]) -> Counts:
    total: Counts = {}
    for counts in suites:
        for key, lines in counts.items():
            both = total.setdefault(key, Lines())
            both.all |= lines.all
            both.ran |= lines.ran
    return total


# --- The page -----------------------------------------------------------------


def reasons() -> dict[str, str]:
    """By file:function, why less of it runs than is aimed at."""
    return dict(tomllib.loads(REASONS.read_text())["reasons"])


def below() -> dict[str, Lines]:
    """The functions of which less runs than is aimed at, by file:function."""
    total = together(recorded().values())
    return {
        f"{file}:{name}": lines
        for (file, name), lines in sorted(total.items())
        if len(lines.ran) < AIM * len(lines.all)
    }


def _percent(lines: Iterable[Lines]) -> str:
    pairs = [(len(each.ran), len(each.all)) for each in lines]
    ran, every = (sum(pair[side] for pair in pairs) for side in (0, 1))
    return f"{100 * ran / every:.0f} %" if every else "none"


def page() -> str:
    """docs/results/coverage.md, from the records."""
    suites = recorded()
    total = together(suites.values())
    files = sorted({file for file, _ in total})
    text = [
        "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->",
        "# Which lines run in which suite",
        "",
        "*For reviewers of `journal_lazy`: which of its lines the suites reach. Made by `./shingle coverage` from",
        "`results/coverage.jsonl`; do not edit.*",
        "",
        "gcc's counters are in the kernel's code while these suites run:",
        "",
        *(f"* **{name}**: {SUITES[name][0]}" for name in SUITES if name in suites),
        "",
        "A machine whose power is cut, or which is killed, counts nothing: what is here ran in machines that were shut",
        f"down in order. `{HOOKS}` are the lines that the series adds to a file of upstream's.",
        "",
        "| file | functions | lines | " + " | ".join(suites) + " | together |",
        "|---|---|---|" + "---|" * (len(suites) + 1),
    ]
    for file in [*files, None]:
        chosen = [key for key in total if file in (None, key[0])]
        each = [_percent(Lines(total[key].all, counts[key].ran if key in counts else set()) for key in chosen)
                for counts in suites.values()]  # fmt: skip
        count = sum(len(total[key].all) for key in chosen)
        columns = [str(len(chosen)), f"{count:,}", *each, _percent(total[key] for key in chosen)]
        text.append(f"| {f'`{file}`' if file else 'all'} | " + " | ".join(columns) + " |")
    text += [
        "",
        "## Functions",
        "",
        "By the suites that reach them; with a number, so many percent of its lines run.",
        "",
    ]
    for file in files:
        text += [f"`{file}`", ""]
        by_suites: dict[tuple[str, ...], list[str]] = {}
        for key in sorted(key for key in total if key[0] == file):
            reached = tuple(name for name, counts in suites.items() if key in counts and counts[key].ran)
            share = 100 * len(total[key].ran) // len(total[key].all)
            by_suites.setdefault(reached, []).append(key[1] if share in (0, 100) else f"{key[1]} {share}")
        for reached, names in sorted(by_suites.items(), key=lambda item: (-len(item[0]), item[0])):
            text.append(f"* {', '.join(reached) or '**none**'}: {', '.join(names)}")
        text.append("")
    why = reasons()
    text += [f"## Below {AIM:.0%}".replace("%", " %"), ""]
    if rows := below():
        text += ["| function | lines that run | why not more |", "|---|---|---|"]
        text += [
            f"| `{name.split('/')[-1]}` | {len(lines.ran)} of {len(lines.all)} | {why.get(name, '')} |"
            for name, lines in rows.items()
        ]
    return "\n".join(text).rstrip() + "\n"


def write_page() -> None:
    PAGE.write_text(page())


def missing(name: str, kernel: build.Kernel) -> list[str]:
    """The lines that nothing ran of the functions or files whose name contains `name`."""
    found = []
    for (file, function), lines in sorted(together(recorded().values()).items()):
        own = ROOT / "kernel" / file
        source = own if own.exists() else kernel.linux.parent / "notes" / file
        if name in f"{file}:{function}" and source.exists():
            code = source.read_text().splitlines()
            found += [f"{file}:{number}: {code[number - 1]}" for number in sorted(lines.all - lines.ran)]
    return found

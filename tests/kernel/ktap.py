# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads the kernel's test results (KTAP) from a console."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TIME = re.compile(r"^\[\s*\d+\.\d+\] ?")
_CASE = re.compile(r"^(\s+)(not ok|ok) \d+ (?:- )?(\S+)(?: # (SKIP.*))?")
# Of a suite's cases; those of a case's parameters stand further in, and no plan counts them.
_INDENT = "    "
_SUBTEST = re.compile(r"^\s+# Subtest: (\S+)")
_PLAN = re.compile(r"^\s+1\.\.(\d+)")


@dataclass(frozen=True)
class Case:
    suite: str
    name: str
    passed: bool
    skipped: bool = False
    # One of the parameters that a case was run with.
    is_parameter: bool = False


@dataclass(frozen=True)
class Report:
    cases: tuple[Case, ...]
    # Cases that suites announced; fewer results mean that the kernel died on the way.
    planned: int

    @property
    def failed(self) -> list[str]:
        return [f"{case.suite}.{case.name}" for case in self.cases if not case.passed]


def parse(console: str) -> Report:
    suite, planned = "", 0
    cases: list[Case] = []
    for raw in console.splitlines():
        line = _TIME.sub("", raw.rstrip("\r"))
        if match := _SUBTEST.match(line):
            suite = match[1]
        elif match := _PLAN.match(line):
            planned += int(match[1])
        elif match := _CASE.match(line):
            skipped, deeper = match[4] is not None, match[1] != _INDENT
            cases.append(Case(suite, match[3], match[2] == "ok", skipped, deeper))
    return Report(tuple(cases), planned)

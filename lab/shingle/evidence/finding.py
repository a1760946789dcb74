# SPDX-License-Identifier: MIT OR Apache-2.0
"""An experiment's text: a Markdown file beside it, whose numbers are filled in from the records in results/.

docs/reference/experiments.md lists what may stand between `{{` and `}}`. Outside of that a text has no numbers:
typed_numbers().
"""

from __future__ import annotations

import contextlib
import functools
import re
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from shingle.failure import Failure
from shingle.paths import ROOT
from shingle.runs import experiment
from shingle.runs.claims import Judged, by_seed, judged, number
from shingle.runs.experiment import Experiment
from shingle.runs.record import NotFinished, NotRecorded, Record

WHY, MEANING = "## Why rows differ\n", "## What it means\n"
_WIDTH = 116
KINDS = ("a parameter", "a mechanism", "the kernel", "the paper", "a variation", "not known")
_REASON = re.compile(r"\* (?P<kind>[a-z ]+?)(?: \((?P<targets>T[0-9a-zT, ]+)\))?: (?P<text>.+)", re.DOTALL)

# Digits that name something: an experiment, a target, a place in a paper, a version, a year, an identifier, a path.
_NAMES = re.compile(
    r"[A-Za-z_][\w-]*\d[\w-]*|FAST'17"
    r"|\b(?:Figure|Table|[Ss]ection|Linux|[Dd]ecision) \d+(?:\.\d+)*|\b(?:Figure|Table)s \d+ (?:to|and) \d+"
    r"|\b(?:in|since|September) 20\d\d\b|\S*/\S*"
)
_NOT_PROSE = re.compile(r"<!--.*?-->|\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|^```.*?^```$|`[^`]*`", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Reason:
    """Why numbers differ: something that a paper leaves open; something that is not modelled, or modelled
    otherwise; another kernel than the paper's; the paper itself; or the row was varied to find that out."""

    # One of KINDS.
    kind: str
    text: str
    # Of the claims; none: of all that are off.
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = f" ({', '.join(self.targets)})" if self.targets else ""
        return f"{self.kind}: {self.text}{named}"


@dataclass(frozen=True)
class Finding:
    """What an experiment's file says, its numbers filled in."""

    title: str
    reasons: tuple[Reason, ...]
    # Markdown; paragraphs, perhaps none.
    meaning: str


class Seeds:
    """The same part of a record for each seed: a name leads further in, a number is the mean."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def __getitem__(self, name: str | int) -> Seeds | float:
        found = [each[name] for each in self._values]
        if all(isinstance(each, int | float) for each in found):
            return statistics.fmean(found)
        if any(each is None for each in found):
            raise KeyError(name)
        return Seeds(found)


@dataclass(frozen=True)
class Row:
    """A claim for a text: the paper's number and ours."""

    ours: float
    deviation: float | None
    paper: float | str


class Source:
    """What a text may ask of one experiment and its records."""

    def __init__(self, name: str) -> None:
        self._experiment = experiment.find(name)
        self._records = experiment.records_of(self._experiment)

    @classmethod
    @functools.cache
    def named(cls, name: str) -> Source:
        """Made once: reading records takes longer than all else."""
        return cls(name)

    @functools.cached_property
    def _rows(self) -> list[Judged]:
        return judged(self._experiment.claims, self._records)

    def _seeds(self, scale: float | None) -> list[list[Record]]:
        chosen = [each for each in self._records if scale in (None, each["scale"])]
        if not chosen:
            raise NotRecorded(f"{self._experiment.name} has no records of scale {scale}.")
        return by_seed(chosen)[1]

    def phase(
        self, name: str, file_system: str, drive: str | None = None, *,
        after: str = "", scale: float | None = None, failed: bool = False,
    ) -> Seeds:  # fmt: skip
        """A phase's record for each seed, the first that fits; `after`: a part of the workload's name."""
        found = []
        for records in self._seeds(scale):
            for each in records:
                fits = each["phase"] == name and each["file_system"] == file_system and after in each["workload"]
                if fits and drive in (None, each["drive"]):
                    if ("failed" in each) != failed:
                        raise NotFinished(f"{name} on {file_system}: {each.get('failed', 'it did not fail')}.")
                    found.append(each)
                    break
        if not found:
            raise NotRecorded(f"{self._experiment.name} has no record of {name} on {file_system} ({drive or 'any'}).")
        return Seeds(found)

    def claim(self, target: str, words: str = "") -> Row:
        """The one claim of that target whose sentence is `words`, or has them."""
        of_target = [each for each in self._rows if each.claim.target == target]
        fitting = [each for each in of_target if each.claim.what == words]
        fitting = fitting or [each for each in of_target if words in each.claim.what]
        if len(fitting) != 1:
            what = ", ".join(each.claim.what for each in fitting) or "none"
            raise Failure(f"{self._experiment.name}: one claim of {target} shall have {words!r}; found: {what}.")
        (row,) = fitting
        low, high = row.claim.expected(row.scale or 1.0)
        ends = [each for each in (low, high) if each is not None]
        paper = ends[0] if len(set(ends)) == 1 else f"{number(ends[0])} to {number(ends[1])}"
        return Row(row.mean, row.deviation, paper)

    def own(self, name: str, *arguments: Any, scale: float | None = None) -> float:
        """What a function of the experiment's `numbers` makes of each seed's records; the mean."""
        function = self._experiment.numbers[name]
        found = []
        for records in self._seeds(scale):
            with contextlib.suppress(NotRecorded):
                found.append(function(records, *arguments))
        if not found:
            raise NotRecorded(f"{self._experiment.name} has no records for {name}{arguments}.")
        return statistics.fmean(found)

    def across(self, name: str, *arguments: Any, scale: float | None = None) -> float:
        """What a function of the experiment makes of all seeds together, a list of the records of each."""
        return self._experiment.numbers[name](self._seeds(scale), *arguments)


def _marked(kind: str) -> Callable[[str], str]:
    """A number that no record gives."""

    def marked(text: str) -> str:
        if not re.search(r"\d", text):
            raise Failure(f"{kind}({text!r}) marks no number.")
        return text

    return marked


def _shown(value: Any) -> Any:
    return number(value) if isinstance(value, int | float) else value


FILTERS: Mapping[str, Callable[..., float | str]] = {
    "mib": lambda value: value / (1 << 20),
    "gib": lambda value: value / (1 << 30),
    "ms": lambda value: value * 1e3,
    "percent": lambda value: f"{100 * value:.0f} %",
    "to": lambda value, digits=0: f"{value:,.{digits}f}",
}  # fmt: skip
# What marks a number that no record gives: one that a paper states, one tried by hand, one that the run was given.
MARKS = ("paper", "tried", "given")


def filled(text: str, name: str, own: str = "") -> str:
    """A text with its fields filled in; `own` is the experiment that it belongs to."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, finalize=_shown, keep_trailing_newline=True, autoescape=False
    )
    environment.filters.update(FILTERS)
    context: dict[str, Any] = {kind: _marked(kind) for kind in MARKS}
    context |= {each: Source.named(each) for each in set(re.findall(r"\b(e\d\d)\.", text))}
    if own:
        mine = Source.named(own)
        context |= {"phase": mine.phase, "claim": mine.claim, "own": mine.own, "across": mine.across}
    try:
        return environment.from_string(text).render(context)
    except (jinja2.TemplateError, TypeError, LookupError, NotRecorded) as error:
        raise Failure(f"{name}: a field cannot be filled in from the records: {error}") from None


def path_of(chosen: Experiment) -> Path:
    return experiment.names()[chosen.name].with_suffix(".md")


@functools.cache
def _parsed(path: Path, number: str) -> Finding:
    text = path.read_text()
    where = str(path.relative_to(ROOT))
    title, _, rest = filled(text, where, number).partition("\n# ")[2].partition("\n")
    before, _, meaning = rest.partition(MEANING)
    reasons = []
    for line in re.split(r"\n(?=\* )", before.partition(WHY)[2].strip()):
        match = _REASON.fullmatch(" ".join(line.split()))
        if line and (match is None or match["kind"] not in KINDS):
            raise Failure(f"{where}: expected '* {{{' | '.join(KINDS)}}} (targets): why', not {line!r}.")
        if match is not None:
            targets = tuple(match["targets"].split(", ")) if match["targets"] else ()
            reasons.append(Reason(match["kind"], match["text"].removesuffix("."), targets))
    if not title:
        raise Failure(f"{where}: expected a title, '# ...', after the licence.")
    paragraphs = map(_wrapped, re.split(r"\n\s*\n", meaning.strip()))
    return Finding(title, tuple(reasons), "\n\n".join(paragraphs))


def _wrapped(paragraph: str) -> str:
    """Lines of equal length, for fields are longer than what they say; tables, lists, headings and pictures stay."""
    if re.match(r"\||\* |\d+\. |#|!|```| ", paragraph):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def of(chosen: Experiment) -> Finding:
    """What is said of an experiment; it may be nothing."""
    path = path_of(chosen)
    return _parsed(path, chosen.number) if path.exists() else Finding(chosen.name, (), "")


def _literal(field: str) -> str:
    match = re.match(r"\{\{-?\s*(\d[\d.,_]*|\"[^\"]*\"|'[^']*')|\{%-?\s*set \w+ = (\d[\d.,_]*)", field)
    return match[1] or match[2] if match else ""


def typed_numbers(text: str) -> list[str]:
    """Numbers that stand in a text itself, each with its line: not in a field, in code, or in a name.

    A literal that a field prints, or that is given a name, stands in the text, too.
    """
    plain = _NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n") + _literal(match[0]), text)
    found = []
    for line, words in enumerate(plain.splitlines(), 1):
        found += [f"line {line}: {each[0]}" for each in re.finditer(r"\d[\d.,]*", _NAMES.sub("", words))]
    return found

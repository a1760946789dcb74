# SPDX-License-Identifier: MIT OR Apache-2.0
"""Experiments: one file below experiments/ is one claim, how to run it, and what must be found."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.table import Table

from shingle.failure import Failure, unknown_name
from shingle.paths import ROOT
from shingle.runs import record
from shingle.runs.claims import Claim
from shingle.runs.record import Record
from shingle.runs.run import Run


@dataclass(frozen=True)
class Expectation:
    """A sentence about the records that is either true or false."""

    sentence: str
    holds: Callable[[Sequence[Record]], bool]


@dataclass(frozen=True)
class Experiment:
    """What is claimed, and the runs that show it. What was found stands in a Markdown file of the same name.

    `runs` takes the scale of the workload and the seed. Expectations are held to the experiment's own scale, on each
    seed; `claims` are a paper's numbers, which are compared and not held.
    """

    name: str
    claim: str
    runs: Callable[[float, int], list[Run]]
    phases: tuple[str, ...]
    expectations: tuple[Expectation, ...]
    scale: float = 1.0
    # Paper and section, for a paper's experiment.
    source: str = ""
    # The paper's run with something changed, to find what a number depends on.
    varied: bool = False
    claims: tuple[Claim, ...] = ()
    # What does not shrink with the workload, or what has to.
    scaling: str = ""
    # A smaller one than its own says nothing: a smaller set leaves it out.
    scalable: bool = True
    # What its text asks for by name, of the records of one seed; further arguments are the text's.
    numbers: Mapping[str, Callable[..., float]] = field(default_factory=dict)
    # Draws the records as one figure, a .svg and a .png of this stem.
    draw: Callable[[Sequence[Record], Path], None] | None = None
    # A page of docs/ that is made of its records, named as the experiment without its number.
    page: Callable[[Sequence[Record]], str] | None = None
    # What a reader wants to see of the records at the end.
    tables: Callable[[Sequence[Record]], Iterator[Table]] | None = None

    @property
    def number(self) -> str:
        return self.name.split("-")[0]

    def cells(self, scale: float, seed: int) -> dict[str, Run]:
        """The runs by their names, in order.

        A name is made of drive, file system and first phase; of those that are equal in these the second ends in -2,
        and so on. It depends on neither scale nor seed, and a cell that is added at the end changes no other's.
        """
        named: dict[str, Run] = {}
        alike: Counter[str] = Counter()
        for run in self.runs(scale, seed):
            parts = (run.profile.name, run.variant.name, run.plan.names[0])
            name = "_".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()) for part in parts)
            alike[name] += 1
            named[name if alike[name] == 1 else f"{name}-{alike[name]}"] = replace(run, experiment=self.name)
        return named

    def cell(self, name: str, scale: float, seed: int) -> Run:
        known = self.cells(scale, seed)
        if name not in known:
            raise unknown_name(f"cell of {self.name}", name, known)
        return known[name]

    def held(self, records: Sequence[Record]) -> list[bool | None]:
        """For each expectation whether every seed that has its cells meets it; None if none has."""
        seeds: dict[int, list[Record]] = {}
        for each in records:
            seeds.setdefault(each["seed"], []).append(each)
        found: list[bool | None] = []
        for expectation in self.expectations:
            answers = []
            for own in seeds.values():
                with contextlib.suppress(record.NotRecorded):
                    answers.append(expectation.holds(own))
            found.append(all(answers) if answers else None)
        return found

    def broken(self, records: Sequence[Record]) -> list[str]:
        """The expectations that these records do not meet."""
        return [each.sentence for each in self.expectations if not each.holds(records)]


def names() -> dict[str, Path]:
    """By number, whichever folder of experiments/ their topic put them into."""
    found = sorted((ROOT / "experiments").glob("*/e[0-9]*.py"), key=lambda path: path.name)
    return {path.stem.replace("_", "-"): path for path in found}


def all_of_them() -> list[Experiment]:
    return [load(path) for path in names().values()]


def find(name: str) -> Experiment:
    """The experiment of this name; its number alone is enough (`e01`)."""
    known = names()
    wanted = name.replace("_", "-").removesuffix(".py")
    matching = [each for each in known if each == wanted or each.split("-")[0] == wanted]
    if len(matching) != 1:
        raise unknown_name("experiment", name, known)
    return load(known[matching[0]])


def load(path: Path) -> Experiment:
    spec = importlib.util.spec_from_file_location(f"experiments.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise Failure(f"{path.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    experiment = getattr(module, "EXPERIMENT", None)
    if not isinstance(experiment, Experiment):
        raise Failure(f"{path.name} defines no EXPERIMENT.")
    return experiment


def records_of(chosen: Experiment, files: Sequence[Path] = ()) -> list[Record]:
    """What this experiment left in `files`, or in results/, in files that begin with its number."""
    if not files:
        return list(_committed(chosen.name))
    return [each for path in files for each in record.read(path) if each["experiment"] == chosen.name]


@functools.cache
def _committed(name: str) -> tuple[Record, ...]:
    """Read once: pages refer to each other's records."""
    files = sorted((ROOT / "results").glob(f"{name.partition('-')[0]}*.jsonl"))
    return tuple(each for path in files for each in record.read(path) if each["experiment"] == name)

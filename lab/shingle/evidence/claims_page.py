# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle claims` and pages of docs/results/: the papers' numbers beside ours, from records alone."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from shingle.build import build
from shingle.evidence import finding
from shingle.evidence.finding import Finding, Reason
from shingle.failure import Failure
from shingle.page import replaced
from shingle.paths import ROOT
from shingle.runs import expectations, experiment, provenance
from shingle.runs.claims import Claim, Judged, judged, number
from shingle.runs.experiment import Experiment, records_of
from shingle.runs.record import Record

RESULTS = ROOT / "docs/results"
PAGE = RESULTS / "claims.md"
_COLUMNS = ("target", "what", "paper", "ours", "error", "verdict")
_NUMBERS = ("paper", "ours", "error")

_LICENCE = "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n"
_HEAD = (
    _LICENCE
    + """# What the papers say, and what is measured here

*An index of verdicts, for readers of the papers: which of their numbers are reproduced here, and where the others are
explained. Made by `./shingle claims --write` from the records in `results/`; do not edit.*

{headline}

Each experiment has a page with its rows. A row is a number of a paper, or what a sentence of one comes to, beside the
value that the experiment's records give. `./shingle claims T13` prints the rows of a target; T1 to T47 number what the
papers say. Claims about a drive alone are in [drive-validation.md](drive-validation.md).

| verdict | |
|---|---|
| reproduced | within the paper's range or the row's tolerance: mostly 10 % of bytes and counts, 25 % of times |
| above, below | beyond it; "better" says on which side, and it is off all the same |
| not at this scale | means something at the paper's size only, and that was not run |
| did not finish | the file system did not bring the workload to its end here; the record says how |
| not run | no record |

Byte counts of a workload at a tenth are compared with a tenth of the paper's. With more than one seed, a value is the
mean and its standard deviation. "Varied" experiments change the paper's run to find what a number depends on.

"Stale" says that the records are of older code than the present, whose keys are in `results/present.json`. Nobody has
shown yet that they would be the same. Each page names its records' keys.

| experiment | what | targets | reproduced | not | records |
|---|---|---|--:|--:|---|
{index}
Experiments that repeat no number of a paper: {others}.

## Not reproduced, and why
{off}
## Changed expectations
{changes}"""
)


UNEXPLAINED = "not looked into"


def experiments() -> list[Experiment]:
    """Those that repeat something of a paper."""
    return [each for each in experiment.all_of_them() if each.claims]


def expected(claim: Claim, scale: float) -> str:
    low, high = claim.expected(scale or 1.0)
    if low is not None and high is not None:
        text = number(low) if low == high else f"{number(low)} to {number(high)}"
    elif low is not None:
        text = f"at least {number(low)}"
    elif high is not None:
        text = f"at most {number(high)}"
    else:
        raise Failure(f"{claim.target}: a claim needs a number.")
    return f"{text} {claim.unit}".strip()


def ours(each: Judged) -> str:
    if not each.values:
        return ""
    return f"{with_spread(each.mean, each.deviation or 0.0)} {each.claim.unit}".strip()


def with_spread(mean: float, deviation: float) -> str:
    """A mean of seeds, to the second digit of its standard deviation, if there is one, and to three of its own."""
    if not deviation:
        return number(mean)
    places = min(_places(mean, 3), _places(deviation, 2))
    return f"{mean:,.{places}f} ± {deviation:,.{places}f}"


def _places(value: float, digits: int) -> int:
    """Behind the point, so that so many digits of it are shown."""
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def error(each: Judged) -> str:
    if not each.values:
        return ""
    return "" if each.error == float("inf") else f"{each.error:+.0%}"


def cells(each: Judged) -> tuple[str, ...]:
    return (each.claim.target, each.claim.what, expected(each.claim, each.scale), ours(each), error(each), each.said)


def line(each: Judged) -> str:
    target, what, paper, measured, off, verdict = cells(each)
    return f"{target} {what}: paper {paper}, here {measured}{' (' + off + ')' if off else ''}: {verdict}"


def minutes(records: Sequence[Record]) -> float:
    """Of the host: a run counts once, though each of its phases carries it."""
    runs = {
        (each["drive"], each["file_system"], each["workload"], each["seed"], each["scale"]): float(
            each["host"]["run_s"]
        )
        for each in records
    }
    return sum(runs.values()) / 60


def command(chosen: Experiment, records: Sequence[Record]) -> str:
    scale = max((each["scale"] for each in records), default=chosen.scale)
    seeds = max((each["seed"] for each in records if each["scale"] == scale), default=1)
    asked = scale / _largest(chosen) * chosen.scale
    size = "" if math.isclose(asked, chosen.scale) else f" --scale {asked:g}"
    return f"./shingle run {chosen.number}{size}{f' --seeds {seeds}' if seeds > 1 else ''} --record FILE"


def _largest(chosen: Experiment) -> float:
    """The largest scale that its records have at its own: some run parts of a workload's."""
    return max(each.plan.scales[each.plan.names[-1]] for each in chosen.runs(chosen.scale, 1))


def setting(records: Sequence[Record]) -> str:
    """With what the claims were run; nothing if they were not."""
    if not records:
        return ""
    largest = max(each["scale"] for each in records)
    same = [each for each in records if each["scale"] == largest]
    memory = _range([each["configuration"]["memory_mib"] for each in same])
    seeds: dict[tuple[str, ...], set[int]] = {}
    for each in same:
        seeds.setdefault((each["drive"], each["file_system"], each["workload"]), set()).add(each["seed"])
    many = _range([len(each) for each in seeds.values()])
    of_seeds = f" for {many} seeds" if many != "1" else ""
    return f"scale {largest:g}, {memory} MiB of memory, {minutes(same):.0f} minutes of one core{of_seeds}."


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def tables(targets: Sequence[str] = (), files: Sequence[Path] = ()) -> Iterator[Table]:
    """For the terminal, one for each experiment; `targets` picks by the beginning of a number.

    Of `files`, if there are any: then only experiments that they have records of.
    """
    found = False
    for chosen in experiments():
        records = records_of(chosen, files)
        if files and not records:
            continue
        rows = [
            each
            for each in judged(chosen.claims, records)
            if not targets or any(each.claim.target.startswith(target) for target in targets)
        ]
        if not rows:
            continue
        found = True
        title = f"{command(chosen, records).removesuffix(' --record FILE')}   {chosen.source}"
        shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for heading in _COLUMNS:
            shown.add_column(heading, justify="right" if heading in _NUMBERS else "left")
        for each in rows:
            shown.add_row(*cells(each))
        yield shown
    if not found and not targets:
        names = " ".join(map(str, files))
        raise Failure(f"{names}: no record is of an experiment with claims; `./shingle show {names}` shows them.")
    if not found:
        known = sorted({claim.target for chosen in experiments() for claim in chosen.claims})
        raise Failure(f"no claim begins with {' or '.join(targets)}. Known: {', '.join(known)}.", status=2)


@dataclass(frozen=True)
class Count:
    """Of one kind of rows: how many are reproduced, and what became of the others that were run."""

    told: str
    reproduced: int
    of: int
    better: int
    unfinished: int


def counts(repeated: Sequence[Judged], varied: Sequence[Judged]) -> list[Count]:
    """By what was chosen for a row. What did not finish counts as not reproduced."""
    kinds = {told: [each for each in repeated if each.claim.basis == basis] for told, basis in _BASES.items()}
    return [_count(told, rows) for told, rows in (*kinds.items(), ("varied, to find reasons", varied))]


def _count(told: str, rows: Sequence[Judged]) -> Count:
    verdicts = Counter(each.verdict for each in rows if each.verdict not in ("not run", "not at this scale"))
    better = sum(each.said != each.verdict for each in rows)
    return Count(told, verdicts["reproduced"], verdicts.total(), better, verdicts["did not finish"])


def headline(repeated: Sequence[Judged], varied: Sequence[Judged]) -> str:
    said = "| rows | reproduced | of | off, on the better side | did not finish |\n|---|--:|--:|--:|--:|\n"
    for each in counts(repeated, varied):
        said += f"| {each.told} | {each.reproduced} | {each.of} | {each.better} | {each.unfinished} |\n"
    left = Counter(each.verdict for each in (*repeated, *varied))
    return said + f"\n{left['not at this scale']} rows need the paper's size, and {left['not run']} are not run."


_BASES = {
    "predicted: nothing was chosen for them": "predicted",
    "fitted: a setting was chosen because they, or others on the same host, are met with it": "fitted",
    "constructed: they can hardly fail": "constructed",
}


def off_rows(rows: Sequence[Judged]) -> list[Judged]:
    return [each for each in rows if each.verdict in ("above", "below", "did not finish")]


def not_reproduced(chosen: Experiment, reasons: Sequence[Reason], rows: Sequence[Judged]) -> str:
    """A line with the targets that are off and the reasons; nothing if none are."""
    off = off_rows(rows)
    if not off:
        return ""
    targets = ", ".join(dict.fromkeys(each.claim.target for each in off))
    why = "; ".join(map(str, reasons)) or UNEXPLAINED
    return f"* {_link(chosen)}, {len(off)} of {len(rows)} rows ({targets}): {linked(why)}.\n"


def _link(chosen: Experiment) -> str:
    return f"[{chosen.number}]({chosen.number}.md)"


def linked(text: str) -> str:
    """Other experiments that a text names, as links to their pages, if they have one."""

    def link(match: re.Match[str]) -> str:
        return f"[{match[0]}]({match[0]}.md)" if match[0] in _linkable() else match[0]

    parts = re.split(r"(```.*?```|`[^`]*`|\[[^\]]*\]\([^)]*\))", text, flags=re.DOTALL)
    return "".join(each if place % 2 else re.sub(r"\be\d\d\b", link, each) for place, each in enumerate(parts))


@functools.cache
def _linkable() -> frozenset[str]:
    return frozenset(each.number for each in experiment.all_of_them() if has_page(each))


def has_page(chosen: Experiment) -> bool:
    """One of docs/results/: what has claims or a text, and no page that it makes itself."""
    return chosen.page is None and (bool(chosen.claims) or finding.path_of(chosen).exists())


def _index_row(chosen: Experiment, found: Finding, rows: Sequence[Judged], records: Sequence[Record]) -> str:
    targets = ", ".join(dict.fromkeys(each.claim.target for each in rows))
    good = sum(each.verdict == "reproduced" for each in rows)
    varied = ", varied" if chosen.varied else ""
    kept = provenance.worst(chosen, records) if records else ""
    return f"| {_link(chosen)} | {found.title}{varied} | {targets} | {good} | {len(rows) - good} | {kept} |\n"


def page(chosen: Experiment) -> str:
    """An experiment's page: its claim, how to run it, its rows, why they differ, and what it means."""
    records, found = records_of(chosen), finding.of(chosen)
    rows = judged(chosen.claims, records)
    said = f"{_LICENCE}# {chosen.number}: {found.title}\n\n"
    said += f"*The claim: {chosen.claim}.{f' {chosen.source}.' if chosen.source else ''}"
    said += " Made by `./shingle claims --write` from the records in `results/` and"
    said += f" `{finding.path_of(chosen).relative_to(ROOT)}`; do not edit.*\n\n"
    said += f"`{command(chosen, records)}`" + (f", {setting(records)}" if records else "")
    said += f" {chosen.scaling}" if chosen.scaling else ""
    said += f"\n\n{provenance.told(chosen, records)}" if records else ""
    if chosen.claims:
        counts = Counter(each.verdict for each in rows)
        said += f"\n\n**{', '.join(f'{many} {verdict}' for verdict, many in counts.items())}**"
        said += "\n\n| " + " | ".join(_COLUMNS) + " |\n|---|---|--:|--:|--:|---|\n"
        said += "".join("| " + " | ".join(cells(each)) + " |\n" for each in rows).rstrip("\n")
    if chosen.expectations:
        said += "\n\n## What must be found\n" + "\n".join(_expectations(chosen, records))
    if found.reasons:
        said += f"\n\n{finding.WHY}" + "\n".join(f"* {linked(str(each))}." for each in found.reasons)
    return said + (f"\n\n{finding.MEANING}{linked(found.meaning)}\n" if found.meaning else "\n")


_HELD = {True: "held", False: "**not held**", None: "not recorded"}


def _expectations(chosen: Experiment, records: Sequence[Record]) -> list[str]:
    sentences = [each.sentence for each in chosen.expectations]
    return [f"* {_HELD[held]}: {text}." for text, held in zip(sentences, chosen.held(records), strict=True)]


def _all_judged(varied: bool) -> list[Judged]:
    chosen = [each for each in experiments() if each.varied == varied]
    return [row for each in chosen for row in judged(each.claims, records_of(each))]


def score() -> str:
    """README's sentence on the papers' numbers."""
    predicted = counts(_all_judged(False), ())[0]
    return (
        f"Of {predicted.of} numbers of the papers for which nothing was fitted here, {predicted.reproduced} are"
        f" reproduced, and {predicted.better} are off on the better side ([verdicts](docs/results/claims.md)).\n"
    )


def markdown() -> str:
    index, off = "", ""
    for chosen in experiments():
        found = finding.of(chosen)
        rows = judged(chosen.claims, records_of(chosen))
        index += _index_row(chosen, found, rows, records_of(chosen))
        off += not_reproduced(chosen, found.reasons, rows)
    others = [each for each in experiment.all_of_them() if not each.claims]
    told = [f"{finding.of(each).title} ([{each.number}]({_file(each)}))" for each in others]
    sums = headline(_all_judged(False), _all_judged(True))
    return _HEAD.format(
        headline=sums, index=index, off=off, others="; ".join(told), changes=expectations.changes_page()
    )


def _file(chosen: Experiment) -> str:
    return f"{chosen.number if chosen.page is None else chosen.name.partition('-')[2]}.md"


# Pages with a table that is filled in from records; the rest of them is written by hand.
_HEADLINES = {ROOT / "README.md": "front_page.md.j2", ROOT / "docs/guide/owners-guide.md": "owners_guide.md.j2"}
_TABLES = _HEADLINES | {
    RESULTS / "shown.md": "shown.md.j2",
    ROOT / "docs/guide/tune.md": "tune.md.j2",
    ROOT / "docs/guide/nas.md": "nas.md.j2",
    ROOT / "docs/guide/programs.md": "programs.md.j2",
}
# docs/figures/first-light.png
_PICTURE = "e01"
_BEGIN, _END = "<!-- `./shingle claims --write` makes what follows -->\n", "<!-- end of what is made -->\n"


def headlines() -> list[Experiment]:
    """The experiments whose numbers and picture README and the owner's guide show."""
    return _named_in(_PICTURE, *(_template(path) for path in _HEADLINES))


def _template(path: Path) -> str:
    return Path(__file__).with_name(_TABLES[path]).read_text()


def _named_in(*texts: str) -> list[Experiment]:
    return [experiment.find(name) for name in sorted(set(re.findall(r"\be\d\d\b", " ".join(texts))))]


def with_table(path: Path) -> str:
    """The page with the few numbers that it shows, and which are stale; README says that for the owner's guide, too."""
    name = str(Path(__file__).with_name(_TABLES[path]).relative_to(ROOT))
    made = finding.filled(_template(path).partition("-->\n")[2], name)
    shown = headlines() if path in _HEADLINES else _named_in(_template(path))
    stale = [each.number for each in shown if provenance.worst(each, records_of(each)) == "stale"]
    made += f"\n{score()}" if path.name == "README.md" else ""
    if stale and path.name != "owners-guide.md":
        # README is to stay short.
        made += "" if path.name == "README.md" else "\n"
        made += f"The records of {', '.join(stale)} are of older code than the present (their pages say of which).\n"
    return replaced(path.read_text(), _BEGIN, _END, made, path)


def cover_letter() -> str:
    """Of the series for review: its subject, an empty line, and its text."""
    template = Path(__file__).with_name("cover_letter.txt.j2")
    text = finding.filled(template.read_text(), str(template.relative_to(ROOT)))
    return f"{text}\nBased on Linux {build.pinned_version()}.\n"


def pages() -> dict[Path, str]:
    """All that is made of experiments' records: the index, the pages, and tables in pages written by hand."""
    made = {PAGE: markdown()} | {path: with_table(path) for path in _TABLES}
    for chosen in experiment.all_of_them():
        records = records_of(chosen)
        if chosen.page is not None and records:
            text = (
                chosen.page(records)
                + f"\n{provenance.told(chosen, records)}\n\n{finding.MEANING}{linked(finding.of(chosen).meaning)}\n"
            )
            made[RESULTS / _file(chosen)] = text
        elif has_page(chosen):
            made[RESULTS / _file(chosen)] = page(chosen)
    return made


def write() -> list[str]:
    """Renews the pages; the names of those that changed."""
    RESULTS.mkdir(exist_ok=True)
    changed = []
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(str(path.relative_to(ROOT)))
    return changed

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`./shingle report`: claims, figures and records as one HTML file that asks nobody for anything.

The page is report.html.j2; report.css and report.js go into it. The same records give the same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from shingle.evidence import claims_page, figures, finding, own, plot, table
from shingle.paths import ROOT
from shingle.runs import experiment, record
from shingle.runs.claims import Judged, Verdict, judged
from shingle.runs.experiment import Experiment
from shingle.runs.record import NotRecorded, Record

_HERE = Path(__file__).parent
_LIMIT_S = 30
# Its figure stands at the top: what all of it comes to.
FIRST = "e42-full-cache"
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# What a verdict looks like without its colour.
_SIGNS: dict[Verdict, str] = {
    "reproduced": "✓", "above": "✗", "below": "✗", "did not finish": "✗", "not at this scale": "○",
    "not run": "○",
}  # fmt: skip
_REASONS: dict[Verdict, str] = {
    "not at this scale": "They mean something at the paper's size only, and that was not run.",
    "not run": "There is no record of them.",
}


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `key` is what it is sorted by, if not its text. The empty key comes last."""

    text: str
    key: str = ""
    sign: str = ""
    # Of a verdict: which colour it has.
    look: str = ""

    @property
    def sorted_by(self) -> str:
        return self.key or self.text


_MARKS = {
    True: Cell("held", sign="✓", look="good"),
    False: Cell("not held", sign="✗", look="off"),
    None: Cell("not recorded", sign="○", look="open"),
}


@dataclass(frozen=True)
class Table:
    """Everything that the page needs of one; the first column names the row."""

    name: str
    caption: str
    columns: tuple[tuple[str, bool], ...]  # heading, whether numbers
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def csv(self) -> str:
        """All of it as a link that carries its file."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([heading for heading, _ in self.columns])
        # A number as it was measured, where the cell shows it rounded.
        writer.writerows(
            [cell.key.strip() or cell.text if number else cell.text
             for cell, (_, number) in zip(row, self.columns, strict=True)]
            for row in self.rows
        )  # fmt: skip
        return f"data:text/csv;base64,{base64.b64encode(text.getvalue().encode()).decode()}"


@dataclass(frozen=True)
class Section:
    """An experiment."""

    name: str
    title: str
    claim: str
    source: str
    command: str
    setting: str
    scaling: str
    finding: Markup
    # What a run must show, and whether these records do.
    held: tuple[tuple[str, Cell], ...]
    claims: Table | None
    records: Table | None
    figure: Markup | None
    # In place of the figure.
    undrawn: str


@dataclass(frozen=True)
class Off:
    """Claims of one experiment that are not reproduced, and why."""

    name: str
    title: str
    reason: str
    claims: Table


def html(files: Sequence[Path] = (), tell: Callable[[str], None] = lambda text: None) -> str:
    """The page, of the records in `files`, those of no experiment included, or of those in results/.

    `tell` is told which experiment is being drawn.
    """
    given = [each for path in files for each in record.read(path)]
    if files and not given:
        raise NotRecorded(f"{', '.join(map(str, files))}: no records.")
    sections, off, records = [], [], 0
    everything: dict[bool, list[Judged]] = {False: [], True: []}
    chosen_from = experiment.all_of_them()
    experiments = {each.name for each in chosen_from}
    with tempfile.TemporaryDirectory(prefix="shingle-report-") as folder:
        for number, chosen in enumerate(chosen_from, 1):
            tell(f"{chosen.name}, {number} of {len(chosen_from)}")
            kept = (
                [each for each in given if each["experiment"] == chosen.name]
                if files
                else experiment.records_of(chosen)
            )
            if files and not kept:
                continue
            rows = judged(chosen.claims, kept)
            everything[chosen.varied] += rows
            records += len(kept)
            sections.append(_section(chosen, kept, rows, *_figure(chosen, kept, Path(folder))))
            off += list(_not_reproduced(chosen, rows))
        if others := [each for each in given if each["experiment"] not in experiments]:
            sections.insert(0, _of_no_experiment(others, Path(folder)))
            records += len(others)
    script = Markup((_HERE / "report.js").read_text())
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("report.html.j2").render(
        sections=sections,
        off=off,
        counts=_counts(claims_page.counts(everything[False], everything[True])),
        state=_state(),
        first=next((each for each in sections if each.name == FIRST and each.figure), None),
        verdicts=_verdicts([*everything[False], *everything[True]]),
        records=records,
        style=Markup((_HERE / "report.css").read_text()),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _state() -> str:
    """The commit of the clone and its date, so that the same commit gives the same bytes; empty without git."""
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=commit %h of %cs"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=_LIMIT_S).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _section(
    chosen: Experiment, records: Sequence[Record], rows: Sequence[Judged], figure: Markup | None, undrawn: str
) -> Section:
    return Section(
        name=chosen.name,
        title=_title(chosen),
        claim=_sentence(chosen.claim),
        source=chosen.source,
        command=claims_page.command(chosen, records),
        setting=_first_up(claims_page.setting(records)),
        scaling=chosen.scaling,
        finding=_prose(finding.of(chosen).meaning),
        held=tuple(
            (_sentence(each.sentence), _MARKS[held])
            for each, held in zip(chosen.expectations, chosen.held(records), strict=True)
        ),
        claims=_claims(f"{chosen.name}-claims", f"The paper's numbers beside ours: {chosen.name}", rows)
        if rows
        else None,
        records=_records(chosen.name, records) if records else None,
        figure=figure,
        undrawn=undrawn,
    )


def _of_no_experiment(records: Sequence[Record], folder: Path) -> Section:
    """What `compare` and others recorded: a table and a figure, and no claim."""
    name = "runs-of-your-own"
    try:
        own.draw(records, folder / name)
        title = "Virtual time of each phase, by file system", "Bars: the work, and the drive's cleaning after it."
        figure, undrawn = Markup(inlined((folder / f"{name}.svg").read_text(), name, title)), ""
    except NotRecorded as missing:
        figure, undrawn = None, _sentence(str(missing).removesuffix("."))
    return Section(
        name=name, title="Runs of your own",
        claim="Runs that are of no experiment.", source="", command="./shingle compare … --record FILE",
        setting=_first_up(claims_page.setting(records)), scaling="", finding=Markup(), held=(), claims=None,
        records=_records(name, records), figure=figure, undrawn=undrawn,
    )  # fmt: skip


def _title(chosen: Experiment) -> str:
    """As in the text beside it, behind its number: `E14: a file server…`."""
    return f"{chosen.number.upper()}: {finding.of(chosen).title}"


def _prose(text: str) -> Markup:
    """Markdown as a part of the page, up to its first heading, without links, which lead out of the page."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text.partition("\n### ")[0])
    return Markup(MarkdownIt("commonmark", {"html": False}).render(plain))


def _sentence(text: str) -> str:
    return f"{_first_up(text)}."


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- Tables -------------------------------------------------------------------


def _counts(kinds: Sequence[claims_page.Count]) -> Table:
    columns = (("rows", False), ("reproduced", True), ("of", True), ("better", True), ("did not finish", True))
    rows = ((each.told, str(each.reproduced), str(each.of), str(each.better), str(each.unfinished)) for each in kinds)
    return Table("counts", "What is reproduced", columns, tuple(tuple(map(Cell, row)) for row in rows))


def _verdicts(rows: Sequence[Judged]) -> Table:
    counts = Counter(row.verdict for row in rows)
    return Table(
        "verdicts",
        "Verdicts",
        (("verdict", False), ("claims", True)),
        tuple((_verdict(verdict), Cell(str(counts[verdict]))) for verdict in _SIGNS),
    )


def _verdict(verdict: Verdict, said: str = "") -> Cell:
    look = {"✓": "good", "✗": "off"}.get(_SIGNS[verdict], "open")
    return Cell(said or verdict, sign=_SIGNS[verdict], look=look)


def _claims(name: str, caption: str, rows: Sequence[Judged]) -> Table:
    columns = (
        ("what", False), ("target", False), ("paper", True), ("ours", True), ("seeds", True), ("error", True),
        ("verdict", False),
    )  # fmt: skip
    return Table(name, caption, columns, tuple(_claim(row) for row in rows))


def _claim(row: Judged) -> tuple[Cell, ...]:
    low, high = row.claim.expected(row.scale or 1.0)
    target, what, paper, ours, error, _ = claims_page.cells(row)
    return (
        Cell(what),
        Cell(target),
        Cell(paper, repr(high if low is None else low)),
        Cell(ours, repr(row.mean) if row.values else ""),
        Cell(str(len(row.values)) if row.values else ""),
        Cell(error, repr(row.error) if error else ""),
        _verdict(row.verdict, row.said),
    )


def _not_reproduced(chosen: Experiment, rows: Sequence[Judged]) -> Iterator[Off]:
    """By reason: those of the experiment, with its finding; or that it was not run."""
    found = finding.of(chosen)
    why = ". ".join(each[0].upper() + each[1:] for each in map(str, found.reasons)) or claims_page.UNEXPLAINED
    why = f"{why}."
    reasons: dict[str, list[Judged]] = {}
    for row in rows:
        if row.verdict != "reproduced":
            reasons.setdefault(_REASONS.get(row.verdict, why), []).append(row)
    for place, (reason, claims) in enumerate(reasons.items()):
        verdicts = " or ".join(dict.fromkeys(row.verdict for row in claims))
        caption = f"Claims of {chosen.name}: {verdicts}"
        yield Off(chosen.name, _title(chosen), reason, _claims(f"{chosen.name}-off-{place}", caption, claims))


def _records(name: str, records: Sequence[Record]) -> Table:
    """What the figures are drawn from: means over the seeds, with their standard deviations."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for each in records:
        scales = each["configuration"]["scales"].get(each["phase"], each["scale"])
        setting = (each["workload"], f"{each['configuration']['memory_mib']}", f"{each['configuration']['name_ns']}")
        groups.setdefault((each["phase"], each["file_system"], each["drive"], f"{scales:g}", *setting), []).append(each)
    columns = (
        ("phase", False), ("file system", False), ("drive", False), ("scale", True), ("seeds", True),
        ("virtual s", True), ("data MiB written", True), ("metadata MiB written", True),
        ("journal MiB written", True), ("metadata MiB read", True), ("bands cleaned", True), ("cleaning s", True),
    )  # fmt: skip
    rows = []
    for (phase, file_system, drive, scale, *_), same in groups.items():
        seeds = len({each["seed"] for each in same})
        values = [
            _measured(same, field)
            for field in ("virtual_s", "data_written_bytes", "metadata_written_bytes", "journal_written_bytes",
                          "metadata_read_bytes", "bands_cleaned", "cleaning_s")
        ]  # fmt: skip
        failed = " (failed)" if any("failed" in each for each in same) else ""
        rows.append((Cell(phase + failed), Cell(file_system), Cell(drive), Cell(scale), Cell(str(seeds)), *values))
    return Table(f"{name}-records", f"What {name} recorded", columns, tuple(rows))


def _measured(records: Sequence[Record], field: str) -> Cell:
    found = [each[field] for each in records if each[field] is not None]
    if not found:
        return Cell(table.NOT_AVAILABLE, key=" ")
    values = [value / (1 << 20) if field.endswith("_bytes") else float(value) for value in found]
    mean = statistics.fmean(values)
    return Cell(claims_page.with_spread(mean, statistics.stdev(values) if len(values) > 1 else 0.0), repr(mean))


# --- Figures ------------------------------------------------------------------


def _figure(chosen: Experiment, records: Sequence[Record], folder: Path) -> tuple[Markup | None, str]:
    """An experiment's figure, or why there is none."""
    try:
        stem = figures.draw(chosen, folder, records)
    except NotRecorded as missing:
        return None, _sentence(str(missing).removesuffix("."))
    text = stem.with_suffix(".svg").read_text()
    return Markup(inlined(text, chosen.name, _named(chosen))), ""


def _named(chosen: Experiment) -> tuple[str, str]:
    """What a screen reader says: the name, and what is to be seen."""
    title = f"{chosen.name}: {chosen.source}" if chosen.source else f"Figure of {chosen.name}"
    return title, f"{_sentence(chosen.claim)} The values are in the tables of this section."


def inlined(svg: str, name: str, named: tuple[str, str]) -> str:
    """A drawing of matplotlib as a part of the page: names that are unique in it, and the reader's own colours."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(svg)
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for attribute in ("width", "height"):
        root.attrib.pop(attribute)
    for each in root.iter():
        for key, value in each.attrib.items():
            if key == "id":
                each.set(key, f"{name}-{value}")
            elif key == f"{{{_XLINK}}}href":
                each.set(key, f"#{name}-{value.removeprefix('#')}")
            else:
                value = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", value)
                each.set(key, value.replace(plot.INK, "currentColor").replace(plot.PAPER, "var(--page)"))
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title", "aria-describedby": f"{name}-description"}
    for place, (tag, text) in enumerate(zip(("title", "desc"), named, strict=True)):
        said = ElementTree.Element(f"{{{_SVG}}}{tag}", {"id": f"{name}-{'title' if tag == 'title' else 'description'}"})
        said.text = text
        root.insert(place, said)
    return ElementTree.tostring(root, encoding="unicode")

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report as text; tests/browser has what a reader does with it."""

import base64
import csv
import html
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from shingle.cli import main
from shingle.evidence import claims_page, figures, finding, report
from shingle.paths import ROOT
from shingle.runs import experiment
from shingle.runs.claims import judged
from shingle.runs.record import NotRecorded

_VOID = {"meta", "link", "br", "img", "input", "hr"}
# Few, and quickly drawn.
FILES = (ROOT / "results/e16.jsonl", ROOT / "results/e19.jsonl")


class Reader(HTMLParser):
    """Refuses what is not nested properly, and keeps what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in _VOID:
            return
        self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        if self.open[-1:] in (["td"], ["th"]):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def text() -> str:
    return report.html(FILES)


@pytest.fixture(scope="module")
def page(text: str) -> Reader:
    return Reader(text)


def test_it_asks_no_server_for_anything(text: str, page: Reader) -> None:
    for tag, attributes in page.tags:
        carried = "data:text/csv;base64," if tag == "a" and "download" in attributes else "#"
        for name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
            assert (attributes.get(name) or carried).startswith(carried), (tag, attributes)
        assert tag not in ("link", "iframe", "object", "embed", "base", "image", "img")
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    (policy,) = [each["content"] for _, each in page.tags if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none'")


def test_the_same_records_give_the_same_bytes(text: str) -> None:
    assert report.html(FILES) == text


def test_names_are_unique_and_references_lead_somewhere(text: str, page: Reader) -> None:
    names = [each["id"] for _, each in page.tags if "id" in each]
    assert len(set(names)) == len(names)
    for _, each in page.tags:
        referred = (each.get("aria-labelledby") or "").split() + (each.get("aria-describedby") or "").split()
        referred += [value[1:] for key in ("href", "xlink:href") if (value := each.get(key)) and value[0] == "#"]
        assert set(referred) <= set(names), each
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(names)


def test_headings_skip_no_level(page: Reader) -> None:
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.headings, page.headings[1:], strict=False))


def test_it_has_landmarks_a_language_and_named_tables_and_figures(page: Reader) -> None:
    tags = [tag for tag, _ in page.tags]
    assert {"header", "nav", "main", "footer"} <= set(tags)
    assert ("html", {"lang": "en"}) in page.tags
    assert tags.count("caption") == tags.count("table")
    assert all("scope" in each for tag, each in page.tags if tag == "th")
    drawings = [each for tag, each in page.tags if tag == "svg"]
    assert len(drawings) == len(FILES)
    assert all(each["role"] == "img" and each["aria-labelledby"] for each in drawings)


def test_every_table_comes_as_a_file_with_its_rows(page: Reader) -> None:
    files = [each for tag, each in page.tags if tag == "a" and "download" in each]
    assert len(files) == [tag for tag, _ in page.tags].count("table") == len({each["download"] for each in files})
    rows = []
    for each in files:
        text = base64.b64decode((each["href"] or "").partition(",")[2]).decode()
        rows += list(csv.reader(io.StringIO(text)))
    assert len(rows) == len(page.rows)
    # The first column is no number: it is the same text, but for the heads, which are buttons.
    assert all(shown[0].strip() in ("", row[0]) for row, shown in zip(rows, page.rows, strict=True))


def test_a_file_has_numbers_as_they_were_measured(text: str) -> None:
    carried = re.findall(r'download="e16[^"]*-records.csv" href="data:text/csv;base64,([^"]*)"', text)
    (rows,) = [list(csv.DictReader(io.StringIO(base64.b64decode(each).decode()))) for each in carried]
    measured = {json.loads(line)["virtual_s"] for line in FILES[0].read_text().splitlines()}
    assert {float(row["virtual s"]) for row in rows} <= measured


def test_it_says_what_this_is_with_the_commit_and_marks_what_held(text: str, undrawn: str) -> None:
    assert text.index("What this is") < text.index("Summary</h2>")
    assert re.search(r"<p>commit [0-9a-f]+ of \d{4}-\d\d-\d\d</p>", text)
    listed = undrawn[undrawn.index('id="e42-full-cache"') :]
    listed = listed[listed.index("What a run must show") :]
    assert '<span class="good"><span aria-hidden="true">✓</span> held</span>' in listed[: listed.index("</ul>")]


def test_what_held_is_marked_as_on_the_pages_of_claims(undrawn: str) -> None:
    sections = {part.partition('"')[0]: part for part in undrawn.split('<section aria-labelledby="')[1:]}
    marked = 0
    for chosen in claims_page.experiments():
        page = (claims_page.RESULTS / f"{chosen.number}.md").read_text()
        for mark, words in (("held", "held"), ("not held", "**not held**"), ("not recorded", "not recorded")):
            count = sections[chosen.name].count(f"</span> {mark}</span>: ")
            assert count == page.count(f"\n* {words}: "), chosen.name
            marked += count
    assert marked > 50


def test_an_expectation_that_does_not_hold_is_marked(tmp_path: Path) -> None:
    records = [json.loads(line) for line in (ROOT / "results/e42.jsonl").read_text().splitlines()]
    for each in records:
        if each["file_system"].startswith("f2fs"):
            each["virtual_s"] = 1e6
    file = tmp_path / "slow.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    assert "✗</span> not held" in report.html([file])


def test_a_mean_has_as_many_digits_as_its_spread_allows() -> None:
    shown = claims_page.with_spread
    assert shown(3.1416, 0.048) == "3.14 ± 0.05"
    assert shown(65.66, 4.42) == "65.7 ± 4.4"
    assert shown(12345.6, 321.9) == "12,346 ± 322"
    assert shown(0.1234, 0.0) == "0.123"


@pytest.fixture(scope="module")
def undrawn() -> Iterator[str]:
    """Of all committed records, without the figures, which take long."""

    def not_drawn(*_: object) -> Path:
        raise NotRecorded("not drawn.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", not_drawn)
        yield report.html()


def test_every_row_of_the_pages_of_claims_is_in_it(undrawn: str) -> None:
    found = {tuple(cell.strip() for cell in row) for row in Reader(undrawn).rows}
    texts = [path.read_text() for path in sorted(claims_page.RESULTS.glob("e*.md"))]
    lines = [line for text in texts for line in text.splitlines() if re.match(r"\| T\d", line)]
    assert lines
    for line in lines:
        target, what, paper, ours, off, verdict = (cell.strip() for cell in line.strip("|").split("|"))
        assert any((*row[:4], *row[5:]) == (what, target, paper, ours, off, verdict) for row in found), line


def test_what_is_not_reproduced_has_its_reason(undrawn: str) -> None:
    start, end = undrawn.index('id="off"'), undrawn.index('id="e01-first-light"')
    listed = html.unescape(undrawn[start:end])
    for chosen in claims_page.experiments():
        rows = judged(chosen.claims, experiment.records_of(chosen))
        wrong = [row for row in rows if row.verdict in ("above", "below", "did not finish")]
        assert (f"claims of {chosen.name}: " in listed.lower()) == any(row.verdict != "reproduced" for row in rows)
        if wrong:
            assert all(each.text in listed for each in finding.of(chosen).reasons)
        for row in wrong:
            assert row.claim.what in listed


def test_seeds_are_shown_as_mean_and_deviation(tmp_path: Path) -> None:
    lines = FILES[0].read_text().splitlines()
    second = [json.loads(line) | {"seed": 2} for line in lines]
    for each in second:
        each["virtual_s"] *= 1.1
    file = tmp_path / "two.jsonl"
    file.write_text("".join(f"{line}\n" for line in (*lines, *map(json.dumps, second))))
    (row,) = [row for row in Reader(report.html([file])).rows if row[0].endswith("directory, ext4-10g")][:1]
    assert row[3] == "65.7 ± 4.4 s"
    assert row[4] == "2"


def test_text_from_records_cannot_become_markup(tmp_path: Path) -> None:
    records = [json.loads(line) for line in FILES[0].read_text().splitlines()]
    for each in records:
        each["drive"] = "<script>alert(1)</script>"
    file = tmp_path / "bad.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    text = report.html([file])
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_the_command_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "folder/mine.html"
    answered = CliRunner().invoke(main.cli, ["report", "--record", str(FILES[0]), "-o", str(path)])
    assert answered.exit_code == 0, answered.output
    Reader(path.read_text())


def test_a_text_s_markup_is_rendered_and_what_looks_like_html_is_text() -> None:
    made = report._prose("**Bold** and [e14](e14.md), <script>x</script>\n\n### Tables\n\n| a |\n")
    assert made == "<p><strong>Bold</strong> and e14, &lt;script&gt;x&lt;/script&gt;</p>\n"

# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report, opened and clicked through in a real browser.

`./shingle test --browser` installs Debian's Chromium and runs this; the page is made of the records in results/.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from shingle.evidence import claims_page, report

if TYPE_CHECKING:
    from chromium import Page

pytestmark = pytest.mark.browser

CLAIMS = "e14-smr-postmark-claims"
COLUMN = {"what": 0, "ours": 3, "verdict": 6}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    import chromium

    folder = tmp_path_factory.mktemp("report")
    file = folder / "report.html"
    file.write_text(report.html())
    with chromium.browser(file, folder / "profile") as started:
        yield started


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """Whatever a test does with it, it asks for nothing but the file, and the console stays empty."""
    browser.open()
    yield browser
    assert browser.requested() == [browser.url]
    assert browser.complaints() == []


def table(page: Page) -> str:
    """Of the claims of an experiment with many."""
    return f'[aria-labelledby="{CLAIMS}"]'


def keys(page: Page, column: str) -> list[str]:
    selector = f"{table(page)} tbody tr > :nth-child({COLUMN[column] + 1})"
    return [str(cell.get_attribute("data-key")) for cell in page.all(selector)]


def button(page: Page, column: str):  # type: ignore[no-untyped-def]
    return page.one(f"{table(page)} thead th:nth-child({COLUMN[column] + 1}) button")


def sorted_by(page: Page) -> list[str | None]:
    return [heading.get_attribute("aria-sort") for heading in page.all(f"{table(page)} thead th")]


def test_a_table_is_sorted_by_click_and_by_keyboard(page: Page) -> None:
    from chromium import ENTER, SPACE

    before = keys(page, "ours")
    assert set(sorted_by(page)) == {None}
    assert before != sorted(before, key=float)
    button(page, "ours").click()
    assert keys(page, "ours") == sorted(before, key=float)
    assert sorted_by(page)[COLUMN["ours"]] == "ascending"
    page.focus(button(page, "ours"))
    page.press(ENTER)
    assert keys(page, "ours") == sorted(before, key=float, reverse=True)
    assert sorted_by(page)[COLUMN["ours"]] == "descending"
    assert page.focused == button(page, "ours")
    page.focus(button(page, "verdict"))
    page.press(SPACE)
    assert keys(page, "verdict") == sorted(keys(page, "verdict"))
    assert [each for each in sorted_by(page) if each] == ["ascending"]
    assert "by verdict, ascending" in page.one("[role=status]").text
    # Nothing was lost on the way.
    assert sorted(keys(page, "ours")) == sorted(before)


def test_what_is_missing_comes_last_either_way(page: Page) -> None:
    records = '[aria-labelledby="e10-log-space-records"]'
    page.run("for (const details of document.querySelectorAll('details')) details.open = true")
    heading = page.one(f"{records} thead th:nth-child(6) button")
    page.run("document.querySelectorAll('[aria-labelledby=\"e10-log-space-records\"] tbody tr')[3]"
             ".cells[5].dataset.key = ''")  # fmt: skip
    for _ in ("ascending", "descending"):
        heading.click()
        cells = page.all(f"{records} tbody tr > :nth-child(6)")
        assert [cell.get_attribute("data-key") == "" for cell in cells] == [False] * (len(cells) - 1) + [True]


def test_a_figure_opens_by_keyboard_and_closes_with_escape(page: Page) -> None:
    from chromium import ENTER, ESCAPE, TAB

    opener = page.one("#e14-smr-postmark ~ figure .enlarge")
    page.focus(opener)
    page.press(ENTER)
    dialog = page.one("#zoom")
    assert dialog.is_displayed()
    assert "e14-smr-postmark" in page.one("#zoom-name").text
    drawing = page.one("#zoom svg")
    width = drawing.size["width"]
    for _ in range(8):
        page.press(TAB)
        assert page.run("return document.activeElement === document.body || arguments[0].contains("
                        "document.activeElement)", dialog)  # fmt: skip
    page.focus(page.one("#larger"))
    page.press(ENTER)
    assert page.one("#zoom svg").size["width"] > 1.4 * width
    page.press(ESCAPE)
    assert not dialog.is_displayed()
    assert page.focused == opener
    assert page.one("#e14-smr-postmark ~ figure svg").is_displayed()
    assert page.all("#zoom svg") == []


def test_a_figure_opens_and_closes_by_click(page: Page) -> None:
    drawing = page.one("#e11-cmr-microbenchmarks ~ figure .drawing")
    page.run("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", drawing)
    drawing.click()
    assert page.one("#zoom").is_displayed()
    page.one("#close").click()
    assert not page.one("#zoom").is_displayed()
    assert page.focused == page.one("#e11-cmr-microbenchmarks ~ figure .enlarge")


def test_colours_follow_the_system_and_the_switch(page: Page) -> None:
    def background() -> str:
        return str(page.run("return getComputedStyle(document.body).backgroundColor"))

    page.prefer("light")
    light = background()
    page.prefer("dark")
    dark = background()
    assert light != dark
    switch = page.one("#dark")
    assert switch.get_attribute("aria-pressed") == "true"
    switch.click()
    assert background() == light
    assert switch.get_attribute("aria-pressed") == "false"
    page.prefer("light")
    switch.click()
    assert background() == dark


@pytest.mark.parametrize(("colours", "width"), [("light", 1200), ("dark", 320)])
def test_axe_finds_nothing(page: Page, colours: str, width: int) -> None:
    page.prefer(colours)
    page.narrow(width)
    page.one("details").click()
    assert page.violations() == []
    page.one(".enlarge").click()
    assert page.violations("#zoom") == []


@pytest.mark.parametrize("width", [1200, 320])
def test_the_page_never_scrolls_sideways(page: Page, width: int) -> None:
    page.narrow(width)
    page.run("for (const details of document.querySelectorAll('details')) details.open = true")
    assert page.run("return innerWidth") == width
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_every_table_and_figure_has_a_name(page: Page) -> None:
    tables = page.all("table")
    assert len(tables) > len(claims_page.experiments())
    assert all(page.run("return arguments[0].caption?.textContent.trim()", each) for each in tables)
    drawings = page.all("figure svg")
    assert drawings
    assert all(each.accessible_name and each.aria_role in ("img", "image") for each in drawings)
    assert len({each.accessible_name for each in drawings}) == len(drawings)
    names = page.run("return [...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(set(names)) == len(names)


def test_the_first_stop_leads_to_the_content(page: Page) -> None:
    from chromium import ENTER, TAB

    page.press(TAB)
    assert page.focused == page.one(".skip")
    assert page.focused.is_displayed()
    page.press(ENTER)
    assert page.focused == page.one("main")

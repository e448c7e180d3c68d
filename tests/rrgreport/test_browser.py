"""Pages of one run and of two in Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rrgreport import Sample, read_samples, write_samples
from rrgtrain.cli import main
from tests.browser import CHROMIUM, QUIET
from tests.rrgreport.test_compare import labels, plant
from tests.rrgreport.test_html import EVIL

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install -c constraints.txt -e '.[test]'"
)
pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"no {CHROMIUM}: apt-get install chromium"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The page of one run, and that of two; a picture, errors, and HTML in a report."""
    home = tmp_path_factory.mktemp("pages")
    runs = []
    for name, report in (("first", "Left effusion."), ("second", "Left effusion and edema.")):
        run = plant(home / name, report, f"rl:\n  lr: 0.{len(name)}\n")
        own = [s for s in read_samples(run / "samples.jsonl") if isinstance(s, Sample)]
        film = Image.linear_gradient("L").resize((64, 64))
        evil = Sample("evil", [film], EVIL, {"SFT": EVIL, "RL": report}, labels=labels())
        write_samples(run / "samples.jsonl", [*own, evil])
        runs.append(str(run))
    for words in ((runs[0], "--out", f"{home}/one.html"), (*runs, "--out", f"{home}/two.html")):
        assert main(["report", *words]) == 0
    return {name: home / f"{name}.html" for name in ("one", "two")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, pages) -> Iterator[Any]:
    """Open a page by name; none may say a word in the console, ask for anything, or alert."""
    heard: list[str] = []
    opened = []

    def opener(name: str, scheme: str = "light", width: int = 1280) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (heard.append("alert"), dialog.dismiss()))
        where = pages[name].as_uri()
        page.on(
            "request",
            lambda asked: asked.url == where or asked.url[:5] == "data:" or heard.append(asked.url),
        )
        page.goto(where)
        opened.append(page)
        return page

    yield opener
    for page in opened:
        page.close()
    assert heard == []


def visible(page: Any) -> list[str]:
    return [a.get_attribute("aria-label") for a in page.query_selector_all("article:visible")]


ALL = ["Study s1", "Study only first", "Study evil"]


def test_a_click_on_a_finding_leaves_its_cases(open_page) -> None:
    page = open_page("one")
    assert visible(page) == ALL and page.text_content("#count") == "3 of 3 cases"
    chip = page.locator("[data-finding='Pleural Effusion']")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert page.text_content("#count") == "3 of 3 cases", "each has it in the truth or a report"
    page.fill("#search", "only first")
    assert visible(page) == ["Study only first"]
    page.fill("#search", "")
    chip.click()
    two = open_page("two")
    assert len(visible(two)) == 4
    two.click("[data-finding='Edema']")
    assert visible(two) == ["Study s1", "Study evil", "Study only second"]
    assert two.text_content("#count") == "3 of 4 cases"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_case_with_its_radiograph_is_on_the_first_screen(open_page, width) -> None:
    page = open_page("one", width=width)
    for part in ("img", "figcaption"):
        box = page.locator(f".case {part}").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 900, (part, box)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "Left effusion." in page.text_content(".case figcaption")
    assert page.locator("table:visible").count() == 1


def test_keys_go_from_case_to_case(open_page) -> None:
    page = open_page("one")
    for key, study in (("j", 0), ("j", 1), ("ArrowRight", 2), ("j", 2), ("k", 1), ("ArrowLeft", 0)):
        page.keyboard.press(key)
        focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert focused == ALL[study], key
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(style) == "solid", "the focus is seen"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("jk evil")
    assert visible(page) == [], "letters are letters in the field"
    page.keyboard.press("Escape")
    assert visible(page) == ALL and page.evaluate("document.activeElement.tagName") == "BODY"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_report_with_html_stays_text(open_page, name) -> None:
    page = open_page(name)
    assert page.evaluate("document.scripts.length") == 1
    assert page.locator("img:not([src^='data:image/png'])").count() == 0
    assert EVIL in page.locator("article[aria-label='Study evil'] .report").first.text_content()

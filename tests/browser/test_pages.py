"""The experimenter's page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.axe import violations
from tests.browser.shots import SCHEMES, SIZES, Scheme, fresh_window
from tests.browser.staging import Stage, scenes, staged
from tests.service.test_pages import HOSTILE

from tacit.service.http import pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.extended

LARGEST = 100_000  # bytes of everything that a page needs, unpacked
SHIFTS = """
() => new Promise((done) => {
  const moved = (one) => one.sources.map(({ node, previousRect, currentRect }) =>
    `${node?.nodeName} ${node?.id} from ${previousRect.y} to ${currentRect.y}`);
  new PerformanceObserver((list) => done(list.getEntries().flatMap(moved)))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done([]), 300);
})
"""  # what moved without anybody having touched the page


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is looked up whenever it is asked for."""
    monkeypatch.setattr(pages, "FRESH", 0.0)
    monkeypatch.setattr(pages, "PULSE", 0.0)
    monkeypatch.setattr(pages, "PACE", 0.1)


@contextmanager
def watching(
    browser: Browser, address: str, size: str = "desktop", scheme: Scheme = "light"
) -> Iterator[Page]:
    """An open live page; any console error of the browser fails."""
    with fresh_window(browser, size, scheme) as page:
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(address)
        page.wait_for_selector(".live[data-state=live]", state="attached")
        yield page
        assert complaints == []


def test_the_page_updates_without_layout_shifts(browser: Browser, stage: Stage) -> None:
    stage.begin()
    for size in SIZES:
        with watching(browser, stage.page, size) as page:
            assert "Nobody knows yet." in page.inner_text("#answers") or size == "phone"
            before = int(page.inner_text("#people dd >> nth=0").replace(",", ""))
            stage.hold()
            page.wait_for_function(
                "(before) => parseInt(document.querySelector('#people dd').textContent"
                ".replace(',', '')) > before",
                arg=before,
            )
            page.wait_for_selector(".band")
            page.wait_for_function(
                "() => document.querySelector('#answers').textContent.includes('friendly')"
            )
            assert page.evaluate(SHIFTS) == []
            assert page.inner_text("#told")


def test_a_table_that_goes_on_to_the_right_shows_so_on_a_phone(
    browser: Browser, stage: Stage
) -> None:
    stage.begin()
    stage.hold()
    with watching(browser, stage.page, "phone") as page:
        table = page.locator("#options .scroll")
        assert table.evaluate("(one) => one.scrollWidth > one.clientWidth")
        shown = table.evaluate("(one) => getComputedStyle(one).backgroundAttachment")
        assert shown == "local, scroll"  # a shadow at the edge, covered where the table ends


def test_hostile_names_are_escaped_in_a_browser(browser: Browser, stage: Stage) -> None:
    stage.begin(options=(HOSTILE, "plain"), question=HOSTILE)
    with watching(browser, stage.page) as page:
        assert page.inner_text("h1") == HOSTILE
        stage.hold()
        page.wait_for_selector(".band", state="attached")
        assert page.locator("main script, main img").count() == 0


def test_the_page_contacts_the_coordinator_only_and_is_small(
    browser: Browser, stage: Stage
) -> None:
    stage.begin()
    stage.hold()
    with fresh_window(browser, "desktop", "light") as page:
        answers: list[Any] = []
        page.on("response", lambda one: answers.append(one))
        page.goto(stage.page)
        page.wait_for_selector(".live[data-state=live]", state="attached")
        files = [one for one in answers if not one.url.rpartition("?")[0].endswith("/live")]
        assert {re.sub("(//[^/]*).*", r"\1", one.url) for one in answers} == {stage.both.urls[0]}
        assert sum(len(one.body()) for one in files) < LARGEST


def test_the_page_is_complete_without_scripts(browser: Browser, stage: Stage) -> None:
    stage.begin()
    stage.hold()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(stage.page)
    assert "A friendly question" in page.inner_text("#answers")
    assert page.locator(".band").count() == 3
    assert "Load this page again" in page.inner_text("footer")
    context.close()


def test_the_keyboard_reaches_every_control_in_reading_order(
    browser: Browser, stage: Stage
) -> None:
    stage.begin()
    with watching(browser, stage.page, "phone") as page:
        assert reached(page) == page.evaluate(FOCUSABLE)


FOCUSABLE = """() => [...document.querySelectorAll(
  "a[href], summary, button:enabled, input:enabled, [tabindex='0']"
)].filter((one) => one.checkVisibility()).map((one) => one.outerHTML)"""


def reached(page: Page) -> list[str]:
    """What the Tab key reaches, in this order; all of it is seen to be reached."""
    found: list[str] = []
    for _ in page.evaluate(FOCUSABLE):
        page.keyboard.press("Tab")
        outline = "() => getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"
        found.append(page.evaluate("() => document.activeElement.outerHTML"))
    return found


def test_an_unreachable_coordinator_is_reported(
    browser: Browser, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.begin()
    with fresh_window(browser, "phone", "dark") as page:
        page.goto(stage.page)
        page.wait_for_selector(".live[data-state=live]", state="attached")
        page.route("**/live?*", lambda route: route.abort())
        monkeypatch.setattr(pages, "LONGEST", 0.0)
        page.wait_for_selector(".live[data-state=lost]", state="attached")
        assert "does not answer" in page.inner_text("#live")
        assert "Nobody knows yet." in page.inner_text("#answers")
        page.unroute("**/live?*")
        monkeypatch.setattr(pages, "LONGEST", 600.0)
        page.wait_for_selector(".live[data-state=live]", state="attached")


@pytest.mark.slow
def test_no_state_of_the_page_has_an_accessibility_violation(
    browser: Browser, tmp_path: Path
) -> None:
    with staged(tmp_path) as alone:
        for name, address in scenes(alone):
            for size in SIZES:
                for scheme in SCHEMES:
                    with watching(browser, address, size, scheme) as page:
                        assert violations(page) == [], (name, size, scheme)


def test_a_page_of_a_running_experiment_has_no_accessibility_violation(
    browser: Browser, stage: Stage
) -> None:
    stage.begin()
    stage.hold()
    with watching(browser, stage.page, "phone", "dark") as page:
        for one in page.query_selector_all("details"):
            one.evaluate("(node) => (node.open = true)")
        assert violations(page) == []

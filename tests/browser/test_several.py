"""The experimenter's page in a real browser, of a coordinator that has two processes on one
PostgreSQL and shows results to the holder of the admin token alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.service.conftest import postgresql  # noqa: F401
from tests.service.pairs import experiment_of
from tests.service.served import ADMIN, TOKEN, Processes
from tests.service.test_streams import PACKED, several  # noqa: F401

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow  # tests/service/test_streams.py has the same without a browser
LIVE = ".live[data-state=live]"


@contextmanager
def looking(browser: Browser, token: str | None) -> Iterator[tuple[Page, list[str]]]:
    """A page opened with this token, or none, and all addresses that it requests."""
    password = None if token is None else {"username": "", "password": token}
    context = browser.new_context(http_credentials=password)  # type: ignore[arg-type]
    page, asked = context.new_page(), list[str]()
    page.on("request", lambda one: asked.append(one.url))
    try:
        yield page, asked
    finally:
        context.close()


@pytest.fixture(scope="module")
def begun(several: tuple[Processes, str]) -> tuple[bytes, str, str]:  # noqa: F811
    """An experiment, and its page at both processes."""
    both, second = several
    digest = both.begin(experiment_of(1500, ("first", "other")), question="Secret?")
    both.place(digest)
    return digest, f"{both.urls[0]}/e/{digest.hex()}", f"{second}/e/{digest.hex()}"


def test_a_page_shows_changes_made_through_another_process(
    browser: Browser,
    several: tuple[Processes, str],  # noqa: F811
    begun: tuple[bytes, str, str],
) -> None:
    both, _second = several
    digest, _address, elsewhere = begun
    with looking(browser, TOKEN) as (page, _asked):
        page.goto(elsewhere)
        page.wait_for_selector(LIVE, state="attached")
        httpx.post(f"{both.urls[0]}/experiments/{digest.hex()}/pause", headers=ADMIN)
        page.wait_for_selector("#state >> text=Paused")
        httpx.post(f"{both.urls[0]}/experiments/{digest.hex()}/resume", headers=ADMIN)
        page.wait_for_selector("#state >> text=Running")
        both.hold(digest, lambda option: int(option == "other"))
        page.wait_for_selector("#intervals .band", state="attached")
        assert "other" in page.inner_text("#answers")


def shown(page: Page) -> str:
    """What is shown when the browser has given up, which may take it a moment."""
    for _ in range(100):
        with contextlib.suppress(Exception):  # it is still leaving for its own page of errors
            return page.content()
        page.wait_for_timeout(100)
    return page.content()


def test_a_browser_shows_protected_results_and_never_reveals_the_token(
    browser: Browser, begun: tuple[bytes, str, str]
) -> None:
    _digest, address, elsewhere = begun
    for url in (address, elsewhere):
        with looking(browser, None) as (page, asked):
            with page.expect_response(url) as reply, contextlib.suppress(Exception):
                page.goto(url)  # which a browser that nobody gives a password gives up
            assert reply.value.status == 401
            assert "Secret?" not in shown(page)
            assert asked == [url]
        with looking(browser, TOKEN) as (page, asked):
            page.goto(url)
            page.wait_for_selector(LIVE, state="attached")
            assert page.inner_text("h1") == "Secret?"
            page.reload()
            page.wait_for_selector(LIVE, state="attached")
            told = [*asked, page.url, page.content(), page.evaluate("document.cookie")]
            assert len([one for one in asked if "/live?" in one]) == 2
            assert not [one for one in told if TOKEN in one or PACKED in one]

"""A real Chromium for the tests of pages and of the browser device."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from tests.browser.staging import Stage

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
NOT_RUN = "nothing was tried in a real browser: "


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium, as it is installed; where there is none, tests that need it say what is missing."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"{NOT_RUN}no Chromium is installed (Debian: apt-get install chromium)")
    driver = pytest.importorskip(
        "playwright.sync_api", reason=f"{NOT_RUN}Playwright is not installed (tacit[dev])"
    )
    with driver.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module. As long as it runs there is a running event loop, which
    tests elsewhere that begin one of their own do not survive.
    """
    with chromium() as made:
        yield made


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two parties over HTTP, for all tests of a process; each begins experiments of its own."""
    from tests.browser.staging import staged

    with staged(tmp_path_factory.mktemp("stage")) as made:
        yield made

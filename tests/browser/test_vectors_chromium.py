"""The browser's device holds the same vectors as Python, in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.browser.site import serving, static
from tests.browser.vectors import known

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHECK = """async (known) => {
  const [tacit, check] = await Promise.all([import("/tacit.js"), import("/check.mjs")]);
  return check.failures(tacit, known);
}"""


@pytest.mark.extended
def test_the_device_agrees_with_every_vector_in_chromium(browser: Browser) -> None:
    with serving(static) as site:
        page = browser.new_page()
        page.goto(site)
        assert page.evaluate(CHECK, known()) == []
        page.close()

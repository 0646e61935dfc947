"""The participant's page of other trust models than two servers, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.browser.staging import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Request

pytestmark = pytest.mark.extended


@pytest.mark.parametrize(
    ("trust", "receiver", "honest"),
    [
        ("local", "coordinator", "Nobody but your own device must be honest."),
        ("shuffler", "shuffler", "Shuffler and analyzer must not work together"),
    ],
)
def test_a_browser_adds_its_noise_under_every_trust_model(
    browser: Browser, stage: Stage, trust: str, receiver: str, honest: str
) -> None:
    """One report leaves, to one party; the page says who must be honest before anybody agrees."""
    stage.begin_with(trust)
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    requests: list[Request] = []
    page.on("request", lambda one: requests.append(one))
    page.goto(f"{stage.page}/take-part")
    page.wait_for_selector("text=I agree")
    shown = page.inner_text(".terms.short")
    assert honest in shown
    caution = "only against a coordinator that follows the protocol"
    assert (caution in shown) == (trust == "shuffler")
    page.click("text=I agree")
    page.wait_for_selector("form")
    page.check("input[value='1']")
    page.click("text=Keep my answer")
    page.wait_for_selector("text=Your answer has arrived", timeout=60_000)
    puts = [one for one in requests if one.method == "PUT"]
    assert len(puts) == 1
    assert page.locator("[data-lane]").evaluate_all(
        "all => all.map((one) => one.dataset.lane)"
    ) == [receiver]
    size = len(puts[0].post_data_buffer or b"")
    assert page.inner_text(f"[data-bytes={receiver}]") == f"{size:,} encrypted bytes"
    assert "ε = 1 of 1" in page.inner_text("#spent")
    page.goto(stage.page)
    drawn = page.inner_text("#parties")
    assert receiver.capitalize() in drawn
    assert "Helper" not in drawn
    context.close()

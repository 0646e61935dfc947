"""The participant's page of a contextual experiment: the browser chooses, and sends one cell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.axe import violations
from tests.browser.shots import SIZES
from tests.browser.staging import OPTIONS, Stage

from tacit.service.schema import Stage as RoundStage
from tacit.terms import BY_POLICY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

pytestmark = pytest.mark.extended
FIELDS = ("shift: day, night", "ward: surgery, paediatrics")


def begin(stage: Stage, **changed: Any) -> None:
    about = {"algorithm": "private-contextual", "context_fields": FIELDS, "evaluation": 0}
    stage.begin_with("two-servers", **(about | changed))


def opened(browser: Browser, stage: Stage, size: str = "phone") -> Page:
    wide, high = SIZES[size]
    page = browser.new_context(viewport={"width": wide, "height": high}).new_page()
    page.goto(f"{stage.page}/take-part")
    page.wait_for_selector("text=I agree")
    return page


def stored(page: Page) -> Any:
    """The levels of the participation that waits, from the ledger."""
    return page.evaluate(
        """() => new Promise((done) => {
          indexedDB.open("tacit").onsuccess = ({ target }) => {
            const asked = target.result.transaction("ledger").objectStore("ledger").get(0);
            const rounds = () => Object.values(asked.result.entries.at(-1).rounds);
            asked.onsuccess = () => done(rounds()[0].levels);
          };
        })"""
    )


@pytest.mark.parametrize("proofs", [False, True])
def test_a_browser_chooses_by_context_and_sends_one_hidden_cell(
    browser: Browser, stage: Stage, proofs: bool
) -> None:
    """Neither the stated context nor the option is in any request."""
    begin(stage, proofs=proofs)
    page = opened(browser, stage)
    requests: list[Request] = []
    page.on("request", lambda one: requests.append(one))
    assert "Your device chooses, by what you state" in page.inner_text(".terms.short")
    page.click("text=I agree")  # nothing is stated yet: the browser asks for it
    assert not requests
    page.select_option("select[name=shift]", "night")
    page.select_option("select[name=ward]", "surgery")
    page.click("text=I agree")
    page.wait_for_selector("text=Keep my answer")
    option = page.inner_text(".option")
    assert stored(page) == [2, OPTIONS.index(option), 0]
    page.check("input[value='1']")
    page.click("text=Keep my answer")
    page.wait_for_selector("text=Kept on this device: Yes")
    assert stored(page) == [2, OPTIONS.index(option), 1]
    page.wait_for_selector("text=Both shares have arrived", timeout=60_000)
    puts = [one for one in requests if one.method == "PUT"]
    assert len(puts) == 2
    (place,) = [json.loads(one.post_data or "") for one in requests if one.method == "POST"]
    assert list(place) == ["nonce"]
    for one in requests:
        sent = one.url.encode() + (one.post_data_buffer or b"")
        assert not [word for word in ("night", "surgery", option) if word.encode() in sent]
    assert stored(page) is None
    assert any(one.url.endswith("/static/prio3.js") for one in requests) == proofs
    row = next(
        row
        for row in stage.both.coordinator.rounds(RoundStage.OPEN, RoundStage.CLOSING)
        if row.assigned and row.option == BY_POLICY
    )
    assert row.assigned == 1
    assert "what you stated, what your device chose" in page.inner_text("#about")
    page.context.close()


def test_an_altered_policy_is_rejected_and_nothing_is_sent(browser: Browser, stage: Stage) -> None:
    """One bit of a weight, after both servers signed."""
    begin(stage)
    page = opened(browser, stage)
    requests: list[Request] = []

    def alter(route: Any) -> None:
        answer = route.fetch()
        said = answer.json()
        at = said["announcement"].index("ffff", 80) + 4 + 2 * 16 + 8 + 4
        whole = said["announcement"]
        said["announcement"] = f"{whole[:at]}{int(whole[at], 16) ^ 1:x}{whole[at + 1 :]}"
        route.fulfill(response=answer, json=said)

    page.route("**/places", alter)
    page.on("request", lambda one: requests.append(one))
    page.select_option("select[name=shift]", "day")
    page.select_option("select[name=ward]", "paediatrics")
    page.click("text=I agree")
    page.wait_for_selector("text=did not sign this round")
    assert not [one for one in requests if one.method == "PUT"]
    page.context.close()


@pytest.mark.parametrize("size", list(SIZES))
def test_both_buttons_are_on_the_first_screen_and_the_page_is_accessible(
    browser: Browser, stage: Stage, size: str
) -> None:
    begin(stage)
    page = opened(browser, stage, size)
    assert violations(page) == []
    for words in ("I agree", "Keep my answer"):
        box = page.locator(f"button:has-text('{words}')").bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= SIZES[size][1], words
        if words == "I agree":
            page.select_option("select[name=shift]", "day")
            page.select_option("select[name=ward]", "surgery")
            page.click("text=I agree")
            page.wait_for_selector("text=Keep my answer")
            assert violations(page) == []
    page.context.close()


NUMBERS = ("device: phone, desktop", "age: 18 to 90")


def test_a_browser_takes_part_with_numbers(browser: Browser, stage: Stage) -> None:
    """Fields stay in their frame on a phone; a number is needed, and none is in a request."""
    begin(stage, context_fields=NUMBERS, window=15)
    page = opened(browser, stage)
    requests: list[Request] = []
    page.on("request", lambda one: requests.append(one))
    assert violations(page) == []
    frame = page.locator("form[data-do=join]").bounding_box()
    assert frame is not None
    for name in ("select[name=device]", "input[name=age]"):
        box = page.locator(name).bounding_box()
        assert box is not None
        assert box["x"] >= frame["x"]
        assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 0.5, name
    page.select_option("select[name=device]", "desktop")
    page.click("text=I agree")  # the browser asks for the age
    assert not requests
    page.fill("input[name=age]", "36.512")
    page.click("text=I agree")
    page.wait_for_selector("text=Keep my answer", timeout=60_000)
    assert len(stored(page)) > 2  # features of the option, and the answer
    page.check("input[value='1']")
    page.click("text=Keep my answer")
    page.wait_for_selector("text=Both shares have arrived", timeout=60_000)
    assert len([one for one in requests if one.method == "PUT"]) == 2
    for one in requests:
        sent = one.url.encode() + (one.post_data_buffer or b"")
        assert not [word for word in ("36.512", "desktop") if word.encode() in sent]
    page.context.close()

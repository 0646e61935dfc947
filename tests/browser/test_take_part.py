"""The participant's page in a real browser, against real parties: from the terms to the receipt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.browser.axe import violations
from tests.browser.shots import SIZES, fresh_window
from tests.browser.staging import OPTIONS, QUESTION, SOON, Stage, lowered, staged, steps
from tests.browser.test_pages import FOCUSABLE, LARGEST, SHIFTS, reached
from tests.service.served import wait_for
from tests.service.test_pages import HOSTILE

from tacit.aggregation.two_servers import TwoServerRound
from tacit.algorithms.registry import begin
from tacit.experiment import Experiment
from tacit.service.http import pages
from tacit.service.timing import Timing
from tacit.signatures import SIGNATURE_SIZE, Signed, sign
from tacit.terms import Answer, Noise, StatedGuarantee

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

pytestmark = pytest.mark.extended

UNSIGNED = "The helper did not sign this round."
LATER = Timing(joining=3600, margin=600, grace=600)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1000, "height": 900})
    yield made
    made.close()


def address(stage: Stage) -> str:
    return f"{stage.page}/take-part"


def agreed(context: BrowserContext, stage: Stage) -> Page:
    """A participant who has read the terms and takes part."""
    page = context.new_page()
    page.goto(address(stage))
    page.click("text=I agree")
    page.wait_for_selector("form")
    return page


@contextmanager
def asked(page: Page) -> Iterator[list[Request]]:
    """All requests of a page."""
    found: list[Request] = []
    page.on("request", lambda one: found.append(one))
    yield found


@pytest.mark.parametrize("proofs", [0, 1])
def test_a_participant_goes_from_the_terms_to_the_receipt(
    context: BrowserContext, stage: Stage, proofs: int
) -> None:
    stage.begin(timing=SOON, window=2, proofs=proofs)
    page = context.new_page()
    with asked(page) as requests:
        page.goto(address(stage))
        assert QUESTION in page.inner_text("h1")
        assert "So here you trust the coordinator." in page.inner_text(".mind")
        assert not [one for one in requests if one.method == "POST"]
        page.click("text=I agree")
        option = page.inner_text(".option")
        assert option in OPTIONS
        page.check("input[value='1']")
        page.click("text=Keep my answer")
        page.wait_for_selector("text=Kept on this device: Yes")
        sends = page.inner_text("[data-say=sends]")
        assert not [one for one in requests if one.method == "PUT"]
        page.wait_for_selector("text=Both shares have arrived")
    _check_sent(page, stage, requests)
    assert any(one.url.endswith("/static/prio3.js") for one in requests) == bool(proofs)
    assert page.evaluate("() => new Date().toLocaleTimeString()") >= sends
    given = {one["round"]: one["given"] for one in stage.rounds if one["option"] == option}
    assert sum(given.values()) == 1
    stage.hold()
    page.wait_for_selector("text=The sum was released", timeout=60_000)
    reports = [one["reports"] for one in stage.rounds if one["round"] in given]
    assert reports[0] == 39
    page.goto(stage.page)
    assert re.search(r"\d+%, between", page.inner_text("#answers"))


def _check_sent(page: Page, stage: Stage, requests: list[Request]) -> None:
    """Two encrypted shares, to two addresses; all else is public, as the receipt states."""
    puts = [one for one in requests if one.method == "PUT"]
    assert [one.url.partition("/rounds")[0] for one in sorted(puts, key=_url)] == sorted(
        stage.both.urls
    )
    sizes = {len(one.post_data_buffer or b"") for one in puts}
    shown = page.inner_text("[data-bytes=coordinator]"), page.inner_text("[data-bytes=helper]")
    assert {f"{size} encrypted bytes" for size in sizes} == set(shown)
    (place,) = [json.loads(one.post_data or "") for one in requests if one.method == "POST"]
    assert list(place) == ["nonce"]
    for one in requests:
        headers = one.all_headers()
        assert "cookie" not in headers
        assert one.url.startswith(stage.both.urls)
        assert one.method in ("GET", "POST", "PUT")
        if one.method == "GET":
            assert one.post_data is None
            assert re.search(r"/(static/[a-z0-9.-]+|take-part|terms|outcome)$", one.url)
    assert page.inner_text("[data-fate=helper]").startswith("It has arrived. SHA-256")
    assert "ε = 1 of 1" in page.inner_text("#spent")


def _url(request: Request) -> str:
    return request.url


def test_lowered_terms_are_rejected_and_nothing_is_sent(
    context: BrowserContext, stage: Stage
) -> None:
    stage.begin(timing=LATER)
    page = context.new_page()
    page.route("**/terms", lowered)
    with asked(page) as requests:
        page.goto(address(stage))
        page.wait_for_selector("text=Your browser refuses")
        assert page.locator("text=I agree").count() == 0
        assert {one.method for one in requests} == {"GET"}
        assert "Nothing has been sent." in page.inner_text("#now")
        page.unroute("**/terms")
        page.click("text=Check again")
        page.wait_for_selector("text=I agree")


def weakened(said: dict[str, Any], keys: Sequence[Ed25519PrivateKey]) -> dict[str, Any]:
    """A place in the same round with half of its noise, signed with these keys."""
    described = TwoServerRound.decode(bytes.fromhex(said["announcement"])[: -2 * SIGNATURE_SIZE])
    body = replace(described, scale=Fraction(1, 2)).encode()
    signed = body + b"".join(sign(Signed.ROUND, body, key) for key in keys)
    return said | {"announcement": signed.hex()}


@pytest.mark.parametrize("signed", [True, False])
def test_a_signed_round_with_less_noise_is_rejected(
    context: BrowserContext, stage: Stage, signed: bool
) -> None:
    """Both servers together cannot lower it; one alone cannot change it at all."""
    stage.begin(timing=LATER)
    page = context.new_page()
    first, second = (one.key for one in stage.both.members)
    keys = (first, second if signed else first)

    def weaken(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=weakened(answer.json(), keys))

    page.route("**/places", weaken)
    with asked(page) as requests:
        page.goto(address(stage))
        page.click("text=I agree")
        page.wait_for_selector("text=Your browser refuses")
        page.wait_for_timeout(2500)  # what is due is done meanwhile, and hides nothing
        why = "The round's noise, 1/2, is not what the terms promise." if signed else UNSIGNED
        assert page.inner_text("#now .trouble") == why
        assert "ε = 0 of 1" in page.inner_text("#spent")
        assert not [one for one in requests if one.method == "PUT"]


def test_reloading_back_navigation_and_a_second_tab_show_the_same_state(
    context: BrowserContext, stage: Stage
) -> None:
    stage.begin(timing=LATER)
    page = agreed(context, stage)
    option, sends = page.inner_text(".option"), page.inner_text("[data-say=sends]")
    with asked(page) as requests:
        page.reload()
        page.wait_for_selector("form")
        page.click("text=What has been found so far")
        page.wait_for_selector("#answers")
        page.go_back()
        page.wait_for_selector("form")
        second = context.new_page()
        second.goto(address(stage))
        second.wait_for_selector("form")
        for one in (page, second):
            assert (one.inner_text(".option"), one.inner_text("[data-say=sends]")) == (
                option,
                sends,
            )
        assert {one.method for one in requests} == {"GET"}
    second.check("input[value='0']")
    second.click("text=Keep my answer")
    page.wait_for_selector("text=Kept on this device: No")
    page.click("text=Withdraw")
    second.wait_for_selector("text=You have withdrawn")
    assert sum(one["given"] for one in stage.rounds) == 1


def test_going_offline_and_back_loses_nothing(context: BrowserContext, stage: Stage) -> None:
    stage.begin(timing=Timing(joining=30, margin=20, grace=600), window=1)
    page = context.new_page()
    page.goto(address(stage))
    page.wait_for_selector("text=I agree")
    context.set_offline(True)
    page.click("text=I agree")
    page.wait_for_selector("text=No connection")
    assert "Nothing is lost" in page.inner_text("#now")
    context.set_offline(False)
    page.wait_for_selector("text=I agree")
    page.click("text=I agree")
    page.wait_for_selector("form")
    context.set_offline(True)
    page.wait_for_selector("text=This device is offline.", timeout=20_000)
    context.set_offline(False)
    page.wait_for_selector("text=Both shares have arrived", timeout=30_000)


def test_a_participant_without_a_slot_gets_the_best_option_and_sends_nothing(
    context: BrowserContext, stage: Stage
) -> None:
    stage.begin(timing=LATER)
    stage.both.coordinator.pause(stage.digest)
    page = context.new_page()
    page.goto(address(stage))
    page.click("text=I agree")
    page.wait_for_selector("text=You are not asked")
    assert page.inner_text(".option") == OPTIONS[0]
    assert "nothing about you has left it" in page.inner_text("#here")


def test_changed_terms_are_agreed_to_on_their_page(context: BrowserContext, stage: Stage) -> None:
    """The device rejected them as not agreed to, whatever the participant clicked."""
    stage.begin_with("local")
    page = context.new_page()
    page.route("**/places", lambda route: route.fulfill(status=422, body="{}"))
    page.goto(address(stage))
    page.click("text=I agree")
    page.wait_for_selector("text=422")
    page.unroute("**/places")
    coordinator = stage.both.coordinator
    old, question = coordinator.terms(stage.digest).terms, "Which one is better?"
    stage.digest = coordinator.succeed(replace(old, question=question, predecessor=stage.digest))
    coordinator.pause(stage.digest)
    page.goto(address(stage))
    page.click("text=I agree")
    page.wait_for_selector("text=You are not asked")
    assert page.inner_text("h1") == question


def test_a_ledger_is_exported_and_merged_elsewhere(
    browser: Browser, context: BrowserContext, stage: Stage
) -> None:
    stage.begin(timing=LATER)
    page = agreed(context, stage)
    with page.expect_download() as saved:
        page.click("text=Save a copy")
    other = browser.new_context()
    elsewhere = other.new_page()
    elsewhere.goto(address(stage))
    elsewhere.wait_for_selector("text=I agree")
    elsewhere.set_input_files("#import", saved.value.path())
    elsewhere.wait_for_selector("text=The copy was added")
    elsewhere.wait_for_selector("text=ε = 1 of 1")
    elsewhere.set_input_files(
        "#import", {"name": "x.json", "mimeType": "text/json", "buffer": b"x"}
    )
    elsewhere.wait_for_selector("text=This is no export of a ledger")
    other.close()


def test_participation_needs_scripts_and_encryption(browser: Browser, stage: Stage) -> None:
    stage.begin(timing=LATER)
    silent = browser.new_context(java_script_enabled=False)
    page = silent.new_page()
    page.goto(address(stage))
    assert "Taking part needs JavaScript" in page.inner_text("#now")
    assert OPTIONS[0] in page.inner_text(".terms >> nth=0")
    silent.close()
    bare = browser.new_context()
    bare.add_init_script("delete Crypto.prototype.subtle")
    page = bare.new_page()
    page.goto(address(stage))
    page.wait_for_selector("text=This browser cannot take part")
    bare.close()


def test_hostile_terms_are_escaped_on_the_participants_page(
    context: BrowserContext, stage: Stage
) -> None:
    stage.begin(timing=LATER, options=(HOSTILE, f"{HOSTILE}2"), question=HOSTILE)
    page = context.new_page()
    heard: list[str] = []
    page.on("dialog", lambda one: heard.append(one.message))
    page.on("pageerror", lambda one: heard.append(str(one)))
    page.goto(address(stage))
    page.click("text=I agree")
    page.wait_for_selector("form")
    assert page.inner_text(".option").startswith(HOSTILE)
    assert page.inner_text("h1") == HOSTILE
    assert heard == []


def test_the_participants_page_is_small_and_has_no_layout_shifts(
    context: BrowserContext, stage: Stage
) -> None:
    stage.begin(timing=LATER)
    page = context.new_page()
    answers: list[Any] = []
    page.on("response", lambda one: answers.append(one))
    page.goto(address(stage))
    page.wait_for_selector("text=I agree")
    assert page.evaluate(SHIFTS) == []
    files = [one for one in answers if not one.url.endswith("/terms")]  # which are read in parts
    assert len(files) >= 5
    terms = 2 * len(stage.both.get(0, f"/experiments/{stage.digest.hex()}/terms").content)
    assert sum(len(one.body()) for one in files) + terms < LARGEST
    assert reached(page) == page.evaluate(FOCUSABLE)


@pytest.mark.slow
def test_no_step_of_participation_has_an_accessibility_violation(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FRESH", 0.0)
    with staged(tmp_path) as alone, fresh_window(browser, "desktop", "light") as page:
        for name in steps(page, alone):
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                for wide in (1280, 390):
                    page.set_viewport_size({"width": wide, "height": 844})
                    assert violations(page) == [], (name, scheme, wide)


def test_participation_has_no_accessibility_violation(
    context: BrowserContext, stage: Stage
) -> None:
    stage.begin(timing=LATER)
    page = agreed(context, stage)
    wait_for(lambda: page.inner_text("#spent") != "–")
    assert violations(page) == []


FIRST_SCREEN = """() => {
  const { bottom } = document.querySelector("[data-do=join]").getBoundingClientRect();
  return bottom + scrollY <= innerHeight;
}"""
TALKATIVE: dict[str, Any] = {
    "question": "Which of these reminders, if any, gets people on our wards to take a break?",
    "organisation": "St. Anna hospital, occupational health and safety",
    "guarantee": StatedGuarantee(Fraction(1), participations=3),
    "noise": Noise(Fraction(3)),
}


def about(options: tuple[str, ...] = OPTIONS, **chosen: Any) -> Experiment:
    """An experiment of two servers whose answers and participations are chosen."""
    asked = {"horizon": 4000, "epsilon": Fraction(1), "trust": "two-servers", "smallest": 23}
    binary = chosen.get("levels", 1) == 1
    return begin("private-med", options, **({"levels": 1, "binary": binary} | asked | chosen))


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("many", [False, True], ids=["staged", "talkative"])
def test_the_button_is_on_the_first_screen(
    browser: Browser, stage: Stage, size: str, many: bool
) -> None:
    options = (*OPTIONS, "A bell") if many else OPTIONS
    made = about(options, participations=3 if many else 1)
    stage.begin(timing=LATER, options=options, made=made, **(TALKATIVE if many else {}))
    with fresh_window(browser, size, "light") as page:
        page.goto(address(stage))
        page.wait_for_selector("[data-do=join]")
        assert page.evaluate(FIRST_SCREEN)


def test_answers_are_labelled_as_in_the_terms(context: BrowserContext, stage: Stage) -> None:
    words = ("not at all", "a little", "much")
    answer = Answer("how much you liked it", levels=2, window=3600, labels=words)
    noise = Noise(Fraction(2))
    stage.begin(timing=LATER, answer=answer, noise=noise, made=about(levels=2))
    page = agreed(context, stage)
    assert page.locator(".choice").all_inner_texts() == list(words)
    assert "“not at all” is sent" in page.inner_text("#now")
    page.check("text=a little")
    page.click("text=Keep my answer")
    page.wait_for_selector("text=Kept on this device: a little.")


def test_an_ended_experiment_asks_no_one_to_agree(context: BrowserContext, stage: Stage) -> None:
    """A participant sees how the participation goes on."""
    stage.begin(timing=LATER)
    page = agreed(context, stage)
    stage.both.coordinator.stop(stage.digest)
    page.reload()
    page.wait_for_selector("form")
    page.click("text=Withdraw")
    page.wait_for_selector("text=You have withdrawn")
    assert page.locator("[data-do=join]").count() == 0
    other = context.browser.new_context() if context.browser else context
    late = other.new_page()
    late.goto(address(stage))
    late.wait_for_selector("text=nobody is asked any more")
    assert late.inner_text("#step") == "It is over"
    assert late.locator("[data-do=join]").count() == 0
    other.close()

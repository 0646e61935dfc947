"""Browser devices and both parties over real HTTP: answers are counted, and secrets stay in the
browser.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.site import ROOT, serving, static
from tests.service.pairs import experiment_of
from tests.service.served import Threads, served, wait_for

from tacit.service import invitations
from tacit.service.timing import Timing
from tacit.terms import Aggregation, Answer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.extended

ANSWER = Answer("1 if you liked it, 0 if not", window=1)
NOISY = 3  # as much as the rounds have room for, whatever was drawn

PARTICIPANTS = """async ({ address, digest, pinned, wanted, together, invitations }) => {
  const { Device } = await import("/tacit.js");
  const pause = (time) => new Promise((done) => setTimeout(done, time));
  const told = [];
  let number = 0;
  const person = async () => {
    const mine = number++;
    const device = await Device.open(address, digest, { pinned, database: `person ${mine}` });
    let state = await device.join(invitations[mine]);
    if (state.stage !== "waiting") return pause(200);
    const liked = crypto.getRandomValues(new Uint8Array(1))[0] % 2;
    if (liked || mine % 3) await device.record(liked);
    while (!/sent|missed/.test(state.stage) && Date.now() < state.deadline) {
      await pause(Math.max(50, state.sendsAt - Date.now()));
      state = await device.tick();
    }
    const taken = state.sent.filter((half) => half.acknowledged).length;
    told.push({ round: state.round, liked, taken });
  };
  const worker = async () => {
    while (told.length < wanted) await person();
  };
  await Promise.all(Array.from({ length: together }, worker));
  return told;
}"""


def drawn(role: int, identity: bytes) -> Callable[[Fraction], int]:
    """Noise that a test can subtract."""
    word = hashlib.sha256(bytes((role,)) + identity).digest()
    return lambda _scale: int.from_bytes(word[:4], "big") % (2 * NOISY + 1) - NOISY


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    first, second = ({"noise": partial(drawn, role)} for role in (0, 1))
    with served(tmp_path_factory.mktemp("served"), sources=(first, second)) as parties:
        yield parties


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with serving(static) as site:
        context = browser.new_context()
        made = context.new_page()
        made.goto(site)
        yield made
        context.close()


def begin(servers: Threads, question: str, timing: Timing, **changed: Any) -> bytes:
    """A new experiment on the same servers, with an open round."""
    few = {"aggregation": Aggregation(1), "answer": ANSWER, "question": question}
    digest = servers.begin(experiment_of(horizon=4000), timing, **(few | changed))
    wait_for(lambda: any(one["stage"] == "open" for one in servers.status(digest)["rounds"]))
    return digest


def participants(page: Page, servers: Threads, digest: bytes, wanted: int, **more: Any) -> Any:
    """So many participants report from the page; their rounds and answers."""
    keys = [key.hex() for key in servers.keys]
    asked = {
        "address": servers.urls[0],
        "digest": digest.hex(),
        "pinned": {"coordinator": keys[0], "helper": keys[1]},
        "wanted": wanted,
        "together": 20,
        "invitations": [],
    }
    return page.evaluate(PARTICIPANTS, asked | more)


def assert_counted(servers: Threads, digest: bytes, told: Any) -> int:
    """Every released round holds exactly what was answered, and the noise that was injected; how
    many reports that were.
    """
    mine = {one["round"] for one in told}

    def released() -> Any:
        rounds = [one for one in servers.status(digest)["rounds"] if one["round"] in mine]
        over = [one for one in rounds if one["stage"] not in ("open", "closing", "opening")]
        return rounds if len(over) == len(mine) else None

    reports = 0
    for one in wait_for(released):
        if one["sums"] is None:
            continue
        identity = bytes.fromhex(one["round"])
        noise = sum(drawn(role, identity)(Fraction(1)) for role in (0, 1))
        arrived = [
            said["liked"] for said in told if said["round"] == one["round"] and said["taken"] == 2
        ]
        assert (one["reports"], one["sums"][0] - noise) == (len(arrived), sum(arrived))
        reports += len(arrived)
    return reports


def test_answers_from_browsers_are_counted_by_the_experiment(page: Page, servers: Threads) -> None:
    digest = begin(servers, "Is it counted?", Timing(joining=6, margin=6, grace=60))
    told = participants(page, servers, digest, 24)
    assert assert_counted(servers, digest, told) >= 24


def test_an_invited_participant_takes_part_from_a_browser(page: Page, servers: Threads) -> None:
    timing = Timing(joining=20, margin=2, grace=60)
    digest = begin(servers, "Is it by invitation?", timing, admission="invitation")
    tickets = invitations.make(digest, servers.members[0].key, 9)
    told = participants(page, servers, digest, 2, invitations=tickets, together=2)
    assert {one["taken"] for one in told} == {2}


def documented(text: str, caption: str) -> str:
    """The program of the page under this caption."""
    (program,) = re.findall(rf":caption: {caption}\n(.*?)```", text, re.S)
    return str(program)


def test_the_documented_page_runs_under_its_security_headers(page: Page, servers: Threads) -> None:
    text = (ROOT / "docs" / "how-to" / "browser.md").read_text(encoding="utf-8")
    (document,) = re.findall(r"```html\n(.*?)```", text, re.S)
    (policy,) = re.findall(r"Content-Security-Policy: (.*)", text)
    digest = begin(servers, "Does the page work?", Timing(joining=8, margin=4, grace=60))
    said = {
        "https://coordinator.example": servers.urls[0],
        "https://helper.example": servers.urls[1],
        "COORDINATOR_KEY": servers.keys[0].hex(),
        "HELPER_KEY": servers.keys[1].hex(),
        "EXPERIMENT": digest.hex(),
    }
    program = documented(text, "take-part.js")
    for blank, filled in said.items():
        assert blank in program + policy
        program, policy = program.replace(blank, filled), policy.replace(blank, filled)

    header = "http-equiv=Content-Security-Policy"
    policy = policy.replace("; frame-ancestors 'none'", "")  # which is for headers alone
    own = {"/": f'<meta {header} content="{policy}">{document}', "/take-part.js": program}

    def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        return (200, own[path].encode()) if path in own else static(method, path, body, headers)

    lines: list[str] = []
    page.on("console", lambda line: lines.append(line.text))
    with serving(answer) as site:
        page.goto(site)
        page.wait_for_event("console", lambda line: line.text.startswith("sent"), timeout=20_000)
    assert lines[0] == "Does the page work? 1"
    assert any(line.startswith("waiting") for line in lines)
    assert any(line.startswith("sent") for line in lines)


@pytest.mark.slow
def test_a_thousand_browser_reports_give_the_exact_sums(page: Page, servers: Threads) -> None:
    digest = begin(servers, "Are a thousand counted?", Timing(joining=40, margin=10, grace=120))
    page.set_default_timeout(600_000)
    told = participants(page, servers, digest, 1000, together=120)
    assert len(told) >= 1000
    assert assert_counted(servers, digest, told) >= 1000

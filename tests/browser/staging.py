"""Experiments in every state that a page can show, between two real parties over HTTP.

Participants are brought in by hand, without devices, where only their number matters; the clock is
moved instead of waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.service.pairs import experiment_of
from tests.service.served import Threads, served, wait_for

from tacit.aggregation.announcements import accept
from tacit.aggregation.two_servers import TwoServerRound, split
from tacit.client.choices import choose, numbers_of
from tacit.experiment import Experiment
from tacit.service.assignment import Assigned, Ticket
from tacit.service.definition import Definition
from tacit.service.timing import Timing
from tacit.signatures import public_key
from tacit.terms import Aggregation, Answer, ContextField, cosign

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

OPTIONS = ("No reminder", "A quiet line", "A friendly question")
QUESTION = "Which reminder gets people on our wards to take a break?"
LIKING = {"No reminder": 0.1, "A quiet line": 0.3, "A friendly question": 0.8}
TIMING = Timing(joining=3600, margin=600, grace=7200)


@dataclass
class Clock:
    """Now, and as much later as a test wants."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return datetime.now(UTC).timestamp() + self.ahead


@dataclass
class Stage:
    """Two parties, one experiment, and participants that join on request."""

    both: Threads
    clock: Clock
    digest: bytes = b""
    begun: int = 0
    liked: Callable[[str, int], int] = field(default=lambda option, n: _liked(option, n))

    @property
    def page(self) -> str:
        return f"{self.both.urls[0]}/e/{self.digest.hex()}"

    def begin(
        self,
        horizon: int = 4000,
        options: tuple[str, ...] = OPTIONS,
        timing: Timing = TIMING,
        window: int = 3600,
        made: Experiment | None = None,
        **changed: Any,
    ) -> None:
        """An experiment that both have signed, with its first rounds open."""
        made = made or experiment_of(horizon, options)
        made.control = options[0]
        self.digest = self.both.begin(made, timing, **(self._about(window) | changed))
        self.wait_open()

    def begin_with(self, trust: str, **changed: Any) -> None:
        """An experiment of a trust model, with open rounds."""
        self.begun += 1
        coordinator, (first, second) = self.both.coordinator, self.both.members
        helped = {"helper_address": self.both.urls[1], "helper_key": public_key(second.key)}
        today = datetime.now(UTC).date()
        has_helper = trust in ("two-servers", "shuffler")
        about: dict[str, Any] = (helped if has_helper else {}) | changed
        if trust == "shuffler":
            about["delta"] = Fraction(1, 1000)
        given: dict[str, Any] = {
            "question": QUESTION,
            "organisation": "St. Anna hospital, occupational health",
            "options": OPTIONS,
            "meaning": "whether you took a break",
            "trust": trust,
            "window": 2,
            "epsilon": Fraction(1),
            "participants": 4000,
            "first_day": today - timedelta(days=2),
            "last_day": today + timedelta(days=60 + self.begun),
            "joining": SOON.joining,
            "margin": SOON.margin,
            "grace": SOON.grace,
        }
        defined = Definition.of(**given | about)
        terms = defined.terms(self.both.urls[0], public_key(first.key))
        self.digest = coordinator.create(terms, defined.experiment(), defined.timing)
        if has_helper:
            signature = cosign(terms, second.key)
            self.both.helper.admit(terms, (coordinator.signature(self.digest), signature))
            coordinator.cosign(self.digest, signature)
        self.poke()
        self.wait_open()

    def publish(self, **changed: Any) -> None:
        """An experiment that the helper has not signed."""
        terms = self.both.terms(OPTIONS, **(self._about(3600) | changed))
        self.digest = self.both.coordinator.create(terms, experiment_of(4000, OPTIONS), TIMING)

    def _about(self, window: int) -> dict[str, Any]:
        self.begun += 1  # one day more makes the terms others
        return {
            "question": QUESTION,
            "answer": Answer("whether you took a break", window=window, labels=("No", "Yes")),
            "organisation": "St. Anna hospital, occupational health",
            "purpose": "to choose the reminder that everybody on the wards gets from January on",
            "contact": "breaks@st-anna.example",
            "aggregation": Aggregation(20),
            "first_day": datetime.now(UTC).date() - timedelta(days=2),
            "last_day": datetime.now(UTC).date() + timedelta(days=60 + self.begun),
        }

    def wait_open(self) -> None:
        wait_for(lambda: {"open"} == {one["stage"] for one in self.rounds} - {"opened", "refused"})

    @property
    def rounds(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.both.coordinator.status(self.digest)["rounds"]
        return found

    def come(self, share: float = 1.0) -> list[Assigned]:
        """So many participants get a slot in the open rounds."""
        wanted = sum(one["places"] - one["given"] for one in self.rounds if one["stage"] == "open")
        tickets = [Ticket(self.digest, os.urandom(16)) for _ in range(int(share * wanted))]
        found = self.both.coordinator.join(tickets)
        return [one for one in found if isinstance(one, Assigned) and one.slot is not None]

    def report(self, came: list[Assigned]) -> None:
        """They report to both servers."""
        pinned = self.both.coordinator.pinned(self.digest)
        counts: dict[str, int] = {}
        shares = []
        for number, one in enumerate(came):
            assert one.slot is not None
            about = accept(TwoServerRound, pinned, one.announcement).binding
            fields = pinned.terms.context.fields if pinned.terms.context else ()
            context = {
                each.name: each.values[number % len(each.values)]
                for each in fields
                if isinstance(each, ContextField)
            }
            chosen = choose(pinned.terms, about, context or None)
            counts[chosen.option] = counts.get(chosen.option, 0) + 1
            levels = (*chosen.levels[:-1], self.liked(chosen.option, counts[chosen.option]))
            numbers = numbers_of(pinned.terms, about, levels)
            shares.append(split(pinned, one.announcement, one.slot, numbers))
        for role, party in enumerate(self.both.parties):
            waiting = [
                party.report(_identity(one), one.slot.number, pair[role])
                for one, pair in zip(came, shares, strict=True)
                if one.slot is not None
            ]
            assert party.keep(waiting) == [None] * len(waiting)

    def hold(self, share: float = 1.0) -> None:
        """A round from its opening to its end, of which this share reports."""
        before = {one["round"] for one in self.rounds if one["stage"] == "open"}
        came = self.come()
        self.report(came[: round(share * len(came))])
        if share < 1:
            self.clock.ahead += 3600 + 3600 + 600 + 1
        self.poke()
        over = ("opened", "refused")
        wait_for(lambda: all(one["stage"] in over for one in self.rounds if one["round"] in before))
        self.wait_next()

    def wait_next(self) -> None:
        """Until the next rounds are open, if there are any."""
        ended = ("finished", "stopped", "paused")
        state = self.both.coordinator.status(self.digest)["state"]
        if state not in ended:
            self.poke()
            self.wait_open()

    def poke(self) -> None:
        for front in self.both.fronts:
            front.app.state.service.driver.notify()  # type: ignore[attr-defined]


def _identity(assigned: Assigned) -> bytes:
    return TwoServerRound.decode(assigned.announcement[: -2 * 64]).identity


def _liked(option: str, n: int) -> int:
    """Evenly so many of them as like an option."""
    share = Fraction(LIKING.get(option, 0.5)).limit_denominator(100)
    return int(n * share) - int((n - 1) * share)


@contextmanager
def staged(directory: Path) -> Iterator[Stage]:
    """Two parties with a settable clock."""
    clock = Clock()
    sources = ({"clock": clock}, {"clock": clock})
    with served(directory, sources=sources) as both:
        yield Stage(both, clock)


def scenes(stage: Stage) -> Iterator[tuple[str, str]]:
    """Every state of the experimenter's page, one after another: its name and its address."""
    stage.publish()
    yield "unsigned", stage.page
    stage.begin()
    yield "empty", stage.page
    first = stage.come(0.4)
    yield "first-round", stage.page
    stage.report(first)
    stage.hold()
    yield "leading", stage.page
    stage.both.coordinator.pause(stage.digest)
    yield "paused", stage.page
    stage.both.coordinator.resume(stage.digest)
    stage.wait_next()
    stage.hold(0.05)
    yield "refused-round", stage.page
    while stage.both.coordinator.estimates(stage.digest)["decided"] is None:
        stage.hold()
    yield "decided", stage.page
    stage.both.coordinator.stop(stage.digest)
    stage.clock.ahead += 3600 + 3600 + 600 + 1
    stage.poke()
    wait_for(lambda: all(one["stage"] in ("opened", "refused") for one in stage.rounds))
    yield "over", stage.page
    stage.begin(question="Does a later ward round help people sleep?")
    stage.hold()
    helper = stage.both.fronts[1].app
    helper.state.service.driver.stop()  # type: ignore[attr-defined]
    yield "party-down", stage.page


SOON = Timing(joining=12, margin=4, grace=600)  # of participants who are waited for


def steps(page: Page, stage: Stage) -> Iterator[str]:
    """Every step of the participant's page, one after another: its name."""
    page.add_init_script(AHEAD)
    stage.begin()
    _fresh(page, stage, None)
    page.wait_for_selector("text=I agree")
    yield "terms"
    page.click("text=I agree")
    page.wait_for_selector("form")
    stage.report(stage.come())
    page.check("input[value='1']")
    page.click("text=Keep my answer")
    page.wait_for_selector("text=Kept on this device")
    yield "waiting"
    _pass(page, stage, 3900)
    page.wait_for_selector("text=Both shares have arrived")
    yield "sent"
    _pass(page, stage, 4200)
    page.wait_for_selector("text=The sum was released")
    yield "counted"
    yield from _late(page, stage)
    yield from _apart(page, stage)


AHEAD = """(() => {
  const now = Date.now;
  Date.now = () => now() + Number(localStorage.ahead ?? 0);
})()"""  # the browser's clock, which a test moves


def _late(page: Page, stage: Stage) -> Iterator[str]:
    """Answers whose round has too few reports, an unknown outcome, or has ended."""
    for name, outcome in (("uncounted", "Too few took part"), ("unknown", "Nobody says what")):
        stage.begin(question=f"Which greeting is {name}?")
        _fresh(page, stage, "text=Keep my answer")
        _pass(page, stage, 3900)
        page.wait_for_selector("text=Both shares have arrived")
        if name == "unknown":
            page.route("**/outcome", lambda route: route.abort())
        _pass(page, stage, 4200)
        if name == "unknown":  # a day or so in every second: it is asked twenty times
            page.evaluate("window.fast = setInterval(() => (localStorage.ahead -= -9e7), 999)")
        page.wait_for_selector(f"text={outcome}", timeout=120_000)
        page.evaluate("clearInterval(window.fast)")
        yield name
    page.unroute("**/outcome")
    stage.begin(question="Which greeting is missed?")
    _fresh(page, stage, "text=Keep my answer")
    _pass(page, stage, 8100)
    page.wait_for_selector("text=the deadline is over")
    yield "missed"


def _pass(page: Page, stage: Stage, seconds: float) -> None:
    """Time passes, for the servers and for the browser."""
    stage.clock.ahead += seconds
    page.evaluate("(ahead) => (localStorage.ahead = 1000 * ahead)", stage.clock.ahead)
    stage.poke()


def _apart(page: Page, stage: Stage) -> Iterator[str]:
    """What a visitor at another time, or with another browser, gets."""
    stage.both.coordinator.pause(stage.digest)
    yield from _anew(page, stage, "unasked", "text=You are not asked")
    stage.both.coordinator.resume(stage.digest)
    stage.begin(question="Which greeting do people like?")
    yield from _anew(page, stage, "withdrawn", "text=Keep my answer", "text=Withdraw")
    page.route("**/terms", lowered)
    yield from _anew(page, stage, "refused", None)
    page.unroute("**/terms")
    page.route("**/terms", lambda route: route.abort())
    yield from _anew(page, stage, "offline", None)
    page.unroute("**/terms")
    stage.begin(question="Which greeting was liked?")
    stage.both.coordinator.stop(stage.digest)
    yield from _anew(page, stage, "over", None)
    stage.publish(question="Which greeting is not signed?")
    yield from _anew(page, stage, "unsigned", None)
    page.add_init_script("delete Crypto.prototype.subtle")
    stage.begin(question="Which greeting does this browser like?")
    yield from _anew(page, stage, "unable", None)


def _anew(
    page: Page, stage: Stage, name: str, joined: str | None, then: str | None = None
) -> Iterator[str]:
    """A step of a participant with a fresh ledger."""
    _fresh(page, stage, joined)
    if then is not None:
        page.click(then)
        page.wait_for_selector("text=What had not been sent is deleted")
    yield name


def _fresh(page: Page, stage: Stage, joined: str | None) -> None:
    """A participant with a fresh ledger, who agrees on request."""
    page.goto(f"{stage.both.urls[0]}/static/icon.svg")
    page.evaluate("() => indexedDB.databases && indexedDB.deleteDatabase('tacit')")
    _pass(page, stage, 0)
    page.goto(f"{stage.page}/take-part")
    page.wait_for_selector(".needs-script", state="detached")
    if joined is not None:
        page.click("text=I agree")
        page.wait_for_selector(joined)


def lowered(route: Route) -> None:
    """Terms that guarantee less than those that were asked for."""
    answer = route.fetch()
    said = answer.json()
    said["terms"] = said["terms"].replace('"epsilon":"1"', '"epsilon":"9"')
    assert '"epsilon":"9"' in said["terms"]
    route.fulfill(response=answer, json=said)

"""The browser's device with a shuffler, in Node: the verdicts of Python, and noise as announced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from scipy import stats
from tests.browser import staging
from tests.browser.make_vectors import shuffler_terms
from tests.browser.test_vectors_node import NODE, node
from tests.service.pairs import Pair
from tests.service.test_shuffler import announced, began, everybody, send
from tests.service.test_shuffler import pair as pair

from tacit.aggregation import announce
from tacit.aggregation.announcements import endorse
from tacit.aggregation.shuffler import ShufflerRound
from tacit.client import Ledger
from tacit.client.trust_models.shuffler import ShufflerReporter
from tacit.errors import TacitError
from tacit.service.assignment import Assigned
from tacit.service.schema import Stage
from tacit.terms.accounting import binomial_delta
from tacit.terms.parts import MOST_MESSAGES

FALSE_ALARM = 1e-6
pytestmark = pytest.mark.skipif(NODE is None, reason="the browser's device needs Node.js")


def reports(
    pair: Pair, digest: bytes, asked: Sequence[Assigned], level: int
) -> list[tuple[Assigned, bytes]]:
    """What a device in JavaScript sends for each of these slots of one round, and for whom."""
    given: dict[str, Any] = {
        "terms": pair.coordinator.pinned(digest).terms.encode().decode(),
        "announcement": asked[0].announcement.hex(),
        "places": [one.slot.encode().hex() for one in asked if one.slot is not None],
        "values": [[level]] * len(asked),
    }
    made = node("halves", given)
    assert all(analyzer is None for analyzer, _ in made)
    return [(one, bytes.fromhex(report)) for one, (_, report) in zip(asked, made, strict=True)]


def of_one_round(pair: Pair, digest: bytes) -> list[Assigned]:
    asked = everybody(pair, digest)
    return [one for one in asked if one.announcement == asked[0].announcement]


def test_devices_in_javascript_draw_the_announced_noise(pair: Pair) -> None:
    """4,000 reports of each level; the number of ones is binomial (false positive rate 1e-6)."""
    digest = began(pair)
    one = everybody(pair, digest)[0]
    found = announced(pair, digest, one)
    bits, bias = found.messages - 1, float(found.noise.total)
    of = pair.coordinator.pinned(digest).terms.encode().decode()
    for level in (0, 1):
        given = {"terms": of, "announcement": one.announcement.hex(), "level": level}
        drawn = [count - level for count in node("ones", given | {"count": 4000})]
        assert stats.binomtest(sum(drawn), 4000 * bits, bias).pvalue > FALSE_ALARM
        assert stats.binomtest(sum(drawn), 4000 * bits, bias / 2).pvalue < 1e-9, "half the noise"
        assert len(set(drawn)) > 1, "one draw, reused"


def test_reports_from_javascript_are_released(pair: Pair) -> None:
    digest = began(pair)
    asked = of_one_round(pair, digest)
    found = announced(pair, digest, asked[0])
    for one, report in reports(pair, digest, asked, 1):
        send(pair, digest, one, report)
    pair.clock.now += 200
    pair.step(3)
    (row,) = pair.coordinator.rounds(Stage.RELEASED)
    assert row.reports == len(asked)
    bits, bias = (found.messages - 1) * len(asked), float(found.noise.total)
    ones = round(float((row.total or "").strip("[]")) + bits * bias) - len(asked)
    assert stats.binomtest(ones, bits, bias).pvalue > FALSE_ALARM


def verdict(pair: Pair, digest: bytes, description: ShufflerRound) -> tuple[str, str | None]:
    """A signed announcement, and what a device in Python makes of it."""
    body = description.encode()
    whole = announce(body, [endorse(body, key) for key in pair.secrets])
    pinned = pair.coordinator.pinned(digest)
    try:
        model = ShufflerReporter()
        return whole.hex(), str(model.cost(pinned, model.announced(pinned, whole)))
    except TacitError:
        return whole.hex(), None


def test_javascript_and_python_give_shuffler_rounds_the_same_verdict(pair: Pair) -> None:
    digest = began(pair)
    good = announced(pair, digest, everybody(pair, digest)[0])
    noise, binding = good.noise, good.binding
    changed = [
        good,
        replace(good, messages=good.messages + 1),
        replace(good, noise=replace(noise, divisor=noise.divisor - 1)),
        replace(good, noise=replace(noise, total=noise.total / 2)),
        replace(good, noise=replace(noise, total=Fraction(1))),
        replace(good, noise=replace(noise, divisor=noise.divisor + 60)),
        replace(good, messages=good.messages - 1),
        replace(good, messages=1),
        replace(good, minimum=good.minimum - 20),
        replace(good, size=2),
        replace(good, modulus=1 << 20),
        replace(good, grace=good.grace + 10**6),
        replace(good, metrics=2, messages=2 * good.messages),
        replace(good, binding=replace(binding, levels=2)),
        replace(good, binding=replace(binding, terms=bytes(32))),
        replace(good, shuffler=good.shuffler[:32] + good.shuffler[:32]),
    ]
    expected = [verdict(pair, digest, one) for one in changed]
    assert expected[0][1] == "1"
    assert sum(cost is not None for _, cost in expected) in range(1, 6)
    of = pair.coordinator.pinned(digest).terms.encode().decode()
    given = [{"terms": of, "announcement": one, "now": pair.clock.now} for one, _ in expected]
    assert node("verdicts", {"rounds": given})["costs"] == [cost for _, cost in expected]


def test_a_browser_encrypts_no_more_messages_than_a_device_in_python(pair: Pair) -> None:
    digest = began(pair)
    good = announced(pair, digest, everybody(pair, digest)[0])
    most = [replace(good, messages=count) for count in (MOST_MESSAGES, MOST_MESSAGES + 1)]
    expected = [verdict(pair, digest, one) for one in most]
    assert [cost for _, cost in expected] == ["1", None]
    of = pair.coordinator.pinned(digest).terms.encode().decode()
    given = [{"terms": of, "announcement": one, "now": pair.clock.now} for one, _ in expected]
    assert node("verdicts", {"rounds": given})["costs"] == ["1", None]


def test_the_delta_of_noise_bits_equals_pythons() -> None:
    cases = [
        (bits, bias, shift, epsilon)
        for bits in (3, 126, 4000)
        for bias in (Fraction(1, 100), Fraction(286, 1000), Fraction(1, 2), Fraction(9, 10))
        for shift, epsilon in ((1, Fraction(1)), (1, Fraction(1, 10)), (7, Fraction(3)))
    ]
    given = [
        {"bits": bits, "bias": float(bias), "shift": shift, "epsilon": float(epsilon)}
        for bits, bias, shift, epsilon in cases
    ]
    expected = [binomial_delta(*case) for case in cases]
    assert node("deltas", {"cases": given}) == pytest.approx(expected, rel=1e-9, abs=1e-40)


def test_open_admission_needs_the_participants_consent() -> None:
    """A coordinator could invent all others: a browser's device joins only if told to."""
    accepts: list[dict[str, bool]] = [{}, {"obedientCoordinator": False}]
    told = [*accepts, {"obedientCoordinator": True}]
    of = shuffler_terms()
    invited = shuffler_terms(admission="invitation", issuer=bytes(range(32)))
    cost = f"{of.cost.numerator},{of.cost.denominator}"
    asked = {"terms": of.encode().decode(), "accepts": told}
    assert node("joining", asked) == ["admission", "admission", cost]
    asked = {"terms": invited.encode().decode(), "accepts": told}
    assert node("joining", asked) == [cost] * 3


@pytest.mark.parametrize("state", ["running", "stopped", "finished", "anything"])
def test_no_claim_of_the_coordinator_replaces_the_participants_consent(
    pair: Pair, state: str
) -> None:
    """States are not signed: one that had ended made the device join without asking its user."""
    digest = began(pair)
    one = everybody(pair, digest)[0]
    assert one.slot is not None
    pinned = pair.coordinator.pinned(digest)
    signed = [signature.hex() for signature in pinned.signatures]
    terms = {"terms": pinned.terms.encode().decode(), "signatures": signed, "state": state}
    place = {"option": one.option, "asked": True, "announcement": one.announcement.hex()}
    slot = {"place": one.slot.number, "token": one.slot.token.hex()}
    analyzer, shuffler = (key.hex() for key in pinned.keys)
    given = {
        "address": "https://coordinator.example",
        "digest": digest.hex(),
        "pinned": {"coordinator": analyzer, "helper": shuffler},
        "start": pair.clock.now * 1000,
        "replies": {"terms": terms, "places": place | slot},
        "accepts": [{}, {"obedientCoordinator": False}, {"obedientCoordinator": True}],
    }
    assert node("joined", given) == ["admission", "admission", "waiting"]


@pytest.mark.extended
def test_a_report_is_charged_its_delta_in_javascript_and_python(stage: staging.Stage) -> None:
    stage.begin_with("shuffler", participations=3)
    digest, keys = stage.digest.hex(), [key.hex() for key in stage.both.keys]
    spent = {"round": "07" * 16, "report": "09" * 16, "cost": "1/1000", "delta": "1/1500"}
    entry = {"terms": [digest], "keys": keys, "epsilon": "1", "participations": 9}
    entry |= {"withdrawn": False, "rounds": [spent | {"charged": True, "refused": False}]}
    document = {"format": "tacit ledger 3", "own_limit": None, "experiments": [entry]}
    pinned = {"coordinator": keys[0], "helper": keys[1]}
    asked = {"address": stage.both.urls[0], "digest": digest, "pinned": pinned}
    found = node("charged", asked | {"more": json.dumps(document)})
    deltas = [found[name]["delta"] for name in ("before", "after", "copied")]
    assert deltas == ["0", "1/3000", "1/3000"]
    ledger = Ledger(":memory:")
    ledger.merge(found["exported"])
    assert ledger.spent_delta == Fraction(1, 3000)
    assert found["field"] == "delta", "more than the δ of the terms"

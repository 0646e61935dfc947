"""The browser's device in the local model, in Node: the verdicts of Python, and exact noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.browser.test_vectors_node import NODE, node
from tests.service.deployed import SECRETS, Deployed, definition_of, deployed
from tests.service.test_local import suspicious, unlike

from tacit.aggregation import announce
from tacit.aggregation.announcements import endorse
from tacit.aggregation.local import LocalRound, LocalServer
from tacit.client.trust_models.local import LocalReporter
from tacit.errors import TacitError
from tacit.noise import DiscreteLaplace

pytestmark = pytest.mark.skipif(NODE is None, reason="the browser's device needs Node.js")


def numbers(one: Deployed, levels: list[int]) -> list[int]:
    """The numbers in reports of these levels from JavaScript, as the server decodes them."""
    one.step(2)
    assigned = one.join(1)[0]
    assert assigned.slot is not None
    given: dict[str, Any] = {
        "terms": one.pinned.terms.encode().decode(),
        "announcement": assigned.announcement.hex(),
        "places": [assigned.slot.encode().hex()] * len(levels),
        "values": [[level] for level in levels],
    }
    server = one.coordinator.server(one.identity(assigned))
    assert isinstance(server, LocalServer)
    found = []
    for (report,) in node("halves", given):
        checked = server.check(bytes.fromhex(report), one.coordinator.now)
        read = server._open().numbers(checked.name, checked.wrapped)
        assert read is not None
        found.append(read[0])
    return found


def test_javascript_flips_bits_with_the_stated_probability(tmp_path: Path) -> None:
    """A false alarm in a million runs, for zeros, ones and both; half and twice the ε are told
    apart.
    """
    with deployed(definition_of(epsilon=Fraction(1)), tmp_path) as one:
        found = numbers(one, [0] * 1000 + [1] * 1000)
    flips = [sum(found[:1000]), 1000 - sum(found[1000:])]
    assert not any(suspicious(part, 1000, 1.0) for part in flips)
    assert not suspicious(sum(flips), 2000, 1.0)
    assert suspicious(sum(flips), 2000, 0.5)
    assert suspicious(sum(flips), 2000, 2.0)


def test_javascript_adds_the_stated_laplace_noise(tmp_path: Path) -> None:
    with deployed(definition_of(levels=4, epsilon=Fraction(2)), tmp_path) as one:
        drawn = numbers(one, [0] * 1500)
    assert not unlike(drawn, DiscreteLaplace(Fraction(2)))
    assert unlike(drawn, DiscreteLaplace(Fraction(1)))
    assert unlike([0] * len(drawn), DiscreteLaplace(Fraction(2)))


def test_javascript_and_python_give_rounds_of_the_local_model_the_same_verdict(
    tmp_path: Path,
) -> None:
    with deployed(definition_of(epsilon=Fraction(1)), tmp_path) as one:
        one.step(2)
        assigned = one.join(1)[0]
        pinned, now = one.pinned, one.clock.now
        good = LocalReporter().announced(pinned, assigned.announcement)
    assert isinstance(good, LocalRound)
    noise = good.noise
    changed = [
        good,
        replace(good, margin=good.margin + 5),
        replace(good, noise=replace(noise, total=noise.total * 2)),
        replace(good, noise=replace(noise, total=noise.total * Fraction(999, 1000))),
        replace(good, noise=replace(noise, divisor=2)),
        replace(good, minimum=1),
        replace(good, slots=good.minimum - 1, minimum=good.minimum - 1),
        replace(good, grace=good.grace + 10**6),
        replace(good, length=2),
        replace(good, server=bytes(32)),
        replace(good, binding=replace(good.binding, levels=2)),
        replace(good, binding=replace(good.binding, window=31)),
        replace(good, binding=replace(good.binding, terms=bytes(32))),
    ]
    given, expected = [], list[str | None]()
    for description in changed:
        body = description.encode()
        whole = announce(body, [endorse(body, SECRETS[0])])
        entry = {"terms": pinned.terms.encode().decode(), "announcement": whole.hex(), "now": now}
        given.append(entry)
        try:
            found = LocalReporter().announced(pinned, whole)
            assert isinstance(found, LocalRound)
            _ = found.recipient
            expected.append(str(LocalReporter().cost(pinned, found)))
        except TacitError:
            expected.append(None)
    assert expected[:3] == ["1"] * 3
    assert not any(expected[3:])
    assert node("verdicts", {"rounds": given})["costs"] == expected

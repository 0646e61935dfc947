"""The browser's device with moments, in Node: terms, choices, and sums of Python's servers."""

from __future__ import annotations

import json
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from tests.browser.test_vectors_node import NODE, node
from tests.service.deployed import ADDRESSES, KEYS, deployed
from tests.service.test_moments import contextual, moments

from tacit.aggregation.announcements import binding_of
from tacit.client.choices import numbers_of
from tacit.contextual.policies import LinearPolicy
from tacit.protocols.statistics import ScaledMomentStatistic
from tacit.service.pages import participant
from tacit.service.schema import Stage
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms.accounting import _normal_tail, vector_delta

FALSE_ALARM = 1e-6
pytestmark = pytest.mark.skipif(NODE is None, reason="the browser's device needs Node.js")


def changed(document: dict[str, Any], path: str, value: Any) -> str:
    """The spelling of a document with one value replaced."""
    copy = json.loads(json.dumps(document))
    *above, last = path.split(".")
    at = copy
    for name in above:
        at = at[name]
    at[last] = value
    return json.dumps(copy, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def test_terms_with_moments_are_read_and_weaker_ones_rejected() -> None:
    terms = contextual(levels=4, epsilon=Fraction(1)).terms(ADDRESSES[0], KEYS[0])
    assert participant.in_browsers(terms)
    known = terms.document()
    matrices = known["context"]["matrices"]
    least = known["noise"]["minimum"][0]
    longer = [[[round(1.01 * x) for x in row] for row in matrix] for matrix in matrices]
    wrong: dict[str, list[Any]] = {
        "noise.minimum": [[round(least * 0.999), 1], [least // 2, 1]],
        "guarantee.delta": ["0", "1/10000000", "1", "3/2"],
        "guarantee.epsilon": ["1/2"],
        "guarantee.participations": [2],
        "noise.distribution": ["discrete-laplace"],
        "context.resolution": [16, 1 << 21, 0],
        "context.matrices": [longer, matrices[:1], [], [[[1, 2]]] * len(matrices)],
        "context.statistic": ["table", "fit"],
        "context.fields": [[], known["context"]["fields"][:1]],
        "answer.levels": [5000],
        "proofs": [1],
        "trust": ["local"],
    }
    texts = [terms.encode().decode()] + [
        changed(known, path, value) for path, values in wrong.items() for value in values
    ]
    first, *others = node("verdicts", {"texts": texts})["digests"]
    assert first == terms.digest.hex()
    assert others == [None] * len(others)


def test_the_delta_of_noise_equals_pythons() -> None:
    cases = [
        (sigma, square, size, epsilon)
        for sigma in (1.5, 900.0, 2e8, 7.5e9)
        for square in (4.5 * (sigma / 3) ** 2, 4.5 * (sigma / 9) ** 2)
        for size in (2, 152)
        for epsilon in (0.1, 1.0, 8.0)
    ]
    for case, (delta, above, below) in zip(
        cases, node("vectorDeltas", {"cases": cases}), strict=True
    ):
        sigma, square, size, epsilon = case
        known = vector_delta(Fraction(sigma), Fraction(square), size, Fraction(epsilon))
        assert delta == pytest.approx(known, rel=1e-10)
        assert above == pytest.approx(_normal_tail(epsilon), rel=1e-11)
        assert below == pytest.approx(_normal_tail(-epsilon), rel=1e-11)


def test_delta_is_rounded_up_where_both_tails_cancel() -> None:
    """At very small ε the difference of two tails has few digits left."""
    cases = [
        (1e9 * tail / epsilon, 1e18, 1, epsilon)
        for epsilon in (1e-12, 1e-9)
        for tail in (0.1, 1.0, 2.4, 2.8, 4.0, 8.0)
    ]
    found = [delta for delta, _, _ in node("vectorDeltas", {"cases": cases})]
    with mp.workdps(60):
        for delta, (sigma, square, _, epsilon) in zip(found, cases, strict=True):
            moved = mp.sqrt(square) / sigma
            ends = [epsilon / moved - moved / 2, epsilon / moved + moved / 2]
            one, other = (mp.erfc(end / mp.sqrt(2)) / 2 for end in ends)
            assert delta >= one - mp.exp(epsilon) * other


def test_moments_from_javascript_are_summed_by_python_servers(tmp_path: Path) -> None:
    """Through a deployed coordinator and helper without noise; options as Python would draw."""
    silent = {"noise": lambda _identity: lambda _scale: 0}
    defined = contextual(evaluation=Fraction(0), levels=4, participants=10**5)
    with deployed(defined, tmp_path, options=silent) as one:
        one.step(2)
        asked, terms, rng = one.join(10), one.pinned.terms, random.Random(4)
        about = {
            "terms": terms.encode().decode(),
            "announcement": asked[0].announcement.hex(),
        }
        people: list[dict[str, Any]] = [
            {"device": rng.choice(["phone", "desktop"]), "age": rng.choice([17, 40.5, "61", 90])}
            for _ in asked
        ]
        chosen = [found[0] for found in node("choices", about | {"contexts": people, "count": 1})]
        features = moments(defined).features(defined.options)
        for person, (*known, option) in zip(people, chosen, strict=True):
            exact = person | {"age": float(person["age"])}
            assert tuple(known) == features.of(exact)[option]
        levels = [rng.randrange(5) for _ in asked]
        values = [[*one_, level] for one_, level in zip(chosen, levels, strict=True)]
        places = [each.slot.encode().hex() for each in asked if each.slot is not None]
        made = node("halves", about | {"places": places, "values": values})
        shares = [{role: bytes.fromhex(half) for role, half in enumerate(pair)} for pair in made]
        assert set(one.send(list(zip(asked, shares, strict=True)))) == {None}
        one.clock.now += 200
        one.step(3)
        row = max(one.coordinator.rounds(Stage.RELEASED), key=lambda row: row.number)
        binding = binding_of(asked[0].announcement[: -2 * SIGNATURE_SIZE])[1]
        reports = [
            numbers_of(terms, binding, (*known, level))
            for (*known, _), level in zip(chosen, levels, strict=True)
        ]
        units = ScaledMomentStatistic(moments(defined).dimension, 4096, 4).units
        assert np.array(json.loads(row.total or "")) == pytest.approx(np.sum(reports, 0) * units)
        again = node("choices", about | {"contexts": [people[0]], "count": 4000})[0]
        policy = LinearPolicy.decode(binding.policy, moments(defined).dimension, 2)
        vectors = features.of(people[0] | {"age": float(people[0]["age"])})
        ours = Counter(policy.draw(vectors) for _ in range(4000))
        theirs = Counter(option for *_, option in again)
        both = np.array([[found[0], found[1]] for found in (ours, theirs)])
        assert stats.fisher_exact(both).pvalue > FALSE_ALARM
        wrong: list[Any] = [None, {}, {"device": "phone"}, {"device": "phone", "age": ""}]
        wrong += [people[0] | {"age": "old"}, people[0] | {"x": 1}, people[0] | {"device": "tv"}]
        said = node("choices", about | {"contexts": wrong, "count": 1})
        assert said == ["context"] * len(wrong)

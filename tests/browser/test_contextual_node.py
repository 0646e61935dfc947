"""The browser's device in contextual experiments, in Node: choices, and tables that servers sum."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.browser.make_vectors import CONTEXT, ROWS, announced, contextual_terms, described
from tests.browser.test_vectors_node import NODE, node
from tests.service.deployed import deployed
from tests.service.test_contextual import contextual

from tacit.aggregation.announcements import binding_of
from tacit.client.choices import numbers_of
from tacit.contextual.policies import ONE, TablePolicy
from tacit.service.schema import Stage
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms import BY_POLICY, ContextField

FALSE_ALARM = 1e-6
pytestmark = pytest.mark.skipif(NODE is None, reason="the browser's device needs Node.js")

TERMS = contextual_terms()
FIRST, SECOND = CONTEXT.fields


def drawn(contexts: list[Any], count: int) -> list[Any]:
    """What a device in JavaScript chooses in these contexts."""
    changes = {"option": BY_POLICY, "policy": TablePolicy(ROWS).encode(), "length": 24}
    given = {
        "terms": TERMS.encode().decode(),
        "announcement": announced(described(TERMS, **changes).encode()).hex(),
        "contexts": contexts,
        "count": count,
    }
    found: list[Any] = node("choices", given)
    return found


def test_options_are_drawn_by_the_weights_of_the_segment() -> None:
    """8,000 draws in each of six segments; false positive rate 1e-6 each."""
    firsts, seconds = (one.values for one in CONTEXT.fields if isinstance(one, ContextField))
    contexts = [{FIRST.name: a, SECOND.name: b} for a in firsts for b in seconds]
    for place, (row, pairs) in enumerate(zip(ROWS, drawn(contexts, 8000), strict=True)):
        assert {segment for segment, _ in pairs} == {place}
        counts = Counter(option for _, option in pairs)
        test = stats.binomtest(counts[0], 8000, row[0] / ONE)
        assert test.pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    "context",
    [
        None,
        {},
        {"b": "1"},
        {FIRST.name: "früh", "b": "4"},
        {FIRST.name: "früh", "b": "1", "c": "1"},
        {FIRST.name: "früh", "b": ""},
        "b",
        {FIRST.name: "toString", "b": "1"},
    ],
)
def test_invalid_contexts_are_rejected(context: Any) -> None:
    assert drawn([context], 1) == ["context"]


@pytest.mark.parametrize("proofs", [False, True])
def test_tables_from_javascript_are_summed_by_python_servers(tmp_path: Path, proofs: bool) -> None:
    """Through a deployed coordinator and helper without noise; with proofs nothing is dropped."""
    silent = {"noise": lambda _identity: lambda _scale: 0}
    defined = contextual(evaluation=Fraction(0), proofs=proofs)
    with deployed(defined, tmp_path, options=silent) as one:
        one.step(2)
        asked = one.join(10)
        terms = one.pinned.terms
        cells = [(n % 4, n % 2, n // 2 % 2) for n in range(len(asked))]
        made = node(
            "halves",
            {
                "terms": terms.encode().decode(),
                "announcement": asked[0].announcement.hex(),
                "places": [each.slot.encode().hex() for each in asked if each.slot is not None],
                "values": [list(cell) for cell in cells],
            },
        )
        shares = [{role: bytes.fromhex(half) for role, half in enumerate(pair)} for pair in made]
        assert set(one.send(list(zip(asked, shares, strict=True)))) == {None}
        one.clock.now += 200
        one.step(3)
        row = max(one.coordinator.rounds(Stage.RELEASED), key=lambda row: row.number)
        assert row.reports == len(asked)
        binding = binding_of(asked[0].announcement[: -2 * SIGNATURE_SIZE])[1]
        expected = np.sum([numbers_of(terms, binding, cell) for cell in cells], axis=0)
        assert json.loads(row.total or "") == expected.tolist()

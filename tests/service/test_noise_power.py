"""Power of the test of released noise with 200 releases, for every trust model.

Rounds are those of definitions with default settings, at the minimum batch size. The probabilities
are computed from the exact distributions, not estimated. Halved noise has half the scale or
standard deviation. (With half the variance, Skellam noise is caught with probability 0.8 only.)
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.deployed import ADDRESSES, HELPED, KEYS, deployed

from tacit.noise import NoiseDistribution, Table
from tacit.noise.release_test import Fault, NoiseTest
from tacit.service.definition import Definition
from tacit.service.schema import Stage
from tacit.service.trust_models import coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.terms import parts

RATE, RELEASES, POWER = 1e-6, 200, 0.999
LOST = 1e-12  # probability of each value that a multiplied distribution leaves out, at most
INVITED = {"admission": "invitation", "issuer": KEYS[2]}
TABLES = {"algorithm": "private-contextual", "context_fields": ("device: phone, desktop",)}
CORNERS = TABLES | {"context_fields": ("age: 18 to 90",), "statistic": "corners"}
CASES: dict[str, dict[str, Any]] = {
    parts.RANDOMIZED_RESPONSE: {"trust": "local"},
    f"local-{parts.DISCRETE_LAPLACE}": {"trust": "local", "levels": 4},
    parts.UNARY_ENCODING: {"trust": "local", **TABLES},
    "two-servers": {"trust": "two-servers"},
    "proofs": {"trust": "two-servers", "proofs": True},
    parts.BINOMIAL: {"trust": "shuffler"},
    f"shuffler-{parts.DISCRETE_LAPLACE}": {
        "trust": "shuffler",
        "algorithm": "split-dp-se",
        **INVITED,
    },
    parts.CERTIFIED_POLYA: {"trust": "shuffler", "algorithm": "shuffle-dp-se", **INVITED},
    "secure-aggregation": {"trust": "secure-aggregation"},
    parts.SKELLAM: {"trust": "secure-aggregation", "algorithm": "dist-rdp-se"},
    parts.DISCRETE_GAUSSIAN: {"trust": "secure-aggregation", "algorithm": "dist-cdp-se"},
    "table": {"trust": "secure-aggregation", **TABLES},
    "corners": {"trust": "two-servers", **CORNERS},
    "corners-masked": {"trust": "secure-aggregation", **CORNERS},
}


def defined(**about: Any) -> Definition:
    """A definition with default settings."""
    given: dict[str, Any] = {
        "question": "Which greeting do people like?",
        "options": ("plain", "friendly"),
        "meaning": "1 if you liked it, 0 if not",
        "window": 60,
        "epsilon": Fraction(1),
        "participants": 20_000,
        "first_day": "2027-01-15",
        "last_day": "2027-12-31",
    }
    if about["trust"] in HELPED:
        given |= {"helper_address": ADDRESSES[1], "helper_key": KEYS[1]}
    return Definition.of(**given | about)


def noises(directory: Path, case: str) -> tuple[NoiseDistribution, NoiseDistribution, Any]:
    """The noise of a released sum, halved, and with one share in all reports; None at servers."""
    with deployed(defined(**CASES[case]), directory) as one:
        one.step(2)
        terms, row = one.pinned.terms, one.coordinator.rounds(Stage.OPEN)[0]
        engine = coordinator_engine(terms)
        announced = decoded(engine, terms, row.announcement)
        reports = announced.minimum
        skellam = terms.noise.distribution == parts.SKELLAM  # whose parameter is the variance
        stated, halved = (
            engine.released_noise(terms, announced, reports, factor).distribution
            for factor in (Fraction(1), Fraction(1, 4 if skellam else 2))
        )
        if terms.noise.by == "servers":
            return stated, halved, None
        single = engine.released_noise(terms, announced, 1).distribution
        return stated, halved, multiplied(single, reports)


def multiplied(one: NoiseDistribution, by: int) -> Table:
    """The distribution of an integer times a variable."""
    low, high = one.window(math.log(LOST))
    masses = np.zeros((high - low) * by + 1)
    masses[::by] = one.pmf(np.arange(low, high + 1))
    return Table.of(low * by, masses / masses.sum())


@pytest.mark.parametrize("case", CASES)
def test_halved_missing_and_reused_noise_is_detected(tmp_path: Path, case: str) -> None:
    stated, halved, shared = noises(tmp_path, case)
    test = NoiseTest((stated,) * RELEASES, RATE)
    assert test.power((stated,) * RELEASES) <= RATE / 2, "the stated noise itself"
    assert test.power((halved,) * RELEASES) >= POWER
    certain = {Fault.SPREAD, Fault.MEAN, Fault.REPETITION}  # not randomized
    assert test.rejected([0] * RELEASES) & certain, "missing noise"
    assert test.detects_repetition, "each number twice, or one number in all releases"
    if shared is not None:
        assert test.power((shared,) * RELEASES) >= POWER, "one share in all reports of a round"

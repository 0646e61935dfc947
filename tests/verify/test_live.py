"""The weakest accepted live terms and rounds meet their guarantee tightly; `make verify` has the
whole grid.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.verify import live, moments
from tests.verify.live import CORNERS, TABLE, WHOLE_TABLE, Setting

from tacit.trust import TrustModel

TOLERATED: dict[str, Any] = {
    "slots": 24,
    "missing": Fraction(1, 6),
    "dishonest": 1,
    "fraction": Fraction(1, 10),
}
DELTA = Fraction(1, 10**6)
LOCAL, MASKED, SHUFFLED = TrustModel.LOCAL, TrustModel.SECURE_AGGREGATION, TrustModel.SHUFFLER
SETTINGS = [
    Setting(LOCAL, "discrete-laplace", levels=3, metrics=2, participations=2),
    Setting(LOCAL, "randomized-response", metrics=2),
    Setting(LOCAL, "unary-encoding", context=TABLE, chosen=True),
    Setting(LOCAL, "unary-encoding", context=TABLE, metrics=2),
    Setting(TrustModel.TWO_SERVERS, "discrete-laplace", "servers", levels=3, metrics=2),
    Setting(TrustModel.TWO_SERVERS, "discrete-laplace", "servers", context=TABLE, chosen=True),
    Setting(TrustModel.TWO_SERVERS, "discrete-laplace", participations=2, **TOLERATED),
    Setting(MASKED, "discrete-laplace", delta=DELTA, context=TABLE, chosen=True, **TOLERATED),
    Setting(MASKED, "skellam", delta=DELTA, levels=2, **TOLERATED),
    Setting(MASKED, "discrete-gaussian", delta=DELTA, levels=4, **TOLERATED),
    Setting(SHUFFLED, "discrete-laplace", delta=DELTA, metrics=2, **TOLERATED | {"slots": 28}),
    Setting(SHUFFLED, "binomial", delta=DELTA, **TOLERATED),
    Setting(
        SHUFFLED,
        "binomial",
        epsilon=Fraction(1, 3),
        delta=DELTA,
        context=WHOLE_TABLE,
        chosen=True,
        **TOLERATED,
    ),
    Setting(TrustModel.TWO_SERVERS, "discrete-laplace", "servers", context=CORNERS, chosen=True),
    Setting(MASKED, "discrete-laplace", delta=DELTA, context=CORNERS, chosen=True, **TOLERATED),
    Setting(SHUFFLED, "certified-polya", epsilon=Fraction(2), metrics=2, slots=9, dishonest=2),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: f"{one.trust.value} {one.noise}")
def test_the_weakest_rounds_meet_the_guarantee_of_the_terms(setting: Setting) -> None:
    parts = [part for part, _ in live.used(setting)]
    assert 0.9 < max(parts) <= 1 + 1e-9


@pytest.mark.parametrize("setting", SETTINGS[6:10], ids=lambda one: one.noise)
def test_one_more_dishonest_participant_than_stated_is_detected(setting: Setting) -> None:
    pinned = live.weakest_terms(setting)
    for offer in live.weakest_rounds(setting, pinned):
        assert offer.divisor == live.honest_reports(pinned.terms.document(), offer)
        weaker = replace(offer, divisor=offer.divisor + 1)
        number, (epsilon, delta) = (
            live.seen(setting, pinned, weaker),
            pinned.terms.per_metric_target,
        )
        if number.noise is None:
            assert number.copies * number.pure > pinned.terms.cost
        else:
            assert number.delta(1, epsilon) > delta


@pytest.mark.parametrize(
    "setting", list(moments.settings(quick=True)), ids=lambda one: one.trust.value
)
def test_moments_meet_the_guarantee_of_the_terms_towards_everybody(setting: Setting) -> None:
    parts = [part for part, _ in moments.used(setting)]
    assert 0.9 < max(parts) <= 1 + 1e-9

"""Invalid values give one line with value and remedy from the library;
`tests/cli/test_rejections.py` tests the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from tests.tables import each_row

from tacit.errors import TacitError
from tacit.noise import DiscreteLaplace, Skellam, wrap_probability
from tacit.privacy import (
    ApproximateDP,
    Clones,
    ComposedLoss,
    ConcentratedDP,
    Gaussian,
    GaussianLoss,
    PureDP,
    RenyiDP,
    audit,
    calibrate,
    compose_participations,
    guaranteed_reports,
    l2_guarantee,
    linf_loss,
    privacy_loss,
)

DISTRIBUTION = Skellam(100)
LOSS = privacy_loss(DISTRIBUTION, 1)
BAD_POSITIVE = [0, -1.0, math.nan, math.inf, -math.inf]
BAD_DELTA = [0, 1, -0.1, 1.5, math.nan, math.inf]
BAD_EPSILON_AT = [-1.0, math.nan, math.inf]
BAD_COUNT = [0, -3, 0.5, math.nan, math.inf]

REJECTIONS: list[tuple[str, Callable[[float], object], list[float]]] = [
    ("epsilon", PureDP, BAD_POSITIVE),
    ("epsilon", lambda v: ApproximateDP(v, 1e-5), [-1.0, math.nan, math.inf]),
    ("epsilon", lambda v: calibrate("skellam", 1, ApproximateDP(v, 1e-5)), BAD_POSITIVE),
    ("rho", ConcentratedDP, BAD_POSITIVE),
    ("delta", lambda v: ApproximateDP(1.0, v), BAD_DELTA),
    ("delta", lambda v: PureDP(1.0).to_approximate(v), BAD_DELTA),
    ("delta", lambda v: ConcentratedDP(1.0).to_approximate(v), BAD_DELTA),
    ("delta", lambda v: RenyiDP(((2.0, 1.0),)).to_approximate(v), BAD_DELTA),
    ("delta", LOSS.epsilon, BAD_DELTA[1:]),
    ("delta", ComposedLoss(((LOSS, 2),)).epsilon, BAD_DELTA[1:]),
    ("delta", GaussianLoss(1.0, 1.0).epsilon, BAD_DELTA),
    ("delta", Clones(1.0, 10).epsilon, BAD_DELTA),
    ("delta", lambda v: compose_participations(PureDP(1.0), 2, v), BAD_DELTA),
    ("delta", lambda v: l2_guarantee(Gaussian(1.0), 1.0, 2, v), BAD_DELTA),
    ("epsilon", LOSS.delta, BAD_EPSILON_AT),
    ("epsilon", ComposedLoss(((LOSS, 2),)).delta, BAD_EPSILON_AT),
    ("epsilon", GaussianLoss(1.0, 1.0).delta, BAD_EPSILON_AT),
    ("epsilon", PureDP(1.0).delta_at, BAD_EPSILON_AT),
    ("epsilon", ApproximateDP(1.0, 1e-5).delta_at, BAD_EPSILON_AT),
    ("epsilon", ConcentratedDP(1.0).delta_at, BAD_EPSILON_AT),
    ("epsilon", RenyiDP(((2.0, 1.0),)).delta_at, BAD_EPSILON_AT),
    ("order", PureDP(1.0).renyi, [1.0, 0.0, math.nan, math.inf]),
    ("order", ConcentratedDP(1.0).renyi, [1.0, 0.0, math.nan, math.inf]),
    ("order", LOSS.renyi, [1.0, 0.0, math.nan, math.inf]),
    ("sensitivity", lambda v: privacy_loss(DISTRIBUTION, v), BAD_COUNT),  # type: ignore[arg-type]
    ("sensitivity", lambda v: linf_loss(DISTRIBUTION, v, 2), BAD_COUNT),  # type: ignore[arg-type]
    ("sensitivity", lambda v: GaussianLoss(1.0, v), BAD_POSITIVE),
    ("sensitivity", lambda v: calibrate("skellam", v, ApproximateDP(1.0, 1e-5)), BAD_COUNT),
    ("sensitivity", lambda v: calibrate("gaussian", v, ApproximateDP(1.0, 1e-5)), BAD_POSITIVE),
    ("bound", lambda v: l2_guarantee(Gaussian(1.0), v, 2, 1e-5), BAD_POSITIVE),
    ("sigma", Gaussian, BAD_POSITIVE),
    ("shares", lambda v: DISTRIBUTION.share(v), BAD_COUNT),  # type: ignore[arg-type]
    ("users", lambda v: guaranteed_reports(v), BAD_COUNT),  # type: ignore[arg-type]
    ("users", lambda v: calibrate("skellam", 1, ApproximateDP(1.0, 1e-5), users=v), BAD_COUNT),  # type: ignore[arg-type]
    ("users", lambda v: Clones(1.0, v), BAD_COUNT),  # type: ignore[arg-type]
    ("participations", lambda v: compose_participations(PureDP(1.0), v, 1e-5), BAD_COUNT),  # type: ignore[arg-type]
    ("dimension", lambda v: linf_loss(DISTRIBUTION, 1, v), BAD_COUNT),  # type: ignore[arg-type]
    ("samples", lambda v: audit(lambda x, n: [x] * n, 0, 1, v), BAD_COUNT),  # type: ignore[arg-type]
]


@each_row(
    ("name", "call", "value"),
    [(name, call, value) for name, call, values in REJECTIONS for value in values],
)
def test_an_invalid_value_is_named_in_one_line(
    name: str, call: Callable[[float], object], value: float
) -> None:
    with pytest.raises(TacitError) as rejection:
        call(value)
    message = str(rejection.value)
    assert "\n" not in message
    assert name in message
    assert str(value) in message or str(float(value)) in message
    assert (
        len(message) > len(f"{name} is {value}; ") + 10
    )  # it also says what is expected or what to do


def test_a_modulus_too_small_is_rejected_with_a_sufficient_one() -> None:
    distribution = DiscreteLaplace(10)
    with pytest.raises(TacitError, match="modulus 50 is too small") as rejection:
        wrap_probability(distribution, 100, 50)
    suggested = int(str(rejection.value).split("use at least ")[1].split(",")[0])
    assert wrap_probability(distribution, 100, suggested) <= 1e-9


def test_strings_and_booleans_are_not_numbers() -> None:
    for value in ("1", None, True):
        with pytest.raises(TacitError, match="epsilon is"):
            PureDP(value)  # type: ignore[arg-type]
        with pytest.raises(TacitError, match="sensitivity is"):
            privacy_loss(DISTRIBUTION, value)  # type: ignore[arg-type]
    for value in ("1", None):
        with pytest.raises(TacitError, match="epsilon is"):
            LOSS.delta(value)  # type: ignore[arg-type]

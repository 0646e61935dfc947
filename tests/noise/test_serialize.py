"""Distributions as plain data, and their cumulant functions."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import TacitError
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Polya,
    PolyaDifference,
    Skellam,
    Table,
)
from tacit.noise.cumulants import cumulants
from tacit.noise.serialize import distribution_from_dict, distribution_to_dict

DISTRIBUTIONS: list[NoiseDistribution] = [
    DiscreteLaplace(Fraction(7, 3)),
    DiscreteLaplace(0.1),
    DiscreteLaplace(10).share(7),
    DiscreteLaplace(10).power(3),
    PolyaDifference(0.3, 0.25),
    Skellam(Fraction(1, 3)),
    Skellam(1388),
    DiscreteGaussian(3.5),
    Binomial(62),
    Binomial(100, 0.02),
]


@pytest.mark.parametrize("distribution", [*DISTRIBUTIONS, Polya(Fraction(1, 5), 0.5)], ids=repr)
def test_a_distribution_survives_json_exactly(distribution: NoiseDistribution) -> None:
    copy = distribution_from_dict(json.loads(json.dumps(distribution_to_dict(distribution))))
    assert copy == distribution
    assert repr(copy) == repr(distribution)


@given(scale=st.fractions(min_value=Fraction(1, 1000), max_value=1000) | st.floats(1e-3, 1e3))
@settings(derandomize=True)
def test_parameters_keep_full_precision(scale: Fraction | float) -> None:
    assert (
        distribution_from_dict(
            json.loads(json.dumps(distribution_to_dict(DiscreteLaplace(scale))))
        ).scale
        == scale
    )


def test_a_table_survives_json_exactly() -> None:
    table = Table.of(-3, np.array([0.1, 0.2, 0.4, 0.3]))
    copy = distribution_from_dict(json.loads(json.dumps(distribution_to_dict(table))))
    assert (copy.start, copy.concave) == (table.start, table.concave)
    assert np.array_equal(copy.probabilities, table.probabilities)


def test_unknown_distributions_are_rejected() -> None:
    with pytest.raises(TacitError, match="known are"):
        distribution_from_dict({"law": "Cauchy"})
    with pytest.raises(TacitError, match="register"):
        distribution_to_dict(object())


@pytest.mark.parametrize(
    "distribution", [*DISTRIBUTIONS, Table.of(-3, np.array([0.1, 0.2, 0.4, 0.3]))], ids=repr
)
@pytest.mark.parametrize("sign", [-1, 1])
def test_cumulants_match_the_distribution(distribution: NoiseDistribution, sign: int) -> None:
    for share in (0.01, 0.3, 0.6):
        s = sign * share / math.sqrt(float(distribution.variance))
        k, slope, curvature = cumulants(distribution)(s)
        step = 1e-2 * abs(s)
        log_mgf = [
            float(distribution.log_mgf(x)) - x * distribution.mean for x in (s - step, s, s + step)
        ]
        if not math.isfinite(sum(log_mgf)):
            continue
        assert k == pytest.approx(log_mgf[1], rel=1e-6, abs=1e-9)
        assert slope == pytest.approx((log_mgf[2] - log_mgf[0]) / (2 * step), rel=1e-2)
        assert curvature == pytest.approx(
            (log_mgf[2] - 2 * log_mgf[1] + log_mgf[0]) / step**2, rel=2e-2
        )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
def test_stored_cumulants_never_underestimate(distribution: NoiseDistribution) -> None:
    """A bound built on them stays a bound."""
    for s in np.linspace(-3, 3, 25) / math.sqrt(float(distribution.variance)):
        assert (
            cumulants(distribution)(float(s))[0]
            >= float(distribution.log_mgf(s)) - float(s) * distribution.mean - 1e-9
        )


def test_no_moments_exist_beyond_the_scale() -> None:
    assert cumulants(DiscreteLaplace(2))(0.5) == (math.inf, math.inf, math.inf)

"""Silos with budgets of their own (ZC24 Definition 2.1): every silo's participants get their silo's
guarantee, the headline covers all.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import each_row

from tacit.algorithms import SilosProblem, lookup
from tacit.algorithms.registry import check_together
from tacit.algorithms.zc24_noise import jdp_linucb, ldp_fedlinucb, secagg_fedlinucb, weights
from tacit.bandits.contextual.moments import joint_sensitivity
from tacit.cli.options import budgets
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.privacy import ApproximateDP, GaussianLoss
from tacit.privacy.silos import SilosDP, weakest
from tacit.protocols.mechanism import Mechanism, Releases
from tacit.protocols.prefix_guarantees import achieves
from tacit.rounding import up
from tacit.simulation import simulate

PAIRS = ((0.2, 0.1), (1.0, 1e-5), (1.0, 1e-5), (5.0, 1e-3))
SMALL = SilosProblem.of(dimension=3, actions=5, sync=5, horizon=60, budgets=PAIRS)
SIZE: dict[str, Any] = {"dimension": 3, "actions": 5, "sync": 5, "horizon": 60, "workers": 1}


def test_each_silos_guarantee_is_that_of_its_own_gaussian() -> None:
    """Independently: σ_i, the square root's column norm, √4.5; within 2% of what was asked for."""
    private = ldp_fedlinucb(SMALL)
    coefficients = [math.comb(2 * m, m) / 4**m for m in range(SMALL.steps)]
    moved = joint_sensitivity(3) * math.sqrt(sum(c * c for c in coefficients))
    assert isinstance(private.guarantee, SilosDP)
    for sigma, asked, got in zip(
        private.sums.sigmas, PAIRS, private.guarantee.budgets, strict=True
    ):
        assert GaussianLoss(sigma, moved).delta(asked[0]) <= asked[1]
        assert GaussianLoss(sigma, moved).epsilon(asked[1]) == pytest.approx(asked[0], rel=0.02)
        assert 0.97 * asked[0] <= got[0] <= asked[0]
        assert got[1] == asked[1]
    assert private.sums.sigmas[0] < private.sums.sigmas[1] == private.sums.sigmas[2]  # δ tells


def test_the_printed_guarantee_covers_every_silo_and_json_lists_each() -> None:
    result = simulate("ldp-fedlinucb", budgets=PAIRS, runs=1, **SIZE)
    summary = json.loads(json.dumps(result.summary()))
    told = summary["guarantee"]
    assert 0.97 * 5.0 < told["epsilon"] <= 5.0
    assert told["delta"] == 0.1
    low, high = (row["epsilon"] for row in (told["silos"][0], told["silos"][3]))
    assert f"from ({up(low)}, 1e-05)-DP to ({up(high)}, 0.1)-DP" in told["text"]
    assert [(row["silo"], row["delta"]) for row in told["silos"]] == [
        (place, delta) for place, (_, delta) in enumerate(PAIRS)
    ]
    assert all(
        row["epsilon"] <= epsilon for row, (epsilon, _) in zip(told["silos"], PAIRS, strict=True)
    )
    assert summary["configuration"]["silos"] == 4


@pytest.mark.parametrize("make", [secagg_fedlinucb, jdp_linucb])
def test_shared_noise_meets_the_strictest_silos_budget(make: Any) -> None:
    private = make(SMALL)
    strict = make(SMALL.changed(budgets=None, epsilon=1.0, delta=1e-5))
    assert private.sums.sigma == strict.sums.sigma  # (1, 1e-5) takes more noise than (0.2, 0.1)
    assert isinstance(private.guarantee, SilosDP)
    for (epsilon, delta), (got, at) in zip(PAIRS, private.guarantee.budgets, strict=True):
        assert got <= epsilon
        assert at == delta
        assert private.sums.loss().delta(got) <= delta * (1 + 1e-9)


def test_equal_budgets_equal_one_common_budget() -> None:
    """The same noise, draw by draw, hence the same regret to the last bit."""
    for name in ("ldp-fedlinucb", "secagg-fedlinucb"):
        alike = simulate(name, budgets=((1.0, 1e-5),) * 3, runs=2, **SIZE)
        plain = simulate(name, silos=3, epsilon=1.0, delta=1e-5, runs=2, **SIZE)
        assert np.array_equal(alike.regret, plain.regret)


def test_weights_are_inverse_variances_and_widths_include_the_weighted_noise() -> None:
    sums = ldp_fedlinucb(SMALL).sums
    assert sums.weights == weights(sums.sigmas)
    assert max(sums.weights) == 1.0
    each = [w * s for w, s in zip(sums.weights, sums.sigmas, strict=True)]
    assert sums.row_variance == pytest.approx(sum(x * x for x in each), rel=1e-4)
    learner: Any = lookup("ldp-fedlinucb").build(SMALL).learner
    assert learner.noise == pytest.approx(np.sqrt(sums.row_variance * sums.shape.variances))
    rng = np.random.default_rng(2)
    drawn = np.array([sums.sample_noise(rng) for _ in range(2000)])
    # 18,000 normal numbers: off by 6% with a chance below 1e-7
    assert drawn.var() == pytest.approx(sums.row_variance, rel=0.06)


def test_weighted_silo_messages_have_the_simulated_distribution() -> None:
    """On the device path, four silos with their encoders: unbiased, with the stated variance.

    300 steps of 9 numbers: the mean is off by 5 of its standard errors with a chance below 6e-6,
    the variance by 18% with one below 1e-10.
    """
    sums = ldp_fedlinucb(SMALL).sums
    data = np.random.default_rng(3).uniform(0, 1, (4, sums.size))
    round_ = sums.open(0, {}, {}, None)
    truth = sums.shape.right[0, 0] * round_.weighted_total(data)
    errors = []
    for _ in range(300):
        sent = [sums.encoder(silo=i).randomize(row) for i, row in enumerate(data)]
        errors.append(np.array(sums.open(0, {}, {}, None).combine(sent).values) - truth)
    variance = sums.row_variance
    assert abs(np.mean(errors)) < 5 * math.sqrt(variance / np.size(errors))
    assert np.mean(np.square(errors)) == pytest.approx(variance, rel=0.18)
    for silo, sigma in enumerate(sums.sigmas):  # each its own, however little the sum shows of it
        for own in (sums.encoder(silo=silo), Releases(sums).encoder(silo)):
            assert own.protocol.share.std == pytest.approx(sigma * sums.scale)
    with pytest.raises(TacitError, match="pass the number of the silo"):
        sums.encoder()
    with pytest.raises(TacitError, match="report by the silo's encoder"):
        round_.randomize(data[0])


@pytest.mark.extended
def test_weighting_keeps_strict_silos_from_drowning_the_others() -> None:
    """Half strict, half lax: far from all strict, which equal weights are not."""
    size = SIZE | {"horizon": 400, "actions": 20, "runs": 2}
    strict, lax = (0.2, 0.01), (5.0, 0.01)
    mixed = simulate("ldp-fedlinucb", budgets=(strict,) * 5 + (lax,) * 5, **size)
    low, high = (simulate("ldp-fedlinucb", budgets=(one,) * 10, **size) for one in (lax, strict))
    assert low.regret_mean < mixed.regret_mean < 0.8 * high.regret_mean


def test_a_stored_experiment_keeps_every_silos_guarantee_and_noise() -> None:
    problem = SMALL.changed(horizon=20)
    experiment = lookup("ldp-fedlinucb").build(problem)
    stored = json.loads(json.dumps(experiment.to_dict(), allow_nan=False))
    restored = Experiment.from_dict(stored)
    assert restored.guarantee == experiment.guarantee
    assert restored.mechanism.privacy == experiment.mechanism.privacy
    assert isinstance(restored.mechanism, Releases)
    assert restored.mechanism.sums.sigmas == ldp_fedlinucb(problem).sums.sigmas
    data = json.loads(json.dumps(experiment.mechanism.to_dict()))
    data["sums"]["sigmas"][1] /= 2  # of one silo only
    data["sums"]["sigma"] = min(data["sums"]["sigmas"])
    with pytest.raises(TacitError, match="noise was changed"):
        Mechanism.from_dict(data)
    assert not achieves(restored.mechanism.sums, weakest([ApproximateDP(0.1, 1e-6)] * 4))


@each_row(
    ("asked", "said"),
    [
        (
            {"budgets": (1.0, 2.0), "silos": 3},
            "budgets has 2 entries: must have one for each of 3",
        ),
        ({"budgets": ()}, "budgets has 0 entries"),
        ({"budgets": (1.0, 0.0)}, "epsilon of silo 1 is 0"),
        ({"budgets": (1e30, 1.0)}, "epsilon of silo 0 is 1e.30: must be at most 10,000"),
        ({"budgets": ((1.0, 0.0),)}, "delta of silo 0 is 0"),
        ({"budgets": ((1.0, 1e-5, 2.0),)}, "budget of silo 0"),
        (
            {"budgets": (1.0, 2.0), "participations": 2},
            "budgets cover one participation in one silo",
        ),
    ],
)
def test_invalid_budgets_are_rejected_with_the_silo_named(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(TacitError, match=said):
        SilosProblem.of(**asked)


def test_budgets_beside_an_epsilon_are_rejected() -> None:
    with pytest.raises(TacitError, match="leave --epsilon out"):
        check_together({"budgets": (1.0,), "epsilon": 1.0})
    with pytest.raises(TacitError, match="sdp-fedlinucb-vec has no option --budgets"):
        simulate("sdp-fedlinucb-vec", budgets=(1.0, 1.0))
    assert budgets("2*0.5:1e-6,1") == ((0.5, 1e-6), (0.5, 1e-6), 1.0)
    assert SilosProblem.of(budgets=(0.5, 1.0), delta=1e-4).privacy.budgets == (
        (0.5, 1e-4),
        (1.0, 1e-4),
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(1e-9, 0.1)), min_size=1, max_size=6))
def test_every_silos_guarantee_implies_the_headline(pairs: list[tuple[float, float]]) -> None:
    each = [ApproximateDP(*pair) for pair in pairs]
    headline = replace(weakest(each), budgets=())
    assert all(one.implies(headline) for one in each)
    strictest = min(each, key=lambda one: (one.epsilon, one.delta))
    laxest = [one for one in each if not one.implies(strictest)]
    assert not any(one.implies(weakest(each)) for one in laxest)  # which states every silo's budget


def test_the_range_of_budgets_holds_the_largest_delta_of_every_silo() -> None:
    """Found: "from (0.5, 1e-05)-DP to (1, 1e-06)-DP", where a silo has ten times that delta."""
    said = str(weakest([ApproximateDP(0.5, 1e-5), ApproximateDP(1.0, 1e-6)]))
    assert "from (0.5, 1e-06)-DP to (1, 1e-05)-DP" in said

"""Participant-level guarantees of ZC24's algorithms, other than those of one recorded pair."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.algorithms.asking import options_of
from tests.tables import extended_after

from tacit.algorithms import SilosProblem, algorithms, lookup
from tacit.algorithms.zc24_noise import (
    _amplified_guarantee,
    nodes,
    sdp_fedlinucb,
    sdp_fedlinucb_vec,
    sensitivity,
)
from tacit.assumptions import (
    Derivation,
    DerivedBy,
    DishonestAtMost,
    OwnRecords,
    Scope,
    Spread,
    VisitsAtMost,
)
from tacit.errors import TacitError
from tacit.privacy import ApproximateDP, Arithmetic, GaussianLoss, advanced_composition
from tacit.privacy.guarantees import state_arithmetic
from tacit.privacy.shuffling import amplified
from tacit.protocols.mechanism import Releases
from tacit.protocols.prefix_guarantees import achieves
from tacit.simulation import simulate

SMALL = SilosProblem.of(silos=20, dimension=3, actions=4, horizon=500, epsilon=1.0, delta=1e-5)
PRIVATE = sorted(
    name
    for name, entry in algorithms().items()
    if entry.family == "federated" and name != "fedlinucb"
)


def guarantee_of(name: str, problem: SilosProblem) -> ApproximateDP:
    guarantee = lookup(name).build(problem).guarantee
    assert isinstance(guarantee, ApproximateDP)
    return guarantee


def test_silos_are_lazy_by_default() -> None:
    assert SilosProblem().lazy
    size: dict[str, Any] = {"silos": 3, "dimension": 2, "actions": 3, "sync": 5, "horizon": 20}
    result = simulate("secagg-fedlinucb", **size, epsilon=5.0, runs=1)
    assert result.summary()["configuration"]["lazy"] is True


def test_printed_bits_state_the_guarantee_without_a_silos_own_share() -> None:
    problem = SMALL.changed(silos=3, constants="paper")
    private = sdp_fedlinucb_vec(problem)
    assert private.guarantee is not None
    sums, found = private.sums, private.guarantee
    assert DishonestAtMost(Scope.SILOS, 1) in found.assumptions
    others = math.sqrt(2 * float(sums.share.variance)) / sums.scale
    moved = sensitivity(problem) * math.sqrt(nodes(problem))
    assert 0.1 < GaussianLoss(others, moved).delta(found.epsilon) / found.delta <= 1
    assert sums.row_variance == pytest.approx((private.sigma or 0) ** 2 / nodes(problem), rel=1e-6)


@pytest.mark.parametrize("name", ["secagg-fedlinucb", "ldp-fedlinucb", "sdp-fedlinucb-vec"])
def test_a_lazy_run_guarantees_the_target_to_a_participant(name: str) -> None:
    assert 0.97 <= guarantee_of(name, SMALL).epsilon <= 1.0


@pytest.mark.parametrize(
    ("name", "visits", "epsilon"),
    [
        ("secagg-fedlinucb", 1, 52.93),
        ("ldp-fedlinucb", 1, 52.93),
        ("secagg-fedlinucb", 2, 52.93),
        ("ldp-fedlinucb", 2, 32.57),
    ],
)
def test_eager_runs_print_the_participant_level_guarantee(
    name: str, visits: int, epsilon: float
) -> None:
    """One visit moves 25 records of a silo, two visits 25 records in each of two; noise is made for
    one record a visit. The Gaussian mechanism for that movement, a second time; at a large ε a
    discrete Gaussian is accounted for by concentration, which is looser.
    """
    problem = SMALL.changed(lazy=False, visits_per_batch=visits)
    experiment = lookup(name).build(problem)
    sums = experiment.mechanism.sums  # type: ignore[attr-defined]
    column = math.sqrt(sum((math.comb(2 * m, m) / 4**m) ** 2 for m in range(20)))
    records = 25 * (visits if name == "secagg-fedlinucb" else math.sqrt(visits))
    true = GaussianLoss(sums.sigma, records * math.sqrt(4.5) * column).epsilon(1e-5)
    guarantee = guarantee_of(name, problem)
    assert true <= guarantee.epsilon <= 1.07 * true
    assert guarantee.epsilon == pytest.approx(epsilon, rel=5e-3)
    said = experiment.mechanism.text()
    assert said.startswith(guarantee.short)
    assert "the participant's own pairs only it is (1, 1e-05)-DP" in said


@pytest.mark.parametrize("lazy", [True, False])
def test_guarantees_state_their_derivation_and_the_cost_of_visits(lazy: bool) -> None:
    experiment = lookup("secagg-fedlinucb").build(SMALL.changed(lazy=lazy))
    assert experiment.guarantee is not None
    found = experiment.guarantee.assumptions
    steps = experiment.mechanism.sums.shape.steps  # type: ignore[attr-defined]
    assert DerivedBy(Derivation.EXACT_JOINT, steps) in found
    own = [one for one in found if isinstance(one, OwnRecords)]
    assert [one.records for one in own] == ([] if lazy else [SMALL.sync])
    assert all(0.97 <= one.epsilon <= 1.0 and one.delta == SMALL.privacy.delta for one in own)


@pytest.mark.parametrize("name", ["secagg-fedlinucb", "ldp-fedlinucb", "sdp-fedlinucb-vec"])
@pytest.mark.parametrize("times", extended_after(2, [2, 25, 500]))
def test_participations_at_any_silo_meet_the_target_together(name: str, times: int) -> None:
    """The Gaussian mechanism for so many records in one batch, a second time."""
    problem = SMALL.changed(participations=times)
    experiment = lookup(name).build(problem)
    sums = experiment.mechanism.sums  # type: ignore[attr-defined]
    shape = sums.shape
    column = float(np.linalg.norm(shape.right, axis=0).max())
    record = math.sqrt(2) * (1 + 0.8**2 / 2) if name == "secagg-fedlinucb" else math.sqrt(4.5)
    true = GaussianLoss(sums.sigma, times * record * column).epsilon(1e-5)
    assert true <= guarantee_of(name, problem).epsilon <= 1.0
    assert true > 0.9
    assert experiment.guarantee is not None
    assert VisitsAtMost(1, times, Spread.ANYWHERE) in experiment.guarantee.assumptions
    said = experiment.mechanism.text()
    assert f"up to {times} times, to any silos in any batches" in said


def test_participations_and_visits_exclude_each_other() -> None:
    with pytest.raises(TacitError, match="give one or the other"):
        SMALL.changed(participations=2, visits=3)


@pytest.mark.parametrize("name", [name for name in PRIVATE if "lazy" in lookup(name).options])
def test_no_guarantee_exceeds_that_of_silos_acting_on_raw_data(name: str) -> None:
    tiny = {"epsilon": 2e-5, "delta": 1e-4} if name == "sdp-fedlinucb" else {"delta": 0.1}
    problem = SilosProblem.of(**options_of(name, silos=20, horizon=2000, sync=2, **tiny))
    lazy = guarantee_of(name, problem)
    eager = guarantee_of(name, problem.changed(lazy=False))
    assert eager.epsilon > 1.5 * lazy.epsilon
    assert eager.delta >= lazy.delta * (1 - 1e-9)


def test_noise_without_a_participant_guarantee_is_rejected() -> None:
    with pytest.raises(TacitError, match="let silos be lazy, or use secagg-fedlinucb"):
        sdp_fedlinucb_vec(SMALL.changed(lazy=False))


def test_the_amplification_lemma_as_corrected() -> None:
    found = amplified(1e-6, 1e-12, 1e-3, silos=10_000, delta=0.5)
    assert found is not None
    bias = (math.exp(1e-6) - 1) / (math.exp(1e-6) + 1)
    inner = 8 * math.sqrt(math.exp(1e-3) * math.log(8) / 1e4) + 8 * math.exp(1e-3) / 1e4
    assert found.epsilon == pytest.approx(math.log1p(bias * inner))
    assert found.epsilon < 0.2e-6
    each = 1e4 * (math.exp(found.epsilon) + 1) * (1 + math.exp(-1e-6) / 2) * 1e-12
    assert found.delta == pytest.approx(bias * 0.5 + each, rel=1e-9)
    assert amplified(0.1, 1e-12, 100.0, silos=100, delta=1e-6) is None
    edge = math.log(1e4 / (16 * math.log(2 / 0.5)))
    assert amplified(1e-6, 1e-12, edge * 0.999, silos=10_000, delta=0.5) is not None
    assert amplified(1e-6, 1e-12, edge * 1.001, silos=10_000, delta=0.5) is None


def groups(problem: SilosProblem, sigma: float) -> tuple[float, float, float, float]:
    """ε₀ and δ₀ of one record, T times that ε₀, and the true ε at δ₀ of T records together."""
    delta0 = problem.privacy.delta / (16 * nodes(problem) * (problem.silos - 1))  # one may look
    one, all_ = (
        GaussianLoss(sigma, n * sensitivity(problem)).epsilon(delta0) for n in (1, problem.horizon)
    )
    return one, delta0, problem.horizon * one, all_


def test_amplification_needs_nodes_that_fail_rarely_enough() -> None:
    """A single record each, and noise so small that the lemma's own δ is beyond its part."""
    problem = SilosProblem.of(silos=10**6 + 1, horizon=1, sync=1, delta=0.01)
    assert nodes(problem) == 1
    beyond = 0
    for sigma in np.linspace(1.5, 1.6, 41):
        epsilon0, delta0, _, group = groups(problem, sigma)
        failing = problem.privacy.delta / (4 * math.tanh(epsilon0 / 2))
        node = amplified(epsilon0, delta0, group, problem.silos - 1, failing)
        found = _amplified_guarantee(problem, sigma)
        assert found is None or found.delta <= problem.privacy.delta
        beyond += node is not None and node.delta > problem.privacy.delta / 2
        assert (found is None) == (node is None or node.delta > problem.privacy.delta / 2)
    assert beyond


def test_group_privacy_costs_more_than_the_group_size() -> None:
    problem = SilosProblem.of(silos=100, horizon=10_000, epsilon=3e-5, delta=1e-6)
    _, _, multiplied, true = groups(problem, sdp_fedlinucb(problem).sums.sigma)
    assert (multiplied, true) == pytest.approx((0.2995, 0.4366), abs=5e-4)


def test_amplification_covers_one_participation_and_all_that_it_moves() -> None:
    """The printed noise, where amplification says most: silos that act on raw data move `sync`
    records of a silo at once; for who returns nothing is worked out.
    """
    problem = SilosProblem.of(
        silos=10**7, horizon=10_000, epsilon=5e-6, delta=1e-12, constants="paper"
    )
    lazy, eager, often = (
        sdp_fedlinucb(problem.changed(**change)) for change in ({}, {"lazy": False}, {"visits": 2})
    )
    assert lazy.derivation is Derivation.AMPLIFIED
    assert often.derivation is Derivation.OWN_NOISE
    assert lazy.guarantee is not None
    assert eager.guarantee is not None
    assert eager.guarantee.epsilon > 2 * lazy.guarantee.epsilon


@pytest.mark.parametrize(("epsilon", "ratio"), [(1e-5, 2.09), (5e-6, 1.36)])
def test_amplification_uses_the_exact_group_guarantee(epsilon: float, ratio: float) -> None:
    """The printed noise of Theorem 5.3 at M = 10⁷, δ = 10⁻¹²: multiplying ε₀ guarantees a node less
    than half of what is proven.
    """
    problem = SilosProblem.of(
        silos=10**7, horizon=10_000, epsilon=epsilon, delta=1e-12, constants="paper"
    )
    private = sdp_fedlinucb(problem)
    epsilon0, delta0, multiplied, true = groups(problem, private.sums.sigma)
    level = problem.privacy.delta / (2 * nodes(problem))
    failing = level / (2 * math.tanh(epsilon0 / 2))
    others = problem.silos - 1
    wrong, right = (
        amplified(epsilon0, delta0, group, others, failing) for group in (multiplied, true)
    )
    assert wrong is not None
    assert right is not None
    assert right.epsilon / wrong.epsilon == pytest.approx(ratio, abs=0.01)
    forgotten, proven = (
        advanced_composition(node, nodes(problem), problem.privacy.delta / 2).epsilon
        for node in (wrong, right)
    )
    assert private.guarantee is not None
    if epsilon == 5e-6:
        assert private.derivation is Derivation.AMPLIFIED
        assert private.guarantee.epsilon == proven > 1.3 * forgotten
    else:
        assert private.guarantee.epsilon < proven


def test_amplification_assumes_all_silos_but_the_curious_one_honest() -> None:
    """Where shuffling proves more than a silo's own noise, others' noise is what it rests on."""
    problem = SilosProblem.of(
        silos=10**7, horizon=10_000, epsilon=5e-6, delta=1e-12, constants="paper"
    )
    found = sdp_fedlinucb(problem)
    assert found.derivation is Derivation.AMPLIFIED
    assert found.guarantee is not None
    one = DishonestAtMost(Scope.SILOS, 1)
    assert one in found.guarantee.assumptions
    assert one.to_dict() in found.guarantee.to_dict()["assumptions"]
    assert found.guarantee.arithmetic is Arithmetic.IDEAL
    alone = sdp_fedlinucb(problem.changed(silos=10))
    assert alone.guarantee is not None
    assert not any(isinstance(one, DishonestAtMost) for one in alone.guarantee.assumptions)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_stored_delta_below_the_truth_is_rejected(name: str) -> None:
    """Found: a file could state a δ lower by up to a millionth than that of its noise."""
    options = {"epsilon": 1e-4} if name == "sdp-fedlinucb" else {}
    problem = SMALL.changed(lazy=True, **options)
    mechanism = lookup(name).build(problem).mechanism
    assert isinstance(mechanism, Releases)
    guarantee, sums = mechanism.guarantee, mechanism.sums
    assert isinstance(guarantee, ApproximateDP)
    assert achieves(sums, guarantee)
    least = sums.loss().delta(guarantee.epsilon) + sums.slack(guarantee.epsilon)
    for part, earned in ((1.0, True), (1 - 1e-9, False)):
        stated = state_arithmetic(replace(guarantee, delta=least * part), guarantee.arithmetic)
        assert achieves(sums, stated) is earned


def test_an_amplified_delta_below_the_truth_is_rejected() -> None:
    problem = SilosProblem.of(
        silos=10**7, horizon=10_000, epsilon=5e-6, delta=1e-12, constants="paper"
    )
    private = sdp_fedlinucb(problem)
    assert private.guarantee is not None
    said = DerivedBy(Derivation.AMPLIFIED, private.sums.shape.steps)
    guarantee = private.guarantee.assuming(said)
    assert achieves(private.sums, guarantee)
    low = replace(guarantee, delta=guarantee.delta * (1 - 1e-9))
    assert not achieves(private.sums, state_arithmetic(low, guarantee.arithmetic))

"""Silos and coordinator in one process: decisions, released noise, records and absent silos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.silos.harness import LocalFederation

from tacit.assumptions import BoundedAdversary, PublicMembership
from tacit.environments.silos import Synthetic
from tacit.errors import Rejected, TacitError
from tacit.protocols.mechanism import Releases
from tacit.silos.context import ContextColumn, ContextSpec
from tacit.silos.coordinator import FederationCoordinator, SiloAbsent
from tacit.silos.explanations import explain
from tacit.silos.federation import FederationTerms, PinnedFederation, RewardSpec, SyncSchedule
from tacit.simulation.driver import run
from tacit.types import Floats

SILOS, ROWS = 3, 40
SIGNED = LocalFederation.of(SILOS).pinned


class Watched(Synthetic):
    """The paper's silos, noting which features were chosen."""

    def earned(self, chosen: Floats, means: Floats | None, rng: np.random.Generator) -> Floats:
        NOTED.append(chosen.copy())
        return super().earned(chosen, means, rng)


NOTED: list[Floats] = []


def released(coordinator: FederationCoordinator) -> Floats:
    """All released rows."""
    mechanism = coordinator.experiment.mechanism
    assert isinstance(mechanism, Releases)
    return np.array([mechanism.released[step] for step in sorted(mechanism.released)])


def test_decisions_without_privacy_match_the_simulation() -> None:
    horizon, actions, d = 63, 5, 4
    world = Watched.draw(SILOS, d, actions, np.random.default_rng(1))
    federation = LocalFederation.of(
        SILOS,
        algorithm="fedlinucb",
        context=ContextSpec(features=d),
        schedule=SyncSchedule(horizon=horizon, sync=10, kind="fixed"),
    )
    NOTED.clear()
    run(federation.terms.experiment(), world, np.random.default_rng(2))
    simulated = np.array(NOTED[: 6 * 10])

    rng, chosen = np.random.default_rng(2), []
    coordinator = federation.coordinator()
    while not coordinator.finished:
        coordinator.deliver()
        for _ in range(federation.terms.batches[coordinator.step]):
            contexts = world.contexts(rng)
            decisions = [
                agent.decide(table.tolist())
                for agent, table in zip(federation.agents.values(), contexts, strict=True)
            ]
            picked = [int(one.action) for one in decisions]
            x = contexts[np.arange(SILOS), picked]
            chosen.append(x)
            rewards = world.earned(x, np.asarray(x @ world.parameter), rng)
            for agent, one, reward in zip(
                federation.agents.values(), decisions, rewards, strict=True
            ):
                agent.record(one, float(reward))
        coordinator.synchronise()
    np.testing.assert_array_equal(np.array(chosen), simulated)


def noise_of_empty_silos(**about: Any) -> tuple[Floats, FederationCoordinator]:
    """Released rows of silos without records, in standard deviations: noise and nothing else."""
    schedule = SyncSchedule(horizon=ROWS, sync=1, kind="fixed")
    federation = LocalFederation.of(SILOS, schedule=schedule, **about)
    coordinator = federation.coordinator()
    coordinator.run()
    mechanism = coordinator.experiment.mechanism
    assert isinstance(mechanism, Releases)
    return released(coordinator) / np.sqrt(mechanism.sums.row_variance), coordinator


@pytest.mark.parametrize("algorithm", ["secagg-fedlinucb", "ldp-fedlinucb"])
def test_released_noise_has_the_declared_distribution(algorithm: str) -> None:
    """1,080 numbers; false positive rate 1e-6 for each of the three tests. Half of the noise, none
    or the same noise in two rows fails with certainty."""
    scores, _ = noise_of_empty_silos(algorithm=algorithm)
    assert scores.shape == (ROWS, 27)
    squares = float((scores**2).sum())
    assert 1e-6 < 2 * stats.chi2.cdf(squares, scores.size) < 2 - 1e-6
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-6
    products = scores @ scores.T - np.diag((scores**2).sum(axis=1))
    assert np.abs(products).max() < stats.norm.ppf(1 - 5e-7 / ROWS**2) * np.sqrt(27) * 1.5


def test_each_record_is_used_in_one_row() -> None:
    federation = LocalFederation.of(
        SILOS, algorithm="fedlinucb", schedule=SyncSchedule(horizon=12, sync=4, kind="fixed")
    )
    coordinator, rng = federation.coordinator(), np.random.default_rng(3)
    coordinator.deliver()
    federation.play(6, rng)
    agent = federation.agents["silo0"]
    pending = agent.decide({"age": 30, "severe": False})
    coordinator.synchronise()
    assert agent.status()["waiting"] == 2
    assert agent.status()["synchronised"] == 4
    coordinator.deliver()
    agent.record(pending, 1)
    coordinator.synchronise()
    assert agent.status()["synchronised"] == 7
    coordinator.deliver()
    coordinator.synchronise()
    rows = [row.vector for row in agent._database.rows()]
    np.testing.assert_array_equal(rows[2], np.zeros_like(rows[2]))  # unused slots are zero
    total = released(coordinator)
    shape = federation.pinned.derived.sums.shape
    everything = sum(
        np.sum([row.vector for row in one._database.rows()], axis=0)
        for one in federation.agents.values()
    )
    np.testing.assert_allclose(shape.left[2] @ total, everything)


@pytest.mark.parametrize("algorithm", ["secagg-fedlinucb", "ldp-fedlinucb"])
def test_the_guarantee_assumes_that_records_keep_their_slots(algorithm: str) -> None:
    """Found: one record less moves every later one in the queue, so that each row changes; the
    guarantee is for another record in the same place, and did not say so.
    """
    federation = LocalFederation.of(3, algorithm=algorithm)
    derived = federation.pinned.derived
    assert derived.guarantee is not None
    assert PublicMembership() in derived.guarantee.assumptions
    bounded = BoundedAdversary() in derived.guarantee.assumptions  # who sees no more than the sum
    assert bounded == federation.pinned.terms.masked
    assert any(PublicMembership().text() in one for one in explain(federation.pinned.terms, 0))


def test_an_override_is_recorded_as_the_action_taken() -> None:
    federation = LocalFederation.of(SILOS)
    federation.coordinator().deliver()
    agent = federation.agents["silo1"]
    decision = agent.decide({"age": 30, "severe": True})
    other = next(a for a in federation.terms.context.actions if a != decision.action)
    agent.record(decision.id, 1, action=other)
    agent.record(decision.id, 1, action=other)  # the same again changes nothing
    stored = agent._database.decision(decision.id)
    assert stored is not None
    assert stored.taken == federation.terms.context.action(other)
    with pytest.raises(TacitError, match="has an outcome already"):
        agent.record(decision, 0, action=other)
    with pytest.raises(TacitError, match="must be one that decide returned"):
        agent.record("nothing", 1)


def test_reports_are_sent_on_schedule_only() -> None:
    federation = LocalFederation.of(
        SILOS, schedule=SyncSchedule(horizon=40, starts=1000, pace=1000)
    )
    coordinator = federation.coordinator()
    federation.now = 1009.0
    coordinator.deliver()
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert federation.agents["silo0"].status()["rows"] == 0
    federation.now = 1010.0
    coordinator.synchronise()
    assert coordinator.step == 1


class Losing:
    """An exchange that loses answers of silos at stages."""

    def __init__(self, inner: Any, lost: Mapping[str, set[str]]) -> None:
        self.inner, self.lost = inner, dict(lost)

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], deadline: float
    ) -> Mapping[str, bytes]:
        gone = self.lost.get(stage, set())
        kept = {name: one for name, one in messages.items() if name not in gone}
        found: Mapping[str, bytes] = self.inner.exchange(stage, kept, deadline)
        return found


STAGES = ["JOIN", "SHARE", "CHECK", "MASK", "SURVIVORS", "REVEAL"]


@pytest.mark.parametrize("stage", STAGES)
def test_every_row_waits_for_every_silo(stage: str) -> None:
    federation = LocalFederation.of(SILOS)
    exchange = Losing(federation.exchange(), {stage: {"silo2"}})
    coordinator = federation.coordinator(exchange)
    coordinator.deliver()
    federation.play(10, np.random.default_rng(4))
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert coordinator.step == 0
    before = {n: a._database.rows() for n, a in federation.agents.items()}
    exchange.lost.clear()
    coordinator.synchronise()
    assert coordinator.step == 1
    for name, agent in federation.agents.items():
        if before[name]:
            assert agent._database.rows()[0].message == before[name][0].message


def test_three_silos_tolerate_no_loss_and_four_tolerate_one() -> None:
    with pytest.raises(TacitError, match="at most 0 of 3 silos"):
        LocalFederation.of(3, missing=1)
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    sums = federation.pinned.derived.sums
    assert (sums.shape.kind, sums.honest) == ("tree", 2)
    exchange = Losing(federation.exchange(), {})
    coordinator, rng = federation.coordinator(exchange), np.random.default_rng(5)
    for lost in ({}, {"POLICY": {"silo3"}, "JOIN": {"silo3"}}, {"MASK": {"silo0"}}, {}):
        exchange.lost = dict(lost)
        coordinator.deliver()
        federation.play(10, rng)
        coordinator.synchronise()
    assert coordinator.step == 4
    survivors = [row.survivors for row in federation.agents["silo1"]._database.rows()]
    assert [len(one or b"") // 2 for one in survivors] == [4, 3, 3, 4]
    absent = federation.agents["silo3"]._database.rows()[1]
    assert absent.message is None
    assert not absent.vector.any()


def test_a_row_with_a_missing_silo_has_the_noise_of_the_guarantee() -> None:
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    sums = federation.pinned.derived.sums
    assert sums.guarantee(1e-5).epsilon <= 1.0 + 1e-9
    with_all, with_three = (sums.share.sum_of_shares(n) for n in (4, 3))
    honest = sums.share.sum_of_shares(2)  # one of three survivors may be corrupted
    assert honest.variance == pytest.approx(float(sums.total.variance), rel=1e-3)
    assert float(with_all.variance) > float(with_three.variance) > float(honest.variance)


def test_absent_silos_end_the_federation_and_the_policy_remains() -> None:
    schedule = SyncSchedule(horizon=40, patience=100)
    federation = LocalFederation.of(SILOS, schedule=schedule)
    exchange = Losing(federation.exchange(), {})
    coordinator = federation.coordinator(exchange)

    def passing(seconds: float) -> None:
        federation.now += 50 + seconds

    object.__setattr__(coordinator._timing, "sleep", passing)
    coordinator.deliver()
    federation.play(10, np.random.default_rng(6))
    coordinator.synchronise()
    exchange.lost["JOIN"] = {"silo1"}
    coordinator.run()
    assert (coordinator.ended, coordinator.step) == (True, 1)
    agent = federation.agents["silo0"]
    assert agent.export().step == 1
    agent.decide({"age": 40, "severe": True})
    again = federation.coordinator(exchange)
    assert (again.ended, again.step) == (True, 1)


def test_silos_have_their_own_budgets() -> None:
    budgets = [(Fraction(n), Fraction(1, 100_000)) for n in (1, 2, 4)]
    federation = LocalFederation.of(3, algorithm="ldp-fedlinucb", budgets=budgets)
    derived = federation.pinned.derived
    assert [round(derived.of_silo(n)[0], 3) for n in range(3)] == [1, 2, 4]
    coordinator = federation.coordinator()
    coordinator.deliver()
    federation.play(10, np.random.default_rng(7))
    coordinator.synchronise()
    assert coordinator.step == 1


@pytest.mark.parametrize("algorithm", ["secagg-fedlinucb", "ldp-fedlinucb"])
def test_rounding_never_lifts_a_guarantee_above_the_terms(algorithm: str) -> None:
    """1/10, 7/10 and 1/100000 are no doubles; the nearest ones are larger."""
    for epsilons in (["1/10"] * 3, ["7/10", "1/10", "13/10"]):
        budgets = [(Fraction(one), Fraction(1, 100_000)) for one in epsilons]
        federation = LocalFederation.of(3, algorithm=algorithm, budgets=budgets)
        for number, budget in enumerate(budgets):
            stated = federation.pinned.derived.of_silo(number)
            assert [Fraction(one) <= most for one, most in zip(stated, budget, strict=True)] == [
                True,
                True,
            ]


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(10_001), Fraction(10) ** 400])
def test_budgets_out_of_range_are_rejected(epsilon: Fraction) -> None:
    with pytest.raises(TacitError, match=r"epsilon of silo0 is .*: must be at most 10,000"):
        LocalFederation.of(3, budgets=[(epsilon, Fraction(1, 100))] * 3)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"question": " Which?"}, "question is ' Which"),
        ({"algorithm": "ucb"}, "algorithm is ucb: must be one of secagg-fedlinucb"),
        ({"coordinator": b""}, "coordinator's key is missing"),
        ({"silos": SIGNED.terms.silos[:2]}, "number of silos is 2: must be 3 or more"),
        ({"silos": SIGNED.terms.silos[:1] * 3}, "silo0, silo0, silo0: must be distinct names"),
        ({"coordinator": SIGNED.terms.silos[1].key}, "a key is used twice"),
        ({"corrupted": 0}, "corrupted is 0: must be 1"),
        ({"norm": Fraction(0)}, "norm is 0: must be above 0 and at most 1,000"),
        ({"norm": Fraction(10) ** 400}, "norm is 10+: must be above 0 and at most 1,000"),
        ({"algorithm": "ldp-fedlinucb", "missing": -1}, "missing is -1: must be a whole number"),
        ({"algorithm": "ldp-fedlinucb", "missing": 1}, "missing is 1: must be 0 with this alg"),
        (
            {"algorithm": "ldp-fedlinucb", "schedule": SyncSchedule(1 << 15, sync=1)},
            "number of synchronisations is 32768: must be below 32768",
        ),
    ],
)
def test_contradictory_terms_are_rejected(change: Any, problem: str) -> None:
    with pytest.raises(TacitError, match=problem):
        replace(SIGNED.terms, **change)


def test_the_largest_norm_and_the_longest_schedule_are_accepted() -> None:
    assert replace(SIGNED.terms, norm=Fraction(1000)).norm == 1000
    longest = SyncSchedule((1 << 15) - 1, sync=1)
    terms = replace(SIGNED.terms, algorithm="ldp-fedlinucb", schedule=longest)
    assert len(terms.batches) == (1 << 15) - 1


def test_terms_are_pinned_with_each_partys_own_signature() -> None:
    """A silo would send its sums under keys that others chose."""
    terms, signed = SIGNED.terms, SIGNED.signatures
    assert PinnedFederation(terms, signed) == SIGNED
    for few in (signed[:-1], (*signed, signed[0])):
        with pytest.raises(Rejected, match="number of signatures is"):
            PinnedFederation(terms, few)
    with pytest.raises(Rejected, match="silo1 did not sign"):
        PinnedFederation(terms, (*signed[:2], signed[3], signed[3]))
    with pytest.raises(Rejected, match="coordinator did not sign"):
        PinnedFederation(replace(terms, question="Which other?"), signed)


@pytest.mark.parametrize("context", [[[1, 2], [3]], [["a", "b"]], {"a": 1}, "ab", [[10**400, 0]]])
def test_contexts_that_are_no_tables_of_numbers_are_rejected(context: Any) -> None:
    with pytest.raises(TacitError, match="must be one row of 2 features for each action"):
        ContextSpec(features=2).table(context)


def test_numbers_that_are_no_doubles_are_rejected() -> None:
    """A reward or a feature that is no number would spoil, and so mark, a whole row."""
    huge = Fraction(10) ** 400
    near = Fraction(1) + Fraction(1, 10**30)
    for worst, best in ((Fraction(1), near), (-huge, huge), (Fraction(0), huge)):
        with pytest.raises(TacitError, match="range of doubles"):
            RewardSpec("days", worst, best)
        with pytest.raises(TacitError, match="below high"):
            ContextColumn("age", low=worst, high=best)
    reward, age = RewardSpec("days", Fraction(-(10**308)), Fraction(0)), ContextColumn("age")
    assert reward.reward(1e308) == 1
    assert reward.reward(-1.7e308) == 0
    for value in (10**400, -(10**400), float("nan"), float("inf")):
        with pytest.raises(TacitError, match="finite"):
            reward.reward(value)
        with pytest.raises(TacitError, match="finite"):
            age.scaled(value)


def test_binomial_bits_are_rejected_with_their_cost() -> None:
    with pytest.raises(TacitError, match="178 s for 3 silos of 2 features"):
        LocalFederation.of(3, algorithm="sdp-fedlinucb-vec")


def test_federation_terms_round_trip() -> None:
    federation = LocalFederation.of(4, missing=1)
    terms = federation.terms
    assert FederationTerms.decode(terms.encode()) == terms
    with pytest.raises(Rejected, match="not in canonical form"):
        FederationTerms.decode(terms.encode() + b" ")


def exact_delta(noise: Any, moved: int, epsilon: float) -> float:
    """δ at ε of noise against the same noise moved, summed over its whole distribution."""
    low, high = noise.window(-60.0)
    points = np.arange(low - moved, high + moved + 1)
    here, there = noise.pmf(points), noise.pmf(points - moved)
    return float(np.maximum(here - np.exp(epsilon) * there, 0.0).sum())


@pytest.mark.parametrize(("silos", "missing"), [(3, 0), (4, 0), (4, 1), (6, 2)])
def test_the_guarantee_of_each_rule_matches_the_exact_distribution(
    silos: int, missing: int
) -> None:
    """With as many silos missing and one corrupted as the terms allow, the shares that are left
    hide a record that moves all rows as far as it can; one share less does not."""
    federation = LocalFederation.of(silos, missing=missing, schedule=SyncSchedule(horizon=40))
    sums = federation.pinned.derived.sums
    left = silos - missing - 1
    assert sums.honest == left
    moved = int(np.ceil(sums.movement * sums.scale))
    assert exact_delta(sums.share.sum_of_shares(left), moved, 1.0) <= 1.001e-5
    if left > 1:
        assert exact_delta(sums.share.sum_of_shares(left - 1), moved, 1.0) > 2e-5

"""Whole rounds with real cryptography: exact draws on devices, aggregation, and a deciding learner.

Two thousand simulated devices add Pólya shares to their answers; masking, two servers and mixing
each open the batch. What comes out must follow the stated distribution, and a learner of arms, of
a linear
bandit or of silos must decide as it does with the ideal functionality under the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.protocols.examples import sent

from tacit.aggregation import Dropouts, Neighbourhood, Rejected, neighbourhood
from tacit.algorithms.registry import lookup
from tacit.bandits import ForgettingElimination
from tacit.bandits.contextual.federated import Silo
from tacit.environments.population import Population, SharedParameter
from tacit.environments.silos import Synthetic
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.noise import DiscreteLaplace
from tacit.privacy import ApproximateDP, PureDP, ThreatModel, privacy_loss
from tacit.protocols import factories
from tacit.protocols.contract import Protocol
from tacit.protocols.mechanism import PerRound, Releases
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import SecureSum
from tacit.rounds import aggregate, run_round
from tacit.types import Aggregate, Design, Round

DEVICES = 2000
PRECISION = 8
NEIGHBOURS = Neighbourhood(21, 11)


def secure_sum(users: int = DEVICES, dropout: float = 0.0) -> SecureSum:
    return SecureSum(
        users,
        PRECISION,
        DiscreteLaplace(PRECISION),
        PureDP(1.0),
        threat=ThreatModel(dropout=dropout),
    )


def split_and_mix() -> SplitAndMix:
    """Few shares, as what is tested is their sum and not their secrecy."""
    return SplitAndMix(
        SecureSum(DEVICES, PRECISION, DiscreteLaplace(PRECISION), PureDP(1.0)), security=5
    )


@pytest.mark.extended
@pytest.mark.parametrize("through", ["masking", "two-servers", "mixing"])
def test_two_thousand_devices_give_the_exact_modular_sum_through_cryptography(
    through: str,
) -> None:
    protocol = split_and_mix() if through == "mixing" else secure_sum()
    rewards = np.random.default_rng(1).random(DEVICES)
    messages = sent(protocol, rewards.tolist())
    how: dict[str, Any] = {"among": NEIGHBOURS} if through == "masking" else {}
    released = aggregate(protocol, messages, through, **how)
    assert released == protocol.combine(messages)
    # rounding and noise stay within what they have but for a chance of 1e-9 each
    slack = (
        protocol.error(DEVICES).radius(1e-9) + math.sqrt(DEVICES / 2 * math.log(2e9)) / PRECISION
    )
    assert abs(protocol.analyze(released).total - rewards.sum()) < slack


@pytest.mark.extended
def test_the_error_of_released_sums_follows_the_stated_distribution() -> None:
    """Chi-square of 200 batches of 16 devices, released by two servers, against the noise's
    distribution; false positive rate about 1e-6 (draws have no seed).
    """
    from scipy.stats import chi2

    protocol = SecureSum(16, 1, DiscreteLaplace(1), PureDP(1.0))
    answers = [1.0] * 5 + [0.0] * 11
    batches, errors = 200, []
    for _ in range(batches):
        errors.append(round(run_round(protocol, answers, "two-servers").total - 5))
    edges = (-2, -1, 0, 1, 2)
    observed = [
        sum(e <= -2 for e in errors),
        *(sum(e == k for e in errors) for k in (-1, 0, 1)),
        sum(e >= 2 for e in errors),
    ]
    distribution = DiscreteLaplace(1)
    expected = [
        batches * distribution.cdf(-2),
        *(batches * float(distribution.pmf(k)) for k in (-1, 0, 1)),
        batches * distribution.tail(1),
    ]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert statistic < chi2.isf(1e-6, len(edges) - 1)


def decide_twice(
    build: Callable[[], Experiment],
    messages_of: Callable[[Round, Protocol], list[Any]],
    through: str,
) -> Experiment:
    """The same messages through combine and through the intermediary: every proposal and the final
    state are the same.
    """
    ideal, real = build(), build()
    released = 0
    while rounds := ideal.propose():
        assert real.propose() == rounds
        for round_ in rounds:
            if not round_.released:
                messages_of(round_, None)  # type: ignore[arg-type] # silos end the round
                ideal.skip(round_)
                real.skip(round_)
                continue
            protocol, other = ideal.open(round_), real.open(round_)
            messages = messages_of(round_, protocol)
            ideal.observe(round_, protocol.analyze(protocol.combine(messages)))
            real.observe(round_, other.analyze(aggregate(other, messages, through)))
            released += 1
    assert released > 1
    assert real.to_dict() == ideal.to_dict()
    assert real.best() == ideal.best()
    return real


@pytest.mark.extended
@pytest.mark.parametrize("through", ["masking", "two-servers", "mixing"])
def test_a_learner_decides_through_cryptography_as_with_ideal_aggregation(
    through: str,
) -> None:
    rng = np.random.default_rng(3)
    means = (0.2, 0.9, 0.5)
    secagg = PerRound(
        factories.polya_tight, {"target": PureDP(1.0), "binary": True, "dropout": 0.0}
    )
    target = ApproximateDP(1.0, 1e-3)
    shuffle = PerRound(factories.shuffled_tight, {"target": target, "binary": True, "dropout": 0.0})

    def build() -> Experiment:
        learner = ForgettingElimination(arms=3, horizon=700, growth=4)
        return Experiment.of(learner, shuffle if through == "mixing" else secagg)

    def messages_of(round_: Round, protocol: Protocol | None) -> list[Any]:
        answers = rng.random(round_.participants) < means[round_.arm]
        return [] if protocol is None else sent(protocol, answers.astype(float).tolist())

    decide_twice(build, messages_of, through)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "through"),
    [("secagg-dpe", "masking"), ("secagg-dpe", "two-servers"), ("sdp-dpe", "mixing")],
)
def test_a_linear_bandit_decides_as_with_ideal_aggregation(name: str, through: str) -> None:
    """Clients who watch a phase and report their averages for every played action."""
    entry = lookup(name)
    size = {"dimension": 2, "actions": 6, "horizon": 600, "epsilon": 10.0, "delta": 0.1}
    problem: Any = entry.make_problem({**size, "alpha": 0.6})
    start = problem.start(1, None)
    world = start.world
    assert isinstance(world, Population)

    def messages_of(round_: Round, protocol: Protocol | None) -> list[Any]:
        if protocol is None:
            return []
        design = round_.assignment
        assert isinstance(design, Design)
        people = (np.array(design.support), np.array(design.plays), round_.participants)
        return sent(protocol, [row for rows in world.reports(*people, start.rng) for row in rows])

    decide_twice(lambda: entry.build(problem.for_environment(world, 1)), messages_of, through)


@pytest.mark.parametrize(("name", "through"), [("secagg-pe", "two-servers"), ("sdp-pe", "mixing")])
def test_a_linear_bandit_of_single_plays_decides_as_with_ideal_aggregation(
    name: str, through: str
) -> None:
    """Every play is another participant's, and every action's sum is released by itself."""
    entry = lookup(name)
    size = {"dimension": 2, "actions": 4, "horizon": 300, "epsilon": 10.0, "delta": 0.1}
    problem: Any = entry.make_problem(size)
    start = problem.start(1, None)
    world = start.world
    assert isinstance(world, SharedParameter)

    def messages_of(round_: Round, protocol: Protocol | None) -> list[Any]:
        if protocol is None:
            return []
        design = round_.assignment
        assert isinstance(design, Design)
        plays = np.array(design.plays)
        ups = world.successes(np.array(design.support), plays, start.rng)
        reports = [
            (place, world.bound if number < up else -world.bound)
            for place, (up, count) in enumerate(zip(ups, plays, strict=True))
            for number in range(count)
        ]
        return sent(protocol, reports)

    decide_twice(lambda: entry.build(problem.for_environment(world, 1)), messages_of, through)


@pytest.mark.parametrize("through", ["masking", "two-servers"])
@pytest.mark.parametrize("noise", ["discrete-gaussian", "skellam"])
def test_silos_decide_as_with_ideal_aggregation(noise: str, through: str) -> None:
    """Five silos whose encoders draw exactly; every step's sums are released modulo 2^64."""
    entry = lookup("secagg-fedlinucb")
    size = {"silos": 5, "dimension": 2, "actions": 4, "horizon": 33, "noise": noise}
    size |= {"sync": 5, "schedule": "fixed"}
    problem: Any = entry.make_problem({**size, "epsilon": 5.0, "delta": 0.01})
    rng = np.random.default_rng(4)
    world = Synthetic.draw(5, 2, 4, rng)

    def build() -> Experiment:
        return entry.build(problem)

    mechanism = build().mechanism
    assert isinstance(mechanism, Releases)
    silos = [Silo(mechanism.encoder()) for _ in range(5)]

    def messages_of(round_: Round, protocol: Protocol | None) -> list[Any]:
        for silo in silos:
            silo.start(round_)
        for _ in range(round_.time):
            contexts = world.contexts(rng)
            chosen = [silo.act(rows) for silo, rows in zip(silos, contexts, strict=True)]
            means = np.einsum("sd,d->s", contexts[np.arange(5), chosen], world.parameter)
            for silo, reward in zip(silos, world.rewards(means, rng), strict=True):
                silo.learn(float(reward))
        messages = [silo.report() for silo in silos]
        assert (messages[0] is None) == (protocol is None)
        return messages

    real = decide_twice(build, messages_of, through)
    assert isinstance(real.mechanism, Releases)
    assert sorted(real.mechanism.released) == list(range(6))


def test_dropout_within_the_stated_fraction_is_tolerated_and_private() -> None:
    """A fifth of 100 devices drop out at various stages: the sum of the others opens, and the noise
    in it still gives epsilon = 1.
    """
    protocol = secure_sum(100, dropout=0.2)
    assert protocol.minimum == 80
    messages = [protocol.randomize(0.5) for _ in range(100)]
    gone = Dropouts(join=range(5), share=range(5, 10), mask=range(10, 20), reveal=range(20, 25))
    among = neighbourhood(100, dropout=0.3, corrupt=0.05)
    released = aggregate(protocol, messages, "masking", among=among, dropouts=gone)
    assert released.reports == 80
    assert released.value == sum(messages[20:]) % protocol.modulus
    assert protocol.analyze(released).error.participants == 80
    assert privacy_loss(protocol.share.power(80), PRECISION).pure <= 1.0


def test_shares_for_everyone_fail_at_a_fifth_of_dropout_and_ours_suffice() -> None:
    """Exactly, from the distribution of the shares that arrive: CORRECTIONS 13."""
    users, arrived = 100, 80
    distribution = DiscreteLaplace(PRECISION)
    naive = privacy_loss(distribution.share(users).power(arrived), PRECISION).pure
    ours = privacy_loss(distribution.share(arrived).power(arrived), PRECISION).pure
    assert naive == pytest.approx(1.371, abs=0.01)
    assert naive > 1.0
    assert ours == pytest.approx(1.0)
    for more in (81, 90, 100):
        assert (
            privacy_loss(distribution.share(arrived).power(Fraction(more)), PRECISION).delta(1.0)
            <= 1e-12
        )


def test_one_report_below_the_minimum_releases_nothing() -> None:
    protocol = secure_sum(50, dropout=0.2)
    messages = [protocol.randomize(1.0) for _ in range(50)]
    with pytest.raises(Rejected, match=r"(at least|batch size is) 40"):
        aggregate(protocol, messages, "masking", dropouts=Dropouts(mask=range(11)))
    with pytest.raises(Rejected, match=r"(at least|batch size is) 40"):
        aggregate(protocol, messages, "two-servers", lost=(range(11), ()))
    with pytest.raises(TacitError, match="below the 40"):
        protocol.analyze(Aggregate((0,), 39))

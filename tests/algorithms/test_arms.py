"""Every named multi-armed bandit: runs in both settings, guarantees no more than its batches meet,
rejects what it does not support.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from tests.algorithms.asking import built, problem_for
from tests.samples import same_distribution
from tests.tables import each_row, extended_after, extended_but_every

from tacit.algorithms import ArmsProblem, algorithms, tkms21
from tacit.algorithms.arms_problem import TRUSTS
from tacit.algorithms.problems import Constants
from tacit.bandits import Restarts, Thompson
from tacit.environments import Bernoulli
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.noise import NoiseDistribution
from tacit.privacy import (
    ApproximateDP,
    ConcentratedDP,
    PureDP,
    RenyiDP,
    View,
    privacy_loss,
    renyi_divergence,
)
from tacit.protocols import factories
from tacit.protocols.contract import SumProtocol
from tacit.protocols.shuffled_bits import ShuffledBits
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import Central, Local, SecureSum
from tacit.simulation import RunConditions, Trial, simulate
from tacit.trust import TrustModel
from tacit.types import Arm, Levels, Round

NAMES = sorted(  # without private-dpe, whose participants try several: tests/bandits/test_fits.py
    name for name, entry in algorithms().items() if entry.family == "arms" and name != "private-dpe"
)
CONSTANTS: tuple[Constants, ...] = ("paper", "tight")
BINARY_ON_PAPER = ("sdp-ae", "vb-sdp-ae")
BINARY = ("private-pe",)  # its default instance has Bernoulli rewards only
REFERENCES = ("ucb1", "klucb", "thompson", "successive-elimination")
EACH = pytest.mark.parametrize(("name", "constants"), list(product(NAMES, CONSTANTS)))


def protocol_of(experiment: Experiment, participants: int) -> SumProtocol:
    """The protocol of a round of so many."""
    protocol = experiment.open(Round(0, participants, Arm(0)))
    assert isinstance(protocol, SumProtocol)
    return protocol


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "constants", "rewards"),
    extended_but_every(
        4,
        (
            (name, constants, rewards)
            for name, constants, rewards in product(
                NAMES, CONSTANTS, ("bernoulli", "gaussian", "beta")
            )
            if rewards == "bernoulli"
            or (name not in BINARY and (constants != "paper" or name not in BINARY_ON_PAPER))
        ),
    ),
)
def test_every_algorithm_runs_to_its_horizon(name: str, constants: Constants, rewards: str) -> None:
    asked = {"epsilon": 0.9, "constants": constants, "rewards": rewards}
    record = Trial(name, problem_for(name, arms=3, horizon=3000, **asked))(4)
    assert record["users"] == 3000
    regret = np.array(record["regret"])
    assert np.all(np.diff(regret) >= 0)
    assert record["final_regret"] == regret[-1] <= 3000 * 0.5
    assert record["bits_per_user"] >= 0
    assert 1 <= record["active"] <= 3
    if name in REFERENCES:
        assert built(name, ArmsProblem.of(arms=3, horizon=3000)).guarantee is None


@pytest.mark.parametrize(
    ("name", "trust", "index", "delta"),
    extended_but_every(
        3,
        [
            *product(["private-klucb"], TRUSTS, ["chernoff", "variance"], [None, 1e-5]),
            *product(["private-med"], TRUSTS, ["chernoff", "variance"], [None]),
            ("private-med", "shuffler", "variance", 1e-5),
        ],
    ),
)
def test_private_learners_run_under_every_trust_model(
    name: str, trust: TrustModel, index: str, delta: float | None
) -> None:
    rewards = "gaussian" if delta is None else "bernoulli"
    how = {"trust": trust, "index": index, "rewards": rewards, "delta": delta}
    record = Trial(name, problem_for(name, arms=3, horizon=3000, **how))(1)
    assert record["users"] == 3000


@pytest.mark.extended
@pytest.mark.parametrize("horizon", [10**9, 10**12])
@pytest.mark.parametrize(
    "name",
    [
        "private-klucb",
        "private-med",
        "dist-dp-se",
        "ldp-se",
        "shuffle-dp-se",
        "split-dp-se",
        "cdp-se",
        "dp-se",
    ],
)
def test_a_trillion_participants_cause_no_overflow(name: str, horizon: int) -> None:
    asked = {"horizon": horizon, "means": (0.3, 0.5, 0.7), "constants": "paper"}
    record = Trial(name, problem_for(name, **asked))(0)
    assert record["users"] == horizon
    assert record["best_mean_gap"] == 0
    assert record["final_regret"] < 1e-3 * horizon


# Slow and fast


@pytest.mark.parametrize(
    ("name", "horizon", "rewards", "means"),
    [
        ("dist-dp-se", 1500, "gaussian", (0.2, 0.5, 0.9)),
        pytest.param(
            "private-klucb", 3000, "bernoulli", (0.4, 0.5, 0.6), marks=pytest.mark.extended
        ),
        pytest.param("private-klucb", 3000, "beta", (0.4, 0.5, 0.6), marks=pytest.mark.slow),
        pytest.param("vb-sdp-ae", 3000, "bernoulli", (0.2, 0.5, 0.9), marks=pytest.mark.slow),
        pytest.param("dp-se", 15_000, "bernoulli", (0.2, 0.5, 0.6), marks=pytest.mark.slow),
    ],
)
def test_user_by_user_runs_have_the_same_regret_distribution(
    name: str, horizon: int, rewards: str, means: tuple[float, ...]
) -> None:
    """400 runs each way, false-alarm rate 1e-6."""
    asked = {"horizon": horizon, "epsilon": 2.0, "means": means, "rewards": rewards}
    task = Trial(name, problem_for(name, **asked))
    fast = [task(seed)["final_regret"] for seed in range(400)]
    slow = [
        replace(task, conditions=RunConditions(user_by_user=True))(seed)["final_regret"]
        for seed in range(10_000, 10_400)
    ]
    assert len(set(fast)) > 1
    assert same_distribution(fast, slow) > 1e-6


# Guarantees

SIZES = (1, 2, 3, 4, 7, 16, 19, 33, 64, 100, 256, 1000, 1024, 4096, 65_537)


def sizes_for(experiment: Experiment) -> list[int]:
    return [n for n in SIZES if n >= experiment.mechanism.smallest]


@cache
def guarantees() -> list[tuple[str, ArmsProblem]]:
    cases = [
        (name, ArmsProblem.of(arms=5, horizon=10**6, epsilon=e, constants=s))
        for name in NAMES
        if name != "sdp-ae"
        for s in CONSTANTS
        for e in (0.5, 0.9)
    ]
    cases += [
        ("private-klucb", ArmsProblem.of(arms=5, horizon=10**6, trust=trust, delta=d))
        for trust in TRUSTS
        for d in (None, 1e-6)
    ]
    cases += [
        (name, ArmsProblem.of(arms=5, horizon=10**6, dropout=0.2))
        for name in ("dist-dp-se", "dist-rdp-se", "vb-sdp-ae", "private-klucb", "private-med")
    ]
    cases.append(
        (
            "dist-cdp-se",
            ArmsProblem.of(arms=5, horizon=10**6, epsilon=0.5, scale=1, constants="paper"),
        )
    )
    return [case for case in cases if case[0] not in REFERENCES]


GUARANTEES = guarantees()


@pytest.mark.parametrize("case", range(len(GUARANTEES)), ids=lambda i: f"{GUARANTEES[i][0]}-{i}")
def test_every_batch_meets_the_guarantee(case: int) -> None:
    """Exactly, from the distribution of the noise that the fewest reports add; for binary and for
    real rewards.
    """
    name, problem = GUARANTEES[case]
    for binary in (True, False):
        if problem.constants == "paper" and name in BINARY_ON_PAPER and not binary:
            continue
        experiment = built(name, problem.changed(binary=binary))
        assert experiment.guarantee is not None
        for users in sizes_for(experiment):
            if experiment.guarantee.view is View.SHUFFLED and users not in (
                (2, 64, 1000) if binary else (2, 64)
            ):
                continue  # calibration takes its time
            protocol = protocol_of(experiment, users)
            assert protocol.guarantee is not None
            assert protocol.guarantee.implies(experiment.guarantee), (
                users,
                protocol.guarantee,
                experiment.guarantee,
            )
            check_exactly(protocol, protocol.guarantee)


def check_exactly(protocol: object, guarantee: object) -> None:
    noise: NoiseDistribution
    if isinstance(protocol, (Central, Local)):
        noise, precision = protocol.distribution, protocol.precision
    elif isinstance(protocol, (SecureSum, SplitAndMix)):
        noise, precision = protocol.noise(protocol.honest), protocol.precision
    elif isinstance(protocol, ShuffledBits):
        noise, precision = protocol.share.power(protocol.honest), protocol.precision
    else:
        return  # certified, or continuous: tested with the protocol
    if isinstance(guarantee, PureDP) or isinstance(protocol, SplitAndMix):
        assert isinstance(guarantee, (PureDP, ApproximateDP))
        assert privacy_loss(noise, precision).pure <= guarantee.epsilon * (1 + 1e-12)
    elif isinstance(guarantee, ApproximateDP):
        assert privacy_loss(noise, precision).delta(guarantee.epsilon) <= guarantee.delta * (
            1 + 1e-5
        )  # its own distance from the truth
    else:
        assert isinstance(guarantee, (RenyiDP, ConcentratedDP))
        for order in (2, 5, 16):
            assert renyi_divergence(noise, precision, order) <= guarantee.renyi(order) * (1 + 1e-9)


@pytest.mark.parametrize("users", [4, 16, 64])
def test_sums_of_gaussian_shares_keep_their_guarantee_at_scale_one(users: int) -> None:
    """The exact distribution of the sum, not the one draw that it resembles (CORRECTIONS 11)."""
    protocol = factories.gaussian_paper(users, ApproximateDP(0.5, 1e-6), 1, 0.1)
    assert isinstance(protocol, SecureSum)
    guarantee = protocol.guarantee
    assert isinstance(guarantee, ApproximateDP)
    total = protocol.share.power(users - 1)
    low, high = (int(end) for end in total.support)
    points = np.arange(low, high + protocol.precision + 1)
    p, q = total.pmf(points - protocol.precision), total.pmf(points)
    found = float(np.maximum(0.0, p - math.exp(guarantee.epsilon) * q).sum())
    assert found <= guarantee.delta


@pytest.mark.parametrize(
    ("make", "tau"), [(factories.skellam_paper, 697), (factories.gaussian_paper, 490)]
)
def test_the_printed_protocols_have_the_papers_numbers(make: Any, tau: int) -> None:
    """CZ23 Theorems 2 and 4 at n = 400, ε = ½, s = 10, p = 0.1: g = 100, variance 200²."""
    protocol = make(400, ApproximateDP(0.5, 1e-6), 10, 0.1)
    assert protocol.precision == 100
    assert protocol.share.variance * 400 == pytest.approx(200**2)
    assert protocol.modulus == 400 * 100 + 2 * tau + 1


def test_a_guarantee_at_scale_one_weakens_with_the_round() -> None:
    """CORRECTIONS 11: how far a sum of shares is from one draw grows with the round."""
    target = ApproximateDP(1.0, 1e-6)
    small, large = (factories.gaussian_paper(n, target, 1, 0.1).guarantee for n in (10**3, 10**7))
    assert isinstance(small, ApproximateDP)
    assert isinstance(large, ApproximateDP)
    assert large.epsilon > 1.1 * small.epsilon
    sound = factories.gaussian_paper(10**7, target, 10, 0.1).guarantee
    assert isinstance(sound, ApproximateDP)
    assert sound.epsilon < small.epsilon


def test_printed_noise_states_the_guarantee_of_its_weakest_batch() -> None:
    """At scale 1 larger batches of Skellam shares give less: the last one counts."""
    experiment = built(
        "dist-rdp-se", ArmsProblem.of(arms=5, horizon=5000, scale=1, constants="paper")
    )
    target = ApproximateDP(1.0, 1e-6)
    earned = [
        factories.skellam_paper(n, target, 1, 0.1, 4).guarantee
        for n in (4, 16, 64, 256, 1024, 4096)
    ]
    assert earned[-1] != earned[0]
    assert experiment.guarantee is not None
    assert experiment.guarantee == earned[-1]
    assert all(one is not None and one.implies(experiment.guarantee) for one in earned)


@pytest.mark.parametrize(("start", "horizon"), [(1, 64), (3, 100), (2, 4)])
def test_doubling_batches_are_tried_up_to_the_horizon(start: int, horizon: int) -> None:
    tried = tkms21._doubling_sizes(start, horizon)
    assert tried[0] == 2**start
    assert tried[-1] <= horizon < 2 * tried[-1]
    assert all(after == 2 * before for before, after in pairwise(tried))


# Noise of different arms


@pytest.mark.parametrize("slow", extended_after(1, [False, True]))
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFERENCES])
def test_noise_of_different_arms_is_independent(name: str, slow: bool) -> None:
    """CORRECTIONS 14: one draw for all arms would cancel in every comparison.

    Rewards are constant; at most 5 standard errors.
    """
    problem = problem_for(name, arms=3, horizon=10**5, epsilon=0.9, binary=True)
    first = built(name, problem).propose()
    experiment = built(name, problem)
    rng = np.random.default_rng(8)
    rows = []
    for _ in range(800 if slow else 600):
        row = []
        for batch in first:
            protocol = protocol_of(experiment, batch.participants)
            if slow and batch.participants <= 2000:
                levels = np.full(batch.participants, protocol.precision)
                row.append(
                    protocol.analyze(
                        protocol.combine_batch(protocol.randomize_batch(levels, rng), rng)
                    ).total
                )
            else:
                row.append(
                    protocol.simulate(
                        Levels(np.array([protocol.precision]), np.array([batch.participants])), rng
                    ).total
                )
        rows.append(row)
    correlation = np.corrcoef(np.array(rows).T)
    assert np.abs(correlation[np.triu_indices(len(first), 1)]).max() < 5 / math.sqrt(len(rows))


def test_thompson_sampling_draws_independently_in_every_run() -> None:
    """Found: every run had the learner's seed 0."""
    seeds = set()
    for seed in range(3):
        learner = built("thompson", ArmsProblem.of(arms=2, horizon=100, learner_seed=seed)).learner
        assert isinstance(learner, Thompson)
        seeds.add(learner.seed)
    assert seeds == {0, 1, 2}
    task = Trial("thompson", ArmsProblem.of(horizon=300, means=(0.5, 0.5)))
    assert task(1) != task(2)
    assert task(1) == task(1)


# Participants and rounds


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_private_med_respects_the_minimum_batch_and_its_rounds(
    trust: TrustModel, epsilon: float
) -> None:
    asked = {"arms": 6, "horizon": 10**6, "epsilon": epsilon, "trust": trust, "binary": True}
    experiment = built("private-med", problem_for("private-med", **asked, rounds=9))
    world, rng, held = Bernoulli((0.3, 0.4, 0.5, 0.6, 0.7, 0.8)), np.random.default_rng(2), 0
    while rounds := experiment.propose():
        held += 1
        for round_ in rounds:
            if round_.released:
                assert round_.participants >= (
                    64 if trust in ("secure-aggregation", "shuffler") else 1
                )
                protocol = experiment.open(round_)
                load = world.play(round_, protocol, rng).load
                experiment.observe(round_, protocol.simulate(load, rng))
            else:
                experiment.skip(round_)
    assert held <= 9
    assert experiment.best() == "option 6"


# Any horizon


@EACH
def test_only_learners_that_need_the_horizon_are_restarted(name: str, constants: Constants) -> None:
    asked = {"arms": 3, "horizon": 10**5, "epsilon": 0.5, "constants": constants, "binary": True}
    told = built(name, problem_for(name, **asked)).learner
    free = built(name, problem_for(name, **asked, anytime=True)).learner
    assert not free.needs_horizon
    assert isinstance(free, Restarts) == (name in BINARY_ON_PAPER and constants == "paper")
    if not told.needs_horizon:
        assert free.to_dict() == told.to_dict()


def test_anytime_private_learners_lose_nothing_to_an_unknown_horizon() -> None:
    for name in ("private-klucb", "private-med", "dist-dp-se"):
        asked: dict[str, Any] = {"arms": 4, "horizon": 10**6, "runs": 2}
        told, free = (simulate(name, **asked, anytime=anytime) for anytime in (False, True))
        assert free.regret_mean == told.regret_mean


def test_squared_periods_cost_at_most_four_times() -> None:
    """Periods that double cost ever more; here the third period has just begun."""
    guarantee = {"epsilon": 0.9, "delta": 1e-3, "constants": "paper"}
    asked: dict[str, Any] = {"means": (0.3, 0.5, 0.7), "runs": 2, **guarantee}
    told, free = (
        simulate("vb-sdp-ae", **asked, horizon=4 * 10**6, anytime=anytime)
        for anytime in (False, True)
    )
    assert told.regret_mean < free.regret_mean < 4 * told.regret_mean


# Rejections


@each_row(
    ("name", "problem", "message"),
    [
        ("sdp-ae", {"constants": "paper"}, r"proven for epsilon < 1: use --constants tight"),
        (
            "vb-sdp-ae",
            {"constants": "paper", "epsilon": 0.5, "binary": False},
            r"rewards 0 or 1: use --rewards bernoulli, or --constants tight",
        ),
        (
            "shuffle-dp-se",
            {"epsilon": 0.05},
            r"must be at least 0.1, the smallest certified\. .*secure aggregation",
        ),
        (
            "private-klucb",
            {"epsilon": 0.05, "trust": "shuffler"},
            r"must be at least 0.1, the smallest certified\. .*secure aggregation",
        ),
        ("vb-sdp-ae", {"delta": 0.0}, r"leave delta out for 1e-06, or use dist-dp-se"),
        ("dist-rdp-se", {"delta": 0.0}, r"this algorithm needs delta > 0"),
        (
            "dist-cdp-se",
            {"dropout": 0.1, "constants": "paper"},
            r"everyone present: .*use dist-dp-se",
        ),
        (
            "dist-dp-se",
            {"dropout": 0.1, "constants": "paper"},
            r"printed noise is set for everyone",
        ),
        (
            "split-dp-se",
            {"dropout": 0.1, "constants": "paper"},
            r"printed noise is set for everyone present",
        ),
        ("nobody", {}, r"must be one of adap-klucb, cdp-dpe, cdp-pe, .*tacit algorithms"),
        ("dist-dp-se", {"growth": 1.0}, r"growth is 1: must be greater than 1"),
    ],
)
def test_unsupported_guarantees_are_rejected_with_an_alternative(
    name: str, problem: dict[str, object], message: str
) -> None:
    with pytest.raises(TacitError, match=message):
        built(name, ArmsProblem.of(arms=2, horizon=1000, **{"binary": True, **problem}))


@each_row(
    ("changed", "message"),
    [
        (
            {"horizon": 1},
            "must be at least the 2 arms. Use fewer arms or more participants",
        ),
        ({"arms": 1}, "arms is 1: must be a whole number of at least 2"),
        ({"epsilon": 0}, "For no privacy use ucb1"),
        ({"epsilon": math.nan}, "must be a finite number"),
        ({"delta": 1.0}, "Leave delta out"),
        ({"failure_probability": 0}, "such as 0.1"),
        ({"constants": "loose"}, "must be one of tight, paper"),
        ({"trust": "me"}, "must be one of secure-aggregation, shuffler, central, local"),
        ({"dropout": 1.0}, "such as 0.1"),
        ({"scale": 0}, "at least 1"),
    ],
)
def test_invalid_problems_are_rejected(changed: dict[str, object], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        ArmsProblem.of(arms=2, horizon=1000).changed(**changed)


def test_a_simulation_states_its_guarantee_and_view() -> None:
    result = simulate("ldp-se", means=(0.2, 0.8), horizon=500, runs=1)
    guarantee = built("ldp-se", ArmsProblem.of(arms=2, horizon=500, binary=True)).guarantee
    assert guarantee is not None
    assert result.guarantee == guarantee
    assert result.summary()["guarantee"] == guarantee.to_dict()
    assert result.guarantee_text == str(guarantee)
    nothing = simulate("ucb1", arms=2, horizon=500, runs=1)
    assert nothing.guarantee is None
    assert nothing.guarantee_text.startswith("none")
    with pytest.raises(TacitError, match="runs is 0"):
        simulate("ucb1", arms=2, horizon=500, runs=0)
    with pytest.raises(TacitError, match="bernoulli, gaussian, beta"):
        ArmsProblem.of(arms=2, horizon=500, rewards="coins")
    assert (
        Trial("ucb1", ArmsProblem.of(arms=2, horizon=500), Bernoulli((0.1, 0.2)))(0)["users"] == 500
    )

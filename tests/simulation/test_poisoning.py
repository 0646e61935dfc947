"""Corrupted participants in simulations: their reports, verified sums, and supported protocols."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.protocols.examples import EXAMPLES

from tacit import simulate
from tacit.assumptions import Poisoned
from tacit.environments import Bernoulli
from tacit.errors import TacitError
from tacit.privacy import PureDP
from tacit.protocols.contract import SumProtocol
from tacit.protocols.pure_shuffle import GroupMessage, PureShuffle
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits
from tacit.protocols.sums import TwoServers, Verified
from tacit.simulation.poisoning import Poisoning
from tacit.simulation.study import compare
from tacit.types import Aggregate, Arm, Levels, Round

SILENT = PureDP(4000.0)  # noise is nil
ASKED: Any = {"means": (0.5, 0.55), "horizon": 50_000, "trust": "two-servers"}


def levels_of(people: int, ones: int) -> Levels:
    return Levels(np.array([0, 1]), np.array([people - ones, ones]))


def round_for(arm: int) -> Round:
    return Round(0, 100, Arm(arm))


@pytest.mark.parametrize(("arm", "total"), [(0, 40 + 10), (1, 60)])
def test_under_proofs_a_corrupted_participant_counts_as_one_answer(arm: int, total: int) -> None:
    """Ten liars among a hundred: all ones for the worse option, all zeros for the best."""
    poisoned, rng = Poisoning(0.1, (0.5, 0.6)), np.random.default_rng(0)
    load = levels_of(90, 40 if arm == 0 else 60)
    assert poisoned.estimate(Verified(100, 1, SILENT), round_for(arm), load, 10, rng).total == total


@pytest.mark.parametrize(("arm", "mean"), [(0, 1.0), (1, 0.0)])
def test_without_proofs_one_malicious_report_makes_an_option_perfect_or_worthless(
    arm: int, mean: float
) -> None:
    poisoned, rng = Poisoning(0.01, (0.4, 0.6)), np.random.default_rng(0)
    load = levels_of(99, round(99 * poisoned.means[arm]))
    told = poisoned.estimate(TwoServers(100, 1, SILENT), round_for(arm), load, 1, rng)
    assert told.mean == pytest.approx(mean, abs=0.01)


def test_one_percent_corrupted_flips_two_servers_but_not_verified_sums() -> None:
    """Ten seeded experiments each: the right option in none and in all."""
    plain = simulate("private-med", poisoned=0.01, runs=10, through="two-servers", **ASKED)
    verified = simulate("private-med", poisoned=0.01, runs=10, through="verified", **ASKED)
    assert plain.summary()["winner"] == "option 1"
    assert plain.summary()["winner_runs"] == 10
    assert verified.summary()["winner"] == "option 2"
    assert verified.summary()["winner_runs"] == 10
    assert verified.configuration["poisoned"] == 0.01


def test_without_poisoning_the_random_draws_are_unchanged() -> None:
    plain = simulate("private-med", runs=2, **ASKED)
    none = simulate("private-med", runs=2, poisoned=0.0, **ASKED)
    assert json.dumps(plain.runs) == json.dumps(none.runs)
    assert "poisoned" not in none.configuration


def test_corrupted_participants_are_assigned_options_normally() -> None:
    found = simulate("private-med", poisoned=0.2, runs=2, through="verified", **ASKED)
    assert [run["users"] for run in found.runs] == [50_000, 50_000]


def test_a_poisoned_log_is_not_resumed_without_poisoning(tmp_path: Any) -> None:
    log = tmp_path / "runs.jsonl"
    simulate("private-med", poisoned=0.1, runs=2, log=log, **ASKED)
    with pytest.raises(TacitError):
        simulate("private-med", runs=2, log=log, resume=True, **ASKED)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"poisoned": 1.5}, "poisoned is 1.5"),
        ({"poisoned": -0.1}, "poisoned is -0.1"),
        ({"poisoned": 0.1, "user_by_user": True}, "leave one out"),
        (
            {
                "poisoned": 0.1,
                "guardrail": "errors",
                "guardrail_means": (0.1, 0.1),
                "control_share": 0.2,
            },
            "one metric",
        ),
    ],
)
def test_unsupported_poisoning_is_rejected(given: Any, why: str) -> None:
    with pytest.raises(TacitError, match=why):
        simulate("private-med", runs=1, **given, **ASKED)


def test_only_arms_support_poisoning() -> None:
    with pytest.raises(TacitError, match="poisoned is for arms only"):
        compare(["cdp-dpe"], runs=1, poisoned=0.1)
    poisoned, rng = Poisoning.of(0.1, Bernoulli((0.1, 0.2))), np.random.default_rng(0)
    with pytest.raises(TacitError, match="takes others"):
        poisoned.estimate("no protocol", round_for(0), levels_of(4, 1), 1, rng)  # type: ignore[arg-type]


# How far a report reaches


def added(protocol: SumProtocol, value: int) -> float:
    """What every report adds to the estimate on average, if this is released of all of them."""
    total: float = protocol.analyze(Aggregate((value,), protocol.participants)).total
    return total / protocol.participants


def test_randomized_bits_reach_as_far_as_their_debiasing() -> None:
    protocol = RandomizedBits(10, PureDP(1.0))
    assert protocol.reach == pytest.approx((added(protocol, 0), added(protocol, 10)))


@pytest.mark.parametrize(
    "name", [n for n, one in EXAMPLES.items() if isinstance(one.build(1.0), ShuffledBits)]
)
def test_shuffled_bits_reach_from_all_zeros_to_all_ones(name: str) -> None:
    protocol: Any = EXAMPLES[name].build(1.0)
    most = protocol.participants * (protocol.precision + protocol.noise_bits)
    assert protocol.reach == pytest.approx((added(protocol, 0), added(protocol, most)))


def test_groups_of_the_pure_shuffle_reach_from_all_zeros_to_all_ones() -> None:
    protocol = PureShuffle(21, 1.0)
    bits = int(protocol.bits_per_participant)
    for bit, end in ((0, 0), (1, 1)):
        messages = [GroupMessage(0, (bit,) * bits) for _ in range(21)]
        total = protocol.analyze(protocol.combine(messages)).total
        assert total / 21 == pytest.approx(protocol.reach[end])


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_protocol_reaches_at_least_the_honest_range(name: str) -> None:
    low, high = EXAMPLES[name].build(1.0).reach
    assert low <= 0 < 1 <= high


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"trust": "secure-aggregation"}, True),
        ({"trust": "secure-aggregation", "corrupt": 0.1}, False),
        ({"trust": "secure-aggregation", "corrupt": 0.05}, True),
        ({"trust": "shuffler", "delta": 1e-6}, True),
        ({"trust": "two-servers"}, False),
    ],
)
def test_more_corrupted_participants_than_assumed_get_a_remark(
    more: dict[str, Any], said: bool
) -> None:
    how: dict[str, Any] = {"means": (0.2, 0.6), "horizon": 800, "runs": 1, "poisoned": 0.1}
    guarantee = simulate("private-med", **how, **more).guarantee
    assert guarantee is not None
    assert (Poisoned(Fraction(1, 10)) in guarantee.assumptions) is said

"""Rounds over two servers that add noise of their own: the distribution, the terms, the
rejections."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.samples import follows
from tests.terms.examples import offer, pinned, terms

from tacit import Arm, begin
from tacit.aggregation import OwnNoise, Rejected
from tacit.assumptions import (
    TRUST_OF_VIEW,
    BoundedAdversary,
    HonestServers,
    MetricsPerParticipation,
    PinnedKeys,
)
from tacit.privacy import PureDP, View
from tacit.protocols.joint import JointSums, for_each
from tacit.protocols.sums import TwoServers
from tacit.rounds import aggregate, codec, run_round

UNSEEDED = 1e-9  # false-alarm rate of a test of exact draws, which no seed repeats


def test_sums_of_two_servers_have_the_distribution_of_both_noises() -> None:
    """300 rounds with exact draws against the convolution; false-alarm rate 1e-9."""
    protocol = TwoServers(2, 2, PureDP(1.0))
    seen = [aggregate(protocol, [2, 1], "two-servers").value for _ in range(300)]
    assert follows(seen, protocol.released_distribution(3, 2)) > UNSEEDED


def test_an_estimate_over_two_servers_states_its_guarantee_and_error() -> None:
    protocol = TwoServers(6, 4, PureDP(0.5, participations=2))
    estimate = run_round(protocol, [0.5] * 6, "two-servers")
    assert estimate.guarantee_id == protocol.guarantee_id == protocol.guarantee.digest
    assert protocol.guarantee.view is View.OTHER_SERVER
    assert TRUST_OF_VIEW[View.OTHER_SERVER] == HonestServers(1, of=2)
    assert protocol.guarantee.assumptions == {PinnedKeys(), BoundedAdversary()}
    assert estimate.error.variance == pytest.approx(2 * protocol.distribution.variance / 16)


def test_devices_send_levels_and_descriptions_state_the_scale() -> None:
    target = PureDP(0.5, participations=2)
    protocol = JointSums(TwoServers(6, 4, for_each(target, 3)), 3)
    noise = codec(protocol, "two-servers").settings["noise"]
    assert isinstance(noise, OwnNoise)
    assert (noise.levels, noise.scale) == (4, Fraction(48))
    assert {protocol.randomize([1.0, 0.0, 1.0]) for _ in range(20)} == {(4, 0, 4)}


def test_a_round_below_its_minimum_releases_nothing_over_two_servers() -> None:
    protocol = TwoServers(6, 4, PureDP(0.5))
    with pytest.raises(Rejected, match="aborted the round"):
        aggregate(protocol, [1, 2], "two-servers", lost=(range(2), ()))


def test_an_experiment_runs_over_two_servers_from_the_first_report_to_the_answer() -> None:
    """The learner, the protocol and the cryptography that a live service will use, together."""
    experiment = begin(
        "private-klucb", ["a", "b"], binary=True, horizon=300, trust="two-servers", epsilon=20.0
    )
    while rounds := experiment.propose():
        for round_ in rounds:
            if not round_.released:
                experiment.skip(round_)
                continue
            assert isinstance(round_.assignment, Arm)
            liked = 1.0 if round_.assignment.arm == 1 else 0.0
            answers = [liked] * round_.participants
            protocol = experiment.open(round_)
            assert isinstance(protocol, TwoServers)
            experiment.observe(round_, run_round(protocol, answers, "two-servers"))
    assert experiment.learner.best() == 1
    assert experiment.guarantee is not None
    assert experiment.guarantee.view is View.OTHER_SERVER
    assert experiment.guarantee.assumptions == {PinnedKeys(), BoundedAdversary()}
    assert "at least 1 of the 2 servers is honest, whichever" in experiment.guarantee.clauses()


def test_noise_for_two_metrics_matches_the_terms_of_a_round() -> None:
    """ε = 1/2 for three participations with two metrics of four levels."""
    shown = terms()
    target = PureDP(float(shown.guarantee.epsilon), participations=shown.guarantee.participations)
    metrics = len(shown.answer.metrics)
    part = TwoServers(200, shown.answer.levels, for_each(target, metrics))
    protocol = JointSums(part, metrics)
    asked = offer(scale=Fraction(part.distribution.scale), modulus=part.modulus, metrics=metrics)
    assert pinned().check(asked) == Fraction(1, 6)
    alone = TwoServers(200, shown.answer.levels, target)
    with pytest.raises(Rejected, match="scale"):
        pinned().check(offer(scale=Fraction(alone.distribution.scale), modulus=part.modulus))
    stated = target.with_view(view=View.OTHER_SERVER).assuming(
        PinnedKeys(), BoundedAdversary(), MetricsPerParticipation(metrics)
    )
    assert protocol.guarantee.implies(stated)
    assert not protocol.guarantee.implies(target.with_view(view=View.OTHER_SERVER))


def test_a_guardrail_is_monitored_over_two_servers() -> None:
    """Two numbers of everybody, split and encrypted; what opens pauses the option with errors."""
    experiment = begin(
        "private-klucb",
        ["old", "new", "other"],
        binary=True,
        horizon=400,
        trust="two-servers",
        epsilon=40.0,
        control_share=0.2,
        guardrail="errors",
    )
    while rounds := experiment.propose():
        for round_ in rounds:
            if not round_.released:
                experiment.skip(round_)
                continue
            answers = [(0.0, 0.0), (1.0, 1.0), (float(round_.number % 2), 0.0)][round_.arm]
            reports = [answers] * round_.participants
            estimate = run_round(experiment.open(round_), reports, "two-servers")
            assert estimate.total.shape == (2,)
            experiment.observe(round_, estimate)
    assert list(experiment.paused) == ["new"]
    assert experiment.best() == "other"
    assert experiment.guarantee is not None
    assert experiment.guarantee.assumptions == {
        PinnedKeys(),
        BoundedAdversary(),
        MetricsPerParticipation(2),
    }
    assert "a participation reports at most 2 metrics, all of them covered together" in str(
        experiment.guarantee
    )

"""Rounds of verified sums: the distribution of what is released, the fit, and named algorithms over
them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.samples import follows

pytest.importorskip("Crypto", reason="verified sums need pycryptodome: pip install '.[verified]'")

from tacit import Arm, begin, simulate
from tacit.aggregation import SumView
from tacit.assumptions import BoundedAdversary, PinnedKeys, RangeProofs
from tacit.errors import TacitError
from tacit.privacy import PureDP
from tacit.protocols.sums import TwoServers, Verified
from tacit.rounds import aggregate, codec, released, run_round
from tacit.vdaf import MODULUS

UNSEEDED = 1e-9  # false-alarm rate of a test of exact draws, which no seed repeats


def test_verified_sums_have_the_distribution_of_both_servers_noise() -> None:
    """100 rounds with exact draws against the convolution; false-alarm rate 1e-9."""
    protocol = Verified(2, 2, PureDP(1.0))
    seen = [aggregate(protocol, [2, 1], "verified").value for _ in range(100)]
    assert follows(seen, protocol.released_distribution(3, 2)) > UNSEEDED


def test_verified_sums_decode_values_out_of_range_like_two_servers() -> None:
    """The prime of the field is another modulus: what is released is brought to the protocol's."""
    protocol = Verified(8, 4, PureDP(1.0))
    for total in (-40, -1, 0, 5, 32, 70):
        view = SumView((total % MODULUS,), 8)
        found = released(protocol, view, "verified")
        assert found.value == total % protocol.modulus
        assert protocol.analyze(found).total == total / 4


def test_a_protocol_that_guarantees_verification_requires_it() -> None:
    with pytest.raises(TacitError, match="Verified does not fit two-servers"):
        codec(Verified(8, 4, PureDP(1.0)), "two-servers")
    assert codec(TwoServers(8, 4, PureDP(1.0)), "verified").settings.keys() == {"noise"}


def test_an_experiment_runs_over_verified_sums_from_the_first_report_to_the_answer() -> None:
    experiment = begin(
        "private-klucb",
        ["a", "b"],
        binary=True,
        horizon=200,
        trust="two-servers",
        through="verified",
        epsilon=20.0,
    )
    while rounds := experiment.propose():
        for round_ in rounds:
            if not round_.released:
                experiment.skip(round_)
                continue
            assert isinstance(round_.assignment, Arm)
            answers = [float(round_.assignment.arm == 1)] * round_.participants
            protocol = experiment.open(round_)
            assert isinstance(protocol, Verified)
            experiment.observe(round_, run_round(protocol, answers, "verified"))
    assert experiment.learner.best() == 1
    assert experiment.guarantee is not None
    assert experiment.guarantee.assumptions == {PinnedKeys(), BoundedAdversary(), RangeProofs()}
    assert RangeProofs().text() in str(experiment.guarantee)


def test_named_algorithms_support_verified_sums_and_state_their_trust() -> None:
    asked: Any = {"means": (0.2, 0.8), "horizon": 2000, "runs": 2, "trust": "two-servers"}
    plain = simulate("private-med", **asked)
    verified = simulate("private-med", through="verified", **asked)
    assert "both servers are honest" in verified.guarantee_text
    assert "both servers are honest" not in plain.guarantee_text
    assert (
        verified.runs[0]["final_regret"] == plain.runs[0]["final_regret"]
    )  # the same distribution
    assert verified.mean("bits_per_user") > 10 * plain.mean("bits_per_user")
    with pytest.raises(TacitError, match="use trust two-servers"):
        simulate("private-med", through="verified", means=(0.2, 0.8), horizon=2000, runs=2)

"""The super-agent under joint DP: its guarantee, its adversary, and the cost of having no trusted
server.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.algorithms import SilosProblem, lookup
from tacit.algorithms.zc24_noise import jdp_linucb, secagg_fedlinucb
from tacit.assumptions import DishonestAtMost, JointPrivacy
from tacit.errors import TacitError
from tacit.privacy import ApproximateDP, GaussianLoss, View
from tacit.protocols.prefix_delivery import Presence
from tacit.protocols.prefix_sums import CentralPrefixRound
from tacit.rounds.codecs import codec
from tacit.simulation import compare, simulate

PROBLEM = SilosProblem.of(silos=20, horizon=2000, epsilon=0.2, delta=0.1)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.2, 0.1), (1.0, 1e-5), (5.0, 1e-3)])
def test_the_participants_guarantee_is_that_of_a_gaussian_moved_by_one_record(
    epsilon: float, delta: float
) -> None:
    """Independently: σ, the largest column norm of the released rows, √2 (1 + 0.8²/2)."""
    private = jdp_linucb(PROBLEM.changed(epsilon=epsilon, delta=delta))
    column = float(np.linalg.norm(private.sums.shape.right, axis=0).max())
    moved = math.sqrt(2) * (1 + 0.8**2 / 2) * column
    assert GaussianLoss(private.sums.sigma, moved).delta(epsilon) <= delta
    assert GaussianLoss(private.sums.sigma, moved).epsilon(delta) == pytest.approx(
        epsilon, rel=0.02
    )
    assert GaussianLoss(private.sums.sigma / 2, moved).epsilon(delta) > 1.8 * epsilon
    assert private.guarantee is not None
    assert 0.97 * epsilon <= private.guarantee.epsilon <= epsilon
    assert private.guarantee.delta == delta


def test_the_guarantee_is_joint_dp_with_a_trusted_server() -> None:
    experiment = lookup("jdp-linucb").build(PROBLEM)
    assert isinstance(experiment.guarantee, ApproximateDP)
    assert experiment.guarantee.view is View.SERVER_OUTPUT
    assert JointPrivacy() in experiment.guarantee.assumptions
    said = experiment.mechanism.text()
    assert "all other participants together" in said
    assert "the server is trusted with every answer" in said
    assert not any(isinstance(one, DishonestAtMost) for one in experiment.guarantee.assumptions)


def test_several_participations_meet_the_target_too() -> None:
    often = jdp_linucb(PROBLEM.changed(participations=3))
    assert often.guarantee is not None
    assert often.guarantee.participations == 3
    assert often.guarantee.epsilon <= 0.2
    once = replace(jdp_linucb(PROBLEM).sums, presence=Presence(1, 3, anywhere=True))
    assert once.guarantee(0.1).epsilon > 0.7


def test_secure_aggregation_adds_the_central_noise_plus_one_silos_share() -> None:
    """Shares are made for all silos but one, the curious one: 20/19 of the variance."""
    trusted, shared = jdp_linucb(PROBLEM).sums, secagg_fedlinucb(PROBLEM).sums
    assert shared.row_variance / trusted.row_variance == pytest.approx(20 / 19, rel=1e-3)
    assert trusted.row_variance == pytest.approx(trusted.sigma**2, rel=1e-6)


def test_silos_send_exact_sums_and_the_server_adds_noise_once() -> None:
    """The mean square of 400 times 9 normal numbers is within 15% of the variance but for a chance
    of 3e-10 (20 silos' noise would be 20 times as much).
    """
    sums = jdp_linucb(
        SilosProblem.of(silos=20, dimension=2, horizon=25, epsilon=1.0, delta=1e-5)
    ).sums
    data = np.linspace(0.1, 0.9, sums.size)
    messages = [sums.encoder().randomize(data) for _ in range(sums.silos)]
    expected = np.rint(sums.shape.right[0, 0] * data * sums.scale).astype(np.int64)
    assert all(np.array_equal(message.view(np.int64), expected) for message in messages)
    seen = []
    for _ in range(400):
        round_ = sums.open(0, {}, {}, sums.guarantee(1e-5))
        assert isinstance(round_, CentralPrefixRound)
        released = round_.combine(messages)
        numbers = np.array(released.values, dtype=np.uint64).view(np.int64)
        seen.append(numbers - sums.silos * expected)
    variance = float(sums.total.variance)
    assert np.mean(np.square(seen)) == pytest.approx(variance, rel=0.15)


def test_the_central_server_decides_from_private_sums_only() -> None:
    with pytest.raises(TacitError, match="jdp-linucb has no option --lazy"):
        simulate("jdp-linucb", lazy=False)
    with pytest.raises(TacitError, match="server is trusted to see every report"):
        codec(jdp_linucb(PROBLEM).sums.open(0, {}, {}, None), "masking")


def test_the_central_server_has_no_more_regret_than_local_privacy() -> None:
    """The same participants and noise but for its scale, five silos: the order is that of the
    noise.
    """
    size: dict[str, Any] = {
        "silos": 5,
        "horizon": 400,
        "runs": 2,
        "workers": 1,
        "epsilon": 1.0,
        "delta": 1e-3,
    }
    trusted, alone = compare(["jdp-linucb", "ldp-fedlinucb"], **size)
    assert trusted.regret_mean < alone.regret_mean

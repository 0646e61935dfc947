"""The published contract suites, called on everything that the tests discover."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.bandits.test_every_learner import EXAMPLES as LEARNERS
from tests.bandits.test_every_learner import make
from tests.noise.distributions import DRAWABLE
from tests.protocols.examples import CASES
from tests.tables import extended_but_every

from tacit.algorithms.registry import algorithms
from tacit.bandits.arms.elimination import CumulativeElimination
from tacit.bandits.arms.nonprivate_baselines import UCB1
from tacit.bandits.linear.phased import DistributedElimination
from tacit.noise import Table
from tacit.protocols.contract import SumProtocol
from tacit.testing import check_algorithm, check_distribution, check_learner, check_protocol
from tacit.testing.statistics import chi_square_p_value
from tacit.types import ErrorDistribution, Estimate, Round

OURS = [name for name, e in algorithms().items() if e.build.__module__.startswith("tacit.")]
TINY: dict[str, dict[str, Any]] = {
    "sdp-fedlinucb": {"epsilon": 1e-3, "delta": 1e-4, "silos": 30},
    "sdp-fedlinucb-vec": {"epsilon": 5.0, "delta": 0.1},
}
BUILDS = [
    pytest.param(name, example, id=f"{name}-{place}")
    for name, examples in LEARNERS.items()
    for place, example in enumerate(examples)
]


@pytest.mark.parametrize("name", DRAWABLE)
def test_every_distribution_passes_its_contract_suite(name: str) -> None:
    check_distribution(DRAWABLE[name], samples=5_000, draws=300)


# tests/protocols has the same for every protocol, part by part
@pytest.mark.parametrize("name", extended_but_every(4, zip(CASES)))
def test_every_protocol_passes_its_contract_suite(name: str) -> None:
    case = CASES[name]
    protocol = case.build()
    if isinstance(protocol, SumProtocol):
        check_protocol(protocol, rounds=500, exact_rounds=50)
    elif "prefix-sums" not in name:  # whose steps build on one another: see test_continual
        check_protocol(protocol, case.reports, case.load, rounds=1000, exact_rounds=300)
    assert protocol.coordinates >= 1


@pytest.mark.parametrize(("name", "example"), BUILDS)
def test_every_learner_passes_its_contract_suite(name: str, example: Any) -> None:
    check_learner(lambda: make(name, example, horizon=600))


@pytest.mark.parametrize("name", OURS)
def test_every_algorithm_passes_its_contract_suite(name: str) -> None:
    check_algorithm(name, **TINY.get(name, {}))


def test_the_suite_detects_devices_with_half_the_noise_of_the_simulation() -> None:
    case = CASES["vector-secagg"]
    protocol: Any = case.build()
    fitting = protocol.sample_noise
    protocol.sample_noise = lambda rng: 2 * fitting(rng)
    with pytest.raises(AssertionError, match="differ in their amount of noise"):
        check_protocol(protocol, case.reports, case.load, rounds=1000, exact_rounds=300)


def test_values_outside_the_support_have_p_value_zero() -> None:
    assert chi_square_p_value([3] * 50, Table.of(5, np.ones(1))) == 0.0
    assert chi_square_p_value([5] * 50, Table.of(5, np.ones(1))) == 1.0
    assert chi_square_p_value([0, 1] * 50 + [2], Table.of(0, np.array([0.5, 0.5]))) == 0.0


class Proposed(UCB1):
    """Divides by the participants of a round."""

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        people = ErrorDistribution(round_.participants, 1, None)
        super()._learn(round_, replace(estimate, error=people))


class Weighed(CumulativeElimination):
    """Takes the mean of reports as that of all participants."""

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        people = ErrorDistribution(round_.participants, 1, None)
        total = estimate.mean * round_.participants
        super()._learn(round_, replace(estimate, total=total, error=people))


@pytest.mark.parametrize("kind", [Proposed, Weighed])
def test_the_suite_rejects_learners_that_count_participants(kind: Any) -> None:
    with pytest.raises(AssertionError, match="counts reports"):
        check_learner(lambda: kind(3, 600))


class Wide(DistributedElimination):
    """Counts participants in its widths."""

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        n = round_.participants
        error = replace(estimate.error, participants=n)
        super()._learn(round_, replace(estimate, total=estimate.mean * n, error=error))


def test_the_suite_rejects_designs_that_count_participants() -> None:
    with pytest.raises(AssertionError, match="counts reports"):
        check_learner(lambda: Wide(np.eye(3), 600))
    check_learner(lambda: DistributedElimination(np.eye(3), 600))

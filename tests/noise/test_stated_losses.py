"""What distributions state about their privacy loss is compared with their probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.noise.distributions import DRAWABLE

from tacit.errors import TacitError
from tacit.noise import DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam, Table
from tacit.privacy import Arithmetic, privacy_loss, privacy_of
from tacit.testing.losses import check_losses

GAP = Table.of(-2, np.array([0.05, 0.4, 0.1, 0.4, 0.05]))


class SmallLoss(DiscreteLaplace):
    def pure_loss(self, shift: Any) -> float:
        return super().pure_loss(shift) / 2


class LosesLittle(DiscreteLaplace):
    def loses_at_most(self, epsilon: Any, shift: Any, times: int = 1) -> bool:
        return super().loses_at_most(2 * epsilon, shift, times)


class LosesOnce(DiscreteLaplace):
    def loses_at_most(self, epsilon: Any, shift: Any, times: int = 1) -> bool:  # noqa: ARG002
        return super().loses_at_most(epsilon, shift)


class Concentrated(DiscreteGaussian):
    def concentration(self, l2: float) -> float:
        return super().concentration(l2) * 0.9


class Divergent(Skellam):
    def renyi_bound(self, order: int, l2: float, dimension: int) -> float:
        return super().renyi_bound(order, l2, dimension) * 0.8


class Concave(Table):
    log_concave = True


class WorstAtTheLargest(Table):
    largest_shift_is_worst = True


class ToldBySums(DiscreteLaplace):
    sum_tells_all = True


class NearlyGaussian(DiscreteLaplace):
    def distance_from_gaussian(self) -> float:
        return 1e-6


LIARS: dict[str, NoiseDistribution] = {
    "pure_loss": SmallLoss(2),
    "loses_at_most": LosesLittle(2),
    "loses_at_most(.*, 3)": LosesOnce(2),
    "concentration": Concentrated(4.0),
    "renyi_bound": Divergent(9),
    "log_concave": Concave(GAP.start, GAP.probabilities),
    "largest_shift_is_worst": WorstAtTheLargest(GAP.start, GAP.probabilities),
    "sum_tells_all": ToldBySums(2),
    "distance_from_gaussian": NearlyGaussian(30),
}


@pytest.mark.parametrize("statement", LIARS)
def test_false_statements_about_the_loss_are_rejected(statement: str) -> None:
    with pytest.raises(AssertionError, match=statement):
        check_losses(LIARS[statement])


@pytest.mark.parametrize("name", DRAWABLE)
def test_every_distribution_states_its_loss(name: str) -> None:
    check_losses(DRAWABLE[name])


def test_false_statements_would_change_printed_guarantees() -> None:
    assert privacy_of(SmallLoss(2)).epsilon == privacy_of(DiscreteLaplace(2)).epsilon / 2


def test_tables_compute_whether_they_are_log_concave() -> None:
    """With two modes a shift of 1 loses more than one of 2: epsilon is 0.85, not 0, at 0.5."""
    made = Table(GAP.start, GAP.probabilities)
    assert not made.log_concave
    assert privacy_of(made, 2, 0.5).epsilon == privacy_of(GAP, 2, 0.5).epsilon > 0.8
    assert Table(0, np.array([0.25, 0.5, 0.25])).log_concave
    assert not Table(0, np.array([0.25, 0.5, 0.25]), concave=False).log_concave
    hole = Table.of(0, np.array([0.5, 1e-300, 0.5]))
    assert not hole.log_concave
    assert privacy_loss(hole, 2).delta(0.5) == 1.0
    with pytest.raises(TacitError, match="sum to"):
        Table(0, np.array([0.25, 0.5]))


def test_tables_are_never_drawn_exactly() -> None:
    with pytest.raises(TacitError, match="no exact sampler"):
        GAP.draw()
    assert privacy_of(GAP, 1, 0.7).arithmetic is Arithmetic.UNSTATED


def test_a_table_that_bends_over_many_points_is_not_log_concave() -> None:
    """Found: waves so long that no three neighbours show it were taken for log-concave noise.

    The largest shift, a whole wave, loses least: half of one gives an epsilon of 1.4 at 0.13.
    """
    wave = 200_000
    weights = np.exp(np.cos(2 * np.pi * np.arange(8 * wave) / wave))
    made = Table.of(0, weights / weights.sum())
    assert float(np.diff(np.log(made.probabilities), n=2).max()) < 1e-9
    assert not made.log_concave
    with pytest.raises(TacitError, match="not log-concave"):
        privacy_of(made, wave, 0.13)
    with pytest.raises(AssertionError, match="log_concave"):
        check_losses(Concave(made.start, made.probabilities))

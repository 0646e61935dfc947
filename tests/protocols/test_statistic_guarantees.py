"""Sums of contextual statistics recomputed from neighbouring reports, with the noise of the fewest
honest participants or one honest server.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from tacit.assumptions import DishonestAtMost, ReleasedOnlyAbove, Scope
from tacit.contextual.feature_maps import BoundedNumber, FeatureMap
from tacit.errors import TacitError
from tacit.noise import DiscreteGaussian, DiscreteLaplace, NoiseDistribution
from tacit.privacy import ApproximateDP, Guarantee, Neighbours, PureDP
from tacit.privacy.gaussian_distance import GroupedGaussianLoss
from tacit.protocols.statistic_sums import StatisticSum, corner_sum, fit_sum, moment_sum, table_sum
from tacit.protocols.statistics import (
    FitStatistic,
    MomentStatistic,
    ScaledMomentStatistic,
    centred_sensitivity,
)
from tacit.trust import TrustModel

FIELDS = (BoundedNumber("age", 18, 90),)
FEATURES = FeatureMap(FIELDS, ("old", "new"), (((0.5, 0.0),), ((0.5, 0.4),)))
SERVED = (TrustModel.CENTRAL, TrustModel.TWO_SERVERS)
SIZES = (64, 10_000)


def unknown(protocol: Any) -> list[NoiseDistribution]:
    """The noise of each coordinate that only the honest parties know.

    One server's draw, or the shares of all reports that must arrive less the dishonest ones.
    """
    stated: Guarantee = protocol.guarantee
    bounds = [one for one in stated.assumptions if isinstance(one, DishonestAtMost)]
    if not bounds:
        return list(protocol.own)
    (released,) = (one for one in stated.assumptions if isinstance(one, ReleasedOnlyAbove))
    arrived = math.ceil(released.fraction * protocol.participants)
    honest = arrived - bounds[0].limit(protocol.participants)
    return [one.sum_of_shares(honest) for one in protocol.own]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("trust", [*SERVED, TrustModel.SECURE_AGGREGATION, TrustModel.SHUFFLER])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("corners", [False, True])
def test_replacing_a_cell_of_a_table_or_of_corners_costs_epsilon(
    corners: bool, epsilon: float, trust: TrustModel, size: int
) -> None:
    """One cell loses a participant and another gains one: the losses of both add up."""
    target = PureDP(epsilon)
    protocol = (
        corner_sum(size, features=FEATURES.to_dict(), trust=trust, target=target)
        if corners
        else table_sum(size, segments=3, options=2, trust=trust, target=target)
    )
    assert protocol.coordinates == (8 if corners else 12)
    assert isinstance(protocol.guarantee, (PureDP, ApproximateDP))
    assert protocol.guarantee.epsilon == epsilon
    for noise in unknown(protocol):
        assert isinstance(noise, DiscreteLaplace)
        assert 2 / noise.scale <= epsilon * (1 + 1e-12)  # P(k)/P(k+1) = e^(1/scale)
        assert 2 / noise.scale >= epsilon * (1 - 1e-12)
    if trust is TrustModel.SHUFFLER:
        slack = (1 + math.exp(epsilon)) * 2.0**-60
        assert isinstance(protocol.guarantee, ApproximateDP)
        assert protocol.guarantee.delta >= slack * (1 - 1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("trust", [*SERVED, TrustModel.SECURE_AGGREGATION])
@pytest.mark.parametrize(("dimension", "weight"), [(2, 2.0), (3, 1.0), (6, 2.8)])
def test_replacing_a_pair_of_moments_costs_epsilon_and_delta(
    dimension: int, weight: float, trust: TrustModel, size: int
) -> None:
    """Unit features with ⟨x, x'⟩ = -w²/8 and y = y' = 1, where the proof is tight."""
    target, resolution = ApproximateDP(1.0, 1e-6), 10_000
    sizes = (dimension, resolution, 1)
    protocol = moment_sum(size, weight, size=sizes, trust=trust, target=target)
    angle = math.acos(-(weight**2) / 8)
    pair = ((1.0, 0.0), (math.cos(angle), math.sin(angle)))
    features = [[int(c * resolution) for c in one] + [0] * (dimension - 2) for one in pair]
    one, other = (np.array(protocol.statistic.encode((x, 1))) for x in features)
    widths = []
    for noise in unknown(protocol):
        assert isinstance(noise, DiscreteGaussian)
        widths.append(noise.std)
    mu = float(np.linalg.norm((one - other) / np.array(widths)))

    def delta(shift: float) -> float:
        return float(norm.cdf(shift / 2 - 1 / shift) - math.e * norm.cdf(-shift / 2 - 1 / shift))

    assert 0.95 * target.delta < delta(mu) <= target.delta
    assert delta(2 * mu) > 100 * target.delta  # with half of the noise


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_local_tables_are_as_private_as_randomized_response(epsilon: float) -> None:
    """All messages of all neighbouring cells, with their probabilities."""
    protocol: Any = table_sum(
        100, segments=2, options=1, trust=TrustModel.LOCAL, target=PureDP(epsilon)
    )
    chances = np.full((4, 4), protocol.flip_probability)
    np.fill_diagonal(chances, 0.5)
    messages = np.array(list(itertools.product((0, 1), repeat=4)))
    likely = np.prod(np.where(messages[None], chances[:, None], 1 - chances[:, None]), axis=2)
    ratios = [likely[a] / likely[b] for a, b in itertools.permutations(range(4), 2)]
    assert np.log(np.max(ratios)) == pytest.approx(epsilon, rel=1e-12)
    drawn = np.array([protocol.randomize(1) for _ in range(4000)])
    deviation = np.abs(drawn.mean(axis=0) - chances[1]) / np.sqrt(chances[1] * (1 - chances[1]))
    assert deviation.max() * math.sqrt(4000) < 6.5  # false positives below 4e-10


@pytest.mark.parametrize("dimension", [1, 3])
def test_the_distance_of_shares_is_charged_for_every_coordinate(dimension: int) -> None:
    noise = [DiscreteGaussian(sigma) for sigma in (40.0, 50.0, 60.0)]
    counts = (dimension, dimension, dimension * (dimension - 1) // 2)
    plain = MomentStatistic(dimension, resolution=8)
    groups = zip(noise, plain.scales, counts, strict=True)
    charged = tuple(group for group in groups if group[2])
    assert plain.loss(noise, 5) == GroupedGaussianLoss(charged, centred_sensitivity(2.0), 5)
    scaled = ScaledMomentStatistic(dimension, resolution=8).loss(noise, 5)
    assert (scaled.groups, scaled.shares) == (((noise[0], 1.0, sum(counts)),), 5)
    fitted = FitStatistic(dimension, resolution=8).loss(noise, 5)
    assert (fitted.groups, fitted.shares) == (((noise[0], 1.0, dimension),), 5)


def test_noise_of_moments_has_as_many_shares_as_guaranteed_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their sum is no discrete Gaussian: it is charged its distance from one."""
    asked: list[int] = []
    made = MomentStatistic.noise

    def noted(self: MomentStatistic, target: Any, shares: int = 1) -> Any:
        asked.append(shares)
        return made(self, target, shares)

    monkeypatch.setattr(MomentStatistic, "noise", noted)
    about: dict[str, Any] = {"size": (2, 64, 1), "target": ApproximateDP(1.0, 1e-6)}
    moment_sum(100, trust=TrustModel.SECURE_AGGREGATION, missing=0.2, dishonest=0.1, **about)
    assert asked == [70]


LOSSY: dict[str, Any] = {"missing": 0.2, "dishonest": 0.1}
MADE: dict[str, Callable[[], StatisticSum]] = {
    "tables": lambda: table_sum(100, segments=2, options=2, target=PureDP(1.0), **MASKED),
    "corners": lambda: corner_sum(100, features=FEATURES.to_dict(), target=PureDP(1.0), **MASKED),
    "moments": lambda: moment_sum(100, size=(2, 64, 1), target=ApproximateDP(1.0, 1e-6), **MASKED),
    "fits": lambda: fit_sum(100, size=(2, 64, 1), target=ApproximateDP(1.0, 1e-6), **MASKED),
}
MASKED: dict[str, Any] = {"trust": TrustModel.SECURE_AGGREGATION, **LOSSY}


@pytest.mark.parametrize("kind", MADE)
def test_statistics_of_every_kind_tolerate_missing_and_dishonest_participants(kind: str) -> None:
    protocol = MADE[kind]()
    assert (protocol.minimum, protocol.honest) == (80, 70)
    assert protocol.guarantee is not None
    assert {
        DishonestAtMost(Scope.ROUND, 1, Fraction(1, 10)),
        ReleasedOnlyAbove(Fraction(4, 5)),
    } <= protocol.guarantee.assumptions


@pytest.mark.parametrize(
    "statistic",
    [FitStatistic(2, 64), MomentStatistic(2, 64), ScaledMomentStatistic(2, 12)],
    ids=["fits", "moments", "scaled moments"],
)
def test_the_distance_of_narrow_shares_from_one_draw_is_charged(
    statistic: FitStatistic | MomentStatistic,
) -> None:
    """Shares that are too narrow for the bound on their sum make no noise at all."""
    target = ApproximateDP(1.0, 1e-6)
    alone = min(one.std for one in statistic.noise(target))
    several = math.ceil(alone**2 / 0.95)
    made = list(dict.fromkeys(statistic.noise(target, several)))
    assert statistic.loss(made, several).delta(1.0) <= 1e-6
    assert min(one.std for one in made) > 1.01 * alone
    with pytest.raises(TacitError, match="shares gives"):
        statistic.noise(target, 100 * several)


def test_one_servers_noise_protects_against_the_other_server() -> None:
    protocol = table_sum(
        100, segments=2, options=2, trust=TrustModel.TWO_SERVERS, target=PureDP(0.5)
    )
    for total in (0, 7):
        view, released = protocol.view_distribution(total, 90), protocol.released_distribution
        assert view.variance == pytest.approx(DiscreteLaplace(4).variance, rel=1e-9)
        assert released(total, 90).variance == pytest.approx(2 * view.variance, rel=1e-9)
        assert (view.mean, released(total, 90).mean) == pytest.approx((total, total))


@pytest.mark.parametrize("trust", [*SERVED, TrustModel.SECURE_AGGREGATION, TrustModel.SHUFFLER])
def test_statistics_give_no_guarantee_about_who_takes_part(trust: TrustModel) -> None:
    """Found: "adding or removing one participant's data", although reports are counted in public
    and a participant who is removed takes a share of the noise along.
    """
    about: dict[str, Any] = {"neighbours": Neighbours.ADD_OR_REMOVE_ONE}
    targets: list[Any] = [PureDP(1.0, **about), ApproximateDP(1.0, 1e-6, **about)]
    for target in targets[: 1 + (trust is TrustModel.SHUFFLER)]:
        with pytest.raises(TacitError, match="replace one participant"):
            table_sum(100, segments=2, options=2, trust=trust, target=target)
    with pytest.raises(TacitError, match="replace one participant"):
        table_sum(100, segments=2, options=2, trust=TrustModel.LOCAL, target=targets[0])
    if trust is not TrustModel.SHUFFLER:
        with pytest.raises(TacitError, match="replace one participant"):
            fit_sum(100, size=(3, 1000, 1), trust=trust, target=targets[1])

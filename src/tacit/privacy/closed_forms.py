"""The papers' closed forms for noise, by name, for comparison and for reproducing figures.

Nothing uses them by default. The binomial ones are loose, by 4 to 6 in standard deviation; the
Gaussian one is wrong beyond ε = 1. `calibrate(..., constants="paper")` reports the true guarantee
of each. See CORRECTIONS 7, 15, 16, 17. Each takes a sensitivity, a target and the number of users
who add the noise together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
from tacit.noise.skellam import skellam_renyi
from tacit.privacy.gaussian import Gaussian
from tacit.privacy.guarantees import ApproximateDP, ConcentratedDP, PureDP
from tacit.privacy.renyi import renyi_epsilon
from tacit.privacy.search import least


def laplace(
    sensitivity: int,
    target: PureDP | ApproximateDP,
    users: int | None = None,  # noqa: ARG001
) -> DiscreteLaplace:
    """Scale g/ε for every δ (CZ23 Theorem 1)."""
    return DiscreteLaplace(sensitivity / target.epsilon)


def gaussian(
    sensitivity: float,
    target: ApproximateDP,
    users: int | None = None,  # noqa: ARG001
) -> Gaussian:
    """σ = Δ √(2 ln(1.25/δ)) / ε (LZJ22 Theorems 4.2 and C.1); valid for ε < 1 only."""
    return Gaussian(
        float(sensitivity) * math.sqrt(2 * math.log(1.25 / target.delta)) / target.epsilon
    )


def discrete_gaussian(
    sensitivity: int,
    target: ApproximateDP,
    users: int | None = None,  # noqa: ARG001
) -> DiscreteGaussian:
    """½ε̂²-zCDP with ε̂ = g/σ (CZ23 Theorem 4), converted by CZ23 Lemma 10."""
    sigma = least(
        lambda s: (
            ConcentratedDP((sensitivity / s) ** 2 / 2).epsilon_at(target.delta) <= target.epsilon
        ),
        float(sensitivity),
    )
    return DiscreteGaussian(sigma)


def skellam(
    sensitivity: int,
    target: ApproximateDP,
    users: int | None = None,  # noqa: ARG001
) -> Skellam:
    """The Rényi bound of CZ23 Theorem 2 at integer orders, converted by CZ23 Lemma 10."""

    def epsilon(variance: float) -> float:
        return min(
            renyi_epsilon(order, skellam_renyi(variance, sensitivity, 1, order), target.delta)
            for order in range(2, 513)
        )

    return Skellam(least(lambda v: epsilon(v) <= target.epsilon, float(sensitivity) ** 2))


def binomial(sensitivity: int, target: ApproximateDP, users: int | None = None) -> Binomial:
    """The printed numbers of noise bits for one bit of data and for several levels.

    One bit: 96 ln(2/δ)/ε² fair bits (TKMS21 Algorithm 3). Levels, n users: b = ⌈180g²ln(2/δ)/(ε²n)⌉
    bits each, of bias 90g²ln(2/δ)/(bε²n) (LZJ22 Algorithm 4).
    """
    if users is None and sensitivity != 1:
        raise TacitError(
            "TKMS21's noise is for bits (sensitivity 1); LZJ22's for levels depends on the batch: "
            "give users"
        )
    if users is None:
        return Binomial(math.ceil(96 * math.log(2 / target.delta) / target.epsilon**2))
    amount = sensitivity**2 * math.log(2 / target.delta) / (target.epsilon**2 * users)
    bits = math.ceil(180 * amount)
    return Binomial(bits * users, 90 * amount / bits)


BY_KIND: dict[str, Callable[[Any, Any, int | None], NoiseDistribution | Gaussian]] = {
    "discrete-laplace": laplace,
    "gaussian": gaussian,
    "discrete-gaussian": discrete_gaussian,
    "skellam": skellam,
    "binomial": binomial,
}

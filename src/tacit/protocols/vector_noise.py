"""Calibration of noise for vectors of sums of which one participant moves every coordinate.

A replaced client can move each of s coordinates by the full range of g levels at once. For
log-concave integer noise this is the worst case (see `tacit.privacy.linf_loss`). The joint loss is
therefore the s-fold composition of the exact loss of one coordinate, without norm bounds or closed
forms. A first guess from the Gaussian is checked against it and raised until it meets the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, NoiseDistribution, Skellam
from tacit.privacy import ApproximateDP, PureDP, View, calibrate, privacy_loss
from tacit.privacy.accounting import check_replaced
from tacit.privacy.composition import ComposedLoss, dominating_loss
from tacit.privacy.search import least

Target = PureDP | ApproximateDP
DistributionT = TypeVar("DistributionT", bound=NoiseDistribution)
STEPS = 200
CLOSE = 1.002  # calibrated standard deviations are at most this factor above the least


def joint_epsilon(
    distribution: NoiseDistribution, levels: int, coordinates: int, delta: float
) -> float:
    """The ε at δ of adding independent `distribution` noise to `coordinates` sums, each with
    sensitivity `levels`.

    Discrete Gaussian: in the worst case, equal shifts everywhere, the log-likelihood ratio is a
    function of the sum K of all coordinates' noise (`sum_tells_all`). The joint loss is thus that
    of K against K + s·g. K is within a factor e^±ψ of one draw of √s σ at every point (Kairouz, Liu
    & Steinke 2021), which widens ε by 2ψ and δ by e^ψ. Other noise: composition.

    >>> round(joint_epsilon(DiscreteGaussian(79.1), 32, 100, 0.25), 3)
    9.999
    """
    floor = math.log(delta) - 40
    if distribution.sum_tells_all:
        psi, together = distribution.closeness(coordinates), distribution.sum_of_shares(coordinates)
        if not math.isfinite(psi):
            return math.inf
        loss = privacy_loss(together, coordinates * levels, log_floor=floor)
        return loss.epsilon(delta * math.exp(-psi)) + 2 * psi
    loss = privacy_loss(distribution, levels, log_floor=floor)
    if coordinates == 1:
        return loss.epsilon(delta)
    return ComposedLoss(((loss, coordinates),)).epsilon(delta)


Asked = TypeVar("Asked", PureDP, ApproximateDP, PureDP | ApproximateDP)


def numbers_only(target: Asked, view: View) -> Asked:
    """The numbers of a target about a view, without any assumption or claim that came with it;
    targets about other neighbours than replacement are rejected.
    """
    check_replaced(target)
    made: Asked = replace(target, view=view, assumptions=frozenset())
    return made


@lru_cache(maxsize=256)
def per_participation(target: Target) -> Target:
    """The guarantee of one participation such that the adaptive composition of all N meets the
    target.

    ε/N for a pure target. Otherwise δ/2N and the largest ε whose N-fold composition provably meets
    the target (Kairouz, Oh & Viswanath 2015, by composed loss distributions).
    """
    check_replaced(target)
    times = target.participations
    if times == 1:
        return target
    if isinstance(target, PureDP):
        part: Any = Fraction(target.epsilon) / times  # exact: N of them are the target
        return replace(target, epsilon=part, participations=1)
    level = target.delta
    once = replace(target, delta=level / (2 * times), participations=1)

    def holds(part: float) -> bool:
        loss = dominating_loss(replace(once, epsilon=target.epsilon / part))
        return ComposedLoss(((loss, times),)).epsilon(level) <= target.epsilon

    # N-fold basic composition holds at part = N: ε adds up to the target, δ to half of it
    return replace(once, epsilon=target.epsilon / least(holds, float(times), relative=1e-3))


@lru_cache(maxsize=4096)
def gaussian_ratio(target: ApproximateDP) -> float:
    """Standard deviation over l2 sensitivity of the exactly calibrated Gaussian mechanism."""
    return float(calibrate("gaussian", 1, target).distribution.std)


@lru_cache(maxsize=4096)
def gaussian_noise(levels: int, coordinates: int, target: ApproximateDP) -> DiscreteGaussian:
    """The discrete Gaussian noise of a single party in each coordinate."""
    start = gaussian_ratio(target) * levels * math.sqrt(coordinates) * (1 + 1e-6)
    return _least(DiscreteGaussian.of_std, start, levels, coordinates, target)


@lru_cache(maxsize=4096)
def skellam_noise(levels: int, coordinates: int, target: ApproximateDP) -> Skellam:
    """The total Skellam noise of all honest clients' shares in each coordinate."""
    if coordinates != _rounded(coordinates):
        return skellam_noise(levels, _rounded(coordinates), target)
    start = gaussian_ratio(target) * levels * math.sqrt(coordinates) * (1 + 1e-4)
    return _least(Skellam.of_std, start, levels, coordinates, target)


@lru_cache(maxsize=4096)
def shared_gaussian_noise(
    levels: int, coordinates: int, target: ApproximateDP, clients: int
) -> DiscreteGaussian:
    """The discrete Gaussian share of each of `clients` honest clients; the accounting covers the
    sum of shares in every coordinate.
    """
    start = gaussian_ratio(target) * levels * math.sqrt(coordinates) * (1 + 1e-6)
    least_share = 1.0  # below, a sum of shares is not close to one draw
    std = max(start, least_share * math.sqrt(clients))
    for _ in range(STEPS):
        share = DiscreteGaussian(std).approximate_share(clients)
        psi = coordinates * share.closeness(clients)
        if 2 * psi < target.epsilon:
            inner = joint_epsilon(
                DiscreteGaussian(std), levels, coordinates, target.delta * math.exp(-psi)
            )
            if inner + 2 * psi <= target.epsilon:
                return share
        std *= 1.01
    raise TacitError(
        f"no discrete Gaussian shares for {target.short} were found: use a larger epsilon or "
        "delta, fewer coordinates, or a coarser precision"
    )


@lru_cache(maxsize=4096)
def binomial_noise(
    levels: int, coordinates: int, target: ApproximateDP, clients: int
) -> tuple[int, float]:
    """Noise bits per client and coordinate, and their bias: fair bits, or one biased bit per client
    if that suffices.

    Single sums are numerous and are calibrated at the next smaller power of two clients: more bits
    of the same bias only add noise.
    """
    if coordinates == 1 and clients & (clients - 1):
        return binomial_noise(levels, 1, target, 1 << (clients.bit_length() - 1))
    if coordinates != _rounded(coordinates):
        return binomial_noise(levels, _rounded(coordinates), target, clients)
    start = gaussian_ratio(target) * levels * math.sqrt(coordinates) * (1 + 1e-3)
    distribution = _least(lambda std: _bits(std**2, clients), start, levels, coordinates, target)
    return distribution.n // clients, float(distribution.p)


def _rounded(coordinates: int) -> int:
    """Coordinates rounded up to a multiple of 4 past 8, so that cached calibrations are shared.

    Noise for more coordinates covers fewer.
    """
    return coordinates if coordinates <= 8 else -(-coordinates // 4) * 4


def _bits(variance: float, clients: int) -> Binomial:
    """Binomial noise of this variance with equally many bits from each client, as few as
    possible.
    """
    each = math.ceil(4 * variance / clients)
    return Binomial(
        each * clients, (1 - math.sqrt(max(0.0, 1 - 4 * variance / (each * clients)))) / 2
    )


def _least(
    make: Callable[[float], DistributionT],
    start: float,
    levels: int,
    coordinates: int,
    target: ApproximateDP,
) -> DistributionT:
    """The noise of least standard deviation, to a 500th, whose joint loss meets the target."""

    def enough(std: float) -> bool:
        return joint_epsilon(make(std), levels, coordinates, target.delta) <= target.epsilon

    return make(least(enough, start, relative=1 - 1 / (CLOSE * 1.0001)))

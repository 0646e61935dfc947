"""Exact draws of integer noise and of random flips, without NumPy and without floating point.

Devices and simulations of devices use them. Laplace and Gaussian draws follow Canonne, Kamath &
Steinke 2020 (CKS20); the others invert a distribution function exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

from tacit.sampling.certificates import PureShuffleParameters
from tacit.sampling.coins import (
    ONE_OVER_E,
    Chance,
    exp_bounds,
    flip_exp,
    random_bits,
    uniform_below,
)
from tacit.sampling.inversion import Inversion, rational_side
from tacit.sampling.polya import polya_walk

LARGEST_INVERTED = 256  # sigma up to which Gaussian draws use a table, of about 20 sigma entries
HALF = Chance(Fraction(1, 2))


def draw_laplace(numerator: int, denominator: int) -> int:
    """One exact draw of scale numerator/denominator (CKS20 Algorithm 2).

    Draws a geometric magnitude in units of the numerator, divides it down and adds a sign; minus
    zero is rejected.
    """
    while True:
        remainder = uniform_below(numerator)
        if not flip_exp(Fraction(remainder, numerator)):
            continue
        whole = 0
        while ONE_OVER_E.flip():
            whole += 1
        magnitude = (remainder + numerator * whole) // denominator
        negative = random_bits(1)
        if magnitude or not negative:
            return -magnitude if negative else magnitude


def draw_laplace_share(scale: Fraction, shares: int) -> int:
    """One of `shares` independent parts that sum to discrete Laplace noise of this scale.

    It is the difference of two Pólya variables of shape 1/shares and β = e^{-1/scale} (CZ23, Fact
    1).
    """
    walk = polya_walk(Fraction(1, shares), Chance(Fraction(1), 1 / scale))
    return walk.draw() - walk.draw()


def draw_certified_ones(parameters: PureShuffleParameters) -> Callable[[int], int]:
    """The number of ones that a device sends for a bit, in a round of pure shuffle; as a function
    of the bit, so that the noise is drawn first.

    It is τ + bit + a Laplace share redrawn until it is in [-τ, τ]; with the probability of the
    mixture, it is uniform instead.
    """
    p = parameters
    replaced = uniform_below(p.bits + 1) if Chance(p.mixture).flip() else None
    share = p.tau + 1
    while abs(share) > p.tau:
        share = draw_laplace_share(1 / p.noise_epsilon, p.users)
    return lambda bit: p.tau + bit + share if replaced is None else replaced


def draw_skellam(variance: Fraction) -> int:
    """One Skellam value: the difference of two Poisson variables of half the variance each."""
    parts, part = poisson_parts(variance / 2)
    return sum(part.draw() - part.draw() for _ in range(parts))


def poisson_parts(mean: Fraction) -> tuple[int, Inversion]:
    """A Poisson variable in equal parts with small tables; at most 64 parts up to 2^31."""
    largest = min(max(1 << 16, int(mean // 64)), 1 << 24)
    parts = -(-mean // largest)
    return parts, poisson(mean / parts)


def draw_gaussian(variance: Fraction) -> int:
    """One discrete Gaussian value for this sigma².

    Inversion; for a large sigma CKS20 Algorithm 3, which accepts a discrete Laplace proposal of
    scale t with probability e^{-(|y| - σ²/t)² / (2σ²)}.
    """
    if variance <= LARGEST_INVERTED**2:
        return gaussian(variance).draw()
    return accepted_gaussian(variance, lambda scale: draw_laplace(scale.numerator, 1))


def accepted_gaussian(variance: Fraction, propose: Callable[[Fraction], int]) -> int:
    """One discrete Gaussian value for this sigma², from exact discrete Laplace draws of a scale."""
    scale = Fraction(math.isqrt(variance.numerator // variance.denominator) + 1)
    while True:
        y = propose(scale)
        if flip_exp((abs(y) - variance / scale) ** 2 / (2 * variance)):
            return y


def flip_response(epsilon: Fraction) -> bool:
    """True with probability exactly 1 / (1 + e^ε): the flip of randomized response.

    A fair coin decides: one side keeps the bit; the other flips it with probability e^-ε, else the
    coin is tossed again.
    """
    while not HALF.flip():
        if Chance(Fraction(1), epsilon).flip():
            return True
    return False


@lru_cache(maxsize=64)
def poisson(mean: Fraction) -> Inversion:
    """Exact Poisson draws by inversion; the ratio of neighbouring weights is mean / k."""
    numerator, denominator = mean.as_integer_ratio()
    mode = numerator // denominator
    return Inversion(
        mode,
        left=rational_side(lambda j: ((mode - j + 1) * denominator, numerator)),
        right=rational_side(lambda j: (numerator, (mode + j) * denominator)),
    )


@lru_cache(maxsize=64)
def gaussian(variance: Fraction) -> Inversion:
    """Exact draws for this sigma² by inversion; the weight at ±j is e^{-(2j-1)/(2σ²)} times that of
    its neighbour towards zero.
    """

    def side(guard: int) -> Iterator[tuple[int, int, int | None]]:
        one = low = high = 1 << guard
        ratio_low, ratio_high = exp_bounds(1 / (2 * variance), guard)
        factor_low, factor_high = exp_bounds(1 / variance, guard)
        while True:
            low, high = low * ratio_low >> guard, -(-high * ratio_high >> guard)
            ratio_low, ratio_high = (
                ratio_low * factor_low >> guard,
                -(-ratio_high * factor_high >> guard),
            )
            yield (
                low,
                high,
                -(-high * ratio_high // (one - ratio_high)) if ratio_high < one else None,
            )

    return Inversion(0, left=side, right=side)


@lru_cache(maxsize=64)
def ones(n: int, p: Fraction) -> Inversion:
    """Exact draws of Bin(n, p) by inversion; the ratio of neighbouring weights is (n-k+1) p / (k
    (1-p)).
    """
    yes, no = p.numerator, p.denominator - p.numerator
    mode = (n + 1) * yes // p.denominator
    return Inversion(
        mode,
        left=rational_side(lambda j: ((mode - j + 1) * no, (n - mode + j) * yes)),
        right=rational_side(lambda j: ((n - mode - j + 1) * yes, (mode + j) * no)),
    )

"""Independent probabilities and divergences: big integers and mpmath, no array of the package.

A distribution is a table of integers, its probabilities in units of 2^-PRECISION, rounded down, so
that what
is summed up of it is never too much; those of wide distributions are interpolated, each good to
about 1e-17
of itself. Several independent draws are powers of one huge integer whose digits are the table
(Kronecker substitution). Several losses together are put on a grid, rounded down, and convolved:
again never too much. A guarantee below such a number is false.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath as mp
import numpy as np
from numpy.polynomial import chebyshev

PRECISION = 200
UNIT = 1 << PRECISION
TINY = 1 << (PRECISION - 120)  # smaller probabilities are left out: 2^-120
mp.mp.prec = PRECISION + 64


@dataclass(frozen=True, eq=False)
class Distribution:
    """P[X = first + k] in units of 2^-PRECISION, rounded down."""

    first: int
    masses: list[int]

    def __call__(self, value: int) -> int:
        place = value - self.first
        return self.masses[place] if 0 <= place < len(self.masses) else 0


def _distribution(centre: int, right: list[Any], left: list[Any], total: Any) -> Distribution:
    """From weights at centre, centre + 1, ... and at centre - 1, centre - 2, ..."""
    masses = [int(mp.floor(w * UNIT / total)) for w in [*reversed(left), *right]]
    return Distribution(centre - len(left), masses)


def _falling(first: Any, ratio: Any) -> list[Any]:
    """Weights from a first one on, each `ratio(k)` times the one before, down to 2^-125 of it."""
    weights, least = [first], first / mp.mpf(2) ** 125
    while weights[-1] > least:
        weights.append(weights[-1] * ratio(len(weights)))
    return weights


DIGITS, FINE = 700, 256  # bits after the point, of terms of a series and of what they are made of
WIDE = 600.0  # standard deviations above which tables are made by interpolation
NODES, REACH = 48, 13.5  # of the interpolation, and how many standard deviations it covers


def width(shift: int, deviation: float) -> int:
    """By how much a wide distribution may be made coarser: a part of what a participant moves, so
    that ⌊X/w⌋ moves by a whole number, and a two-hundredth of the standard deviation at most.
    An adversary who sees less learns less, so what is computed of it is never too much.
    """
    most = deviation / 200
    return max((w for w in range(1, shift + 1) if shift % w == 0 and w <= most), default=1)


def smooth(
    log_mass: Callable[[Any], Any], middle: int, deviation: float, w: int, symmetric: bool = True
) -> Distribution:
    """The distribution of ⌊(X - middle)/w⌋ from log P(x), which is nearly a parabola: interpolated
    at 48
    points in 80-bit numbers, and summed over w integers by Gauss and the Euler-Maclaurin formula.
    """
    half = REACH * deviation
    angles = [mp.pi * (2 * k + 1) / (2 * NODES) for k in range(NODES)]
    values = [log_mass(middle + half * mp.cos(angle)) for angle in angles[: NODES // 2]]
    if symmetric:
        values += values[::-1]
    else:
        values += [log_mass(middle + half * mp.cos(angle)) for angle in angles[NODES // 2 :]]
    fit = np.array(
        [
            np.longdouble(mp.nstr(mp.fdot(values, [mp.cos(j * a) for a in angles]) * 2 / NODES, 25))
            for j in range(NODES)
        ]
    )
    fit[0] /= 2
    slope = chebyshev.chebder(fit) / np.longdouble(half)

    def mass(x: Any) -> Any:
        return np.exp(chebyshev.chebval(x / np.longdouble(half), fit))

    most = int(half * 0.995) // w
    first = np.arange(-most, most, dtype=np.longdouble) * w
    if w == 1:
        masses = mass(first)
    else:
        low, high = first - 0.5, first + w - 0.5
        nodes, weights = np.polynomial.legendre.leggauss(6)
        masses = (
            sum(g * mass((low + high + w * x) / 2) for x, g in zip(nodes, weights, strict=True))
            * w
            / 2
        )
        change = [mass(x) * chebyshev.chebval(x / np.longdouble(half), slope) for x in (high, low)]
        masses = masses - (change[0] - change[1]) / 24
    return Distribution(-most, [int(m) for m in np.ldexp(masses, PRECISION)])


@lru_cache(maxsize=64)
def laplace(scale: Fraction) -> Distribution:
    """P(k) ∝ e^{-|k|/scale}."""
    rate = mp.exp(-mp.mpf(scale.denominator) / scale.numerator)
    right = _falling(mp.mpf(1), lambda _: rate)
    return _distribution(0, right, right[1:], (1 + rate) / (1 - rate))


@lru_cache(maxsize=64)
def gaussian(sigma: float, w: int = 1) -> Distribution:
    """P(k) ∝ e^{-k²/2σ²}."""
    square = 2 * mp.mpf(sigma) ** 2
    if (
        sigma > WIDE
    ):  # the normalisation is that of the normal distribution, to e^-2π²σ² (Poisson summation)
        return smooth(lambda x: -(x**2) / square - mp.log(mp.pi * square) / 2, 0, sigma, w)
    right = _falling(mp.mpf(1), lambda k: mp.exp(-(2 * k - 1) / square))
    return _distribution(0, right, right[1:], 2 * mp.fsum(right) - 1)


@lru_cache(maxsize=64)
def skellam(variance: Any, w: int = 1) -> Distribution:
    """e^{-v} I_k(v), by the recurrence I_{k-1} = I_{k+1} + (2k/v) I_k from far out (Miller)."""
    v = mp.mpf(variance)
    if v > WIDE**2:
        return smooth(lambda x: _log_bessel(x, v), 0, math.sqrt(float(v)), w)
    start = int(25 * math.sqrt(float(v))) + 120
    above, here = mp.mpf(0), mp.mpf(1)
    values = [here]
    for k in range(start, 0, -1):
        above, here = here, above + 2 * k / v * here
        values.append(here)
    right = values[::-1]
    total = 2 * mp.fsum(right) - right[0]
    kept = [w for w in right if w > total / mp.mpf(2) ** 125]
    return _distribution(0, kept, kept[1:], total)


def _log_bessel(order: Any, v: Any) -> Any:
    """ln e^{-v} I_order(v) by Hankel's series, whose terms grow only after about 2v of them; they
    cancel down to e^{-order²/2v}, hence the digits: integers in units of 2^-DIGITS, and all of them
    so small in the end that what was rounded off, below 2^-500, is far below the sum.
    """
    square, eight = (int(mp.floor(value * mp.mpf(2) ** FINE)) for value in (4 * order**2, 8 * v))
    term = total = 1 << DIGITS
    k = 0
    while term:
        k += 1
        term = term * (((2 * k - 1) ** 2 << FINE) - square) // (k * eight)
        if term == -1:  # rounded towards -∞, for ever
            break
        total += term
    return mp.log(mp.mpf(total)) - DIGITS * mp.log(2) - mp.log(2 * mp.pi * v) / 2


@lru_cache(maxsize=64)
def binomial(trials: int, p: Fraction, w: int = 1) -> Distribution:
    """C(n, k) p^k (1-p)^{n-k}, by ratios from the mode out."""
    odds = mp.mpf(p.numerator) / (p.denominator - p.numerator)
    mode = min(trials, int((trials + 1) * p))
    chance = mp.mpf(p.numerator) / p.denominator

    def log_mass(x: Any) -> Any:
        ways = mp.loggamma(trials + 1) - mp.loggamma(x + 1) - mp.loggamma(trials - x + 1)
        return ways + x * mp.log(chance) + (trials - x) * mp.log(1 - chance)

    deviation = math.sqrt(trials * float(p * (1 - p)))
    if deviation > WIDE:
        return smooth(log_mass, mode, deviation, w, symmetric=False)
    top = mp.exp(log_mass(mode))
    right = _falling(top, lambda k: odds * (trials - mode - k + 1) / (mode + k))
    left = _falling(top, lambda k: (mode - k + 1) / odds / (trials - mode + k))[1:]
    return _distribution(mode, right, left, mp.mpf(1))


@lru_cache(maxsize=64)
def polya_difference(r: Fraction, rate: Fraction) -> Distribution:
    """The difference of two independent Pólya variables: P(k+1)/P(k) = β (r + k)/(k + 1)."""
    beta, shape = (
        mp.exp(-mp.mpf(rate.numerator) / rate.denominator),
        mp.mpf(r.numerator) / r.denominator,
    )
    right = _falling((1 - beta) ** shape, lambda k: beta * (shape + k - 1) / k)
    one = _distribution(0, right, [], mp.mpf(1))
    return _sum(one, Distribution(1 - len(one.masses), one.masses[::-1]))


@lru_cache(maxsize=64)
def largest_loss(distribution: Distribution, shift: int) -> Any:
    """The largest |ln P(k)/P(k + shift)| where both are resolved."""
    large, small = 1, 1
    for place, mass in enumerate(distribution.masses):
        other = distribution(distribution.first + place + shift)
        if min(mass, other) > TINY:
            above, below = max(mass, other), min(mass, other)
            if above * small > large * below:
                large, small = above, below
    return mp.log(mp.mpf(large) / small)


@lru_cache(maxsize=64)
def power(distribution: Distribution, copies: int) -> Distribution:
    """The distribution of the sum of so many independent draws, by squaring."""
    result, square = Distribution(0, [UNIT]), distribution
    while copies:
        if copies & 1:
            result = _sum(result, square)
        copies >>= 1
        if copies:
            square = _sum(square, square)
    return result


def _sum(one: Distribution, other: Distribution) -> Distribution:
    """Of two independent variables: the product of two integers with the tables as digits."""
    digit = 2 * PRECISION + 8 * ((len(one.masses) + len(other.masses)).bit_length() // 8 + 1)
    size = digit // 8 + 1
    packed = [
        int.from_bytes(
            b"".join(mass.to_bytes(size, "little") for mass in distribution.masses), "little"
        )
        for distribution in (one, other)
    ]
    count = len(one.masses) + len(other.masses) - 1
    data = (packed[0] * packed[1]).to_bytes(count * size + size, "little")
    masses = [
        int.from_bytes(data[k * size : (k + 1) * size], "little") >> PRECISION for k in range(count)
    ]
    low = next(k for k, mass in enumerate(masses) if mass > TINY)
    high = next(k for k in range(count - 1, -1, -1) if masses[k] > TINY)
    return Distribution(one.first + other.first + low, masses[low : high + 1])


@lru_cache(maxsize=64)
def delta(distribution: Distribution, shift: int, epsilon: float) -> Any:
    """The larger of Σ (P(k) - e^ε P(k + shift))⁺ and the same for -shift, never too much but for
    what was rounded down of the second term, 2^-199 each.
    """
    factor = int(mp.ceil(mp.exp(mp.mpf(epsilon)) * UNIT))
    found = []
    for step in (shift, -shift):
        total = 0
        for place, mass in enumerate(distribution.masses):
            other = distribution(distribution.first + place + step) + 1
            total += max(0, mass - (other * factor >> PRECISION) - 1)
        found.append(total)
    return mp.mpf(max(found)) / UNIT


@lru_cache(maxsize=64)
def composed_delta(distribution: Distribution, shift: int, copies: int, epsilon: float) -> float:
    """A lower bound on δ(ε) of so many independent such losses together: losses on a grid, rounded
    down, added up by Fourier transforms in double precision (good to about 1e-13).
    """
    return max(_composed(distribution, step, copies, epsilon) for step in (shift, -shift))


def exchanged_delta(distribution: Distribution, epsilon: float) -> Any:
    """δ(ε) of two independent numbers of which the one loses one and the other gains one, over all
    pairs of values: Σ (P(x) P(y - 1) - e^ε P(x - 1) P(y))⁺. Exchanging both is the other sign.
    """
    masses = [0, *distribution.masses, 0]
    factor = int(mp.ceil(mp.exp(mp.mpf(epsilon)) * UNIT))
    found = 0
    for x in range(1, len(masses)):
        here, below = masses[x] * UNIT, masses[x - 1] * factor
        for y in range(1, len(masses)):
            over = here * masses[y - 1] - below * masses[y]
            found += over if over > 0 else 0
    return mp.mpf(found) / mp.mpf(UNIT) ** 3


def moved_delta(distribution: Distribution, shifts: Sequence[int], epsilon: float) -> float:
    """A lower bound on δ(ε) of independent numbers with one symmetric distribution of noise, each
    moved by its own shift: losses on a grid, as in `composed_delta`.
    """
    parts = [
        (*_losses(distribution, shift), count) for shift, count in Counter(map(abs, shifts)).items()
    ]
    return _added(
        [(p[finite], losses[finite], count) for p, losses, finite, count in parts], epsilon
    )


def _composed(distribution: Distribution, step: int, copies: int, epsilon: float) -> float:
    p, losses, finite = _losses(distribution, step)
    endless = float(p[~finite].sum())
    surely = _added([(p[finite], losses[finite], copies)], epsilon)
    return surely + (1 - (1 - endless) ** copies) * 0.999


def _losses(distribution: Distribution, step: int) -> tuple[Any, Any, Any]:
    """Probabilities of a distribution, the losses there, and where these are finite."""
    pairs = [
        (mass, distribution(distribution.first + place + step))
        for place, mass in enumerate(distribution.masses)
        if mass > TINY
    ]
    p = np.array([mass / UNIT for mass, _ in pairs])
    finite = np.array([other > TINY for _, other in pairs])
    losses = np.array([_log_ratio(a, b) if b > TINY else 0.0 for a, b in pairs])
    return p, losses, finite


def laplace_delta(shift: int, pure: Any, copies: int, epsilon: float) -> float:
    """A lower bound on δ(ε) of so many discrete Laplace draws together, each moved by `shift`, with
    a loss of at most `pure` each: the loss is that on one side, its opposite on the other, and in
    between at -k it is (1 - 2k/shift) · pure, so no table has to be as wide as the distribution.
    """
    rate = mp.exp(-mp.mpf(pure) / shift)
    between = [(1 - rate) / (1 + rate) * rate**k for k in range(1, shift)]
    masses = [1 / (1 + rate), *between, rate**shift / (1 + rate)]
    p = np.array([float(mass) for mass in masses])
    losses = float(pure) * (1 - 2 * np.arange(shift + 1) / shift)
    return _added([(p, losses, copies)], epsilon)


def _added(parts: list[tuple[Any, Any, int]], epsilon: float) -> float:
    """δ(ε) of all losses together, each of so many copies."""
    spread = math.sqrt(sum(copies * _variance(p, losses) for p, losses, copies in parts))
    widest = max(math.sqrt(_variance(p, losses)) for p, losses, _ in parts)
    reach = min(
        sum(copies * float(np.abs(losses).max()) for _, losses, copies in parts),
        sum(copies * abs(float(p @ losses)) for p, losses, copies in parts)
        + 12 * spread
        + 30 * widest,
    )
    grid = max(epsilon, reach, 1e-9) / (1 << 19)
    size = 1 << 21
    together: Any = 1.0
    for p, losses, copies in parts:
        places = np.floor(losses / grid).astype(np.int64)
        inside = np.abs(places) < size // 2
        table = np.zeros(size)
        np.add.at(table, places[inside] % size, p[inside])
        together = together * np.fft.rfft(table) ** copies
    sums = np.fft.irfft(together, size)
    values = np.fft.fftfreq(size, 1 / size) * grid
    above = values > epsilon
    return max(0.0, float((sums[above] * -np.expm1(epsilon - values[above])).sum()) - 1e-13)


def _variance(p: Any, losses: Any) -> float:
    return max(1e-30, float(p @ losses**2) - float(p @ losses) ** 2)


def _log_ratio(one: int, other: int) -> float:
    return math.log(one / other)


def gaussian_delta(ratio: float, epsilon: float) -> Any:
    """δ(ε) of the Gaussian mechanism at so many sensitivities per standard deviation (Balle & Wang
    2018).
    """
    mu, e = mp.mpf(ratio), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


def discrete_gaussian_delta(sigma: Any, shift: int, epsilon: float) -> Any:
    """δ(ε) of wide discrete Gaussian noise on a number that moves by `shift`: the loss grows with
    the number, so it is a difference of two tails, P[X >= t] - e^ε P[X >= t + shift]. Tails are
    integrals with four terms of Euler and Maclaurin, good to σ^-7.

    Several such numbers together are one: their loss depends on the sum alone, whose distribution
    is another to e^-2π²σ².
    """
    s, e = mp.mpf(sigma), mp.mpf(epsilon)

    def tail(t: int) -> Any:
        z = t / s
        density = mp.npdf(z) / s
        odd = [-z, -(z**3) + 3 * z, -(z**5) + 10 * z**3 - 15 * z]  # of the density's derivatives
        first, third, fifth = (density * value / s ** (2 * k + 1) for k, value in enumerate(odd))
        return mp.ncdf(-z) + density / 2 - first / 12 + third / 720 - fifth / 30240

    t = int(mp.floor(e * s**2 / shift - mp.mpf(shift) / 2)) + 1
    return tail(t) - mp.exp(e) * tail(t + shift)


def reports(tau: int, mixture: Fraction, share: Distribution, digits: int = 112) -> list[list[int]]:
    """Weights of the numbers of ones, none to 2τ + 1, that somebody sends whose bit is 0, and whose
    is 1: a share conditioned to [-τ, τ], or with a small probability any number alike.
    """
    inside = [share(k) for k in range(-tau, tau + 1)]
    whole, floor = sum(inside), mixture / (2 * tau + 2)
    kept = [int((1 - mixture) * Fraction(mass, whole) * (1 << digits)) for mass in inside]
    rare = int(floor * (1 << digits))
    return [
        [rare + mass for mass in (*lead, *kept, *rest)] for lead, rest in (((), (0,)), ((0,), ()))
    ]


def group_loss(weights: list[list[int]], honest: int, ones: int) -> Any:
    """The largest |ln P/Q| of the number of ones of so many participants when one of them has the
    other bit, `ones` of those besides having a 1: exact products of polynomials, as digits of
    integers.
    """
    size = honest * (max(map(max, weights)).bit_length() + len(weights[0]).bit_length()) // 8 + 2
    zero, one = (
        int.from_bytes(b"".join(w.to_bytes(size, "little") for w in row), "little")
        for row in weights
    )
    others = zero ** (honest - 1 - ones) * one**ones
    count = honest * (len(weights[0]) - 1) + 1
    p, q = ((others * mine).to_bytes(size * (count + 1), "little") for mine in (zero, one))
    found = mp.mpf(0)
    for k in range(count):
        a, b = (int.from_bytes(data[k * size : (k + 1) * size], "little") for data in (p, q))
        found = max(found, abs(mp.log(mp.mpf(a) / b)))
    return found

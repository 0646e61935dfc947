"""Worst likelihood ratio of the number of ones in a pure shuffle batch: its exact epsilon.

Every user sends `bits` = 2 tau + g bits, c of them ones: c = tau + x + eta, where eta is a
Pólya-difference share of Lap_Z(g / noise_epsilon) (CZ23, Fact 1) conditioned on |eta| <= tau. With
probability `mixture` instead, c is uniform on 0..bits, so that every count is possible for every
input. With f_x the generating polynomial of c given x, and k ones among the other n - 1 users, the
server's view has the distribution f_0^(n-1-k) f_1^k f_x. The largest |log ratio| of its
coefficients at x = 0 and x = 1 is the epsilon of the batch.

Two independent computations give upper bounds, never estimates. `integer_ratio` brackets the
probabilities between integers and multiplies exactly. `tilted_ratio` multiplies the exponentially
tilted f_x(e^t z) in floating point and counts every rounding: all terms are non-negative, so
nothing cancels and the relative error of a coefficient is at most the number of roundings it went
through. Several tilts t together cover every count at full relative precision. The module does not
cover precision g > 1 (the others then no longer reduce to one number k).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TacitError
from tacit.sampling.certificates import PureShuffleParameters

INTEGER_BITS = 64  # bits of the smallest probability in the integer brackets
BALL_BITS = 192
ROUNDING = 2.0**-53  # relative error of one IEEE double operation
SMALLEST_KEPT = 2.0**-1000  # tilted coefficients below this are dropped; the loss is accounted for
SMALLEST_TRUSTED = 2.0**-850  # tilted coefficients above this keep their relative precision
BLOCK = 1024
LARGEST_COUNT = 2**20
WINDOW = (
    500.0  # nats between neighbouring tilts; leaves more than 80 below ln(1 / SMALLEST_TRUSTED)
)


def flint() -> Any:
    """Import python-flint, or raise an error with installation advice; only the prover needs it."""
    try:
        import flint
    except ImportError:
        raise TacitError(
            "computing a certificate needs python-flint, which is not installed: pip install "
            "'tacit[certificates]'. The committed table can be read without it."
        ) from None
    return flint


def count_distribution(parameters: PureShuffleParameters) -> list[Any]:
    """Balls that contain the probabilities of 0..bits ones from a user who holds a 0.

    With Pólya weights p_m = (r)_m / m! b^m, r = 1/n, b = exp(-noise_epsilon / g), P[eta = j] is
    proportional to the sum of p_m p_(m+|j|) over m. Each term is at most b^2 times the one before,
    which bounds the truncation error; conditioning on |eta| <= tau divides by the sum over j. A
    user who holds a 1 (g = 1) has the reversed distribution, because eta is symmetric.
    """
    arb, fmpq, arb_poly = flint().arb, flint().fmpq, flint().arb_poly
    users, tau, bits = parameters.users, parameters.tau, parameters.bits
    rate = parameters.noise_epsilon / parameters.precision
    terms = math.ceil((BALL_BITS + 10 + max(0.0, -math.log(rate))) / (2 * rate))
    if terms + tau >= LARGEST_COUNT:
        raise TacitError(
            f"noise_epsilon is {float(parameters.noise_epsilon):g}: too small to certify. Use a "
            "larger one."
        )
    with flint().ctx.workprec(BALL_BITS):
        base = (-arb(fmpq(rate.numerator, rate.denominator))).exp()
        polya = [arb(1)]
        for m in range(terms + tau):
            polya.append(polya[-1] * base * fmpq(m * users + 1, (m + 1) * users))
        products = arb_poly(polya[: terms + tau]) * arb_poly(polya[:terms][::-1])
        rest = arb(0.5, 0.5) * polya[terms] / (1 - base**2)
        weights = [products[terms - 1 + j] + rest * polya[terms + j] for j in range(tau + 1)]
        total = weights[0] + 2 * sum(weights[1:], arb(0))
        mixture = arb(fmpq(parameters.mixture.numerator, parameters.mixture.denominator))
        uniform = mixture / (bits + 1)
        noisy = [
            uniform + (1 - mixture) * weights[abs(c - tau)] / total for c in range(2 * tau + 1)
        ]
        return noisy + [uniform] * parameters.precision


class _Multiplies(Protocol):
    def __mul__(self, other: Self, /) -> Self: ...


P = TypeVar("P", bound=_Multiplies)


def integer_ratio(parameters: PureShuffleParameters, ks: Iterable[int]) -> Fraction:
    """Upper bound on the worst log ratio over all counts and the given ks, in exact integers.

    f_0 scaled by a power of two lies between two integer polynomials, coefficient by coefficient.
    All coefficients are non-negative, so products of the lower ones stay below the true product and
    products of the upper ones above it.
    """
    arb, fmpz_poly = flint().arb, flint().fmpz_poly
    with flint().ctx.workprec(BALL_BITS):
        scale = INTEGER_BITS + math.ceil((parameters.bits + 1) / parameters.mixture).bit_length()
        scaled = [p * arb(2) ** scale for p in count_distribution(parameters)]
        lower = [p.lower().floor().unique_fmpz() for p in scaled]
        upper = [p.upper().ceil().unique_fmpz() for p in scaled]
    below = _views(
        fmpz_poly(lower), fmpz_poly(lower[::-1]), parameters.users, _mirrored(ks, parameters.users)
    )
    above = _views(
        fmpz_poly(upper), fmpz_poly(upper[::-1]), parameters.users, _mirrored(ks, parameters.users)
    )
    guard = 64
    worst = 0
    for (_, low_0, low_1), (_, high_0, high_1) in zip(below, above, strict=True):
        for high, low in ((high_0, low_1), (high_1, low_0)):
            ratios = ((h << guard) // g for h, g in zip(high.coeffs(), low.coeffs(), strict=True))
            worst = max(worst, int(max(ratios)) + 1)
    return _log_upper(Fraction(worst, 2**guard))


def tilted_ratio(parameters: PureShuffleParameters, ks: Iterable[int]) -> Fraction:
    """Upper bound on the worst log ratio over all counts and the given ks, by tilted polynomials.

    Raises an error if no tilt covers some count at full precision.
    """
    users, wanted = parameters.users, _mirrored(ks, parameters.users)
    if users * parameters.bits >= LARGEST_COUNT:
        raise TacitError(
            f"{users} users of {parameters.bits} bits each: must be below {LARGEST_COUNT} bits in "
            "all. Cut the batch into groups."
        )
    distribution = count_distribution(parameters)
    unseen = np.ones((len(wanted), users * parameters.bits + 1), dtype=np.bool_)
    worst = Fraction(0)
    for tilt in _tilts([float(p) for p in distribution], users):
        zero, one, mass_ratio = _tilted_pair(distribution, tilt)
        largest = {0: 0.0, 1: 0.0}
        roundings = 0
        for row, (_, with_0, with_1) in zip(unseen, _views(zero, one, users, wanted), strict=True):
            start, values_0, values_1 = _overlap(with_0, with_1)
            seen = (values_0 >= SMALLEST_TRUSTED) & (values_1 >= SMALLEST_TRUSTED)
            if not seen.any():
                continue
            row[start : start + len(seen)] &= ~seen
            quotient = values_0[seen] / values_1[seen]
            largest[0] = max(largest[0], float(quotient.max()))
            largest[1] = max(largest[1], float(1 / quotient.min()))
            roundings = max(roundings, with_0.trusted_roundings() + with_1.trusted_roundings() + 2)
        slack = Fraction(roundings) / 2**52  # (1 - u)^-m <= exp(2 u m) for u = 2^-53
        for ratio, mass in ((largest[0], mass_ratio), (largest[1], 1 / mass_ratio)):
            if ratio:
                worst = max(worst, _log_upper(Fraction(ratio), mass) + slack)
    if unseen.any():
        raise TacitError(
            f"{int(unseen.any(axis=0).sum())} of {unseen.shape[1]} counts are beyond every tilt "
            f"for {parameters}. Use a larger mixture or fewer bits."
        )
    return worst


def _mirrored(ks: Iterable[int], users: int) -> list[int]:
    """The ks folded onto the lower half: k and n - 1 - k have the same worst ratio.

    f_1 is f_0 reversed, so f_0^(n-k) f_1^k reversed is f_0^k f_1^(n-k): the ratios of k at the
    count s are those of n - 1 - k at n * bits - s, inverted.
    """
    return sorted({min(k, users - 1 - k) for k in ks})


def _views(zero: P, unit: P, users: int, ks: Sequence[int]) -> Iterator[tuple[int, P, P]]:
    """For every k, ascending: k, and the view's distribution if the target user holds 0 or 1.

    The others' polynomial f_0^(n-1-k) f_1^k is built by halving the list of ks: a node holds the
    factor that all its ks have in common, so that each product is shared as widely as possible.
    """
    powers: dict[tuple[bool, int], P] = {(False, 1): zero, (True, 1): unit}

    def power(of_one: bool, exponent: int) -> P:
        if (of_one, exponent) not in powers:
            half = exponent // 2
            powers[of_one, exponent] = power(of_one, half) * power(of_one, exponent - half)
        return powers[of_one, exponent]

    def times(common: P | None, of_one: bool, exponent: int) -> P | None:
        if exponent == 0:
            return common
        return power(of_one, exponent) if common is None else common * power(of_one, exponent)

    def leaves(common: P | None, ks: Sequence[int]) -> Iterator[tuple[int, P, P]]:
        if len(ks) == 1:
            yield (ks[0], zero, unit) if common is None else (ks[0], common * zero, common * unit)
            return
        left, right = ks[: len(ks) // 2], ks[len(ks) // 2 :]
        yield from leaves(times(common, False, ks[-1] - left[-1]), left)
        yield from leaves(times(common, True, right[0] - ks[0]), right)

    yield from leaves(times(times(None, False, users - 1 - ks[-1]), True, ks[0]), ks)


@dataclass(frozen=True)
class _Tilted:
    """A polynomial with non-negative coefficients, known up to counted roundings.

    With p the true coefficient at `start + i`, m = `roundings`, u = 2^-53 and a = `lost` * 2^-1000,
    values[i] lies between (1 - u)^m p - a and (1 + u)^m p + a, and so does 0 outside the stored
    window. The true coefficients sum to 1.
    """

    start: int
    values: NDArray[np.float64]
    roundings: int
    lost: int

    def __mul__(self, other: _Tilted) -> _Tilted:
        """The product: an inner product of m non-negative terms costs at most m roundings.

        What was lost on either side meets a total mass below 1.5 on the other. Trimming
        coefficients below 2^-1000 loses at most one more unit, and so does underflow: at most
        2^-1022 in each of 2 m operations, m < 2^20.
        """
        product = _convolve(self.values, other.values)
        kept = np.flatnonzero(product >= SMALLEST_KEPT)
        first, last = int(kept[0]), int(kept[-1])
        return _Tilted(
            start=self.start + other.start + first,
            values=product[first : last + 1],
            roundings=self.roundings + other.roundings + min(len(self.values), len(other.values)),
            lost=2 * (self.lost + other.lost) + 2,
        )

    def trusted_roundings(self) -> int:
        """Roundings that cover every error of a coefficient above SMALLEST_TRUSTED.

        One more rounding absorbs what was lost.
        """
        if self.lost * SMALLEST_KEPT > SMALLEST_TRUSTED * ROUNDING / 4 or self.roundings > 2**40:
            raise TacitError(
                f"{self.roundings} roundings are too many for double precision. Certify a smaller "
                "batch."
            )
        return self.roundings + 1


def _convolve(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Direct convolution, never by Fourier transform, in blocks too short for BLAS threads."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    product = np.zeros(len(a) + len(b) - 1)
    for start in range(0, len(short), BLOCK):
        part = short[start : start + BLOCK]
        product[start : start + len(long) + len(part) - 1] += np.convolve(long, part)
    return product


def _tilted_pair(distribution: list[Any], tilt: float) -> tuple[_Tilted, _Tilted, Any]:
    """f_0(e^t z) / m_0 and f_1(e^t z) / m_1 with both masses about 1, and a ball for m_0 / m_1."""
    arb = flint().arb
    with flint().ctx.workprec(BALL_BITS):
        factors = [(arb(tilt) * c).exp() for c in range(len(distribution))]
        pair, masses = [], []
        for probabilities in (distribution, distribution[::-1]):
            terms = [p * factor for p, factor in zip(probabilities, factors, strict=True)]
            mass = sum(terms, arb(0))
            exact = [term / mass for term in terms]
            values = [float(p) if p > SMALLEST_KEPT else 0.0 for p in exact]
            if not all(
                abs(arb(value) / p - 1) < 2.0**-52
                for value, p in zip(values, exact, strict=True)
                if value
            ):
                raise TacitError(f"the distribution tilted by {tilt} has values below doubles")
            pair.append(_Tilted(start=0, values=np.array(values), roundings=3, lost=2))
            masses.append(mass)
        return pair[0], pair[1], masses[0] / masses[1]


def _overlap(a: _Tilted, b: _Tilted) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """The first count in both windows, and both windows' coefficients from there."""
    start = max(a.start, b.start)
    stop = max(start, min(a.start + len(a.values), b.start + len(b.values)))
    return (
        start,
        a.values[start - a.start : stop - a.start],
        b.values[start - b.start : stop - b.start],
    )


def _tilts(distribution: list[float], users: int) -> list[float]:
    """Tilts whose windows overlap their neighbours' centres and reach both ends of the counts.

    By Cramér's theorem the view tilted by t has, at the centre of the view tilted by t', the log
    probability L(t') - L(t) - (t' - t) L'(t'), up to lower order; L is n times the cumulant
    function of a user's count. The choice needs no rigour, since `tilted_ratio` checks that every
    count is covered.
    """
    counts = np.arange(len(distribution))
    logs = np.log(np.array([distribution, distribution[::-1]]))

    def cumulants(tilt: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        exponents = logs + tilt * counts
        top = exponents.max(axis=1, keepdims=True)
        weights = np.exp(exponents - top)
        sums = weights.sum(axis=1)
        return top[:, 0] + np.log(sums), (weights @ counts) / sums

    def reaches(tilt: float, further: float) -> bool:
        here, (there, centre) = cumulants(tilt)[0], cumulants(further)
        return bool(users * ((further - tilt) * centre - there + here).max() <= WINDOW)

    def reaches_end(tilt: float) -> bool:
        return bool(users * (cumulants(tilt)[0] - logs[:, -1] - tilt * counts[-1]).max() <= WINDOW)

    upward = [0.0]
    while not reaches_end(upward[-1]):
        low, step = upward[-1], 1.0
        for _ in range(30):
            low, step = (low + step, step) if reaches(upward[-1], low + step) else (low, step / 2)
        upward.append(low)
    return sorted({sign * tilt for sign, tilt in itertools.product((-1.0, 1.0), upward)})


def _log_upper(ratio: Fraction, factor: Any = 1) -> Fraction:
    """An upper bound on log(ratio * factor), as an exact fraction."""
    with flint().ctx.workprec(BALL_BITS):
        mantissa, exponent = (
            (flint().arb(flint().fmpq(ratio.numerator, ratio.denominator)) * factor)
            .log()
            .upper()
            .man_exp()
        )
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def round_up(value: Fraction, decimals: int) -> Fraction:
    """The smallest decimal with `decimals` places that is at least `value`.

    >>> round_up(Fraction(1, 3), 3)
    Fraction(167, 500)
    """
    return Fraction(math.ceil(value * 10**decimals), 10**decimals)

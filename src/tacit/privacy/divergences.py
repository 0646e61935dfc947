"""Rényi and zero-concentrated guarantees, derived from noise distributions and their use.

`renyi_of` computes the Rényi divergences of the actual noise at the given orders, `concentrated_of`
the ρ of zCDP; both are rounded up. Divergences are summed over the noise's probabilities or bounded
by a proven formula, whichever is less: αΔ²/2σ² for discrete Gaussian noise (Canonne, Kamath &
Steinke 2020, Theorem 14), the bound of Agarwal, Kairouz & Liu 2021, Theorem 3.5, for Skellam noise.
Sums of discrete Gaussian shares follow Kairouz, Liu & Steinke 2021 (CZ23 Lemma 4 and Theorem 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from tacit.assumptions import DistinctRounds
from tacit.errors import TacitError, integer
from tacit.noise import NoiseDistribution
from tacit.privacy.accounting import state_drawn_arithmetic
from tacit.privacy.gaussian import Gaussian
from tacit.privacy.guarantees import ConcentratedDP, PureDP, RenyiDP
from tacit.privacy.loss import worst_renyi

SHOWN: tuple[float, ...] = (2, 3, 4, 6, 8, 16, 32, 64)
ROUNDING = 1e-12  # relative error of a sum of P^α Q^{1-α}, and of the weights, per order
# terms of a sum; beyond, only proven formulas are used, which are tight for wide noise but hold at
# integer orders from 2 on
MOST_TERMS, MOST_BELOW_2 = 20_000, 120_000
LAST = 64  # orders above are covered by a formula
FIRST, STEP = 0.005, 1.2  # α - 1 at the first point of the grid, and its growth
Noise = NoiseDistribution | Gaussian


def renyi_of(
    distribution: Noise,
    sensitivity: float = 1,
    orders: Iterable[float] = SHOWN,
    *,
    participations: int = 1,
    log_ratio: float = 0.0,
) -> RenyiDP:
    """The Rényi guarantee of adding this noise to a sum.

    Parameters
    ----------
    distribution : NoiseDistribution or Gaussian
        Distribution of the noise that is certain to be present.
    sensitivity : float
        The most that one participation changes the sum; an integer for integer noise.
    orders : iterable of float
        Orders α > 1 at which the divergence is stated.
    participations : int
        Divergences add up over participations in distinct rounds.
    log_ratio : float
        Bound on |ln ratio|, at every point, between the actual noise and `distribution`: sums of
        shares of a distribution that is not divisible.

    Returns
    -------
    RenyiDP

    Raises
    ------
    TacitError
        If a divergence is infinite: the noise has a finite range.

    Notes
    -----
    Where P̃ and Q̃ are within e^±ψ of P and Q at every point, Σ P̃^α Q̃^{1-α} is at most
    e^{(2α-1)ψ} Σ P^α Q^{1-α}.

    Examples
    --------
    >>> from tacit.noise import DiscreteGaussian
    >>> [(order, round(value, 4)) for order, value in renyi_of(DiscreteGaussian(10.0)).curve[:2]]
    [(2, 0.01), (3, 0.015)]
    """
    times = integer("participations", participations, at_least=1)
    listed = sorted(dict.fromkeys(orders))
    values = [
        divergence(distribution, sensitivity, order) + log_ratio * (2 * order - 1) / (order - 1)
        for order in listed
    ]
    if not all(map(math.isfinite, values)):
        raise _no_guarantee(distribution, "Rényi")
    curve = tuple((order, _up(times * value)) for order, value in zip(listed, values, strict=True))
    made = RenyiDP(curve, participations=times)
    return state_drawn_arithmetic(
        made.assuming(DistinctRounds()) if times > 1 else made, distribution
    )


def concentrated_of(
    distribution: Noise, sensitivity: float = 1, *, participations: int = 1, log_ratio: float = 0.0
) -> ConcentratedDP:
    """The zCDP guarantee of adding this noise to a sum.

    Parameters
    ----------
    distribution, sensitivity, participations, log_ratio
        As in `renyi_of`.

    Returns
    -------
    ConcentratedDP
        The guarantee of all participations together.

    Raises
    ------
    TacitError
        If no ρ is known: the noise has a finite range.

    Notes
    -----
    For sums of discrete Gaussian shares within ψ of one draw, ρ = ½ε̂² with ε̂ = min{√(ε² + ψ/2),
    ε + ψ}, ε²/2 the ρ of one draw (Kairouz, Liu & Steinke 2021, Proposition 13; CZ23 Theorem 4).

    Examples
    --------
    >>> from tacit.noise import DiscreteGaussian
    >>> round(concentrated_of(DiscreteGaussian(10.0)).rho, 6)
    0.005
    """
    times = integer("participations", participations, at_least=1)
    rho = concentration(distribution, sensitivity)
    if rho is None:
        raise _no_guarantee(distribution, "concentrated")
    if log_ratio:
        epsilon = math.sqrt(2 * rho)
        rho = min(epsilon**2 + log_ratio / 2, (epsilon + log_ratio) ** 2) / 2
    made = ConcentratedDP(_up(times * rho), participations=times)
    return state_drawn_arithmetic(
        made.assuming(DistinctRounds()) if times > 1 else made, distribution
    )


def _no_guarantee(distribution: Noise, kind: str) -> TacitError:
    return TacitError(
        f"{distribution.kind} noise has no {kind} guarantee: some losses are infinite. Use --as "
        "approximate, or discrete-gaussian, skellam or discrete-laplace noise."
    )


def _up(value: float) -> float:
    """The value with an allowance for rounding in this module's own arithmetic."""
    return math.nextafter(value * (1 + 4e-16), math.inf)


@lru_cache(maxsize=4096)
def divergence(distribution: Noise, sensitivity: float, order: float) -> float:
    """A bound on D_α between the noise and the noise shifted by up to `sensitivity`.

    It is the least of the sum over all probabilities, with an allowance for rounding, and of the
    known formulas; inf if there is none.
    """
    rho = distribution.concentration(float(sensitivity))
    found = [math.inf if rho is None else rho * order]
    if isinstance(distribution, NoiseDistribution):
        whole = integer("sensitivity", sensitivity, at_least=1)
        loss = distribution.pure_loss(whole)
        if math.isfinite(loss):
            found.append(PureDP(loss).renyi(order))
        found.append(_by_formula(distribution, whole, order))
        if _summation_range(distribution, order * whole) <= (
            MOST_TERMS if order >= 2 else MOST_BELOW_2
        ):
            summed = worst_renyi(distribution, whole, order)
            found.append(summed + ROUNDING * (1 + order) / (order - 1))
    return min(found)


def _by_formula(distribution: NoiseDistribution, sensitivity: int, order: float) -> float:
    """The proven bound at integer orders, where there is one; between them by the chord of the
    convex (α - 1) D_α.
    """
    below, above = max(1, math.floor(order)), math.ceil(order)
    bounds = [distribution.renyi_bound(a, float(sensitivity), 1) for a in (below, above)]
    first, last = (math.inf if bound is None else bound for bound in bounds)
    if below == above or below == 1:
        return last
    part = order - below
    return ((1 - part) * (below - 1) * first + part * (above - 1) * last) / (order - 1)


def _summation_range(distribution: NoiseDistribution, shifted: float) -> float:
    """About how far from 0 a divergence is summed; see `loss.renyi_divergence`."""
    tail = 60 / distribution.mgf_radius if math.isfinite(distribution.mgf_radius) else 0.0
    return shifted + tail + 40 * distribution.std if tail else shifted + 12 * distribution.std


@lru_cache(maxsize=1024)
def concentration(distribution: Noise, sensitivity: float) -> float | None:
    """A ρ such that D_α <= ρα at every order; None if none is known.

    Notes
    -----
    Where no formula is known, ρ is found from divergences D_b on a grid of orders. (α - 1) D_α is
    convex in α and 0 at 1, so between two points it is at most the chord; below the first point b,
    D_α <= D_b. Above the last order, pure noise has D_α <= ε, and Skellam noise the bound of
    Agarwal, Kairouz & Liu 2021 at ⌈α⌉, of which the ratio to α is largest at the first integer.
    """
    rho = distribution.concentration(float(sensitivity))
    if rho is not None or not isinstance(distribution, NoiseDistribution):
        return rho
    whole = integer("sensitivity", sensitivity, at_least=1)
    loss = distribution.pure_loss(whole)
    bound = distribution.renyi_bound(LAST + 1, float(whole), 1)
    pure = PureDP(loss).rho_bound() if math.isfinite(loss) else math.inf
    tails = [loss / LAST, math.inf if bound is None else bound / LAST]
    if not math.isfinite(min(tails)):
        return None
    return min(pure, max(min(tails), _on_grid(lambda a: divergence(distribution, whole, a))))


def _on_grid(at: Callable[[float], float]) -> float:
    """The largest D_α/α of orders up to `LAST`, by chords of (α - 1) D_α; see `concentration`."""
    excess, value = FIRST, at(1 + FIRST)
    largest = value  # D_b / 1: below the first point
    while excess < LAST - 1:
        further = min(excess * STEP, LAST - 1.0)
        next_value = at(1 + further)
        ends = (1 + excess, excess * value), (1 + further, further * next_value)
        largest = max(largest, _steepest(*ends))
        excess, value = further, next_value
    return largest


def _steepest(left: tuple[float, float], right: tuple[float, float]) -> float:
    """The maximum of L(α) / (α(α - 1)), L the chord between two points (α, (α - 1) D_α)."""
    (a, first), (b, last) = left, right
    slope = (last - first) / (b - a)
    level = first - slope * a
    candidates = [a, b]
    # the derivative vanishes where slope α² + 2 level α - level = 0
    inside = level * (level + slope)
    if slope and inside >= 0:
        roots = ((-level + sign * math.sqrt(inside)) / slope for sign in (1, -1))
        candidates += [root for root in roots if a < root < b]
    return max((level + slope * alpha) / (alpha * (alpha - 1)) for alpha in candidates)

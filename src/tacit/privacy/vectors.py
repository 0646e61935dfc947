"""Joint guarantees for vector sums, where one participant changes many coordinates at once.

Under an l∞ bound every coordinate may change by the bound: the coordinates' exact losses compose.
Under an l2 bound the change is shared among coordinates. That is exact for the Gaussian, and for
integers where so few ways of sharing exist that all can be enumerated. Otherwise the guarantee is
the least of the distribution's own zCDP or Rényi bound where one is proven (discrete Gaussian,
Skellam) and a Rényi bound on the likely outcomes, from its probabilities.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.errors import TacitError, integer, positive, probability
from tacit.noise import NoiseDistribution
from tacit.noise.skellam import skellam_renyi as skellam_renyi
from tacit.privacy.composition import ComposedLoss
from tacit.privacy.gaussian import Gaussian
from tacit.privacy.guarantees import ConcentratedDP
from tacit.privacy.loss import privacy_loss
from tacit.privacy.renyi import renyi_epsilon

MOST_SHIFTS = 512
MOST_WAYS = 40  # most ways of sharing a change among coordinates that are enumerated
SMALL_SHIFT = 32  # up to this shift, likely outcomes are tried besides a proven bound
ORDERS = (1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 50, 64, 80, 100)


@dataclass(frozen=True)
class VectorGuarantee:
    """(epsilon, delta)-DP of a noisy vector sum, with its derivation.

    Parameters
    ----------
    epsilon : float
        ε of the vector sum.
    delta : float
        δ of the vector sum.
    derivation : str
        The theorem or computation that gives ε, for readers.
    """

    epsilon: float
    delta: float
    derivation: str


def linf_loss(distribution: NoiseDistribution, bound: int, dimension: int) -> ComposedLoss:
    """The exact loss of independent noise on coordinates that each change by at most `bound`.

    Proof that the worst change is `bound` in every coordinate. One coordinate: let f = ln P be
    concave and s > 0. The loss f(k) - f(k+s) does not decrease as k grows, so the set where it
    exceeds ε is a half-line. The hockey-stick divergence at shift s is max over t of S(t) - e^ε
    S(t+s), where S(t) = P[X >= t] decreases in t. For each t this grows with s, hence so does the
    maximum, at every ε: the pair with the larger shift dominates. A negative shift is the mirror
    image; for an asymmetric distribution both directions are kept, and one pair that dominates both
    is composed.

    Several coordinates: the joint pair is the product of independent pairs, and domination carries
    over to products (Zhu, Dong & Wang 2022, Theorem 10). A Pólya difference with r < 1 is not
    log-concave but symmetric and decreasing, for which `privacy_loss` proves the same.

    Parameters
    ----------
    distribution : NoiseDistribution
        The noise of one coordinate.
    bound : int
        The most that one participant changes a coordinate.
    dimension : int
        The number of coordinates.

    Returns
    -------
    ComposedLoss
        The privacy loss of all coordinates together.
    """
    if not distribution.largest_shift_is_worst:
        raise TacitError(
            f"{distribution!r} is not log-concave, so its worst shift is not known to be the "
            "largest: use a log-concave distribution, such as Skellam"
        )
    return ComposedLoss(
        ((privacy_loss(distribution, bound), integer("dimension", dimension, at_least=1)),)
    )


def l2_guarantee(
    distribution: NoiseDistribution | Gaussian,
    bound: float,
    dimension: int,
    delta: float,
    *,
    at_once: bool = True,
) -> VectorGuarantee:
    """(ε, δ) of independent noise on `dimension` integer coordinates at l2 sensitivity `bound`.

    Integer changes: no coordinate changes by more than ⌊bound⌋, and at most bound² coordinates
    change. With `at_once=False` coordinates are released one after another and later changes may
    depend on earlier releases; the worst change fixed in advance is then not the worst, so changes
    are not enumerated.

    Parameters
    ----------
    distribution : NoiseDistribution or Gaussian
        The noise of one coordinate.
    bound : float
        The l2 sensitivity.
    dimension : int
        The number of coordinates.
    delta : float
        The δ of the guarantee.
    at_once : bool
        Whether all coordinates are released together.

    Returns
    -------
    VectorGuarantee
        ε, δ and the derivation.
    """
    norm = float(positive("bound", bound, "it is the l2 sensitivity of the vector"))
    size = integer("dimension", dimension, at_least=1)
    level = float(probability("delta", delta))
    if distribution.continuous:
        return VectorGuarantee(
            distribution.loss(norm).epsilon(level),
            level,
            "exact: Gaussian mechanism (Balle & Wang 2018)",
        )
    # a bound of √3 allows three coordinates to change, though its float's square is below 3
    square = math.floor(norm * norm * (1 + 1e-12))
    if square < 1:
        return VectorGuarantee(0.0, level, "an integer vector cannot move by less than 1")
    ways = list(itertools.islice(_ways(square, size), MOST_WAYS + 1))
    if at_once and len(ways) <= MOST_WAYS and distribution.largest_shift_is_worst:
        return _exact(distribution, ways, level)
    proven = _proven(distribution, norm, size, level)
    if proven is None:
        return _likely_outcomes(distribution, norm, size, level)
    if math.isqrt(square) > SMALL_SHIFT:
        return proven
    likely = _likely_outcomes(distribution, norm, size, level)
    return min(proven, likely, key=lambda guarantee: guarantee.epsilon)


def _proven(
    distribution: NoiseDistribution, norm: float, size: int, delta: float
) -> VectorGuarantee | None:
    """The guarantee by the distribution's own zCDP or Rényi bound, if it has one."""
    rho = distribution.concentration(norm)
    if rho is not None:
        epsilon = ConcentratedDP(rho).epsilon_at(delta)
        how = f"{rho:.4g}-zCDP of {distribution.kind} noise, CZ23 Lemma 10"
        return VectorGuarantee(epsilon, delta, how)
    curve = [(order, distribution.renyi_bound(order, norm, size)) for order in range(2, 513)]
    found = [renyi_epsilon(order, value, delta) for order, value in curve if value is not None]
    how = f"proven Rényi bound of {distribution.kind} noise, CZ23 Lemma 10"
    return VectorGuarantee(max(0.0, min(found)), delta, how) if found else None


def _ways(squared_l2: int, coordinates: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Maximal integer changes within a squared l2 norm, of at most `coordinates` coordinates.

    Sizes are listed largest first. Changes that allow a further coordinate are left out, as another
    one dominates them in every coordinate.
    """
    if squared_l2 < 1 or coordinates < 1:
        yield ()
        return
    for first in range(min(most or squared_l2, math.isqrt(squared_l2)), 0, -1):
        for rest in _ways(squared_l2 - first * first, coordinates - 1, first):
            yield first, *rest


def _exact(
    distribution: NoiseDistribution, ways: list[tuple[int, ...]], delta: float
) -> VectorGuarantee:
    """The worst of all enumerated changes: the exact losses of its coordinates compose.

    A smaller change in any coordinate is dominated (`linf_loss`).
    """
    losses = {
        shift: privacy_loss(distribution, shift) for shift in {part for way in ways for part in way}
    }
    worst = max(
        ComposedLoss(
            tuple((losses[shift], count) for shift, count in Counter(way).items())
        ).epsilon(delta)
        for way in ways
    )
    how = f"exact: composed losses of {distribution.kind} noise, the worst of {len(ways)} movements"
    if math.isinf(worst):
        how += "; too narrow for any guarantee at this delta"
    return VectorGuarantee(worst, delta, how)


def _likely_outcomes(
    distribution: NoiseDistribution, l2: float, dimension: int, delta: float
) -> VectorGuarantee:
    """A Rényi bound restricted to likely outcomes, optimised over orders.

    Let E be the event that every changed coordinate's noise lies within R of its rounded mean. Then
    δ(ε) <= P[not E] + Σ_E max(0, P - e^ε Q), and the second term is at most e^{-(α-1)ε} (1-1/α)^α /
    (α-1) · Σ_E P^α Q^{1-α}, as for Rényi divergences. The sum over E is a product over coordinates
    of M(s_i) = Σ_{|k - mean| <= R} P(k)^α P(k + s_i)^{1-α}, and Σ ln M(s_i) <= Δ₂² max_s ln
    M(s)/s², because Σ s_i² <= Δ₂². Unchanged coordinates contribute nothing. A tenth of δ covers
    P[not E].
    """
    square = l2 * l2 * (1 + 1e-12)
    largest, moved = math.floor(math.sqrt(square)), min(dimension, math.floor(square))
    if largest > MOST_SHIFTS:
        raise TacitError(
            f"the bound {l2:g} lets a coordinate move by {largest}, more than the "
            f"{MOST_SHIFTS} shifts that are checked one "
            "by one: use a coarser precision, or Skellam noise"
        )
    reach, centre = distribution.bound(delta / (10 * moved)), round(distribution.mean)
    low, high = centre - reach, centre + reach
    kind = distribution.kind
    how = f"Rényi bound of {kind} noise on likely outcomes, exact per coordinate and shift"
    if low - largest < distribution.support[0] or high + largest > distribution.support[1]:
        return VectorGuarantee(
            math.inf, delta, how + "; too narrow for any guarantee at this delta"
        )
    k = np.arange(low - largest, high + largest + 1)
    log_p = distribution.log_pmf(k)
    inner = log_p[largest : len(k) - largest]
    best = math.inf
    for order in ORDERS:
        worst = 0.0
        for shift in (
            *range(1, largest + 1),
            *(() if distribution.symmetric and distribution.mean == centre else range(-largest, 0)),
        ):
            other = log_p[largest + shift : len(k) - largest + shift]
            exponents = order * inner + (1 - order) * other
            peak = float(exponents.max())
            worst = max(worst, (peak + math.log(float(np.exp(exponents - peak).sum()))) / shift**2)
        best = min(best, renyi_epsilon(order, l2 * l2 * worst / (order - 1), 0.9 * delta))
    return VectorGuarantee(max(0.0, best), delta, how)

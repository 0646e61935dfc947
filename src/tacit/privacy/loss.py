"""The exact privacy loss of adding integer noise, from the noise's probabilities.

For two neighbouring inputs the released value has the noise distribution, once shifted by the
sensitivity. The privacy loss at k is the log ratio of the two probabilities. δ(ε) is the
hockey-stick divergence Σ_k max(0, P(k) - e^ε Q(k)), in the worse of the two directions.

Sums run over every integer up to a standard deviation of 2,000. Wider distributions are summed in
blocks of a 1,000th of it with rigorous bounds: the reported δ is never below the true one and
exceeds it by about a part in 10^6 to 10^5 (more, far in the tail of a distribution many times
wider than the shift). Floating-point errors are added on the safe side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer, probability
from tacit.noise import NoiseDistribution
from tacit.noise.distribution import LOG_TINY, ROUNDING, Integers, chord_sums, grid
from tacit.privacy.renyi import finite_epsilon
from tacit.rounding import delta_up

Floats = npt.NDArray[np.float64]

POINTS_PER_STD = 1000
MOST_POINTS = 4_000_000
MOST_SHIFTS = 4096
WIDEST = 1e14
LARGEST_INTEGER = 1 << 53  # beyond this a double cannot distinguish k from k + 1
LOG_ROUNDING = 1e-15  # rounding error of a log-probability, relative to its size


@dataclass(frozen=True, eq=False)
class Direction:
    """A pair (P, Q) as atoms: P-mass `masses[i]` at loss ln(P/Q) = `losses[i]`, in falling order.

    `infinite` is the P-mass where Q has none.
    """

    losses: Floats
    masses: Floats
    infinite: float

    @classmethod
    def of(cls, losses: Floats, masses: Floats, infinite: float) -> Direction:
        """Sort atoms given in any order; those of infinite loss move to `infinite`."""
        certain = np.isposinf(losses) & (masses > 0)
        keep = (masses > 0) & ~np.isposinf(losses)
        order = np.argsort(-losses[keep], kind="stable")
        return cls(
            losses[keep][order], masses[keep][order], infinite + float(masses[certain].sum())
        )

    def delta(self, epsilon: float) -> float:
        """Σ mass · (1 - e^{ε - loss})⁺ + infinite: the hockey-stick divergence."""
        count = int(np.searchsorted(-self.losses, -epsilon, side="left"))
        finite = float(np.dot(self.masses[:count], -np.expm1(epsilon - self.losses[:count])))
        return min(1.0, (finite + self.infinite) * (1 + ROUNDING))

    def epsilon(self, delta: float) -> float:
        """The least ε >= 0 with delta(ε) <= delta, rounded up; inf if there is none."""
        if self.infinite * (1 + ROUNDING) > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        upper = np.cumsum(self.masses) + self.infinite
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self.losses[0] < 600:
                candidates = np.log((upper - delta) / np.cumsum(self.masses * np.exp(-self.losses)))
            else:  # e^-loss is zero in double precision
                candidates = np.log(upper - delta) - np.logaddexp.accumulate(
                    np.log(self.masses) - self.losses
                )
        following = np.append(self.losses[1:], -np.inf)
        settled = np.flatnonzero((upper > delta) & (candidates >= following))
        epsilon = (
            float(min(candidates[settled[0]], self.losses[settled[0]]))
            if len(settled)
            else float(self.losses[0])
        )
        step = 1e-15
        while self.delta(epsilon) > delta:
            epsilon += step * max(1.0, epsilon)
            step *= 2
        return max(0.0, epsilon)


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """The loss in each direction (one, if both are alike) and the largest possible loss `pure`.

    `pure` is inf if the loss is unbounded.

    Parameters
    ----------
    directions : tuple of Direction
        The loss distribution of each direction.
    pure : float
        The largest possible loss; inf if unbounded.
    renyi_source : tuple of NoiseDistribution and int, optional
        Noise and shift, from which Rényi divergences are computed.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> loss = privacy_loss(DiscreteLaplace(2), sensitivity=1)
    >>> loss.pure, round(loss.delta(0.25), 6)
    (0.5, 0.137688)
    """

    directions: tuple[Direction, ...]
    pure: float
    renyi_source: tuple[NoiseDistribution, int] | None = None

    def delta(self, epsilon: float) -> float:
        """The least δ for which adding the noise is (ε, δ)-DP; 0 only from the largest loss on."""
        at = finite_epsilon(epsilon)
        if at >= self.pure:
            return 0.0
        return delta_up(max(direction.delta(at) for direction in self.directions))

    def epsilon(self, delta: float) -> float:
        """The least ε for which adding the noise is (ε, δ)-DP; at δ = 0 the largest loss."""
        remedy = "for a guarantee without exceptions use delta = 0"
        level = float(probability("delta", delta, remedy, zero=True))
        if level == 0:
            return self.pure
        return min(self.pure, max(direction.epsilon(level) for direction in self.directions))

    def renyi(self, order: float) -> float:
        """The exact Rényi divergence in the worse direction; inf where a loss is infinite."""
        if self.renyi_source is None:
            raise TacitError(
                "this loss is already composed; add the Rényi divergences of its parts instead"
            )
        return worst_renyi(*self.renyi_source, order)


def privacy_loss(
    distribution: NoiseDistribution, sensitivity: int, *, log_floor: float = LOG_TINY
) -> PrivacyLoss:
    """The exact privacy loss of adding `distribution` to an integer query of this sensitivity.

    Parameters
    ----------
    distribution : NoiseDistribution
    sensitivity : int
    log_floor : float
        Points of smaller log-probability are not resolved; their mass counts as infinite loss
        (safe).

    Returns
    -------
    PrivacyLoss

    Notes
    -----
    For log-concave distributions the largest shift is the worst. With f = ln P concave, the loss at
    shift s, f(k) - f(k+s), grows with s at every k to the right of any point where it is positive.
    The hockey-stick divergence is the P-mass of a half-line {k >= t} less e^ε times that of {k >=
    t+s}: for fixed t it grows with s, and so does its maximum over t.

    The same holds for a distribution that is symmetric and decreases away from its centre,
    log-concave or not (a Pólya difference with r < 1), and for one that decreases from 0 on
    (Pólya). P(k) > e^ε P(k+s) with ε >= 0 needs |k| < |k+s|, so k+s lies right of the centre, where
    a larger shift only makes P(k+s) smaller; the best set for a shift does at least as well for
    every larger one. For any other distribution (a table) every shift up to the sensitivity is
    computed and the worst kept.

    Cost: about 0.1 µs per integer in the window, at most 4 million of them.

    Examples
    --------
    >>> from tacit.noise import Binomial
    >>> privacy_loss(Binomial(62), 1).delta(1.0) <= 1e-5 < privacy_loss(Binomial(61), 1).delta(1.0)
    True
    """
    shift = integer(
        "sensitivity", sensitivity, at_least=1, remedy="it is the sensitivity of the integer sum"
    )
    signs = (1,) if distribution.symmetric else (1, -1)
    if not distribution.largest_shift_is_worst and shift > MOST_SHIFTS:
        raise TacitError(
            f"{distribution!r} is not log-concave, so each of {shift:,} shifts would have to be "
            "checked, "
            f"more than {MOST_SHIFTS:,}: "
            "use a coarser precision, or noise of another kind (Skellam)"
        )
    directions = _directions(
        distribution, [sign * s for s in _shifts(distribution, shift) for sign in signs], log_floor
    )
    return PrivacyLoss(directions, distribution.pure_loss(shift), (distribution, shift))


def _shifts(distribution: NoiseDistribution, sensitivity: int) -> range:
    """The shifts to compute: only the largest, where that is the worst."""
    return range(sensitivity if distribution.largest_shift_is_worst else 1, sensitivity + 1)


def _directions(
    distribution: NoiseDistribution, shifts: list[int], log_floor: float
) -> tuple[Direction, ...]:
    """For each shift the atoms of P(k) = P[X = k] against Q(k) = P[X = k + shift]."""
    farthest = max(abs(shift) for shift in shifts)
    if distribution.std > WIDEST or farthest > WIDEST:
        raise TacitError(
            f"{distribution!r} at a shift of {farthest:,} is wider than {WIDEST:.0e}, past which "
            "integers "
            "lose digits: scale the query down"
        )
    first, last, infinite = distribution.cover(log_floor)
    if max(abs(first), abs(last)) + farthest > LARGEST_INTEGER:
        raise TacitError(
            f"{distribution!r} reaches {max(abs(first), abs(last)):.1e}, past "
            f"{LARGEST_INTEGER:.1e}, where "
            "integers lose digits: use fewer bits, "
            "or noise around 0"
        )
    span = last - first + 1
    step = max(
        1, -(-span // MOST_POINTS), min(int(distribution.std // POINTS_PER_STD), farthest // 4)
    )
    at_end = (
        first <= distribution.support[0] or last >= distribution.support[1]
    )  # no chord extends beyond the support
    if step > 1 and distribution.log_concave and not at_end:
        return _blocks(distribution, shifts, grid(first - 1, last, step), infinite)
    if span > 5 * MOST_POINTS:
        raise TacitError(
            f"{distribution!r} spreads over {span:,} integers, too many to sum: use a coarser "
            "precision"
        )
    points = np.arange(first, last + 1)
    log_p = distribution.log_pmf(points)
    masses = np.exp(log_p)
    found = []
    for shift in shifts:
        log_q = distribution.log_pmf(points + shift)
        with np.errstate(invalid="ignore"):
            losses = log_p - log_q + _log_rounding(log_p, log_q)
        found.append(Direction.of(losses, masses, infinite))
    return tuple(found)


def _log_rounding(log_p: Floats, log_q: Floats) -> Floats:
    """Error bound of the difference of two computed log-probabilities; matters at tiny losses."""
    return LOG_ROUNDING * (1 + np.abs(log_p) + np.abs(log_q))


def _blocks(
    distribution: NoiseDistribution, shifts: list[int], points: Integers, infinite: float
) -> tuple[Direction, ...]:
    """Blocks of integers between `points`, each split into two atoms that keep its P- and Q-mass.

    The atoms have the losses of the block's ends. The loss is monotone, so it stays between them.
    Spreading the points of a block to its two ends, with P-mass and Q-mass kept, can only raise Σ
    max(0, P - e^ε Q), which is convex in that sense ("connect the dots", Doroshenko et al. 2022).
    The P-mass p is bounded from above and the Q-mass from below (`chord_sums`), which raises it
    further. Where these bounds leave no room for the loss to be below the larger end's, all of p is
    put there: no point of the block has a larger loss.
    """
    log_p = distribution.log_pmf(points)
    _, p = chord_sums(points, log_p)
    found = []
    for shift in shifts:
        log_q = distribution.log_pmf(points + shift)
        q, _ = chord_sums(points + shift, log_q)
        q = np.where(np.isnan(q), 0.0, q)
        with np.errstate(invalid="ignore", divide="ignore"):
            losses, rounding = (log_p - log_q)[1:-1], _log_rounding(log_p, log_q)[1:-1]
            error = np.maximum(rounding[:-1], rounding[1:])
            low = np.minimum(losses[:-1], losses[1:]) - error
            high = np.maximum(losses[:-1], losses[1:]) + error
            usable = np.isfinite(low) & np.isfinite(high) & (high > low)
            share = np.where(
                usable, -np.expm1(low + np.log(q) - error - np.log(p)) / -np.expm1(low - high), 1.0
            ).clip(0.0, 1.0)
        high = np.where(np.isnan(high), np.inf, high)
        atoms = np.concatenate([high, np.where(usable, low, high)])
        found.append(Direction.of(atoms, np.concatenate([p * share, p * (1 - share)]), infinite))
    return tuple(found)


def worst_renyi(distribution: NoiseDistribution, sensitivity: int, order: float) -> float:
    """The Rényi divergence at the worst shift up to the sensitivity, in the worse direction."""
    signs = (1,) if distribution.symmetric else (1, -1)
    return max(
        renyi_divergence(distribution, sign * shift, order)
        for shift in _shifts(distribution, sensitivity)
        for sign in signs
    )


def renyi_divergence(distribution: NoiseDistribution, shift: int, order: float) -> float:
    """D_α(P || Q) for P(k) = P[X = k], Q(k) = P[X = k + shift], by summing P^α Q^{1-α}.

    Exact up to rounding; inf where Q vanishes on P's support or the sum diverges. Cost grows with
    the standard deviation and the shift.

    Parameters
    ----------
    distribution : NoiseDistribution
        The distribution of X.
    shift : int
        The distance of the two distributions.
    order : float
        The Rényi order α > 1.

    Returns
    -------
    float
        The divergence, in nats.
    """
    if not 1 < order < math.inf:
        raise TacitError(f"the Rényi order is {order}: must be greater than 1, and finite")
    low, high = distribution.support
    if math.isfinite(low) or math.isfinite(high):
        return math.inf
    if math.isfinite(distribution.mgf_radius):
        reach = math.ceil(abs(shift) + 60 / distribution.mgf_radius + 40 * distribution.std)
    else:
        reach = math.ceil(order * abs(shift) + 12 * distribution.std + 60)
    if reach > 5 * MOST_POINTS:
        raise TacitError(
            f"the Rényi divergence of {distribution!r} at shift {shift} needs {2 * reach:,} terms: "
            "use a "
            "coarser precision"
        )
    k = np.arange(-reach, reach + 1)
    weights = order * distribution.log_pmf(k) + (1 - order) * distribution.log_pmf(k + shift)
    peak = float(weights.max())
    if max(weights[0], weights[-1]) > peak - 36:
        return math.inf
    return (peak + math.log(float(np.exp(weights - peak).sum()))) / (order - 1)

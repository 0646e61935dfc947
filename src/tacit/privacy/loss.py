"""The exact privacy loss of adding integer noise, from the probabilities of the noise itself.

For two neighbouring inputs the opened value has the noise's law, once shifted by the sensitivity. The pair's privacy loss at k is the
log of the ratio of the two probabilities; δ(ε) is the hockey-stick divergence Σ_k max(0, P(k) - e^ε Q(k)), in the worse of the two
directions. Sums run over every integer up to a standard deviation of 1,000; wider laws are summed in blocks of a 500th of it with
rigorous bounds, so that the reported δ is never below the true one and exceeds it by about a part in 10^6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.checks import TacitError, integer, probability
from tacit.noise import DiscreteLaplace, NoiseLaw, PolyaDifference, Table
from tacit.noise.law import LOG_TINY, chord_sums, grid

Floats = npt.NDArray[np.float64]

POINTS_PER_STD = 500
MOST_POINTS = 4_000_000
MOST_SHIFTS = 4096
WIDEST = 1e14
ROUNDING = 1e-12  # relative rounding error allowed for in double precision sums


@dataclass(frozen=True, eq=False)
class Direction:
    """A pair (P, Q) as atoms: P has mass `masses[i]` where the loss ln(P/Q) is `losses[i]` (falling), and `infinite` where Q has none."""

    losses: Floats
    masses: Floats
    infinite: float

    @classmethod
    def of(cls, losses: Floats, masses: Floats, infinite: float) -> Direction:
        """Atoms in any order, sorted here; an infinite loss is moved to `infinite`."""
        certain = np.isposinf(losses) & (masses > 0)
        keep = (masses > 0) & ~np.isposinf(losses)
        order = np.argsort(-losses[keep], kind="stable")
        return cls(losses[keep][order], masses[keep][order], infinite + float(masses[certain].sum()))

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
            lower = np.cumsum(self.masses * np.exp(-self.losses))
            candidates = np.log((upper - delta) / lower)
        following = np.append(self.losses[1:], -np.inf)
        settled = np.flatnonzero((upper > delta) & (candidates >= following))
        epsilon = float(min(candidates[settled[0]], self.losses[settled[0]])) if len(settled) else float(self.losses[0])
        step = 1e-15
        while self.delta(epsilon) > delta:
            epsilon += step * max(1.0, epsilon)
            step *= 2
        return max(0.0, epsilon)


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """The loss in each direction (one, when both are alike) and the largest loss possible (`pure`, inf if unbounded).

    >>> loss = privacy_loss(DiscreteLaplace(2), sensitivity=1)
    >>> loss.pure, round(loss.delta(0.25), 6)
    (0.5, 0.137675)
    """

    directions: tuple[Direction, ...]
    pure: float
    renyi_source: tuple[NoiseLaw, int] | None = None

    def delta(self, epsilon: float) -> float:
        """The least δ for which adding the noise is (ε, δ)-DP."""
        if not isinstance(epsilon, (int, float)) or not 0 <= epsilon < math.inf:
            raise TacitError(f"epsilon is {epsilon}; delta is computed at a finite epsilon of at least 0")
        if epsilon >= self.pure:
            return 0.0
        return max(direction.delta(epsilon) for direction in self.directions)

    def epsilon(self, delta: float) -> float:
        """The least ε for which adding the noise is (ε, δ)-DP; at δ = 0 the largest loss."""
        level = float(probability("delta", delta, "for a guarantee without exceptions use delta = 0", zero=True))
        if level == 0:
            return self.pure
        return min(self.pure, max(direction.epsilon(level) for direction in self.directions))

    def renyi(self, order: float) -> float:
        """The exact Rényi divergence of this order, in the worse direction; inf where a loss is infinite."""
        if self.renyi_source is None:
            raise TacitError("this loss is already composed; add the Rényi divergences of its parts instead")
        law, sensitivity = self.renyi_source
        shifts = (sensitivity,) if law.symmetric else (sensitivity, -sensitivity)
        return max(renyi_divergence(law, shift, order) for shift in shifts)


def privacy_loss(law: NoiseLaw, sensitivity: int, *, log_floor: float = LOG_TINY) -> PrivacyLoss:
    """The exact loss of adding `law` to an integer query that one person moves by at most `sensitivity`.

    For log-concave laws the largest shift is the worst: with f = ln P concave, the loss at shift s, f(k) - f(k+s), grows with
    s at every k to the right of any point where it is positive, and the hockey-stick divergence is the P-mass of a half-line
    {k >= t} less e^ε times that of {k >= t+s}: for fixed t it grows with s, and so does its maximum over t. For other laws (a
    Pólya difference with r < 1) every shift up to the sensitivity is computed and the worst kept.

    `log_floor`: points of smaller log-probability are not resolved; their mass counts as infinite loss (safe). Cost: about
    0.1 µs per integer in the window, at most 4 million of them.

    >>> from tacit.noise import Binomial
    >>> privacy_loss(Binomial(62), 1).delta(1.0) <= 1e-5 < privacy_loss(Binomial(61), 1).delta(1.0)
    True
    """
    shift = integer("sensitivity", sensitivity, at_least=1, remedy="the most that one person can move the integer sum")
    pure = _largest_loss(law, shift)
    if law.log_concave:
        signs = (1,) if law.symmetric else (1, -1)
        return PrivacyLoss(tuple(_direction(law, sign * shift, log_floor) for sign in signs), pure, (law, shift))
    if shift > MOST_SHIFTS:
        raise TacitError(
            f"{law!r} is not log-concave, so each of {shift:,} shifts would have to be checked, more than {MOST_SHIFTS:,}: "
            "use a coarser precision, or noise of another kind (Skellam)"
        )
    directions = tuple(_direction(law, sign * s, log_floor) for s in range(1, shift + 1) for sign in ((1,) if law.symmetric else (1, -1)))
    return PrivacyLoss(directions, pure, (law, shift))


def _largest_loss(law: NoiseLaw, shift: int) -> float:
    """sup over k of ln P(k)/P(k+s) and its mirror image."""
    if isinstance(law, DiscreteLaplace):
        return float(shift / law.scale)
    if isinstance(law, PolyaDifference):
        # ratios of neighbours approach β from one side: from above (r < 1, log-convex: worst at 0) or below (worst at infinity)
        away = float(law.log_pmf(0) - law.log_pmf(shift))
        return max(away, shift * law._half._rate)
    return math.inf


def _direction(law: NoiseLaw, shift: int, log_floor: float) -> Direction:
    """The atoms of P(k) = P[X = k] against Q(k) = P[X = k + shift]."""
    if law.std > WIDEST or abs(shift) > WIDEST:
        raise TacitError(
            f"{law!r} at a shift of {shift:,} is wider than {WIDEST:.0e}, past which integers lose digits: scale the query down"
        )
    first, last = law.window(log_floor)
    span = last - first + 1
    step = max(1, -(-span // MOST_POINTS), min(int(law.std // POINTS_PER_STD), abs(shift) // 4))
    if step == 1 or not law.log_concave:
        if span > 5 * MOST_POINTS:
            raise TacitError(f"{law!r} spreads over {span:,} integers, too many to sum: use a coarser precision")
        points = np.arange(first, last + 1)
        log_p, log_q = law.log_pmf(points), law.log_pmf(points + shift)
        masses = np.exp(log_p)
        return Direction.of(log_p - log_q, masses, _outside(law, first, last))
    return _blocks(law, shift, first, last, step)


def _blocks(law: NoiseLaw, shift: int, first: int, last: int, step: int) -> Direction:
    """Blocks of `step` integers, each split into two atoms at the losses of its ends that keep its P-mass and its Q-mass.

    Spreading the points of a block to its two ends, with P-mass and Q-mass kept, can only raise Σ max(0, P - e^ε Q), which is
    convex in that sense ("connect the dots", Doroshenko et al. 2022). The P-mass is taken from above and the Q-mass from below
    (`chord_sums`), so the result is never below the truth.
    """
    points = grid(first - 1, last, step)
    log_p, log_q = law.log_pmf(points), law.log_pmf(points + shift)
    _, p = chord_sums(points, log_p)
    q, _ = chord_sums(points + shift, log_q)
    with np.errstate(invalid="ignore", divide="ignore"):
        losses = (log_p - log_q)[1:-1]
        one, other = losses[:-1], losses[1:]
        low, high = np.minimum(one, other), np.maximum(one, other)
        high = np.maximum(high, np.log(p) - np.log(q))  # if rounding of the bounds pushed the block's own ratio past its ends
        usable = np.isfinite(low) & np.isfinite(high) & (high > low)
        share = np.where(usable, -np.expm1(low + np.log(q) - np.log(p)) / -np.expm1(low - high), 1.0).clip(0.0, 1.0)
    every = np.concatenate([high, np.where(usable, low, high)])
    masses = np.concatenate([p * share, p * (1 - share)])
    return Direction.of(np.where(np.isnan(every), np.inf, every), masses, _outside(law, first, last))


def _outside(law: NoiseLaw, first: int, last: int) -> float:
    """An upper bound on P[X < first or X > last], by geometric series where the law is log-concave."""
    if isinstance(law, Table):
        return 0.0
    total = 0.0
    for edge, sign, end in ((last, 1, law.support[1]), (first, -1, law.support[0])):
        if edge == end:
            continue
        here, there = (float(law.log_pmf(edge + sign * j)) for j in (1, 2))
        if here < LOG_TINY:
            continue
        if law.log_concave:
            ratio = math.exp(there - here)
            total += math.exp(here) / (1 - ratio) if ratio < 1 else math.inf
        else:
            total += law.tail(edge) if sign > 0 else law.cdf(edge - 1)
    return total


def renyi_divergence(law: NoiseLaw, shift: int, order: float) -> float:
    """D_α(P || Q) for P(k) = P[X = k], Q(k) = P[X = k + shift], by summing P^α Q^{1-α} where it lives.

    Exact up to rounding; inf where Q vanishes on P's support or the sum diverges. Cost grows with the standard deviation and the shift.
    """
    if not order > 1:
        raise TacitError(f"the Rényi order is {order}; it must be greater than 1")
    low, high = law.support
    if math.isfinite(low) or math.isfinite(high):
        return math.inf
    if isinstance(law, (DiscreteLaplace, PolyaDifference)):
        rate = 1 / float(law.scale) if isinstance(law, DiscreteLaplace) else law._half._rate
        reach = math.ceil(abs(shift) + 60 / rate + 40 * law.std)
    else:
        reach = math.ceil(order * abs(shift) + 12 * law.std + 60)
    if reach > 5 * MOST_POINTS:
        raise TacitError(f"the Rényi divergence of {law!r} at shift {shift} needs {2 * reach:,} terms: use a coarser precision")
    k = np.arange(-reach, reach + 1)
    weights = order * law.log_pmf(k) + (1 - order) * law.log_pmf(k + shift)
    peak = float(weights.max())
    if max(weights[0], weights[-1]) > peak - 36:
        return math.inf
    return (peak + math.log(float(np.exp(weights - peak).sum()))) / (order - 1)

"""Derivation of guarantees from noise distributions and their use: no other module derives one.

A protocol states a target and the distribution of the noise that is certain to be in the
adversary's view. `checked_target` computes the guarantee of that noise and returns the target with
view, assumptions and arithmetic, or rejects it. `achieved_guarantee` returns the computed numbers
themselves. `state_drawn_arithmetic` sets the arithmetic of a guarantee from the distributions it
was computed from.

Numbers are exact for one participation. For several, pure losses add up. Others use one accounting
method that is fixed in advance, so that rounds of different sizes compose:

- where the target needs enough noise (`bell_shaped`), each round is compared with Gaussian noise
  (`gaussian_mu`), which composes exactly;
- otherwise, and for noise with exponential tails, by a Rényi divergence of one order: the target's
  (`common_order`) or, where the noise is not made for the target, that of the smallest round
  (`best_order`);
- a target that assumes `Method.ADDED` gets equal parts of ε and δ for each participation (basic
  composition), as signed terms state it and devices verify it.

All rounds that one participant may join must use one kind of noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from scipy.special import ndtri

from tacit.assumptions import Accounting, Assumption, DistinctRounds, Method, together
from tacit.errors import TacitError
from tacit.names import is_own
from tacit.noise import Chance, NoiseDistribution
from tacit.noise.distribution import LOG_TINY, ROUNDING
from tacit.privacy.gaussian import GaussianLoss
from tacit.privacy.guarantees import (
    ApproximateDP,
    Arithmetic,
    Guarantee,
    Kept,
    Neighbours,
    PureDP,
    View,
    state_arithmetic,
)
from tacit.privacy.loss import Direction, PrivacyLoss, privacy_loss
from tacit.privacy.renyi import ORDERS, renyi_epsilon
from tacit.privacy.search import least

Target = PureDP | ApproximateDP
Asked = TypeVar("Asked", bound=Target)
LARGEST_RATIO = "exact: the largest ratio of probabilities"
SUMMED = "exact: summed over the noise's probabilities, both directions"
DROPPED = 0.1  # fraction of δ spent on losses too large for any divergence or comparison
SMOOTH = 3.0  # from this standard deviation on Skellam noise is nearly as good as Gaussian noise


def checked_target(
    distribution: NoiseDistribution,
    sensitivity: int,
    target: Asked,
    view: View,
    *assumptions: Assumption,
    log_ratio: float = 0,
    order: float | None = None,
) -> Asked:
    """Return the target for this view and these assumptions, if the noise achieves it.

    Parameters
    ----------
    distribution : NoiseDistribution
        Distribution of the noise that is certain to be present.
    sensitivity : int
        The most that one participation changes the protected sum.
    target : PureDP or ApproximateDP
        The wanted guarantee, with its δ and participations.
    view : View
        The adversary's view.
    *assumptions : Assumption
        What the guarantee needs besides.
    log_ratio : float
        Bound, at every point, on the absolute log ratio between the actual noise and
        `distribution`: sums of shares of a distribution that is not divisible.
    order : float, optional
        Rényi order for several participations.

    Raises
    ------
    TacitError
        If the noise achieves less than the target.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> checked_target(DiscreteLaplace(10), 10, PureDP(1.0), View.RELEASED_SUM).short
    '(1, 0)-DP'
    """
    found = achieved_guarantee(distribution, sensitivity, target, log_ratio, order)
    pure = isinstance(target, PureDP) and not log_ratio
    enough = (
        distribution.loses_at_most(target.epsilon, sensitivity, target.participations)
        if pure
        else found.epsilon <= target.epsilon
    )
    if not enough:
        nearly = " (a float is a little less: write the epsilon as a Fraction)"
        raise TacitError(
            f"{distribution!r} on a sum of sensitivity {sensitivity} gives {found.short}, not "
            f"{target.short}{nearly if found.short == target.short else ''}: calibrate the noise "
            "to the target"
        )
    ways = (*accounting(distribution, target, order), *in_distinct_rounds(target))
    made = with_epsilon(target.epsilon, target, view, *assumptions, *ways)
    return state_drawn_arithmetic(made, distribution)


def achieved_guarantee(
    distribution: NoiseDistribution,
    sensitivity: int,
    target: Asked,
    log_ratio: float = 0,
    order: float | None = None,
) -> Asked:
    """Return the achieved guarantee: the least ε at the target's δ and participations.

    Rounds that one participant may join must be given the same `order`.

    Parameters
    ----------
    distribution, sensitivity, target, log_ratio, order
        As in `checked_target`.

    Returns
    -------
    PureDP or ApproximateDP
        The achieved guarantee, of the target's class.
    """
    epsilon = epsilon_of(distribution, sensitivity, target, log_ratio, order)
    ways = (*accounting(distribution, target, order), *in_distinct_rounds(target))
    return state_drawn_arithmetic(
        with_epsilon(epsilon, target, target.view, *target.assumptions, *ways), distribution
    )


def state_drawn_arithmetic(guarantee: Kept, *distributions: Any) -> Kept:
    """Return the guarantee with the arithmetic in which noise of these distributions is drawn.

    `EXACT` for integer noise and coins with exact samplers, `IDEAL` for continuous noise,
    `UNSTATED` for tables, which have no exact sampler, and for distributions from outside this
    package, whose samplers are unchecked.

    >>> from tacit.noise import DiscreteLaplace
    >>> state_drawn_arithmetic(PureDP(1.0), DiscreteLaplace(1)).arithmetic.value
    'exact'
    """
    if not distributions:
        raise TacitError("give the distributions that the guarantee was derived from")
    ours = all(is_own(type(one)) for one in distributions)
    integral = [one for one in distributions if isinstance(one, NoiseDistribution)]
    exact = all(isinstance(one, (NoiseDistribution, Chance)) for one in distributions)
    if not ours or not all(one.drawable for one in integral):
        return state_arithmetic(guarantee, Arithmetic.UNSTATED)
    return state_arithmetic(guarantee, Arithmetic.EXACT if exact else Arithmetic.IDEAL)


def with_epsilon(epsilon: float, target: Asked, view: View, *assumptions: Assumption) -> Asked:
    """Return the target with a computed ε, for a view and assumptions; arithmetic is unstated."""
    check_replaced(target)
    if not math.isfinite(epsilon):
        raise TacitError(
            f"this noise gives no {'pure' if isinstance(target, PureDP) else 'such'} guarantee at "
            f"any epsilon, so not {target.short}: give a larger delta, or use other noise"
        )
    found: Asked = replace(target, epsilon=epsilon, view=view, assumptions=together(assumptions))
    return found


def check_replaced(target: Guarantee) -> None:
    """Reject targets with add-or-remove neighbours.

    The number of participants is public, and a removed participant's share of the noise is missing.
    """
    if target.neighbours is not Neighbours.REPLACE_ONE:
        raise TacitError(
            f"{target.short} is about {target.neighbours.text()}, but the number of participants "
            "is public: ask for neighbours that replace one participant's data"
        )


@lru_cache(maxsize=1 << 14)
def epsilon_of(
    distribution: NoiseDistribution,
    sensitivity: int,
    target: Target,
    log_ratio: float = 0,
    order: float | None = None,
) -> float:
    """The ε at the target's δ for as many participations as the target states."""
    times = target.participations
    if isinstance(target, PureDP):
        return times * (distribution.pure_loss(sensitivity) + 2 * log_ratio)
    inner = target.delta * math.exp(-log_ratio)
    loss = resolved_loss(distribution, sensitivity, inner / times)
    if times == 1 or _is_basic_composition(target):
        return times * (loss.epsilon(inner / times) + 2 * log_ratio)
    if order is None and bell_shaped(distribution, target):
        return _as_gaussian(loss, target, log_ratio)
    return _at_order(loss, order or common_order(target)[0], target, log_ratio)


def accounting(
    distribution: NoiseDistribution, target: Target, order: float | None = None
) -> tuple[Accounting, ...]:
    """The accounting method of several participations; empty for one or for pure targets."""
    count = target.participations
    if count == 1 or isinstance(target, PureDP):
        return ()
    if _is_basic_composition(target):
        return (Accounting(Method.ADDED, count),)
    if order is None and bell_shaped(distribution, target):
        return (Accounting(Method.GAUSSIAN, count),)
    used = order or common_order(target)[0]
    return (Accounting(Method.RENYI, count, Fraction(str(used))),)


def _is_basic_composition(target: Target) -> bool:
    """Whether the target asks for basic composition."""
    found = (one.method for one in target.assumptions if isinstance(one, Accounting))
    return Method.ADDED in found


def in_distinct_rounds(target: Target) -> tuple[DistinctRounds, ...]:
    """The assumption under which several participations with a δ compose: two of them in one round
    would move its sum twice under a single draw of the noise. Pure losses add up either way.
    """
    composed = target.participations > 1 and not isinstance(target, PureDP)
    return (DistinctRounds(),) if composed else ()


def bell_shaped(distribution: NoiseDistribution, target: ApproximateDP) -> bool:
    """Whether the target's participations are compared with Gaussian noise.

    True if, at sensitivity 1, Gaussian noise would need a standard deviation of at least 3, and the
    noise has no exponential tail. It depends only on the target and the kind of noise, so it is the
    same for all rounds.
    """
    return math.isinf(distribution.mgf_radius) and _gaussian_std(target) >= SMOOTH


@lru_cache(maxsize=1024)
def _gaussian_std(target: ApproximateDP) -> float:
    _, rest = split_delta(target)
    moved = math.sqrt(target.participations)
    return least(lambda std: GaussianLoss(std, moved).delta(target.epsilon) <= rest, moved)


def _as_gaussian(loss: PrivacyLoss, target: ApproximateDP, log_ratio: float) -> float:
    """The ε of V participations, each dominated by Gaussian noise shifted by μ: together by √V μ.

    This holds for adaptively chosen rounds, too (Dong, Roth & Su 2022, Theorem 3.2 and
    Corollary 3.3).
    """
    dropped, rest = split_delta(target)
    mu = max(gaussian_mu(direction, dropped, log_ratio) for direction in loss.directions)
    if not math.isfinite(mu):
        return math.inf
    return GaussianLoss(1.0, mu * math.sqrt(target.participations)).epsilon(rest)


def gaussian_mu(direction: Direction, dropped: float, log_ratio: float = 0) -> float:
    """The least μ such that N(0, 1) and N(μ, 1) dominate the pair, except with probability γ.

    γ is `dropped`; that event reveals everything. For ε >= 0 the set where P - e^ε Q is largest is
    the set of losses above ε. Each such set has P-mass t and Q-mass f. If t <= γ + (1 - γ) Φ(Φ⁻¹(f)
    + μ) for all of them, δ(ε) is at most that of the Gaussian pair that fails openly with
    probability γ. The other direction bounds δ(ε) for ε < 0.

    Where the noise is only within e^±a of the distribution (a = `log_ratio`), t is at most e^a and
    f at least e^-a times the distribution's, and the sets are those of its losses above ε - 2a. The
    largest has a P-mass of at least 1 - e^-2a, so from a = 1 on no bound is computed.
    """
    if log_ratio >= 1 or direction.infinite * math.exp(log_ratio) > dropped:
        return math.inf
    kept = direction.losses > -2 * log_ratio
    masses, losses = direction.masses[kept], direction.losses[kept]
    true = (np.cumsum(masses) + direction.infinite) * math.exp(log_ratio) * (1 + ROUNDING)
    false = np.cumsum(masses * np.exp(-losses)) * math.exp(-log_ratio) * (1 - ROUNDING)
    left = ((true - dropped) / (1 - dropped)).clip(0.0, 1.0)
    beyond = left > 0
    found = ndtri(left[beyond]) - ndtri(false[beyond])
    return float(found.max(initial=ROUNDING))


def _at_order(loss: PrivacyLoss, order: float, target: ApproximateDP, log_ratio: float) -> float:
    """The ε of several participations by a Rényi divergence of this order."""
    dropped, rest = split_delta(target)
    divergence = trimmed_renyi(loss, order, dropped * math.exp(-log_ratio))
    widened = divergence + log_ratio * (2 * order - 1) / (order - 1)
    return max(0.0, renyi_epsilon(order, target.participations * widened, rest))


def best_order(
    distribution: NoiseDistribution, sensitivity: int, target: ApproximateDP, log_ratio: float = 0
) -> float:
    """The Rényi order at which this noise has the least ε for the target's participations.

    Parameters
    ----------
    distribution, sensitivity, target, log_ratio
        As in `checked_target`.

    Returns
    -------
    float
        One of the orders in `ORDERS`.
    """
    inner = target.delta * math.exp(-log_ratio) / target.participations
    loss = resolved_loss(distribution, sensitivity, inner)
    return min(ORDERS, key=lambda order: _at_order(loss, order, target, log_ratio))


def resolved_loss(distribution: NoiseDistribution, sensitivity: int, delta: float) -> PrivacyLoss:
    """The exact privacy loss, resolved as far as δ requires."""
    # mass outside the window counts as infinite loss; it is about the floor's probability times
    # the standard deviation
    floor = math.log(delta) - 30 - math.log1p(distribution.std) if delta else LOG_TINY
    return privacy_loss(distribution, sensitivity, log_floor=max(floor, LOG_TINY))


def split_delta(target: ApproximateDP) -> tuple[float, float]:
    """The mass that each participation may drop, and the δ that remains for divergences."""
    return DROPPED * target.delta / target.participations, (1 - DROPPED) * target.delta


@lru_cache(maxsize=1024)
def common_order(target: ApproximateDP) -> tuple[float, float, float]:
    """The Rényi order for several participations, the mass each may drop, and the remaining δ.

    It is the order at which Gaussian noise needs the least variance. Every round of a run, of any
    size and levels, uses this order, so that divergences add up.
    """
    dropped, rest = split_delta(target)
    order = max(
        ORDERS, key=lambda order: (target.epsilon - renyi_epsilon(order, 0.0, rest)) / order
    )
    return order, dropped, rest


def trimmed_renyi(loss: PrivacyLoss, order: float, dropped: float) -> float:
    """The Rényi divergence without the largest losses, of mass at most `dropped`.

    For measures P' <= P with P - P' of mass γ, let Σ P'^α Q^{1-α} = e^{(α-1)D}. Then every event
    has P(E) <= e^ε Q(E) + γ + the δ of divergence D at ε, because CKS20 Proposition 12 holds
    pointwise. Over V participations γ and D add up, adaptively. Divergences become finite for noise
    of finite range.
    """
    found = 0.0
    for direction in loss.directions:
        if direction.infinite > dropped:
            return math.inf
        left_out = np.cumsum(direction.masses) + direction.infinite <= dropped
        kept = ~left_out
        if not kept.any():
            continue
        exponents = np.log(direction.masses[kept]) + (order - 1) * direction.losses[kept]
        top = float(exponents.max())
        total = top + math.log(float(np.exp(exponents - top).sum()))
        found = max(found, total / (order - 1) + 1e-12)
    return found

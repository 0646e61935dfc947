"""Composition of privacy losses over several participations, and a privacy odometer.

Privacy loss distributions of independent releases, or of releases in an adaptive order but fixed in
advance, convolve. Each loss is put on a common grid pessimistically: every atom is split between
its two neighbours on the grid so that P-mass and Q-mass are kept (Doroshenko et al. 2022). Google's
dp-accounting convolves. The grid follows the losses' own spread, so that discretization adds about
a part in 10^4 to the variance and memory stays bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.assumptions import Accounting, DistinctRounds, Method, of_several, together
from tacit.errors import TacitError, integer, positive, probability
from tacit.privacy.guarantees import ApproximateDP, Guarantee, PureDP, RenyiDP, with_metrics
from tacit.privacy.loss import Direction, Floats, PrivacyLoss
from tacit.privacy.renyi import finite_epsilon, renyi_epsilon

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

GRID_FRACTION = 0.02  # grid step / spread of one loss: adds a fraction (0.02)² / 4 to the variance
MOST_GRID_POINTS = 1 << 22
MOST_CELLS = 4 * MOST_GRID_POINTS  # Fourier transforms of so many take a gigabyte or two
TRUNCATION = 1e-15  # mass moved to infinite loss by each convolution
# below this the Fourier transform's rounding error dominates, for up to a thousand uses; it grows
# with their number
LEAST_DELTA = 1e-12


def dominating_loss(guarantee: PureDP | ApproximateDP) -> PrivacyLoss:
    """The loss of the worst mechanism that a guarantee allows.

    It is randomized response that fails openly with probability δ. Composing it gives the optimal
    composition of the guarantees (Kairouz, Oh & Viswanath 2015).
    """
    epsilon = guarantee.epsilon
    failure = guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
    likelier = 1 / (1 + math.exp(-epsilon))
    atoms = Direction.of(
        np.array([epsilon, -epsilon]), (1 - failure) * np.array([likelier, 1 - likelier]), failure
    )
    return PrivacyLoss((atoms,), math.inf if failure else epsilon)


@dataclass(frozen=True, eq=False)
class ComposedLoss:
    """The composition of several losses, each a number of times.

    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy.loss import privacy_loss
    >>> hundred = ComposedLoss(((privacy_loss(DiscreteLaplace(100), 1), 100),))
    >>> round(hundred.epsilon(1e-5), 2), hundred.pure
    (0.34, 1.0)
    """

    parts: tuple[tuple[PrivacyLoss, int], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise TacitError("nothing to compose: give at least one loss")
        for _, times in self.parts:
            integer("times", times, at_least=1, remedy="a loss is composed at least once")

    @property
    def pure(self) -> float:
        """The largest possible loss: the sum of the parts' largest."""
        return sum(loss.pure * times for loss, times in self.parts)

    def delta(self, epsilon: float) -> float:
        """An upper bound on the least δ at ε, tight up to discretization.

        It is at least 10^-12 unless ε reaches the largest loss.
        """
        at = finite_epsilon(epsilon)
        if at >= self.pure:
            return 0.0
        if self._hopeless:
            return 1.0
        return min(1.0, float(self._distribution.get_delta_for_epsilon(at)) + self._resolution)

    def epsilon(self, delta: float) -> float:
        """An upper bound on the least ε at δ, tight up to discretization."""
        level = float(probability("delta", delta, zero=True))
        if level == 0:
            return self.pure
        if level < 10 * self._resolution:
            raise TacitError(
                f"delta is {level:g}; composition resolves delta down to "
                f"{10 * self._resolution:g}: use a larger delta, Rényi composition, "
                "or delta = 0 where the loss is bounded"
            )
        if self._hopeless:
            return math.inf
        found = float(self._distribution.get_epsilon_for_delta(level - self._resolution))
        return min(self.pure, max(0.0, found))

    @property
    def _resolution(self) -> float:
        """Rounding error of the Fourier transforms: about n units in the last place for power n."""
        return LEAST_DELTA * max(1.0, sum(times for _, times in self.parts) / 1000)

    @property
    def _hopeless(self) -> bool:
        """Whether some part reveals everything: its finite losses have negligible mass."""
        return any(
            float(direction.masses.sum()) <= 2 * TRUNCATION
            for loss, _ in self.parts
            for direction in loss.directions
        )

    @cached_property
    def _distribution(self) -> PrivacyLossDistribution:
        from dp_accounting.pld import common, pld_pmf
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        step = self._grid_step()
        total: Any = None
        for loss, times in self.parts:
            lowest, masses, infinite = _dominating_masses(loss, step)
            part = pld_pmf.DensePLDPmf(step, lowest, masses, infinite, pessimistic_estimate=True)
            if times > 1:
                first, last = common.compute_self_convolve_bounds(masses, times, TRUNCATION)
                if last - first > MOST_CELLS:
                    raise TacitError(
                        f"the loss of {times:,} participations needs {last - first:,} cells: must "
                        f"be at most {MOST_CELLS:,}. Use fewer participations or Rényi composition"
                    )
                part = part.self_compose(times, tail_mass_truncation=TRUNCATION)
            total = part if total is None else total.compose(part, tail_mass_truncation=TRUNCATION)
        return PrivacyLossDistribution(total)

    def _grid_step(self) -> float:
        """The width of the grid on which losses are composed."""
        variance = mean = 0.0
        uses = 0
        for loss, times in self.parts:
            moments = [_moments(direction) for direction in loss.directions]
            mean += times * max(m for m, _ in moments)
            variance += times * max(v for _, v in moments)
            uses += times
        fine = GRID_FRACTION * math.sqrt(variance / uses)
        span = (
            mean
            + 20 * math.sqrt(variance)
            + max(
                float(d.losses[0])
                for loss, _ in self.parts
                for d in loss.directions
                if len(d.losses)
            )
        )
        step = max(fine, span / MOST_GRID_POINTS, 1e-12)
        # where one loss has much of the mass (bounded losses: randomized response, discrete
        # Laplace) it is put on the grid
        heaviest = max(
            (float(d.masses.max()), abs(float(d.losses[d.masses.argmax()])))
            for loss, _ in self.parts
            for d in loss.directions
        )
        mass, spike = heaviest
        return spike / math.floor(spike / step) if mass > 0.1 and spike >= step else step


def _moments(direction: Direction) -> tuple[float, float]:
    mean = float(direction.masses @ direction.losses)
    return abs(mean), float(direction.masses @ (direction.losses - mean) ** 2)


def _dominating_masses(loss: PrivacyLoss, step: float) -> tuple[int, Floats, float]:
    """Lowest grid index, grid masses and infinite mass of one pair that dominates all directions.

    One participant's change may raise one batch's sum and lower another's, so each part must be
    dominated in both directions at once. The pointwise largest δ(ε) of the directions belongs to
    such a pair (Zhu, Dong & Wang 2022). Its masses are second differences of that curve on the
    grid.
    """
    gridded = [_on_grid(direction, step) for direction in loss.directions]
    if len(gridded) == 1:
        return gridded[0]
    lowest = min(first for first, _, _ in gridded)
    size = max(first + len(masses) for first, masses, _ in gridded) - lowest
    total: tuple[Floats, Floats, Floats] | None = None
    for first, masses, infinite in gridded:
        padded = np.zeros(size)
        padded[first - lowest : first - lowest + len(masses)] = masses
        curve, rises = _curve(padded, infinite, step)
        total = (
            (padded, curve, rises)
            if total is None
            else _larger(total, (padded, curve, rises), step)
        )
    assert total is not None
    return lowest, total[0], float(total[1][-1])


def _curve(masses: Floats, infinite: float, step: float) -> tuple[Floats, Floats]:
    """δ at each grid point, and the rise Σ_{j >= i} m_j e^{x_i - x_j} below each.

    δ(x_{i-1}) - δ(x_i) = (1 - e^{-step}) rise_i.
    """
    from scipy.signal import lfilter  # slow to import

    decay = math.exp(-step)
    rises = lfilter([1.0], [1.0, -decay], masses[::-1])[::-1]
    above = np.append(rises[1:], 0.0) * -math.expm1(-step)
    return np.cumsum(above[::-1])[::-1] + infinite, rises


def _larger(
    first: tuple[Floats, Floats, Floats], second: tuple[Floats, Floats, Floats], step: float
) -> tuple[Floats, Floats, Floats]:
    """Masses, curve and rises of the pointwise maximum of two curves.

    They are taken from the larger curve wherever that stays the same one, so nothing cancels there.
    Where it changes between x_{i-1} and x_i the dots are connected: the rise is that of the larger
    curve at x_{i-1} less the lead of the other one at x_i.
    """
    (m, c, r), (n, d, s) = first, second
    owned = c >= d
    before = np.append(owned[0], owned[:-1])
    ahead = np.abs(c - d) / -math.expm1(-step)
    rises = np.where(before, r, s) - np.where(before != owned, ahead, 0.0)
    after = np.append(rises[1:], 0.0)
    steady = (before == owned) & (np.append(owned[1:], owned[-1]) == owned)
    masses = np.where(steady, np.where(owned, m, n), rises - math.exp(-step) * after).clip(min=0.0)
    return masses, np.maximum(c, d), rises


def _on_grid(direction: Direction, step: float) -> tuple[int, Floats, float]:
    """Lowest grid index, masses on consecutive grid points, infinite mass.

    An atom of loss l between grid points a < l <= b puts the fraction (1 - e^{a-l}) / (1 - e^{a-b})
    on b and the rest on a: P-mass and Q-mass are kept, and δ(ε) is nowhere below the true one.
    Atoms of tiny mass far up count as infinite. Losses far below the rest, up to mass 10^-15, are
    raised.
    """
    losses, masses = direction.losses, direction.masses
    top = int(np.searchsorted(np.cumsum(masses), TRUNCATION, side="right"))
    infinite = min(direction.infinite + float(masses[:top].sum()), 1 - TRUNCATION)
    losses, masses = losses[top:], masses[top:]
    bottom = int(np.searchsorted(np.cumsum(masses[::-1]), TRUNCATION, side="right"))
    if bottom:
        losses = np.maximum(losses, losses[-bottom - 1])
    below = np.floor(losses / step).astype(np.int64)
    share = (np.expm1(below * step - losses) / math.expm1(-step)).clip(0.0, 1.0)
    lowest = int(below.min())
    size = int(below.max()) - lowest + 2
    if size > MOST_CELLS:
        raise TacitError(
            f"a loss spreads over {size:,} grid points of {step:g}: compose fewer or less unequal "
            "losses"
        )
    weights = np.zeros(size)
    weights += np.bincount(below - lowest, weights=masses * (1 - share), minlength=size)
    weights += np.bincount(below - lowest + 1, weights=masses * share, minlength=size)
    return lowest, weights, infinite


def compose_losses(losses: Sequence[PrivacyLoss | tuple[PrivacyLoss, int]]) -> ComposedLoss:
    """Compose losses, or (loss, times) pairs, that are fixed before any outcome is seen."""
    return ComposedLoss(tuple(item if isinstance(item, tuple) else (item, 1) for item in losses))


def advanced_composition(
    guarantee: PureDP | ApproximateDP, times: int, slack: float
) -> ApproximateDP:
    """Advanced composition: ε' = ε √(2k ln(1/δ')) + kε(e^ε - 1), δ_total = kδ + δ'.

    Dwork, Rothblum & Vadhan 2010; the papers' method (CZ23 App. I).

    Parameters
    ----------
    guarantee : PureDP or ApproximateDP
        The guarantee of one participation.
    times : int
        The number k of participations.
    slack : float
        δ', the part of δ that pays for composing.

    Returns
    -------
    ApproximateDP
        The composed guarantee; never worse in ε than adding up.
    """
    count = integer("times", times, at_least=1)
    extra = float(
        probability("slack", slack, "the part of delta that pays for composing, such as 1e-6")
    )
    e = guarantee.epsilon
    # past e = 30 the second term far exceeds k e of basic composition
    epsilon = e * math.sqrt(2 * count * math.log(1 / extra)) + count * e * math.expm1(min(e, 30.0))
    failure = extra + (count * guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0)
    if failure >= 1:
        raise TacitError(
            f"delta adds up to {failure:g} over {count} participations: must be "
            "below 1. Use a smaller delta"
        )
    kept = of_several(guarantee.assumptions) if count > 1 else guarantee.assumptions
    about = guarantee.shared_fields | {
        "participations": count * guarantee.participations,
        "assumptions": kept,
    }
    made = ApproximateDP(min(epsilon, count * e), failure, **about)
    return made.assuming(DistinctRounds()) if count > 1 else made


@dataclass(frozen=True)
class ComposedParticipations:
    """The ε at δ of one participant in at most `participations` rounds, by each accounting method.

    `best` is the least of them.

    Parameters
    ----------
    participations : int
        The largest number of rounds of one participant.
    delta : float
        The δ of all rounds together.
    exact : float
        ε by composition of privacy loss distributions.
    renyi : float or None
        ε by Rényi divergences; None where they are unknown.
    advanced : float or None
        ε by advanced composition; None where it does not apply.
    """

    participations: int
    delta: float
    exact: float
    renyi: float | None
    advanced: float | None

    @property
    def best(self) -> float:
        """The least valid ε."""
        return min(value for value in (self.exact, self.renyi, self.advanced) if value is not None)

    @property
    def accounting(self) -> Accounting:
        """The accounting method that gives `best`."""
        ways = {self.exact: Method.LOSS, self.renyi: Method.RENYI, self.advanced: Method.ADVANCED}
        return Accounting(ways[self.best], self.participations)


def compose_participations(
    release: PrivacyLoss | PureDP | ApproximateDP, participations: int, delta: float
) -> ComposedParticipations:
    """Account for one participant in several rounds of one kind (CZ23 App. I, ZC24 App. G.4).

    Parameters
    ----------
    release : PrivacyLoss, PureDP or ApproximateDP
        The exact loss of one round, or only its guarantee.
    participations : int
        The most rounds that the participant is in.
    delta : float

    Returns
    -------
    ComposedParticipations
        `exact`: composition of privacy loss distributions. `renyi`: at the best order, real orders
        included where the loss is exact; None where divergences are infinite. `advanced`: from the
        guarantee, with the δ left over by the rounds' own; None where nothing is left. From an
        exact loss, δ is split in half.

    Examples
    --------
    >>> found = compose_participations(PureDP(0.1), participations=100, delta=1e-5)
    >>> found.exact < found.advanced
    True
    """
    remedy = "a participant takes part at least once"
    count = integer("participations", participations, at_least=1, remedy=remedy)
    level = float(probability("delta", delta))
    renyi: float | None = None
    advanced: float | None = None
    if isinstance(release, PrivacyLoss):
        loss = release
        if release.renyi_source is not None:
            curve = (
                (order, release.renyi(order) * count)
                for order in (1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
            )
            renyi = max(0.0, min(renyi_epsilon(order, value, level) for order, value in curve))
            renyi = renyi if math.isfinite(renyi) else None
        single = release.epsilon(level / (2 * count))
        if math.isfinite(single) and single > 0:
            advanced = advanced_composition(
                ApproximateDP(single, level / (2 * count)), count, level / 2
            ).epsilon
    else:
        loss = dominating_loss(release)
        if isinstance(release, PureDP):
            renyi = RenyiDP.of(release.renyi).repeat(count).epsilon_at(level)
        left = level - (count * release.delta if isinstance(release, ApproximateDP) else 0.0)
        if left > 0 and release.epsilon > 0:
            advanced = advanced_composition(release, count, left).epsilon
    return ComposedParticipations(
        count, level, ComposedLoss(((loss, count),)).epsilon(level), renyi, advanced
    )


class BudgetExceeded(TacitError):  # noqa: N818 (it names what happened)
    """A release was rejected because it would exceed the privacy budget; nothing was spent."""


class Odometer:
    """Privacy odometer and filter: adds up the spent budget, rejects releases that would exceed it.

    With `adaptive=True` (the default) each release may be chosen after earlier outcomes. The
    odometer adds up Rényi divergences at one order fixed in advance, which is a valid filter
    (Feldman & Zrnic 2021). With `adaptive=False` the list of releases must be fixed in advance;
    then exact composition of losses applies, which is tighter.

    >>> meter = Odometer(ApproximateDP(1.0, 1e-5))
    >>> meter.spend(PureDP(0.1)); meter.spend(PureDP(0.1))
    >>> meter.spent().epsilon < 1.0
    True
    >>> meter.spend(PureDP(0.9))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.privacy.composition.BudgetExceeded: the release would bring ... or stop here
    """

    def __init__(self, budget: ApproximateDP, *, adaptive: bool = True) -> None:
        positive("epsilon", budget.epsilon, "a budget needs epsilon > 0")
        self.budget = budget
        self.adaptive = adaptive
        self.order = _filter_order(budget)
        self._divergence = 0.0
        self._times: dict[PrivacyLoss | Guarantee, int] = {}
        self._assumptions = budget.assumptions
        self._metrics: int | None = None  # covered by every release so far

    def spend(self, release: PrivacyLoss | Guarantee, times: int = 1) -> None:
        """Add a release, or raise `BudgetExceeded` and change nothing."""
        count = integer("times", times, at_least=1)
        self._check_comparable(release)
        spent = self._times | {release: self._times.get(release, 0) + count}
        if self.adaptive:
            after = self._divergence + count * self._cost(release)
            self._check_budget(renyi_epsilon(self.order, after, self.budget.delta))
            self._divergence = after
        else:
            self._check_budget(self._composed(spent))
        self._times = spent
        if isinstance(release, Guarantee):
            self._assumptions = together(self._assumptions, of_several(release.assumptions))
        covered = release.metrics if isinstance(release, Guarantee) else 1
        self._metrics = covered if self._metrics is None else min(covered, self._metrics)

    def spent(self) -> ApproximateDP:
        """The spent budget at the budget's δ, for a participant in all releases.

        It holds under the assumptions of all releases together.
        """
        if self.adaptive:
            epsilon = (
                renyi_epsilon(self.order, self._divergence, self.budget.delta)
                if self._divergence
                else 0.0
            )
        else:
            epsilon = self._composed(self._times) if self._times else 0.0
        often = sum(
            count * (release.participations if isinstance(release, Guarantee) else 1)
            for release, count in self._times.items()
        )
        about = self.budget.shared_fields | {
            "participations": max(1, often),
            "assumptions": with_metrics(self._assumptions, self._metrics or self.budget.metrics),
        }
        made = ApproximateDP(max(0.0, epsilon), self.budget.delta, **about)
        order = Fraction(str(self.order)) if self.adaptive else Fraction(0)
        how = Accounting(Method.RENYI if self.adaptive else Method.LOSS, often, order)
        return made.assuming(DistinctRounds(), how) if often > 1 else made

    def _check_budget(self, epsilon: float) -> None:
        """Reject a release that would exceed the budget."""
        if not epsilon <= self.budget.epsilon:
            raise BudgetExceeded(
                f"the release would bring epsilon to {epsilon:.3g} at delta {self.budget.delta:g}, "
                "over the budget of "
                f"{self.budget.epsilon:g}; nothing was spent: use more noise, or stop here"
            )

    def _check_comparable(self, release: PrivacyLoss | Guarantee) -> None:
        """Reject releases of other neighbours or views than the budget's."""
        if isinstance(release, Guarantee):
            if (release.neighbours, release.view) != (self.budget.neighbours, self.budget.view):
                raise TacitError(
                    f"{release.short} is about other neighbours or another view than the budget: "
                    "state it for the budget's, with .at()"
                )
        elif not isinstance(release, PrivacyLoss):
            raise TacitError(
                f"{type(release).__name__} cannot be spent: give a guarantee, or the loss of one "
                "release (privacy_loss)"
            )

    def _composed(self, times: dict[PrivacyLoss | Guarantee, int]) -> float:
        """ε of all releases together, at the budget's δ."""
        return ComposedLoss(
            tuple((self._as_loss(release), count) for release, count in times.items())
        ).epsilon(self.budget.delta)

    def _cost(self, release: PrivacyLoss | Guarantee) -> float:
        cost = release.renyi(self.order)
        if not math.isfinite(cost):
            raise TacitError(
                f"this release has no finite Rényi divergence at order {self.order:.3g}, so it "
                "cannot be spent adaptively: fix the "
                "releases in advance and use Odometer(budget, adaptive=False)"
            )
        return cost

    @staticmethod
    def _as_loss(release: PrivacyLoss | Guarantee) -> PrivacyLoss:
        if isinstance(release, PrivacyLoss):
            return release
        if isinstance(release, (PureDP, ApproximateDP)):
            return dominating_loss(release)
        raise TacitError(
            f"{release.short} has no loss distribution: spend it with Odometer(budget, "
            "adaptive=True)"
        )


def _filter_order(budget: ApproximateDP) -> float:
    """The order that maximises (ε - conversion cost) / α: most room for concentrated guarantees."""
    orders = 1 + np.geomspace(1e-3, 1e6, 4000)
    room = [(budget.epsilon - renyi_epsilon(order, 0.0, budget.delta)) / order for order in orders]
    return float(orders[int(np.argmax(room))])


__all__ = [
    "BudgetExceeded",
    "ComposedLoss",
    "ComposedParticipations",
    "Odometer",
    "advanced_composition",
    "compose_losses",
    "compose_participations",
    "dominating_loss",
]

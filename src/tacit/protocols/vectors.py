"""Vector sums over the reals: every participant holds one number in [-B, B] for each of s played
options.

The secret is a participant's whole vector. Neighbouring data sets replace it, so each coordinate's
sum moves by up to 2B (2B√s in l2 norm, LZJ22 Theorem 4.2). One class per trust model: `Plain` adds
no noise, in `CentralVectors` the server adds it, in `LocalVectors` every participant. A simulation
needs only the sum over all participants. `SeparateSums` holds one sum per option, each of different
participants (LZJ22 Appendix C). Protocols over levels (shuffled bits, secure aggregation) are in
`tacit.protocols.integer_vectors`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.assumptions import DishonestAtMost, ReleasedOnlyAbove, Scope
from tacit.errors import TacitError, integer, positive, require
from tacit.noise import DiscreteLaplace, NoiseDistribution
from tacit.privacy import (
    ApproximateDP,
    Gaussian,
    GaussianLoss,
    Guarantee,
    PureDP,
    Target,
    View,
    state_drawn_arithmetic,
    weakest,
)
from tacit.privacy.accounting import check_replaced, in_distinct_rounds
from tacit.privacy.guarantees import state_arithmetic
from tacit.protocols.continuous import Laplace
from tacit.protocols.contract import Protocol, random_level
from tacit.protocols.vector_noise import (
    gaussian_noise,
    gaussian_ratio,
    numbers_only,
    per_participation,
)
from tacit.types import Aggregate, Estimate, Floats, Reports, VectorError

FINE = 1024  # grid steps over [-B, B] on which a trusted server adds integer noise
REAL_BITS = 64
TAIL = 4.0  # standard deviations of the noise over which its sub-Gaussian proxy is taken


@lru_cache(maxsize=4096)
def noise_proxy(distribution: Any) -> tuple[float, float]:
    """A sub-Gaussian variance proxy of the centred noise, and the |t| up to which it holds.

    The proxy is the largest 2 ln M(t)/t² on a grid, refined around an interior maximum.

    >>> noise_proxy(Gaussian(2.0))
    (4.0, inf)
    """
    if distribution.continuous and distribution.mgf_radius == math.inf:
        return float(distribution.variance), math.inf  # Gaussian: the variance itself
    reach = min(TAIL / math.sqrt(float(distribution.variance)), 0.9 * distribution.mgf_radius)
    points = np.concatenate(
        [-np.linspace(reach / 32, reach, 32), np.linspace(reach / 32, reach, 32)]
    )
    found = max(float(distribution.variance), float(_ratios(distribution, points).max()))
    finer = _peak(distribution, reach)
    return (found if finer <= found * (1 + 1e-9) else finer), reach


def _ratios(distribution: Any, points: Floats) -> Floats:
    values = distribution.log_mgf(points) - points * distribution.mean
    return np.asarray(2 * values / points**2)


def _peak(distribution: Any, reach: float) -> float:
    """The largest 2 ln M(t)/t² for |t| up to `reach`, rounded up: refined around the best of `FINE`
    points on each side.
    """
    side = np.linspace(reach / 64, reach, FINE)
    points = np.concatenate([-side[::-1], side])
    for _ in range(3):
        ratios = _ratios(distribution, points)
        best = int(ratios.argmax())
        low, high = points[max(0, best - 1)], points[min(len(points) - 1, best + 1)]
        points = np.linspace(low, high, FINE)
    return float(ratios.max()) * (1 + 1e-12)


class VectorProtocol(Protocol):
    """A protocol P = (R, S, A) for sums of one vector in [-B, B]^s per participant.

    A subclass defines `randomize`, `view_distribution`, `simulate` and `spread`.
    `spread` is the error of the means as (proxy, reach, stated), the same in every coordinate.
    """

    bound: float

    def _take(self, participants: int, coordinates: int, bound: float) -> None:
        self.participants = integer(
            "participants",
            participants,
            at_least=1,
            remedy="choose an alpha that leaves clients in every phase",
        )
        self.coordinates = integer("coordinates", coordinates, at_least=1)
        self.bound = float(positive("bound", bound, "rewards lie in [-bound, bound]"))
        self.bits_per_participant = REAL_BITS * self.coordinates

    def check(self, vector: npt.ArrayLike) -> Floats:
        """The participant's vector; entries beyond the bound are rejected, since the guarantee
        would not hold. Excess from floating-point averages is clipped.
        """
        array = np.asarray(vector, dtype=float)
        if array.shape != (self.coordinates,):
            raise TacitError(
                f"the report has shape {array.shape}: must hold one number for each of "
                f"{self.coordinates} played actions"
            )
        if not float(np.abs(array).max()) <= self.bound * (1 + 1e-12):
            raise TacitError(
                f"a reward of {float(array[np.abs(array).argmax()]):g} is beyond the bound of "
                f"{self.bound:g}: clip it on the device, or use a larger bound"
            )
        return np.asarray(np.clip(array, -self.bound, self.bound))

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sum."""
        self.check_reports(len(messages))
        return Aggregate(tuple(np.sum(messages, axis=0).tolist()), len(messages))

    @abstractmethod
    def spread(self, reports: int) -> tuple[float, float, float]:
        """(proxy, reach, stated) of the error in a mean of this many reports."""

    def sums(self, released: Aggregate) -> Floats:
        """The estimated sums of rewards."""
        return np.array(released.values, dtype=float)

    def analyze(self, released: Aggregate) -> Estimate:
        """The estimated sums, and the error of the means."""
        self.check_reports(released.reports)
        columns = [np.full(self.coordinates, value) for value in self.spread(released.reports)]
        error = VectorError(released.reports, *columns)
        return Estimate(self.sums(released), error, self.guarantee_id, released.wrapped)


class Plain(VectorProtocol):
    """No privacy: the server sees every vector."""

    minimum = 1
    guarantee = None

    def __init__(self, participants: int, coordinates: int, bound: float) -> None:
        self._take(participants, coordinates, bound)

    def randomize(self, vector: npt.ArrayLike) -> Floats:
        """The vector itself."""
        return self.check(vector)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """Always raises TacitError: the server sees every vector."""
        raise TacitError(
            f"sum of {reports} vectors is {total} without noise: it has no distribution"
        )

    def spread(self, reports: int) -> tuple[float, float, float]:  # noqa: ARG002
        """No error."""
        return 0.0, math.inf, 0.0

    def simulate(self, load: Reports, rng: np.random.Generator) -> Estimate:
        """The sums."""
        return self.analyze(Aggregate(tuple(load.total(rng).tolist()), self.participants))


class CentralVectors(VectorProtocol):
    """A trusted server sums vectors and releases noisy sums.

    Tight: the sum is randomly rounded to a grid of 2B/1,024 and gets discrete Gaussian noise
    (discrete Laplace for a pure target). Rounding sums with independent randomness keeps the
    sensitivity of a coordinate at 1,024 steps: for every U, ⌊S + U⌋ moves by at most that. Paper:
    N(0, σ²) with σ = 2B√(2 s ln(1.25/δ))/ε; `guarantee` states what this noise truly provides.

    >>> CentralVectors(100, 30, 1.0, ApproximateDP(10.0, 0.25), paper=True).guarantee.short
    '(10, 0.7887)-DP'
    """

    minimum = 1
    view = View.SERVER_OUTPUT

    def __init__(
        self, participants: int, coordinates: int, bound: float, target: Target, paper: bool = False
    ) -> None:
        self._take(participants, coordinates, bound)
        self.distribution: NoiseDistribution | Gaussian
        if paper:
            self.distribution, self.guarantee = paper_gaussian(
                coordinates, bound, target, self.view
            )
            self.unit = 1.0
        else:
            self.distribution, self.guarantee = grid_noise(self.coordinates, target, self.view)
            self.unit = 2 * self.bound / FINE

    def randomize(self, vector: npt.ArrayLike) -> Floats:
        """The vector itself: the server is trusted."""
        return self.check(vector)

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sums with the server's noise, in exact arithmetic until the noise is added."""
        self.check_reports(len(messages))
        distribution = _only_noise(self.distribution, 0, len(messages))
        columns = np.transpose([self.check(message) for message in messages]).tolist()
        unit, noise = Fraction(self.unit), distribution.draw(self.coordinates)
        noisy = [
            random_level(sum(map(Fraction, column)) / unit) + int(extra)
            for column, extra in zip(columns, noise, strict=True)
        ]
        return Aggregate(tuple(float(steps * unit) for steps in noisy), len(messages))

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The server's noise about 0: sums are released as real numbers on a grid."""
        return _only_noise(self.distribution, total, reports)

    def spread(self, reports: int) -> tuple[float, float, float]:
        """The error of the server's noise and rounding."""
        proxy, reach = noise_proxy(self.distribution)
        rounding = 0.0 if self.distribution.continuous else 0.25
        scale = self.unit / reports
        std = math.sqrt(float(self.distribution.variance)) * scale
        return (proxy + rounding) * scale**2, reach / scale, std

    def simulate(self, load: Reports, rng: np.random.Generator) -> Estimate:
        """The noisy sums."""
        steps = load.total(rng) / self.unit
        if not self.distribution.continuous:
            steps = np.floor(steps + rng.random(len(steps)))
        noisy = (steps + self.distribution.sample(rng, len(steps))) * self.unit
        return self.analyze(Aggregate(tuple(noisy.tolist()), self.participants))


class LocalVectors(VectorProtocol):
    """Local model: every participant adds noise that suffices alone to every coordinate.

    Tight: a device randomly rounds its vector to a grid of 2B/1,024, on which a replacement moves
    every coordinate by at most 1,024 steps. It adds exact discrete Gaussian noise for that
    sensitivity (discrete Laplace of scale 1,024 s/ε for a pure target). The simulation draws the
    total noise at once, as the Gaussian (Laplace) that it approximates. The proxy includes the
    rounding, a quarter of a step squared. Paper: N(0, σ²) by the closed form, for simulation only.
    """

    minimum = 1
    view = View.MESSAGE

    def __init__(
        self, participants: int, coordinates: int, bound: float, target: Target, paper: bool = False
    ) -> None:
        self._take(participants, coordinates, bound)
        self.distribution: Gaussian | Laplace
        self.device: NoiseDistribution | None = None
        self.unit = 2 * self.bound / FINE
        if paper:
            self.distribution, self.guarantee = paper_gaussian(
                coordinates, bound, target, self.view
            )
            return
        self.device, self.guarantee = grid_noise(self.coordinates, target, self.view)
        each = per_participation(target)
        self.distribution = (
            Laplace(2 * self.bound * coordinates / each.epsilon)
            if isinstance(each, PureDP)
            else Gaussian(gaussian_ratio(each) * 2 * self.bound * math.sqrt(coordinates))
        )

    def randomize(self, vector: npt.ArrayLike) -> Floats:
        """The vector on the grid with exact integer noise."""
        # drawn before the vector is read: sampling time depends on the value drawn
        drawn = _only_noise(self.device or self.distribution, 0, 1).draw(self.coordinates)
        unit = Fraction(self.unit)
        steps = [random_level(Fraction(value) / unit) for value in self.check(vector).tolist()]
        return np.asarray((np.array(steps) + drawn) * self.unit)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """One message's noise about 0, in steps of the grid."""
        return _only_noise(
            self.distribution if self.device is None else self.device, total, reports
        )

    def spread(self, reports: int) -> tuple[float, float, float]:
        """The error of all participants' noise."""
        proxy, reach = noise_proxy(self.distribution)
        rounding = 0.0
        if self.device is not None:  # its noise is slightly wider than the simulated one
            proxy = max(proxy, float(self.device.variance) * self.unit**2)
            rounding = self.unit**2 / 4
        std = math.sqrt(self.distribution.variance / reports)
        return (proxy + rounding) / reports, reach * reports, std

    def simulate(self, load: Reports, rng: np.random.Generator) -> Estimate:
        """The sums with all participants' noise at once: a Gaussian of √n σ, or a difference of
        Gamma(n) variables.
        """
        total = load.total(rng)
        noise = self.distribution.sample_sum(rng, self.participants, (self.coordinates,))
        return self.analyze(Aggregate(tuple((total + noise).tolist()), self.participants))


def _only_noise(distribution: Any, total: int, reports: int) -> NoiseDistribution:
    if not isinstance(distribution, NoiseDistribution):
        raise TacitError(
            f"continuous noise has no exact distribution (for a sum of {total} of {reports} "
            "reports) and is for simulation only: use tight constants"
        )
    return distribution


class SeparateSums(Protocol):
    """One private sum per option, each over different participants, who report ±B once.

    A report is (index of the option in the round, reward). `parts` are protocols of one coordinate.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)
        self.coordinates = len(self.parts)
        self.participants = sum(part.participants for part in self.parts)
        self.minimum = sum(part.minimum for part in self.parts)
        bits = sum(part.bits_per_participant * part.participants for part in self.parts)
        self.bits_per_participant = bits / self.participants
        self.guarantee = weakest([_of_group(part.guarantee) for part in self.parts])

    @property
    def numbers_per_participant(self) -> int:
        """One: a participant reports about the option that they played."""
        return 1

    @property
    def components(self) -> Sequence[Protocol]:
        """The protocol of each option."""
        return self.parts

    def randomize(self, x: tuple[int, float]) -> tuple[int, Any]:
        """The message of a participant who played the option at this index."""
        place, reward = x
        self._check_place(place)
        return place, self.parts[place].randomize([reward])

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sum of every option; all are released or none."""
        pairs = zip(self.parts, self.by_option(messages), strict=True)
        return Aggregate(tuple(part.combine(mine) for part, mine in pairs), len(messages))

    def by_option(self, messages: Sequence[Any]) -> list[list[Any]]:
        """The messages of each option; all are rejected before any release if one option has too
        few.
        """
        sent: list[list[Any]] = [[] for _ in self.parts]
        for place, message in messages:
            self._check_place(place)
            sent[place].append(message)
        for part, mine in zip(self.parts, sent, strict=True):
            part.check_reports(len(mine))
        return sent

    def _check_place(self, position: int) -> None:
        if not 0 <= position < self.coordinates:
            raise TacitError(f"coordinate is {position}: must be 0 to {self.coordinates - 1}")

    def analyze(self, released: Aggregate) -> Estimate:
        """The estimates of all options, concatenated."""
        self.check_reports(released.reports)
        made = [part.analyze(one) for part, one in zip(self.parts, released.values, strict=True)]
        return self._join(made)

    def _join(self, made: Sequence[Estimate]) -> Estimate:
        participants = np.array([estimate.error.participants for estimate in made])
        names = ("proxies", "reaches", "stated")
        columns = [np.concatenate([getattr(e.error, name) for e in made]) for name in names]
        total = np.concatenate([estimate.total for estimate in made])
        wrapped = any(estimate.wrapped for estimate in made)
        return Estimate(total, VectorError(participants, *columns), self.guarantee_id, wrapped)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The view of the first option's sum."""
        distribution: NoiseDistribution = self.parts[0].view_distribution(total, reports)
        return distribution

    def simulate(self, load: Sequence[Reports], rng: np.random.Generator) -> Estimate:
        """Every option simulated independently."""
        made = [part.simulate(one, rng) for part, one in zip(self.parts, load, strict=True)]
        return self._join(made)


def _of_group(guarantee: Guarantee | None) -> Guarantee | None:
    """A part's guarantee, with corrupted participants counted among those who play its option."""
    if guarantee is None:
        return None
    released = [one for one in guarantee.assumptions if isinstance(one, ReleasedOnlyAbove)]
    if any(one.fraction < 1 for one in released):
        raise TacitError(
            "a part of separate sums tolerates dropout: reports are counted for all options "
            "together. Make every part for all of its participants."
        )
    kept = {
        replace(one, scope=Scope.GROUP) if isinstance(one, DishonestAtMost) else one
        for one in guarantee.assumptions
    }
    made = replace(guarantee, assumptions=frozenset(kept))
    return state_arithmetic(made, guarantee.arithmetic)


def paper_gaussian(
    coordinates: int, bound: float, target: Target, view: View
) -> tuple[Gaussian, ApproximateDP]:
    """σ = 2B√(2 s ln(1.25/δ))/ε (LZJ22 Theorems 4.2, 4.4, C.1, C.3), and the (ε, δ) that it truly
    provides (CORRECTIONS 7).
    """
    if isinstance(target, PureDP):
        raise TacitError(
            "the paper's Gaussian noise needs delta > 0: give a delta, or use tight constants, "
            "which has Laplace noise"
        )
    check_one_participation(target)
    sensitivity = 2 * float(bound) * math.sqrt(coordinates)
    distribution = Gaussian(
        sensitivity * math.sqrt(2 * math.log(1.25 / target.delta)) / target.epsilon
    )
    true = GaussianLoss(distribution.sigma, sensitivity).delta(target.epsilon)
    rule = (
        "smaller with the paper's noise, whose true delta is 1 there. Use tight constants, which "
        "are exact at every epsilon"
    )
    require(true < 1, "epsilon", f"{target.epsilon:g}", rule)
    return distribution, state_drawn_arithmetic(
        ApproximateDP(target.epsilon, true, view=view), distribution
    )


def check_one_participation(target: Target) -> None:
    """Reject targets that the printed noise does not cover: several participations, or neighbours
    other than replacement.
    """
    check_replaced(target)
    if target.participations > 1:
        raise TacitError(
            f"participations is {target.participations}; the paper's noise is for one "
            "participation: use tight constants"
        )


def grid_noise(coordinates: int, target: Target, view: View) -> tuple[NoiseDistribution, Target]:
    """The noise on a grid with sensitivity `FINE` steps in every coordinate, and its guarantee.

    Discrete Gaussian; for a pure target, discrete Laplace of scale FINE·s/ε.
    """
    each = per_participation(target)
    if isinstance(each, PureDP):
        scale = Fraction(FINE * coordinates) / Fraction(each.epsilon)
        noise: NoiseDistribution = DiscreteLaplace(scale)
    else:
        noise = gaussian_noise(FINE, coordinates, each)
    made = numbers_only(target, view).assuming(*in_distinct_rounds(target))
    return noise, state_drawn_arithmetic(made, noise)

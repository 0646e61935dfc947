"""Statistics of contextual experiments, and the noise that makes their sums private.

Each participant reports one integer vector. A `TableStatistic` is one-hot: a replaced participant
takes one from a cell and adds one to another, so that discrete Laplace noise of scale 2/ε in every
cell is (ε, 0)-DP. So is a `CornerStatistic`. A `MomentStatistic` holds x (y - ½) and the upper
triangle of x xᵀ as integers on a grid. Its sensitivity is that of both together
(`centred_sensitivity`), in coordinates where off-diagonal entries count √2 times and x (y - ½)
counts `weight` times. Discrete Gaussian noise is accounted for by its distance from a Gaussian
(`tacit.privacy.gaussian_distance`). Features are on the grid already, so that no rounding adds to
the sensitivity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.assumptions import TowardsOutsiders
from tacit.contextual.corners import STATES, layout
from tacit.contextual.feature_maps import FeatureMap, check_length
from tacit.contextual.fitted import FitPolicy, FitReport
from tacit.contextual.statistics import (
    DIAGONAL,
    OTHER,
    MomentReport,
    ScaledMomentReport,
    TableReport,
)
from tacit.errors import TacitError
from tacit.noise import DiscreteGaussian, DiscreteLaplace, NoiseDistribution
from tacit.privacy import ApproximateDP, PureDP, Target, privacy_loss
from tacit.privacy.composition import ComposedLoss
from tacit.privacy.gaussian import GaussianLoss
from tacit.privacy.gaussian_distance import GroupedGaussianLoss
from tacit.privacy.guarantees import READ_AT
from tacit.privacy.search import least
from tacit.protocols.vector_noise import gaussian_ratio
from tacit.types import Floats, Integers, Visitors

CLOSE = 2e-4  # relative excess of the noise over the least
SLACK = 1e-9  # relative rounding error of a sensitivity computed in doubles
HEAVIEST = math.sqrt(8)  # largest weight for which the sensitivity is tight


def centred_sensitivity(weight: float) -> float:
    """√2 (1 + w²/8): the l2 sensitivity of (w (y - ½) x, xxᵀ) to replacing one (x, y).

    `tacit.bandits.contextual.moments` has the proof, for ‖x‖ <= 1 and 0 <= y <= 1.

    >>> round(centred_sensitivity(2.0) ** 2, 6)
    4.5
    """
    return math.sqrt(2) * (1 + weight**2 / 8) * (1 + SLACK)


@dataclass(frozen=True)
class Answers:
    """Simulated participants with their options and the levels of their rewards."""

    visitors: Visitors
    options: npt.NDArray[np.intp]
    levels: Integers


class Statistic(ABC):
    """An integer vector that each participant reports, and how its sums are made private.

    Attributes
    ----------
    size : int
        Integers in a report.
    largest : int
        Largest absolute value of an integer in a report.
    """

    size: int
    largest: int

    @abstractmethod
    def encode(self, report: Any) -> list[int]:
        """A participant's integers; anything outside the declared range is rejected."""

    @abstractmethod
    def noise(self, target: Target, shares: int = 1) -> tuple[NoiseDistribution, ...]:
        """The least noise of each coordinate that meets the target, as a sum of that many shares.

        Raises
        ------
        TacitError
            If this statistic has no noise for such a target.
        """

    @abstractmethod
    def outsiders(self, target: Target, noise: tuple[NoiseDistribution, ...]) -> TowardsOutsiders:
        """The guarantee of two independent draws of this noise in every coordinate."""

    @property
    @abstractmethod
    def units(self) -> Floats:
        """The real value that one integer unit of each coordinate stands for."""

    @property
    @abstractmethod
    def precision(self) -> int:
        """Levels above 0 to which rewards are rounded."""


@dataclass(frozen=True)
class TableStatistic(Statistic):
    """A histogram over segment, option and outcome; reports are cells.

    Examples
    --------
    >>> table = TableStatistic(segments=20, options=4)
    >>> table.size, table.noise(PureDP(1.0))[0].variance > 7.8
    (160, True)
    """

    segments: int
    options: int
    largest = 1

    @cached_property
    def report(self) -> TableReport:
        """The encoding of a report on the device."""
        return TableReport(self.segments, self.options)

    @property
    def size(self) -> int:  # type: ignore[override]
        """Two cells per segment and option."""
        return self.report.size

    def encode(self, report: Any) -> list[int]:
        """A one in the participant's cell."""
        return self.report.vector(report)

    def noise(self, target: Target, shares: int = 1) -> tuple[NoiseDistribution, ...]:  # noqa: ARG002
        """Discrete Laplace noise of scale 2/ε, which shares add up to exactly."""
        if not isinstance(target, PureDP):
            raise TacitError(
                f"delta is {target.delta:g}: must be left out for tables, whose guarantee is pure"
            )
        return (DiscreteLaplace(2 / Fraction(target.epsilon)),) * self.size

    def outsiders(self, target: Target, noise: tuple[NoiseDistribution, ...]) -> TowardsOutsiders:  # noqa: ARG002
        """Two cells move by one each; their exact losses compose, read at δ = 1e-6."""
        return TowardsOutsiders(_both_laplace(noise[0]), READ_AT)

    @property
    def units(self) -> Floats:
        """Unit of each sum: 1, because sums of tables are counts."""
        return np.ones(self.size)

    @property
    def precision(self) -> int:
        """1: outcomes are bits."""
        return 1

    def total(self, answers: Answers, rng: np.random.Generator) -> Integers:  # noqa: ARG002
        """The number of participants in every cell."""
        cells = answers.visitors.segments * self.options + answers.options
        cells = 2 * cells + answers.levels
        return np.bincount(cells, minlength=self.size).astype(np.int64)


@dataclass(frozen=True)
class CornerStatistic(TableStatistic):
    """A histogram over the corners of a feature map and outcome (`tacit.contextual.corners`).

    It is a table whose segments are corners. Replacing a participant, whose coins may differ too,
    takes one from a cell and adds one to another, as in every table.

    Examples
    --------
    >>> from tacit.contextual.feature_maps import BoundedNumber, FeatureMap
    >>> fields, zero = (BoundedNumber("age", 18, 90),), ((0.5, 0.0),)
    >>> corners = CornerStatistic.of(FeatureMap(fields, ("old", "new"), (zero, ((0.5, 0.4),))))
    >>> corners.segments, corners.size, corners.encode(5)
    (4, 8, [0, 0, 0, 0, 0, 1, 0, 0])
    """

    features: FeatureMap

    @classmethod
    def of(cls, features: FeatureMap) -> Self:
        """The statistic of a feature map."""
        return cls(layout(features).size, 1, features)

    def total(self, answers: Answers, rng: np.random.Generator) -> Integers:
        """The number of participants in every cell, with numbers rounded by their own coins."""
        corners = np.zeros(len(answers.options), dtype=np.int64)
        for option, one in enumerate(layout(self.features).options):
            rows = np.flatnonzero(answers.options == option)
            codes = answers.visitors.codes[rows]
            place = np.zeros(len(rows), dtype=np.int64)
            for start, size in one.categories:
                place = place * size + codes[:, start : start + size].argmax(axis=1)
            for column in one.numbers:
                signs = 2 * rng.random((len(rows), 2), dtype=np.float32) - 1 < codes[:, [column]]
                place = place * len(STATES) + signs.sum(axis=1)
            corners[rows] = one.first + place
        return np.bincount(2 * corners + answers.levels, minlength=self.size).astype(np.int64)


@dataclass(frozen=True)
class MomentStatistic(Statistic):
    """Moments of features and reward; reports are pairs of features and level.

    Parameters
    ----------
    dimension, resolution, levels
        As for `MomentReport`.
    weight : float
        The weight of x (y - ½) relative to x xᵀ: with more of it, the first has less noise.

    Examples
    --------
    >>> moments = MomentStatistic(dimension=2, resolution=1000)
    >>> moments.encode(((6, 8), 1)), len(moments.noise(ApproximateDP(1.0, 1e-6)))
    ([6, 8, 36, 48, 64], 5)
    """

    dimension: int
    resolution: int
    levels: int = 1
    weight: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= HEAVIEST * (1 + SLACK):
            raise TacitError(f"weight is {self.weight:g}: must be above 0 and at most √8")

    @cached_property
    def report(self) -> MomentReport:
        """The encoding of a report on the device."""
        return MomentReport(self.dimension, self.resolution, self.levels)

    @property
    def size(self) -> int:  # type: ignore[override]
        """d + d (d + 1) / 2."""
        return self.report.size

    @property
    def largest(self) -> int:  # type: ignore[override]
        """The largest absolute value of a coordinate."""
        return self.report.largest

    def encode(self, report: Any) -> list[int]:
        """The moments of (features, level)."""
        features, level = report
        return self.report.vector(tuple(features), level)

    @cached_property
    def units(self) -> Floats:
        """The value of a unit: 1/(2 levels resolution) in x (y - ½), 1/resolution² in x xᵀ."""
        first = np.full(self.dimension, 1 / (2 * self.levels * self.resolution))
        return np.concatenate([first, np.full(self.size - self.dimension, self.resolution**-2.0)])

    @property
    def precision(self) -> int:
        """The number of levels of a reward."""
        return self.levels

    def total(self, answers: Answers, rng: np.random.Generator) -> Integers:  # noqa: ARG002
        """Moments of the chosen features, of length at most 1; doubles hold them exactly below
        2^53.
        """
        options = answers.options
        chosen = answers.visitors.features[np.arange(len(options)), options].astype(float)
        if len(chosen):
            longest = chosen[np.square(chosen).sum(axis=1).argmax()]
            check_length([round(number) for number in longest], self.resolution)
        first = (2.0 * answers.levels - self.levels) @ chosen
        rows, columns = np.triu_indices(self.dimension)
        upper = (chosen.T @ chosen)[rows, columns]
        return np.asarray(np.rint(np.concatenate([first, upper])), dtype=np.int64)

    @cached_property
    def scales(self) -> tuple[float, float, float]:
        """Real value of one in the coordinates of the sensitivity: of x (y - ½), of diagonal and of
        off-diagonal entries.
        """
        square = self.resolution**-2.0
        return self.weight / (2 * self.levels * self.resolution), square, math.sqrt(2) * square

    def noise(self, target: Target, shares: int = 1) -> tuple[NoiseDistribution, ...]:
        """Discrete Gaussian noise, equally wide in the coordinates of the sensitivity."""
        first, diagonal, other = _moment_noise(self, _approximate(target), shares)
        upper: list[NoiseDistribution] = [
            diagonal if i == j else other
            for i in range(self.dimension)
            for j in range(i, self.dimension)
        ]
        return (*(first,) * self.dimension, *upper)

    def loss(self, noise: Sequence[NoiseDistribution], shares: int = 1) -> GroupedGaussianLoss:
        """The loss of noise in x (y - ½), in diagonal and in off-diagonal entries."""
        d = self.dimension
        counts = (d, d, d * (d - 1) // 2)
        groups = tuple(
            (one, unit, count)
            for one, unit, count in zip(noise, self.scales, counts, strict=True)
            if count
        )
        return GroupedGaussianLoss(groups, centred_sensitivity(self.weight), shares)

    def outsiders(self, target: Target, noise: tuple[NoiseDistribution, ...]) -> TowardsOutsiders:
        """The guarantee of both servers' noise: a Gaussian mechanism of √2 times the width."""
        d = self.dimension
        distinct = (noise[0], noise[d], noise[min(d + 1, len(noise) - 1)])
        return _outsiders(self, _approximate(target), distinct)


@dataclass(frozen=True)
class ScaledMomentStatistic(MomentStatistic):
    """Moments in units in which every coordinate gets noise of the same width.

    Live rounds announce one width. The weight is 2, or slightly less with several levels; noise of
    off-diagonal entries is 1% wider than `MomentStatistic` needs.

    Examples
    --------
    >>> moments = ScaledMomentStatistic(dimension=2, resolution=1000)
    >>> moments.encode(((6, 8), 1)), len(set(moments.noise(ApproximateDP(1.0, 1e-6))))
    ([30000, 40000, 180, 336, 320], 1)
    """

    @cached_property
    def report(self) -> ScaledMomentReport:
        """The encoding of a report on the device."""
        return ScaledMomentReport(self.dimension, self.resolution, self.levels)

    @cached_property
    def factors(self) -> Integers:
        """The factor of every coordinate, relative to `MomentReport`."""
        rows, columns = np.triu_indices(self.dimension)
        upper = np.where(rows == columns, DIAGONAL, OTHER)
        return np.concatenate([np.full(self.dimension, self.report.factor), upper])

    @cached_property
    def units(self) -> Floats:
        """The value of a unit of each coordinate."""
        plain = MomentStatistic(self.dimension, self.resolution, self.levels).units
        return np.asarray(plain / self.factors)

    def total(self, answers: Answers, rng: np.random.Generator) -> Integers:
        """The moments of all, times their factors."""
        return super().total(answers, rng) * self.factors

    def noise(self, target: Target, shares: int = 1) -> tuple[NoiseDistribution, ...]:
        """Discrete Gaussian noise, equally wide in all coordinates."""
        return (_scaled_noise(self, _approximate(target), shares),) * self.size

    def loss(self, noise: Sequence[NoiseDistribution], shares: int = 1) -> GroupedGaussianLoss:
        """The loss of noise of one width."""
        moved = math.sqrt(self.report.squared_sensitivity) * (1 + SLACK)
        return GroupedGaussianLoss(((noise[0], 1.0, self.size),), moved, shares)


@dataclass(frozen=True)
class FitStatistic(Statistic):
    """Vectors fitted to the rewards of several plays, as integers in a ball.

    A report is a pair of the published policy and one level for every play. Replacing all rewards
    of a participant moves the sum by at most the diameter of the ball.

    Examples
    --------
    >>> fit = FitStatistic(dimension=3, resolution=1000)
    >>> fit.size, len(set(fit.noise(ApproximateDP(1.0, 1e-6))))
    (3, 1)
    """

    dimension: int
    resolution: int
    levels: int = 1

    @cached_property
    def report(self) -> FitReport:
        """The encoding of a report on the device."""
        return FitReport(self.dimension, self.resolution, self.levels)

    @property
    def size(self) -> int:  # type: ignore[override]
        """One integer per coordinate."""
        return self.dimension

    @property
    def largest(self) -> int:  # type: ignore[override]
        """The radius of the ball."""
        return self.resolution

    def encode(self, report: Any) -> list[int]:
        """The integers of a policy and the levels of its plays."""
        policy, played = report
        return self.report.vector(policy, played)

    @property
    def units(self) -> Floats:
        """The value of a unit: a fitted vector of length 1 is `FitReport.radius` long."""
        return np.full(self.dimension, 1 / self.report.radius)

    @property
    def precision(self) -> int:
        """The number of levels of a reward."""
        return self.levels

    def fitted_total(self, policy: FitPolicy, sums: Floats, rng: np.random.Generator) -> Integers:
        """The sum of simulated reports; `sums` has each option's rewards less ½, a row each."""
        vectors = sums @ np.array(policy.solve).T
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors *= self.report.radius / np.maximum(lengths, 1.0)
        lower = np.floor(vectors)
        rounded = lower + (rng.random(vectors.shape) < vectors - lower)
        return np.asarray(rounded.sum(axis=0), dtype=np.int64)

    def noise(self, target: Target, shares: int = 1) -> tuple[NoiseDistribution, ...]:
        """Discrete Gaussian noise, equally wide in all coordinates."""
        return (_scaled_noise(self, _approximate(target), shares),) * self.size

    def loss(self, noise: Sequence[NoiseDistribution], shares: int = 1) -> GroupedGaussianLoss:
        """The loss of noise of one width."""
        moved = math.sqrt(self.report.squared_sensitivity) * (1 + SLACK)
        return GroupedGaussianLoss(((noise[0], 1.0, self.size),), moved, shares)

    def outsiders(self, target: Target, noise: tuple[NoiseDistribution, ...]) -> TowardsOutsiders:
        """The guarantee of both servers' noise: a Gaussian mechanism of √2 times the width."""
        return _outsiders(self, _approximate(target), (noise[0],))


def _outsiders(
    statistic: MomentStatistic | FitStatistic,
    target: ApproximateDP,
    distinct: Sequence[NoiseDistribution],
) -> TowardsOutsiders:
    """The guarantee of two draws of the distinct noises of a statistic."""
    stated = _both_gaussian(target)
    both = [one.sum_of_shares(2) for one in distinct]
    if statistic.loss(both, shares=2).delta(stated) > target.delta:
        raise TacitError(f"both servers' noise does not give ({stated:g}, {target.delta:g})-DP")
    return TowardsOutsiders(stated, target.delta)


def _approximate(target: Target) -> ApproximateDP:
    """The target of moments and fits, which has a δ."""
    if not isinstance(target, ApproximateDP):
        raise TacitError(
            "delta is 0: must be above 0 for moments and fits, whose noise is Gaussian. Give a "
            "delta, such as 1e-6."
        )
    return target


@lru_cache(maxsize=4096)
def _scaled_noise(
    statistic: ScaledMomentStatistic | FitStatistic, target: ApproximateDP, shares: int
) -> NoiseDistribution:
    """The least noise of all coordinates, rounded up to five digits."""
    moved = math.sqrt(statistic.report.squared_sensitivity)
    std = gaussian_ratio(target) * moved * (1 + CLOSE)
    for _ in range(12):
        step = 10 ** max(math.floor(math.log10(std)) - 4, 0)
        noise = DiscreteGaussian.of_std(float(math.ceil(std / step) * step))
        if statistic.loss([noise], shares).delta(target.epsilon) <= target.delta:
            return noise
        std *= 1.05
    raise TacitError(
        f"no discrete Gaussian noise of {shares:,} shares gives {target.short}: use a finer "
        "resolution, a larger delta, or smaller rounds"
    )


@lru_cache(maxsize=4096)
def _moment_noise(
    statistic: MomentStatistic, target: ApproximateDP, shares: int
) -> tuple[NoiseDistribution, NoiseDistribution, NoiseDistribution]:
    """The least noise of x (y - ½), of diagonal and of off-diagonal entries."""
    start = gaussian_ratio(target) * centred_sensitivity(statistic.weight) * (1 + CLOSE)

    def made(std: float) -> list[NoiseDistribution]:
        return [DiscreteGaussian.of_std(std / unit) for unit in statistic.scales]

    def meets(std: float) -> bool:
        return statistic.loss(made(std), shares).delta(target.epsilon) <= target.delta

    std = start
    for _ in range(12):
        if meets(std):
            first, diagonal, other = made(least(meets, std, relative=CLOSE / 4))
            return first, diagonal, other
        std *= 1.05
    raise TacitError(
        f"no discrete Gaussian noise of {shares:,} shares gives {target.short}: use a finer "
        "resolution, a larger delta, or smaller rounds"
    )


@lru_cache(maxsize=256)
def _both_laplace(noise: NoiseDistribution) -> float:
    """ε at δ = 1e-6 of two cells that each move by one under two draws of noise."""
    loss = privacy_loss(noise.power(2), 1, log_floor=math.log(READ_AT) - 40)
    return float(ComposedLoss(((loss, 2),)).epsilon(READ_AT))


@lru_cache(maxsize=256)
def _both_gaussian(target: ApproximateDP) -> float:
    """ε at the target's δ of √2 times the target's Gaussian noise, rounded up to three digits."""
    found = GaussianLoss(math.sqrt(2) * gaussian_ratio(target), 1.0).epsilon(0.99 * target.delta)
    digits = 2 - math.floor(math.log10(found))
    return float(math.ceil(found * 10**digits) / 10**digits)

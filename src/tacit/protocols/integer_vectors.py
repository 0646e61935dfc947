"""Vector sums over levels: shuffled bits labelled by coordinate, and secure aggregation of
quantized vectors.

Every client randomly rounds each coordinate of [-B, B] to one of the levels 0..g. The server sees
only one sum over clients per coordinate; a replaced client moves each of them by up to g. The noise
is calibrated to this sensitivity in all coordinates jointly (`tacit.protocols.vector_noise`).
Implements LZJ22 Algorithm 2 (`paper`), and Algorithm 4 for one coordinate. Secure aggregation is
not in the paper.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer
from tacit.noise import Binomial, DiscreteLaplace, NoiseDistribution, Table
from tacit.noise.table import convolution_power
from tacit.privacy import (
    ONE_CURIOUS,
    ApproximateDP,
    PureDP,
    ThreatModel,
    View,
    state_drawn_arithmetic,
)
from tacit.privacy.accounting import in_distinct_rounds
from tacit.protocols.contract import random_level, rounded
from tacit.protocols.shuffled_bits import labelled_bits, ones_by_label
from tacit.protocols.sums import modular_sum
from tacit.protocols.vector_noise import (
    binomial_noise,
    joint_epsilon,
    numbers_only,
    per_participation,
    shared_gaussian_noise,
    skellam_noise,
)
from tacit.protocols.vectors import VectorProtocol, check_one_participation, noise_proxy
from tacit.types import Aggregate, Estimate, Floats, Integers, Reports

MISREAD = 1e-9  # probability that a coordinate wraps around the modulus


class LevelProtocol(VectorProtocol):
    """A vector protocol over levels: `levels` rounds many clients' vectors, `simulate` needs only
    the sums of levels.

    `unit` is the reward per level, `offset` the reward of level 0.
    """

    precision: int
    unit: float
    offset: float
    minimum: int

    @abstractmethod
    def noise(self, reports: int) -> NoiseDistribution:
        """The distribution of the noise in one coordinate's sum when this many reports arrive."""

    def sample_noise(self, rng: np.random.Generator) -> Integers:
        """The noise of all participants in every coordinate, for simulation."""
        distribution = self.noise(self.participants)
        return np.asarray(distribution.sample(rng, self.coordinates), dtype=np.int64)

    def levels(self, vectors: Floats, rng: np.random.Generator) -> Integers:
        """Clients' levels, randomly rounded with the caller's generator; one row per client."""
        if float(np.abs(vectors).max()) > self.bound * (1 + 1e-9):
            raise TacitError(
                f"a reward of {np.abs(vectors).max():g} is beyond the bound of {self.bound:g}: "
                "clip it, or use a larger bound"
            )
        scaled = np.clip((vectors - self.offset) / self.unit, 0.0, self.precision)
        return rounded(scaled, rng)

    def encode(self, vector: npt.ArrayLike) -> list[int]:
        """A participant's levels, randomly rounded without floating point."""
        result = []
        for value in self.check(vector):
            scaled = (Fraction(float(value)) - Fraction(self.offset)) / Fraction(self.unit)
            result.append(min(self._highest, max(self._lowest, random_level(scaled))))
        return result

    @cached_property
    def _lowest(self) -> int:
        """The level of -B, rounded down."""
        return max(0, math.floor((-self.bound - self.offset) / self.unit))

    @cached_property
    def _highest(self) -> int:
        """The level of B, rounded up, in the arithmetic in which the sensitivity is computed: an
        exact quotient may be above a whole number that the rounded one equals.
        """
        return min(self.precision, math.ceil((self.bound - self.offset) / self.unit))

    def sums(self, released: Aggregate) -> Floats:
        """The noisy sums of levels minus the mean of the noise, as rewards."""
        n = released.reports
        noisy = np.array(released.values, dtype=float) - self.noise(n).mean
        return np.asarray(n * self.offset + noisy * self.unit)

    def spread(self, reports: int) -> tuple[float, float, float]:
        """As `VectorProtocol.spread`; random rounding adds at most ¼ of a level squared per
        participant.
        """
        distribution = self.noise(reports)
        proxy, reach = noise_proxy(distribution)
        scale = self.unit / reports
        std = self.stated(math.sqrt(float(distribution.variance)) * scale)
        return (proxy + reports / 4) * scale**2, reach / scale, std

    def stated(self, std: float) -> float:
        """The standard deviation in the paper's confidence widths: that of the noise, unless the
        paper prints another.
        """
        return std

    def simulate(self, load: Reports, rng: np.random.Generator) -> Estimate:
        """The sums of all levels with all participants' noise."""
        sums = load.level_sums(self, rng)
        return self.analyze(self._opened(sums + self.sample_noise(rng), self.participants))

    def _opened(self, sums: Integers, reports: int) -> Aggregate:
        return Aggregate(tuple(sums.tolist()), reports)


class ShuffledVector(LevelProtocol):
    """g data bits and b noise bits per coordinate from each client, labelled by coordinate and
    shuffled.

    Tight: levels span [-B, B]; the noise is the least whose exact joint loss meets the target.
    Paper: Algorithm 2's g, b and p, levels over [-B√s, B√s], ε̂ = ε/(18√ln(2/δ)) (CORRECTIONS 5).
    The guarantee then states what this noise truly provides, which is far stronger than requested.

    >>> ShuffledVector(1000, 30, 1.0, ApproximateDP(10.0, 0.25), precision=8).bits_per_participant
    270
    """

    def __init__(
        self,
        participants: int,
        coordinates: int,
        bound: float,
        target: PureDP | ApproximateDP,
        *,
        precision: int = 16,
        paper: bool = False,
    ) -> None:
        self._take(participants, coordinates, bound)
        self.minimum, self.honest = self.participants, ThreatModel().honest(self.participants)
        if isinstance(target, PureDP):
            raise TacitError(
                "shuffled bits have a finite range, hence no pure guarantee: give a "
                "delta, or use secagg"
            )
        self._stated: float | None = None
        if paper:
            self._printed(target)
        else:
            self.precision = integer("precision", precision, at_least=1)
            self.unit, self.offset = 2 * self.bound / self.precision, -self.bound
            self.noise_bits, self.bias = binomial_noise(
                self.precision, self.coordinates, per_participation(target), self.honest
            )
            others = (*ThreatModel().assumptions(), *in_distinct_rounds(target))
            made = numbers_only(target, View.SHUFFLED).assuming(*others)
            self.guarantee = state_drawn_arithmetic(made, self.noise(self.honest))
        self.bits_per_participant = self.coordinates * (self.precision + self.noise_bits)

    def _printed(self, target: ApproximateDP) -> None:
        """Algorithm 2 (Algorithm 4 for a single coordinate, where ε̂ = ε/2), with its true ε at the
        target's δ.
        """
        check_one_participation(target)
        epsilon, delta, n, s = target.epsilon, target.delta, self.participants, self.coordinates
        limit = 30 if s == 1 else 15
        if not (epsilon < limit and delta < 0.5):
            raise TacitError(
                f"epsilon is {epsilon:g} and delta {delta:g}; the paper's shuffle noise is proven "
                f"for epsilon < {limit} and delta < 1/2: "
                "use tight constants, which is exact everywhere"
            )
        reduced = epsilon / 2 if s == 1 else epsilon / (18 * math.sqrt(math.log(2 / delta)))
        log = math.log(2 / delta) if s == 1 else math.log(4 * s / delta)
        radius = self.bound * math.sqrt(s)
        exact = (
            2 * self.bound * math.sqrt(n)
            if s == 1
            else max(reduced * math.sqrt(n) / (6 * math.sqrt(5 * log)), math.sqrt(s), 10)
        )
        self.precision = max(1, math.ceil(exact))
        amount = self.precision**2 * log / (reduced**2 * n)
        self.noise_bits = math.ceil(180 * amount)
        self.bias = 90 * amount / self.noise_bits
        self.unit, self.offset = 2 * radius / self.precision, -radius
        self._stated = math.sqrt((180 if s == 1 else 360) * radius**2 * log) / (reduced * n)
        moved = math.ceil((self.bound - self.offset) / self.unit) - math.floor(
            (-self.bound - self.offset) / self.unit
        )
        true = joint_epsilon(self.noise(self.honest), moved, s, delta)
        made = ApproximateDP(true, delta, view=View.SHUFFLED).assuming(*ThreatModel().assumptions())
        self.guarantee = state_drawn_arithmetic(made, self.noise(self.honest))

    def stated(self, std: float) -> float:
        """Paper: the sub-Gaussian parameter of the noise in the mean, from Theorem A.2's proof."""
        return std if self._stated is None else self._stated

    def noise(self, reports: int) -> Binomial:
        """The noise bits of all reports."""
        return Binomial(self.noise_bits * reports, self.bias)

    def randomize(self, vector: npt.ArrayLike) -> list[list[int]]:
        """g + b bits per coordinate, ones first; the number of ones is the level plus the number of
        noise bits that are one.
        """
        noise = Binomial(self.noise_bits, self.bias).draw(self.coordinates)
        ones = [level + int(extra) for level, extra in zip(self.encode(vector), noise, strict=True)]
        return labelled_bits(ones, self.precision + self.noise_bits)

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The number of ones per label."""
        self.check_reports(len(messages))
        return ones_by_label(messages)

    def view_distribution(self, total: int, reports: int) -> Table:
        """The number of ones among the bits of one label."""
        start, ones = convolution_power(Binomial(self.noise_bits, self.bias), reports)
        return Table.of(start + total, ones)


class SecureVector(LevelProtocol):
    """Each client adds a share of the noise to every coordinate; secure aggregation releases only
    the sums modulo m.

    `noise_kind` is skellam (default; shares add up exactly) or discrete-gaussian. A pure target
    uses Pólya shares of discrete Laplace noise. Shares are made for the reports that are guaranteed
    to arrive (`threat`). With one client this is the local model on integers.

    >>> SecureVector(1000, 30, 1.0, ApproximateDP(10.0, 0.25)).bits_per_participant
    420
    """

    def __init__(
        self,
        participants: int,
        coordinates: int,
        bound: float,
        target: PureDP | ApproximateDP,
        *,
        precision: int = 16,
        noise_kind: str = "skellam",
        threat: ThreatModel = ONE_CURIOUS,
    ) -> None:
        self._take(participants, coordinates, bound)
        self.minimum = threat.reports(self.participants)
        self.honest = threat.honest(self.participants)
        self.precision = integer("precision", precision, at_least=1)
        self.unit, self.offset = 2 * self.bound / self.precision, -self.bound
        self.share: NoiseDistribution
        each = per_participation(target)
        if isinstance(each, PureDP):
            self.share = DiscreteLaplace(
                Fraction(self.precision * self.coordinates) / Fraction(each.epsilon)
            ).share(self.honest)
        elif noise_kind == "skellam":
            self.share = skellam_noise(self.precision, self.coordinates, each).share(self.honest)
        elif noise_kind == "discrete-gaussian":
            self.share = shared_gaussian_noise(self.precision, self.coordinates, each, self.honest)
        else:
            raise TacitError(f"noise is {noise_kind!r}: must be skellam or discrete-gaussian")
        others = (*threat.assumptions(), *in_distinct_rounds(target))
        made = numbers_only(target, View.RELEASED_SUM).assuming(*others)
        self.guarantee = state_drawn_arithmetic(made, self.share)
        self._top = self.participants * self.precision
        self.modulus = self._top + 2 * self._room() + 1
        self.bits_per_participant = self.coordinates * (self.modulus - 1).bit_length()

    def _room(self) -> int:
        """The margin for noise outside 0..ng: a Chernoff bound, at the variance of all clients'
        shares.
        """
        std = math.sqrt(self.participants * float(self.share.variance))
        log = math.log(2 / MISREAD)
        rate = math.sqrt(2 * log) / std
        if self.share.mgf_radius == math.inf:
            return math.ceil((self.participants * float(self.share.log_mgf(rate)) + log) / rate)
        return self.noise(self.participants).bound(MISREAD)

    def noise(self, reports: int) -> NoiseDistribution:
        """The sum of all shares that arrive; for discrete Gaussian shares, the nearby distribution
        that the accounting uses.
        """
        return self.share.sum_of_shares(reports)

    def sample_noise(self, rng: np.random.Generator) -> Integers:
        """Skellam and Laplace: one draw of the sum. Discrete Gaussian: every share, since the sum
        has no closed form.
        """
        if self.share.closeness(self.participants) > 0:
            return np.asarray(
                sum(self.share.sample(rng, self.coordinates) for _ in range(self.participants)),
                dtype=np.int64,
            )
        return super().sample_noise(rng)

    def randomize(self, vector: npt.ArrayLike) -> list[int]:
        """(level + share) mod m per coordinate; shares are drawn before the rewards are read."""
        noise = self.share.draw(self.coordinates)
        return [
            (level + int(extra)) % self.modulus
            for level, extra in zip(self.encode(vector), noise, strict=True)
        ]

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sums modulo m."""
        self.check_reports(len(messages))
        total = np.asarray(messages, dtype=np.int64).sum(axis=0) % self.modulus
        return Aggregate(tuple(total.tolist()), len(messages))

    def view_distribution(self, total: int, reports: int) -> Table:
        """The sum of the levels and all shares of one coordinate, modulo m."""
        return modular_sum(self.share, self.modulus, reports, total)

    def _opened(self, sums: Integers, reports: int) -> Aggregate:
        """The sums reduced modulo m as on the device path, with the wrap-around flag."""
        values = sums % self.modulus
        wrapped = bool((self._read(values) != sums).any())
        return Aggregate(tuple(values.tolist()), reports, wrapped)

    def sums(self, released: Aggregate) -> Floats:
        """The sums of levels as rewards; underflows are read as negative."""
        read = self._read(np.array(released.values))
        noisy = read - self.noise(released.reports).mean
        return np.asarray(released.reports * self.offset + noisy * self.unit)

    def _read(self, values: Integers) -> Integers:
        half = self._top + (self.modulus - self._top - 1) // 2
        return np.where(values > half, values - self.modulus, values)

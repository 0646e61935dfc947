"""Vector sums over levels: shuffled bits labelled by coordinate, and secure aggregation of
quantized vectors.

Every client rounds each coordinate of [-B, B] at random to one of the levels 0..g and hides it. The
server sees only sums over clients, one per coordinate; a replaced client moves each of them by up
to g. Noise is calibrated to that movement in all coordinates at once (`tacit.protocols.joint`).
LZJ22 Algorithm 2 (`paper`), Algorithm 4 for one coordinate; secure aggregation is not in the paper.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.checks import Number, TacitError, integer
from tacit.noise import Binomial, Chance, DiscreteGaussian, DiscreteLaplace, NoiseLaw, Skellam
from tacit.privacy import ApproximateDP, PureDP, View, guaranteed_reports
from tacit.protocols.joint import (
    binomial_noise,
    joint_epsilon,
    shared_gaussian_noise,
    skellam_noise,
)
from tacit.protocols.vectors import (
    Floats,
    OpenedVector,
    VectorEstimate,
    VectorProtocol,
    noise_proxy,
)

Integers = npt.NDArray[np.int64]
MISREAD = 1e-9  # probability that a coordinate wraps around the modulus


class LevelProtocol(VectorProtocol):
    """A protocol over levels: `levels` rounds many clients' vectors, `simulate` needs only the sums
    of levels.

    `unit` is the worth of a level, `offset` the value of level 0.
    """

    precision: int
    unit: float
    offset: float
    minimum: int

    @abstractmethod
    def noise(self, reports: int) -> NoiseLaw:
        """The law of the noise in one coordinate's sum when this many reports arrive."""

    def sample_noise(self, rng: np.random.Generator) -> Integers:
        """Noise of all clients in every coordinate, for simulation."""
        return np.asarray(self.noise(self.clients).sample(rng, self.coordinates), dtype=np.int64)

    def levels(self, vectors: Floats, rng: np.random.Generator) -> Integers:
        """Each client's levels, rounded at random with the caller's generator; one row per
        client.
        """
        if float(np.abs(vectors).max()) > self.bound * (1 + 1e-9):
            raise TacitError(
                f"a reward of {np.abs(vectors).max():g} is beyond the bound of {self.bound:g}: "
                "clip it, or use a larger bound"
            )
        scaled = np.clip((vectors - self.offset) / self.unit, 0.0, self.precision)
        lower = np.floor(scaled)
        return (lower + (rng.random(scaled.shape) < scaled - lower)).astype(np.int64)

    def encode(self, vector: npt.ArrayLike) -> list[int]:
        """A client's levels, rounded at random without floating point."""
        result = []
        for value in self.check(vector):
            scaled = (Fraction(float(value)) - Fraction(self.offset)) / Fraction(self.unit)
            level = math.floor(scaled)
            result.append(
                min(
                    self.precision,
                    max(0, level + Chance(scaled - level).flip() if scaled > level else level),
                )
            )
        return result

    def analyze(self, opened: OpenedVector) -> VectorEstimate:
        """Means of levels less the noise's mean, as rewards.

        Rounding at random adds at most ¼ of a level squared per client.
        """
        n = opened.reports
        law = self.noise(n)
        proxy, reach = noise_proxy(law)
        means = self.offset + (opened.values - law.mean) / n * self.unit
        scale = self.unit / n
        size = self.coordinates
        total = np.full(size, (proxy + n / 4) * scale**2)
        return VectorEstimate(
            means,
            total,
            np.full(size, reach / scale),
            self.stated(math.sqrt(float(law.variance)) * scale),
        )

    def stated(self, std: float) -> float:
        """The standard deviation that goes into the paper's widths: the noise's own, unless the
        paper prints another.
        """
        return std

    def simulate(self, totals: Integers, rng: np.random.Generator) -> VectorEstimate:
        """An estimate with the law of running every client, given the sums of their levels."""
        return self.analyze(
            OpenedVector((totals + self.sample_noise(rng)).astype(float), self.clients)
        )

    def _check_reports(self, reports: int) -> None:
        if not self.minimum <= reports <= self.clients:
            raise TacitError(
                f"{reports} reports arrived, of {self.clients} expected and {self.minimum} that "
                "the guarantee needs; nothing was opened: "
                "start a new round"
            )


class ShuffledVector(LevelProtocol):
    """g data bits and b noise bits per coordinate from each client, labelled by coordinate and
    shuffled.

    Tight: levels span [-B, B]; the noise is the least whose exact joint loss meets the target.
    Paper: Algorithm 2's g, b and p, levels over [-B√s, B√s], ε̂ = ε/(18√ln(2/δ)) (CORRECTIONS 5);
    the guarantee is what that noise truly gives, which is far more than asked.

    >>> ShuffledVector(1000, 30, 1.0, ApproximateDP(10.0, 0.25), precision=8).bits_per_client
    270
    """

    def __init__(
        self,
        clients: int,
        coordinates: int,
        bound: float,
        target: PureDP | ApproximateDP,
        *,
        precision: int = 16,
        setting: str = "tight",
    ) -> None:
        self._take(clients, coordinates, bound)
        self.minimum = self.clients
        if isinstance(target, PureDP):
            raise TacitError(
                "shuffled bits have a finite range, hence no guarantee without exceptions: give a "
                "delta, or use secagg"
            )
        self._stated: float | None = None
        if setting == "paper":
            self._printed(target)
        else:
            self.precision = integer("precision", precision, at_least=1)
            self.unit, self.offset = 2 * self.bound / self.precision, -self.bound
            self.noise_bits, self.bias = binomial_noise(
                self.precision, self.coordinates, target, self.clients
            )
            self.guarantee = target.at(view=View.SHUFFLED)
        self.bits_per_client = self.coordinates * (self.precision + self.noise_bits)

    def _printed(self, target: ApproximateDP) -> None:
        """Algorithm 2 (Algorithm 4 for a single coordinate, where ε̂ = ε/2), and its true ε at the
        target's δ.
        """
        epsilon, delta, n, s = target.epsilon, target.delta, self.clients, self.coordinates
        limit = 30 if s == 1 else 15
        if not (epsilon < limit and delta < 0.5):
            raise TacitError(
                f"epsilon is {epsilon:g} and delta {delta:g}; the paper's shuffle noise is proven "
                f"for epsilon < {limit} and delta < 1/2: "
                "use the tight setting, which is exact everywhere"
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
        true = joint_epsilon(self.noise(n), moved, s, delta)
        self.guarantee = ApproximateDP(true, delta, view=View.SHUFFLED)

    def stated(self, std: float) -> float:
        """Paper: the sub-Gaussian parameter of the noise in the mean, from Theorem A.2's proof."""
        return std if self._stated is None else self._stated

    def noise(self, reports: int) -> Binomial:
        """The noise bits of all reports."""
        return Binomial(self.noise_bits * reports, self.bias)

    def randomize(self, vector: npt.ArrayLike) -> list[list[int]]:
        """For each coordinate g + b bits, ones first: as many ones as the level plus the noise bits
        that came up one.
        """
        noise = Binomial(self.noise_bits, self.bias).draw(self.coordinates)
        length = self.precision + self.noise_bits
        ones = [level + int(extra) for level, extra in zip(self.encode(vector), noise, strict=True)]
        return [[1] * count + [0] * (length - count) for count in ones]

    def combine(self, messages: Sequence[Any]) -> OpenedVector:
        """The number of ones with each label; a permutation leaves nothing else."""
        self._check_reports(len(messages))
        return OpenedVector(
            np.array([[sum(bits) for bits in message] for message in messages], dtype=float).sum(
                axis=0
            ),
            len(messages),
        )


class SecureVector(LevelProtocol):
    """Each client adds a share of the noise to every coordinate; secure aggregation opens the sums
    modulo m, and nothing else.

    `noise_kind`: skellam (default; shares add up exactly) or discrete-gaussian; a pure target takes
    Pólya shares of discrete Laplace noise. Shares are made for the reports that are guaranteed to
    arrive (`dropout`). With one client this is the local model on integers.

    >>> SecureVector(1000, 30, 1.0, ApproximateDP(10.0, 0.25)).bits_per_client
    420
    """

    def __init__(
        self,
        clients: int,
        coordinates: int,
        bound: float,
        target: PureDP | ApproximateDP,
        *,
        precision: int = 16,
        noise_kind: str = "skellam",
        dropout: Number = 0,
    ) -> None:
        self._take(clients, coordinates, bound)
        self.minimum = guaranteed_reports(self.clients, dropout)
        self.precision = integer("precision", precision, at_least=1)
        self.unit, self.offset = 2 * self.bound / self.precision, -self.bound
        self.share: NoiseLaw
        if isinstance(target, PureDP):
            self.share = DiscreteLaplace(
                Fraction(self.precision * self.coordinates) / Fraction(target.epsilon)
            ).share(self.minimum)
        elif noise_kind == "skellam":
            self.share = skellam_noise(self.precision, self.coordinates, target).share(self.minimum)
        elif noise_kind == "discrete-gaussian":
            self.share = shared_gaussian_noise(
                self.precision, self.coordinates, target, self.minimum
            )
        else:
            raise TacitError(f"noise is {noise_kind!r}; it must be skellam or discrete-gaussian")
        self.guarantee = target.at(view=View.OPENED_SUM)
        self._top = self.clients * self.precision
        self._spare = self._room()
        self.modulus = self._top + 2 * self._spare + 1
        self.bits_per_client = self.coordinates * (self.modulus - 1).bit_length()

    def _room(self) -> int:
        """How far the noise may leave 0..ng; a Chernoff bound, at the variance of all clients'
        shares.
        """
        std = math.sqrt(self.clients * float(self.share.variance))
        log = math.log(2 / MISREAD)
        rate = math.sqrt(2 * log) / std
        if isinstance(self.share, (Skellam, DiscreteGaussian)):
            return math.ceil((self.clients * float(self.share.log_mgf(rate)) + log) / rate)
        return self.noise(self.clients).bound(MISREAD)

    def noise(self, reports: int) -> NoiseLaw:
        """The sum of all shares that arrived; for discrete Gaussian shares the close law that the
        accounting uses.
        """
        if isinstance(self.share, DiscreteGaussian):
            return DiscreteGaussian(float(self.share.sigma) * math.sqrt(reports))
        return self.share.power(reports)

    def sample_noise(self, rng: np.random.Generator) -> Integers:
        """Skellam and Laplace: one draw of the sum.

        Discrete Gaussian: every share, since their sum is no law of its own.
        """
        if isinstance(self.share, DiscreteGaussian):
            return np.asarray(
                sum(self.share.sample(rng, self.coordinates) for _ in range(self.clients)),
                dtype=np.int64,
            )
        return super().sample_noise(rng)

    def randomize(self, vector: npt.ArrayLike) -> list[int]:
        """(level + share) mod m for each coordinate; shares are drawn before the rewards are
        touched.
        """
        noise = self.share.draw(self.coordinates)
        return [
            (level + int(extra)) % self.modulus
            for level, extra in zip(self.encode(vector), noise, strict=True)
        ]

    def combine(self, messages: Sequence[Any]) -> OpenedVector:
        """The sums modulo m, underflows read as negative."""
        self._check_reports(len(messages))
        total = np.asarray(messages, dtype=np.int64).sum(axis=0) % self.modulus
        return OpenedVector(
            np.where(total > self._top + self._spare, total - self.modulus, total).astype(float),
            len(messages),
        )

    def simulate(self, totals: Integers, rng: np.random.Generator) -> VectorEstimate:
        """As the device path, wrap-around included."""
        opened = (totals + self.sample_noise(rng)) % self.modulus
        return self.analyze(
            OpenedVector(
                np.where(opened > self._top + self._spare, opened - self.modulus, opened).astype(
                    float
                ),
                self.clients,
            )
        )

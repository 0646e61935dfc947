"""Sums of vectors in an l2 ball: every participant holds a vector of length at most C.

The secret is the whole vector. Neighbouring data sets replace it, so the sum moves by at most 2C in
l2 norm in any dimension. Devices randomly round each coordinate to a grid, which moves a vector by
less than a step in each of d coordinates. The sum then moves by at most 2C and 2√d steps. Nearly
Gaussian integer noise is accounted for by its distance from a Gaussian
(`tacit.privacy.gaussian_distance`). One class per trust model, as in `tacit.protocols.vectors`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer, one_of, positive
from tacit.noise import DiscreteGaussian, NoiseDistribution, Skellam
from tacit.privacy import ApproximateDP, Target, ThreatModel, View, state_drawn_arithmetic
from tacit.privacy.accounting import in_distinct_rounds
from tacit.privacy.gaussian_distance import NearlyGaussianLoss
from tacit.privacy.search import least
from tacit.protocols.contract import Protocol, random_level
from tacit.protocols.split_and_mix import shuffled_guarantee
from tacit.protocols.vector_noise import gaussian_ratio, numbers_only, per_participation
from tacit.protocols.vectors import noise_proxy
from tacit.sampling.coins import additive_shares
from tacit.trust import SHUFFLE_SECURITY, split_shares
from tacit.types import Aggregate, Estimate, Floats, Integers, Reports, VectorError

ROUNDING = 0.01  # relative increase of the sensitivity that rounding may cause
CLOSE = 1e-3  # relative excess of the noise over the least
ROOM = 40.0  # standard deviations of noise that the modulus leaves room for
DISTRIBUTIONS: dict[str, type[DiscreteGaussian] | type[Skellam]] = {
    "discrete-gaussian": DiscreteGaussian,
    "skellam": Skellam,
}


@lru_cache(maxsize=4096)
def ball_noise(
    coordinates: int, target: ApproximateDP, kind: str, shares: int = 1
) -> tuple[int, NoiseDistribution]:
    """Steps across the ball, and the least noise per coordinate, in steps, that meets a target;
    with `shares` > 1, as a sum of that many shares.

    The grid is the coarsest power of two on which rounding adds little and noise of this kind is
    close enough to a Gaussian.
    """
    one_of("noise", kind, DISTRIBUTIONS)
    make, steps = DISTRIBUTIONS[kind].of_std, 2
    while 2 * math.sqrt(coordinates) > ROUNDING * steps:
        steps *= 2
    for _ in range(40):
        moved = movement(steps, coordinates)
        start = gaussian_ratio(target) * moved

        def meets(std: float, moved: float = moved) -> bool:
            loss = NearlyGaussianLoss(make(std), moved, coordinates, shares)
            return loss.delta(target.epsilon) <= target.delta

        if meets(start * (1 + CLOSE)):
            return steps, make(least(meets, start * (1 + CLOSE), relative=CLOSE / 4))
        steps *= 2
    raise TacitError(
        f"no {kind} noise for {target.short} was found: use a larger epsilon or delta, or fewer "
        "coordinates"
    )


def movement(steps: int, coordinates: int) -> float:
    """The l2 sensitivity of a sum on the grid, in steps."""
    return steps + 2 * math.sqrt(coordinates)


class BallSum(Protocol):
    """A protocol P = (R, S, A) for sums of vectors of length at most `radius`, `coordinates`
    numbers each.

    A subclass sets `view` and defines `noise` and `view_distribution`; if the server adds the
    noise, also `randomize` and `combine`.
    """

    view: ClassVar[View]
    noise_kind = "discrete-gaussian"
    minimum = 1

    def __init__(self, participants: int, coordinates: int, radius: float, target: Target) -> None:
        if not isinstance(target, ApproximateDP):
            raise TacitError(
                "noise for vectors in a ball is nearly Gaussian, and needs delta > 0: give a "
                "delta, or let clients report actions"
            )
        self.participants = integer("participants", participants, at_least=1)
        self.coordinates = integer("coordinates", coordinates, at_least=1)
        self.radius = float(positive("radius", radius, "the largest length of a vector"))
        self.steps, self.distribution = self._noise(per_participation(target))  # type: ignore[arg-type]
        self.precision, self.unit = self.steps, 2 * self.radius / self.steps
        most = self.participants * (self.steps / 2 + 1) + ROOM * self.noise(participants).std
        self.modulus = 1 << math.ceil(math.log2(2 * most + 1))
        number = self.modulus.bit_length() - 1
        self.bits_per_participant: float = self.coordinates * number * self.shares
        made = self._achieved(target).assuming(*in_distinct_rounds(target))
        self.guarantee = state_drawn_arithmetic(made, self.distribution)

    @cached_property
    def shares(self) -> int:
        """The number of additive shares into which every number of a message is split."""
        return 1

    def _noise(self, each: ApproximateDP) -> tuple[int, NoiseDistribution]:
        return ball_noise(self.coordinates, each, self.noise_kind)

    def _achieved(self, target: ApproximateDP) -> ApproximateDP:
        return numbers_only(target, self.view)

    @abstractmethod
    def noise(self, reports: int) -> NoiseDistribution:
        """The distribution of the noise in one coordinate's sum of this many reports, in steps."""

    def check(self, vector: npt.ArrayLike) -> Floats:
        """The participant's vector, rejected outside the ball, where the guarantee would not
        hold.
        """
        array = np.asarray(vector, dtype=float)
        if array.shape != (self.coordinates,):
            raise TacitError(
                f"the report has shape {array.shape}: must hold {self.coordinates} numbers"
            )
        length = float(np.linalg.norm(array))
        if not length <= self.radius * (1 + 1e-12):
            raise TacitError(
                f"the vector is {length:g} long, beyond {self.radius:g}: shrink it on the device, "
                "as its assignment does"
            )
        return array / (1 + 2e-12)

    def encode(self, vector: npt.ArrayLike) -> list[int]:
        """A participant's coordinates on the grid, randomly rounded in exact arithmetic."""
        unit = Fraction(self.unit)
        return [random_level(Fraction(value) / unit) for value in self.check(vector).tolist()]

    def randomize(self, vector: npt.ArrayLike) -> Any:
        """(level + noise) mod m per coordinate; the noise is drawn before the vector is read."""
        drawn = self.distribution.draw(self.coordinates)
        return [
            (level + int(extra)) % self.modulus
            for level, extra in zip(self.encode(vector), drawn, strict=True)
        ]

    def levels(self, vectors: Floats, rng: np.random.Generator) -> Integers:
        """`encode` for many vectors, one row each, with the caller's generator."""
        scaled = vectors / self.unit
        scaled -= rng.random(scaled.shape)
        return np.ceil(scaled, out=scaled).astype(np.int64)

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sums modulo m."""
        self.check_reports(len(messages))
        columns = zip(*messages, strict=True)
        return Aggregate(tuple(sum(column) % self.modulus for column in columns), len(messages))

    def analyze(self, released: Aggregate) -> Estimate:
        """The estimated sums; random rounding adds at most ¼ of a step squared per report."""
        self.check_reports(released.reports)
        n, half = released.reports, self.modulus // 2
        read = [(value + half) % self.modulus - half for value in released.values]
        distribution, scale = self.noise(n), self.unit / n
        proxy, reach = noise_proxy(distribution)
        numbers = ((proxy + n / 4) * scale**2, reach / scale, distribution.std * scale)
        columns = (np.full(self.coordinates, value) for value in numbers)
        total = np.array(read, dtype=float) * self.unit
        return Estimate(total, VectorError(n, *columns), self.guarantee_id, released.wrapped)

    def simulate(self, load: Reports, rng: np.random.Generator) -> Estimate:
        """The sums of all vectors on the grid with all participants' noise."""
        noisy = load.level_sums(self, rng) + self.sample_noise(rng)
        return self.analyze(Aggregate(tuple((noisy % self.modulus).tolist()), self.participants))

    def sample_noise(self, rng: np.random.Generator) -> Integers:
        """The noise of all participants in every coordinate."""
        drawn = self.noise(self.participants).sample(rng, self.coordinates)
        return np.asarray(drawn, dtype=np.int64)


class CentralBall(BallSum):
    """A trusted server sums vectors and releases noisy sums."""

    view = View.SERVER_OUTPUT

    def noise(self, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """The server's noise."""
        return self.distribution

    def randomize(self, vector: npt.ArrayLike) -> list[int]:
        """The vector on the grid: the server is trusted."""
        return self.encode(vector)

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sums with the server's noise."""
        exact = super().combine(messages)
        drawn = self.distribution.draw(self.coordinates)
        noisy = [
            (value + int(extra)) % self.modulus
            for value, extra in zip(exact.values, drawn, strict=True)
        ]
        return Aggregate(tuple(noisy), exact.reports)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """The server's noise about 0; the data may be any number."""
        return self.distribution


class LocalBall(BallSum):
    """Local model: every participant adds noise that suffices alone."""

    view = View.MESSAGE

    def noise(self, reports: int) -> NoiseDistribution:
        """The total noise of all participants, as the nearby integer distribution."""
        return self.distribution.sum_of_shares(reports)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """One message's noise about 0."""
        return self.distribution


class SecureBall(BallSum):
    """Each participant adds a share of the noise; secure aggregation releases the sums modulo m.

    Shares are made for all participants but one, who may be curious and knows their own share.

    >>> SecureBall(1000, 20, 1.5, ApproximateDP(1.0, 1e-6)).guarantee.short
    '(1, 1e-06)-DP'
    """

    view = View.RELEASED_SUM

    def __init__(
        self,
        participants: int,
        coordinates: int,
        radius: float,
        target: Target,
        *,
        noise_kind: str = "skellam",
    ) -> None:
        self.noise_kind = noise_kind
        self.minimum, self.honest = participants, ThreatModel().honest(participants)
        super().__init__(participants, coordinates, radius, target)

    def _noise(self, each: ApproximateDP) -> tuple[int, NoiseDistribution]:
        divisible = self.noise_kind == "skellam"
        shares = 1 if divisible else self.honest
        steps, total = ball_noise(self.coordinates, each, self.noise_kind, shares)
        return steps, total.approximate_share(self.honest)

    def _achieved(self, target: ApproximateDP) -> ApproximateDP:
        return super()._achieved(target).assuming(*ThreatModel().assumptions())

    def noise(self, reports: int) -> NoiseDistribution:
        """The sum of all shares; for discrete Gaussian shares, the nearby distribution that the
        accounting uses.
        """
        return self.distribution.sum_of_shares(reports)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """The sum of all shares' noise about 0."""
        return self.distribution.sum_of_shares(reports)


class ShuffledBall(SecureBall):
    """`SecureBall` with a shuffler: every number is split into additive shares modulo m.

    The shuffled shares reveal only the sum, up to 2^-60 (`tacit.protocols.split_and_mix`). Needs at
    least 19 participants.
    """

    view = View.SHUFFLED

    @cached_property
    def shares(self) -> int:
        """Number of shares that hides everything but their sum."""
        return split_shares(self.honest, self.modulus, self.security)

    @property
    def security(self) -> int:
        """σ, with a union bound over all coordinates."""
        return SHUFFLE_SECURITY + math.ceil(math.log2(self.coordinates))

    def _noise(self, each: ApproximateDP) -> tuple[int, NoiseDistribution]:
        """Subtracts the shuffler's part of δ first."""
        slack = shuffled_guarantee(each, SHUFFLE_SECURITY).delta - each.delta
        if slack >= each.delta:
            raise TacitError(
                f"delta is {each.delta:g}; splitting for a shuffler alone costs {slack:.2g}: use "
                "a larger delta, or secure aggregation"
            )
        return super()._noise(ApproximateDP(each.epsilon, each.delta - slack))

    def randomize(self, vector: npt.ArrayLike) -> Any:
        """One row of shares per coordinate."""
        numbers = super().randomize(vector)
        return [additive_shares(number, self.shares, self.modulus) for number in numbers]

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sum of all shares per label, modulo m."""
        return super().combine([[sum(row) for row in message] for message in messages])

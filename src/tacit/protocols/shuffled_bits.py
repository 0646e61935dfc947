"""Shuffled bits: the server sees only the number of ones.

Each user encodes the level as ones out of g bits and adds noise bits of a common bias; a shuffler
permutes the bits of all users. TKMS21 Algorithm 3 is the case g = 1; LZJ22 Algorithm 4 and ZC24
Algorithm 7 are the general one. Calibration is exact, on the number of ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.errors import Number, TacitError, integer
from tacit.noise import Binomial, Table
from tacit.noise.table import convolution_power
from tacit.privacy import ONE_CURIOUS, ApproximateDP, ThreatModel, View, calibrate, checked_target
from tacit.protocols.contract import SumProtocol
from tacit.types import Aggregate, ErrorDistribution, Integers


class ShuffledBits(SumProtocol):
    """g data bits and `noise_bits` noise bits of bias `bias` from each user, shuffled together.

    The guarantee covers the shuffled bits, from `minimum` reports on; more reports only add noise.
    The noise of `honest` reports is certain to be unknown to the adversary.

    >>> target = ApproximateDP(1.0, 1e-5)
    >>> protocol = ShuffledBits(100, 1, *shuffle_noise(99, 1, target), target)
    >>> protocol.bits_per_participant, round(protocol.error(100).variance, 1)
    (2, 20.3)
    """

    def __init__(
        self,
        participants: int,
        precision: int,
        noise_bits: int,
        bias: Number,
        target: ApproximateDP,
        *,
        threat: ThreatModel = ONE_CURIOUS,
        order: float | None = None,
    ) -> None:
        self._for(participants, precision)
        self.minimum = threat.reports(self.participants)
        self.honest = threat.honest(self.participants)
        self.noise_bits = integer("noise_bits", noise_bits, at_least=1)
        self.share = Binomial(self.noise_bits, bias)
        self.bias = Fraction(bias)
        self.guarantee = checked_target(
            Binomial(self.noise_bits * self.honest, self.bias),
            self.precision,
            target,
            View.SHUFFLED,
            *threat.assumptions(),
            order=order,
        )
        self.bits_per_participant = self.precision + self.noise_bits

    def error(self, reports: int) -> ErrorDistribution:
        """The noise bits of all reports that arrive."""
        return ErrorDistribution(
            reports, self.precision, Binomial(self.noise_bits * reports, self.bias)
        )

    def randomize(self, x: float) -> list[int]:
        """g + b bits, ones first; the number of ones is the level plus the number of noise bits
        that are one.
        """
        noise = self.share.draw()
        ones = self.encode(x) + noise
        return [1] * ones + [0] * (self.precision + self.noise_bits - ones)

    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Integers:
        """The number of ones that each user sends."""
        result: Integers = levels + self.share.sample(rng, len(levels))
        return result

    def combine(self, messages: Any) -> Aggregate:
        """The number of ones among all bits, the only information that a permutation preserves.

        Takes lists of bits, or numbers of ones.
        """
        self.check_reports(len(messages))
        if isinstance(messages, np.ndarray):
            return Aggregate((int(messages.sum()),), len(messages))
        return Aggregate((sum(sum(bits) for bits in messages),), len(messages))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        noise = int(rng.binomial(self.noise_bits * reports, float(self.bias)))
        return Aggregate((total + noise,), reports)

    def view_distribution(self, total: int, reports: int) -> Table:
        """The number of ones among all bits."""
        start, ones = convolution_power(self.share, reports)
        return Table.of(start + total, ones)

    @property
    def reach(self) -> tuple[float, float]:
        """All bits of a report zero, or all of them one, minus the expected noise."""
        expected = float(self.noise_bits * self.bias)
        most = self.precision + self.noise_bits - expected
        return -expected / self.precision, most / self.precision

    def _sum(self, released: Aggregate) -> float:
        return float(released.value - released.reports * self.noise_bits * self.bias)


GRID = (
    2 ** (1 / 4)
    # ratio of the grid of batch sizes for calibration, rounded down: at most a fifth more noise
    # variance
)
# smaller sizes are calibrated individually: a grid of integers would cost them up to half
COARSEST = 16


def labelled_bits(ones: Sequence[int], length: int) -> list[list[int]]:
    """One row of `length` bits per label: ones first, since the shuffler permutes them.

    >>> labelled_bits([1, 0], 2)
    [[1, 0], [0, 0]]
    """
    return [[1] * count + [0] * (length - count) for count in ones]


def ones_by_label(messages: Sequence[Sequence[Sequence[int]]]) -> Aggregate:
    """The number of ones per label, the only information that a permutation preserves."""
    ones = np.array([[sum(bits) for bits in message] for message in messages])
    return Aggregate(tuple(ones.sum(axis=0).tolist()), len(messages))


@lru_cache(maxsize=4096)
def shuffle_noise(
    users: int, precision: int, target: ApproximateDP, *, exact: bool = True
) -> tuple[int, Fraction]:
    """The fewest noise bits per user and their bias for the target at `users` honest reports.

    With `exact=False` the bias is that of the next smaller size on a grid, so that sizes share
    calibrations. More bits of the same bias only add noise, which cannot weaken the guarantee.
    """
    size = users
    if not exact and users >= COARSEST:
        step = math.floor(math.log(users, GRID)) + 1
        size = next(
            point
            for point in (math.floor(GRID ** (step - back)) for back in range(3))
            if point <= users
        )
    result = calibrate("binomial", precision, target, users=size)
    bias = getattr(result.distribution, "p", None)
    if result.bits_per_user is None or bias is None:
        raise TacitError("calibration of binomial noise returned no number of bits per user")
    return result.bits_per_user, Fraction(bias)


def tkms21_noise(users: int, target: ApproximateDP) -> tuple[int, Fraction]:
    """TKMS21 Algorithm 3: ⌈τ/n⌉ fair bits up to τ users, then one bit of bias τ/2n; τ = 96
    ln(2/δ)/ε².
    """
    if target.epsilon >= 1:
        raise TacitError(
            f"epsilon is {target.epsilon:g}; TKMS21's noise is proven for epsilon < 1: use "
            "tight constants, exact at every epsilon"
        )
    tau = 96 * math.log(2 / target.delta) / target.epsilon**2
    if users <= tau:
        return (math.ceil(tau / users), Fraction(1, 2))
    return (1, Fraction(tau / (2 * users)))

"""Randomized response: every participant sends one bit that is flipped at random (local model).

The bit is kept with probability e^ε / (1 + e^ε) (Warner 1965), exactly, without floating point. The
rescaled sum of the sent bits estimates the sum of bits. Its variance is half that of discrete
Laplace noise of the same ε, in one bit instead of five to eleven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer
from tacit.noise import Table
from tacit.noise.chernoff import tail_radius
from tacit.noise.serialize import register
from tacit.noise.table import sum_of_bits
from tacit.privacy import PureDP, View, state_drawn_arithmetic
from tacit.privacy.accounting import with_epsilon
from tacit.privacy.calibration import LARGEST_EPSILON
from tacit.protocols.contract import SumProtocol
from tacit.sampling.draws import HALF, flip_response
from tacit.types import Aggregate, ErrorDistribution, Floats, Integers


@register
@dataclass(frozen=True)
class RandomizedResponseError:
    """The error of the estimated sum of `reports` bits at ε.

    The bound holds for any bits, because the noise of a one is the mirrored noise of a zero.

    >>> round(RandomizedResponseError(1, Fraction(1)).variance, 3)
    0.921
    """

    reports: int
    epsilon: Fraction
    mean = 0.0

    @cached_property
    def flip_probability(self) -> float:
        """The probability that a bit is flipped: 1 / (1 + e^ε)."""
        rare = math.exp(-float(self.epsilon))
        return rare / (1 + rare)

    @cached_property
    def stretch(self) -> float:
        """The factor that debiases a sent bit."""
        return 1 / math.tanh(float(self.epsilon) / 2)

    @cached_property
    def variance(self) -> float:
        """e^-ε / (1 - e^-ε)² = 1 / (4 sinh²(ε/2)) per report, exactly, for any bits."""
        epsilon = float(self.epsilon)
        return self.reports * math.exp(-epsilon) / math.expm1(-epsilon) ** 2

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """The larger centred log moment generating function of the two bit values, times
        `reports`.
        """
        scaled = np.asarray(s, dtype=float) * self.stretch
        flip, kept = self.flip_probability, math.log1p(-self.flip_probability)
        rare = kept - float(self.epsilon)
        both = [np.logaddexp(kept, rare + u) - flip * u for u in (scaled, -scaled)]
        return np.asarray(self.reports * np.maximum(*both))

    def bound(self, p: float) -> float:
        """A t with P[|X| > t] <= p, from the moment generating function."""
        return tail_radius(self, p)


class RandomizedBits(SumProtocol):
    """Randomized response on one bit per participant; real rewards are randomly rounded to bits.

    >>> RandomizedBits(100, PureDP(1.0)).guarantee.short
    '(1, 0)-DP'
    """

    minimum = precision = bits_per_participant = 1

    def __init__(self, participants: int, target: PureDP) -> None:
        self.participants = integer("participants", participants, at_least=1)
        self.modulus = self.participants + 1
        self.epsilon = Fraction(target.epsilon) / target.participations
        if self.epsilon > LARGEST_EPSILON:
            raise TacitError(
                f"epsilon is {float(self.epsilon):g} for a bit; above {LARGEST_EPSILON} it gives "
                "no meaningful privacy: use a smaller epsilon"
            )
        self.guarantee = state_drawn_arithmetic(
            with_epsilon(target.epsilon, target, View.MESSAGE), HALF
        )
        self._flips = RandomizedResponseError(self.participants, self.epsilon)

    def error(self, reports: int) -> ErrorDistribution:
        """The error of all random flips."""
        return ErrorDistribution(reports, 1, RandomizedResponseError(reports, self.epsilon))

    @property
    def reach(self) -> tuple[float, float]:
        """The debiased values of a zero and of a one: a poisoned report is one of the two."""
        flip, stretch = self._flips.flip_probability, self._flips.stretch
        return -flip * stretch, (1 - flip) * stretch

    def randomize(self, x: float) -> int:
        """The bit, flipped with probability 1 / (1 + e^ε); the flip is drawn before the bit is
        read.
        """
        flip = self.flip()
        return self.encode(x) ^ flip

    def flip(self) -> bool:
        """True with probability exactly 1 / (1 + e^ε)."""
        return flip_response(self.epsilon)

    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Integers:
        """The bits that all participants send."""
        sent: Integers = levels ^ (rng.random(len(levels)) < self._flips.flip_probability)
        return sent

    def combine(self, messages: Any) -> Aggregate:
        """The number of ones sent."""
        self.check_reports(len(messages))
        return Aggregate((int(np.sum(messages)),), len(messages))

    def view_distribution(self, total: int, reports: int) -> Table:  # noqa: ARG002
        """One message of a participant with this bit."""
        flip = self._flips.flip_probability
        one = 1 - flip if total else flip
        return Table.of(0, np.array([1 - one, one]))

    def released_distribution(self, total: int, reports: int) -> Table:
        """The number of ones among all messages."""
        flip = self._flips.flip_probability
        return sum_of_bits((total, 1 - flip), (reports - total, flip))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        flip = self._flips.flip_probability
        ones = rng.binomial(total, 1 - flip) + rng.binomial(reports - total, flip)
        return Aggregate((int(ones),), reports)

    def _sum(self, released: Aggregate) -> float:
        flips = self._flips
        return float((released.value - released.reports * flips.flip_probability) * flips.stretch)

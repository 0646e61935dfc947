"""Baselines on real-valued sums: no privacy, and a trusted server with continuous Laplace noise.

They serve for comparison only: floating-point Laplace noise is not safe to release (Mironov 2012).
Rewards are randomly rounded to 1,024 levels, which leaves means unchanged and adds less than a
millionth to a variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError
from tacit.noise import Table
from tacit.privacy import PureDP, View, state_drawn_arithmetic
from tacit.privacy.accounting import with_epsilon
from tacit.protocols.contract import SumProtocol, plain_levels
from tacit.types import Aggregate, ErrorDistribution, Floats

FINE = 1024


@dataclass(frozen=True)
class Laplace:
    """Continuous Laplace noise, for simulation."""

    scale: float
    continuous: ClassVar[Literal[True]] = True

    @property
    def mgf_radius(self) -> float:
        """1/scale: the moment generating function exists below it."""
        return 1 / self.scale

    def sample_sum(self, rng: np.random.Generator, count: int, size: tuple[int, ...]) -> Floats:
        """Sums of `count` values each, as differences of two Gamma(count) variables."""
        ups, downs = (rng.standard_gamma(count, size) for _ in range(2))
        return np.asarray(self.scale * (ups - downs))

    @property
    def mean(self) -> float:
        """Zero."""
        return 0.0

    @property
    def variance(self) -> float:
        """2 scale²."""
        return 2 * self.scale**2

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """-ln(1 - s² scale²), for |s| < 1/scale."""
        square = (np.asarray(s, dtype=float) * self.scale) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(square < 1, -np.log1p(-square), np.inf)

    def bound(self, p: float) -> float:
        """scale · ln(1/p)."""
        return self.scale * math.log(1 / p)


class Exact(SumProtocol):
    """No privacy: the server sees the exact sum. For reference algorithms only."""

    minimum = 1
    guarantee = None
    reach = (0.0, 1.0)  # the server sees every level and rejects anything else

    def __init__(self, participants: int, precision: int = FINE) -> None:
        self._for(participants, precision)
        self.bits_per_participant = self.precision.bit_length()

    def error(self, reports: int) -> ErrorDistribution:
        """No noise."""
        return ErrorDistribution(reports, self.precision, None)

    randomize = SumProtocol.encode
    randomize_batch = plain_levels

    def combine(self, messages: Any) -> Aggregate:
        """The sum."""
        self.check_reports(len(messages))
        return Aggregate((int(np.asarray(messages, dtype=np.int64).sum()),), len(messages))

    def view_distribution(self, total: int, reports: int) -> Table:  # noqa: ARG002
        """The sum, with probability 1."""
        return Table.of(total, np.ones(1))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:  # noqa: ARG002
        return Aggregate((total,), reports)

    def _sum(self, released: Aggregate) -> float:
        return float(released.value)


class CentralLaplace(SumProtocol):
    """A trusted server adds continuous Laplace noise of scale 1/ε to the sum (Sajed & Sheffet
    2019).
    """

    minimum = 1
    reach = (0.0, 1.0)  # the server sees every level and rejects anything else

    def __init__(self, participants: int, target: PureDP, precision: int = FINE) -> None:
        self._for(participants, precision)
        self.bits_per_participant = self.precision.bit_length()
        self.noise = Laplace(self.precision * target.participations / target.epsilon)
        made = with_epsilon(target.epsilon, target, View.SERVER_OUTPUT)
        self.guarantee = state_drawn_arithmetic(made, self.noise)

    def error(self, reports: int) -> ErrorDistribution:
        """The server's noise."""
        return ErrorDistribution(reports, self.precision, self.noise)

    randomize = SumProtocol.encode
    randomize_batch = plain_levels

    def combine(self, messages: Any) -> Aggregate:
        """The sum with noise from a fresh NumPy generator, seeded by the operating system."""
        return self.combine_batch(messages, np.random.default_rng())

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Aggregate:
        """The sum with the server's noise from the caller's generator."""
        self.check_reports(len(messages))
        return self._open(int(np.asarray(messages, dtype=np.int64).sum()), len(messages), rng)

    def view_distribution(self, total: int, reports: int) -> Table:
        """Always raises TacitError: floating-point noise has no exact distribution to derive a
        guarantee from.
        """
        raise TacitError(
            f"continuous Laplace noise has no exact distribution (for a sum of {total} of "
            f"{reports} reports): use it for comparison only"
        )

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        # units of 2^-20 of a level: finer than the error of floating-point noise
        noisy = total + rng.laplace(scale=self.noise.scale)
        return Aggregate((round(noisy * (1 << 20)),), reports)

    def _sum(self, released: Aggregate) -> float:
        return float(released.value / (1 << 20))

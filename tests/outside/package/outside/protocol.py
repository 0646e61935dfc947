"""Randomized response: each bit is told truly with probability e^ε / (1 + e^ε)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from tacit.noise import Chance, NoiseDistribution, Table
from tacit.noise.chernoff import tail_radius
from tacit.noise.table import convolve
from tacit.privacy import PureDP, View
from tacit.protocols.contract import SumProtocol
from tacit.types import Aggregate, ErrorDistribution


class Response(SumProtocol):
    minimum = 1
    precision = 1
    bits_per_participant = 1

    def __init__(self, participants: int, epsilon: float) -> None:
        self.participants = participants
        self.lie = Fraction(1 / (1 + math.exp(epsilon)))
        self.keep = 1 - 2 * float(self.lie)
        truth = math.log((1 - self.lie) / self.lie)
        self.guarantee = PureDP(math.nextafter(max(truth, epsilon), 9.0), view=View.MESSAGE)

    def randomize(self, x: float) -> int:
        return self.encode(x) ^ Chance(self.lie).flip()

    def randomize_batch(self, levels: Any, rng: np.random.Generator) -> Any:
        return levels ^ (rng.random(len(levels)) < float(self.lie))

    def combine(self, messages: Any) -> Aggregate:
        self.check_reports(len(messages))
        return Aggregate((int(np.sum(messages)),), len(messages))

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        heads = 1 - float(self.lie) if total else float(self.lie)
        return Table.of(0, np.array([1 - heads, heads]))

    def released_distribution(self, total: int, reports: int) -> NoiseDistribution:
        ones = [self.view_distribution(int(place < total), 1) for place in range(reports)]
        return reduce(convolve, ones)

    def error(self, reports: int) -> ErrorDistribution:
        return ErrorDistribution(reports, 1, Lies(reports, float(self.lie)))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        true = rng.binomial(total, 1 - float(self.lie))
        return Aggregate((int(true + rng.binomial(reports - total, float(self.lie))),), reports)

    def _sum(self, released: Aggregate) -> float:
        return float((released.value - released.reports * float(self.lie)) / self.keep)


def response(participants: int, epsilon: float) -> Response:
    return Response(participants, epsilon)


@dataclass(frozen=True)
class Lies:
    """The error of the estimated sum: bounds for all bits, since a one's coin mirrors a zero's."""

    reports: int
    lie: float
    mean = 0.0

    @property
    def variance(self) -> float:
        return self.reports * self.lie * (1 - self.lie) / (1 - 2 * self.lie) ** 2

    def log_mgf(self, s: Any) -> Any:
        t = np.asarray(s, dtype=float) / (1 - 2 * self.lie)
        truth, lie = math.log1p(-self.lie), math.log(self.lie)
        coins = [np.logaddexp(truth, lie + u) - self.lie * u for u in (t, -t)]
        return self.reports * np.maximum(*coins)

    def bound(self, p: float) -> float:
        return tail_radius(self, p)

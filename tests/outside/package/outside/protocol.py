"""Randomized response: each bit is told truly with probability e^ε / (1 + e^ε)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.estimates import ErrorLaw, Opened
from tacit.noise import Chance, NoiseLaw, Table
from tacit.privacy import PureDP, View
from tacit.protocols.contract import SumProtocol


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

    def combine(self, messages: Any) -> Opened:
        self.check_reports(len(messages))
        return Opened((int(np.sum(messages)),), len(messages))

    def view_law(self, total: int, reports: int) -> NoiseLaw:
        heads = 1 - float(self.lie) if total else float(self.lie)
        return Table.of(0, np.array([1 - heads, heads]))

    def error(self, reports: int) -> ErrorLaw:
        return ErrorLaw(reports, 1, Lies(reports, float(self.lie)))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Opened:
        true = rng.binomial(total, 1 - float(self.lie))
        return Opened((int(true + rng.binomial(reports - total, float(self.lie))),), reports)

    def _sum(self, opened: Opened) -> float:
        return float((opened.value - opened.reports * float(self.lie)) / self.keep)


def response(participants: int, epsilon: float) -> Response:
    return Response(participants, epsilon)


class Lies:
    """The error of the estimated sum, whatever the bits: centred coins, stretched."""

    mean = 0.0

    def __init__(self, reports: int, lie: float) -> None:
        self.reports, self.lie = reports, lie
        self.variance = reports * lie * (1 - lie) / (1 - 2 * lie) ** 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lies) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.reports, self.lie))

    def log_mgf(self, s: Any) -> Any:
        return self.variance * np.asarray(s, dtype=float) ** 2 / 2

    def bound(self, p: float) -> float:
        return math.sqrt(2 * self.variance * math.log(2 / p))

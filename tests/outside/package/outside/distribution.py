"""Noise that is zero or a fair sign: P[-1] = P[1] = p/2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.errors import Number
from tacit.noise import Chance, NoiseDistribution, Table
from tacit.noise.distribution import no_power
from tacit.noise.table import convolution_power


@dataclass(frozen=True)
class Sign(NoiseDistribution):
    p: Fraction
    kind = "sign"

    @property
    def mean(self) -> float:
        return 0.0

    @property
    def variance(self) -> float:
        return float(self.p)

    @property
    def support(self) -> tuple[float, float]:
        return -1, 1

    log_concave = False

    def log_pmf(self, k: Any) -> Any:
        points = np.abs(np.asarray(k))
        ends, middle = math.log(self.p / 2), math.log(1 - self.p)
        return np.where(points == 0, middle, np.where(points == 1, ends, -np.inf))

    def log_mgf(self, s: Any) -> Any:
        return np.log1p(float(self.p) * (np.cosh(np.asarray(s, dtype=float)) - 1))

    def power(self, times: Number) -> NoiseDistribution:
        if times != int(times):
            raise no_power(self, times, "a sign does not divide")
        return self if times == 1 else Table.of(*convolution_power(self, int(times)))

    def sample(self, rng: np.random.Generator, size: Any = None) -> Any:
        u = rng.random(size)
        return (u < float(self.p)).astype(np.int64) * np.where(u < float(self.p) / 2, -1, 1)

    def _draw_one(self) -> int:
        return (1 if Chance(Fraction(1, 2)).flip() else -1) if Chance(self.p).flip() else 0

"""Assignments in which devices choose by a published policy; vectorised for simulation.

The policies themselves, which a device follows, are in `tacit.contextual.policies`. Given the same
random numbers, `chosen` here and `choose` there pick the same options.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit.contextual.policies import ONE, LinearPolicy, TablePolicy
from tacit.types import DeviceChoice, Floats, Integers, Visitors


@dataclass(frozen=True)
class LinearChoice(DeviceChoice):
    """Thompson draws from a linear model; each device reports moments.

    Parameters
    ----------
    mean, roots, paused
        As for `LinearPolicy`.
    weight
        The weight of x (y - ½) in the moments.
    """

    mean: tuple[float, ...]
    roots: tuple[tuple[tuple[float, ...], ...], ...]
    paused: tuple[int, ...]
    weight: float

    @property
    def coordinates(self) -> int:
        """d + d (d + 1) / 2."""
        d = len(self.mean)
        return d + d * (d + 1) // 2

    @property
    def policy(self) -> LinearPolicy:
        """The published policy, as devices evaluate it."""
        return LinearPolicy(self.mean, self.roots, self.paused)

    def published(self) -> bytes:
        """Mean and roots in single precision, as simulated devices use them."""
        return self.policy.encode()

    def draws(self, count: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Drawn parameters, one row per device."""
        d = len(self.mean)
        drawn = rng.standard_normal((count, d), dtype=np.float32)
        sizes = rng.multinomial(count, np.full(len(self.roots), 1 / len(self.roots)))
        start = 0
        for size, root in zip(sizes.tolist(), self.roots, strict=True):
            part = drawn[start : start + size]
            drawn[start : start + size] = part @ np.array(root, dtype=np.float32).T
            start += size
        drawn += np.array(self.mean, dtype=np.float32)
        return drawn

    def options(self, visitors: Visitors, rng: np.random.Generator) -> npt.NDArray[np.intp]:
        """Every device draws a parameter of its own."""
        features = visitors.features
        return self.chosen(features, self.draws(len(features), rng))

    def chosen(
        self, features: npt.NDArray[np.float32], drawn: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.intp]:
        """The option of each device: features are devices × options × dimensions."""
        value = np.einsum("nkd,nd->nk", features, drawn)
        if self.paused:
            value[:, list(self.paused)] = -np.inf
        return np.asarray(value.argmax(axis=1))


@dataclass(frozen=True)
class CornerChoice(LinearChoice):
    """Thompson draws from a linear model; each device reports a corner and its outcome.

    Parameters
    ----------
    corners
        The number of corners; the rest is as for `LinearChoice`, with a weight of 1.
    """

    corners: int

    @property
    def coordinates(self) -> int:
        """Two cells per corner."""
        return 2 * self.corners


@dataclass(frozen=True)
class TableChoice(DeviceChoice):
    """Probabilities of options by segment; each device reports its cell.

    Parameters
    ----------
    weights
        As for `TablePolicy`.
    """

    weights: tuple[tuple[int, ...], ...]
    weight = 1.0

    @property
    def coordinates(self) -> int:
        """Two cells per segment and option."""
        return 2 * len(self.weights) * len(self.weights[0])

    @property
    def policy(self) -> TablePolicy:
        """The published policy, as devices evaluate it."""
        return TablePolicy(self.weights)

    def published(self) -> bytes:
        """Four bytes per weight."""
        return self.policy.encode()

    @cached_property
    def probabilities(self) -> Floats:
        """Segments × options."""
        return np.array(self.weights, dtype=float) / ONE

    def options(self, visitors: Visitors, rng: np.random.Generator) -> npt.NDArray[np.intp]:
        """Every device draws an option of its own."""
        segments = visitors.segments
        return self.chosen(segments, rng.integers(0, ONE, len(segments)))

    def chosen(self, segments: Integers, drawn: Integers) -> npt.NDArray[np.intp]:
        """The option of each device, from integers below 65,536."""
        ends = np.cumsum(np.array(self.weights), axis=1)
        return np.asarray((drawn[:, None] >= ends[segments]).sum(axis=1))

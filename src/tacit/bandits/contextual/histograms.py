"""Released histograms of all rounds, of tables and of corners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from tacit.types import Floats

FARTHEST = 30.0  # largest tilt of a moment generating function
PER_ROUND = ("people", "noise", "proxy", "reach")


@dataclass(frozen=True, eq=False)
class Histograms:
    """Released histograms of all rounds.

    Parameters
    ----------
    wins, losses
        Noisy counts, rounds × cells.
    people
        Participants per round.
    noise
        Variance of the noise in a cell, per round.
    proxy, reach
        ln E[e^{t · noise}] <= t² · proxy / 2 for |t| <= reach, per round.
    """

    wins: Floats
    losses: Floats
    people: Floats
    noise: Floats
    proxy: Floats
    reach: Floats

    @classmethod
    def empty(cls, *cells: int) -> Self:
        """No round yet, of histograms with cells of this shape."""
        return cls.from_dict({one.name: () for one in fields(cls)}, cells)

    def with_round(self, error: Any, **counts: Floats) -> Self:
        """With the counts of another round, whose noise its error distribution states."""
        participants = int(error.participants)
        new: dict[str, Any] = {
            "people": participants,
            "noise": (float(error.stated[0]) * participants) ** 2,
            "proxy": float(error.proxies[0]) * participants**2,
            "reach": min(float(error.reaches[0]) / participants, FARTHEST),
        }
        return type(self)(
            **{
                name: np.concatenate([getattr(self, name), np.asarray(one, dtype=float)[None]])
                for name, one in (counts | new).items()
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """The histograms as plain data."""
        return {one.name: getattr(self, one.name).tolist() for one in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], cells: Sequence[int]) -> Self:
        """The histograms that `to_dict` serialised, with cells of this shape."""
        shapes = {one.name: () if one.name in PER_ROUND else cells for one in fields(cls)}
        return cls(
            **{
                name: np.array(data[name], dtype=float).reshape(-1, *shape)
                for name, shape in shapes.items()
            }
        )

"""Policies that a round publishes and a device follows: Thompson draws on the device.

A `LinearPolicy` has an estimated parameter and square roots of its covariance. A device draws one
of the roots, a parameter from the normal distribution that it stands for, and picks the option
with the largest predicted reward. The roots belong to parts of a round: later ones are smaller,
as if the earlier parts' data were known already. A `TablePolicy` has the probability of every
option in every segment.

The draws decide what a participant is offered and protect nobody, so they may be floating point.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tacit.errors import TacitError, integer, require

ONE = 1 << 16  # probabilities of a table policy are multiples of 1/ONE
WEIGHT_SIZE = 4
MOST_PARTS = 16  # of a round, in an encoded linear policy
_HEAD = struct.Struct(">BB")
_OPTION = struct.Struct(">H")


@dataclass(frozen=True)
class LinearPolicy:
    """Thompson sampling with a linear model of rewards.

    Parameters
    ----------
    mean : tuple of float
        The estimated parameter, for features of length at most 1.
    roots : tuple
        Square matrices R; a device draws one of them and the parameter mean + R z, with z standard
        normal.
    paused : tuple of int
        Options that are not chosen.

    Examples
    --------
    >>> policy = LinearPolicy((0.0, 0.1), (((0.1, 0.0), (0.0, 0.1)),))
    >>> policy.choose([(10, 0), (10, 5)], part=0, normals=(0.0, 0.0))
    1
    """

    mean: tuple[float, ...]
    roots: tuple[tuple[tuple[float, ...], ...], ...]
    paused: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        size = len(self.mean)
        shapes = {(len(root), *(len(row) for row in root)) for root in self.roots}
        if not self.roots or shapes != {(size, *[size] * size)}:
            raise TacitError(f"roots of the policy must be {size} by {size} matrices, one or more")

    def choose(
        self, features: Sequence[Sequence[float]], part: int, normals: Sequence[float]
    ) -> int:
        """The option for these features, part of the round and standard normal numbers.

        Parameters
        ----------
        features : sequence
            One vector per option; a common scale does not matter.
        part : int
            The drawn root.
        normals : sequence of float
            Drawn standard normal numbers, one per feature.

        Returns
        -------
        int
            The option with the largest prediction, the first of equal ones.
        """
        drawn = list(self.mean)
        for place, row in enumerate(self.roots[part]):
            for factor, normal in zip(row, normals, strict=True):
                drawn[place] += factor * normal
        best, found = -1, 0.0
        for option, vector in enumerate(features):
            if option in self.paused:
                continue
            value = 0.0
            for a, b in zip(vector, drawn, strict=True):
                value += a * b
            if best < 0 or value > found:
                best, found = option, value
        if best < 0:
            raise TacitError("all options are paused: there is none to choose")
        return best

    def draw(self, features: Sequence[Sequence[float]]) -> int:
        """The option for these features, with randomness of the operating system."""
        source = random.SystemRandom()
        part = source.randrange(len(self.roots))
        return self.choose(features, part, [source.gauss(0.0, 1.0) for _ in self.mean])

    def encode(self) -> bytes:
        """The policy as bytes, for the announcement of a round.

        Numbers of parts and of paused options (one byte each), paused options (two bytes each),
        then mean and roots, row by row, as big-endian single-precision floats.

        >>> LinearPolicy((0.5,), (((1.0,),),), (1,)).encode().hex()
        '010100013f0000003f800000'
        """
        numbers = [*self.mean, *(x for root in self.roots for row in root for x in row)]
        return b"".join(
            (
                _HEAD.pack(len(self.roots), len(self.paused)),
                *(_OPTION.pack(option) for option in self.paused),
                struct.pack(f">{len(numbers)}f", *numbers),
            )
        )

    @classmethod
    def decode(cls, data: bytes, dimension: int, options: int) -> Self:
        """Parse an encoded policy for this number of features and options."""
        require(len(data) >= _HEAD.size, "policy", f"{len(data)} bytes long", "2 bytes or longer")
        parts, count = _HEAD.unpack_from(data)
        require(1 <= parts <= MOST_PARTS, "number of parts", parts, f"from 1 to {MOST_PARTS}")
        many, start = dimension * (1 + parts * dimension), _HEAD.size + count * _OPTION.size
        size = start + 4 * many
        require(len(data) == size, "policy", f"{len(data)} bytes long", f"{size} bytes long")
        paused = tuple(one for (one,) in _OPTION.iter_unpack(data[_HEAD.size : start]))
        known = len({*paused, *range(options)}) == options and len(set(paused)) == count < options
        require(known, "paused options", list(paused), f"distinct, of {options}, but not all")
        numbers = struct.unpack_from(f">{many}f", data, start)
        finite = all(map(math.isfinite, numbers))
        require(finite, "policy", "not finite", "finite numbers")
        rows = [numbers[at : at + dimension] for at in range(dimension, many, dimension)]
        roots = (tuple(rows[at : at + dimension]) for at in range(0, len(rows), dimension))
        return cls(numbers[:dimension], tuple(roots), paused)

    def to_dict(self) -> dict[str, Any]:
        """The policy as plain data."""
        return {
            "mean": list(self.mean),
            "roots": [[list(row) for row in root] for root in self.roots],
            "paused": list(self.paused),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The policy that `to_dict` wrote."""
        roots = tuple(tuple(tuple(row) for row in root) for root in data["roots"])
        return cls(tuple(data["mean"]), roots, tuple(data["paused"]))


@dataclass(frozen=True)
class TablePolicy:
    """The probability of every option in every segment.

    Parameters
    ----------
    weights : tuple
        One row per segment: probabilities as integers that sum to 65,536.

    Examples
    --------
    >>> policy = TablePolicy(((16384, 49152), (65536, 0)))
    >>> policy.choose(0, 20_000), policy.choose(1, 65_535)
    (1, 0)
    """

    weights: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for place, row in enumerate(self.weights):
            if sum(row) != ONE or min(row) < 0:
                raise TacitError(
                    f"weights of segment {place} are {list(row)}: must be 0 or more and sum to "
                    f"{ONE:,}"
                )

    def choose(self, segment: int, draw: int) -> int:
        """The option in a segment for an integer drawn from 0 to 65,535."""
        holds = 0 <= segment < len(self.weights)
        if not holds:
            raise TacitError(f"segment is {segment}: must be 0 to {len(self.weights) - 1}")
        left = integer("drawn", draw, at_least=0)
        for option, weight in enumerate(self.weights[segment]):
            if left < weight:
                return option
            left -= weight
        raise TacitError(f"drawn is {draw}: must be below {ONE:,}")

    def draw(self, segment: int) -> int:
        """The option in a segment, with randomness of the operating system."""
        return self.choose(segment, random.SystemRandom().randrange(ONE))

    def encode(self) -> bytes:
        """The policy as bytes, for the announcement of a round: four per weight.

        >>> TablePolicy(((65536, 0),)).encode().hex()
        '0001000000000000'
        """
        return b"".join(
            weight.to_bytes(WEIGHT_SIZE, "big") for row in self.weights for weight in row
        )

    @classmethod
    def decode(cls, data: bytes, segments: int, options: int) -> Self:
        """Parse an encoded policy for this number of segments and options."""
        size = segments * options * WEIGHT_SIZE
        require(len(data) == size, "policy", f"{len(data)} bytes long", f"{size} bytes long")
        numbers = [
            int.from_bytes(data[at : at + WEIGHT_SIZE], "big") for at in range(0, size, WEIGHT_SIZE)
        ]
        rows = (tuple(numbers[at : at + options]) for at in range(0, len(numbers), options))
        return cls(tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """The policy as plain data."""
        return {"weights": [list(row) for row in self.weights]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The policy that `to_dict` wrote."""
        return cls(tuple(tuple(row) for row in data["weights"]))


def shares_of(probabilities: Sequence[float]) -> tuple[int, ...]:
    """Probabilities as integers that sum to 65,536, by largest remainders.

    >>> shares_of((0.5, 0.25, 0.25))
    (32768, 16384, 16384)
    """
    total = sum(probabilities)
    scaled = [ONE * max(p, 0.0) / total for p in probabilities]
    parts = [int(value) for value in scaled]
    order = sorted(range(len(parts)), key=lambda k: parts[k] - scaled[k])
    for k in order[: ONE - sum(parts)]:
        parts[k] += 1
    return tuple(parts)

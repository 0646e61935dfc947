"""Fitted parameters on the device: several options are tried, one vector of a fit is reported.

A round publishes which options each participant tries, how often, and the matrix of a least
squares fit (LZJ22 Algorithm 1, whose clients report what they observed). The device applies the
matrix to its own rewards, shrinks the result to the unit ball if it is longer, and rounds it at
random to integers. Whatever the matrix is, the integers lie in a ball of radius `resolution`, so
replacing all rewards of a participant moves their sum by at most twice that.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Self

from tacit.contextual.feature_maps import check_length
from tacit.errors import require
from tacit.sampling.coins import uniform_below

RESOLUTION = 1 << 16  # radius of the ball of reports, in units
LONGEST = 1 << 15  # bytes of a policy
FINE = 1 << 32  # units of a coordinate before it is rounded at random
LARGEST_ENTRY = 2.0**256
"""Largest entry of a matrix: any answers have a fit in doubles, so none keeps a device silent."""

_COUNT = struct.Struct(">H")
_PLAYED = struct.Struct(">HB")


def most_plays(dimension: int) -> int:
    """The largest number of plays of a participant whose matrix still fits into a policy.

    >>> most_plays(4), most_plays(41)
    (255, 98)
    """
    return min(255, (LONGEST - _COUNT.size) // (_PLAYED.size + 8 * dimension))


@dataclass(frozen=True)
class FitPolicy:
    """The options that each participant of a round tries, and the matrix of their fit.

    Parameters
    ----------
    plays : tuple
        Pairs of an option's index and how often it is tried.
    solve : tuple
        One row per coordinate of the report, one number per option of `plays`, within ±2^256. It is
        applied to the sums of an option's rewards less ½ each.

    Examples
    --------
    >>> policy = FitPolicy(((0, 1), (4, 2)), ((1.0, 0.5),))
    >>> policy.sequence, FitPolicy.decode(policy.encode(), 1, options=5, max_plays=3) == policy
    ((0, 4, 4), True)
    """

    plays: tuple[tuple[int, int], ...]
    solve: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        small = all(abs(number) <= LARGEST_ENTRY for row in self.solve for number in row)
        require(small, "matrix of the policy", "not finite or too large", "within ±2^256")

    @property
    def sequence(self) -> tuple[int, ...]:
        """The option of every play, in order."""
        return tuple(option for option, count in self.plays for _ in range(count))

    def sums(self, played: Sequence[int]) -> list[int]:
        """The sum of each option's numbers, from one number for every play in order."""
        ends = [0, *accumulate(count for _, count in self.plays)]
        return [sum(played[a:b]) for a, b in pairwise(ends)]

    def encode(self) -> bytes:
        """The policy as bytes, for the announcement of a round.

        The number of options (two bytes), each option with its plays (three bytes), then the
        matrix row by row as big-endian doubles.

        >>> FitPolicy(((3, 1),), ((0.5,),)).encode().hex()
        '00010003013fe0000000000000'
        """
        numbers = [number for row in self.solve for number in row]
        return b"".join(
            (
                _COUNT.pack(len(self.plays)),
                *(_PLAYED.pack(*pair) for pair in self.plays),
                struct.pack(f">{len(numbers)}d", *numbers),
            )
        )

    @classmethod
    def decode(cls, data: bytes, dimension: int, options: int, max_plays: int) -> Self:
        """Parse an encoded policy with at most `max_plays` plays of this number of options."""
        require(len(data) >= _COUNT.size, "policy", f"{len(data)} bytes long", "2 bytes or longer")
        (count,) = _COUNT.unpack_from(data)
        start = _COUNT.size + count * _PLAYED.size
        size = start + 8 * count * dimension
        require(len(data) == size, "policy", f"{len(data)} bytes long", f"{size} bytes long")
        plays = tuple(_PLAYED.iter_unpack(data[_COUNT.size : start]))
        known = {option for option, _ in plays if option < options}
        distinct = count and len(known) == count
        require(distinct, "tried options", [a for a, _ in plays], f"distinct, of {options}")
        tried = (
            all(often >= 1 for _, often in plays) and sum(often for _, often in plays) <= max_plays
        )
        rule = f"at least 1 each, and at most {max_plays} together"
        require(tried, "plays", [often for _, often in plays], rule)
        numbers = struct.unpack_from(f">{count * dimension}d", data, start)
        rows = (numbers[at : at + count] for at in range(0, count * dimension, count))
        return cls(plays, tuple(rows))


@dataclass(frozen=True)
class FitReport:
    """A fitted vector as integers in a ball.

    Parameters
    ----------
    dimension : int
        Coordinates of a report.
    resolution : int
        Radius of the ball.
    levels : int
        Rewards are multiples of 1/levels from 0 to 1.

    Examples
    --------
    >>> report = FitReport(dimension=1, resolution=1000)
    >>> report.vector(FitPolicy(((0, 2),), ((1.0,),)), played=(1, 1))  # the whole radius
    [998]
    """

    dimension: int
    resolution: int
    levels: int = 1

    def __post_init__(self) -> None:
        rule = f"at least {2 * self._lost}, for rounding of {self.dimension} coordinates"
        require(self.resolution >= 2 * self._lost, "resolution", self.resolution, rule)

    @property
    def size(self) -> int:
        """Integers of a report."""
        return self.dimension

    @property
    def largest(self) -> int:
        """Largest absolute value of a coordinate."""
        return self.resolution

    @property
    def squared_sensitivity(self) -> Fraction:
        """The square of the l2 sensitivity to replacing a participant: the ball's diameter."""
        return Fraction(4 * self.resolution**2)

    @property
    def _lost(self) -> int:
        """Units of the radius that rounding needs: √d for d coordinates, and 1 for doubles."""
        return math.isqrt(self.dimension - 1) + 2

    @property
    def radius(self) -> int:
        """The integer length that a fitted vector of length 1 has before rounding."""
        return self.resolution - self._lost

    def fitted(self, policy: FitPolicy, played: Sequence[int]) -> list[float]:
        """The fitted vector of one level for every play, at most 1 long; sums from the left."""
        self.check(policy, played)
        centred = [2 * level - self.levels for level in played]
        sums = [number / (2 * self.levels) for number in policy.sums(centred)]
        vector = []
        for row in policy.solve:
            total = 0.0
            for a, b in zip(row, sums, strict=True):
                total += a * b
            vector.append(total)
        length = math.sqrt(sum(number * number for number in vector))
        return [number / length for number in vector] if length > 1 else vector

    def check(self, policy: FitPolicy, played: Sequence[int]) -> None:
        """Reject another number of plays, and levels out of range."""
        count = len(policy.sequence)
        require(len(played) == count, "number of plays", len(played), f"{count}, as in the round")
        known = all(type(one) is int and 0 <= one <= self.levels for one in played)
        require(known, "levels", list(played), f"integers from 0 to {self.levels}")

    def vector(self, policy: FitPolicy, played: Sequence[int]) -> list[int]:
        """The fitted vector, randomly rounded to integers without bias.

        Raises
        ------
        TacitError
            If the plays are not those of the policy, or the result would be longer than the ball.
        """
        found = []
        for number in self.fitted(policy, played):
            whole, rest = divmod(math.floor(number * self.radius * FINE + 0.5), FINE)
            found.append(whole + (uniform_below(FINE) < rest))
        check_length(found, self.resolution)
        return found

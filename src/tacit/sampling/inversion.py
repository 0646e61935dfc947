"""Exact draws by inversion of a distribution function, with interval arithmetic on integers.

A unimodal distribution is given by the ratios of neighbouring weights, outward from the mode; the
weights are normalised by their sum. All rounding is outward: F(k) is enclosed between integers over
2^bits. The first digits of a uniform number select k unless they fall inside an enclosure. In that
case both get more digits. Most draws take one random word and one binary search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from tacit.sampling.coins import WORD, random_word

# Bounds on the weights at distance 1, 2, ... from the mode, in units of (the mode's weight) /
# 2^guard, each with a bound on the sum of all later weights, or None while no bound is known. Ends
# where the support ends.
Side = Callable[[int], Iterator[tuple[int, int, int | None]]]

_GUARD = 64


class Inversion:
    """Exact sampler with P[X = mode + j] proportional to the weights on the `right`, P[X = mode -
    j] to those on the `left`.
    """

    def __init__(self, mode: int, left: Side, right: Side) -> None:
        self._mode, self._left, self._right = mode, left, right
        self._first, self._lows, self._highs = self._enclose(WORD)

    def _enclose(self, bits: int) -> tuple[int, list[int], list[int]]:
        """A point k, and bounds on F(k) · 2^bits, F(k+1) · 2^bits, ..., until 1 - F is below
        2^-bits; the last is 2^bits.

        F(k) itself is below 2^-bits, or k lies just below the support. Its lower bound is 0, so k
        is never selected.
        """
        guard = bits + _GUARD
        left, left_rest = _weights(self._left, guard, 1 << (_GUARD - 2))
        right, right_rest = _weights(self._right, guard, 1 << (_GUARD - 2))
        weights = [*reversed(left), (1 << guard, 1 << guard), *right]
        low_total = sum(low for low, _ in weights)
        high_total = sum(high for _, high in weights) + left_rest + right_rest
        low, high = 0, left_rest
        lows, highs = [0], [-(-(high << bits) // low_total)]
        for weight_low, weight_high in weights:
            low, high = low + weight_low, high + weight_high
            lows.append((low << bits) // high_total)
            highs.append(min(-(-(high << bits) // low_total), 1 << bits))
        highs[-1] = 1 << bits
        if right_rest == 0:
            lows[-1] = 1 << bits
        return self._mode - len(left) - 1, lows, highs

    def draw(self) -> int:
        """One value."""
        digits = random_word()
        index = bisect_right(self._highs, digits)
        if digits < self._lows[index]:
            return self._first + index
        return self._settle(digits)

    def _settle(self, digits: int) -> int:
        """The value for a uniform number whose first digits fell inside an enclosure."""
        bits = WORD
        while True:
            digits, bits = (digits << WORD) | random_word(), bits + WORD
            first, lows, highs = self._enclose(bits)
            index = bisect_right(highs, digits)
            if digits < lows[index]:
                return first + index


def rational_side(ratio: Callable[[int], tuple[int, int]]) -> Side:
    """Weights with weight(j) / weight(j-1) = `ratio(j)`: at most 1, decreasing in j, 0 at the end
    of the support.
    """

    def side(guard: int) -> Iterator[tuple[int, int, int | None]]:
        low = high = 1 << guard
        j = 1
        numerator, denominator = ratio(j)
        while numerator > 0:
            low, high = low * numerator // denominator, -(-high * numerator // denominator)
            j += 1
            numerator, denominator = ratio(j)
            spare = denominator - numerator
            yield low, high, -(-high * numerator // spare) if spare > 0 else None

    return side


def _weights(side: Side, guard: int, negligible: int) -> tuple[list[tuple[int, int]], int]:
    """The weights of one side until the rest is negligible, and a bound on the rest."""
    weights: list[tuple[int, int]] = []
    for low, high, rest in side(guard):
        weights.append((low, high))
        if rest is not None and rest < negligible:
            return weights, rest
    return weights, 0

"""Exact Pólya draws by a rejection walk that uses one 64-bit word per step, in integer arithmetic
only.

The thresholds of a step are computed once and cached. A word that ties with a threshold is refined
with more digits.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from threading import Lock

from tacit.errors import as_fraction
from tacit.sampling.coins import WORD, Chance, random_word

MOST_THRESHOLDS = 1 << 16


class PolyaWalk:
    """Exact Pólya(r, β) draws, for any rational r and β = factor · e^{-rate}.

    For r <= 1 the walk visits x = 0, 1, 2, ... At x it accepts with probability 1-β. Otherwise it
    continues to x+1 with probability (x+r)/(x+1), else it restarts. P[accept at x] is proportional
    to β^x Π (j+r)/(j+1), the Pólya probabilities. One 64-bit word decides a step: below
    β(1-r)/(x+1) restart, below β continue, else accept. A larger r is a sum of geometric variables
    and one such walk.
    """

    def __init__(self, r: Fraction, beta: Chance) -> None:
        self._whole, rest = divmod(as_fraction("r", r), 1)
        self._beta = beta
        self._rest = rest
        self._go = beta.bounds(WORD)
        self._first = Chance(beta.factor * (1 - rest), beta.rate).bounds(2 * WORD)
        self._again: list[tuple[int, int]] = []
        self._lock = Lock()

    def _restart(self, x: int) -> Chance:
        return Chance(self._beta.factor * (1 - self._rest) / (x + 1), self._beta.rate)

    def draw(self) -> int:
        """One value."""
        total = 0
        for _ in range(self._whole):
            while self._beta.flip():
                total += 1
        return total + self._walk() if self._rest else total

    def _walk(self) -> int:
        again, (go_low, go_high) = self._again, self._go
        x = 0
        while True:
            u = random_word()
            low, high = again[x] if x < len(again) else self._threshold(x)
            if u < low:
                x = 0
            elif high <= u < go_low:
                x += 1
            elif u >= high and u >= go_high:
                return x
            else:
                step = self._settle(u, x)
                if step is None:
                    return x
                x = x + 1 if step else 0

    def _threshold(self, x: int) -> tuple[int, int]:
        """The bounds for a restart at x, cached up to `MOST_THRESHOLDS`.

        They are those at 0, divided by x+1 and rounded outward.
        """
        (low, high), parts = self._first, (x + 1) << WORD
        found = low // parts, -(-high // parts)
        with self._lock:  # two threads must not append the same step twice
            if x == len(self._again) < MOST_THRESHOLDS:
                self._again.append(found)
        return found

    def _settle(self, digits: int, x: int) -> bool | None:
        """Resolves a step that 64 digits leave open, with more digits: continue (True), restart
        (False) or accept (None).
        """
        bits = WORD
        while True:
            low, high = self._restart(x).bounds(bits)
            go_low, go_high = self._beta.bounds(bits)
            if digits < low:
                return False
            if high <= digits < go_low:
                return True
            if digits >= high and digits >= go_high:
                return None
            digits, bits = (digits << WORD) | random_word(), bits + WORD


@lru_cache(maxsize=256)
def polya_walk(r: Fraction, beta: Chance) -> PolyaWalk:
    """The cached walk for these parameters, with its thresholds so far."""
    return PolyaWalk(r, beta)

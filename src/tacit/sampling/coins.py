"""Exact biased coins from the operating system's randomness, in integer arithmetic only.

A coin of irrational bias such as e^{-1/3} compares the binary digits of a uniform number with those
of the bias until they differ. Rational bounds on the exponential give the digits of the bias; more
than 64 bits are needed once in 2^63 flips. The bias is therefore exact. The rejection samplers
built on these coins follow Canonne, Kamath & Steinke 2020 (CKS20). They do not run in constant
time: draw the noise before the reward is known.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from tacit.errors import TacitError, as_fraction

WORD = 64
_REFILL = 512
_pool: list[int] = []

# A forked child must not reuse its parent's randomness.
os.register_at_fork(after_in_child=_pool.clear)


def random_word() -> int:
    """64 fresh uniform bits.

    The pool is filled from `os.urandom`; a used word is removed at once.
    """
    while True:
        try:
            return _pool.pop()
        except IndexError:
            _pool.extend(struct.unpack(f"<{_REFILL}Q", os.urandom(8 * _REFILL)))


def uniform_below(bound: int) -> int:
    """A uniform integer in {0, ..., bound - 1}, by rejection."""
    bits = (bound - 1).bit_length()
    while True:
        value = random_bits(bits)
        if value < bound:
            return value


def additive_shares(number: int, count: int, modulus: int) -> list[int]:
    """Numbers that sum to `number` modulo m; any `count` - 1 of them are uniform."""
    shares = [uniform_below(modulus) for _ in range(count - 1)]
    return [*shares, (number - sum(shares)) % modulus]


def random_bits(count: int) -> int:
    """`count` fair bits as one integer."""
    if count > WORD:
        return int.from_bytes(os.urandom(-(-count // 8)), "little") >> (-count % 8)
    return random_word() >> (WORD - count) if count else 0


@dataclass(frozen=True)
class Chance:
    """The probability `factor` · e^{-`rate`} as an exact value, from which a device flips without
    rounding.

    >>> float(Chance(Fraction(1), Fraction(1, 10)))
    0.9048374180359596
    >>> Chance(Fraction(1, 2)).bounds(8)
    (128, 128)
    """

    factor: Fraction
    rate: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", as_fraction("factor", self.factor))
        object.__setattr__(self, "rate", as_fraction("rate", self.rate))
        if not 0 <= self.factor <= 1 or self.rate < 0:
            raise TacitError(
                f"factor is {self.factor} and rate is {self.rate}; a chance of factor times "
                "e^-rate needs a factor "
                "between 0 and 1 and a rate of at least 0"
            )

    def __float__(self) -> float:
        bits = 128 + 2 * int(self.rate) + self.factor.denominator.bit_length()
        low, _ = self.bounds(min(bits, 2048))
        return float(Fraction(low, 1 << min(bits, 2048)))

    def bounds(self, bits: int) -> tuple[int, int]:
        """Integers with low <= probability · 2^bits <= high and high - low at most 2."""
        if self.rate == 0:
            scaled = self.factor * (1 << bits)
            low = scaled.numerator // scaled.denominator
            return low, low + (scaled != low)
        low, high = exp_bounds(self.rate, bits + 1)
        numerator, denominator = self.factor.numerator, 2 * self.factor.denominator
        return low * numerator // denominator, -(-high * numerator // denominator)

    @cached_property
    def _first(self) -> tuple[int, int]:
        return self.bounds(WORD)

    def flip(self) -> bool:
        """True with exactly this probability."""
        u = random_word()
        low, high = self._first
        if u < low:
            return True
        if u >= high:
            return False
        return self.settle(u)

    def settle(self, digits: int) -> bool:
        """Whether the uniform number that starts with these 64 binary digits lies below the
        probability.
        """
        bits = WORD
        while True:
            low, high = self.bounds(bits)
            if digits < low:
                return True
            if digits >= high:
                return False
            digits = (digits << WORD) | random_word()
            bits += WORD


ONE_OVER_E = Chance(Fraction(1), Fraction(1))


@lru_cache(maxsize=1024)
def exp_bounds(rate: Fraction, bits: int) -> tuple[int, int]:
    """Integers with low <= e^{-rate} · 2^bits <= high and high - low at most 2, for rate >= 0.

    Write rate = y · 2^k with y <= 1. The series of e^{-y} alternates with falling terms, so two
    neighbouring partial sums enclose it. The enclosure is then squared k times. All rounding is
    outward.

    >>> low, high = exp_bounds(Fraction(1), 30)
    >>> low <= 0.36787944117144233 * 2**30 <= high <= low + 2
    True
    """
    halvings = max(0, (-(-rate.numerator // rate.denominator) - 1).bit_length())
    guard = bits + halvings + 32
    one = 1 << guard
    numerator, denominator = rate.numerator, rate.denominator << halvings
    term_low = term_high = low = high = one
    step = 0
    while term_high > 1:
        step += 1
        term_low = term_low * numerator // (denominator * step)
        term_high = -(-term_high * numerator // (denominator * step))
        if step % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    low, high = (
        low - 1,
        high + 1,
    )  # the rest of the series is below its first omitted term, which is at most 1
    for _ in range(halvings):
        low, high = low * low >> guard, -(-high * high >> guard)
    excess = guard - bits
    return max(0, low >> excess), min(-(-high >> excess), 1 << bits)


def flip_exp(rate: Fraction) -> bool:
    """True with probability e^{-rate} (CKS20 Algorithm 1), for rates that are used once."""
    numerator, denominator = rate.numerator, rate.denominator
    for _ in range(numerator // denominator):
        if not ONE_OVER_E.flip():
            return False
    numerator %= denominator
    step = 1
    while uniform_below(denominator * step) < numerator:
        step += 1
    return step % 2 == 1

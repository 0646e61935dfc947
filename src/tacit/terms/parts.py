"""Parts of terms: answer, guarantee, noise, aggregation and parties, each with its own checks.

A part can be constructed with any values; `Terms` calls `check` of all of its parts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tacit.errors import require
from tacit.signatures import KEY_SIZE
from tacit.terms.canonical import LARGEST, read_fraction

DISCRETE_LAPLACE = "discrete-laplace"
RANDOMIZED_RESPONSE = "randomized-response"
UNARY_ENCODING = "unary-encoding"
SKELLAM = "skellam"
DISCRETE_GAUSSIAN = "discrete-gaussian"
BINOMIAL = "binomial"
CERTIFIED_POLYA = "certified-polya"
DISTRIBUTIONS = (
    DISCRETE_LAPLACE,
    RANDOMIZED_RESPONSE,
    UNARY_ENCODING,
    SKELLAM,
    DISCRETE_GAUSSIAN,
    BINOMIAL,
    CERTIFIED_POLYA,
)
"""Distributions of noise that are verified against ε and δ, and what their parameter is.

The parameter is the scale of discrete Laplace noise, 1/ε of one bit of randomized response, 2/ε
of the cells of a table in unary encoding, the variance of Skellam noise, σ of discrete Gaussian
noise, the variance of all noise bits together, and the scale of the noise that certified Pólya
shares add up to (`tacit.sampling.certificates`).
"""

_MOST_SHARED = {DISCRETE_LAPLACE: 1 << 20, SKELLAM: 1 << 31, DISCRETE_GAUSSIAN: 1 << 64}


def most_shared(distribution: str, numbers: int) -> Fraction | None:
    """Upper limit on the parameter of noise that devices share; None for no limit.

    The time to draw a share grows with it, for discrete Laplace noise proportionally: there all
    `numbers` of a report together have a limit.
    """
    most = _MOST_SHARED.get(distribution)
    if most is None:
        return None
    return Fraction(most, numbers if distribution == DISCRETE_LAPLACE else 1)


MOST_MESSAGES = 1 << 15
"""Messages of a report through a shuffler at most: a device encrypts each, in seconds for all."""

REHEARSED = "rehearsed"
"""In place of a distribution: terms of rehearsals in one process, whose noise is not verified.

Devices and live parties reject such terms (`check_live`).
"""

SHARE_DIVISOR = "certain"
"""Share divisor rule: the reports certain to be honest and present draw enough noise."""

SEMI_HONEST = "semi-honest"

_TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@dataclass(frozen=True)
class Answer:
    """The content of one report: a number per metric, from `low` to `high` in `levels` steps.

    It is about what happened within the observation window of `window` seconds. `labels` are the
    words that participants choose from, one for each value from `low` to `high`; empty where they
    type a number.
    """

    meaning: str
    metrics: tuple[str, ...] = ("answer",)
    levels: int = 1
    window: int = 0
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)
    labels: tuple[str, ...] = ()

    def value(self, level: int) -> Fraction:
        """The answer at a level.

        >>> Answer("stars", levels=4, low=Fraction(1), high=Fraction(5)).value(1)
        Fraction(2, 1)
        """
        return self.low + Fraction(level, self.levels) * (self.high - self.low)

    def check(self) -> None:
        """Reject unreadable texts, an empty range and numbers that are not whole."""
        check_text("answer.meaning", self.meaning)
        check_names("answer.metrics", self.metrics)
        check_whole("levels", self.levels, 1)
        check_whole("window", self.window, 0)
        check_fraction("answer.range[0]", self.low)
        check_fraction("answer.range[1]", self.high)
        require(self.low < self.high, "answer.range[0]", self.low, f"below {self.high}")
        if self.labels:
            check_names("answer.labels", self.labels)
            rule = f"{self.levels + 1}, one for each level, or none"
            count = len(self.labels)
            require(count == self.levels + 1, "the number of answer.labels", count, rule)


@dataclass(frozen=True)
class StatedGuarantee:
    """The (ε, δ) guarantee for all reports of one participant under these terms and successors."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    participations: int = 1

    def check(self) -> None:
        """Reject values outside of ε > 0, 0 <= δ < 1 and at least one participation."""
        check_fraction("epsilon", self.epsilon)
        check_fraction("delta", self.delta)
        check_whole("participations", self.participations, 1)
        require(self.epsilon > 0, "epsilon", self.epsilon, "> 0")
        require(0 <= self.delta < 1, "delta", self.delta, "at least 0 and below 1")


@dataclass(frozen=True)
class Noise:
    """The noise on every metric, and the party that adds it.

    `scale` is the parameter of the distribution (`DISTRIBUTIONS`), the standard deviation in terms
    of rehearsals. `minimum` is a lower bound on that of a round, on the variance in rehearsals.
    None stands for the value that `scale` gives.
    `share_divisor` names the rule by which a round divides noise among devices.
    """

    scale: Fraction
    by: str = "servers"
    distribution: str = DISCRETE_LAPLACE
    minimum: Fraction | None = None
    share_divisor: str = SHARE_DIVISOR

    def __post_init__(self) -> None:
        if self.minimum is None:
            object.__setattr__(self, "minimum", self.parameter)

    @property
    def parameter(self) -> Fraction:
        """The quantity that `minimum` bounds: the parameter; in rehearsals the variance."""
        return self.scale**2 if self.distribution == REHEARSED else self.scale

    @property
    def least(self) -> Fraction:
        """`minimum`, after it was set."""
        assert self.minimum is not None
        return self.minimum

    def check(self) -> None:
        """Reject unknown distributions and rules, and a minimum that the scale does not reach."""
        distribution, least = self.distribution, self.least
        require(
            distribution in (*DISTRIBUTIONS, REHEARSED),
            "noise.distribution",
            repr(distribution),
            f"one of {', '.join(DISTRIBUTIONS)}, which are verified against epsilon. Only "
            f"rehearsals in one process say {REHEARSED}",
        )
        divisor = self.share_divisor
        require(divisor == SHARE_DIVISOR, "share_divisor", repr(divisor), repr(SHARE_DIVISOR))
        check_fraction("noise.scale", self.scale)
        check_fraction("noise.minimum", least)
        require(self.scale > 0, "noise.scale", self.scale, "> 0")
        most = self.parameter
        rule = f"above 0 and at most {most}, as the scale is {self.scale}"
        require(0 < least <= most, "noise.minimum", least, rule)
        whole = max(least.numerator, least.denominator) <= LARGEST
        require(whole, "noise.minimum", least, f"a fraction of integers within {LARGEST}")


@dataclass(frozen=True)
class Aggregation:
    """Minimum batch size, and how many participants of a round may be missing or dishonest.

    `claim` names the adversary that secure aggregation withstands.

    >>> Aggregation(20, dishonest_count=3, dishonest_fraction=Fraction(1, 10)).dishonest(64)
    6
    """

    minimum_batch_size: int = 1
    missing_fraction: Fraction = Fraction(0)
    dishonest_count: int = 0
    dishonest_fraction: Fraction = Fraction(0)
    claim: str = SEMI_HONEST

    def missing(self, slots: int) -> int:
        """Number of reports among `slots` that may be missing."""
        part = self.missing_fraction
        return slots * part.numerator // part.denominator

    def dishonest(self, slots: int) -> int:
        """Number of participants among `slots` that may be dishonest; at least one is honest."""
        part = self.dishonest_fraction
        tolerated = max(self.dishonest_count, slots * part.numerator // part.denominator)
        return min(tolerated, slots - 1)

    def check(self) -> None:
        """Reject counts that are not whole and fractions outside of [0, 1)."""
        check_whole("minimum_batch_size", self.minimum_batch_size, 1)
        check_whole("dishonest_count", self.dishonest_count, 0)
        parts = {
            "missing_fraction": self.missing_fraction,
            "dishonest_fraction": self.dishonest_fraction,
        }
        for name, part in parts.items():
            check_fraction(name, part)
            require(0 <= part < 1, name, part, "at least 0 and below 1")


@dataclass(frozen=True)
class Party:
    """The operator of a server: its address and its long-term Ed25519 key."""

    role: str
    address: str
    key: bytes

    def check(self) -> None:
        """Reject an unreadable address and a key of the wrong size."""
        check_text(f"the {self.role}'s address", self.address)
        size = len(self.key)
        require(size == KEY_SIZE, f"the size of the {self.role}'s key", size, f"{KEY_SIZE} bytes")


def check_whole(name: str, number: object, minimum: int) -> None:
    """Reject a value that is not an integer from `minimum` to 2^32 - 1."""
    holds = isinstance(number, int) and minimum <= number < 1 << 32 and type(number) is not bool
    require(holds, name, repr(number), f"a whole number from {minimum} to 2^32 - 1")


def check_fraction(name: str, value: object) -> None:
    """Reject a value that is not a fraction, or is too long for a document."""
    require(isinstance(value, Fraction), name, repr(value), "a Fraction, as Fraction('1/10')")
    read_fraction(str(value))


def check_text(name: str, text: object) -> None:
    """Reject text that participants could not read, such as invisible characters."""
    said = text.strip() if isinstance(text, str) else ""
    require(said and said == text, name, repr(text), "a text without spaces around it")
    seen = all(unicodedata.category(sign) not in ("Cc", "Cs") for sign in said)
    seen = seen and not set(_TURNING).intersection(said)
    require(seen, name, repr(text), "a text without invisible characters")


def check_names(name: str, names: Sequence[str]) -> None:
    """Reject an empty list, a name that occurs twice and unreadable names."""
    for index, one in enumerate(names):
        check_text(f"{name}[{index}]", one)
    distinct = names and len(set(names)) == len(names)
    require(distinct, name, list(names), "at least one, all distinct")

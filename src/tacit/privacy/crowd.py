"""Who of a round's participants may be missing, lie or look, and how many shares of noise are left.

Every protocol that splits noise into n shares loses part of the noise when fewer than n honest
shares arrive (CORRECTIONS 13), and one share to each participant who looks at what was opened:
everybody knows their own. Shares are therefore made for the number that is certain. More of them
only add noise, which never weakens a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from functools import lru_cache

from tacit.checks import Number, TacitError, integer, probability
from tacit.noise import NoiseLaw
from tacit.privacy.loss import PrivacyLoss, privacy_loss

ALL_BUT_ONE = "all clients of a phase but one who may look are honest and report"


@dataclass(frozen=True)
class Crowd:
    """What a round of shares of noise is prepared for.

    At least 1 - `dropout` of its participants report, else nothing is opened. Of all participants
    at most `corrupt` add no noise and tell what they know. `curious` of the rest may look at what
    is opened, and know their own share; corrupt ones count as curious.

    >>> Crowd().honest(64), Crowd(dropout=0.1).reports(64), Crowd(corrupt=0.1).honest(100)
    (63, 58, 90)
    """

    dropout: Number = 0
    corrupt: Number = 0
    curious: int = 1

    def __post_init__(self) -> None:
        integer("curious", self.curious, at_least=0, remedy="participants who may look")
        guaranteed_reports(1, self.dropout, self.corrupt)

    def reports(self, participants: int) -> int:
        """The number of reports below which nothing is opened."""
        return guaranteed_reports(participants, self.dropout)

    def honest(self, participants: int) -> int:
        """How many shares are certain to be there and unknown to whoever looks: at least the
        person's own.
        """
        certain = guaranteed_reports(participants, self.dropout, self.corrupt)
        return min(certain, max(1, self.reports(participants) - self.curious))

    def conditions(self, participants: int) -> tuple[str, ...]:
        """What a guarantee of such a round rests on, in words.

        >>> Crowd().conditions(64)
        ('each round has at least 62 honest others, not counting 1 who may look at what is opened',)
        """
        honest, rest = self.honest(participants) - 1, []
        others = f"each round has at least {honest:,} honest other{'s' * (honest != 1)}"
        if self.curious:
            others += f", not counting {self.curious} who may look at what is opened"
        else:
            others += ", and nobody who takes part looks at what is opened"
        lost, wrong = (_decimal(value) for value in (self.dropout, self.corrupt))
        if lost:
            rest = [f"a round with fewer than {_percent(1 - lost)} of its reports is not opened"]
        if wrong:
            rest.append(f"at most {_percent(wrong)} of a round are corrupt")
        return (others, *rest)


def guaranteed_reports(users: int, dropout: Number = 0, corrupt: Number = 0) -> int:
    """The number of honest reports that is certain: ⌈(1 - dropout - corrupt) · users⌉.

    >>> guaranteed_reports(64, dropout=0.1)
    58
    """
    return math.ceil(_kept(dropout, corrupt) * integer("users", users, at_least=1))


@lru_cache(maxsize=256)
def _kept(dropout: Number, corrupt: Number) -> Fraction:
    """The part of a round whose honest reports are certain."""
    lost = sum(
        (
            probability(name, _decimal(value), zero=True)
            for name, value in (("dropout", dropout), ("corrupt", corrupt))
        ),
        Fraction(0),
    )
    if lost >= 1:
        raise TacitError(
            f"dropout {dropout} and corrupt {corrupt} leave no honest report: they must sum to "
            "less than 1"
        )
    return 1 - lost


def _percent(part: Fraction) -> str:
    """Rounded down: no more is said to be kept, or may be corrupt, than is.

    >>> _percent(Fraction(1, 10)), _percent(Fraction(2, 3)), _percent(Fraction("0.123456"))
    ('10%', '66.66%', '12.34%')
    """
    rounding = Context(prec=4, rounding=ROUND_FLOOR)
    percent = part * 100
    return f"{float(rounding.divide(percent.numerator, percent.denominator)):.4g}%"


def _decimal(value: Number) -> Fraction:
    """0.1 as one tenth, as people mean it, so that 10% of 10 is 1 and not a little more."""
    try:
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (TypeError, ValueError, OverflowError):
        return value  # type: ignore[return-value]  # which whoever checks it refuses by name


def dropout_loss(law: NoiseLaw, arriving: Number, sensitivity: int) -> PrivacyLoss:
    """The exact loss when only this fraction of the shares of `law` arrives.

    Noise that was set for epsilon = 1:

    >>> from tacit.noise import DiscreteLaplace
    >>> round(dropout_loss(DiscreteLaplace(1), 0.8, sensitivity=1).pure, 2)
    1.21
    """
    fraction = probability(
        "arriving", _decimal(arriving), "the fraction of the shares that arrive", one=True
    )
    return privacy_loss(law.power(fraction), sensitivity)

"""When shares are missing: the true guarantee, and shares set so that the promised one holds.

Every protocol that splits noise into n shares loses part of the noise when fewer than n honest
shares arrive (CORRECTIONS 13). Here the guarantee of what did arrive is computed exactly, and
shares are made for the number of honest reports that is guaranteed: n_min = ⌈(1 - dropout -
corrupt) n⌉. More shares than that only add noise, which never weakens a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit.checks import Number, TacitError, integer, probability
from tacit.noise import NoiseLaw
from tacit.privacy.loss import PrivacyLoss, privacy_loss


def guaranteed_reports(users: int, dropout: Number = 0, corrupt: Number = 0) -> int:
    """The number of honest reports that is certain: ⌈(1 - dropout - corrupt) · users⌉.

    >>> guaranteed_reports(64, dropout=0.1)
    58
    """
    count = integer("users", users, at_least=1)
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
    return math.ceil((1 - lost) * count)


def reporting_condition(dropout: Number = 0, corrupt: Number = 0) -> str:
    """What a guarantee rests on when shares are made for fewer than all: a clause to print with it.

    >>> reporting_condition(0.2)
    'shares are made for 80% of a batch, and a batch with fewer reports is not opened'
    >>> reporting_condition(0.1, 0.1).split(", ")[1]
    'a batch with fewer than 90% of its reports is not opened'
    """
    lost, wrong = Fraction(_decimal(dropout)), Fraction(_decimal(corrupt))
    share = f"{float((1 - lost - wrong) * 100):.4g}% of a batch"
    if not wrong:
        return f"shares are made for {share}, and a batch with fewer reports is not opened"
    arrived = f"a batch with fewer than {float((1 - lost) * 100):.4g}% of its reports is not opened"
    return (
        f"shares are made for {share}, {arrived}, and at most {float(wrong * 100):.4g}% may be "
        "corrupt"
    )


def _decimal(value: Number) -> Number:
    """0.1 as one tenth, as people mean it, so that 10% of 10 is 1 and not a little more."""
    return Fraction(str(value)) if isinstance(value, float) and math.isfinite(value) else value


@dataclass(frozen=True)
class SharedNoise:
    """Noise that adds up to at least `law` as long as `minimum` of the `users` shares arrive."""

    law: NoiseLaw
    users: int
    minimum: int
    share: NoiseLaw

    def arriving(self, reports: int) -> NoiseLaw:
        """The law of the noise when this many shares arrive."""
        return self.share.power(integer("reports", reports, at_least=1))

    def loss(self, reports: int, sensitivity: int) -> PrivacyLoss:
        """The exact loss when this many shares arrive."""
        return privacy_loss(self.arriving(reports), sensitivity)


def share_noise(law: NoiseLaw, users: int, dropout: Number = 0, corrupt: Number = 0) -> SharedNoise:
    """Shares of `law` for `users` people of whom a fraction may drop out and a fraction may be
    corrupt (and add nothing).

    >>> from tacit.noise import Skellam
    >>> share_noise(Skellam(80), users=100, dropout=0.2).share
    Skellam(variance=Fraction(1, 1))
    """
    minimum = guaranteed_reports(users, dropout, corrupt)
    return SharedNoise(law, integer("users", users, at_least=1), minimum, law.share(minimum))


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

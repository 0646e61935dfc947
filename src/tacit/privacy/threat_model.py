"""Threat model: how many participants may drop out, be corrupted or be curious, and the remaining
noise.

A protocol that splits noise into n shares loses noise when fewer than n honest shares arrive
(CORRECTIONS 13), and one share to each curious participant, who knows their own. Shares are
therefore sized for the number of honest shares that is certain. Further shares only add noise,
which never weakens a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tacit.assumptions import Assumption, DishonestAtMost, ReleasedOnlyAbove, Scope
from tacit.errors import Number, TacitError, integer, probability
from tacit.noise import NoiseDistribution
from tacit.privacy.loss import PrivacyLoss, privacy_loss


@dataclass(frozen=True)
class ThreatModel:
    """Deviations that a round of noise shares tolerates.

    Parameters
    ----------
    dropout : Number
        Fraction of participants that may fail to report; with fewer reports the round is aborted.
    corrupt : Number
        Fraction of participants that may add no noise and reveal what they know.
    curious : int
        Participants who see the released sum and know their own share; corrupted ones count as
        curious.

    Examples
    --------
    >>> ThreatModel().honest(64), ThreatModel(dropout=0.1).reports(64)
    (63, 58)
    >>> ThreatModel(corrupt=0.1).honest(100)
    90
    """

    dropout: Number = 0
    corrupt: Number = 0
    curious: int = 1

    def __post_init__(self) -> None:
        integer("curious", self.curious, at_least=0, remedy="number of curious participants")
        guaranteed_reports(1, self.dropout, self.corrupt)

    def reports(self, participants: int) -> int:
        """The minimum number of reports for a release."""
        return guaranteed_reports(participants, self.dropout)

    def honest(self, participants: int) -> int:
        """The number of shares, one's own included, certain and unknown to the adversary."""
        certain = guaranteed_reports(participants, self.dropout, self.corrupt)
        return min(certain, max(1, self.reports(participants) - self.curious))

    def dishonest(self, scope: Scope = Scope.ROUND) -> DishonestAtMost:
        """The bound on participants who may be curious, corrupted or invented.

        `honest(n)` never exceeds `reports(n)` less `limit(n)` of this, for every n (apart from the
        participant's own share): ⌈a - b⌉ <= ⌈a⌉ - ⌊b⌋.
        """
        return DishonestAtMost(scope, self.curious, _decimal(self.corrupt))

    def assumptions(self, scope: Scope = Scope.ROUND) -> tuple[Assumption, ...]:
        """The assumptions of a guarantee whose noise is shared: the same for rounds of every size.

        >>> for assumption in ThreatModel(dropout=0.1).assumptions(): print(assumption.text())
        at most 1 participant of a batch is curious, corrupted or invented
        a batch is released only if at least 90% of its reports arrive
        """
        return self.dishonest(scope), ReleasedOnlyAbove(1 - _decimal(self.dropout))


def guaranteed_reports(users: int, dropout: Number = 0, corrupt: Number = 0) -> int:
    """The number of honest reports that is certain: ⌈(1 - dropout - corrupt) · users⌉.

    Parameters
    ----------
    users : int
        The number of invited participants.
    dropout : Number
        The largest fraction that drops out.
    corrupt : Number
        The largest fraction that is corrupted.

    Returns
    -------
    int
        The number of honest reports.

    Examples
    --------
    >>> guaranteed_reports(64, dropout=0.1)
    58
    """
    return math.ceil(_certain_fraction(dropout, corrupt) * integer("users", users, at_least=1))


@lru_cache(maxsize=256)
def _certain_fraction(dropout: Number, corrupt: Number) -> Fraction:
    """The fraction of a round whose honest reports are certain."""
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


def _decimal(value: Number) -> Fraction:
    """Read a float as its decimal notation: 0.1 is one tenth, so 10% of 10 is exactly 1."""
    try:
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (TypeError, ValueError, OverflowError):
        return value  # type: ignore[return-value]  # the caller's check rejects it


ONE_CURIOUS = ThreatModel()


def dropout_loss(
    distribution: NoiseDistribution, arriving: Number, sensitivity: int
) -> PrivacyLoss:
    """The exact privacy loss when only this fraction of the shares of `distribution` arrives.

    Parameters
    ----------
    distribution : NoiseDistribution
        The noise of all shares together.
    arriving : Number
        The fraction of the shares that arrive, in (0, 1].
    sensitivity : int
        The most that one participant changes the sum.

    Returns
    -------
    PrivacyLoss
        The privacy loss of the remaining noise.

    Examples
    --------
    Noise calibrated for ε = 1:

    >>> from tacit.noise import DiscreteLaplace
    >>> round(dropout_loss(DiscreteLaplace(1), 0.8, sensitivity=1).pure, 2)
    1.21
    """
    fraction = probability(
        "arriving", _decimal(arriving), "the fraction of the shares that arrive", one=True
    )
    return privacy_loss(distribution.power(fraction), sensitivity)

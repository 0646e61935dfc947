"""Privacy budget of one participant under one line of terms: ε and participations, exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tacit.errors import Rejected, require
from tacit.rounding import spelt


@dataclass(frozen=True)
class Account:
    """The budget that one participant has spent under some terms and all of their successors.

    The limits are the smallest ε and the fewest participations that the terms shown to this
    participant have stated. Every round counts as one participation, whatever it costs. A round is
    charged when the encrypted report is stored, before it is sent.
    """

    limit: Fraction
    participations: int
    spent: Fraction = Fraction(0)
    taken: int = 0

    def charged(self, cost: Fraction) -> Account:
        """Return the account after one more round; reject it beyond either limit.

        >>> Account(Fraction(1), 2).charged(Fraction(2, 3)).charged(Fraction(1, 3)).spent
        Fraction(1, 1)
        """
        require(cost > 0, "cost of the round", cost, "> 0")
        taken, most = self.taken, self.participations
        rule = f"below {most}, the limit of the terms. Nothing is sent"
        require(taken < most, "number of participations", taken, rule, Rejected)
        left = self.limit - self.spent
        rule = f"at most {spelt(left)}, the rest of the privacy budget {self.limit}. "
        rule += "Nothing is sent"
        require(cost <= left, "epsilon of the round", cost, rule, Rejected)
        return replace(self, spent=self.spent + cost, taken=self.taken + 1)

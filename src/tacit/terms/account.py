"""Privacy budget of one participant under one line of terms: ε and participations, exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tacit.errors import Refusal, require
from tacit.terms.document import Terms


@dataclass(frozen=True)
class Account:
    """The budget that one participant has spent under some terms and all of their successors.

    The limits are the smallest ε and the fewest participations that the terms shown to this
    participant have stated. Every round counts as one participation, whatever it costs. A round is
    charged when the encrypted report is stored, before it is sent. A refund needs signed rejections
    of every server, and returns the participation, too.
    """

    limit: Fraction
    participations: int
    spent: Fraction = Fraction(0)
    taken: int = 0

    @classmethod
    def under(cls, terms: Terms) -> Account:
        """Open an account for the first terms of an experiment."""
        return cls(terms.promise.epsilon, terms.promise.participations)

    def shown(self, terms: Terms) -> Account:
        """Return the account after successor terms were shown, whose limits may be smaller."""
        promise = terms.promise
        return replace(
            self,
            limit=min(self.limit, promise.epsilon),
            participations=min(self.participations, promise.participations),
        )

    def charged(self, cost: Fraction) -> Account:
        """Return the account after one more round; reject it beyond either limit.

        >>> Account(Fraction(1), 2).charged(Fraction(2, 3)).charged(Fraction(1, 3)).spent
        Fraction(1, 1)
        """
        require(cost > 0, "cost of the round", cost, "> 0")
        taken, most = self.taken, self.participations
        rule = f"below {most}, the limit of the terms. Nothing is sent"
        require(taken < most, "number of participations", taken, rule, Refusal)
        left = self.limit - self.spent
        rule = f"at most {left}, the rest of the privacy budget {self.limit}. Nothing is sent"
        require(cost <= left, "epsilon of the round", cost, rule, Refusal)
        return replace(self, spent=self.spent + cost, taken=self.taken + 1)

    def refunded(self, cost: Fraction) -> Account:
        """Return the account after every server has signed that the round was rejected."""
        spent = self.taken and 0 < cost <= self.spent
        require(spent, "refund", cost, f"above 0 and at most {self.spent}, the spent budget")
        return replace(self, spent=self.spent - cost, taken=self.taken - 1)

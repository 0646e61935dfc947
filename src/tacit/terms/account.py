"""Privacy budget of one participant under one line of terms: ε and participations, exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tacit.errors import Refusal, TacitError
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
        if cost <= 0:
            raise TacitError(f"a round costs {cost}; it must cost more than 0")
        if self.taken >= self.participations:
            raise Refusal(
                f"participations: {self.taken} of {self.participations} that the terms allow are "
                "taken, so nothing is sent"
            )
        if self.spent + cost > self.limit:
            raise Refusal(
                f"epsilon: this round costs {cost}, {self.spent} of {self.limit} are spent; one "
                "more would break the promise, so nothing is sent"
            )
        return replace(self, spent=self.spent + cost, taken=self.taken + 1)

    def refunded(self, cost: Fraction) -> Account:
        """Return the account after every server has signed that the round was rejected."""
        if not 0 < cost <= self.spent or not self.taken:
            raise TacitError(f"{cost} cannot be given back: {self.spent} is spent")
        return replace(self, spent=self.spent - cost, taken=self.taken - 1)

"""What a person has spent: exact fractions of ε, charged before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tacit.checks import Refusal, TacitError
from tacit.terms.document import Terms


@dataclass(frozen=True)
class Account:
    """What one person has spent under some terms and all of their successors, in exact fractions.

    The limit is the smallest ε that this person was ever shown for them. `spent` is charged when
    the sealed bytes are stored, before they are sent; a refund needs refusals of every server.
    """

    limit: Fraction
    spent: Fraction = Fraction(0)

    @classmethod
    def under(cls, terms: Terms) -> Account:
        """A new one, for the first terms of an experiment."""
        return cls(terms.promise.epsilon)

    def shown(self, terms: Terms) -> Account:
        """After successor terms were shown, whose ε may be smaller."""
        return replace(self, limit=min(self.limit, terms.promise.epsilon))

    def charged(self, cost: Fraction) -> Account:
        """After one more round; refused beyond the limit.

        >>> Account(Fraction(1)).charged(Fraction(2, 3)).charged(Fraction(1, 3)).spent
        Fraction(1, 1)
        """
        if cost <= 0:
            raise TacitError(f"a round costs {cost}; it must cost more than 0")
        if self.spent + cost > self.limit:
            raise Refusal(
                f"this round costs {cost}, {self.spent} of {self.limit} are spent: one more would "
                "break the promise, so nothing is sent"
            )
        return replace(self, spent=self.spent + cost)

    def refunded(self, cost: Fraction) -> Account:
        """After every server has signed that the round was refused."""
        if not 0 < cost <= self.spent:
            raise TacitError(f"{cost} cannot be given back: {self.spent} is spent")
        return replace(self, spent=self.spent - cost)

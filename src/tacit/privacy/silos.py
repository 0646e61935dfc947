"""Guarantees of silos with individual budgets: (ε_i, δ_i) silo-level LDP (ZC24 Definition 2.1).

The headline numbers hold for every participant; each silo's own numbers are stated besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tacit.errors import TacitError
from tacit.privacy import joint_guarantees
from tacit.privacy.guarantees import ApproximateDP, Guarantee, state_arithmetic


@dataclass(frozen=True)
class SilosDP(ApproximateDP):
    """The largest ε and the largest δ of all silos, with each silo's own (ε, δ) in `budgets`.

    Parameters
    ----------
    epsilon : float
        The largest ε of all silos.
    delta : float
        The largest δ of all silos.
    neighbours, view, participations, assumptions
        As in `Guarantee`.
    budgets : tuple of (float, float)
        Each silo's own (ε, δ); empty if they are not stated.

    Examples
    --------
    >>> weakest([ApproximateDP(0.5, 1e-6), ApproximateDP(2.0, 1e-7)]).short
    '(2, 1e-06)-DP'
    """

    kind: ClassVar[str] = "silos"

    budgets: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for budget in self.budgets:
            ApproximateDP(*budget)  # rejects numbers that are no budget
        if any(one[0] > self.epsilon or one[1] > self.delta for one in self.budgets):
            raise TacitError(
                f"a silo's budget is above ({self.epsilon:g}, {self.delta:g}): the numbers of all "
                "silos together must be the largest of them"
            )

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """The (ε, δ) that holds for all participants, then the (ε, δ) of each silo."""
        return (*super().pairs, *self.budgets)

    def implies(self, other: Guarantee) -> bool:
        """Compare silo by silo, where both guarantees state every silo's budget."""
        if not (self.budgets and isinstance(other, SilosDP) and other.budgets):
            return super().implies(other)
        everybody = state_arithmetic(replace(other, budgets=()), other.arithmetic)
        return (
            super().implies(everybody)
            and len(self.budgets) == len(other.budgets)
            and all(
                ApproximateDP(*own).implies(ApproximateDP(*stated))
                for own, stated in zip(self.budgets, other.budgets, strict=True)
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with each silo's own numbers, rounded up."""
        each = [ApproximateDP(*budget, **self.shared_fields).to_dict() for budget in self.budgets]
        silos = [
            {"silo": place, "epsilon": one["epsilon"], "delta": one["delta"]}
            for place, one in enumerate(each)
        ]
        return super().to_dict() | {"silos": silos}

    def clauses(self) -> tuple[str, ...]:
        """Add the range of the silos' budgets."""
        if not self.budgets:
            return super().clauses()
        columns = tuple(zip(*self.budgets, strict=True))  # all ε, all δ
        low, high = (ApproximateDP(*map(pick, columns)).short for pick in (min, max))
        said = (
            f"every silo has a budget of its own, from {low} to {high}: these numbers hold for "
            "everybody, and a participant has those of their silo"
        )
        return (*super().clauses(), said)


def weakest(each: Sequence[ApproximateDP]) -> SilosDP:
    """Return the guarantee that holds for everybody if silo i has the i-th of these."""
    common = joint_guarantees.weakest(each)
    if not isinstance(common, ApproximateDP):
        raise TacitError(
            "a silo's guarantee needs delta > 0: give each silo an epsilon and a delta"
        )
    budgets = tuple((one.epsilon, one.delta) for one in each)
    made = SilosDP(common.epsilon, common.delta, budgets=budgets, **common.shared_fields)
    return state_arithmetic(made, common.arithmetic)

"""Guarantees of silos that each have a budget of their own: (ε_i, δ_i) silo-level LDP (ZC24
Definition 2.1). The headline is what holds for everybody; every silo's own numbers go along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.checks import TacitError
from tacit.privacy.guarantees import ApproximateDP


@dataclass(frozen=True)
class SilosDP(ApproximateDP):
    """The largest ε and the largest δ of all silos, and `budgets`: what each silo's people have.

    >>> weakest([ApproximateDP(0.5, 1e-6), ApproximateDP(2.0, 1e-7)]).short
    '(2, 1e-06)-DP'
    """

    budgets: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """As data, every silo's own numbers included, rounded up."""
        each = [ApproximateDP(*budget, **self.about).to_dict() for budget in self.budgets]
        silos = [
            {"silo": place, "epsilon": one["epsilon"], "delta": one["delta"]}
            for place, one in enumerate(each)
        ]
        return super().to_dict() | {"silos": silos}


def weakest(each: Sequence[ApproximateDP]) -> SilosDP:
    """What holds for everybody where silo i promises the i-th of these, and says the range."""
    if not each:
        raise TacitError("there are no silos: give the guarantee of each")
    low, high = (pick(each, key=lambda one: (one.epsilon, one.delta)) for pick in (min, max))
    said = (
        f"every silo has a budget of its own, from {low.short} to {high.short}: this is what holds "
        "for everybody, and a person has that of their silo"
    )
    first = each[0].given(said)
    return SilosDP(
        max(one.epsilon for one in each),
        max(one.delta for one in each),
        budgets=tuple((one.epsilon, one.delta) for one in each),
        **first.about,
    )

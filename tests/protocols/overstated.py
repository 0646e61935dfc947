"""Guarantees that overstate another one, as a tampered file would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from tacit.assumptions import (
    Accounting,
    Assumption,
    DishonestAtMost,
    HonestServers,
    MetricsPerParticipation,
    ReleasedOnlyAbove,
    Scope,
    Spread,
    VisitsAtMost,
)
from tacit.privacy import ApproximateDP, Arithmetic, Guarantee, Neighbours, PureDP, View
from tacit.privacy.guarantees import state_arithmetic

LARGER = Fraction(1, 50)


def weakened(one: Assumption) -> Iterator[tuple[str, Assumption]]:
    """Assumptions that allow the adversary more than this one."""
    match one:
        case DishonestAtMost(scope, count, fraction):
            for other in Scope:
                if other is not scope:
                    yield f"scope-{other.value}", replace(one, scope=other)
            yield "count-raised", replace(one, count=count + 1)
            yield "fraction-raised", replace(one, fraction=fraction + LARGER)
        case ReleasedOnlyAbove(fraction):
            yield "fraction-lowered", replace(one, fraction=fraction - LARGER)
        case MetricsPerParticipation(count):
            yield "metrics-raised", replace(one, count=count + 1)
        case VisitsAtMost(batches, visits, spread):
            yield "visits-raised", replace(one, visits=visits + 1)
            if spread is Spread.PER_BATCH:
                yield "batches-raised", replace(one, batches=batches + 1)
                yield "anywhere", VisitsAtMost(1, batches * visits, Spread.ANYWHERE)
        case Accounting(_, participations):
            yield "accounting-for-fewer", replace(one, participations=participations - 1)
        case HonestServers(count, of):
            yield "more-servers", replace(one, count=count, of=of + 1)


def with_assumptions(guarantee: Guarantee, found: frozenset[Assumption]) -> Guarantee:
    """The same guarantee under other assumptions, in the same arithmetic."""
    return state_arithmetic(replace(guarantee, assumptions=found), guarantee.arithmetic)


def overstated(guarantee: Guarantee) -> dict[str, Guarantee]:
    """What a file would state after each change that makes a guarantee claim more."""
    made: dict[str, Guarantee] = {}
    for one in guarantee.sorted_assumptions():
        if not one.needed:
            continue
        others = guarantee.assumptions - {one}
        made[f"{one.identifier}: removed"] = with_assumptions(guarantee, others)
        for name, other in weakened(one):
            assert not other.implies(one)
            changed = with_assumptions(guarantee, others | {other})
            made[f"{one.identifier}: {name}"] = changed
    if len([one for one in guarantee.assumptions if one.needed]) > 1:
        made["all assumptions removed"] = with_assumptions(guarantee, frozenset())
    if guarantee.arithmetic is not Arithmetic.EXACT:
        made["arithmetic raised"] = state_arithmetic(guarantee, Arithmetic.EXACT)
    view = View.MESSAGE if guarantee.view is not View.MESSAGE else View.RELEASED_SUM
    made["view"] = guarantee.with_view(view=view)
    made["neighbours"] = guarantee.with_view(neighbours=Neighbours.ADD_OR_REMOVE_ONE)
    numbers: dict[str, Guarantee] = {
        "participations": replace(guarantee, participations=guarantee.participations + 1)
    }
    if isinstance(guarantee, (PureDP, ApproximateDP)):
        numbers["epsilon"] = replace(guarantee, epsilon=guarantee.epsilon / 2)
    if isinstance(guarantee, ApproximateDP):
        numbers["delta"] = replace(guarantee, delta=guarantee.delta / 1e4)
    for name, changed in numbers.items():
        made[name] = state_arithmetic(changed, guarantee.arithmetic)
    return made

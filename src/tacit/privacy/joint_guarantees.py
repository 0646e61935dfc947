"""Guarantees of several releases together: composition by addition, and the weakest of several.

`tacit.privacy.composition` composes privacy loss distributions instead, which is tighter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from tacit.assumptions import (
    Accounting,
    Assumption,
    DistinctRounds,
    Method,
    of_each,
    of_several,
)
from tacit.errors import TacitError, integer
from tacit.privacy.guarantees import (
    ApproximateDP,
    Arithmetic,
    ConcentratedDP,
    Guarantee,
    PureDP,
    RenyiDP,
    state_arithmetic,
    with_metrics,
)
from tacit.rounding import times_up, total_of

Repeated = TypeVar("Repeated", bound=PureDP | ConcentratedDP | RenyiDP)
Divergence = TypeVar("Divergence", ConcentratedDP, RenyiDP)


def compose(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Return the guarantee of a participant in all of these releases (adaptive composition).

    Each guarantee must hold whatever the other releases' outputs are.

    Notes
    -----
    Pure guarantees add up in ε, concentrated ones in ρ, Rényi ones at common orders. A mixture with
    approximate ones adds up ε and δ. Unless equal pure guarantees are composed, the result assumes
    that participations are in different releases (`DistinctRounds`). `tacit.privacy.composition`
    gives tighter results through privacy loss distributions.

    Examples
    --------
    >>> compose([PureDP(0.5), PureDP(0.25)]).short
    '(0.75, 0)-DP'
    """
    items = list(guarantees)
    if not items:
        raise TacitError("nothing to compose: give at least one guarantee")
    first = items[0]
    if any(item.neighbours != first.neighbours or item.view != first.view for item in items):
        raise TacitError(
            "guarantees about different neighbours or views do not compose: state them for one "
            "view first, with .at()"
        )
    assumptions = _joined_assumptions(items)
    about = first.shared_fields | {
        "participations": sum(item.participations for item in items),
        "assumptions": assumptions if len(items) == 1 else of_several(assumptions),
    }
    made = state_arithmetic(_composed(items, about), _common_arithmetic(items))
    return made if _alike_and_pure(items) else made.assuming(DistinctRounds())


def weakest_divergence(guarantees: Sequence[Divergence]) -> Divergence:
    """The Rényi or zCDP guarantee of a participant who has one of these: largest numbers.

    All must be of one kind, with the same view and neighbours, Rényi ones at the same orders. All
    assumptions are kept, and the fewest participations.

    >>> weakest_divergence([ConcentratedDP(0.1), ConcentratedDP(0.2)]).short
    '0.2-zCDP'
    """
    _check_alike(guarantees)
    if len({type(item) for item in guarantees}) > 1:
        raise TacitError(
            "Rényi and concentrated guarantees have no weakest one together: state all in one kind"
        )
    numbers: dict[str, Any] = {
        "participations": min(item.participations for item in guarantees),
        "assumptions": _joined_assumptions(guarantees),
    }
    if isinstance(guarantees[0], ConcentratedDP):
        numbers["rho"] = max(item.rho_bound() for item in guarantees)
    else:
        curves = [dict(item.curve) for item in guarantees if isinstance(item, RenyiDP)]
        if any(curve.keys() != curves[0].keys() for curve in curves):
            raise TacitError(
                "Rényi guarantees at different orders have no weakest one: use the same orders"
            )
        largest = tuple((order, max(curve[order] for curve in curves)) for order in curves[0])
        numbers["curve"] = largest
    made: Divergence = replace(guarantees[0], **numbers)
    return state_arithmetic(made, _common_arithmetic(guarantees))


def repeat(guarantee: Repeated, times: int) -> Repeated:
    """The guarantee of `times` participations: ε, divergences or ρ add up, rounded up.

    >>> repeat(PureDP(0.1), 3).short, repeat(ConcentratedDP(0.1), 3).short
    ('(0.3, 0)-DP', '0.3-zCDP')
    """
    count = integer("times", times, at_least=1)
    match guarantee:
        case PureDP():
            numbers: dict[str, Any] = {"epsilon": times_up(guarantee.epsilon, count)}
        case ConcentratedDP():
            numbers = {"rho": times_up(guarantee.rho, count)}
        case _:
            curve = tuple((order, times_up(value, count)) for order, value in guarantee.curve)
            numbers = {"curve": curve}
    often = guarantee.participations * count
    if count > 1:
        numbers["assumptions"] = of_several(guarantee.assumptions)
    if count > 1 and not isinstance(guarantee, PureDP):
        numbers["assumptions"] |= {DistinctRounds()}
    made: Repeated = replace(guarantee, participations=often, **numbers)
    return state_arithmetic(made, guarantee.arithmetic)


def _alike_and_pure(items: Sequence[Guarantee]) -> bool:
    """Whether it does not matter in which of the releases participations fall: one release, or
    group privacy of pure guarantees with the same ε per participation.
    """
    each = {
        Fraction(item.epsilon) / item.participations if isinstance(item, PureDP) else None
        for item in items
    }
    return len(items) == 1 or (len(each) == 1 and None not in each)


def _composed(items: list[Guarantee], about: dict[str, Any]) -> Guarantee:
    if all(isinstance(item, PureDP) for item in items):
        total = total_of(item.epsilon for item in items if isinstance(item, PureDP))
        return PureDP(total, **about)
    if any(isinstance(item, ApproximateDP) for item in items):
        return _compose_approximately(items, about)
    if all(math.isfinite(item.rho_bound()) for item in items):
        return ConcentratedDP(total_of(item.rho_bound() for item in items), **about)
    curves = [item for item in items if isinstance(item, RenyiDP)]
    orders = sorted(set.intersection(*({order for order, _ in item.curve} for item in curves)))
    if not orders:
        raise TacitError(
            "these Rényi curves share no order: state them at common orders, such as "
            "tacit.privacy.ORDERS"
        )
    curve = tuple((order, total_of(item.renyi(order) for item in items)) for order in orders)
    return RenyiDP(curve, **about)


def _compose_approximately(items: list[Guarantee], about: dict[str, Any]) -> ApproximateDP:
    others = [item for item in items if not isinstance(item, (PureDP, ApproximateDP))]
    if others:
        raise TacitError(
            f"{others[0].short} and an approximate guarantee compose only at a chosen delta: "
            "convert it first, with .to_approximate(delta)"
        )
    epsilon = total_of(item.epsilon for item in items if isinstance(item, (PureDP, ApproximateDP)))
    delta = total_of(item.delta for item in items if isinstance(item, ApproximateDP))
    if delta >= 1:
        raise TacitError(
            f"delta of these guarantees adds up to {delta:g}: must be below 1. Compose fewer"
        )
    return ApproximateDP(epsilon, delta, **about)


def _joined_assumptions(items: Sequence[Guarantee]) -> frozenset[Assumption]:
    """Union of the assumptions; metrics and claims only if all guarantees have them."""
    everything = of_each(item.assumptions for item in items)
    return with_metrics(everything, min(item.metrics for item in items))


def _common_arithmetic(items: Sequence[Guarantee]) -> Arithmetic:
    """The weakest arithmetic of all of these."""
    found = Arithmetic.EXACT
    for item in items:
        found = item.arithmetic if found.covers(item.arithmetic) else found
    return found


def weakest(guarantees: Sequence[Guarantee | None]) -> PureDP | ApproximateDP | None:
    """Return the guarantee that holds for everybody if each participant has one of these.

    It has the largest ε, the largest δ, the fewest participations and all assumptions; None if a
    participant has none. All guarantees must share view and neighbours, and those of several
    participations the method of accounting: a participant may be in rounds of each of them.
    Composed loss distributions of different releases are rejected.

    >>> found = weakest([ApproximateDP(1.0, 1e-6), ApproximateDP(0.5, 1e-5)])
    >>> found.short, weakest([PureDP(1.0), None])
    ('(1, 1e-05)-DP', None)
    """
    items = [item for item in guarantees if item is not None]
    if not guarantees:
        raise TacitError("there is no guarantee to take the weakest of: give at least one")
    if len(items) < len(guarantees):
        return None
    first = items[0]
    _check_alike(items)
    methods = {_methods(item) for item in items}
    if len(methods) > 1:
        raise TacitError(
            "guarantees of several participations are accounted for by different methods, which do "
            f"not compose ({'; '.join(sorted(filter(None, methods)))}): use one kind of noise and "
            "one order in all rounds"
        )
    if len(set(items)) > 1 and any(map(_of_equal_rounds, items)):
        raise TacitError(
            "guarantees of several participations are accounted for by composing equal releases, "
            "which bounds no participant's loss in releases of several kinds: use compose of "
            "one participation each, or noise that is calibrated to a common target"
        )
    numbers = [item for item in items if isinstance(item, (PureDP, ApproximateDP))]
    if len(numbers) < len(items):
        raise TacitError(
            "Rényi and concentrated guarantees have no largest epsilon: convert them with "
            ".to_approximate(delta) first"
        )
    about = first.shared_fields | {
        "participations": min(item.participations for item in items),
        "assumptions": _joined_assumptions(items),
    }
    epsilon = max(item.epsilon for item in numbers)
    deltas = [item.delta for item in numbers if isinstance(item, ApproximateDP)]
    made = ApproximateDP(epsilon, max(deltas), **about) if deltas else PureDP(epsilon, **about)
    return state_arithmetic(made, _common_arithmetic(items))


def _check_alike(items: Sequence[Guarantee]) -> None:
    """Reject guarantees about different neighbours or views."""
    if len({(item.neighbours, item.view) for item in items}) > 1:
        raise TacitError(
            "guarantees about different neighbours or views have no weakest one: state them for "
            "one view first"
        )


def _of_equal_rounds(guarantee: Guarantee) -> bool:
    """Whether the accounting holds for equal releases only: composed loss distributions, or Rényi
    divergences at an order that is best for one of them.
    """
    return guarantee.participations > 1 and any(
        one.method is Method.LOSS or (one.method is Method.RENYI and not one.order)
        for one in guarantee.assumptions
        if isinstance(one, Accounting)
    )


def _methods(guarantee: Guarantee) -> str:
    """The accounting of several participations, as identifiers; empty for one participation."""
    found = [one for one in guarantee.assumptions if isinstance(one, Accounting)]
    listed = [f"{one.method.value} {one.order}" for one in found if guarantee.participations > 1]
    return ", ".join(sorted(listed))

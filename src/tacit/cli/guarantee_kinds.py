"""The kinds of guarantees that accounting commands take and print: pure, approximate, Rényi, zCDP.

Numbers are derived in `tacit.privacy`; this module reads options and lists the numbers of a
guarantee, rounded up.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError, integer
from tacit.rounding import exactly, no_less, up

if TYPE_CHECKING:
    from tacit.noise import NoiseDistribution
    from tacit.privacy import ApproximateDP, ConcentratedDP, Gaussian, Guarantee, PureDP, RenyiDP


class GuaranteeKind(StrEnum):
    """Kinds of guarantees."""

    pure = "pure"
    approximate = "approximate"
    renyi = "renyi"
    zcdp = "zcdp"


def check_orders(kind: GuaranteeKind, orders: str | None) -> None:
    """Reject orders for a guarantee that has none."""
    if orders is not None and kind is not GuaranteeKind.renyi:
        raise TacitError(f"--orders is {orders}, but --as is {kind.value}: use --as renyi")


def read_orders(text: str | None) -> tuple[float, ...]:
    """Rényi orders from a comma-separated list; the usual ones without it."""
    from tacit.privacy.divergences import SHOWN

    if text is None:
        return SHOWN
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise TacitError(f"--orders is {text!r}: must be numbers above 1, such as 2,4,8") from None
    if not all(order > 1 for order in found):
        raise TacitError(f"--orders is {text!r}: every order must be above 1, such as 2,4,8")
    return found


def one_guarantee(
    kind: GuaranteeKind, epsilon: float | None, delta: float, rho: float | None, orders: str | None
) -> PureDP | ApproximateDP | RenyiDP | ConcentratedDP:
    """The guarantee that options describe; options of other kinds are rejected."""
    from tacit.privacy import ApproximateDP, ConcentratedDP, PureDP, RenyiDP

    check_orders(kind, orders)
    zcdp = kind is GuaranteeKind.zcdp
    if zcdp == (rho is None) or zcdp == (epsilon is not None):
        wanted, vain = ("--rho", "--epsilon") if zcdp else ("--epsilon", "--rho")
        raise TacitError(
            f"{wanted}, not {vain}, states the guarantee of --as {kind.value}: give it"
        )
    if delta and kind is not GuaranteeKind.approximate:
        raise TacitError(f"delta is {delta:g}, but --as {kind.value} has none: leave it out")
    if rho is not None:
        return ConcentratedDP(rho)
    assert epsilon is not None
    if kind is GuaranteeKind.renyi:
        if orders is None:
            raise TacitError("--as renyi needs --orders at which epsilon holds, such as --orders 8")
        return RenyiDP(tuple((order, epsilon) for order in read_orders(orders)))
    return PureDP(epsilon) if delta == 0 else ApproximateDP(epsilon, delta)


def stated(
    kind: GuaranteeKind,
    distribution: NoiseDistribution | Gaussian,
    sensitivity: float,
    participations: int,
    orders: str | None,
) -> Guarantee:
    """The pure, Rényi or concentrated guarantee of noise."""
    from tacit.noise import NoiseDistribution
    from tacit.privacy import concentrated_of, privacy_of, renyi_of

    times = integer("participations", participations, at_least=1)
    if kind is GuaranteeKind.renyi:
        chosen = read_orders(orders)
        return renyi_of(distribution, sensitivity, chosen, participations=times)
    if kind is GuaranteeKind.zcdp:
        return concentrated_of(distribution, sensitivity, participations=times)
    if not isinstance(distribution, NoiseDistribution):
        raise TacitError("gaussian noise gives no pure guarantee: use --as zcdp, or --delta 1e-6")
    moved = integer("sensitivity", sensitivity, at_least=1)
    return privacy_of(distribution, moved, participations=times)


def guarantee_numbers(
    guarantee: Guarantee, as_json: bool, delta: float | None = None
) -> dict[str, Any]:
    """The numbers of a guarantee; of Rényi and concentrated ones also the (ε, δ) they imply."""
    from tacit.privacy import ApproximateDP, ConcentratedDP, PureDP, RenyiDP

    if isinstance(guarantee, PureDP):
        return {"epsilon": guarantee.epsilon, "delta": 0.0}
    if isinstance(guarantee, ApproximateDP):
        return {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    implied = {} if delta is None else {"epsilon": guarantee.epsilon_at(delta), "delta": delta}
    if isinstance(guarantee, ConcentratedDP):
        return {"rho": guarantee.rho, **implied}
    assert isinstance(guarantee, RenyiDP)
    curve = [[order, no_less(value)] for order, value in guarantee.curve]
    said = ", ".join(f"{exactly(order)}: {up(value)}" for order, value in curve)
    return {"renyi_curve": curve if as_json else said, **implied}

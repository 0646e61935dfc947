"""Whether and how a mechanism is private: guaranteed, known round by round, or not at all.

Everything that releases data asks this value; no sentence decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.errors import TacitError
from tacit.privacy.guarantees import ApproximateDP, Guarantee, PureDP


@dataclass(frozen=True)
class Guaranteed:
    """Every round must earn this guarantee, which holds for the whole run."""

    guarantee: Guarantee


@dataclass(frozen=True)
class KnownPerRound:
    """Every round must earn a guarantee; which one is known only when it is proposed, because
    printed noise depends on the size of a round. `target` is what was asked for.
    """

    target: PureDP | ApproximateDP


@dataclass(frozen=True)
class NonPrivate:
    """Nothing is guaranteed: a baseline that sees every sum as it is."""


PrivacyStatus = Guaranteed | KnownPerRound | NonPrivate
NON_PRIVATE_TEXT = "none: no privacy, the server sees every sum as it is"


def status_of(guarantee: Guarantee | None) -> Guaranteed | NonPrivate:
    """`Guaranteed` with a guarantee, else `NonPrivate`."""
    return NonPrivate() if guarantee is None else Guaranteed(guarantee)


def status_to_data(status: PrivacyStatus) -> dict[str, Any]:
    """As plain data; `status_from_data` reads it."""
    match status:
        case Guaranteed():
            return {"status": "guaranteed", "guarantee": status.guarantee.to_data()}
        case KnownPerRound():
            return {"status": "known-per-round", "target": status.target.to_data()}
    return {"status": "non-private"}


def status_from_data(data: Mapping[str, Any]) -> PrivacyStatus:
    """The status that `status_to_data` wrote."""
    match data.get("status"):
        case "guaranteed":
            return Guaranteed(Guarantee.from_data(data["guarantee"]))
        case "known-per-round":
            target = Guarantee.from_data(data["target"])
            if isinstance(target, (PureDP, ApproximateDP)):
                return KnownPerRound(target)
        case "non-private":
            return NonPrivate()
    raise TacitError(
        f"privacy status is {data.get('status')!r}; it must be guaranteed, known-per-round (with "
        "an epsilon) or non-private"
    )

"""Privacy status of a mechanism: guaranteed for the run, known per round, or non-private.

All code that releases data branches on this value, never on a rendered sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.errors import TacitError
from tacit.privacy.guarantees import ApproximateDP, Guarantee, PureDP


@dataclass(frozen=True)
class Guaranteed:
    """The mechanism is private: every round must satisfy this guarantee, which covers the run.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee for one participant.

    Examples
    --------
    >>> Guaranteed(PureDP(1.0)).guarantee.short
    '(1, 0)-DP'
    """

    guarantee: Guarantee


@dataclass(frozen=True)
class KnownPerRound:
    """The mechanism is private; each round's guarantee is known only when the round is proposed.

    The noise printed in a paper depends on the size of a round, and so does its guarantee.

    Parameters
    ----------
    target : PureDP or ApproximateDP
        The guarantee that was requested.

    Examples
    --------
    >>> KnownPerRound(ApproximateDP(1.0, 1e-6)).target.short
    '(1, 1e-06)-DP'
    """

    target: PureDP | ApproximateDP


@dataclass(frozen=True)
class NonPrivate:
    """The mechanism has no guarantee: a baseline that sees every exact sum.

    Examples
    --------
    >>> status_of(None)
    NonPrivate()
    """


PrivacyStatus = Guaranteed | KnownPerRound | NonPrivate
NON_PRIVATE_TEXT = "none: no privacy, the server sees every sum as it is"


def status_of(guarantee: Guarantee | None) -> Guaranteed | NonPrivate:
    """Return `Guaranteed` for a guarantee, `NonPrivate` for None."""
    return NonPrivate() if guarantee is None else Guaranteed(guarantee)


def status_to_data(status: PrivacyStatus) -> dict[str, Any]:
    """Return the status as plain data; `status_from_data` reads it."""
    match status:
        case Guaranteed():
            return {"status": "guaranteed", "guarantee": status.guarantee.to_data()}
        case KnownPerRound():
            return {"status": "known-per-round", "target": status.target.to_data()}
    return {"status": "non-private"}


def status_from_data(data: Mapping[str, Any]) -> PrivacyStatus:
    """Restore the status that `status_to_data` wrote."""
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
        f"privacy status is {data.get('status')!r}: must be guaranteed, known-per-round (with "
        "an epsilon) or non-private"
    )

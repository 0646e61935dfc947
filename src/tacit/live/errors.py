"""How a live party says no: refusals that know which HTTP status says the same."""

from __future__ import annotations

from tacit.checks import Refusal, TacitError, Unavailable

UNPROCESSABLE = 422


class Unknown(Refusal):
    """There is no such experiment or round here."""


class Forbidden(Refusal):
    """Whoever asks may not."""


class Conflict(Refusal):
    """Something else is there already, or it is not the time for it."""


class Gone(Refusal):
    """The round takes no more reports."""


class TooEarly(Refusal):
    """The round is not over yet."""


STATUS: dict[type[TacitError], int] = {
    Unknown: 404,
    Forbidden: 403,
    Conflict: 409,
    Gone: 410,
    TooEarly: 425,
    Unavailable: 503,
}


def status(error: TacitError) -> int:
    """The HTTP status that says the same.

    >>> status(Gone("over")), status(Refusal("nonsense"))
    (410, 422)
    """
    return STATUS.get(type(error), UNPROCESSABLE)

"""How a live party says no: refusals that know which HTTP status says the same."""

from __future__ import annotations

import logging

from tacit.errors import Refusal, TacitError, Unavailable

LOG = logging.getLogger("tacit.service")
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


def told(error: TacitError) -> str:
    """What whoever asked is told. Which disk or database is in trouble is for the log alone.

    >>> told(Unavailable("the key files in /srv/keys cannot be used"))
    'this party cannot do it now; nothing was changed: try again later'
    """
    if isinstance(error, Unavailable):
        LOG.warning("unavailable: %s", error)
        return "this party cannot do it now; nothing was changed: try again later"
    return str(error)

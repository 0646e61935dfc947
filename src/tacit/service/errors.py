"""Errors of a party that map to HTTP status codes."""

from __future__ import annotations

import logging

from tacit.errors import Rejected, TacitError, Unavailable

LOG = logging.getLogger("tacit.service")
UNPROCESSABLE = 422


class Unknown(Rejected):
    """No such experiment or round at this party."""


class Forbidden(Rejected):
    """The caller lacks permission, such as a valid invitation."""


class Conflict(Rejected):
    """The request conflicts with the current state."""


class Gone(Rejected):
    """The round accepts no more reports."""


class TooEarly(Rejected):
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
    """The HTTP status code of an error.

    >>> status(Gone("over")), status(Rejected("nonsense"))
    (410, 422)
    """
    return STATUS.get(type(error), UNPROCESSABLE)


def public_message(error: TacitError) -> str:
    """The message for the client. Details of an unavailable disk or database go to the log only.

    >>> public_message(Unavailable("the key files in /srv/keys are unavailable"))
    'this party is unavailable; nothing was changed: retry later'
    """
    if isinstance(error, Unavailable):
        LOG.warning("unavailable: %s", error)
        return "this party is unavailable; nothing was changed: retry later"
    return str(error)

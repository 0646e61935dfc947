"""Error responses as problem documents (RFC 9457), with one table of problem types.

`type` is a stable reference relative to the party's address. `error` repeats `detail` for devices,
which read that member. No document repeats a value of a body, except of
an administrator's definition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse

from tacit.errors import TacitError
from tacit.service.errors import public_message, status

MEDIA_TYPE = "application/problem+json"
TYPES = {
    400: ("malformed-request", "Malformed HTTP request"),
    401: ("admin-token-required", "Admin token missing or wrong"),
    403: ("forbidden", "Forbidden"),
    404: ("not-found", "Not found"),
    405: ("method-not-allowed", "Method not allowed"),
    408: ("request-timeout", "Request body not received in time"),
    409: ("conflict", "Conflict with the current state"),
    410: ("round-closed", "Round accepts no more reports"),
    413: ("body-too-large", "Request body too large"),
    422: ("validation-failed", "Request validation failed"),
    425: ("round-not-over", "Round not over yet"),
    429: ("rate-limited", "Too many requests"),
    431: ("headers-too-large", "Request headers too large"),
    500: ("internal-error", "Internal error"),
    503: ("unavailable", "Temporarily unavailable"),
}
"""Problem types by HTTP status: identifier and title."""
RETRY_AFTER = {425: "5", 503: "1"}  # seconds
ANY = (400, 408, 413, 422, 429, 431, 500, 503)  # possible statuses of every request
MOST = 5  # invalid fields in a document
RULES = {
    "missing": "is required",
    "extra_forbidden": "must not have unknown fields",
    "json_invalid": "must be valid JSON",
    "model_attributes_type": "must be a JSON object, sent with `Content-Type: application/json`",
}


class ProblemDocument(BaseModel):
    """An error response: a problem document (RFC 9457). `error` is the same text as `detail`."""

    type: str
    title: str
    status: int
    detail: str
    error: str


def problem(
    number: int, detail: str = "", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The response with this status; the title is the detail by default."""
    name, title = TYPES[number]
    said = detail or f"{title}."
    document = {"type": f"/problems/{name}", "title": title, "status": number}
    return JSONResponse(
        document | {"detail": said, "error": said}, number, headers, media_type=MEDIA_TYPE
    )


def rejected(reason: TacitError) -> JSONResponse:
    """The response to a request that a party rejected for this reason."""
    number = status(reason)
    later = RETRY_AFTER.get(number)
    return problem(
        number, public_message(reason), None if later is None else {"retry-after": later}
    )


def invalid(errors: Sequence[Mapping[str, Any]]) -> JSONResponse:
    """The response to a request with invalid fields: which field and which rule."""
    said = "; ".join(_invalid(error) for error in errors[:MOST])
    return problem(422, f"Request validation failed: {said}.")


def _invalid(error: Mapping[str, Any]) -> str:
    """Field and rule; the name of an unknown field is arbitrary input and is omitted."""
    known = error["loc"][:-1] if error["type"] == "extra_forbidden" else error["loc"]
    name = ".".join(part for part in known if isinstance(part, str)).removeprefix("body.")
    rule = RULES.get(error["type"]) or re.sub(r"^\w+ should", "must", error["msg"])
    return f"`{name}` {rule}"


def responses(*numbers: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an operation, for its OpenAPI description."""
    return {number: _described(*TYPES[number]) for number in sorted({*numbers, *ANY})}


def _described(name: str, title: str) -> dict[str, Any]:
    schema = {
        "$ref": "#/components/schemas/Problem",
        "properties": {"type": {"const": f"/problems/{name}"}},
    }
    return {"description": title, "content": {MEDIA_TYPE: {"schema": schema}}}

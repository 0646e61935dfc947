"""Requests, replies and their parsing, without network I/O.

A `Conversation` is a generator that yields requests, receives the replies and returns a result. The
modules `http` (synchronous) and `aio` (asyncio) drive it over a network.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tacit.errors import Rejected, Unavailable

T = TypeVar("T")
LONGEST_REPLY = 1 << 20  # maximum size of a reply in bytes
SLOWEST_REPLY = 30.0  # maximum seconds to receive a reply: other experiments wait meanwhile
_LONGEST_SENTENCE = 300


class Offline(Unavailable):
    """A server is unreachable or temporarily unavailable: no state is lost, retry later."""


@dataclass(frozen=True)
class Request:
    """One request of a device; the answer occurs in it only as encrypted bytes."""

    method: str
    url: str
    content: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Reply:
    """The reply to a request; status 0 means that none arrived."""

    status: int
    content: bytes = field(default=b"", repr=False)
    failure: str = ""  # why none arrived

    @property
    def error_text(self) -> str:
        """The server's error message, reduced to printable characters and truncated."""
        try:
            sentence = json.loads(self.content)["error"]
        except (ValueError, KeyError, TypeError, RecursionError):
            sentence = None
        if not isinstance(sentence, str) or not sentence:
            return f"status {self.status}" if self.status else self.failure or "no reply"
        return "".join(letter for letter in sentence if letter.isprintable())[:_LONGEST_SENTENCE]


Conversation = Generator[Request, Reply, T]
"""Generator of requests that receives replies and returns a result."""


def document(reply: Reply, party: str) -> dict[str, Any]:
    """The JSON object of a successful reply.

    Raises `Offline` if a retry may help, otherwise `Rejected`.
    """
    if reply.status == 0 or reply.status == 429 or reply.status >= 500:
        raise Offline(f"{party} is unavailable ({reply.error_text}). Try again later")
    if not 200 <= reply.status < 300:
        raise Rejected(f"{party} rejects the request: {reply.error_text}")
    try:
        found = json.loads(reply.content)
    except (ValueError, RecursionError):  # also for integers of thousands of digits
        found = None
    if not isinstance(found, dict):
        raise Rejected(f"reply of {party} is invalid: must be a JSON object")
    return found


def text_of(document: dict[str, Any], name: str, party: str) -> str:
    """A string field of a JSON object."""
    value = document.get(name)
    if not isinstance(value, str):
        raise Rejected(f"{name} in the reply of {party} is {value!r}: must be a string")
    return value


def bytes_of(document: dict[str, Any], name: str, party: str) -> bytes:
    """A hexadecimal field of a JSON object, as bytes."""
    return unhex(text_of(document, name, party), f"{party}'s {name}")


def unhex(text: object, name: str) -> bytes:
    """Decode hexadecimal digits; raise `Rejected` if they are invalid."""
    try:
        if isinstance(text, str) and text.isalnum():
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise Rejected(f"{name} is {text!r}: must consist of hexadecimal digits")

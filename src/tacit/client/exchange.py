"""What a device and a server say to each other, without a network: requests, replies, and talks.

A talk is a generator that yields requests, is sent the replies, and returns what came of it.
Whoever drives it carries the bytes: `http` with threads, `aio` with asyncio.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tacit.errors import Refusal, Unavailable

T = TypeVar("T")
LONGEST_REPLY = 1 << 20  # bytes that are read of a reply
_LONGEST_SENTENCE = 300


class Offline(Unavailable):
    """A server did not answer, or could not at the moment: nothing is lost, try again later."""


@dataclass(frozen=True)
class Request:
    """One request of a device; its answer is in none of it but in sealed bytes."""

    method: str
    url: str
    content: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Reply:
    """What came back; status 0 where nothing did."""

    status: int
    content: bytes = field(default=b"", repr=False)

    @property
    def said(self) -> str:
        """A server's sentence about what went wrong, fit to be shown: short, and printable."""
        try:
            sentence = json.loads(self.content)["error"]
        except (ValueError, KeyError, TypeError, RecursionError):
            sentence = None
        if not isinstance(sentence, str) or not sentence:
            return f"status {self.status}" if self.status else "no answer"
        return "".join(letter for letter in sentence if letter.isprintable())[:_LONGEST_SENTENCE]


Talk = Generator[Request, Reply, T]
"""Requests out, replies in, and a result at the end."""


def succeeded(reply: Reply, who: str) -> Reply:
    """The reply, if it is one: `Offline` where trying again may help, else a `Refusal`."""
    if reply.status == 0 or reply.status == 429 or reply.status >= 500:
        raise Offline(f"{who} cannot be asked at the moment ({reply.said}); try again later")
    if not 200 <= reply.status < 300:
        raise Refusal(f"{who} refuses: {reply.said}")
    return reply


def document(reply: Reply, who: str) -> dict[str, Any]:
    """The JSON object that a reply holds."""
    try:
        found = json.loads(succeeded(reply, who).content)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refusal(f"{who} answered something that is no JSON object")
    return found


def text_of(found: dict[str, Any], name: str, who: str) -> str:
    """A text of a JSON object."""
    value = found.get(name)
    if not isinstance(value, str):
        raise Refusal(f"{who} answered without {name!r}, or with one that is no text")
    return value


def bytes_of(found: dict[str, Any], name: str, who: str) -> bytes:
    """Bytes of a JSON object, which are spelt in hexadecimal digits."""
    return unhex(text_of(found, name, who), f"{who}'s {name}")


def unhex(text: object, what: str) -> bytes:
    """The bytes that hexadecimal digits spell."""
    try:
        if isinstance(text, str) and text.isalnum():
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise Refusal(f"{what} is not spelt in hexadecimal digits")

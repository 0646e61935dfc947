"""A helper that keeps the coordinator waiting, or sends it more than it asked for."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.parties import terms

from tacit.errors import Unavailable
from tacit.service.http import helper_client as links
from tacit.service.http.helper_client import HttpLink
from tacit.service.party import ServerParty
from tacit.service.store import Registered


def linked(answer: httpx.Response) -> HttpLink:
    """A link to a helper that answers so."""
    key = Ed25519PrivateKey.generate()
    registered = Registered(terms(), (), (), bytes(32))
    coordinator = SimpleNamespace(terms=lambda _: registered, key_for=lambda _: key)
    made = HttpLink(cast("ServerParty", coordinator))
    made.close()
    made._client = httpx.Client(transport=httpx.MockTransport(lambda _: answer))
    return made


def test_an_answer_that_never_ends_holds_up_nobody_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes byte by byte, each in time."""
    monkeypatch.setattr(links, "SLOWEST", 0.05)

    def drops() -> Iterator[bytes]:
        for _ in range(20):
            time.sleep(0.01)
            yield b" "

    with pytest.raises(Unavailable, match="takes too long"):
        linked(httpx.Response(200, content=drops())).keys(bytes(32), bytes(16), 1)


def test_an_answer_that_is_packed_unasked_is_not_unpacked() -> None:
    answer = httpx.Response(
        200, headers={"content-encoding": "gzip"}, content=gzip.compress(b'{"keys": "00"}')
    )
    with pytest.raises(Unavailable, match="compressed"):
        linked(answer).keys(bytes(32), bytes(16), 1)

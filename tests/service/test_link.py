"""A helper that keeps the coordinator waiting, or sends it more than it asked for."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from tests.service.parties import terms
from tests.service.served import served, wait_for

from tacit.errors import Unavailable
from tacit.service.http import helper_client as links
from tacit.service.http.helper_client import HttpLink
from tacit.service.http.middleware import Front
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


def test_a_coordinator_that_stops_closes_its_connections_to_helpers(tmp_path: Path) -> None:
    """A connection left to the garbage collector is a warning, hence an error here."""
    with served(tmp_path) as both:
        digest = both.begin()
        wait_for(lambda: any(one["stage"] == "open" for one in both.status(digest)["rounds"]))
        (front,) = (one for one in both.fronts if parties_link(one) is not None)
        link = parties_link(front)
    assert link is not None
    assert link._client.is_closed


def parties_link(front: Front) -> HttpLink | None:
    assert isinstance(front.app, FastAPI)
    link: HttpLink | None = front.app.state.service.link
    return link

"""The other party of an audit: the auditor's own coordinator or helper, which adds no noise.

A released sum then has the noise of the audited party alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.aggregator_context import Draw
from tacit.errors import TacitError
from tacit.keyfiles import load_signing_key
from tacit.service.admin import PartyClient
from tacit.service.bootstrap import create_party
from tacit.service.config import PartyConfig, load
from tacit.service.http.serve import application, create_server, listening

STARTING = 60.0  # seconds


@dataclass(frozen=True, repr=False)
class KeyedParty:
    """A party whose operator holds its signing key and its admin token."""

    operated: PartyClient
    key: Ed25519PrivateKey

    @classmethod
    def of(cls, config: PartyConfig, url: str) -> KeyedParty:
        """The party of a configuration, at this address."""
        key = load_signing_key(config.signing_key, config.lock)
        return cls(PartyClient(url, config.admin_token), key)


def no_noise(_identity: bytes) -> Draw:
    """A sampler that adds nothing, for the auditor's own party only."""

    def nothing(_scale: Fraction) -> int:
        return 0

    return nothing


@contextmanager
def counterpart(
    role: str, directory: Path, listen: str, address: str | None = None
) -> Iterator[KeyedParty]:
    """Serve a party of this role without noise, in a thread of this process."""
    create_party(role, directory, address, listen)
    config = load(directory / "party.toml", {"TACIT_LIMITS_RATE": "0"})
    with listening(config) as bound:
        server = create_server(application(config, noise=no_noise))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            _wait(server, thread)
            yield KeyedParty.of(config, config.address.rstrip("/"))
        finally:
            server.should_exit = True
            thread.join(STARTING)


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end and thread.is_alive():
        if server.started:
            return
        time.sleep(0.02)
    raise TacitError("the audit's own server did not start: free the address in --listen")

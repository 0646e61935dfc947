"""Pinned address and keys, from which a device verifies everything else."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.client.exchange import unhex
from tacit.errors import require
from tacit.signatures import KEY_SIZE
from tacit.terms import Terms


@dataclass(frozen=True)
class Pins:
    """Pinned address of the coordinator and long-term public keys of the servers.

    The guarantee depends on these keys. Take them from a source that is no server: build them into
    the app, or read them from a third party.

    Attributes
    ----------
    address : str
        URL of the coordinator.
    coordinator, helper : str
        Ed25519 public keys, hexadecimal. None stands for a trust model without a helper.

    Examples
    --------
    >>> pins = Pins("https://coordinator.example", coordinator="ab" * 32, helper="cd" * 32)
    >>> [len(key) for key in pins.keys]
    [32, 32]
    """

    address: str
    coordinator: str
    helper: str | None = None

    def __post_init__(self) -> None:
        require(
            self.address.startswith(("https://", "http://")),
            "address",
            repr(self.address),
            "a URL that begins with https:// or http://",
        )
        for name, key in zip(("coordinator", "helper"), self.keys, strict=False):
            require(len(key) == KEY_SIZE, name, key.hex(), f"{2 * KEY_SIZE} hexadecimal digits")

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys as bytes, the coordinator's first."""
        own = unhex(self.coordinator, "coordinator")
        return (own,) if self.helper is None else (own, unhex(self.helper, "helper"))

    def ordered(self, terms: Terms) -> tuple[bytes, ...]:
        """The keys in the order of the parties in the terms."""
        return self.keys if terms.leader == 0 else self.keys[::-1]

"""What a device accepts: the address and keys that it verifies all else from, and trust models."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.client.exchange import unhex
from tacit.errors import Rejected, require
from tacit.signatures import KEY_SIZE
from tacit.terms import Terms
from tacit.trust import TrustModel


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


@dataclass(frozen=True)
class Acceptance:
    """Trust models that a participant accepts, beyond the terms of one experiment.

    Attributes
    ----------
    trusts : tuple of TrustModel
        Accepted trust models; all by default.
    obedient_coordinator : bool
        Whether the participant accepts to be protected only against a coordinator that follows the
        protocol. It is needed where devices share the noise and no helper checks invitations, as
        with open admission or secure aggregation: another coordinator could invent all other
        participants.

    Examples
    --------
    >>> careful = Acceptance((TrustModel.LOCAL, TrustModel.TWO_SERVERS))
    >>> careful.obedient_coordinator
    False
    """

    trusts: tuple[TrustModel, ...] = tuple(TrustModel)
    obedient_coordinator: bool = False

    def check(self, terms: Terms) -> None:
        """Reject terms that are weaker than the participant accepts."""
        if terms.trust not in self.trusts:
            raise Rejected(
                f"trust is {terms.trust.value}: must be one of {', '.join(self.trusts)}, which the "
                "participant accepts. The device does not join"
            )
        if terms.may_be_invented and not self.obedient_coordinator:
            raise Rejected(
                f"admission is {terms.admission} with trust {terms.trust.value}, where no helper "
                "checks invitations: a coordinator could invent all other participants. Join only "
                "if the participant accepts to be protected against a coordinator that follows the "
                "protocol: Device(…, accept=Acceptance(obedient_coordinator=True))"
            )

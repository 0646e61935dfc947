"""Round announcements: the fields common to all round descriptions, and their signatures.

A description starts with the digest of its terms, the option, the levels of an answer, the
observation window and the deadline; where devices choose the option, the round's policy is next.
The fields of the kind of round follow. An announcement is a description followed by the signatures
of all parties of the terms. Clients call `accept`, which checks both against the pinned terms;
nothing here draws randomness.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Self, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation import wire
from tacit.aggregation.interface import expect
from tacit.errors import integer, require
from tacit.signatures import SIGNATURE_SIZE, Signed, sign, signatures_in
from tacit.terms import BY_POLICY, DIGEST_SIZE, Offer, PinnedTerms, check_party_key

_BINDING = struct.Struct(f">{DIGEST_SIZE}sHIIQ")
_DIVISOR = struct.Struct(">I")
_POLICY_SIZE = struct.Struct(">I")
LONGEST_POLICY = 1 << 15  # bytes
ACCEPTED = 256  # cached announcements


@dataclass(frozen=True)
class Binding:
    """The fields at the start of every description.

    These are the digest of the terms, the index of the option, levels and window (seconds) as in
    the terms, and the deadline in seconds since 1970. Where devices choose, the option is
    `BY_POLICY` and `policy` says how.
    """

    terms: bytes
    option: int = 0
    levels: int = 1
    window: int = 0
    closes: int = 0
    policy: bytes = b""

    def __post_init__(self) -> None:
        size = len(self.terms)
        require(size == DIGEST_SIZE, "digest of the terms", f"{size} bytes long", "32 bytes long")
        require(0 <= self.option < 1 << 16, "option", self.option, "from 0 to 2^16 - 1")
        require(1 <= self.levels < 1 << 32, "levels", self.levels, "from 1 to 2^32 - 1")
        require(0 <= self.window < 1 << 32, "window", self.window, "from 0 to 2^32 - 1")
        require(0 <= self.closes < 1 << 64, "deadline", self.closes, "from 0 to 2^64 - 1")
        size = len(self.policy)
        rule = f"1 to {LONGEST_POLICY} bytes long where devices choose, else empty"
        fits = 1 <= size <= LONGEST_POLICY if self.chosen else not size
        require(fits, "policy", f"{size} bytes long", rule)

    @property
    def chosen(self) -> bool:
        """Whether devices choose the option."""
        return self.option == BY_POLICY

    def encode(self) -> bytes:
        """Serialize the fields."""
        fixed = _BINDING.pack(self.terms, self.option, self.levels, self.window, self.closes)
        return fixed + _POLICY_SIZE.pack(len(self.policy)) + self.policy if self.policy else fixed

    @classmethod
    def first(cls, data: bytes) -> tuple[Binding, bytes]:
        """Parse the fields at the start of a description's body; return the rest too.

        Invalid values raise `TacitError`: call it inside `wire.rejecting_invalid`.
        """
        fields, rest = wire.leading_fields(_BINDING, data, "the description")
        policy = b""
        if fields[1] == BY_POLICY:
            (size,), rest = wire.leading_fields(_POLICY_SIZE, rest, "the policy")
            policy, rest = wire.leading_bytes(rest, size, "the policy"), rest[size:]
        return cls(*(*fields, policy)), rest

    def offer(self, **described: Any) -> Offer:
        """The fields that a client checks against its terms: these and those in `described`."""
        return Offer(
            terms=self.terms,
            option=self.option,
            levels=self.levels,
            window=self.window,
            closes=self.closes,
            policy=self.policy,
            **described,
        )


@dataclass(frozen=True)
class SharedNoise:
    """Noise drawn by clients, each of whom adds one of `divisor` shares.

    All shares together have the parameter `total`: the scale of discrete Laplace noise, the
    variance in rehearsals.

    >>> SharedNoise.first(SharedNoise(40, Fraction(5, 2)).encode())
    (SharedNoise(divisor=40, total=Fraction(5, 2)), b'')
    """

    divisor: int = 1
    total: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        integer("divisor", self.divisor, at_least=1)
        require(self.divisor < 1 << 32, "share divisor", self.divisor, "below 2^32")
        small = 0 < self.total < 1 << 1000 and self.total.denominator < 1 << 1000
        require(
            small, "total noise", self.total, "above 0 and below 2^1000, with such a denominator"
        )

    def encode(self) -> bytes:
        """Serialize the noise."""
        return _DIVISOR.pack(self.divisor) + wire.pack_fraction(self.total)

    @classmethod
    def first(cls, data: bytes) -> tuple[SharedNoise, bytes]:
        """Parse the noise at the start of these bytes; return the rest too."""
        (divisor,), rest = wire.leading_fields(_DIVISOR, data, "share divisor")
        total, rest = wire.first_fraction(rest, "total noise")
        return cls(divisor, total), rest


WHOLE_NOISE = SharedNoise()
"""One share: every client draws the full noise."""


class RoundDescription(ABC):
    """A description of a round of any kind; subclasses are frozen dataclasses."""

    binding: Binding
    identity: bytes

    @abstractmethod
    def encode(self) -> bytes:
        """Serialize the description."""

    @classmethod
    @abstractmethod
    def decode(cls, message: bytes) -> Self:
        """Parse a description, or raise `Rejected`."""

    @abstractmethod
    def offer(self) -> Offer:
        """The fields that a client checks against its terms."""

    @cached_property
    def context(self) -> bytes:
        """SHA-256 of the description.

        It is bound into every ciphertext and key: parties whose descriptions differ share no key.
        """
        return hashlib.sha256(self.encode()).digest()


class LiveRound(RoundDescription):
    """A description of a round that a live service can hold: with slots and times.

    Slots are assigned until `assigned_until` and reports accepted until `binding.closes`. A round
    without release `grace` seconds later is aborted.
    """

    slots: int
    minimum: int
    assigned_until: int
    grace: int

    def offer_of(self, kind: str, noise: SharedNoise | None, **more: Any) -> Offer:
        """The fields that a client checks, including the noise of devices."""
        if noise is not None:
            more |= {"divisor": noise.divisor, "total": noise.total}
        counts = {"slots": self.slots, "minimum": self.minimum, "grace": self.grace}
        return self.binding.offer(kind=kind, **counts, **more)

    def check_times(self) -> None:
        """Reject times out of order; constructors call it."""
        until, closes = self.assigned_until, self.binding.closes
        require(0 <= until <= closes, "assigned_until", until, f"from 0 to the deadline, {closes}")
        require(0 <= self.grace < 1 << 32, "grace", self.grace, "from 0 to 2^32 - 1")


DescriptionT = TypeVar("DescriptionT", bound=RoundDescription)


def binding_of(description: bytes) -> tuple[bytes, Binding]:
    """The identity of a described round of any kind, and the fields at the description's start."""
    with wire.rejecting_invalid():
        return wire.identity_of(description), Binding.first(description[wire.HEADER_SIZE :])[0]


def endorse(description: bytes, key: Ed25519PrivateKey) -> bytes:
    """Sign a description; a party signs one per round, ever."""
    return sign(Signed.ROUND, description, key)


def endorse_offer(
    pinned: PinnedTerms, described: RoundDescription, key: Ed25519PrivateKey
) -> bytes:
    """Sign a description as a party of the pinned terms, if it complies with them."""
    pinned.check(described.offer())
    check_party_key(pinned.terms, key)
    return endorse(described.encode(), key)


def announce(description: bytes, signatures: Sequence[bytes]) -> bytes:
    """Append all signatures to a description, in the order of the terms' parties."""
    return description + b"".join(signatures)


def accept(kind: type[DescriptionT], pinned: PinnedTerms, message: bytes) -> DescriptionT:
    """Parse a round that all parties of the pinned terms signed and that complies with them.

    Raises `Rejected` otherwise. Results are cached.
    """
    expect(isinstance(message, bytes), "announcement", type(message).__name__, "bytes")
    accepted: DescriptionT = _accepted(kind, pinned, message)
    return accepted


@lru_cache(maxsize=ACCEPTED)
def _accepted(kind: type[Any], pinned: PinnedTerms, message: bytes) -> Any:
    end = len(message) - SIGNATURE_SIZE * len(pinned.keys)
    least = f"more than the {len(message) - end} bytes of its signatures"
    expect(end > 0, "announcement", f"{len(message)} bytes long", least)
    description = message[:end]
    pinned.check_signed_round(description, signatures_in(message[end:]))
    accepted = kind.decode(description)
    pinned.check(accepted.offer())
    return accepted

"""Round announcements: the fields common to all round descriptions, and their signatures.

A description starts with the digest of its terms, the option, the levels of an answer, the
observation window and the deadline. The fields of the kind of round follow. An announcement is a
description followed by the signatures of all parties of the terms. Clients call `accept`, which
checks both against the pinned terms; nothing here draws randomness.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.wire import first_integer, head, pack_integer
from tacit.errors import Refusal, TacitError, integer
from tacit.signatures import SIGNATURE_SIZE, Signed, sign
from tacit.terms import DIGEST_SIZE, Offer, Pinned, check_party_key

_BINDING = struct.Struct(f">{DIGEST_SIZE}sHIIQ")
_DIVISOR = struct.Struct(">I")
ACCEPTED = 256  # cached announcements


@dataclass(frozen=True)
class Binding:
    """The fields at the start of every description.

    These are the digest of the terms, the index of the option, levels and window (seconds) as in
    the terms, and the deadline in seconds since 1970.
    """

    terms: bytes
    option: int = 0
    levels: int = 1
    window: int = 0
    closes: int = 0

    def __post_init__(self) -> None:
        if len(self.terms) != DIGEST_SIZE:
            raise TacitError(f"terms are named by a digest of 32 bytes; this has {len(self.terms)}")
        numbers = (self.option, 16), (self.levels, 32), (self.window, 32), (self.closes, 64)
        if self.levels < 1 or any(not 0 <= number < 1 << bits for number, bits in numbers):
            raise TacitError("option, levels, window or deadline do not fit into a description")

    def encode(self) -> bytes:
        """Serialize the fields."""
        return _BINDING.pack(self.terms, self.option, self.levels, self.window, self.closes)

    @classmethod
    def first(cls, data: bytes) -> tuple[Binding, bytes]:
        """Parse the fields at the start of a description's body; return the rest too.

        Invalid values raise `TacitError`: call it inside `wire.described`.
        """
        fields, rest = head(_BINDING, data, "the description")
        return cls(*fields), rest

    def offer(self, **described: Any) -> Offer:
        """The fields that a client checks against its terms: these and those in `described`."""
        return Offer(
            terms=self.terms,
            option=self.option,
            levels=self.levels,
            window=self.window,
            closes=self.closes,
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
        if (
            self.divisor >= 1 << 32
            or not 0 < self.total < 1 << 1000
            or self.total.denominator >= 1 << 1000
        ):
            raise TacitError(
                f"a share divisor is {self.divisor} and the total noise {self.total}: the divisor "
                "must be below 2^32, the noise above 0"
            )

    def encode(self) -> bytes:
        """Serialize the noise."""
        numbers = (self.total.numerator, self.total.denominator)
        return _DIVISOR.pack(self.divisor) + b"".join(map(pack_integer, numbers))

    @classmethod
    def first(cls, data: bytes) -> tuple[SharedNoise, bytes]:
        """Parse the noise at the start of these bytes; return the rest too."""
        (divisor,), rest = head(_DIVISOR, data, "the share divisor")
        top, rest = first_integer(rest, "the total noise")
        bottom, rest = first_integer(rest, "the total noise")
        total = Fraction(top, bottom)
        if total.denominator != bottom:
            raise Refusal("the total noise is not spelt in lowest terms")
        return cls(divisor, total), rest


WHOLE_NOISE = SharedNoise()
"""One share: every client draws the full noise."""


class Description(Protocol):
    """A description of a round of any kind."""

    def encode(self) -> bytes:
        """Serialize the description."""

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Parse a description, or raise `Refusal`."""

    def offer(self) -> Offer:
        """The fields that a client checks against its terms."""


DescriptionT = TypeVar("DescriptionT", bound=Description)


def endorse(description: bytes, key: Ed25519PrivateKey) -> bytes:
    """Sign a description; a party signs one per round, ever."""
    return sign(Signed.ROUND, description, key)


def endorse_offer(pinned: Pinned, described: Description, key: Ed25519PrivateKey) -> bytes:
    """Sign a description as a party of the pinned terms, if it complies with them."""
    pinned.check(described.offer())
    check_party_key(pinned.terms, key)
    return endorse(described.encode(), key)


def announce(description: bytes, signatures: Sequence[bytes]) -> bytes:
    """Append all signatures to a description, in the order of the terms' parties."""
    return description + b"".join(signatures)


def accept(kind: type[DescriptionT], pinned: Pinned, message: bytes) -> DescriptionT:
    """Parse a round that all parties of the pinned terms signed and that complies with them.

    Raises `Refusal` otherwise. Results are cached.
    """
    if not isinstance(message, bytes):
        raise Refusal(f"an announcement is bytes; this is {type(message).__name__}")
    accepted: DescriptionT = _accepted(kind, pinned, message)
    return accepted


@lru_cache(maxsize=ACCEPTED)
def _accepted(kind: type[Any], pinned: Pinned, message: bytes) -> Any:
    end = len(message) - SIGNATURE_SIZE * len(pinned.keys)
    if end <= 0:
        raise Refusal(f"an announcement of {len(message)} bytes has no room for its signatures")
    description = message[:end]
    signatures = [
        message[at : at + SIGNATURE_SIZE] for at in range(end, len(message), SIGNATURE_SIZE)
    ]
    pinned.check_signed_round(description, signatures)
    accepted = kind.decode(description)
    pinned.check(accepted.offer())
    return accepted

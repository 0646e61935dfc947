"""Malicious behaviour detected in a round of secure aggregation, and the clients responsible.

If either of two clients may be responsible, a `Blame` names both. Addresses are the clients' public
keys; numbers are valid in the round only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

_HEAD = struct.Struct(">BB")  # kind, number of clients that follow
_CLIENT = struct.Struct(">I32s")  # number, address
_SAID = 20  # most blames in an error message


class Misbehaviour(IntEnum):
    """Kinds of detected malicious behaviour; the value is its byte in a record."""

    WRONG_SHARE = 1
    INVALID_SHARES = 2
    UNSIGNED = 3
    FALSE_COMPLAINT = 4
    UNKNOWN_KEY = 5
    UNKNOWN_SEED = 6
    DISPUTED = 7


_WORDS = {
    Misbehaviour.WRONG_SHARE: "revealed another share than it received",
    Misbehaviour.INVALID_SHARES: "sent encrypted shares that do not match its commitments",
    Misbehaviour.UNSIGNED: "did not sign the encrypted shares that it sent",
    Misbehaviour.FALSE_COMPLAINT: "complained about encrypted shares that are valid",
    Misbehaviour.UNKNOWN_KEY: "shared another masking key than it announced",
    Misbehaviour.UNKNOWN_SEED: "shared another seed than it committed to",
    Misbehaviour.DISPUTED: "was excluded after complaints with several neighbours; it or they are "
    "malicious",
}


@dataclass(frozen=True, order=True)
class Blame:
    """Malicious behaviour and the client responsible for it.

    `numbers` and `addresses` name one client, or the sender and receiver of encrypted shares. In
    the second case the receiver accuses the sender: one of them, or the server, is at fault.
    """

    kind: Misbehaviour
    numbers: tuple[int, ...]
    addresses: tuple[bytes, ...]

    def __str__(self) -> str:
        first, *others = self.numbers
        doubt = "".join(
            [f", or client {number} or the server accuses it falsely" for number in others]
        )
        return f"client {first} {_WORDS[self.kind]}{doubt}"

    def encode(self) -> bytes:
        """Serialize the blame for a record."""
        clients = zip(self.numbers, self.addresses, strict=True)
        return _HEAD.pack(self.kind, len(self.numbers)) + b"".join(
            [_CLIENT.pack(number, address) for number, address in clients]
        )


def describe_blames(blamed: Sequence[Blame]) -> str:
    """Render the blames for an error message; of many, only the first ones."""
    more = f" And {len(blamed) - _SAID} more." if len(blamed) > _SAID else ""
    return "".join([f" Blamed: {blame}." for blame in blamed[:_SAID]]) + more


def decode_blames(data: bytes) -> tuple[Blame, ...]:
    """Parse all blames in a record."""
    blames = []
    while data:
        kind, count = _HEAD.unpack_from(data)
        end = _HEAD.size + count * _CLIENT.size
        numbers, addresses = zip(*_CLIENT.iter_unpack(data[_HEAD.size : end]), strict=True)
        blames.append(Blame(Misbehaviour(kind), numbers, addresses))
        data = data[end:]
    return tuple(blames)

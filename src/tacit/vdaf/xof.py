"""XofTurboShake128 of the VDAF draft (section 6.2.1): expands a seed to bytes or field elements.

TurboSHAKE128 is that of RFC 9861 with domain separation byte 1, from `pycryptodome`.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from tacit.errors import TacitError
from tacit.vdaf.field import FIELD64, Field

if TYPE_CHECKING:
    from Crypto.Hash.TurboSHAKE128 import TurboSHAKE

SEED_SIZE = 32


@cache
def turboshake() -> ModuleType:
    """Import TurboSHAKE128, or raise an error that says how to install it."""
    try:
        from Crypto.Hash import TurboSHAKE128
    except ImportError:
        raise TacitError(
            "verified sums need TurboSHAKE128 of pycryptodome, which is not installed: pip install "
            "'tacit[device]'"
        ) from None
    return TurboSHAKE128


def stream(seed: bytes, tag: bytes, binder: bytes) -> TurboSHAKE:
    """An endless byte stream, by `read`.

    It absorbs `size(tag) u16 little-endian | tag | size(seed) u8 | seed | binder`.
    """
    data = len(tag).to_bytes(2, "little") + tag + bytes((len(seed),)) + seed + binder
    made: TurboSHAKE = turboshake().new(domain=1, data=data)
    return made


def expand(seed: bytes, tag: bytes, binder: bytes, count: int, field: Field = FIELD64) -> list[int]:
    """Expand a seed to `count` field elements; words not below the modulus are skipped."""
    source, numbers = stream(seed, tag, binder), list[int]()
    while missing := count - len(numbers):
        words = field.parse(source.read(field.size * missing))
        numbers += [word for word in words if word < field.modulus]
    return numbers


def derive_seed(seed: bytes, tag: bytes, binder: bytes) -> bytes:
    """A new seed from a seed."""
    return stream(seed, tag, binder).read(SEED_SIZE)

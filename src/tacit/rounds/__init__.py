"""Rounds of a protocol over an aggregation: the only package that knows both.

`carry` runs every role in one process. `payload` and `released` are the parts for a device and a
server of a live service.
"""

from tacit.rounds.codecs import FITS, UNCARRIED, codec, payload, released
from tacit.rounds.round_runner import carry, minimum, open_through, seen

__all__ = [
    "FITS",
    "UNCARRIED",
    "carry",
    "codec",
    "minimum",
    "open_through",
    "payload",
    "released",
    "seen",
]

"""A protocol's round carried out over an intermediary: the only place that knows both.

`carry` plays every role in one process; `payload` and `opened` are what a device and a server of a
live service use of it.
"""

from tacit.rounds.codecs import FITS, UNCARRIED, codec, opened, payload
from tacit.rounds.round_runner import carry, minimum, open_through, seen

__all__ = [
    "FITS",
    "UNCARRIED",
    "carry",
    "codec",
    "minimum",
    "open_through",
    "opened",
    "payload",
    "seen",
]

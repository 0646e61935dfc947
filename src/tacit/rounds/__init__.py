"""Rounds of a protocol over an aggregation: the only package that knows both.

`aggregate` runs every role in one process. `payload` and `released` are the parts for a device and
a server of a live service.
"""

from tacit.rounds.codecs import FITS, UNCARRIED, codec, payload, released
from tacit.rounds.round_runner import aggregate, aggregation_view, minimum, run_round

__all__ = [
    "FITS",
    "UNCARRIED",
    "aggregate",
    "aggregation_view",
    "codec",
    "minimum",
    "payload",
    "released",
    "run_round",
]

"""Rounds of masking whose graph is the plain ring, for tests that must know who is whose
neighbour.
"""

from __future__ import annotations

from tacit.intermediaries import MaskingRound, MaskingServer, Neighbourhood
from tacit.intermediaries.interface import SYSTEM, Source, new_identity
from tacit.intermediaries.masking_server import prepare
from tacit.records import MemoryRecords


def ring_server(
    reports: int,
    minimum: int,
    modulus: int,
    among: Neighbourhood,
    length: int = 1,
    source: Source = SYSTEM,
) -> MaskingServer:
    """A server that does not shuffle; with a fixed source, always the same one."""
    store, identity = MemoryRecords(), new_identity(source)
    key = prepare(store, identity, source)
    announced = MaskingRound(identity, reports, minimum, modulus, length, among, key)
    return MaskingServer(announced, store, shuffle=lambda _: None)

"""The two parties of mixing, with a record that tests can look into."""

from __future__ import annotations

from typing import NamedTuple

from tacit.intermediaries import Analyzer, MixingRound, Sealing, ServerKeys, Shuffler
from tacit.intermediaries.interface import new_identity
from tacit.intermediaries.mixing import Role, prepare_party
from tacit.intermediaries.sealing import DEFAULT
from tacit.records import MemoryRecords


class Mixers(NamedTuple):
    """A round, its parties, their store and their keys (shuffler, analyzer)."""

    round: MixingRound
    shuffler: Shuffler
    analyzer: Analyzer
    store: MemoryRecords
    keys: tuple[ServerKeys, ServerKeys]


def mixers(
    reports: int = 4,
    minimum: int = 3,
    size: int = 1,
    messages: int = 1,
    sealing: Sealing = DEFAULT,
    store: MemoryRecords | None = None,
) -> Mixers:
    """A fresh round, with a store of its own unless given."""
    kept, identity = store or MemoryRecords(), new_identity()
    publics = [prepare_party(kept, role, identity, sealing) for role in Role]
    announced = MixingRound(
        reports, minimum, size, publics[0], publics[1], messages, sealing, identity
    )
    shuffler, analyzer = Shuffler(announced, kept), Analyzer(announced, kept)
    assert shuffler._keys is not None
    assert analyzer._keys is not None
    return Mixers(announced, shuffler, analyzer, kept, (shuffler._keys, analyzer._keys))

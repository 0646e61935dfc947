"""The two parties of mixing, with a record that tests can look into."""

from __future__ import annotations

from typing import NamedTuple

from tacit.intermediaries import Analyzer, MixingRound, Sealing, ServerKeys, Shuffler
from tacit.intermediaries.interface import new_identity
from tacit.intermediaries.mixing import Role, prepare
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
    keys: tuple[ServerKeys, ServerKeys] | None = None,
    store: MemoryRecords | None = None,
) -> Mixers:
    """A fresh round; with keys and a store of its own unless given."""
    chosen = keys or (ServerKeys.new(sealing), ServerKeys.new(sealing))
    store, identity = store or MemoryRecords(), new_identity()
    publics = [prepare(store, role, identity, key) for role, key in zip(Role, chosen, strict=True)]
    announced = MixingRound(
        reports, minimum, size, publics[0], publics[1], messages, sealing, identity
    )
    return Mixers(announced, Shuffler(announced, store), Analyzer(announced, store), store, chosen)

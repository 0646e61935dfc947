"""The pending report shares of a round, as the mapping that its aggregator reads and writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from typing import Any

from tacit.service.schema import LIVE
from tacit.service.store import AT_ONCE, Store


class PendingShares(MutableMapping[bytes, bytes]):
    """The pending report shares of one round, as the aggregator's mapping."""

    def __init__(self, store: Store, identity: bytes) -> None:
        self._store, self._identity = store, identity

    def __getitem__(self, name: bytes) -> bytes:
        with self._store.read() as transaction:
            return transaction.shares_named(self._identity, [name])[name]

    def __setitem__(self, name: bytes, content: bytes) -> None:
        self.setdefault(name, content)

    def __delitem__(self, name: bytes) -> None:
        with self._store.begin() as transaction:
            transaction.delete_shares(self._identity, name)

    def __iter__(self) -> Iterator[bytes]:
        return iter([name for name, _ in self.items()])

    def __len__(self) -> int:
        with self._store.read() as transaction:
            return transaction.count_shares(self._identity)

    def items(self) -> Any:
        """All names and contents in the order of names, read in chunks to bound memory."""
        last, part = b"", None
        while part is None or len(part) == AT_ONCE:
            with self._store.read() as transaction:
                part = transaction.shares_after(self._identity, last)
            yield from part
            last = part[-1][0] if part else last

    def without(self, known: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Names and contents of those that are not known, read in chunks; no others are read."""
        with self._store.read() as transaction:
            names = sorted(transaction.share_names(self._identity).difference(known))
        for first in range(0, len(names), AT_ONCE):
            part = names[first : first + AT_ONCE]
            with self._store.read() as transaction:
                found = transaction.shares_named(self._identity, part)
            yield from sorted(found.items())

    def setdefault(self, name: bytes, content: bytes = b"") -> bytes:
        """Insert unless present, atomically across processes, and return the stored content.

        Content for a round that is over is not stored, because nothing would delete it.
        """
        key, found = (self._identity, name), None
        while found is None:
            with self._store.begin() as transaction:
                stage = transaction.lock_stages([self._identity]).get(self._identity)
                if stage is not None and stage not in LIVE:
                    return content
                found = transaction.keep_shares({key: content}).get(key)
        return found

    def clear(self) -> None:
        """Delete all pending report shares of the round."""
        with self._store.begin() as transaction:
            transaction.delete_shares(self._identity)

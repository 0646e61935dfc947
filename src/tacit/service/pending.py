"""The pending report shares of a round, as the mapping that its aggregator reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import sqlalchemy as sql

from tacit.service.store import LIVE, ShareRow, Store, shares

AT_ONCE = 200  # report shares per query when a round closes


class PendingShares(MutableMapping[bytes, bytes]):
    """The pending report shares of one round, as the aggregator's mapping."""

    def __init__(self, store: Store, identity: bytes) -> None:
        self._store = store
        self._identity = identity
        self._mine = shares.c.round == identity

    def __getitem__(self, name: bytes) -> bytes:
        query = sql.select(shares.c.content).where(self._mine, shares.c.name == name)
        with self._store.read() as transaction:
            found: bytes | None = transaction.connection.execute(query).scalar()
        if found is None:
            raise KeyError(name)
        return found

    def __setitem__(self, name: bytes, content: bytes) -> None:
        self.setdefault(name, content)

    def __delitem__(self, name: bytes) -> None:
        with self._store.begin() as transaction:
            mine = sql.delete(shares).where(self._mine, shares.c.name == name)
            transaction.connection.execute(mine)

    def __iter__(self) -> Iterator[bytes]:
        return iter([name for name, _ in self.items()])

    def __len__(self) -> int:
        with self._store.read() as transaction:
            return transaction.count_shares(self._identity)

    def items(self) -> Any:
        """All names and contents in the order of names, read in chunks to bound memory."""
        query = sql.select(shares.c.name, shares.c.content).order_by(shares.c.name).limit(AT_ONCE)
        last, part = b"", None
        while part is None or len(part) == AT_ONCE:
            with self._store.read() as transaction:
                after = query.where(self._mine, shares.c.name > last)
                part = transaction.connection.execute(after).all()
            yield from part
            last = part[-1][0] if part else last

    def setdefault(self, name: bytes, content: bytes = b"") -> bytes:
        """Insert unless present, atomically across processes, and return the stored content.

        Content for a round that is over is not stored, because nothing would delete it.
        """
        row, found = ShareRow(self._identity, name, content), None
        while found is None:
            with self._store.begin() as transaction:
                stage = transaction.lock_stages([self._identity]).get(self._identity)
                if stage is not None and stage not in LIVE:
                    return content
                found = transaction.keep_shares([row]).get((self._identity, name))
        return found

    def clear(self) -> None:
        """Delete all pending report shares of the round."""
        with self._store.begin() as transaction:
            transaction.connection.execute(sql.delete(shares).where(self._mine))

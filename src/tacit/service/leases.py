"""Leases: of several processes of a party, one at a time advances the rounds of an experiment.

A lease saves work; nothing depends on it, because every step is idempotent and decided by
compare-and-swap. A process that restarts keeps its leases, since its holder name stays the same.
When a process dies, another takes over after `LEASE` seconds. A thread renews held leases.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection

from tacit.errors import TacitError
from tacit.service.store import Store

LOG = logging.getLogger("tacit.service")
LEASE = 15.0  # seconds
RENEWAL = LEASE / 3

Leads = Callable[[Collection[bytes]], Collection[bytes]]
"""Selects, of experiments by their lineages, those that this process advances."""


def everything(names: Collection[bytes]) -> Collection[bytes]:
    """The selection of a process that shares its database with no other."""
    return names


def holder_of(listen: tuple[str, int]) -> bytes:
    """The holder name of a process: a digest of its host's name and the address it listens on."""
    text = f"{socket.gethostname()} {listen[0]} {listen[1]}"
    return hashlib.sha256(text.encode()).digest()[:16]


class Leases:
    """The leases of one process."""

    def __init__(self, store: Store, holder: bytes, clock: Callable[[], float] = time.time) -> None:
        self._store, self._holder, self._clock = store, holder, clock
        self._held: dict[bytes, float] = {}
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._renew, name="tacit-leases", daemon=True)

    def __call__(self, names: Collection[bytes]) -> set[bytes]:
        """Of these experiments, those whose lease this process holds, or takes now."""
        with self._lock:
            now = self._clock()
            self._held = {name: until for name, until in self._held.items() if name in names}
            soon = [name for name in names if self._held.get(name, 0.0) <= now + RENEWAL]
            self._acquire(soon, now)
            return {name for name, until in self._held.items() if until > now}

    @property
    def leading(self) -> bool:
        """Whether this process holds a lease."""
        return bool(self._held)

    def _acquire(self, names: Collection[bytes], now: float) -> None:
        if not names:
            return
        until = now + LEASE
        with self._store.begin() as transaction:
            taken = transaction.hold_leases(names, self._holder, int(1000 * now), int(1000 * until))
        for name in names:
            self._held.pop(name, None)
        self._held |= dict.fromkeys(taken, until)

    def start(self) -> None:
        """Start to renew held leases."""
        self._thread.start()

    def stop(self) -> None:
        """Release all leases, so that another process takes over at once."""
        self._stop.set()
        self._thread.join()
        with self._lock:
            self._held = {}
            try:
                with self._store.begin() as transaction:
                    transaction.release_leases(self._holder)
            except TacitError as problem:
                LOG.warning("leases are not released: %s", problem)

    def _renew(self) -> None:
        while not self._stop.wait(RENEWAL):
            with self._lock:
                try:
                    self._acquire(list(self._held), self._clock())
                except TacitError as problem:
                    LOG.warning("leases are not renewed: %s", problem)

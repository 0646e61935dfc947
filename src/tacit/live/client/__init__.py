"""A device that takes part in live experiments: `cryptography` and `httpx`, nothing heavier.

`Device` for threads, `AsyncDevice` for asyncio; both keep a `Ledger` and hold every round against
the terms and the pinned keys. What they do is said in docs/devices.md.
"""

from __future__ import annotations

from tacit.live.client.aio import AsyncDevice
from tacit.live.client.device import Assignment, Pins, Shown, Unagreed
from tacit.live.client.entries import ExperimentSpending, PartySpending, Receipt, Sent
from tacit.live.client.exchange import Offline
from tacit.live.client.http import Device
from tacit.live.client.ledger import OWN_LIMIT, Ledger, LedgerError

__all__ = [
    "OWN_LIMIT",
    "Assignment",
    "AsyncDevice",
    "Device",
    "ExperimentSpending",
    "Ledger",
    "LedgerError",
    "Offline",
    "PartySpending",
    "Pins",
    "Receipt",
    "Sent",
    "Shown",
    "Unagreed",
]

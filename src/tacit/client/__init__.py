"""A device that takes part in live experiments: `cryptography` and `httpx`, nothing heavier.

`Device` for threads, `AsyncDevice` for asyncio; both keep a `Ledger` and hold every round against
the terms and the pinned keys. What they do is said in docs/devices.md.
"""

from __future__ import annotations

from tacit.client.aio import AsyncDevice
from tacit.client.device import Pins, Slot, TermsForConsent, Unagreed
from tacit.client.entries import ExperimentSpending, PartySpending, Receipt, Sent
from tacit.client.exchange import Offline
from tacit.client.http import Device
from tacit.client.ledger import OWN_LIMIT, Ledger, LedgerError

__all__ = [
    "OWN_LIMIT",
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
    "Slot",
    "TermsForConsent",
    "Unagreed",
]

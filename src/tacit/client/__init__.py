"""Client library: the participant's device, with its privacy budget ledger and pinned server keys.

`Device` blocks and is safe to share between threads; `AsyncDevice` is the same for asyncio. Both
check every round against the signed terms and the pinned keys before they draw randomness. The
package depends on `cryptography` and `httpx` and does not import NumPy. See docs/how-to/devices.md.
"""

from __future__ import annotations

from tacit.client.aio import AsyncDevice
from tacit.client.budget import OWN_LIMIT
from tacit.client.device import Unagreed
from tacit.client.entries import (
    ExperimentSpending,
    PartySpending,
    Receipt,
    SentShare,
    Slot,
    TermsForConsent,
)
from tacit.client.exchange import Offline
from tacit.client.http import Device
from tacit.client.ledger import Ledger
from tacit.client.ledger_file import LedgerError
from tacit.client.pins import Acceptance, Pins

__all__ = [
    "OWN_LIMIT",
    "Acceptance",
    "AsyncDevice",
    "Device",
    "ExperimentSpending",
    "Ledger",
    "LedgerError",
    "Offline",
    "PartySpending",
    "Pins",
    "Receipt",
    "SentShare",
    "Slot",
    "TermsForConsent",
    "Unagreed",
]

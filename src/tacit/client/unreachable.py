"""Why a server could not be reached.

The text of a failed connection comes from this machine. Texts of other failures may quote bytes of
an untrusted server: only their types are named.
"""

from __future__ import annotations

import httpx

UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""What OpenSSL says of a certificate whose authority is unknown, or that has expired."""


def why_unreachable(problem: Exception) -> str:
    """The text of a failed connection, or the type of another failure."""
    text = str(problem) if isinstance(problem, httpx.ConnectError) else ""
    return text or type(problem).__name__

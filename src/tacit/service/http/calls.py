"""Signed headers of the coordinator's calls to the helper, checked before a body is read.

`Tacit-Call` states experiment, time, nonce, and the length and SHA-256 digest of the body.
`Tacit-Signature` is the coordinator's Ed25519 signature of method, path and that header, under a
label of its own. So a helper knows who sends how many bytes before it reads any of them.

A process accepts each header once. Its time must be near the helper's clock, so a process remembers
a header for a few minutes only. Calls are idempotent: a replay to another process changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import Rejected, Unavailable
from tacit.service.errors import Forbidden
from tacit.signatures import Signed, sign, verify

CALL, SIGNATURE = "Tacit-Call", "Tacit-Signature"
CALL_PATTERN = "^[0-9a-f]{64}\\.[0-9]{1,12}\\.[0-9a-f]{32}\\.[0-9]{1,10}\\.[0-9a-f]{64}$"
SIGNATURE_PATTERN = "^[0-9a-f]{128}$"
NONCE_SIZE = 16
DRIFT = 300  # maximum seconds between a call's time and the helper's clock
MOST = 100_000  # maximum number of remembered calls


@dataclass(frozen=True)
class CallHeader:
    """The content of `Tacit-Call`.

    >>> CallHeader.of(bytes(32), b"{}", 7, bytes(16)).encode()[64:101]
    '.7.00000000000000000000000000000000.2'
    """

    experiment: bytes
    time: int
    nonce: bytes
    length: int
    digest: bytes

    @classmethod
    def of(cls, experiment: bytes, body: bytes, now: int, nonce: bytes) -> CallHeader:
        """The header of a call with this body."""
        return cls(experiment, now, nonce, len(body), hashlib.sha256(body).digest())

    @classmethod
    def decode(cls, text: str) -> CallHeader:
        """Parse a header that matches `CALL_PATTERN`."""
        experiment, when, nonce, length, digest = text.split(".")
        return cls(
            bytes.fromhex(experiment),
            int(when),
            bytes.fromhex(nonce),
            int(length),
            bytes.fromhex(digest),
        )

    def encode(self) -> str:
        """The text of the header."""
        numbers = self.experiment.hex(), self.time, self.nonce.hex(), self.length, self.digest.hex()
        return ".".join(map(str, numbers))


def sign_call(
    path: str, header: CallHeader, key: Ed25519PrivateKey, method: str = "POST"
) -> dict[str, str]:
    """Both headers of a call."""
    signature = sign(Signed.CALL, _signed(method, path, header.encode()), key)
    return {CALL: header.encode(), SIGNATURE: signature.hex()}


def new_call(path: str, experiment: bytes, body: bytes, key: Ed25519PrivateKey) -> dict[str, str]:
    """Both headers of a call that is sent now."""
    header = CallHeader.of(experiment, body, int(time.time()), os.urandom(NONCE_SIZE))
    return sign_call(path, header, key)


def _signed(method: str, path: str, header: str) -> bytes:
    return f"{method} {path}\n{header}".encode()


class CallCheck:
    """A helper's check of calls; `key_of` is the coordinator's public key of an experiment."""

    def __init__(
        self, key_of: Callable[[bytes], bytes], clock: Callable[[], float] = time.time
    ) -> None:
        self._key_of, self._clock = key_of, clock
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()  # calls are checked in threads

    def __call__(self, path: str, call: str, signature: str) -> CallHeader | None:
        """The header of a new call; None if the headers are malformed.

        Raises `Forbidden` for another signer or a repeated call, `Unavailable` if its time is not
        near this helper's clock.
        """
        if not re.fullmatch(CALL_PATTERN, call) or not re.fullmatch(SIGNATURE_PATTERN, signature):
            return None
        header = CallHeader.decode(call)
        said, public = _signed("POST", path, call), self._key_of(header.experiment)
        try:
            verify(Signed.CALL, said, bytes.fromhex(signature), public, "the coordinator")
        except Rejected as reason:
            raise Forbidden(str(reason)) from None
        with self._lock:
            self._remember(header)
        return header

    def _remember(self, header: CallHeader) -> None:
        now = self._clock()
        if abs(header.time - now) > DRIFT:
            raise Unavailable(
                f"a call is {header.time - now:+.0f} s off this helper's clock: must be within "
                f"{DRIFT} s. Synchronise the clocks of both parties (NTP)."
            )
        while self._seen and (
            len(self._seen) >= MOST or next(iter(self._seen.values())) < now - 2 * DRIFT
        ):
            self._seen.popitem(last=False)
        if header.nonce in self._seen:
            raise Forbidden("the call was made before: each call needs a new nonce")
        self._seen[header.nonce] = now

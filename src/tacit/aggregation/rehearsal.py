"""Terms and keys for rounds in one process: tests, simulations, demonstrations.

One process makes and holds the keys of all parties, which must never happen in deployment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.announcements import Binding, announce, endorse
from tacit.aggregation.interface import SYSTEM, Source
from tacit.signatures import KEY_SIZE, public_key
from tacit.terms import (
    ROLES,
    VIEWS,
    Aggregation,
    Answer,
    Noise,
    Party,
    Pinned,
    StatedGuarantee,
    Terms,
    cosign,
)
from tacit.trust import TrustModel

DEADLINE = 2_000_000_000  # seconds since 1970
FIRST, LAST = date(2026, 1, 1), date(2099, 12, 31)


@dataclass(frozen=True)
class Rehearsal:
    """Pinned terms, and the keys of all parties that signed them."""

    pinned: Pinned
    keys: tuple[Ed25519PrivateKey, ...]

    def __repr__(self) -> str:
        return f"Rehearsal({self.pinned.terms.kind}, {self.pinned.terms.digest.hex()})"

    @property
    def binding(self) -> Binding:
        """The common fields of round descriptions under these terms."""
        answer = self.pinned.terms.answer
        return Binding(self.pinned.terms.digest, 0, answer.levels, answer.window, DEADLINE)

    def announced(self, description: bytes) -> bytes:
        """The announcement of a round, signed by all parties."""
        return announce(description, [endorse(description, key) for key in self.keys])


def rehearsed_answer(levels: int = 1, metrics: int = 1) -> Answer:
    """An answer with this number of levels and metrics."""
    return Answer("a rehearsal", tuple(f"metric {n}" for n in range(metrics)), levels)


ONE_BIT = rehearsed_answer()


def rehearse(
    trust: TrustModel,
    aggregation: Aggregation,
    *,
    proofs: int = 0,
    suite: str = "",
    answer: Answer = ONE_BIT,
    guarantee: StatedGuarantee | None = None,
    noise: Noise | None = None,
    source: Source = SYSTEM,
) -> Rehearsal:
    """Make terms for a trust model, signed by all of its parties.

    The noise just suffices for `guarantee` (default: (1, 0)-DP); clients add it where
    servers do not. Noise of the distribution `REHEARSED` is not verified, for reports that have it
    already; devices and live parties reject such terms. `source` is for test vectors only.
    """
    made = guarantee or StatedGuarantee(Fraction(1))
    scale = Fraction(answer.levels * len(answer.metrics) * made.participations) / made.epsilon
    by = "servers" if (trust, "servers") in VIEWS else "devices"
    roles = ROLES[trust]
    keys = tuple(Ed25519PrivateKey.from_private_bytes(source(KEY_SIZE)) for _ in roles)
    terms = Terms(
        question="Which of these do people like?",
        options=("one", "other"),
        answer=answer,
        guarantee=made,
        noise=noise or Noise(scale, by),
        parties=tuple(
            Party(role, f"https://{role}.example", public_key(key))
            for role, key in zip(roles, keys, strict=True)
        ),
        first_day=FIRST,
        last_day=LAST,
        trust=trust,
        proofs=proofs,
        aggregation=aggregation,
        suite=suite,
    )
    return Rehearsal(Pinned(terms, tuple(cosign(terms, key) for key in keys), terms.keys), keys)

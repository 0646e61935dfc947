"""Example terms, and variants of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.signatures import Signed, public_key, sign
from tacit.terms import (
    HPKE_SUITES,
    MASKING_SUITE,
    Aggregation,
    Answer,
    Noise,
    Offer,
    Party,
    Pinned,
    StatedGuarantee,
    Terms,
    cosign,
)
from tacit.trust import TrustModel

KEYS = tuple(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2, 3, 4))
NOON = 1_795_000_000  # in November 2026


def parties(*keys: Ed25519PrivateKey) -> tuple[Party, ...]:
    roles = ("coordinator", "helper")
    return tuple(
        Party(role, f"https://{role}.example/tacit", public_key(key))
        for role, key in zip(roles, keys, strict=True)
    )


def terms(**changes: Any) -> Terms:
    """Two servers, ε = 1/2 for three participations with two metrics of four levels."""
    base = Terms(
        question="Which reminder helps people to take a walk? Größe egal.",
        options=("a note", "a bell"),
        answer=Answer("minutes walked", ("walked", "liked"), 4, 86_400, high=Fraction(60)),
        guarantee=StatedGuarantee(Fraction(1, 2), participations=3),
        noise=Noise(Fraction(48)),
        parties=parties(KEYS[0], KEYS[1]),
        first_day=date(2026, 11, 1),
        last_day=date(2026, 12, 31),
        aggregation=Aggregation(50),
    )
    return replace(base, **changes)


def masked(**changes: Any) -> Terms:
    """The same with noise that devices draw, behind the masks of one server."""
    about: dict[str, Any] = {
        "minimum_batch_size": 50,
        "missing_fraction": Fraction(1, 5),
        "dishonest_count": 3,
        "dishonest_fraction": Fraction(1, 10),
        "claim": "two-fates",
    }
    about |= {name: changes.pop(name) for name in list(changes) if name in about}
    base: dict[str, Any] = {
        "guarantee": StatedGuarantee(Fraction(1, 2), Fraction(1, 10**6), participations=3),
        "noise": Noise(Fraction(48), "devices"),
        "parties": terms().parties[:1],
        "trust": TrustModel.SECURE_AGGREGATION,
        "suite": MASKING_SUITE,
        "aggregation": Aggregation(**about),
    }
    return terms(**base | changes)


def shared(**changes: Any) -> Offer:
    """A round of a hundred slots that keeps to `masked()`: 80 reports at least, of which 10 may be
    dishonest, so 70 shares.
    """
    base = offer(
        terms=masked().digest,
        kind="masking",
        suite=MASKING_SUITE,
        grace=0,
        slots=100,
        minimum=80,
        scale=None,
        divisor=70,
        total=Fraction(48),
    )
    return replace(base, **changes)


def pinned(of: Terms | None = None) -> Pinned:
    shown = of or terms()
    signatures = tuple(cosign(shown, key) for key in KEYS if public_key(key) in shown.keys)
    return Pinned(shown, signatures, shown.keys)


def offer(**changes: Any) -> Offer:
    """A round that keeps to `terms()`."""
    base = Offer(
        terms=terms().digest,
        kind="two-servers",
        option=1,
        slots=200,
        minimum=50,
        levels=4,
        metrics=2,
        window=86_400,
        closes=NOON,
        suite=HPKE_SUITES[0],
        grace=3600,
        modulus=5_000,
        scale=Fraction(48),
    )
    return replace(base, **changes)


def approvals(new: Terms) -> list[bytes]:
    """Both servers of `terms()` approve successors, without asking."""
    return [sign(Signed.SUCCESSOR, new.encode(), key) for key in KEYS[:2]]

"""Terms that the tests of terms are about, and what is changed in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.signatures import Signed, public_key, sign
from tacit.terms import (
    Answer,
    Middle,
    Noise,
    Offer,
    Party,
    Pinned,
    Promise,
    Terms,
    cosign,
)

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
        promise=Promise(Fraction(1, 2), participations=3),
        noise=Noise(Fraction(48)),
        parties=parties(KEYS[0], KEYS[1]),
        first_day=date(2026, 11, 1),
        last_day=date(2026, 12, 31),
        middle=Middle(crowd=50),
    )
    return replace(base, **changes)


def masked(**changes: Any) -> Terms:
    """The same with noise that devices add, behind the masks of one server."""
    law, delta = changes.pop("law", "discrete-laplace"), changes.pop("delta", Fraction(1, 10**6))
    parts = {"dropout": Fraction(1, 5), "corrupt": Fraction(1, 5), "claim": "two-fates"}
    middle = {name: changes.pop(name, value) for name, value in parts.items()}
    return terms(
        promise=Promise(Fraction(1, 2), delta, participations=3),
        noise=Noise(Fraction(48), "devices", law),
        parties=terms().parties[:1],
        middle=Middle("masking", 50, **middle),
        **changes,
    )


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
        places=200,
        minimum=50,
        levels=4,
        metrics=2,
        window=86_400,
        closes=NOON,
        modulus=5_000,
        scale=Fraction(48),
    )
    return replace(base, **changes)


def approvals(new: Terms) -> list[bytes]:
    """Both servers of `terms()` approve successors, without asking."""
    return [sign(Signed.SUCCESSOR, new.encode(), key) for key in KEYS[:2]]

"""Write test vectors of terms for other implementations: `python -m tests.terms.make_vectors`."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.terms.examples import KEYS, approvals, masked, offer, parties, pinned, terms
from tests.terms.test_noise import SIGMA, VARIANCE, local, shuffled, under

from tacit.errors import Rejected
from tacit.signatures import Signed, public_key, sign
from tacit.terms import Terms, cosign

FILE = Path(__file__).parent / "vectors" / "terms.json"


def vectors() -> dict[str, Any]:
    """All of them, as plain data."""
    first = terms()
    second = terms(
        options=("a note", "a bell", 'a "song"\\♪'),
        parties=parties(KEYS[0], KEYS[2]),
        predecessor=first.digest,
    )
    return {
        "keys": [
            {"private": key.private_bytes_raw().hex(), "public": public_key(key).hex()}
            for key in KEYS[:3]
        ],
        "terms": [_entry(first, 0, 1), _entry(second, 0, 2)],
        "approvals_of_the_second": [signature.hex() for signature in approvals(second)],
        "labels": {kind.name: sign(kind, b"the same message", KEYS[0]).hex() for kind in Signed},
        "models": [_entry(made) for made in models()],
        "offers": [_offer(scale) for scale in ("48", "4799/100", "4801/100", "1000/3")],
    }


def models() -> list[Terms]:
    """Terms whose devices add the noise, of every trust model and distribution."""
    gaussian = 12 * SIGMA
    return [
        masked(),
        under("skellam", VARIANCE),
        under("discrete-gaussian", gaussian),
        shuffled("binomial", Fraction(5)),
        shuffled("discrete-laplace", Fraction(1)),
        local("discrete-laplace", Fraction(6)),
        local("randomized-response", Fraction(6)),
    ]


def _entry(made: Terms, *who: int) -> dict[str, Any]:
    return {
        "canonical": made.encode().decode(),
        "digest": made.digest.hex(),
        "signatures": [cosign(made, KEYS[number]).hex() for number in who],
    }


def _offer(scale: str) -> dict[str, Any]:
    asked = offer(scale=Fraction(scale))
    try:
        cost = str(pinned().check(asked))
    except Rejected:
        cost = "refused"
    return {"scale": scale, "levels": asked.levels, "metrics": asked.metrics, "cost": cost}


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

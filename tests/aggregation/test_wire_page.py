"""Messages are parsed as docs/reference/wire-formats documents them."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.aggregation import HpkeSuite, OwnNoise, TwoServerSession
from tacit.aggregation.aggregator_context import RoundSecrets
from tacit.aggregation.rehearsal import rehearse
from tacit.aggregation.wire import Kind
from tacit.signatures import Signed
from tacit.terms import Aggregation, StatedGuarantee
from tacit.trust import TrustModel

WIRE = Path(__file__).parents[2] / "docs" / "reference" / "wire-formats"
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in sorted(WIRE.glob("*.md")))
HEADER = 20


def table(title: str) -> dict[str, str]:
    """Field and size of every row of one of the page's tables, in order."""
    rows = re.search(rf"\| {re.escape(title)} \| bytes \|\n\|---\|---\|\n((?:\|.*\|\n)+)", PAGE)
    assert rows is not None, title
    cells = (line.strip("|").split("|") for line in rows[1].splitlines())
    return {name.strip().strip("`"): size.strip() for name, size in cells}


def fields(title: str, data: bytes, key: int) -> Iterator[tuple[str, bytes]]:
    """The message split into the fields of the table."""
    at = 0
    for name, size in table(title).items():
        match size:
            case "integer" | "two integers":
                end = at
                for _ in range(1 if size == "integer" else 2):
                    end += 1 + data[end]
            case "rest":
                end = len(data)
            case _:
                end = at + sum(key if part == "key" else int(part) for part in size.split(" + "))
        yield name, data[at:end]
        at = end
    assert at == len(data)


@pytest.fixture(params=[1, 12])
def session(request: pytest.FixtureRequest) -> TwoServerSession:
    noise = OwnNoise(4, Fraction(9, 2), lambda _: 0)
    return TwoServerSession(5, 2, 1_000_003, request.param, noise, HpkeSuite.X25519_AES)


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def test_descriptions_match_the_documented_wire_format(session: TwoServerSession) -> None:
    description = session.announcement[HEADER:-128]
    found = dict(fields("field of TWO_SERVER_ROUND", description, 32))
    binding = dict(fields("field of the binding", found["binding"], 32))
    announced = session.round
    assert binding["terms"] == hashlib.sha256(session.pinned.terms.encode()).digest()
    assert number(binding["levels"]) == 4
    assert number(binding["closes"]) == announced.binding.closes
    named = {
        "assigned_until": announced.assigned_until,
        "grace": announced.grace,
        "places": announced.slots,
        "minimum": announced.minimum,
        "length": announced.length,
        "sealing": announced.suite,
    }
    assert {name: number(found[name]) for name in named} == named
    assert found["collector"] == announced.collector
    assert (found["server_0"], found["server_1"]) == announced.servers
    assert found["scale"] == bytes((1, 9, 1, 2))
    assert found["modulus"] == bytes((3,)) + (1_000_003).to_bytes(3, "big")
    for place, party in enumerate(session.pinned.terms.parties):
        signature = session.announcement[-128 + 64 * place :][:64]
        signed = b"tacit round v2\x00" + session.announcement[:-128]
        Ed25519PublicKey.from_public_bytes(party.key).verify(signature, signed)


def mask(seed: bytes, count: int) -> list[int]:
    """The page's masks, for a modulus below 2^64: no word of 8 bytes is skipped but by bad luck."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor().update(bytes(8 * count))
    words = (int.from_bytes(stream[at : at + 8], "little") for at in range(0, 8 * count, 8))
    return [word % 1_000_003 for word in words]


def test_reports_match_the_documented_wire_format(session: TwoServerSession) -> None:
    """Token, ciphertexts, words, seed and numbers, with plain primitives."""
    length = session.round.length
    values = [place % 5 for place in range(length)]
    context = hashlib.sha256(session.announcement[:-128]).digest()
    parts: list[list[int]] = []
    words: list[bytes] = []
    digests: list[bytes] = []
    for role, half in enumerate(session.split(3, values)):
        found = dict(fields("field of HALF", half[HEADER:], 32))
        assert (number(found["role"]), number(found["place"])) == (role, 3)
        record = session.party(role).record(session.round.identity)
        assert record is not None
        keys = RoundSecrets(record.secret, session.round.identity, record.suite).keys
        peer = X25519PublicKey.from_public_bytes(session.round.servers[1 - role][:32])
        shared = keys.line.exchange(peer)
        token_key = HKDF(hashes.SHA256(), 32, context, b"tacit places v2").derive(shared)
        assert found["token"] == hmac.digest(token_key, found["place"], "sha256")[:16]
        info = b"tacit half v2" + context + found["role"] + found["place"]
        suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
        content = suite.decrypt(found["sealed"], keys.encryption.classical, info)
        words.append(content[:16])
        digests.append(content[16:32])
        part = content[32:]
        seeded = role == 0 and 3 * length > 32
        assert len(part) == (32 if seeded else 3 * length)
        parts.append(
            mask(part, length)
            if seeded
            else [number(part[at : at + 3]) for at in range(0, len(part), 3)]
        )
    assert [sum(pair) % 1_000_003 for pair in zip(*parts, strict=True)] == values
    for word, digest in zip(words, reversed(digests), strict=True):
        assert digest == hashlib.sha256(b"tacit word v2" + word).digest()[:16]


def test_every_label_and_message_kind_is_documented() -> None:
    for kind in Signed:
        assert f"`{kind.value}`" in PAGE
    for message in Kind:
        assert f"| `{message:02x}` | {message.name} |" in PAGE


def test_the_documented_keys_of_terms_are_complete_and_exact() -> None:
    rows = re.search(r"\| key \| content \|\n\|---\|---\|\n((?:\|.*\|\n)+)", PAGE)
    assert rows is not None
    first = (line.strip("|").split("|")[0] for line in rows[1].splitlines())
    keys = [name for cell in first for name in re.findall(r"`(\w+)`", cell)]
    document = TwoServerSession(3, 1, 100).pinned.terms.document()
    assert sorted(keys) == sorted([*document, "context"])  # optional: where devices choose
    guarantee = StatedGuarantee(Fraction(1), Fraction(1, 2**40))
    made = rehearse(TrustModel.SECURE_AGGREGATION, Aggregation(2), guarantee=guarantee)
    masking = made.pinned.terms.document()
    for part in ("answer", "guarantee", "aggregation", "noise"):
        (row,) = (line for line in rows[1].splitlines() if line.startswith(f"| `{part}`"))
        named = set(re.findall(r"`(\w+)`", row))
        assert set(masking[part]) <= named

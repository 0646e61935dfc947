"""An independent reader of docs/reference/wire-formats decodes the masking vector without tacit."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from itertools import count
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

KNOWN = json.loads((Path(__file__).parent / "vectors" / "masking.json").read_text(encoding="utf-8"))
ROUND = bytes.fromhex(KNOWN["round"])
CONTEXT = hashlib.sha256(ROUND).digest()
PRIME = 2**256 + 297
SIZES = iter(ROUND[139:])  # of the noise and of the modulus, each with its size before it
*NOISE, MODULUS = (
    int.from_bytes(bytes(next(SIZES) for _ in range(next(SIZES))), "big") for _ in range(3)
)


def hkdf(secret: bytes, info: bytes, size: int) -> bytes:
    key = hmac.digest(CONTEXT, secret, "sha256")
    out = block = b""
    for number in count(1):
        if len(out) >= size:
            return out[:size]
        block = hmac.digest(key, block + info + bytes((number,)), "sha256")
        out += block
    raise AssertionError


def x25519(private: bytes, public: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(public)
    )


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def chacha20(key: bytes, counter: int) -> bytes:
    """One block of RFC 8439 with a nonce of zeros."""
    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        counter,
        0,
        0,
        0,
    ]
    state = list(start)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            mixed = state[z] ^ state[x]
            state[z] = (mixed << turn | mixed >> (32 - turn)) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for diagonal in range(4):
            quarter(
                diagonal, (diagonal + 1) % 4 + 4, (diagonal + 2) % 4 + 8, (diagonal + 3) % 4 + 12
            )
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start, strict=True)))


def mask(seed: bytes, length: int) -> list[int]:
    words = (word for block in count() for word in struct.unpack("<8Q", chacha20(seed, block)))
    numbers: list[int] = []
    while len(numbers) < length:
        word = next(words)
        if word < 2**64 - 2**64 % MODULUS:
            numbers.append(word % MODULUS)
    return numbers


class Book:
    """The masking vector, released from the server's side."""

    def __init__(self) -> None:
        self.clients: dict[str, list[Any]] = KNOWN["clients"]
        self.private = [bytes.fromhex(key) for key in self.clients["private"]]
        self.masking = [bytes.fromhex(key) for key in self.clients["masking_private"]]
        self.seeds = [bytes.fromhex(seed) for seed in self.clients["seeds"]]
        self.server = bytes.fromhex(KNOWN["server_private"])

    def open(self, name: str, number: int, *, from_client: bool) -> bytes:
        message = bytes.fromhex(KNOWN["wire"][name][number])
        address = public(self.private[number])
        assert message[20:52] == address
        info = b"tacit channel v2" + address + public(self.server)
        keys = hkdf(x25519(self.server, address), info, 64)
        key = keys[:32] if from_client else keys[32:]
        return ChaCha20Poly1305(key).decrypt(message[52:64], message[64:], message[:52])

    def pair(self, label: bytes, privates: list[bytes], i: int, j: int) -> bytes:
        low, high = sorted((i, j))
        info = label + struct.pack(
            ">I32sI32s", low, public(privates[low]), high, public(privates[high])
        )
        return hkdf(x25519(privates[i], public(privates[j])), info, 32)


def test_masked_numbers_match_the_documented_wire_format() -> None:
    book = Book()
    for me, message in enumerate(KNOWN["wire"]["masked"]):
        if message is None:
            continue
        setup = book.open("setup", me, from_client=False)
        assert struct.unpack(">III", setup[:12]) == (me, 8, 6)
        neighbours = [number for number, *_ in struct.iter_unpack(">I32s32s32s", setup[12:])]
        expected = [
            a + b for a, b in zip(book.clients["values"][me], mask(book.seeds[me], 2), strict=True)
        ]
        for other in neighbours:
            sign = 1 if me < other else -1
            pairwise = mask(book.pair(b"tacit masking mask v2", book.masking, me, other), 2)
            expected = [a + sign * b for a, b in zip(expected, pairwise, strict=True)]
        content = book.open("masked", me, from_client=True)
        assert [int.from_bytes(content[:3], "big"), int.from_bytes(content[3:], "big")] == [
            x % MODULUS for x in expected
        ]


def listed(book: Book, owner: int) -> tuple[bytes, dict[int, tuple[bytes, ...]], bytes]:
    """The root of a client's list, its commitments by holder, and its parcels; signed."""
    content = book.open("shares", owner, from_client=True)
    start, end = 32 + 6 * 100, len(content) - 64
    root = hashlib.sha256(
        b"tacit masking list v3" + CONTEXT + struct.pack(">I", owner) + content[:start]
    ).digest()
    by_holder = {
        holder: rest for holder, *rest in struct.iter_unpack(">I32s32s32s", content[32:start])
    }
    signing = Ed25519PrivateKey.from_private_bytes(
        bytes.fromhex(book.clients["signing_private"][owner])
    )
    message = b"tacit shares v2\x00" + root + hashlib.sha256(content[start:end]).digest()
    signing.public_key().verify(content[end:], message)
    seed = b"tacit masking seed v3" + CONTEXT + struct.pack(">I", owner) + book.seeds[owner]
    assert content[:32] == hashlib.sha256(seed).digest()
    return root, {holder: tuple(rest) for holder, rest in by_holder.items()}, content[start:end]


def direction(book: Book, sender: int, receiver: int) -> bytes:
    """The key of the encrypted share from one client to another."""
    low, high = sorted((sender, receiver))
    info = b"tacit masking route v3"
    for number in (low, high):
        signing = bytes.fromhex(book.clients["signing_private"][number])
        verifying = Ed25519PrivateKey.from_private_bytes(signing).public_key().public_bytes_raw()
        info += struct.pack(">I", number) + public(book.private[number])
        info += public(book.masking[number]) + verifying
    keys = hkdf(x25519(book.private[sender], public(book.private[receiver])), info, 64)
    return keys[:32] if sender == low else keys[32:]


def committed(label: bytes, owner: int, holder: int, which: int, content: bytes) -> bytes:
    ids = struct.pack(">IIB", owner, holder, which)
    return hashlib.sha256(label + CONTEXT + ids + content).digest()


def test_encrypted_shares_and_reveals_match_the_documented_wire_format() -> None:
    book = Book()
    revealed: dict[int, dict[int, int]] = {number: {} for number in range(8)}
    for me, message in enumerate(KNOWN["wire"]["reveal"]):
        if message is None:
            continue
        inbox = book.open("inbox", me, from_client=False)
        told = dict(struct.iter_unpack(">I33s", book.open("reveal", me, from_client=True)))
        if KNOWN["wire"]["keys"][me]:
            told |= struct.iter_unpack(">I33s", book.open("keys", me, from_client=True))
        for other, *sent, ciphertext in struct.iter_unpack(">I32s32s32s82s", inbox):
            root, by_holder, ciphertexts = listed(book, other)
            key, order = direction(book, other, me), list(by_holder)
            own, masking, encrypted = by_holder[me]
            assert sent == [root, own, masking]
            assert ciphertext == ciphertexts[82 * order.index(me) :][:82]
            pair = ChaCha20Poly1305(key).decrypt(bytes(12), ciphertext, root + own + masking)
            assert committed(b"tacit masking share v3", other, me, 0, pair[:33]) == own
            assert committed(b"tacit masking share v3", other, me, 1, pair[33:]) == masking
            assert committed(b"tacit masking direction v3", other, me, 0, key) == encrypted
            assert told[other] == (pair[33:] if other == 2 else pair[:33])
            revealed[other][order.index(me) + 1] = int.from_bytes(told[other], "big")
    for owner, shares in revealed.items():
        points = sorted(shares)[:4]
        secret = 0
        for x in points:
            weight = 1
            for other in points:
                if other != x:
                    weight = weight * other * pow(other - x, -1, PRIME) % PRIME
            secret += weight * shares[x]
        expected = book.masking[2] if owner == 2 else book.seeds[owner]
        assert (secret % PRIME).to_bytes(32, "big") == expected

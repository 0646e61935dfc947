"""The client's side of masking: what one person's device computes, and what it refuses to do for
the server.

The device never sends anything that depends on its numbers except under masks, and it reveals for
each neighbour at most one of the two shares that it holds. It answers each stage once; a repeated
request, also one that was sealed anew, gets the same bytes, a different one a refusal. It is never
written down: a device that stops in the middle has dropped out, because a restored one could be
asked a second time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from tacit.intermediaries import masks, shamir
from tacit.intermediaries.agreement import Channel, new_key, public_bytes
from tacit.intermediaries.announcements import accept
from tacit.intermediaries.interface import SYSTEM, Refusal, Source, check_minimum
from tacit.intermediaries.masking import (
    BITS,
    FRONT_SIZE,
    INBOX_ENTRY,
    REQUEST_HEAD,
    REVEAL_ENTRY,
    SETUP_ENTRY,
    SETUP_HEAD,
    MaskingRound,
    check_withstands,
    commitment,
    mask_seed,
    parcel_nonce,
    route_key,
)
from tacit.intermediaries.shamir import SHARE_SIZE
from tacit.intermediaries.standing import never_copied
from tacit.intermediaries.wire import (
    HEADER_SIZE,
    Kind,
    body,
    check_numbers,
    head,
    header,
    pack_numbers,
    records,
)
from tacit.terms import Pinned


class MaskingClient:
    """One device in one round: `join`, `share`, `mask`, `reveal`, in this order.

    It takes part only in a round that the pinned party signed, that keeps to the pinned terms and
    withstands what they say with so many `bits`; all of that is checked before any randomness is
    drawn. `source` is for test vectors only; leave it alone everywhere else.
    """

    def __init__(
        self, pinned: Pinned, announcement: bytes, bits: int = BITS, source: Source = SYSTEM
    ) -> None:
        announced = accept(MaskingRound, pinned, announcement)
        check_withstands(announced, pinned.terms.middle, bits)
        self.round = announced
        self._source = source
        self._key = new_key(source)
        self._masking_key = new_key(source)
        self.address = public_bytes(self._key)
        self._masking_public = public_bytes(self._masking_key)
        self._channel = Channel(
            self._key, self.address, announced.server, announced.context, starts=True
        )
        self._lock = threading.RLock()
        self._answers: dict[Kind, tuple[bytes, bytes]] = {}
        self._number = 0
        self._neighbours: dict[int, tuple[bytes, bytes]] = {}
        self._threshold = 0
        self._ciphers: dict[int, ChaCha20Poly1305] = {}
        self._seed = b""
        self._parcels: dict[int, bytes] = {}

    __reduce_ex__ = never_copied

    def __repr__(self) -> str:
        return (
            f"MaskingClient(round={self.round.identity.hex()}, address={self.address.hex()[:16]}…)"
        )

    def join(self) -> bytes:
        """The first message: this device's two public keys."""
        with self._lock:
            if Kind.JOIN not in self._answers:
                self._answer(Kind.JOIN, b"", self._masking_public)
            return self._answers[Kind.JOIN][1]

    def share(self, setup: bytes) -> bytes:
        """Learn the neighbours from the server's SETUP; returns sealed shares of this device's two
        secrets for them.
        """
        return self._once(Kind.SHARES, Kind.JOIN, (Kind.SETUP, setup), self._make_shares)

    def mask(self, inbox: bytes, values: Sequence[int]) -> bytes:
        """Take the neighbours' parcels from the server's INBOX; returns the numbers under all
        masks.

        A repeated INBOX gets the message that was made from the numbers of the first time.
        """
        numbers = check_numbers(values, self.round.modulus, self.round.length)
        return self._once(
            Kind.MASKED,
            Kind.SHARES,
            (Kind.INBOX, inbox),
            lambda content: self._make_masked(content, numbers),
        )

    def reveal(self, request: bytes) -> bytes:
        """Answer the server's REQUEST: one share per neighbour, of the kind that its fate
        allows.
        """
        return self._once(Kind.REVEAL, Kind.MASKED, (Kind.REQUEST, request), self._make_reveal)

    def _make_shares(self, setup: bytes) -> bytes:
        self._learn_neighbours(setup)
        degree, context = len(self._neighbours), self.round.context
        self._seed = self._source(masks.SEED_SIZE)
        own = shamir.split(self._seed, self._threshold, degree, self._source)
        masking = shamir.split(
            self._masking_key.private_bytes_raw(), self._threshold, degree, self._source
        )
        me = (self._number, self.address)
        parcels = []
        for place, (number, (key, _)) in enumerate(self._neighbours.items()):
            cipher = ChaCha20Poly1305(route_key(self._key, me, (number, key), context))
            self._ciphers[number] = cipher
            parcels.append(
                cipher.encrypt(
                    parcel_nonce(self._number, number), own[place] + masking[place], None
                )
            )
        return commitment(context, self._number, self._seed) + b"".join(parcels)

    def _make_masked(self, inbox: bytes, numbers: list[int]) -> bytes:
        parcels = self._read_inbox(inbox)
        me, context = (self._number, self._masking_public), self.round.context
        added: list[bytes] = [self._seed]
        taken: list[bytes] = []
        for number in parcels:
            seed = mask_seed(self._masking_key, me, (number, self._neighbours[number][1]), context)
            (added if self._number < number else taken).append(seed)
        modulus = self.round.modulus
        mask = masks.total(added, taken, modulus, self.round.length)
        masked = [(number + hidden) % modulus for number, hidden in zip(numbers, mask, strict=True)]
        self._parcels = parcels
        return pack_numbers(masked, modulus)

    def _make_reveal(self, request: bytes) -> bytes:
        stayed = self._read_request(request)
        entries = []
        for number in sorted(self._parcels):
            try:
                pair = self._ciphers[number].decrypt(
                    parcel_nonce(number, self._number), self._parcels[number], None
                )
            except InvalidTag:
                pair = b""
            share = pair[:SHARE_SIZE] if number in stayed else pair[SHARE_SIZE:]
            entries.append(REVEAL_ENTRY.pack(number, bool(share), share))
        self._forget()
        return b"".join(entries)

    def _learn_neighbours(self, data: bytes) -> None:
        (number, joined, degree), rest = head(SETUP_HEAD, data, "the SETUP")
        if not self.round.minimum <= joined <= self.round.reports:
            raise Refusal(
                f"{joined} clients are said to have joined; expected are {self.round.minimum} to "
                f"{self.round.reports}"
            )
        fitted = self.round.neighbourhood.fit(joined)
        if degree != fitted.degree or number >= joined:
            raise Refusal(
                f"client {number} was given {degree} neighbours; {fitted.degree} of {joined} were "
                "announced"
            )
        listed = records(rest, SETUP_ENTRY.size, degree, "the list of neighbours")
        neighbours = {
            other: (key, masking) for other, key, masking in map(SETUP_ENTRY.unpack, listed)
        }
        _check_ascending(neighbours, joined, number)
        keys = {key for pair in neighbours.values() for key in pair} | {
            self.address,
            self._masking_public,
        }
        if len(neighbours) != degree or len(keys) != 2 * degree + 2:
            raise Refusal(
                "two neighbours in the SETUP have the same number or key; each client has its own"
            )
        self._number, self._neighbours, self._threshold = number, neighbours, fitted.threshold

    def _read_inbox(self, data: bytes) -> dict[int, bytes]:
        entries = records(data, INBOX_ENTRY.size, len(data) // INBOX_ENTRY.size, "the INBOX")
        parcels = [INBOX_ENTRY.unpack(entry) for entry in entries]
        self._check_neighbours([number for number, _ in parcels])
        if len(parcels) < self._threshold:
            raise Refusal(
                f"only {len(parcels)} neighbours shared their secrets; {self._threshold} are "
                "needed. Nothing was sent: leave this round."
            )
        return dict(parcels)

    def _read_request(self, data: bytes) -> set[int]:
        (survivors, staying, leaving), rest = head(REQUEST_HEAD, data, "the REQUEST")
        entries = records(rest, 4, staying + leaving, "the list of neighbours to reveal")
        listed = [int.from_bytes(entry, "big") for entry in entries]
        stayed, left = listed[:staying], listed[staying:]
        self._check_neighbours(stayed)
        self._check_neighbours(left)
        both = sorted(set(stayed) & set(left))
        if both:
            raise Refusal(
                f"neighbour {both[0]} is listed both as there and as gone; revealing both would "
                "unmask it"
            )
        if set(listed) != set(self._parcels):
            raise Refusal(
                "the REQUEST is about other neighbours than those whose shares this device holds"
            )
        check_minimum(survivors, self.round.minimum)
        if len(stayed) < self._threshold:
            raise Refusal(
                f"only {len(stayed)} neighbours stayed; {self._threshold} are needed. Nothing was "
                "revealed."
            )
        return set(stayed)

    def _check_neighbours(self, numbers: list[int]) -> None:
        if self._number in numbers:
            raise Refusal("this device is listed among its own neighbours")
        unknown = [number for number in numbers if number not in self._neighbours]
        if unknown:
            raise Refusal(f"client {unknown[0]} is not a neighbour of this device")
        _check_ascending(numbers, self.round.reports, self._number)

    def _once(
        self,
        kind: Kind,
        after: Kind,
        asked: tuple[Kind, bytes],
        make: Callable[[bytes], bytes],
    ) -> bytes:
        """The answer to what is asked, made once: the same question gets the same bytes, a
        different one is refused, and so is one that comes too early.
        """
        with self._lock:
            if after not in self._answers:
                raise Refusal(
                    f"a {kind.name} follows a {after.name}, which this device has not sent yet"
                )
            content = self._open(*asked)
            if kind not in self._answers:
                return self._answer(kind, content, make(content))
            before, answer = self._answers[kind]
            if before != content:
                raise Refusal(
                    f"the {kind.name} of this round was already sent in answer to another message"
                )
            return answer

    def _open(self, kind: Kind, message: bytes) -> bytes:
        data = body(message, kind, self.round.identity)
        if data[: len(self.address)] != self.address:
            raise Refusal(f"the {kind.name} is addressed to another client")
        return self._channel.open(bytes(message[:FRONT_SIZE]), data[FRONT_SIZE - HEADER_SIZE :])

    def _answer(self, kind: Kind, asked: bytes, content: bytes) -> bytes:
        answer = self._channel.seal(header(kind, self.round.identity) + self.address, content)
        self._answers[kind] = (asked, answer)
        return answer

    def _forget(self) -> None:
        """After the last answer nothing secret is needed any more; the answers stay, for repeated
        requests.
        """
        self._seed = b""
        self._ciphers.clear()
        self._parcels.clear()
        del self._key, self._masking_key


def _check_ascending(numbers: Iterable[int], limit: int, own: int) -> None:
    last = -1
    for number in numbers:
        if not last < number < limit or number == own:
            raise Refusal(
                "a list of neighbours is not in ascending order, or names someone who cannot be in "
                "it"
            )
        last = number

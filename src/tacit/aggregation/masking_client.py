"""Client of secure aggregation with one server (masking), and the requests that it rejects.

Everything that a client sends about its numbers is masked. For each neighbour it reveals at most
one of the two shares that it holds. It reveals a pairwise mask only on proof that the neighbour is
malicious, and never so many that fewer than the threshold stay secret.

The client answers each stage once. A repeated request, even if encrypted anew, gets the same bytes;
a different request is rejected. The state is never saved: a client that stops has dropped out,
because a restored one could be asked a second time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation import masks, shamir, wire
from tacit.aggregation.agreement import KEY_SIZE, Channel, new_key, public_bytes
from tacit.aggregation.announcements import accept
from tacit.aggregation.interface import SYSTEM, Rejected, Source, check_minimum, expect
from tacit.aggregation.masking import (
    ACCUSED_ENTRY,
    BITS,
    FRONT_SIZE,
    INBOX_ENTRY,
    LEFT_HEAD,
    PAIRS_HEAD,
    PROOF_HEAD,
    REQUEST_HEAD,
    SEEDS_ENTRY,
    SETUP_ENTRY,
    SETUP_HEAD,
    ClientKeys,
    MaskingRound,
    check_withstands,
    expect_kind,
    mask_seed,
    pack_listed,
    read_listed,
    route_keys,
)
from tacit.aggregation.round_state import forbid_copying
from tacit.aggregation.share_commitments import (
    HolderCommitments,
    Proof,
    ShareCommitments,
    SharedSecret,
    SignedShares,
    decrypt_share_pair,
    encode_commitments,
    encrypt_share_pair,
    evidence_size,
    key_commitment,
    pack_shares,
    proof_size,
    proves,
    seed_commitment,
    share_commitment,
    signed_shares,
)
from tacit.aggregation.wire import Kind
from tacit.signatures import Signed, public_key, sign, verify
from tacit.terms import PinnedTerms


class MaskingClient:
    """One client in one round: `join`, `share`, `check`, `mask`, then `reveal` for each request.

    It takes part only in a round that the pinned party signed, that complies with the pinned terms
    and that withstands their adversary with `bits` of security. All this is checked before any
    randomness is drawn. `source` is for test vectors only.
    """

    def __init__(
        self, pinned: PinnedTerms, announcement: bytes, bits: int = BITS, source: Source = SYSTEM
    ) -> None:
        announced = accept(MaskingRound, pinned, announcement)
        check_withstands(announced, pinned.terms.aggregation, bits)
        self.round = announced
        self._source = source
        self._key = new_key(source)
        self._masking_key = new_key(source)
        self._signing_key = Ed25519PrivateKey.from_private_bytes(source(KEY_SIZE))
        self.address = public_bytes(self._key)
        self._masking_public = public_bytes(self._masking_key)
        self._signing_public = public_key(self._signing_key)
        self._channel = Channel(
            self._key, self.address, announced.server, announced.context, starts=True
        )
        self._lock = threading.RLock()
        self._answers: dict[Kind, tuple[bytes, bytes]] = {}
        self._number = 0
        self._neighbours: dict[int, ClientKeys] = {}
        self._threshold = 0
        self._seed = b""
        self._incoming: dict[int, bytes] = {}  # keys of encrypted shares to this client
        self._roots: dict[int, bytes] = {}  # digests of the neighbours' commitment lists
        self._held: dict[int, tuple[bytes, bytes]] = {}  # the neighbours' shares
        self._spoilt: dict[int, bytes] = {}  # invalid encrypted shares
        self._pairs: dict[int, bytes] = {}  # seeds of the pairwise masks in the masked numbers
        self._left: set[int] = set()
        self._agreed: frozenset[bytes] | None = None  # addresses of the agreed survivors

    __reduce_ex__ = forbid_copying

    def __repr__(self) -> str:
        return (
            f"MaskingClient(round={self.round.identity.hex()}, address={self.address.hex()[:16]}…)"
        )

    @property
    def public_keys(self) -> bytes:
        """The three public keys that this client publishes to its neighbours."""
        return self.address + self._masking_public + self._signing_public

    @property
    def neighbours(self) -> dict[bytes, bytes]:
        """The public keys of the neighbours, by address; empty before `share`."""
        return {one.address: b"".join(one[1:]) for one in self._neighbours.values()}

    def agree(self, survivors: AbstractSet[bytes]) -> None:
        """Reveal shares for this set of survivors only, given by address; once and for all.

        Participants that know each other can sign the set first. Then no two of them reveal for
        different sets.
        """
        with self._lock:
            if self._agreed is not None and self._agreed != survivors:
                raise Rejected("client has agreed to another set of survivors in this round")
            self._agreed = frozenset(survivors)

    def join(self) -> bytes:
        """The first message: this client's public keys."""
        with self._lock:
            if Kind.JOIN not in self._answers:
                self._answer(Kind.JOIN, b"", self._masking_public + self._signing_public)
            return self._answers[Kind.JOIN][1]

    def share(self, setup: bytes) -> bytes:
        """Learn the neighbours from the server's SETUP; return encrypted shares of both secrets.

        The message includes commitments to all shares and is signed.
        """
        return self._answer_once(Kind.SHARES, Kind.JOIN, (Kind.SETUP, setup), self._make_shares)

    def check(self, inbox: bytes) -> bytes:
        """Decrypt the neighbours' shares from the server's INBOX; return who sent invalid ones."""
        return self._answer_once(Kind.CHECKED, Kind.SHARES, (Kind.INBOX, inbox), self._make_checked)

    def mask(self, pairs: bytes, values: Sequence[int]) -> bytes:
        """Learn the masking partners from the server's PAIRS; return the masked numbers.

        A repeated PAIRS gets the message made from the numbers of the first call.
        """
        numbers = wire.check_numbers(values, self.round.modulus, self.round.length)
        return self._answer_once(
            Kind.MASKED,
            Kind.CHECKED,
            (Kind.PAIRS, pairs),
            lambda content: self._make_masked(content, numbers),
        )

    def accuse(self, pairs: bytes) -> bytes:
        """Leave the round instead of masking, and prove which neighbours sent invalid shares.

        The message reveals the keys of invalid encrypted shares that their senders signed as
        received.
        """
        return self._answer_once(
            Kind.ACCUSED, Kind.CHECKED, (Kind.PAIRS, pairs), self._make_accused
        )

    def reveal(self, message: bytes) -> bytes:
        """Answer a request of the server after masking.

        The answer is one share per neighbour, of the kind that fits whether it survived, or the
        pairwise mask with a neighbour that its own shares convict.
        """
        kind = expect_kind((Kind.REQUEST, Kind.LEFT, Kind.PROOF), message, self.round.identity)
        if kind is Kind.LEFT:
            return self._answer_once(Kind.KEYS, Kind.MASKED, (kind, message), self._make_keys)
        if kind is Kind.REQUEST:
            return self._answer_once(Kind.REVEAL, Kind.MASKED, (kind, message), self._make_reveal)
        if self._open(kind, message)[:1] == bytes((SharedSecret.MASKING,)):
            return self._answer_once(Kind.SEEDS, Kind.KEYS, (kind, message), self._make_seeds)
        return self._answer_once(
            Kind.LAST_SEEDS, Kind.REVEAL, (kind, message), self._make_last_seeds
        )

    def _make_shares(self, setup: bytes) -> bytes:
        """Share this client's secrets among its neighbours, encrypted for each."""
        self._learn_neighbours(setup)
        degree, context, me = len(self._neighbours), self.round.context, self._number
        self._seed = self._source(masks.SEED_SIZE)
        secrets = (self._seed, self._masking_key.private_bytes_raw())
        shares = shamir.split_all(secrets, self._threshold, degree, self._source)
        party = ClientKeys(me, self.address, self._masking_public, self._signing_public)
        given: dict[int, tuple[bytes, bytes]] = {}
        commitments: dict[int, HolderCommitments] = {}
        for number, (own, masking) in zip(self._neighbours, shares, strict=True):
            out, self._incoming[number] = route_keys(
                self._key, party, self._neighbours[number], context
            )
            commitments[number] = (
                share_commitment(context, me, number, SharedSecret.OWN, own),
                share_commitment(context, me, number, SharedSecret.MASKING, masking),
                key_commitment(context, me, number, out),
            )
            given[number] = out, own + masking
        listed = encode_commitments(seed_commitment(context, me, self._seed), commitments)
        root = ShareCommitments.decode(listed, degree).root(context, me)
        ciphertexts = b"".join(
            [
                encrypt_share_pair(key, root, commitments[to], both)
                for to, (key, both) in given.items()
            ]
        )
        signature = sign(Signed.SHARES, signed_shares(root, ciphertexts), self._signing_key)
        return listed + ciphertexts + signature

    def _make_checked(self, inbox: bytes) -> bytes:
        """Check the received shares against their commitments; complain about false ones."""
        whole, rule = not len(inbox) % INBOX_ENTRY.size, f"entries of {INBOX_ENTRY.size} bytes"
        expect(whole, "INBOX", f"{len(inbox)} bytes long", rule)
        entries = list(INBOX_ENTRY.iter_unpack(inbox))
        self._check_neighbours([entry[0] for entry in entries])
        self._check_enough(len(entries), "neighbours that shared their secrets")
        for number, root, own, masking, ciphertext in entries:
            key, pair = self._incoming[number], (number, self._number)
            shares = decrypt_share_pair(
                key, root, (own, masking), pair, ciphertext, self.round.context
            )
            if shares is None:
                self._spoilt[number] = ciphertext
            else:
                self._held[number] = shares
            self._roots[number] = root
        return pack_listed(self._spoilt)

    def _make_masked(self, content: bytes, numbers: list[int]) -> bytes:
        """The masked numbers of this client."""
        if Kind.ACCUSED in self._answers:
            raise Rejected("client has left the round with an accusation: it masks nothing")
        pairs, _ = self._read_pairs(content)
        self._check_enough(len(pairs), "neighbours to mask with")
        me, context = (self._number, self._masking_public), self.round.context
        self._pairs = {
            number: mask_seed(
                self._masking_key, me, (number, self._neighbours[number].masking), context
            )
            for number in pairs
        }
        added = [self._seed, *[seed for to, seed in self._pairs.items() if to > self._number]]
        taken = [seed for to, seed in self._pairs.items() if to < self._number]
        modulus = self.round.modulus
        mask = masks.total(added, taken, modulus, self.round.length)
        masked = [(number + hidden) % modulus for number, hidden in zip(numbers, mask, strict=True)]
        return wire.pack_numbers(masked, modulus)

    def _make_accused(self, content: bytes) -> bytes:
        if Kind.MASKED in self._answers:
            raise Rejected("client has sent its masked numbers: it reveals no key")
        _, evidence = self._read_pairs(content)
        shown = [number for number, one in evidence.items() if self._guilty(number, one)]
        if not shown:
            raise Rejected(
                "no sender signed invalid encrypted shares: the server may have altered them, so "
                "no key is revealed. Leave this round"
            )
        keys = [ACCUSED_ENTRY.pack(number, self._incoming[number]) for number in shown]
        self._forget()
        return b"".join(keys)

    def _guilty(self, number: int, evidence: SignedShares) -> bool:
        """Whether the neighbour signed the invalid encrypted shares as they were received.

        They must not decrypt under the commitments that it signed either, whatever the server
        claims these to be. Then the key decrypts nothing that an honest neighbour sent.
        """
        root = evidence.commitments.root(self.round.context, number)
        signed = signed_shares(root, evidence.ciphertexts)
        try:
            key = self._neighbours[number].signing
            verify(Signed.SHARES, signed, evidence.signature, key, f"client {number}")
        except Rejected:
            return False
        ciphertext, committed = self._spoilt[number], evidence.commitments.at(self._number)
        if committed is None or root != self._roots[number]:
            return False
        if evidence.ciphertext(self._number) != ciphertext:
            return False
        incoming, pair = self._incoming[number], (number, self._number)
        shares = decrypt_share_pair(
            incoming, root, committed[:2], pair, ciphertext, self.round.context
        )
        return shares is None

    def _make_keys(self, content: bytes) -> bytes:
        """The shares of the dropouts' masking keys."""
        self._check_before_reveal()
        (survivors, leaving), rest = wire.leading_fields(LEFT_HEAD, content, "LEFT")
        left = read_listed(rest, leaving, "list of dropouts")
        self._check_neighbours(left)
        if not set(left) <= self._pairs.keys():
            raise Rejected("LEFT names neighbours that the client does not mask with")
        check_minimum(survivors, self.round.minimum)
        self._check_staying(self._pairs.keys() - set(left))
        self._check_agreed(self._pairs.keys() - set(left), left)
        self._left = set(left)
        return pack_shares({number: self._held[number][SharedSecret.MASKING] for number in left})

    def _make_seeds(self, content: bytes) -> bytes:
        """The pairwise seeds with dropouts that did not share their announced masking key."""
        self._check_before_reveal()
        return self._convict(content, SharedSecret.MASKING, self._left)

    def _make_last_seeds(self, content: bytes) -> bytes:
        """The pairwise seeds with survivors that did not share the seed that they committed to."""
        seeds = self._convict(content, SharedSecret.OWN, self._pairs.keys() - self._left)
        self._pairs.clear()
        return seeds

    def _convict(self, content: bytes, secret: SharedSecret, among: AbstractSet[int]) -> bytes:
        """The pairwise seeds with the convicted clients among `among`, each convicted by a proof.

        The pairwise masks with at least `threshold` neighbours stay secret, whatever is proved.
        """
        (which, count), rest = wire.leading_fields(PROOF_HEAD, content, "PROOF")
        degree, size = len(self._neighbours), proof_size(len(self._neighbours), self._threshold)
        parts = wire.records(rest, size, count, "PROOF")
        proofs = [Proof.decode(part, degree, self._threshold) for part in parts]
        named = [proof.owner for proof in proofs]
        self._check_neighbours(named)
        if which != secret or not among >= set(named):
            raise Rejected("PROOF names neighbours whose shares were not requested")
        self._check_staying(self._pairs.keys() - self._left - set(named))
        for proof in proofs:
            self._check_proof(proof, secret)
        return b"".join([SEEDS_ENTRY.pack(number, self._pairs[number]) for number in named])

    def _check_proof(self, proof: Proof, secret: SharedSecret) -> None:
        """Reject shares that do not convict.

        The list of commitments must be the one that came, authenticated, with the neighbour's
        shares.
        """
        owner, context = proof.owner, self.round.context
        named = (owner, self._neighbours[owner].masking)
        if proof.commitments.root(context, owner) != self._roots[owner] or not proves(
            proof.commitments, named, secret, proof.shares, context
        ):
            raise Rejected(
                f"PROOF does not convict client {owner}: the pairwise mask with it is not revealed"
            )

    def _make_reveal(self, request: bytes) -> bytes:
        """The shares that unmask the sum: of seeds of survivors, of keys of dropouts."""
        (survivors, staying, leaving), rest = wire.leading_fields(REQUEST_HEAD, request, "REQUEST")
        listed = read_listed(rest, staying + leaving, "list of neighbours to reveal")
        stayed, left = listed[:staying], listed[staying:]
        self._check_neighbours(stayed)
        self._check_neighbours(left)
        both = sorted(set(stayed) & set(left))
        if both:
            raise Rejected(
                f"neighbour {both[0]} is listed both as survivor and as dropout: both shares would "
                "unmask it"
            )
        if set(listed) != self._pairs.keys() - self._left:
            raise Rejected("REQUEST names other neighbours than the remaining ones")
        check_minimum(survivors, self.round.minimum)
        self._check_staying(stayed)
        self._check_agreed(stayed, left)
        self._left |= set(left)
        shares = {number: self._held[number][SharedSecret.OWN] for number in stayed}
        shares |= {number: self._held[number][SharedSecret.MASKING] for number in left}
        self._forget()
        return pack_shares(shares)

    def _learn_neighbours(self, data: bytes) -> None:
        """Read the keys of the neighbours from the setup message."""
        (number, joined, degree), rest = wire.leading_fields(SETUP_HEAD, data, "SETUP")
        least, most = self.round.minimum, self.round.slots
        expect(least <= joined <= most, "number of clients", joined, f"from {least} to {most}")
        fitted = self.round.neighbourhood.fit(joined)
        expect(degree == fitted.degree, "number of neighbours", degree, f"{fitted.degree}")
        expect(number < joined, "number of this client", number, f"below {joined}")
        listed = wire.records(rest, SETUP_ENTRY.size, degree, "list of neighbours")
        neighbours = {
            party.number: party
            for party in (ClientKeys(*SETUP_ENTRY.unpack(one)) for one in listed)
        }
        _check_ascending(neighbours, joined, number)
        own = ClientKeys(number, self.address, self._masking_public, self._signing_public)
        roles = zip(own, *neighbours.values(), strict=True)
        if any(len(set(keys)) != degree + 1 for keys in roles):
            raise Rejected("two neighbours in SETUP have the same number or key: must be distinct")
        self._number, self._neighbours, self._threshold = number, neighbours, fitted.threshold

    def _read_pairs(self, content: bytes) -> tuple[list[int], dict[int, SignedShares]]:
        """The neighbours to mask with, and the signed shares of those complained about."""
        (staying, shown), rest = wire.leading_fields(PAIRS_HEAD, content, "PAIRS")
        pairs = read_listed(rest[: 4 * staying], staying, "list of pairs")
        self._check_neighbours(pairs)
        if not self._held.keys() >= set(pairs):
            raise Rejected("PAIRS names a neighbour whose shares the client does not hold")
        degree = len(self._neighbours)
        parts = wire.records(rest[4 * staying :], evidence_size(degree), shown, "evidence")
        evidence = [SignedShares.decode(part, degree) for part in parts]
        if not self._spoilt.keys() >= {one.owner for one in evidence}:
            raise Rejected("evidence is about neighbours that the client did not complain about")
        return pairs, {one.owner: one for one in evidence}

    def _check_neighbours(self, numbers: list[int]) -> None:
        if self._number in numbers:
            raise Rejected("client is listed among its own neighbours")
        unknown = [number for number in numbers if number not in self._neighbours]
        if unknown:
            raise Rejected(f"client {unknown[0]} is not a neighbour of this client")
        _check_ascending(numbers, self.round.slots, self._number)

    def _check_before_reveal(self) -> None:
        if Kind.REVEAL in self._answers:
            raise Rejected("client has revealed its shares: it answers no request about dropouts")

    def _check_staying(self, staying: Iterable[int]) -> None:
        """Reject a request that leaves fewer than `threshold` pairwise masks secret."""
        self._check_enough(len(set(staying)), "surviving neighbours")

    def _check_agreed(self, stayed: Iterable[int], left: Iterable[int]) -> None:
        """Reject fates of neighbours that differ from the agreed set of survivors."""
        if self._agreed is None:
            return
        fates = [(number, True) for number in stayed] + [(number, False) for number in left]
        for number, survived in fates:
            if (self._neighbours[number].address in self._agreed) is not survived:
                raise Rejected(f"neighbour {number} has another fate than in the agreed survivors")

    def _check_enough(self, count: int, name: str) -> None:
        rule = f"at least the threshold of {self._threshold}. Leave this round: nothing was sent"
        expect(count >= self._threshold, f"number of {name}", count, rule)

    def _answer_once(
        self,
        kind: Kind,
        after: Kind,
        request: tuple[Kind, bytes],
        make: Callable[[bytes], bytes],
    ) -> bytes:
        """Compute an answer once: the same request gets the same bytes.

        A different request, or one that comes too early, is rejected.
        """
        with self._lock:
            if after not in self._answers:
                raise Rejected(f"{kind.name} must follow {after.name}, which was not sent yet")
            content = self._open(*request)
            if kind not in self._answers:
                return self._answer(kind, content, make(content))
            before, answer = self._answers[kind]
            if before != content:
                raise Rejected(f"{kind.name} was already sent in answer to another message")
            return answer

    def _open(self, kind: Kind, message: bytes) -> bytes:
        data = wire.body(message, kind, self.round.identity)
        if data[: len(self.address)] != self.address:
            raise Rejected(f"{kind.name} is addressed to another client")
        return self._channel.decrypt(
            bytes(message[:FRONT_SIZE]), data[FRONT_SIZE - wire.HEADER_SIZE :]
        )

    def _answer(self, kind: Kind, message: bytes, content: bytes) -> bytes:
        answer = self._channel.encrypt(
            wire.header(kind, self.round.identity) + self.address, content
        )
        self._answers[kind] = (message, answer)
        return answer

    def _forget(self) -> None:
        """Delete all secrets after revealing shares, except pairwise seeds.

        The seeds are needed if a neighbour is convicted later. Answers stay for repeated requests.
        """
        self._seed = b""
        for secrets in (self._incoming, self._held, self._spoilt):
            secrets.clear()
        del self._key, self._masking_key, self._signing_key


def _check_ascending(numbers: Iterable[int], limit: int, own: int) -> None:
    last = -1
    for number in numbers:
        if not last < number < limit or number == own:
            raise Rejected("list of neighbours is not in ascending order or has an invalid number")
        last = number

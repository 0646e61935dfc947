"""Registry of the clients of a secure aggregation round, as the server knows them.

From the clients' messages `ClientRegistry` derives the masking pairs, the dropouts, the secrets
that can be reconstructed and the clients convicted of malicious shares. It is deterministic: the
same messages give the same result. It neither decides when a stage ends nor sends anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice, repeat

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation import masks
from tacit.aggregation.agreement import Channel
from tacit.aggregation.blame import Blame, Misbehaviour
from tacit.aggregation.graph import COMPLAINTS, connected
from tacit.aggregation.interface import Rejected, check_minimum
from tacit.aggregation.masking import INBOX_HEAD, SETUP_ENTRY, MaskingRound, mask_seed
from tacit.aggregation.share_commitments import (
    SHARE_PAIR_SIZE,
    Proof,
    ShareCommitments,
    SharedSecret,
    SignedShares,
    combine_shares,
    decrypt_share_pair,
    is_announced_secret,
    key_commitment,
    matching_shares,
    signed_shares,
)
from tacit.aggregation.wire import Kind, records
from tacit.signatures import Signed, verify

_NOTHING = ShareCommitments(b"", ())


@dataclass(repr=False)
class Member:
    """The server's knowledge about one client; empty fields were not received yet.

    It has no repr, because it holds shares.
    """

    address: bytes
    masking: bytes
    signing: bytes
    channel: Channel
    number: int = 0
    neighbours: list[int] = field(default_factory=list)
    commitments: ShareCommitments = _NOTHING
    root: bytes = b""
    ciphertexts: bytes = b""  # concatenated encrypted shares, in the order of the neighbours
    signature: bytes = b""
    checked: frozenset[int] | None = None
    masked: list[int] = field(default_factory=list)
    secrets: dict[Kind, Mapping[int, bytes]] = field(default_factory=dict)  # about others, by kind
    pairs: list[int] = field(default_factory=list)

    def setup_entry(self) -> bytes:
        """The client's entry in its neighbours' SETUP."""
        return SETUP_ENTRY.pack(self.number, self.address, self.masking, self.signing)

    def its_keys(self) -> set[tuple[str, bytes]]:
        """The announced keys other than the address; no two clients may have the same."""
        return {("masking", self.masking), ("signing", self.signing)}

    def inbox_parts(self) -> Iterator[tuple[int, bytes, bytes, bytes]]:
        """For each neighbour its number and the parts of its inbox entry."""
        ciphertexts = records(
            self.ciphertexts, SHARE_PAIR_SIZE, len(self.neighbours), "encrypted shares"
        )
        head = repeat(INBOX_HEAD.pack(self.number, self.root))
        return zip(self.neighbours, head, self.commitments.both(), ciphertexts, strict=False)

    def revealed(self, kind: Kind) -> Mapping[int, bytes]:
        """The secrets that a message of this kind revealed, by the number of their owner."""
        return self.secrets.get(kind, {})

    def undo(self, kind: Kind) -> None:
        """Undo a message that is not among those decided for its stage."""
        match kind:
            case Kind.SHARES:
                self.ciphertexts = b""
            case Kind.CHECKED:
                self.checked = None
            case Kind.MASKED:
                self.masked = []
            case _:
                self.secrets.pop(kind, None)

    def evidence(self) -> SignedShares:
        """The list of commitments and encrypted shares that the client signed."""
        return SignedShares(self.number, self.commitments, self.ciphertexts, self.signature)

    def signed(self) -> bool:
        """Whether the signature of the list and the encrypted shares is valid."""
        message = signed_shares(self.root, self.ciphertexts)
        try:
            verify(Signed.SHARES, message, self.signature, self.signing, f"client {self.number}")
        except Rejected:
            return False
        return True


class ClientRegistry:
    """All clients that joined, in the order of their numbers."""

    def __init__(self, announced: MaskingRound, members: list[Member], threshold: int) -> None:
        self.round = announced
        self.members = members
        self.threshold = threshold
        self.unsigned: frozenset[int] = frozenset()
        self.disputed: frozenset[int] = frozenset()
        self.stayed: frozenset[int] = frozenset()
        self.left: frozenset[int] = frozenset()
        self.keys: dict[int, bytes] = {}
        self.convicted: dict[int, Proof] = {}
        self.vanished: frozenset[int] = frozenset()
        self.staying: frozenset[int] = frozenset()  # survivors that did not drop out later
        self.own_seeds: dict[int, bytes] = {}
        self.appealed: dict[int, Proof] = {}
        self._wrong: dict[Kind, set[int]] = {}  # clients that revealed wrong shares

    def check_shared(self) -> None:
        """Raise `Rejected` unless a release is still possible after sharing.

        At least `minimum` clients must have shared their secrets, each with at least `threshold`
        neighbours that did too.
        """
        there = {one.number for one in self.members if one.ciphertexts}
        check_minimum(len(there), self.round.minimum, "clients that shared their secrets")
        near = {number: there.intersection(self.members[number].neighbours) for number in there}
        kept = _with_enough(near, self.threshold)
        check_minimum(len(kept), self.round.minimum, "clients with enough neighbours that shared")

    def pair_clients(self) -> None:
        """Determine which clients mask with each other.

        These are neighbours that both checked and do not complain about each other, provided each
        has at least `threshold` of them. Clients in too many complaints are excluded first, so that
        they cost their neighbours no more than a dropout.
        """
        checked = {one.number: one.checked for one in self.members if one.checked is not None}
        complaints = frozenset[int]().union(*checked.values())
        self.unsigned = frozenset(
            number for number in complaints if not self.members[number].signed()
        )
        there = checked.keys() - self.unsigned
        disputes = {number: set(checked[number] & there) for number in there}
        for receiver in there:
            for sender in checked[receiver] & there:
                disputes[sender].add(receiver)
        self.disputed = _most_disputed(disputes)
        there -= self.disputed
        pairs = {
            number: (there & set(self.members[number].neighbours)) - disputes[number]
            for number in there
        }
        pairs = _with_enough(pairs, self.threshold)
        for one in self.members:
            one.pairs = sorted(pairs.get(one.number, ()))
        paired = sum(bool(one.pairs) for one in self.members)
        check_minimum(paired, self.round.minimum, "clients that can mask")

    def find_dropouts(self) -> None:
        """Determine survivors and dropouts from the masked numbers."""
        self.stayed = frozenset(one.number for one in self.members if one.masked)
        self.staying = self.stayed
        self.left = self._masked_with_survivors(
            one.number for one in self.members if one.pairs and not one.masked
        )
        self._check_opens(self.stayed)
        self._check_shared(self.stayed | self.left)

    def reconstruct_keys(self) -> None:
        """Reconstruct the dropouts' masking keys, or proofs that they shared invalid ones."""
        answers = {number: self.members[number].revealed(Kind.KEYS) for number in self.stayed}
        held = self._verified_shares(Kind.KEYS, answers, self.left, frozenset())
        self.keys, self.convicted = self._reconstruct(held, SharedSecret.MASKING)

    def drop_silent(self) -> None:
        """Count as dropouts those that did not reveal pairwise masks with convicted clients."""
        asked = {number for owner in self.convicted for number in self.members[owner].pairs}
        self.vanished = frozenset(
            number
            for number in asked & self.stayed
            if not self.members[number].revealed(Kind.SEEDS)
        )
        self.staying = self.stayed - self.vanished
        self._check_opens(self.staying)
        self._check_shared(self.staying | self._masked_with_survivors(self.vanished))

    def reconstruct_seeds(self) -> None:
        """Reconstruct the self-mask seeds and the masking keys of late dropouts.

        Where a client shared another seed, the result is a proof of that. All shares are present
        before any secret is reconstructed.
        """
        staying, gone = self.staying, self._masked_with_survivors(self.vanished)
        answers = {number: self.members[number].revealed(Kind.REVEAL) for number in staying}
        held = self._verified_shares(Kind.REVEAL, answers, gone, staying)
        own, masking = ({one: held[one] for one in whose} for whose in (staying, gone))
        keys, convicted = self._reconstruct(masking, SharedSecret.MASKING)
        self.own_seeds, self.appealed = self._reconstruct(own, SharedSecret.OWN)
        if convicted:
            raise _rejection(
                f"client {min(convicted)} dropped out late and shared another masking key than it "
                "announced"
            )
        self.keys |= keys
        if self.appealed:
            self._check_opens(staying - self.appealed.keys())

    def total(self) -> tuple[list[int], int]:
        """The unmasked sum of the clients whose numbers count, and how many they are."""
        counted, own_seeds = self._summed_clients()
        added: list[bytes] = []
        taken = [own_seeds[number] for number in counted]
        for other in self.left | self.vanished | (self.staying - counted):
            for number, seed in self._common_seeds(counted, other):
                (taken if number < other else added).append(seed)
        modulus, length = self.round.modulus, self.round.length
        correction = masks.total(added, taken, modulus, length)
        columns = zip(correction, *[self.members[one].masked for one in counted], strict=True)
        return [sum(column) % modulus for column in columns], len(counted)

    def _summed_clients(self) -> tuple[frozenset[int], dict[int, bytes]]:
        """The clients whose numbers count, with their self-mask seeds.

        Clients that shared another seed than they committed to are excluded if all their masking
        partners revealed the pairwise masks. Otherwise they count, with the seeds that they shared.
        """
        honest = self.staying - self.appealed.keys()
        silent = {
            number
            for owner in self.appealed
            for number in self._neighbours_among(owner, honest)
            if not self.members[number].revealed(Kind.LAST_SEEDS)
        }
        if not silent:
            return honest, self.own_seeds
        shared = {
            owner: combine_shares(proof.commitments, proof.shares)
            for owner, proof in self.appealed.items()
        }
        seeds = {owner: seed for owner, seed in shared.items() if seed is not None}
        if len(seeds) < len(shared):
            raise _rejection(
                f"{len(silent)} neighbours of convicted clients have not revealed their pairwise "
                "masks, and the shared seeds are invalid"
            )
        return self.staying, self.own_seeds | seeds

    def blamed(self) -> tuple[Blame, ...]:
        """All malicious behaviour detected so far: certain blames first, then ambiguous pairs."""
        found = {self._blame(Misbehaviour.UNSIGNED, number) for number in self.unsigned}
        judged = {
            self._judged(self.members[sender], receiver)
            for receiver in self.members
            for sender in (receiver.checked or frozenset()) - self.unsigned
        }
        doubts = Counter(number for one in judged if len(one.numbers) > 1 for number in one.numbers)
        doubtful = {number for number in self.disputed if doubts[number] > COMPLAINTS}
        found |= judged | {self._blame(Misbehaviour.DISPUTED, number) for number in doubtful}
        wrong = set[int]().union(*self._wrong.values())
        found |= {self._blame(Misbehaviour.WRONG_SHARE, number) for number in wrong}
        found |= {self._blame(Misbehaviour.UNKNOWN_KEY, number) for number in self.convicted}
        found |= {self._blame(Misbehaviour.UNKNOWN_SEED, number) for number in self.appealed}
        return tuple(sorted(found, key=lambda blame: (len(blame.numbers), blame)))

    def sharers(self, member: Member) -> list[Member]:
        """The neighbours that shared their secrets."""
        neighbours = [self.members[number] for number in member.neighbours]
        return [other for other in neighbours if other.ciphertexts]

    def dropouts_of(self, member: Member) -> list[int]:
        """The masking partners that dropped out."""
        return [number for number in member.pairs if number in self.left]

    def convicts_of(self, member: Member, proofs: Mapping[int, Proof]) -> list[int]:
        """The masking partners that are convicted."""
        return [number for number in member.pairs if number in proofs]

    def survivors_and_dropouts_of(self, member: Member) -> tuple[list[int], list[int]]:
        """The masking partners that survive to the end, and those that dropped out meanwhile."""
        stayed = [number for number in member.pairs if number in self.staying]
        return stayed, [number for number in member.pairs if number in self.vanished]

    def _judged(self, sender: Member, receiver: Member) -> Blame:
        """The blame for encrypted shares that the receiver reported as invalid."""
        pair = sender.number, receiver.number
        key = receiver.revealed(Kind.ACCUSED).get(sender.number)
        committed, context = sender.commitments.at(receiver.number), self.round.context
        if key is None or committed is None or key_commitment(context, *pair, key) != committed[2]:
            return self._blame(Misbehaviour.INVALID_SHARES, *pair)
        ciphertext = sender.evidence().ciphertext(receiver.number)
        if decrypt_share_pair(key, sender.root, committed[:2], pair, ciphertext, context) is None:
            return self._blame(Misbehaviour.INVALID_SHARES, sender.number)
        return self._blame(Misbehaviour.FALSE_COMPLAINT, receiver.number)

    def _blame(self, kind: Misbehaviour, *numbers: int) -> Blame:
        return Blame(kind, numbers, tuple(self.members[number].address for number in numbers))

    def _verified_shares(
        self,
        kind: Kind,
        answers: Mapping[int, Mapping[int, bytes]],
        dropouts: AbstractSet[int],
        survivors: AbstractSet[int],
    ) -> dict[int, dict[int, bytes]]:
        """The shares of each owner by holder that match the owner's commitments.

        These are shares of masking keys for those who `dropouts`, and of self-mask seeds for those
        `survivors`.
        """
        wrong = self._wrong.setdefault(kind, set())
        wrong.clear()
        given: dict[int, dict[int, bytes]] = {owner: {} for owner in sorted(dropouts | survivors)}
        for holder, shares in answers.items():
            for owner, share in shares.items():
                given[owner][holder] = share
        held: dict[int, dict[int, bytes]] = {}
        for owner, shares in given.items():
            secret = SharedSecret.OWN if owner in survivors else SharedSecret.MASKING
            commitments, context = self.members[owner].commitments, self.round.context
            held[owner] = matching_shares(commitments, owner, secret, shares, context)
            wrong |= shares.keys() - held[owner].keys()
        for owner, right in held.items():
            if len(right) < self.threshold:
                raise _too_few(owner, "revealed shares", len(right), self.threshold)
        return held

    def _reconstruct(
        self, held: Mapping[int, Mapping[int, bytes]], secret: SharedSecret
    ) -> tuple[dict[int, bytes], dict[int, Proof]]:
        """Reconstruct each owner's secret from its first shares.

        If the result is not what the owner announced, these shares are the proof.
        """
        found: dict[int, bytes] = {}
        proofs: dict[int, Proof] = {}
        for owner, right in held.items():
            member, shares = self.members[owner], dict(islice(right.items(), self.threshold))
            one, named = combine_shares(member.commitments, shares), (owner, member.masking)
            if one and is_announced_secret(
                member.commitments, named, secret, one, self.round.context
            ):
                found[owner] = one
            else:
                proofs[owner] = Proof(owner, member.commitments, shares)
        return found, proofs

    def _common_seeds(self, counted: AbstractSet[int], other: int) -> Iterator[tuple[int, bytes]]:
        """The counted clients that have a pairwise mask with an uncounted one, with its seed."""
        gone, neighbours = self.members[other], self._neighbours_among(other, counted)
        if other in self.keys:
            key = X25519PrivateKey.from_private_bytes(self.keys[other])
            me, context = (other, gone.masking), self.round.context
            for number in neighbours:
                yield number, mask_seed(key, me, (number, self.members[number].masking), context)
        else:
            for number in neighbours:
                member = self.members[number]
                kind = Kind.LAST_SEEDS if other in self.appealed else Kind.SEEDS
                yield number, member.revealed(kind)[other]

    def _neighbours_among(self, owner: int, among: AbstractSet[int]) -> list[int]:
        return [number for number in self.members[owner].pairs if number in among]

    def _masked_with_survivors(self, numbers: Iterable[int]) -> frozenset[int]:
        """The clients among `numbers` that share a pairwise mask with a survivor."""
        return frozenset(
            number for number in numbers if self._neighbours_among(number, self.staying)
        )

    def _check_shared(self, owners: AbstractSet[int]) -> None:
        """Abort if too few survivors hold shares of an owner, since no more can arrive."""
        for owner in sorted(owners):
            count = len(self._neighbours_among(owner, self.staying))
            if count < self.threshold:
                raise _too_few(owner, "surviving holders of shares", count, self.threshold)

    def _check_opens(self, survivors: AbstractSet[int]) -> None:
        check_minimum(len(survivors), self.round.minimum)
        if not connected([one.pairs for one in self.members], survivors):
            raise _rejection(
                "survivors form groups without common masks, whose separate sums would be revealed"
            )


def _rejection(reason: str) -> Rejected:
    return Rejected(
        f"{reason}. Nothing was released: wait for more messages, or start a new round."
    )


def _too_few(owner: int, name: str, count: int, threshold: int) -> Rejected:
    return _rejection(
        f"number of {name} of client {owner} is {count}: must be at least {threshold}"
    )


def _with_enough(near: Mapping[int, set[int]], threshold: int) -> dict[int, set[int]]:
    """Repeatedly remove clients with fewer than `threshold` neighbours left."""
    kept = dict(near)
    lonely = [number for number, others in kept.items() if len(others) < threshold]
    while lonely:
        number = lonely.pop()
        for other in kept.pop(number, ()):
            kept[other].discard(number)
            if len(kept[other]) < threshold:
                lonely.append(other)
    return kept


def _most_disputed(disputes: Mapping[int, set[int]]) -> frozenset[int]:
    """The clients to exclude, most complaints first, until none is in more than `COMPLAINTS`.

    `disputes` maps each client to those it has a complaint with.
    """
    open_with = {number: set(others) for number, others in disputes.items() if others}
    out = set[int]()
    while open_with:
        most = max(open_with, key=lambda number: (len(open_with[number]), -number))
        if len(open_with[most]) <= COMPLAINTS:
            break
        out.add(most)
        for other in open_with.pop(most):
            open_with[other].discard(most)
    return frozenset(out)

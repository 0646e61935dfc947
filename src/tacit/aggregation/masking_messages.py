"""Messages of the masking server: it parses its clients' messages and writes the requests to them.

A reader checks that a message answers the request and stores its content in the sender's `Member`;
a rejected message changes nothing. A writer returns a stage's messages by recipient number, derived
from the `ClientRegistry` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial

from tacit.aggregation.client_registry import ClientRegistry, Member
from tacit.aggregation.interface import Rejected
from tacit.aggregation.masking import (
    ACCUSED_ENTRY,
    LEFT_HEAD,
    PAIRS_HEAD,
    PROOF_HEAD,
    REQUEST_HEAD,
    SEEDS_ENTRY,
    SETUP_HEAD,
    pack_listed,
    read_listed,
)
from tacit.aggregation.share_commitments import (
    Proof,
    SharedSecret,
    read_shares,
    split_shares_message,
)
from tacit.aggregation.wire import Kind, records, unpack_numbers

Messages = tuple[Kind, dict[int, bytes]]
"""The kind of a stage's messages, and their contents by recipient number."""


def setups(registry: ClientRegistry) -> Messages:
    """Messages SETUP: to each client its number and the keys of its neighbours."""
    cards, joined = [one.setup_entry() for one in registry.members], len(registry.members)
    return Kind.SETUP, {
        one.number: SETUP_HEAD.pack(one.number, joined, len(one.neighbours))
        + b"".join([cards[number] for number in one.neighbours])
        for one in registry.members
    }


def inboxes(registry: ClientRegistry) -> Messages:
    """Messages INBOX: to each client the encrypted shares that its neighbours sent it."""
    boxes: list[list[bytes]] = [[] for _ in registry.members]
    for sender in registry.members:
        if sender.ciphertexts:
            for number, head, both, ciphertext in sender.inbox_parts():
                boxes[number] += head, both, ciphertext
    return Kind.INBOX, {
        one.number: b"".join(boxes[one.number]) for one in registry.members if one.ciphertexts
    }


def pairs(registry: ClientRegistry) -> Messages:
    """Messages PAIRS: the neighbours to mask with, and evidence on those complained about."""

    def content(member: Member) -> bytes:
        shown = sorted((member.checked or frozenset()) - registry.unsigned)
        evidence = b"".join([registry.members[number].evidence().encode() for number in shown])
        return PAIRS_HEAD.pack(len(member.pairs), len(shown)) + pack_listed(member.pairs) + evidence

    return Kind.PAIRS, {
        one.number: content(one) for one in registry.members if one.checked is not None
    }


def left(registry: ClientRegistry) -> Messages:
    """Messages LEFT: tell each remaining client which of its neighbours dropped out."""
    gone = {number: registry.dropouts_of(registry.members[number]) for number in registry.stayed}
    return Kind.LEFT, {
        number: LEFT_HEAD.pack(len(registry.stayed), len(numbers)) + pack_listed(numbers)
        for number, numbers in gone.items()
        if numbers
    }


def proofs(registry: ClientRegistry) -> Messages:
    """The proofs against dropouts that did not share the masking keys that they announced."""
    return Kind.PROOF, _proofs(registry, registry.stayed, registry.convicted, SharedSecret.MASKING)


def appeals(registry: ClientRegistry) -> Messages:
    """The proofs against survivors that did not share the seeds of their self-masks."""
    honest = registry.staying - registry.appealed.keys()
    return Kind.PROOF, _proofs(registry, honest, registry.appealed, SharedSecret.OWN)


def requests(registry: ClientRegistry) -> Messages:
    """The final requests: whose shares to reveal."""
    there = registry.staying

    def content(member: Member) -> bytes:
        stayed, gone = registry.survivors_and_dropouts_of(member)
        counts = REQUEST_HEAD.pack(len(there), len(stayed), len(gone))
        return counts + pack_listed(stayed + gone)

    return Kind.REQUEST, {number: content(registry.members[number]) for number in there}


def _proofs(
    registry: ClientRegistry,
    among: AbstractSet[int],
    against: Mapping[int, Proof],
    secret: SharedSecret,
) -> dict[int, bytes]:
    """The proofs, for each client in `among` with a pairwise mask with a convicted client."""
    encoded = {number: proof.encode() for number, proof in against.items()}
    messages = {}
    for number in among:
        named = registry.convicts_of(registry.members[number], against)
        if named:
            listed = b"".join([encoded[one] for one in named])
            messages[number] = PROOF_HEAD.pack(secret, len(named)) + listed
    return messages


def _read_sent_shares(registry: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.ciphertexts, "sent its shares")
    commitments, ciphertexts, signature = split_shares_message(
        content, len(member.neighbours), "SHARES"
    )
    if list(commitments.holders) != member.neighbours:
        raise Rejected("SHARES names other neighbours than those of the client")
    member.commitments = commitments
    member.root = commitments.root(registry.round.context, member.number)
    member.ciphertexts, member.signature = ciphertexts, signature


def _read_checked(registry: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.checked is not None, "checked its encrypted shares")
    _check_present(member, member.ciphertexts, "has not shared its secrets")
    invalid = read_listed(content, len(content) // 4, "CHECKED")
    sharers = {other.number for other in registry.sharers(member)} if invalid else set()
    if invalid != sorted(sharers.intersection(invalid)):
        raise Rejected("CHECKED names clients whose encrypted shares the client did not receive")
    member.checked = frozenset(invalid)


def _read_masked(registry: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(
        member, member.masked or member.revealed(Kind.ACCUSED), "sent its masked numbers, or left,"
    )
    _check_present(member, member.pairs, "has too few neighbours to mask with")
    member.masked = unpack_numbers(content, registry.round.modulus, registry.round.length, "MASKED")


def _read_accused(_registry: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(
        member, member.masked or member.revealed(Kind.ACCUSED), "sent its masked numbers, or left,"
    )
    count = len(content) // ACCUSED_ENTRY.size
    parts = records(content, ACCUSED_ENTRY.size, count, "ACCUSED")
    accused = dict(ACCUSED_ENTRY.unpack(part) for part in parts)
    complained = member.checked or frozenset()
    if not accused or len(accused) != count or not complained >= accused.keys():
        raise Rejected("ACCUSED names clients that the client did not complain about")
    member.secrets[Kind.ACCUSED] = accused


def _read_keys(registry: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.revealed(Kind.KEYS), "revealed its shares of dropouts")
    _check_present(member, member.masked, "sent no masked numbers")
    gone = registry.dropouts_of(member)
    _check_present(member, gone, "has no neighbour that dropped out")
    member.secrets[Kind.KEYS] = read_shares(content, gone, "KEYS")


def _read_seeds(
    registry: ClientRegistry, member: Member, content: bytes, kind: Kind = Kind.SEEDS
) -> None:
    _check_turn(member, member.revealed(kind), "revealed its masks with convicted clients")
    _check_present(member, member.masked, "sent no masked numbers")
    against = registry.convicted if kind is Kind.SEEDS else registry.appealed
    named = registry.convicts_of(member, against)
    _check_present(member, named, "has no neighbour that is convicted")
    parts = records(content, SEEDS_ENTRY.size, len(named), "list of seeds")
    entries = [SEEDS_ENTRY.unpack(part) for part in parts]
    if [number for number, _ in entries] != named:
        raise Rejected(f"seeds of client {member.number} are of other clients than requested")
    member.secrets[kind] = dict(entries)


def _read_reveal(registry: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.revealed(Kind.REVEAL), "revealed its shares")
    there = member.masked and member.number not in registry.vanished
    _check_present(member, there, "sent no masked numbers, or dropped out since")
    stayed, gone = registry.survivors_and_dropouts_of(member)
    member.secrets[Kind.REVEAL] = read_shares(content, sorted(stayed + gone), "REVEAL")


def _check_turn(member: Member, already: object, name: str) -> None:
    if already:
        raise Rejected(f"client {member.number} has {name} already")


def _check_present(member: Member, before: object, otherwise: str) -> None:
    if not before:
        raise Rejected(f"client {member.number} {otherwise}: it is no longer in this round")


READERS: Mapping[Kind, Callable[[ClientRegistry, Member, bytes], None]] = {
    Kind.SHARES: _read_sent_shares,
    Kind.CHECKED: _read_checked,
    Kind.MASKED: _read_masked,
    Kind.ACCUSED: _read_accused,
    Kind.KEYS: _read_keys,
    Kind.SEEDS: _read_seeds,
    Kind.REVEAL: _read_reveal,
    Kind.LAST_SEEDS: partial(_read_seeds, kind=Kind.LAST_SEEDS),
}

"""Messages of the masking server: it parses its clients' messages and writes the requests to them.

A reader checks that a message answers the request and stores its content in the sender's `Member`;
a rejected message changes nothing. A writer returns a stage's messages by recipient number, derived
from the `ClientRegistry` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from tacit.aggregation.client_registry import ClientRegistry, Member
from tacit.aggregation.interface import Refusal
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
    cut_shares,
    read_shares,
)
from tacit.aggregation.wire import Kind, records, unpack_numbers

Letters = tuple[Kind, dict[int, bytes]]
"""The kind of a stage's messages, and their contents by recipient number."""


def setups(crowd: ClientRegistry) -> Letters:
    """Each client's number and neighbours."""
    cards, joined = [one.card() for one in crowd.members], len(crowd.members)
    return Kind.SETUP, {
        one.number: SETUP_HEAD.pack(one.number, joined, len(one.neighbours))
        + b"".join([cards[number] for number in one.neighbours])
        for one in crowd.members
    }


def inboxes(crowd: ClientRegistry) -> Letters:
    """The encrypted shares from the neighbours that shared their secrets."""
    boxes: list[list[bytes]] = [[] for _ in crowd.members]
    for sender in crowd.members:
        if sender.parcels:
            for number, head, both, parcel in sender.posted():
                boxes[number] += head, both, parcel
    return Kind.INBOX, {
        one.number: b"".join(boxes[one.number]) for one in crowd.members if one.parcels
    }


def pairs(crowd: ClientRegistry) -> Letters:
    """The neighbours to mask with, and the signed shares of those the client complained about."""

    def content(one: Member) -> bytes:
        shown = sorted((one.checked or frozenset()) - crowd.unsigned)
        evidence = b"".join([crowd.members[number].evidence().encode() for number in shown])
        return PAIRS_HEAD.pack(len(one.pairs), len(shown)) + pack_listed(one.pairs) + evidence

    return Kind.PAIRS, {
        one.number: content(one) for one in crowd.members if one.checked is not None
    }


def left(crowd: ClientRegistry) -> Letters:
    """The dropouts, for the clients that masked with them."""
    gone = {number: crowd.left_of(crowd.members[number]) for number in crowd.stayed}
    return Kind.LEFT, {
        number: LEFT_HEAD.pack(len(crowd.stayed), len(numbers)) + pack_listed(numbers)
        for number, numbers in gone.items()
        if numbers
    }


def proofs(crowd: ClientRegistry) -> Letters:
    """The proofs against dropouts that did not share the masking keys that they announced."""
    return Kind.PROOF, _proofs(crowd, crowd.stayed, crowd.convicted, SharedSecret.MASKING)


def appeals(crowd: ClientRegistry) -> Letters:
    """The proofs against survivors that did not share the seeds of their self-masks."""
    honest = crowd.staying - crowd.appealed.keys()
    return Kind.PROOF, _proofs(crowd, honest, crowd.appealed, SharedSecret.OWN)


def requests(crowd: ClientRegistry) -> Letters:
    """The final requests: whose shares to reveal."""
    there = crowd.staying

    def content(one: Member) -> bytes:
        stayed, gone = crowd.fates_of(one)
        counts = REQUEST_HEAD.pack(len(there), len(stayed), len(gone))
        return counts + pack_listed(stayed + gone)

    return Kind.REQUEST, {number: content(crowd.members[number]) for number in there}


def _proofs(
    crowd: ClientRegistry,
    among: AbstractSet[int],
    against: Mapping[int, Proof],
    secret: SharedSecret,
) -> dict[int, bytes]:
    """The proofs, for those of `among` that have a pairwise mask with a convicted client."""
    encoded = {number: proof.encode() for number, proof in against.items()}
    letters = {}
    for number in among:
        named = crowd.convicts_of(crowd.members[number], against)
        if named:
            listed = b"".join([encoded[one] for one in named])
            letters[number] = PROOF_HEAD.pack(secret, len(named)) + listed
    return letters


def _read_sent_shares(crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.parcels, "sent its shares")
    pledges, parcels, signature = cut_shares(content, len(member.neighbours), "the SHARES")
    if list(pledges.holders) != member.neighbours:
        raise Refusal("the SHARES name other neighbours than those that this client has")
    member.pledges, member.root = pledges, pledges.root(crowd.round.context, member.number)
    member.parcels, member.signature = parcels, signature


def _read_checked(crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.checked is not None, "checked its parcels")
    _check_there(member, member.parcels, "has not shared its secrets")
    spoilt = read_listed(content, len(content) // 4, "the CHECKED")
    sharers = {other.number for other in crowd.sharers(member)} if spoilt else set()
    if spoilt != sorted(sharers.intersection(spoilt)):
        raise Refusal("the CHECKED names others than those whose parcels this client was sent")
    member.checked = frozenset(spoilt)


def _read_masked(crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.masked or member.accused, "sent its masked numbers, or left,")
    _check_there(member, member.pairs, "has too few to mask with")
    member.masked = unpack_numbers(content, crowd.round.modulus, crowd.round.length, "the MASKED")


def _read_accused(_crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.masked or member.accused, "sent its masked numbers, or left,")
    count = len(content) // ACCUSED_ENTRY.size
    parts = records(content, ACCUSED_ENTRY.size, count, "the ACCUSED")
    accused = dict(ACCUSED_ENTRY.unpack(part) for part in parts)
    complained = member.checked or frozenset()
    if not accused or len(accused) != count or not complained >= accused.keys():
        raise Refusal("the ACCUSED is about others than those of whom this client complained")
    member.accused = accused


def _read_keys(crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.keys, "revealed its shares of those who left")
    _check_there(member, member.masked, "sent no masked numbers")
    gone = crowd.left_of(member)
    _check_there(member, gone, "was not asked about anybody who left")
    member.keys = read_shares(content, gone, "the KEYS")


def _read_seeds(crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.seeds, "revealed its masks with those who are convicted")
    member.seeds = _seeds(crowd, member, content, crowd.convicted)


def _read_last_seeds(crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.last_seeds, "revealed its masks with those who are convicted")
    member.last_seeds = _seeds(crowd, member, content, crowd.appealed)


def _seeds(
    crowd: ClientRegistry, member: Member, content: bytes, against: Mapping[int, Proof]
) -> dict[int, bytes]:
    _check_there(member, member.masked, "sent no masked numbers")
    named = crowd.convicts_of(member, against)
    _check_there(member, named, "was not asked about anybody who is convicted")
    parts = records(content, SEEDS_ENTRY.size, len(named), "a list of seeds")
    entries = [SEEDS_ENTRY.unpack(part) for part in parts]
    if [number for number, _ in entries] != named:
        raise Refusal(f"client {member.number} does not answer what was asked about seeds")
    return dict(entries)


def _read_reveal(crowd: ClientRegistry, member: Member, content: bytes) -> None:
    _check_turn(member, member.revealed, "revealed its shares")
    there = member.masked and member.number not in crowd.vanished
    _check_there(member, there, "sent no masked numbers, or vanished since")
    stayed, gone = crowd.fates_of(member)
    member.revealed = read_shares(content, sorted(stayed + gone), "the REVEAL")


def _check_turn(member: Member, already: object, what: str) -> None:
    if already:
        raise Refusal(f"client {member.number} has {what} already")


def _check_there(member: Member, before: object, otherwise: str) -> None:
    if not before:
        raise Refusal(f"client {member.number} {otherwise}; it is no longer in this round")


READERS: Mapping[Kind, Callable[[ClientRegistry, Member, bytes], None]] = {
    Kind.SHARES: _read_sent_shares,
    Kind.CHECKED: _read_checked,
    Kind.MASKED: _read_masked,
    Kind.ACCUSED: _read_accused,
    Kind.KEYS: _read_keys,
    Kind.SEEDS: _read_seeds,
    Kind.REVEAL: _read_reveal,
    Kind.LAST_SEEDS: _read_last_seeds,
}

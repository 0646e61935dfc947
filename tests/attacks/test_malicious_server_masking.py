"""A malicious masking server that collects seeds or shares: false dropouts, false convictions,
false complaints.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from tests.aggregation.malicious_clients import (
    Garbage,
    MaliciousClient,
    NoSeed,
    UnknownKey,
    UnknownSeed,
    corrupt,
    play,
)
from tests.aggregation.test_masking_trust import K, N, T, forge, inbox_entries, request

from tacit.aggregation import MaskingClient, MaskingPlan, MaskingSession, Neighbourhood, Rejected
from tacit.aggregation.agreement import new_key, public_bytes
from tacit.aggregation.masking import (
    ACCUSED_ENTRY,
    INBOX_ENTRY,
    LEFT_HEAD,
    PAIRS_HEAD,
    PROOF_HEAD,
    SEEDS_ENTRY,
    SETUP_ENTRY,
    pack_listed,
)
from tacit.aggregation.share_commitments import (
    SHARE_ENTRY,
    Proof,
    ShareCommitments,
    SharedSecret,
    encode_commitments,
    share_commitment,
)
from tacit.aggregation.wire import Kind

VICTIM = 0
NEIGHBOURS = list(range(1, N))
Forge = Callable[[MaskingSession, int], Proof]


def masked_session(convicts: Sequence[int] = ()) -> MaskingSession:
    """A round in which all clients have sent masked numbers; the convicted ones announced keys
    that they do not know.
    """
    session = MaskingSession(list(range(N)), MaskingPlan(6, 1000, Neighbourhood(K, T)))
    for place in convicts:
        UnknownKey().prepare(session.clients[place])
    for step in (session.join, session.share, session.check, session.mask):
        step()
    return session


def left_message(session: MaskingSession, gone: Sequence[int], survivors: int = N) -> bytes:
    content = LEFT_HEAD.pack(survivors, len(gone)) + pack_listed(gone)
    return forge(session, VICTIM, Kind.LEFT, content)


def proof(session: MaskingSession, proofs: Sequence[Proof], secret: SharedSecret) -> bytes:
    content = PROOF_HEAD.pack(secret, len(proofs)) + b"".join(one.encode() for one in proofs)
    return forge(session, VICTIM, Kind.PROOF, content)


def true_shares(session: MaskingSession, owner: int, secret: SharedSecret) -> dict[int, bytes]:
    """What as many holders as the threshold have, which the server could have asked them for."""
    holders = [number for number in NEIGHBOURS if number != owner][:T]
    return {holder: session.clients[holder]._held[owner][secret] for holder in holders}


def with_true_shares(session: MaskingSession, owner: int) -> Proof:
    shares = true_shares(session, owner, SharedSecret.MASKING)
    return Proof(owner, session.server._clients[owner].commitments, shares)


def with_shares_of_the_other_secret(session: MaskingSession, owner: int) -> Proof:
    shares = true_shares(session, owner, SharedSecret.OWN)
    return Proof(owner, session.server._clients[owner].commitments, shares)


def with_false_shares(session: MaskingSession, owner: int) -> Proof:
    true = with_true_shares(session, owner)
    return Proof(
        owner, true.commitments, {holder: b"\x00" + os.urandom(32) for holder in true.shares}
    )


def with_one_false_share(session: MaskingSession, owner: int) -> Proof:
    true = with_true_shares(session, owner)
    first = min(true.shares)
    return Proof(owner, true.commitments, {**true.shares, first: b"\x00" + os.urandom(32)})


def with_a_list_of_its_own(session: MaskingSession, owner: int) -> Proof:
    """The server commits to shares of nothing in the owner's place."""
    context = session.server.round.context
    shares = {holder: b"\x00" + os.urandom(32) for holder in range(N) if holder != owner}
    by_holder = {
        holder: (
            share_commitment(context, owner, holder, SharedSecret.OWN, share),
            share_commitment(context, owner, holder, SharedSecret.MASKING, share),
            bytes(32),
        )
        for holder, share in shares.items()
    }
    listed = ShareCommitments.decode(encode_commitments(bytes(32), by_holder), K)
    return Proof(owner, listed, dict(list(shares.items())[:T]))


FORGERIES: list[Forge] = [
    with_true_shares,
    with_shares_of_the_other_secret,
    with_false_shares,
    with_one_false_share,
    with_a_list_of_its_own,
]


def told(session: MaskingSession, ask: bytes) -> bytes | None:
    """What the victim answers, as the server reads it; None if it rejects."""
    try:
        answer = session.clients[VICTIM].reveal(ask)
    except Rejected:
        return None
    return session.server._clients[VICTIM].channel.decrypt(answer[:52], answer[52:])


def collected(session: MaskingSession, forgeries: Sequence[Forge]) -> dict[int, bytes]:
    """The seeds that the server gets by telling its victim that as many left as it believes, and
    that all of them are convicted.
    """
    gone = next(
        gone
        for count in range(K, -1, -1)
        if told(session, left_message(session, gone := NEIGHBOURS[K - count :])) is not None
    )
    for forged in forgeries:
        for count in range(len(gone), 0, -1):
            proofs = [forged(session, owner) for owner in gone[:count]]
            answer = told(session, proof(session, proofs, SharedSecret.MASKING))
            if answer is not None:
                return dict(SEEDS_ENTRY.iter_unpack(answer))
    return {}


def removed(*checks: str) -> ExitStack:
    stack = ExitStack()
    for check in checks:
        stack.enter_context(patch.object(MaskingClient, check, lambda *_: None))
    return stack


@pytest.mark.parametrize("forged", FORGERIES)
def test_pretending_that_everybody_dropped_out_collects_no_seed(forged: Forge) -> None:
    session = masked_session()
    assert collected(session, [forged]) == {}
    stayed = NEIGHBOURS[: K - len(session.clients[VICTIM]._left)]
    assert told(session, request(session, VICTIM, stayed, [])), "the round goes on"


def test_at_most_the_spare_neighbours_may_be_declared_dropped() -> None:
    for count in range(K + 1):
        session = masked_session()
        answer = told(session, left_message(session, NEIGHBOURS[:count]))
        assert (answer is not None) == (count <= K - T)


def test_no_share_is_revealed_for_other_survivors_after_agreement() -> None:
    """Neither shares of masking keys of those who stayed, nor own seeds of those who left."""
    gone, *stayed = NEIGHBOURS
    session = masked_session()
    victim = session.clients[VICTIM]
    victim.agree({client.address for client in session.clients} - {session.clients[gone].address})
    for lie in (
        left_message(session, [stayed[0]]),
        left_message(session, [gone, stayed[0]]),
        left_message(session, []),
    ):
        with pytest.raises(Rejected, match="has another fate than in the agreed survivors"):
            victim.reveal(lie)
    for remaining, leaving in ((NEIGHBOURS, []), ([gone, *stayed[1:]], [stayed[0]])):
        with pytest.raises(Rejected, match="has another fate than in the agreed survivors"):
            victim.reveal(request(session, VICTIM, remaining, leaving))
    assert told(session, left_message(session, [gone])) is not None


def test_without_proofs_the_seeds_of_possible_dropouts_would_be_collected() -> None:
    session = masked_session()
    seeds = dict(session.clients[VICTIM]._pairs)
    with removed("_check_proof"):
        found = collected(session, FORGERIES)
    assert found == {number: seeds[number] for number in NEIGHBOURS[T:]}


def test_convicted_clients_expose_at_most_the_masks_of_tolerated_dropouts() -> None:
    """Every neighbour is the server's and has really shared something else: the victim keeps as
    many masks to itself as the threshold, which is more than half of them.
    """
    session = masked_session(convicts=NEIGHBOURS)
    assert list(collected(session, [with_true_shares])) == NEIGHBOURS[T:]
    again = [with_true_shares(session, owner) for owner in NEIGHBOURS[:2]]
    for secret in SharedSecret:
        assert told(session, proof(session, again, secret)) is None


def test_without_the_bound_on_dropouts_every_seed_would_be_collected() -> None:
    session = masked_session(convicts=NEIGHBOURS)
    seeds = dict(session.clients[VICTIM]._pairs)
    with removed("_check_staying"):
        assert collected(session, [with_true_shares]) == seeds
    honest = masked_session()
    seeds = dict(honest.clients[VICTIM]._pairs)
    with removed("_check_staying", "_check_proof"):
        assert collected(honest, [with_false_shares]) == seeds


def test_seeds_of_honest_neighbours_are_not_revealed_after_the_shares() -> None:
    for forged in FORGERIES:
        session = masked_session()
        assert told(session, request(session, VICTIM, NEIGHBOURS, []))
        for owner in NEIGHBOURS:
            for secret in SharedSecret:
                ask = proof(session, [forged(session, owner)], secret)
                assert told(session, ask) is None


def test_seeds_are_revealed_only_for_requested_shares() -> None:
    session = masked_session(convicts=[6, 7])
    proofs = [with_true_shares(session, 7)]
    assert told(session, proof(session, proofs, SharedSecret.MASKING)) is None
    assert told(session, left_message(session, [6])) is not None
    assert told(session, proof(session, proofs, SharedSecret.MASKING)) is None
    assert told(session, left_message(session, [6, 7])) is None
    proofs = [with_true_shares(session, 6)]
    assert told(session, proof(session, proofs, SharedSecret.MASKING)) is not None


def test_a_list_of_dropouts_names_each_common_neighbour_once() -> None:
    session = masked_session()
    for gone in ([6, 6], [7, 6], [VICTIM], [N]):
        assert told(session, left_message(session, gone)) is None
    assert told(session, left_message(session, [6], survivors=5)) is None
    del session.clients[VICTIM]._pairs[6]  # as if the pair had been left out
    assert told(session, left_message(session, [6])) is None
    assert told(session, left_message(session, [7])) is not None


def test_a_proof_with_a_duplicate_client_is_rejected() -> None:
    session = masked_session(convicts=[6])
    assert told(session, left_message(session, [6])) is not None
    once = [with_true_shares(session, 6)]
    assert told(session, proof(session, once * 2, SharedSecret.MASKING)) is None
    assert told(session, proof(session, once, SharedSecret.MASKING)) is not None


def test_after_its_shares_a_device_keeps_only_seeds_of_common_masks() -> None:
    """A thief of the process then finds neither keys nor seed nor anybody's shares."""
    session = masked_session()
    client = session.clients[VICTIM]
    held = [share for shares in client._held.values() for share in shares]
    secrets = [client._seed, *client._incoming.values(), *held]
    assert len(set(secrets)) == 1 + 3 * K
    before, asked = repr(vars(client)), request(session, VICTIM, NEIGHBOURS, [])
    assert all(repr(secret) in before for secret in secrets)
    assert "PrivateKey" in before
    assert told(session, asked)
    kept = {name: value for name, value in vars(client).items() if name != "_answers"}
    assert all(repr(secret) not in repr(kept) for secret in secrets)
    assert "PrivateKey" not in repr(kept)
    assert told(session, proof(session, [], SharedSecret.OWN)) is not None
    assert not client._pairs, "nobody is convicted any more"


def test_after_its_shares_a_device_reveals_no_seed_of_a_dropout() -> None:
    session = masked_session(convicts=[7])
    convicts = proof(session, [with_true_shares(session, 7)], SharedSecret.MASKING)
    assert told(session, left_message(session, [7])) is not None
    assert told(session, request(session, VICTIM, NEIGHBOURS[:-1], [])) is not None
    assert told(session, convicts) is None


def checked_session(spoil: Callable[[bytes], bytes]) -> tuple[MaskingSession, bytes]:
    """A round in which the server alters the parcel from neighbour 1 to the victim; returns what
    the victim was sent in its place.
    """
    session = MaskingSession(list(range(N)), MaskingPlan(6, 1000, Neighbourhood(K, T)))
    session.join()
    session.share()
    entries = inbox_entries(session, VICTIM)
    entries[0] = (*entries[0][:-1], spoil(entries[0][-1]))
    inbox = b"".join(INBOX_ENTRY.pack(*entry) for entry in entries)
    session.clients[VICTIM].check(forge(session, VICTIM, Kind.INBOX, inbox))
    return session, entries[0][-1]


def evidence(session: MaskingSession, ciphertext: bytes | None = None) -> bytes:
    """PAIRS with what neighbour 1 signed, or with another parcel in it."""
    shown = session.server._clients[1].evidence().encode()
    if ciphertext is not None:
        shown = shown.replace(session.server._clients[1].evidence().ciphertext(VICTIM), ciphertext)
    pairs = NEIGHBOURS[1:]
    content = PAIRS_HEAD.pack(len(pairs), 1) + pack_listed(pairs) + shown
    return forge(session, VICTIM, Kind.PAIRS, content)


def test_altered_encrypted_shares_make_no_receiver_reveal_a_key() -> None:
    """Its key would open the parcel as it was sent, and give away both shares of its sender."""
    for spoil in (
        lambda ciphertext: os.urandom(len(ciphertext)),
        lambda ciphertext: ciphertext[::-1],
    ):
        session, altered = checked_session(spoil)
        victim = session.clients[VICTIM]
        for shown in (evidence(session), evidence(session, altered)):
            with pytest.raises(Rejected, match="no sender signed invalid"):
                victim.accuse(shown)
        assert victim.mask(evidence(session), [1]), "the pair is left out, and the device goes on"
        with pytest.raises(Rejected, match="it reveals no key"):
            victim.accuse(evidence(session))


def test_false_commitments_of_valid_shares_make_no_receiver_reveal_a_key() -> None:
    """The parcel does not open with them, but it is what an honest sender signed: its key would
    give the server both shares.
    """
    for place in (1, 2, 3):  # the root of the list, and either share's
        session = MaskingSession(list(range(N)), MaskingPlan(6, 1000, Neighbourhood(K, T)))
        session.join()
        session.share()
        victim = session.clients[VICTIM]
        entries = [list(entry) for entry in inbox_entries(session, VICTIM)]
        entries[0][place] = bytes(32)
        inbox = b"".join(INBOX_ENTRY.pack(*entry) for entry in entries)
        victim.check(forge(session, VICTIM, Kind.INBOX, inbox))
        assert list(victim._spoilt) == [1]
        with pytest.raises(Rejected, match="no key is revealed"):
            victim.accuse(evidence(session))
        assert victim.mask(evidence(session), [1]), "the pair is left out, and the device goes on"


def test_a_false_masking_key_excludes_the_pair() -> None:
    """Otherwise true shares of the true key would convict the client that it is said to be of, and
    the server would know the common mask.
    """
    session = MaskingSession(list(range(N)), MaskingPlan(6, 1000, Neighbourhood(K, T)))
    session.join()
    tell_false_keys(session, 2, [6, 7])
    session.share()
    session.check()
    members = session.server._clients
    assert members[VICTIM].checked == frozenset({6, 7})
    assert members[6].checked == members[7].checked == frozenset({VICTIM})
    assert not {6, 7} & session.clients[VICTIM]._held.keys()


def tell_false_keys(session: MaskingSession, field: int, places: Sequence[int]) -> None:
    """Send the victim false keys of these neighbours."""
    victim = session.clients[VICTIM]
    setup = session.outgoing[victim.address]
    content = victim._channel.decrypt(setup[:52], setup[52:])
    entries = [list(entry) for entry in SETUP_ENTRY.iter_unpack(content[12:])]
    for place in places:
        entries[place - 1][field] = public_bytes(new_key())
    lied = content[:12] + b"".join(SETUP_ENTRY.pack(*entry) for entry in entries)
    told = {victim.address: forge(session, VICTIM, Kind.SETUP, lied)}
    session.outgoing = {**session.outgoing, **told}


def test_a_false_signature_key_changes_the_encryption_keys() -> None:
    """A server that could sign in a neighbour's name towards the victim has no use for its key."""
    session = MaskingSession(list(range(N)), MaskingPlan(6, 1000, Neighbourhood(K, T)))
    session.join()
    victim = session.clients[VICTIM]
    tell_false_keys(session, 3, [1])
    victim.share(session.outgoing[victim.address])
    outward = _direction_keys(session, 1)
    assert victim._incoming[1] not in outward


def _direction_keys(session: MaskingSession, place: int) -> list[bytes]:
    """The keys with which a client encrypts its parcels."""
    client = session.clients[place]
    seal = "tacit.aggregation.masking_client.encrypt_share_pair"
    with patch(seal, return_value=b"") as encrypted:
        client.share(session.outgoing[client.address])
    return [call.args[0] for call in encrypted.call_args_list]


def test_an_accuser_reveals_one_key_and_sends_no_numbers() -> None:
    session = MaskingSession(list(range(N)), MaskingPlan(5, 1000, Neighbourhood(K, T)))
    seen: list[bytes] = []

    class Watching(MaliciousClient):
        def spoil(self, _client: MaskingClient, kind: Kind, content: bytes, /) -> bytes:
            if kind is Kind.ACCUSED:
                seen.append(content)
            return content

    play(session, {1: Garbage(), VICTIM: Watching()}, accusing={VICTIM})
    ((number, _),) = ACCUSED_ENTRY.iter_unpack(seen[0])
    assert number == 1
    kept = {name: value for name, value in vars(session.clients[VICTIM]).items() if value}
    assert not {"_key", "_masking_key", "_signing_key", "_seed", "_held"} & kept.keys()
    with pytest.raises(Rejected, match="masks nothing"):
        session.clients[VICTIM].mask(evidence_of(session), [1])


def evidence_of(session: MaskingSession) -> bytes:
    """The PAIRS that the accuser answered, encrypted anew."""
    asked, _ = session.clients[VICTIM]._answers[Kind.ACCUSED]
    front = session.clients[VICTIM].join()[:3] + bytes((Kind.PAIRS,))
    front += session.clients[VICTIM].join()[4:52]
    channel = session.clients[VICTIM]._channel
    nonce = bytes(12)
    return front + nonce + channel._inward.encrypt(nonce, asked, front)


CONVICTS = (5, 6, 7)


class Interrogation:
    """A victim whose neighbours 5, 6 and 7 really lied about their seeds or masking keys, and 1
    perhaps about a parcel, and a server that asks it whatever it likes, in whatever order.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.session = MaskingSession(list(range(N)), MaskingPlan(6, 1000, Neighbourhood(K, T)))
        self.victim = self.session.clients[VICTIM]
        attacks: dict[int, MaliciousClient] = {5: UnknownSeed(), 6: UnknownKey(), 7: NoSeed()}
        self.released = NEIGHBOURS[self.rng.randrange(2) :]
        if 1 not in self.released:
            attacks[1] = Garbage(some=1)
        for place, attacker in attacks.items():
            corrupt(self.session.clients[place], attacker)
        for step in (self.session.join, self.session.share, self.session.check):
            step()
        self.pairs: set[int] = set()
        self.shares: dict[int, set[SharedSecret]] = {number: set() for number in NEIGHBOURS}
        self.seeds: dict[int, bytes] = {}
        self.accused = False

    def some(self, least: int, most: int) -> list[int]:
        """Some of the neighbours, mostly those whose parcels released, in order."""
        among = self.released if self.rng.random() < 0.9 else NEIGHBOURS
        return sorted(self.rng.sample(among, self.rng.randrange(least, min(most, len(among)) + 1)))

    def convicts(self) -> list[int]:
        return sorted(self.rng.sample(CONVICTS, self.rng.choice((1, 1, 2, 3))))

    def ask(self) -> None:
        """One question of any kind."""
        early, late = [self.ask_for_pairs, self.ask_for_keys], [self.ask_for_seeds] * 5
        try:
            self.rng.choice([*early, *early, self.ask_for_shares, *late])()
        except Rejected:
            return

    def read(self, answer: bytes) -> bytes:
        channel = self.session.server._clients[VICTIM].channel
        return channel.decrypt(answer[:52], answer[52:])

    def ask_for_pairs(self) -> None:
        shown = b"".join(
            [self.session.server._clients[1].evidence().encode()] * self.rng.randrange(2)
        )
        pairs = self.some(T, K)
        content = PAIRS_HEAD.pack(len(pairs), bool(shown)) + pack_listed(pairs) + shown
        message = forge(self.session, VICTIM, Kind.PAIRS, content)
        if self.rng.random() < 0.6:
            self.victim.mask(message, [1])
            self.pairs = set(pairs)
        else:
            self.victim.accuse(message)
            self.accused = True

    def ask_for_keys(self) -> None:
        gone = self.some(0, 2) if self.rng.random() < 0.5 else self.convicts()[:2]
        content = LEFT_HEAD.pack(N, len(gone)) + pack_listed(gone)
        answer = self.victim.reveal(forge(self.session, VICTIM, Kind.LEFT, content))
        for number, _ in SHARE_ENTRY.iter_unpack(self.read(answer)):
            self.shares[number].add(SharedSecret.MASKING)

    def ask_for_shares(self) -> None:
        rest = [n for n in sorted(self.pairs) if not self.shares[n] or self.rng.random() < 0.1]
        gone = sorted(self.rng.sample(rest, self.rng.randrange(min(len(rest), 3) + 1)))
        stayed = [n for n in rest if n not in gone or self.rng.random() < 0.05]
        answer = self.victim.reveal(request(self.session, VICTIM, stayed, gone))
        for number, _ in SHARE_ENTRY.iter_unpack(self.read(answer)):
            self.shares[number].add(SharedSecret.MASKING if number in gone else SharedSecret.OWN)

    def ask_for_seeds(self) -> None:
        secret = self.rng.choice(list(SharedSecret))
        owners = self.some(1, 2) if self.rng.random() < 0.5 else self.convicts()
        proofs = []
        for owner in owners:
            kind = secret if self.rng.random() < 0.9 else SharedSecret(1 - secret)
            held = {n: c._held.get(owner) for n, c in enumerate(self.session.clients) if n}
            shares = {n: both[kind] for n, both in held.items() if both}
            first = dict(list(shares.items())[:T])
            proofs.append(Proof(owner, self.session.server._clients[owner].commitments, first))
        answer = self.victim.reveal(proof(self.session, proofs, secret))
        self.seeds |= dict(SEEDS_ENTRY.iter_unpack(self.read(answer)))

    def check(self) -> None:
        """Invariants of any sequence of requests."""
        assert not (self.accused and self.pairs), "a key was shown beside masked numbers"
        assert all(len(kinds) <= 1 for kinds in self.shares.values()), "both secrets of a neighbour"
        assert self.seeds.keys() <= set(CONVICTS), "the mask with one that did not lie"
        gone = {number for number, kinds in self.shares.items() if SharedSecret.MASKING in kinds}
        known = gone | self.seeds.keys()
        assert not self.pairs or len(self.pairs - known) >= T, "too few masks are left"


def test_requests_in_any_order_get_one_secret_per_client() -> None:
    """And the masks of those only who lied, never of more than may leave."""
    asked = [Interrogation(seed) for seed in range(60)]
    for one in asked:
        for _ in range(40):
            one.ask()
        one.check()
    assert sum(one.accused for one in asked) >= 5
    assert sum(len(one.seeds) for one in asked) >= 5
    assert sum(SharedSecret.OWN in kinds for one in asked for kinds in one.shares.values()) > 20

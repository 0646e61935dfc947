"""Verified sums over two servers: reports out of range are dropped and counted, and the
verification key of a report never changes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import extended_after

pytest.importorskip("Crypto", reason="verified sums need pycryptodome: pip install '.[verified]'")

from tacit.aggregation import (
    Aggregator,
    OwnNoise,
    Rejected,
    RoundOutcome,
    SumView,
    TwoServerRound,
    TwoServerSession,
    accept,
    announce,
    run_two_servers,
    run_verified,
    split,
)
from tacit.aggregation.aggregator_context import RoundSecrets
from tacit.aggregation.two_servers import (
    WORD_SIZE,
    encrypt_shares,
    report_tag,
    word_digest,
)
from tacit.aggregation.verified import Proofs, commitment, verify_key
from tacit.aggregation.wire import HEADER_SIZE, Kind
from tacit.assumptions import BoundedAdversary, HonestServers, PinnedKeys
from tacit.errors import TacitError
from tacit.terms import in_words
from tacit.trust import TrustModel
from tacit.vdaf import MODULUS, prio3_sum
from tacit.vdaf.field import SIZE, pack
from tacit.vdaf.proofs import Circuit

Shares = tuple[bytes, bytes]


def zero_noise(levels: int) -> OwnNoise:
    return OwnNoise(levels, Fraction(levels), lambda _: 0)


def session_of(
    places: int, minimum: int = 1, levels: int = 1, length: int = 1, noise: OwnNoise | None = None
) -> TwoServerSession:
    own = noise or zero_noise(levels)
    return TwoServerSession(places, minimum, MODULUS, length, own, verified=True)


class Poisoner:
    """A device that sends what it likes, encrypted as a report should be."""

    def __init__(self, session: TwoServerSession, place: int, rng: random.Random) -> None:
        self.session, self.rng = session, rng
        self.slot = session.server(0).slot(place)
        self.words = rng.randbytes(WORD_SIZE), rng.randbytes(WORD_SIZE)
        digests = word_digest(self.words[0]), word_digest(self.words[1])
        self.tag = report_tag(session.round.context, place, digests)

    @property
    def proofs(self) -> Proofs:
        proofs = self.session.round.proofs
        assert isinstance(proofs, Proofs)
        return proofs

    def honest(self, values: list[int]) -> Shares:
        return self.proofs.shard(values, self.tag, self.rng.randbytes)

    def encrypted(self, parts: Shares) -> Shares:
        return encrypt_shares(self.session.round, self.slot, self.words, parts)

    def claiming(self, elements: list[int]) -> Shares:
        """One number of these elements, which need not be bits, with the prover's own proof."""
        circuit: Circuit = self.proofs.prio3.circuit
        seeds = [self.rng.randrange(MODULUS) for _ in range(circuit.wires)]
        whole = [*elements, *circuit.prove(elements, seeds)]
        seed = self.rng.randbytes(32)
        helper = [
            n for part in self.proofs.prio3._expand_shares(self.proofs.context, seed) for n in part
        ]
        return pack([(a - b) % MODULUS for a, b in zip(whole, helper, strict=True)]), seed


def deliver(session: TwoServerSession, shares: Shares) -> None:
    for role in (0, 1):
        session.server(role).take(shares[role], session.now)


# What is released


@settings(max_examples=15, deadline=None)
@given(
    levels=st.sampled_from([1, 2, 6, 1023]),
    length=st.integers(1, 3),
    seed=st.integers(0, 1 << 32),
)
def test_the_sum_of_honest_reports_is_exact(levels: int, length: int, seed: int) -> None:
    rng = random.Random(seed)
    reports = [[rng.randint(0, levels) for _ in range(length)] for _ in range(4)]
    noise = OwnNoise(levels, Fraction(levels), lambda _: -levels)
    view = run_verified(reports, 3, noise, lost=({3}, ()))
    sums = [(sum(column) - 2 * levels) % MODULUS for column in zip(*reports[:3], strict=True)]
    assert view == SumView(tuple(sums), 3, 0)


def test_a_malicious_report_is_dropped_and_counted_and_the_rest_is_released() -> None:
    """A thousand votes at once, fewer than none, and half a level too many."""
    session, rng = session_of(8, 5, levels=10), random.Random(1)
    for place in range(5):
        deliver(session, session.split(place, [place]))
    weights = len(session.round.proofs.prio3.circuit.weights)  # type: ignore[union-attr]
    for place, first in enumerate((1000, MODULUS - 1, pow(2, -1, MODULUS)), start=5):
        attacker = Poisoner(session, place, rng)
        deliver(session, attacker.encrypted(attacker.claiming([first, *[0] * (weights - 1)])))
    assert session.finish() == SumView((10,), 5, rejected=3)


def test_without_verification_one_report_moves_the_sum_arbitrarily() -> None:
    assert run_two_servers([1, 0, 900], 1009, 3).numbers == (901,)


def test_fewer_valid_reports_than_the_minimum_release_nothing() -> None:
    session, rng = session_of(4, 3), random.Random(2)
    for place in range(2):
        deliver(session, session.split(place, [1]))
    for place in (2, 3):
        attacker = Poisoner(session, place, rng)
        deliver(session, attacker.encrypted(attacker.claiming([2])))
    with pytest.raises(Rejected, match="minimum batch size is 3"):
        session.finish()
    assert [session.server(role).outcome()[21] for role in (0, 1)] == [RoundOutcome.ABORTED] * 2


def test_a_malformed_share_is_dropped_and_counted_at_both_servers() -> None:
    """Numbers beyond the field, which the first server alone can see."""
    session, rng = session_of(3, 2, levels=3), random.Random(3)
    for place in (0, 1):
        deliver(session, session.split(place, [3]))
    attacker = Poisoner(session, 2, rng)
    first, second = attacker.honest([1])
    deliver(session, attacker.encrypted((b"\xff" * SIZE + first[SIZE:], second)))
    assert session.finish() == SumView((6,), 2, rejected=1)


def test_equal_numbers_of_a_report_have_unrelated_shares() -> None:
    """Every number is split with randomness of its own."""
    for part in Poisoner(session_of(3, length=2), 0, random.Random(1)).honest([1, 1]):
        assert part[: len(part) // 2] != part[len(part) // 2 :]


def test_one_invalid_number_of_several_drops_the_report() -> None:
    session, rng = session_of(3, 2, length=2), random.Random(4)
    for place in (0, 1):
        deliver(session, session.split(place, [1, 0]))
    attacker = Poisoner(session, 2, rng)
    true, false = attacker.honest([1, 1]), attacker.claiming([5])
    size = len(true[0]) // 2
    deliver(session, attacker.encrypted((true[0][:size] + false[0], true[1][:32] + false[1])))
    assert session.finish() == SumView((2, 0), 2, rejected=1)


def test_both_servers_add_noise_before_releasing() -> None:
    drawn: list[Fraction] = []

    def draw(scale: Fraction) -> int:
        drawn.append(scale)
        return 7

    view = run_verified([[1, 0], [1, 1]], 2, OwnNoise(1, Fraction(3), draw))
    assert view.numbers == (16, 15)
    assert drawn == [Fraction(3)] * 4


# Malicious reports by the thousand

Spoil = Callable[[Poisoner, Shares], Shares]


def flip(attacker: Poisoner, parts: Shares) -> Shares:
    """One bit, of either part."""
    role = attacker.rng.randrange(2)
    at = attacker.rng.randrange(8 * len(parts[role]))
    spoilt = bytearray(parts[role])
    spoilt[at // 8] ^= 1 << at % 8
    return (bytes(spoilt), parts[1]) if role == 0 else (parts[0], bytes(spoilt))


def noise(attacker: Poisoner, parts: Shares) -> Shares:
    """Bytes at random in the place of a part, or of both."""
    parts_ = [attacker.rng.randbytes(len(part)) for part in parts]
    kept = attacker.rng.randrange(3)
    return (parts[0] if kept == 0 else parts_[0], parts[1] if kept == 1 else parts_[1])


def add(attacker: Poisoner, parts: Shares) -> Shares:
    """Something added to one number of the first part: to the report, or to its proof."""
    at = SIZE * attacker.rng.randrange(len(parts[0]) // SIZE)
    number = int.from_bytes(parts[0][at : at + SIZE], "little")
    moved = (
        number + attacker.rng.choice((1, MODULUS - 1, attacker.rng.randrange(1, MODULUS)))
    ) % MODULUS
    return parts[0][:at] + pack([moved]) + parts[0][at + SIZE :], parts[1]


def splice(attacker: Poisoner, parts: Shares) -> Shares:
    """A part of one valid report with the other part, or the proof, of another."""
    other = attacker.honest([attacker.rng.randint(0, attacker.session.round.binding.levels)])
    at = SIZE * attacker.rng.randrange(1, len(parts[0]) // SIZE)
    return parts[0][:at] + other[0][at:], attacker.rng.choice((parts[1], other[1]))


def claim(attacker: Poisoner, parts: Shares) -> Shares:
    """What is not in range, with an honest proof of it."""
    calls = attacker.proofs.prio3.circuit.calls
    elements = [attacker.rng.randrange(2) for _ in range(calls)]
    bad = attacker.rng.choice((2, MODULUS - 1, attacker.rng.randrange(2, MODULUS)))
    elements[attacker.rng.randrange(calls)] = bad
    assert len(parts) == 2
    return attacker.claiming(elements)


KINDS: tuple[Spoil, ...] = (flip, noise, add, splice, claim)


def accepted(count: int, levels: int, seed: int) -> SumView:
    """The release of some reports altered before encryption, and of three honest ones."""
    rng, session = random.Random(seed), session_of(count + 3, 3, levels)
    servers = [session.server(role) for role in (0, 1)]
    for place in range(count + 3):
        if place < 3:
            shares = session.split(place, [levels])
        else:
            attacker = Poisoner(session, place, rng)
            parts = attacker.honest([rng.randint(0, levels)])
            spoilt = KINDS[place % len(KINDS)](attacker, parts)
            assert spoilt != parts
            shares = attacker.encrypted(spoilt)
        for server, half in zip(servers, shares, strict=True):
            server.take(half, session.now)
    return session.finish()


@pytest.mark.parametrize("levels", extended_after(1, [10, 1]))
def test_a_thousand_reports_altered_before_encryption_are_dropped(levels: int) -> None:
    assert accepted(500, levels, 5 + levels) == SumView((3 * levels,), 3, rejected=500)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 1023])
def test_ten_thousand_reports_altered_before_encryption_are_dropped(levels: int) -> None:
    for part in range(5):
        seed = 100 * levels + part
        assert accepted(1_000, levels, seed) == SumView((3 * levels,), 3, rejected=1_000)


def test_shares_with_unequal_random_words_or_digests_do_not_pair() -> None:
    session = session_of(3, 2)
    for place in (0, 1):
        deliver(session, session.split(place, [1]))
    deliver(session, (session.split(2, [1])[0], session.split(2, [1])[1]))
    assert session.finish() == SumView((2,), 2, rejected=0)


# The verify key


def secrets(session: TwoServerSession, role: int) -> RoundSecrets:
    record = session.party(role).record(session.round.identity)
    assert record is not None
    return RoundSecrets(record.secret, session.round.identity, record.suite)


def key_of(session: TwoServerSession, role: int) -> bytes:
    lines = session.round.channel_key(0), session.round.channel_key(1)
    return verify_key(secrets(session, role).keys.line, lines, session.round.identity)


def test_the_description_commits_to_the_common_verification_key() -> None:
    session = session_of(3)
    first, second = key_of(session, 0), key_of(session, 1)
    assert first == second
    assert session.round.commitment == commitment(first, session.round.identity)
    label = b"tacit verify key commitment v2" + session.round.identity
    assert session.round.commitment == hashlib.sha256(label + first).digest()
    assert first not in session.announcement
    assert key_of(session_of(3), 0) != first


def test_the_verification_key_is_in_no_message_table_or_record() -> None:
    session = session_of(3, 2)
    key = key_of(session, 0)
    seen = [session.announcement]
    for place in range(3):
        shares = session.split(place, [1])
        deliver(session, shares)
        seen += shares
    held = [*session.tables[0].values(), *session.tables[1].values()]
    session.finish()
    for records in session.records:
        held += records._records.values()
    assert not any(key in one for one in [*seen, *held])


def test_the_verification_key_is_deleted_after_the_round() -> None:
    session = session_of(2, 1)
    deliver(session, session.split(0, [1]))
    session.finish()
    for role in (0, 1):
        record = session.party(role).record(session.round.identity)
        assert record is not None
        assert record.secret == b""
        with pytest.raises(Rejected, match="Prepare it first"):
            session.party(role).commitment(session.round.identity, session.round.servers)


def test_a_server_signs_no_commitment_to_a_foreign_key() -> None:
    session = session_of(3)
    identity, keys = b"n" * 16, []
    for role in (0, 1):
        keys.append(session.party(role).prepare(identity))
    described = replace(session.round, identity=identity, servers=(keys[0], keys[1]))
    for role in (0, 1):
        with pytest.raises(Rejected, match="commits to another verify key"):
            session.party(role).endorse(described.encode())
    own = session.party(1).commitment(identity, described.servers)
    right = replace(described, commitment=own).encode()
    signatures = [session.party(role).endorse(right) for role in (0, 1)]
    assert accept(TwoServerRound, session.pinned, announce(right, signatures)).commitment == own


def test_a_commitment_needs_keys_that_were_made() -> None:
    session = session_of(3)
    with pytest.raises(Rejected, match="no keys for this round"):
        session.party(0).commitment(b"n" * 16, session.round.servers)


# Once per report, whatever is restarted


def listing(server: Aggregator, now: int) -> bytes:
    return server.close(now)[server.peer]


def test_a_restarted_server_repeats_its_verification_messages() -> None:
    """Between its list and its answer, over and over, also from older tables."""
    session = session_of(3, 2, levels=6)
    for place in range(3):
        deliver(session, session.split(place, [place]))
    now = session.round.binding.closes
    backup = dict(session.tables[0])
    told = {listing(session.server(0), now) for _ in range(4)}
    session.tables[0] = dict(backup)
    told.add(listing(session.server(0), now))
    session.tables[0] = {}
    told.add(listing(session.server(0), now))
    assert len(told) == 1
    session.tables[0] = backup
    assert session.finish() == SumView((3,), 3, 0)


def test_listed_evidence_answers_the_only_query_of_a_report() -> None:
    """Tag by tag: the question follows from key, digest of the round and tag, and nothing else; all
    of it computed from the page of formats.
    """
    session = session_of(2, 2, levels=6)
    parts = []
    for place in (0, 1):
        attacker = Poisoner(session, place, random.Random(place))
        parts.append((attacker.tag, attacker.honest([place])))
        deliver(session, attacker.encrypted(parts[-1][1]))
    context = hashlib.sha256(session.announcement[:-128]).digest()
    lines = session.round.channel_key(0), session.round.channel_key(1)
    shared = secrets(session, 1).keys.line.exchange(X25519PublicKey.from_public_bytes(lines[0]))
    info = b"tacit verify key v2" + lines[0] + lines[1]
    key = HKDF(hashes.SHA256(), 32, session.round.identity, info).derive(shared)
    prio3 = prio3_sum(6)
    front = listing(session.server(0), session.round.binding.closes)
    server = session.server(1)
    content = server._working(server._record()).peer_line.decrypt(
        front[: HEADER_SIZE + 1], front[HEADER_SIZE + 1 :]
    )
    expected = [
        tag + prio3.verify_init(prio3.question(key, context, tag), context, 0, shares[0]).share
        for tag, shares in sorted(parts)
    ]
    assert content == b"".join(expected)


def test_an_older_report_share_in_a_restored_table_is_not_verified() -> None:
    """The list stands; what is not in it any more ends the round, and nothing is told anew."""
    session = session_of(2, 1)
    one, other = session.split(0, [1]), session.split(0, [0])
    deliver(session, one)
    deliver(session, session.split(1, [1]))
    now = session.round.binding.closes
    first = listing(session.server(0), now)
    session.tables[0] = {}
    with suppress(Rejected):
        session.server(0).take(other[0], now - 1)
    assert listing(session.server(0), now) == first
    session.server(0).take(listing(session.server(1), now), now)
    session.server(0).close(now)
    assert session.server(0).outcome()[21] == RoundOutcome.ABORTED


def test_false_verification_messages_only_drop_reports() -> None:
    """A malicious server can leave reports out, as it always could; the collector sees two sets."""
    session = session_of(3, 2)
    for place in range(3):
        deliver(session, session.split(place, [1]))
    now = session.round.binding.closes
    attacker, honest = session.server(1), session.server(0)
    true = listing(honest, now)
    working = attacker._working(attacker._record())
    content = working.peer_line.decrypt(true[: HEADER_SIZE + 1], true[HEADER_SIZE + 1 :])
    size = len(content) // 3
    tags = [content[at : at + 16] for at in range(0, len(content), size)]
    spoilt = b"".join(tag + bytes(size - 16) for tag in tags)
    honest.take(working.peer_line.encrypt(attacker._front(Kind.PRESENT), spoilt), now)
    honest.close(now)
    assert honest.outcome()[21] == RoundOutcome.ABORTED


def test_lists_with_duplicate_tags_or_wrong_size_are_rejected() -> None:
    session = session_of(2, 1)
    for place in (0, 1):
        deliver(session, session.split(place, [1]))
    now = session.round.binding.closes
    true = listing(session.server(1), now)
    other = session.server(1)
    line = other._working(other._record()).peer_line
    front = true[: HEADER_SIZE + 1]
    mine = session.server(0)
    content = mine._working(mine._record()).peer_line.decrypt(front, true[HEADER_SIZE + 1 :])
    size = len(content) // 2
    changed = content[16 : size - 1] + bytes((content[size - 1] ^ 1,))
    for bad in (
        content[:size] + content[:16] + changed,
        content[:size] + content[:16] + content[16:size],
        content[size:] + content[:size],
        content[:-1],
        content[:16] + content[size:],
    ):
        with pytest.raises(Rejected, match="list of the other server"):
            mine.take(line.encrypt(front, bad), now)
    mine.take(true, now)


# Descriptions, terms and devices


def test_a_verified_description_round_trips() -> None:
    session = session_of(3, 2, levels=1023, length=2)
    assert TwoServerRound.decode(session.round.encode()) == session.round
    assert session.round.encode()[3] == Kind.VERIFIED_ROUND
    assert session.round.offer().kind == "verified"


def test_verified_rounds_without_their_keys_are_rejected() -> None:
    described = session_of(3).round
    wrong: list[dict[str, object]] = [
        {"commitment": bytes(31)},
        {"modulus": 1_000_003},
        {"scale": None},
        {"length": 1 << 25},
    ]
    for change in wrong:
        with pytest.raises(TacitError, match=r"verified round is|commitment is|length is"):
            replace(described, **change)  # type: ignore[arg-type]
    plain = replace(described, commitment=b"")
    assert plain.encode()[3] == Kind.TWO_SERVER_ROUND


def test_rounds_and_terms_must_agree_on_verification() -> None:
    verified = session_of(3)
    plain = TwoServerSession(3, 1, MODULUS, 1, zero_noise(1))
    for session, other, kind in ((verified, plain, "verified"), (plain, verified, "two-servers")):
        binding = replace(other.round.binding, terms=session.round.binding.terms)
        description = replace(other.round, binding=binding).encode()
        forged = session.rehearsal.announced(description)
        with pytest.raises(Rejected, match=f"kind .* must be {kind}"):
            split(session.pinned, forged, session.server(0).slot(0), [1])


def test_the_terms_state_which_claims_need_one_or_both_servers() -> None:
    terms = session_of(3).pinned.terms
    words = " ".join(in_words(terms))
    assert (terms.trust, terms.proofs, terms.kind) == (TrustModel.TWO_SERVERS, 1, "verified")
    assert terms.assumptions == {HonestServers(1, of=2), PinnedKeys(), BoundedAdversary()}
    assert "at least 1 of the 2 servers is honest" in words
    assert "impossible answer needs both servers to be honest" in words
    assert terms.decode(terms.encode()) == terms


def test_a_device_sends_only_valid_levels() -> None:
    session = session_of(3, levels=4)
    for value in (-1, 5):
        with pytest.raises(TacitError, match="numbers from 0 to 4"):
            session.split(0, [value])


@pytest.mark.parametrize("levels", [1, 4, 1023])
def test_all_reports_of_a_round_have_one_size(levels: int) -> None:
    session = session_of(3, levels=levels)
    sizes = {
        tuple(len(half) for half in session.split(0, [value])) for value in (0, levels // 2, levels)
    }
    assert sizes == {(session.round.share_size(0), session.round.share_size(1))}

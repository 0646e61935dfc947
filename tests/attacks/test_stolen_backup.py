"""An adversary with a party's backups of any time, and later its long-term key."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.aggregation import (
    Aggregator,
    AggregatorContext,
    HpkeSuite,
    OwnNoise,
    Rejected,
    RoundOutcome,
    SumView,
    TwoServerSession,
)
from tacit.aggregation.agreement import NONCE_SIZE
from tacit.aggregation.two_servers import DIGEST_SIZE
from tacit.records import MemoryRecords, RecordDirectory


def session_with_reports(values: tuple[int, ...] = (1, 2, 3)) -> TwoServerSession:
    noise = OwnNoise(4, Fraction(4), lambda _: random.randrange(100))
    session = TwoServerSession(5, 1, 1009, noise=noise)
    for place, value in enumerate(values):
        for role, half in enumerate(session.split(place, [value])):
            session.server(role).take(half, session.now)
    return session


def test_a_stolen_table_without_key_files_is_uniform() -> None:
    """Names and contents tell neither places nor encrypted bytes, and no two copies look alike."""
    session = session_with_reports(())
    shares = [session.split(place, [0])[1] for place in range(3)]
    stolen: list[dict[bytes, bytes]] = []
    for _ in range(2):
        session.tables[1] = {}
        for half in shares:
            session.server(1).take(half, session.now)
        stolen.append(session.tables[1])
    one, other = stolen
    assert one.keys() == other.keys()
    assert not set(one.values()) & set(other.values())
    long_term = session.rehearsal.keys[1].private_bytes_raw()
    for name, wrapped in one.items():
        assert not any(half[at : at + 16] in wrapped for half in shares for at in (20, 41, 80))
        with pytest.raises(InvalidTag):
            AESGCM(long_term).decrypt(wrapped[:NONCE_SIZE], wrapped[NONCE_SIZE:], name)


def test_after_the_close_no_key_decrypts_earlier_backups() -> None:
    """Not the record, not the long-term key, not a server made of both opens an old table."""
    session = session_with_reports()
    stolen = [dict(table) for table in session.tables]
    session.finish()
    for role in (0, 1):
        record = session.party(role).record(session.round.identity)
        assert record is not None
        assert record.secret == b""
        server = Aggregator(session.party(role), session.announcement, stolen[role])
        answer = server.close(session.now)
        assert server.close(0) == answer
        assert server.outcome()[21] == RoundOutcome.RELEASED


def test_tables_and_records_never_contain_an_exact_sum_or_the_noise() -> None:
    """Every value that is ever in a store, looked through for the partial sums and the draws."""
    drawn: list[int] = []

    def draw(_: Fraction) -> int:
        drawn.append(random.getrandbits(62))
        return drawn[-1]

    modulus = 1 << 64
    session = TwoServerSession(5, 1, modulus, noise=OwnNoise(4, Fraction(4), draw))
    stores: list[bytes] = []

    def look() -> None:
        for table in session.tables:
            stores.extend(table.values())
        for records in session.records:
            stores.extend(records._records.values())

    for place in range(3):
        for role, half in enumerate(session.split(place, [1])):
            session.server(role).take(half, session.now)
            look()
    bare = [
        sum(int.from_bytes(share[DIGEST_SIZE:]) for share in server._shares(server._record()))
        for server in (session.server(0), session.server(1))
    ]
    look()
    view = session.finish()
    look()
    assert view.numbers[0] == (3 + sum(drawn)) % modulus
    held = b"".join(stores)
    for number in (*bare, *drawn, *(-n for n in drawn)):
        assert (number % modulus).to_bytes(8, "big") not in held


def test_a_helper_restored_without_records_signs_nothing_and_returns_unknown() -> None:
    session = session_with_reports()
    session.records = (session.records[0], MemoryRecords(), session.records[2])
    server = session.server(1)
    with pytest.raises(Rejected, match="no statement about it"):
        server.close(session.round.binding.closes)
    assert server.outcome()[20:] == bytes((1, RoundOutcome.UNKNOWN))


def test_a_restarted_party_finishes_its_round_from_its_files(tmp_path: Path) -> None:
    """Long-term key and records from disk: the same identity, the same round, one answer."""
    session = session_with_reports()
    kept = session.rehearsal.keys[1].private_bytes_raw()
    name = session.party(1).name(session.round.identity)
    RecordDirectory(tmp_path).replace(name, None, session.records[1].read(name) or b"")

    def helper() -> Aggregator:
        key = Ed25519PrivateKey.from_private_bytes(kept)
        aggregator = AggregatorContext(
            session.pinned, 1, key, RecordDirectory(tmp_path), lambda _: 0
        )
        return Aggregator(aggregator, session.announcement, session.tables[1])

    late, own = session.round.binding.closes, session.server(0)
    own.take(helper().close(late)[helper().peer], late)
    helper().take(own.close(late)[own.peer], late)
    for message in (own.close(late), helper().close(late), helper().close(late)):
        session.collector().take(message[session.round.collector])
    session.collector().close()
    assert session.collector().view().reports == 3


@pytest.mark.parametrize("sealing", list(HpkeSuite))
def test_restored_records_are_documented_as_not_prevented(sealing: HpkeSuite) -> None:
    """What the key files must never be: part of a backup. With an old copy of the record a server
    does answer again; docs/explanation/trust/two-servers.md says so.
    """
    session = TwoServerSession(3, 1, 1009, suite=sealing)
    for role, half in enumerate(session.split(0, [7])):
        session.server(role).take(half, session.now)
    name = session.party(1).name(session.round.identity)
    table, record = dict(session.tables[1]), session.records[1].read(name) or b""
    assert session.finish() == SumView((7,), 1)
    session.tables[1], restored = table, MemoryRecords()
    restored.replace(name, None, record)
    session.records = (session.records[0], restored, session.records[2])
    assert session.server(1).close(session.now)

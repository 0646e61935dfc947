"""After a round nothing of a participant is stored anywhere.

Everything of one participant is marked by being random and known to the test: the number of the
ticket, the place's token, both encrypted shares and what is in them, the invitation. All files of
both parties, and a dump of the database, are searched for any of it, raw, in hex and in base64.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sql
from tests.service.pairs import Pair, described

from tacit.aggregation.aggregator_context import AggregatorStage, RoundRecord
from tacit.service import invitations
from tacit.service.assignment import Assigned, Ticket

PEOPLE, MARKS = 60, 25  # participants, and things of theirs to be looked for


def forms(mark: bytes) -> list[bytes]:
    """How a mark may be written."""
    return [mark, mark.hex().encode(), mark.hex().upper().encode(), base64.b64encode(mark)[:-3]]


def everything(directory: Path) -> bytes:
    """All that is on disk."""
    files = [file for file in sorted(directory.rglob("*")) if file.is_file()]
    return b"\0".join(file.read_bytes() for file in files)


def dumped(pair: Pair) -> bytes:
    """All rows of all tables of both parties."""
    out = []
    for store in pair.stores:
        tables = sql.MetaData()
        with store.engine.connect() as connection:
            tables.reflect(connection)
            for table in tables.sorted_tables:
                for row in connection.execute(sql.select(table)):
                    cells = (c if isinstance(c, bytes) else str(c).encode() for c in row)
                    out.append(b"|".join(bytes(cell) for cell in cells))
    return b"\n".join(out)


@pytest.fixture
def told(pair: Pair, tmp_path: Path) -> tuple[Pair, list[bytes], Callable[[], bytes]]:
    """A pair after a round, the markers of all participants, and the remaining files."""
    digest = pair.begin(admission="invitation")
    pair.step(2)
    invited = invitations.make(digest, pair.secrets[0], PEOPLE)
    tickets = [Ticket(digest, os.urandom(16), one) for one in invited]
    marks: list[bytes] = []
    for ticket, one in zip(tickets, pair.coordinator.join(tickets), strict=True):
        assert isinstance(one, Assigned)
        assert one.slot is not None
        shares = pair.shares(digest, one, 1)
        if len(marks) < MARKS:
            marks += [ticket.nonce, str(ticket.invitation).encode()[:60]]
            marks += [one.slot.token, shares[0][-40:], shares[1][-40:]]
        for party, half in zip((pair.coordinator, pair.helper), shares, strict=True):
            identity = described(one).identity
            waiting = party.report(identity, one.slot.number, half, ticket.invitation)
            assert party.keep([waiting]) == [None]
    place = str(pair.stores[0].engine.url.query.get("host", ""))

    def left() -> bytes:
        return everything(tmp_path) + (everything(Path(place)) if place else b"")

    return pair, marks, left


def test_nothing_of_a_participant_is_stored_after_the_round(
    told: tuple[Pair, list[bytes], Callable[[], bytes]],
) -> None:
    pair, marks, left = told
    pair.clock.now += 1000
    pair.step()
    for store in pair.stores:
        store.close()
    found = left() + dumped(pair)
    spelled = [form for mark in marks for form in forms(mark)]
    assert [form for form in spelled if form in found] == []


def test_no_decryption_key_is_left_after_the_round(
    told: tuple[Pair, list[bytes], Callable[[], bytes]], tmp_path: Path
) -> None:
    pair, _, _ = told
    pair.clock.now += 1000
    pair.step(1)
    closed = 0
    released = {r["round"] for r in pair.coordinator.status(digest_of(pair))["rounds"][:3]}
    for role in (0, 1):
        for file in (tmp_path / f"keys{role}").glob(f"{role:02x}*.record"):
            if file.stem[2:] in released:
                record = RoundRecord.decode(file.read_bytes())
                assert (record.stage, record.secret, record.tags) == (
                    AggregatorStage.CLOSED,
                    b"",
                    b"",
                )
                closed += 1
    for file in (tmp_path / "keys0").glob(f"{b'c'.hex()}*.record"):
        assert file.stem[2:] not in released or file.read_bytes()[0] != 1
    assert closed == 6


def digest_of(pair: Pair) -> bytes:
    return pair.coordinator.experiments()[0].terms.digest

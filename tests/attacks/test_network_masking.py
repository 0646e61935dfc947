"""A network that repeats, delays, reorders and redirects messages of secure aggregation and the
shuffler.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from tests.aggregation.malicious_clients import UnknownKey, corrupt
from tests.aggregation.test_masking_trust import request, session_until

from tacit.aggregation import (
    MaskingClient,
    MaskingPlan,
    MaskingSession,
    Neighbourhood,
    Rejected,
    RoundOutcome,
    ShuffleRole,
    ShufflerSession,
    SumView,
    masking_outcome,
    shuffler_outcome,
)
from tacit.aggregation.masking_server import MaskingStage
from tacit.aggregation.two_servers import read_outcome
from tacit.records import MemoryRecords


def test_masking_messages_may_be_repeated_and_reordered() -> None:
    rng, session = random.Random(1), MaskingSession([1, 2, 3, 4, 5], MaskingPlan(4, 100))
    server, clients = session.server, session.clients
    history: list[bytes] = []
    stages = (
        MaskingStage.JOINING,
        MaskingStage.SHARING,
        MaskingStage.CHECKING,
        MaskingStage.MASKING,
        MaskingStage.REVEALING,
    )
    for stage in stages:
        outgoing = session.outgoing
        for place, client in enumerate(clients):
            match stage:
                case MaskingStage.JOINING:
                    history.append(client.join())
                case MaskingStage.SHARING:
                    history.append(client.share(outgoing[client.address]))
                case MaskingStage.CHECKING:
                    history.append(client.check(outgoing[client.address]))
                case MaskingStage.MASKING:
                    history.append(client.mask(outgoing[client.address], [place + 1]))
                case _:
                    history.append(client.reveal(outgoing[client.address]))
        for message in rng.sample(history * 3, 3 * len(history)):
            server.take(message)
        for early in (MaskingStage.MASKING, MaskingStage.REVEALING):
            if stage in (MaskingStage.JOINING, MaskingStage.SHARING):
                with pytest.raises(Rejected, match=r"is not over|must be at least"):
                    server.close(early)
        session.outgoing = server.close(stage)
        for _ in range(2):
            assert server.close(stage) == session.outgoing
    assert server.view() == SumView((15,), 5)


def test_a_repeated_close_changes_nothing() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100))
    for stage in (session.join, session.share, session.check, session.mask):
        stage()
        with pytest.raises(Rejected):
            session.server.close()
    session.reveal()
    assert session.server.close() == {}
    assert session.server.view() == SumView((6,), 3)


def test_a_close_with_too_few_shares_of_a_client_changes_nothing() -> None:
    """The minimum is there, but who stayed could not open the sum, and nobody else could come."""
    session = MaskingSession([1] * 8, MaskingPlan(4, 100, Neighbourhood(7, 5)))
    corrupt(session.clients[0], UnknownKey())
    session.join()
    for step, enough, early in (
        (MaskingClient.share, 6, "enough neighbours that shared is 0"),
        (MaskingClient.check, 6, "clients that can mask is 0"),
        (
            lambda client, asked: client.mask(asked, [1]),
            6,
            "surviving holders of shares",
        ),
        (MaskingClient.reveal, 5, "number of revealed shares"),
        (MaskingClient.reveal, 6, "surviving holders of shares"),
    ):
        asked, answers = session.outgoing, []
        for client in session.clients[::-1]:
            with suppress(Rejected, KeyError):
                answers.append(step(client, asked[client.address]))
        for message in answers[: enough - 1]:
            session.server.take(message)
        with pytest.raises(Rejected, match=early):
            session.server.close()
        for message in answers[enough - 1 :]:
            session.server.take(message)
        session.outgoing = session.server.close()
    session.reveal()
    assert session.server.view().numbers == (7,)


def test_messages_of_another_round_are_rejected() -> None:
    here, there = (MaskingSession([1, 2, 3], MaskingPlan(3, 100)) for _ in range(2))
    mixed, other = (ShufflerSession(4, 3) for _ in range(2))
    with pytest.raises(Rejected, match="another round"):
        here.server.take(there.clients[0].join())
    with pytest.raises(Rejected, match="another round"):
        mixed.shuffler.take(other.wrap([b"x"]))
    join = there.clients[0].join()
    with pytest.raises(Rejected, match="not authentic"):
        here.server.take(join[:4] + here.server.round.identity + join[20:])
    wrapped = other.wrap([b"x"])
    with pytest.raises(Rejected, match="cannot be decrypted"):
        mixed.shuffler.take(wrapped[:4] + mixed.round.identity + wrapped[20:])


def test_concurrent_duplicate_reports_are_shuffled_once() -> None:
    for _ in range(10):
        session = ShufflerSession(8, 8)
        reports = [session.wrap([bytes((place,))]) for place in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(session.shuffler.take, reports * 4))
            closing = [pool.submit(session.shuffler.close) for _ in range(8)]
            batches = [future.result() for future in closing]
            assert all(batch == batches[0] for batch in batches)
            (batch,) = batches[0].values()
            list(pool.map(session.analyzer.take, [batch] * 8))
            opening = [pool.submit(session.analyzer.close) for _ in range(8)]
            assert [future.result() for future in opening] == [{}] * 8
        assert sorted(session.analyzer.view().messages) == [bytes((n,)) for n in range(8)]


def reveal_or_none(client: MaskingClient, asked: bytes) -> bytes | None:
    try:
        return client.reveal(asked)
    except Rejected:
        return None


def test_concurrent_conflicting_requests_get_one_answer() -> None:
    """Two requests with different survivors, at the same time: at most one is answered."""
    for _ in range(10):
        session = session_until("mask")
        asked = [
            request(session, 0, [n for n in range(1, 8) if n != gone], [gone]) for gone in (3, 4)
        ] * 4
        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(partial(reveal_or_none, session.clients[0]), asked))
        assert len(answers - {None}) == 1


def test_requests_after_a_round_get_one_signed_answer() -> None:
    """Aggregate, rejected or unknown; what is unknown is not signed."""
    released, rejected = (MaskingSession([1, 2, 3], MaskingPlan(3, 100)) for _ in range(2))
    with pytest.raises(Rejected, match="not over yet"):
        masking_outcome(released.server.round, released.store, released.rehearsal.keys[0])
    for stage in (
        released.join,
        released.share,
        released.mask,
        released.reveal,
        rejected.server.abort,
    ):
        stage()
    for session, said in ((released, RoundOutcome.RELEASED), (rejected, RoundOutcome.ABORTED)):
        asked = (session.server.round, session.store, session.rehearsal.keys[0])
        answer = masking_outcome(*asked)
        assert masking_outcome(*asked) == answer
        assert read_outcome(session.pinned, asked[0], answer) == (0, said)
        other = answer[:21] + bytes((3 - said,)) + answer[22:]
        with pytest.raises(Rejected):
            read_outcome(session.pinned, asked[0], other)
        nothing = masking_outcome(asked[0], MemoryRecords(), asked[2])
        assert read_outcome(session.pinned, asked[0], nothing) == (0, RoundOutcome.UNKNOWN)
        assert len(nothing) == 22
    mixed = ShufflerSession(4, 3)
    mixed.shuffler.abort()
    mixed.analyzer.abort()
    for number, role in enumerate(ShuffleRole):
        answer = shuffler_outcome(mixed.round, mixed.store, role, mixed.rehearsal.keys[number])
        assert read_outcome(mixed.pinned, mixed.round, answer) == (number, RoundOutcome.ABORTED)

"""At least 10,000 altered messages per aggregation: each is rejected, the round unaffected."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from tests.tables import each_row

from tacit.aggregation import (
    HpkeSuite,
    MaskingPlan,
    MaskingRound,
    MaskingServer,
    MaskingSession,
    Neighbourhood,
    Rejected,
    RoundOutcome,
    ShufflerRound,
    ShufflerSession,
    SumView,
    TwoServerRound,
    TwoServerSession,
    split,
    wrap,
)
from tacit.aggregation.masking import FRONT_SIZE
from tacit.aggregation.masking_client import MaskingClient
from tacit.aggregation.masking_server import _STAGE_OF
from tacit.aggregation.wire import Kind

Mutate = Callable[[random.Random, bytes, Sequence[bytes], int], Iterator[bytes]]


class Spoiler:
    """Feeds altered versions of a message to its receiver and counts the rejections."""

    def __init__(self, mutate: Mutate, seed: int, known: Sequence[bytes] = ()) -> None:
        self.mutate = mutate
        self.rng = random.Random(seed)
        self.known = list(known)
        self.rejected = 0

    def attack(self, take: Callable[[bytes], object], message: bytes, count: int) -> None:
        others = [known for known in self.known if known != message]
        for spoilt in self.mutate(self.rng, message, others, count):
            with pytest.raises(Rejected):
                take(spoilt)
            self.rejected += 1
        self.known.append(message)


def test_masking_rejects_ten_thousand_altered_messages_and_stays_exact(mutate: Mutate) -> None:
    elsewhere = MaskingSession(list(range(6)), MaskingPlan(4, 1009))
    spoiler = Spoiler(mutate, 1, [client.join() for client in elsewhere.clients])
    values, modulus = [100 * place + 7 for place in range(6)], 1009
    session = MaskingSession(values, MaskingPlan(4, modulus, Neighbourhood(5, 3)))
    server, clients = session.server, session.clients
    for client in clients:
        spoiler.attack(server.take, client.join(), 150)
        server.take(client.join())
    outgoing = server.close()
    for client in clients:
        spoiler.attack(client.share, outgoing[client.address], 250)
        message = client.share(outgoing[client.address])
        spoiler.attack(server.take, message, 300)
        if client is not clients[5]:
            server.take(message)
    outgoing = server.close()
    for client in clients[:5]:
        spoiler.attack(client.check, outgoing[client.address], 200)
        message = client.check(outgoing[client.address])
        spoiler.attack(server.take, message, 200)
        server.take(message)
    outgoing = server.close()
    for client, value in list(zip(clients, values, strict=True))[:5]:
        spoiler.attack(partial(client.mask, values=[0]), outgoing[client.address], 250)
        message = client.mask(outgoing[client.address], [value])
        spoiler.attack(server.take, message, 300)
        if client is not clients[4]:
            server.take(message)
    for _ in ("who left", "who stayed"):
        outgoing = server.close()
        for client in clients[:4]:
            spoiler.attack(client.reveal, outgoing[client.address], 250)
            message = client.reveal(outgoing[client.address])
            spoiler.attack(server.take, message, 250)
            server.take(message)
    server.close()
    assert server.view() == SumView((sum(values[:4]) % modulus,), 4)
    assert spoiler.rejected >= 10_000


def test_two_servers_reject_ten_thousand_altered_messages_and_stay_exact(
    mutate: Mutate,
) -> None:
    """An honest half came first: whatever claims its place afterwards is rejected."""
    session, other = (TwoServerSession(5, 3, 1009) for _ in range(2))
    servers = [session.server(role) for role in (0, 1)]
    spoiler = Spoiler(mutate, 2, other.split(0, [5]))
    values = [500, 600, 700, 800]
    for place, value in enumerate(values):
        for server, half in zip(servers, session.split(place, [value]), strict=True):
            server.take(half, session.now)
            spoiler.attack(partial(server.take, now=session.now), half, 750)
    late, collector = session.round.binding.closes, session.collector()
    lists = [server.close(late)[server.peer] for server in servers]
    for server, incoming in zip(servers, reversed(lists), strict=True):
        spoiler.attack(partial(server.take, now=late), incoming, 1000)
        server.take(incoming, late)
    for server in servers:
        part = server.close(late)[session.round.collector]
        spoiler.attack(collector.take, part, 1000)
        collector.take(part)
    collector.close()
    assert collector.view() == SumView((sum(values) % 1009,), 4)
    assert spoiler.rejected >= 10_000


def test_the_shuffler_rejects_ten_thousand_altered_messages_and_stays_exact(
    mutate: Mutate,
) -> None:
    session, other = (ShufflerSession(9, 3, 2, 2) for _ in range(2))
    shuffler, analyzer = session.shuffler, session.analyzer
    spoiler = Spoiler(mutate, 3, [other.wrap([b"zz", b"zz"])])
    sent = [bytes((65 + place, 65)) for place in range(8)]
    for message in sent:
        report = session.wrap([message, message])
        spoiler.attack(shuffler.take, report, 1000)
        shuffler.take(report)
    (batch,) = shuffler.close().values()
    spoiler.attack(analyzer.take, batch, 2000)
    analyzer.take(batch)
    analyzer.close()
    assert sorted(analyzer.view().messages) == sorted(sent * 2)
    assert analyzer.view().invalid == 0
    assert spoiler.rejected >= 10_000


@pytest.mark.parametrize("sealing", list(HpkeSuite))
def test_altered_ciphertexts_count_nowhere(sealing: HpkeSuite, mutate: Mutate) -> None:
    session = TwoServerSession(40, 1, 1009, suite=sealing)
    server = session.server(0)
    kept = 0
    for place in range(40):
        half = session.split(place, [5])[0]
        (encrypted,) = mutate(random.Random(place), half[41:], [], 1)
        with contextlib.suppress(Rejected):
            server.take(half[:41] + encrypted, session.now)
            kept += 1
    assert kept > 10
    assert list(server.close(session.round.binding.closes)) == [session.round.collector]
    assert server.outcome()[21] == RoundOutcome.ABORTED


@pytest.mark.parametrize("kind", ["masking", "two servers", "mixing"])
def test_an_altered_description_is_rejected_or_of_another_round(kind: str, mutate: Mutate) -> None:
    masking = MaskingSession([0], MaskingPlan(4, 1009, Neighbourhood(5, 3), participants=6))
    session, mixing = TwoServerSession(5, 3, 1009), ShufflerSession(5, 3, 2)
    place = session.server(0).slot(0)
    message = {
        "masking": masking.server.round.encode(),
        "two servers": session.announcement,
        "mixing": mixing.round.encode(),
    }[kind]
    accepted = 0
    reports: list[tuple[Callable[[bytes], None], bytes]]
    for spoilt in mutate(random.Random(5), message, [], 400):
        try:
            match kind:
                case "masking":
                    signed = masking.rehearsal.announced(spoilt)
                    client = MaskingClient(masking.pinned, signed, bits=0)
                    reports = [(masking.server.take, client.join())]
                case "two servers":
                    split(session.pinned, spoilt, place, [1])
                    raise AssertionError("nobody signed this")
                case _:
                    signed = mixing.rehearsal.announced(spoilt)
                    reports = [(mixing.shuffler.take, wrap(mixing.pinned, signed, [b"ab"]))]
        except ValueError:
            # rejected, or the report does not fit the spoilt round: either way nothing was sent
            continue
        for take, report in reports:
            with pytest.raises(Rejected):
                take(report)
        accepted += 1
    assert (accepted > 0) == (kind != "two servers")


@each_row("nothing", [b"", b"t", bytes(20), b"ta\x01\x11", None, "text", 7])
def test_malformed_messages_are_rejected(nothing: object) -> None:
    session = MaskingSession(list(range(6)), MaskingPlan(4, 1009))
    server, client = session.server, session.clients[0]
    client.join()
    takers: list[Callable[[bytes], object]] = [
        server.take,
        client.share,
        MaskingRound.decode,
        TwoServerRound.decode,
        ShufflerRound.decode,
    ]
    for take in takers:
        with pytest.raises(Rejected):
            take(nothing)  # type: ignore[arg-type]


def _resealed(party: MaskingClient, peer: MaskingServer, message: bytes, spoilt: bytes) -> bytes:
    """A message altered before encryption, as a malicious client can send it."""
    assert _STAGE_OF[Kind(message[3])] is peer.stage
    return party._channel.encrypt(message[:FRONT_SIZE], spoilt)


def test_encrypted_garbage_from_a_client_is_rejected_or_aborts_the_round(
    mutate: Mutate,
) -> None:
    """The channel proves who sent a message, not that it makes sense.

    A wrong reveal must never give a wrong sum.
    """
    rng, outcomes = random.Random(6), {"exact": 0, "aborted": 0}
    for trial in range(60):
        session = MaskingSession([1, 2, 3, 4], MaskingPlan(3, 1009, Neighbourhood(3, 2)))
        stage = ("share", "reveal")[trial % 2]
        steps: dict[str, Callable[[MaskingClient, bytes], bytes]] = {
            "share": MaskingClient.share,
            "check": MaskingClient.check,
            "mask": partial(MaskingClient.mask, values=[7]),
            "reveal": MaskingClient.reveal,
        }
        session.join()
        try:
            for name, answer in steps.items():
                for place, client in enumerate(session.clients):
                    if client.address not in session.outgoing:
                        continue
                    message = answer(client, session.outgoing[client.address])
                    if name == stage and place == 0:
                        channel = session.server._by_address[client.address].channel
                        content = channel.decrypt(message[:FRONT_SIZE], message[FRONT_SIZE:])
                        for spoilt in mutate(rng, content, [], 20):
                            forged = _resealed(client, session.server, message, spoilt)
                            with contextlib.suppress(Rejected):
                                session.server.take(forged)
                                break
                        else:
                            session.server.take(message)
                    else:
                        session.server.take(message)
                session.outgoing = session.server.close()
        except Rejected:
            outcomes["aborted"] += 1
        else:
            view = session.server.view()
            outcomes["exact"] += view.numbers == (7 * view.reports,)
    assert outcomes["exact"] + outcomes["aborted"] == 60
    assert min(outcomes.values()) > 0


@pytest.mark.parametrize("stage", ["share", "check", "mask", "reveal"])
def test_encrypted_garbage_from_the_server_is_answered_or_rejected(
    stage: str, mutate: Mutate
) -> None:
    """Keys, parcels or counts that were changed into other possible ones are answered: the client
    cannot know.
    """
    rng = random.Random(7)
    rejected = 0
    for _ in range(8):
        session = MaskingSession([1, 2, 3, 4, 5, 6], MaskingPlan(4, 1009, Neighbourhood(5, 4)))
        session.join()
        for name in ("share", "check", "mask"):
            if name == stage:
                break
            getattr(session, name)()
        client = session.clients[0]
        known, message = (
            session.server._by_address[client.address],
            session.outgoing[client.address],
        )
        front = message[:FRONT_SIZE]
        content = client._channel.decrypt(front, message[FRONT_SIZE:])
        for spoilt in mutate(rng, content, [], 50):
            forged = known.channel.encrypt(front, spoilt)
            try:
                client.mask(forged, [1]) if stage == "mask" else getattr(client, stage)(forged)
            except Rejected:
                rejected += 1
            else:
                break
    assert rejected > 0  # and any other exception would have ended the test

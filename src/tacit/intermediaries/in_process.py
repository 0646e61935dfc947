"""Whole rounds in one process, through the same bytes that a live service would carry.

These functions play every role of a round over a list of reports and return the view. They are for
tests and simulations: in life each role runs on its own machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tacit.checks import TacitError
from tacit.intermediaries.agreement import new_key, public_bytes
from tacit.intermediaries.graph import Neighbourhood
from tacit.intermediaries.interface import Refusal, SumView, new_identity
from tacit.intermediaries.masking import MaskingRound
from tacit.intermediaries.masking_client import MaskingClient
from tacit.intermediaries.masking_server import MaskingServer
from tacit.intermediaries.mixing import (
    Analyzer,
    MixingRound,
    MixView,
    Role,
    Shuffler,
    prepare,
    wrap,
)
from tacit.intermediaries.sealing import DEFAULT, Sealing, ServerKeys
from tacit.intermediaries.two_servers import (
    Collector,
    HalfServer,
    TwoServerRound,
    split,
)
from tacit.records import MemoryRecords

Report = int | Sequence[int]


@dataclass(frozen=True)
class Dropouts:
    """Who falls silent before which stage of masking, by position in the list of reports."""

    join: Collection[int] = ()
    share: Collection[int] = ()
    mask: Collection[int] = ()
    reveal: Collection[int] = ()


class MaskingSession:
    """A round of masking with its server and all clients, one stage at a time."""

    def __init__(self, server: MaskingServer, reports: Sequence[Report]) -> None:
        self.server = server
        self.reports = _lists(reports)
        announced = MaskingRound.decode(server.round.encode())
        clients = [MaskingClient(announced) for _ in self.reports]
        self.clients = sorted(clients, key=lambda client: client.address)  # as they are numbered
        self.outgoing: Mapping[bytes, bytes] = {}

    def join(self, without: Collection[int] = ()) -> None:
        """Everyone but those `without` joins; the server deals the graph."""
        for place, client in enumerate(self.clients):
            if place not in without:
                self.server.take(client.join())
        self.outgoing = self.server.close()

    def share(self, without: Collection[int] = ()) -> None:
        """Those who joined share their secrets with their neighbours."""
        self._step(lambda client, _, message: client.share(message), without)

    def mask(self, without: Collection[int] = ()) -> None:
        """Those who shared send their masked numbers."""
        self._step(
            lambda client, place, message: client.mask(message, self.reports[place]), without
        )

    def reveal(self, without: Collection[int] = ()) -> None:
        """Those who sent numbers reveal what the server asks for, and it opens the sum."""
        self._step(lambda client, _, message: client.reveal(message), without)

    def _step(
        self, answer: Callable[[MaskingClient, int, bytes], bytes], without: Collection[int]
    ) -> None:
        for place, client in enumerate(self.clients):
            if place not in without and client.address in self.outgoing:
                try:
                    message = answer(client, place, self.outgoing[client.address])
                except Refusal:
                    # the client found too few neighbours left and leaves the round by itself
                    continue
                self.server.take(message)
        self.outgoing = self.server.close()


def run_masking(
    reports: Sequence[Report],
    modulus: int,
    minimum: int,
    among: Neighbourhood | None = None,
    dropouts: Dropouts | None = None,
    participants: int | None = None,
) -> SumView:
    """The sum of all reports of those who did not drop out before sending their masked numbers.

    The round is opened for so many `participants`, of whom those beyond the reports never come.

    >>> run_masking([3, 5, 9], modulus=10, minimum=3)
    SumView(numbers=(7,), reports=3)
    """
    gone = dropouts or Dropouts()
    length = len(_lists(reports[:1])[0])
    room = participants or len(reports)
    session = MaskingSession(MaskingServer.open(room, minimum, modulus, length, among), reports)
    session.join(gone.join)
    session.share(gone.share)
    session.mask(gone.mask)
    session.reveal(gone.reveal)
    return session.server.view()


def run_two_servers(
    reports: Sequence[Report],
    modulus: int,
    minimum: int,
    sealing: Sealing = DEFAULT,
    lost: tuple[Collection[int], Collection[int]] = ((), ()),
    participants: int | None = None,
) -> SumView:
    """The sum of all reports of which both halves arrived; `lost` says whose half does not reach
    server 0 and server 1, `participants` how many the round is opened for.

    >>> run_two_servers([3, 5, 9], modulus=10, minimum=2, lost=({0}, ()))
    SumView(numbers=(4,), reports=2)
    """
    values = _lists(reports)
    keys = (ServerKeys.new(sealing), ServerKeys.new(sealing))
    collecting = new_key()
    publics = (keys[0].public(), keys[1].public())
    room, length = participants or len(values), len(values[0])
    opened = TwoServerRound(
        room, minimum, modulus, publics, public_bytes(collecting), length, sealing
    )
    announced = TwoServerRound.decode(opened.encode())
    servers = [HalfServer(announced, role, keys[role]) for role in (0, 1)]
    collector = Collector(announced, collecting)
    for place, report in enumerate(values):
        for server, half, gone in zip(servers, split(announced, report), lost, strict=True):
            if place not in gone:
                server.take(half)
    lists = [server.close() for server in servers]
    for server, incoming in zip(servers, reversed(lists), strict=True):
        server.take(incoming[announced.line(server.role)])
    for server in servers:
        collector.take(server.close()[announced.collector])
    collector.close()
    return collector.view()


def run_mixing(
    reports: Sequence[Sequence[bytes]],
    minimum: int,
    sealing: Sealing = DEFAULT,
    lost: Collection[int] = (),
    participants: int | None = None,
) -> MixView:
    """All messages of all reports that arrived, in random order; the round is opened for so many
    `participants`, or as many as there are reports.

    >>> sorted(run_mixing([[b"1"], [b"0"], [b"1"]], minimum=3).messages)
    [b'0', b'1', b'1']
    """
    _check_any(reports)
    room, size, messages = participants or len(reports), len(reports[0][0]), len(reports[0])
    store, identity = MemoryRecords(), new_identity()
    shuffling, analyzing = (
        prepare(store, role, identity, ServerKeys.new(sealing)) for role in Role
    )
    opened = MixingRound(room, minimum, size, shuffling, analyzing, messages, sealing, identity)
    announced = MixingRound.decode(opened.encode())
    shuffler, analyzer = Shuffler(announced, store), Analyzer(announced, store)
    for place, report in enumerate(reports):
        if place not in lost:
            shuffler.take(wrap(announced, report))
    for batch in shuffler.close().values():
        analyzer.take(batch)
    analyzer.close()
    return analyzer.view()


def _lists(reports: Sequence[Report]) -> list[list[int]]:
    _check_any(reports)
    return [list(report) if isinstance(report, Iterable) else [report] for report in reports]


def _check_any(reports: Sequence[object]) -> None:
    if not len(reports):
        raise TacitError("there are no reports; a round needs at least one")

"""Complete aggregation rounds in one process, using the messages of the live service.

These functions run all parties of a round over a list of reports and return the view. They are for
tests and simulations; in deployment each party runs on its own machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tacit.aggregation import shuffler
from tacit.aggregation.aggregator import Aggregator
from tacit.aggregation.aggregator_context import AggregatorContext, Draw
from tacit.aggregation.agreement import KEY_SIZE
from tacit.aggregation.announcements import announce, endorse_offer
from tacit.aggregation.collecting import Collector, prepare_collector
from tacit.aggregation.encryption import DEFAULT, HpkeSuite
from tacit.aggregation.graph import Neighbourhood, Shuffle, neighbourhood
from tacit.aggregation.interface import SYSTEM, Rejected, Source, SumView, new_identity
from tacit.aggregation.masking import BITS, MaskingRound
from tacit.aggregation.masking_client import MaskingClient
from tacit.aggregation.masking_server import MaskingServer, MaskingStage, prepare_server
from tacit.aggregation.rehearsal import rehearse, rehearsed_answer
from tacit.aggregation.shuffler import ShuffledView, ShuffleRole, wrap
from tacit.aggregation.two_servers import TwoServerRound, split
from tacit.aggregation.verified import MODULUS
from tacit.errors import require
from tacit.records import MemoryRecords
from tacit.terms import REHEARSED, Aggregation, Noise, StatedGuarantee
from tacit.trust import TrustModel

Report = int | Sequence[int]
GRACE = 3600  # seconds
_BROUGHT = Noise(Fraction(1), "devices", REHEARSED)  # in the reports, unverified


@dataclass(frozen=True)
class Dropouts:
    """Clients that drop out before each stage of masking, by index in the list of reports."""

    join: Collection[int] = ()
    share: Collection[int] = ()
    mask: Collection[int] = ()
    reveal: Collection[int] = ()


@dataclass(frozen=True)
class MaskingPlan:
    """Parameters of a masking round in one process.

    The round is for `participants` clients (default: the number of reports). `among` sets the
    neighbourhood, with whatever security it has. The default is made for the minimum batch size
    with a tenth dropping out and a tenth corrupted. `shuffle` and `source` are for test vectors
    only.
    """

    minimum: int
    modulus: int
    among: Neighbourhood | None = None
    participants: int | None = None
    shuffle: Shuffle | None = None
    source: Source = SYSTEM


class MaskingSession:
    """A round of masking with its server and all clients, one stage at a time."""

    def __init__(self, reports: Sequence[Report], plan: MaskingPlan) -> None:
        self.reports = _lists(reports)
        room, length = plan.participants or len(self.reports), len(self.reports[0])
        self.rehearsal = rehearse(
            TrustModel.SECURE_AGGREGATION,
            _tolerant(room, plan.minimum, Fraction(1, 10)),
            answer=rehearsed_answer(metrics=length),
            noise=_BROUGHT,
            source=plan.source,
        )
        self.pinned, self.store = self.rehearsal.pinned, MemoryRecords()
        self.bits = 0 if plan.among else BITS
        among = plan.among or neighbourhood(room, plan.minimum)
        identity = new_identity(plan.source)
        described = (self.rehearsal.binding, identity, room, plan.minimum, plan.modulus, length)
        MaskingRound(
            *described, among, bytes(KEY_SIZE)
        )  # reject invalid parameters before making a key
        key = prepare_server(self.store, identity, plan.source)
        self.server = MaskingServer(MaskingRound(*described, among, key), self.store, plan.shuffle)
        signature = self.server.endorse(self.pinned, self.rehearsal.keys[0], self.bits)
        self.announcement = announce(self.server.round.encode(), [signature])
        clients = [self.client() for _ in self.reports]
        self.clients = sorted(
            clients, key=lambda client: client.address
        )  # in the order of their numbers
        self.outgoing: Mapping[bytes, bytes] = {}

    def client(self, source: Source = SYSTEM) -> MaskingClient:
        """Create one more client."""
        return MaskingClient(self.pinned, self.announcement, self.bits, source)

    def join(self, without: Collection[int] = ()) -> None:
        """All clients but those in `without` join; the server draws the graph."""
        for index, client in enumerate(self.clients):
            if index not in without:
                self.server.take(client.join())
        self.outgoing = self.server.close()

    def share(self, without: Collection[int] = ()) -> None:
        """The joined clients share their secrets with their neighbours."""
        self._step(lambda client, _, message: client.share(message), without)

    def check(self) -> None:
        """The clients check the shares that their neighbours sent them."""
        self._step(lambda client, _, message: client.check(message), ())

    def mask(self, without: Collection[int] = ()) -> None:
        """The clients check shares, if they have not, and send their masked numbers.

        A client with too few neighbours left to mask with sends an accusation instead.
        """
        if self.server.stage is MaskingStage.CHECKING:
            self.check()
        self._step(self._masked_or_accused, without)

    def _masked_or_accused(self, client: MaskingClient, index: int, message: bytes) -> bytes:
        try:
            return client.mask(message, self.reports[index])
        except Rejected:
            return client.accuse(message)

    def reveal(self, without: Collection[int] = ()) -> None:
        """The clients answer the server's requests until it releases the sum."""
        while self.server.stage is not MaskingStage.RELEASED:
            self._step(lambda client, _, message: client.reveal(message), without)

    def _step(
        self, answer: Callable[[MaskingClient, int, bytes], bytes], without: Collection[int]
    ) -> None:
        for index, client in enumerate(self.clients):
            if index not in without and client.address in self.outgoing:
                try:
                    message = answer(client, index, self.outgoing[client.address])
                except Rejected:
                    # the client has too few neighbours left and drops out
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
    """The sum of the reports of all clients that did not drop out before masking.

    The round is for `participants` clients; those without a report never join.

    >>> run_masking([3, 5, 9], modulus=10, minimum=3)
    SumView(numbers=(7,), reports=3, rejected=0, blamed=())
    """
    gone = dropouts or Dropouts()
    session = MaskingSession(reports, MaskingPlan(minimum, modulus, among, participants))
    session.join(gone.join)
    session.share(gone.share)
    session.mask(gone.mask)
    session.reveal(gone.reveal)
    return session.server.view()


@dataclass(frozen=True)
class OwnNoise:
    """The noise that each of two servers adds to every number in 0..levels.

    It is exact discrete Laplace noise of this scale.
    """

    levels: int
    scale: Fraction
    draw: Draw


class TwoServerSession:
    """A round of two servers with its collector, each party with its own stores.

    A `verified` round has the modulus of `tacit.vdaf` and server noise. `tables` may be in backups,
    `records` must not be. Every party is recreated for every step, as if it had crashed before.
    """

    def __init__(
        self,
        slots: int,
        minimum: int,
        modulus: int,
        length: int = 1,
        noise: OwnNoise | None = None,
        suite: HpkeSuite = DEFAULT,
        source: Source = SYSTEM,
        *,
        verified: bool = False,
    ) -> None:
        about, guarantee = _tolerant(slots, minimum), None
        if noise is not None:
            about = Aggregation(minimum)
            guarantee = StatedGuarantee(Fraction(noise.levels * length) / noise.scale)
        self.rehearsal = rehearse(
            TrustModel.TWO_SERVERS,
            about,
            proofs=int(verified),
            suite=suite.identifier,
            answer=rehearsed_answer(noise.levels if noise else 1, length),
            guarantee=guarantee,
            noise=None if noise else _BROUGHT,
            source=source,
        )
        self.pinned = self.rehearsal.pinned
        self.records = tuple(MemoryRecords() for _ in range(3))
        self.tables: list[dict[bytes, bytes]] = [{}, {}]
        self.noise = noise
        identity = new_identity(source)
        first, second = (self.party(role).prepare(identity, suite, source) for role in (0, 1))
        self.round = TwoServerRound(
            self.rehearsal.binding,
            slots,
            minimum,
            modulus,
            (first, second),
            prepare_collector(self.records[2], identity, suite, source),
            length,
            None if noise is None else noise.scale,
            self.rehearsal.binding.closes,
            GRACE,
            suite,
            identity,
            self.party(0).commitment(identity, (first, second)) if verified else b"",
        )
        description = self.round.encode()
        signatures = [self.party(role).endorse(description) for role in (0, 1)]
        self.announcement = announce(description, signatures)
        self.now = self.round.binding.closes - 1

    def party(self, role: int) -> AggregatorContext:
        """A server's context in the experiment."""
        draw = self.noise.draw if self.noise else None
        return AggregatorContext(
            self.pinned, role, self.rehearsal.keys[role], self.records[role], draw
        )

    def server(self, role: int) -> Aggregator:
        """A freshly started server."""
        return Aggregator(self.party(role), self.announcement, self.tables[role])

    def collector(self) -> Collector:
        """A freshly started collector."""
        return Collector(self.pinned, self.announcement, self.records[2])

    def split(
        self, number: int, values: Sequence[int], source: Source = SYSTEM
    ) -> tuple[bytes, bytes]:
        """Both report shares of the slot with this number."""
        slot = self.server(0).slot(number)
        return split(self.pinned, self.announcement, slot, values, source)

    def finish(self) -> SumView:
        """Pass the deadline, deliver lists and partial sums, and release the sum."""
        self.now = self.round.binding.closes
        servers, collector = [self.server(role) for role in (0, 1)], self.collector()
        for wait in (0, 0, GRACE):
            self.now += wait
            for server, other in (servers, servers[::-1]):
                for address, message in server.close(self.now).items():
                    if address == server.peer:
                        other.take(message, self.now)
                    else:
                        collector.take(message)
        collector.close()
        return collector.view()


def _tolerant(slots: int, minimum: int, dishonest: Fraction = Fraction(0)) -> Aggregation:
    """Terms for a round of `slots` slots that is released from `minimum` reports on.

    The fraction `dishonest` may be corrupted, as long as one honest report remains.
    """
    room = max(1, slots)
    missing = Fraction(max(0, room - max(1, minimum)), room)
    part = min(dishonest, Fraction(max(0, minimum - 1), room))
    return Aggregation(minimum, missing, dishonest_fraction=part)


def run_two_servers(
    reports: Sequence[Report],
    modulus: int,
    minimum: int,
    suite: HpkeSuite = DEFAULT,
    lost: tuple[Collection[int], Collection[int]] = ((), ()),
    participants: int | None = None,
    noise: OwnNoise | None = None,
    *,
    verified: bool = False,
) -> SumView:
    """The sum of all reports of which both shares arrived.

    `lost` lists the reports whose share does not reach server 0 and server 1. `participants` is the
    number of slots. `noise` is added by each server; None if clients add it.

    >>> run_two_servers([3, 5, 9], modulus=10, minimum=2, lost=({0}, ()))
    SumView(numbers=(4,), reports=2, rejected=0, blamed=())
    """
    values = _lists(reports)
    room, length = participants or len(values), len(values[0])
    session = TwoServerSession(room, minimum, modulus, length, noise, suite, verified=verified)
    servers = [session.server(role) for role in (0, 1)]
    for index, report in enumerate(values):
        slot = servers[0].slot(index)
        shares = split(session.pinned, session.announcement, slot, report)
        for server, share, gone in zip(servers, shares, lost, strict=True):
            if index not in gone:
                server.take(share, session.now)
    return session.finish()


def run_verified(
    reports: Sequence[Report],
    minimum: int,
    noise: OwnNoise,
    suite: HpkeSuite = DEFAULT,
    lost: tuple[Collection[int], Collection[int]] = ((), ()),
    participants: int | None = None,
) -> SumView:
    """The sum of all reports of which both shares arrived and all numbers are proved in range.

    The range is 0..levels of the noise; the sum is modulo the prime of `tacit.vdaf`.
    """
    given = (suite, lost, participants, noise)
    return run_two_servers(reports, MODULUS, minimum, *given, verified=True)


def run_shuffler(
    reports: Sequence[Sequence[bytes]],
    minimum: int,
    suite: HpkeSuite = DEFAULT,
    lost: Collection[int] = (),
    participants: int | None = None,
) -> ShuffledView:
    """All messages of all reports that arrived, in random order.

    The round is for `participants` clients (default: the number of reports).

    >>> sorted(run_shuffler([[b"1"], [b"0"], [b"1"]], minimum=3).messages)
    [b'0', b'1', b'1']
    """
    _check_any(reports)
    room, size, messages = participants or len(reports), len(reports[0][0]), len(reports[0])
    session = ShufflerSession(room, minimum, size, messages, suite)
    for index, report in enumerate(reports):
        if index not in lost:
            session.shuffler.take(session.wrap(report))
    for batch in session.shuffler.close().values():
        session.analyzer.take(batch)
    session.analyzer.close()
    return session.analyzer.view()


class ShufflerSession:
    """A shuffle-model round with its shuffler and analyzer.

    Both keep their records in one `store` here; in deployment each has its own.
    """

    def __init__(
        self,
        reports: int,
        minimum: int,
        size: int = 1,
        messages: int = 1,
        suite: HpkeSuite = DEFAULT,
        store: MemoryRecords | None = None,
        source: Source = SYSTEM,
    ) -> None:
        self.rehearsal = rehearse(
            TrustModel.SHUFFLER,
            _tolerant(reports, minimum),
            noise=_BROUGHT,
            suite=suite.identifier,
            source=source,
        )
        self.pinned = self.rehearsal.pinned
        self.store, identity = store or MemoryRecords(), new_identity(source)
        analyzing, shuffling = (
            shuffler.prepare_party(self.store, role, identity, suite, source)
            for role in ShuffleRole
        )
        self.round = shuffler.ShufflerRound(
            self.rehearsal.binding,
            reports,
            minimum,
            size,
            shuffling,
            analyzing,
            messages,
            suite,
            identity,
        )
        self.shuffler = shuffler.Shuffler(self.round, self.store)
        self.analyzer = shuffler.Analyzer(self.round, self.store)
        first, second = self.rehearsal.keys
        signatures = [
            endorse_offer(self.pinned, self.analyzer.round, first),
            endorse_offer(self.pinned, self.shuffler.round, second),
        ]
        self.announcement = announce(self.round.encode(), signatures)

    def wrap(self, messages: Sequence[bytes]) -> bytes:
        """Make one more client's report."""
        return wrap(self.pinned, self.announcement, messages)


def _lists(reports: Sequence[Report]) -> list[list[int]]:
    _check_any(reports)
    return [list(report) if isinstance(report, Iterable) else [report] for report in reports]


def _check_any(reports: Sequence[object]) -> None:
    require(len(reports), "number of reports", 0, "at least 1")

"""The coordinator's background work: plan, announce and close rounds, then update the learner.

A round passes through the stages `preparing`, `open` and `closing`, and ends as `opened` (released)
or `refused` (aborted). The stage determines the next message to the helper. Each message is durable
before it is sent and is sent again until it is answered. Every step is idempotent, and any process
of the coordinator can take it.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np
import sqlalchemy as sql

from tacit.aggregation import SumView
from tacit.aggregation.aggregator import Aggregator, UnknownRound
from tacit.aggregation.aggregator_context import AggregatorStage
from tacit.aggregation.announcements import Binding, accept
from tacit.aggregation.collecting import Collector, prepare_collector
from tacit.aggregation.encryption import suite_named
from tacit.aggregation.interface import new_identity
from tacit.aggregation.two_servers import TwoServerRound
from tacit.aggregation.wire import Kind
from tacit.errors import Refusal, TacitError, Unavailable
from tacit.experiment import Experiment
from tacit.rounds.round_runner import minimum
from tacit.service import answers, store
from tacit.service.coordinator import Coordinator, learned, opened_protocol
from tacit.service.party import LIVE, LOG
from tacit.service.timing import Timing
from tacit.terms import Terms
from tacit.types import Round

PAUSE = 5.0  # seconds between steps when idle
AGAIN = 1.0  # seconds until a retry when the helper did not answer
SOON = 0.1


class HelperLink(Protocol):
    """The coordinator's connection to the helper; raises `Unavailable` if it does not answer."""

    def keys(self, digest: bytes, identity: bytes, sealing: int) -> bytes:
        """The helper's public keys for a new round."""

    def describe(self, description: bytes, signature: bytes) -> bytes:
        """The announcement of a round, signed by the helper."""

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        """The helper's list and answer; each is empty until it exists."""


def step(party: Coordinator, link: HelperLink) -> float:
    """Advance all experiments as far as possible now; return the seconds until the next attempt."""
    wait = PAUSE
    for row in party._driven("preparing", *LIVE):
        wait = min(wait, _tried(_advance, party, link, row))
    for lineage in _running(party):
        if _plan(party, lineage):
            wait = SOON
    return wait


def _tried(action: Any, party: Coordinator, link: HelperLink, row: Any) -> float:
    """Advance one round; an error does not delay the other rounds."""
    try:
        return float(action(party, link, row))
    except Unavailable as problem:
        LOG.warning("round waits: %s", problem)
    except TacitError as problem:
        LOG.error("a round does not go on: %s", problem)
    return AGAIN


def _advance(party: Coordinator, link: HelperLink, row: Any) -> float:
    if row.stage == "preparing":
        return _announce(party, link, row)
    now = party.now
    if row.stage == "open" and not party._close_when_due(row, now):
        return min(max(float(row.closes - now), SOON), PAUSE)
    return _close(party, link, row)


def _running(party: Coordinator) -> list[bytes]:
    experiments = store.experiments
    with party.store.read() as connection:
        query = sql.select(experiments.c.lineage).where(experiments.c.state == "running")
        return [bytes(lineage) for lineage in connection.execute(query).scalars()]


# Planning


def _plan(party: Coordinator, lineage: bytes) -> bool:
    """Store the learner's next rounds if no round is live; whether there are any."""
    with party.store.begin() as connection:
        row = party._experiment(connection, lineage)
        if row.state != "running" or _under_way(party, connection, lineage):
            return False
        terms = party._terms(connection, bytes(row.digest)).terms
        timing = Timing(**json.loads(row.timing))
        if not _within_days(party.now, terms, timing):
            return _end(party, connection, lineage, terms)
        experiment = Experiment.from_dict(json.loads(row.learner))
        _publish_served(connection, lineage)
        wanted = _next_rounds(experiment)
        if not wanted:
            party._change(connection, lineage, {"state": "finished"} | learned(experiment, terms))
            return False
        rows = [_planned(terms, experiment, round_) for round_ in wanted]
        connection.execute(sql.insert(store.rounds), rows)
        party._change(connection, lineage, learned(experiment, terms))
        return True


def _under_way(party: Coordinator, connection: sql.Connection, lineage: bytes) -> bool:
    rounds = store.rounds
    query = (
        sql.select(sql.func.count())
        .select_from(rounds)
        .where(party._of(lineage), rounds.c.stage.in_(("preparing", *LIVE)))
    )
    return bool(connection.execute(query).scalar_one())


def _within_days(now: int, terms: Terms, timing: Timing) -> bool:
    """Whether the terms have begun and a round that begins now closes before they end."""
    closes = now + timing.joining + terms.answer.window + timing.margin
    return terms.first_second <= now and closes < terms.last_second


def _end(party: Coordinator, connection: sql.Connection, lineage: bytes, terms: Terms) -> bool:
    """Finish the experiment once its first day has come and no further round fits."""
    if party.now >= terms.first_second:
        party._change(connection, lineage, {"state": "finished"})
    return False


def _next_rounds(experiment: Experiment) -> list[Round]:
    """The learner's next rounds that are to be released; the others are skipped."""
    while rounds := experiment.propose():
        for round_ in rounds:
            if not round_.opened:
                experiment.skip(round_)
        if opened := [round_ for round_ in rounds if round_.opened]:
            return opened
    return []


def _publish_served(connection: sql.Connection, lineage: bytes) -> None:
    """Add requests that found no slot to the public count when rounds are planned.

    They never reach the learner, because anyone can send any number of them.
    """
    mine = store.served.c.lineage == lineage
    connection.execute(sql.update(store.served).where(mine).values(waiting=0))


def _planned(terms: Terms, experiment: Experiment, round_: Round) -> dict[str, Any]:
    return {
        "identity": new_identity(),
        "terms": terms.digest,
        "stage": "preparing",
        "number": round_.number,
        "arm": round_.arm,
        "option": terms.options.index(experiment.options[round_.arm]),
        "places": round_.participants,
        "given": 0,
        "started": 0,
        "assigned_until": 0,
        "closes": 0,
        "expires": 0,
        "announcement": b"",
    }


# Announcing


def _announce(party: Coordinator, link: HelperLink, row: Any) -> float:
    """Have both aggregators sign a planned round, then open it.

    A round that is stale, or whose key this server no longer holds, is planned again.
    """
    identity = bytes(row.identity)
    aggregator = party.aggregator_context(bytes(row.terms), identity)
    try:
        if not row.announcement:
            _describe(party, link, row)
            row = party._round(identity)
        if row is None or row.stage != "preparing":  # another process was faster
            return SOON
        description = bytes(row.announcement)
        if party.now > (row.assigned_until + row.started) // 2 + 1:
            raise Refusal("the helper did not sign the round in time")
        signature = aggregator.endorse(description)
        record = aggregator.record(identity)
        if record is None or record.stage is not AggregatorStage.OPEN:
            raise Refusal("this server has given the round up before")
    except Refusal as reason:
        LOG.warning("round planned anew: %s", reason)
        _abandon(party, row)
        return AGAIN
    announcement = link.describe(description, signature)
    accept(TwoServerRound, aggregator.pinned, announcement)
    with party.store.begin() as connection:
        if party._move(connection, identity, "preparing", "open"):
            mine = store.rounds.c.identity == identity
            connection.execute(
                sql.update(store.rounds).where(mine).values(announcement=announcement)
            )
    return SOON


def _describe(party: Coordinator, link: HelperLink, row: Any) -> None:
    """Store the description of a planned round before anyone signs it; the first one stays."""
    identity, digest = bytes(row.identity), bytes(row.terms)
    lineage = party.terms(digest).lineage
    with party.store.read() as connection:
        stored = party._experiment(connection, lineage, looking=True)
    experiment = Experiment.from_dict(json.loads(stored.learner))
    timing = Timing(**json.loads(stored.timing))
    pinned = party.pinned(digest)
    terms = pinned.terms
    round_ = next(one for one in experiment.propose() if one.number == row.number)
    protocol, way = opened_protocol(experiment, round_, terms)
    suite, grace = suite_named(terms.suite), min(timing.grace, terms.grace)
    theirs = link.keys(digest, identity, suite)  # first: if it rejects, no local key is made
    own = party.aggregator_context(digest, identity).prepare(identity, suite)
    start, about = party.now, terms.answer
    closes = start + timing.joining + about.window + timing.margin
    described = TwoServerRound(
        Binding(digest, int(row.option), about.levels, about.window, closes),
        round_.participants,
        max(minimum(protocol, "two-servers"), terms.aggregation.minimum_batch_size),
        way.modulus,
        (own, theirs),
        prepare_collector(party.records, identity, suite),
        len(about.metrics),
        terms.noise.scale,
        start + timing.joining,
        grace,
        suite,
        identity,
    )
    changed = {
        "announcement": described.encode(),
        "started": start,
        "assigned_until": described.assigned_until,
        "closes": closes,
        "expires": closes + grace,
    }
    blank = sql.update(store.rounds).where(
        store.rounds.c.identity == identity, store.rounds.c.announcement == b""
    )
    with party.store.begin() as connection:
        connection.execute(blank.values(**changed))


def _abandon(party: Coordinator, row: Any) -> None:
    """Abort a round that no participant has joined and plan it again under a new identity.

    A round that another process has opened meanwhile is left alone.
    """
    identity, rounds = bytes(row.identity), store.rounds
    aggregator = party.aggregator_context(bytes(row.terms), identity)
    mine = sql.update(rounds).where(rounds.c.identity == identity, rounds.c.stage == "preparing")
    with party.store.begin() as connection:
        anew = mine.values(identity=new_identity(), announcement=b"")
        if connection.execute(anew).rowcount == 1:
            aggregator.abandon(identity)


# Closing


def _close(party: Coordinator, link: HelperLink, row: Any) -> float:
    """Sum this server's report shares, request the helper's partial sum, and learn from both."""
    server = party.serving(row)
    try:
        collector = Collector(server.pinned, bytes(row.announcement), party.records)
        mine, listing = _own(party, server)
    except UnknownRound as reason:
        LOG.error("a round is refused: %s", reason)
        return _learn(party, row, None)
    if mine:
        collector.take(mine)
    if not _refuses(mine) and not collector.over:
        identity = server.round.identity
        theirs, answer = link.exchange(identity, listing)
        if answer:
            collector.take(answer)
        if theirs and not mine:
            server.take(theirs, party.now)
        elif _refuses(answer):  # the helper aborted: destroy this server's secret, too
            party.aggregator_context(bytes(row.terms), identity).abandon(identity)
        mine, _ = _own(party, server)
        if mine:
            collector.take(mine)
    if not mine:
        return AGAIN
    collector.close()
    return _learn(party, row, _view(collector))


def _refuses(answer: bytes) -> bool:
    return answer[3:4] == bytes((Kind.OUTCOME,))


def _own(party: Coordinator, server: Aggregator) -> tuple[bytes, bytes]:
    """This server's answer for the collector and its list for the helper, each empty until it
    exists.
    """
    out = server.close(party.now)
    return out.get(server.round.collector, b""), out.get(server.peer, b"")


def _view(collector: Collector) -> SumView | None:
    try:
        return collector.view()
    except Refusal as reason:
        LOG.warning("a round was refused: %s", reason)
        return None


def _learn(party: Coordinator, row: Any, view: SumView | None) -> float:
    """End a round and update the learner with its aggregate, in one transaction."""
    identity = bytes(row.identity)
    with party.store.begin() as connection:
        known = party._terms(connection, bytes(row.terms))
        stored = party._experiment(connection, known.lineage)
        if not party._finish(connection, identity, "refused" if view is None else "opened"):
            return SOON
        experiment = Experiment.from_dict(json.loads(stored.learner))
        round_ = next(one for one in experiment.propose() if one.number == row.number)
        changed: dict[str, Any] = {"reports": 0}
        if view is None:
            experiment.skip(round_)
        else:
            _, way = opened_protocol(experiment, round_, known.terms)
            protocol = experiment.open(round_)
            estimate = protocol.analyze(way.opened(view))
            experiment.observe(round_, estimate)
            changed = {
                "reports": view.reports,
                "total": json.dumps(np.ravel(estimate.total).tolist()),
            }
        mine = store.rounds.c.identity == identity
        connection.execute(sql.update(store.rounds).where(mine).values(**changed))
        history = json.loads(stored.history)
        history.append(answers.moment(party.now, known.terms, experiment, round_, view))
        current = party._terms(connection, bytes(stored.digest)).terms
        new = {"history": json.dumps(history), **learned(experiment, current)}
        party._change(connection, known.lineage, new)
    return SOON

"""The coordinator: it has the experiments, and gives out places in their rounds.

What is learned is an `Experiment`, the same object that a simulation drives, kept in the database
and changed only in the transactions that plan and end its rounds (`tacit.live.driving`). Nobody is
known here: a ticket is a random number that a device made for one question.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import sqlalchemy as sql

from tacit.checks import Refusal, TacitError
from tacit.estimates import Round
from tacit.experiment import Experiment
from tacit.intermediaries.two_servers import Place
from tacit.live import answers, invitations, store
from tacit.live.errors import Conflict, Forbidden, Unknown
from tacit.live.party import COORDINATOR, KIND, Party, Registered
from tacit.live.timing import Timing
from tacit.protocols.contract import Protocol
from tacit.rounds.codecs import Residues, codec
from tacit.signatures import Signed, verify
from tacit.terms import Pinned, Terms, approve_successor, cosign

Choose = Callable[[bytes, int], int]
"""Which of so many places the holder of a ticket gets."""

NONCE_SIZE = 16
CHANGES = {"pause": ("running", "paused"), "resume": ("paused", "running")}
ENDED = ("stopped", "finished")


@dataclass(frozen=True)
class Ticket:
    """Somebody who wants to take part: the experiment's terms, and a random number that the device
    made for this; the same number gets the same place.
    """

    experiment: bytes
    nonce: bytes
    invitation: str | None = None

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE_SIZE:
            raise Refusal(f"a nonce has {NONCE_SIZE} bytes; this has {len(self.nonce)}")


@dataclass(frozen=True)
class Assigned:
    """The option for somebody who came, and the place in a round to report it in; none for who is
    not asked.
    """

    option: str
    announcement: bytes = b""
    place: Place | None = None


def at_random(_nonce: bytes, places: int) -> int:
    """Any of them alike, by the operating system's source."""
    return secrets.randbelow(places)


class Coordinator(Party):
    """The first server of live experiments, and who learns from them."""

    role = COORDINATOR

    def __init__(self, *parts: Any, choose: Choose = at_random, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._choose = choose

    # Experiments

    def create(
        self, terms: Terms, experiment: Experiment, timing: Timing, definition: str = ""
    ) -> bytes:
        """Publishes an experiment, which waits for the helper's signature; its digest. The same
        again changes nothing.
        """
        self._check_own(terms)
        if terms.predecessor:
            raise TacitError("these terms succeed others: call succeed")
        check_fits(terms, experiment)
        row = {
            "lineage": terms.digest,
            "digest": terms.digest,
            "state": "unsigned",
            "learner": json.dumps(experiment.to_dict()),
            "timing": json.dumps(asdict(timing)),
            "definition": definition,
            "leader": terms.options.index(experiment.control or terms.options[0]),
            "history": "[]",
        }
        with self.store.begin() as connection:
            self._register(connection, terms)
            self.store.insert_new(connection, store.experiments, [row])
        return terms.digest

    def succeed(self, terms: Terms) -> bytes:
        """Publishes successor terms, which wait for the helper's signature and approval; until
        then the present ones go on.
        """
        self._check_own(terms)
        before = self.terms(terms.predecessor).terms
        approve_successor(before, terms, self._key, self.records)
        with self.store.begin() as connection:
            self._register(connection, terms)
        return terms.digest

    def cosign(self, digest: bytes, signature: bytes, approval: bytes = b"") -> None:
        """Takes the helper's signature under terms (and under successor terms its approval): from
        now on they run.
        """
        known = self.terms(digest)
        terms = known.terms
        verify(Signed.TERMS, terms.encode(), signature, terms.keys[1], "the helper")
        signatures = (cosign(terms, self._key), signature)
        approvals: tuple[bytes, ...] = ()
        if terms.predecessor:
            before = self.pinned(terms.predecessor)
            mine = approve_successor(before.terms, terms, self._key, self.records)
            approvals = (mine, approval)
            before.succeeded_by(terms, signatures, approvals)
        Pinned(terms, signatures, terms.keys)
        with self.store.begin() as connection:
            row = self._experiment(connection, known.lineage)
            self._register(connection, terms, signatures, approvals)
            changed: dict[str, Any] = {}
            if row.state == "unsigned":
                changed["state"] = "running"
            if bytes(row.digest) == terms.predecessor:
                experiment = _with_options(_experiment_of(row), terms)
                changed |= {"digest": digest, "learner": json.dumps(experiment.to_dict())}
            self._change(connection, known.lineage, changed)

    def pause(self, digest: bytes) -> None:
        """No new rounds and no places in those that are open, until it is resumed; who has a place
        reports.
        """
        self._set_state(digest, *CHANGES["pause"])

    def resume(self, digest: bytes) -> None:
        """Goes on after a pause."""
        self._set_state(digest, *CHANGES["resume"])

    def stop(self, digest: bytes) -> None:
        """Ends an experiment for good; rounds that are open are finished."""
        self._set_state(digest, None, "stopped")

    def _set_state(self, digest: bytes, needed: str | None, state: str) -> None:
        lineage = self.terms(digest).lineage
        with self.store.begin() as connection:
            row = self._experiment(connection, lineage)
            if row.state == state:
                return
            if row.state in ENDED or (needed is not None and row.state != needed):
                raise Conflict(f"this experiment is {row.state}; it cannot become {state}")
            self._change(connection, lineage, {"state": state})

    def status(self, digest: bytes) -> dict[str, Any]:
        """How an experiment stands: plain data."""
        return answers.status(self._snapshot(digest))

    def estimates(self, digest: bytes) -> dict[str, Any]:
        """What has been found: plain data, in the units of the answer."""
        return answers.estimates(self._snapshot(digest))

    def export(self, digest: bytes) -> dict[str, Any]:
        """Everything that is known of an experiment, all of it made of private sums."""
        return answers.export(self._snapshot(digest))

    def _snapshot(self, digest: bytes) -> answers.Snapshot:
        with self.store.begin() as connection:
            known = self._terms(connection, digest)
            row = self._experiment(connection, known.lineage)
            rounds = connection.execute(
                sql.select(store.rounds)
                .where(self._of(known.lineage), store.rounds.c.number >= 0)
                .order_by(store.rounds.c.number)
            ).all()
            mine = store.served.c.lineage == known.lineage
            served = connection.execute(
                sql.select(sql.func.coalesce(sql.func.sum(store.served.c.total), 0)).where(mine)
            ).scalar_one()
            current = self._terms(connection, bytes(row.digest))
        return answers.Snapshot(current.terms, row, _experiment_of(row), list(rounds), int(served))

    # Places

    def join(self, tickets: Sequence[Ticket]) -> list[Assigned | Refusal]:
        """Places for those who came, in one transaction: each drawn from what is left in all open
        rounds. Who comes when nothing is left gets the best option so far and is not asked.
        """
        unknown: dict[bytes, Refusal] = {}
        for digest in {ticket.experiment for ticket in tickets}:
            try:
                self.pinned(digest)
            except Refusal as reason:
                unknown[digest] = reason
        with self.store.begin() as connection:
            desks = {
                digest: _Desk(self, connection, digest)
                for digest in sorted({ticket.experiment for ticket in tickets} - set(unknown))
            }
            return [
                unknown.get(ticket.experiment) or desks[ticket.experiment].answer(ticket)
                for ticket in tickets
            ]

    # What is kept

    def _of(self, lineage: bytes) -> Any:
        """Rounds under any of the terms of an experiment."""
        mine = sql.select(store.terms.c.digest).where(store.terms.c.lineage == lineage)
        return store.rounds.c.terms.in_(mine)

    def _experiment(self, connection: sql.Connection, lineage: bytes) -> Any:
        """The row of an experiment, which nobody else changes until the transaction has ended."""
        query = sql.select(store.experiments).where(store.experiments.c.lineage == lineage)
        row = connection.execute(query.with_for_update()).one_or_none()
        if row is None:
            raise Unknown(f"there is no experiment {lineage.hex()} here")
        return row

    def _change(
        self, connection: sql.Connection, lineage: bytes, changed: Mapping[str, Any]
    ) -> None:
        if changed:
            mine = store.experiments.c.lineage == lineage
            connection.execute(sql.update(store.experiments).where(mine).values(**changed))


class _Desk:
    """Where the places of one experiment are given out, within one transaction."""

    def __init__(self, party: Coordinator, connection: sql.Connection, digest: bytes) -> None:
        self._party, self._connection = party, connection
        self._known = party._terms(connection, digest)
        experiments = store.experiments
        columns = (experiments.c.state, experiments.c.digest, experiments.c.leader)
        query = sql.select(*columns).where(experiments.c.lineage == self._known.lineage)
        self._state, current, leader = connection.execute(query).one()
        self._current = bytes(current) == digest
        self._leader = self._known.terms.options[leader % len(self._known.terms.options)]
        self._rounds = self._open_rounds() if self._state == "running" else []
        self._given = {bytes(row.identity): int(row.given) for row in self._rounds}

    def _open_rounds(self) -> list[Any]:
        rounds = store.rounds
        query = sql.select(rounds).where(
            rounds.c.terms == self._known.terms.digest,
            rounds.c.stage == "open",
            rounds.c.number >= 0,
            rounds.c.assigned_until >= self._party.now,
        )
        return list(
            self._connection.execute(query.order_by(rounds.c.identity).with_for_update()).all()
        )

    def answer(self, ticket: Ticket) -> Assigned | Refusal:
        """What somebody who came is told."""
        try:
            return self._assign(ticket)
        except Refusal as reason:
            return reason

    def _assign(self, ticket: Ticket) -> Assigned:
        """The place of a ticket, old or new, or the option for who is not asked."""
        names = {bytes(row.identity): self._name(row, ticket) for row in self._rounds}
        for row in self._rounds:
            place = self._place_of(row, names[bytes(row.identity)])
            if place is not None:
                return self._at(row, place)
        left = [int(row.places) - self._given[bytes(row.identity)] for row in self._rounds]
        if not sum(left):
            return self._unasked()
        ends = list(accumulate(left))
        row = self._rounds[bisect_right(ends, self._party._choose(ticket.nonce, ends[-1]))]
        identity = bytes(row.identity)
        self._check_invited(ticket, names[identity])
        return self._new(row, identity, names[identity])

    def _name(self, row: Any, ticket: Ticket) -> bytes:
        return self._party._serving(row).name(b"join" + ticket.nonce)

    def _check_invited(self, ticket: Ticket, name: bytes) -> None:
        if self._known.terms.admission != "invitation":
            return
        keys = [self._known.terms.keys[COORDINATOR]]
        digest = invitations.check(ticket.invitation, self._known.lineage, keys)
        if not self._party._spent_for(self._connection, digest, name):
            raise Forbidden("this invitation has been used: each is for one participation")

    def _place_of(self, row: Any, name: bytes) -> int | None:
        joins = store.joins
        query = sql.select(joins.c.place)
        mine = query.where(joins.c.round == row.identity, joins.c.name == name)
        place: int | None = self._connection.execute(mine).scalar()
        return place

    def _new(self, row: Any, identity: bytes, name: bytes) -> Assigned:
        place, rounds = self._given[identity], store.rounds
        self._given[identity] = place + 1
        self._connection.execute(
            sql.insert(store.joins).values(round=identity, name=name, place=place)
        )
        self._connection.execute(
            sql.update(rounds).where(rounds.c.identity == identity).values(given=place + 1)
        )
        return self._at(row, place)

    def _at(self, row: Any, place: int) -> Assigned:
        option = self._known.terms.options[row.option]
        place_ = self._party._serving(row).place(place)
        return Assigned(option, bytes(row.announcement), place_)

    def _unasked(self) -> Assigned:
        if not self._current:
            raise Conflict("these terms have been succeeded by others: read those")
        served, option = store.served, self._known.terms.options.index(self._leader)
        row = {"lineage": self._known.lineage, "option": option, "waiting": 0, "total": 0}
        self._party.store.insert_new(self._connection, served, [row])
        mine = sql.update(served).where(
            served.c.lineage == self._known.lineage, served.c.option == option
        )
        self._connection.execute(
            mine.values(waiting=served.c.waiting + 1, total=served.c.total + 1)
        )
        return Assigned(self._leader)


def _experiment_of(row: Any) -> Experiment:
    return Experiment.from_dict(json.loads(row.learner))


def _with_options(experiment: Experiment, terms: Terms) -> Experiment:
    """The experiment under successor terms: their new options take part, the missing ones go."""
    for option in terms.options:
        if option not in experiment.options:
            experiment.add(option)
    for option in experiment.options:
        if option not in terms.options:
            experiment.remove(option)
    return experiment


def opened_protocol(
    experiment: Experiment, round_: Round, terms: Terms
) -> tuple[Protocol, Residues]:
    """The protocol of a round and its way through two servers; refused where it is not what the
    terms say.
    """
    protocol = experiment.mechanism.open(round_)
    way = codec(protocol, KIND)
    own = way.noise if isinstance(way, Residues) else None
    levels, scale = terms.answer.levels, terms.noise.scale
    if not isinstance(way, Residues) or own is None or (own.levels, own.scale) != (levels, scale):
        raise TacitError(
            "the experiment's noise is not that of the terms: both need the same levels, epsilon, "
            "participations and metrics"
        )
    return protocol, way


def check_fits(terms: Terms, experiment: Experiment) -> None:
    """Refuses an experiment that is not the one the terms speak of."""
    if experiment.options != terms.options:
        raise TacitError(
            f"the experiment tries {', '.join(experiment.options)}; the terms name "
            f"{', '.join(terms.options)}"
        )
    trial = Experiment.from_dict(experiment.to_dict())
    for round_ in trial.propose():
        if round_.opened:
            opened_protocol(trial, round_, terms)
        if round_.opened and round_.participants < terms.middle.crowd:
            raise TacitError(
                f"a round of {round_.participants} is smaller than the crowd of "
                f"{terms.middle.crowd} that the terms promise"
            )


__all__ = ["Assigned", "Coordinator", "Registered", "Ticket", "Timing", "at_random"]

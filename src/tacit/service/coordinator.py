"""The coordinator: stores the experiments and assigns slots in their rounds.

Each experiment's state is an `Experiment`, the same class that a simulation drives. It is stored in
the database and changes only in transactions: those that plan and end rounds
(`tacit.service.round_scheduler`), and the one that puts successor terms into force. Participants
are anonymous: a ticket carries a random nonce that the device draws for one request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sql

from tacit.bandits.arms.managed import Managed
from tacit.errors import Refusal, TacitError
from tacit.experiment import Experiment
from tacit.protocols.contract import Protocol
from tacit.rounds.codecs import Residues, codec
from tacit.service import answers, store
from tacit.service.assignment import Assigned, Choose, SlotAssigner, Ticket, at_random
from tacit.service.errors import Conflict, Unknown
from tacit.service.party import COORDINATOR, KIND, Registered, ServerParty
from tacit.service.timing import Timing
from tacit.signatures import Signed, verify
from tacit.terms import Pinned, Terms, approve_successor, cosign
from tacit.types import Round

CHANGES = {"pause": ("running", "paused"), "resume": ("paused", "running")}
ENDED = ("stopped", "finished")

_STATE = sql.select(store.experiments.c.state).where(
    store.experiments.c.lineage == sql.bindparam("lineage")
)


class Coordinator(ServerParty):
    """The first aggregator (leader) of live experiments; it also runs the learner."""

    role = COORDINATOR

    def __init__(self, *parts: Any, choose: Choose = at_random, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._choose = choose

    # Experiments

    def create(
        self, terms: Terms, experiment: Experiment, timing: Timing, definition: str = ""
    ) -> bytes:
        """Publish an experiment and return the digest of its terms.

        The experiment stays `unsigned` until the helper cosigns. The call is idempotent.
        """
        self._check_own(terms)
        if terms.predecessor:
            raise TacitError("these terms succeed others: call succeed")
        check_fits(terms, experiment)
        if timing.grace > terms.grace:
            raise TacitError(
                f"grace is {timing.grace}: must be at most {terms.grace}, as the terms say"
            )
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
        """Publish successor terms and return their digest.

        The current terms stay in force until the helper has signed and approved the new ones.
        """
        self._check_own(terms)
        with self.store.read() as connection:
            known = self._terms(connection, terms.predecessor)
            row = self._experiment(connection, known.lineage, looking=True)
        if bytes(row.digest) == terms.predecessor:
            _with_options(_experiment_of(row), terms)  # validate before anyone signs
        approve_successor(known.terms, terms, self.key_for(known.terms), self.records)
        with self.store.begin() as connection:
            self._register(connection, terms)
        return terms.digest

    def cosign(self, digest: bytes, signature: bytes, approval: bytes = b"") -> None:
        """Store the helper's signature under terms, which puts them into force.

        Successor terms also need the helper's approval.
        """
        known = self.terms(digest)
        terms = known.terms
        verify(Signed.TERMS, terms.encode(), signature, terms.keys[1], "the helper")
        signatures = (cosign(terms, self.key_for(terms)), signature)
        approvals: tuple[bytes, ...] = ()
        if terms.predecessor:
            before = self.pinned(terms.predecessor)
            key = self.key_for(before.terms)
            mine = approve_successor(before.terms, terms, key, self.records)
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
                changed |= {"digest": digest} | learned(experiment, terms)
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

    def _state(self, connection: sql.Connection, known: Registered) -> str:
        """The experiment's state, read without loading the learner."""
        return str(connection.execute(_STATE, {"lineage": known.lineage}).scalar_one())

    def status(self, digest: bytes) -> dict[str, Any]:
        """How an experiment stands: plain data."""
        return answers.status(self._snapshot(digest))

    def estimates(self, digest: bytes) -> dict[str, Any]:
        """What has been found: plain data, in the units of the answer."""
        return answers.estimates(self._snapshot(digest))

    def export(self, digest: bytes) -> dict[str, Any]:
        """Everything that is known of an experiment, all of it made of private sums."""
        return answers.export(self._snapshot(digest))

    def view(self, digest: bytes) -> dict[str, Any]:
        """The data of the page for holders of the admin token. It changes with every participant
        who joins.
        """
        return answers.view(self._snapshot(digest))

    def public(self, digest: bytes) -> dict[str, Any]:
        """The data of the public page."""
        return answers.public(self._snapshot(digest))

    def listed(self) -> list[tuple[str, str, str]]:
        """Digest, question and state of every experiment, under its current terms."""
        experiments = store.experiments
        with self.store.read() as connection:
            query = sql.select(experiments.c.digest, experiments.c.state)
            known = [
                (self._terms(connection, bytes(digest)).terms, str(state))
                for digest, state in connection.execute(query).all()
            ]
        return sorted(
            ((terms.digest.hex(), terms.question, state) for terms, state in known),
            key=lambda one: (one[2] in ENDED, one[1], one[0]),
        )

    def _snapshot(self, digest: bytes) -> answers.Snapshot:
        with self.store.read() as connection:
            known = self._terms(connection, digest)
            row = self._experiment(connection, known.lineage, looking=True)
            rounds = connection.execute(
                sql.select(store.rounds)
                .where(self._of(known.lineage))
                .order_by(store.rounds.c.number)
            ).all()
            total, waiting = (
                sql.func.coalesce(sql.func.sum(column), 0)
                for column in (store.served.c.total, store.served.c.waiting)
            )
            mine = store.served.c.lineage == known.lineage
            served, new = connection.execute(sql.select(total, waiting).where(mine)).one()
            current = self._terms(connection, bytes(row.digest))
        return answers.Snapshot(
            current.terms,
            row,
            _experiment_of(row),
            list(rounds),
            served=int(served),
            settled=int(served) - int(new),
        )

    # Slots

    def join(self, tickets: Sequence[Ticket]) -> list[Assigned | Refusal]:
        """Assign slots to tickets, in one transaction.

        Each slot is drawn from the free slots of all open rounds. When no slot is free, the ticket
        gets the best option so far and sends no report.
        """
        unknown: dict[bytes, Refusal] = {}
        for digest in {ticket.experiment for ticket in tickets}:
            try:
                self.pinned(digest)
            except Refusal as reason:
                unknown[digest] = reason
        said: dict[int, Assigned | Refusal] = {}
        with self.store.begin() as connection:
            for digest in sorted({ticket.experiment for ticket in tickets}):
                mine = [n for n, ticket in enumerate(tickets) if ticket.experiment == digest]
                if digest in unknown:
                    said |= dict.fromkeys(mine, unknown[digest])
                    continue
                desk = SlotAssigner(self, connection, self._terms(connection, digest), self._choose)
                answered = desk.assign([tickets[n] for n in mine])
                said |= dict(zip(mine, answered, strict=True))
        return [said[n] for n in range(len(tickets))]

    # Storage

    def _of(self, lineage: bytes) -> Any:
        """Condition that selects the rounds under any terms of an experiment."""
        mine = sql.select(store.terms.c.digest).where(store.terms.c.lineage == lineage)
        return store.rounds.c.terms.in_(mine)

    def _experiment(
        self, connection: sql.Connection, lineage: bytes, *, looking: bool = False
    ) -> Any:
        """The row of an experiment, locked until the transaction ends unless `looking`."""
        query = sql.select(store.experiments).where(store.experiments.c.lineage == lineage)
        row = connection.execute(query if looking else query.with_for_update()).one_or_none()
        if row is None:
            raise Unknown(f"there is no experiment {lineage.hex()} here")
        return row

    def _change(
        self, connection: sql.Connection, lineage: bytes, changed: Mapping[str, Any]
    ) -> None:
        if changed:
            mine = store.experiments.c.lineage == lineage
            connection.execute(sql.update(store.experiments).where(mine).values(**changed))


def _experiment_of(row: Any) -> Experiment:
    return Experiment.from_dict(json.loads(row.learner))


def _with_options(experiment: Experiment, terms: Terms) -> Experiment:
    """The experiment under successor terms: new options are added, missing ones are removed for
    good.
    """
    learner = experiment.learner
    gone = learner.removed if isinstance(learner, Managed) else ()
    removed = {experiment.options[place] for place in gone}
    for option in terms.options:
        if option in removed:
            raise TacitError(f"option {option!r} was removed by earlier terms: give a new name")
        if option not in experiment.options:
            experiment.add(option)
    for option in experiment.options:
        if option not in terms.options and option not in removed:
            experiment.remove(option)
    return experiment


def learned(experiment: Experiment, terms: Terms) -> dict[str, Any]:
    """The columns to store after the learner has changed."""
    best = experiment.best()
    place = terms.options.index(best) if best in terms.options else 0
    return {"learner": json.dumps(experiment.to_dict()), "leader": place}


def opened_protocol(
    experiment: Experiment, round_: Round, terms: Terms
) -> tuple[Protocol, Residues]:
    """The protocol of a round and its encoding for two aggregators.

    Raises `TacitError` if the noise of the experiment differs from that of the terms.
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
    """Reject an experiment whose options, noise or round sizes do not match the terms."""
    if experiment.options != terms.options:
        raise TacitError(
            f"the experiment tries {', '.join(experiment.options)}; the terms name "
            f"{', '.join(terms.options)}"
        )
    trial = Experiment.from_dict(experiment.to_dict())
    for round_ in trial.propose():
        if round_.opened:
            opened_protocol(trial, round_, terms)
        least = terms.aggregation.minimum_batch_size
        if round_.opened and round_.participants < least:
            raise TacitError(
                f"a round of {round_.participants} is smaller than the minimum batch size {least} "
                "of the terms"
            )

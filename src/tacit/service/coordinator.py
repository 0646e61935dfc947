"""The coordinator: stores the experiments and assigns slots in their rounds.

Each experiment's state is an `Experiment`, the same class that a simulation drives. It is stored in
the database and changes only in transactions: those that plan and end rounds
(`tacit.service.round_scheduler`), and the one that puts successor terms into force. Participants
are anonymous: a ticket carries a random nonce that the device draws for one request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, TypeVar

from tacit.aggregation.interface import ClosedRound
from tacit.aggregation.masking_rounds import MaskingReports
from tacit.aggregation.two_servers import ReportSlot
from tacit.bandits.arms.managed import Managed
from tacit.errors import Rejected, TacitError
from tacit.experiment import Experiment
from tacit.service import answers
from tacit.service.answers import EndReason
from tacit.service.assignment import (
    Assigned,
    NeedsAllShards,
    SlotAssigner,
    Ticket,
)
from tacit.service.errors import Conflict, Gone
from tacit.service.party import (
    COORDINATOR,
    CheckedReport,
    ServerParty,
    unknown_round,
)
from tacit.service.pending import PendingShares
from tacit.service.schema import LIVE, ExperimentRow, Registered, State
from tacit.service.store import Transaction
from tacit.service.timing import Timing
from tacit.service.trust_models import COORDINATORS, coordinator_engine
from tacit.service.trust_models.contract import CoordinatorEngine
from tacit.signatures import Signed, verify
from tacit.terms import Pinned, Terms, approve_successor, cosign

T = TypeVar("T")
ENDED = (State.STOPPED, State.FINISHED)


class Coordinator(ServerParty[CoordinatorEngine]):
    """The first party (leader) of live experiments; it also runs the learner."""

    role, engines = COORDINATOR, COORDINATORS

    def position(self, terms: Terms) -> int:
        """The index of the coordinator in the terms."""
        return terms.leader

    # Experiments

    def create(
        self, terms: Terms, experiment: Experiment, timing: Timing, definition: str = ""
    ) -> bytes:
        """Publish an experiment and return the digest of its terms.

        The experiment stays `unsigned` until the helper cosigns; without a helper it runs at once.
        The call is idempotent.
        """
        self._check_own(terms)
        if terms.predecessor:
            raise TacitError(
                f"predecessor is {terms.predecessor.hex()}: must be empty here. Call succeed."
            )
        check_fits(terms, experiment)
        if timing.grace > terms.grace:
            raise TacitError(
                f"grace is {timing.grace}: must be at most {terms.grace}, the grace of the terms"
            )
        row = ExperimentRow(
            lineage=terms.digest,
            digest=terms.digest,
            state=State.UNSIGNED,
            learner=json.dumps(experiment.to_dict()),
            timing=json.dumps(asdict(timing)),
            definition=definition,
            leader=terms.options.index(experiment.control or terms.options[0]),
        )
        with self.store.begin() as transaction:
            transaction.save_terms(terms)
            transaction.add_experiment(row)
        if terms.helper is None:
            self._sign(self.terms(terms.digest), ())
        return terms.digest

    def succeed(self, terms: Terms, participants: int | None = None) -> bytes:
        """Publish successor terms and return their digest.

        The current terms stay in force until the helper has signed and approved the new ones.
        `participants`, if given, is the planned number from then on, not fewer than before.
        """
        self._check_own(terms)
        with self.store.read() as transaction:
            known = transaction.terms(terms.predecessor)
            row = transaction.experiment(known.lineage)
        if row.digest == terms.predecessor:
            _extend(_with_options(load(row), terms), participants)  # before anyone signs
        approve_successor(known.terms, terms, self.key_for(known.terms), self.records)
        with self.store.begin() as transaction:
            transaction.save_terms(terms, participants=participants)
        if terms.helper is None:
            self._sign(self.terms(terms.digest), ())
        return terms.digest

    # Rounds with stages

    def staged(self, identity: bytes) -> MaskingReports:
        """An announced, live round whose devices answer in stages."""
        served = self.server(identity)
        if not isinstance(served, MaskingReports):
            raise unknown_round(identity)
        return served

    def synchronize(self, identity: bytes) -> None:
        """Load the messages of a round with stages that another process has ended."""
        try:
            self.staged(identity).synchronize(PendingShares(self.store, identity), self._clock())
        except ClosedRound as reason:
            raise Gone(str(reason)) from None

    def answer(self, identity: bytes, slot: ReportSlot, message: bytes) -> CheckedReport:
        """Validate a device's stage message, to be stored with `keep`."""
        served = self.staged(identity)
        try:
            return CheckedReport(identity, served, served.check_answer(slot, message), stages=LIVE)
        except ClosedRound as reason:
            raise Gone(str(reason)) from None

    def cosign(self, digest: bytes, signature: bytes, approval: bytes = b"") -> None:
        """Store the helper's signature under terms, which puts them into force.

        Successor terms also need the helper's approval. They continue an experiment that ended with
        its last day, or with its planned participants if they plan more.
        """
        known = self.terms(digest)
        terms = known.terms
        if terms.helper is None:
            raise Conflict(f"trust is {terms.trust.value}, which has no helper: nothing to cosign")
        named = terms.keys[terms.helper]
        verify(Signed.TERMS, terms.encode(), signature, named, "the helper")
        if not known.signatures:  # the signature is public then: repeating it writes nothing
            self._sign(known, (signature,), (approval,))

    def _sign(
        self, known: Registered, theirs: tuple[bytes, ...], approved: tuple[bytes, ...] = ()
    ) -> None:
        """Sign terms, with the helper's signature and approval if there is one; start them."""
        terms = known.terms
        digest, own = terms.digest, self.position(terms)
        signatures = (*theirs[:own], cosign(terms, self.key_for(terms)), *theirs[own:])
        approvals: tuple[bytes, ...] = ()
        if terms.predecessor:
            before = self.pinned(terms.predecessor)
            key = self.key_for(before.terms)
            mine = approve_successor(before.terms, terms, key, self.records)
            approvals = (*approved[:own], mine, *approved[own:])
            before.succeeded_by(terms, signatures, approvals)
        Pinned(terms, signatures, terms.keys)
        with self.store.begin() as transaction:
            row = changed = transaction.experiment(known.lineage, lock=True)
            transaction.save_terms(terms, signatures, approvals)
            if row.state is State.UNSIGNED:
                changed = replace(changed, state=State.RUNNING)
            if row.digest == terms.predecessor:
                experiment = _extend(load(row), known.participants)
                if answers.end_reason(row.state, experiment) is EndReason.LAST_DAY_PASSED:
                    changed = replace(changed, state=State.RUNNING)  # until the new last day
                experiment = _with_options(experiment, terms)
                changed = with_learner(replace(changed, digest=digest), experiment, terms)
            transaction.replace_experiment(row, changed)

    def pause(self, digest: bytes) -> None:
        """Plan no rounds and assign no slots until it is resumed; assigned slots still report."""
        self._set_state(digest, State.PAUSED, (State.RUNNING,))

    def resume(self, digest: bytes) -> None:
        """Continue after a pause, or after a wrong clock had passed the last day.

        An experiment that has really ended ends again.
        """
        self._set_state(digest, State.RUNNING, (State.PAUSED, State.FINISHED))

    def stop(self, digest: bytes) -> None:
        """End an experiment permanently; open rounds are finished."""
        self._set_state(digest, State.STOPPED, set(State).difference(ENDED))

    def _set_state(self, digest: bytes, state: State, before: Collection[State]) -> None:
        lineage = self.terms(digest).lineage
        with self.store.begin() as transaction:
            row = transaction.experiment(lineage, lock=True)
            if row.state is not state and row.state not in before:
                raise Conflict(
                    f"the experiment is {row.state}: must be {' or '.join(sorted(before))} to "
                    f"become {state}"
                )
            transaction.replace_experiment(row, replace(row, state=state))

    def _state(self, transaction: Transaction, known: Registered) -> State:
        """The experiment's state, read without loading the learner."""
        return transaction.head(known.lineage).state

    def running(self) -> list[bytes]:
        """The lineages of running experiments."""
        with self.store.read() as transaction:
            heads = transaction.heads()
        return [head.lineage for head in heads if head.state is State.RUNNING]

    def status(self, digest: bytes) -> dict[str, Any]:
        """State, rounds, participant counts, guarantee and terms."""
        return self._answer_from(digest, answers.status)

    def estimates(self, digest: bytes) -> dict[str, Any]:
        """Estimates of every option and the decision, in the units of the answer."""
        return self._answer_from(digest, answers.estimates)

    def export(self, digest: bytes) -> dict[str, Any]:
        """All data of an experiment; it derives from private sums only."""
        return self._answer_from(digest, answers.export)

    def view(self, digest: bytes) -> dict[str, Any]:
        """The data of the page for holders of the admin token. It changes with every participant
        who joins.
        """
        return self._answer_from(digest, answers.view)

    def public(self, digest: bytes) -> dict[str, Any]:
        """The data of the public page."""
        return self._answer_from(digest, answers.public)

    def listed(self) -> list[tuple[str, str, str]]:
        """Digest, question and state of every experiment, under its current terms."""
        with self.store.read() as transaction:
            known = [
                (transaction.terms(head.digest).terms, head.state) for head in transaction.heads()
            ]
        return sorted(
            ((terms.digest.hex(), terms.question, state) for terms, state in known),
            key=lambda one: (one[2] in ENDED, one[1], one[0]),
        )

    def _answer_from(self, digest: bytes, answer: Callable[[answers.Snapshot], T]) -> T:
        """An answer about the experiment with these terms."""
        seen = self._snapshot(digest)
        said = answer(seen)
        self.keep_experiment(seen.row, seen.experiment)
        return said

    def _snapshot(self, digest: bytes) -> answers.Snapshot:
        with self.store.read() as transaction:
            lineage = transaction.terms(digest).lineage
            row = transaction.experiment(lineage)
            served, waiting = transaction.served(lineage)
            return answers.Snapshot(
                transaction.terms(row.digest).terms,
                row,
                self.take_experiment(row),
                transaction.rounds_of(lineage),
                served,
                served - waiting,
            )

    @cached_property
    def _experiments(self) -> dict[bytes, tuple[str, Experiment]]:
        """Experiments by lineage, with the text that this process stored."""
        return {}

    def take_experiment(self, row: ExperimentRow) -> Experiment:
        """Take the experiment of a row out of the cache, or read it if the cache is stale.

        One thread at a time gets the one that is kept, and may change it.
        """
        stored, found = self._experiments.pop(row.lineage, ("", None))
        return load(row) if found is None or stored != row.learner else found

    def keep_experiment(self, row: ExperimentRow, experiment: Experiment) -> None:
        """Keep the experiment of a row that is stored, until it has ended."""
        if row.state not in ENDED:
            self._experiments[row.lineage] = row.learner, experiment

    # Slots

    def join(self, tickets: Sequence[Ticket]) -> list[Assigned | Rejected]:
        """Assign slots to tickets, in one transaction, or two if their shards of slots are full.

        Each slot is drawn from the free slots of all open rounds that are locked. When no slot is
        free, the ticket gets the best option so far and sends no report.
        """
        asked: dict[bytes, list[int]] = {}
        for n, ticket in enumerate(tickets):
            asked.setdefault(ticket.experiment, []).append(n)
        answered: dict[int, Assigned | Rejected] = {}
        for digest in sorted(asked):
            try:
                self.pinned(digest)
            except Rejected as reason:
                answered |= dict.fromkeys(asked.pop(digest), reason)
        for whole in (False, True):
            if asked:
                answered |= self._assign(tickets, asked, whole=whole)
                missing = {
                    digest: [n for n in mine if n not in answered] for digest, mine in asked.items()
                }
                asked = {digest: mine for digest, mine in missing.items() if mine}
        return [answered[n] for n in range(len(tickets))]

    def _assign(
        self, tickets: Sequence[Ticket], requests: Mapping[bytes, list[int]], *, whole: bool
    ) -> dict[int, Assigned | Rejected]:
        """Assign slots to tickets by experiment; tickets whose shards are full need `whole`."""
        answered: dict[int, Assigned | Rejected] = {}
        with self.store.begin() as transaction:
            for digest, mine in sorted(requests.items()):
                assigner = SlotAssigner(self, transaction, digest)
                slots = assigner.assign([tickets[n] for n in mine], whole=whole)
                answered |= {
                    n: slot
                    for n, slot in zip(mine, slots, strict=True)
                    if not isinstance(slot, NeedsAllShards)
                }
        return answered


def load(row: ExperimentRow) -> Experiment:
    """The experiment in a row."""
    return Experiment.from_dict(json.loads(row.learner))


def with_learner(row: ExperimentRow, experiment: Experiment, terms: Terms) -> ExperimentRow:
    """The row after the learner has changed, under the current terms."""
    best = experiment.best()
    leader = terms.options.index(best) if best in terms.options else 0
    return replace(row, learner=json.dumps(experiment.to_dict()), leader=leader)


def _with_options(experiment: Experiment, terms: Terms) -> Experiment:
    """The experiment under successor terms: new options are added, missing ones are removed for
    good.
    """
    learner = experiment.learner
    if experiment.options == terms.options:
        return experiment
    gone = learner.removed if isinstance(learner, Managed) else ()
    removed = {experiment.options[arm] for arm in gone}
    for option in terms.options:
        if option in removed:
            raise TacitError(f"option {option!r} was removed by earlier terms: choose a new name")
        if option not in experiment.options:
            experiment.add(option)
    for option in experiment.options:
        if option not in terms.options and option not in removed:
            experiment.remove(option)
    return experiment


def _extend(experiment: Experiment, participants: int | None) -> Experiment:
    """The experiment extended to this total number of participants; unchanged for None."""
    if participants not in (None, experiment.learner.horizon):
        experiment.extend(participants)
    return experiment


def check_fits(terms: Terms, experiment: Experiment) -> None:
    """Reject an experiment whose options, noise or round sizes do not match the terms."""
    if experiment.options != terms.options:
        raise TacitError(
            f"options of the experiment are {', '.join(experiment.options)}: must be "
            f"{', '.join(terms.options)}, the options of the terms"
        )
    trial = Experiment.from_dict(experiment.to_dict())
    for round_ in trial.propose():
        if round_.released:
            coordinator_engine(terms).codec(trial.open(round_), terms)
        least = terms.aggregation.minimum_batch_size
        if round_.released and round_.participants < least:
            raise TacitError(
                f"a round has {round_.participants} participants: must have at least {least}, the "
                "minimum batch size of the terms"
            )

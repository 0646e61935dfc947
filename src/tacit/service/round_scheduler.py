"""The coordinator's background work: plan, announce and close rounds, then update the learner.

A round passes through the stages `preparing`, `open` and `closing`, and ends as `opened` (released)
or `refused` (aborted). The stage determines the next message to the helper. Each message is durable
before it is sent and is sent again until it is answered. Every step is idempotent, and any process
of the coordinator can take it; leases select the one that does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby
from operator import attrgetter

import numpy as np

from tacit.aggregation.interface import UnknownRound, new_identity
from tacit.errors import Rejected, TacitError
from tacit.experiment import Experiment
from tacit.rounds.codecs import analyzed
from tacit.service import answers
from tacit.service.coordinator import Coordinator, with_learner
from tacit.service.errors import LOG
from tacit.service.failed_steps import AGAIN
from tacit.service.leases import Leads, everything
from tacit.service.party import SOON
from tacit.service.schema import NO_ARM, UNFINISHED, ExperimentRow, RoundRow, Stage, State
from tacit.service.timing import Timing
from tacit.service.trust_models.rounds import EndedRound, ReleasedView, RoundPlan
from tacit.terms import BY_POLICY, Terms
from tacit.types import Arm, Estimate, PublishedAssignment, Round

PAUSE = 5.0  # seconds between steps when idle

Loaded = tuple[ExperimentRow, Experiment]


def step(party: Coordinator, leads: Leads = everything) -> float:
    """Advance the experiments that this process leads as far as possible now.

    Returns the seconds until the next attempt. An unexpected error of an experiment is raised once
    all others have advanced.
    """
    wait = PAUSE
    planned, failed = {}, dict[bytes, Exception]()
    rows = party.live_rounds(*UNFINISHED)
    unfinished = {party.lineage(row.terms) for row in rows}
    running = party.running()
    mine = set(leads({*running, *unfinished}))
    for lineage in running:
        if lineage not in mine or lineage in unfinished:
            continue
        try:
            if found := _plan(party, lineage):
                planned[found[0].digest] = found
        except TacitError as problem:  # does not delay other experiments
            party.steps.report(f"experiment {lineage.hex()} failed to plan rounds", problem)
            wait = AGAIN
        except Exception as problem:
            failed[lineage] = problem
    if planned:
        rows = party.rounds(*UNFINISHED)
    rounds = sorted(
        (row for row in rows if party.lineage(row.terms) in mine.difference(failed)),
        key=attrgetter("terms", "number"),
    )
    for digest, group in groupby(rounds, attrgetter("terms")):
        try:
            batch = _Batch(party, digest, planned.get(digest))
            for row in group:
                wait = min(wait, party.steps.advance(batch.advance, row))
            batch.keep()
            if batch.ended:
                wait = min(wait, party.steps.advance(batch.learn, batch.ended[0][0]))
        except Exception as problem:  # such as one of an algorithm from outside tacit
            failed[digest] = problem
    if failed:
        raise next(iter(failed.values()))
    return wait


# Planning


def _plan(party: Coordinator, lineage: bytes) -> Loaded | None:
    """Store the learner's next rounds if no round is unfinished; None if there are none."""
    with party.store.begin() as transaction:
        row = transaction.experiment(lineage, lock=True)
        if row.state is not State.RUNNING or transaction.has_unfinished(lineage):
            return None
        if transaction.has_aborted_early(lineage, party.now):
            return None  # strangers who fill rounds with invalid reports open no others by that
        terms = transaction.terms(row.digest).terms
        if not _within_days(party.now, terms, _timing(row)):
            if party.now >= terms.first_second:  # no further round fits
                transaction.replace_experiment(row, replace(row, state=State.FINISHED))
            return None
        experiment = party.take_experiment(row)
        # Requests without a slot never reach the learner: anyone can send any number of them.
        transaction.settle_served(lineage)
        rounds = _next_rounds(experiment, terms.no_show)
        transaction.add_rounds(_planned_row(terms, experiment, round_) for round_ in rounds)
        state = State.RUNNING if rounds else State.FINISHED
        learned = with_learner(replace(row, state=state), experiment, terms)
        transaction.replace_experiment(row, learned)
    return (learned, experiment) if rounds else None


def _timing(row: ExperimentRow) -> Timing:
    return Timing(**json.loads(row.timing))


def _within_days(now: int, terms: Terms, timing: Timing) -> bool:
    """Whether the terms have begun and a round that begins now closes before they end."""
    closes = now + timing.joining + terms.answer.window + timing.margin
    return terms.first_second <= now and closes < terms.last_second


def _next_rounds(experiment: Experiment, no_show: Fraction) -> list[Round]:
    """The learner's next rounds to release; empty when the horizon is used up.

    Rounds without release are skipped. They use up the horizon only if no round is left to release:
    everyone else then gets the best option and is not asked.
    """
    while rounds := experiment.propose(no_show):
        released = [round_ for round_ in rounds if round_.released]
        for round_ in rounds:
            if not round_.released:
                experiment.skip(round_, 0 if released else None)
        if released:
            return released
    return []


def _planned_row(terms: Terms, experiment: Experiment, round_: Round) -> RoundRow:
    arm, option = NO_ARM, BY_POLICY
    if isinstance(round_.assignment, Arm):
        arm = round_.arm
        option = terms.options.index(experiment.options[arm])
    return RoundRow(
        identity=new_identity(),
        terms=terms.digest,
        stage=Stage.PREPARING,
        number=round_.number,
        arm=arm,
        option=option,
        slots=round_.participants,
    )


def _policy(round_: Round) -> bytes:
    """The policy by which devices of a round choose; empty where the round has one option."""
    assignment = round_.assignment
    return assignment.published() if isinstance(assignment, PublishedAssignment) else b""


@dataclass
class _Batch:
    """The unfinished rounds of one experiment during one step; all are under the same terms.

    The experiment is read at most once to describe the rounds, and once to learn from those that
    ended.
    """

    party: Coordinator
    digest: bytes
    loaded: Loaded | None
    ended: list[tuple[RoundRow, ReleasedView | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = self.party.engine(self.digest)

    def advance(self, row: RoundRow) -> float:
        """Advance one round; return the seconds until its next step."""
        now = self.party.now
        if row.stage is Stage.PREPARING:
            return self._announce(row)
        if row.stage is Stage.OPEN and not self.party.close_when_due(row, now):
            return min(max(float(row.closes - now), SOON), PAUSE)
        return self._close(row)

    def keep(self) -> None:
        """Keep the experiment, which no other thread may use before, for the next who needs it."""
        if self.loaded is not None:
            self.party.keep_experiment(*self.loaded)
            self.loaded = None

    # Announcing

    def _announce(self, row: RoundRow) -> float:
        """Have all parties sign a planned round, then open it.

        A round that is stale, or whose key this server no longer holds, is planned again.
        """
        try:
            described = row if row.announcement else self._describe(row)
            if described is None:  # another process was faster
                return SOON
            row = described
            if self.party.now > (row.assigned_until + row.started) // 2 + 1:
                raise Rejected("the helper did not sign it in time")
            signature = self.engine.endorse(row.announcement)
        except Rejected as reason:
            LOG.warning("round %s is planned again: %s", row.identity.hex(), reason)
            self._abandon(row)
            return AGAIN
        announcement = self.engine.announce(row.announcement, signature)
        with self.party.store.begin() as transaction:
            released = replace(row, stage=Stage.OPEN, announcement=announcement)
            transaction.replace_round(row, released)
        return SOON

    def _describe(self, row: RoundRow) -> RoundRow | None:
        """Store the description of a planned round before anyone signs it.

        Returns the described round, or None if another process stored a description first.
        """
        party = self.party
        if self.loaded is None:
            with party.store.read() as transaction:
                stored = transaction.experiment(party.lineage(self.digest))
            self.loaded = stored, party.take_experiment(stored)
        experiment, timing = self.loaded[1], _timing(self.loaded[0])
        terms = party.pinned(self.digest).terms
        round_ = _round_of_row(experiment, row)
        start, grace = party.now, min(timing.grace, terms.grace)
        closes = start + timing.joining + terms.answer.window + timing.margin
        plan = RoundPlan(
            identity=row.identity,
            option=row.option,
            slots=round_.participants,
            protocol=experiment.open(round_),
            assigned_until=start + timing.joining,
            closes=closes,
            grace=grace,
            policy=_policy(round_),
        )
        described = self.engine.describe(plan)
        changed = replace(
            row,
            announcement=described.encode(),
            started=start,
            assigned_until=described.assigned_until,
            closes=closes,
            expires=closes + grace,
        )
        with party.store.begin() as transaction:
            return changed if transaction.replace_round(row, changed) else None

    def _abandon(self, row: RoundRow) -> None:
        """Abort a round that no participant has joined and plan it again under a new identity.

        A round that another process has released meanwhile is left alone.
        """
        anew = replace(row, identity=new_identity(), announcement=b"")
        with self.party.store.begin() as transaction:
            if transaction.replace_round(row, anew):
                self.engine.abandon(row.identity)

    # Closing

    def _close(self, row: RoundRow) -> float:
        """Advance a closing round; its view is learned from once it is over."""
        try:
            ended = self.engine.close(row, self.party.serving(row))
        except UnknownRound as reason:
            LOG.error("round %s is aborted: %s", row.identity.hex(), reason)
            ended = EndedRound(None)
        if ended is None:
            return AGAIN
        self.ended.append((row, ended.view))
        return SOON

    def learn(self, _first: RoundRow) -> float:
        """End closed rounds and update the learner with their aggregates, in one transaction."""
        party = self.party
        terms = party.pinned(self.digest).terms
        with party.store.begin() as transaction:
            stored = transaction.experiment(party.lineage(self.digest), lock=True)
            experiment, history = party.take_experiment(stored), json.loads(stored.history)
            by_identity = sorted(
                self.ended, key=lambda one: one[0].identity
            )  # as reports lock them
            proposed = {one.number: one for one in experiment.propose()}
            mine = []
            for closing, view in by_identity:
                if closing.number not in proposed:  # another process has ended it
                    continue
                estimate = self._estimated(experiment, proposed[closing.number], closing, view)
                stage = Stage.ABORTED if estimate is None else Stage.RELEASED
                if ended := party.finish(transaction, closing, stage):  # not by another process
                    mine.append((ended, None if estimate is None else view, estimate))
            for row, view, estimate in sorted(mine, key=lambda one: one[0].number):
                round_ = proposed[row.number]
                reports, total = 0, None
                if view is None or estimate is None:
                    experiment.skip(round_, 0)  # only released reports use up the horizon
                else:
                    experiment.observe(round_, estimate)
                    reports, total = view.reports, json.dumps(np.ravel(estimate.total).tolist())
                transaction.replace_round(row, replace(row, reports=reports, total=total))
                history.append(answers.moment(party.now, terms, experiment, round_, view))
            current = transaction.terms(stored.digest).terms
            new = with_learner(stored, experiment, current)
            transaction.replace_experiment(stored, replace(new, history=json.dumps(history)))
        party.keep_experiment(new, experiment)
        return SOON

    def _estimated(
        self, experiment: Experiment, round_: Round, row: RoundRow, view: ReleasedView | None
    ) -> Estimate | None:
        """The estimate from a released view; None without one, or if the view is useless.

        One invalid message makes all additive shares of a round useless.
        """
        if view is None:
            return None
        terms = self.party.pinned(self.digest).terms
        way = self.engine.codec(experiment.open(round_), terms)
        try:
            return analyzed(way, view)
        except TacitError as reason:
            LOG.warning("round %s is aborted: %s", row.identity.hex(), reason)
            return None


def _round_of_row(experiment: Experiment, row: RoundRow) -> Round:
    """The learner's round of a row."""
    return next(one for one in experiment.propose() if one.number == row.number)

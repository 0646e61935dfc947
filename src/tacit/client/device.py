"""Device of one participant without network I/O: its requests and the handling of the replies.

The device verifies terms against the keys pinned by the app, and each round against the terms,
before it draws any randomness. Then it fixes the sending time. Answers stay on the device until
that time; encryption and the privacy charge are one transaction. The device sends each report share
until its server accepts it or the deadline passes. `http` and `aio` add the network.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from tacit.aggregation import ReportSlot, RoundOutcome
from tacit.aggregation.announcements import LiveRound
from tacit.aggregation.interface import SYSTEM, Source
from tacit.aggregation.two_servers import read_outcome
from tacit.client.choices import Context, check_context, choose, plays_of
from tacit.client.entries import (
    AcceptedSlot,
    Delivery,
    DueTimes,
    KnownTerms,
    OpenParticipation,
    ParticipationOutcome,
    PartySpending,
    Receipt,
    Slot,
    TermsForConsent,
)
from tacit.client.exchange import (
    Conversation,
    Reply,
    Request,
    bytes_of,
    document,
    text_of,
    unhex,
)
from tacit.client.invitations import without_secret
from tacit.client.ledger import Ledger
from tacit.client.levels import Outcome, levels_of, levels_of_plays
from tacit.client.pins import Acceptance, Pins
from tacit.client.published_terms import PublishedTerms, coordinator_of
from tacit.client.report_schedule import (
    MOST_QUESTIONS,
    SEED_SIZE,
    Attempt,
    RequestSchedule,
    check_times,
)
from tacit.client.trust_models import reporter
from tacit.errors import Rejected, TacitError, Unavailable, require
from tacit.terms import BY_POLICY, DIGEST_SIZE, FittedTerms, Pinned, Terms, in_words

MOST_ABORTED = 3  # aborted or unresolved rounds of one experiment
NONCE_SIZE = 16
UNASKED = 60.0  # minimum seconds that an option without a report stays assigned
_SUCCEEDED = 409  # slots are assigned under successor terms now
_FINAL = (403, 409, 410, 413, 422)  # statuses of a permanently rejected report share


class Unset(Enum):
    """Sentinel type: no value was given, not even None."""

    UNSET = "unset"


UNSET = Unset.UNSET

Experiment = bytes | str
"""Identifier of an experiment: the digest of its terms, as bytes or hexadecimal."""


class Unagreed(Rejected):
    """The participant must agree to these terms first.

    Raised if the question, options, organisation or purpose changed, or after a withdrawal. Show
    `words`, and call `agree(digest)` if the participant wants to take part.

    Attributes
    ----------
    digest : bytes
        Digest of the terms.
    words : list of str
        The terms in plain sentences.
    """

    def __init__(self, terms: Terms) -> None:
        super().__init__(
            f"terms {terms.digest.hex()} were not agreed to on this device. Show them, and call "
            "agree() with this digest if the participant wants to take part"
        )
        self.digest, self.words = terms.digest, in_words(terms)


@dataclass(frozen=True, repr=False)
class _SlotRequest:
    """A request for a slot: its time, and what it was made with. The context is never sent."""

    now: float
    invitation: str | None
    context: Context | None


class DeviceCore:
    """Device logic shared by `Device` and `AsyncDevice`; performs no network I/O.

    Parameters
    ----------
    ledger : Ledger
        The participant's ledger.
    pins : Pins
        Address of the coordinator and the long-term keys of both servers.
    limit : Fraction or None, optional
        The participant's own limit of ε over all experiments of the ledger. It only ever lowers
        the limit in force, which is `OWN_LIMIT` = 8 if none was set; None lowers nothing.
        `Ledger.set_own_limit` raises the limit or switches it off.
    accept : Acceptance
        Trust models that the participant accepts; the device joins no weaker one.
    clock : callable
        Returns seconds since 1970; replaced in tests.
    source : callable
        Randomness of nonces and schedules; replaced in tests.

    Raises
    ------
    TacitError
        An argument has another type, such as a path in place of the ledger.
    """

    def __init__(
        self,
        ledger: Ledger,
        pins: Pins,
        *,
        limit: Fraction | Unset | None = UNSET,
        accept: Acceptance = Acceptance(),  # noqa: B008 - a frozen value
        clock: Callable[[], float] = time.time,
        source: Source = SYSTEM,
    ) -> None:
        _check_type("ledger", ledger, Ledger, "Give Ledger(path)")
        _check_type("pins", pins, Pins, "Give Pins(**built_in['pins']), as in app.json")
        _check_type("accept", accept, Acceptance, "Give Acceptance(...)")
        self.ledger, self.pins = ledger, pins
        if not isinstance(limit, Unset):
            ledger.lower_own_limit(limit)
        self._accept, self._clock, self._source = accept, clock, source
        self._terms = PublishedTerms(ledger, pins, clock)

    # Local operations

    def record(self, experiment: Experiment, value: Outcome) -> bool:
        """Record an outcome on the device, replacing an earlier one; sends nothing.

        Parameters
        ----------
        experiment : bytes or str
            Digest of the terms.
        value : number, or mapping of metric to number
            The answer, within the range of the terms. It is rounded to a level at random, without
            bias. With `Slot.plays`: a mapping of options that were tried to their answer, a list of
            them for an option that is tried several times.

        Returns
        -------
        bool
            False if no answer is expected: there is no participation, or its report is already
            encrypted.

        Raises
        ------
        TacitError
            The value is out of range, or a metric is unknown or missing.
        """
        digest = _digest(experiment)
        with self.ledger.together():
            known = self.ledger.known(digest)
            if known is None:
                return False
            answer = known.pinned.terms.answer
            if isinstance(known.pinned.terms.context, FittedTerms):
                plays = self._plays(known)
                return bool(plays) and self.ledger.record(
                    digest, levels_of_plays(answer, plays, value)
                )
            levels = levels_of(answer, value)
            last = {metric - len(answer.metrics): level for metric, level in levels.items()}
            return self.ledger.record(digest, last)

    def agree(self, experiment: Experiment) -> None:
        """Record that the participant was shown these terms and agrees to take part."""
        self.ledger.agree(_digest(experiment))

    def withdraw(self, experiment: Experiment) -> None:
        """Leave the experiment: delete unsent reports and join no round before `agree`.

        Nothing is refunded.
        """
        with self.ledger.together():
            before = self.ledger.running()
            self.ledger.withdraw(_digest(experiment))
            kept = {one.identity for one in self.ledger.running()}
        for one in before:
            if one.identity not in kept:
                reporter(one.pinned.terms).forget(one)

    def status(self) -> list[Receipt]:
        """Receipts of all participations of this device: bytes sent, servers and cost."""
        return self.ledger.receipts()

    def overview(self) -> list[PartySpending]:
        """Privacy budget spent, grouped by the parties of the experiments."""
        return self.ledger.overview()

    def known_terms(self, experiment: Experiment) -> Terms | None:
        """The latest terms of an experiment known to this device; None if there are none."""
        known = self.ledger.known(_digest(experiment))
        return None if known is None else known.pinned.terms

    # Terms

    def fetch_terms(self, experiment: Experiment) -> Conversation[TermsForConsent]:
        """Requests of `Device.terms`: fetch the terms, check them and return them for consent."""
        digest = _digest(experiment)
        known = yield from self._terms.up_to_date(digest, self.ledger.known(digest))
        terms = known.pinned.terms
        return TermsForConsent(terms, in_words(terms), bool(known.agreed) and not known.withdrawn)

    # AcceptedSlot

    def join_round(
        self,
        experiment: Experiment,
        invitation: str | None = None,
        context: Context | None = None,
    ) -> Conversation[Slot]:
        """Requests of `Device.join` and `Device.choose`: return the current assignment, or join a
        round.

        Parameters
        ----------
        experiment : bytes or str
            The digest of the experiment's terms, as bytes or hexadecimal digits.
        invitation : str, optional
            The invitation, where the experiment admits by invitation.
        context : Context, optional
            The participant's own context, which stays on the device.

        Returns
        -------
        Conversation of Slot
            Requests to send, and finally the assignment.
        """
        digest = _digest(experiment)
        known = self.ledger.known(digest)
        if known is not None and known.option is not None and self._clock() < known.until:
            return self._stored_assignment(known)
        known = yield from self._terms.up_to_date(digest, known)
        check_context(known.pinned.terms, context)
        if known.agreed is None and not known.withdrawn:
            with self.ledger.together():
                self.ledger.agree(digest, returns=False)  # the first join counts as agreement
                known = self._known(digest)
        with self.ledger.together():
            spent = self._nothing_left(known, invitation)
            if spent is not None:
                return _last_option(known, spent)
            nonce = self.ledger.nonce(known.pinned.terms.digest, self._source(NONCE_SIZE))
        now = self._clock()  # time of the request: a slow reply does not make the device late
        reply = yield _asking(known.pinned.terms, nonce, invitation)
        if reply.status == _SUCCEEDED:
            fetched = yield from self._terms.fetch(digest)
            if fetched.pinned != known.pinned:
                return (yield from self.join_round(digest, invitation, context))
        return self._accept_assignment(known.pinned, reply, _SlotRequest(now, invitation, context))

    def _nothing_left(self, known: KnownTerms, invitation: str | None) -> Rejected | None:
        """The limit that is reached while an experiment runs, or None.

        After the end of an experiment, participants get the best option without a report, so no
        limit applies.
        """
        _check_willing(known, invitation)
        self._accept.check(known.pinned.terms)
        try:
            terms = known.pinned.terms
            self.ledger.check_budget(terms.digest, reporter(terms).least_cost(terms))
        except Rejected as reached:
            return reached if known.state in ("running", "paused") else None
        return None

    def _accept_assignment(self, pinned: Pinned, reply: Reply, request: _SlotRequest) -> Slot:
        """Accept the coordinator's assignment, or reject it and discard the nonce."""
        try:
            found = document(reply, "the coordinator")
            asked = found.get("asked")
            require(isinstance(asked, bool), "asked", repr(asked), "true or false", Rejected)
            option = _option(pinned.terms, found)
            announcement = b""
            if asked or option is None:
                announcement = bytes_of(found, "announcement", "the coordinator")
            if asked:
                return self._check_round(pinned, announcement, _slot(found), option, request)
            if option is None:
                announced = reporter(pinned.terms).announced(pinned, announcement)
                option = choose(pinned.terms, announced.binding, request.context).option
        except Unavailable:
            raise  # the retry uses the same nonce and gets the same slot
        except TacitError:
            self.ledger.forget_nonce(pinned.terms.digest)
            raise
        until = request.now + max(float(pinned.terms.answer.window), UNASKED)
        with self.ledger.together():
            self.ledger.keep_option(pinned.terms.digest, option, request.now, until)
            return self._stored_assignment(self._known(pinned.terms.digest))

    def _check_round(
        self,
        pinned: Pinned,
        announcement: bytes,
        slot: ReportSlot,
        option: str | None,
        request: _SlotRequest,
    ) -> Slot:
        """Check a round against the terms and the clock before drawing any randomness."""
        model, now = reporter(pinned.terms), request.now
        announced = model.announced(pinned, announcement)
        cost = model.cost(pinned, announced)
        check_times(announced, now)
        number = announced.binding.option
        named = None if number == BY_POLICY else pinned.terms.options[number]
        require(named == option, "option of the round", repr(named), f"{option!r}", Rejected)
        rule = f"below {announced.slots}, the slots of the round"
        require(slot.number < announced.slots, "slot", slot.number, rule, Rejected)
        with self.ledger.together():
            self.ledger.check_round(pinned.terms.digest, announced.identity, slot, cost, now)
            seed = self._source(SEED_SIZE)
            chosen = choose(pinned.terms, announced.binding, request.context)
            self.ledger.join(
                AcceptedSlot(
                    announced.identity,
                    pinned.terms.digest,
                    chosen.option,
                    cost,
                    announcement,
                    slot,
                    seed,
                    now,
                    RequestSchedule.of(announced, now, seed).first_send,
                    float(announced.binding.closes),
                    chosen.levels,
                    request.invitation,
                    pinned.terms.delta_cost,
                )
            )
            return self._stored_assignment(self._known(pinned.terms.digest))

    def _stored_assignment(self, known: KnownTerms) -> Slot:
        """The assignment in the ledger, perhaps that of another process."""
        assert known.option is not None
        asked, digest = known.reports_at is not None, known.pinned.terms.digest
        return Slot(known.option, asked, known.reports_at, digest, self._plays(known))

    def _plays(self, known: KnownTerms) -> tuple[str, ...]:
        """The options to try, while their answers are awaited."""
        terms = known.pinned.terms
        if not isinstance(terms.context, FittedTerms):
            return ()
        mine = self.ledger.waiting(terms.digest)
        return plays_of(mine.pinned.terms, self._announced(mine).binding) if mine else ()

    # Reporting

    def send_due(self) -> Conversation[DueTimes]:
        """Requests of `Device.run_due`: encrypted reports and queries of outcomes that are due."""
        waiting, advanced = self.ledger.running(), False
        for running in waiting:
            try:
                advanced |= yield from self._advance(running)
            except Rejected:  # a limit was lowered or the file altered: send nothing
                self.ledger.end(running.identity, ParticipationOutcome.STOPPED)
                advanced = True
        if advanced:
            waiting = self.ledger.running()
        reports = [when for one in waiting for when in self._reports_due(one)]
        outcomes = [when for one in waiting for when in self._outcomes_due(one)]
        return DueTimes(min(reports, default=None), min(outcomes, default=None))

    def _advance(self, participation: OpenParticipation) -> Conversation[bool]:
        """Advance one participation as far as possible now; return whether anything was due."""
        closes = self._announced(participation).binding.closes
        if participation.levels is not None:
            if self._clock() < self._pace(participation).first_send:
                return False
            if self._clock() >= closes:
                self.ledger.end(participation.identity, ParticipationOutcome.MISSED)
                return True
        with self.ledger.together():
            self.ledger.charge(participation.identity, reporter(participation.pinned.terms).encode)
            deliveries = self.ledger.deliveries(participation.identity)
        for post in deliveries:
            yield from self._send(participation, post, closes)
        if self._clock() >= closes:
            terms = participation.pinned.terms
            url = f"{coordinator_of(terms).rstrip('/')}/rounds/{participation.identity.hex()}"
            if not (yield from self._stages(participation, url)):
                self.ledger.expire(participation.identity)
                yield from self._query_outcome(participation)
        return True

    def _stages(self, participation: OpenParticipation, url: str) -> Conversation[bool]:
        """Answer stages; none is asked or answered once the participant has left."""
        model = reporter(participation.pinned.terms)
        conversation = model.stages(participation, url, self._clock())
        try:
            request = next(conversation)
            while self.ledger.deliveries(participation.identity):
                request = conversation.send((yield request))
        except StopIteration as done:
            return bool(done.value)
        model.forget(participation)
        return False

    def _send(
        self, participation: OpenParticipation, post: Delivery, closes: int
    ) -> Conversation[None]:
        if post.encrypted is None or not self._claim(participation, post, Attempt.REPORT, closes):
            return
        headers = [("Content-Type", "application/octet-stream")]
        if participation.invitation:
            helped = post.role == participation.pinned.terms.helper
            shown = participation.invitation if helped else without_secret(participation.invitation)
            headers.append(("Tacit-Invitation", shown))
        url = f"{_round_url(participation, post)}/reports/{participation.slot.number}"
        reply = yield Request("PUT", url, post.encrypted, tuple(headers))
        if 200 <= reply.status < 300:
            self.ledger.accepted(post, self._clock())
        elif reply.status in _FINAL:
            self.ledger.rejected(post, f"rejected: {reply.error_text}")

    def _query_outcome(self, participation: OpenParticipation) -> Conversation[None]:
        """Query the round's outcome; a refund needs the signatures that the trust model demands."""
        for post in self.ledger.deliveries(participation.identity):
            if _questions_left(post) and self._claim(participation, post, Attempt.OUTCOME):
                reply = yield Request("GET", f"{_round_url(participation, post)}/outcome")
                if reply.status == 200 and self._final(participation, post, reply.content):
                    self.ledger.keep_outcome(post, reply.content)
        posts = self.ledger.deliveries(participation.identity)
        words = [post.outcome for post in posts if post.outcome is not None]
        said = {
            read_outcome(participation.pinned, self._announced(participation), word)[1]
            for word in words
        }
        if RoundOutcome.RELEASED in said:
            self.ledger.end(participation.identity, ParticipationOutcome.RELEASED)
        elif posts and not any(map(_questions_left, posts)):
            model = reporter(participation.pinned.terms)
            refund = model.refunds(participation.pinned, participation.announcement, words)
            aborted = RoundOutcome.ABORTED in said
            outcome = ParticipationOutcome.ABORTED if aborted else ParticipationOutcome.UNKNOWN
            self.ledger.end(participation.identity, outcome, refund=refund)

    def _final(self, participation: OpenParticipation, post: Delivery, message: bytes) -> bool:
        """Whether this is a valid signed outcome of that server other than `UNKNOWN`."""
        try:
            role, said = read_outcome(participation.pinned, self._announced(participation), message)
        except Rejected:
            return False
        return role == post.role and said is not RoundOutcome.UNKNOWN

    # Times

    def seconds_until(self, time: float | None) -> float | None:
        """Seconds until a time, at least 0; None for None."""
        return None if time is None else max(0.0, time - self._clock())

    def _reports_due(self, participation: OpenParticipation) -> list[float]:
        """Times of the next attempts to send report shares."""
        pace, closes = self._pace(participation), self._announced(participation).binding.closes
        if participation.levels is not None:
            return [pace.first_send]
        times = [
            pace.next_attempt(Attempt.REPORT, post.role, *post.attempts[Attempt.REPORT])
            for post in participation.deliveries
            if post.encrypted is not None
        ]
        stage = reporter(participation.pinned.terms).stage_due(participation)
        return [when for when in times if when < closes] + ([] if stage is None else [stage])

    def _outcomes_due(self, participation: OpenParticipation) -> list[float]:
        """Times of the next outcome queries."""
        pace = self._pace(participation)
        return [
            pace.next_attempt(Attempt.OUTCOME, post.role, *post.attempts[Attempt.OUTCOME])
            for post in participation.deliveries
            if _questions_left(post)
        ]

    def _claim(
        self,
        participation: OpenParticipation,
        post: Delivery,
        attempt: Attempt,
        until: float = float("inf"),
    ) -> bool:
        """Whether an attempt is due and this process claimed it."""
        now, (attempts, last) = self._clock(), post.attempts[attempt]
        due = self._pace(participation).next_attempt(attempt, post.role, attempts, last)
        return due <= now < until and self.ledger.claim(post, attempt, now)

    def _known(self, digest: bytes) -> KnownTerms:
        known = self.ledger.known(digest)
        assert known is not None
        return known

    def _announced(self, participation: OpenParticipation) -> LiveRound:
        return reporter(participation.pinned.terms).announced(
            participation.pinned, participation.announcement
        )

    def _pace(self, participation: OpenParticipation) -> RequestSchedule:
        return RequestSchedule.of(
            self._announced(participation), participation.joined, participation.seed
        )


def _round_url(participation: OpenParticipation, post: Delivery) -> str:
    return f"{post.address.rstrip('/')}/rounds/{participation.identity.hex()}"


def _questions_left(post: Delivery) -> bool:
    return post.outcome is None and post.attempts[Attempt.OUTCOME][0] < MOST_QUESTIONS


def _last_option(known: KnownTerms, spent: Rejected) -> Slot:
    """Keep the last option if the terms still have it; otherwise raise the reached limit."""
    terms, option = known.pinned.terms, known.option
    if option in terms.options:
        return Slot(option, False, None, terms.digest)
    raise Rejected(f"{spent}. The device takes no further part in this experiment")


def _check_willing(known: KnownTerms, invitation: str | None) -> None:
    """Reject before requesting a slot that would not be used."""
    if not known.agreed or known.withdrawn:
        raise Unagreed(known.pinned.terms)
    rule = f"below {MOST_ABORTED}. The device joins no further round of this experiment"
    few = known.aborted < MOST_ABORTED
    require(few, "number of aborted or unresolved rounds", known.aborted, rule, Rejected)
    if known.pinned.terms.admission == "invitation" and not invitation:
        raise Rejected("invitation is missing: admission is by invitation. Pass it to join()")


def _asking(terms: Terms, nonce: bytes, invitation: str | None) -> Request:
    shown = {"invitation": without_secret(invitation)} if invitation else {}
    asked = {"nonce": nonce.hex()} | shown
    return Request(
        "POST",
        f"{coordinator_of(terms).rstrip('/')}/experiments/{terms.digest.hex()}/places",
        json.dumps(asked).encode(),
        (("Content-Type", "application/json"),),
    )


def _check_type(name: str, value: object, kind: type, remedy: str) -> None:
    if not isinstance(value, kind):
        raise TacitError(f"{name} is {value!r}: must be of type {kind.__name__}. {remedy}")


def _digest(experiment: Experiment) -> bytes:
    digits = experiment.hex() if isinstance(experiment, bytes) else experiment
    rule = "the digest of its terms, 64 hexadecimal digits, as in app.json"
    fits = isinstance(digits, str) and len(digits) == 2 * DIGEST_SIZE
    require(fits, "experiment", repr(digits), rule)
    return unhex(digits, "experiment")


def _option(terms: Terms, reply: dict[str, object]) -> str | None:
    """The assigned option; None where the device chooses."""
    if terms.context is not None and reply.get("option") is None:
        return None
    option = text_of(reply, "option", "the coordinator")
    known = option in terms.options
    require(known, "option", repr(option), "one of the options of the terms", Rejected)
    return option


def _slot(reply: dict[str, object]) -> ReportSlot:
    number = reply.get("place")
    if isinstance(number, bool) or not isinstance(number, int):
        raise Rejected(f"slot of the coordinator is {number!r}: must be a whole number")
    return ReportSlot(number, bytes_of(reply, "token", "the coordinator"))

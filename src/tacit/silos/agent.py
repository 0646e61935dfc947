"""A silo's agent: it decides, keeps records, and answers the coordinator's messages.

The agent holds everything about participants. A record enters one row, after its outcome is known;
a row's noise is drawn once, and its noisy message is on disk before anything is sent. Reports go
out when the terms say so. The agent checks every message against the terms and answers a repeated
message with the same bytes.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.errors import Rejected, TacitError, Unavailable, require
from tacit.protocols.prefix_encoder import Encoder
from tacit.records import Records
from tacit.signatures import fingerprint, public_key
from tacit.silos.database import CommittedRow, SiloDatabase, StoredDecision
from tacit.silos.evaluation import FIRST, EvaluationRequest, PinnedEvaluation, check_number
from tacit.silos.exported import ExportedPolicy
from tacit.silos.federation import PinnedFederation
from tacit.silos.messages import (
    COORDINATOR,
    SiloMessage,
    SyncStage,
    pack_survivors,
    read_survivors,
)
from tacit.silos.policies import PolicyActor, decode_policy, export_policy, sum_records
from tacit.silos.recorded import RecordedTable
from tacit.silos.silo_masking import SiloMasking
from tacit.types import Floats

Context = Mapping[str, Any] | Sequence[Sequence[float]]


@dataclass(frozen=True)
class SiloDecision:
    """A decision for one participant.

    Parameters
    ----------
    id, action : str
        Its name when the outcome is recorded, and the action to take: an index as text where
        actions have no names.
    estimate, width : float
        The estimated mean reward of the action and its confidence width.
    """

    id: str
    action: str
    estimate: float
    width: float


@dataclass(frozen=True)
class SiloIdentity:
    """Whose agent it is: the signed terms, the silo's name in them, and its long-term key."""

    pinned: PinnedFederation
    name: str
    key: Ed25519PrivateKey

    def __post_init__(self) -> None:
        own, named = public_key(self.key), self.pinned.terms.silos[self.number].key
        rule = f"{fingerprint(named)}, which the terms name for {self.name}"
        require(own == named, "key of the silo", fingerprint(own), rule)

    def __repr__(self) -> str:
        return f"SiloIdentity({self.name})"

    @property
    def number(self) -> int:
        """The silo's number in the terms."""
        return self.pinned.terms.number(self.name)


@dataclass(frozen=True, eq=False)
class RecordedEvaluations:
    """Recorded data of a silo, and the budget of all evaluations of it together."""

    table: RecordedTable
    epsilon: Fraction
    delta: Fraction

    def check_budget(self, requests: Sequence[EvaluationRequest]) -> None:
        """Reject evaluations that together cost more (basic composition)."""
        for name, most in (("epsilon", self.epsilon), ("delta", self.delta)):
            spent = sum((vars(one)[name] for one in requests), Fraction(0))
            rule = f"at most {most}, the budget of this silo"
            require(spent <= most, f"{name} of all evaluations", spent, rule, Rejected)


class SiloAgent:
    """The agent of one silo.

    Parameters
    ----------
    identity : SiloIdentity
        Terms, name and key.
    database : SiloDatabase
        The silo's own database.
    records : Records
        Records outside of backups: which message a row has.
    clock : callable
        Seconds since 1970; reports are rejected before they are due.
    recorded : RecordedEvaluations, optional
        Recorded data that may be evaluated, and the budget for it.
    """

    def __init__(
        self,
        identity: SiloIdentity,
        database: SiloDatabase,
        records: Records,
        clock: Callable[[], float] = time.time,
        recorded: RecordedEvaluations | None = None,
    ) -> None:
        self.identity, self.terms = identity, identity.pinned.terms
        self._sums = identity.pinned.derived
        self._own = self._sums.sums.of(identity.number)
        self._database, self._records, self._clock = database, records, clock
        self._recorded = recorded
        self._lock = threading.RLock()
        self._masking: SiloMasking | None = None
        self._actor: tuple[int, PolicyActor] | None = None
        self._position = 0

    # Decisions

    def decide(self, context: Context) -> SiloDecision:
        """Decide for one participant and store the decision.

        Parameters
        ----------
        context : mapping, or one row of features per action
            As the terms declare it.

        Returns
        -------
        SiloDecision

        Raises
        ------
        TacitError
            If the context is not as declared; `Unavailable` if no policy has arrived yet.
        """
        with self._lock:
            step, actor = self._current()
            proposal = actor.propose(self.terms.context.table(context), self._position)
            identity, chosen = secrets.token_hex(16), proposal.action
            with self._database.transaction():
                self._database.add_decision(
                    StoredDecision(identity, step, proposal.features, chosen)
                )
            self._position += 1
        names = self.terms.context.actions
        return SiloDecision(
            identity,
            names[chosen] if names else str(chosen),
            float(proposal.estimates[chosen]),
            float(proposal.widths[chosen]),
        )

    def record(
        self, decision: SiloDecision | str, outcome: float, action: str | None = None
    ) -> None:
        """Record the outcome of a decision, once; the record waits for its synchronisation.

        Parameters
        ----------
        decision : SiloDecision or str
            The decision, or its id.
        outcome : float
            The outcome as the terms measure it; it becomes a reward in [0, 1].
        action : str, optional
            What was really done, where it was not what was proposed.

        Raises
        ------
        TacitError
            If the decision is unknown, or another outcome was recorded for it.
        """
        identity = decision if isinstance(decision, str) else decision.id
        reward = self.terms.reward.reward(outcome)
        with self._lock:
            found = self._database.decision(identity)
            if found is None:
                raise TacitError(f"decision is {identity!r}: must be one that decide returned")
            taken = found.proposed if action is None else self._action(action, found)
            if found.reward is not None:
                if (found.taken, found.reward) != (taken, reward):
                    raise TacitError(
                        f"decision {identity} has an outcome already: it enters a synchronisation "
                        "as it was first recorded"
                    )
                return
            with self._database.transaction():
                self._database.set_outcome(identity, taken, reward)

    def _action(self, action: str, decision: StoredDecision) -> int:
        if self.terms.context.actions:
            return self.terms.context.action(action)
        count = len(decision.features)
        within = action.isdecimal() and int(action) < count
        require(within, "action", repr(action), f"a number below {count}")
        return int(action)

    def _current(self) -> tuple[int, PolicyActor]:
        """The newest policy."""
        if self._actor is None:
            found = self._database.policy()
            if found is None:
                raise Unavailable("no policy has arrived yet: wait for the coordinator's first one")
            policy = self._decoded(found[1])
            self._actor = found[0], PolicyActor(policy)
            self._position = self._database.made(found[0])
        return self._actor

    def _decoded(self, content: bytes) -> LinUCBPolicy:
        """A policy of the terms."""
        return decode_policy(content, self._sums.policy, max(self.terms.batches))

    # What stays inside the silo

    def status(self) -> dict[str, Any]:
        """The state of the silo, for its own staff: it never leaves the silo."""
        with self._lock:
            found, rows = self._database.policy(), self._database.rows()
            counts, evaluations = self._database.counts(), self._database.evaluations()
        steps = len(self.terms.batches)
        charged = [EvaluationRequest.decode(one) for one, sent in evaluations.values() if sent]
        epsilon = sum((one.epsilon for one in charged), Fraction(0))
        delta = sum((one.delta for one in charged), Fraction(0))
        step = None if found is None else found[0]
        return {
            "silo": self.identity.name,
            "terms": self.terms.digest.hex(),
            "policy": step,
            "rows": len(rows),
            "of": steps,
            "finished": step is not None and step >= steps,
            "next_due": None if len(rows) >= steps else self.terms.due(len(rows)),
            **counts,
            "waiting": counts["outcomes"] - counts["synchronised"],
            "evaluations": len(charged),
            "epsilon_of_evaluations": str(epsilon),
            "delta_of_evaluations": str(delta),
        }

    def export(self) -> ExportedPolicy:
        """The newest policy, for use without an agent."""
        with self._lock:
            step, actor = self._current()
        return export_policy(self.terms.context, actor.policy, step)

    # Synchronisation

    def respond(self, stage: str, message: bytes) -> bytes:  # noqa: ARG002
        """Answer a coordinator's message; reject anything that the terms do not cover.

        Parameters
        ----------
        stage : str
            The engine's name of the stage; the signed message decides.
        message : bytes
            The coordinator's message.

        Returns
        -------
        bytes
            The signed answer; the same for the same message.

        Raises
        ------
        Rejected
            If the message is forged, out of order, too early, or weaker than the terms.
        """
        with self._lock:
            asked = SiloMessage.decode(message, self.terms)
            to_us = asked.sender == COORDINATOR and asked.recipient == self.identity.number + 1
            parties = (asked.sender, asked.recipient)
            rule = f"from 0, the coordinator, to {self.identity.number + 1}"
            require(to_us, "direction of the message", parties, rule, Rejected)
            answer = _HANDLERS[asked.stage](self, asked)
            return asked.answer(answer).encode(self.identity.key)

    def _take_policy(self, message: SiloMessage) -> bytes:
        """Store a released policy, once per step."""
        policy = self._decoded(message.payload)
        found = self._database.policy()
        if found is not None and message.step <= found[0]:
            if (message.step, message.payload) != found:
                raise Rejected(
                    f"policy is of step {message.step}: step {found[0]} has one already, and a "
                    "step has one policy"
                )
            return b""
        steps = len(self.terms.batches)
        require(
            message.step <= steps, "step of the policy", message.step, f"at most {steps}", Rejected
        )
        rows = self._database.rows()
        absent = message.step - len(rows)
        if absent > 0 and not self.terms.missing:
            raise Rejected(
                f"policy is of step {message.step}, but row {len(rows)} of this silo was never "
                "asked for: under these terms every row needs every silo"
            )
        for step in range(len(rows), message.step):  # its records would enter a row again
            self._check_unknown(step)
        with self._database.transaction():
            for step in range(len(rows), message.step):
                zero = np.zeros(self._sums.sums.size)
                self._database.add_row(CommittedRow(step, zero, None), [])
            self._database.add_policy(message.step, message.payload)
        self._masking, self._actor, self._position = None, (message.step, PolicyActor(policy)), 0
        return b""

    def _row(self, step: int) -> CommittedRow:
        """The row of the current step: committed now, if it is due, or before."""
        if step >= FIRST:
            return self._evaluation(step)
        found, rows = self._database.policy(), self._database.rows()
        if found is None or found[0] != step or step >= len(self.terms.batches):
            raise Rejected(
                f"row is {step}: must be that of the newest policy; earlier rows are final"
            )
        if len(rows) == step:
            due, now = self.terms.due(step), self._clock()
            rule = f"at least {due:.0f}, when row {step} is due"
            require(now >= due, "time of the request", f"{now:.0f}", rule, Rejected)
            self._check_unknown(step)
            rows.append(self._commit(step, [row.vector for row in rows]))
        row = rows[step]
        if row.message is None:
            raise Rejected(f"row {step} was committed without a message")
        self._check_once(row)
        return row

    def _commit(self, step: int, before: list[Floats]) -> CommittedRow:
        """Draw the noise of a row and commit its message, in one transaction."""
        encoder = Encoder(self._own, history=before)
        with self._database.transaction():
            slots = self.terms.batches[step]
            records = self._database.waiting(slots)
            done = [
                (one.features[one.taken], one.reward)
                for one in records
                if one.taken is not None and one.reward is not None
            ]
            vector = sum_records(self._sums.policy, done, slots)
            message = np.asarray(encoder.randomize(vector)).tobytes()
            row = CommittedRow(step, vector, message)
            self._database.add_row(row, [one.id for one in records])
        return row

    def _check_once(self, row: CommittedRow) -> None:
        """Reject a row whose message differs from the one on record: the database was restored."""
        assert row.message is not None
        digest = hashlib.sha256(row.message).digest()
        if self._record_once(b"row", row.step, digest) != digest:
            raise Rejected(
                f"row {row.step} has another message on record: the database was restored from a "
                "copy, and a second draw of noise is not accounted for. Leave the federation"
            )

    def _record_once(self, kind: bytes, step: int, digest: bytes) -> bytes | None:
        """The first digest of this kind for a row, on record outside of backups."""
        return self._records.replace(self._name(kind, step), None, digest)

    def _name(self, kind: bytes, step: int) -> bytes:
        """The name of a record about a row."""
        name = kind + self.terms.digest + self.identity.number.to_bytes(2, "big")
        return name + step.to_bytes(4, "big")

    def _report(self, request: SiloMessage) -> bytes:
        if self._sums.masked:
            raise Rejected("stage is REPORT: under these terms messages are masked")
        message = self._row(request.step).message
        assert message is not None
        return message

    def _join(self, message: SiloMessage) -> bytes:
        if not self._sums.masked:
            raise Rejected("stage is JOIN: under these terms messages are not masked")
        row = self._row(message.step)
        if self._masking is None or self._masking.attempt != message.attempt:
            assert row.message is not None
            words = [int(word) for word in np.frombuffer(row.message, dtype=np.uint64)]
            pinned = self._pinned_for(message.step)
            self._masking = SiloMasking(pinned, self.identity.key, message, words)
        return self._masking.join()

    def _attempt(self, message: SiloMessage) -> SiloMasking:
        """The running attempt of a message; another one is rejected."""
        masking = self._masking
        if masking is None or (masking.attempt, masking.step) != (message.attempt, message.step):
            raise Rejected(
                "attempt is unknown: must begin with JOIN, again after a restart of the agent"
            )
        return masking

    def _share(self, message: SiloMessage) -> bytes:
        return self._attempt(message).share(message.payload)

    def _check(self, message: SiloMessage) -> bytes:
        return self._attempt(message).check(message.payload)

    def _mask(self, message: SiloMessage) -> bytes:
        return self._attempt(message).mask(message.payload)

    def _sign_survivors(self, message: SiloMessage) -> bytes:
        """Sign the survivors of a row: one set per row, ever."""
        masking = self._attempt(message)
        survivors = read_survivors(message.payload, self.terms)
        masking.check_survivors(survivors)
        packed = pack_survivors(survivors)
        rows = message.step < FIRST
        stored = self._database.set_survivors(message.step, packed) if rows else packed
        digest = hashlib.sha256(packed).digest()
        if stored != packed or self._record_once(b"survivors", message.step, digest) != digest:
            raise Rejected(f"row {message.step}: this silo has already signed other survivors")
        return masking.sign_survivors(survivors)

    def _reveal(self, message: SiloMessage) -> bytes:
        return self._attempt(message).reveal(message.payload)

    # Evaluations

    def _take_evaluation(self, asked: SiloMessage) -> bytes:
        """Commit and charge the noisy sums of an evaluation, once.

        One that is rejected keeps its number, uncharged, so that later ones can follow. Numbers
        have no gaps: a restored database cannot hide what it was charged.
        """
        number, known = asked.step - FIRST, self._database.evaluations()
        check_number(number)
        stored = known.get(number)
        if stored is not None and stored[0] != asked.payload:
            raise Rejected(f"evaluation {number} has another request already")
        if stored is not None and stored[1]:
            return b""
        if stored is None:
            rule = f"{len(known)}, the next one"
            require(number == len(known), "number of the evaluation", number, rule, Rejected)
            self._check_unknown(asked.step)
            self._check_unknown(asked.step, b"uncharged")
        self._check_uncharged(known)
        request = EvaluationRequest.decode(asked.payload)
        charged = [EvaluationRequest.decode(one) for one, sent in known.values() if sent]
        try:
            message = self._noisy(request, charged)
        except TacitError:
            self._keep_evaluation(number, asked.payload, b"")
            raise
        self._keep_evaluation(number, asked.payload, message)
        return b""

    def _check_uncharged(self, known: Mapping[int, tuple[bytes, bytes]]) -> None:
        """Reject if an evaluation without a charge has one on record: the database was restored.

        Numbers without a charge are recorded before a later one is charged. So a restored database
        cannot give such a number to another evaluation and omit the later charge.
        """
        for number, (question, message) in known.items():
            if not message:
                self._check_unknown(FIRST + number)
                self._record_once(b"uncharged", FIRST + number, hashlib.sha256(question).digest())

    def _check_unknown(self, step: int, kind: bytes = b"row") -> None:
        """Reject a step that is on record but not in the database, which was restored."""
        if self._records.read(self._name(kind, step)) is not None:
            named = f"evaluation {step - FIRST}" if step >= FIRST else f"row {step}"
            raise Rejected(
                f"{named} is on record: the database was restored from a copy that does not have "
                "it. Leave the federation"
            )

    def _noisy(self, request: EvaluationRequest, charged: Sequence[EvaluationRequest]) -> bytes:
        """The noisy sums of an evaluation; rejected beyond the budget."""
        if self._recorded is None:
            raise Rejected(
                "silo has no recorded data to evaluate: name a table as recorded and a budget as "
                "[evaluations] in its silo.toml"
            )
        self._recorded.check_budget([*charged, request])
        encoder = Encoder(request.sums(self.terms))
        return np.asarray(encoder.randomize(request.vector(self._recorded.table))).tobytes()

    def _keep_evaluation(self, number: int, question: bytes, message: bytes) -> None:
        with self._database.transaction():
            self._database.add_evaluation(number, question, message)

    def _evaluation(self, step: int) -> CommittedRow:
        found = self._database.evaluations().get(step - FIRST)
        if found is None or not found[1]:
            raise Rejected(f"evaluation {step - FIRST} is unknown: must start with EVALUATE")
        row = CommittedRow(step, np.zeros(0), found[1])
        self._check_once(row)
        return row

    def _pinned_for(self, step: int) -> PinnedFederation:
        """The terms that a round of this step is checked against."""
        pinned = self.identity.pinned
        if step < FIRST:
            return pinned
        question, _ = self._database.evaluations()[step - FIRST]
        return PinnedEvaluation(pinned.terms, pinned.signatures, EvaluationRequest.decode(question))


_HANDLERS: Mapping[SyncStage, Callable[[SiloAgent, SiloMessage], bytes]] = {
    SyncStage.POLICY: SiloAgent._take_policy,
    SyncStage.REPORT: SiloAgent._report,
    SyncStage.JOIN: SiloAgent._join,
    SyncStage.SHARE: SiloAgent._share,
    SyncStage.CHECK: SiloAgent._check,
    SyncStage.MASK: SiloAgent._mask,
    SyncStage.SURVIVORS: SiloAgent._sign_survivors,
    SyncStage.REVEAL: SiloAgent._reveal,
    SyncStage.EVALUATE: SiloAgent._take_evaluation,
}

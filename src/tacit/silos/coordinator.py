"""The coordinator of a federation: it drives an `Experiment` whose rounds silos synchronise.

The experiment is on record after every released row, before the next policy is sent. A row is
attempted until all silos that the terms require have answered; every attempt has fresh masks, and
silos mask the message that they committed first. If silos are away longer than the terms allow, the
federation ends at the last released row, and the policy stays.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.interface import new_identity
from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.bandits.contextual.silos import SiloLearner
from tacit.errors import Rejected, TacitError, Unavailable
from tacit.experiment import Experiment
from tacit.protocols.mechanism import Releases
from tacit.protocols.prefix_sums import PrefixRound
from tacit.records import Records
from tacit.rounds.codecs import released
from tacit.signatures import public_key
from tacit.silos.evaluation import (
    FIRST,
    EvaluationRequest,
    EvaluationResult,
    PinnedEvaluation,
    check_number,
    estimate,
)
from tacit.silos.exchange import Exchange
from tacit.silos.federation import PinnedFederation
from tacit.silos.masking_attempt import MaskingAttempt
from tacit.silos.messages import COORDINATOR, SiloMessage, SyncStage
from tacit.silos.policies import encode_policy
from tacit.types import Aggregate, Floats, Round

LOG = logging.getLogger("tacit.silos")
DEADLINE = 60.0  # seconds for one stage
RETRY = 1.0  # seconds between attempts
_NAME = b"federation"


def _evaluation(number: int) -> bytes:
    """The name of an evaluation's record."""
    return b"evaluation" + number.to_bytes(4, "big")


class SiloAbsent(Unavailable):
    """A silo that a row needs did not answer, or rejected a message; the row may be retried."""


@dataclass(frozen=True)
class CoordinatorTiming:
    """Deadlines, clock and pauses of a coordinator; tests replace them."""

    deadline: float = DEADLINE
    retry: float = RETRY
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


DEFAULT_TIMING = CoordinatorTiming()


class FederationCoordinator:
    """The coordinator of one federation.

    Parameters
    ----------
    pinned : PinnedFederation
        The signed terms.
    key : Ed25519PrivateKey
        The coordinator's long-term key.
    exchange : Exchange
        The engine that reaches the silos.
    records : Records
        The durable state; a coordinator that restarts continues from it.
    timing : CoordinatorTiming
        Deadlines, clock and pauses.

    Attributes
    ----------
    received : dict of str to int
        Bytes received from each silo, up to the last released row and since.
    seconds : list of float
        How long the attempt took that released each row.
    """

    def __init__(
        self,
        pinned: PinnedFederation,
        key: Ed25519PrivateKey,
        exchange: Exchange,
        records: Records,
        timing: CoordinatorTiming = DEFAULT_TIMING,
    ) -> None:
        if public_key(key) != pinned.terms.coordinator:
            raise TacitError("key is not the coordinator's in the terms: load the one they name")
        self.pinned, self.terms = pinned, pinned.terms
        self._key, self._exchange, self._records, self._timing = key, exchange, records, timing
        self.received = {silo.name: 0 for silo in self.terms.silos}
        self.seconds: list[float] = []
        self._stored = records.read(_NAME)
        if self._stored is None:
            self.experiment, self.ended = self.terms.experiment(), False
            self._save()
        else:
            state = json.loads(self._stored)
            if state["terms"] != self.terms.digest.hex():
                raise TacitError("records belong to other terms: name another directory")
            self.experiment = Experiment.from_dict(state["experiment"])
            self.ended = bool(state["ended"])
            self.received |= state["received"]
            self.seconds = list(state["seconds"])

    def _save(self) -> None:
        state = {
            "terms": self.terms.digest.hex(),
            "ended": self.ended,
            "received": self.received,
            "seconds": self.seconds,
            "experiment": self.experiment.to_dict(),
        }
        new = json.dumps(state, allow_nan=False).encode()
        if self._records.replace(_NAME, self._stored, new) != new:
            raise TacitError("another coordinator changed the records: run one process only")
        self._stored = new

    # Where it is

    @property
    def step(self) -> int:
        """The number of released rows, which is also the number of the current one."""
        mechanism = self.experiment.mechanism
        assert isinstance(mechanism, Releases)
        return len(mechanism.released)

    @property
    def finished(self) -> bool:
        """Whether no row is left to release."""
        return self.ended or self.step >= len(self.terms.batches)

    def policy(self) -> LinUCBPolicy:
        """The policy after the last released row."""
        learner = self.experiment.learner
        assert isinstance(learner, SiloLearner)
        steps = 1 if self.finished else self.terms.batches[self.step]
        return learner.policy(steps)

    def status(self) -> dict[str, Any]:
        """Status of the federation: released rows and silos; no records."""
        return {
            "terms": self.terms.digest.hex(),
            "rows": self.step,
            "of": len(self.terms.batches),
            "ended": self.ended,
            "received": dict(self.received),
        }

    # What it does

    def run(self, rows: int | None = None) -> None:
        """Release all rows, each when it is due; end early where silos stay away too long.

        Parameters
        ----------
        rows : int, optional
            The most rows to release now; all that are left by default.
        """
        last = len(self.terms.batches) if rows is None else self.step + rows
        while not self.finished and self.step < last:
            self._patiently(self.deliver)
            if self.finished:
                break
            self._wait_until_due()
            self._patiently(self.synchronise)
        self._patiently(self.deliver)

    def _wait_until_due(self) -> None:
        due, timing = self.terms.due(self.step), self._timing
        while (left := due - timing.clock()) > 0:
            timing.sleep(min(left, 60.0))

    def _patiently(self, act: Callable[[], None]) -> None:
        """Retry while silos are absent; end the federation once patience is over."""
        timing = self._timing
        first = timing.clock()
        while True:
            try:
                act()
                return
            except SiloAbsent as problem:
                LOG.warning("row %d: %s", self.step, problem)
            if timing.clock() - first >= self.terms.schedule.patience:
                break
            timing.sleep(timing.retry)
        if not self.ended:
            self.ended = True
            self._save()

    def deliver(self) -> None:
        """Send the current policy to all silos; those that have it answer the same again."""
        answers = self._ask_all(SyncStage.POLICY, encode_policy(self.policy()))
        self._check_enough(answers, "acknowledged the policy")

    def synchronise(self) -> None:
        """Attempt to release the current row once, learn from it and save.

        Raises
        ------
        SiloAbsent
            If too few silos answered; nothing was released, and the row may be retried.
        """
        began = time.perf_counter()
        (round_,) = self.experiment.propose()
        protocol = self.experiment.open(round_)
        if not isinstance(protocol, PrefixRound):
            raise TacitError(f"protocol is {type(protocol).__name__}: must be a PrefixRound")
        masked = self.pinned.derived.masked
        total = self._masked(round_, protocol) if masked else self._plain(round_, protocol)
        self.experiment.observe(round_, protocol.analyze(total))
        for rest in self.experiment.propose():
            if not rest.released:
                self.experiment.skip(rest)
        self.seconds.append(time.perf_counter() - began)
        self._save()
        LOG.info("row %d is released", round_.number)

    def evaluate(self, request: EvaluationRequest) -> EvaluationResult:
        """Evaluate a policy on the recorded data of all silos; every silo charges it.

        A repeated request gets the stored result: it costs nothing more.
        """
        number, encoded = 0, request.encode()
        while (stored := self._records.read(_evaluation(number))) is not None:
            if json.loads(stored)["request"] == encoded.hex():
                break
            number += 1
        check_number(number)
        if stored is None:
            stored = json.dumps({"request": encoded.hex(), "numbers": None}).encode()
            self._records.replace(_evaluation(number), None, stored)
        pinned = PinnedEvaluation(self.terms, self.pinned.signatures, request)
        sums, state = pinned.derived.sums, json.loads(stored)
        if state["numbers"] is None:
            state["numbers"] = self._evaluated(pinned, FIRST + number).tolist()
            self._records.replace(_evaluation(number), stored, json.dumps(state).encode())
        return estimate(request, sums, np.array(state["numbers"]))

    def _evaluated(self, pinned: PinnedEvaluation, step: int) -> Floats:
        """The released sums of an evaluation; all silos are needed."""
        answers = self._ask_all(SyncStage.EVALUATE, pinned.request.encode(), step)
        if len(answers) < len(self.terms.silos):
            raise SiloAbsent(f"only {len(answers)} silos accept the evaluation")
        attempt = MaskingAttempt(pinned, self._key, self._records, step)
        try:
            view = attempt.run(self._ask_each)
        except Rejected as problem:
            attempt.server.abort()
            raise SiloAbsent(f"evaluation was aborted: {problem}") from None
        sums = pinned.derived.sums
        return np.asarray(sums.form(0).read(view.numbers, view.reports) / sums.scale)

    def _plain(self, round_: Round, protocol: PrefixRound) -> Aggregate:
        """Messages that silos have made private on their own, or not at all."""
        answers = self._ask_all(SyncStage.REPORT, b"", round_.number)
        self._check_enough(answers, "reported")
        kind = np.uint64 if protocol.sums.integral else np.float64
        size = 8 * protocol.sums.size
        for silo, answer in answers.items():
            if len(answer) != size:
                raise SiloAbsent(f"report of {silo} has {len(answer)} bytes: must have {size}")
        names = [silo.name for silo in self.terms.silos]
        return protocol.combine([np.frombuffer(answers[name], dtype=kind) for name in names])

    def _masked(self, round_: Round, protocol: PrefixRound) -> Aggregate:
        """One attempt at secure aggregation."""
        attempt = MaskingAttempt(self.pinned, self._key, self._records, round_.number)
        try:
            view = attempt.run(self._ask_each)
        except Rejected as problem:
            attempt.server.abort()
            raise SiloAbsent(f"attempt was aborted: {problem}") from None
        return released(protocol, view, "masking")

    def _check_enough(self, answers: Mapping[str, bytes], what: str) -> None:
        names = [silo.name for silo in self.terms.silos]
        absent = [name for name in names if name not in answers]
        if len(absent) > self.terms.missing:
            raise SiloAbsent(f"{', '.join(absent)} have not {what}: the row waits for them")

    def _ask_all(
        self, stage: SyncStage, payload: bytes, step: int | None = None
    ) -> dict[str, bytes]:
        """The same message to all silos."""
        everybody = dict.fromkeys(range(len(self.terms.silos)), payload)
        row = self.step if step is None else step
        found = self._ask_each(stage, everybody, row, new_identity())
        return {self.terms.silos[number].name: answer for number, answer in found.items()}

    def _ask_each(
        self, stage: SyncStage, payloads: Mapping[int, bytes], step: int, attempt: bytes
    ) -> dict[int, bytes]:
        """The payloads of valid answers, by silo; an invalid one counts as none."""
        digest = self.terms.digest
        asked = {
            number: SiloMessage(digest, stage, step, COORDINATOR, number + 1, attempt, payload)
            for number, payload in payloads.items()
        }
        names = {number: self.terms.silos[number].name for number in asked}
        messages = {names[number]: one.encode(self._key) for number, one in asked.items()}
        replies = self._exchange.exchange(stage.name, messages, self._timing.deadline)
        answers = {}
        for number, one in asked.items():
            reply = replies.get(names[number])
            if reply is None:
                continue
            self.received[names[number]] += len(reply)
            try:
                answer = SiloMessage.decode(reply, self.terms)
                one.check_answer(answer)
            except Rejected as problem:
                LOG.warning("answer of %s to %s is rejected: %s", names[number], stage, problem)
                continue
            answers[number] = answer.payload
        return answers

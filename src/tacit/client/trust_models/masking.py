"""A device's part in secure aggregation: a masking client that lives in memory only.

The device joins with fresh keys at its sending time; the ledger charges the round then. After the
round has closed it answers the server's messages, stage by stage. A device that stops has dropped
out: nothing of a masking client is ever saved. Noise shares are drawn once, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.aggregation.announcements import accept
from tacit.aggregation.masking import MaskingRound
from tacit.aggregation.masking_client import MaskingClient
from tacit.aggregation.wire import Kind
from tacit.client.choices import numbers_of
from tacit.client.entries import OpenParticipation
from tacit.client.exchange import Conversation, Reply, Request
from tacit.client.trust_models.contract import Reporter
from tacit.errors import Rejected
from tacit.sampling.draws import draw_gaussian, draw_laplace_share, draw_skellam
from tacit.terms import Pinned, Terms
from tacit.terms.parts import DISCRETE_GAUSSIAN, SKELLAM
from tacit.trust import View

PAUSE = 0.5
"""Seconds between questions for the next message, where the server does not hold them."""

_SLOT = "Tacit-Slot"
_FAILURES = 20  # consecutive failed requests until the device has dropped out
_MESSAGES = 7  # of a round, at most: SETUP, INBOX, PAIRS, LEFT, PROOF, REQUEST, PROOF
_CONFLICT = Reply(409)


@dataclass
class _Session:
    """A participation in the memory of this process."""

    client: MaskingClient
    numbers: list[int]
    after: int = 0
    asks: float = 0.0
    failures: int = 0

    @property
    def expires(self) -> int:
        """The end of the grace of the round, when it is over."""
        announced = self.client.round
        return announced.binding.closes + announced.grace


class MaskingReporter(Reporter):
    """Joins with a masking client, then answers the stages of the round."""

    description, view = MaskingRound, View.RELEASED_SUM

    def __init__(self) -> None:
        self._sessions: dict[tuple[bytes, int, bytes], _Session] = {}

    def encode(self, participation: OpenParticipation) -> Mapping[int, bytes]:
        """The slot and the JOIN message of a fresh masking client."""
        assert participation.levels is not None
        pinned = participation.pinned
        announced = accept(MaskingRound, pinned, participation.announcement)
        client = MaskingClient(pinned, participation.announcement)
        exact = numbers_of(pinned.terms, announced.binding, participation.levels)
        numbers = [number + share(pinned.terms, announced) for number in exact]
        self._sessions[_key(participation)] = _Session(client, numbers)
        return {pinned.terms.leader: participation.slot.encode() + client.join()}

    def stages(self, participation: OpenParticipation, url: str, now: float) -> Conversation[bool]:
        """Answer all messages that the server has; False once this device is out of the round.

        It is out after the grace of the round, too, and after as many messages as a round has.
        """
        session = self._sessions.get(_key(participation))
        while session is not None and now < session.expires and session.after < _MESSAGES:
            address = session.client.address.hex()
            named, after = ((_SLOT, participation.slot.encode().hex()),), session.after
            reply = yield Request("GET", f"{url}/messages/{address}/{after}", b"", named)
            if reply.status == 204:
                session.failures, session.asks = 0, now + PAUSE
                return True
            if reply.status == 200:
                reply = yield from self._answered(participation, session, url, reply.content)
                if reply.status == 204:
                    session.failures = 0
                    session.after = max(session.after, after + 1)  # two may answer at once
                    continue
            session.failures += 1
            lasting = 0 < reply.status < 500 and reply.status != 429
            if lasting or session.failures >= _FAILURES:
                break
            session.asks = now + PAUSE
            return True
        self.forget(participation)
        return False

    def forget(self, participation: OpenParticipation) -> None:
        """Delete the masking client and the numbers: this device has dropped out."""
        self._sessions.pop(_key(participation), None)

    def stage_due(self, participation: OpenParticipation) -> float | None:
        """The deadline of the round, then a pause after each empty answer."""
        session = self._sessions.get(_key(participation))
        if session is None:
            return None
        return max(float(session.client.round.binding.closes), session.asks)

    def _answered(
        self, participation: OpenParticipation, session: _Session, url: str, message: bytes
    ) -> Conversation[Reply]:
        """Answer one message of the server; `_CONFLICT` if this device cannot continue the round.

        An answer that does not arrive is sent again after the next question, with the same bytes.
        """
        try:
            answer = _answer(session, message)
        except Rejected:
            return _CONFLICT  # too few neighbours are left, or the request is not allowed
        headers = (
            (_SLOT, participation.slot.encode().hex()),
            ("Content-Type", "application/octet-stream"),
        )
        return (yield Request("PUT", f"{url}/messages", answer, headers))

    def refunds(self, pinned: Pinned, announcement: bytes, outcomes: Sequence[bytes]) -> bool:  # noqa: ARG002
        """Never: one coordinator's word proves nothing."""
        return False


def share(terms: Terms, announced: MaskingRound) -> int:
    """One device's share of the noise on one number."""
    divisor, total = announced.noise.divisor, announced.noise.total
    distribution = terms.distribution(announced.binding.chosen)
    if distribution == SKELLAM:
        return draw_skellam(total / divisor)
    if distribution == DISCRETE_GAUSSIAN:
        return draw_gaussian(total**2 / divisor)
    return draw_laplace_share(total, divisor)


def _answer(session: _Session, message: bytes) -> bytes:
    """The client's answer to a message of the server."""
    client, kind = session.client, message[3:4]
    if kind == bytes((Kind.SETUP,)):
        return client.share(message)
    if kind == bytes((Kind.INBOX,)):
        return client.check(message)
    if kind == bytes((Kind.PAIRS,)):
        try:
            return client.mask(message, session.numbers)
        except Rejected:
            return client.accuse(message)
    return client.reveal(message)


def _key(participation: OpenParticipation) -> tuple[bytes, int, bytes]:
    """Key of a participation in memory; its seed is the device's own, so slots cannot collide."""
    return participation.identity, participation.slot.number, participation.seed

"""Withdrawal during a request: nothing more about the answer is sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.service.fronted import MODELS, Fronted, fronted, small

from tacit.client import Device
from tacit.client.device import Unagreed
from tacit.client.entries import KnownTerms, ParticipationOutcome
from tacit.client.exchange import Conversation
from tacit.client.trust_models import reporter
from tacit.client.trust_models.masking import MaskingReporter, _key


class Leaving(httpx.BaseTransport):
    """Requests of one device, whose participant leaves while the one that matches is under way."""

    def __init__(self, one: Fronted, matches: Callable[[httpx.Request], bool]) -> None:
        self.one, self.matches = one, matches
        self.device: Device | None = None
        self.after: list[httpx.Request] = []
        self.left = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.left:
            self.after.append(request)
        elif self.matches(request):
            assert self.device is not None
            self.device.withdraw(self.one.digest)
            self.left = True
        return self.one.router.handle_request(request)


def leaving(one: Fronted, matches: Callable[[httpx.Request], bool]) -> tuple[Device, Leaving]:
    device, transport = one.device(), Leaving(one, matches)
    transport.device, device._http = device, transport
    return device, transport


def report(request: httpx.Request) -> bool:
    return request.method == "PUT" and "/reports/" in request.url.path


@pytest.mark.parametrize("model", MODELS)
def test_after_the_first_report_share_no_other_is_sent(tmp_path: Path, model: str) -> None:
    """Two servers: the second share went out after the participant had left, so it counted."""
    with fronted(small(model), tmp_path) as one:
        one.step(3)
        device, transport = leaving(one, report)
        assert device.join(one.digest).asked
        one.clock.now += 45
        device.run_due()
        assert transport.left
        assert transport.after == []
        (receipt,) = device.status()
        assert receipt.outcome == ParticipationOutcome.WITHDRAWN
        assert receipt.charged


@pytest.mark.parametrize("questions", [1, 3])
def test_a_device_withdrawn_between_stages_answers_none(tmp_path: Path, questions: int) -> None:
    """A held question was answered after the participant had left, with masked numbers at last."""
    asked: list[httpx.Request] = []

    def question(request: httpx.Request) -> bool:
        if request.method == "GET" and "/messages/" in request.url.path:
            asked.append(request)
        return len(asked) >= questions

    with fronted(small("secure-aggregation"), tmp_path) as one:
        one.step(3)
        device, transport = leaving(one, question)
        assert device.join(one.digest).asked
        others = [one.device() for _ in range(one.wanted())]
        for other in others:
            assert other.join(one.digest).asked
        one.clock.now += 45
        for each in (device, *others):
            each.run_due()
        (mine,) = device.ledger.running()
        one.clock.now += 155
        one.step(2)
        for _ in range(4):
            for each in (device, *others):
                each.run_due()
            one.step(2)
        assert transport.left
        assert transport.after == []
        kept = reporter(one.pinned.terms)
        assert isinstance(kept, MaskingReporter)
        assert _key(mine) not in kept._sessions, "numbers are forgotten"
        assert device.run_due() is None


def test_a_device_withdrawn_before_the_stages_keeps_no_numbers(tmp_path: Path) -> None:
    with fronted(small("secure-aggregation"), tmp_path) as one:
        one.step(3)
        device = one.device()
        assert device.join(one.digest).asked
        one.clock.now += 45
        device.run_due()
        kept = reporter(one.pinned.terms)
        assert isinstance(kept, MaskingReporter)
        assert len(kept._sessions) == 1
        device.withdraw(one.digest)
        assert kept._sessions == {}


def test_a_withdrawal_during_the_first_join_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first join counts as agreement, which revoked the withdrawal of another thread."""
    with fronted(small("two-servers"), tmp_path) as one:
        one.step(3)
        device = one.device()
        current = device._terms.up_to_date

        def left(digest: bytes, known: KnownTerms | None) -> Conversation[KnownTerms]:
            found = yield from current(digest, known)
            device.withdraw(digest)
            return found

        monkeypatch.setattr(device._terms, "up_to_date", left)
        with pytest.raises(Unagreed):
            device.join(one.digest)
        assert device.status() == []

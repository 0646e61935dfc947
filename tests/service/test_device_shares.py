"""Noise that devices add to their levels: the sampler is replaced and its arguments recorded.

Other tests compare draws with their distribution; these find noise that is drawn for another
distribution, added to no number, or added to two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import count, product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.service.deployed import KEYS, Deployed, definition_of, deployed
from tests.verify.live import Setting

from tacit.aggregation import two_servers
from tacit.aggregation.announcements import SharedNoise
from tacit.aggregation.masking import MaskingRound
from tacit.aggregation.shuffler import BIT, ShufflerRound
from tacit.aggregation.two_servers import RoundOutcome
from tacit.client.entries import OpenParticipation
from tacit.client.trust_models import local, masking, shuffler
from tacit.client.trust_models import reporter as reporter_of
from tacit.client.trust_models.contract import Reporter
from tacit.errors import Rejected
from tacit.sampling.certificates import PureShuffleParameters, lookup
from tacit.sampling.draws import ones
from tacit.service.assignment import Assigned
from tacit.trust import TrustModel

Noted = list[tuple[Any, ...]]


def noting(module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Replace a sampler by one that returns 1000, 1001, … and notes its arguments."""
    calls: Noted = []
    numbers = count(1000)

    def draw(*arguments: Any) -> int:
        calls.append(arguments)
        return next(numbers)

    monkeypatch.setattr(module, name, draw)
    return calls


def running_of(one: Deployed, assigned: Assigned, *levels: int) -> OpenParticipation:
    one.report(assigned, *levels)
    return one.running[-1]


@contextmanager
def opened(path: Path, trust: str, **about: Any) -> Iterator[tuple[Deployed, Assigned]]:
    """A deployed experiment with an open round, and one assigned slot of it."""
    with deployed(definition_of(trust, **about), path) as one:
        one.step(2)
        yield one, one.join(1)[0]


def described(reporter: Reporter, one: Deployed, assigned: Assigned) -> Any:
    return reporter.announced(one.pinned, assigned.announcement)


@pytest.mark.parametrize(
    ("distribution", "sampler", "parameters"),
    [
        ("discrete-laplace", "draw_laplace_share", lambda total, shares: (total, shares)),
        ("skellam", "draw_skellam", lambda total, shares: (total / shares,)),
        ("discrete-gaussian", "draw_gaussian", lambda total, shares: (total**2 / shares,)),
    ],
)
def test_a_masked_share_is_drawn_for_the_divisor_of_its_round(
    distribution: str,
    sampler: str,
    parameters: Callable[[Fraction, int], tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(tmp_path, "secure-aggregation", min_batch_size=40) as (one, slot):
        found = described(masking.MaskingReporter(), one, slot)
        assert isinstance(found, MaskingRound)
        terms = one.pinned.terms
        noise = replace(terms.noise)
        object.__setattr__(noise, "distribution", distribution)
        stated = replace(terms)
        object.__setattr__(stated, "noise", noise)
        wide = replace(found, noise=SharedNoise(37, Fraction(5, 2)))
        calls = noting(masking, sampler, monkeypatch)
        assert masking.share(stated, wide) == 1000
        assert calls == [parameters(Fraction(5, 2), 37)]


def test_every_masked_number_has_its_own_noise_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, "secure-aggregation", min_batch_size=40) as (one, slot):
        running = running_of(one, slot, 1)
        drawn = count(1000)
        monkeypatch.setattr(masking, "share", lambda _terms, _round: next(drawn))
        reporter = masking.MaskingReporter()
        reporter.encode(replace(running, levels=(1, 0, 1)))
        (session,) = reporter._sessions.values()
        assert session.numbers == [1001, 1001, 1003]


def test_shuffled_bits_have_the_announced_noise_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about: dict[str, Any] = {"min_batch_size": 64, "delta": Fraction(1, 1000)}
    with opened(tmp_path, "shuffler", epsilon=Fraction(1), **about) as (one, slot):
        found = described(shuffler.ShufflerReporter(), one, slot)
        assert isinstance(found, ShufflerRound)
        asked: Noted = []

        def noted(bits: int, bias: Fraction) -> Any:
            asked.append((bits, bias))
            return ones(bits, bias)

        monkeypatch.setattr(shuffler, "ones", noted)
        parts = found.messages
        for level in (0, 1):
            numbers = shuffler.randomized(found, level)
            assert len(numbers) == parts
            assert set(numbers) <= {0, 1}
            assert sum(numbers) >= level
        assert asked == [(parts - 1, found.noise.total)] * 2
        both = replace(found, metrics=2, messages=2 * parts)
        assert both.offer().parts == found.offer().parts == parts, "messages of one metric"
        fewer = replace(found, noise=SharedNoise(found.slots, found.noise.total))
        engine: Any = one.coordinator.engine(one.digest)
        with pytest.raises(Rejected, match="share divisor of the round"):
            engine.endorse(fewer.encode())


def test_a_device_rejects_views_that_it_cannot_verify() -> None:
    """Between two servers devices leave the noise to the servers."""
    shared = Setting(TrustModel.TWO_SERVERS, "discrete-laplace").terms(Fraction(10))
    with pytest.raises(Rejected, match="view is opened-sum: must be"):
        reporter_of(shared).check_terms(shared)
    served = Setting(TrustModel.TWO_SERVERS, "discrete-laplace", "servers").terms(Fraction(10))
    reporter_of(served).check_terms(served)


def test_split_numbers_sum_to_the_level_and_one_noise_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about: dict[str, Any] = {"min_batch_size": 64, "delta": Fraction(1, 1000)}
    with opened(tmp_path, "shuffler", epsilon=Fraction(1), **about) as (one, slot):
        found = described(shuffler.ShufflerReporter(), one, slot)
    noise = SharedNoise(40, Fraction(3, 2))
    split = replace(found, modulus=5000, messages=8, size=2, noise=noise)
    assert found.modulus == BIT
    calls = noting(shuffler, "draw_laplace_share", monkeypatch)
    rows = [shuffler.randomized(split, 1) for _ in range(2)]
    assert calls == [(Fraction(3, 2), 40)] * 2
    assert [sum(row) % 5000 for row in rows] == [1001, 1002]
    assert all(len(row) == 8 and all(0 <= part < 5000 for part in row) for row in rows)
    different = [part for row in rows for part in row[:-1]]
    assert len(set(different)) > 7, "14 uniform parts, more than half alike: below 1e-20"


def test_every_shuffled_metric_has_its_own_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about: dict[str, Any] = {"min_batch_size": 64, "delta": Fraction(1, 1000)}
    with opened(tmp_path, "shuffler", epsilon=Fraction(1), **about) as (one, slot):
        running = running_of(one, slot, 0)
        levels: list[int] = []
        sent: list[list[bytes]] = []

        def noted(_round: ShufflerRound, level: int, _proven: object) -> list[int]:
            levels.append(level)
            return [level]

        def kept(_pinned: Any, _announcement: bytes, messages: list[bytes]) -> bytes:
            sent.append(messages)
            return b""

        monkeypatch.setattr(shuffler, "randomized", noted)
        monkeypatch.setattr(shuffler, "wrap", kept)
        shuffler.ShufflerReporter().encode(replace(running, levels=(1, 0)))
        assert levels == [1, 0]
        assert sent == [[bytes([1]), bytes([BIT])]], "labelled by metric"


def test_certified_shares_serve_one_metric_in_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the ε of all rounds together, nor of another number of users."""
    about: dict[str, Any] = {"admission": "invitation", "issuer": KEYS[2], "epsilon": Fraction(2)}
    how = {"algorithm": "shuffle-dp-se", "participations": 2, **about}
    with opened(tmp_path, "shuffler", **how) as (one, slot):
        running = running_of(one, slot, 0)
        found = described(shuffler.ShufflerReporter(), one, slot)
        asked: list[PureShuffleParameters] = []
        sent: list[list[bytes]] = []

        def noted(proven: PureShuffleParameters) -> Callable[[int], int]:
            asked.append(proven)
            return lambda level: 5 + level

        def kept(_pinned: Any, _announcement: bytes, messages: list[bytes]) -> bytes:
            sent.append(messages)
            return b""

        monkeypatch.setattr(shuffler, "draw_certified_ones", noted)
        monkeypatch.setattr(shuffler, "wrap", kept)
        shuffler.ShufflerReporter().encode(replace(running, levels=(1, 0)))
    proven = lookup(found.noise.divisor, Fraction(1)).certificate.parameters
    assert proven.users > 1
    assert asked == [proven, proven], "drawn for every metric"
    bits = [message[-1] % BIT for message in sent[0]]
    assert [sum(bits[: proven.bits]), sum(bits[proven.bits :])] == [6, 5]


def test_messages_to_a_shuffler_are_as_wide_as_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wider ones could be told apart by what fills them."""
    about: dict[str, Any] = {"min_batch_size": 64, "delta": Fraction(1, 1000)}
    with opened(tmp_path, "shuffler", epsilon=Fraction(1), **about) as (one, slot):
        reporter = shuffler.ShufflerReporter()
        wide = replace(described(reporter, one, slot), size=2)
        monkeypatch.setattr(shuffler, "accept", lambda *_: wide)
        with pytest.raises(Rejected, match="size of a message is 2: must be 1 bytes"):
            reporter.announced(one.pinned, slot.announcement)


@pytest.mark.parametrize("said", list(product(RoundOutcome, repeat=2)))
def test_a_shuffler_refund_needs_both_parties_abort(
    said: tuple[RoundOutcome, RoundOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_servers, "accept", lambda *_: None)
    monkeypatch.setattr(two_servers, "read_outcome", lambda _pinned, _round, message: message)
    refunds: Any = shuffler.ShufflerReporter().refunds
    both = said == (RoundOutcome.ABORTED, RoundOutcome.ABORTED)
    assert refunds(None, b"", list(enumerate(said))) is both
    assert not refunds(None, b"", [(0, said[0])]), "one party's word"
    assert not refunds(None, b"", [(1, said[0]), (1, said[1])]), "one party twice"


def test_one_coordinators_abort_refunds_nothing() -> None:
    for reporter in (local.LocalReporter(), masking.MaskingReporter()):
        refunds: Any = reporter.refunds
        assert not refunds(None, b"", [b"aborted"])


def test_every_local_number_has_its_own_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, "local", levels=4) as (one, slot):
        running = running_of(one, slot, 0)
        three = replace(described(local.LocalReporter(), one, slot), length=3)
        monkeypatch.setattr(local.LocalReporter, "announced", lambda *_: three)
        sent: list[list[int]] = []

        def kept(_pinned: Any, _announcement: bytes, _slot: Any, numbers: list[int]) -> bytes:
            sent.append(numbers)
            return b""

        monkeypatch.setattr(local, "encrypt_report", kept)
        calls = noting(local, "draw_laplace", monkeypatch)
        local.LocalReporter().encode(replace(running, levels=(3, 0, 1)))
        scale = one.pinned.terms.noise.scale
    assert sent == [[1003, 1001, 1003]]
    assert calls == [(scale.numerator, scale.denominator)] * 3

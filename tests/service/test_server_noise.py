"""The noise that each live server adds to its partial sums, against the distribution in the terms.

A real coordinator and a real helper hold rounds in which every answer is zero. The test decrypts
what devices sent each server and what each server sent the collector: the difference is that
server's noise, one number per metric. From the stores as they were when the deadline passed the
release is repeated, so that a few rounds give hundreds of draws per server and metric.

False positive rate: below 1e-9 per run for all tests here together. Every statistic is compared
with its exact null distribution. Draws come from the operating system, so no seed repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import count, product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.service.pairs import Pair, context_of, described, sqlite_pair

from tacit.aggregation import masks
from tacit.aggregation.aggregator import Aggregator, partial_head
from tacit.aggregation.aggregator_context import Draw, RoundSecrets
from tacit.aggregation.collecting import Collector
from tacit.aggregation.two_servers import (
    LINK_SIZE,
    SHARE_FRONT,
    TwoServerRound,
    share_info,
    split,
)
from tacit.aggregation.wire import HEADER_SIZE, unpack_numbers
from tacit.algorithms.registry import begin
from tacit.records import MemoryRecords
from tacit.service import party, pending
from tacit.service.assignment import Assigned
from tacit.service.party import ServerParty
from tacit.terms import Aggregation, Answer, Noise
from tacit.testing.statistics import check_source

RATE = 2e-11  # false positive rate of each of the 12 statistics of a check
SERVERS = ("coordinator", "helper")
OPTIONS = ("plain", "friendly")
LEVELS = 1 << 31  # so large that two draws are hardly ever equal, unless one is used twice
METRICS = ("minutes", "complaints")  # the second one is a guardrail
SCALE = Fraction(LEVELS * len(METRICS))  # epsilon is 1
REPORTS, RELEASES = 2, 200  # per round; half or twice the scale shows with certainty 1 - 1e-9
FEW = 25  # releases that show coarser faults
TERMS: dict[str, Any] = {
    "answer": Answer("two numbers", levels=LEVELS, window=0, metrics=METRICS),
    "noise": Noise(SCALE),
    "aggregation": Aggregation(REPORTS),
}

Draws = np.ndarray[Any, np.dtype[np.float64]]
"""Noise in units of the scale: servers x releases x metrics."""


# Rounds of a real coordinator and a real helper


@dataclass
class Held:
    """One round at one server: its stores, and the sum of the report shares that it was sent."""

    records: dict[bytes, bytes]
    table: dict[bytes, bytes]
    shares: list[int]


@dataclass
class Closing:
    """A round whose deadline has passed, at both servers."""

    parties: tuple[ServerParty, ServerParty]
    digest: bytes
    announcement: bytes
    held: tuple[Held, Held]

    @property
    def about(self) -> TwoServerRound:
        return self.servers()[0].round

    def servers(self) -> list[Aggregator]:
        """Both servers of the round, each over copies of its stores, with its party's noise."""
        identity = TwoServerRound.decode(self.announcement[:-128]).identity
        return [
            Aggregator(
                replace(context_of(own, self.digest, identity), records=memory(held.records)),
                self.announcement,
                dict(held.table),
            )
            for own, held in zip(self.parties, self.held, strict=True)
        ]

    def release(self) -> list[list[int]]:
        """What each server adds to each metric when the round is closed once more."""
        first, second = self.servers()
        now = first.round.binding.closes
        lists = [server.close(now)[server.peer] for server in (first, second)]
        first.take(lists[1], now)
        second.take(lists[0], now)
        sent = [server.close(now)[server.round.collector] for server in (first, second)]
        return self.noise(sent)

    def noise(self, sent: list[bytes]) -> list[list[int]]:
        """The partial sums that servers sent, less the shares that they were sent."""
        pinned = self.parties[0].pinned(self.digest)
        collector = Collector(pinned, self.announcement, memory(self.held[0].records))
        found, m = [], collector.round.modulus
        for role, (message, held) in enumerate(zip(sent, self.held, strict=True)):
            content = collector._content(role, message)
            assert content is not None
            rest = content[partial_head(collector.round).size :]
            sums = unpack_numbers(rest, m, len(METRICS), "the partial sum")
            pairs = zip(sums, held.shares, strict=True)
            found.append([(total - share + m // 2) % m - m // 2 for total, share in pairs])
        return found


def memory(records: dict[bytes, bytes]) -> MemoryRecords:
    made = MemoryRecords()
    for name, content in records.items():
        made.replace(name, None, content)
    return made


def share(own: ServerParty, about: TwoServerRound, message: bytes, place: int) -> list[int]:
    """The report share in a message to a server, decrypted with the server's key."""
    record = context_of(own, about.binding.terms, about.identity).record(about.identity)
    assert record is not None
    key = RoundSecrets(record.secret, about.identity, about.suite).keys.encryption
    encrypted, role = message[HEADER_SIZE + SHARE_FRONT :], own.role
    part = key.decrypt(encrypted, share_info(about.context, role, place))[LINK_SIZE:]
    if role == 0 and about.sends_seed:
        return masks.expand(part, about.modulus, about.length)
    return unpack_numbers(part, about.modulus, about.length, "a share")


def at(own: ServerParty, about: TwoServerRound, shares: list[list[int]]) -> Held:
    """What a server has of a round now."""
    names = (bytes((own.role,)) + about.identity, b"c" + about.identity)
    found = {name: own.records.read(name) for name in names}
    records = {name: content for name, content in found.items() if content is not None}
    table = dict(pending.PendingShares(own.store, about.identity).items())
    return Held(records, table, [sum(one) % about.modulus for one in zip(*shares, strict=True)])


@dataclass
class Played:
    """An experiment whose first rounds are full of zeros, and what its servers sent in earnest."""

    pair: Pair
    digest: bytes
    rounds: list[Closing] = field(default_factory=list)

    @property
    def parties(self) -> tuple[ServerParty, ServerParty]:
        return self.pair.coordinator, self.pair.helper

    def report(self) -> None:
        """Two devices per option send zeros; then the deadline passes."""
        pair, asked = self.pair, list[Assigned]()
        while min([sum(one.option == name for one in asked) for name in OPTIONS]) < REPORTS:
            one = pair.join(self.digest)
            asked += [one] * (sum(a.option == one.option for a in asked) < REPORTS)
        by_option: dict[str, list[list[list[int]]]] = {name: [[], []] for name in OPTIONS}
        for one in asked:
            assert one.slot is not None
            messages = split(
                pair.coordinator.pinned(self.digest), one.announcement, one.slot, [0, 0]
            )
            pair.send(one, messages)
            for own, message in zip(self.parties, messages, strict=True):
                found = share(own, described(one), message, one.slot.number)
                by_option[one.option][own.role].append(found)
        pair.clock.now += 200
        for name in OPTIONS:
            one = next(one for one in asked if one.option == name)
            first, second = (
                at(own, described(one), by_option[name][own.role]) for own in self.parties
            )
            self.rounds.append(
                Closing(self.parties, self.digest, one.announcement, (first, second))
            )

    def draws(self, releases: int = RELEASES) -> Draws:
        """So many releases of every round."""
        found = [one.release() for _ in range(releases) for one in self.rounds]
        return np.array(found, dtype=float).transpose(1, 0, 2) / float(SCALE)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with sqlite_pair(tmp_path_factory.mktemp("noise")) as pair:
        given: dict[str, Any] = {"horizon": 100, "epsilon": 1, "levels": LEVELS, "binary": False}
        guarded = {"guardrail": METRICS[1], "control_share": 0.1}
        experiment = begin(
            "private-med", OPTIONS, trust="two-servers", smallest=REPORTS, **given, **guarded
        )
        digest = pair.begin(experiment, **TERMS)
        pair.step(2)
        made = Played(pair, digest)
        made.report()
        yield made


# The checker


def problems(drawn: Draws) -> set[str]:
    """What is wrong with the noise of two servers.

    Of each server and metric: the sum of magnitudes is Gamma(n, 1), which is the likelihood ratio
    test for another scale; the signs are Binomial(n, 1/2); the magnitudes are exponential, by the
    exact Kolmogorov-Smirnov distribution. Over all draws: at most two magnitudes are equal to
    another one, since two are equal with probability 2^-33; three of 1.3 million pairs are with
    probability below 1e-12.
    """
    found = set()
    sizes = np.abs(drawn)
    for role, metric in product(range(2), range(len(METRICS))):
        own, n = sizes[role, :, metric], drawn.shape[1]
        total = stats.gamma(n)
        if 2 * min(total.cdf(own.sum()), total.sf(own.sum())) < RATE:
            found.add(f"{SERVERS[role]}: scale")
        if stats.binomtest(int((drawn[role, :, metric] > 0).sum()), n).pvalue < RATE:
            found.add(f"{SERVERS[role]}: sign")
        if stats.kstest(own, "expon", method="exact").pvalue < RATE:
            found.add(f"{SERVERS[role]}: distribution")
    for name, again in repeats(sizes).items():
        if again > 2:
            found.add(f"reused between {name}")
    return found


def repeats(sizes: Draws) -> dict[str, int]:
    """How many magnitudes occur again: at the other server, in another metric, in another round."""
    first, second = sizes
    return {
        "servers": len(np.intersect1d(first, second)),
        "metrics": sum(len(np.intersect1d(one[:, 0], one[:, 1])) for one in sizes),
        "rounds": sum(len(one) - len(np.unique(one)) for server in sizes for one in server.T),
    }


def test_each_server_adds_the_noise_of_the_terms(played: Played) -> None:
    drawn = played.draws()
    assert drawn.shape == (2, len(OPTIONS) * RELEASES, len(METRICS))
    assert not problems(drawn)


def test_servers_draw_noise_from_the_operating_system(played: Played) -> None:
    for own in played.parties:
        draw = context_of(own, played.digest, bytes(16)).draw
        assert draw is not None
        check_source(partial(draw, SCALE), "a server's noise")


def test_the_released_value_is_the_sum_of_both_partial_sums(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds as the parties close them: the sum of two answers of nothing is both noises."""
    taken: dict[bytes, list[bytes]] = {}
    take = Collector.take

    def listen(self: Collector, message: bytes) -> None:
        sent = taken.setdefault(self.round.identity, [])
        sent += [message] * (message not in sent)
        take(self, message)

    monkeypatch.setattr(Collector, "take", listen)
    played.pair.step(3)
    rounds = played.pair.coordinator.status(played.digest)["rounds"]
    by_name = {one["round"]: one for one in rounds if one["stage"] == "opened"}
    assert len(by_name) == len(OPTIONS)
    for one in played.rounds:
        sent = sorted(taken[one.about.identity], key=lambda message: message[HEADER_SIZE])
        noises = one.noise(sent)
        total = [sum(both) / LEVELS for both in zip(*noises, strict=True)]
        assert by_name[one.about.identity.hex()]["sums"] == total
        assert all(number for own in noises for number in own)


# What the checker rejects


real = party._draw


def no_noise(_scale: Fraction) -> int:
    return 0


def halved(scale: Fraction) -> int:
    return real(scale / 2)


def doubled(scale: Fraction) -> int:
    return real(scale * 2)


def positive(scale: Fraction) -> int:
    return abs(real(scale))


def constant(scale: Fraction) -> int:
    """The right magnitude on average, and another distribution."""
    return int(scale) * (1 if real(scale) > 0 else -1)


@pytest.mark.parametrize(
    ("fault", "seen", "releases"),
    [
        (no_noise, "scale", FEW),
        (halved, "scale", RELEASES),
        (doubled, "scale", RELEASES),
        (positive, "sign", FEW),
        (constant, "distribution", FEW),
    ],
)
def test_noise_of_another_distribution_is_detected_at_both_servers(
    fault: Draw, seen: str, releases: int, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(party, "_draw", fault)
    assert {f"{name}: {seen}" for name in SERVERS} <= problems(played.draws(releases))


@pytest.mark.parametrize("role", [0, 1], ids=SERVERS)
@pytest.mark.parametrize("metrics", [(0,), (1,), (0, 1)])
def test_noise_missing_at_one_server_in_one_metric_is_detected(
    role: int, metrics: tuple[int, ...], played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noise(_identity: bytes) -> Draw:
        numbers = count()
        return lambda scale: 0 if next(numbers) in metrics else real(scale)

    monkeypatch.setattr(played.parties[role], "_noise", noise)
    found = problems(played.draws(FEW))
    assert f"{SERVERS[role]}: scale" in found
    assert not any(one.startswith(SERVERS[1 - role]) for one in found)


class Reused:
    """The numbers of the first round again, in every round or in every second one."""

    def __init__(self, period: int) -> None:
        self.period, self.rounds = period, count()
        self.first = [real(SCALE) for _ in METRICS]

    def __call__(self, _identity: bytes) -> Draw:
        again = next(self.rounds) % self.period == 0
        left = iter(self.first if again else [real(SCALE) for _ in METRICS])
        return lambda _scale: next(left)


def once_for_all_metrics(_identity: bytes) -> Draw:
    drawn: list[int] = []

    def draw(scale: Fraction) -> int:
        drawn.append(drawn[0] if drawn else real(scale))
        return drawn[0]

    return draw


class Shared:
    """What the coordinator drew is the helper's noise too, with this sign."""

    def __init__(self, sign: int) -> None:
        self.sign, self.numbers = sign, list[int]()

    def coordinator(self, _identity: bytes) -> Draw:
        self.numbers = [real(SCALE) for _ in METRICS]
        return self._next(1)

    def helper(self, _identity: bytes) -> Draw:
        return self._next(self.sign)

    def _next(self, sign: int) -> Draw:
        left = iter(self.numbers)
        return lambda _scale: sign * next(left)


@pytest.mark.parametrize("role", [0, 1], ids=SERVERS)
@pytest.mark.parametrize(
    ("fault", "between"),
    [
        (lambda: Reused(1), "rounds"),
        (lambda: Reused(2), "rounds"),
        (lambda: once_for_all_metrics, "metrics"),
    ],
    ids=["every round", "every second round", "metrics"],
)
def test_noise_used_twice_by_one_server_is_detected(
    fault: Callable[[], Any],
    between: str,
    role: int,
    played: Played,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(played.parties[role], "_noise", fault())
    assert f"reused between {between}" in problems(played.draws(FEW))


@pytest.mark.parametrize("sign", [1, -1], ids=["equal", "opposite"])
def test_noise_shared_by_both_servers_is_detected(
    sign: int, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(sign)
    for own, noise in zip(played.parties, (shared.coordinator, shared.helper), strict=True):
        monkeypatch.setattr(own, "_noise", noise)
    assert "reused between servers" in problems(played.draws(FEW))

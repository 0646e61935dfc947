"""Exactly drawn noise of every scalar protocol, message by message: the battery of
`test_device_noise`, and one for randomized response.

Paths are discovered: a protocol of sums with a guarantee that has no entry here fails a test. The
false positive rates are those of the battery: 1e-9 for each path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.protocols import test_device_noise as battery
from tests.protocols.test_device_noise import NUMBERS, STEPS, Path, problems
from tests.protocols.test_every_protocol import concrete
from tests.tables import extended_but_every

from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Skellam,
    Table,
)
from tacit.privacy import ApproximateDP, PureDP, calibrate
from tacit.protocols.continuous import CentralLaplace, Exact
from tacit.protocols.contract import SumProtocol
from tacit.protocols.joint import JointSums
from tacit.protocols.pure_shuffle import PureShuffle, share_probabilities
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import Central, Local, SecureSum, TwoServers, Verified
from tacit.sampling import draws
from tacit.types import Integers

APPROXIMATE = ApproximateDP(1.0, 1e-5)
LEVELS, PEOPLE = 64, 4  # so few that nobody's share is often zero
SENDERS = 40


def signed(residue: int, modulus: int) -> int:
    return (residue + modulus // 2) % modulus - modulus // 2


class Messages(Path):
    """Enough messages to distinguish noise from half or twice as much."""

    def sample(self) -> Integers:
        """Participants x steps x numbers."""
        return np.array([self.noise() for _ in range(SENDERS)])


def each(one: Callable[[], int]) -> Callable[[], Integers]:
    """The noise of as many messages as a path has numbers."""
    return lambda: np.array([[one() for _ in range(NUMBERS)] for _ in range(STEPS)])


def of_share(protocol: Any, share: NoiseDistribution) -> Messages:
    """Messages of participants who report 0: a residue, or shares that sum to one."""

    def sent() -> int:
        message = protocol.randomize(0.0)
        return signed(sum(message) if isinstance(message, list) else message, protocol.modulus)

    return Messages(each(sent), share)


def of_server(protocol: Any) -> Messages:
    """Releases of participants who report 0."""
    distribution = protocol.released_distribution(0, PEOPLE)
    messages = [protocol.randomize(0.0) for _ in range(PEOPLE)]
    return Messages(each(lambda: protocol.combine(messages).value), distribution)


def of_metrics() -> Messages:
    """One participant's messages for several metrics."""
    distribution, modulus = DiscreteLaplace(LEVELS * NUMBERS), 1 << 24
    target = PureDP(1.0, participations=NUMBERS)
    joint = JointSums(Local(PEOPLE, LEVELS, distribution, target, modulus=modulus), NUMBERS)
    zeros = [0.0] * NUMBERS

    def sent() -> Integers:
        rows = [[signed(one, modulus) for one in joint.randomize(zeros)] for _ in range(STEPS)]
        return np.array(rows)

    return Messages(sent, distribution)


def of_pure_shuffle() -> Messages:
    protocol = PureShuffle(2, 0.1)
    about = protocol._group_and_row(0)[1].certificate.parameters
    ones = np.full(about.bits + 1, float(about.mixture) / (about.bits + 1))
    ones[: 2 * about.tau + 1] += (1 - float(about.mixture)) * share_probabilities(about)
    distribution = Table.of(0, ones / ones.sum())
    return Messages(each(lambda: sum(protocol.randomize(0.0).bits)), distribution)


def paths() -> Iterator[tuple[str, type[Any], Messages]]:
    target, laplace = PureDP(1.0), DiscreteLaplace(LEVELS)
    skellam = calibrate("skellam", LEVELS, APPROXIMATE).distribution
    gauss = calibrate("discrete-gaussian", LEVELS, APPROXIMATE, users=PEOPLE - 1).distribution
    assert isinstance(skellam, Skellam)
    assert isinstance(gauss, DiscreteGaussian)
    others = PEOPLE - 1
    polya = SecureSum(PEOPLE, LEVELS, laplace, target)
    yield "secagg, Pólya", SecureSum, of_share(polya, laplace.share(others))
    summed = SecureSum(PEOPLE, LEVELS, skellam, APPROXIMATE)
    yield "secagg, Skellam", SecureSum, of_share(summed, Skellam(skellam.variance / others))
    summed = SecureSum(PEOPLE, LEVELS, gauss, APPROXIMATE)
    own = DiscreteGaussian(gauss.sigma / math.sqrt(others))
    yield "secagg, discrete Gaussian", SecureSum, of_share(summed, own)
    split = SplitAndMix(SecureSum(24, LEVELS, skellam, APPROXIMATE))
    yield "split and mix", SplitAndMix, of_share(split, Skellam(skellam.variance / 23))
    local = Local(PEOPLE, LEVELS, laplace, target, modulus=1 << 24)
    yield "local", Local, of_share(local, laplace)
    bits = shuffle_noise(others, 4, APPROXIMATE)
    shuffled = ShuffledBits(PEOPLE, 4, *bits, APPROXIMATE)
    ones = each(lambda: sum(shuffled.randomize(0.0)))
    yield "shuffled bits", ShuffledBits, Messages(ones, Binomial(*bits))
    yield "pure shuffle", PureShuffle, of_pure_shuffle()
    yield "central", Central, of_server(Central(PEOPLE, LEVELS, laplace, target, None))
    yield "two servers", TwoServers, of_server(TwoServers(PEOPLE, LEVELS, target))
    yield "verified", Verified, of_server(Verified(PEOPLE, LEVELS, target))
    yield "several metrics", JointSums, of_metrics()


PATHS = {name: path for name, _, path in paths()}
EACH = pytest.mark.parametrize("name", PATHS)


def test_every_sum_with_a_guarantee_has_a_tested_path() -> None:
    """But for continuous noise, which is for comparison only, and randomized response below."""
    apart = {Exact, CentralLaplace, RandomizedBits}
    assert {kind for _, kind, _ in paths()} == (concrete(SumProtocol) - apart) | {JointSums}


@EACH
def test_the_noise_of_every_message_is_correct(name: str) -> None:
    assert PATHS[name].distribution.pmf(np.arange(-20000, 20000)).max() < 0.1
    assert not problems(PATHS[name])


# What the battery rejects


def whole(fault: Callable[..., Any]) -> Callable[[NoiseDistribution], int]:
    """A fault of the battery, for one number."""
    return lambda distribution: int(fault(distribution))


class Replayed:
    """Each of `period` draws is used `times` times in a row, and then the next ones are drawn."""

    def __init__(self, period: int, times: int) -> None:
        self.period, self.times, self.count = period, times, 0
        self.kept = list[int]()

    def __call__(self, distribution: NoiseDistribution) -> int:
        turn, place = divmod(self.count, self.period)
        self.count += 1
        if turn % self.times:
            return self.kept[place]
        self.kept = [] if place == 0 else self.kept
        self.kept.append(int(battery.DRAW(distribution)))
        return self.kept[place]


FAULTS: dict[str, tuple[Callable[[int], Callable[[NoiseDistribution], int]], str]] = {
    "missing": (lambda _: lambda distribution: round(distribution.mean), "another distribution"),
    "halved": (lambda _: whole(battery.halved), "another distribution"),
    "doubled": (lambda _: lambda distribution: _doubled(distribution), "another distribution"),
    "seeded": (lambda _: whole(battery.seeded), "seeded"),
    "one for all": (lambda _: whole(battery.Reused()), "used twice between people"),
    "one for all metrics": (lambda each: Replayed(each, NUMBERS), "used twice between numbers"),
    "one for all rounds": (
        lambda each: Replayed(each * NUMBERS, STEPS),
        "used twice between steps",
    ),
}


def _doubled(distribution: NoiseDistribution) -> int:
    middle = round(distribution.mean)
    return middle + 2 * (int(battery.DRAW(distribution)) - middle)


@pytest.mark.parametrize(
    ("name", "fault"), extended_but_every(len(FAULTS) + 1, product(PATHS, FAULTS))
)
def test_defective_noise_is_detected_in_every_protocol(
    name: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, seen = FAULTS[fault]
    mutant = make(2 if name in ("two servers", "verified") else 1)
    monkeypatch.setattr(NoiseDistribution, "draw", lambda distribution: mutant(distribution))
    monkeypatch.setattr(  # which certified shares are drawn by
        draws,
        "draw_laplace_share",
        lambda scale, shares: mutant(DiscreteLaplace(float(scale)).share(shares)),
    )
    if seen != "seeded":  # which takes thousands of draws
        monkeypatch.setattr(battery, "check_source", lambda *_: None)
    assert seen in problems(PATHS[name])


@pytest.mark.parametrize("kind", [TwoServers, Verified])
def test_noise_reused_by_two_servers_is_detected(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the same number is even; 200 sums of two numbers are so with probability 2^-190."""
    protocol = kind(PEOPLE, LEVELS, PureDP(1.0))

    def shared() -> bool:
        released = (protocol.combine([0] * PEOPLE).value for _ in range(200))
        return all(signed(value, protocol.modulus) % 2 == 0 for value in released)

    assert not shared()
    mutant = Replayed(1, 2)
    monkeypatch.setattr(NoiseDistribution, "draw", lambda distribution: mutant(distribution))
    assert shared()


# Randomized response

RESPONSES, RATE = 1500, 3e-10


def lies(protocol: RandomizedBits, reward: float) -> Integers:
    """Which of so many messages are not the reward."""
    return np.array([protocol.randomize(reward) ^ int(reward) for _ in range(RESPONSES)])


def problems_of_bits(epsilon: float) -> set[str]:
    """Defects of bit flips; none, except with probability 1e-9 per run.

    Lies are Binomial(n, 1/(1 + e^ε)) for either bit. Of two neighbours in disjoint pairs both lie
    or both do not with a known probability, so that the number of such pairs is binomial, too.
    """
    lie, found = 1 / (1 + math.exp(epsilon)), set()
    for reward in (0.0, 1.0):
        drawn = lies(RandomizedBits(PEOPLE, PureDP(epsilon)), reward)
        if stats.binomtest(int(drawn.sum()), RESPONSES, lie).pvalue < RATE / 2:
            found.add("another probability")
        alike = int((drawn[::2] == drawn[1::2]).sum())
        both = lie**2 + (1 - lie) ** 2
        if stats.binomtest(alike, RESPONSES // 2, both, "greater").pvalue < RATE / 2:
            found.add("used twice")
    return found


@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_randomized_bits_flip_with_the_stated_probability(epsilon: float) -> None:
    assert not problems_of_bits(epsilon)


FLIP = RandomizedBits.flip


class Twice:
    """Every flip is used in two messages."""

    def __init__(self) -> None:
        self.kept: bool | None = None

    def __call__(self, protocol: RandomizedBits) -> bool:
        told, self.kept = self.kept, None
        if told is None:
            told = self.kept = FLIP(protocol)
        return told


@pytest.mark.parametrize(
    ("broken", "seen"),
    [
        (lambda: lambda _: False, "another probability"),
        (lambda: lambda protocol: FLIP(protocol) and FLIP(protocol), "another probability"),
        (lambda: lambda protocol: FLIP(protocol) or FLIP(protocol), "another probability"),
        (Twice, "used twice"),
    ],
    ids=["missing", "fewer", "more", "reused"],
)
def test_wrong_flip_probabilities_are_detected(
    broken: Callable[[], Any], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = broken()
    monkeypatch.setattr(RandomizedBits, "flip", lambda protocol: mutant(protocol))
    assert seen in problems_of_bits(1.0)

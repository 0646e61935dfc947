"""A small example of every protocol; each sum has a twin with half the noise.

A new protocol is added to `EXAMPLES` or `CASES`; `test_every_protocol_is_tested` fails until it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.environments.population import SignReports
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Skellam,
    Table,
)
from tacit.privacy import ApproximateDP, PureDP, ThreatModel, calibrate
from tacit.protocols import vectors
from tacit.protocols.continuous import CentralLaplace, Exact
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.factorization import factorize
from tacit.protocols.integer_vectors import SecureVector, ShuffledVector
from tacit.protocols.joint import JointSums
from tacit.protocols.l2_sums import CentralBall, LocalBall, SecureBall, ShuffledBall
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixSums
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.statistic_sums import (
    CentralStatistic,
    ExactStatistic,
    SecureStatistic,
    ShuffledStatistic,
    ShuffledTable,
    StatisticTotals,
    TwoServerStatistic,
    UnaryStatistic,
)
from tacit.protocols.statistics import MomentStatistic, TableStatistic
from tacit.protocols.sums import Central, Local, SecureSum, TwoServers, Verified, paper_modulus
from tacit.trust import TrustModel
from tacit.types import Aggregate, Codec, Estimate, Floats, Integers, Levels

CENTRAL, SHUFFLER = TrustModel.CENTRAL, TrustModel.SHUFFLER
SECURE = TrustModel.SECURE_AGGREGATION
APPROXIMATE = ApproximateDP(1.0, 1e-5)
PEOPLE = 20  # in every example but those that say otherwise
STAYING = 15  # of them where a quarter may leave
SAYS = math.e / (1 + math.e)  # the probability that a bit is told truly at epsilon 1


def claiming(build: Callable[[float], SumProtocol]) -> Callable[[float], SumProtocol]:
    """`build(factor)`, which makes noise of that width under a guarantee that it gives, under the
    guarantee of the full width: what no constructor would make.
    """

    def made(factor: float) -> SumProtocol:
        protocol = build(factor)
        protocol.guarantee = build(1.0).guarantee
        return protocol

    return made


def weaker(factor: float) -> ApproximateDP:
    return APPROXIMATE if factor == 1 else ApproximateDP(100.0, 0.5)


@claiming
def polya(factor: float) -> SumProtocol:
    return SecureSum(PEOPLE, 4, DiscreteLaplace(4 * factor), PureDP(1.0 / factor))


@claiming
def polya_dropout(factor: float) -> SumProtocol:
    return SecureSum(
        PEOPLE,
        4,
        DiscreteLaplace(4 * factor),
        PureDP(1.0 / factor),
        threat=ThreatModel(dropout=0.25),
    )


@cache
def skellam_variance() -> float:
    return float(calibrate("skellam", 8, APPROXIMATE).distribution.variance)


@claiming
def skellam(factor: float) -> SumProtocol:
    return SecureSum(PEOPLE, 8, Skellam(skellam_variance() * factor**2), weaker(factor))


@cache
def gaussian_sigma() -> float:
    distribution = calibrate("discrete-gaussian", 16, APPROXIMATE, users=PEOPLE - 1).distribution
    assert isinstance(distribution, DiscreteGaussian)
    return float(distribution.sigma)


@claiming
def gaussian(factor: float) -> SumProtocol:
    return SecureSum(PEOPLE, 16, DiscreteGaussian(gaussian_sigma() * factor), weaker(factor))


@claiming
def central(factor: float) -> SumProtocol:
    return Central(PEOPLE, 4, DiscreteLaplace(4 * factor), PureDP(1.0 / factor), None)


@claiming
def two_servers(factor: float) -> SumProtocol:
    return TwoServers(PEOPLE, 4, PureDP(1.0 / factor))


@claiming
def verified(factor: float) -> SumProtocol:
    return Verified(PEOPLE, 4, PureDP(1.0 / factor))


@claiming
def local(factor: float) -> SumProtocol:
    distribution, modulus = DiscreteLaplace(4 * factor), paper_modulus(PEOPLE, 4, 600)
    return Local(PEOPLE, 4, distribution, PureDP(1.0 / factor), modulus=modulus)


@claiming
def response(factor: float) -> SumProtocol:
    return RandomizedBits(PEOPLE, PureDP(1.0 / factor))


def shuffled(precision: int, dropout: float = 0.0) -> Callable[[float], SumProtocol]:
    @claiming
    def build(factor: float) -> SumProtocol:
        bits, bias = shuffle_noise(math.ceil(PEOPLE * (1 - dropout)) - 1, precision, APPROXIMATE)
        p = (
            bias
            if factor == 1
            else 0.5 - 0.5 * math.sqrt(1 - 4 * factor**2 * float(bias * (1 - bias)))
        )
        return ShuffledBits(
            PEOPLE, precision, bits, p, weaker(factor), threat=ThreatModel(dropout=dropout)
        )

    return build


def bits(honest: int, precision: int) -> Binomial:
    return Binomial(*shuffle_noise(honest, precision, APPROXIMATE))


@claiming
def split(factor: float) -> SumProtocol:
    return SplitAndMix(SecureSum(24, 4, DiscreteLaplace(4 * factor), PureDP(1.0 / factor)))


@claiming
def pure(factor: float) -> SumProtocol:
    return PureShuffle(21, 1.0 / factor)  # shares of 16, one group


@dataclass(frozen=True)
class Example:
    """`build(1.0)` is the protocol as calibrated, `build(0.5)` has noise of half the width under
    the same guarantee.

    `share` is the distribution of what one participant adds, written down a second time, and
    `adding` is how many of them are in what is seen (0: all who report).
    """

    build: Callable[[float], SumProtocol]
    share: Callable[[], NoiseDistribution] | None = None
    adding: int = 0
    noisy: bool = True


EXAMPLES: dict[str, Example] = {
    "secagg-polya": Example(polya, lambda: DiscreteLaplace(4).share(PEOPLE - 1)),
    "secagg-polya-dropout": Example(polya_dropout, lambda: DiscreteLaplace(4).share(STAYING - 1)),
    "secagg-skellam": Example(skellam, lambda: Skellam(skellam_variance() / (PEOPLE - 1))),
    "secagg-gaussian": Example(
        gaussian, lambda: DiscreteGaussian(gaussian_sigma() / math.sqrt(PEOPLE - 1))
    ),
    "central": Example(central, lambda: DiscreteLaplace(4), adding=1),
    "two-servers": Example(two_servers, lambda: DiscreteLaplace(4), adding=1),
    "verified": Example(verified, lambda: DiscreteLaplace(4), adding=1),
    "local": Example(local, lambda: DiscreteLaplace(4), adding=1),
    "shuffle-binary": Example(shuffled(1), lambda: bits(PEOPLE - 1, 1)),
    "shuffle-levels": Example(shuffled(5), lambda: bits(PEOPLE - 1, 5)),
    "shuffle-dropout": Example(shuffled(3, 0.25), lambda: bits(STAYING - 1, 3)),
    "split-and-mix": Example(split, lambda: DiscreteLaplace(4).share(23)),
    "response": Example(response, lambda: Table.of(0, np.array([SAYS, 1 - SAYS])), adding=1),
    "pure-shuffle": Example(pure),
    "exact": Example(lambda _: Exact(PEOPLE, 8), noisy=False),
    "central-laplace": Example(
        claiming(lambda factor: CentralLaplace(PEOPLE, PureDP(1.0 / factor), 8))
    ),
}


def some_levels(protocol: SumProtocol, reports: int) -> Integers:
    """Levels that use the whole range, the same every time."""
    return np.random.default_rng(reports).integers(0, protocol.precision + 1, size=reports)


def counted(levels: Integers) -> Levels:
    values, counts = np.unique(levels, return_counts=True)
    return Levels(values, counts)


def fast(protocol: SumProtocol, levels: Integers, rng: np.random.Generator) -> Estimate:
    return protocol.simulate(counted(levels), rng)


def estimate_by_devices(
    protocol: SumProtocol, levels: Integers, rng: np.random.Generator
) -> Estimate:
    return protocol.analyze(protocol.combine_batch(protocol.randomize_batch(levels, rng), rng))


def device(protocol: SumProtocol, levels: Integers) -> Estimate:
    """Everyone's message from exact draws; the intermediary and the server as they are live."""
    rewards = [int(level) / protocol.precision for level in levels]
    return protocol.analyze(protocol.combine(sent(protocol, rewards)))


def sent(protocol: Protocol, reports: list[Any]) -> list[Any]:
    """Everyone's message, in the order of places."""
    return [protocol.report(report, place) for place, report in enumerate(reports)]


def by_hand(share: NoiseDistribution, copies: int, total: int, modulus: int | None) -> Table:
    """total + so many shares, added up one by one from their probabilities, modulo m if there is
    any.
    """
    first, last = share.window(-80.0)
    one, distribution = share.pmf(np.arange(first, last + 1)), np.ones(1)
    for _ in range(copies):
        distribution = np.convolve(distribution, one)
    start = total + copies * first
    if modulus is None:
        return Table.of(start, distribution)
    folded = np.zeros(modulus)
    np.add.at(folded, (start + np.arange(len(distribution))) % modulus, distribution)
    return Table.of(0, folded)


# Every protocol, whatever is reported


def opened_number(protocol: Any, released: Aggregate, messages: list[Any]) -> int:  # noqa: ARG001
    """What is seen of most protocols: the first released number."""
    return int(released.values[0])


@dataclass(frozen=True)
class Case:
    """A protocol, what its participants report, the same as a simulation is given it, and what of
    a round follows `released_distribution(total, reports)`: a number that is `seen`, if there is
    any such distribution, with so many reports `inside` it (0: all).
    """

    build: Callable[[], Protocol]
    reports: list[Any]
    load: Any
    total: int = 0
    seen: Callable[[Any, Aggregate, list[Any]], int] | None = opened_number
    inside: int = 0


def a_sum(name: str, example: Example) -> Case:
    protocol = example.build(1.0)
    levels = some_levels(protocol, protocol.participants)
    total = int(levels.sum())
    if name == "response":  # lies cancel where half of all hold a one
        levels = np.ones_like(levels)
        total = int(levels.sum())
    if name == "pure-shuffle":  # whose distribution depends on who holds ones: the first do
        levels = np.sort(levels)[::-1]
    reports = [int(level) / protocol.precision for level in levels]
    load = counted(levels)
    if name == "central-laplace":
        return Case(lambda: example.build(1.0), reports, load, seen=None)
    return Case(lambda: example.build(1.0), reports, load, total)


TEN, ONE = ApproximateDP(10.0, 0.25), ApproximateDP(1.0, 1e-3)
ENDS = np.array([[1, -1, 1], [1, 1, -1], [-1, 1, 1], [1, 1, 1], [-1, -1, 1], [1, -1, -1]]) * 1.0
UPS = int((ENDS[:, 0] > 0).sum())


@dataclass(frozen=True, eq=False)
class Given:
    """These vectors, as a simulation is given them."""

    vectors: Floats

    def total(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """Their sum."""
        return np.asarray(self.vectors.sum(axis=0))

    def level_sums(self, codec: Codec, rng: np.random.Generator) -> Integers:
        """The sums of their levels."""
        return np.asarray(codec.levels(self.vectors, rng).sum(axis=0))


def steps(value: float, protocol: Any, already: float) -> int:
    """The noise in a number on a protocol's grid, in steps of it."""
    return round((value - already) / float(protocol.unit))


def vector(build: Callable[[], Protocol], total: int, seen: Any = opened_number) -> Case:
    return Case(build, list(ENDS), Given(ENDS), total, seen)


def separate() -> Protocol:
    return vectors.SeparateSums(
        [SecureVector(count, 1, 1.0, ONE, precision=4) for count in (5, 3, 4)]
    )


PLAYED = [(0, 1.0)] * 3 + [(0, -1.0)] * 2 + [(1, 1.0), (1, -1.0), (1, -1.0)] + [(2, 1.0)] * 4
HISTORY: npt.NDArray[np.float64] = np.arange(24.0).reshape(4, 2, 3) / 24  # silos, steps, numbers


def prefix() -> Protocol:
    """The second step of a tree, whose released number holds both."""
    target = ApproximateDP(2.0, 0.05)
    shape = factorize("tree", 2)
    sums = calibrated(SiloStream(shape, 4, 3, 1.5, people=4), SECURE, "skellam", target)
    before = HISTORY[:, 0].sum(axis=0)
    return sums.open(1, {0: before}, {0: before}, sums.guarantee(0.05))


def central_prefix() -> Protocol:
    """The same step with a trusted server that draws the noise."""
    target, shape = ApproximateDP(2.0, 0.05), factorize("tree", 2)
    sums = calibrated(SiloStream(shape, 4, 3, 1.5, people=4), CENTRAL, "skellam", target)
    before = HISTORY[:, 0].sum(axis=0)
    return sums.open(1, {0: before}, {0: before}, sums.guarantee(0.05))


def noise_in_sum(protocol: Any, released: Aggregate, _: Any) -> int:
    """The first released number less the data's."""
    data = np.rint(HISTORY[:, :, 0].sum(axis=1) * protocol.sums.scale).sum()
    return int(np.uint64(released.values[0]).astype(np.int64)) - int(data)


def shuffled_prefix() -> Protocol:
    """The same in bits that a shuffler mixes, on a grid so coarse that there are few of them."""
    sums = PrefixSums(factorize("tree", 2), 4, 3, 1.5, SHUFFLER, "binomial", 3.0, scale=64)
    before = HISTORY[:, 0].sum(axis=0)
    return sums.open(1, {0: before}, {0: before}, sums.guarantee(0.05))


def ones_of_noise(protocol: Any, released: Aggregate, _: Any) -> int:
    """How many of the first number's ones are not its data's."""
    sums = protocol.sums
    data = np.rint(HISTORY[:, :, 0].sum(axis=1) * sums.scale).sum()
    return int(released.values[0] - data - sums.silos * 2 * sums.scale)


PAIRS = np.random.default_rng(8).integers(0, 5, size=(PEOPLE, 2))  # levels of two metrics


def joint() -> Protocol:
    return JointSums(TwoServers(PEOPLE, 4, PureDP(1.0, participations=2)), 2)


def ball(build: Callable[[], Any], people: int = 6) -> Case:
    """Vectors whose coordinates are whole steps, so that what is left of the first is noise."""
    vectors_ = np.resize(ENDS, (people, 3))

    def seen(protocol: Any, released: Aggregate, messages: list[Any]) -> int:
        value = released.values[0]
        already = vectors_[:, 0].sum()
        if isinstance(protocol, LocalBall):
            value, already = messages[0][0], vectors_[0, 0]
        half = protocol.modulus // 2
        off = value - round(already / protocol.unit)
        return int((off + half) % protocol.modulus - half)

    return Case(build, list(vectors_), Given(vectors_), 0, seen)


CELLS = [0, 0, 0, 1, 2, 3, 3, 5, 0, 4] * 2  # of 20 participants in a table of six cells
PAIRED = [((600, -300), 1), ((1000, 0), 0), ((-700, 700), 1), ((0, 0), 1), ((0, 999), 0)]
TABLE, MOMENTS = TableStatistic(1, 3), MomentStatistic(2, 1000)


def statistic(build: Callable[[], Any], reports: list[Any], kind: Any) -> Case:
    """Reports of a statistic; what is seen of the first sum is its noise, or its number of ones."""
    sums = np.array([kind.encode(report) for report in reports]).sum(axis=0)
    total = int(sums[0])

    def seen(protocol: Any, released: Aggregate, _: Any) -> int:
        half = protocol.modulus // 2
        return int((released.values[0] + half) % protocol.modulus - half)

    return Case(build, reports, StatisticTotals(sums, len(reports)), total, seen)


CASES: dict[str, Case] = {
    **{name: a_sum(name, example) for name, example in EXAMPLES.items()},
    "vector-plain": vector(lambda: vectors.Plain(6, 3, 1.0), 0, None),
    "vector-central": vector(
        lambda: vectors.CentralVectors(6, 3, 1.0, TEN),
        0,
        lambda p, released, _: steps(released.values[0], p, float(ENDS[:, 0].sum())),
    ),
    "vector-local": vector(
        lambda: vectors.LocalVectors(6, 3, 1.0, TEN),
        0,
        lambda p, _, messages: steps(messages[0][0], p, float(ENDS[0, 0])),
    ),
    "vector-shuffle": vector(lambda: ShuffledVector(6, 3, 1.0, TEN, precision=5), 5 * UPS),
    "vector-secagg": vector(lambda: SecureVector(6, 3, 1.0, TEN, precision=5), 5 * UPS),
    "vector-secagg-pure": vector(
        lambda: SecureVector(6, 3, 1.0, PureDP(5.0), precision=5), 5 * UPS
    ),
    "ball-central": ball(lambda: CentralBall(6, 3, 2.0, TEN)),
    "ball-local": ball(lambda: LocalBall(6, 3, 2.0, TEN)),
    "ball-secagg": ball(lambda: SecureBall(6, 3, 2.0, TEN)),
    "ball-secagg-gaussian": ball(
        lambda: SecureBall(6, 3, 2.0, TEN, noise_kind="discrete-gaussian")
    ),
    "ball-shuffle": ball(lambda: ShuffledBall(20, 3, 2.0, TEN), people=20),
    "statistic-exact": replace(
        statistic(lambda: ExactStatistic(20, TABLE), CELLS, TABLE), seen=None
    ),
    "statistic-central-table": statistic(
        lambda: CentralStatistic(20, TABLE, PureDP(1.0)), CELLS, TABLE
    ),
    "statistic-two-table": statistic(
        lambda: TwoServerStatistic(20, TABLE, PureDP(1.0)), CELLS, TABLE
    ),
    "statistic-secagg-table": statistic(
        lambda: SecureStatistic(20, TABLE, PureDP(1.0)), CELLS, TABLE
    ),
    "statistic-shuffle-table": statistic(
        lambda: ShuffledStatistic(20, TABLE, PureDP(1.0)), CELLS, TABLE
    ),
    "statistic-shuffle-bits": statistic(lambda: ShuffledTable(20, TABLE, TEN), CELLS, TABLE),
    "statistic-local-table": statistic(
        lambda: UnaryStatistic(20, TABLE, PureDP(1.0)), CELLS, TABLE
    ),
    "statistic-two-moments": statistic(
        lambda: TwoServerStatistic(5, MOMENTS, TEN), PAIRED, MOMENTS
    ),
    "statistic-secagg-moments": statistic(
        lambda: SecureStatistic(5, MOMENTS, TEN), PAIRED, MOMENTS
    ),
    "separate-sums": Case(
        separate,
        PLAYED,
        [SignReports(ups, plays, 1.0) for ups, plays in ((3, 5), (1, 3), (4, 4))],
        3 * 4,
        lambda p, released, _: int(released.values[0].value),  # noqa: ARG005
        inside=5,
    ),
    "joint-sums": Case(
        joint,
        [[level / 4 for level in row] for row in PAIRS.tolist()],
        [counted(column) for column in PAIRS.T],
        int(PAIRS[:, 0].sum()),
    ),
    "prefix-sums": Case(prefix, list(HISTORY), HISTORY[:, 1].sum(axis=0), 0, noise_in_sum),
    "central-prefix-sums": Case(
        central_prefix, list(HISTORY), HISTORY[:, 1].sum(axis=0), 0, noise_in_sum
    ),
    "shuffled-prefix-sums": Case(
        shuffled_prefix, list(HISTORY), HISTORY[:, 1].sum(axis=0), 0, ones_of_noise
    ),
}

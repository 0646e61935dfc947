"""Small rounds of every protocol that uses an aggregation, with reports of their participants.

A protocol that is added to `FITS` needs an entry here; `test_every_pairing_is_tested` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.noise import DiscreteLaplace
from tacit.privacy import ApproximateDP, PureDP, ThreatModel, View
from tacit.protocols.contract import Protocol
from tacit.protocols.factorization import factorize
from tacit.protocols.integer_vectors import SecureVector, ShuffledVector
from tacit.protocols.joint import JointSums, for_each
from tacit.protocols.l2_sums import SecureBall, ShuffledBall
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixSums
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.statistic_sums import SecureStatistic, ShuffledTable, TwoServerStatistic
from tacit.protocols.statistics import TableStatistic
from tacit.protocols.sums import Local, SecureSum, TwoServers, Verified, paper_modulus
from tacit.trust import TrustModel

SECURE, SHUFFLER = TrustModel.SECURE_AGGREGATION, TrustModel.SHUFFLER
TARGET = ApproximateDP(3.0, 1e-2)


SO_LITTLE = PureDP(4000.0)  # that the noise is nil


@dataclass(frozen=True)
class Example:
    """A protocol, and the report of the participant at each place."""

    build: Callable[[], Protocol]
    report: Callable[[int], Any]


def bits() -> Protocol:
    data, bias = shuffle_noise(5, 3, TARGET)
    return ShuffledBits(8, 3, data, bias, TARGET, threat=ThreatModel(dropout=0.25))


def prefix() -> Protocol:
    """The second step; the first released nothing but zeros."""
    sums = calibrated(
        SiloStream(factorize("tree", 2), 5, 3, 1.5, people=4), SECURE, "skellam", TARGET
    )
    return sums.open(1, {0: np.zeros(3)}, {}, sums.guarantee(1e-2))


def shuffled_prefix() -> Protocol:
    """The same in bits, on a grid so coarse that there are few of them."""
    sums = PrefixSums(factorize("tree", 2), 5, 3, 1.5, SHUFFLER, "binomial", 2.0, 2, people=1)
    return sums.open(1, {0: np.zeros(3)}, {}, TARGET.with_view(view=View.SHUFFLED))


def two_metrics(place: int) -> list[float]:
    return [place / 8, 1 - place / 8]


def joint_bits() -> Protocol:
    target = for_each(TARGET, 2)
    data, bias = shuffle_noise(5, 3, target)
    return JointSums(ShuffledBits(8, 3, data, bias, target, threat=ThreatModel(dropout=0.25)), 2)


def vector(place: int) -> list[float]:
    return [(-1.0) ** place, place / 8, -place / 8]


EXAMPLES: dict[str, Example] = {
    "secure-sum": Example(
        lambda: SecureSum(8, 4, DiscreteLaplace(4), PureDP(1.0), threat=ThreatModel(dropout=0.25)),
        lambda i: i / 8,
    ),
    "two-servers": Example(lambda: TwoServers(8, 4, SO_LITTLE), lambda i: i / 8),
    "two-server-table": Example(
        lambda: TwoServerStatistic(8, TableStatistic(2, 2), PureDP(100.0)), lambda i: i
    ),
    "secure-table": Example(
        lambda: SecureStatistic(8, TableStatistic(2, 2), PureDP(100.0)), lambda i: i
    ),
    "shuffled-table": Example(lambda: ShuffledTable(8, TableStatistic(2, 2), TARGET), lambda i: i),
    "verified": Example(lambda: Verified(8, 4, SO_LITTLE), lambda i: i / 8),
    "verified-bits": Example(lambda: Verified(8, 1, SO_LITTLE), lambda i: i % 2),
    "joint-sums": Example(
        lambda: JointSums(
            SecureSum(
                8,
                4,
                DiscreteLaplace(8),
                PureDP(1.0, participations=2),
                threat=ThreatModel(dropout=0.25),
            ),
            2,
        ),
        two_metrics,
    ),
    "joint-two-servers": Example(
        lambda: JointSums(TwoServers(8, 4, for_each(SO_LITTLE, 2)), 2), two_metrics
    ),
    "joint-bits": Example(joint_bits, two_metrics),
    "response": Example(lambda: RandomizedBits(8, PureDP(1.0)), lambda i: float(i % 2)),
    "local-sum": Example(
        lambda: Local(
            8,
            4,
            DiscreteLaplace(4),
            PureDP(1.0),
            modulus=paper_modulus(8, 4, 200),
        ),
        lambda i: i / 8,
    ),
    "secure-vector": Example(
        lambda: SecureVector(8, 3, 1.0, TARGET, precision=5, threat=ThreatModel(dropout=0.25)),
        vector,
    ),
    "secure-ball": Example(lambda: SecureBall(6, 3, 2.0, TARGET), vector),
    "shuffled-ball": Example(lambda: ShuffledBall(20, 3, 4.0, TARGET), vector),
    "prefix-sums": Example(prefix, lambda i: [vector(i), vector(i + 1)]),
    "shuffled-prefix-sums": Example(shuffled_prefix, lambda i: [vector(i), vector(i + 1)]),
    "split-and-mix": Example(
        lambda: SplitAndMix(
            SecureSum(26, 4, DiscreteLaplace(4), PureDP(1.0), threat=ThreatModel(dropout=0.2)),
            security=5,
        ),
        lambda i: i / 26,
    ),
    "shuffled-bits": Example(bits, lambda i: i / 8),
    "shuffled-vector": Example(lambda: ShuffledVector(6, 3, 1.0, TARGET, precision=4), vector),
    "pure-shuffle": Example(lambda: PureShuffle(7, 2.0), lambda i: float(i % 2)),
}

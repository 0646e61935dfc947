"""Two metrics of the same participants under one guarantee, from their joint distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.protocols.examples import counted, sent
from tests.samples import follows
from tests.tables import each_row

from tacit.assumptions import DistinctRounds, MetricsPerParticipation
from tacit.errors import TacitError
from tacit.names import name_of
from tacit.noise import DiscreteLaplace, Table
from tacit.privacy import ApproximateDP, Guaranteed, PureDP, ThreatModel
from tacit.privacy.status import status_to_data
from tacit.protocols import factories, vectors
from tacit.protocols.continuous import Exact
from tacit.protocols.contract import SumProtocol
from tacit.protocols.joint import JointSums, for_each
from tacit.protocols.mechanism import PerRound
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.sums import Central, SecureSum, TwoServers
from tacit.rounds import aggregate
from tacit.types import Aggregate, Estimate, Floats

SEEDED, UNSEEDED = 1e-6, 1e-9  # false-alarm rates, of draws that a seed repeats and of exact ones
USERS = 30
RESOLVED = 1e-9
BITS: dict[str, Any] = {"binary": True}
TRUST: dict[str, tuple[Callable[..., SumProtocol], dict[str, Any]]] = {
    "central": (factories.central_laplace, BITS | {"failure_probability": None}),
    "secure-aggregation": (factories.polya_tight, BITS | {"dropout": 0.0}),
    "two-servers": (factories.two_servers_laplace, BITS),
    "local": (factories.local_laplace, {"paper": False}),
    "response": (factories.response, {}),
    "central-levels": (factories.central_laplace, {"binary": False, "failure_probability": None}),
}


def a_vector(users: int, target: PureDP) -> vectors.VectorProtocol:
    """A recipe, but of no sum."""
    return vectors.CentralVectors(users, 2, 1.0, target)


def joint(trust: str, target: Any, metrics: int = 2) -> JointSums:
    make, how = TRUST[trust]
    return factories.joint(USERS, metrics, name_of(make), target, **how)


def views(part: SumProtocol) -> tuple[Floats, Floats]:
    """What is certain to hide one metric, of a participant at the lowest level and at the highest,
    as far as a transform resolves it.
    """
    distributions = [part.view_distribution(total, part.honest) for total in (0, part.precision)]
    ends = [distribution.support for distribution in distributions]
    points = np.arange(int(min(low for low, _ in ends)), int(max(high for _, high in ends)) + 1)
    low, high = (distribution.pmf(points) for distribution in distributions)
    inside = (low > RESOLVED) & (high > RESOLVED)
    return low[inside], high[inside]


def joint_loss(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> float:
    """The largest log ratio of joint probabilities when both answers of a participant are
    replaced.
    """
    ratio = np.log(np.outer(one[0], other[0])) - np.log(np.outer(one[1], other[1]))
    return float(np.abs(ratio).max())


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("participations", [1, 3])
def test_replacing_both_answers_of_a_participant_costs_epsilon(
    trust: str, participations: int
) -> None:
    """From the joint distribution of what is seen: not more, and no noise is wasted."""
    protocol = joint(trust, PureDP(0.9, participations=participations))
    loss = joint_loss(views(protocol.part), views(protocol.part)) * participations
    assert loss <= 0.9 * (1 + 1e-4)  # modulo m, by a transform
    assert loss >= 0.9 * 0.98
    guarantee = protocol.guarantee
    assert (guarantee.epsilon, guarantee.participations) == (0.9, participations)
    assert MetricsPerParticipation(2) in guarantee.assumptions
    assert "a participation reports at most 2 metrics, all of them covered together" in str(
        guarantee
    )


@pytest.mark.parametrize("trust", TRUST)
def test_noise_for_a_single_metric_breaks_the_joint_guarantee(trust: str) -> None:
    """The computation above sees it, whichever metric is the weak one."""
    make, how = TRUST[trust]
    good = views(joint(trust, PureDP(0.9)).part)
    weak = views(make(USERS, target=PureDP(0.9), **how))
    assert joint_loss(good, weak) > 0.9 * 1.3
    assert joint_loss(weak, good) > 0.9 * 1.3


def test_an_approximate_guarantee_holds_for_both_metrics_together() -> None:
    """δ of the joint distribution, both answers replaced together, in both directions."""
    target = ApproximateDP(1.0, 1e-5)
    how = {"binary": True, "dropout": 0.0}
    for make in (factories.skellam_tight, factories.shuffled_tight):
        protocol = factories.joint(USERS, 2, name_of(make), target, **how)
        low, high = views(protocol.part)
        before, after = np.outer(low, low), np.outer(high, high)
        for p, q in ((before, after), (after, before)):
            assert np.maximum(p - math.e * q, 0.0).sum() <= 1e-5
        alone = views(make(USERS, target=target, **how))
        p, q = np.outer(alone[0], alone[0]), np.outer(alone[1], alone[1])
        assert np.maximum(p - math.e * q, 0.0).sum() > 1e-5


@pytest.mark.parametrize("participations", [1, 3])
def test_several_participations_with_a_delta_need_distinct_rounds_of_metrics(
    participations: int,
) -> None:
    """Metrics of one participation share its round and have noise of their own."""
    target = ApproximateDP(1.0, 1e-5, participations=participations)
    how = {"binary": True, "dropout": 0.0}
    protocol = factories.joint(USERS, 2, name_of(factories.skellam_tight), target, **how)
    assert (DistinctRounds() in protocol.guarantee.assumptions) == (participations > 1)


# What is drawn


def bits(target: float = 3.0, modulus: int | None = None) -> JointSums:
    """Little noise, so that a joint distribution has few cells."""
    guarantee = PureDP(target, participations=2)
    return JointSums(Central(6, 1, DiscreteLaplace(2 / Fraction(target)), guarantee, modulus), 2)


# Two bits of each of six participants
SHOWN = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [0, 0], [1, 1]])


def joint_distribution(protocol: JointSums) -> Table:
    """The distribution of modulus · first + second, as independent numbers with the stated
    distribution."""
    size = protocol.part.modulus  # type: ignore[attr-defined]
    distributions = [
        protocol.released_distribution(int(total), len(SHOWN)) for total in SHOWN.sum(axis=0)
    ]
    one, other = (distribution.pmf(np.arange(size)) for distribution in distributions)
    return Table.of(0, np.outer(one, other).ravel())


def coded(protocol: Any, released: Aggregate) -> int:
    return int(released.values[0] * protocol.part.modulus + released.values[1])


def exact(protocol: JointSums, rounds: int) -> list[int]:
    """Devices and server as they are live."""
    reports = [[float(bit) for bit in row] for row in SHOWN]
    return [coded(protocol, protocol.combine(sent(protocol, reports))) for _ in range(rounds)]


def read(protocol: Any, estimates: list[Estimate]) -> list[int]:
    """What was released, from estimates."""
    size = protocol.part.modulus
    totals = [np.rint(one.total * protocol.precision).astype(int) % size for one in estimates]
    return [int(first * size + second) for first, second in totals]


def simulated(protocol: JointSums, rounds: int) -> list[int]:
    rng = np.random.default_rng(3)
    load = [counted(column) for column in SHOWN.T]
    return read(protocol, [protocol.simulate(load, rng) for _ in range(rounds)])


def one_by_one(protocol: JointSums, rounds: int) -> list[int]:
    rng = np.random.default_rng(4)
    return read(protocol, [protocol.run(SHOWN.astype(float), rng)[0] for _ in range(rounds)])


def test_the_release_has_the_joint_distribution_of_independent_noise() -> None:
    """Chi-square on the pair of numbers: simulations at 1e-6, exact draws at 1e-9."""
    protocol = bits()
    distribution = joint_distribution(protocol)
    assert follows(simulated(protocol, 2_500), distribution, cells=40) > SEEDED
    assert follows(one_by_one(protocol, 2_500), distribution, cells=40) > SEEDED
    assert follows(exact(protocol, 800), distribution, cells=40) > UNSEEDED


class Broken(JointSums):
    """The second metric with another draw than it should have."""

    def __init__(self, part: SumProtocol, how: str) -> None:
        super().__init__(part, 2)
        self.how = how

    def second(self, noise: int) -> int:
        other = int(DiscreteLaplace(1 / 3).draw())
        return {"missing": 0, "halved": other, "reused": noise}[self.how]

    def _open(self, totals: list[int]) -> list[int]:
        first = int(DiscreteLaplace(2 / 3).draw())
        size = self.part.modulus  # type: ignore[attr-defined]
        return [(totals[0] + first) % size, (totals[1] + self.second(first)) % size]

    def combine(self, messages: Any) -> Aggregate:
        totals = [sum(column) for column in zip(*messages, strict=True)]
        return Aggregate(tuple(self._open(totals)), len(messages))

    def simulate(self, load: Any, rng: np.random.Generator) -> Estimate:  # noqa: ARG002
        totals = [levels.total for levels in load]
        return self.analyze(Aggregate(tuple(self._open(totals)), len(SHOWN)))


@pytest.mark.parametrize("how", ["missing", "halved", "reused"])
def test_a_second_metric_without_independent_noise_is_detected(how: str) -> None:
    protocol = bits()
    broken = Broken(protocol.part, how)
    assert follows(simulated(broken, 2_500), joint_distribution(protocol), cells=40) < SEEDED
    assert follows(exact(broken, 800), joint_distribution(protocol), cells=40) < UNSEEDED


def test_two_servers_release_both_metrics_with_independent_noise() -> None:
    """120 rounds over the real intermediary against the joint distribution; false-alarm rate
    1e-9."""
    protocol = JointSums(TwoServers(2, 1, PureDP(4.0, participations=2)), 2)
    messages = [(1, 0), (1, 1)]
    seen = [coded(protocol, aggregate(protocol, messages, "two-servers")) for _ in range(120)]
    one, other = (
        protocol.released_distribution(total, 2).pmf(np.arange(protocol.part.modulus))  # type: ignore[attr-defined]
        for total in (2, 1)
    )
    distribution = Table.of(0, np.outer(one, other).ravel())
    assert follows(seen, distribution, cells=12) > UNSEEDED
    reused = [value - value % protocol.part.modulus for value in seen]  # type: ignore[attr-defined]
    assert (
        follows(reused, distribution, cells=12) < UNSEEDED
    )  # so many are enough to see a constant


# What passes


def test_every_metric_is_reported_in_the_participants_slot() -> None:
    """Certified groups: who comes last is in the last one, with everything."""
    protocol = factories.joint(5 * 1025 + 3, 2, name_of(factories.pure_shuffle), PureDP(2.0))
    part = protocol.part
    assert isinstance(part, PureShuffle)
    last = protocol.participants - 1
    assert part.group_of(last) > 0
    for place in (0, last):
        groups = [message.group for message in protocol.report([1.0, 0.0], place)]
        assert groups == [part.group_of(place)] * 2
    with pytest.raises(TacitError, match=f"must be 0 to {last}"):
        protocol.report([1.0, 0.0], last + 1)


def test_an_estimate_has_both_metrics_with_one_error_distribution() -> None:
    protocol = bits(60.0)  # so little noise that there is none
    estimate = protocol.analyze(protocol.combine([(1, 0), (1, 1), (0, 1), (1, 1), (0, 0), (1, 1)]))
    assert estimate.total.tolist() == [4.0, 4.0]
    assert estimate.metric(1).total == 4.0
    assert isinstance(estimate.metric(0).total, float)
    assert estimate.metric(0).guarantee_id == protocol.guarantee_id == estimate.guarantee_id
    assert protocol.guarantee_id == protocol.guarantee.digest
    assert estimate.error == protocol.part.error(6)


def test_a_wrapped_metric_marks_the_estimate() -> None:
    """Also if it is the second alone."""
    protocol, load = bits(1.0, modulus=8), [counted(column) for column in SHOWN.T]
    one, other, alone = np.random.default_rng(0), np.random.default_rng(0), 0
    for _ in range(200):
        first, second = (protocol.part.simulate(levels, other).wrapped for levels in load)
        assert protocol.simulate(load, one).wrapped == (first or second)
        alone += second and not first
    assert alone > 5


@each_row(
    ("attempt", "message"),
    [
        (lambda: JointSums(Exact(6, 1), 2), "the part guarantees nothing: make it for for_each"),
        (lambda: JointSums(TwoServers(6, 1, PureDP(1.0)), 2), "2 times as many participations"),
        (lambda: JointSums(TwoServers(6, 1, PureDP(1.0)), 1), "metrics is 1"),
        (lambda: for_each(PureDP(1.0), 0), "metrics is 0"),
        (lambda: bits().randomize([1.0]), "must be 2 numbers"),
        (lambda: bits().randomize(1.0), "must be 2 numbers"),  # type: ignore[arg-type]
        (lambda: bits().randomize([1.0, 1.5]), r"must be a number in \[0, 1\]"),
        (lambda: bits().combine([]), "the round is aborted"),
        (lambda: bits().analyze(Aggregate((1,), 6)), "1 numbers were released: must be 2"),
        (
            lambda: factories.joint(6, 2, "tacit.names:name_of", PureDP(1.0)),
            "no return annotation of a Protocol",
        ),
        (
            lambda: factories.joint(6, 2, name_of(a_vector), PureDP(1.0)),
            "makes no SumProtocol: name the factory of a sum of one number",
        ),
        (
            lambda: factories.joint(64, 2, name_of(factories.pure_shuffle), PureDP(0.1)),
            r"the smallest certified\. .* \(epsilon is shared among 2 metrics\)",
        ),
    ],
)
def test_parts_that_break_the_joint_guarantee_are_rejected(
    attempt: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TacitError, match=message):
        attempt()


def test_a_mechanism_of_two_metrics_round_trips() -> None:
    how = {"metrics": 2, "each": name_of(factories.two_servers_laplace), "target": PureDP(1.0)}
    guarantee = factories.joint(64, binary=True, **how).guarantee
    mechanism = PerRound(
        factories.joint, {**how, "binary": True}, Guaranteed(guarantee), smallest=64
    )
    again = PerRound.restore(mechanism.to_dict())
    assert again == mechanism
    assert MetricsPerParticipation(2) in guarantee.assumptions
    one = replace(guarantee, assumptions=guarantee.assumptions - {MetricsPerParticipation(2)})
    more = one.assuming(MetricsPerParticipation(3))
    stored = mechanism.to_dict() | {"privacy": status_to_data(Guaranteed(more))}
    with pytest.raises(TacitError, match="covers 2 metrics, not 3"):
        PerRound.restore(stored)
    assert (again.metrics, PerRound(factories.exact).metrics) == (2, 1)


def test_secure_aggregation_of_two_metrics_keeps_dropout_and_minimum() -> None:
    target = for_each(PureDP(1.0), 2)
    part = SecureSum(40, 1, DiscreteLaplace(2), target, threat=ThreatModel(dropout=0.25))
    protocol = JointSums(part, 2)
    assert (protocol.minimum, protocol.honest) == (part.minimum, part.honest) == (30, 29)
    assert protocol.bits_per_participant == 2 * part.bits_per_participant

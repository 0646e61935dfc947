"""Declared guarantees are recomputed and sampled: failures are detected, and all built-in sums
pass.
"""

from __future__ import annotations

import math
import secrets
import time
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import pytest
from tests.protocols.examples import CASES, EXAMPLES
from tests.tables import extended_but_every

from tacit.assumptions import (
    Assumption,
    DishonestAtMost,
    MetricsPerParticipation,
    PrivateMessages,
    Protects,
    ReleasedOnlyAbove,
    Scope,
    Secret,
)
from tacit.errors import TacitError
from tacit.noise import DiscreteLaplace, NoiseDistribution, Skellam, Table
from tacit.noise.goodness_of_fit import dependent_lag, p_value, scores
from tacit.privacy import (
    ApproximateDP,
    ConcentratedDP,
    Guarantee,
    Neighbours,
    PureDP,
    RenyiDP,
    ThreatModel,
    View,
)
from tacit.protocols import checking
from tacit.protocols.checking import NotCheckableError, check_declared, recompute, sample
from tacit.protocols.contract import SumProtocol
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.sums import Central, Local, SecureSum, modular_sum
from tacit.types import Aggregate, ErrorDistribution

CHECKABLE = [name for name, e in EXAMPLES.items() if e.noisy and name != "central-laplace"]
GENERATOR = np.random.default_rng(7)
MODULUS = 4001


class Outside(SumProtocol):
    """Every participant adds discrete Laplace noise of scale 1/ε: (ε, 0)-DP of each message."""

    minimum = 1
    precision = 1
    bits_per_participant = 12
    stated = 1.0  # times the scale

    def __init__(self, participants: int = 20, epsilon: float = 0.5) -> None:
        self.participants = participants
        self.distribution = DiscreteLaplace(1 / epsilon)
        self.guarantee = PureDP(epsilon, view=View.MESSAGE)

    def noise(self) -> int:
        return self.distribution.draw()

    def randomize(self, x: float) -> int:
        noise = self.noise()
        return self.encode(x) + noise

    def randomize_batch(self, levels: Any, rng: np.random.Generator) -> Any:
        return levels + self.distribution.sample(rng, len(levels))

    def combine(self, messages: Any) -> Aggregate:
        self.check_reports(len(messages))
        return Aggregate((int(np.sum(messages)),), len(messages))

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        distribution = DiscreteLaplace(self.distribution.scale * self.stated)
        first, last = distribution.window()
        return Table.of(first + total, distribution.pmf(np.arange(first, last + 1)))

    def error(self, reports: int) -> ErrorDistribution:
        return ErrorDistribution(reports, 1, self.distribution.power(reports))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        return Aggregate((total + int(self.distribution.power(reports).sample(rng)),), reports)

    def _sum(self, released: Aggregate) -> float:
        return float(released.value)


class NoNoise(Outside):
    """Declares no noise in its distribution."""

    def noise(self) -> int:
        return 0

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        return Table.of(total, np.ones(1))


class Silent(Outside):
    """States noise and adds none."""

    def noise(self) -> int:
        return 0


class HalvedNoise(Outside):
    def noise(self) -> int:
        return DiscreteLaplace(self.distribution.scale / 2).draw()


class WrongDistribution(Outside):
    stated = 2.0


class ReusedNoise(Outside):
    """Every draw is used twice."""

    kept: list[int]

    def noise(self) -> int:
        self.kept = vars(self).get("kept") or [self.distribution.draw()] * 2
        return self.kept.pop()


class PooledNoise(Outside):
    """A thousand draws, over and over."""

    def __init__(self, participants: int = 20, epsilon: float = 0.5) -> None:
        super().__init__(participants, epsilon)
        self.pool, self.next = self.distribution.draw(1000).tolist(), 0

    def noise(self) -> int:
        self.next += 1
        return int(self.pool[self.next % len(self.pool)])


class CachedNoise(Outside):
    """The same answer whenever the same participant is asked."""

    @lru_cache  # noqa: B019
    def randomize(self, x: float) -> int:
        return super().randomize(x)


class OtherReports(Outside):
    """Devices of half of the slots send their reward as it is."""

    def report(self, x: float, place: int) -> int:
        return self.encode(x) if place % 2 else self.randomize(x)


class GlobalNumpy(Outside):
    def noise(self) -> int:
        p = 1 - np.exp(-1 / float(self.distribution.scale))
        return int(np.random.geometric(p)) - int(np.random.geometric(p))  # noqa: NPY002


class OwnGenerator(Outside):
    def __init__(self, participants: int = 20, epsilon: float = 0.5) -> None:
        super().__init__(participants, epsilon)
        self.rng = np.random.default_rng(5)

    def noise(self) -> int:
        return int(self.distribution.sample(self.rng))


class ModuleGenerator(Outside):
    def noise(self) -> int:
        return int(self.distribution.sample(GENERATOR))


class Bits(Outside):
    """A message that is no number."""

    def randomize(self, x: float) -> Any:
        return [super().randomize(x)]


class TwoDistributions(SecureSum):
    """What is seen is stated to be wider than what is released."""

    def view_distribution(self, total: int, reports: int) -> Table:  # noqa: ARG002
        return modular_sum(DiscreteLaplace(40), self.modulus, 1, total)

    def released_distribution(self, total: int, reports: int) -> Table:
        return modular_sum(self.share, self.modulus, reports, total)


@pytest.mark.parametrize("name", extended_but_every(3, zip(CHECKABLE)))
def test_every_builtin_sum_passes(name: str) -> None:
    protocol = EXAMPLES[name].build(1.0)
    recompute(protocol)
    sample(protocol, 5_000)


@pytest.mark.parametrize("name", CHECKABLE)
def test_half_the_noise_under_the_same_guarantee_is_detected_by_recomputing(name: str) -> None:
    with pytest.raises(TacitError, match=r"delta of \w+ is .* declared is"):
        recompute(EXAMPLES[name].build(0.5))


@pytest.fixture
def sampled_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the draws: half a scale differs by 0.19 nats a draw, and 1,000 are enough."""
    monkeypatch.setattr(checking, "sample", partial(sample, draws=20_000))


@pytest.mark.usefixtures("sampled_less")
def test_a_correct_external_protocol_passes() -> None:
    assert check_declared(Outside()) is True


def test_a_claim_without_noise_is_rejected() -> None:
    protocol = NoNoise(epsilon=0.001)
    with pytest.raises(TacitError, match=r"is 1 at epsilon = 0\.001 .* declared is 0 "):
        recompute(protocol)
    for _ in range(2):
        with pytest.raises(TacitError, match="declared is 0"):
            check_declared(protocol)


FAULTS = {
    Silent: "do not have the stated distribution",
    HalvedNoise: "do not have the stated distribution",
    WrongDistribution: "do not have the stated distribution",
    CachedNoise: "do not have the stated distribution",
    OtherReports: "do not have the stated distribution",
    ReusedNoise: "depend on each other at lag 1",
    PooledNoise: "stated distribution|depend on each other at lag",
    GlobalNumpy: "pseudo-random generator",
    OwnGenerator: "pseudo-random generator",
    ModuleGenerator: "pseudo-random generator",
    Bits: "whole numbers",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda kind: kind.__name__)
def test_each_device_defect_is_detected(fault: type[Outside]) -> None:
    draws = 15_000 if fault is PooledNoise else 5_000  # a thousand draws come again and again
    with pytest.raises(TacitError, match=FAULTS[fault]):
        sample(fault(), draws)


@pytest.mark.usefixtures("sampled_less")
def test_the_check_covers_the_devices() -> None:
    for _ in range(2):
        with pytest.raises(TacitError, match="stated distribution"):
            check_declared(HalvedNoise())


def test_the_view_of_a_released_sum_is_the_released_sum() -> None:
    protocol = TwoDistributions(20, 1, DiscreteLaplace(1), PureDP(1.0))
    with pytest.raises(
        TacitError, match="view_distribution and released_distribution of TwoDistributions differ"
    ):
        sample(protocol, 5_000)


def test_shares_of_half_the_width_are_detected_in_combined_rounds() -> None:
    protocol = SecureSum(20, 4, Skellam(60), ApproximateDP(5.0, 0.1))
    sample(protocol, 8_000)
    drawn = protocol.share.draw
    object.__setattr__(protocol.share, "draw", lambda: round(drawn() / 2))
    with pytest.raises(TacitError, match="combined rounds of SecureSum do not have"):
        sample(protocol, 8_000)


def test_server_noise_is_sampled_and_its_source_checked() -> None:
    protocol = Central(20, 4, DiscreteLaplace(4), PureDP(1.0), None)
    sample(protocol, 5_000)
    distribution, source = (
        protocol.distribution,
        cast(Any, np.random),
    )  # the global generator's functions
    object.__setattr__(distribution, "draw", lambda: int(distribution.sample(source)))
    with pytest.raises(TacitError, match="pseudo-random generator"):
        sample(protocol, 5_000)


class OneWay(Outside):
    """A one is sometimes distinguishable from a zero, a zero never from a one."""

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        return Table.of(0, np.array([0.9, 0.1] if total else [1.0, 0.0]))


def test_both_directions_of_the_loss_are_computed() -> None:
    with pytest.raises(TacitError, match=r"delta of OneWay is 0\.1 "):
        recompute(OneWay())


def test_dishonest_participants_contribute_no_noise() -> None:
    """Shares that suffice if all twenty are honest, where one of them may be curious."""
    protocol = SecureSum(20, 1, DiscreteLaplace(1), PureDP(2.0), share=DiscreteLaplace(1).share(20))
    assert (protocol.minimum, protocol.honest) == (20, 19)
    protocol.guarantee = PureDP(1.0).assuming(*ThreatModel().assumptions())
    with pytest.raises(TacitError, match="of 19 reports"):
        recompute(protocol)
    protocol.guarantee = PureDP(1.0).assuming(*ThreatModel(curious=0).assumptions())
    recompute(protocol)
    protocol.guarantee = PureDP(1.0)  # which limits nobody: all others are dishonest
    with pytest.raises(TacitError, match="of 1 reports"):
        recompute(protocol)


class Crowd(Outside):
    """States the noise of all messages where the adversary sees one."""

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        return tabled(DiscreteLaplace(self.distribution.scale * reports), total)


def test_the_guarantee_of_a_message_counts_its_own_noise_only() -> None:
    protocol = Crowd()
    protocol.guarantee = PureDP(0.1, view=View.MESSAGE).assuming(DishonestAtMost(Scope.ROUND, 0))
    with pytest.raises(TacitError, match="of 1 reports"):
        recompute(protocol)


def test_several_participations_are_composed() -> None:
    """Two pure participations have half of ε each; of an approximate guarantee a single one would
    pass that two do not keep.
    """
    pure = Local(20, 1, DiscreteLaplace(2), PureDP(1.0, participations=2), modulus=400)
    recompute(pure)
    pure.guarantee = PureDP(1.0, view=View.MESSAGE, participations=3)
    with pytest.raises(TacitError, match=r"epsilon = 0\.333"):
        recompute(pure)
    target = ApproximateDP(1.0, 1e-5, participations=4)
    once = ApproximateDP(1.0, 1e-5)
    protocol = SecureSum(20, 1, Skellam(30.0), once)
    recompute(protocol)
    protocol.guarantee = target.with_view(view=View.RELEASED_SUM).assuming(
        *ThreatModel().assumptions()
    )
    with pytest.raises(TacitError, match="declared is 1e-05"):
        recompute(protocol)


def test_a_concentrated_guarantee_is_checked_as_epsilon_and_delta() -> None:
    protocol: Any = Outside(epsilon=0.5)
    protocol.guarantee = ConcentratedDP(0.125, view=View.MESSAGE)
    recompute(protocol)
    protocol.guarantee = ConcentratedDP(0.001, view=View.MESSAGE)
    with pytest.raises(TacitError, match="declared is"):
        recompute(protocol)


def test_protocols_that_cannot_be_checked_say_so() -> None:
    for name in ("exact", "central-laplace", "vector-secagg", "joint-two-servers"):
        if name in CASES:
            assert check_declared(CASES[name].build()) is False
    large = SecureSum(5_000, 1, DiscreteLaplace(1), PureDP(1.0))
    recompute(large)
    with pytest.raises(NotCheckableError, match="too many to draw"):
        sample(large)
    assert check_declared(large) is False
    huge = Central(10**6, 1000, DiscreteLaplace(1000), PureDP(1.0), None)
    with pytest.raises(NotCheckableError, match="range over"):
        recompute(huge)
    assert check_declared(huge) is False


def test_equal_protocols_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(checking, "sample", lambda protocol: seen.append(protocol.participants))
    monkeypatch.setattr(checking, "_verdicts", {})
    first = RandomizedBits(31, PureDP(1.0))
    assert check_declared(first)
    assert check_declared(RandomizedBits(31, PureDP(1.0)))
    (
        first.view_distribution(0, 1),
        first.honest,
        first.guarantee_id,
    )  # caches of an instance change nothing
    assert check_declared(first)
    assert seen == [31]
    assert check_declared(RandomizedBits(32, PureDP(1.0)))
    hidden = Outside(33)
    assert check_declared(hidden)
    other = Outside(33)
    other.distribution = DiscreteLaplace(3)  # the same public parameters, another noise
    assert check_declared(other)
    first.guarantee = PureDP(2.0, view=View.MESSAGE)
    assert check_declared(first)
    assert seen == [31, 32, 33, 33, 31]


def test_a_class_without_source_is_identified_by_its_bytecode() -> None:
    made = [type("Made", (Outside,), {"noise": noise}) for noise in (lambda _: 0, lambda _: 1)]
    sources = [checking._source(kind) for kind in made]
    assert sources[0] != sources[1]


@pytest.mark.extended
def test_a_hundred_thousand_draws_are_fast() -> None:
    began = time.process_time()
    check_declared(RandomizedBits(40 + secrets.randbelow(100), PureDP(1.0)))
    assert time.process_time() - began < 10


def test_the_likelihood_ratio_keeps_its_false_positive_rate_unlike_chi_square() -> None:
    """Rare classes: 2,000 samples of 1,000 bits with 3 expected ones; no p-value may be small, and
    p-values are not below their level more often than it.
    """
    rng, distribution = np.random.default_rng(3), Table.of(0, np.array([0.997, 0.003]))
    found = np.array([p_value(distribution.sample(rng, 1000), distribution) for _ in range(2_000)])
    for level in (0.5, 0.1, 0.01):
        assert (found <= level).mean() <= level
    assert p_value(np.zeros(20_000, dtype=int), distribution) < 1e-9
    assert p_value([5] * 3, distribution) < 1e-9  # outside of the support


def test_serial_correlation_is_detected_in_repeated_draws_only() -> None:
    values = DiscreteLaplace(3).sample(np.random.default_rng(4), 4_000)
    for lag, drawn in ((None, values), (700, np.tile(values[:700], 5))):
        ranks, variance = scores(drawn, DiscreteLaplace(3))
        assert dependent_lag(ranks, np.full(len(ranks), variance), 1e-9) == lag


def test_missing_reports_remove_their_noise() -> None:
    """Shares that suffice if all report, where half of them may be missing."""
    distribution = DiscreteLaplace(1)
    protocol = SecureSum(20, 1, distribution, PureDP(3.0), share=distribution.share(19))
    protocol.guarantee = PureDP(1.0).assuming(*ThreatModel().assumptions())
    recompute(protocol)
    protocol.guarantee = PureDP(1.0).assuming(*ThreatModel(dropout=0.5).assumptions())
    with pytest.raises(TacitError, match="of 9 reports"):
        recompute(protocol)


def test_the_worse_of_both_directions_is_reported() -> None:
    one, other = np.array([0.9, 0.1]), np.array([0.5, 0.5])
    for pair in ((one, other), (other, one)):
        assert checking._delta(*pair, math.log(2), 1) == pytest.approx(0.3)


def tabled(distribution: NoiseDistribution, total: int) -> Table:
    """The distribution about a total."""
    first, last = distribution.window()
    return Table.of(first + total, distribution.pmf(np.arange(first, last + 1)))


class SharedNoise(Outside):
    """Nineteen of twenty add up to Laplace noise of scale 1, but any number is released."""

    def __init__(self, least: int, *assumptions: Assumption) -> None:
        super().__init__()
        self.minimum, self.distribution = least, DiscreteLaplace(1).share(19)  # type: ignore[assignment]
        self.guarantee = PureDP(1.0).assuming(DishonestAtMost(Scope.ROUND, 1), *assumptions)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        return tabled(self.distribution.power(reports), total)


def test_a_guarantee_assumes_at_most_the_minimum_number_of_reports() -> None:
    """With a single report the noise of one share would be left, epsilon 3.94 instead of 1."""
    recompute(SharedNoise(20, ReleasedOnlyAbove()))
    recompute(SharedNoise(20))
    for least in (1, 19):
        with pytest.raises(TacitError, match=f"minimum of SharedNoise is {least}: must be at leas"):
            recompute(SharedNoise(least, ReleasedOnlyAbove()))
        with pytest.raises(TacitError, match="declared is 0"):
            recompute(SharedNoise(least))
    with pytest.raises(TacitError, match="is 6: must be at least 7 of 20 reports"):
        recompute(SharedNoise(6, ReleasedOnlyAbove(Fraction(1, 3))))


class CompleteRounds(SharedNoise):
    """States the view of complete rounds only."""

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        self.check_reports(reports)
        return super().view_distribution(total, reports)


class FullNoise(SharedNoise):
    """States all noise for rounds of any size."""

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        return super().view_distribution(total, 20)


@pytest.mark.parametrize(
    ("kind", "problem"), [(CompleteRounds, "is not stated for 10 reports"), (FullNoise, "add up")]
)
def test_noise_of_dishonest_participants_is_not_counted(
    kind: type[SharedNoise], problem: str
) -> None:
    """With ten of twenty curious, epsilon is 1.6 instead of 1: nothing sampled shows it."""
    protocol = kind(20, ReleasedOnlyAbove())
    protocol.guarantee = PureDP(1.0).assuming(DishonestAtMost(Scope.ROUND, 10), ReleasedOnlyAbove())
    with pytest.raises(NotCheckableError, match=problem):
        recompute(protocol)
    assert check_declared(protocol) is False


class EarlySlots(SharedNoise):
    """Half of the slots suffice for a release, and devices of the others add no noise."""

    def __init__(self) -> None:
        super().__init__(10, ReleasedOnlyAbove(Fraction(1, 2)))
        self.distribution = DiscreteLaplace(1).share(9)  # type: ignore[assignment]

    def report(self, x: float, place: int) -> int:
        return self.randomize(x) if place < self.minimum else self.encode(x)


def test_rounds_are_sampled_from_every_slot() -> None:
    recompute(EarlySlots())
    with pytest.raises(TacitError, match="combined rounds of EarlySlots do not have"):
        sample(EarlySlots(), 5_000)


def test_declared_divergences_are_recomputed_at_every_order() -> None:
    """A false value at order 1.1 implies less than the true one at order 8 at any common δ."""
    protocol: Any = Outside(epsilon=0.5)
    for curve, sound in (
        (((1.1, 0.14), (8.0, 0.5)), True),
        (((1.1, 0.01), (8.0, 0.5)), False),
    ):
        protocol.guarantee = RenyiDP(curve, view=View.MESSAGE)
        if sound:
            recompute(protocol)
            continue
        with pytest.raises(TacitError, match=r"divergence of Outside at order 1\.1"):
            recompute(protocol)
    one, other = np.array([0.9, 0.1]), np.array([1.0, 0.0])
    assert checking._least_divergence(one, other, 2.0) == math.inf
    assert checking._least_divergence(other, one, 2.0) == math.inf
    protocol.guarantee = RenyiDP(((2.0, 0.4),), view=View.MESSAGE, participations=4)
    with pytest.raises(TacitError, match="divergence of Outside at order 2"):
        recompute(protocol)


def test_honest_silos_do_not_imply_honest_participants() -> None:
    protocol = SharedNoise(20)
    protocol.guarantee = PureDP(1.0).assuming(DishonestAtMost(Scope.SILOS, 1))
    with pytest.raises(TacitError, match="of 1 reports"):
        recompute(protocol)


class Servers(Outside):
    """One of two servers adds noise, or both do."""

    def __init__(self, adding: int) -> None:
        super().__init__()
        self.minimum, self.adding = 20, adding
        self.guarantee = PureDP(0.5, view=View.OTHER_SERVER)

    def randomize(self, x: float) -> int:
        return self.encode(x)

    def combine(self, messages: Any) -> Aggregate:
        noise = sum(self.noise() for _ in range(self.adding))
        return Aggregate((int(np.sum(messages)) + noise,), len(messages))

    def released_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        return tabled(self.distribution.power(self.adding), total)


def test_a_release_includes_the_noise_of_both_servers() -> None:
    sample(Servers(2), 5_000)
    with pytest.raises(NotCheckableError, match="has not the noise of two equal servers"):
        sample(Servers(1), 5_000)


CLAIMS: dict[str, Guarantee] = {
    "add-or-remove-one": PureDP(0.5, view=View.MESSAGE, neighbours=Neighbours.ADD_OR_REMOVE_ONE),
    "3 metrics": PureDP(0.5, view=View.MESSAGE).assuming(MetricsPerParticipation(3)),
    "private-messages": PureDP(0.5, view=View.MESSAGE).assuming(PrivateMessages(0.001)),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_guarantees_beyond_one_sum_are_not_recomputed(claim: str) -> None:
    protocol = Outside()
    protocol.guarantee = CLAIMS[claim]
    with pytest.raises(NotCheckableError, match=f"Outside declares .*{claim}"):
        recompute(protocol)
    assert check_declared(protocol) is False


def test_the_protected_secret_may_be_declared() -> None:
    protocol = Outside()
    stated = PureDP(0.5, view=View.MESSAGE)
    protocol.guarantee = stated.assuming(Protects(Secret.ONE_REWARD))
    recompute(protocol)


@pytest.mark.parametrize("epsilon", [35.0, 701.0])
def test_rounding_at_a_large_epsilon_hides_no_missing_noise(epsilon: float) -> None:
    protocol = NoNoise()
    protocol.guarantee = PureDP(epsilon, view=View.MESSAGE)
    with pytest.raises(NotCheckableError, match="rounding error"):
        recompute(protocol)
    protocol.guarantee = PureDP(30.0, view=View.MESSAGE)
    with pytest.raises(TacitError, match="declared is 0"):
        recompute(protocol)


@pytest.mark.parametrize("delta", [0.0, 0.01, 0.5])
def test_a_rounding_error_is_a_hundredth_of_delta_at_most(delta: float) -> None:
    """It is about 0.003 for noise of scale 1/25."""
    protocol = Outside(epsilon=25.0)
    if delta:
        protocol.guarantee = ApproximateDP(25.0, delta, view=View.MESSAGE)
    if delta == 0.5:
        recompute(protocol)
        return
    with pytest.raises(NotCheckableError, match="rounding error"):
        recompute(protocol)


def test_no_fewer_reports_are_sampled_than_the_guarantee_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: 99,999 messages, and 99,600 in rounds of 600, were printed as 10⁵."""
    for protocol, draws in (
        (RandomizedBits(40, PureDP(1.0)), 1_001),
        (SecureSum(7, 4, DiscreteLaplace(4), PureDP(1.0)), 1_500),
    ):
        sent = 0
        report = type(protocol).report

        def counted(self: Any, x: Any, place: int, report: Any = report) -> Any:
            nonlocal sent
            sent += 1
            return report(self, x, place)

        with monkeypatch.context() as patched:
            patched.setattr(type(protocol), "report", counted)
            patched.setattr(checking, "seeded", lambda *_: False)
            sample(protocol, draws)
        assert draws <= sent <= 1.01 * draws

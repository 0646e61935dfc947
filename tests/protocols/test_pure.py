"""The pure shuffle: complete groups, certified ratios of the drawn shares, any number of
participants.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from tacit.aggregation import ShuffledView
from tacit.errors import Rejected, TacitError
from tacit.privacy import PureDP, ThreatModel, View
from tacit.protocols import factories
from tacit.protocols.pure_shuffle import PureShuffle, share_probabilities
from tacit.rounds.codecs import Mixed, codec
from tacit.sampling.certificates import PureShuffleParameters, groups, lookup
from tacit.types import Levels

Floats = npt.NDArray[np.float64]


def message_distribution(p: PureShuffleParameters, bit: int, noise: Floats) -> Floats:
    """The distribution of one user's number of ones."""
    distribution = np.full(p.bits + 1, float(p.mixture) / (p.bits + 1))
    distribution[bit : bit + 2 * p.tau + 1] += (1 - float(p.mixture)) * noise
    return distribution


def worst_loss(p: PureShuffleParameters, noise: Floats) -> float:
    """The largest log ratio of the number of ones, over every data set of the others; sums of
    positive terms keep their digits.
    """
    zero, one = message_distribution(p, 0, noise), message_distribution(p, 1, noise)
    powers: list[tuple[Floats, Floats]] = [(np.ones(1), np.ones(1))]
    for _ in range(p.users - 1):
        powers.append((np.convolve(powers[-1][0], zero), np.convolve(powers[-1][1], one)))
    worst = 0.0
    for k in range(p.users):
        others = np.convolve(powers[p.users - 1 - k][0], powers[k][1])
        worst = max(
            worst, float(np.abs(np.log(np.convolve(others, zero) / np.convolve(others, one))).max())
        )
    return worst


@pytest.mark.parametrize(("curious", "epsilon"), list(product([1, 2, 5], [0.1, 1])))
def test_groups_of_any_batch_have_a_certified_size(curious: int, epsilon: float) -> None:
    for users in (*range(1 + curious, 200), *range(1020, 1040), 2049, 2051):
        cut = groups(users, epsilon, curious)
        assert sum(group.participants for group in cut) == users
        assert all(group.count > 0 for group in cut)
        assert all(group.size >= group.row.users + curious for group in cut)
    with pytest.raises(TacitError, match="users"):
        groups(curious, epsilon, curious)


@pytest.mark.parametrize(("users", "epsilon"), list(product([1, 2, 4, 16], [0.5, 1, 2])))
def test_drawn_shares_meet_the_certified_epsilon(users: int, epsilon: float) -> None:
    certificate = lookup(users, epsilon).certificate
    assert certificate.kind == "every-k"
    p = certificate.parameters
    assert (
        worst_loss(p, share_probabilities(p)) <= float(certificate.epsilon) + 1e-9 <= epsilon + 1e-9
    )
    narrower = share_probabilities(replace(p, noise_epsilon=2 * p.noise_epsilon))
    assert worst_loss(p, narrower) > 1.3 * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 0.25, 0.5, 1.0, 1.7, 2.0, 30.0])
def test_every_batch_meets_the_guarantee_of_the_largest(epsilon: float) -> None:
    guarantee = PureShuffle(2, epsilon).guarantee
    assert isinstance(guarantee, PureDP)
    assert guarantee.epsilon <= epsilon
    assert guarantee.view is View.SHUFFLED
    for users in [*range(2, 70), 1023, 1024, 1025, 10**6 + 7]:
        protocol = PureShuffle(users, epsilon)
        assert protocol.guarantee == guarantee
        for group in protocol._groups:
            assert group.row.certificate.epsilon <= guarantee.epsilon


@pytest.mark.parametrize("times", [1, 2, 5])
def test_all_participations_together_meet_the_guarantee(times: int) -> None:
    protocol = PureShuffle(1000, 2.0, participations=times)
    guarantee = protocol.guarantee
    assert isinstance(guarantee, PureDP)
    each = max(group.row.certificate.epsilon for group in protocol._groups)
    assert times * each <= guarantee.epsilon <= 2.0
    assert guarantee.participations == times


def test_an_epsilon_without_certificate_is_rejected_with_an_alternative() -> None:
    with pytest.raises(
        TacitError,
        match=r"epsilon is 0.05: must be at least 0.1, the smallest certified. .*secure",
    ):
        PureShuffle(100, 0.05)


def test_participants_fill_groups_in_order_and_positions_outside_are_rejected() -> None:
    protocol = PureShuffle(21, 1.0)
    assert {protocol.group_of(i) for i in range(21)} == {0}
    large = PureShuffle(5 * 1025 + 3, 1.0)
    places = (0, 1024, 1025, 2 * 1025, 5 * 1025 - 1, 5 * 1025 + 2)
    assert [large.group_of(i) for i in places] == [0, 0, 1, 2, 4, 4]
    for position in (-1, 21):
        with pytest.raises(TacitError, match="must be 0 to 20"):
            protocol.group_of(position)


def test_a_group_that_is_not_complete_is_not_released() -> None:
    protocol = PureShuffle(5, 1.0)
    messages = [protocol.report(1.0, position) for position in range(5)]
    assert protocol.combine(messages).reports == 5
    with pytest.raises(TacitError, match=r"group 0 has 4 of its 5 reports; the certificate"):
        protocol.combine(messages[:-1])
    assert protocol.minimum == 5  # with fewer nothing is even handed on
    with pytest.raises(TacitError, match="below the 5 that the guarantee needs"):
        protocol.check_reports(4)
    with pytest.raises(TacitError, match=r"group 0 has 6 of its 5 reports"):
        protocol.combine([messages[0], *messages])
    with pytest.raises(TacitError, match=r"belong to no group"):
        protocol.combine([*messages, replace(messages[0], group=9)])
    with pytest.raises(TacitError, match=r"group 0 has 4 of its 5 reports"):
        protocol.combine([replace(messages[0], bits=messages[0].bits[1:]), *messages[1:]])


@pytest.mark.parametrize("ones", [0, 1, 17, 21])
def test_the_distribution_of_the_view_sums_every_message(ones: int) -> None:
    """The first so many hold a one: every message's distribution, convolved one by one."""
    protocol = PureShuffle(21, 1.0)
    distribution, p = np.ones(1), lookup(16, 1.0).certificate.parameters
    for place in range(21):
        distribution = np.convolve(
            distribution, message_distribution(p, int(place < ones), share_probabilities(p))
        )
    expected = 21 * p.tau
    stated = protocol.view_distribution(ones, 21).pmf(np.arange(len(distribution)) - expected)
    np.testing.assert_allclose(stated, distribution, rtol=0, atol=1e-12)


def test_randomized_participants_lose_their_bit_on_both_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a mixture of one half: mean and variance of both paths against the distribution, and
    batches counted once; false alarm 1e-6.
    """
    protocol = PureShuffle(20, 1.0)
    monkeypatch.setattr(
        protocol,
        "_groups",
        [
            replace(
                group,
                row=replace(
                    group.row,
                    certificate=replace(
                        group.row.certificate,
                        parameters=replace(
                            group.row.certificate.parameters, mixture=Fraction(1, 2)
                        ),
                    ),
                ),
            )
            for group in protocol._groups
        ],
    )
    levels = np.repeat([0, 1], [5, 15])
    expected = spread = 0.0
    start = 0
    for group in protocol._groups:
        p = group.row.certificate.parameters
        values = np.arange(p.bits + 1)
        for bit in levels[start : start + group.participants]:
            distribution = message_distribution(p, int(bit), share_probabilities(p))
            expected += float(values @ distribution) - p.tau
            spread += float(values**2 @ distribution) - float(values @ distribution) ** 2
        start += group.participants
    rng = np.random.default_rng(3)
    slow = [protocol.combine_batch(protocol.randomize_batch(levels, rng), rng) for _ in range(4000)]
    fast = [protocol._open(15, 20, rng) for _ in range(4000)]
    assert all(released.wrapped for released in slow + fast)
    for sample in ([released.value for released in path] for path in (slow, fast)):
        assert abs(np.mean(sample) - expected) < 5 * math.sqrt(spread / 4000)
        assert stats.chi2.cdf(np.var(sample) * 4000 / spread, 3999) == pytest.approx(
            0.5, abs=0.5 - 1e-6
        )


def test_a_trillion_participants_cost_no_more_than_a_thousand() -> None:
    """Found: a list entry per group, and a sampler that stops at 10^9 users."""
    start = time.perf_counter()
    protocol = PureShuffle(10**12 + 1, 1.0)
    ones = 6 * 10**11
    estimate = protocol.simulate(
        Levels(np.array([0, 1]), np.array([10**12 + 1 - ones, ones])), np.random.default_rng(0)
    )
    assert abs(estimate.total - ones) < 6 * math.sqrt(estimate.error.variance)
    assert protocol.group_of(10**12) == (10**12 + 1) // 1025 - 1
    assert estimate.error.misread == 0
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("bit", [0, 1])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_error_distribution_covers_randomized_answers(bit: int, epsilon: float) -> None:
    """Against one participant's distribution of ones; up to where those that are spoilt are most of
    it."""
    protocol = PureShuffle(65, epsilon)
    p = protocol._groups[0].row.certificate.parameters
    ones = np.full(p.bits + 1, float(p.mixture) / (p.bits + 1))
    ones[bit : bit + 2 * p.tau + 1] += (1 - float(p.mixture)) * share_probabilities(p)
    off = np.arange(p.bits + 1) - p.tau - bit
    for s in np.linspace(-30, 30, 13) / p.tau:
        exact = 65 * math.log(float(np.exp(s * off) @ ones))
        bound = float(protocol.error(65).log_mgf(s))
        assert exact - 1e-9 <= bound <= exact + 65 * abs(s) + 1e-6
    shares = 65 * math.log(float(np.exp(s * np.arange(-p.tau, p.tau + 1)) @ share_probabilities(p)))
    assert exact > shares + 1


def test_the_moment_generating_function_is_finite_everywhere() -> None:
    """Shares are bounded; where exponentials would overflow it continues the line of its slope."""
    distribution = factories.pure_shuffle(256, PureDP(0.9)).error(256).noise
    assert distribution is not None
    points = np.array([5.0, 10.0, 50.0, 100.0])
    values = distribution.log_mgf(points)
    assert np.all(np.isfinite(values))
    slopes = np.diff(values) / np.diff(points)
    assert np.all(np.diff(slopes) >= -1e-9 * slopes[0])
    assert distribution.log_mgf(points[:1]) == pytest.approx(values[:1], rel=1e-12)


THREAT = ThreatModel(dropout=0.2, corrupt=0.1)


@pytest.mark.parametrize("participants", [7, 10, 13])
def test_a_group_with_missing_and_corrupted_members_meets_epsilon(participants: int) -> None:
    """Every number of honest reports that may arrive, every data set: the exact worst ratio.

    Corrupted members add no noise. One honest report less than is certain may exceed it: the
    shares of half as many users do.
    """
    protocol = PureShuffle(participants, 1.0, threat=THREAT)
    p, honest = protocol.parameters, THREAT.honest(participants)
    assert p.users == protocol.honest <= honest < 2 * p.users
    assert protocol.guarantee is not None
    assert protocol.guarantee.assumptions >= frozenset(THREAT.assumptions())
    for arrived in range(honest, participants + 1):
        assert worst_loss(replace(p, users=arrived), share_probabilities(p)) <= 1 + 1e-9
    assert worst_loss(replace(p, users=p.users // 2), share_probabilities(p)) > 1.15


def test_an_incomplete_group_is_released_from_its_minimum_on() -> None:
    protocol = PureShuffle(20, 1.0, threat=THREAT)
    assert (protocol.minimum, protocol.groups) == (16, 1)
    rng = np.random.default_rng(5)
    for reports in (16, 18, 20):
        messages = [protocol.report(1.0, place) for place in range(reports)]
        found = protocol.combine(messages)
        view = protocol.view_distribution(reports, reports)
        assert found.reports == reports
        assert view.pmf(found.value) > 0
        noise = protocol.error(reports).noise
        assert noise is not None
        assert noise.variance == pytest.approx(view.variance, rel=1e-3)
        opened = [protocol._open(reports, reports, rng).value for _ in range(400)]
        batch = [
            protocol.combine_batch(
                protocol.randomize_batch(np.ones(reports, dtype=np.int64), rng), rng
            ).value
            for _ in range(400)
        ]
        for drawn in (opened, batch):  # five standard errors
            assert abs(np.mean(drawn) - reports) < 5 * math.sqrt(noise.variance / 400)
    with pytest.raises(TacitError, match="15"):
        protocol.combine([protocol.report(1.0, place) for place in range(15)])


def test_one_invalid_message_aborts_a_certified_group() -> None:
    protocol = PureShuffle(10, 1.0, threat=THREAT)
    way = codec(protocol, "mixing")
    assert isinstance(way, Mixed)
    numbers = [number for place in range(9) for number in way.payload(protocol.report(1.0, place))]
    assert way.released(ShuffledView(tuple(numbers), 9, 0)).reports == 9
    for spoilt in (numbers[1:], [*numbers[1:], b"\x02"]):
        with pytest.raises(Rejected, match="the round is aborted"):
            way.released(ShuffledView(tuple(spoilt), 9, 0))

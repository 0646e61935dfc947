"""Every scalar protocol: its paths have the stated distribution, the release meets the guarantee,
and less noise would not.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.noise.battery import chi_square
from tests.protocols.examples import EXAMPLES, by_hand, estimate_by_devices, fast, some_levels
from tests.samples import same_distribution, z_score
from tests.tables import each_row

from tacit.assumptions import BoundedAdversary, PinnedKeys, RangeProofs
from tacit.errors import TacitError
from tacit.noise import DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam, Table
from tacit.noise.table import convolution_power
from tacit.privacy import ApproximateDP, Arithmetic, PureDP, ThreatModel, View
from tacit.protocols import factories
from tacit.protocols.continuous import CentralLaplace, Exact, Laplace
from tacit.protocols.contract import SumProtocol, round_levels
from tacit.protocols.pure_shuffle import GroupedShares
from tacit.protocols.randomized_bits import RandomizedBits, RandomizedResponseError
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise, tkms21_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import Central, Local, SecureSum, TwoServers, Verified, paper_modulus
from tacit.types import ErrorDistribution, Levels

Floats = npt.NDArray[np.float64]
BATCHES = 1_500
ALARM = 1e-6  # of a seeded test, had the seed been chosen at random
UNSEEDED = 1e-9  # of a test of exact draws, which no seed repeats

EACH = pytest.mark.parametrize("name", EXAMPLES)
NOISY = pytest.mark.parametrize(
    "name", [name for name, example in EXAMPLES.items() if example.noisy]
)


@cache
def estimates(
    name: str, reports: int, path: str, batches: int = BATCHES, factor: float = 1.0
) -> Floats:
    protocol = EXAMPLES[name].build(factor)
    levels, rng = some_levels(protocol, reports), np.random.default_rng([reports, path == "fast"])
    run = fast if path == "fast" else estimate_by_devices
    return np.array([run(protocol, levels, rng).total for _ in range(batches)])


def fewest(protocol: SumProtocol) -> int:
    """The fewest reports, or if any number will do, some."""
    return protocol.minimum if protocol.minimum > 1 else 12


@EACH
def test_aggregate_and_per_message_paths_have_one_distribution(name: str) -> None:
    """1,500 batches each, false-alarm rate 1e-6 per protocol; 1,000 more with as few reports as are
    accepted.
    """
    protocol = EXAMPLES[name].build(1.0)
    assert (
        same_distribution(
            estimates(name, protocol.participants, "fast"),
            estimates(name, protocol.participants, "slow"),
        )
        > ALARM
    )
    if fewest(protocol) < protocol.participants:
        few = [estimates(name, fewest(protocol), path, 1000) for path in ("fast", "slow")]
        assert same_distribution(few[0], few[1]) > ALARM


@NOISY
def test_the_comparison_detects_half_the_noise(name: str) -> None:
    users = EXAMPLES[name].build(1.0).participants
    assert (
        same_distribution(
            estimates(name, users, "fast"), estimates(name, users, "slow", factor=0.5)
        )
        < ALARM
    )


@EACH
def test_estimates_are_unbiased_with_the_stated_variance_and_distribution(name: str) -> None:
    """Mean and variance within 5 standard errors, chi-square against the stated distribution at
    1e-6."""
    protocol = EXAMPLES[name].build(1.0)
    for reports, batches in ((fewest(protocol), 1000), (protocol.participants, BATCHES)):
        truth = int(some_levels(protocol, reports).sum())
        error = protocol.error(reports)
        off = estimates(name, reports, "fast", batches) - truth / protocol.precision
        assert error.participants == reports
        assert error.precision == protocol.precision
        assert abs(z_score(off, 0.0)) < 5
        assert abs(z_score(off**2, error.variance)) < 5
        noise = error.noise
        if isinstance(noise, NoiseDistribution):
            values = np.round(off * protocol.precision + noise.mean).astype(np.int64)
            np.testing.assert_allclose(values - noise.mean, off * protocol.precision, atol=1e-6)
            assert chi_square(values, noise) > ALARM
        elif isinstance(noise, Laplace):
            assert (
                stats.kstest(off * protocol.precision, stats.laplace(scale=noise.scale).cdf).pvalue
                > ALARM
            )
        elif isinstance(noise, RandomizedResponseError):
            ones = (off + truth) / noise.stretch + reports * noise.flip_probability
            distribution = protocol.released_distribution(truth, reports)
            assert chi_square(np.round(ones).astype(np.int64), distribution) > ALARM
        elif isinstance(noise, GroupedShares):
            assert chi_square(np.round(off).astype(np.int64), grouped_table(noise)) > ALARM
        else:
            assert noise is None
            assert np.all(off == 0)


def grouped_table(noise: GroupedShares) -> Table:
    """The distribution of a batch's total noise, by convolving every user's."""
    start, pmf = 0, np.ones(1)
    everyone, values, columns = noise._matrix
    for users, probabilities in zip(everyone, columns.T, strict=True):
        one = Table.of(int(values[0]), probabilities / probabilities.sum())
        part_start, part = convolution_power(one, int(users))
        start, pmf = start + part_start, np.convolve(pmf, part)
    return Table.of(start, pmf / pmf.sum())


@EACH
def test_the_error_distribution_bounds_its_tails_and_its_moments(name: str) -> None:
    protocol = EXAMPLES[name].build(1.0)
    error = protocol.error(protocol.participants)
    truth = int(some_levels(protocol, protocol.participants).sum()) / protocol.precision
    off = np.abs(estimates(name, protocol.participants, "fast") - truth)
    for p in (0.3, 0.05, 0.005):
        assert (
            stats.binomtest(
                int((off > error.radius(p) + 1e-9).sum()), len(off), p, alternative="greater"
            ).pvalue
            > ALARM
        )
    bounded = isinstance(error.noise, GroupedShares)  # from above, where answers may be spoilt
    assert float(error.log_mgf(0.0)) == pytest.approx(0.0, abs=1e-7 if bounded else 1e-12)
    s = 1e-3 / math.sqrt(max(error.variance, 1e-3))
    curvature = float(error.log_mgf(s) + error.log_mgf(-s) - 2 * error.log_mgf(0.0)) / s**2
    assert curvature == pytest.approx(error.variance, rel=1e-3, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(bits=st.integers(1, 40), bias=st.floats(0.05, 0.95), p=st.floats(1e-6, 0.9))
def test_a_radius_covers_a_fractional_mean(bits: int, bias: float, p: float) -> None:
    """Found: it was taken about the rounded mean, and was up to half a level too small."""
    from tacit.noise import Binomial

    distribution = Binomial(bits, bias)
    radius = ErrorDistribution(1, 1, distribution).radius(p)
    k = np.arange(bits + 1)
    assert distribution.pmf(k)[np.abs(k - distribution.mean) > radius + 1e-9].sum() <= p * (
        1 + 1e-9
    )


# Wrap-around


LOOSE = ApproximateDP(3.0, 0.1)


def small_modulus(kind: str, room: int) -> SumProtocol:
    if kind == "central":
        return Central(30, 2, DiscreteLaplace(3), PureDP(0.67), modulus=60 + room)
    if kind == "polya":
        return SecureSum(30, 2, DiscreteLaplace(3), PureDP(0.67), modulus=60 + room)
    if kind == "skellam":
        return SecureSum(30, 2, Skellam(20), LOOSE, modulus=60 + room)
    if kind == "split":
        return SplitAndMix(SecureSum(30, 2, DiscreteLaplace(3), PureDP(0.67), modulus=60 + room))
    return SecureSum(
        30,
        2,
        DiscreteGaussian(5),
        LOOSE,
        modulus=60 + room,
    )


@pytest.mark.parametrize("kind", ["polya", "skellam", "gaussian", "central", "split"])
@pytest.mark.parametrize("path", ["fast", "slow"])
def test_wrap_arounds_have_the_computed_frequency(kind: str, path: str) -> None:
    """A modulus with room for 8 on either side, sums at the worst end; false-alarm rate 1e-6
    each.
    """
    protocol = small_modulus(kind, 17)
    levels, rng = np.full(30, 2), np.random.default_rng(7)
    run = fast if path == "fast" else estimate_by_devices
    made = [run(protocol, levels, rng) for _ in range(BATCHES)]
    read = np.array([estimate.total for estimate in made])
    wrapped = sum(estimate.wrapped for estimate in made)
    computed = protocol.error(30).misread
    assert 0.01 < computed < 0.1
    assert stats.binomtest(wrapped, BATCHES, computed).pvalue > ALARM
    assert read.min() >= -8 / 2
    assert read.max() <= (60 + 8) / 2


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("users", [2, 500, 100_000])
def test_local_noise_of_many_participants_fits_the_modulus(users: int, paper: bool) -> None:
    assert factories.local_laplace(users, PureDP(1.0), paper).error(users).misread <= 1e-9


def test_the_default_modulus_wraps_less_than_once_in_a_billion_batches() -> None:
    for name, example in EXAMPLES.items():
        misread = example.build(1.0).error(example.build(1.0).participants).misread
        assert misread <= 1e-9 or (name == "pure-shuffle" and misread <= 3e-6), name


def test_a_local_batch_bounds_its_wrap_around_probability() -> None:
    protocol = Local(30, 2, DiscreteLaplace(3), PureDP(0.67), modulus=paper_modulus(30, 2, 60))
    rng = np.random.default_rng(3)
    wrapped = sum(fast(protocol, np.full(30, 2), rng).wrapped for _ in range(BATCHES))
    assert 0 < wrapped < BATCHES * protocol.error(30).misread


def test_wrap_around_of_wide_noise_matches_direct_summation() -> None:
    from tacit.noise import wrap_probability

    protocol = SecureSum(10_000, 1000, Skellam(5000**2), LOOSE, modulus=10_000_000 + 2 * 9000 + 1)
    noise = Skellam(Fraction(5000**2 * 10_000, 9_999))
    exact = wrap_probability(noise, 10_000_000, protocol.modulus)
    assert exact <= protocol.error(10_000).misread <= exact * (1 + 1e-5)


# Privacy, from the probabilities of what is released


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


def seen(protocol: SumProtocol, reports: int, *totals: int) -> list[Floats]:
    """The probabilities of what is seen of so many reports, on common points, for each total."""
    distributions = [protocol.view_distribution(total, reports) for total in totals]
    ends = [distribution.support for distribution in distributions]
    points = np.arange(int(min(low for low, _ in ends)), int(max(high for _, high in ends)) + 1)
    return [distribution.pmf(points) for distribution in distributions]


def true_delta(protocol: SumProtocol, reports: int) -> float:
    """The worst δ over all ways to replace one participant's level."""
    guarantee = protocol.guarantee
    assert isinstance(guarantee, (PureDP, ApproximateDP))
    levels = seen(protocol, reports, *range(protocol.precision + 1))
    pairs = [pair for other in levels[1:] for pair in ((levels[0], other), (other, levels[0]))]
    return max(hockey_stick(p, q, guarantee.epsilon) for p, q in pairs)


def guaranteed_delta(protocol: SumProtocol) -> float:
    return protocol.guarantee.delta if isinstance(protocol.guarantee, ApproximateDP) else 0.0


MODULAR = pytest.mark.parametrize(
    "name", [n for n in EXAMPLES if n not in ("exact", "central-laplace", "pure-shuffle")]
)
ROUNDING = 1e-12  # of convolutions


@pytest.mark.parametrize("name", [n for n, e in EXAMPLES.items() if e.share is not None])
def test_the_distribution_of_the_view_sums_the_shares(name: str) -> None:
    """Shares written down a second time: a share that is missing or too narrow would show."""
    example = EXAMPLES[name]
    protocol = example.build(1.0)
    assert example.share is not None
    modulus = getattr(protocol, "modulus", None)
    for reports, total in ((protocol.minimum, 0), (protocol.participants, 3)):
        if name == "response":
            total = 0  # one bit: the other one is its mirror image
        copies = example.adding or reports
        distribution = protocol.view_distribution(total, reports)
        points = np.arange(int(distribution.support[0]), int(distribution.support[1]) + 1)
        right = by_hand(example.share(), copies, total, modulus).pmf(points)
        np.testing.assert_allclose(distribution.pmf(points), right, rtol=0, atol=ROUNDING)
        assert distribution.pmf(points).sum() == pytest.approx(1.0, abs=1e-9)
        if copies > 1:
            missing = by_hand(example.share(), copies - 1, total, modulus).pmf(points)
            assert np.abs(distribution.pmf(points) - missing).max() > 1e3 * ROUNDING


def test_an_exact_sum_has_no_guarantee() -> None:
    distribution = Exact(40, 8).view_distribution(17, 40)
    assert distribution.support == (17, 17)
    assert float(distribution.pmf(17)) == 1.0


@MODULAR
def test_a_release_of_the_minimum_number_of_reports_meets_the_guarantee(name: str) -> None:
    protocol = EXAMPLES[name].build(1.0)
    assert true_delta(protocol, protocol.minimum) <= guaranteed_delta(protocol) + ROUNDING


@MODULAR
def test_half_the_noise_breaks_the_guarantee(name: str) -> None:
    protocol = EXAMPLES[name].build(0.5)
    assert true_delta(protocol, protocol.honest) > 10 * guaranteed_delta(protocol) + 1e-6


@pytest.mark.parametrize("reports", [1, 2, 7])
def test_pure_noise_bounds_every_ratio_by_epsilon(reports: int) -> None:
    """Where nothing is rounded away the log ratio itself is bounded, not only its mass; shares set
    for `reports` of many.
    """
    protocol = SecureSum(
        reports,
        2,
        DiscreteLaplace(2),
        PureDP(1.0),
        modulus=64 + 2 * reports,
        threat=ThreatModel(curious=0),
    )
    released = seen(protocol, reports, 0, 1, 2)
    ratios = [np.abs(np.log(released[0] / other)).max() for other in released[1:]]
    assert max(ratios) <= 1.0 + 1e-6
    assert ratios[1] > 0.9


@pytest.mark.parametrize(
    "distribution", [DiscreteLaplace(4), Skellam(16 * 13.92)], ids=["polya", "skellam"]
)
def test_shares_suffice_at_the_minimum_unlike_shares_made_for_everyone(
    distribution: NoiseDistribution,
) -> None:
    guarantee = (
        PureDP(1.0) if isinstance(distribution, DiscreteLaplace) else ApproximateDP(1.0, 1e-5)
    )
    tolerant = SecureSum(
        40, 4, distribution, guarantee, threat=ThreatModel(dropout=0.2, corrupt=0.1)
    )
    assert (tolerant.minimum, 28) == (32, math.ceil(0.7 * 40))
    assert (
        true_delta(tolerant, 28) <= guaranteed_delta(tolerant) + ROUNDING
    )  # 32 reports of which 4 add nothing
    fragile = SecureSum(40, 4, distribution, guarantee)
    assert true_delta(fragile, 28) > guaranteed_delta(fragile) + 1e-7


@EACH
def test_too_few_or_too_many_reports_are_rejected_on_the_simulated_paths(name: str) -> None:
    protocol = EXAMPLES[name].build(1.0)
    rng = np.random.default_rng(0)
    for reports in {protocol.minimum - 1, protocol.participants + 1}:
        rejection = r"the round is aborted|over the \d+ that the protocol was built for"
        levels = np.zeros(reports, dtype=np.int64)
        with pytest.raises(TacitError, match=rejection):
            protocol.simulate(Levels(np.array([0]), np.array([reports])), rng)
        with pytest.raises(TacitError, match=rejection):
            protocol.combine_batch(
                np.zeros((reports, 3), dtype=np.int64)
                if isinstance(protocol, SplitAndMix)
                else levels,
                rng,
            )


def test_continuous_noise_has_the_scale_of_its_guarantee() -> None:
    protocol = CentralLaplace(40, PureDP(0.5), 8)
    assert isinstance(protocol.guarantee, PureDP)
    assert protocol.guarantee.short == PureDP(0.5).short
    assert protocol.guarantee.arithmetic is Arithmetic.IDEAL
    assert protocol.noise.scale == 8 / 0.5


# Messages, bits, codec


@EACH
def test_messages_fit_into_the_stated_bits(name: str) -> None:
    protocol = EXAMPLES[name].build(1.0)
    message = protocol.randomize(1.0)
    if isinstance(protocol, SplitAndMix):
        assert len(message) == protocol.shares
        assert (
            protocol.bits_per_participant == protocol.shares * (protocol.modulus - 1).bit_length()
        )
        assert all(0 <= share < protocol.modulus for share in message)
    elif isinstance(protocol, ShuffledBits):
        assert (
            len(message)
            == protocol.bits_per_participant
            == protocol.precision + protocol.noise_bits
        )
        assert set(message) <= {0, 1}
    elif isinstance(protocol, Verified):  # with its proof, and a seed
        assert protocol.bits_per_participant == 64 * (3 + 1 + 7) + 256
    elif isinstance(protocol, TwoServers):  # in two shares
        assert protocol.bits_per_participant == 2 * (protocol.modulus - 1).bit_length()
    elif isinstance(message, int):
        assert 0 <= message < 2**protocol.bits_per_participant
        largest = (
            protocol.modulus - 1 if isinstance(protocol, (SecureSum, Local)) else protocol.precision
        )
        assert (
            2 ** (protocol.bits_per_participant - 1) <= largest < 2**protocol.bits_per_participant
        )
    else:
        assert len(message.bits) == protocol.bits_per_participant == 39


@settings(max_examples=40, deadline=None)
@given(precision=st.integers(1, 50), x=st.fractions(0, 1))
def test_the_codec_uses_the_two_neighbouring_levels_only(precision: int, x: Fraction) -> None:
    protocol = Exact(5, precision)
    levels = {protocol.encode(x) for _ in range(8)}  # type: ignore[arg-type]
    assert levels <= {math.floor(x * precision), math.ceil(x * precision)}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(precision=st.integers(1, 50), x=st.floats(0, 1))
def test_the_codec_is_unbiased(precision: int, x: float) -> None:
    """The vectorised codec, 20,000 rewards at a time, at most 5 standard errors off; the exact one
    flips a coin of the same bias.
    """
    rounded = round_levels(np.full(20_000, x), precision, np.random.default_rng(precision))
    rest = x * precision - math.floor(x * precision)
    spread = math.sqrt(rest * (1 - rest) / 20_000)
    assert abs(rounded.mean() - x * precision) <= 5 * spread + 5e-4


def test_the_codec_of_a_device_is_unbiased() -> None:
    """Unseeded: false-alarm rate 1e-9."""
    protocol = Exact(5, 7)
    ups = sum(protocol.encode(0.3) == 3 for _ in range(20_000))  # 0.3 · 7 = 2.1
    assert stats.binomtest(ups, 20_000, 0.1).pvalue > UNSEEDED


def test_a_real_reward_is_randomized_as_a_bit_of_its_mean() -> None:
    """At an ε where nobody lies; unseeded: false-alarm rate 1e-9."""
    protocol = RandomizedBits(5, PureDP(30.0))
    ones = sum(protocol.randomize(0.3) for _ in range(2000))
    assert stats.binomtest(ones, 2000, 0.3).pvalue > UNSEEDED


@EACH
@each_row("wrong", [-0.01, 1.01, math.nan, math.inf, "1", None, True])
def test_rewards_outside_the_range_are_rejected(name: str, wrong: float) -> None:
    with pytest.raises(TacitError, match=r"must be a number in \[0, 1\]. Rescale or clip it"):
        EXAMPLES[name].build(1.0).randomize(wrong)


@pytest.mark.parametrize("x", [np.float32(0.5), np.float64(0.5), np.int64(1), Fraction(1, 3), 0, 1])
def test_any_real_number_type_is_a_reward(x: float) -> None:
    """Found: NumPy's integers and single floats were rejected as if they were out of range."""
    assert 0 <= Exact(3, 4).randomize(x) <= 4


def test_many_rewards_outside_the_range_are_rejected() -> None:
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(TacitError, match="rescale or clip"):
            round_levels(np.array([0.5, wrong]), 4, np.random.default_rng(0))


def test_sums_beyond_63_bits_do_not_overflow() -> None:
    levels = Levels(np.arange(100) + 10**9, np.full(100, 10**12))
    assert levels.total == sum(int(v) * 10**12 for v in levels.values)
    protocol = SecureSum(10**14, 10**6, DiscreteLaplace(10**6), PureDP(1.0))
    estimate = protocol.simulate(
        Levels(np.array([0, 10**6]), np.array([0, 10**14])), np.random.default_rng(0)
    )
    assert estimate.total == pytest.approx(1e14, abs=100)
    few = SecureSum(3, 2**61, DiscreteLaplace(2**61), PureDP(1.0))
    assert few.combine([few.modulus - 1] * 3).value == few.modulus - 3


def test_papers_binary_shuffle_noise_is_rejected_outside_its_theorem() -> None:
    with pytest.raises(TacitError, match=r"proven for epsilon < 1: use tight constants"):
        tkms21_noise(100, ApproximateDP(1.0, 1e-5))
    bits, bias = tkms21_noise(100, ApproximateDP(0.9, 1e-5))
    assert bits * 100 >= 96 * math.log(2e5) / 0.81
    assert bias == Fraction(1, 2)
    assert tkms21_noise(10**6, ApproximateDP(0.9, 1e-5))[0] == 1


def test_noise_bits_calibrated_on_a_grid_suffice_within_a_quarter() -> None:
    sizes = [2, 3, 15, 19, 617]
    exact = {n: shuffle_noise(n, 1, ApproximateDP(1.0, 1e-5)) for n in sizes}
    for n in sizes:
        bits, bias = shuffle_noise(n, 1, ApproximateDP(1.0, 1e-5), exact=False)
        protocol = ShuffledBits(
            n, 1, bits, bias, ApproximateDP(1.0, 1e-5), threat=ThreatModel(curious=0)
        )
        least = exact[n][0] * n * float(exact[n][1] * (1 - exact[n][1]))
        assert least * 0.999 <= protocol.error(n).variance <= 1.25 * least, n
        if n < 1000:
            assert true_delta(protocol, n) <= 1e-5 + ROUNDING


def test_insufficient_moduli_are_rejected_with_a_sufficient_one() -> None:
    with pytest.raises(TacitError, match=r"use at least \d+"):
        SecureSum(10, 4, DiscreteLaplace(4), PureDP(1.0), modulus=40)
    with pytest.raises(TacitError, match=r"use at least \d+"):
        Local(10, 4, DiscreteLaplace(4), PureDP(1.0), modulus=40)
    with pytest.raises(TacitError, match="room for noise"):
        paper_modulus(10, 4, math.inf)


# Two servers


@pytest.mark.parametrize("participations", [1, 3])
def test_all_rounds_of_a_participant_at_two_servers_cost_epsilon_together(
    participations: int,
) -> None:
    """From the distribution itself: the loss of one number, as often as one participant sends
    any.
    """
    protocol = TwoServers(30, 5, PureDP(0.8, participations=participations))
    p, q = seen(protocol, 30, 0, 5)
    inside = (p > 1e-280) & (q > 1e-280)
    worst = float(np.abs(np.log(p[inside]) - np.log(q[inside])).max())
    assert worst * participations == pytest.approx(0.8, rel=1e-2)
    assert protocol.distribution.scale == Fraction(5 * participations) / Fraction(0.8)


def test_the_guarantee_of_two_servers_states_its_threat_model() -> None:
    guarantee = TwoServers(30, 5, PureDP(0.8)).guarantee
    assert guarantee.view is View.OTHER_SERVER
    assert guarantee.assumptions == {PinnedKeys(), BoundedAdversary()}
    assert guarantee.arithmetic is Arithmetic.EXACT
    text = str(guarantee)
    for words in (
        "the other server, the collector and all other participants together",
        "at least 1 of the 2 servers is honest, whichever",
        "both servers' keys pinned from a source that is neither server",
        "a server that supplies keys or code must be the honest one",
        "the adversary is computationally bounded",
    ):
        assert words in text


def test_verified_sums_state_their_trust_and_guarantee_no_less_privacy() -> None:
    plain, verified = (kind(30, 5, PureDP(0.8)) for kind in (TwoServers, Verified))
    assert verified.guarantee == plain.guarantee.assuming(RangeProofs())
    assert verified.guarantee.implies(plain.guarantee)
    assert plain.guarantee.implies(verified.guarantee)  # range proofs are a remark
    assert verified.guarantee.assumptions == {PinnedKeys(), BoundedAdversary(), RangeProofs()}
    assert "as long as both servers are honest" in str(verified.guarantee)
    assert "as long as both servers are honest" not in str(plain.guarantee)
    assert "at least 1 of the 2 servers is honest, whichever" in str(verified.guarantee)
    with pytest.raises(TacitError, match="verified sums are counted modulo"):
        Verified(10**12, 2**40, PureDP(0.8))


def test_two_servers_cost_twice_the_variance_of_one_trusted_server() -> None:
    trusted = DiscreteLaplace(Fraction(5) / Fraction(0.8)).variance
    assert TwoServers(30, 5, PureDP(0.8)).noise(30).variance == pytest.approx(2 * trusted)

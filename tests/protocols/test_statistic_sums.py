"""Sums of statistics: sensitivity by brute force, guarantees by independent arithmetic, and
detection of halved, missing or reused noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from tests.samples import follows

from tacit.assumptions import TowardsOutsiders
from tacit.bandits.contextual.ellipsoid import scaled_map
from tacit.bandits.contextual.moments import centred_sensitivity as proved
from tacit.contextual.feature_maps import BoundedNumber, Category, FeatureMap, interactions
from tacit.errors import TacitError
from tacit.noise import DiscreteGaussian, NoiseDistribution
from tacit.privacy import ApproximateDP, PureDP
from tacit.protocols import statistic_sums
from tacit.protocols.statistic_sums import (
    CentralStatistic,
    SecureStatistic,
    ShuffledStatistic,
    TwoServerStatistic,
    UnaryStatistic,
    moment_sum,
    table_sum,
)
from tacit.protocols.statistics import (
    Answers,
    CornerStatistic,
    MomentStatistic,
    ScaledMomentStatistic,
    TableStatistic,
    centred_sensitivity,
)
from tacit.trust import TrustModel, split_shares

TARGET = ApproximateDP(1.0, 1e-6)
WEIGHTS = (0.5, 1.0, 2.0, math.sqrt(8))
UNSEEDED = 1e-9  # false positive rate of a test of exact draws, which no seed repeats


def scaled(statistic: MomentStatistic, report: Any) -> np.ndarray[Any, Any]:
    """A report in the coordinates in which the sensitivity is stated."""
    first, diagonal, other = statistic.scales
    units = [first] * statistic.dimension + [
        diagonal if i == j else other
        for i in range(statistic.dimension)
        for j in range(i, statistic.dimension)
    ]
    return np.asarray(np.array(statistic.encode(report)) * np.array(units))


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_sensitivity_is_the_proven_one_and_attained(weight: float) -> None:
    """Unit vectors with inner product -w²/8 and equal rewards attain it, on the grid nearly."""
    assert centred_sensitivity(weight) == pytest.approx(proved(weight), rel=1e-8)
    statistic = MomentStatistic(2, 1 << 20, weight=weight)
    half = math.acos(max(-1.0, -(weight**2) / 8)) / 2
    pair = [
        tuple(int(side * statistic.resolution * (1 - 1e-12)) for side in (math.cos(half), sign))
        for sign in (math.sin(half), -math.sin(half))
    ]
    moved = np.linalg.norm(scaled(statistic, (pair[0], 1)) - scaled(statistic, (pair[1], 1)))
    assert moved <= centred_sensitivity(weight)
    assert moved == pytest.approx(centred_sensitivity(weight), rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_no_pair_of_participants_moves_moments_beyond_the_sensitivity(seed: int) -> None:
    """By force over random feature maps: every pair of extreme contexts, options and rewards, and
    random contexts between, in integers.
    """
    rng = np.random.default_rng(seed)
    fields = (Category("a", ("x", "y", "z")), BoundedNumber("b", -1, 2))
    names = ("u", "v", "w")
    raw = np.array(interactions(fields, names))
    if seed % 2:
        raw = rng.normal(size=(3, int(rng.integers(1, 6)), raw.shape[2]))
    matrices = tuple(tuple(tuple(row) for row in matrix) for matrix in raw.tolist())
    features = scaled_map(fields, names, matrices, resolution=[64, 1024][seed % 2])
    contexts = [{"a": a, "b": b} for a in "xyz" for b in (-1.0, 2.0, float(rng.uniform(-1, 2)))]
    vectors = {vector for context in contexts for vector in features.of(context)}
    vectors |= {tuple(-x for x in vector) for vector in vectors}  # worse than any map alone
    for weight, levels in itertools.product(WEIGHTS, (1, 3)):
        statistic = MomentStatistic(features.dimension, features.resolution, levels, weight)
        reports = np.array(
            [scaled(statistic, (v, level)) for v in vectors for level in range(levels + 1)]
        )
        apart = np.linalg.norm(reports[:, None] - reports[None], axis=2)
        assert apart.max() <= centred_sensitivity(weight)


def gaussian_delta(ratio: float, epsilon: float) -> float:
    """δ of the Gaussian mechanism with this sensitivity per standard deviation (Balle & Wang)."""
    first = ndtr(ratio / 2 - epsilon / ratio)
    return float(first - math.exp(epsilon) * ndtr(-ratio / 2 - epsilon / ratio))


def weakest_ratio(protocol: Any, noise: tuple[NoiseDistribution, ...]) -> float:
    """Sensitivity per standard deviation, from the noise of every coordinate."""
    statistic: MomentStatistic = protocol.statistic
    first, diagonal, other = statistic.scales
    d = statistic.dimension
    upper = [diagonal if i == j else other for i in range(d) for j in range(i, d)]
    stds = [one.std * unit for one, unit in zip(noise, [first] * d + upper, strict=True)]
    return proved(statistic.weight) / min(stds)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("kind", [CentralStatistic, TwoServerStatistic, SecureStatistic])
def test_moments_meet_their_guarantee_and_half_the_noise_does_not(kind: Any, weight: float) -> None:
    """From the standard deviations that are really drawn; discrete noise is wide here, so that its
    distance from a Gaussian is below a hundredth of δ.
    """
    protocol = kind(500, MomentStatistic(4, 4096, weight=weight), TARGET)
    noise = protocol.own
    if kind is SecureStatistic:
        honest = protocol.honest
        assert honest == 499
        noise = tuple(DiscreteGaussian(one.std * math.sqrt(honest)) for one in protocol.own)
    assert isinstance(protocol.guarantee, ApproximateDP)
    ratio = weakest_ratio(protocol, noise)
    distance = sum(one.distance_from_gaussian() for one in noise)
    found = gaussian_delta(ratio, 1.0) + (1 + math.e) * distance
    assert found <= TARGET.delta
    assert found > 0.9 * TARGET.delta  # and not much more noise than that
    assert gaussian_delta(2 * ratio, 1.0) > 100 * TARGET.delta
    outside = [a for a in protocol.guarantee.assumptions if isinstance(a, TowardsOutsiders)]
    assert bool(outside) == (kind is TwoServerStatistic)
    for one in outside:
        both = gaussian_delta(ratio / math.sqrt(2), one.epsilon) + 10 * distance
        assert both <= one.delta == TARGET.delta
        assert gaussian_delta(ratio, one.epsilon) > one.delta


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_tables_are_purely_private_and_their_noise_is_minimal(epsilon: float) -> None:
    """Exact likelihood ratios: one cell loses a participant, another gains one."""
    protocol = TwoServerStatistic(50, TableStatistic(2, 2), PureDP(epsilon))
    k = np.arange(-400, 401)
    for noise, holds in ((protocol.own[0], True), (half_of(protocol.own[0]), False)):
        log = noise.log_pmf(k)
        worst = float(np.abs(np.diff(log)).max())
        assert (2 * worst <= epsilon * (1 + 1e-9)) == holds
    assert 2 * float(np.abs(np.diff(protocol.own[0].log_pmf(k))).max()) == pytest.approx(epsilon)


def half_of(noise: NoiseDistribution) -> NoiseDistribution:
    return type(noise)(noise.scale / 2)  # type: ignore[attr-defined, call-arg]


def test_the_guarantee_of_tables_towards_outsiders_is_exact() -> None:
    """Both servers' noise in two cells, convolved and compared point by point."""
    protocol = TwoServerStatistic(50, TableStatistic(2, 2), PureDP(1.0))
    (outside,) = (a for a in protocol.guarantee.assumptions if isinstance(a, TowardsOutsiders))
    k = np.arange(-260, 261)
    one = protocol.own[0].pmf(k)
    both = np.convolve(one, one, mode="same")

    def delta(epsilon: float) -> float:
        here = np.multiply.outer(both[1:], both[:-1])
        there = np.multiply.outer(both[:-1], both[1:])
        return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())

    assert delta(outside.epsilon) <= outside.delta * (1 + 1e-6)
    assert delta(outside.epsilon * 0.999) > outside.delta


def test_unary_encoding_meets_pure_privacy() -> None:
    """The exact ratio of all messages of three cells between any two participants."""
    protocol = UnaryStatistic(10, TableStatistic(1, 2), PureDP(1.3))
    size, lie = protocol.coordinates, protocol.flip_probability

    def chance(message: tuple[int, ...], cell: int) -> float:
        ones = [0.5 if place == cell else lie for place in range(size)]
        return math.prod(p if bit else 1 - p for bit, p in zip(message, ones, strict=True))

    worst = max(
        chance(message, a) / chance(message, b)
        for message in itertools.product((0, 1), repeat=size)
        for a in range(size)
        for b in range(size)
    )
    assert worst == pytest.approx(math.exp(1.3))


DEVICE = (Category("device", ("phone", "desktop")),)
CORNER = CornerStatistic.of(FeatureMap(DEVICE, ("only",), (((0.5, 0.0, 0.0),),)))


@pytest.mark.parametrize("fault", ["none", "missing", "halved", "reused"])
@pytest.mark.parametrize("statistic", [TableStatistic(1, 1), CORNER], ids=["table", "corner"])
def test_faulty_server_noise_is_detected(
    statistic: TableStatistic, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first released sum of 3,000 rounds against its stated distribution; unseeded, so the
    sound case fails with probability 1e-9.
    """
    real = statistic_sums._draw_each
    last: list[list[int]] = []

    def drawn(noise: Any) -> list[int]:
        found = real(noise)
        if fault == "missing":
            return [0] * len(found)
        if fault == "halved":
            return [int(x / 2) for x in found]
        if fault == "reused":
            last.append(found)
            return last[-2] if len(last) % 2 == 0 else found
        return found

    monkeypatch.setattr(statistic_sums, "_draw_each", drawn)
    protocol = TwoServerStatistic(1, statistic, PureDP(0.5))
    half = protocol.modulus // 2
    seen = []
    for _ in range(3000):
        value = protocol.combine([protocol.randomize(1)]).values[0]
        seen.append((value + half) % protocol.modulus - half)
    found = follows(np.array(seen), protocol.released_distribution(0, 1))
    assert (found > UNSEEDED) == (fault == "none")


def test_shares_of_devices_are_fresh_and_sum_to_the_noise() -> None:
    """The variance of 400 rounds' sums, within 6 standard errors (false positives about 1e-8)."""
    protocol = SecureStatistic(4, TableStatistic(1, 1), PureDP(0.5))
    half = protocol.modulus // 2
    sums = []
    for _ in range(400):
        messages = [protocol.randomize(0) for _ in range(4)]
        values = protocol.combine(messages).values
        sums.append((values[1] + half) % protocol.modulus - half)
    expected = protocol.noise(4)[1].variance
    assert len({tuple(protocol.randomize(0)) for _ in range(20)}) > 1
    assert np.var(sums) == pytest.approx(expected, rel=6 * math.sqrt(5.5 / 400))


def test_moments_guarantee_outsiders_no_more_than_their_noise() -> None:
    statistic, target = MomentStatistic(3, 1000), ApproximateDP(1.0, 1e-6)
    noise = statistic.noise(target)
    stated = statistic.outsiders(target, noise)
    assert 0.5 < stated.epsilon < 0.8
    narrow = tuple(DiscreteGaussian.of_std(0.9 * one.std) for one in noise)
    with pytest.raises(TacitError, match="both servers' noise does not give"):
        statistic.outsiders(target, narrow)


def test_shuffled_tables_are_split_for_honest_participants_only() -> None:
    made = ShuffledStatistic(20, TableStatistic(2, 2), PureDP(1.0))
    assert made.copies == split_shares(19, 1 << 62, 60 + 3)
    assert made.copies > split_shares(20, 1 << 62, 60 + 3)


def test_invalid_statistics_are_rejected() -> None:
    table: dict[str, Any] = {"segments": 2, "options": 2}
    moments: dict[str, Any] = {"size": (2, 1000, 1)}
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: table_sum(5, **table, trust="central", target=TARGET), "whose guarantee is pure"),
        (lambda: moment_sum(5, **moments, trust="central", target=PureDP(1.0)), "above 0"),
        (lambda: moment_sum(5, **moments, trust="local", target=TARGET), "trust is local"),
        (lambda: moment_sum(5, **moments, trust="shuffler", target=TARGET), "trust is shuffler"),
        (lambda: moment_sum(5, 9.0, **moments, trust="central", target=TARGET), "at most √8"),
        (
            lambda: table_sum(5, **table, trust="local", target=PureDP(1.0, participations=2)),
            "one participation",
        ),
        (
            lambda: table_sum(5, **table, trust="central", target=PureDP(1.0, participations=2)),
            "comes once",
        ),
        (lambda: moment_sum(10**15, **moments, trust="central", target=TARGET), "need 71 bits"),
    ]
    for wrong, said in cases:
        with pytest.raises(TacitError, match=said):
            wrong()
    exact = table_sum(5, **table, trust=TrustModel.NONE, target=None)
    assert exact.guarantee is None


@pytest.mark.parametrize("kind", [MomentStatistic, ScaledMomentStatistic])
def test_simulated_features_stay_within_the_norm_of_the_noise(
    kind: type[MomentStatistic],
) -> None:
    """Those of a restored experiment may have another resolution than its noise."""
    features = np.array([[[60, 80]], [[0, 100]]], dtype=np.float32)
    visitors: Any = SimpleNamespace(features=features)
    answers, rng = (
        Answers(visitors, np.zeros(2, dtype=int), np.array([1, 0])),
        np.random.default_rng(0),
    )
    first = (kind(2, 100).total(answers, rng) * kind(2, 100).units)[:2]
    assert np.allclose(first, [0.3, -0.1])
    with pytest.raises(TacitError, match="must be at most 1"):
        kind(2, 99).total(answers, rng)
    nobody: Any = SimpleNamespace(features=features[:0])
    none = Answers(nobody, answers.options[:0], answers.levels[:0])
    assert not kind(2, 99).total(none, rng).any()


@pytest.mark.parametrize(("segments", "honest"), [(1, 19), (6, 63)])
def test_shuffled_tables_state_the_delta_of_their_shares(segments: int, honest: int) -> None:
    """(1 + e^ε)·2^-60 over all cells: each is split for a 1/cells part of it."""
    made = ShuffledStatistic(honest + 1, TableStatistic(segments, 2), PureDP(1.0))
    assert made.honest == honest
    assert isinstance(made.guarantee, ApproximateDP)
    assert made.guarantee.delta == pytest.approx((1 + math.e) * 2.0**-60, rel=1e-12)
    cells = made.coordinates
    security = 60 + math.ceil(math.log2(cells))
    assert cells * 2.0**-security <= 2.0**-60
    assert made.copies >= split_shares(honest, made.modulus, security)
    assert made.security == security

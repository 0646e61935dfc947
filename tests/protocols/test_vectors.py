"""Vector sums: guarantees from the distribution of what is released, both paths of every protocol,
rejections.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from tests.protocols.examples import Given, by_hand
from tests.tables import each_row

from tacit.assumptions import Assumption, DishonestAtMost, ReleasedOnlyAbove, Scope
from tacit.errors import TacitError
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Skellam,
    Table,
    convolve,
)
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    Gaussian,
    GaussianLoss,
    PureDP,
    ThreatModel,
    View,
    linf_loss,
    privacy_loss,
    weakest,
)
from tacit.protocols import integer_vectors, vectors
from tacit.protocols.integer_vectors import LevelProtocol, SecureVector, ShuffledVector
from tacit.protocols.vector_noise import (
    binomial_noise,
    gaussian_noise,
    joint_epsilon,
    shared_gaussian_noise,
    skellam_noise,
)
from tacit.protocols.vectors import (
    CentralVectors,
    LocalVectors,
    Plain,
    SeparateSums,
    VectorProtocol,
    noise_proxy,
)
from tacit.types import Estimate

TEN = ApproximateDP(10.0, 0.25)
ONE = ApproximateDP(1.0, 1e-3)
VECTORS = np.array(
    [
        [0.5, -0.2, 1.0],
        [-1.0, 0.3, 0.1],
        [0.7, 0.7, -0.4],
        [0.0, 1.0, 0.9],
        [0.2, -0.6, 0.3],
        [-0.3, 0.4, -1.0],
    ]
)


def joint_delta(distribution: NoiseDistribution, shifts: tuple[int, ...], epsilon: float) -> float:
    """Σ (P - e^ε Q)⁺ over the full joint distribution of independent noise in each coordinate:
    brute force.
    """
    first, last = distribution.window(-60.0)
    points = np.arange(first, last + 1)
    log_p, log_q = np.zeros(()), np.zeros(())
    for shift in shifts:
        log_p = np.add.outer(log_p, distribution.log_pmf(points))
        log_q = np.add.outer(log_q, distribution.log_pmf(points + shift))
    with np.errstate(over="ignore"):
        return float(np.maximum(0.0, np.exp(log_p) - np.exp(epsilon + log_q)).sum())


DISTRIBUTIONS: dict[str, Callable[[ApproximateDP], NoiseDistribution]] = {
    "discrete-gaussian": lambda target: gaussian_noise(4, 2, target),
    "skellam": lambda target: skellam_noise(4, 2, target),
    "binomial": lambda target: Binomial(
        50 * binomial_noise(4, 2, target, 50)[0], binomial_noise(4, 2, target, 50)[1]
    ),
}


def halved(distribution: NoiseDistribution) -> NoiseDistribution:
    """The same kind of noise with half the variance."""
    match distribution:
        case DiscreteGaussian():
            return DiscreteGaussian(float(distribution.sigma) / math.sqrt(2))
        case Skellam():
            return Skellam(float(distribution.variance) / 2)
        case Binomial():
            return Binomial(distribution.n // 2, distribution.p)
    raise AssertionError(distribution)


@pytest.mark.parametrize("target", [TEN, ONE])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_the_released_vector_meets_the_guarantee_and_half_the_noise_does_not(
    kind: str, target: ApproximateDP
) -> None:
    distribution = DISTRIBUTIONS[kind](target)
    movements = ((4, 4), (-4, 4), (4, -4), (-4, -4), (4, 0), (3, 4))
    worst = max(joint_delta(distribution, shifts, target.epsilon) for shifts in movements)
    assert worst <= target.delta * (1 + 1e-9)
    assert worst >= 0.8 * target.delta  # little to spare
    assert (
        max(joint_delta(halved(distribution), shifts, target.epsilon) for shifts in movements)
        > 1.1 * target.delta
    )


@pytest.mark.parametrize("coordinates", [1, 2, 7, 33])
@pytest.mark.parametrize("target", [TEN, ONE, ApproximateDP(0.2, 1e-6)])
def test_calibrated_noise_meets_the_target_jointly(target: ApproximateDP, coordinates: int) -> None:
    bits, bias = binomial_noise(6, coordinates, target, 64)
    for distribution in (
        gaussian_noise(256, coordinates, target),
        skellam_noise(16, coordinates, target),
        Binomial(64 * bits, bias),
    ):
        levels = {DiscreteGaussian: 256, Skellam: 16, Binomial: 6}[type(distribution)]
        assert joint_epsilon(distribution, levels, coordinates, target.delta) <= target.epsilon
        assert (
            joint_epsilon(halved(distribution), levels, coordinates, target.delta)
            > 1.02 * target.epsilon
        )


def test_the_sum_of_coordinates_has_the_joint_loss_of_discrete_gaussians() -> None:
    distribution = DiscreteGaussian(3.0)
    epsilon = joint_epsilon(distribution, 4, 2, 0.01)
    assert joint_delta(distribution, (4, 4), epsilon) == pytest.approx(0.01, rel=1e-6)


def test_the_papers_noise_states_its_true_guarantee() -> None:
    for protocol in (
        CentralVectors(50, 30, 1.0, TEN, paper=True),
        LocalVectors(50, 30, 1.0, TEN, paper=True),
    ):
        assert isinstance(protocol.distribution, Gaussian)
        sigma = 2 * math.sqrt(30) * math.sqrt(2 * math.log(5)) / 10
        assert protocol.distribution.sigma == pytest.approx(sigma)
        assert isinstance(protocol.guarantee, ApproximateDP)
        assert protocol.guarantee.delta == pytest.approx(
            GaussianLoss(sigma, 2 * math.sqrt(30)).delta(10.0)
        )
        assert round(protocol.guarantee.delta, 3) == 0.789
    shuffled = ShuffledVector(50, 30, 1.0, TEN, paper=True)
    assert isinstance(shuffled.guarantee, ApproximateDP)
    assert shuffled.guarantee.epsilon < 1.0  # asked for 10: 18√ln(2/δ) too careful


@pytest.mark.parametrize("size", [1, 30])
def test_printed_shuffle_noise_covers_the_largest_movement_of_levels(size: int) -> None:
    protocol = ShuffledVector(50, size, 1.0, ApproximateDP(10.0, 1e-5), paper=True)
    rng = np.random.default_rng(3)
    ends = [protocol.levels(np.full((2000, size), value), rng) for value in (1.0, -1.0)]
    moved = int(ends[0].max() - ends[1].min())
    reduced = 5 if size == 1 else 10 / (18 * math.sqrt(math.log(2e5)))
    log = math.log(2e5) if size == 1 else math.log(4e5 * size)
    amount = protocol.precision**2 * log / (reduced**2 * 50)
    assert protocol.noise_bits == math.ceil(180 * amount)
    assert protocol.bias * protocol.noise_bits == pytest.approx(90 * amount)
    assert isinstance(protocol.guarantee, ApproximateDP)
    hidden = joint_epsilon(protocol.noise(49), moved, size, 1e-5)
    assert 0 < protocol.guarantee.epsilon == pytest.approx(hidden)


@pytest.mark.parametrize("coordinates", [1, 3])
def test_printed_bits_are_accounted_up_to_rounding(
    coordinates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one end to the other, each rounded away from the other; the noise of all but one."""
    protocol = ShuffledVector(40, coordinates, 1.0, ApproximateDP(1.0, 1e-3), paper=True)
    ends = []
    for end, coin in ((1.0, True), (-1.0, False)):
        monkeypatch.setattr("tacit.protocols.contract.Chance.flip", lambda _, coin=coin: coin)
        ends.append(protocol.encode([end] * coordinates)[0])
    assert ends[0] > ends[1] + 1
    others = Binomial(39 * protocol.noise_bits, protocol.bias)
    true = linf_loss(others, ends[0] - ends[1], coordinates).epsilon(1e-3)
    assert isinstance(protocol.guarantee, ApproximateDP)
    assert 0.999 * true <= protocol.guarantee.epsilon <= 1.3 * true


@pytest.mark.parametrize("reports", [1, 7, 50])
def test_the_stated_error_of_local_means_matches_its_draws(reports: int) -> None:
    for target in (TEN, PureDP(2.0)):
        protocol = LocalVectors(50, 3, 1.0, target)
        proxy, _, std = protocol.spread(reports)
        assert std == pytest.approx(math.sqrt(float(protocol.distribution.variance) / reports))
        most = 4 if isinstance(target, PureDP) else 1.01  # a proxy of Laplace tails is wider
        assert std**2 <= proxy <= most * std**2


def test_tight_local_noise_is_the_exact_gaussian() -> None:
    distribution = LocalVectors(50, 30, 2.0, TEN).distribution
    assert distribution.variance == pytest.approx((0.24717 * 4) ** 2 * 30, rel=1e-4)


def test_vector_protocols_state_their_views_and_guarantees() -> None:
    assert Plain(5, 2, 1.0).guarantee is None
    expected = {
        CentralVectors: View.SERVER_OUTPUT,
        LocalVectors: View.MESSAGE,
        ShuffledVector: View.SHUFFLED,
        SecureVector: View.RELEASED_SUM,
    }
    for kind, view in expected.items():
        protocol = kind(5, 2, 1.0, ONE)
        assert isinstance(protocol, VectorProtocol)
        assert protocol.guarantee is not None
        shared = view in (View.SHUFFLED, View.RELEASED_SUM)
        needed: tuple[Assumption, ...] = ThreatModel().assumptions() if shared else ()
        stated = ONE.with_view(view=view).assuming(*needed)
        assert protocol.guarantee.assumptions == frozenset(needed)
        assert protocol.guarantee.arithmetic is Arithmetic.EXACT
        assert protocol.guarantee.implies(stated)
        assert isinstance(protocol.guarantee, ApproximateDP)
        assert (protocol.guarantee.epsilon, protocol.guarantee.delta) == (ONE.epsilon, ONE.delta)
        assert protocol.guarantee.view is view


@pytest.mark.parametrize("kind", [CentralVectors, LocalVectors])
def test_printed_gaussian_noise_assumes_ideal_arithmetic(kind: type[Any]) -> None:
    found = kind(5, 2, 1.0, ONE, paper=True).guarantee
    assert found.arithmetic is Arithmetic.IDEAL
    assert found.assumptions == frozenset()


def test_separate_sums_count_dishonest_participants_in_each_group() -> None:
    """One curious participant of a round is one of a group; one in each group is not one."""
    parts = [SecureVector(count, 1, 1.0, ONE, precision=4) for count in (5, 3)]
    found = SeparateSums(parts).guarantee
    assert found is not None
    assert found.assumptions == {
        DishonestAtMost(Scope.GROUP, 1),
        ReleasedOnlyAbove(Fraction(1)),
    }
    assert found.arithmetic is Arithmetic.EXACT
    for part in parts:
        assert part.guarantee is not None
        assert not found.implies(part.guarantee)


def test_pure_targets_get_laplace_noise_for_the_l1_movement() -> None:
    central = CentralVectors(10, 3, 1.0, PureDP(2.0))
    assert central.distribution == DiscreteLaplace(1024 * 3 / 2.0)
    assert 3 * DiscreteLaplace(1024 * 3 / 2.0).pure_loss(1024) == pytest.approx(2.0)
    assert LocalVectors(10, 3, 1.0, PureDP(2.0)).distribution.scale == pytest.approx(3.0)  # type: ignore[union-attr]
    secure = SecureVector(10, 3, 1.0, PureDP(2.0), precision=4)
    points = np.arange(-30, 31)
    assert secure.noise(9).pmf(points) == pytest.approx(DiscreteLaplace(6).pmf(points), rel=1e-6)
    with pytest.raises(TacitError, match="finite range"):
        ShuffledVector(10, 3, 1.0, PureDP(2.0))
    with pytest.raises(TacitError, match="delta > 0"):
        CentralVectors(10, 3, 1.0, PureDP(2.0), paper=True)
    with pytest.raises(TacitError, match=r"epsilon is 400: must be smaller with the paper's noise"):
        LocalVectors(10, 3, 1.0, ApproximateDP(400.0, 0.1), paper=True)


def test_shares_sum_to_the_accounted_noise() -> None:
    secure = SecureVector(6, 3, 1.0, TEN, precision=4)
    total = skellam_noise(4, 3, TEN)
    table: NoiseDistribution = secure.share
    for _ in range(4):  # one of the six may look
        table = convolve(table, secure.share)
    points = np.arange(-20, 21)
    assert isinstance(table, Table)
    assert table.pmf(points) == pytest.approx(total.pmf(points), rel=1e-6, abs=1e-12)
    shuffled = ShuffledVector(6, 3, 1.0, TEN, precision=4)
    assert shuffled.noise(6) == Binomial(shuffled.noise_bits * 6, shuffled.bias)
    share = shared_gaussian_noise(64, 3, TEN, 6)
    assert math.sqrt(6) * float(share.sigma) >= float(gaussian_noise(64, 3, TEN).sigma) * 0.999


@pytest.mark.parametrize(
    ("protocol", "share"),
    [
        (SecureVector(6, 3, 1.0, TEN, precision=5), skellam_noise(5, 3, TEN).share(5)),
        (
            SecureVector(6, 3, 1.0, TEN, precision=64, noise_kind="discrete-gaussian"),
            shared_gaussian_noise(64, 3, TEN, 5),
        ),
        (SecureVector(6, 3, 1.0, PureDP(5.0), precision=5), DiscreteLaplace(3).share(5)),
        (ShuffledVector(6, 3, 1.0, TEN, precision=5), Binomial(*binomial_noise(5, 3, TEN, 5))),
    ],
    ids=["skellam", "discrete-gaussian", "pure", "shuffled"],
)
def test_the_distribution_of_a_coordinate_sums_the_shares(
    protocol: LevelProtocol, share: NoiseDistribution
) -> None:
    """Shares written down a second time: a share that is missing or too narrow would show."""
    modulus = getattr(protocol, "modulus", None)
    distribution = protocol.view_distribution(3, 6)
    points = np.arange(int(distribution.support[0]), int(distribution.support[1]) + 1)
    right, missing = (by_hand(share, copies, 3, modulus).pmf(points) for copies in (6, 5))
    np.testing.assert_allclose(distribution.pmf(points), right, rtol=0, atol=1e-12)
    assert np.abs(distribution.pmf(points) - missing).max() > 1e-4


def test_views_of_trusted_servers_and_single_clients_have_their_noise_distribution() -> None:
    for target, distribution in (
        (TEN, gaussian_noise(1024, 3, TEN)),
        (PureDP(3.0), DiscreteLaplace(1024)),
    ):
        for kind in (CentralVectors, LocalVectors):
            assert kind(6, 3, 1.0, target).view_distribution(0, 6) == distribution
    for paper in (CentralVectors, LocalVectors):
        with pytest.raises(TacitError, match="no exact distribution"):
            paper(6, 3, 1.0, TEN, paper=True).view_distribution(0, 6)


def test_shares_are_sized_for_the_guaranteed_reports() -> None:
    protocol = SecureVector(10, 2, 1.0, TEN, threat=ThreatModel(dropout=0.2))
    assert protocol.minimum == 8
    assert protocol.honest == 7
    assert float(protocol.noise(7).variance) == pytest.approx(
        float(skellam_noise(16, 2, TEN).variance)
    )
    messages = [protocol.randomize([0.1, 0.2]) for _ in range(9)]
    assert protocol.combine(messages).reports == 9
    with pytest.raises(TacitError, match="the round is aborted"):
        protocol.combine(messages[:7])


@pytest.mark.parametrize("times", [2, 20])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_noise_for_several_participations_meets_the_target_over_all_rounds(
    times: int, delta: float
) -> None:
    """Composed from the noise itself: so many rounds in which every coordinate moves."""
    target: PureDP | ApproximateDP = PureDP(1.0, participations=times)
    if delta:
        target = ApproximateDP(1.0, delta, participations=times)
    protocol = SecureVector(40, 3, 1.0, target, precision=4)
    noise = protocol.share.sum_of_shares(protocol.honest)
    assert protocol.guarantee is not None
    assert protocol.guarantee.participations == times
    if delta:
        assert linf_loss(noise, 4, 3 * times).epsilon(delta) <= 1.0
        shuffled = ShuffledVector(40, 3, 1.0, target, precision=4)
        assert linf_loss(shuffled.noise(39), 4, 3 * times).epsilon(delta) <= 1.0
        trusted = CentralVectors(40, 3, 1.0, target).distribution
        assert linf_loss(trusted, 1024, 3 * times).epsilon(delta) <= 1.0  # type: ignore[arg-type]
    else:
        assert 3 * times * privacy_loss(noise, 4).pure <= 1.0 + 1e-9
    with pytest.raises(TacitError, match="for one participation"):
        CentralVectors(40, 3, 1.0, ApproximateDP(1.0, 1e-5, participations=2), paper=True)


@pytest.mark.parametrize("kind", [CentralVectors, LocalVectors])
def test_continuous_noise_is_labelled_ideal_and_runs_on_no_device(kind: type[Any]) -> None:
    paper = kind(6, 3, 1.0, TEN, paper=True)
    assert "in ideal real arithmetic" in str(paper.guarantee)
    assert "simulation only" in str(paper.guarantee)
    assert "ideal" not in str(kind(6, 3, 1.0, TEN).guarantee)
    with pytest.raises(TacitError, match="simulation only: use tight constants"):
        paper.combine([paper.randomize(vector) for vector in VECTORS])


def noted(seen: list[Fraction], scaled: Fraction) -> int:
    seen.append(scaled)
    return 0


FLOATS = st.floats(-1 - 1e-12, 1 + 1e-12)


@given(st.lists(FLOATS, max_size=6), FLOATS, FLOATS)
@settings(max_examples=60, deadline=None)
def test_no_participant_moves_a_server_noised_sum_by_more_than_the_grid(
    others: list[float], one: float, other: float
) -> None:
    """Sums in floating point, or a reward a little beyond the bound, would: the noise is made for
    1,024 steps exactly.
    """
    for kind in (CentralVectors, LocalVectors):
        protocol = kind(len(others) + 1, 1, 1.0, PureDP(1.0))
        reached = []
        for mine in (one, other):
            with pytest.MonkeyPatch.context() as patch:
                seen: list[Fraction] = []
                patch.setattr(vectors, "random_level", partial(noted, seen))
                messages = [protocol.randomize([x]) for x in [*others, mine]]
                if kind is CentralVectors:
                    protocol.combine(messages)
            reached.append(seen[-1])
        assert abs(reached[0] - reached[1]) <= vectors.FINE


PROTOCOLS: dict[str, Callable[[], VectorProtocol]] = {
    "plain": lambda: Plain(6, 3, 1.0),
    "central": lambda: CentralVectors(6, 3, 1.0, TEN),
    "central-pure": lambda: CentralVectors(6, 3, 1.0, PureDP(5.0)),
    "local": lambda: LocalVectors(6, 3, 1.0, TEN),
    "local-pure": lambda: LocalVectors(6, 3, 1.0, PureDP(5.0)),
    "shuffler": lambda: ShuffledVector(6, 3, 1.0, TEN, precision=5),
    "shuffle-paper": lambda: ShuffledVector(6, 3, 1.0, ApproximateDP(14.0, 0.45), paper=True),
    "secure-aggregation": lambda: SecureVector(6, 3, 1.0, TEN, precision=5),
    "secagg-gaussian": lambda: SecureVector(
        6, 3, 1.0, TEN, precision=64, noise_kind="discrete-gaussian"
    ),
    "secagg-pure": lambda: SecureVector(6, 3, 1.0, PureDP(5.0), precision=5),
}


def simulate(protocol: VectorProtocol, rng: np.random.Generator) -> Estimate:
    return protocol.simulate(Given(VECTORS), rng)


@pytest.mark.extended  # test_every_protocol.py compares them for every protocol
@pytest.mark.parametrize("name", PROTOCOLS)
def test_devices_match_the_simulation(name: str) -> None:
    """Two-sample Kolmogorov-Smirnov on each coordinate; false alarms below 1e-7 each.

    The declared error distribution covers what is seen.
    """
    protocol = PROTOCOLS[name]()
    rng = np.random.default_rng(7)
    count = 30 if name == "shuffle-paper" else 400
    fast = np.array([simulate(protocol, rng).mean for _ in range(2000)])
    slow = np.array(
        [
            protocol.analyze(protocol.combine([protocol.randomize(v) for v in VECTORS])).mean
            for _ in range(count)
        ]
    )
    truth = VECTORS.mean(axis=0)
    estimate = simulate(protocol, rng)
    for coordinate in range(3):
        assert ks_2samp(fast[:, coordinate], slow[:, coordinate]).pvalue > 1e-7
    spread = fast.std(axis=0)
    assert (
        np.abs(fast.mean(axis=0) - truth).max()
        <= 5.5 * float(spread.max()) / math.sqrt(2000) + 1e-12
    )
    assert (spread**2 <= 1.15 * estimate.error.proxies + 1e-12).all()


def test_proxies_bound_the_moment_generating_function() -> None:
    for distribution in (
        Skellam(5),
        Binomial(40, 0.1),
        DiscreteGaussian(2),
        DiscreteLaplace(3),
        Binomial(9),
    ):
        proxy, reach = noise_proxy(distribution)
        points = np.linspace(-reach, reach, 501)
        assert (
            distribution.log_mgf(points) - points * distribution.mean
            <= proxy * points**2 / 2 * (1 + 1e-3) + 1e-9
        ).all()


def test_vector_messages_have_the_stated_bits() -> None:
    assert Plain(5, 7, 1.0).bits_per_participant == 7 * 64
    shuffled = ShuffledVector(100, 7, 1.0, TEN, precision=5)
    assert shuffled.bits_per_participant == 7 * (5 + shuffled.noise_bits)
    assert all(len(bits) == 5 + shuffled.noise_bits for bits in shuffled.randomize(np.zeros(7)))
    secure = SecureVector(100, 7, 1.0, TEN, precision=5)
    assert secure.bits_per_participant == 7 * (secure.modulus - 1).bit_length()
    assert all(0 <= part < secure.modulus for part in secure.randomize(np.zeros(7)))


@each_row("name", PROTOCOLS)
@each_row(
    ("report", "message"),
    [
        ([0.0, 1.5, 0.0], "beyond the bound"),
        ([0.0], "3 played actions"),
        ([0, math.nan, 0], "bound"),
    ],
)
def test_invalid_reports_are_rejected(name: str, report: npt.ArrayLike, message: str) -> None:
    with pytest.raises(TacitError, match=message):
        PROTOCOLS[name]().randomize(report)


def test_invalid_vector_protocols_are_rejected() -> None:
    with pytest.raises(TacitError, match="leaves clients in every phase"):
        Plain(0, 2, 1.0)
    with pytest.raises(TacitError, match="bound"):
        Plain(2, 2, 0.0)
    with pytest.raises(TacitError, match="epsilon < 15"):
        ShuffledVector(10, 3, 1.0, ApproximateDP(20.0, 0.25), paper=True)
    with pytest.raises(TacitError, match="epsilon < 30"):
        ShuffledVector(10, 1, 1.0, ApproximateDP(30.0, 0.25), paper=True)
    with pytest.raises(TacitError, match="delta < 1/2"):
        ShuffledVector(10, 1, 1.0, ApproximateDP(20.0, 0.5), paper=True)
    for size in (2, 1):
        asked = ApproximateDP(14.9 * (3 - size), 0.25)
        assert ShuffledVector(10, size, 1.0, asked, paper=True).coordinates == size
    with pytest.raises(TacitError, match="skellam"):
        SecureVector(10, 3, 1.0, TEN, noise_kind="uniform")
    protocol = ShuffledVector(10, 3, 1.0, TEN)
    with pytest.raises(TacitError, match="beyond the bound"):
        protocol.levels(np.full((2, 3), 1.5), np.random.default_rng(0))


@pytest.mark.parametrize("target", [TEN, PureDP(2.0)])
def test_local_noise_meets_the_guarantee_and_half_does_not(
    target: ApproximateDP | PureDP,
) -> None:
    """From the device's own distribution, at the largest movement on its grid in every
    coordinate."""
    protocol = LocalVectors(5, 3, 1.0, target)
    assert protocol.device is not None
    steps = np.asarray(protocol.randomize([1.0, -1.0, 0.25])) / protocol.unit
    assert np.array_equal(steps, np.round(steps))
    if isinstance(target, PureDP):
        assert 3 * privacy_loss(protocol.device, 1024).pure <= target.epsilon
        half = DiscreteLaplace(protocol.device.scale / 2)  # type: ignore[attr-defined]
        assert 3 * privacy_loss(half, 1024).pure > target.epsilon
    else:
        assert linf_loss(protocol.device, 1024, 3).delta(target.epsilon) <= target.delta * (
            1 + 1e-3
        )
        assert (
            linf_loss(DiscreteGaussian(protocol.device.std / 2), 1024, 3).delta(target.epsilon)
            > target.delta
        )


def test_separate_sums_are_released_all_or_none() -> None:
    protocol = SeparateSums([SecureVector(count, 1, 1.0, TEN, precision=4) for count in (3, 2)])
    messages: list[Any] = [(0, [5]), (1, [7]), (0, [6]), (1, [8]), (0, [1])]
    assert protocol.by_option(messages) == [[[5], [6], [1]], [[7], [8]]]
    for place in (-1, 2):
        with pytest.raises(TacitError, match=f"coordinate is {place}: must be 0 to 1"):
            protocol.by_option([*messages, (place, [3])])
    with pytest.raises(TacitError, match="the round is aborted"):
        protocol.by_option(messages[:-1])


@pytest.mark.parametrize("counts", [(100, 12), (12, 100)])
def test_separate_sums_have_the_same_assumptions_in_any_order(counts: tuple[int, int]) -> None:
    protocol = SeparateSums([SecureVector(count, 1, 1.0, TEN, precision=4) for count in counts])
    assert protocol.guarantee is not None
    assert protocol.guarantee.assumptions == {
        DishonestAtMost(Scope.GROUP, 1),
        ReleasedOnlyAbove(Fraction(1)),
    }
    assert "at most 1 participant of a group is curious, corrupted or invented" in str(
        protocol.guarantee
    )
    for part, count in zip(protocol.parts, counts, strict=True):
        assert part.honest == count - DishonestAtMost(Scope.GROUP, 1).limit(count)


APART = 0.02  # of a sum of shares from one draw, in each coordinate


def test_approximate_shares_pay_their_distance_from_one_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(ε, δ) of one draw is (ε + 2ψ, e^ψ δ) of what is within a factor e^±ψ of it."""
    monkeypatch.setattr(DiscreteGaussian, "closeness", lambda *_: APART)
    delta, whole = 1e-4, privacy_loss(DiscreteGaussian(40).sum_of_shares(3), 3 * 8)
    paid = whole.epsilon(delta * math.exp(-APART)) + 2 * APART
    assert joint_epsilon(DiscreteGaussian(40), 8, 3, delta) == pytest.approx(paid, rel=1e-9)
    target = ApproximateDP(1.0, delta)
    share = shared_gaussian_noise.__wrapped__(8, 3, target, 16)
    psi = 3 * APART
    inner = joint_epsilon(share.sum_of_shares(16), 8, 3, delta * math.exp(-psi))
    assert inner + 2 * psi <= 1.0 < 1.02 * inner + 2 * psi


@pytest.mark.parametrize("clients", [3, 100, 127])
def test_bits_suffice_for_numbers_of_clients_that_are_no_power_of_two(clients: int) -> None:
    target = ApproximateDP(1.0, 1e-4)
    bits, bias = binomial_noise(4, 1, target, clients)
    assert joint_epsilon(Binomial(bits * clients, bias), 4, 1, target.delta) <= target.epsilon


def test_rounding_never_moves_a_report_beyond_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.protocols.contract.Chance.flip", lambda _: True)
    for precision in range(1, 50):
        for bound in (0.1, 0.3, 1.0, 1.1):
            protocol = SecureVector(2, 2, bound, PureDP(1.0), precision=precision)
            over = bound * (1 + 5e-13)  # what floating point adds to an average
            assert np.abs(protocol.check([over, -over])).max() <= bound
            assert all(0 <= level <= precision for level in protocol.encode([over, -over]))


def test_the_weakest_guarantee_holds_for_every_participant() -> None:
    strong, weak = ApproximateDP(1.0, 1e-6), ApproximateDP(1.0, 1e-5)
    assert weakest([strong, weak]) == weak
    assert weakest([ApproximateDP(2.0, 1e-7), weak]) == ApproximateDP(2.0, 1e-5)
    assert weakest([strong, None, weak]) is None
    assert weakest([None]) is None


@pytest.mark.parametrize("counts", [(40, 4_000), (4_000, 40)])
def test_separate_sums_have_the_weakest_guarantee_of_their_options(counts: tuple[int, int]) -> None:
    """Printed shuffle noise protects participants more or less in batches of another size."""
    target = ApproximateDP(10.0, 1e-6)
    parts = [ShuffledVector(count, 1, 1.0, target, paper=True) for count in counts]
    stated = SeparateSums(parts).guarantee
    each = [part.guarantee for part in parts]
    assert isinstance(stated, ApproximateDP)
    epsilons = [one.epsilon for one in each if isinstance(one, ApproximateDP)]
    assert stated.epsilon == max(epsilons) > min(epsilons)


def test_separate_sums_reject_parts_with_dropout() -> None:
    """A fraction of all reports says nothing about those of one option."""
    parts = [
        SecureVector(20, 1, 1.0, ApproximateDP(1.0, 1e-5), threat=ThreatModel(dropout=0.1))
        for _ in range(2)
    ]
    with pytest.raises(TacitError, match="tolerates dropout"):
        SeparateSums(parts)


def test_rounding_stays_within_the_levels_that_the_printed_noise_is_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found: of four coordinates the level 42 of B is 42.000000000000001 in exact arithmetic, and
    was rounded to 43 with that probability, one level more than the guarantee counts.
    """
    beyond = 0
    for clients in range(10**5, 10**8, 10**6):
        protocol = ShuffledVector(clients, 4, 1.0, ApproximateDP(4.0, 0.1), paper=True)
        unit, offset = protocol.unit, protocol.offset
        moved = math.ceil((1.0 - offset) / unit) - math.floor((-1.0 - offset) / unit)
        monkeypatch.setattr(integer_vectors, "random_level", math.ceil)
        high = protocol.encode(np.ones(4))
        beyond += any((1 - Fraction(offset)) / Fraction(unit) > level for level in high)
        monkeypatch.setattr(integer_vectors, "random_level", math.floor)
        low = protocol.encode(-np.ones(4))
        assert max(high) - min(low) <= moved
    assert beyond

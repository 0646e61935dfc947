"""Private prefix sums: the stated covariance, the sensitivity by brute force, and additive
messages.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.protocols.examples import by_hand
from tests.samples import follows

from tacit.algorithms import SilosProblem
from tacit.algorithms.zc24_noise import sdp_fedlinucb_vec
from tacit.assumptions import (
    DishonestAtMost,
    JointPrivacy,
    ReleasedOnlyAbove,
    Scope,
    Spread,
    TrustedSilo,
    VisitsAtMost,
)
from tacit.bandits.contextual.moments import joint_sensitivity, pack, size, unpack
from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, NoiseDistribution, Skellam, Table
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    ConcentratedDP,
    GaussianLoss,
    View,
    privacy_loss,
)
from tacit.privacy.composition import ComposedLoss
from tacit.privacy.gaussian_distance import NearlyGaussianLoss, distance_from_gaussian
from tacit.protocols.factorization import (
    Factorization,
    Kind,
    depth,
    factorize,
    squared_silos,
)
from tacit.protocols.mechanism import Mechanism, Releases
from tacit.protocols.prefix_delivery import Noise, Presence
from tacit.protocols.prefix_guarantees import achieves
from tacit.protocols.prefix_messages import Bits, Shares
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixRound, PrefixSums
from tacit.trust import TrustModel, split_shares
from tacit.types import Arm, Floats, Round

SILO, CENTRAL, SHUFFLER = TrustModel.SILO, TrustModel.CENTRAL, TrustModel.SHUFFLER
SECURE = TrustModel.SECURE_AGGREGATION

TARGET = ApproximateDP(1.0, 1e-5)
WAYS: list[tuple[Kind, TrustModel, Noise]] = [
    ("tree", SILO, "gaussian"),
    ("prefix", SILO, "gaussian"),
    ("square-root", SILO, "gaussian"),
    ("tree", SILO, "discrete-gaussian"),
    ("square-root", SILO, "discrete-gaussian"),
    ("tree", SECURE, "discrete-gaussian"),
    ("prefix", SECURE, "discrete-gaussian"),
    ("square-root", SECURE, "discrete-gaussian"),
    ("square-root", SECURE, "skellam"),
    ("tree", SHUFFLER, "discrete-gaussian"),
    ("square-root", SHUFFLER, "discrete-gaussian"),
    ("tree", SHUFFLER, "gaussian"),
    ("tree", SHUFFLER, "binomial"),
]


def build(
    kind: Kind,
    trust: TrustModel,
    noise: Noise,
    *,
    steps: int = 6,
    silos: int = 20,
    numbers: int = 3,
    corrupt: int = 0,
) -> PrefixSums:
    shape = factorize(kind, steps)
    return calibrated(
        SiloStream(shape, silos, numbers, 1.5, people=4),
        trust,
        noise,
        ApproximateDP(2.0, 0.05),
        corrupt=corrupt,
    )


def step_of(releases: Releases, step: int) -> PrefixRound:
    """A step whether or not those before it were released; `Releases.open` asks for that."""
    return releases.sums.open(step, releases.released, releases.held, releases.guarantee)


def released(releases: Releases, number: int, messages: list[Any]) -> Floats:
    """The private prefix sum, from the messages of all silos."""
    protocol = step_of(releases, number)
    return np.asarray(protocol.analyze(protocol.combine(messages)).total)


@pytest.mark.parametrize("kind", ["tree", "prefix", "square-root"])
@pytest.mark.parametrize("steps", [1, 2, 7, 16, 33])
def test_the_factorization_multiplies_to_prefix_sums(kind: Kind, steps: int) -> None:
    shape = factorize(kind, steps)
    np.testing.assert_allclose(
        shape.left @ shape.right, np.tril(np.ones((steps, steps))), atol=1e-12
    )


def test_the_tree_has_logarithmically_many_nodes() -> None:
    for steps in range(1, 130):
        shape = factorize("tree", steps)
        assert shape.movement() ** 2 == pytest.approx(math.floor(math.log2(steps)) + 1)
        assert shape.rows_moved == depth(steps)
        assert list(shape.variances) == [bin(k).count("1") for k in range(1, steps + 1)]


def test_the_square_root_factorization_has_a_ninth_of_the_trees_variance() -> None:
    tree, root = factorize("tree", 400), factorize("square-root", 400)
    worst = [shape.movement() ** 2 * shape.variances.max() for shape in (tree, root)]
    assert worst[0] / worst[1] > 8.0
    assert worst[0] / 8 * 9 / worst[1] == pytest.approx(81 / 8.84, rel=1e-2)


def test_exact_joint_accounting_matches_correction_18() -> None:
    for delta, expected in ((1e-5, 554.0), (0.1, 47.0)):
        protocol = calibrated(
            SiloStream(factorize("square-root", 400), 1, size(10), joint_sensitivity(10)),
            SILO,
            "gaussian",
            ApproximateDP(1.0, delta),
        )
        assert protocol.variances[-1] == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize(
    ("kind", "trust", "noise"),
    [*WAYS[:-1], pytest.param(*WAYS[-1], marks=pytest.mark.extended)],  # many bits each
)
def test_released_prefix_sums_have_the_stated_covariance(
    kind: Kind, trust: TrustModel, noise: Noise
) -> None:
    """Sampled through every silo's messages; each of 21 entries is off by 5 standard errors once in
    10^5 runs at most.
    """
    protocol = build(kind, trust, noise, steps=6, numbers=40)
    rng = np.random.default_rng(7)
    runs = 25
    data = rng.uniform(-1, 1, (6, protocol.silos, 40))
    truth = np.cumsum(data.sum(axis=1), axis=0)
    errors = []
    for _ in range(runs):
        encoders, releases = (
            [protocol.encoder(rng) for _ in range(protocol.silos)],
            Releases(protocol),
        )
        sums = [
            released(releases, k, [e.randomize(data[k, i]) for i, e in enumerate(encoders)])
            for k in range(6)
        ]
        errors.append(np.array(sums) - truth)
    _assert_covariance(np.concatenate(errors, axis=1), protocol)


@pytest.mark.parametrize(("kind", "trust", "noise"), WAYS)
def test_the_simulator_has_the_covariance_of_the_messages(
    kind: Kind, trust: TrustModel, noise: Noise
) -> None:
    protocol = build(kind, trust, noise, steps=6, numbers=1000)
    releases, rng = Releases(protocol), np.random.default_rng(3)
    load = np.full(1000, 0.25)
    sums = np.array([step_of(releases, k).simulate(load, rng).total for k in range(6)])
    _assert_covariance(sums - 0.25 * np.arange(1, 7)[:, None], protocol)


def _assert_covariance(errors: Floats, protocol: PrefixSums) -> None:
    samples = errors.shape[1]
    stated = protocol.covariance
    spread = np.sqrt((np.outer(np.diag(stated), np.diag(stated)) + stated**2) / samples)
    assert np.all(np.abs(errors @ errors.T / samples - stated) < 5 * spread)
    assert np.all(np.abs(errors.mean(axis=1)) < 5 * np.sqrt(np.diag(stated) / samples))


@pytest.mark.parametrize(("kind", "trust", "noise"), WAYS)
def test_every_protocol_meets_its_target_and_half_the_noise_does_not(
    kind: Kind, trust: TrustModel, noise: Noise
) -> None:
    target = ApproximateDP(1.0, 1e-3)
    protocol = calibrated(SiloStream(factorize(kind, 6), 20, 3, 1.5), trust, noise, target)
    assert protocol.guarantee(target.delta).epsilon <= target.epsilon
    halved = PrefixSums(
        protocol.shape,
        20,
        3,
        1.5,
        trust,
        noise,
        protocol.sigma / 2,
        protocol.scale,
        protocol.people,
    )
    assert halved.loss().epsilon(target.delta) > 1.5 * target.epsilon


def extremes(dimension: int) -> list[tuple[Floats, float]]:
    """Unit vectors along axes, between them, and at 120° to each other, with the extreme
    rewards.
    """
    units = [*np.eye(dimension), *(-np.eye(dimension))]
    for i, j in itertools.combinations(range(dimension), 2):
        for angle in np.arange(0, 2 * math.pi, math.pi / 12):
            vector = np.zeros(dimension)
            vector[i], vector[j] = math.cos(angle), math.sin(angle)
            units.append(vector)
    return [(x, y) for x in units for y in (0.0, 1.0)]


@pytest.mark.parametrize("scaled", [True, False])
def test_the_joint_sensitivity_is_attained_by_extreme_users(scaled: bool) -> None:
    for dimension, worst in ((1, 4.0), (2, 4.5), (3, 4.5)):
        users = [pack(x * y, np.outer(x, x), scaled=scaled) for x, y in extremes(dimension)]
        moved = max(float(np.sum((a - b) ** 2)) for a, b in itertools.combinations(users, 2))
        assert moved == pytest.approx(worst, abs=1e-9)
        assert moved <= joint_sensitivity(dimension) ** 2


def test_no_random_user_exceeds_the_sensitivity() -> None:
    rng = np.random.default_rng(0)
    for dimension in (1, 2, 5, 10):
        x = rng.standard_normal((2, 20_000, dimension))
        x *= (rng.random((2, 20_000)) ** 0.1 / np.linalg.norm(x, axis=2))[..., None]
        y = rng.integers(0, 2, (2, 20_000)) * rng.random((2, 20_000)) ** 0.1
        a, b = (pack(x[i] * y[i][:, None], x[i][:, :, None] * x[i][:, None, :]) for i in range(2))
        assert np.linalg.norm(a - b, axis=1).max() <= joint_sensitivity(dimension)


@pytest.mark.parametrize(
    ("kind", "trust", "noise"), [w for w in WAYS if w[1] != SHUFFLER or w[2] == "binomial"]
)
def test_no_participant_moves_all_releases_beyond_the_accounted_sensitivity(
    kind: Kind, trust: TrustModel, noise: Noise
) -> None:
    """Brute force over small trees: every step, every pair of extreme users, messages of the silo
    with the noise taken off.
    """
    dimension, steps = 2, 5
    shape = factorize(kind, steps)
    protocol = calibrated(
        SiloStream(shape, 3, size(dimension), joint_sensitivity(dimension), people=2),
        trust,
        noise,
        ApproximateDP(2.0, 0.05),
    )
    background = np.random.default_rng(1).uniform(-1, 1, (steps, protocol.size))
    users = [pack(x * y, np.outer(x, x)) for x, y in extremes(dimension)[::3]]
    worst = 0.0
    for step in range(steps):
        released = [noiseless(protocol, background, step, z) for z in users]
        worst = max(
            worst, *(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(released, 2))
        )
    assert worst <= protocol.movement
    assert worst > 0.95 * protocol.movement


def noiseless(protocol: PrefixSums, background: Floats, step: int, z: Floats) -> Floats:
    """Everything released about one silo, noise left out: what the noise has to hide."""
    data = background.copy()
    data[step] += z
    rows = protocol.shape.right @ data
    return np.rint(rows * protocol.scale) / protocol.scale if protocol.integral else rows


@pytest.mark.parametrize("kind", ["tree", "square-root"])
def test_several_participations_move_most_if_they_come_first(
    kind: Kind,
) -> None:
    for steps in (4, 6, 7):
        shape = factorize(kind, steps)
        for visits in (1, 2, 3, steps):
            worst = max(
                float(np.linalg.norm(shape.right[:, list(chosen)].sum(axis=1)))
                for chosen in itertools.combinations(range(steps), visits)
            )
            assert shape.movement(visits) == pytest.approx(worst)


@pytest.mark.parametrize("importance", [(1.0,) * 5, (5.0, 1.0, 0.2, 1.0, 3.0)])
def test_several_participations_move_the_worst_rows_within_the_accounted_bound(
    importance: tuple[float, ...],
) -> None:
    """Brute force over batches, and over the sign of what somebody moves in each."""
    shape = factorize("optimal", 5, importance)
    for visits in (1, 2, 3, 5):
        worst = max(
            float(np.linalg.norm(shape.right[:, list(chosen)] @ signs))
            for chosen in itertools.combinations(range(5), visits)
            for signs in itertools.product((-1, 1), repeat=visits)
        )
        assert worst * (1 - 1e-12) <= shape.movement(visits) < 1.01 * worst


def test_batches_with_opposite_signs_are_bounded() -> None:
    """Rows may have entries below 0: who raises one batch and lowers the next moves most."""
    right = np.array([[1.0, -0.8], [0.0, 0.6]])
    shape = Factorization("optimal", right, np.tril(np.ones((2, 2))) @ np.linalg.inv(right))
    assert shape.movement(2) >= float(np.linalg.norm(right @ [1.0, -1.0]))


@pytest.mark.parametrize("kind", ["tree", "prefix", "square-root"])
def test_factors_whose_sensitivity_is_not_derived_are_rejected(kind: Any) -> None:
    """With later batches a hundred times as large, (1.56, 1e-5)-DP was stated for 100 times ε."""
    shape = factorize(kind, 8)
    grown = shape.right.copy()
    grown[:, 1:] *= 100
    with pytest.raises(TacitError, match=f"not those of the {kind} kind"):
        replace(shape, right=grown, left=np.tril(np.ones((8, 8))) @ np.linalg.pinv(grown))
    with pytest.raises(ValueError, match="read-only"):
        shape.right[:, 1:] *= 100
    same = replace(shape, right=shape.right.copy())
    assert not same.right.flags.writeable
    assert same.movement(8) == shape.movement(8)
    late = Factorization("optimal", np.array([[1.0, -0.8], [0.0, 0.6]]), np.eye(2))
    with pytest.raises(TacitError, match="above the diagonal"):
        PrefixSums(late, 3, 4, 1.0)


def placements(silos: int, people: int, presence: Presence) -> list[tuple[int, ...]]:
    """The records of each silo that may move in one batch, however the visits fall."""
    places = list(itertools.product(range(silos), range(people)))
    found = set()
    for visited in itertools.combinations(places, min(presence.visits, len(places))):
        moved = dict.fromkeys(range(silos), 0)
        for silo in moved:
            mine = [place for of, place in visited if of == silo]
            if mine:
                moved[silo] = people - min(mine) if presence.eager else len(mine)
        found.add(tuple(moved.values()))
    return sorted(found)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("visits", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("trust", "noise", "kind"),
    [
        (SILO, "gaussian", "tree"),
        (SILO, "gaussian", "square-root"),
        (SECURE, "discrete-gaussian", "square-root"),
    ],
)
def test_the_worst_case_covers_all_schedules_of_participation(
    trust: TrustModel, noise: Noise, kind: Kind, visits: int, eager: bool
) -> None:
    """Brute force: every choice of two of three batches, every place in every silo, every record
    from a visit on (one visit, one record where silos are lazy), moved by 1.
    """
    presence, silos, people = Presence(2, visits, eager), 2, 3
    shape = factorize(kind, 3)
    about = (silos, 1, 1.0, trust, noise, 5.0, 1 if trust == SILO else 1 << 30)
    protocol = PrefixSums(shape, *about, people, presence=presence)
    worst = 0.0
    ways = placements(silos, people, presence)
    for batches in itertools.combinations(range(3), presence.batches):
        for chosen in itertools.product(ways, repeat=presence.batches):
            counts = np.zeros((3, silos))
            counts[list(batches)] = chosen
            released = shape.right @ (counts if protocol.suffices_alone else counts.sum(axis=1))
            worst = max(worst, float(np.linalg.norm(released)))
    assert protocol.movement == pytest.approx(worst, rel=1e-7)
    assert protocol.movement >= worst


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("visits", [1, 2, 3])
@pytest.mark.parametrize(("trust", "noise"), [(SILO, "gaussian"), (SECURE, "skellam")])
@pytest.mark.parametrize("kind", ["tree", "square-root"])
def test_visits_at_any_step_stay_within_the_accounted_sensitivity(
    kind: Kind, trust: TrustModel, noise: Noise, visits: int, eager: bool
) -> None:
    """Brute force over every batch, silo and place; reached where silos are lazy."""
    silos, people, steps = 2, 3, 3
    shape, presence = factorize(kind, steps), Presence(1, visits, eager, anywhere=True)
    scale = 1 if trust == SILO else 1 << 30
    about = (shape, silos, 1, 1.0, trust, noise, 5.0, scale, people)
    protocol = PrefixSums(*about, presence=presence)
    worst = 0.0
    places = list(itertools.product(range(steps), range(silos), range(people)))
    for visited in itertools.combinations(places, visits):
        counts = np.zeros((steps, silos))
        for step, silo in {(step, silo) for step, silo, _ in visited}:
            mine = [place for *where, place in visited if where == [step, silo]]
            counts[step, silo] = people - min(mine) if eager else len(mine)
        released = shape.right @ (counts if protocol.suffices_alone else counts.sum(axis=1))
        worst = max(worst, float(np.linalg.norm(released)))
    assert worst <= protocol.movement
    if not eager:
        assert worst == pytest.approx(protocol.movement, rel=1e-7)


def test_rounding_is_charged_once_per_visited_silo() -> None:
    """One record in each of two silos, at the edge of rounding, moves a released number by two
    units more than the records do.
    """
    shape, presence = factorize("tree", 1), Presence(visits=2)
    how: tuple[TrustModel, Noise] = (SECURE, "discrete-gaussian")
    protocol = PrefixSums(shape, 3, 1, 1.0, *how, 5.0, people=4, presence=presence)
    assert protocol.movement == pytest.approx(2 * (1.0 + 1.0))
    assert replace(protocol, presence=Presence()).movement == pytest.approx(1.0 + 1.0)
    anywhere = replace(protocol, presence=Presence(visits=2, anywhere=True))
    assert anywhere.movement == pytest.approx(2 * (1.0 + 1.0))
    with pytest.raises(TacitError, match="must be 1 with visits anywhere"):
        Presence(batches=3, visits=2, anywhere=True)
    edge = np.array([0.49, 0.51 + 1.0])
    assert 2 * (np.rint(edge[1]) - np.rint(edge[0])) == 4


@pytest.mark.parametrize("kind", ["tree", "prefix", "square-root", "optimal"])
def test_silos_visited_in_the_batches_of_a_row_are_charged_at_their_worst(kind: Kind) -> None:
    """Brute force over batches; where all silos are soon visited, the first are not the worst."""
    for steps in (1, 2, 5, 8):
        shape = factorize(kind, steps, (1.0,) * steps if kind == "optimal" else ())
        for batches, (each, silos) in itertools.product(
            range(1, steps + 1), ((1, 9), (1, 1), (1, 2), (2, 3), (4, 9), (2, 100))
        ):
            worst = 0
            for chosen in itertools.combinations(range(steps), batches):
                held = np.count_nonzero(shape.right[:, list(chosen)], axis=1)
                worst = max(worst, int((np.minimum(silos, each * held) ** 2).sum()))
            assert squared_silos(shape, batches, each, silos) == worst
        assert squared_silos(shape, steps + 3, 1, 9) == squared_silos(shape, steps, 1, 9)


@pytest.mark.parametrize(
    ("silos", "presence", "units"),
    [
        (9, Presence(batches=2), 1 + 4 + 4),  # of rows 1, 2, 4
        (1, Presence(batches=2), 4),  # one silo in each of four rows
        (3, Presence(batches=2, visits=2), 4 + 9 + 9),
        (9, Presence(batches=2, visits=2), 4 + 16 + 16),
    ],
)
def test_rounding_in_a_row_is_charged_for_every_visited_silo(
    silos: int, presence: Presence, units: int
) -> None:
    """A tree over four batches, two numbers in each row, units of a half; the first two batches
    move the rows by 1, 2, 2 for each visit.
    """
    how: tuple[TrustModel, Noise] = (SECURE, "discrete-gaussian")
    about = (factorize("tree", 4), silos, 2, 1.0, *how, 5.0, 2, 4)
    found = PrefixSums(*about, presence=presence).movement
    assert found == pytest.approx(3 * presence.visits + math.sqrt(2 * units) / 2)


def test_single_silos_are_charged_separately_if_rounding_dominates() -> None:
    """At one silo a participant moves two rows, at two silos three; on a fine grid one silo is
    worse.
    """
    about = (factorize("tree", 2), 2, 4)
    how: tuple[TrustModel, Noise] = (SILO, "discrete-gaussian")
    presence = Presence(batches=2)
    coarse = PrefixSums(*about, 0.01, *how, 5.0, people=3, presence=presence)
    assert coarse.movement == pytest.approx(0.01 * math.sqrt(5) + math.sqrt(4 * 4))
    fine = replace(coarse, sensitivity=2.0)
    assert fine.movement == pytest.approx(2 * math.sqrt(5) + math.sqrt(4 * 2))
    once = replace(coarse, presence=Presence())
    assert once.movement == pytest.approx(0.01 * math.sqrt(2) + math.sqrt(4 * 2))
    signs = replace(fine, sensitivity=90.0, shape=factorize("optimal", 2, (1.0, 1.0)))
    assert signs.movement == pytest.approx(90 * signs.shape.movement(2) + math.sqrt(4 * 4))


def test_rounding_moves_every_number_of_a_row_by_at_most_one_unit() -> None:
    """A tree over four batches has three rows above each; two numbers in each, units of a half."""
    how: tuple[TrustModel, Noise] = (SECURE, "discrete-gaussian")
    protocol = PrefixSums(factorize("tree", 4), 3, 2, 1.0, *how, 5.0, scale=2, people=4)
    assert protocol.movement == pytest.approx(math.sqrt(3) + math.sqrt(2 * 3) / 2)


@pytest.mark.parametrize(
    ("trust", "presence", "numbers", "shares"),
    [
        (SECURE, Presence(), 2 * 3, 2),
        (SECURE, Presence(batches=2), 2 * 4, 2),  # as many rows as there are
        (SECURE, Presence(visits=2, anywhere=True), 2 * 4, 2),
        (SECURE, Presence(visits=2), 2 * 3, 2),  # of two silos, but in one sum
        (SILO, Presence(visits=2), 2 * 3 * 2, 1),
        (SILO, Presence(visits=5), 2 * 3 * 3, 1),
        (SILO, Presence(batches=2), 2 * 3 * 2, 1),  # at another silo in each
        (SILO, Presence(batches=4, visits=2), 2 * 4 * 3, 1),  # as many as there are
        (SILO, Presence(visits=2, anywhere=True), 2 * 4 * 2, 1),
    ],
)
def test_approximate_gaussian_noise_is_charged_in_every_number_a_participant_moves(
    trust: TrustModel, presence: Presence, numbers: int, shares: int
) -> None:
    """Two numbers in each of the three rows above a batch, of three silos, one of them curious."""
    shape, corrupt = factorize("tree", 4), 1 if trust == SECURE else 0
    about = (shape, 3, 2, 1.0, trust, "discrete-gaussian", 5.0, 2, 4, corrupt, presence)
    loss = PrefixSums(*about).loss()  # type: ignore[arg-type]
    assert isinstance(loss, NearlyGaussianLoss)
    assert (loss.coordinates, loss.shares) == (numbers, shares)


def test_splitting_is_charged_to_delta_for_every_released_number() -> None:
    """At so large an ε that it shows; where it is more than was set aside, no noise is enough."""
    target = ApproximateDP(20.0, 1e-5)
    about = (factorize("tree", 2), 20, 3, 1.5)
    mixed = calibrated(SiloStream(*about), SHUFFLER, "discrete-gaussian", target)
    summed = calibrated(SiloStream(*about), SECURE, "discrete-gaussian", target)
    slack = 3 * 2 * (1 + math.exp(20)) * 2.0**-60
    assert mixed.slack(20.0) == pytest.approx(slack, rel=1e-9)
    assert summed.slack(20.0) == build("tree", SHUFFLER, "binomial").slack(20.0) == 0
    assert mixed.loss().delta(20.0) + slack <= target.delta
    found = mixed.guarantee(1e-9)
    assert found.delta == 1e-9 + mixed.slack(found.epsilon) > 1e-9
    stated = {
        sums: replace(sums.guarantee(1e-9), epsilon=20.0, delta=1e-5) for sums in (mixed, summed)
    }
    assert all(achieves(sums, said) for sums, said in stated.items())
    less = replace(summed, trust=SHUFFLER)  # with no noise for the shuffler's part
    assert not achieves(less, replace(less.guarantee(1e-9), epsilon=20.0, delta=1e-5))
    with pytest.raises(TacitError, match="exceed a modulus"):
        calibrated(SiloStream(*about), SHUFFLER, "discrete-gaussian", ApproximateDP(20.0, 4e-9))


def test_assumptions_include_dishonest_silos_and_visits() -> None:
    shared = build("tree", SECURE, "discrete-gaussian", corrupt=1)
    silos = DishonestAtMost(Scope.SILOS, 1)
    assert shared.assumptions == {TrustedSilo(), silos}
    assert silos.text() == "at most 1 other silo withholds noise or colludes with the server"
    assert shared.honest == 20 - silos.limit(20) == 19
    absent = replace(shared, missing=5)
    least = ReleasedOnlyAbove(Fraction(3, 4))
    assert absent.assumptions == {TrustedSilo(), silos, least}
    assert absent.honest == math.ceil(least.fraction * 20) - silos.limit(20) == 14
    nobody = build("tree", SECURE, "discrete-gaussian").assumptions
    assert nobody == {TrustedSilo(), DishonestAtMost(Scope.SILOS, 0)}
    often = replace(shared, presence=Presence(batches=3, visits=2))
    visits = VisitsAtMost(3, 2)
    assert visits.text() == (
        "a participant comes in up to 3 batches, up to 2 times in each, to any silos"
    )
    assert often.assumptions == {visits, TrustedSilo(), silos}
    assert often.guarantee(0.05).participations == 6
    assert often.guarantee(0.05).assumptions == often.assumptions
    assert often.guarantee(0.05).arithmetic is Arithmetic.EXACT
    anywhere = replace(shared, presence=Presence(visits=4, anywhere=True))
    assert anywhere.assumptions == {VisitsAtMost(1, 4, Spread.ANYWHERE), TrustedSilo(), silos}
    assert build("tree", SHUFFLER, "binomial", corrupt=2).assumptions == {
        TrustedSilo(),
        DishonestAtMost(Scope.SILOS, 2),
    }
    for alone, arithmetic in (
        (build("tree", SILO, "discrete-gaussian"), Arithmetic.EXACT),
        (build("tree", SILO, "gaussian"), Arithmetic.IDEAL),
        (build("tree", SHUFFLER, "gaussian"), Arithmetic.IDEAL),
    ):
        assert alone.assumptions == ({TrustedSilo()} if alone.trust is SHUFFLER else frozenset())
        assert alone.guarantee(0.05).arithmetic is arithmetic
    central = build("square-root", CENTRAL, "discrete-gaussian")
    assert central.assumptions == {TrustedSilo(), JointPrivacy()}
    assert central.guarantee(0.05).view is View.SERVER_OUTPUT
    assert "joint privacy: it bounds what all other participants together learn" in str(
        central.guarantee(0.05)
    )


def test_more_visits_never_strengthen_the_guarantee() -> None:
    for trust, noise in (
        (SECURE, "discrete-gaussian"),
        (SILO, "discrete-gaussian"),
    ):
        protocol = build("tree", trust, noise)  # type: ignore[arg-type]
        found = [
            replace(protocol, presence=presence).guarantee(0.05).epsilon
            for presence in (
                Presence(),
                Presence(batches=2),
                Presence(batches=2, visits=2),
                Presence(batches=2, visits=2, eager=True),
                Presence(batches=2, visits=3, eager=True),
            )
        ]
        assert found == sorted(set(found))


@pytest.mark.extended
def test_rounding_adds_under_one_percent_to_the_sensitivity_within_64_bits() -> None:
    kinds: tuple[Noise, ...] = ("discrete-gaussian", "skellam")
    for noise in kinds:
        protocol = calibrated(
            SiloStream(
                factorize("square-root", 80), 20, size(10), joint_sensitivity(10), people=25
            ),
            SECURE,
            noise,
            TARGET,
        )
        assert 0 < protocol.rounding_overhead < 0.01
    large = calibrated(
        SiloStream(factorize("square-root", 400), 10, size(57), joint_sensitivity(57), people=25),
        SECURE,
        "discrete-gaussian",
        TARGET,
    )
    assert large.rounding_overhead < 0.01


def test_sums_that_would_overflow_the_modulus_are_rejected() -> None:
    with pytest.raises(TacitError, match="exceed a modulus of 64 bits"):
        PrefixSums(
            factorize("tree", 64),
            100,
            3,
            1.0,
            SECURE,
            "discrete-gaussian",
            1.0,
            1 << 50,
            people=10_000,
        )


def test_integer_messages_add_modulo_two_to_the_64() -> None:
    protocol = build("square-root", SECURE, "discrete-gaussian", silos=20)
    rng = np.random.default_rng(0)
    messages = [protocol.encoder(rng).randomize(np.full(3, -0.9)) for _ in range(20)]
    assert all(m.dtype == np.uint64 for m in messages)
    assert np.all(
        np.abs(released(Releases(protocol), 0, messages) + 18)
        < 8 * math.sqrt(protocol.row_variance)
    )


def test_a_device_draws_its_shares_from_the_operating_system() -> None:
    protocol = build("square-root", SECURE, "discrete-gaussian", steps=2, numbers=2)
    message = protocol.encoder().randomize(np.zeros(2)).view(np.int64)
    assert np.all(np.abs(message) < 12 * protocol.share.std)
    with pytest.raises(TacitError, match="for simulation"):
        build("tree", SILO, "gaussian").encoder().randomize(np.zeros(3))


def test_shares_for_all_but_one_suffice_if_one_silo_subtracts_its_own() -> None:
    all_honest, one_curious = (
        build("tree", SECURE, "discrete-gaussian"),
        build("tree", SECURE, "discrete-gaussian", corrupt=1),
    )
    assert one_curious.row_variance * 19 / 20 == pytest.approx(all_honest.row_variance, rel=1e-6)
    with pytest.raises(TacitError, match="at least one silo"):
        build("tree", SECURE, "discrete-gaussian", corrupt=20)


def test_missing_silos_other_sizes_and_extra_steps_are_rejected() -> None:
    protocol = build("tree", SECURE, "discrete-gaussian", steps=1)
    encoder = protocol.encoder(np.random.default_rng(0))
    with pytest.raises(TacitError, match="same dimension"):
        encoder.randomize(np.zeros(4))
    message = encoder.randomize(np.zeros(3))
    with pytest.raises(TacitError, match="used up"):
        encoder.randomize(np.zeros(3))
    with pytest.raises(TacitError, match="1 of 20 silos reported"):
        released(Releases(protocol), 0, [message])
    with pytest.raises(TacitError, match="the same dimension"):
        released(Releases(protocol), 0, [*[message] * 19, np.zeros(4, dtype=np.uint64)])
    with pytest.raises(TacitError, match="used up"):
        step_of(Releases(protocol), 1)
    with pytest.raises(TacitError, match="round 0 is for 19 silos"):
        Releases(protocol).open(Round(0, 19, Arm(0)))


@pytest.mark.parametrize("kind", ["tree", "square-root"])
def test_a_step_with_unreleased_predecessors_is_rejected(kind: Kind) -> None:
    releases = Releases(build(kind, SECURE, "discrete-gaussian"))
    rng = np.random.default_rng(0)
    with pytest.raises(TacitError, match="synchronisation 1 was never released"):
        releases.open(Round(1, 20, Arm(0)))
    with pytest.raises(TacitError, match="an earlier step was not released"):
        step_of(releases, 1).simulate(np.zeros(3), rng)
    messages = [step_of(releases, 1).randomize(np.zeros((2, 3))) for _ in range(20)]
    with pytest.raises(TacitError, match="an earlier step was not released"):
        released(releases, 1, messages)


@pytest.mark.parametrize("kind", ["tree", "square-root"])
def test_a_silo_may_report_all_steps_without_keeping_an_encoder(kind: Kind) -> None:
    """Noise taken off by its distribution: 8 standard deviations about the row that an encoder
    sends."""
    protocol = build(kind, SECURE, "discrete-gaussian")
    releases, history = Releases(protocol), np.arange(9.0).reshape(3, 3) / 9
    for step in range(3):
        message = step_of(releases, step).randomize(history[: step + 1])
        row = protocol.shape.right[step, : step + 1] @ history[: step + 1]
        off = message.view(np.int64) - np.rint(row * protocol.scale)
        assert np.all(np.abs(off) < 8 * protocol.share.std)
    with pytest.raises(TacitError, match="at step 2 a silo gives those of all 3 steps"):
        step_of(releases, 2).randomize(history[:2])
    keeping = Releases(build("prefix", SECURE, "discrete-gaussian"))
    with pytest.raises(TacitError, match="keep its encoder"):
        step_of(keeping, 1).randomize(history[:2])


@pytest.mark.parametrize("noise", ["skellam", "binomial", "discrete-gaussian"])
@pytest.mark.parametrize("corrupt", [0, 2])
def test_the_distribution_of_a_release_is_that_of_the_silos_shares(
    noise: Noise, corrupt: int
) -> None:
    """Shares written down a second time and added up by hand; a missing one would show."""
    trust: TrustModel = SHUFFLER if noise == "binomial" else SECURE
    honest = 5 - corrupt
    protocol = PrefixSums(
        factorize("tree", 2), 5, 2, 1.5, trust, noise, 2.0, scale=4, corrupt=corrupt
    )
    width = 2.0 * 4
    bits = 2 * math.ceil(2 * width**2 / honest)
    share = {
        "skellam": Skellam(width**2 / honest),
        "discrete-gaussian": DiscreteGaussian(width / math.sqrt(honest)),
        "binomial": Table.of(-bits // 2, Binomial(bits).pmf(np.arange(bits + 1))),
    }[noise]
    distribution = view_distribution(step_of(Releases(protocol), 0), 5)
    middle = round(distribution.mean)  # noise is sent less its mean
    points = np.arange(-60, 61)
    right, missing = (by_hand(share, copies, 0, None).pmf(points) for copies in (5, 4))
    np.testing.assert_allclose(distribution.pmf(points + middle), right, rtol=0, atol=1e-9)
    assert np.abs(distribution.pmf(points + middle) - missing).max() > 1e-3


def view_distribution(protocol: PrefixRound, reports: int) -> NoiseDistribution:
    return protocol.view_distribution(0, reports)


def test_continuous_silo_noise_has_no_exact_distribution() -> None:
    with pytest.raises(TacitError, match="no exact distribution"):
        step_of(Releases(build("tree", SILO, "gaussian")), 0).view_distribution(0, 20)


def test_combinations_without_a_guarantee_are_rejected() -> None:
    with pytest.raises(TacitError, match="must be one of"):
        build("tree", SECURE, "gaussian")
    with pytest.raises(TacitError, match="weighted by the coefficients"):
        build("square-root", SHUFFLER, "binomial")
    with pytest.raises(TacitError, match="Remark 5"):
        build("prefix", SHUFFLER, "discrete-gaussian")
    with pytest.raises(TacitError, match="19"):
        _ = build("tree", SHUFFLER, "discrete-gaussian", silos=5).bits_per_silo
    with pytest.raises(TacitError, match="a guarantee needs noise"):
        PrefixSums(factorize("tree", 2), 2, 2, 1.0).loss()


def test_separate_silo_noises_have_separate_guarantees_and_a_weakest_one() -> None:
    own = PrefixSums(factorize("tree", 2), 2, 2, 1.0, SILO, "gaussian", 3.0, sigmas=(4.0, 3.0))
    assert [own.of(silo).loss() for silo in (0, 1)] == [
        GaussianLoss(sigma, own.movement) for sigma in (4.0, 3.0)
    ]
    for changes, said in (
        ({"sigma": 4.0}, "the least of all silos' is 3"),
        ({"sigmas": (3.0,)}, "1 numbers for 2 silos"),
        ({"trust": SHUFFLER}, "give one for each silo whose noise is its own"),
        ({"weights": (1.0, 1.1)}, "not in"),
        ({"weights": (1.0, 0.0)}, "not in"),
    ):
        with pytest.raises(TacitError, match=said):
            replace(own, **changes)


def test_bits_reveal_their_count_only_after_shuffling() -> None:
    """Every message has as many bits whatever it says; any permutation of all silos' bits of one
    label opens the same.
    """
    sums = PrefixSums(factorize("tree", 2), 3, 2, 1.5, SHUFFLER, "binomial", 3.0, 64, people=2)
    rng, protocol = np.random.default_rng(0), step_of(Releases(sums), 0)
    data = np.array([[2.0, -2.0], [0.0, 0.0], [-2.0, 0.3]])
    messages = [sums.encoder().randomize(row) for row in data]
    bits = sums.form(0).bits
    assert {message.shape for message in messages} == {(2, bits)}
    assert all(set(np.unique(message)) <= {0, 1} for message in messages)
    pooled = np.concatenate(messages, axis=1)
    mixed = np.stack([rng.permutation(row) for row in pooled]).reshape(2, 3, bits)
    assert protocol.combine(list(mixed.transpose(1, 0, 2))) == protocol.combine(messages)
    assert bits * 2 + sums.form(1).bits * 2 == sums.bits_per_silo


def test_shuffled_bits_meet_the_printed_guarantee() -> None:
    """δ from the distribution of the ones that silos send: one silo's ones counted from its own
    messages,
    all honest silos' by adding up, a participant's whole movement composed exactly over both steps.
    """
    target = ApproximateDP(2.0, 0.05)
    about = (factorize("tree", 2), 4, 3, 1.5)
    sums = calibrated(SiloStream(*about, people=2), SHUFFLER, "binomial", target, corrupt=1)
    form = sums.form(0)
    assert isinstance(form, Bits)
    most = 2 * sums.scale
    noise_bits = form.bits - 2 * most
    sent = [int(sums.encoder().randomize(np.full(3, 2.0))[0].sum()) for _ in range(250)]
    assert follows(np.array(sent) - 2 * most, Binomial(noise_bits)) > 1e-9
    honest = Binomial(3 * noise_bits)  # the fourth silo's ones are known to the adversary
    guarantee = sums.guarantee(0.05)
    for direction in ([1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [2.0, 1.0, 0.0]):
        moved = 1.5 * np.array(direction) / np.linalg.norm(direction)
        units = np.ceil(moved * sums.scale).astype(int)  # in both nodes that hold step 0
        parts = tuple((privacy_loss(honest, int(unit)), 2) for unit in units if unit)
        assert ComposedLoss(parts).delta(guarantee.epsilon) <= guarantee.delta
        half = Binomial(3 * noise_bits // 4)
        narrow = tuple((privacy_loss(half, int(unit)), 2) for unit in units if unit)
        assert ComposedLoss(narrow).delta(guarantee.epsilon) > guarantee.delta


def test_all_but_the_last_additive_share_are_uniform() -> None:
    sums = build("square-root", SHUFFLER, "discrete-gaussian", steps=2)
    form = sums.form(0)
    assert isinstance(form, Shares)
    assert form.count == split_shares(20, 1 << 64)
    curious = build("square-root", SHUFFLER, "discrete-gaussian", steps=2, corrupt=1).form(0)
    assert isinstance(curious, Shares)
    assert curious.count == split_shares(19, 1 << 64) > form.count
    encoder = sums.encoder()
    message = encoder.randomize(np.full(3, 0.7))
    assert message.shape == (3, form.count)
    near = form.read(form.total([message]), 1) / sums.scale
    assert np.all(np.abs(near - 0.7) < 12 * sums.share.std / sums.scale)
    parts = np.concatenate([form.message(np.zeros(3, np.int64), None) for _ in range(200)])
    assert len(np.unique(parts)) == parts.size
    for column in parts.T:  # each part alone is uniform; false-alarm rate 1e-9
        counts = np.bincount((column >> np.uint64(60)).astype(int), minlength=16)
        assert chisquare(counts).pvalue > 1e-9
    assert sums.bits_per_silo == 2 * 3 * 64 * form.count


def test_a_message_of_too_many_bits_is_rejected_before_sending() -> None:
    sums = sdp_fedlinucb_vec(SilosProblem.of(silos=20, horizon=2000)).sums
    with pytest.raises(TacitError, match="bits, too large to send: use secagg-fedlinucb"):
        sums.encoder()


def test_more_participants_than_declared_overflow_the_bits() -> None:
    sums = PrefixSums(factorize("tree", 2), 3, 2, 1.5, SHUFFLER, "binomial", 3.0, 64)
    with pytest.raises(TacitError, match="records per silo"):
        sums.encoder().randomize(np.full(2, 1e4))


def test_prefix_sums_of_silos_reveal_no_more_than_their_nodes() -> None:
    """Rounded node by node: what is sent is a function of what the tree would send."""
    sums = build("prefix", SECURE, "discrete-gaussian")
    tree = build("tree", SECURE, "discrete-gaussian")
    assert (sums.sigma, sums.scale) == (tree.sigma, tree.scale)
    data = np.random.default_rng(1).uniform(-1, 1, (6, 3))
    one, other = (p.encoder(np.random.default_rng(2)) for p in (sums, tree))
    sent, nodes = (
        np.array([e.randomize(row).view(np.int64) for row in data]) for e in (one, other)
    )
    np.testing.assert_array_equal(sent, sums.shape.left.astype(np.int64) @ nodes)


def test_a_step_is_released_by_the_protocol_of_its_trust_model() -> None:
    sums = build("tree", SHUFFLER, "discrete-gaussian")
    with pytest.raises(TacitError, match="open the step with the sums' open"):
        PrefixRound(sums, 0, {}, {}, None)


def test_views_name_the_adversary() -> None:
    assert build("tree", SECURE, "discrete-gaussian").guarantee(0.05).view is View.RELEASED_SUM
    assert build("tree", SILO, "gaussian").guarantee(0.05).view is View.SILO
    shuffled = build("tree", SHUFFLER, "discrete-gaussian").guarantee(0.05)
    assert shuffled.view is View.SHUFFLED
    assert 0.05 < shuffled.delta < 0.05 + 1e-12


def test_approximate_gaussian_noise_is_bounded_by_its_distance() -> None:
    """Against the definition, summed over all integers, where that is affordable."""
    from scipy.special import ndtr

    k = np.arange(-2000, 2001)
    narrowest = DiscreteGaussian(50.0), Skellam(2500), Binomial(10_000)
    for distribution in (
        *narrowest,
        DiscreteGaussian(150.0),
        Skellam(150.0**2),
        Binomial(4 * 150**2),
    ):
        pmf = distribution.pmf(k + round(distribution.mean))
        rounded = ndtr((k + 0.5) / distribution.std) - ndtr((k - 0.5) / distribution.std)
        true = float(np.abs(pmf - rounded).sum()) / 2
        assert true <= distance_from_gaussian(distribution) <= 1.05 * true + 1e-9


def test_approximate_gaussian_accounting_covers_the_exact_loss_and_beats_zcdp() -> None:
    distribution = DiscreteGaussian(2000.0)
    k = np.arange(-25_000, 25_001)
    loss = NearlyGaussianLoss(distribution, 1000.0, coordinates=1)
    for epsilon in (0.1, 0.5, 1.0):
        exact = float(
            np.maximum(
                0.0, distribution.pmf(k) - math.exp(epsilon) * distribution.pmf(k + 1000)
            ).sum()
        )
        assert exact <= loss.delta(epsilon) <= exact + 1e-6
    assert loss.epsilon(0.1) < 0.75 * ConcentratedDP(0.125).epsilon_at(0.1)
    assert loss.epsilon(1e-3) == pytest.approx(GaussianLoss(2.0, 1.0).epsilon(1e-3), rel=1e-3)
    narrow, gaussian = NearlyGaussianLoss(DiscreteGaussian(60), 30, 2), GaussianLoss(60.0, 30.0)
    for epsilon in (
        0.5,
        4.0,
    ):  # how far apart the distributions are counts once for each of two inputs
        paid = (1 + math.exp(epsilon)) * 2 * distance_from_gaussian(DiscreteGaussian(60))
        assert narrow.delta(epsilon) == pytest.approx(gaussian.delta(epsilon) + paid)
    assert math.isfinite(NearlyGaussianLoss(distribution, 30_000.0, coordinates=65).epsilon(1e-3))
    assert math.isinf(
        NearlyGaussianLoss(Skellam(2000.0**2), 30_000.0, coordinates=65).epsilon(1e-9)
    )


@pytest.mark.parametrize("kind", ["prefix", "tree", "square-root"])
def test_states_round_trip(kind: Kind) -> None:
    protocol = build(kind, SECURE, "discrete-gaussian", steps=3, silos=2)
    rng, data = np.random.default_rng(5), np.arange(3.0)
    encoders, releases = [protocol.encoder(rng) for _ in range(2)], Releases(protocol)
    released(releases, 0, [e.randomize(data) for e in encoders])
    copies = [protocol.encoder(rng) for _ in range(2)]
    for a, b in zip(encoders, copies, strict=True):
        b.restore(json.loads(json.dumps(a.to_dict())))
    copy = Mechanism.from_dict(json.loads(json.dumps(releases.to_dict())))
    assert isinstance(copy, Releases)
    state = rng.bit_generator.state
    first = released(releases, 1, [e.randomize(data) for e in encoders])
    rng.bit_generator.state = state
    np.testing.assert_array_equal(first, released(copy, 1, [e.randomize(data) for e in copies]))


def test_packing_is_invertible_and_preserves_the_frobenius_norm() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((4, 4))
    matrix += matrix.T
    for scaled in (True, False):
        bias, gram = unpack(pack(np.arange(4.0), matrix, scaled=scaled), 4, scaled=scaled)
        np.testing.assert_allclose(gram, matrix)
        np.testing.assert_array_equal(bias, np.arange(4.0))
    assert np.linalg.norm(pack(np.zeros(4), matrix)) == pytest.approx(float(np.linalg.norm(matrix)))
    with pytest.raises(TacitError, match="the same dimension"):
        unpack(np.zeros(10), 4)


@pytest.mark.parametrize("trust", [TrustModel.SILO, TrustModel.CENTRAL])
def test_noise_that_doubles_do_not_hold_exactly_is_rejected(trust: TrustModel) -> None:
    """Found: silos add noise as doubles, and from 2^53 on sums kept only their even numbers, which
    showed whether the data were odd.
    """
    shape = factorize("tree", 1)
    about: dict[str, Any] = {"trust": trust, "noise": "discrete-gaussian", "scale": 4096}
    widest = 2.0**52 / 41 / 4096
    sums = PrefixSums(shape, 3, 2, 1.0, sigma=widest, **about)
    drawn = [int(number) for number in sums.total.draw(50)]
    assert all(int(float(number) + 1) == number + 1 for number in drawn)
    for sigma in (1.1 * widest, 1e13):
        with pytest.raises(TacitError, match="with its noise the integers that doubles hold"):
            PrefixSums(shape, 3, 2, 1.0, sigma=sigma, **about)

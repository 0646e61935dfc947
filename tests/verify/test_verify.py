"""The slow arithmetic agrees with the package's, and detects a false guarantee."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq
from tests.tables import extended_after, extended_but_every
from tests.verify import arithmetic as slow
from tests.verify import neighbours
from tests.verify.__main__ import (
    group_losses,
    honest_shares,
    mixing,
    printed,
    returning,
    seen,
    stated_for,
    used,
)

from tacit.algorithms import algorithms, lookup
from tacit.algorithms.registry import begin
from tacit.assumptions import DishonestAtMost, Scope
from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
from tacit.privacy import (
    ApproximateDP,
    ComposedLoss,
    GaussianLoss,
    PureDP,
    ThreatModel,
    calibrate,
    privacy_loss,
)
from tacit.privacy.gaussian_distance import NearlyGaussianLoss
from tacit.protocols.factorization import Kind, factorize
from tacit.protocols.prefix_delivery import Noise, Presence
from tacit.protocols.prefix_sums import PrefixSums
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.sums import Central, SecureSum
from tacit.trust import TrustModel
from tacit.types import Arm, Round

PAIRS: dict[str, tuple[slow.Distribution, NoiseDistribution]] = {
    "laplace": (slow.laplace(Fraction(7)), DiscreteLaplace(7)),
    "gaussian": (slow.gaussian(9.5), DiscreteGaussian(9.5)),
    "skellam": (slow.skellam(90), Skellam(90)),
    "binomial": (slow.binomial(300, Fraction(1, 3)), Binomial(300, Fraction(1, 3))),
    "polya": (
        slow.polya_difference(Fraction(3, 5), Fraction(1, 7)),
        DiscreteLaplace(7).share(5).power(3),
    ),
}


@pytest.mark.parametrize(("sigma", "shift", "copies"), [(40.0, 7, 1), (60.5, 16, 1), (50.0, 5, 2)])
def test_tails_of_wide_gaussians_match_their_tables(sigma: float, shift: int, copies: int) -> None:
    """Also of two numbers together: the distribution of their sum is the power of one's."""
    distribution = slow.power(slow.gaussian(sigma), copies)
    spread = sigma * math.sqrt(copies)
    for epsilon in (0.05, 0.3, 1.1):
        exact = slow.delta(distribution, shift * copies, epsilon)
        found = slow.discrete_gaussian_delta(
            mp.mpf(sigma) * mp.sqrt(copies), shift * copies, epsilon
        )
        assert abs(found / exact - 1) < 1e-9
        normal = slow.gaussian_delta(shift * copies / spread, epsilon)
        assert abs(normal / exact - 1) > 1e-7  # which is not the same


@pytest.mark.parametrize("name", PAIRS)
def test_both_computations_give_one_delta(name: str) -> None:
    distribution, own = PAIRS[name]
    for epsilon in (0.0, 0.1, 0.4):
        exact = privacy_loss(own, 3).delta(epsilon)
        found = float(slow.delta(distribution, 3, epsilon))
        assert found <= exact * (1 + 1e-12) + 1e-30
        assert found == pytest.approx(exact, rel=1e-6)


def test_composed_losses_are_never_overstated_and_nearly_attained() -> None:
    distribution, own = PAIRS["skellam"]
    for copies, epsilon in ((3, 1.0), (50, 8.0)):
        exact = ComposedLoss(((privacy_loss(own, 3), copies),)).delta(epsilon)
        found = slow.composed_delta(distribution, 3, copies, epsilon)
        assert 0.95 * exact <= found <= exact * (1 + 1e-6) + 1e-12


def test_sums_of_shares_are_convolution_powers() -> None:
    third = slow.power(slow.laplace(Fraction(2)), 3)
    points = range(-20, 21)
    expected = DiscreteLaplace(2).power(3).pmf(list(points))
    found = [third(k) / slow.UNIT for k in points]
    assert found == pytest.approx(expected.tolist(), rel=1e-9)


def test_the_gaussian_delta_matches_its_closed_form() -> None:
    found = float(slow.gaussian_delta(1 / 4.2, 0.7))
    assert found == pytest.approx(GaussianLoss(4.2, 1.0).delta(0.7), rel=1e-9)


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (lambda w: slow.skellam(700**2, w), Skellam(700**2)),
        (lambda w: slow.gaussian(700.0, w), DiscreteGaussian(700)),
        (lambda w: slow.binomial(4 * 700**2, Fraction(1, 2), w), Binomial(4 * 700**2)),
        (lambda w: slow.binomial(12 * 700**2, Fraction(1, 8), w), Binomial(12 * 700**2, 0.125)),
    ],
    ids=["skellam", "gaussian", "fair bits", "rare bits"],
)
def test_wide_distributions_are_interpolated_and_may_be_made_coarser(
    make: Callable[[int], slow.Distribution], own: NoiseDistribution
) -> None:
    exact = privacy_loss(own, 300).delta(0.4)
    assert float(slow.delta(make(1), 300, 0.4)) == pytest.approx(exact, rel=1e-9)
    coarse = float(slow.delta(make(3), 100, 0.4))
    assert exact * (1 - 1e-4) < coarse <= exact * (1 + 1e-9)
    assert sum(make(3).masses) / slow.UNIT == pytest.approx(1, abs=1e-15)
    assert slow.width(300, 700.0) == 3
    assert slow.width(7, 1e6) == 7


def test_groups_of_the_pure_shuffle_have_the_certified_loss() -> None:
    for people, epsilon in ((2, 1.0), (5, 2.0), (9, 1.0)):
        protocol = PureShuffle(people, epsilon)
        certified = [float(group.row.certificate.epsilon) for group in protocol._groups]
        assert float(max(group_losses(protocol, protocol.guarantee))) == pytest.approx(
            max(certified), abs=2e-6
        )


def shares_left(people: int, threat: ThreatModel) -> int:
    stated = PureDP(1.0).assuming(*threat.assumptions())
    return honest_shares(SimpleNamespace(participants=people), stated)


def test_missing_and_dishonest_participants_are_subtracted() -> None:
    assert shares_left(64, ThreatModel()) == 63
    assert shares_left(100, ThreatModel(dropout=0.2)) == 79
    assert shares_left(100, ThreatModel(corrupt=0.1)) == 90
    assert shares_left(10, ThreatModel(dropout=0.3, corrupt=0.1)) == 6
    assert honest_shares(SimpleNamespace(participants=100), PureDP(1.0)) == 1


@pytest.mark.parametrize("participants", [64, 1000, 10_000])
def test_the_guarantee_of_a_run_holds_in_rounds_of_every_size(participants: int) -> None:
    """With exactly as many dishonest participants as are stated: and with many more it does not,
    which is what an assumption of the smallest round would have allowed (62 honest others).
    """
    experiment = begin("private-med", ["a", "b"], epsilon=0.9, horizon=10**6, binary=True)
    mechanism = experiment.mechanism
    protocol = mechanism.open(Round(0, participants, Arm(0)))
    stated = stated_for(mechanism, protocol)
    assert used(seen(protocol, stated), *printed(stated)) <= 1 + 1e-9
    if participants > 64:
        weak = replace(
            stated, assumptions=frozenset({DishonestAtMost(Scope.ROUND, participants - 63)})
        )
        assert used(seen(protocol, weak), *printed(stated)) > 3


def test_groups_need_a_limit_per_group() -> None:
    protocol = PureShuffle(300, 2.0)
    stated = protocol.guarantee
    assert stated is not None
    assert {one.scope for one in stated.assumptions if isinstance(one, DishonestAtMost)} == {
        Scope.GROUP
    }
    small = PureShuffle(9, 1.0)
    assert small.guarantee is not None
    weak = replace(small.guarantee, assumptions=frozenset({DishonestAtMost(Scope.GROUP, 6)}))
    assert used(seen(small, small.guarantee), 1.0, 0.0) <= 1 + 1e-9
    assert used(seen(small, weak), 1.0, 0.0) > 1.5


def test_silos_beyond_the_stated_limits_are_detected() -> None:
    """Of ten silos' shares seven are enough; with one curious silo more they are not."""
    options = next(one for one in returning() if "missing" in one) | {"epsilon": 1.0}
    experiment = begin("secagg-fedlinucb", **options)
    protocol = experiment.open(experiment.propose()[0])
    stated: Any = stated_for(experiment.mechanism, protocol)
    assert honest_shares(protocol, stated) == 7
    assert 0.99 < used(seen(protocol, stated), *printed(stated)) <= 1
    kept = {one for one in stated.assumptions if not isinstance(one, DishonestAtMost)}
    weak = replace(stated, assumptions=frozenset({*kept, DishonestAtMost(Scope.SILOS, 2)}))
    assert used(seen(protocol, weak), *printed(stated)) > 2


def test_additive_shares_for_fewer_honest_participants_are_detected() -> None:
    experiment = begin("split-dp-se", epsilon=1.0, corrupt=0.25, participations=3)
    protocol = experiment.mechanism.open(Round(0, 1000, Arm(0), True))
    stated: Any = stated_for(experiment.mechanism, protocol)
    epsilon, delta = printed(stated)
    assert delta / 100 < mixing(protocol, stated, epsilon) <= delta
    limit = DishonestAtMost(Scope.ROUND, fraction=Fraction(3, 4))
    weak = replace(stated, assumptions=frozenset({limit}))
    assert mixing(protocol, weak, epsilon) > 1000 * delta


def test_an_overstated_guarantee_is_detected() -> None:
    share = DiscreteLaplace(10).share(99)
    sound = SecureSum(100, 10, DiscreteLaplace(10), PureDP(1.0), share=share)
    stated = sound.guarantee
    assert used(seen(sound, stated), *printed(stated)) <= 1 + 1e-12
    assert used(seen(sound, stated), 0.9, 0.0) > 1.1
    weak = replace(stated, assumptions=frozenset({DishonestAtMost(Scope.ROUND, 21)}))
    assert used(seen(sound, weak), 1.0, 0.0) > 1.01
    target = ApproximateDP(1.0, 1e-5)
    distribution = calibrate("skellam", 1, target).distribution
    assert isinstance(distribution, Skellam)
    central = Central(100, 1, distribution, target, None)
    assert 0.5 < used(seen(central, central.guarantee), 1.0, 1e-5) <= 1
    assert used(seen(central, central.guarantee), 0.9, 1e-5) > 1


@pytest.mark.parametrize(
    ("shift", "scale", "copies", "epsilon"),
    extended_but_every(3, [(4, 20, 30, 1.0), (16, 40, 12, 1.3), (7, 9, 1, 0.5)]),
)
def test_wide_laplace_noise_needs_no_table(
    shift: int, scale: int, copies: int, epsilon: float
) -> None:
    """Both are rounded down to a grid of losses, at places that differ by rounding."""
    by_table = slow.composed_delta(slow.laplace(Fraction(scale)), shift, copies, epsilon)
    directly = slow.laplace_delta(shift, mp.mpf(shift) / scale, copies, epsilon)
    assert directly == pytest.approx(by_table, rel=1e-4)


SILOS = ("sdp-fedlinucb-vec", "secagg-fedlinucb", "jdp-linucb", "ldp-fedlinucb", "sdp-fedlinucb")


def build(name: str, options: dict[str, Any]) -> tuple[PrefixSums, ApproximateDP]:
    """The prefix sums of an algorithm with these options, and what it prints."""
    entry = lookup(name)
    asked = entry.make_problem({"epsilon": 1.0, **options})
    problem: Any = asked.for_environment(asked.start(0, None).world, 0)
    experiment: Any = entry.build(problem)
    return experiment.mechanism.sums, experiment.guarantee


def known(name: str, options: dict[str, Any]) -> bool:
    """Whether the algorithm has these options; amplified ones do at a smaller epsilon only."""
    amplified = name == "sdp-fedlinucb" and "setting" not in options
    return set(options) <= set(algorithms()[name].options) and not amplified


@pytest.mark.parametrize(
    ("name", "options"),
    [each for each in itertools.product(SILOS, returning()) if known(*each)],
    ids=str,
)
def test_neighbouring_streams_are_as_close_as_printed(name: str, options: dict[str, Any]) -> None:
    """The integers of the silos' own encoders, and the Gaussian that their noise nearly is."""
    if name == "sdp-fedlinucb-vec" and not options.get("lazy", True):
        with pytest.raises(TacitError, match="gives no guarantee"):
            build(name, options)
        return
    sums, guarantee = build(name, options)
    far = neighbours.farthest(sums)
    std = sums.total.std if sums.integral else sums.sigma
    assert far * std <= sums.movement * sums.scale * (1 + 1e-12)
    epsilon, delta = printed(guarantee)
    assert slow.gaussian_delta(far, epsilon) <= delta
    if sums.trust != "silo" or not sums.presence.eager:
        assert slow.gaussian_delta(1.05 * far, epsilon) > delta


@pytest.mark.parametrize(
    ("name", "true"),
    [("sdp-fedlinucb-vec", 1.486), ("secagg-fedlinucb", 1.0019), ("jdp-linucb", 1.0019)],
)
def test_one_unit_of_rounding_per_row_is_insufficient_for_many_silos(
    name: str, true: float
) -> None:
    """What was once charged, and the δ that the noise made for it truly had."""
    *_, options = returning()
    sums, guarantee = build(name, options)
    record = sums.sensitivity * sums.shape.movement(64)
    once = record + math.sqrt(sums.size * sums.shape.steps) / sums.scale
    far = neighbours.farthest(sums) * sums.total.std / sums.scale
    assert once < far < sums.movement
    charged = GaussianLoss(1.0, 1.0)
    least = brentq(lambda mu: replace(charged, sensitivity=mu).delta(1.0) - 1e-5, 0.1, 1.0)
    found = float(slow.gaussian_delta(least * far / once, 1.0)) / guarantee.delta
    assert found == pytest.approx(true, rel=3e-3)


@pytest.mark.parametrize(
    ("trust", "noise", "distribution"),
    extended_but_every(
        3,
        [
            ("central", "discrete-gaussian", lambda: slow.gaussian(100.0)),
            (TrustModel.SECURE_AGGREGATION, "skellam", lambda: slow.skellam(100**2)),
            (TrustModel.SHUFFLER, "binomial", lambda: slow.binomial(4 * 100**2, Fraction(1, 2))),
        ],
    ),
)
def test_rounding_of_four_silos_is_charged_exactly(
    trust: TrustModel, noise: Noise, distribution: Callable[[], slow.Distribution]
) -> None:
    """A participant in four batches of a tree, at a silo each, by convolution of the true noise."""
    about = (factorize("tree", 4), 4, 1, 8.01, trust, noise, 100.0)
    sums = PrefixSums(*about, people=5, presence=Presence(batches=4))
    moved = neighbours.worst(sums)
    assert sorted(moved) == [9, 9, 18, 36]
    for epsilon in (0.5, 1.0):
        exact = slow.moved_delta(distribution(), moved, epsilon)
        assert exact <= sums.loss().delta(epsilon) < 1.3 * exact
        once = 8.01 * sums.shape.movement(4) + math.sqrt(4)
        assert exact > GaussianLoss(100.0, once).delta(epsilon)


def everywhere(sums: PrefixSums) -> Iterator[Any]:
    """All arrangements of one participant's visits in few silos and batches."""
    steps, presence, people = sums.shape.steps, sums.presence, sums.people
    places = list(itertools.product(range(steps), range(sums.silos)))
    batches = steps if presence.anywhere else presence.batches
    visits = presence.visits * (1 if presence.anywhere else presence.batches)
    seen_before = set()
    for chosen in itertools.combinations_with_replacement(places, visits):
        counts = np.zeros((steps, sums.silos), np.int64)
        for place in chosen:
            counts[place] += 1
        each = counts.sum(axis=1)
        if counts.max() > people or np.count_nonzero(each) > batches:
            continue
        if not presence.anywhere and each.max() > presence.visits:
            continue
        found = np.where(counts > 0, people, 0) if presence.eager else counts
        if found.tobytes() not in seen_before:
            seen_before.add(found.tobytes())
            yield found


@pytest.mark.parametrize(
    ("trust", "noise"),
    [(TrustModel.SILO, "discrete-gaussian"), (TrustModel.SECURE_AGGREGATION, "skellam")],
)
@pytest.mark.parametrize("kind", extended_after(1, ["tree", "square-root"]))
@pytest.mark.parametrize(
    "presence",
    [
        Presence(),
        Presence(batches=2),
        Presence(batches=3),
        Presence(batches=2, visits=2),
        Presence(batches=1, visits=3),
        Presence(batches=2, visits=2, eager=True),
        Presence(visits=3, anywhere=True),
        Presence(visits=2, anywhere=True, eager=True),
    ],
    ids=str,
)
def test_no_arrangement_of_records_exceeds_the_stated_sensitivity(
    kind: Kind, trust: TrustModel, noise: Noise, presence: Presence
) -> None:
    """All arrangements, with grids from so coarse that rounding is all there is; two participants
    in each silo and batch.
    """
    for sensitivity, scale, silos, steps in itertools.product(
        (0.01, 1.3, 9.0), (1, 4), (1, 3), (3, 4)
    ):
        about = (factorize(kind, steps), silos, 3, sensitivity, trust, noise, 40.0, scale)
        sums = PrefixSums(*about, people=2, presence=presence)
        loss = sums.loss()
        assert isinstance(loss, NearlyGaussianLoss)
        for moved, _ in neighbours.differences(sums, everywhere(sums)):
            assert np.linalg.norm(moved) <= sums.movement * scale * (1 + 1e-12)
            assert np.count_nonzero(moved) <= loss.coordinates

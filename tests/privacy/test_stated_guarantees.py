"""Guarantees derived from noise and its use under stated assumptions, never overstated.

What is computed here by hand sums probabilities of the noise itself; nothing is taken from the
formula that set it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from tacit.assumptions import (
    TRUST_OF_VIEW,
    Accounting,
    DishonestAtMost,
    DistinctRounds,
    Method,
    ReleasedOnlyAbove,
    Scope,
)
from tacit.errors import TacitError
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    PolyaDifference,
    Skellam,
)
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    ConcentratedDP,
    Neighbours,
    PureDP,
    RenyiDP,
    ThreatModel,
    View,
    achieved_guarantee,
    best_order,
    calibrate,
    checked_target,
    compose,
    privacy_loss,
    privacy_of,
    state_drawn_arithmetic,
)
from tacit.privacy.accounting import epsilon_of, split_delta, trimmed_renyi
from tacit.privacy.composition import ComposedLoss, dominating_loss
from tacit.privacy.loss import Direction, PrivacyLoss
from tacit.protocols import factories, sums
from tacit.protocols.contract import random_level
from tacit.protocols.integer_vectors import SecureVector
from tacit.protocols.l2_sums import SecureBall
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import SecureSum
from tacit.protocols.vector_noise import per_participation
from tacit.protocols.vectors import CentralVectors
from tacit.sampling import coins

TARGET = ApproximateDP(1.0, 1e-5)


def pure_by_hand(distribution: NoiseDistribution, moved: int, reach: int = 4000) -> float:
    points = np.arange(-reach, reach + 1)
    return float(np.abs(distribution.log_pmf(points) - distribution.log_pmf(points + moved)).max())


def delta_by_hand(distribution: NoiseDistribution, moved: int, epsilon: float, times: int) -> float:
    """δ of `times` participations, worst over the directions in which each may move: losses and
    masses of all of them multiplied out.
    """
    low, high = distribution.window(-60.0)
    points = np.arange(low - moved, high + moved + 1)
    worst = 0.0
    for signs in product((1, -1), repeat=times):
        masses, losses = np.ones(1), np.zeros(1)
        for sign in signs:
            p, q = distribution.pmf(points), distribution.pmf(points + sign * moved)
            with np.errstate(divide="ignore", invalid="ignore"):
                own = np.where(p > 0, np.log(p) - np.log(q), 0.0)
            masses = np.multiply.outer(masses, p).ravel()
            losses = np.add.outer(losses, own).ravel()
        beyond = losses > epsilon
        worst = max(worst, float((masses[beyond] * -np.expm1(epsilon - losses[beyond])).sum()))
    return worst


# who may look


@pytest.mark.parametrize(("users", "levels"), [(2, 1), (2, 16), (4, 1), (4, 16), (64, 16)])
def test_a_curious_participants_view_meets_the_guarantee(users: int, levels: int) -> None:
    """They know their own share; the others' are all that hides a participant."""
    protocol = SecureSum(users, levels, DiscreteLaplace(levels), PureDP(1.0))
    unknown = protocol.share.power(users - 1)
    assert pure_by_hand(unknown, levels) <= 1 + 1e-9
    everyone = DiscreteLaplace(levels).share(users).power(users - 1)
    assert pure_by_hand(everyone, levels) > 1.01  # shares for all leave less than was guaranteed


@pytest.mark.parametrize("users", [1, 2, 5])
@pytest.mark.parametrize("target", [ApproximateDP(0.3, 0.7), ApproximateDP(1.0, 1e-3)])
def test_few_gaussian_shares_meet_their_guarantee(users: int, target: ApproximateDP) -> None:
    """Where the noise is narrow its standard deviation is not its parameter."""
    protocol = factories.gaussian_tight(users, target, True)
    assert isinstance(protocol, SecureSum)
    unknown = protocol.share.power(protocol.honest)
    assert delta_by_hand(unknown, protocol.precision, target.epsilon, 1) <= target.delta


def test_shuffled_bits_exclude_one_curious_participant() -> None:
    protocol = factories.shuffled_tight(4, TARGET, True)
    assert isinstance(protocol, ShuffledBits)
    assert delta_by_hand(protocol.share.power(3), 1, 1.0, 1) <= 1e-5
    assert delta_by_hand(protocol.share.power(2), 1, 1.0, 1) > 1e-5
    with pytest.raises(TacitError, match=r"not \(1, 1e-05\)-DP: calibrate the noise"):
        ShuffledBits(4, 1, *shuffle_noise(4, 1, TARGET), TARGET)


@pytest.mark.parametrize("users", [4, 16, 1024])
def test_printed_shares_state_the_guarantee_against_one_curious_participant(users: int) -> None:
    protocol = factories.polya_paper(users, PureDP(1.0), 0.1)
    assert isinstance(protocol, SecureSum)
    guarantee = protocol.guarantee
    unknown = protocol.share.power(users - 1)
    assert guarantee.epsilon == pytest.approx(pure_by_hand(unknown, protocol.precision), rel=1e-6)
    assert guarantee.epsilon > 1.0


def test_a_wide_share_is_bounded_tightly_from_above() -> None:
    """Where single probabilities cannot be summed a closed form takes over."""
    for users in (10**4, 10**6):
        narrow = PolyaDifference(
            Fraction(users - 1, users), coins.Chance(Fraction(1), Fraction(1, 3000))
        )
        wide = PolyaDifference(
            Fraction(users - 1, users), coins.Chance(Fraction(1), Fraction(1, 300_000))
        )
        exact, bound = narrow.pure_loss(3000), wide.pure_loss(300_000)
        assert exact <= bound * (1 + 1e-9)
        assert bound < exact * (1 + 20 / users)


@pytest.mark.parametrize(
    "r", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(999, 1000)]
)
def test_the_bound_of_wide_shares_is_never_below_what_is_summed(
    r: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = PolyaDifference(r, coins.Chance(Fraction(1), Fraction(1, 2000)))
    shifts = (1, 2, 10, 300, 2000, 20_000)
    exact = [distribution.pure_loss(shift) for shift in shifts]
    monkeypatch.setattr("tacit.noise.laplace.WIDEST_POINTS", 0)
    for shift, summed in zip(shifts, exact, strict=True):
        assert summed <= distribution.pure_loss(shift)


# assumptions


def test_a_guarantee_states_participations_and_trusted_parties() -> None:
    for guarantee in (PureDP(1.0), TARGET, ConcentratedDP(0.5)):
        text = str(guarantee)
        assert "takes part at most once" in text
        assert "does not depend on the answer" in text
        assert TRUST_OF_VIEW[View.RELEASED_SUM].text() in text
        assert "exactly" not in text  # nothing was derived
        assert Arithmetic.EXACT.text() in str(state_drawn_arithmetic(guarantee, DiscreteLaplace(1)))
    assert "at most twice" in str(PureDP(1.0, participations=2))
    assert "at most 52 times" in str(PureDP(1.0, participations=52))
    continuous = factories.continuous_laplace(9, PureDP(1.0)).guarantee
    assert continuous is not None
    assert continuous.arithmetic is Arithmetic.IDEAL
    assert Arithmetic.IDEAL.text() in str(continuous)


def test_every_conversion_keeps_assumptions() -> None:
    split = SplitAndMix(
        SecureSum(40, 1, DiscreteLaplace(1), PureDP(1.0), threat=ThreatModel(dropout=0.2))
    ).guarantee
    vector = SecureVector(40, 2, 1.0, TARGET, threat=ThreatModel(dropout=0.2)).guarantee
    assert split is not None
    assert vector is not None
    stated = {DishonestAtMost(Scope.ROUND, 1), ReleasedOnlyAbove(Fraction(4, 5))}
    for guarantee in (split, vector, split.to_approximate(1e-3)):
        assert guarantee.assumptions == stated
        assert guarantee.arithmetic is Arithmetic.EXACT
        told = guarantee.to_dict()["assumptions"]
        assert all(one.to_dict() in told for one in guarantee.assumptions)
        assert "a batch is released only if at least 80% of its reports arrive" in str(guarantee)
    assert compose([vector, vector]).assumptions == stated | {DistinctRounds()}
    assert compose([vector, vector]).participations == 2


def test_the_data_of_a_guarantee_is_complete() -> None:
    asked = PureDP(0.5, participations=3, view=View.SHUFFLED)
    guarantee = state_drawn_arithmetic(
        asked.assuming(*ThreatModel().assumptions()), DiscreteLaplace(1)
    )
    found = guarantee.to_dict()
    assert (found["epsilon"], found["delta"], found["participations"]) == (0.5, 0.0, 3)
    assert (found["view"], found["neighbours"]) == (View.SHUFFLED.value, guarantee.neighbours.value)
    assert found["assumptions"] == [
        {"id": "non-colluding-shuffler"},
        {"id": "dishonest-at-most", "scope": "round", "count": 1, "fraction": "0"},
        {"id": "released-only-above", "fraction": "1"},
    ]
    assert found["arithmetic"] == "exact"
    assert found["text"] == str(guarantee)
    assert ConcentratedDP(0.5).to_dict()["delta"] == 1e-6


@pytest.mark.parametrize(
    ("epsilon", "printed"),
    [(1.0, "1"), (1.0004, "1.001"), (0.12341, "0.1235"), (12345.6, "1.235e+04")],
)
def test_printed_numbers_are_rounded_up(epsilon: float, printed: str) -> None:
    assert PureDP(epsilon).short == f"({printed}, 0)-DP"
    assert float(printed) >= epsilon
    assert ApproximateDP(1.0, 1.00001e-5).short == "(1, 1.001e-05)-DP"


# noise that does not give it


def test_noise_below_its_target_is_rejected() -> None:
    with pytest.raises(TacitError, match=r"gives \(10, 0\)-DP, not \(1, 0\)-DP"):
        SecureSum(100, 10, DiscreteLaplace(1), PureDP(1.0))
    for make in (sums.Central, sums.Local):
        with pytest.raises(
            TacitError, match=r"of sensitivity 10 gives \(10, 0\)-DP, not \(1, 0\)-DP"
        ):
            make(100, 10, DiscreteLaplace(1), PureDP(1.0), 10_000)
    with pytest.raises(TacitError, match="not"):
        ShuffledBits(10, 4, 1, 0.01, ApproximateDP(0.1, 1e-9))
    share = DiscreteGaussian(4)
    with pytest.raises(TacitError, match="gives"):
        SecureSum(
            64, 16, share.sum_of_shares(64), TARGET, share=share, threat=ThreatModel(dropout=0.5)
        )
    with pytest.raises(TacitError, match="no pure guarantee"):
        checked_target(Skellam(100), 1, PureDP(1.0), View.RELEASED_SUM)


def test_noise_that_suffices_once_is_rejected_for_two_participations() -> None:
    distribution = PolyaDifference(2, coins.Chance(Fraction(1), Fraction(1)))
    checked_target(distribution, 1, PureDP(1.0), View.RELEASED_SUM)
    with pytest.raises(TacitError, match=r"gives \(2, 0\)-DP, not \(1, 0\)-DP"):
        checked_target(distribution, 1, PureDP(1.0, participations=2), View.RELEASED_SUM)


def test_noise_that_is_not_centred_is_rejected() -> None:
    with pytest.raises(TacitError, match=r"has mean 190; .* must have mean 0"):
        SecureSum(20, 1, Binomial(400), ApproximateDP(1.0, 1e-5), share=Binomial(20))


def test_a_guarantee_holds_for_its_derived_view_only() -> None:
    bits, bias = 40, 0.5
    wrong = TARGET.with_view(view=View.MESSAGE)
    found = ShuffledBits(64, 1, bits, bias, wrong).guarantee
    assert found is not None
    assert found.view is View.SHUFFLED


# several participations


@pytest.mark.parametrize("distribution", [Skellam(60), Binomial(300)], ids=["skellam", "binomial"])
@pytest.mark.parametrize("moved", [1, 3])
def test_two_participations_meet_the_guarantee_summed_explicitly(
    distribution: NoiseDistribution, moved: int
) -> None:
    target = ApproximateDP(1.0, 1e-4, participations=2)
    epsilon = epsilon_of(distribution, moved, target)
    assert delta_by_hand(distribution, moved, epsilon, 2) <= 1e-4
    assert delta_by_hand(distribution, moved, epsilon / 2, 2) > 1e-4  # and is no idle one


@pytest.mark.parametrize("times", [1, 2, 5, 52, 500])
def test_pure_participations_compose_by_addition(times: int) -> None:
    protocol = factories.polya_tight(64, PureDP(1.0, participations=times), True)
    assert isinstance(protocol, SecureSum)
    unknown = protocol.share.power(63)
    assert times * pure_by_hand(unknown, 1) <= 1 + 1e-6
    assert protocol.guarantee.participations == times
    half = RandomizedBits(64, PureDP(1.0, participations=times))
    one, zero = (half.view_distribution(bit, 1).pmf(np.arange(2)) for bit in (1, 0))
    assert times * np.abs(np.log(one / zero)).max() == pytest.approx(1.0)


def test_every_factory_meets_the_guarantee_for_the_requested_participations() -> None:
    pure = PureDP(0.9, participations=3)
    target = ApproximateDP(0.9, 1e-5, participations=3)
    made = [
        factories.polya_paper(64, pure, 0.1),
        factories.polya_tight(64, pure, True),
        factories.central_laplace(64, pure, True, None),
        factories.two_servers_laplace(64, pure, True),
        factories.verified_laplace(64, pure, True),
        factories.local_laplace(64, pure, False),
        factories.response(64, pure),
        factories.skellam_paper(64, target, 10, 0.1),
        factories.skellam_tight(64, target, True),
        factories.gaussian_paper(64, target, 10, 0.1),
        factories.gaussian_tight(64, target, True),
        factories.split_and_mix(64, pure, True, None),
        factories.shuffled_tight(64, target, True),
        factories.shuffled_paper(64, target),
        factories.continuous_laplace(64, pure),
        factories.pure_shuffle(30_000, replace(pure, epsilon=3.0)),
    ]
    for protocol in made:
        assert protocol.guarantee is not None
        assert protocol.guarantee.participations == 3


@pytest.mark.parametrize("asked", [1.0, 5.0])  # compared with Gaussian noise; by one Rényi order
def test_rounds_of_different_noise_use_one_accounting_method(asked: float) -> None:
    """They add up whatever the rounds; a mixture by hand keeps the guarantee."""
    target = ApproximateDP(asked, 1e-4, participations=2)
    distributions = [
        calibrate(kind, 1, target).integer_distribution for kind in ("skellam", "binomial")
    ]
    points = np.arange(-400, 401)
    worst = 0.0
    for signs in product((1, -1), repeat=2):
        masses, losses = np.ones(1), np.zeros(1)
        for distribution, sign in zip(distributions, signs, strict=True):
            shifted = points + round(distribution.mean)
            p, q = distribution.pmf(shifted), distribution.pmf(shifted + sign)
            with np.errstate(divide="ignore", invalid="ignore"):
                own = np.where(p > 0, np.log(p) - np.log(q), 0.0)
            keep = p > 1e-30
            masses = np.multiply.outer(masses, p[keep]).ravel()
            losses = np.add.outer(losses, own[keep]).ravel()
        beyond = losses > asked
        worst = max(worst, float((masses[beyond] * -np.expm1(asked - losses[beyond])).sum()))
    assert worst <= 1e-4


def test_several_participations_use_the_tighter_accounting_and_name_it() -> None:
    often = privacy_of(DiscreteLaplace(40), delta=1e-6, participations=100)
    assert often.participations == 100
    assert often.epsilon < 2.5  # a hundred times 1/40
    assert often.assumptions == {Accounting(Method.LOSS, 100), DistinctRounds()}
    assert "accounted for by 100 privacy loss distributions, composed exactly" in often.clauses()
    composed = ComposedLoss(((privacy_loss(DiscreteLaplace(40), 1), 100),))
    assert often.epsilon == pytest.approx(composed.epsilon(1e-6), rel=1e-9)  # not one batch less


# tighter where it is free


def test_randomized_response_has_half_the_variance_and_one_bit() -> None:
    response = RandomizedBits(100, PureDP(1.0))
    laplace = DiscreteLaplace(1)
    assert response.error(1).variance == pytest.approx(float(laplace.variance) / 2)
    assert response.bits_per_participant == 1


def test_printed_shuffle_noise_states_its_true_guarantee() -> None:
    """TKMS21 asks for 0.5 and sends noise that gives a fraction of it."""
    for users, limit in ((1000, 0.09), (10**5, 0.09)):
        found = factories.shuffled_paper(users, ApproximateDP(0.5, 1e-5)).guarantee
        assert isinstance(found, ApproximateDP)
        assert found.epsilon < limit


def test_printed_skellam_and_gaussian_noise_state_their_exact_epsilon() -> None:
    for make in (factories.skellam_paper, factories.gaussian_paper):
        found = make(10**4, TARGET, 10, 0.1).guarantee
        assert isinstance(found, ApproximateDP)
        assert 4.3 < found.epsilon < 4.4  # 4.7 by conversion from Rényi divergences


@pytest.mark.parametrize("times", [2, 5, 500])
def test_several_participations_of_printed_noise_use_the_best_renyi_order(times: int) -> None:
    """Never below exact composition of the noise itself, and at most a ninth above it."""
    target = ApproximateDP(0.5, 1e-6, participations=times)
    for found, distribution in printed_noise(target, 4):
        assert isinstance(found, ApproximateDP)
        exact = ComposedLoss(((privacy_loss(*distribution), times),)).epsilon(target.delta)
        assert exact <= found.epsilon < 10 / 9 * exact


def printed_noise(
    target: ApproximateDP, users: int
) -> list[tuple[object, tuple[NoiseDistribution, int]]]:
    """What is guaranteed of each printed noise, and the noise of all but one of so many with the
    levels that one of them moves: ⌈10 ε √n⌉ with standard deviation g/ε, or one bit.
    """
    g, part = 10, Fraction(users - 1, users)
    assert g == 10 * target.epsilon * users**0.5
    skellam = factories.skellam_paper(users, target, 10, 0.1, users).guarantee
    gaussian = factories.gaussian_paper(users, target, 10, 0.1, users).guarantee
    bits = factories.shuffled_paper(users, target, users)
    assert isinstance(bits, ShuffledBits)
    return [
        (skellam, (Skellam(g * g / Fraction(target.epsilon) ** 2 * part), g)),
        (gaussian, (DiscreteGaussian(g / target.epsilon * float(part) ** 0.5), g)),
        (bits.guarantee, (Binomial(bits.noise_bits * (users - 1), bits.bias), 1)),
    ]


def test_rounds_of_printed_noise_share_one_renyi_order() -> None:
    """The order is that of the smallest round; each larger one is guaranteed no less."""
    target = ApproximateDP(0.5, 1e-6, participations=5)
    for make in (factories.skellam_paper, factories.gaussian_paper):
        numbers = [make(users, target, 10, 0.1, 4).guarantee for users in (4, 16, 4096)]
        found = [number.epsilon for number in numbers if isinstance(number, ApproximateDP)]
        assert found == sorted(found, reverse=True)
        protocol = make(4096, target, 10, 0.1, 4)
        assert isinstance(protocol, SecureSum)
        first = make(4, target, 10, 0.1, 4)
        assert isinstance(first, SecureSum)
        order = best_order(first.distribution, first.precision, target, first.share.closeness(3))
        apart = protocol.share.closeness(4095)
        at = epsilon_of(protocol.distribution, protocol.precision, target, apart, order)
        assert found[-1] == at


# time


def test_randomized_response_flips_independently_of_the_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[int] = []
    word = coins.random_word

    def counted() -> int:
        drawn.append(word())
        return drawn[-1]

    monkeypatch.setattr(coins, "random_word", counted)
    for scaled in (Fraction(0), Fraction(3), Fraction(7, 2), Fraction(1, 3)):
        drawn.clear()
        random_level(scaled)
        assert len(drawn) == 1


def test_stated_guarantees_are_at_least_the_achieved_ones() -> None:
    distribution = DiscreteLaplace(3)
    assert achieved_guarantee(distribution, 2, PureDP(5.0)).epsilon == pytest.approx(2 / 3)
    assert checked_target(distribution, 2, PureDP(5.0), View.MESSAGE).epsilon == 5.0


@pytest.mark.parametrize("participations", [1, 3, 7, 11])
def test_pure_guarantees_are_compared_in_exact_fractions(participations: int) -> None:
    for epsilon in (0.03, 0.1, 0.7, Fraction(707, 999)):
        target = PureDP(epsilon, participations=participations)  # type: ignore[arg-type]
        distribution = DiscreteLaplace(participations / Fraction(epsilon))
        assert checked_target(distribution, 1, target, View.OTHER_SERVER).epsilon == epsilon
        less = DiscreteLaplace(distribution.scale * (1 - Fraction(1, 10**30)))
        with pytest.raises(TacitError, match="calibrate the noise"):
            checked_target(less, 1, target, View.OTHER_SERVER)


@pytest.mark.parametrize("often", [0, -1, 0.5])
def test_fewer_than_one_participation_is_rejected(often: float) -> None:
    """Half a participation would need half the noise."""
    for make in (
        lambda: PureDP(1.0, participations=often),  # type: ignore[arg-type]
        lambda: ApproximateDP(1.0, 1e-5, participations=often),  # type: ignore[arg-type]
        lambda: ConcentratedDP(1.0, participations=often),  # type: ignore[arg-type]
        lambda: RenyiDP(((2.0, 1.0),), participations=often),  # type: ignore[arg-type]
    ):
        with pytest.raises(TacitError, match="participations is"):
            make()


def test_adding_or_removing_a_participant_is_not_covered() -> None:
    """How many take part is public, and shares are made for as many."""
    pure = PureDP(1.0, neighbours=Neighbours.ADD_OR_REMOVE_ONE)
    target = ApproximateDP(1.0, 1e-5, neighbours=Neighbours.ADD_OR_REMOVE_ONE)
    for make in (
        lambda: SecureSum(100, 10, DiscreteLaplace(10), pure),
        lambda: RandomizedBits(100, pure),
        lambda: ShuffledBits(100, 1, 2, Fraction(1, 2), target),
        lambda: SecureVector(100, 3, 1.0, target),
        lambda: SecureBall(100, 3, 1.0, target),
        lambda: CentralVectors(100, 3, 1.0, target, paper=True),
    ):
        with pytest.raises(TacitError, match="the number of participants is public"):
            make()


def test_no_curious_participant_is_a_stated_assumption() -> None:
    protocol = SecureSum(4, 1, DiscreteLaplace(1), PureDP(1.0), threat=ThreatModel(curious=0))
    assert protocol.guarantee.assumptions == {
        DishonestAtMost(Scope.ROUND, 0),
        ReleasedOnlyAbove(Fraction(1)),
    }
    assert "no participant of a batch is curious, corrupted or invented" in str(protocol.guarantee)
    looked_at = SecureSum(4, 1, DiscreteLaplace(1), PureDP(1.0)).guarantee
    assert looked_at.implies(protocol.guarantee)
    assert not protocol.guarantee.implies(looked_at)
    one_looks = protocol.share.power(3)
    assert pure_by_hand(one_looks, 1, 40) > 1.05


def test_randomized_response_at_a_large_epsilon_has_little_error() -> None:
    """Also where (e^ε)² is more than a float holds; past that nothing is hidden."""
    for epsilon in (30.0, 500.0):
        assert 0 < RandomizedBits(10, PureDP(epsilon)).error(10).variance < 1e-10
    with pytest.raises(TacitError, match="no meaningful privacy"):
        RandomizedBits(10, PureDP(501.0))
    assert RandomizedBits(10, PureDP(900.0, participations=2)).epsilon == 450


@pytest.mark.parametrize("times", [2, 3, 7])
def test_parts_of_several_participations_sum_to_at_most_the_budget(times: int) -> None:
    target = ApproximateDP(1.0, 1e-5, participations=times)
    dropped, rest = split_delta(target)
    assert times * dropped + rest <= target.delta * (1 + 1e-12)
    once = per_participation(target)
    assert isinstance(once, ApproximateDP)
    together = ComposedLoss(((dominating_loss(once), times),))
    assert 0.99 * target.epsilon < together.epsilon(target.delta) <= target.epsilon
    assert once.participations == 1
    assert per_participation(PureDP(1.0, participations=times)).epsilon == pytest.approx(1 / times)


def test_parts_of_a_pure_budget_sum_to_the_budget() -> None:
    """In floats 3 · (0.1 / 3) is above 0.1, for instance, and 7 · (0.7 / 7) below 0.7."""
    for times in range(2, 200):
        for epsilon in (0.1, 0.7, 1.0, 3.3):
            part = per_participation(PureDP(epsilon, participations=times))
            assert Fraction(part.epsilon) * times == Fraction(epsilon)


def test_truncated_mass_of_a_divergence_is_bounded() -> None:
    """Losses without bound count towards it, and so does the worse of both directions."""
    rough = Direction.of(np.array([5.0, 0.0]), np.array([0.006, 0.989]), 0.005)
    mild = Direction.of(np.array([0.1]), np.array([1.0]), 0.0)
    for directions in ((rough,), (rough, mild), (mild, rough)):
        loss = PrivacyLoss(directions, math.inf)
        kept = math.log(0.006 * math.exp(5) + 0.989)
        assert trimmed_renyi(loss, 2.0, 0.0109) == pytest.approx(kept)
        assert trimmed_renyi(loss, 2.0, 0.0111) <= 0.1 + 1e-9
        assert trimmed_renyi(loss, 2.0, 0.0049) == math.inf


@pytest.mark.parametrize(
    "make", [factories.polya_tight, factories.skellam_tight, factories.shuffled_tight]
)
def test_noise_covers_missing_and_dishonest_participants(make: Any) -> None:
    target = PureDP(1.0) if make is factories.polya_tight else ApproximateDP(1.0, 1e-5)
    protocol = make(100, target=target, binary=True, dropout=0.1, corrupt=0.2)
    assert (protocol.minimum, protocol.honest) == (90, 70)
    assert protocol.guarantee.assumptions == {
        DishonestAtMost(Scope.ROUND, 1, Fraction(1, 5)),
        ReleasedOnlyAbove(Fraction(9, 10)),
    }
    assert protocol.guarantee.assumptions == set(ThreatModel(0.1, 0.2).assumptions())

"""Amplification by shuffling: exact randomized response by enumeration, and the clone bound above
it.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from tacit.errors import TacitError
from tacit.privacy import Clones, RandomizedResponse, shuffling


def enumerated(epsilon0: float, users: int, epsilon: float, ones: int | None = None) -> float:
    """The worst hockey-stick divergence of the number of ones, over all inputs, both directions and
    all 2^n outcomes.
    """
    flip = 1 / (1 + math.exp(epsilon0))
    worst = 0.0
    for others in range(users) if ones is None else [ones]:
        sides = []
        for mine in (0, 1):
            inputs = [1] * others + [0] * (users - 1 - others) + [mine]
            counts = [0.0] * (users + 1)
            for outcome in itertools.product((0, 1), repeat=users):
                chance = math.prod(
                    1 - flip if bit == x else flip for bit, x in zip(outcome, inputs, strict=True)
                )
                counts[sum(outcome)] += chance
            sides.append(counts)
        for p, q in (sides, sides[::-1]):
            worst = max(
                worst, sum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(p, q, strict=True))
            )
    return worst


@pytest.mark.parametrize("users", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("epsilon0", [0.3, 1.0, 2.5])
def test_randomized_response_equals_enumeration_over_all_outcomes(
    users: int, epsilon0: float
) -> None:
    response = RandomizedResponse(epsilon0, users)
    for fraction in (0.0, 0.2, 0.5, 0.9):
        epsilon = fraction * epsilon0
        assert response.delta(epsilon) == pytest.approx(
            enumerated(epsilon0, users, epsilon), rel=1e-9, abs=1e-15
        )
        for ones in range(users):
            assert response.delta(epsilon, ones) == pytest.approx(
                enumerated(epsilon0, users, epsilon, ones), rel=1e-9, abs=1e-15
            )
    assert response.delta(epsilon0) == 0.0
    assert response.epsilon(1e-9) <= epsilon0


def clones_by_sums(epsilon0: float, users: int, epsilon: float) -> float:
    """The clones' hockey-stick divergence, outcome by outcome: (A + coin, C - A + 1 - coin)."""
    q = math.exp(epsilon0) / (1 + math.exp(epsilon0))
    total = 0.0
    for c in range(users):
        weight = binom.pmf(c, users - 1, 2 / (1 + math.exp(epsilon0)))
        for a in range(c + 2):
            first, second = binom.pmf(a - 1, c, 0.5), binom.pmf(a, c, 0.5)
            total += weight * max(
                0.0,
                q * first + (1 - q) * second - math.exp(epsilon) * ((1 - q) * first + q * second),
            )
    return float(total)


@pytest.mark.parametrize("users", [1, 2, 5, 30])
@pytest.mark.parametrize("epsilon0", [0.5, 2.0, 6.0])
def test_the_clone_bound_sums_over_all_numbers_of_clones(users: int, epsilon0: float) -> None:
    for fraction in (0.0, 0.1, 0.5, 0.99):
        true = clones_by_sums(epsilon0, users, fraction * epsilon0)
        assert Clones(epsilon0, users).delta(fraction * epsilon0) == pytest.approx(
            true, rel=1e-6, abs=1e-17
        )
        assert Clones(epsilon0, users).delta(fraction * epsilon0) >= true * (1 - 1e-12)


@pytest.mark.parametrize("users", [1, 2, 3, 10, 40, 150])
@pytest.mark.parametrize("epsilon0", [0.1, 0.7, 1.5, 4.0])
def test_the_clone_bound_covers_exact_randomized_response(users: int, epsilon0: float) -> None:
    clones, response = Clones(epsilon0, users), RandomizedResponse(epsilon0, users)
    for fraction in (0.0, 0.02, 0.1, 0.3, 0.6, 0.95):
        assert clones.delta(fraction * epsilon0) >= response.delta(fraction * epsilon0) * (1 - 1e-9)
    for delta in (0.1, 1e-3, 1e-6):
        assert response.epsilon(delta) <= clones.epsilon(delta) + 1e-8 <= epsilon0 + 1e-7


@pytest.mark.parametrize("users", [1000, 30_000])
def test_the_clone_bound_covers_randomized_response_of_many_users(users: int) -> None:
    for epsilon0 in (0.5, 1.0, 3.0):
        assert RandomizedResponse(epsilon0, users).epsilon(1e-6, ones=0) <= Clones(
            epsilon0, users
        ).epsilon(1e-6)


def test_an_amplified_epsilon_has_a_delta_below_its_target() -> None:
    for users, delta in ((10, 1e-2), (1000, 1e-6), (100_000, 1e-9)):
        clones = Clones(1.0, users)
        assert clones.delta(clones.epsilon(delta)) <= delta


def test_truncated_numbers_of_clones_count_as_infinite_loss() -> None:
    """No ε below ε₀ is without exception, however many participants."""
    assert Clones(1.0, 100_000).delta(0.99) > 0


def test_amplification_grows_with_participants() -> None:
    participants = [
        Clones(1.0, users).epsilon(1e-6) for users in (1, 10, 100, 10_000, 10**6, 10**8)
    ]
    assert participants == sorted(participants, reverse=True)
    assert participants[0] == pytest.approx(1.0, abs=1e-5)
    assert participants[3] == pytest.approx(0.0432, abs=1e-3)
    assert (
        0.05 < participants[5] / participants[4] < 0.1
    )  # about one over the root of the number, and the fixed delta helps
    responses = [RandomizedResponse(1.0, users).epsilon(1e-3) for users in (1, 5, 25, 125, 250)]
    assert responses == sorted(responses, reverse=True)


def test_grouping_numbers_of_clones_is_conservative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with more numbers of clones than are kept apart, against exact counts."""
    exact = [Clones(0.7, 2000).delta(epsilon) for epsilon in (0.0, 0.05, 0.1)]
    monkeypatch.setattr(shuffling, "MOST_COUNTS", 8)
    grouped = [Clones(0.7, 2000).delta(epsilon) for epsilon in (0.0, 0.05, 0.1)]
    assert all(one < two < 2 * one for one, two in zip(exact, grouped, strict=True))
    monkeypatch.undo()
    wide = Clones(0.7, 2_000_000)  # over 4,096 likely numbers
    counts, weights, _ = wide._clones
    assert len(counts) <= 4096
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    assert wide.delta(0.005) <= Clones(0.7, 1_900_000).delta(0.005)


def test_invalid_amplification_is_rejected() -> None:
    with pytest.raises(TacitError, match="epsilon0 is 0"):
        Clones(0.0, 10)
    with pytest.raises(TacitError, match="must be at most"):
        Clones(1000.0, 10)
    with pytest.raises(TacitError, match="must be at most"):
        RandomizedResponse(1000.0, 10)
    with pytest.raises(TacitError, match="users is 0"):
        Clones(1.0, 0)
    with pytest.raises(TacitError, match="use Clones"):
        RandomizedResponse(1.0, 1000).delta(0.1)
    with pytest.raises(TacitError, match="ones is 10"):
        RandomizedResponse(1.0, 10).delta(0.1, ones=10)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(TacitError, match="epsilon is"):
            Clones(1.0, 10).delta(bad)
        with pytest.raises(TacitError, match="epsilon is"):
            RandomizedResponse(1.0, 10).delta(bad)


@pytest.mark.parametrize("users", [10**11 + 1, 10**300, 10**400])
def test_more_users_than_can_be_tabulated_are_rejected(users: int) -> None:
    with pytest.raises(TacitError, match=r"users is 1.*must be at most 100,000,000,000"):
        Clones(epsilon0=0.5, users=users)


def shuffled_distribution(messages: list[npt.NDArray[np.float64]]) -> dict[tuple[int, ...], float]:
    """The distribution of how many sent each of three messages, participant by participant."""
    distribution: dict[tuple[int, ...], float] = {(0, 0, 0): 1.0}
    for one in messages:
        longer: dict[tuple[int, ...], float] = {}
        for counts, mass in distribution.items():
            for value, chance in enumerate(one):
                key = tuple(count + (place == value) for place, count in enumerate(counts))
                longer[key] = longer.get(key, 0.0) + mass * float(chance)
        distribution = longer
    return distribution


@pytest.mark.parametrize("epsilon0", [0.5, 1.0, 3.0])
def test_the_clone_bound_covers_three_valued_randomizers_by_brute_force(epsilon0: float) -> None:
    """Extreme ones: a base distribution with each value raised by e^ε₀ or not, by input; 150 of
    them."""
    rng = np.random.default_rng(12)
    closest = 0.0
    for _ in range(150):
        rows = rng.dirichlet(np.ones(3)) * np.exp(epsilon0 * rng.integers(0, 2, (3, 3)))
        rows /= rows.sum(axis=1, keepdims=True)
        if max(float((a / b).max()) for a in rows for b in rows) > math.exp(epsilon0) * (1 + 1e-12):
            continue
        users = int(rng.integers(2, 7))
        others = [rows[rng.integers(0, 3)] for _ in range(users - 1)]
        p, q = (shuffled_distribution([own, *others]) for own in rows[:2])
        for fraction in (0.0, 0.1, 0.4, 0.8):
            epsilon = fraction * epsilon0
            true = sum(max(0.0, mass - math.exp(epsilon) * q[key]) for key, mass in p.items())
            bound = Clones(epsilon0, users).delta(epsilon)
            assert true <= bound * (1 + 1e-9) + 1e-15
            closest = max(closest, true / bound)
    assert closest > 0.3  # the bound is no idle one


@pytest.mark.parametrize("epsilon0", [20.0, 33.0, 35.0, 36.7, 50.0, 400.0])
def test_a_rare_response_below_rounding_gives_no_epsilon_too_small(
    epsilon0: float,
) -> None:
    """One participant alone: (e^ε₀ - e^ε) / (1 + e^ε₀) = δ at ε = ε₀ + ln(1 - δ (1 + e^-ε₀))."""
    for delta in (0.5, 1e-3, 1e-9):
        true = epsilon0 + math.log1p(-delta * (1 + math.exp(-epsilon0)))
        for found in (Clones(epsilon0, 1), RandomizedResponse(epsilon0, 1)):
            assert true * (1 - 1e-14) <= found.epsilon(delta) <= true * (1 + 1e-8)
        participants = RandomizedResponse(epsilon0, 3).epsilon(delta)
        assert 0 < participants <= Clones(epsilon0, 3).epsilon(delta) * (1 + 1e-12)


def exact_excess(clones: int, epsilon0: float, epsilon: float) -> float:
    """δ at ε of so many clones, term by term in 40 digits."""
    with mp.workdps(40):
        other, r = 1 / (1 + mp.exp(epsilon0)), mp.exp(epsilon)
        likelier = 1 - other
        share = (r * likelier - other) / ((likelier - other) * (1 + r))
        first = max(0, int(mp.ceil((clones + 1) * share)))

        def held(a: int) -> mp.mpf:
            if not 0 <= a <= clones:
                return mp.mpf(0)
            return mp.exp(
                mp.loggamma(clones + 1)
                - mp.loggamma(a + 1)
                - mp.loggamma(clones - a + 1)
                - clones * mp.log(2)
            )

        here, before, total = held(first), held(first - 1), mp.mpf(0)
        for a in range(first, clones + 2):
            p = likelier * before + other * here
            total += p - r * (other * before + likelier * here)
            if before < total * mp.mpf(10) ** -30:
                break
            here, before = here * (clones - a) / (a + 1), here
        return float(total)


@pytest.mark.parametrize(
    ("clones", "epsilon0", "deviations"),
    [
        (0, 1.0, 0.5),
        (1, 3.0, 0.2),
        (17, 0.3, 2.0),
        (1000, 5.0, 4.0),
        (40_000, 0.01, 0.0),
        (10**6, 1.0, 6.0),
        (10**8, 1e-3, 8.0),
        (10**7, 1e-12, 2.0),
    ],
)
def test_the_delta_of_a_number_of_clones_does_not_cancel(
    clones: int, epsilon0: float, deviations: float
) -> None:
    epsilon = epsilon0 * min(0.99, deviations / math.sqrt(clones + 1))
    (found,) = shuffling._excess(np.array([float(clones)]), epsilon0, epsilon)
    assert found == pytest.approx(exact_excess(clones, epsilon0, epsilon), rel=1e-9, abs=0)


@pytest.mark.parametrize("deviations", [0.5, 1.0, 2.0, 3.0, 4.0])
def test_nearly_indistinguishable_messages_of_many_users_have_a_delta_that_covers_them(
    deviations: float,
) -> None:
    """Found: tails that agree in eleven digits were subtracted, and δ came out below its truth.

    Nearly every message is a clone, so that δ hardly depends on their number.
    """
    epsilon0, users = 1e-7, 10**7
    clones = Clones(epsilon0, users)
    epsilon = epsilon0 / math.sqrt(users) * deviations
    most = int(clones._clones[0][-1])
    exact = exact_excess(most, epsilon0, epsilon)
    assert exact <= clones.delta(epsilon) <= 1.001 * exact + 1e-17


@pytest.mark.parametrize("epsilon0", [1e-12, 1e-6, 0.5, 20.0])
@pytest.mark.parametrize("ones", [0, 7, 29])
def test_randomized_response_is_exact_for_nearly_indistinguishable_bits(
    epsilon0: float, ones: int
) -> None:
    """Found: logarithms were subtracted that agree in twelve digits, and δ was off by a part in 10³
    either way.
    """
    users = 30
    with mp.workdps(40):
        flip = 1 / (1 + mp.exp(epsilon0))

        def more(counts: list[mp.mpf], chance: mp.mpf) -> list[mp.mpf]:
            pairs = zip([*counts, mp.mpf(0)], [mp.mpf(0), *counts], strict=True)
            return [here * (1 - chance) + before * chance for here, before in pairs]

        counts = [mp.mpf(1)]
        for held in range(users - 1):
            counts = more(counts, 1 - flip if held < ones else flip)
        one, zero = more(counts, 1 - flip), more(counts, flip)
        for part in (0.0, 0.1, 0.4):
            ratio = mp.exp(part * epsilon0)
            exact = max(
                mp.fsum(max(mp.mpf(0), a - ratio * b) for a, b in zip(p, q, strict=True))
                for p, q in ((one, zero), (zero, one))
            )
            found = RandomizedResponse(epsilon0, users).delta(part * epsilon0, ones=ones)
            assert found == pytest.approx(float(exact), rel=1e-9, abs=0)

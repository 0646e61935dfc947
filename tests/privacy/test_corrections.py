"""Every number of the list of corrections, to the printed digits, by library and command."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tacit.algorithms import ArmsProblem
from tacit.algorithms.registry import lookup
from tacit.bandits import ForgettingElimination
from tacit.noise import Binomial
from tacit.papers.corrections import corrections
from tacit.privacy import ApproximateDP, GaussianLoss, calibrate, dropout_loss, privacy_loss

Tacit = Callable[..., dict[str, Any]]


# 7: the Gaussian closed form beyond ε = 1


@pytest.mark.parametrize(
    ("epsilon", "paper_sigma", "true_delta"), [(10.0, 0.1794, 0.789), (20.0, 0.0897, 0.9999)]
)
def test_7_the_gaussian_closed_form_is_wrong_beyond_epsilon_1(
    tacit: Tacit, epsilon: float, paper_sigma: float, true_delta: float
) -> None:
    digits = len(str(true_delta)) - 2
    paper = calibrate("gaussian", 1, ApproximateDP(epsilon, 0.25), constants="paper")
    assert round(paper.distribution.std, 4) == paper_sigma
    assert not paper.meets_target
    assert round(GaussianLoss(paper.distribution.std, 1).delta(epsilon), digits) == true_delta
    command = tacit("calibrate", noise="gaussian", epsilon=epsilon, delta=0.25, constants="paper")
    assert round(command["sigma"], 4) == paper_sigma
    assert command["meets_target"] is False
    asked = tacit("privacy", noise="gaussian", sigma=command["sigma"], epsilon=epsilon)
    assert round(asked["delta"], digits) == true_delta


def test_7_the_variance_that_epsilon_above_1_needs(tacit: Tacit) -> None:
    assert round(calibrate("gaussian", 1, ApproximateDP(10.0, 0.25)).distribution.std, 4) == 0.2472
    command = tacit("calibrate", noise="gaussian", epsilon=10, delta=0.25)
    assert round(command["sigma"], 4) == 0.2472
    assert command["meets_target"] is True


# 10: labels and guarantees


def test_10_half_zcdp_is_4_4_at_1e_minus_5(tacit: Tacit) -> None:
    assert round(tacit("privacy", noise="gaussian", sigma=1, delta=1e-5)["epsilon"], 1) == 4.4
    assert (
        round(
            tacit("privacy", noise="skellam", variance=10_000, sensitivity=100, delta=1e-5)[
                "epsilon"
            ],
            1,
        )
        == 4.4
    )


# 13: missing shares


@pytest.mark.parametrize(
    ("arriving", "sensitivity", "printed"),
    [
        (0.9, 1, 1.10),
        (0.8, 1, 1.21),
        (0.5, 1, 1.68),
        (0.9, 10, 1.17),
        (0.8, 10, 1.38),
        (0.5, 10, 2.34),
    ],
)
def test_13_missing_shares_reduce_the_noise(
    tacit: Tacit, arriving: float, sensitivity: int, printed: float
) -> None:
    from tacit.noise import DiscreteLaplace

    assert (
        round(dropout_loss(DiscreteLaplace(sensitivity), arriving, sensitivity).pure, 2) == printed
    )
    command = tacit(
        "privacy",
        noise="discrete-laplace",
        scale=sensitivity,
        sensitivity=sensitivity,
        arriving=arriving,
        delta=0,
    )
    assert round(command["epsilon"], 2) == printed


# 15: fair bits


@pytest.mark.parametrize(
    ("epsilon", "delta", "needed", "sent"),
    [
        (1.0, 1e-5, 62, 1172),
        (0.5, 1e-5, 203, 4688),
        (0.1, 1e-5, 3787, 117_179),
        (1.0, 1e-6, 80, 1393),
    ],
)
def test_15_fair_bits_of_the_paper_exceed_the_needed_ones(
    tacit: Tacit, epsilon: float, delta: float, needed: int, sent: int
) -> None:
    target = ApproximateDP(epsilon, delta)
    tight, paper = (
        calibrate("binomial", 1, target),
        calibrate("binomial", 1, target, constants="paper"),
    )
    assert tight.distribution == Binomial(needed)
    assert paper.distribution == Binomial(sent)
    assert 4.1 <= paper.distribution.std / tight.distribution.std <= 5.6
    assert (
        tacit("calibrate", noise="binomial", sensitivity=1, epsilon=epsilon, delta=delta)["trials"]
        == needed
    )
    command = tacit(
        "calibrate",
        noise="binomial",
        sensitivity=1,
        epsilon=epsilon,
        delta=delta,
        constants="paper",
    )
    assert command["trials"] == sent
    if (epsilon, delta) == (1.0, 1e-5):
        assert round(paper.epsilon, 2) == round(command["epsilon"], 2) == 0.19


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-7), (0.3, 1e-4), (1.5, 1e-10)])
def test_15_other_targets_match_exact_fractions(epsilon: float, delta: float) -> None:
    def enough(n: int) -> bool:
        total = sum(
            max(0.0, math.comb(n, k) - math.exp(epsilon) * (math.comb(n, k + 1) if k < n else 0))
            for k in range(n + 1)
        )
        return bool(total / 2**n <= delta)

    found = calibrate("binomial", 1, ApproximateDP(epsilon, delta)).distribution
    assert isinstance(found, Binomial)
    assert enough(found.n)
    assert not enough(found.n - 1)


# 16: bits for levels


@pytest.mark.parametrize(("users", "levels"), [(2_500, 50), (10_000, 100), (40_000, 200)])
def test_16_bits_for_levels_of_the_paper_exceed_the_needed_ones(
    tacit: Tacit, users: int, levels: int
) -> None:
    target = ApproximateDP(1.0, 1e-5)
    paper = calibrate("binomial", levels, target, users=users, constants="paper")
    tight = calibrate("binomial", levels, target, users=users)
    assert round(paper.epsilon, 3) == 0.135
    assert round(paper.distribution.std / levels, 1) == 23.4
    assert round(tight.distribution.std / levels, 2) == 3.73
    assert round(paper.distribution.std / tight.distribution.std, 1) == 6.3
    assert (paper.bits_per_user, tight.bits_per_user) == (2198, 56)
    command = tacit(
        "calibrate",
        noise="binomial",
        sensitivity=levels,
        epsilon=1,
        delta=1e-5,
        users=users,
        constants="paper",
    )
    assert round(command["epsilon"], 3) == 0.135
    assert command["bits_per_user"] == 2198
    command = tacit(
        "calibrate", noise="binomial", sensitivity=levels, epsilon=1, delta=1e-5, users=users
    )
    assert command["bits_per_user"] == 56
    assert round(command["std"] / levels, 2) == 3.73


@pytest.mark.parametrize(("users", "levels"), [(500, 20), (100_000, 30)])
def test_16_the_papers_epsilon_is_the_same_for_every_batch(users: int, levels: int) -> None:
    assert calibrate(
        "binomial", levels, ApproximateDP(1.0, 1e-5), users=users, constants="paper"
    ).epsilon == pytest.approx(0.135, abs=2e-3)


# 17: Skellam


@pytest.mark.parametrize(("levels", "loose"), [(1, 0.25), (10, 0.086), (100, 0.084), (1000, 0.084)])
def test_17_skellam_noise_of_the_paper_exceeds_the_needed_one(
    tacit: Tacit, levels: int, loose: float
) -> None:
    target = ApproximateDP(1.0, 1e-5)
    tight, paper = (
        calibrate("skellam", levels, target),
        calibrate("skellam", levels, target, constants="paper"),
    )
    assert paper.distribution.std / tight.distribution.std - 1 == pytest.approx(loose, abs=5e-3)
    command = tacit("calibrate", noise="skellam", sensitivity=levels, epsilon=1, delta=1e-5)
    assert command["variance"] == float(tight.distribution.variance)
    if levels == 10:
        assert round(command["variance"]) == 1388
        assert tacit("privacy", noise="skellam", variance=1388, sensitivity=10, delta=1e-5)[
            "epsilon"
        ] == pytest.approx(1.0, abs=5e-4)
    if levels >= 100:
        assert (
            round(tight.distribution.std / levels, 3)
            == round(calibrate("gaussian", 1, target).distribution.std, 3)
            == 3.731
        )
        assert tight.distribution.std / levels == pytest.approx(3.7306, abs=5e-4)


def test_17_the_exact_gaussian_is_3_7306(tacit: Tacit) -> None:
    assert round(calibrate("gaussian", 1, ApproximateDP(1.0, 1e-5)).distribution.std, 4) == 3.7306
    assert round(tacit("calibrate", noise="gaussian", epsilon=1, delta=1e-5)["std"], 4) == 3.7306


# 20: asymmetric noise


def test_20_asymmetric_noise_is_accounted_in_both_directions(tacit: Tacit) -> None:
    assert round(privacy_loss(Binomial(2000, 0.02), 2).epsilon(1e-5), 3) == 1.604
    assert (
        round(
            tacit("privacy", noise="binomial", trials=2000, bias=0.02, sensitivity=2, delta=1e-5)[
                "epsilon"
            ],
            3,
        )
        == 1.604
    )


# the command that shows them all

TRUNK = "M = 100, T = 1e4"
MANY = "ε = 0.5, δ = 1e-05, n = 1000τ"
DOCUMENTED: dict[tuple[int, str, str], tuple[float, float]] = {
    (24, "epsilon of a person at (0.2, 0.1)", f"{TRUNK}, B = 25, not lazy"): (0.2, 79.6),
    (24, "epsilon of a person at (1, 1e-05)", f"{TRUNK}, B = 25, not lazy"): (1, 52.9),
    (25, "epsilon of a silo's records together", f"{TRUNK}, ε = 3e-05, δ = 1e-06"): (0.2995, 0.437),
    (26, "variance of a released prefix sum", "ε = 1, δ = 1e-05, T = 1e4, B = 25"): (9826, 7607),
    (26, "variance of a released prefix sum", "ε = 1, δ = 0.1, T = 1e4, B = 25"): (2973, 2302),
    (27, "variance of a batch's noise / τ", MANY): (0.25, 0.49975),
    (27, "log-MGF of the noise at 3", MANY): (31_638, 37_485),
    (7, "delta of the Gaussian closed form", "ε = 10, δ = 0.25"): (0.25, 0.789),
    (7, "delta of the Gaussian closed form", "ε = 20, δ = 0.25"): (0.25, 0.9999),
    (7, "sigma / sensitivity that is needed", "ε = 10, δ = 0.25"): (0.1794, 0.2472),
    (13, "epsilon when shares are missing", "90% of Pólya shares, g = 1"): (1, 1.10),
    (13, "epsilon when shares are missing", "50% of Pólya shares, g = 10"): (1, 2.34),
    (15, "fair noise bits in total", "ε = 1, δ = 1e-05"): (1172, 62),
    (15, "fair noise bits in total", "ε = 0.1, δ = 1e-05"): (117_179, 3787),
    (16, "true epsilon of the paper's bits", "ε = 1, δ = 1e-05, n = 10,000, g = 100"): (1, 0.135),
    (16, "noise bits per user", "ε = 1, δ = 1e-05, n = 1,000,000, g = 1000"): (2198, 56),
    (17, "Skellam variance", "ε = 1, δ = 1e-05, g = 10"): (1638, 1388),
}


@pytest.mark.parametrize("through", ["library", "command"])
def test_the_list_of_corrections_shows_the_documented_values(tacit: Tacit, through: str) -> None:
    found = (
        [vars(row) for row in corrections()]
        if through == "library"
        else tacit("corrections")["corrections"]
    )
    shown = {
        (row["line"], row["what"], row["setting"]): (row["printed"], row["true"]) for row in found
    }
    assert {line for line, _, _ in shown} == {7, 13, 15, 16, 17, 24, 25, 26, 27, 32, 34}
    for key, (printed, true) in DOCUMENTED.items():
        assert shown[key][0] == pytest.approx(printed, rel=6e-4)
        assert shown[key][1] == pytest.approx(true, rel=4e-3)


# 32: rounding in the radius of CZ23 Theorem 4


def test_32_the_radius_without_rounding_fails_at_coarse_scales_only() -> None:
    found = {row.setting[:6]: row for row in corrections() if row.line == 32}
    coarse, fine = found["s = 1,"], found["s = 10"]
    assert coarse.printed == fine.printed == 1e-6
    assert round(coarse.true * 1e6, 2) == 1.45
    assert fine.true < 1e-7


def test_32_the_printed_radius_has_the_rounding_term_of_the_proof() -> None:
    problem = ArmsProblem.of(epsilon=0.5, constants="paper", scale=4)
    learner = lookup("dist-cdp-se").build(problem).learner
    assert isinstance(learner, ForgettingElimination)
    assert learner.tail.sigma == pytest.approx(math.sqrt(2) / 0.5 * (1 + 1 / 4))
    assert learner.tail.h == 0


def test_34_the_public_code_adds_other_noise_than_the_theorems() -> None:
    found = {row.what: row for row in corrections() if row.line == 34}
    node = found["deviation of a silo's node"]
    assert (round(node.printed), round(node.true)) == (26_704, 9_105)
    shuffled = found["variance of a shuffled node"]
    assert shuffled.printed == pytest.approx(7.76e7, rel=1e-3)
    assert round(shuffled.true, 1) == 223.7
    assert round(found["epsilon of those nodes, one record"].true, 3) == 0.188

"""Joint guarantees for sums of vectors: one person's data moves many coordinates at once.

Two ways of bounding that movement, and for each what is proven. Under an l∞ bound every coordinate
may move by the bound at the same time: the coordinates' exact losses compose. Under an l2 bound the
movement is shared among coordinates: exact for the Gaussian, zCDP for the discrete Gaussian, a
proven Rényi bound for Skellam, and for the binomial a Rényi bound on the likely outcomes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.checks import TacitError, integer, positive, probability
from tacit.noise import Binomial, DiscreteGaussian, NoiseLaw, Skellam
from tacit.privacy.composition import ComposedLoss
from tacit.privacy.gaussian import Gaussian, GaussianLoss
from tacit.privacy.guarantees import ConcentratedDP, renyi_epsilon
from tacit.privacy.loss import largest_shift_is_worst, privacy_loss

MOST_BINOMIAL_SHIFTS = 512


@dataclass(frozen=True)
class VectorGuarantee:
    """(epsilon, delta)-DP of a noisy vector sum, and how that was derived."""

    epsilon: float
    delta: float
    derivation: str


def linf_loss(law: NoiseLaw, bound: int, dimension: int) -> ComposedLoss:
    """The exact loss of adding independent noise to `dimension` coordinates, each moved by at most
    `bound`.

    Proof that the worst movement is `bound` in every coordinate. One coordinate: let f = ln P be
    concave and s > 0. The loss f(k) - f(k+s) does not fall as k grows, so the set where it exceeds
    ε is a half-line and the hockey-stick divergence at shift s is max over t of S(t) - e^ε S(t+s),
    where S(t) = P[X >= t] falls with t. For each t this grows with s, hence so does the maximum, at
    every ε: the pair with the larger shift dominates. A negative shift is the mirror image; where
    the law is not symmetric both directions are kept, and one pair that dominates both is composed.
    Several coordinates: the joint pair is the product of independent pairs, and domination carries
    over to products (Zhu, Dong & Wang 2022, Theorem 10). A Pólya difference with r < 1 is not
    log-concave but symmetric and falling, for which `privacy_loss` proves the same.
    """
    if not largest_shift_is_worst(law):
        raise TacitError(
            f"{law!r} is not log-concave, so its worst shift is not known to be the largest: use a "
            "law with whole shares"
        )
    return ComposedLoss(((privacy_loss(law, bound), integer("dimension", dimension, at_least=1)),))


def l2_guarantee(
    law: NoiseLaw | Gaussian, bound: float, dimension: int, delta: float
) -> VectorGuarantee:
    """(ε, δ) of adding independent noise to `dimension` integer coordinates that one person moves
    by at most `bound` in l2 norm.

    Integer movements: no coordinate moves by more than ⌊bound⌋ and at most bound² coordinates move
    at all.
    """
    norm = float(
        positive("bound", bound, "the most that one person can move the vector, in l2 norm")
    )
    size = integer("dimension", dimension, at_least=1)
    level = float(probability("delta", delta))
    match law:
        case Gaussian():
            return VectorGuarantee(
                GaussianLoss(law.sigma, norm).epsilon(level),
                level,
                "exact: Gaussian mechanism (Balle & Wang 2018)",
            )
        case DiscreteGaussian():
            rho = norm**2 / (2 * float(law.sigma) ** 2)
            return VectorGuarantee(
                ConcentratedDP(rho).epsilon_at(level),
                level,
                f"{rho:.4g}-zCDP of the discrete Gaussian (CKS20 Theorem 14), CZ23 Lemma 10",
            )
        case Skellam():
            curve = (
                (order, skellam_renyi(float(law.variance), norm, size, order))
                for order in range(2, 513)
            )
            epsilon = min(renyi_epsilon(order, value, level) for order, value in curve)
            return VectorGuarantee(
                max(0.0, epsilon),
                level,
                "Rényi bound of the Skellam mechanism (Agarwal, Kairouz & Liu 2021), CZ23 Lemma 10",
            )
        case Binomial():
            return _binomial_l2(law, norm, size, level)
    raise TacitError(
        f"no joint guarantee in l2 norm is proven here for {law!r}: use Gaussian, discrete "
        "Gaussian, Skellam or binomial noise"
    )


def skellam_renyi(variance: float, l2: float, dimension: int, order: int) -> float:
    """Agarwal, Kairouz & Liu 2021, Theorem 3.5: αΔ₂²/(2v) + min(((2α-1)Δ₂² + 6Δ₁)/(4v²), 3Δ₁/(2v)),
    at integer orders.

    Δ₁ is at most √d Δ₂, and at most Δ₂² because movements are integers. In one dimension both are
    Δ₂.
    """
    l1 = min(math.sqrt(dimension) * l2, l2 * l2) if dimension > 1 else l2
    correction = min(
        ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance)
    )
    return order * l2**2 / (2 * variance) + correction


def _binomial_l2(law: Binomial, l2: float, dimension: int, delta: float) -> VectorGuarantee:
    """A Rényi bound restricted to likely outcomes, optimised over orders.

    Let E be the event that every moved coordinate's noise lies within R of its rounded mean. Then
    δ(ε) <= P[not E] + Σ_E max(0, P - e^ε Q) and the second term is at most e^{-(α-1)ε} (1-1/α)^α /
    (α-1) · Σ_E P^α Q^{1-α}, as for Rényi divergences. The sum over E is a product over coordinates
    of M(s_i) = Σ_{|k - mean| <= R} P(k)^α P(k + s_i)^{1-α}, and Σ ln M(s_i) <= Δ₂² max_s ln
    M(s)/s², because Σ s_i² <= Δ₂². Coordinates that do not move contribute nothing. A tenth of δ
    pays for P[not E].
    """
    square = (
        l2 * l2 * (1 + 1e-12)
    )  # a bound of √3 lets three coordinates move, though its float's square is below 3
    largest, moved = math.floor(math.sqrt(square)), min(dimension, math.floor(square))
    if largest < 1:
        return VectorGuarantee(0.0, delta, "an integer vector cannot move by less than 1")
    if largest > MOST_BINOMIAL_SHIFTS:
        raise TacitError(
            f"the bound {l2:g} lets a coordinate move by {largest}, more than the "
            f"{MOST_BINOMIAL_SHIFTS} shifts that are checked one "
            "by one: use a coarser precision, or Skellam noise"
        )
    reach, centre = law.bound(delta / (10 * moved)), round(law.mean)
    low, high = centre - reach, centre + reach
    how = "Rényi bound of the binomial law on likely outcomes, exact per coordinate and shift"
    if low - largest < 0 or high + largest > law.n:
        return VectorGuarantee(
            math.inf, delta, how + "; too few bits for any guarantee at this delta"
        )
    k = np.arange(low - largest, high + largest + 1)
    log_p = law.log_pmf(k)
    inner = log_p[largest : len(k) - largest]
    best = math.inf
    for order in (
        1.5,
        2,
        2.5,
        3,
        4,
        5,
        6,
        7,
        8,
        10,
        12,
        14,
        17,
        20,
        24,
        28,
        34,
        40,
        50,
        64,
        80,
        100,
    ):
        worst = 0.0
        for shift in (
            *range(1, largest + 1),
            *(() if law.symmetric and law.mean == centre else range(-largest, 0)),
        ):
            other = log_p[largest + shift : len(k) - largest + shift]
            exponents = order * inner + (1 - order) * other
            peak = float(exponents.max())
            worst = max(worst, (peak + math.log(float(np.exp(exponents - peak).sum()))) / shift**2)
        best = min(best, renyi_epsilon(order, l2 * l2 * worst / (order - 1), 0.9 * delta))
    return VectorGuarantee(max(0.0, best), delta, how)

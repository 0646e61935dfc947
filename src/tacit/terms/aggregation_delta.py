"""δ that secure aggregation and split-and-mix consume, independent of the noise."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from fractions import Fraction

from tacit.trust import MASKING_SECURITY, SHUFFLE_SECURITY, TrustModel

FORMULAS = {
    TrustModel.SHUFFLER: f"participations·metrics·(1 + e^epsilon)·2^-{SHUFFLE_SECURITY}",
    TrustModel.SECURE_AGGREGATION: f"participations·2^-{MASKING_SECURITY}",
}
"""The δ of an aggregation, as a formula for error messages."""

_STEP = Fraction(1, 2**80)
_LARGEST_EXPONENT = 60  # e^60 2^-60 > 1


def smallest_masking_delta(participations: int) -> Fraction:
    """The δ of secure aggregation by masking alone: participations·2^-40.

    A round reveals more than its sum only where too many neighbours of a participant drop out or
    are corrupted. Devices join rounds where that has a probability of at most γ = 2^-40
    (`tacit.aggregation.masking.check_withstands`). The graph is drawn whatever the answers are, so
    the event has the same probability for neighbouring data: with P = (1-γ) P₀ + γ P₁ and P₀(E) <=
    e^ε Q₀(E) + δ, P(E) <= e^ε Q(E) + δ + γ. One graph serves all metrics of a round; over the
    participations of a participant γ adds up.
    """
    return Fraction(participations, 1 << MASKING_SECURITY)


def smallest_shuffler_delta(epsilon: Fraction, participations: int, metrics: int) -> Fraction:
    """The δ of split-and-mix shares alone, rounded up to a multiple of 2^-80; 1 if it is larger.

    Shares of one metric in one round reveal only their sum up to a statistical distance of 2^-σ.
    Over all participations and metrics, that adds participations·metrics·(1 + e^ε)·2^-σ to δ
    (`tacit.protocols.split_and_mix`).
    """
    exponent = min(epsilon, Fraction(_LARGEST_EXPONENT))
    digits = Context(prec=60, rounding=ROUND_CEILING)
    power = digits.exp(digits.divide(exponent.numerator, exponent.denominator))
    factor = Fraction(digits.next_plus(power))  # exp rounds to nearest
    slack = participations * metrics * (1 + factor) / (1 << SHUFFLE_SECURITY)
    return min(Fraction(1), math.ceil(slack / _STEP) * _STEP)

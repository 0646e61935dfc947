"""The probability that a noisy sum released modulo m is misread.

Probabilities are as exact as the tails of the distribution. The error for a modulus that is too
small names one that suffices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.errors import TacitError, integer

if TYPE_CHECKING:
    from tacit.noise.distribution import NoiseDistribution


def wrap_probability(distribution: NoiseDistribution, largest_sum: int, modulus: int) -> float:
    """The largest probability, over true sums in 0..largest_sum, that sum + noise is misread after
    reduction modulo m.

    Of the m - largest_sum - 1 spare residues, τ = (m - largest_sum - 1) // 2 on either side are
    read correctly. A sum s is misread if the noise exceeds largest_sum + τ - s or falls below -τ -
    s. For a unimodal distribution with its mode within τ of 0, the maximum is at an end of the
    range. For a mode further out the result is P[|noise| > τ], an upper bound.

    Parameters
    ----------
    distribution : NoiseDistribution
        The distribution of the noise.
    largest_sum : int
        The largest true sum.
    modulus : int
        The modulus m, above `largest_sum`.

    Returns
    -------
    float
        The probability, or an upper bound on it.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> round(wrap_probability(DiscreteLaplace(1), 10, 31), 6)
    1.2e-05
    """
    top = integer("largest sum", largest_sum, at_least=0)
    m = integer("modulus", modulus, at_least=1)
    if m <= top:
        raise TacitError(
            f"modulus {m} is too small for sums up to {top}: use at least "
            f"{top + 2 * _tail_radius(distribution, 1e-9) + 1}, "
            "which overflows with probability at most 1e-9"
        )
    spare = (m - top - 1) // 2
    above, below = distribution.tail(spare), distribution.cdf(-spare - 1)
    if abs(distribution.mean) > spare:
        return min(1.0, above + below)
    return max(above + distribution.cdf(-spare - top - 1), below + distribution.tail(spare + top))


def _tail_radius(distribution: NoiseDistribution, failure: float) -> int:
    """The least τ with P[|X| > τ] <= failure, about 0 and not about the mean."""
    if distribution.symmetric and distribution.mean == 0:
        return distribution.bound(failure)
    return distribution._least(
        lambda t: t >= 0 and distribution.tail(t) + distribution.cdf(-t - 1) <= failure, 0
    )

"""`privacy_of`: the guarantee that a given noise distribution achieves.

It computes the exact privacy loss (`loss`) and composes it over participations (`composition`). It
does not choose noise; `calibration.calibrate` does.
"""

from __future__ import annotations

import math

from tacit.assumptions import DistinctRounds
from tacit.errors import TacitError, integer
from tacit.noise import NoiseDistribution
from tacit.privacy.accounting import state_drawn_arithmetic
from tacit.privacy.composition import compose_participations
from tacit.privacy.guarantees import ApproximateDP, PureDP
from tacit.privacy.loss import privacy_loss
from tacit.rounding import times_up


def privacy_of(
    distribution: NoiseDistribution,
    sensitivity: int = 1,
    delta: float | None = None,
    *,
    participations: int = 1,
) -> PureDP | ApproximateDP:
    """Return the guarantee of adding this noise to a sum; the adversary sees the noisy sum.

    Parameters
    ----------
    distribution : NoiseDistribution
        Distribution of the total noise.
    sensitivity : int
        The most that one participation changes the sum.
    delta : float, optional
        The δ to state ε at; without it the guarantee is pure.
    participations : int
        How often one participant takes part; ε covers all participations together.

    Returns
    -------
    PureDP or ApproximateDP

    Raises
    ------
    TacitError
        If the noise has no finite ε at this δ.

    Notes
    -----
    Pure losses add up over participations. Otherwise `composition.compose_participations` chooses
    the least ε among its accounting methods, and the guarantee states the method as an assumption.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> privacy_of(DiscreteLaplace(2)).short, privacy_of(DiscreteLaplace(2), delta=1e-6).short
    ('(0.5, 0)-DP', '(0.5, 1e-06)-DP')
    """
    times = integer("participations", participations, at_least=1)
    loss = privacy_loss(distribution, integer("sensitivity", sensitivity, at_least=1))
    if delta is None:
        epsilon = times_up(loss.pure, times)
        if not math.isfinite(epsilon):
            raise TacitError(f"{distribution!r} gives no pure guarantee: set delta, such as 1e-6")
        return state_drawn_arithmetic(PureDP(epsilon, participations=times), distribution)
    if times == 1:
        return state_drawn_arithmetic(
            ApproximateDP(_finite(distribution, loss.epsilon(delta), delta), delta), distribution
        )
    total = compose_participations(loss, times, delta)
    epsilon = _finite(distribution, total.best, delta)
    made = ApproximateDP(epsilon, delta, participations=times).assuming(
        total.accounting, DistinctRounds()
    )
    return state_drawn_arithmetic(made, distribution)


def _finite(distribution: NoiseDistribution, epsilon: float, delta: float) -> float:
    if not math.isfinite(epsilon):
        raise TacitError(
            f"{distribution!r} gives no guarantee at delta {delta:g}: give a larger one"
        )
    return epsilon

"""What noise that one already has promises."""

from __future__ import annotations

import math

from tacit.errors import TacitError, integer
from tacit.noise import NoiseLaw
from tacit.privacy.accounting import derived
from tacit.privacy.composition import compose_participations
from tacit.privacy.guarantees import ApproximateDP, PureDP
from tacit.privacy.loss import privacy_loss


def privacy_of(
    law: NoiseLaw, sensitivity: int = 1, delta: float | None = None, *, participations: int = 1
) -> PureDP | ApproximateDP:
    """The guarantee of adding this noise to a sum that one person moves by at most `sensitivity`,
    for whoever sees the noisy sum, of somebody who takes part so often; pure without a delta.

    >>> from tacit.noise import DiscreteLaplace
    >>> privacy_of(DiscreteLaplace(2)).short, privacy_of(DiscreteLaplace(2), delta=1e-6).short
    ('(0.5, 0)-DP', '(0.5, 1e-06)-DP')
    """
    times = integer("participations", participations, at_least=1)
    loss = privacy_loss(law, integer("sensitivity", sensitivity, at_least=1))
    if delta is None:
        epsilon = times * loss.pure
        if not math.isfinite(epsilon):
            raise TacitError(f"{law!r} promises nothing without exceptions: give a delta, as 1e-6")
        return derived(PureDP(epsilon, participations=times), law)
    if times == 1:
        return derived(ApproximateDP(_finite(law, loss.epsilon(delta), delta), delta), law)
    total = compose_participations(loss, times, delta)
    epsilon = _finite(law, total.best, delta)
    made = ApproximateDP(epsilon, delta, participations=times).given(total.accounting)
    return derived(made, law)


def _finite(law: NoiseLaw, epsilon: float, delta: float) -> float:
    if not math.isfinite(epsilon):
        raise TacitError(f"{law!r} promises nothing at a delta of {delta:g}: give a larger one")
    return epsilon

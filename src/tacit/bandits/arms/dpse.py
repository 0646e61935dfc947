"""DP-SE, the papers' central-model baseline: epochs whose lengths account for the noise.

Implements Sajed & Sheffet 2019. The protocol adds the noise (Laplace of scale 1/ε on a batch's
sum); this learner uses only ε, for its epochs and radii. It needs one independent estimate per arm:
noise shared by all arms would cancel in every comparison.
"""

from __future__ import annotations

import math

from tacit.bandits.arms.elimination import Elimination
from tacit.errors import Number, positive


class DPSE(Elimination):
    """Successive elimination in epochs e = 1, 2, ... for gaps of 2^-e.

    Every epoch uses fresh participants.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    epsilon
        The ε of the protocol's guarantee.
    failure_probability
        The failure probability β of the analysis.

    >>> DPSE(arms=2, horizon=10**6, epsilon=1.0, failure_probability=0.1).propose()[0].participants
    650

    References: Sajed & Sheffet 2019, Algorithm 2.
    """

    def __init__(
        self, arms: int, horizon: int, epsilon: Number, failure_probability: Number = 0.1
    ) -> None:
        super().__init__(arms, horizon, failure_probability, "paper")
        positive("epsilon", epsilon, "for no privacy use SuccessiveElimination")
        self.epsilon = epsilon

    def _log(self, factor: int) -> float:
        return math.log(
            factor * len(self._active) * self.round**2 / float(self.failure_probability)
        )

    def _size(self) -> int:
        gap = 2.0**-self.round
        return (
            math.floor(
                max(32 * self._log(8) / gap**2, 8 * self._log(4) / (float(self.epsilon) * gap))
            )
            + 1
        )

    def _begin(self, arm: int) -> None:
        self._sums[arm] = (0.0, 0)

    def _width(self, users: int) -> float:
        return math.sqrt(self._log(8) / (2 * users)) + self._log(4) / (users * float(self.epsilon))

"""Split and mix: secure aggregation by means of a shuffler.

Each user's `SecureSum` message is split into k random additive shares modulo m; a shuffler permutes
the shares of all users. The view is then the sum alone, up to a statistical distance of 2^-σ (Ishai
et al. 2006; Balle, Bell, Gascón & Nissim 2020). The guarantee is that of secure aggregation plus (1
+ e^ε) 2^-σ in δ. See CZ23 App. G.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.errors import TacitError
from tacit.noise import NoiseDistribution, Table
from tacit.privacy import ApproximateDP, Target, View
from tacit.privacy.guarantees import state_arithmetic
from tacit.protocols.contract import Protocol
from tacit.protocols.sums import ModularSum, SecureSum
from tacit.rounding import no_less
from tacit.sampling.coins import additive_shares
from tacit.trust import FEWEST_SPLIT, SHUFFLE_SECURITY, split_shares
from tacit.types import Aggregate, Integers

FEWEST_USERS = FEWEST_SPLIT
LARGEST = 700.0  # largest exponent that does not overflow; δ reaches 1 long before


def shuffled_guarantee(released: Target, security: int) -> ApproximateDP:
    """The guarantee of the shuffled shares, from that of the released sum: (1 + e^ε) 2^-σ more in
    δ, once per participation.
    """
    factor = math.exp(min(float(released.epsilon), LARGEST))
    slack = released.participations * (1 + factor) * 2.0**-security
    own = released.delta if isinstance(released, ApproximateDP) else 0.0
    about = released.shared_fields | {"view": View.SHUFFLED}
    mixed_up = ApproximateDP(no_less(released.epsilon), own + slack, **about)
    return state_arithmetic(mixed_up, released.arithmetic)


class SplitAndMix(ModularSum):
    """A `SecureSum` whose aggregator is a shuffler of additive shares.

    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy import PureDP
    >>> protocol = SplitAndMix(SecureSum(1000, 32, DiscreteLaplace(32), PureDP(1.0)))
    >>> protocol.shares, protocol.guarantee.short
    (18, '(1, 3.226e-18)-DP')
    """

    def __init__(self, inner: SecureSum, *, security: int = SHUFFLE_SECURITY) -> None:
        self.inner = inner
        self.participants, self.precision = inner.participants, inner.precision
        self.minimum, self.modulus, self.honest = inner.minimum, inner.modulus, inner.honest
        self.shares = split_shares(self.honest, self.modulus, security)
        self.guarantee = shuffled_guarantee(inner.guarantee, security)
        self.bits_per_participant = self.shares * (self.modulus - 1).bit_length()

    @property
    def components(self) -> Sequence[Protocol]:
        """The `SecureSum`."""
        return (self.inner,)

    def noise(self, reports: int) -> NoiseDistribution:
        """The noise of the sum."""
        return self.inner.noise(reports)

    def randomize(self, x: float) -> list[int]:
        """k additive shares: all but the last uniform."""
        return additive_shares(self.inner.randomize(x), self.shares, self.modulus)

    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Integers:
        """One row of k shares per participant; the last is unreduced, so that a simulation can
        detect wrap-around.
        """
        if self.modulus * self.shares >= 1 << 63:
            raise TacitError(
                f"modulus {self.modulus} is too large to simulate user by user: use simulate(), or "
                "a smaller batch"
            )
        totals = self.inner.randomize_batch(levels, rng)
        shares = rng.integers(0, self.modulus, size=(len(levels), self.shares - 1))
        return np.column_stack([shares, totals - shares.sum(axis=1)])

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Aggregate:
        """The sum of all shares."""
        return self.inner.combine_batch(messages.sum(axis=1), rng)

    def combine(self, messages: Any) -> Aggregate:
        """The sum of all shares modulo m, all that an honest server computes from the shuffled
        shares.
        """
        return self.inner.combine([sum(row) % self.modulus for row in messages])

    def view_distribution(self, total: int, reports: int) -> Table:
        """The sum; the shares reveal no more, up to the slack in δ."""
        return self.inner.view_distribution(total, reports)

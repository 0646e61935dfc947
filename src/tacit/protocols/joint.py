"""Several metrics of the same participants, released together under one guarantee.

A participant reports one number per metric, and each metric's sum is released by a protocol with
independent noise. To the adversary this equals one participation per metric. Given the reports, the
parts are independent, so their privacy losses compose: exactly for a pure guarantee, otherwise as
the target fixes (`tacit.privacy.accounting`). The noise of a part is therefore made for `metrics`
times as many participations. The guarantee covers all metrics together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from tacit.assumptions import DistinctRounds, MetricsPerParticipation
from tacit.errors import TacitError, integer
from tacit.noise import NoiseDistribution
from tacit.privacy import ApproximateDP, PureDP, Target
from tacit.privacy.guarantees import for_fewer, state_arithmetic
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.types import Aggregate, ErrorDistribution, Estimate, Floats, Levels

Asked = TypeVar("Asked", bound=Target)


def for_each(target: Asked, metrics: int) -> Asked:
    """The target of one metric's sum such that all metrics together meet this one.

    >>> for_each(PureDP(1.0, participations=3), 2).participations
    6
    """
    times = target.participations * integer("metrics", metrics, at_least=1)
    made: Asked = replace(target, participations=times)
    return made


class JointSums(Protocol):
    """Sums of several numbers in [0, 1] per participant, each by `part`; `part` must be made for
    the target of `for_each`.

    >>> from tacit.protocols.sums import TwoServers
    >>> part = TwoServers(100, 10, for_each(PureDP(1.0), 2))
    >>> protocol = JointSums(part, 2)
    >>> part.distribution.scale == 20, protocol.guarantee.short, protocol.guarantee.participations
    (True, '(1, 0)-DP', 1)
    """

    guarantee: Target

    def __init__(self, part: SumProtocol, metrics: int) -> None:
        self.part = part
        self.coordinates = integer("metrics", metrics, at_least=2)
        stated = part.guarantee
        if not isinstance(stated, (PureDP, ApproximateDP)) or stated.participations % metrics:
            raise TacitError(
                f"{metrics} metrics need noise for {metrics} times as many participations, the "
                f"part guarantees {stated or 'nothing'}: make it for for_each(target, {metrics})"
            )
        often = stated.participations // metrics
        kept = stated.assumptions - (frozenset() if often > 1 else {DistinctRounds()})
        covered = replace(stated, assumptions=kept).assuming(MetricsPerParticipation(metrics))
        made = for_fewer(covered, often)
        self.guarantee = state_arithmetic(made, stated.arithmetic)
        self.participants, self.minimum = part.participants, part.minimum
        self.honest, self.precision = part.honest, part.precision
        self.bits_per_participant = metrics * part.bits_per_participant

    @property
    def components(self) -> Sequence[Protocol]:
        """The protocol of one metric's sum."""
        return (self.part,)

    def randomize(self, x: Sequence[float]) -> tuple[Any, ...]:
        """One message per metric."""
        return self.report(x, 0)

    def report(self, x: Sequence[float], slot: int) -> tuple[Any, ...]:
        """One message per metric, with independent noise."""
        if np.shape(x) != (self.coordinates,):
            raise TacitError(f"the report is {x!r}: must be {self.coordinates} numbers")
        return tuple(self.part.report(number, slot) for number in x)

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sum of every metric."""
        self.check_reports(len(messages))
        sums = [self.part.combine(column) for column in zip(*messages, strict=True)]
        values, wrapped = tuple(one.value for one in sums), any(one.wrapped for one in sums)
        return Aggregate(values, len(messages), wrapped)

    def error(self, reports: int) -> ErrorDistribution:
        """The error distribution of one metric's sum; errors of the metrics are independent."""
        return self.part.error(reports)

    def analyze(self, released: Aggregate) -> Estimate:
        """The estimated sum of each metric."""
        self.check_reports(released.reports)
        if len(released.values) != self.coordinates:
            raise TacitError(
                f"{len(released.values)} numbers were released: must be {self.coordinates}, one "
                "for each metric"
            )
        return self._joined(
            [self.part.analyze(replace(released, values=(value,))) for value in released.values]
        )

    def _joined(self, made: Sequence[Estimate]) -> Estimate:
        total, wrapped = np.array([one.total for one in made]), any(one.wrapped for one in made)
        return Estimate(total, made[0].error, self.guarantee_id, wrapped)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The view distribution of one metric; metrics are independent."""
        return self.part.view_distribution(total, reports)

    def released_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The distribution of one metric's released sum."""
        return self.part.released_distribution(total, reports)

    def simulate(self, load: Sequence[Levels], rng: np.random.Generator) -> Estimate:
        """Every metric simulated with independent draws."""
        return self._joined([self.part.simulate(levels, rng) for levels in load])

    def run(self, rewards: Floats, rng: np.random.Generator) -> tuple[Estimate, float]:
        """Simulate every participant, one row each; returns the estimate and the sum of the first
        metric's rounded rewards.
        """
        made, earned = zip(*(self.part.run(column, rng) for column in rewards.T), strict=True)
        return self._joined(made), earned[0]

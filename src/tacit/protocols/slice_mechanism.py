"""The mechanism of contextual experiments: policy rounds, and the evaluation slice beside them.

A participant belongs to one round, of either kind. Rounds of policies release a statistic, rounds
of the slice the sum of one option's rewards. The guarantee of the latter implies that of the
former, which is that of the run by parallel composition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tacit.assumptions import TowardsOutsiders
from tacit.errors import TacitError
from tacit.names import is_own, name_of
from tacit.privacy import Guarantee, Guaranteed, PrivacyStatus, privacy_loss
from tacit.privacy.guarantees import state_arithmetic
from tacit.privacy.status import status_from_data, status_to_data
from tacit.protocols.contract import Protocol
from tacit.protocols.mechanism import (
    Mechanism,
    PerRound,
    check_round,
    falls_short,
    from_outside,
)
from tacit.protocols.sums import TwoServers
from tacit.types import Arm, Round

LARGEST_ROUND = 10**9  # precision grows with the size of a round, if it is not fixed
TAIL = 40.0  # probabilities below δ e^-TAIL count as loss without bound


@dataclass(frozen=True)
class SliceMechanism(Mechanism):
    """Policy rounds by one mechanism, rounds of the evaluation slice by another.

    Parameters
    ----------
    policies, slices : PerRound
        The mechanisms of both kinds of rounds; the guarantee of slices implies that of policies.
    """

    policies: PerRound
    slices: PerRound

    def __post_init__(self) -> None:
        if self.guarantee is None and self.slices.guarantee is None:
            return
        problem = "have none"
        if self.guarantee is not None:
            problem = falls_short(self.slices.guarantee, self.guarantee)
        if problem:
            raise TacitError(
                f"rounds of the slice {problem}: must imply the guarantee of policy rounds, "
                "because a participant may be in either"
            )

    @cached_property
    def privacy(self) -> PrivacyStatus:  # type: ignore[override]
        """The status of policy rounds, which slices imply, without what it says of these alone.

        The remark `TowardsOutsiders` of policy rounds is replaced by that of both kinds of rounds.
        """
        status, other = self.policies.privacy, self.slices.guarantee
        if not isinstance(status, Guaranteed) or other is None:
            return status
        stated = status.guarantee
        kept = {one for one in stated.assumptions if one.needed or one in other.assumptions}
        made = replace(stated, assumptions=frozenset({*kept, *self._outsiders(stated)}))
        return Guaranteed(state_arithmetic(made, stated.arithmetic))

    def _outsiders(self, stated: Guarantee) -> list[TowardsOutsiders]:
        """Guarantee of both servers' noise towards everybody else in rounds of either kind.

        A participant is in one round, so the weaker of both holds. The loss of slices is that of
        two draws of their noise, computed exactly at the δ of policies. Empty where slices are not
        of two servers, or have other noise in rounds of another size.
        """
        said = [one for one in stated.assumptions if isinstance(one, TowardsOutsiders)]
        sizes = (max(self.slices.smallest, 2), LARGEST_ROUND)
        small, large = (self.slices.open(Round(0, size, Arm(0))) for size in sizes)
        if not said or from_outside(self.slices):
            return []
        if not isinstance(small, TwoServers) or not isinstance(large, TwoServers):
            return []
        if (small.precision, small.distribution) != (large.precision, large.distribution):
            return []
        (policies,) = said
        floor = math.log(policies.delta) - TAIL
        loss = privacy_loss(small.noise(sizes[0]), small.precision, log_floor=floor)
        epsilon = float(loss.epsilon(policies.delta))
        return [TowardsOutsiders(max(policies.epsilon, epsilon), policies.delta)]

    @property
    def components(self) -> Sequence[Mechanism]:
        """The mechanisms of both kinds of rounds."""
        return (self.policies, self.slices)

    @property
    def smallest(self) -> int:  # type: ignore[override]
        """The smallest round of either kind."""
        return min(self.policies.smallest, self.slices.smallest)

    @property
    def metrics(self) -> int:
        """Metrics that a participant of the slice reports."""
        return self.slices.metrics

    def open(self, round_: Round) -> Protocol:
        """The protocol of a round of either kind."""
        kind = self.slices if isinstance(round_.assignment, Arm) else self.policies
        protocol = kind.open(round_)
        if not is_own(type(kind)):
            check_round(self, protocol, f"round {round_.number}")
        return protocol

    def example(self) -> Protocol | None:
        """The protocol of a small policy round."""
        return self.policies.example()

    def to_dict(self) -> dict[str, Any]:
        """Both mechanisms as plain data."""
        return {
            "mechanism": name_of(type(self)),
            "policies": self.policies.to_dict(),
            "slices": self.slices.to_dict(),
            "privacy": status_to_data(self.privacy),
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> SliceMechanism:
        """The inverse of `to_dict`."""
        made = cls(PerRound.restore(data["policies"]), PerRound.restore(data["slices"]))
        if status_from_data(data["privacy"]) != made.privacy:
            raise TacitError("the stored guarantee is not that of the rounds: it was changed")
        return made

"""Thompson sampling on devices with a linear model, from noisy histograms over corners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.bandits.contextual.confidence import LinearSet
from tacit.bandits.contextual.corner_confidence import corner_set
from tacit.bandits.contextual.corner_fit import (
    CornerFit,
    corner_prior,
    expected_plays,
    fitted_corners,
    public_corners,
)
from tacit.bandits.contextual.device_choices import CornerChoice
from tacit.bandits.contextual.expected_moments import chances, public_features
from tacit.bandits.contextual.gains import PolicyValue
from tacit.bandits.contextual.histograms import Histograms
from tacit.bandits.contextual.policy_learners import LinearPolicyLearner
from tacit.contextual.corners import layout
from tacit.contextual.policies import LinearPolicy
from tacit.types import Estimate, Floats, Round


class CornerThompson(LinearPolicyLearner):
    """Thompson sampling on devices with a linear model, from noisy histograms over corners.

    Its parameters are those of `PolicyLearner`, and it is built as `LinearThompson` is.
    """

    fit: CornerFit

    def _begin(self) -> None:
        self.fit = corner_prior(self.map)
        self._choices = []
        self._shapes: list[Floats] = []
        self._seen = Histograms.empty(layout(self.map).size)

    @property
    def counts(self) -> Histograms:
        """The released histograms of all rounds."""
        return self._seen

    def _choice(self, policy: LinearPolicy) -> CornerChoice:
        corners = layout(self.map).size
        return CornerChoice(policy.mean, policy.roots, policy.paused, 1.0, corners)

    def confidence_set(self, level: float) -> LinearSet:
        """`corner_set` of all released histograms."""
        return corner_set(self._seen, self.map, self.horizon, level)

    def _update(self, round_: Round, estimate: Estimate) -> PolicyValue:
        assignment, participants = round_.assignment, int(estimate.error.participants)
        assert isinstance(assignment, CornerChoice)
        losses, wins = np.asarray(estimate.total, dtype=float).reshape(-1, 2).T
        self._seen = self._seen.with_round(estimate.error, wins=wins, losses=losses)
        self._choose(assignment)
        self._fit()
        proxy, reach = float(self._seen.proxy[-1]), float(self._seen.reach[-1])
        return PolicyValue(float(wins.sum()), participants, proxy * len(wins), reach)

    def _choose(self, choice: CornerChoice) -> None:
        """Take in the policy of a released round."""
        picked = chances(public_features(self.map), choice)
        self._choices.append(choice)
        self._shapes.append(np.einsum("ck,ckm->cm", picked, public_corners(self.map)))

    def _fit(self) -> None:
        expected = expected_plays(self._shapes, self._seen)
        self.fit = fitted_corners(self._seen, expected, corner_prior(self.map))

    def _state(self) -> dict[str, Any]:
        choices = [one.policy.to_dict() for one in self._choices]
        return super()._state() | self._seen.to_dict() | {"choices": choices}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._seen = Histograms.from_dict(state, (layout(self.map).size,))
        for one in state["choices"]:
            self._choose(self._choice(LinearPolicy.from_dict(one)))
        if len(self._seen.people):
            self._fit()

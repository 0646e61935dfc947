"""Phased elimination for options with features, where each participant tries several options.

`FittedElimination` is DP-DPE (LZJ22 Algorithm 1) for live experiments: a phase is one round, whose
participants all try the same options and report a vector fitted to their rewards. Phases double
their participants, not the plays of each.

With the plays as rows of X, the published matrix maps rewards less ½, r, to A^(-1/2) Xᵀ r, where
A = XᵀX: the projection of r onto the plays' span, so it is at most ‖r‖ <= √N / 2 long for N plays
and nobody is clipped. Its mean is A^(1/2) θ*. A vector in a ball of radius 1 has a sub-Gaussian
variance of at most 1 in every direction (Hoeffding's lemma), however the answers of one participant
depend on each other. So intervals assume nothing but linearity of the mean answers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.assumptions import Secret
from tacit.bandits.contract import Plan
from tacit.bandits.linear.design import exact_design
from tacit.bandits.linear.options import GROWTH, OptionElimination
from tacit.bandits.linear.widths import PhaseEvidence
from tacit.errors import Number, integer, require
from tacit.types import Arm, Estimate, Floats, PlayedFit, Round

INSIDE = 1 - 1e-9  # largest length of a fitted vector
ROUNDED = 1.002  # variance of a report in every direction, with random rounding to integers
SINGULAR = 1e-9  # relative singular value below which a direction counts as not played


class FittedElimination(OptionElimination):
    """DP-DPE over options with features: one round per phase, one fitted vector per participant.

    Parameters
    ----------
    features, horizon, first, smallest, failure_probability
        As for `OptionElimination`; `first` is the number of participants of the first phase.
    plays
        How many options each participant tries, repetitions included.

    Examples
    --------
    >>> learner = FittedElimination([[1.0], [2.0], [4.0]], 1000, plays=4, first=50)
    >>> [(round_.assignment.support, round_.participants) for round_ in learner.propose()]
    [((0, 2), 50)]
    """

    secret = Secret.FITTED_PARAMETER  # all rewards of a participant, and the vector fitted to them

    def __init__(
        self,
        features: npt.ArrayLike,
        horizon: int,
        *,
        plays: int,
        first: int = 1,
        smallest: int = 1,
        failure_probability: Number = 0.05,
    ) -> None:
        super().__init__(
            features,
            horizon,
            first=first,
            smallest=smallest,
            failure_probability=failure_probability,
        )
        self.plays = integer("plays", plays, at_least=1)
        least = self.actions.shape[1]
        remedy = "the number of features and an intercept, or no participant can fit them"
        require(self.plays >= least, "plays", plays, f"at least {least}, {remedy}")

    def _plan(self) -> Plan:
        """The next phase: one round, in which everybody tries the same options."""
        left = self.horizon - self.played
        participants = max(math.ceil(self.first * GROWTH**self._phase), self.smallest)
        if len(self._active) == 1 or left < self.smallest:
            return [(Arm(self.best()), left, False)]
        return [(self._fit(), left if 2 * participants > left else participants)]

    def _fit(self) -> PlayedFit:
        """The plays of a participant, and the matrix of their fit."""
        support, counts = exact_design(self.actions[self._active], self.plays)
        options = self._active[support]
        root, _ = self._roots(options, counts)
        solve = root @ self.actions[options].T * (2 / math.sqrt(self.plays) * INSIDE)
        rows = tuple(tuple(row) for row in solve.tolist())
        return PlayedFit(tuple(options.tolist()), tuple(counts.tolist()), rows)

    def _roots(self, options: Any, counts: Any) -> tuple[Floats, Floats]:
        """A^(-1/2) and A^(-1) within the span of the plays."""
        played = self.actions[options] * np.sqrt(counts)[:, None]
        _, singular, axes = np.linalg.svd(played, full_matrices=False)
        kept = singular > SINGULAR * singular[0]
        singular, axes = singular[kept], axes[kept]
        return (axes.T / singular) @ axes, (axes.T / singular**2) @ axes

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        """Invert the map of the fit, and drop significantly worse options."""
        fit, error = round_.assignment, estimate.error
        assert isinstance(fit, PlayedFit)
        options, reports = np.array(fit.support), int(error.participants)
        root, inverse = self._roots(options, np.array(fit.plays))
        half = math.sqrt(self.plays) / 2 / INSIDE
        variance = ROUNDED / reports + float(np.max(error.proxies))
        cap = float(np.min(error.reaches)) * math.sqrt(variance)
        self._asked[options] += reports
        self._phase += 1
        theta = root @ np.asarray(estimate.mean, dtype=float) * half
        self._conclude(PhaseEvidence(theta, inverse * (variance * half**2), cap))

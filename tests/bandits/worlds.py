"""Small environments that answer any learner's rounds: arms, linear, silos.

An answer depends on nothing but the round and the generator, so that a copy of a learner can be
given the very same ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tests.bandits.harness import Distribution, Environment, estimate

from tacit.bandits import Learner
from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.environments.silos import Synthetic
from tacit.types import Design, Estimate, Floats, Round, VectorError


class Answers(Protocol):
    """An environment: the result of a round, its pseudo-regret, and that of a random choice."""

    def answer(self, round_: Round, rng: np.random.Generator) -> tuple[Estimate, float]:
        """The estimate and the regret of a round."""

    @property
    def chance(self) -> float:
        """Expected regret of a random choice, per step of the horizon."""


@dataclass(frozen=True)
class Arms:
    """Rewards of the harness with an error distribution."""

    environment: Environment
    distribution: Distribution

    def answer(self, round_: Round, rng: np.random.Generator) -> tuple[Estimate, float]:
        """A noisy sum."""
        gaps = self.environment.means.max() - self.environment.means
        lost = round_.participants * float(gaps[round_.arm])
        return estimate(round_, self.environment, self.distribution, rng), lost

    @property
    def chance(self) -> float:
        """The mean gap."""
        return float((self.environment.means.max() - self.environment.means).mean())


@dataclass(frozen=True)
class Linear:
    """Means of the played actions with Gaussian errors of the stated variance."""

    actions: Floats
    theta: Floats
    variance: float

    def answer(self, round_: Round, rng: np.random.Generator) -> tuple[Estimate, float]:
        """Noisy means."""
        design = round_.assignment
        assert isinstance(design, Design)
        plays, support = np.array(design.plays), list(design.support)
        people: Any = plays if design.each else max(1, round_.participants)
        spread = np.sqrt(self.variance + 1 / np.maximum(1, people * (1 if design.each else plays)))
        truth = self.actions @ self.theta
        means = truth[support] + spread * rng.standard_normal(len(support))
        values = (self.variance, math.inf, math.sqrt(self.variance))
        error = VectorError(people, *(np.full(len(support), value) for value in values))
        return Estimate(means * people, error), float(plays @ (truth.max() - truth[support]))

    @property
    def chance(self) -> float:
        """The mean gap."""
        truth = self.actions @ self.theta
        return float((truth.max() - truth).mean())


@dataclass(frozen=True)
class Silos:
    """Silos that follow a policy; their round is taken for as many rounds as there were."""

    environment: Synthetic
    noise: float

    def answer(self, round_: Round, rng: np.random.Generator) -> tuple[Estimate, float]:
        """A stand-in for a private prefix sum."""
        assert isinstance(round_.assignment, LinUCBPolicy)
        played = self.environment.play(round_, None, rng)
        total = (round_.number + 1) * np.asarray(played.load)
        total = total + self.noise * rng.standard_normal(len(total))
        columns = (np.full(len(total), v) for v in (self.noise**2, math.inf, self.noise))
        assert played.regret is not None
        error = VectorError(round_.participants, *columns)
        return Estimate(total, error), float(played.regret[-1])

    @property
    def chance(self) -> float:
        """Of all silos together, by 2,000 contexts."""
        rng, lost = np.random.default_rng(0), 0.0
        for _ in range(2000 // self.environment.silos):
            means = self.environment.contexts(rng) @ self.environment.parameter
            lost += float((means.max(axis=1) - means.mean(axis=1)).sum())
        return lost / (2000 // self.environment.silos)


def play_in(learner: Learner, world: Answers, rng: np.random.Generator) -> float:
    """Runs the learner to its horizon; the pseudo-regret."""
    regret = 0.0
    while rounds := learner.propose():
        for round_ in rounds:
            told, lost = world.answer(round_, rng)
            regret += lost
            if round_.released:
                learner.observe(round_, told)
            else:
                learner.skip(round_)
    return regret

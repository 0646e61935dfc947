"""Federated LinUCB on a data-independent schedule: ZC24 Algorithms 1 and 8.

`FederatedLinUCB` is the learner: every round is a synchronisation, its assignment is a
`LinUCBPolicy`, its estimate the private prefix sum over silos of all observations. `Silo` is one
silo's side, run by the silo itself: it acts for one participant after another and reports at the
end of the round. A silo's message is the output of its encoder and depends on its participants only
through it; the time of the message depends only on the round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, ndtri

from tacit.bandits.contextual import moments
from tacit.bandits.contextual.linucb import LinUCB, LinUCBPolicy
from tacit.bandits.contextual.silos import SiloLearner, SiloStatistics
from tacit.bandits.contract import Plan
from tacit.errors import TacitError, integer, positive, probability
from tacit.types import Estimate, Floats, Round

FLOOR = 1.0  # smallest eigenvalue of a repaired matrix: the non-private regularizer


class EncoderLike(Protocol):
    """A silo's side of a protocol for prefix sums."""

    def randomize(self, vector: Floats) -> Any:
        """The message to send, given the vector of this step."""

    def to_dict(self) -> dict[str, Any]:
        """The state."""

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state."""


def repair(gram: Floats, regularizer: float, floor: float = FLOOR) -> tuple[Floats, bool]:
    """λI + W with eigenvalues raised to at least `floor`, and whether any was raised.

    Noise can make W an arbitrary symmetric matrix.

    >>> repair(np.diag([5.0, -3.0]), 2.0)[1]
    True
    """
    shifted = (gram + gram.T) / 2 + regularizer * np.eye(len(gram))
    values, vectors = np.linalg.eigh(shifted)
    least = min(floor, regularizer)
    if values[0] >= least:
        return shifted, False
    return (vectors * np.maximum(values, least)) @ vectors.T, True


def reward_radius(participants: int, dimension: int, failure_probability: float) -> float:
    """β = ½ √(2 ln(3/α) + d ln(1 + n/d)): see `FederatedLinUCB.radius`."""
    seen = dimension * math.log1p(participants / dimension)
    return math.sqrt(2 * math.log(3 / failure_probability) + seen) / 2


def noise_shift(
    noise: float, dimension: int, regularizer: float, failure_probability: float
) -> float:
    """A bound on ‖λθ* - e‖, e = h - Nθ*, in one release, except with probability α/3.

    θ* is a unit vector, off-diagonal entries of N have half the variance v of the diagonal ones,
    and h has variance v. So e is normal with covariance v(3I + θ*θ*ᵀ)/2 <= 2vI. Its norm and its
    component along θ* exceed their quantiles with probability α/6 each, and ‖λθ* - e‖² = λ² -
    2λ⟨θ*, e⟩ + ‖e‖².
    """
    chance, spread = failure_probability / 6, math.sqrt(2) * noise
    length = spread * math.sqrt(float(chdtri(dimension, chance)))
    along = -spread * float(ndtri(chance))
    return math.sqrt(regularizer**2 + 2 * regularizer * along + length**2)


@dataclass(frozen=True)
class SiloRules:
    """Rules by which silos act and record between synchronisations; see `LinUCBPolicy`."""

    lazy: bool = True
    clip: bool = False
    scaled: bool = True


LAZY = SiloRules()


class FederatedLinUCB(SiloLearner):
    """LinUCB in every silo, with private sums over all silos every `sync` rounds.

    Parameters
    ----------
    regularizer, failure_probability
        λ and α. Without `noise`, β_t = √(2 ln(2/α) + d ln(1 + Mt/(dλ))) + √λ (ZC24 Lemma C.4, as
        printed: for 1-sub-Gaussian rewards).
    noise
        The standard deviation of the noise in each entry of each release; see `radius`.
    rules
        How silos act between synchronisations; by default from private sums only.

    >>> learner = FederatedLinUCB(silos=3, dimension=2, horizon=25, sync=10)
    >>> [(round_.participants, round_.time) for round_ in learner.propose()]
    [(3, 10)]
    """

    kept = ("repairs", "_bias", "_gram")

    def __init__(
        self,
        silos: int,
        dimension: int,
        horizon: int,
        sync: int,
        *,
        regularizer: float = 1.0,
        failure_probability: float = 0.01,
        rules: SiloRules = LAZY,
        noise: Sequence[float] | None = None,
    ) -> None:
        super().__init__(None, horizon)
        self.silos = integer("silos", silos, at_least=1)
        self.dimension = d = integer("dimension", dimension, at_least=1)
        self.sync = integer(
            "sync", sync, at_least=1, remedy="silos synchronise every `sync` rounds"
        )
        positive("regularizer", regularizer)
        probability("failure_probability", failure_probability, one=True)
        self.regularizer, self.failure_probability = float(regularizer), float(failure_probability)
        self.rules = rules
        self.noise = None if noise is None else tuple(map(float, noise))
        self.repairs = 0
        self._bias, self._gram = np.zeros(d), self.regularizer * np.eye(d)

    @property
    def statistics(self) -> SiloStatistics:
        """Sums of xy and xxᵀ."""
        d = self.dimension
        moved = moments.joint_sensitivity(d)
        return SiloStatistics(moments.size(d), moved, self.sync, self.rules.lazy)

    def radius(self, step: int) -> float:
        """β_t; with `noise`, the factor of the error due to rewards alone.

        Let W and b be the true sums, N and h the noise in them, V = W + λI + N, and V θ = b + h.
        For the true parameter θ*, of norm at most 1, V(θ - θ*) = Σ x η + (h - Nθ*) - λθ*. Rewards
        in [0, 1] minus their means, η, are ½-sub-Gaussian (Hoeffding). So at all times
        simultaneously, except with probability α/3, Σ x η has norm at most β = ½ √(2 ln(3/α) + d
        ln(1 + Mt/d)) with respect to (W + I)⁻¹ (Abbasi-Yadkori, Pál & Szepesvári 2011, Theorem 1).
        V exceeds W + I where λ - 1 exceeds the noise. The rest has norm at most `noise_shift`. The
        error of an action's mean is thus at most β ‖x‖ in the norm of V⁻¹ plus `noise_shift`
        ‖V⁻¹x‖. This assumes means that are linear in x, which those of rewards clipped to [0, 1]
        are not.
        """
        d, lam = self.dimension, self.regularizer
        if self.noise is not None:
            return reward_radius(self.silos * step, d, self.failure_probability)
        inside = 2 * math.log(2 / self.failure_probability) + d * math.log1p(
            self.silos * step / (d * lam)
        )
        return math.sqrt(inside) + math.sqrt(lam)

    @property
    def noise_shift(self) -> float:
        """A bound on ‖λθ* - e‖ in the last release, with e the noise in the normal equations."""
        if self.noise is None:
            return 0.0
        releases = self.played // self.sync
        last = self.noise[releases - 1] if releases else 0.0
        return noise_shift(last, self.dimension, self.regularizer, self.failure_probability)

    def best(self) -> None:
        """None: the best action depends on the context."""

    def _plan(self) -> Plan:
        """The next `sync` participants of every silo; a shorter last batch is not reported."""
        steps = min(self.sync, self.horizon - self.played)
        return [(self.policy(steps), self.silos, steps == self.sync)]

    def policy(self, steps: int) -> LinUCBPolicy:
        """The policy after the last release, for this number of steps."""
        first = self.played + 1
        radii = tuple(self.radius(step) for step in range(first, first + steps))
        gram = tuple(tuple(row) for row in self._gram.tolist())
        sums = (tuple(self._bias.tolist()), gram)
        return LinUCBPolicy(*sums, radii, **vars(self.rules), shift=self.noise_shift)

    def _learn(self, round_: Round, estimate: Estimate) -> None:  # noqa: ARG002
        """Unpack, regularise and repair the sums of a released prefix sum."""
        total = np.asarray(estimate.total, dtype=float)
        bias, gram = moments.unpack(total, self.dimension, scaled=self.rules.scaled)
        self._gram, needed = repair(gram, self.regularizer)
        self._bias = np.array(bias)
        self.repairs += needed


class Silo:
    """One silo: `start` a round, `act` and `learn` for each participant, then `report`.

    Its state, including the encoder's, is private to the silo.
    """

    def __init__(self, encoder: EncoderLike) -> None:
        self.encoder = encoder
        self._actor: LinUCB | None = None
        self._round: Round | None = None

    def start(self, round_: Round) -> None:
        """Start a proposed round; the previous one must have been reported."""
        if self._actor is not None:
            raise TacitError("the last round is not reported yet: report before the next starts")
        if not isinstance(round_.assignment, LinUCBPolicy):
            raise TacitError(
                f"round {round_.number} has no policy: pass a round that this learner proposed"
            )
        self._round, self._actor = round_, round_.assignment.start(1)

    @property
    def actor(self) -> LinUCB:
        """The decisions of the current round."""
        if self._actor is None:
            raise TacitError("no round has started: start the one that the learner proposed")
        return self._actor

    def act(self, contexts: npt.ArrayLike) -> int:
        """The index of the action, given as rows of features, for the next participant."""
        table = np.asarray(contexts, dtype=float)
        return int(self.actor.choose(self.actor.as_features(table[None]))[0])

    def learn(self, reward: float) -> None:
        """Add the reward of the last action."""
        self.actor.learn(np.array([reward], dtype=float))

    def report(self) -> Any:
        """The randomized message of this round; no other data about participants leaves the silo.

        A round that is not to be released is only ended.
        """
        packed = self.actor.report()[0]
        released = self._round is not None and self._round.released
        message = self.encoder.randomize(packed) if released else None
        self._actor = self._round = None
        return message

    def to_dict(self) -> dict[str, Any]:
        """The whole state as plain numbers."""
        return {
            "round": None if self._round is None else self._round.to_dict(),
            "actor": None if self._actor is None else self._actor.to_dict(),
            "encoder": self.encoder.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], encoder: EncoderLike) -> Silo:
        """The silo with this state; `encoder` is a fresh one of the same protocol."""
        silo = cls(encoder)
        encoder.restore(state["encoder"])
        if state["round"] is not None:
            silo.start(Round.from_dict(state["round"]))
            silo.actor.restore(state["actor"])
        return silo

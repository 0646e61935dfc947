"""Phased elimination for linear bandits: play a near-G-optimal design, estimate, drop what is
clearly worse, double.

`DistributedElimination` is DP-DPE (LZJ22 Algorithm 1): ⌈2^{αl}⌉ fresh clients of a population watch
phase l and report their average reward for every played action. `SingleElimination` is DP-PE
(Algorithm 3): every play is one person's. Learners see the means of the played actions and the law
of what a protocol added to them, nothing else, and know nothing of protocols.

Widths. `paper`: the printed ones, one for all actions. `tight`: for every pair of actions the
sub-Gaussian variance of the estimated difference, from the actual design, plays, clients and noise
(`tacit.bandits.directions`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.bandits.design import Design, Floats, Indices, largest_support, near_g_optimal
from tacit.bandits.directions import Evidence, PhaseEvidence
from tacit.checks import Number, TacitError, integer, positive, probability

SETTINGS = ("tight", "paper")
COARSE, SHARP = (
    2.0,
    1.2,
)  # g(π) over the dimension: as the paper asks, and what tight learners use once phases are long


class EstimateLike(Protocol):
    """What a protocol says of a phase (see `tacit.protocols.vectors.VectorEstimate`)."""

    @property
    def means(self) -> Floats:
        """Estimated mean rewards of the played actions."""

    @property
    def proxies(self) -> Floats:
        """Sub-Gaussian variances of the error that the protocol added to them."""

    @property
    def reaches(self) -> Floats:
        """The |t| up to which they hold."""

    @property
    def stated(self) -> float:
        """The standard deviation that goes into the paper's widths."""


@dataclass(frozen=True, eq=False)
class Phase:
    """Action `support[i]` is played `plays[i]` times, watched by `clients` fresh clients.

    Not `opened`: played out, never reported.
    """

    number: int
    length: float
    support: Indices
    plays: Indices
    clients: int
    opened: bool = True

    @property
    def rounds(self) -> int:
        """How many rounds it takes."""
        return int(self.plays.sum())


class PhasedElimination(ABC):
    """What both learners share: phases, designs, least squares, elimination."""

    first_length: float

    def __init__(
        self,
        actions: npt.ArrayLike,
        horizon: int,
        *,
        bound: float = 1.0,
        confidence: Number = 0.05,
        setting: str = "tight",
    ) -> None:
        self.actions = np.asarray(actions, dtype=float)
        self.horizon = integer("horizon", horizon, at_least=1)
        self.bound = float(positive("bound", bound, "rewards lie in [-bound, bound]"))
        self.confidence = float(
            probability(
                "confidence",
                confidence,
                "it is the probability that the best action may be dropped",
            )
        )
        if setting not in SETTINGS:
            raise TacitError(f"setting is {setting!r}; it must be one of {', '.join(SETTINGS)}")
        self.setting = setting
        self.phase = 1
        self.elapsed = 0
        self._active: Indices = np.arange(len(self.actions))
        self._evidence = Evidence(
            len(self.actions), self.actions.shape[1], self.bound, self.confidence
        )
        self._latest = np.zeros(self.actions.shape[1])
        self._pending: Phase | None = None
        self._known: tuple[float, int, Design] | None = (
            None  # the last design; active sets only shrink, so their size tells them apart
        )

    @abstractmethod
    def clients(self, phase: int) -> int:
        """How many fresh clients watch a phase (0 where every play is one person's)."""

    @abstractmethod
    def _variances(self, phase: Phase) -> Floats:
        """Sub-Gaussian variance of each played action's mean reward, from the rounds alone."""

    @abstractmethod
    def _client_variance(self, phase: Phase) -> float:
        """Variance per squared length of a direction, from sampling clients."""

    @abstractmethod
    def _paper_width(self, phase: Phase, stated: float) -> float:
        """W of the paper."""

    @property
    def active(self) -> list[int]:
        """The actions that were not dropped."""
        return [int(index) for index in self._active]

    def best(self) -> int:
        """The active action that looks best."""
        return int(self._active[int((self.actions[self._active] @ self._direction()).argmax())])

    def _direction(self) -> Floats:
        return (
            self._evidence.pooled()
            if self.setting == "tight" and self._evidence.phases
            else self._latest
        )

    def length(self, phase: int) -> float:
        """h of a phase."""
        return self.first_length * 2.0 ** (phase - 1)

    def propose(self) -> Phase | None:
        """The phase to play now; None when the horizon is reached.

        A phase that does not fit is cut short and not opened. Tight learners then play what looks
        best, as they do once one action is left.
        """
        if self._pending is not None:
            return self._pending
        left = self.horizon - self.elapsed
        if left <= 0:
            return None
        if len(self._active) == 1 and self.setting == "tight":
            self._pending = self._rest(left)
            return self._pending
        length = self.length(self.phase)
        # a sharper design needs more actions, each played at least once, which short phases cannot
        # afford
        sharp = self.setting == "tight" and length >= 2 * self.actions.shape[1]
        design = self._design(SHARP if sharp else COARSE)
        plays, support = design.plays(length), self._active[design.support]
        if int(plays.sum()) <= left:
            self._pending = Phase(self.phase, length, support, plays, self.clients(self.phase))
        elif self.setting == "tight" and self.phase > 1:
            self._pending = self._rest(left)
        else:
            before = np.concatenate([[0], np.cumsum(plays)[:-1]])
            self._pending = Phase(
                self.phase, length, support, np.clip(left - before, 0, plays), 0, opened=False
            )
        return self._pending

    def _design(self, ratio: float) -> Design:
        """A design for the active actions, kept as long as they stay the same."""
        if self._known is None or self._known[:2] != (ratio, len(self._active)):
            self._known = (
                ratio,
                len(self._active),
                near_g_optimal(self.actions[self._active], ratio=ratio),
            )
        return self._known[2]

    def _rest(self, left: int) -> Phase:
        return Phase(
            self.phase, float(left), np.array([self.best()]), np.array([left]), 0, opened=False
        )

    def skip(self, phase: Phase) -> None:
        """Notes that a phase was played but not opened."""
        self._finish(phase)

    def observe(self, phase: Phase, estimate: EstimateLike) -> None:
        """Takes a phase's estimated means, and drops actions that are clearly worse than
        another.
        """
        means = np.asarray(estimate.means, dtype=float)
        if means.shape != phase.support.shape:
            raise TacitError(
                f"the estimate has {means.size} means; phase {phase.number} played "
                f"{len(phase.support)} actions"
            )
        self._finish(phase)
        played = self.actions[phase.support]
        if self.setting == "paper":
            weights = phase.plays.astype(float)
            self._latest = _least_squares(played, weights) @ means
            worth = self.actions[self._active] @ self._latest
            self._active = self._active[
                worth.max() - worth <= 2 * self._paper_width(phase, estimate.stated)
            ]
            return
        variances = self._variances(phase) + np.asarray(estimate.proxies)
        solve = _least_squares(played, 1 / variances)
        matrix = (solve * variances) @ solve.T + self._client_variance(phase) * np.eye(
            played.shape[1]
        )
        cap = float((np.asarray(estimate.reaches) * np.sqrt(variances)).min())
        self._latest = solve @ means
        self._evidence.add(PhaseEvidence(self._latest, matrix, cap), self.actions[self._active])
        self._active = self._active[self._evidence.surviving(self.actions[self._active])]

    def _finish(self, phase: Phase) -> None:
        if self._pending is None or phase.number != self._pending.number:
            raise TacitError(
                f"phase {phase.number} is not the one that was proposed: ask propose() for it"
            )
        self._pending = None
        self.elapsed += phase.rounds
        self.phase += 1

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data. A pending phase is proposed again, the same."""
        return {
            "kind": type(self).__name__,
            "arguments": self._arguments(),
            "phase": self.phase,
            "elapsed": self.elapsed,
            "active": self._active.tolist(),
            "latest": self._latest.tolist(),
            "evidence": self._evidence.to_dict(),
        }

    def _arguments(self) -> dict[str, Any]:
        return {
            "actions": self.actions.tolist(),
            "horizon": self.horizon,
            "bound": self.bound,
            "confidence": self.confidence,
            "setting": self.setting,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PhasedElimination:
        """The learner that `to_dict` wrote down."""
        kinds = {kind.__name__: kind for kind in (DistributedElimination, SingleElimination)}
        if data.get("kind") not in kinds:
            raise TacitError(
                f"the learner {data.get('kind')!r} is unknown; known are {', '.join(kinds)}"
            )
        learner: PhasedElimination = kinds[data["kind"]](**data["arguments"])
        learner.phase, learner.elapsed = int(data["phase"]), int(data["elapsed"])
        learner._active = np.array(data["active"], dtype=np.int64)
        learner._latest = np.array(data["latest"], dtype=float)
        learner._evidence.restore(data["evidence"])
        return learner


class DistributedElimination(PhasedElimination):
    """DP-DPE. `fixed_clients` gives every phase the same number of clients (the baseline
    DPE-FixedU).

    Phases start at h₁ = 2 in the paper's setting. Tight ones start at 1: with widths that know the
    noise, clients and not rounds are what a phase lacks, and meeting them earlier saves more regret
    than it costs communication.

    >>> learner = DistributedElimination(np.eye(3), 1000, alpha=0.8, client_std=0.1)
    >>> phase = learner.propose()
    >>> phase.support.tolist(), phase.plays.tolist(), phase.clients
    ([0, 1, 2], [1, 1, 1], 2)
    """

    def __init__(
        self,
        actions: npt.ArrayLike,
        horizon: int,
        *,
        alpha: float = 0.8,
        client_std: float = 0.1,
        fixed_clients: int | None = None,
        bound: float = 1.0,
        confidence: Number = 0.05,
        setting: str = "tight",
    ) -> None:
        super().__init__(actions, horizon, bound=bound, confidence=confidence, setting=setting)
        self.first_length = 2.0 if setting == "paper" else 1.0
        if (
            isinstance(alpha, bool)
            or not isinstance(alpha, (int, float))
            or not 0 < alpha < math.inf
        ):
            raise TacitError(
                f"alpha is {alpha}; phase l samples ⌈2^(alpha·l)⌉ clients, so it must be greater "
                "than 0, such as 0.8"
            )
        if alpha * math.log2(2 * self.horizon) > 62:
            raise TacitError(
                f"alpha is {alpha} at a horizon of {self.horizon:,}; the last phase would sample "
                "2^62 clients: use a smaller alpha"
            )
        if not client_std >= 0:
            raise TacitError(f"client_std is {client_std}; a standard deviation is at least 0")
        self.alpha, self.client_std = float(alpha), float(client_std)
        self.fixed_clients = (
            None
            if fixed_clients is None
            else integer(
                "fixed_clients",
                fixed_clients,
                at_least=1,
                remedy="a phase without clients teaches nothing",
            )
        )

    def clients(self, phase: int) -> int:
        """⌈2^{αl}⌉, or the fixed number."""
        return (
            self.fixed_clients
            if self.fixed_clients is not None
            else math.ceil(2.0 ** (self.alpha * phase))
        )

    def scheduled_clients(self) -> int:
        """How many different clients all phases that fit into the horizon sample together."""
        total, elapsed, phase = 0, 0.0, 1
        while (elapsed := elapsed + self.length(phase)) <= self.horizon:
            total += self.clients(phase)
            phase += 1
        return total

    def _variances(self, phase: Phase) -> Floats:
        """Rewards within [-B, B] are B-sub-Gaussian around a client's own mean (Hoeffding's lemma);
        averaged over plays and clients.
        """
        return self.bound**2 / (phase.clients * phase.plays.astype(float))

    def _client_variance(self, phase: Phase) -> float:
        return self.client_std**2 / phase.clients

    def _paper_width(self, phase: Phase, stated: float) -> float:
        """(√(2d/(|U|h)) + σ/√|U| + 2σ_noise√(Sd)) · √(2 ln(kT)) (LZJ22 equation 3, Theorems 5.3 to
        5.5).
        """
        d = self.actions.shape[1]
        n = phase.clients
        noise = 2 * stated * math.sqrt(largest_support(d) * d)
        width = math.sqrt(2 * d / (n * phase.length)) + self.client_std / math.sqrt(n) + noise
        return width * math.sqrt(2 * math.log(len(self.actions) * self.horizon))

    def _arguments(self) -> dict[str, Any]:
        own = {
            "alpha": self.alpha,
            "client_std": self.client_std,
            "fixed_clients": self.fixed_clients,
        }
        return super()._arguments() | own


class SingleElimination(PhasedElimination):
    """DP-PE: standard linear bandits, each play by another person.

    >>> SingleElimination(np.eye(3), 1000).propose().plays.tolist()
    [6, 6, 6]
    """

    def __init__(
        self,
        actions: npt.ArrayLike,
        horizon: int,
        *,
        bound: float = 1.0,
        confidence: Number = 0.05,
        setting: str = "tight",
    ) -> None:
        super().__init__(actions, horizon, bound=bound, confidence=confidence, setting=setting)
        self.first_length = float(largest_support(self.actions.shape[1]))

    def clients(self, phase: int) -> int:  # noqa: ARG002
        """None: whoever plays reports."""
        return 0

    def _variances(self, phase: Phase) -> Floats:
        return self.bound**2 / phase.plays.astype(float)

    def _client_variance(self, phase: Phase) -> float:  # noqa: ARG002
        return 0.0

    def _paper_width(self, phase: Phase, stated: float) -> float:
        """(√(2d/h) + 2dσ√s/h) · √(2 ln(kT)), σ the standard deviation in a sum (LZJ22 equation 54,
        Table 4).
        """
        d = int(self.actions.shape[1])
        noise = 2 * d * stated * math.sqrt(len(phase.support)) / phase.length
        return (math.sqrt(2 * d / phase.length) + noise) * math.sqrt(
            2 * math.log(len(self.actions) * self.horizon)
        )


def _least_squares(played: Floats, weights: Floats) -> Floats:
    """The matrix that takes means of the played actions to the weighted least squares estimate,
    within their span.
    """
    root = np.sqrt(weights / weights.max())
    return np.asarray(np.linalg.pinv(played * root[:, None], rcond=1e-9) * root)

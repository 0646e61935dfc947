"""LinUCB for many silos at once; a single silo is a batch of one.

At a synchronisation the coordinator sends every silo a `LinUCBPolicy`: private sums, and the
confidence radius of every step until the next. `LinUCB` executes it. It maintains the inverse of
every silo's matrix by a rank-one update after each participant (not when lazy). Right after a
synchronisation, and always when lazy, all silos have the same inverse. ZC24 Algorithms 1 and 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.bandits.contextual import moments
from tacit.bandits.contextual.moments import TOLERANCE
from tacit.errors import TacitError
from tacit.types import Floats, Policy

Choices = npt.NDArray[np.int64]
CENTRE = 0.5  # midpoint of rewards in [0, 1]


@dataclass(frozen=True)
class LinUCBPolicy(Policy):
    """The policy of all silos until the next synchronisation.

    The confidence width of an action x is β ‖x‖ in the norm of V⁻¹, plus `shift` ‖V⁻¹x‖.

    Parameters
    ----------
    bias, gram
        The private bias and the private Gram matrix V, regularised and repaired.
    radii
        β of each step to come.
    lazy
        Whether silos ignore their own observations between synchronisations.
    clip
        Whether features and rewards out of bounds are clipped and counted instead of rejected.
    scaled
        As in `tacit.bandits.contextual.moments`.
    shift
        The factor of the width's second term.
    covariance
        A matrix C; the width's first term is then β √(xᵀCx).
    weight
        A weight w; silos then record w (y - ½) instead of y. This requires a constant feature.
    constant
        The value of the last feature, if it is the constant one.
    shrink
        The a of the features (a x, √(1 - a²)), where a constant feature is appended instead.
    in_turn
        Whether silos try their actions in turn, because nothing is known yet.
    """

    bias: tuple[float, ...]
    gram: tuple[tuple[float, ...], ...]
    radii: tuple[float, ...]
    lazy: bool = False
    clip: bool = False
    scaled: bool = True
    shift: float = 0.0
    covariance: tuple[tuple[float, ...], ...] | None = None
    weight: float = 0.0
    constant: float | None = None
    shrink: float | None = None
    in_turn: bool = False

    @property
    def coordinates(self) -> int:
        """The number of entries of a bias and a Gram matrix."""
        return moments.size(len(self.bias))

    @property
    def parameter(self) -> Floats:
        """The estimate of the parameter (of rewards minus ½ with a weight)."""
        return np.asarray(np.linalg.solve(np.array(self.gram), np.array(self.bias)))

    @property
    def centre(self) -> float:
        """The number subtracted from rewards: ½ with a weight, else 0."""
        return CENTRE if self.weight else 0.0

    def time(self, participants: int) -> int:  # noqa: ARG002
        """One step per participant of a silo."""
        return len(self.radii)

    def start(self, silos: int) -> LinUCB:
        """The decisions of `silos` silos."""
        return LinUCB(self, silos)


class LinUCB:
    """Decisions of all silos: `choose` and `learn` for each step, then `report` the sums."""

    def __init__(self, policy: LinUCBPolicy, silos: int = 1) -> None:
        self.policy = policy
        self.steps = len(policy.radii)
        self.step = 0
        self.clipped_rewards = self.clipped_contexts = 0
        d = len(policy.bias)
        self._base = np.array(policy.bias)
        self._common = np.asarray(np.linalg.inv(np.array(policy.gram)), dtype=float)
        self._inverses: Floats | None = None
        self._estimate = self._common @ self._base
        spread = policy.covariance
        self._covariance = None if spread is None else np.array(spread, dtype=float)
        self.bias, self.gram = np.zeros((silos, d)), np.zeros((silos, d, d))
        self._chosen: Floats | None = None
        self._product = np.empty((0, 0, 0))

    @property
    def finished(self) -> bool:
        """Whether all steps of this policy are done."""
        return self.step == self.steps and self._chosen is None

    def as_features(self, contexts: Floats, *, bounded: bool = False) -> Floats:
        """Contexts (silos × actions × dimension) as features with actions last, within bounds.

        `bounded` contexts have norm at most 1 by construction and are not checked.
        """
        silos, d = len(self.bias), self.bias.shape[1] - (self.policy.shrink is not None)
        if contexts.ndim != 3 or contexts.shape[::2] != (silos, d) or not contexts.shape[1]:
            raise TacitError(
                f"contexts have shape {contexts.shape}; {silos} silo(s) need one row of {d} "
                "features per action, like all silos"
            )
        features = contexts.transpose(0, 2, 1)
        self._check_constant(features)
        if bounded:
            return features
        squares = np.einsum("sda,sda->sa", features, features)
        if float(squares.max()) <= (1 + TOLERANCE) ** 2:
            return features
        if not self.policy.clip or not np.isfinite(squares).all():
            raise TacitError(
                f"a feature vector has norm {float(squares.max()) ** 0.5:g}; at most 1 is covered: "
                "rescale, or set clip to shrink and count"
            )
        self.clipped_contexts += int((squares > (1 + TOLERANCE) ** 2).sum())
        return np.asarray(features / np.sqrt(np.maximum(squares, 1.0))[:, None, :])

    def _check_constant(self, features: Floats) -> None:
        """Check the constant feature: rewards minus ½ are linear only with one."""
        value = self.policy.constant
        if value is None or float(np.abs(features[:, -1] - value).max()) <= TOLERANCE:
            return
        raise TacitError(
            f"the last feature is {float(features[:, -1].flat[0]):g}; it was declared to be "
            f"{value:g} for every action: leave the intercept out, and one is appended"
        )

    def with_intercept(self, features: Floats) -> Floats:
        """The features, with the appended intercept if there is one."""
        a = self.policy.shrink
        if a is None:
            return features
        constant = np.full((len(features), 1, features.shape[2]), math.sqrt(1 - a * a))
        return np.concatenate([a * features, constant], axis=1)

    def choose(self, features: Floats) -> Choices:
        """Every silo's action: the largest ⟨x, θ⟩ plus its confidence width."""
        if self._chosen is not None:
            raise TacitError("the last action's reward is missing: learn it before the next comes")
        if self.step >= self.steps:
            raise TacitError(
                f"all {self.steps} participants of this round have been served: report, and start "
                "the next round"
            )
        features = self.with_intercept(features)
        return self._take(features, self._preferred(features))

    def preferred(self, features: Floats) -> Choices:
        """The actions that `choose` would take; nothing is taken."""
        return self._preferred(self.with_intercept(features))

    def _preferred(self, lifted: Floats) -> Choices:
        if self.policy.in_turn:
            return np.full(len(lifted), self.step % lifted.shape[2])
        return np.asarray(np.argmax(self._widths(lifted) + self._values(lifted), 1))

    def estimates(self, features: Floats) -> tuple[Floats, Floats]:
        """Every action's estimated value (minus ½ with a weight) and its confidence width."""
        lifted = self.with_intercept(features)
        return self._values(lifted), self._widths(lifted)

    def _values(self, features: Floats) -> Floats:
        return np.asarray((self._estimate[..., None, :] @ features)[:, 0, :])

    def _widths(self, features: Floats) -> Floats:
        inverses = self._common if self._inverses is None else self._inverses
        around = self._times(inverses if self._covariance is None else self._covariance, features)
        widths: Floats = np.einsum("sda,sda->sa", around, features)
        np.maximum(widths, 0.0, out=widths)
        np.sqrt(widths, out=widths)
        widths *= self.policy.radii[min(self.step, self.steps - 1)]
        if self.policy.shift:
            along = around if self._covariance is None else self._times(inverses, features)
            widths += self.policy.shift * np.sqrt(np.einsum("sda,sda->sa", along, along))
        return widths

    def _times(self, matrix: Floats, features: Floats) -> Floats:
        """A matrix, or one per silo, times every silo's features; valid until the next call.

        The buffer is reused, because allocating it costs more than the product.
        """
        if matrix.ndim > 2:
            return np.asarray(matrix @ features)
        by_feature = features.transpose(1, 0, 2)  # their usual memory layout
        if self._product.shape != by_feature.shape:
            self._product = np.empty(by_feature.shape)
        rows = len(by_feature)
        np.matmul(matrix, by_feature.reshape(rows, -1), out=self._product.reshape(rows, -1))
        return self._product.transpose(1, 0, 2)

    def _take(self, features: Floats, chosen: Choices) -> Choices:
        self.step += 1
        self._chosen = features[np.arange(len(chosen)), :, chosen]
        return chosen

    def learn(self, rewards: Floats) -> None:
        """Add the rewards of the last chosen actions."""
        if self._chosen is None:
            raise TacitError("no action is waiting for a reward: act first")
        wrong = rewards[~((rewards >= 0) & (rewards <= 1))]
        outside = len(wrong)
        if outside and (not self.policy.clip or not np.isfinite(rewards).all()):
            raise TacitError(
                f"{outside} reward(s) lie outside [0, 1], such as {wrong[0]:g}: rescale "
                "them, or set clip to cut and count"
            )
        self.clipped_rewards += outside
        x, self._chosen = self._chosen, None
        within = np.clip(rewards, 0.0, 1.0)
        self.bias += x * (within - self.policy.centre)[:, None]
        self.gram += x[:, :, None] * x[:, None, :]
        if not self.policy.lazy and self.step < self.steps:
            self._update(x)

    def _update(self, x: Floats) -> None:
        """Each silo's own update with the features x of its last action (Sherman and Morrison)."""
        if self._inverses is None:
            self._inverses = np.repeat(self._common[None], len(x), axis=0)
        along = np.einsum("sde,se->sd", self._inverses, x)
        scaled = along / (1 + np.einsum("sd,sd->s", x, along))[:, None]
        self._inverses -= scaled[:, :, None] * along[:, None, :]
        self._estimate = np.einsum("sde,se->sd", self._inverses, self._base + self.bias)

    def report(self) -> Floats:
        """Every silo's sums since the synchronisation, packed: silos × entries."""
        if not self.finished:
            raise TacitError(
                f"{self.step} of {self.steps} participants have been served: the schedule is "
                "data-independent, so serve all of them first"
            )
        how = {"scaled": self.policy.scaled, "weight": self.policy.weight or 1.0}
        return moments.pack(self.bias, self.gram, **how)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """The silos' private state, to be stored by the silos only."""
        arrays = {"bias": self.bias, "gram": self.gram, "chosen": self._chosen}
        learned = {"inverses": self._inverses, "estimate": self._estimate}
        counts = {"clipped": [self.clipped_rewards, self.clipped_contexts], "step": self.step}
        lists = {k: None if v is None else v.tolist() for k, v in (arrays | learned).items()}
        return counts | lists

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_dict` returned."""
        self.step, (self.clipped_rewards, self.clipped_contexts) = state["step"], state["clipped"]
        self.bias, self.gram = np.array(state["bias"]), np.array(state["gram"])
        self._estimate = np.array(state["estimate"])
        self._chosen, self._inverses = (
            None if state[key] is None else np.array(state[key]) for key in ("chosen", "inverses")
        )

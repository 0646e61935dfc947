"""Silos that learn together: LinUCB in every silo, private sums of what all silos saw, on a
schedule that is fixed beforehand.

ZC24 Algorithm 1 (and 8, the lazy form) as two state machines without I/O. A `Silo` acts for one
user after another and reports every `sync` rounds; a `Coordinator` collects the reports and hands
private sums back. What a silo sends comes out of an encoder that it was given and depends on its
users through nothing else; when it sends depends on nothing but the round. Neither knows a
protocol: encoder and decoder only need `randomize` and `open`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from tacit.bandits import statistics
from tacit.bandits.statistics import TOLERANCE
from tacit.checks import TacitError, integer, positive, probability

Floats = npt.NDArray[np.float64]
FLOOR = (
    1.0  # least eigenvalue of a repaired matrix: the regularizer of the algorithm without privacy
)


class EncoderLike(Protocol):
    """A silo's side of a protocol for prefix sums."""

    def randomize(self, vector: Floats) -> Any:
        """What to send, given the vector of this step."""

    def to_dict(self) -> dict[str, Any]:
        """State."""

    def restore(self, state: dict[str, Any]) -> None:
        """Back to a state."""


class DecoderLike(Protocol):
    """The server's side."""

    def open(self, messages: list[Any]) -> Floats:
        """The private prefix sum, given all silos' messages of one step."""

    def to_dict(self) -> dict[str, Any]:
        """State."""

    def restore(self, state: dict[str, Any]) -> None:
        """Back to a state."""


@dataclass(frozen=True)
class Settings:
    """What every silo and the coordinator agree on before the first user comes."""

    silos: int
    dimension: int
    horizon: int
    sync: int
    regularizer: float = 1.0
    confidence: float = 0.01
    lazy: bool = False
    clip: bool = False
    scaled: bool = True  # off-diagonal entries by √2, see `tacit.bandits.statistics`

    def __post_init__(self) -> None:
        integer("silos", self.silos, at_least=1)
        integer("dimension", self.dimension, at_least=1)
        integer("horizon", self.horizon, at_least=1)
        integer("sync", self.sync, at_least=1, remedy="silos synchronise every so many rounds")
        positive("regularizer", self.regularizer)
        probability("confidence", self.confidence, one=True)

    @property
    def steps(self) -> int:
        """How many synchronisations there are: rounds after the last whole batch are played but
        never reported.
        """
        return self.horizon // self.sync

    def radius(self, round_: int) -> float:
        """β_t = √(2 ln(2/α) + d ln(1 + Mt/(dλ))) + √λ (ZC24 Lemma C.4)."""
        d, lam = self.dimension, self.regularizer
        return math.sqrt(
            2 * math.log(2 / self.confidence) + d * math.log1p(self.silos * round_ / (d * lam))
        ) + math.sqrt(lam)


@dataclass(frozen=True, eq=False)
class Sums:
    """What the coordinator hands to every silo: the private bias, and the private Gram matrix with
    λI added and repaired.
    """

    bias: Floats
    gram: Floats


def repair(gram: Floats, regularizer: float, floor: float = FLOOR) -> tuple[Floats, bool]:
    """λI + W with eigenvalues below `floor` raised to it, and whether any was: noise may have made
    W anything symmetric.

    >>> repair(np.diag([5.0, -3.0]), 2.0)[1]
    True
    """
    shifted = (gram + gram.T) / 2 + regularizer * np.eye(len(gram))
    values, vectors = np.linalg.eigh(shifted)
    least = min(floor, regularizer)
    if values[0] >= least:
        return shifted, False
    return (vectors * np.maximum(values, least)) @ vectors.T, True


class Silo:
    """One silo: `act`, `learn`, and every `sync` rounds `report` and `receive`."""

    def __init__(self, settings: Settings, encoder: EncoderLike) -> None:
        self.settings = settings
        self.encoder = encoder
        d = settings.dimension
        self.round = 0
        self.clipped = 0
        self._base, self._base_bias = settings.regularizer * np.eye(d), np.zeros(d)
        self._gram, self._bias = np.zeros((d, d)), np.zeros(d)
        self._inverse, self._estimate = self._base / settings.regularizer**2, np.zeros(d)
        self._pending: Floats | None = None
        self._waiting = False
        self._last_report = 0

    @property
    def due(self) -> bool:
        """Whether it is time to report: a matter of the round alone."""
        return (
            self.round % self.settings.sync == 0
            and self.round > self._last_report
            and self._pending is None
        )

    def act(self, contexts: npt.ArrayLike) -> int:
        """Which of the actions, given as rows of features of norm at most 1, the next user gets."""
        if self._pending is not None:
            raise TacitError(
                "the last action's reward is missing: learn it before the next user comes"
            )
        if self.due or self._waiting:
            raise TacitError(
                f"round {self.round} ends a batch: report and receive before the next user comes"
            )
        if self.round >= self.settings.horizon:
            raise TacitError(f"the horizon of {self.settings.horizon} rounds is over")
        features = self._checked(np.asarray(contexts, dtype=float))
        self.round += 1
        widths = np.sqrt(
            np.maximum(np.einsum("ad,de,ae->a", features, self._inverse, features), 0.0)
        )
        choice = int(
            np.argmax(features @ self._estimate + self.settings.radius(self.round) * widths)
        )
        self._pending = features[choice]
        return choice

    def learn(self, reward: float) -> None:
        """Takes the reward of the last action."""
        if self._pending is None:
            raise TacitError("no action is waiting for a reward: act first")
        y = float(reward)
        if not 0 <= y <= 1:
            if not self.settings.clip or math.isnan(y):
                raise TacitError(
                    f"reward is {reward}; it must lie in [0, 1]: rescale it, or set clip to cut "
                    "and count"
                )
            self.clipped += 1
            y = min(1.0, max(0.0, y))
        x, self._pending = self._pending, None
        self._bias += x * y
        self._gram += np.outer(x, x)
        if not self.settings.lazy:
            along = self._inverse @ x
            self._inverse = self._inverse - np.outer(along, along) / (1 + x @ along)
            self._estimate = self._inverse @ (self._base_bias + self._bias)

    def report(self) -> Any:
        """The randomized message of this batch; nothing else about its users ever leaves the
        silo.
        """
        if not self.due:
            raise TacitError(
                f"round {self.round} is not the end of a batch of {self.settings.sync}: the "
                "schedule is fixed, so that it says nothing"
            )
        message = self.encoder.randomize(
            statistics.pack(self._bias, self._gram, scaled=self.settings.scaled)
        )
        self._last_report, self._waiting = self.round, True
        return message

    def receive(self, sums: Sums) -> None:
        """Takes the private sums over all silos and forgets the batch."""
        if not self._waiting:
            raise TacitError("nothing was reported that these sums could answer: report first")
        if sums.gram.shape != self._gram.shape:
            raise TacitError(
                f"the sums have dimension {len(sums.bias)}, this silo {self.settings.dimension}: "
                "all silos need one dimension"
            )
        self._base, self._base_bias, self._waiting = sums.gram, sums.bias, False
        self._bias, self._gram = np.zeros_like(self._bias), np.zeros_like(self._gram)
        self._inverse = np.asarray(np.linalg.inv(self._base), dtype=float)
        self._estimate = self._inverse @ self._base_bias

    def _checked(self, features: Floats) -> Floats:
        d = self.settings.dimension
        if features.ndim != 2 or features.shape[1] != d or not len(features):
            raise TacitError(
                f"contexts have shape {features.shape}; this silo needs one row of {d} features "
                "per action, like all silos"
            )
        norms = np.linalg.norm(features, axis=1)
        outside = ~(norms <= 1 + TOLERANCE)
        if outside.any():
            if not self.settings.clip or not np.all(np.isfinite(norms)):
                raise TacitError(
                    f"a feature vector has norm {norms[outside][0]:g}; at most 1 is covered: "
                    "rescale, or set clip to shrink and count"
                )
            self.clipped += int(outside.sum())
            return np.asarray(features / np.maximum(norms, 1.0)[:, None], dtype=float)
        return features

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers: for the silo's own storage, not for anyone else."""
        return {
            "settings": asdict(self.settings),
            "round": self.round,
            "clipped": self.clipped,
            "last_report": self._last_report,
            "waiting": self._waiting,
            "base": self._base.tolist(),
            "base_bias": self._base_bias.tolist(),
            "gram": self._gram.tolist(),
            "bias": self._bias.tolist(),
            "inverse": self._inverse.tolist(),
            "estimate": self._estimate.tolist(),
            "pending": None if self._pending is None else self._pending.tolist(),
            "encoder": self.encoder.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any], encoder: EncoderLike) -> Self:
        """The silo of a state; `encoder` is a fresh one of the same protocol."""
        silo = cls(Settings(**state["settings"]), encoder)
        encoder.restore(state["encoder"])
        silo.round, silo.clipped = state["round"], state["clipped"]
        silo._last_report, silo._waiting = state["last_report"], state["waiting"]
        silo._base, silo._base_bias = np.array(state["base"]), np.array(state["base_bias"])
        silo._gram, silo._bias = np.array(state["gram"]), np.array(state["bias"])
        silo._inverse, silo._estimate = np.array(state["inverse"]), np.array(state["estimate"])
        silo._pending = None if state["pending"] is None else np.array(state["pending"])
        return silo


class Coordinator:
    """Collects one message per silo and step, opens their private sum when all are there, and makes
    it usable.
    """

    def __init__(self, settings: Settings, decoder: DecoderLike) -> None:
        self.settings = settings
        self.decoder = decoder
        self.step = 0
        self.repairs = 0
        self._messages: dict[int, Any] = {}

    def collect(self, silo: int, message: Any) -> Sums | None:
        """Takes a silo's message; the sums for all silos once the last one has arrived."""
        if not 0 <= silo < self.settings.silos:
            raise TacitError(f"silo is {silo}; they are numbered 0 to {self.settings.silos - 1}")
        if silo in self._messages:
            raise TacitError(
                f"silo {silo} has already reported in step {self.step + 1}: a message counts once"
            )
        self._messages[silo] = message
        if len(self._messages) < self.settings.silos:
            return None
        messages = [self._messages[i] for i in range(self.settings.silos)]
        opened = self.decoder.open(messages)
        self._messages = {}
        return self.publish(opened)

    def publish(self, opened: Floats) -> Sums:
        """Sums out of an opened prefix sum: unpacked, regularised, repaired."""
        self.step += 1
        bias, gram = statistics.unpack(opened, self.settings.dimension, scaled=self.settings.scaled)
        repaired, needed = repair(gram, self.settings.regularizer)
        self.repairs += needed
        return Sums(np.array(bias), repaired)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers; between steps only, when no message waits."""
        if self._messages:
            raise TacitError(
                f"{len(self._messages)} message(s) wait to be opened: messages are not stored, "
                "save between steps"
            )
        return {
            "settings": asdict(self.settings),
            "step": self.step,
            "repairs": self.repairs,
            "decoder": self.decoder.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any], decoder: DecoderLike) -> Self:
        """The coordinator of a state; `decoder` is a fresh one of the same protocol."""
        coordinator = cls(Settings(**state["settings"]), decoder)
        decoder.restore(state["decoder"])
        coordinator.step, coordinator.repairs = state["step"], state["repairs"]
        return coordinator

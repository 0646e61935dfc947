"""All silos of a federation at once: the decisions of `tacit.bandits.federated.Silo`, as batched
arrays.

The inverse of every silo's matrix is kept and updated by rank one after each user, and replaced by
one common inverse at each synchronisation. Contexts are drawn round by round; memory does not grow
with the horizon. A test holds the engine and the state machines to the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit.bandits import statistics
from tacit.bandits.federated import Coordinator, Settings, Sums
from tacit.bandits.statistics import TOLERANCE
from tacit.checks import TacitError
from tacit.environments.silos import Silos

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Synchronise = Callable[[Floats], Floats]


@dataclass
class Federation:
    """What came of a run: cumulative group regret at the checkpoints, and what had to be mended on
    the way.
    """

    checkpoints: tuple[int, ...]
    regret: tuple[float, ...]
    repairs: int
    clipped_rewards: int
    clipped_contexts: int
    choices: list[Integers] = field(default_factory=list)


def run_federation(
    settings: Settings,
    environment: Silos,
    synchronise: Synchronise,
    coordinator: Coordinator,
    rng: np.random.Generator,
    *,
    checkpoints: tuple[int, ...],
    record: bool = False,
) -> Federation:
    """Plays all rounds in all silos.

    `synchronise` takes every silo's packed statistics of a batch (silos × size) and returns the
    private prefix sum over silos; `coordinator` makes it usable. `record` keeps every choice. `rng`
    is the environment's; noise has its own.
    """
    if environment.dimension != settings.dimension or environment.silos != settings.silos:
        raise TacitError(
            f"the environment has {environment.silos} silos of dimension {environment.dimension}, "
            f"the settings say {settings.silos} of "
            f"{settings.dimension}: all silos need one dimension"
        )
    silos, d = settings.silos, settings.dimension
    fleet = _Fleet(settings)
    bias, gram = np.zeros((silos, d)), np.zeros((silos, d, d))
    marks, regret, total = iter(checkpoints), [], 0.0
    mark = next(marks)
    clipped_rewards = clipped_contexts = 0
    choices: list[Integers] = []
    everyone = np.arange(silos)
    for round_ in range(1, settings.horizon + 1):
        features, shrunk = _within_bounds(
            environment.contexts(rng).transpose(0, 2, 1), settings.clip
        )
        clipped_contexts += shrunk
        chosen = fleet.choose(features, settings.radius(round_))
        if record:
            choices.append(chosen)
        means = environment.parameter @ features
        x = features[everyone, :, chosen]
        got = means[everyone, chosen]
        total += float((means.max(axis=1) - got).sum())
        y = environment.rewards(got, rng)
        outside = int(((y < 0) | (y > 1)).sum())
        if outside and not settings.clip:
            raise TacitError(
                f"{outside} reward(s) lie outside [0, 1]: rescale them, or set clip to cut and "
                "count"
            )
        clipped_rewards += outside
        y = np.clip(y, 0.0, 1.0)
        bias += x * y[:, None]
        gram += x[:, :, None] * x[:, None, :]
        if round_ % settings.sync == 0:
            fleet.receive(
                coordinator.publish(
                    synchronise(statistics.pack(bias, gram, scaled=settings.scaled))
                )
            )
            bias[:], gram[:] = 0.0, 0.0
        elif not settings.lazy:
            fleet.learn(x, bias)
        while round_ == mark:
            regret.append(total)
            mark = next(marks, 0)
    return Federation(
        checkpoints, tuple(regret), coordinator.repairs, clipped_rewards, clipped_contexts, choices
    )


def _within_bounds(features: Floats, clip: bool) -> tuple[Floats, int]:
    """The features (silos × dimension × actions) with norms of at most 1, and how many had to be
    shrunk.
    """
    squares = np.einsum("sda,sda->sa", features, features)
    if float(squares.max()) <= (1 + TOLERANCE) ** 2:
        return features, 0
    if not clip:
        raise TacitError(
            f"a feature vector has norm {float(squares.max()) ** 0.5:g}; at most 1 is covered: "
            "rescale, or set clip to shrink and count"
        )
    norms = np.sqrt(np.maximum(squares, 1.0))
    return features / norms[:, None, :], int((squares > (1 + TOLERANCE) ** 2).sum())


class _Fleet:
    """Inverses and estimates of all silos.

    Right after a synchronisation, and always when lazy, they are one and the same.
    """

    def __init__(self, settings: Settings) -> None:
        d = settings.dimension
        self._silos = settings.silos
        self.receive(Sums(np.zeros(d), settings.regularizer * np.eye(d)))

    def receive(self, sums: Sums) -> None:
        """One inverse for everyone."""
        self._common = np.linalg.inv(sums.gram)
        self._bias = sums.bias
        self._estimate = self._common @ sums.bias
        self._inverses: Floats | None = None

    def choose(self, features: Floats, radius: float) -> Integers:
        """Every silo's action: the largest ⟨x, θ⟩ + β ‖x‖ in the norm of the inverse."""
        inverses = self._common if self._inverses is None else self._inverses
        widths = np.einsum("sda,sda->sa", inverses @ features, features)
        np.maximum(widths, 0.0, out=widths)
        np.sqrt(widths, out=widths)
        widths *= radius
        widths += (self._estimate[..., None, :] @ features)[:, 0, :]
        best: Integers = np.argmax(widths, axis=1)
        return best

    def learn(self, x: Floats, bias: Floats) -> None:
        """Each silo's own update (Sherman and Morrison) with the features x of its last action;
        `bias` is its batch so far.
        """
        if self._inverses is None:
            self._inverses = np.repeat(self._common[None], self._silos, axis=0)
        along = np.einsum("sde,se->sd", self._inverses, x)
        scaled = along / (1 + np.einsum("sd,sd->s", x, along))[:, None]
        self._inverses -= scaled[:, :, None] * along[:, None, :]
        self._estimate = np.einsum("sde,se->sd", self._inverses, self._bias + bias)

"""Simulated participants of federated silos: fresh contexts per step, linear rewards.

`Synthetic` is ZC24's instance; it samples contexts when needed and never stores them. `Ranking` is
the paper's real-data instance from an MSLR-WEB10K file: queries are participants, documents are
actions, and a lasso fit of the relevance labels is the true parameter.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from tacit.environments.contract import World
from tacit.environments.lasso import lasso
from tacit.environments.replay import LARGEST_LABEL, check_enough, check_fold, read_mslr_rows
from tacit.errors import TacitError, integer, one_of
from tacit.names import is_own
from tacit.types import Floats, Played, Policy, Round

Field = Literal["title", "body"]
# The 136 features of MSLR-WEB10K: 25 blocks of one number per stream, then 11 page features.
STREAMS = ("body", "anchor", "title", "url", "whole")
PAGE = list(range(125, 136))


class Silos(World):
    """M silos, each with one fresh participant per step; features have norm at most 1."""

    silos: int
    parameter: Floats
    deviation: float  # standard deviation of the reward's noise
    bounded: ClassVar[bool] = False  # whether features have norm at most 1 by construction

    @property
    def dimension(self) -> int:
        """The number of features per action."""
        return len(self.parameter)

    @property
    def intercept(self) -> float | None:
        """The value of the last feature, where it is declared constant over actions."""
        return None

    @abstractmethod
    def contexts(self, rng: np.random.Generator) -> Floats:
        """The features of one step: silos × actions × dimension."""

    def earned(self, chosen: Floats, means: Floats | None, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """The rewards of actions with these features and means, before clipping.

        Parameters
        ----------
        chosen : array
            Features of the chosen actions, one row per silo.
        means : array or None
            Mean rewards of these actions; None if unknown.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        array
            One reward per silo.
        """
        assert means is not None
        return self.rewards(means, rng)

    def rewards(self, means: Floats, rng: np.random.Generator) -> Floats:
        """The rewards of actions with these mean rewards, before clipping."""
        result: Floats = means + self.deviation * rng.standard_normal(len(means))
        return result

    def mean_rewards(self, features: Floats) -> Floats | None:
        """The mean reward of every action (silos × actions), given features with actions last."""
        means: Floats = self.parameter @ features
        return means

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """Every silo follows the policy for all of its steps."""
        if not isinstance(round_.assignment, Policy):
            kind = type(round_.assignment).__name__
            raise TacitError(f"assignment is a {kind}: must be a Policy. Use a contextual learner.")
        if round_.participants != self.silos:
            raise TacitError(
                f"the round has {round_.participants} participants: must be {self.silos}, one per "
                "silo."
            )
        actor = round_.assignment.start(self.silos)
        lost: list[float | None] = []
        while not actor.finished:
            lost.append(self.serve(actor, rng))
        known = [one for one in lost if one is not None]
        notes = {
            "clipped_rewards": actor.clipped_rewards,
            "clipped_contexts": actor.clipped_contexts,
        }
        reports = actor.report()
        return Played(
            reports.sum(axis=0) if protocol is None else protocol.weighted_total(reports),
            np.arange(1.0, len(lost) + 1),
            np.cumsum(known) if len(known) == len(lost) else None,
            notes=notes,
        )

    def serve(self, actor: Any, rng: np.random.Generator) -> float | None:
        """Serve one participant of every silo; return their regret, None where it is unknown."""
        everyone = np.arange(self.silos)
        bounded = self.bounded and is_own(type(self))
        features = actor.as_features(self.contexts(rng), bounded=bounded)
        chosen = actor.choose(features)
        means = self.mean_rewards(features)
        got = None if means is None else means[everyone, chosen]
        actor.learn(self.earned(features[everyone, :, chosen], got, rng))
        return None if means is None or got is None else float((means.max(axis=1) - got).sum())


@dataclass(frozen=True, eq=False)
class Synthetic(Silos):
    """The synthetic instance of ZC24 Section 6, with N(0, 0.25) reward noise.

    θ* and features are uniform on the sphere of radius 1/√2 in d - 1 dimensions, with 1/√2
    appended. θ* is fixed for a run; features are fresh for every participant. Mean rewards lie in
    [0, 1]. Noisy rewards often do not and must be clipped, which shrinks their means towards 1/2
    and preserves their order. The paper does not say whether 0.25 is the noise's variance. Here
    `deviation` is its standard deviation, 0.25 by default, as for the other papers' instances.

    >>> rng = np.random.default_rng(0)
    >>> Synthetic.draw(3, 10, 100, rng).contexts(rng).shape
    (3, 100, 10)
    """

    silos: int
    actions: int
    parameter: Floats
    deviation: float = 0.25

    @classmethod
    def draw(
        cls,
        silos: int,
        dimension: int,
        actions: int,
        rng: np.random.Generator,
        deviation: float = 0.25,
    ) -> Synthetic:
        """An instance with a random parameter."""
        remedy = "one coordinate is constant, the others are on a sphere"
        d = integer("dimension", dimension, at_least=2, remedy=remedy)
        integer("actions", actions, at_least=1)
        count, theta = integer("silos", silos, at_least=1), _sphere(rng, 1, 1, d)[0, 0]
        return cls(count, actions, theta, deviation)

    @property
    def intercept(self) -> float:
        """1/√2."""
        return math.sqrt(0.5)

    def contexts(self, rng: np.random.Generator) -> Floats:
        """Fresh features; the memory layout has actions last, as they are used."""
        return _sphere(rng, self.silos, self.actions, self.dimension)


def _sphere(rng: np.random.Generator, silos: int, actions: int, dimension: int) -> Floats:
    points = np.empty((dimension, silos, actions))
    sphere = points[:-1]
    rng.standard_normal(out=sphere)
    norms = np.einsum("dsa,dsa->sa", sphere, sphere)
    sphere /= np.sqrt(2 * norms)
    points[-1] = math.sqrt(0.5)
    return points.transpose(1, 2, 0)


@dataclass(eq=False)
class SharedDraws:
    """The participants of a synthetic instance, drawn once for several runs with the same seed.

    Drawing contexts takes most of the time of a run. Runs take turns, so that few steps are kept.
    Each run reads what it would have drawn itself: contexts and the noise of rewards alternate.
    """

    world: Synthetic
    rng: np.random.Generator
    readers: int
    _kept: deque[tuple[Floats, Floats]] = field(default_factory=deque)
    _first: int = 0  # the step of the first draw that is kept
    _at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._at = [0] * self.readers

    def reader(self, run: int) -> SharedSilos:
        """The world as one of the runs sees it."""
        own = {name: getattr(self.world, name) for name in ("silos", "actions", "parameter")}
        return SharedSilos(**own, deviation=self.world.deviation, draws=self, place=run)

    def contexts(self, run: int) -> Floats:
        """The contexts of a run's next step."""
        index = self._at[run] - self._first
        if index == len(self._kept):
            drawn = self.world.contexts(self.rng)
            drawn.flags.writeable = False
            self._kept.append((drawn, self.rng.standard_normal(self.world.silos)))
        return self._kept[index][0]

    def noise(self, run: int) -> Floats:
        """The noise of the rewards in that step, which ends it for the run."""
        found = self._kept[self._at[run] - self._first][1]
        self._at[run] += 1
        self._drop()
        return found

    def leave(self, run: int) -> None:
        """End a run and free its buffered draws."""
        self._at[run] = _NEVER
        self._drop()

    def _drop(self) -> None:
        while self._kept and min(self._at) > self._first:
            self._kept.popleft()
            self._first += 1


_NEVER = 1 << 62


@dataclass(frozen=True, eq=False)
class SharedSilos(Synthetic):
    """A synthetic instance whose participants come from `SharedDraws`."""

    bounded: ClassVar[bool] = True

    draws: SharedDraws = field(kw_only=True)
    place: int = field(kw_only=True)

    def contexts(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """The shared contexts of the next step."""
        return self.draws.contexts(self.place)

    def rewards(self, means: Floats, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """Rewards with the shared noise."""
        result: Floats = means + self.deviation * self.draws.noise(self.place)
        return result


@dataclass(frozen=True, eq=False)
class OwnSilos(Silos):
    """Silos whose contexts and rewards come from a user's own functions.

    Parameters
    ----------
    features
        `features(rng)` returns the contexts of one step: silos × actions × dimension, norms at most
        1.
    reward
        `reward(silo, x, rng)` returns the reward in [0, 1] of an action with features x.
    mean
        `mean(silo, x)` returns its mean reward; without it regret is unknown.
    constant
        The value of the last feature, if it is the same for all actions and participants.

    Examples
    --------
    >>> world = OwnSilos(
    ...     features=lambda rng: rng.uniform(0, 0.5, (3, 4, 2)),
    ...     reward=lambda silo, x, rng: float(rng.random() < x.sum()),
    ...     mean=lambda silo, x: float(x.sum()),
    ... )
    >>> world.silos, world.dimension
    (3, 2)
    """

    features: Callable[[np.random.Generator], Any]
    reward: Callable[[int, Floats, np.random.Generator], float]
    mean: Callable[[int, Floats], float] | None = None
    constant: float | None = None

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The numbers of silos and dimensions, from the shape of the contexts."""
        shape = np.shape(self.features(np.random.default_rng(0)))
        if len(shape) != 3:
            raise TacitError(f"contexts have shape {shape}: must be silos × actions × dimension.")
        return shape[0], shape[2]

    @property
    def silos(self) -> int:  # type: ignore[override]
        """The number of silos."""
        return self.shape[0]

    @property
    def dimension(self) -> int:
        """The number of features per action."""
        return self.shape[1]

    @property
    def intercept(self) -> float | None:
        """The declared constant."""
        return self.constant

    def contexts(self, rng: np.random.Generator) -> Floats:
        """The features of one step."""
        return np.asarray(self.features(rng), dtype=float)

    def mean_rewards(self, features: Floats) -> Floats | None:
        """Every action's mean reward, if known."""
        if self.mean is None:
            return None
        tables = enumerate(features.transpose(0, 2, 1))
        return np.array([[self.mean(silo, x) for x in table] for silo, table in tables])

    def earned(self, chosen: Floats, means: Floats | None, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """The rewards of the chosen actions."""
        return np.array([self.reward(silo, x, rng) for silo, x in enumerate(chosen)], dtype=float)


@dataclass(frozen=True, eq=False)
class Ranking(Silos):
    """Recorded queries divided among silos; each step every silo sees a random one of its queries.

    `queries[i]` are silo i's queries, as arrays of documents × features. Queries with fewer
    documents than others repeat their first one, which changes no decision.
    """

    queries: tuple[tuple[Floats, ...], ...]
    parameter: Floats
    deviation: float = 0.25

    @property
    def silos(self) -> int:  # type: ignore[override]
        """The number of silos."""
        return len(self.queries)

    @property
    def actions(self) -> int:
        """The largest number of documents per query."""
        return max(len(query) for silo in self.queries for query in silo)

    def contexts(self, rng: np.random.Generator) -> Floats:
        """One query per silo."""
        chosen = [silo[int(rng.integers(len(silo)))] for silo in self.queries]
        most = max(len(query) for query in chosen)
        return np.stack(
            [
                np.concatenate([query, np.repeat(query[:1], most - len(query), axis=0)])
                for query in chosen
            ]
        )


def read_ranking(
    path: Path, *, field: Field = "title", silos: int = 10, penalty: float = 1e-3
) -> Ranking:
    """ZC24's real-data instance from an MSLR-WEB10K fold file.

    There are 57 title features and 78 body features (see `columns_of`). Features are scaled to [0,
    1] by column, then to norm at most 1; labels are divided by 4. The lasso fit is θ*, scaled down
    to norm 1 where it is longer.
    """
    check_fold(path)
    columns = columns_of(field)
    labels: list[float] = []
    rows: list[Floats] = []
    members: dict[int, list[int]] = {}
    for label, query, features in read_mslr_rows(path):
        members.setdefault(query, []).append(len(rows))
        labels.append(label / LARGEST_LABEL)
        rows.append(features[columns])
    count = integer("silos", silos, at_least=1)
    check_enough(path, len(members), "queries", count, "silos")
    table = np.array(rows)
    low, high = table.min(axis=0), table.max(axis=0)
    table = (table - low) / np.where(high > low, high - low, 1.0)
    table /= max(1.0, float(np.linalg.norm(table, axis=1).max()))
    target = np.array(labels)
    parameter = lasso(table, target, penalty * float(np.abs(table.T @ target).max()) / len(table))
    parameter /= max(1.0, float(np.linalg.norm(parameter)))
    dealt: list[list[Floats]] = [[] for _ in range(count)]
    for index, documents in enumerate(members.values()):
        dealt[index % count].append(table[documents])
    return Ranking(tuple(tuple(silo) for silo in dealt), parameter)


remembered_ranking = lru_cache(maxsize=4)(read_ranking)


def columns_of(field: Field) -> npt.NDArray[np.int64]:
    """The columns, of 136, that belong to a field.

    The data set has 25 features per stream and 11 page features. The paper counts 57 title and 78
    body features without saying which. Here the title gets its stream, the page features and the
    first 21 url features. The body gets its stream, the anchor stream, the page features and the
    first 17 features of the whole document.

    >>> len(columns_of("title")), len(columns_of("body"))
    (57, 78)
    """
    one_of("field", field, get_args(Field))
    stream = {name: list(range(offset, 125, 5)) for offset, name in enumerate(STREAMS)}
    if field == "title":
        return np.array(sorted(stream["title"] + PAGE + stream["url"][:21]))
    return np.array(sorted(stream["body"] + stream["anchor"] + PAGE + stream["whole"][:17]))

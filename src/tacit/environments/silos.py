"""Where the users of federated silos come from: contexts that are fresh in every round, rewards
linear in the chosen features.

`Synthetic` is ZC24's instance; its contexts are drawn as they are needed, never stored. `Ranking`
is the paper's real-data instance, made of an MSLR-WEB10K file: queries are users, documents
actions, a lasso fit of the relevance labels the true parameter.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.environments.contract import World
from tacit.environments.lasso import lasso
from tacit.environments.replay import LARGEST_LABEL, read_mslr_rows
from tacit.errors import TacitError, integer
from tacit.types import Floats, Played, Policy, Round

Field = Literal["title", "body"]
# The 136 features of MSLR-WEB10K: 25 blocks of one number per stream, then eleven of the page as a
# whole.
STREAMS = ("body", "anchor", "title", "url", "whole")
PAGE = list(range(125, 136))


class Silos(World):
    """M silos, each with one fresh participant per step, whose actions are rows of features of norm
    at most 1.
    """

    silos: int
    parameter: Floats
    deviation: float  # of the reward's noise

    @property
    def dimension(self) -> int:
        """How many features an action has."""
        return len(self.parameter)

    @property
    def intercept(self) -> float | None:
        """The value of the last feature, where it is declared to be the same for every action."""
        return None

    @abstractmethod
    def contexts(self, rng: np.random.Generator) -> Floats:
        """One round's features: silos × actions × dimension."""

    def earned(self, chosen: Floats, means: Floats | None, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """What actions with these features and means earn, before any clipping."""
        assert means is not None
        return self.rewards(means, rng)

    def rewards(self, means: Floats, rng: np.random.Generator) -> Floats:
        """Rewards of actions with these mean rewards, before any clipping."""
        result: Floats = means + self.deviation * rng.standard_normal(len(means))
        return result

    def mean_rewards(self, features: Floats) -> Floats | None:
        """The mean reward of every action (silos × actions), given features with actions last."""
        means: Floats = self.parameter @ features
        return means

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """Every silo follows the policy for as many participants as it lasts."""
        if not isinstance(round_.assignment, Policy):
            raise TacitError("silos follow policies: use a learner of contextual bandits")
        if round_.participants != self.silos:
            raise TacitError(
                f"the environment has {self.silos} silos, the round is for {round_.participants}"
            )
        actor = round_.assignment.start(self.silos)
        everyone, lost, known = np.arange(self.silos), [], True
        while not actor.finished:
            features = actor.look(self.contexts(rng))
            chosen = actor.choose(features)
            means = self.mean_rewards(features)
            got = None if means is None else means[everyone, chosen]
            known = known and means is not None
            lost.append(0.0 if means is None else float((means.max(axis=1) - got).sum()))
            actor.learn(self.earned(features[everyone, :, chosen], got, rng))
        notes = {
            "clipped_rewards": actor.clipped_rewards,
            "clipped_contexts": actor.clipped_contexts,
        }
        reports = actor.report()
        gathered = getattr(protocol, "gathered", None)  # a round that is not opened has none
        return Played(
            reports.sum(axis=0) if gathered is None else gathered(reports),
            np.arange(1.0, len(lost) + 1),
            np.cumsum(lost) if known else None,
            notes=notes,
        )


@dataclass(frozen=True, eq=False)
class Synthetic(Silos):
    """θ* and features: uniform on the sphere of radius 1/√2 in d - 1 dimensions, with 1/√2
    appended; N(0, 0.25) noise (ZC24 Section 6).

    Mean rewards lie in [0, 1]; noisy ones often do not and are to be clipped, which shrinks them
    towards 1/2 and keeps their order. θ* is fixed for a run, features are fresh for every user. The
    paper does not say whether 0.25 is the noise's variance; `deviation` is its standard deviation,
    0.25 by default, as for the other papers' instances.

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
        d = integer(
            "dimension",
            dimension,
            at_least=2,
            remedy="one coordinate is constant, the others are on a sphere",
        )
        integer("actions", actions, at_least=1)
        return cls(
            integer("silos", silos, at_least=1), actions, _sphere(rng, 1, 1, d)[0, 0], deviation
        )

    @property
    def intercept(self) -> float:
        """1/√2."""
        return math.sqrt(0.5)

    def contexts(self, rng: np.random.Generator) -> Floats:
        """Fresh features; the memory is laid out with actions last, which is how they are used."""
        return _sphere(rng, self.silos, self.actions, self.dimension)


def _sphere(rng: np.random.Generator, silos: int, actions: int, dimension: int) -> Floats:
    points = np.empty((dimension, silos, actions))
    sphere = points[:-1]
    rng.standard_normal(out=sphere)
    norms = np.einsum("dsa,dsa->sa", sphere, sphere)
    sphere /= np.sqrt(2 * norms)
    points[-1] = math.sqrt(0.5)
    return points.transpose(1, 2, 0)


@dataclass(frozen=True, eq=False)
class OwnSilos(Silos):
    """Silos of your own: `features(rng)` are a step's contexts (silos × actions × dimension, norms
    of at most 1), `reward(silo, x, rng)` what an action with features x earns, in [0, 1].

    Regret is known if `mean(silo, x)` is given. `constant` is the value of the last feature, if it
    is the same for every action and everybody.
    """

    features: Callable[[np.random.Generator], Any]
    reward: Callable[[int, Floats, np.random.Generator], float]
    mean: Callable[[int, Floats], float] | None = None
    constant: float | None = None

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Silos and dimension, as the contexts have them."""
        shape = np.shape(self.features(np.random.default_rng(0)))
        if len(shape) != 3:
            raise TacitError(f"contexts have shape {shape}; give silos × actions × dimension")
        return shape[0], shape[2]

    @property
    def silos(self) -> int:  # type: ignore[override]
        """How many silos there are."""
        return self.shape[0]

    @property
    def dimension(self) -> int:
        """How many features an action has."""
        return self.shape[1]

    @property
    def intercept(self) -> float | None:
        """As declared."""
        return self.constant

    def contexts(self, rng: np.random.Generator) -> Floats:
        """One step's features."""
        return np.asarray(self.features(rng), dtype=float)

    def mean_rewards(self, features: Floats) -> Floats | None:
        """Every action's mean, if known."""
        if self.mean is None:
            return None
        tables = enumerate(features.transpose(0, 2, 1))
        return np.array([[self.mean(silo, x) for x in table] for silo, table in tables])

    def earned(self, chosen: Floats, means: Floats | None, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """What the chosen actions earn."""
        return np.array([self.reward(silo, x, rng) for silo, x in enumerate(chosen)], dtype=float)


@dataclass(frozen=True, eq=False)
class Ranking(Silos):
    """Recorded queries, dealt out to the silos; each round every silo sees one of its queries,
    drawn at random.

    `queries[i]` are silo i's queries, as arrays of documents × features. Queries with fewer
    documents than others repeat their first one, which changes no decision.
    """

    queries: tuple[tuple[Floats, ...], ...]
    parameter: Floats
    deviation: float = 0.25

    @property
    def silos(self) -> int:  # type: ignore[override]
        """How many silos there are."""
        return len(self.queries)

    @property
    def actions(self) -> int:
        """The most documents of a query."""
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

    Title features number 57 and body features 78 (see `columns_of`). Features are scaled to [0, 1]
    by column, then to norm at most 1; labels are divided by 4. The lasso fit is θ*, shrunk to norm
    1 where it exceeds it.
    """
    if not path.exists():
        raise TacitError(
            f"{path} does not exist: download MSLR-WEB10K (see docs/data.md) and give a fold file, "
            "such as Fold1/train.txt"
        )
    columns = columns_of(field)
    labels: list[float] = []
    rows: list[Floats] = []
    members: dict[int, list[int]] = {}
    for label, query, features in read_mslr_rows(path):
        members.setdefault(query, []).append(len(rows))
        labels.append(label / LARGEST_LABEL)
        rows.append(features[columns])
    count = integer("silos", silos, at_least=1)
    if len(members) < count:
        raise TacitError(
            f"{path.name} has {len(members)} queries, fewer than {count} silos: use fewer silos or "
            "a larger file"
        )
    table = np.array(rows)
    low, high = table.min(axis=0), table.max(axis=0)
    table = (table - low) / np.where(high > low, high - low, 1.0)
    table /= max(1.0, float(np.linalg.norm(table, axis=1).max()))
    parameter = lasso(
        table,
        np.array(labels),
        penalty * float(np.abs(table.T @ np.array(labels)).max()) / len(table),
    )
    parameter /= max(1.0, float(np.linalg.norm(parameter)))
    dealt: list[list[Floats]] = [[] for _ in range(count)]
    for index, documents in enumerate(members.values()):
        dealt[index % count].append(table[documents])
    return Ranking(tuple(tuple(silo) for silo in dealt), parameter)


remembered_ranking = lru_cache(maxsize=4)(read_ranking)


def columns_of(field: Field) -> npt.NDArray[np.int64]:
    """Which of the 136 columns belong to a field.

    The data set has 25 features per stream and 11 of the page. The paper counts 57 title and 78
    body features without saying which; here the title gets its stream, the page's, and the first 21
    of the url; the body its stream, the anchor's, the page's, and the first 17 of the whole
    document.

    >>> len(columns_of("title")), len(columns_of("body"))
    (57, 78)
    """
    if field not in ("title", "body"):
        raise TacitError(f"field is {field!r}; it must be title or body")
    stream = {name: list(range(offset, 125, 5)) for offset, name in enumerate(STREAMS)}
    if field == "title":
        return np.array(sorted(stream["title"] + PAGE + stream["url"][:21]))
    return np.array(sorted(stream["body"] + stream["anchor"] + PAGE + stream["whole"][:17]))

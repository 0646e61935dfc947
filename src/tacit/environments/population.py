"""Linear rewards: a population of clients with individual parameters, or one shared parameter.

`Population` (LZJ22 Section 2): client u has θ_u = θ* + ξ_u and observes ⟨θ_u, x⟩ + η in every
round. Each coordinate of ξ_u is a fair sign times `client_std`, the extreme σ-sub-Gaussian vector
of covariance σ²I; η is a fair sign times `reward_std`. Both are bounded, so rewards stay within the
bound without clipping. Sums of both are binomial, so the sum over any number of clients is sampled
at once, with exactly its distribution. `SharedParameter` (LZJ22 Appendix C): all participants have
θ*, and rewards are ±B with mean ⟨θ*, x⟩.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.environments.contract import World
from tacit.errors import TacitError, integer, positive, require
from tacit.types import Codec, Design, Fit, Floats, Integers, Played, Round

CHUNK = 1 << 20  # simulated reports held in memory at a time
NOISE_SHARE = 0.2  # reward noise of a random instance, relative to the bound


def check_actions(actions: npt.ArrayLike) -> Floats:
    """Actions as an array, one per row; rejected unless finite, distinct and in the unit ball."""
    table = np.array(actions, dtype=float)
    if table.ndim != 2 or len(table) < 2 or table.shape[1] < 1 or not np.isfinite(table).all():
        raise TacitError(
            f"actions have shape {table.shape}: must be a table of finite numbers with two or more "
            "rows, one action per row."
        )
    lengths = np.linalg.norm(table, axis=1)
    far = int(lengths.argmax())
    if lengths[far] > 1 + 1e-9:
        raise TacitError(
            f"action {far} has length {lengths[far]:.4g}: must lie in the unit ball. Divide all "
            f"actions by {lengths[far]:.4g}."
        )
    order = np.lexsort(table.T)
    same = np.flatnonzero((np.diff(table[order], axis=0) == 0).all(axis=1))
    if len(same):
        first, second = sorted((int(order[same[0]]), int(order[same[0] + 1])))
        raise TacitError(
            f"actions {first} and {second} are the same: must be distinct. Leave one of them out."
        )
    return table


def check_schedule(clients: int, population: int | None) -> None:
    """Reject schedules that sample more clients than the population has."""
    if population is not None and clients > population:
        raise TacitError(
            f"the phases sample {clients:,} different clients: must be at most {population:,}, the "
            "population. Use a smaller alpha, a shorter horizon, or a larger population."
        )


class LinearWorld(World):
    """Options are actions in the unit ball; the regret of a design is deterministic."""

    actions: Floats
    theta: Floats
    bound: float

    @cached_property
    def means(self) -> Floats:
        """⟨θ*, x⟩ for every action."""
        return np.asarray(self.actions @ self.theta)

    @cached_property
    def gaps(self) -> Floats:
        """The suboptimality gap of each action."""
        return float(self.means.max()) - self.means

    @abstractmethod
    def load(self, design: Design, participants: int, rng: np.random.Generator) -> Any:
        """The reports of the participants of a design."""

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """Play a design, one action after the other."""
        design = round_.assignment
        if not isinstance(design, Design):
            kind = type(design).__name__
            raise TacitError(f"assignment is a {kind}: must be a Design. Use a linear learner.")
        plays = np.array(design.plays)
        regret = np.cumsum(plays * self.gaps[np.array(design.support)])
        load = None if protocol is None else self.load(design, round_.participants, rng)
        return Played(load, np.cumsum(plays), regret)


@dataclass(frozen=True, eq=False)
class ObservedAverages:
    """The reports of clients who observed a design."""

    population: Population
    support: Integers
    plays: Integers
    clients: int

    def total(self, rng: np.random.Generator) -> Floats:
        """Their sum, sampled at once."""
        return self.population.total(self.support, self.plays, self.clients, rng)

    def level_sums(self, codec: Codec, rng: np.random.Generator) -> Integers:
        """The sums of their levels, client by client, in chunks."""
        totals = np.zeros(len(self.support), dtype=np.int64)
        for rows in self.population.reports(self.support, self.plays, self.clients, rng):
            totals += codec.levels(rows, rng).sum(axis=0)
        return totals


@dataclass(frozen=True, eq=False)
class ClippedFits(ObservedAverages):
    """The parameters that clients fit, clipped to a ball, client by client."""

    fit: Fit

    def total(self, rng: np.random.Generator) -> Floats:
        """Their sum."""
        return np.asarray(sum(rows.sum(axis=0) for rows in self._vectors(rng)))

    def level_sums(self, codec: Codec, rng: np.random.Generator) -> Integers:
        """The sums of their levels."""
        sums = (codec.levels(rows, rng).sum(axis=0) for rows in self._vectors(rng))
        return np.asarray(sum(sums))

    def _vectors(self, rng: np.random.Generator) -> Iterator[Floats]:
        chunks = self.population.reports(self.support, self.plays, self.clients, rng)
        return (self.fit.reported(rows) for rows in chunks)


@dataclass(frozen=True, eq=False)
class Population(LinearWorld):
    """Clients with individual parameters around θ*; every phase samples fresh ones.

    `size` is the number of clients, None for no limit.

    >>> theta = np.array([0.5, 0.2])
    >>> plane = Population(np.eye(2), theta, client_std=0.1, reward_std=0.2, bound=1.0)
    >>> plane.total(np.array([0, 1]), np.array([3, 1]), 1000, np.random.default_rng(0)).round(1)
    array([505. , 198.2])
    """

    actions: Floats
    theta: Floats
    client_std: float
    reward_std: float
    bound: float
    size: int | None = None

    def __post_init__(self) -> None:
        check_actions(self.actions)
        if self.theta.shape != (self.actions.shape[1],):
            raise TacitError(
                f"theta has shape {self.theta.shape}: must have {self.actions.shape[1]} "
                "coordinates, as the actions have."
            )
        if float(np.linalg.norm(self.theta)) > 1 + 1e-9:
            raise TacitError(
                f"theta has length {np.linalg.norm(self.theta):.4g}: must lie in the unit ball. "
                "Scale it down."
            )
        positive("bound", self.bound, "rewards lie in [-bound, bound]")
        if not (self.client_std >= 0 and self.reward_std >= 0):
            raise TacitError(
                f"client_std is {self.client_std} and reward_std is {self.reward_std}: must be "
                "at least 0."
            )
        if self.size is not None:
            integer("population", self.size, at_least=1)
        reach = self.reach
        if reach > self.bound * (1 + 1e-9):
            raise TacitError(
                f"rewards reach {reach:.4g}, beyond the bound of {self.bound:g}. Use a larger "
                "bound, a smaller client_std or reward_std, or a shorter theta."
            )

    @property
    def reach(self) -> float:
        """The largest absolute reward that any client can observe."""
        deviation = self.client_std * np.abs(self.actions).sum(axis=1)
        return float((np.abs(self.means) + deviation).max()) + self.reward_std

    def load(self, design: Design, participants: int, rng: np.random.Generator) -> ObservedAverages:  # noqa: ARG002
        """Fresh clients who observe the design, and fit a parameter if it is a `Fit`."""
        about = (self, np.array(design.support), np.array(design.plays), participants)
        return ClippedFits(*about, design) if isinstance(design, Fit) else ObservedAverages(*about)

    def total(
        self, support: Integers, plays: Integers, clients: int, rng: np.random.Generator
    ) -> Floats:
        """The sum over fresh clients of their average reward per action, sampled at once.

        The numbers of positive signs are binomial.
        """
        signs = 2 * rng.binomial(clients, 0.5, self.actions.shape[1]) - clients
        rounds = clients * plays
        noise = (2 * rng.binomial(rounds, 0.5) - rounds) / plays
        played = self.actions[support]
        return np.asarray(
            clients * self.means[support]
            + self.client_std * (played @ signs)
            + self.reward_std * noise
        )

    def reports(
        self, support: Integers, plays: Integers, clients: int, rng: np.random.Generator
    ) -> Iterator[Floats]:
        """Each client's average reward per action, one row per client, in chunks."""
        played, step = self.actions[support], max(1, CHUNK // len(support))
        below = self.means[support] - self.client_std * played.sum(axis=1)
        for start in range(0, clients, step):
            size = min(step, clients - start)
            above = rng.integers(0, 2, (size, len(self.theta)), dtype=np.int8).astype(float)
            noise = (2 * rng.binomial(plays, 0.5, (size, len(support))) - plays) / plays
            yield below + above @ (2 * self.client_std * played.T) + self.reward_std * noise


@dataclass(frozen=True, eq=False)
class SignReports:
    """The reports of participants who each played one option once and observed ±B."""

    ups: int
    plays: int
    bound: float

    def total(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """Their sum."""
        return np.array([(2 * self.ups - self.plays) * self.bound])

    def level_sums(self, codec: Codec, rng: np.random.Generator) -> Integers:  # noqa: ARG002
        """±B are the lowest and highest level: no rounding is needed."""
        return np.array([self.ups * codec.precision])


@dataclass(frozen=True, eq=False)
class SharedParameter(LinearWorld):
    """Participants who share θ*: each plays one action once and observes ±bound, of mean ⟨θ*, x⟩.

    >>> plane = SharedParameter(np.eye(2), np.array([0.5, 0.2]), bound=1.0)
    >>> plane.successes(np.array([0, 1]), np.array([1000, 10]), np.random.default_rng(0))
    array([731,   9])
    """

    actions: Floats
    theta: Floats
    bound: float

    def __post_init__(self) -> None:
        check_actions(self.actions)
        positive("bound", self.bound, "rewards lie in [-bound, bound]")
        largest = float(np.abs(self.means).max())
        if largest > self.bound * (1 + 1e-9):
            raise TacitError(
                f"mean rewards reach {largest:.4g}, beyond the bound of {self.bound:g}. Use a "
                "larger bound, or a shorter theta."
            )

    def load(
        self,
        design: Design,
        participants: int,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> list[SignReports]:
        """Sample the sum of rewards of each option."""
        plays = np.array(design.plays)
        ups = self.successes(np.array(design.support), plays, rng)
        rows = zip(ups.tolist(), plays.tolist(), strict=True)
        return [SignReports(up, count, self.bound) for up, count in rows]

    def successes(self, support: Integers, plays: Integers, rng: np.random.Generator) -> Integers:
        """Number of participants that observed +bound, per action."""
        chances = np.clip((1 + self.means[support] / self.bound) / 2, 0.0, 1.0)
        return np.asarray(rng.binomial(plays, chances))


def random_population(
    dimension: int,
    actions: int,
    *,
    client_std: float,
    bound: float,
    rng: np.random.Generator,
    size: int | None = None,
    cover: float | None = None,
) -> Population:
    """Actions uniform on the unit sphere; θ* in a uniform direction, of norm at most 1.

    θ* is as long as the bound allows, and reward noise takes a fifth of the bound. LZJ22 Section 7
    states d, k, σ and the population, but not how θ* and the actions are drawn.
    """
    table, direction = _sphere(dimension, actions, rng, cover)
    reward_std = NOISE_SHARE * bound
    room = bound - reward_std - client_std * np.abs(table).sum(axis=1)
    below = f"below {(bound - reward_std) / math.sqrt(dimension):.3g} in {dimension} dimensions"
    rule = f"{below}, at a bound of {bound:g}. Or use a larger bound."
    require(room.min() > 0, "client_std", f"{client_std:g}", rule)
    with np.errstate(divide="ignore"):
        length = min(1.0, float((room / np.abs(table @ direction)).min()))
    return Population(table, length * (1 - 1e-12) * direction, client_std, reward_std, bound, size)


def random_shared(
    dimension: int,
    actions: int,
    *,
    bound: float,
    rng: np.random.Generator,
    cover: float | None = None,
) -> SharedParameter:
    """Actions uniform on the unit sphere, θ* uniform on the sphere of radius min(1, bound)."""
    table, direction = _sphere(dimension, actions, rng, cover)
    return SharedParameter(table, min(1.0, bound) * direction, bound)


def covering(dimension: int, distance: float) -> Floats:
    """A finite covering of the unit ball: every point is within `distance` of one of these.

    For continuous action sets (LZJ22 Remark 3.1): playing the nearest point instead of the best
    action costs at most `distance` · ‖θ*‖ per round. The covering is a cubic grid of spacing 2 ·
    distance / √d, so every point is within `distance` of its nearest grid point. Grid points
    outside the ball are moved to its surface, which moves them no farther from points inside it.

    >>> len(covering(2, 0.5)), round(float(np.linalg.norm(covering(2, 0.5), axis=1).max()), 9)
    (13, 1.0)
    """
    size = integer("dimension", dimension, at_least=1)
    reach = float(positive("distance", distance, "how far an action may be from its stand-in"))
    step = 2 * reach / math.sqrt(size)
    side = math.ceil(1 / step)
    if (2 * side + 1) ** size > 5_000_000:
        raise TacitError(
            f"a covering of the {size}-dimensional ball at distance {reach:g} needs up to "
            f"{(2 * side + 1) ** size:,} points. Use a larger distance, or list the actions."
        )
    axis = step * np.arange(-side, side + 1)
    grid = np.stack(np.meshgrid(*[axis] * size, indexing="ij"), axis=-1).reshape(-1, size)
    lengths = np.linalg.norm(grid, axis=1)
    near = lengths <= 1 + reach  # points farther out cover no part of the ball
    points = grid[near] / np.maximum(1.0, lengths[near])[:, None]
    return np.unique(points.round(12), axis=0)


def _sphere(
    dimension: int, actions: int, rng: np.random.Generator, cover: float | None
) -> tuple[Floats, Floats]:
    size = integer(
        "dimension", dimension, at_least=2, remedy="in one dimension there are only two directions"
    )
    count = integer("actions", actions, at_least=2)
    table = rng.standard_normal((count, size))
    table /= np.linalg.norm(table, axis=1)[:, None] * (1 + 1e-12)
    direction = rng.standard_normal(size)
    chosen = table if cover is None else covering(size, cover) / (1 + 1e-12)
    return chosen, direction / np.linalg.norm(direction)

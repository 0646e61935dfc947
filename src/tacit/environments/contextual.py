"""Environments of contextual experiments: participants with a context, and rewards by option.

A world knows the context of every simulated participant; devices choose by the round's policy, and
only the sums of their statistics go to the protocol. `LinearContexts` has rewards that are linear
in the code of the context, with one coefficient vector per option. `SegmentContexts` has one mean
per segment and option. `ContextFunction` calls a user's own function.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.contextual.feature_maps import (
    BoundedNumber,
    Category,
    FeatureMap,
    Fields,
    Matrices,
    code_size,
    interactions,
    placed,
)
from tacit.environments.callables import check_rewards
from tacit.environments.contract import FINE, World
from tacit.errors import TacitError, require
from tacit.protocols.contract import rounded
from tacit.protocols.statistic_sums import StatisticTotals
from tacit.protocols.statistics import Answers
from tacit.types import Arm, DeviceChoice, Floats, Integers, Levels, Played, Round

CHUNK = 1 << 16  # participants simulated at once
BLOCK = 1 << 12  # participants whose features fit into the processor's cache
SAMPLE = 20_000  # contexts on which an instance's means and its best single option are computed


@dataclass(frozen=True, eq=False)
class Codes:
    """Participants by the codes of their contexts, and the map of their features."""

    codes: Floats
    map: FeatureMap

    @cached_property
    def features(self) -> npt.NDArray[np.float32]:
        """Participants × options × dimensions, as multiples of 1/resolution."""
        table = np.array(self.map.matrices) * self.map.resolution  # options, dimensions, code
        count, (options, d, size) = len(self.codes), table.shape
        rows = table.reshape(-1, size).T
        rounded = np.empty((count, options * d), dtype=np.float32)
        for start in range(0, count, BLOCK):
            exact = self.codes[start : start + BLOCK] @ rows
            exact += 0.5
            np.floor(exact, out=rounded[start : start + BLOCK])
        return rounded.reshape(count, options, d)

    @cached_property
    def segments(self) -> Integers:
        """The combination of categories, the last field fastest."""
        place = np.zeros(len(self.codes), dtype=np.int64)
        for one, start in placed(self.map.fields):
            columns = self.codes[:, start : start + one.size]
            place = place * one.size + columns.argmax(axis=1)
        return place


class ContextualWorld(World):
    """Simulated participants with contexts.

    Attributes
    ----------
    fields : tuple of Category or BoundedNumber
        The context.
    names : tuple of str
        The options.
    matrices : tuple
        Matrices of the public features, of any scale; see `tacit.contextual.FeatureMap`.
    features : FeatureMap or None
        The features in the coordinates that devices use; an algorithm sets them with `mapped`.
    binary : bool
        Whether all rewards are 0 or 1.
    """

    fields: Fields
    names: tuple[str, ...]
    matrices: Matrices
    features: FeatureMap | None
    binary: bool

    def __post_init__(self) -> None:
        if not self.matrices:  # of a dataclass whose matrices are optional
            object.__setattr__(self, "matrices", interactions(self.fields, self.names))

    @abstractmethod
    def codes(self, count: int, rng: np.random.Generator) -> Floats:
        """The codes of fresh participants, one row each."""

    @abstractmethod
    def expected(self, codes: Floats) -> Floats | None:
        """The mean reward of every option, participants × options; None if unknown."""

    @abstractmethod
    def rewards(
        self, codes: Floats, options: npt.NDArray[np.intp], rng: np.random.Generator
    ) -> Floats:
        """The rewards in [0, 1] of participants who get these options.

        Parameters
        ----------
        codes : array
            Codes of the participants' contexts, one row each.
        options : array of int
            The option that each participant gets.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        array
            One reward in [0, 1] per participant.
        """

    def mapped(self, features: FeatureMap) -> Self:
        """The same world with these features; a world that is no dataclass overrides it."""
        return replace(self, features=features)  # type: ignore[type-var]

    @cached_property
    def single_option_regret(self) -> tuple[float, float] | None:
        """Regret per participant of the best option for everybody, and of uniform choice.

        None if means are unknown.
        """
        means = self.expected(self.codes(SAMPLE, np.random.default_rng(0)))
        if means is None:
            return None
        best = float(means.max(axis=1).mean())
        return best - float(means.mean(axis=0).max()), best - float(means.mean())

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """Devices choose by the policy, or get the option of the evaluation slice."""
        assignment = round_.assignment
        if not isinstance(assignment, (Arm, DeviceChoice)) or self.features is None:
            raise TacitError(
                f"assignment is a {type(assignment).__name__}: must be a policy that devices "
                "follow. "
                "Use a contextual algorithm."
            )
        totals = RoundTotals(self, self.features, assignment, protocol)
        for start in range(0, round_.participants, CHUNK):
            totals.add(min(CHUNK, round_.participants - start), rng)
        return totals.played()


class RoundTotals:
    """Sums over the participants of one round: rewards, regret, and what the protocol needs."""

    def __init__(
        self, world: ContextualWorld, features: FeatureMap, assignment: Any, protocol: Any
    ) -> None:
        self.world, self.map, self.assignment, self.protocol = world, features, assignment, protocol
        self.time, self.regret, self.earned, self.known = [0.0], [0.0], 0.0, True
        self.reports = 0
        self.sums: Any = 0
        self.levels = np.zeros(0, dtype=np.int64)

    @property
    def precision(self) -> int:
        """Levels above 0 to which rewards are rounded."""
        if self.protocol is None:
            return FINE
        if isinstance(self.assignment, Arm):
            return int(self.protocol.precision)
        return int(self.protocol.statistic.precision)

    def add(self, count: int, rng: np.random.Generator) -> None:
        """Simulate participants."""
        codes = self.world.codes(count, rng)
        participants = Codes(codes, self.map)
        options = self.options(participants, rng)
        self.take(participants, options, self.world.rewards(codes, options, rng), rng)

    def options(self, participants: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
        """The option of the slice, or those that devices pick."""
        if isinstance(self.assignment, Arm):
            return np.full(len(participants.codes), self.assignment.arm, dtype=np.intp)
        chosen: npt.NDArray[np.intp] = self.assignment.options(participants, rng)
        return chosen

    def take(
        self,
        participants: Codes,
        options: npt.NDArray[np.intp],
        rewards: Floats,
        rng: np.random.Generator,
    ) -> None:
        """Count participants with these options and rewards."""
        means = self.world.expected(participants.codes)
        count = len(options)
        self.time.append(self.time[-1] + count)
        if means is None:
            self.known = False
        else:
            lost = means.max(axis=1) - means[np.arange(count), options]
            self.regret.append(self.regret[-1] + float(lost.sum()))
        self.earned += float(rewards.sum())
        self.reports += count
        precision = self.precision
        levels = rewards.astype(np.int64)
        if not self.world.binary or precision != 1:
            levels = rounded(rewards * precision, rng)
        if isinstance(self.assignment, Arm):
            counted = np.bincount(levels, minlength=precision + 1)
            self.levels = counted if not len(self.levels) else self.levels + counted
        elif self.protocol is not None:
            answers = Answers(participants, options, levels)
            self.sums = self.sums + self.protocol.statistic.total(answers, rng)

    def played(self) -> Played:
        """The load of the protocol, and the regret."""
        load: Any = None
        if isinstance(self.assignment, Arm):
            load = Levels(np.arange(len(self.levels)), self.levels)
        elif self.protocol is not None:
            load = StatisticTotals(np.asarray(self.sums), self.reports)
        regret = np.array(self.regret[1:]) if self.known else None
        notes = {"reward": self.earned, "reports": float(self.reports)}
        return Played(load, np.array(self.time[1:]), regret, notes=notes)


@dataclass(frozen=True, eq=False)
class LinearContexts(ContextualWorld):
    """Binary rewards whose means are linear in the code of the context, for each option.

    Numbers are uniform between their bounds, categories uniform over their values.

    Parameters
    ----------
    fields, matrices, names
        Context, public features and options.
    coefficients : array
        Options × numbers of the code: the mean reward of an option is the product with the code.
    """

    fields: Fields
    matrices: Matrices
    coefficients: Floats
    names: tuple[str, ...] = ()
    features: FeatureMap | None = None
    binary: bool = True

    def codes(self, count: int, rng: np.random.Generator) -> Floats:
        """Independent uniform fields."""
        found = np.zeros((count, code_size(self.fields)), dtype=np.float32)
        found[:, 0] = 1
        for one, start in placed(self.fields):
            if isinstance(one, BoundedNumber):
                found[:, start] = 2 * rng.random(count, dtype=np.float32) - 1
            else:
                found[np.arange(count), start + rng.integers(0, one.size, count)] = 1
        return found  # type: ignore[return-value]

    def expected(self, codes: Floats) -> Floats:
        """Linear in the code."""
        return np.asarray(codes @ self.coefficients.T.astype(codes.dtype))

    def rewards(
        self, codes: Floats, options: npt.NDArray[np.intp], rng: np.random.Generator
    ) -> Floats:
        """Bernoulli rewards."""
        means = np.einsum("nm,nm->n", codes, self.coefficients.astype(codes.dtype)[options])
        return np.asarray(rng.random(len(options), dtype=np.float32) < means, dtype=float)


LOW, HIGH = 0.2, 0.6  # means of random instances


def random_linear(
    kind: str, options: int, dimension: int, rng: np.random.Generator
) -> LinearContexts:
    """A random instance with means from 0.2 to 0.6.

    Parameters
    ----------
    kind : {"random", "interactions"}
        Random features of option and context (two binary categories and a number); or dummies of
        the options, of which the first few interact with one field each.
    options, dimension : int
        Number of options and of features.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    LinearContexts
    """
    names = tuple(f"option {k + 1}" for k in range(options))
    count = 3 if kind == "random" else dimension - options
    rule = f"from {options + 1} to {2 * options - 1} for interactions with {options} options"
    holds = (1 <= count < options or kind == "random") and dimension >= 2
    require(holds, "dimension", dimension, rule)
    fields = tuple(
        BoundedNumber(f"number {k + 1}", -1.0, 1.0)
        if k % 3 == 1
        else Category(f"group {k + 1}", ("a", "b"))
        for k in range(count)
    )
    contrasts = _contrasts(fields)
    if kind == "random":
        drawn = rng.normal(size=(options, dimension - 1, 1 + count))
        drawn[:, :, 0] *= 0.6
        rows = np.zeros((options, dimension, 1 + count))
        rows[:, 0, 0], rows[:, 1:] = 1.0, drawn
    else:
        rows = np.zeros((options, dimension, 1 + count))
        rows[:, 0, 0] = 1.0
        for k in range(1, options):
            rows[k, k, 0] = 1.0
        for k in range(count):
            rows[k + 1, options + k, k + 1] = 1.0
    raw = rows @ contrasts
    matrices = tuple(tuple(tuple(row) for row in matrix) for matrix in raw.tolist())
    world = LinearContexts(fields, matrices, raw[:, 0], names)
    parameter = rng.normal(size=dimension)
    parameter[0] = 0.0
    slopes = np.einsum("kdm,d->km", raw, parameter)
    means = world.codes(SAMPLE, rng).astype(float) @ slopes.T
    scale = (HIGH - LOW) / float(means.max() - means.min())
    coefficients = slopes * scale
    coefficients[:, 0] += LOW - float(means.min()) * scale
    return replace(world, coefficients=coefficients)


def _contrasts(fields: Fields) -> Floats:
    """Rows that turn a code into the intercept and one number in [-1, 1] per field."""
    found = np.zeros((1 + len(fields), code_size(fields)))
    found[0, 0] = 1.0
    for row, (one, start) in enumerate(placed(fields)):
        if isinstance(one, BoundedNumber):
            found[row + 1, start] = 1.0
        else:
            found[row + 1, start : start + 2] = (-1.0, 1.0)
    return found


def random_segments(segments: int, options: int, rng: np.random.Generator) -> SegmentContexts:
    """A random instance: means uniform from 0.2 to 0.6, shares from a Dirichlet distribution."""
    table = rng.uniform(LOW, HIGH, (segments, options))
    return SegmentContexts(table, rng.dirichlet(np.full(segments, 5.0)))


@dataclass(frozen=True, eq=False)
class SegmentContexts(ContextualWorld):
    """Binary rewards with one mean per segment and option.

    Parameters
    ----------
    table : array
        Mean rewards, segments × options.
    shares : array
        The share of each segment among participants.
    names : tuple of str
        The options' names; by default option 1, option 2, ….
    fields : tuple of Category
        The context; by default one category, `segment`.
    features : FeatureMap, optional
        The feature map of the learner; set by `mapped`.
    binary : bool
        Whether rewards are 0 or 1.

    Examples
    --------
    >>> world = SegmentContexts(np.array([[0.2, 0.4], [0.5, 0.3]]), np.array([0.5, 0.5]))
    >>> [round(number, 3) for number in world.single_option_regret]
    [0.099, 0.1]
    """

    table: Floats
    shares: Floats
    names: tuple[str, ...] = ()
    fields: Fields = ()
    features: FeatureMap | None = None
    matrices: Matrices = field(default=(), init=False)
    binary: bool = True

    def __post_init__(self) -> None:
        segments, options = self.table.shape
        if not self.names:
            names = tuple(f"option {k + 1}" for k in range(options))
            object.__setattr__(self, "names", names)
        if not self.fields:
            values = tuple(f"segment {k + 1}" for k in range(segments))
            object.__setattr__(self, "fields", (Category("segment", values),))
        object.__setattr__(self, "matrices", interactions(self.fields, self.names))

    def codes(self, count: int, rng: np.random.Generator) -> Floats:
        """One-hot segments."""
        found = np.zeros((count, 1 + len(self.shares)), dtype=np.float32)
        found[:, 0] = 1
        found[np.arange(count), 1 + rng.choice(len(self.shares), count, p=self.shares)] = 1
        return found  # type: ignore[return-value]

    def expected(self, codes: Floats) -> Floats:
        """The segment's row."""
        return np.asarray(self.table[codes[:, 1:].argmax(axis=1)])

    def rewards(
        self, codes: Floats, options: npt.NDArray[np.intp], rng: np.random.Generator
    ) -> Floats:
        """Bernoulli rewards."""
        means = self.table[codes[:, 1:].argmax(axis=1), options]
        return np.asarray(rng.random(len(options)) < means, dtype=float)

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """Counts of whole cells, where devices choose by a table."""
        assignment = round_.assignment
        chances = assignment.probabilities if isinstance(assignment, DeviceChoice) else None
        if chances is None or protocol is None:
            return super().play(round_, protocol, rng)
        participants = rng.multinomial(round_.participants, self.shares)
        plays = rng.multinomial(participants, chances)
        wins = rng.binomial(plays, self.table)
        gaps = self.table.max(axis=1, keepdims=True) - self.table
        sums = np.stack([plays - wins, wins], axis=-1).ravel().astype(np.int64)
        lost = float((plays * gaps).sum())
        notes = {"reward": float(wins.sum()), "reports": float(round_.participants)}
        load = StatisticTotals(sums, round_.participants)
        time = np.array([float(round_.participants)])
        return Played(load, time, np.array([lost]), notes=notes)


@dataclass(frozen=True, eq=False)
class ContextFunction(ContextualWorld):
    """Contexts and rewards from a user's own functions.

    Parameters
    ----------
    fields : tuple of Category or BoundedNumber
        The context.
    draw : callable
        `draw(count, rng)` returns that many contexts, each a mapping of all fields to values.
    reward : callable
        `reward(context, option, rng)` returns a reward in [0, 1]; `option` is a name.
    names : tuple of str
        The options.
    mean : callable, optional
        `mean(context, option)` returns the true mean reward; without it, regret is unknown.
    binary : bool
        Whether all rewards are 0 or 1.
    matrices : tuple
        The options' interaction matrices; by default those of all fields and options.
    features : FeatureMap, optional
        The feature map of the learner; set by `mapped`.

    Examples
    --------
    >>> world = ContextFunction(
    ...     (Category("device", ("phone", "desktop")),), names=("old", "new"),
    ...     draw=lambda count, rng: [{"device": "phone"}] * count,
    ...     reward=lambda context, option, rng: float(option == "new"), binary=True)
    >>> codes = world.codes(2, np.random.default_rng(0))
    >>> world.rewards(codes, np.array([0, 1]), np.random.default_rng(0))
    array([0., 1.])
    """

    fields: Fields
    draw: Callable[[int, np.random.Generator], Sequence[Mapping[str, Any]]]
    reward: Callable[[Mapping[str, Any], str, np.random.Generator], float]
    names: tuple[str, ...] = ()
    mean: Callable[[Mapping[str, Any], str], float] | None = None
    binary: bool = False
    matrices: Matrices = ()
    features: FeatureMap | None = None

    def codes(self, count: int, rng: np.random.Generator) -> Floats:
        """The codes of drawn contexts."""
        drawn = self.draw(count, rng)
        if len(drawn) != count:
            raise TacitError(f"draw returned {len(drawn)} contexts: must be {count}")
        shape = code_map(self.fields)
        return np.array([shape.code(context) for context in drawn])

    def _contexts(self, codes: Floats) -> list[dict[str, Any]]:
        return [decoded(self.fields, code) for code in codes.tolist()]

    def expected(self, codes: Floats) -> Floats | None:
        """The true means, if given."""
        if self.mean is None:
            return None
        contexts = self._contexts(codes)
        return np.array([[self.mean(one, name) for name in self.names] for one in contexts])

    def rewards(
        self, codes: Floats, options: npt.NDArray[np.intp], rng: np.random.Generator
    ) -> Floats:
        """The function's rewards, checked."""
        pairs = zip(self._contexts(codes), options.tolist(), strict=True)
        found = np.array([self.reward(one, self.names[k], rng) for one, k in pairs], dtype=float)
        check_rewards(found, self.binary, "reward returned {}".format)
        return found


def code_map(fields: Fields) -> FeatureMap:
    """A feature map for encoding contexts only: its one feature is always zero."""
    return FeatureMap(fields, ("any",), (((0.0,) * code_size(fields),),))


def decoded(fields: Fields, code: Sequence[float]) -> dict[str, Any]:
    """The context of a code."""
    found: dict[str, Any] = {}
    for one, start in placed(fields):
        part = code[start : start + one.size]
        if isinstance(one, Category):
            found[one.name] = one.values[max(range(one.size), key=part.__getitem__)]
        else:
            found[one.name] = one.low + (part[0] + 1) / 2 * (one.high - one.low)
    return found

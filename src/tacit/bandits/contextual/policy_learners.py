"""Learners of contextual experiments whose devices choose: rounds of published Thompson policies.

Every round publishes a policy, which devices follow with randomness of their own. Its covariance
shrinks within the round, as if the data of the round's earlier parts were known: part j of J is
followed by a random Jth of the devices. Sizes of rounds are fixed in advance. The first round draws
from the prior; the last one of a linear model takes the leading option, as nobody uses what it
explores.

A part of every round, the evaluation slice, is assigned at random to one option for everybody, each
option equally often. Its arm summary is that of an experiment without contexts, with anytime-valid
intervals, and so is the comparison with it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice, product
from typing import Any

import numpy as np

from tacit.assumptions import Secret
from tacit.bandits.contextual import moment_fit
from tacit.bandits.contextual.confidence import (
    ContextAnswer,
    LinearSet,
    cell_bounds,
    linear_set,
)
from tacit.bandits.contextual.corner_fit import CornerFit
from tacit.bandits.contextual.device_choices import LinearChoice, TableChoice
from tacit.bandits.contextual.ellipsoid import constant_direction, rows_of
from tacit.bandits.contextual.expected_moments import (
    expected_second,
    policy_shapes,
    public_features,
    second_span,
)
from tacit.bandits.contextual.gains import (
    GainTally,
    PolicyValue,
    SingleOptionGain,
    SliceValue,
)
from tacit.bandits.contextual.histograms import FARTHEST
from tacit.bandits.contextual.moment_fit import LinearFit, Moments
from tacit.bandits.contextual.schedules import growing
from tacit.bandits.contextual.table_fit import (
    TableFit,
    TableHistograms,
    best_probabilities,
    fitted_table,
    table_prior,
)
from tacit.bandits.contract import KeptLearner, Plan
from tacit.bandits.stored import like, plain
from tacit.contextual.feature_maps import Category, FeatureMap
from tacit.contextual.policies import LinearPolicy, shares_of
from tacit.errors import TacitError, integer, probability, require
from tacit.types import Arm, ArmSummary, Estimate, Floats, Round

MOST_LISTED = 64  # contexts that are answered for by default
LEVEL = 0.95  # of the decisions that end exploration
PARTS = 6  # of a round, with shrinking covariance
BOLDNESS = 0.7  # standard deviations of Thompson draws
NUMBERS = (
    *("first", "second", "people", "first_noise", "second_noise"),
    *("mean", "covariance", "each", "noise"),
)  # stored names of the arrays of moments and of their fit
FIRST = 1.0  # standard deviation of the first round's draws, for features about 1 long


class PolicyLearner(KeptLearner):
    """Base of learners that publish a policy per round.

    Parameters
    ----------
    features
        The feature map as plain data (`FeatureMap.to_dict`).
    horizon
        Number of participants.
    first, growth
        Size of the first round, and the factor between rounds.
    evaluation
        Share of participants in the evaluation slice.
    smallest
        Fewest participants of a round that may be released.
    boldness
        Standard deviations of Thompson draws; 1 draws from the whole posterior.
    exploration
        Of tables: the share of every segment that gets an option at random, until one is shown to
        be the best there. Without it the worse options are soon tried no more, and remain
        undecided for long.
    """

    kept = ("_step", "_paused", "_gains")
    secret = Secret.CONTEXT_AND_REWARDS  # context, potential rewards and choices

    def __init__(
        self,
        features: Mapping[str, Any],
        horizon: int,
        *,
        first: int,
        growth: float,
        evaluation: float = 0.0,
        smallest: int = 1,
        boldness: float = BOLDNESS,
        exploration: float = 0.0,
    ) -> None:
        self.features = features
        self.map = FeatureMap.from_dict(features)
        super().__init__(len(self.map.options), horizon)
        self.first, self.growth = integer("first", first, at_least=1), float(growth)
        require(1 < self.growth < float("inf"), "growth", growth, "above 1, such as 1.8")
        remedy = "the share of participants who get one option for everybody, such as 0.05"
        self.evaluation = float(probability("evaluation", evaluation, remedy, zero=True))
        self.smallest = integer("smallest", smallest, at_least=1)
        self.boldness = float(boldness)
        remedy = "the share of every segment that gets an option at random, such as 0.2"
        self.exploration = float(probability("exploration", exploration, remedy, zero=True))
        self.sizes = growing(self.horizon, self.first, self.growth)
        self._step = 0
        self._last = False  # whether the planned round is the last: nobody uses what it explores
        self._paused: list[int] = []
        self._value: PolicyValue | None = None  # of the policy round beside the pending slices
        self._waiting: list[SliceValue] = []  # slices that were released before their policy round
        self._gains = [GainTally() for _ in range(self.arms)]
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Reset the statistics and the fit to the state without data."""

    def best(self) -> None:
        """None: the best option depends on the context."""

    def decided(self, level: float = 0.95) -> None:
        """None: `answers` decides for each context."""

    def answers(
        self, level: float = 0.95, contexts: Sequence[Mapping[str, Any]] | None = None
    ) -> list[ContextAnswer]:
        """The best option in each context, and how sure that is, at all times simultaneously.

        Parameters
        ----------
        level
            Confidence level.
        contexts
            Contexts to answer for; by default all combinations of values, numbers in the middle.

        Returns
        -------
        list of ContextAnswer
            Empty before the first release.
        """
        if not self._step:
            return []
        bounds, found = self._bounds(level), []
        for context in self.contexts() if contexts is None else contexts:
            means = self.predictions(context)
            best = self._leading(means)
            others = [k for k in range(self.arms) if k != best]
            low, high, lead = self._interval(bounds, context, best, others)
            name, mean = self.map.options[best], float(np.clip(means[best], 0.0, 1.0))
            decision = "best" if lead > 0 else "open"
            found.append(ContextAnswer(dict(context), name, mean, low, high, lead, decision))
        return found

    @abstractmethod
    def predictions(self, context: Mapping[str, Any]) -> Floats:
        """The estimated mean reward of every option in a context."""

    @abstractmethod
    def _bounds(self, level: float) -> Any:
        """The confidence bounds of all contexts, simultaneously, for `_interval`."""

    @abstractmethod
    def _interval(
        self, bounds: Any, context: Mapping[str, Any], best: int, others: list[int]
    ) -> tuple[float, float, float]:
        """An interval of the best option's mean, and the least it leads the others by."""

    def contexts(self) -> list[dict[str, Any]]:
        """Contexts in reports: all combinations of categories, numbers at mid-range; at most 64."""
        values = [
            [(one.name, value) for value in one.values]
            if isinstance(one, Category)
            else [(one.name, (one.low + one.high) / 2)]
            for one in self.map.fields
        ]
        return [dict(chosen) for chosen in islice(product(*values), MOST_LISTED)]

    @abstractmethod
    def _policy(self, participants: int) -> Any:
        """The assignment of the next round of this many participants."""

    @abstractmethod
    def _update(self, round_: Round, estimate: Estimate) -> PolicyValue | None:
        """Take in the statistics of a round; returns the round's sum of rewards, if it is known."""

    def _plan(self) -> Plan:
        """The round of the published policy, and beside it one per option in the slice."""
        left = self.horizon - self.played
        participants = min(self.sizes[self._step], left) if self._step < len(self.sizes) else left
        self._last = participants == left
        self._value, self._waiting = None, []
        each = int(participants * self.evaluation / self.arms)
        compared = [k for k in range(self.arms) if k not in self._paused]
        compared = compared if each >= self.smallest else []
        rest = participants - each * len(compared)
        yield self._policy(rest), rest, rest >= self.smallest
        yield from ((Arm(option), each) for option in compared)

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        if isinstance(round_.assignment, Arm):
            self._waiting.append(SliceValue(round_.arm, float(estimate.total), estimate.error))
        else:
            self._step += 1  # an aborted round is planned again, of the same size
            self._value = self._update(round_, estimate)
        if self._value is not None:
            for one in self._waiting:
                self._gains[one.option].add(self._value, one.total, one.error)
            self._waiting = []

    def gains(self, level: float = 0.95) -> list[SingleOptionGain]:
        """Gain of the policies over one option for everybody, in reward per participant.

        Parameters
        ----------
        level
            Confidence level of all intervals together, at all times.

        Returns
        -------
        list of SingleOptionGain
            One per option; empty without an evaluation slice.
        """
        failure = (1 - float(probability("level", level))) / self.arms
        pairs = zip(self.map.options, self._gains, strict=True)
        return [SingleOptionGain(name, *one.interval(failure)) for name, one in pairs if one.people]

    def summaries(
        self, names: Sequence[str], level: float = 0.95, control: int = 0
    ) -> list[ArmSummary]:
        """The summary of each option in the evaluation slice; empty without one."""
        return super().summaries(names, level, control) if self.evaluation else []

    def guarded(self) -> None:
        """Declare that a guardrail may pause options; it needs the evaluation slice."""
        if not self.evaluation:
            raise TacitError(
                "evaluation is 0: must be above 0 for a guardrail, which the evaluation slice "
                "measures"
            )

    @property
    def removed(self) -> frozenset[int]:
        """No options: contextual experiments remove none."""
        return frozenset()

    @property
    def paused(self) -> dict[int, bool]:
        """The paused options; True, because only a guardrail pauses them."""
        return dict.fromkeys(sorted(self._paused), True)

    def halt(self, option: int) -> None:
        """Pause an option because of the guardrail."""
        self.pause(option)

    def _leading(self, means: Floats) -> int:
        """The best option that is not paused."""
        offered = means.copy()
        offered[self._paused] = -np.inf
        return int(np.argmax(offered))

    def pause(self, option: int) -> None:
        """Stop assigning the option from the next round on."""
        if option not in self._paused:
            self._paused.append(option)
        if len(self._paused) == self.arms:
            raise TacitError("all options would be paused: keep at least one")

    def _state(self) -> dict[str, Any]:
        return super()._state() | {
            "value": None if self._value is None else asdict(self._value),
            "waiting": [one.to_dict() for one in self._waiting],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        value = state["value"]
        self._value = None if value is None else PolicyValue(**value)
        self._waiting = [SliceValue.from_dict(one) for one in state["waiting"]]


class LinearPolicyLearner(PolicyLearner):
    """Base of Thompson sampling on devices with a linear model."""

    fit: LinearFit | CornerFit
    _choices: list[LinearChoice]  # of the released rounds

    @abstractmethod
    def confidence_set(self, level: float) -> LinearSet:
        """The confidence set of the parameter after the released rounds."""

    @abstractmethod
    def _choice(self, policy: LinearPolicy) -> LinearChoice:
        """The assignment of the next round, whose devices follow this policy."""

    def _policy(self, participants: int) -> LinearChoice:
        d = self.map.dimension
        if not self._choices:
            roots = np.eye(d)[None] * FIRST
        elif self._last:
            roots = np.zeros((1, d, d))
        else:
            ahead = [participants * part / PARTS for part in range(PARTS)]
            roots = np.array([moment_fit.root_of(self.fit.after(more)) for more in ahead])
            roots *= self.boldness
        mean = tuple(self.fit.mean.tolist())
        return self._choice(LinearPolicy(mean, rows_of(roots), tuple(self._paused)))

    def _bounds(self, level: float) -> LinearSet:
        return self.confidence_set(level)

    def _interval(
        self, bounds: LinearSet, context: Mapping[str, Any], best: int, others: list[int]
    ) -> tuple[float, float, float]:
        """From the confidence set of the parameter, under the linear model."""
        vectors = np.array(self.map.exact(self.map.code(context)))
        rows = np.vstack([vectors[best : best + 1], vectors[best] - vectors[others]])
        low, high = bounds.bounds(rows)
        lead = float(low[1:].min())
        return float(max(0.5 + low[0], 0.0)), float(min(0.5 + high[0], 1.0)), lead

    def predictions(self, context: Mapping[str, Any]) -> Floats:
        """The estimated mean reward of every option in a context."""
        vectors = np.array(self.map.of(context), dtype=float) / self.map.resolution
        return np.asarray(0.5 + vectors @ self.fit.mean)


class LinearThompson(LinearPolicyLearner):
    """Thompson sampling on devices with a linear model, from noisy moments.

    Its parameters are those of `PolicyLearner`.

    Examples
    --------
    >>> from tacit.bandits.contextual.ellipsoid import scaled_map
    >>> from tacit.contextual.feature_maps import BoundedNumber, interactions
    >>> fields = (BoundedNumber("age", 18, 90),)
    >>> features = scaled_map(fields, ("a", "b"), interactions(fields, ("a", "b")))
    >>> learner = LinearThompson(features.to_dict(), 1000, first=100, growth=1.8)
    >>> round_ = learner.propose()[0]
    >>> round_.participants, round_.assignment.coordinates
    (100, 14)
    """

    fit: LinearFit

    def _begin(self) -> None:
        d = self.map.dimension
        self._constant = constant_direction(self.map)
        self.fit = moment_fit.prior(d)
        self._choices = []
        self._shapes: list[Floats] = []
        self._moments = Moments(
            np.zeros((0, d)), np.zeros((0, d, d)), np.zeros(0), np.zeros(0), np.zeros(0)
        )

    @property
    def moments(self) -> Moments:
        """The released moments of all rounds."""
        return self._moments

    def _choice(self, policy: LinearPolicy) -> LinearChoice:
        usual = self.fit.mean if self._choices else _typical_parameter(self.map.dimension)
        weight = moment_fit.best_weight(usual)
        return LinearChoice(policy.mean, policy.roots, policy.paused, weight)

    def confidence_set(self, level: float) -> LinearSet:
        """`linear_set` of all released moments."""
        return linear_set(self._moments, self.map, self.horizon, level)

    def _update(self, round_: Round, estimate: Estimate) -> PolicyValue | None:
        d = self.map.dimension
        total = np.asarray(estimate.total, dtype=float)
        participants = int(estimate.error.participants)
        noise = (np.asarray(estimate.error.stated, dtype=float) * participants) ** 2
        rows, columns = np.triu_indices(d)
        second = np.zeros((d, d))
        second[rows, columns] = second[columns, rows] = total[d:]
        old = self._moments
        self._moments = Moments(
            np.vstack([old.first, total[None, :d]]),
            np.concatenate([old.second, second[None]]),
            np.append(old.participants, participants),
            np.append(old.first_noise, noise[0]),
            np.append(old.second_noise, noise[d] / 2),
        )
        assignment = round_.assignment
        assert isinstance(assignment, LinearChoice)
        self._choices.append(assignment)
        self._shapes.append(policy_shapes(public_features(self.map), assignment))
        noisy = float(self._moments.second_noise.max()) > 0
        expected = self._moments.second
        if noisy:
            expected = expected_second(self._shapes, self._moments)
        span = second_span(self.map)
        seen = replace(self._moments, second=span.projected(self._moments.second))
        self.fit = moment_fit.fitted(seen, expected, self.fit, span)
        if self._constant is None:
            return None
        reward = float(self._constant @ total[:d]) + participants / 2
        proxy = float(self._constant**2 @ estimate.error.proxies[:d]) * participants**2
        farthest = float(np.abs(self._constant).max())
        reach = float(estimate.error.reaches[0]) / participants / farthest
        return PolicyValue(reward, participants, proxy, min(reach, FARTHEST))

    @property
    def _numbers(self) -> tuple[Floats, ...]:
        """The arrays of the moments and of the fit, in the order of `NUMBERS`."""
        return *vars(self._moments).values(), *vars(self.fit).values()

    def _state(self) -> dict[str, Any]:
        choices = [one.policy.to_dict() | {"weight": one.weight} for one in self._choices]
        numbers = dict(zip(NUMBERS, map(plain, self._numbers), strict=True))
        return super()._state() | numbers | {"choices": choices}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        found = [like(old, state[name]) for name, old in zip(NUMBERS, self._numbers, strict=True)]
        moments = len(vars(self._moments))
        self._moments, self.fit = Moments(*found[:moments]), LinearFit(*found[moments:])
        self._choices = [_choice_of(one) for one in state["choices"]]
        points = public_features(self.map)
        self._shapes = [policy_shapes(points, one) for one in self._choices]


class TableThompson(PolicyLearner):
    """Thompson sampling with one mean per segment and option, from noisy histograms.

    Its parameters are those of `PolicyLearner`; the context has categories only.

    Examples
    --------
    >>> from tacit.contextual.feature_maps import Category, FeatureMap
    >>> fields = (Category("device", ("phone", "desktop")),)
    >>> features = FeatureMap(fields, ("a", "b"), ((((0.5, 0.0, 0.0),)),) * 2)
    >>> learner = TableThompson(features.to_dict(), 1000, first=100, growth=1.5)
    >>> learner.propose()[0].assignment.weights
    ((32768, 32768), (32768, 32768))
    """

    def _begin(self) -> None:
        self.segments = self.map.segments
        if not self.segments:
            raise TacitError("the context has numbers: tables need categories only. Use moments.")
        self.fit: TableFit = table_prior(self.segments, self.arms)
        self._seen = TableHistograms.empty(self.segments, self.arms)

    @property
    def histograms(self) -> TableHistograms:
        """The released histograms of all rounds."""
        return self._seen

    def _policy(self, participants: int) -> TableChoice:
        chances = np.full((self.segments, self.arms), 1 / self.arms)
        if len(self._seen.people):
            last = self._seen.policies[-1]
            chances = np.zeros_like(chances)
            for part in range(PARTS):
                plays = participants * self.fit.shares[:, None] * last * part / PARTS
                spread = self.boldness**2 * self.fit.after(plays)
                chances += best_probabilities(self.fit.mean, spread) / PARTS
            chances = self._explored(chances)
        if self._paused:
            chances[:, self._paused] = 0.0
        return TableChoice(tuple(shares_of(row) for row in chances.tolist()))

    def _explored(self, chances: Floats) -> Floats:
        """Chances with an equal share of exploration where no option is decided."""
        if not self.exploration:
            return chances
        low, high = cell_bounds(self._seen, LEVEL)
        best = self.fit.mean.argmax(axis=1)
        rows = np.arange(self.segments)
        others = high.copy()
        others[rows, best] = 0.0
        undecided = low[rows, best] <= others.max(axis=1)
        share = (self.exploration * undecided)[:, None]
        return np.asarray((1 - share) * chances + share / self.arms)

    def _update(self, round_: Round, estimate: Estimate) -> PolicyValue:
        assignment = round_.assignment
        assert isinstance(assignment, TableChoice)
        total = np.asarray(estimate.total, dtype=float)
        participants = int(estimate.error.participants)
        cells = total.reshape(self.segments, self.arms, 2)
        self._seen = self._seen.with_round(
            estimate.error,
            wins=cells[:, :, 1],
            losses=cells[:, :, 0],
            policies=assignment.probabilities,
        )
        self.fit = fitted_table(self._seen)
        proxy, reach = float(self._seen.proxy[-1]), float(self._seen.reach[-1])
        wins = float(cells[:, :, 1].sum())
        return PolicyValue(wins, participants, proxy * self.segments * self.arms, reach)

    def _bounds(self, level: float) -> tuple[Floats, Floats]:
        return cell_bounds(self._seen, level)

    def _interval(
        self,
        bounds: tuple[Floats, Floats],
        context: Mapping[str, Any],
        best: int,
        others: list[int],
    ) -> tuple[float, float, float]:
        """From the confidence intervals of the cells."""
        low, high = (side[self.map.segment(context)] for side in bounds)
        return float(low[best]), float(high[best]), float(low[best]) - float(high[others].max())

    def predictions(self, context: Mapping[str, Any]) -> Floats:
        """The estimated mean reward of every option in a context."""
        return np.asarray(0.5 + self.fit.mean[self.map.segment(context)])

    def _state(self) -> dict[str, Any]:
        return super()._state() | self._seen.to_dict()

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._seen = TableHistograms.from_dict(state, (self.segments, self.arms))
        if len(self._seen.people):
            self.fit = fitted_table(self._seen)


def _choice_of(data: Mapping[str, Any]) -> LinearChoice:
    policy = LinearPolicy.from_dict(data)
    return LinearChoice(policy.mean, policy.roots, policy.paused, data["weight"])


def _typical_parameter(dimension: int) -> Floats:
    """A parameter of the length that is usual before anything is known."""
    return np.full(dimension, 0.4 / dimension**0.5)

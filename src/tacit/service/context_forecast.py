"""Forecast of a definition with contexts: noise, and the participants that a decision needs.

The same experiment is simulated on participants of uniform contexts. One option is better than the
others for half of them, by one field, and worse by as much for the rest, so that no option is the
best for everybody. A guardrail is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np

from tacit.bandits.contextual.policy_learners import MOST_LISTED, PolicyLearner
from tacit.contextual.feature_maps import BoundedNumber, Category, FeatureMap, code_size
from tacit.environments.contextual import LinearContexts
from tacit.errors import TacitError
from tacit.protocols.statistic_sums import StatisticSum
from tacit.service.context_entries import between
from tacit.service.definition import Definition
from tacit.simulation.driver import run
from tacit.types import Floats

ENOUGH = 0.9  # of contexts whose leading option is the right one
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000)
SAME = 1e-6  # difference of means that does not matter
FEWER = 8  # by which runs are divided where sizes are tried


@dataclass(frozen=True)
class ContextForecast:
    """The forecast of a definition whose devices choose.

    Parameters
    ----------
    noise, numbers
        Standard deviation of the released noise in a count of people, or in a sum of moments of
        features of length 1; and how many such numbers a round releases.
    first
        Participants of the first round.
    field, option
        The option that is better for half of the people, and the field that tells for whom.
    baseline, lift
        Its mean for the others, and the relative difference.
    runs, people
        Simulated experiments, and their participants.
    right, shown
        Mean share of contexts in which the right option leads, and in which it is shown to be best.
    enough
        Fewest participants of those tried with which it leads in nine of ten contexts, or None.
    gain, detectable
        What choosing gains per participant over one option for all, and the gain from which on
        that is detected; None without an evaluation slice.
    """

    noise: float
    numbers: int
    first: int
    field: str
    option: str
    baseline: float
    lift: float
    runs: int
    people: int
    right: float
    shown: float
    enough: int | None
    gain: float
    detectable: float | None

    def sentences(self) -> Iterator[str]:
        """The forecast in sentences."""
        yield (
            f"Each of {self.numbers} released numbers has noise with a standard deviation of "
            f"{self.noise:.3g} people. The first round has {self.first:,} people."
        )
        yield (
            f"If {self.option} lifts the mean answer from {self.baseline:.3g} by {self.lift:.0%} "
            f"for half of the people, by {self.field}, and lowers it by as much for the others: "
            f"with {self.people:,} people the right option leads in {self.right:.0%} of contexts "
            f"and is shown to be the best in {self.shown:.0%}, in {self.runs} simulated "
            "experiments."
        )
        if self.enough is None:
            yield f"Of up to {SIZES[-1]:,} people no number that was tried is enough for 90%."
        else:
            yield f"The right option leads in 90% of contexts with about {self.enough:,} people."
        if self.detectable is not None:
            yield (
                "Choosing by context is shown to be better than one option for everybody if it "
                f"gains about {self.detectable:.3g} per person; here it could gain {self.gain:.3g}."
            )


def context_forecast(
    definition: Definition, means: tuple[float, float], participants: int, runs: int
) -> ContextForecast:
    """Simulate a definition with contexts.

    Parameters
    ----------
    definition : Definition
        The definition.
    means : tuple of float
        The mean answer and that of the better option, relative to the range.
    participants, runs : int
        Participants and simulated experiments.
    """
    world, field, option = _world(definition, means)
    played = [_simulate(definition, world, participants, seed) for seed in range(runs)]
    right = float(np.mean([one[0] for one in played]))
    example = definition.experiment().mechanism.example()
    assert isinstance(example, StatisticSum)
    wide, low = float(definition.high - definition.low), float(definition.low)
    widths = [one[2] for one in played if one[2] is not None]
    size = int(definition.experiment().propose()[0].participants)
    return ContextForecast(
        noise=float(example.error(example.participants).stated.max()) * example.participants,
        numbers=example.coordinates,
        first=size,
        field=field,
        option=option,
        baseline=low + wide * means[0],
        lift=(means[1] - means[0]) * wide / (low + wide * means[0]),
        runs=runs,
        people=participants,
        right=right,
        shown=float(np.mean([one[1] for one in played])),
        enough=_enough(definition, world, {participants: right}, max(2, runs // FEWER)),
        gain=wide * float((world.single_option_regret or (0.0,))[0]),
        detectable=wide * float(np.mean(widths)) if widths else None,
    )


def _enough(
    definition: Definition, world: LinearContexts, known: dict[int, float], runs: int
) -> int | None:
    """The fewest participants with which the right option leads in nine of ten contexts."""
    for size in sorted({*SIZES, *known}):
        try:
            tried = (
                [known[size]]
                if size in known
                else [_simulate(definition, world, size, seed)[0] for seed in range(runs)]
            )
        except TacitError:  # too few participants for a round
            continue
        if np.mean(tried) >= ENOUGH:
            return size
    return None


def _world(definition: Definition, means: tuple[float, float]) -> tuple[LinearContexts, str, str]:
    """Participants of uniform contexts; one option depends on one field, as the map allows."""
    context, options = definition.context, definition.options
    assert context is not None
    features = context.features(options)
    pairs = between(definition.interactions)
    field = next(iter(pairs), features.fields[0].name)
    option = pairs.get(field, options[-1:])[-1]
    coefficients = np.zeros((len(options), code_size(features.fields)))
    coefficients[:, 0] = means[0]
    start, apart = 1, means[1] - means[0]
    for one in features.fields:
        if one.name == field:
            coefficients[options.index(option), start : start + one.size] = _effect(one, apart)
        start += one.size
    return LinearContexts(features.fields, (), coefficients, options, features), field, option


def _effect(field: Category | BoundedNumber, apart: float) -> Floats:
    """A field's effect on the option's mean: positive for the first half of its values."""
    if not isinstance(field, Category):
        return np.array([apart])
    half = math.ceil(field.size / 2)
    return np.array([apart if place < half else -apart for place in range(field.size)])


def _simulate(
    definition: Definition, world: LinearContexts, participants: int, seed: int
) -> tuple[float, float, float | None]:
    """Shares of contexts with the right leader and with a decision, and the gain's half width."""
    changed = {"participants": participants, "guardrail": ""}
    experiment = definition.model_copy(update=changed).experiment()
    run(experiment, world, np.random.default_rng(seed))
    learner, features = experiment.learner, world.features
    assert isinstance(learner, PolicyLearner)
    assert features is not None
    right, shown = 0, 0
    answers = learner.answers(contexts=_contexts(features))
    for answer in answers:
        means = world.expected(np.array([features.code(answer.context)]))[0]
        led = means[features.options.index(answer.option)] >= means.max() - SAME
        right += led
        shown += led and answer.decision == "best"
    widths = [one.gain - one.low for one in learner.gains()]
    count = max(1, len(answers))
    return right / count, shown / count, max(widths) if widths else None


def _contexts(features: FeatureMap) -> list[dict[str, Any]]:
    """Combinations of categories and bounds; at most 64."""
    values = [
        [(one.name, value) for value in (one.values if isinstance(one, Category) else _bounds(one))]
        for one in features.fields
    ]
    return [dict(chosen) for chosen in islice(product(*values), MOST_LISTED)]


def _bounds(number: BoundedNumber) -> tuple[float, float]:
    return number.low, number.high

"""Generated patients of several hospitals, whose case mixes differ.

Everything here is invented: no data of anybody. Mean rewards are linear in the scaled columns, with
one parameter for all hospitals, so that the true regret of every policy is known. Every hospital
treats one kind of patients only, planned or emergency, with diabetes or without. Alone it cannot
learn what helps the other kinds, however many patients it has; all hospitals together can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.bandits.contextual.federated import FederatedLinUCB, SiloRules
from tacit.silos.context import ContextColumn, ContextSpec
from tacit.types import Floats

HOSPITALS = ("north", "east", "south", "west")
WARD = ContextSpec(
    (
        ContextColumn("age", low=Fraction(18), high=Fraction(90)),
        ContextColumn("severity", low=Fraction(0), high=Fraction(10)),
        ContextColumn("emergency", "boolean"),
        ContextColumn("diabetic", "boolean"),
    ),
    ("drug", "surgery"),
)
MIXES = (
    (0.4, 0.4, False, False),
    (0.5, 0.4, False, True),
    (0.4, 0.6, True, False),
    (0.6, 0.5, True, True),
)  # of each hospital: where ages and severities are on their scales; emergencies, diabetics
SPREAD = 0.25  # standard deviation of ages and severities on their scales
MISSING, OVERRIDDEN = 0.1, 0.05  # shares of outcomes that never arrive; of decisions not followed
DELAY = 20  # mean number of later patients before an outcome is known
HELD_OUT = 10_000


@dataclass(frozen=True, eq=False)
class Patients:
    """The patients of all hospitals: `effects` are true intercepts and slopes per action.

    `others` is the probability that a patient is an emergency although the hospital treats planned
    ones, or planned although it treats emergencies, and the same for diabetes.
    """

    effects: Floats
    others: float = 0.0

    @classmethod
    def draw(cls, rng: np.random.Generator, others: float = 0.0) -> Patients:
        """Two treatments whose order depends on every column; means lie between 0.05 and 0.95."""
        sizes = rng.uniform((0.06, 0.03, 0.12, 0.08), (0.1, 0.05, 0.15, 0.11))
        slopes = rng.choice([-1.0, 1.0], WARD.width) * sizes
        base = rng.uniform(0.48, 0.52)
        return cls(np.array([[base, *slopes], [base, *-slopes]]), others)

    def context(self, hospital: int, rng: np.random.Generator) -> dict[str, Any]:
        """One patient of a hospital."""
        age, severity, emergency, diabetic = MIXES[hospital]
        on_scale = np.clip(rng.normal((age, severity), SPREAD), 0, 1)
        return {
            "age": int(18 + 72 * on_scale[0]),
            "severity": round(float(10 * on_scale[1]), 1),
            "emergency": emergency != bool(rng.random() < self.others),
            "diabetic": diabetic != bool(rng.random() < self.others),
        }

    def means(self, scaled: Floats) -> Floats:
        """The true mean reward of every action, for many patients."""
        return np.asarray(self.effects[:, 0] + scaled @ self.effects[:, 1:].T)

    def mean(self, context: dict[str, Any], action: str) -> float:
        """The true mean reward of an action."""
        return float(self.means(WARD.scaled(context)[None])[0, WARD.action(action)])

    def held_out(self, rng: np.random.Generator) -> Floats:
        """Scaled contexts of held-out patients, equally many from each hospital."""
        hospitals = len(MIXES)
        return np.array([WARD.scaled(self.context(n % hospitals, rng)) for n in range(HELD_OUT)])

    def regret(self, effects: Floats, scaled: Floats) -> float:
        """The mean regret of choosing the largest estimate on these patients."""
        means = self.means(scaled)
        chosen = np.argmax(effects[:, 0] + scaled @ effects[:, 1:].T, axis=1)
        return float((means.max(axis=1) - means[np.arange(len(means)), chosen]).mean())


@dataclass(frozen=True)
class Course:
    """One patient's course: what is decided, and when and whether the outcome is known."""

    context: dict[str, Any]
    overridden: bool
    missing: bool
    delay: int
    luck: float


def courses(
    patients: Patients, hospital: int, count: int, rng: np.random.Generator
) -> Iterator[Course]:
    """The patients of one hospital, one after the other."""
    for _ in range(count):
        yield Course(
            patients.context(hospital, rng),
            bool(rng.random() < OVERRIDDEN),
            bool(rng.random() < MISSING),
            int(rng.geometric(1 / DELAY)),
            float(rng.random()),
        )


def own_linucb(patients: Patients, hospital: int, count: int, rng: np.random.Generator) -> Floats:
    """Baseline of one hospital: non-private LinUCB on its own patients, with immediate outcomes.

    Returns the estimated intercepts and slopes.
    """
    learner = FederatedLinUCB(1, WARD.dimension, count, count, rules=SiloRules(lazy=False))
    (round_,) = learner.propose()
    assignment: Any = round_.assignment
    actor = assignment.start(1)
    for course in courses(patients, hospital, count, rng):
        if course.missing:
            actor.steps -= 1
            continue
        action = int(actor.choose(actor.as_features(WARD.table(course.context)[None]))[0])
        mean = patients.mean(course.context, WARD.actions[action])
        actor.learn(np.array([float(course.luck < mean)]))
    gram = actor.gram[0] + np.eye(WARD.dimension)
    return WARD.by_action(np.asarray(np.linalg.solve(gram, actor.bias[0])))

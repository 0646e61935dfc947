"""Pictures of a plan: participants until a decision, and the effect of poisoning."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.algorithms.registry import lookup
from tacit.errors import TacitError
from tacit.studies.influence import TRIED, influence_of_reach, right_winners
from tacit.studies.influence import draw as draw_right_winners
from tacit.studies.plan import Plan
from tacit.studies.plan_request import PlanRequest


def draw_poisoning(question: PlanRequest, result: Plan, path: Path) -> Path:
    """Plot how often two servers find the best option under poisoning, with and without
    verification.

    The fractions of corrupted participants are multiples of the requested one.
    """
    named = [name for name in question.algorithms if "through" in lookup(name).options]
    algorithm = named[0] if named else "private-med"
    decided = {cost.trust: cost.participants for cost in result.costs}
    horizon = decided.get("two-servers") or max((n or 0 for n in decided.values()), default=0)
    options = {
        "means": question.expected.means,
        "epsilon": question.epsilon,
        "participations": question.people.participations,
        "horizon": max(horizon, 100 * question.expected.options),
    }
    parts = [part for times in TRIED if (part := times * question.people.poisoned) < 1]
    found = right_winners(algorithm, parts, question.how, **options)
    means = question.expected.means
    turning = influence_of_reach("verified", (0.0, 1.0), means, question.people.poisoned, None).part
    return draw_right_winners(found, parts, turning, path)


def draw(result: Plan, path: Path) -> Path:
    """Plot participants until a decision, and those on a worse option, by trust model."""
    from tacit.simulation import pictures

    shown = [cost for cost in result.costs if cost.participants is not None]
    if not shown:
        raise TacitError(
            "no row reaches a decision, so there is nothing to draw. Use a larger difference."
        )
    figure, axes = pictures.axes()
    places = np.arange(len(shown))
    axes.barh(places, [cost.participants for cost in shown], color="#4477aa", label="asked")
    axes.barh(places, [cost.worse for cost in shown], color="#ee6677", label="on a worse option")
    axes.set_yticks(places, [cost.trust for cost in shown])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("participants until nine of ten experiments are decided")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    return pictures.save(figure, path)

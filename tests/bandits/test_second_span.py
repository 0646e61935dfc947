"""The span of second moments: the noise that a learner projects out."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.algorithms.registry import lookup
from tacit.bandits.contextual.device_choices import LinearChoice
from tacit.bandits.contextual.expected_moments import second_span
from tacit.contextual.feature_maps import FeatureMap
from tacit.environments.contextual import ContextualWorld

DIMENSIONS = {"random": 36, "interactions": 9, "segments": 24}


def world_of(kind: str) -> ContextualWorld:
    arms = 3 if kind == "segments" else 5
    problem = lookup("private-contextual").make_problem(
        {"contexts": kind, "segments": 8, "arms": arms}
    )
    world = problem.start(3, None).world
    assert isinstance(world, ContextualWorld)
    return world


def features_of(world: ContextualWorld) -> FeatureMap:
    assert world.features is not None
    return world.features


@pytest.mark.parametrize("kind", DIMENSIONS)
def test_products_of_all_features_are_in_the_span(kind: str) -> None:
    world = world_of(kind)
    features = features_of(world)
    codes = world.codes(50, np.random.default_rng(1)).astype(float)
    points = np.array([vector for code in codes for vector in features.exact(code)])
    squares = np.einsum("ni,nj->nij", points, points)
    span = second_span(features)
    assert np.abs(span.projected(squares) - squares).max() < 1e-6
    many = features.dimension * (features.dimension + 1) // 2
    assert (many if span.basis is None else len(span.basis)) == DIMENSIONS[kind]


@pytest.mark.parametrize("kind", ["random", "interactions"])
def test_the_remaining_noise_has_the_stated_covariance(kind: str) -> None:
    """Of 20,000 draws; entries within 6 standard errors."""
    span, rng = second_span(features_of(world_of(kind))), np.random.default_rng(2)
    draws, d = 20_000, 8
    drawn = rng.standard_normal((draws, d, d))
    noise = (drawn + drawn.transpose(0, 2, 1)) / 2  # diagonal of variance 1, others ½
    theta = rng.standard_normal(d) / 3
    found = np.cov((span.projected(noise) @ theta).T)
    stated = span.spread(np.outer(theta, theta))
    error = np.sqrt((np.outer(np.diag(stated), np.diag(stated)) + stated**2) / draws)
    assert (np.abs(found - stated) < 6 * error + 1e-12).all()


def test_only_the_last_round_plays_the_leader_without_drawing() -> None:
    entry = lookup("private-contextual")
    problem = entry.make_problem({"contexts": "interactions", "horizon": 6000})
    start = problem.start(3, None)
    experiment = entry.build(problem.for_environment(start.world, 3))
    drawn = []
    while rounds := experiment.propose():
        for round_ in rounds:
            assert isinstance(round_.assignment, LinearChoice)
            drawn.append(bool(np.any(round_.assignment.roots)))
            protocol = experiment.mechanism.open(round_)
            played = start.world.play(round_, protocol, start.rng)
            experiment.observe(round_, protocol.simulate(played.load, start.noise))
    assert drawn == [True] * (len(drawn) - 1) + [False]

"""Fitted parameters reported in a ball: frequency and cost of shrinking, and its correction."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.tables import extended_after

from tacit.algorithms import lookup
from tacit.bandits import Learner
from tacit.bandits.linear import own_fits
from tacit.bandits.linear.phased import DistributedElimination, FittedReports, Widths
from tacit.environments.population import random_population
from tacit.errors import TacitError
from tacit.simulation import run
from tacit.types import Fit

SPREADS = (1.0, 0.1)


def fitted(played: Any, plays: Any, noise: float, clients: int = 4000) -> own_fits.OwnFit:
    about = (SPREADS, 1.0, noise, 5.0, 1e-6)
    phase = own_fits.PublicPhase(played, plays * 1.0, played, clients, *about)
    found = own_fits.best_fit(phase)
    assert found is not None
    assert own_fits.best_fit(phase, found.width) is None  # it must be better than that
    same = own_fits.best_fit(phase, found.width * (1 + 1e-9))
    assert same is not None
    assert (same.radius, same.lost, same.width) == (found.radius, found.lost, found.width)
    return found


def reports(
    fit: own_fits.OwnFit, played: Any, plays: Any, theta: Any, clients: int, seed: int
) -> Any:
    """What clients would report if nothing were shrunk: rewards are ±1 about nothing but chance."""
    rng = np.random.default_rng(seed)
    own = theta + SPREADS[1] * rng.choice([-1.0, 1.0], (clients, len(theta)))
    noise = (2 * rng.binomial(plays, 0.5, (clients, len(plays))) - plays) / plays
    return (own @ played.T + SPREADS[0] * noise) @ fit.solve.T


@pytest.mark.parametrize("each", [1, 30, 3000])
@pytest.mark.parametrize("actions", [4, 30])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_few_clients_are_shrunk_and_the_bias_is_within_its_bound(
    each: int, actions: int, noise: float
) -> None:
    """The worst θ* of its length that was found: along the axis that errs most."""
    rng = np.random.default_rng(each + actions)
    played = rng.standard_normal((actions, 6))
    played /= np.linalg.norm(played, axis=1)[:, None]
    plays = np.full(actions, each)
    fit = fitted(played, plays, noise)
    span = np.linalg.pinv(played) @ played
    axis = np.linalg.eigh(span @ fit.plain @ span)[1][:, -1]
    sent = reports(fit, played, plays, axis, 4000, each)
    lengths = np.linalg.norm(sent, axis=1)
    assert (lengths > fit.radius).mean() <= 2 * np.exp(-own_fits.RARE)
    assert float(np.maximum(lengths - fit.radius, 0).mean()) <= fit.lost
    if noise:
        assert fit.lost > 0
        assert fit.radius < fitted(played, plays, 1e-9).radius


@pytest.mark.parametrize("actions", [4, 30])
def test_the_learner_inverts_the_fit_within_the_span(actions: int) -> None:
    rng = np.random.default_rng(actions)
    played = rng.standard_normal((actions, 6))
    plays, theta = rng.integers(1, 9, actions).astype(float), rng.standard_normal(6)
    fit = fitted(played, plays, 1.0)
    assert len(fit.solve) == min(actions, 6)
    basis = np.linalg.qr(rng.standard_normal((len(fit.solve),) * 2))[0]  # any will do
    for solve in (fit.solve, basis @ fit.solve):
        back = own_fits.report_inverse(played, plays, solve) @ (solve @ (played @ theta))
        np.testing.assert_allclose(played @ back, played @ theta, atol=1e-8)
    np.testing.assert_allclose(fit.solve @ played, fit.forward, atol=1e-8)
    weighted = np.linalg.pinv(played * np.sqrt(plays)[:, None])
    span = np.linalg.pinv(played) @ played
    np.testing.assert_allclose(fit.plain, weighted @ weighted.T + 0.01 * span, atol=1e-8)


def test_estimates_rarely_exceed_their_stated_error() -> None:
    """2,000 normal errors of a degenerate matrix; at a chance of 0.01, false alarm below 1e-6."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 3))
    errors = rng.standard_normal((2000, 3)) @ root.T
    far = own_fits.distance_of(root @ root.T, 0.01)
    rate = float((np.linalg.norm(errors, axis=1) > far).mean())
    assert rate <= 0.01
    assert far < 4 * np.sqrt(np.trace(root @ root.T))


def test_confidence_balls_shrink_and_stay_public() -> None:
    """Radii follow from what was released: the same learner, restored, asks for the same ones."""
    rng = np.random.default_rng(3)
    world = random_population(5, 60, client_std=0.1, bound=1.0, rng=rng)
    entry = lookup("cdp-dpe")
    asked = {"dimension": 5, "actions": 60, "horizon": 40_000, "epsilon": 5.0, "delta": 0.01}
    experiment = entry.build(entry.make_problem(asked).for_environment(world, 0))
    radii = []
    while rounds := experiment.propose():
        (round_,) = rounds
        again = Learner.from_dict(json.loads(json.dumps(experiment.learner.to_dict())))
        assert again.propose() == rounds
        if not round_.released:
            experiment.skip(round_)
            continue
        if isinstance(round_.assignment, Fit):
            radii.append(round_.assignment.radius)
        protocol = experiment.open(round_)
        played = world.play(round_, protocol, rng)
        experiment.observe(round_, protocol.simulate(played.load, rng))
    assert radii[-1] < 0.7 * max(radii)
    assert int(world.gaps.argmin()) in experiment.learner.active


@pytest.mark.extended
@pytest.mark.parametrize("name", extended_after(2, ["cdp-dpe", "ldp-dpe", "secagg-dpe", "sdp-dpe"]))
def test_the_best_action_is_kept_under_every_trust_model(name: str) -> None:
    """20 small runs each; at β = 0.05, three or more lost would be a chance of 7%, four of 2%: all
    are kept, since widths are not tight to the last digit.
    """
    entry, lost = lookup(name), 0
    for seed in range(20):
        problem = entry.make_problem(
            {"dimension": 3, "actions": 20, "horizon": 5000, "epsilon": 5.0}
        )
        start = problem.start(seed, None)
        experiment = entry.build(problem.for_environment(start.world, seed))
        outcome = run(experiment, start.world, start.rng)
        assert outcome.gaps is not None
        lost += int(outcome.gaps.argmin()) not in experiment.learner.active
    assert lost <= 1


def test_a_shuffler_round_needs_few_clients_for_actions_and_many_for_parameters() -> None:
    entry = lookup("sdp-dpe")
    problem = entry.make_problem({"dimension": 3, "actions": 20, "horizon": 20_000})
    start = problem.start(0, None)
    experiment = entry.build(problem.for_environment(start.world, 0))
    asked = {}
    while rounds := experiment.propose():
        (round_,) = rounds
        protocol = experiment.open(round_) if round_.released else None
        played = start.world.play(round_, protocol, start.rng)
        if protocol is None:
            experiment.skip(round_)
            continue
        asked[round_.participants] = isinstance(round_.assignment, Fit)
        experiment.observe(round_, protocol.simulate(played.load, start.rng))
    assert all(not fits or clients >= 19 for clients, fits in asked.items())
    assert set(asked.values()) == {True, False}


def test_invalid_fits_are_rejected() -> None:
    entry = lookup("cdp-dpe")
    with pytest.raises(TacitError, match="let clients report actions"):
        entry.make_problem({"delta": 0.0, "reports": "parameters"})
    with pytest.raises(TacitError, match="reports is 'dreams'"):
        entry.make_problem({"reports": "dreams"})
    assert not entry.make_problem({"delta": 0.0}).fits  # type: ignore[attr-defined]
    with pytest.raises(TacitError, match="paper's clients report actions"):
        DistributedElimination(
            np.eye(3), 100, widths=Widths(constants="paper"), fitted=FittedReports(1)
        )


def test_errors_beyond_any_bound_on_the_bias_are_unbounded() -> None:
    assert own_fits.cut_off(1.0, np.array([1e60]), 10, 0.01) == np.inf

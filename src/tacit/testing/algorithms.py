"""Contract suite of named algorithms."""

from __future__ import annotations

import json
from typing import Any

from tacit.algorithms.registry import Algorithm, lookup
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.privacy import Guaranteed, KnownPerRound, NonPrivate
from tacit.simulation.driver import Trial, run

SMALL: dict[str, dict[str, Any]] = {
    "arms": {"arms": 3, "horizon": 2_000},
    "linear": {"dimension": 3, "actions": 8, "horizon": 400},
    "federated": {"silos": 3, "dimension": 3, "actions": 4, "sync": 5, "horizon": 22},
    "contextual": {"arms": 3, "dimension": 4, "horizon": 2_000},
}


def check_algorithm(name: str, **options: Any) -> None:
    """Check that a named algorithm fulfils its contract.

    It builds, runs to its horizon, is reproducible by its seed, and can be stored and restored in
    the middle. It rejects unknown options, and every round's guarantee implies the run's.

    Parameters
    ----------
    name : str
        Name in the registry.
    **options
        Options of the algorithm; its family's small sizes by default.

    Raises
    ------
    AssertionError
        If the algorithm violates its contract.

    Examples
    --------
    >>> check_algorithm("klucb", horizon=500)
    """
    entry = lookup(name)
    size = SMALL.get(entry.family, {})
    small = {key: value for key, value in size.items() if key in entry.options}
    problem = entry.make_problem(small | options)
    trial = Trial(name, problem)
    record = trial(3)
    again = trial(3)
    assert record == again, "a seed must reproduce a run to the last bit"
    assert record["regret"][-1] >= -1e-9, "pseudo-regret is never negative"
    assert list(record["regret"]) == sorted(record["regret"]), "cumulative regret never falls"
    assert entry.describe(problem).keys() == set(entry.options), "describe() must list every option"
    _check_strange_options(entry)
    _check_rounds(entry, trial)


def _check_strange_options(entry: Algorithm) -> None:
    try:
        entry.make_problem({"no_such_option": 1})
    except TacitError as error:
        assert "no-such-option" in str(error), "a rejection names the option"
        return
    raise AssertionError("an unknown option must be rejected")


def _check_rounds(entry: Algorithm, trial: Trial) -> None:
    """A restored experiment continues; no round has a weaker guarantee than the run."""
    start = trial.problem.start(3, None)
    experiment = entry.build(trial.problem.for_environment(start.world, 3))
    round_ = experiment.propose()[0]
    if round_.released:
        protocol = experiment.open(round_)
        match experiment.mechanism.privacy:
            case NonPrivate():
                assert protocol.guarantee is None, "a round has no guarantee if the run has none"
            case KnownPerRound():
                assert protocol.guarantee is not None, "a private run has private rounds"
            case Guaranteed(stated):
                assert protocol.guarantee is not None, "a private run has private rounds"
                assert protocol.guarantee.implies(stated), "a round implies the run's guarantee"
        played = start.world.play(round_, protocol, start.rng)
        experiment.observe(round_, protocol.simulate(played.load, start.noise))
    stored = json.loads(json.dumps(experiment.to_dict(), allow_nan=False))
    restored = Experiment.from_dict(stored)
    assert restored.mechanism.privacy == experiment.mechanism.privacy, (
        "the guarantee must be restored"
    )
    outcome = run(restored, start.world, start.rng, noise=start.noise)
    assert restored.finished, "a restored experiment must reach its horizon"
    assert outcome.released >= 0, "a run counts its released rounds"

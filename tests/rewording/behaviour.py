"""Builds, saves, restores and continues experiments, designs and terms; prints what they do.

    python -m tests.rewording.behaviour save|load DIRECTORY

`save` stores every case in the middle of its run; `load` continues from what is stored there. Both
print the same JSON: no sentence is in it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.terms.examples import masked, terms

from tacit.algorithms.registry import lookup
from tacit.experiment import Experiment, load, save
from tacit.terms import Terms
from tacit.types import Round

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "arms": ("dist-dp-se", {"arms": 3, "horizon": 2_000}),
    "arms-paper": ("dist-rdp-se", {"arms": 3, "horizon": 2_000, "constants": "paper"}),
    "dropout": ("private-med", {"arms": 3, "horizon": 3_000, "dropout": 0.2, "corrupt": 0.1}),
    "shuffler": ("private-klucb", {"arms": 2, "horizon": 3_000, "trust": "shuffler"}),
    "two-servers": ("private-med", {"arms": 3, "horizon": 3_000, "trust": "two-servers"}),
    "returning": ("sdp-ae", {"arms": 2, "horizon": 4_000, "delta": 1e-3, "participations": 2}),
    "free": ("klucb", {"arms": 3, "horizon": 500}),
    "design": ("secagg-dpe", {"dimension": 3, "actions": 8, "horizon": 400}),
    "design-each": ("sdp-pe", {"dimension": 3, "actions": 8, "horizon": 400, "epsilon": 8.0}),
    "design-paper": (
        "cdp-dpe",
        {"dimension": 3, "actions": 8, "horizon": 400, "constants": "paper"},
    ),
    "silos": ("secagg-fedlinucb", {"silos": 3, "dimension": 3, "sync": 5, "horizon": 22}),
    "silos-eager": (
        "ldp-fedlinucb",
        {"silos": 3, "dimension": 3, "sync": 5, "horizon": 22, "lazy": False},
    ),
    "silos-budgets": (
        "ldp-fedlinucb",
        {
            "silos": 3,
            "dimension": 3,
            "sync": 5,
            "horizon": 22,
            "budgets": ((1.0, 1e-5), (0.5, 1e-5), (2.0, 1e-6)),
        },
    ),
}


def start(case: str) -> tuple[Experiment, Any]:
    """A fresh experiment and its simulated world."""
    name, options = CASES[case]
    entry = lookup(name)
    problem = entry.make_problem(options)
    begun = problem.start(3, None)
    return entry.build(problem.for_environment(begun.world, 3)), begun.world


def step(experiment: Experiment, round_: Round, world: Any) -> str:
    """One round with its own seed; the guarantee that its estimate carries."""
    rng = np.random.default_rng([5, round_.number])
    protocol = experiment.open(round_) if round_.released else None
    played = world.play(round_, protocol, rng)
    if protocol is None:
        experiment.skip(round_)
        return ""
    estimate = protocol.simulate(played.load, rng)
    experiment.observe(round_, estimate)
    return str(estimate.guarantee_id)


def run(experiment: Experiment, world: Any) -> dict[str, Any]:
    """To the end: everything that it decided, and under which guarantees."""
    ids = []
    while rounds := experiment.propose():
        ids += [step(experiment, round_, world) for round_ in rounds]
    guarantee = experiment.guarantee
    return {
        "estimates": ids,
        "best": experiment.best(),
        "played": experiment.learner.played,
        "guarantee": None if guarantee is None else guarantee.to_data(),
        "stored": experiment.to_dict(),
    }


def main(mode: str, folder: Path) -> dict[str, Any]:
    """Everything that is compared."""
    found: dict[str, Any] = {}
    for case in CASES:
        experiment, world = start(case)
        for round_ in experiment.propose():
            step(experiment, round_, world)
        path = folder / f"{case}.json"
        if mode == "save":
            save(experiment, path)
        found[case] = run(load(path), world)
    for name, document in (("two-servers", terms()), ("masked", masked())):
        path = folder / f"{name}.terms"
        if mode == "save":
            path.write_bytes(document.encode())
        read = Terms.decode(path.read_bytes())
        assert read == document
        found[f"terms {name}"] = {"digest": read.digest.hex(), "document": read.document()}
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2])), sort_keys=True, allow_nan=False))

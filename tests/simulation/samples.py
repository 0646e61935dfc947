"""A small study of all three families, and an external package with a harmful algorithm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "name": "small",
    "algorithms": ["private-med", "ucb1", "cdp-dpe", "secagg-fedlinucb"],
    "problems": [
        {"arms": 3, "horizon": [300, 600]},
        {"dimension": 3, "actions": 6, "horizon": 200, "family": "linear"},
        {"silos": 3, "dimension": 3, "actions": 5, "horizon": 20, "sync": 10},
    ],
    "guarantees": {"epsilon": [0.5, 2]},
    "seeds": 2,
}
SMALL_TOML = """
name = "small"
algorithms = ["private-med", "ucb1", "cdp-dpe", "secagg-fedlinucb"]
seeds = {seeds}

[[problems]]
arms = 3
horizon = [300, 600]

[[problems]]
family = "linear"
dimension = 3
actions = 6
horizon = 200

[[problems]]
silos = 3
dimension = 3
actions = 5
horizon = 20
sync = 10

[[guarantees]]
epsilon = [0.5, 2]
"""
HARMFUL = '''"""As ucb1 but, where the environment says so, seeds 3 and 40 do harm."""
import os
from tacit import ArmsProblem, algorithm
from tacit.algorithms.registry import lookup

@algorithm("harmful", paper="a test", trust="none", guarantee="none", problem=ArmsProblem,
           options=("arms", "horizon"))
def harmful(problem):
    if os.environ["HARM"] and problem.learner_seed == 3:
        raise ZeroDivisionError("at seed 3")
    if os.environ["HARM"] and problem.learner_seed == 40:
        os._exit(9)
    return lookup("ucb1").build(problem)
'''
HARMFUL_TOML = """
algorithms = ["harmful", "klucb"]
seeds = 60
problems = {arms = 3, horizon = 200}
"""


def installed(site: Path, **variables: str) -> dict[str, str]:
    """The environment of a process in which the harmful package is installed."""
    about = site / "harmful-1.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (site / "harmful.py").write_text(HARMFUL)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: harmful\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tacit.algorithms]\nharmful = harmful\n")
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}

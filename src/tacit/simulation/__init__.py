"""Simulation: the driver, runs over seeds, results and plots.

Sweeps over grids are in `tacit.simulation.sweeping`, which this package does not import.
"""

from tacit.algorithms.run_outcome import RunOutcome
from tacit.simulation.driver import RunConditions, Trial, checkpoints_for, run
from tacit.simulation.files import write_csv
from tacit.simulation.results import Result, Results
from tacit.simulation.seeds import Runs, over_seeds
from tacit.simulation.study import RunConfig, compare, simulate

__all__ = [
    "Result",
    "Results",
    "RunConditions",
    "RunConfig",
    "RunOutcome",
    "Runs",
    "Trial",
    "checkpoints_for",
    "compare",
    "over_seeds",
    "run",
    "simulate",
    "write_csv",
]

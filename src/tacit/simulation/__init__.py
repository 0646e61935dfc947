"""The one driver, sweeps over seeds, results and pictures."""

from tacit.simulation.driver import Outcome, Trial, checkpoints_for, run
from tacit.simulation.results import Result, write_csv
from tacit.simulation.study import How, compare, simulate
from tacit.simulation.sweep import Sweep, sweep

__all__ = [
    "How",
    "Outcome",
    "Result",
    "Sweep",
    "Trial",
    "checkpoints_for",
    "compare",
    "run",
    "simulate",
    "sweep",
    "write_csv",
]

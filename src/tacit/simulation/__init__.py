"""The one driver, runs over seeds, sweeps over grids and their engines, results and pictures."""

from tacit.simulation.driver import Outcome, Trial, checkpoints_for, run
from tacit.simulation.frame import Frame
from tacit.simulation.grid import Study, read_study
from tacit.simulation.results import Result, write_csv
from tacit.simulation.seeds import Runs, over_seeds
from tacit.simulation.study import How, compare, simulate
from tacit.simulation.sweeping import sweep

__all__ = [
    "Frame",
    "How",
    "Outcome",
    "Result",
    "Runs",
    "Study",
    "Trial",
    "checkpoints_for",
    "compare",
    "over_seeds",
    "read_study",
    "run",
    "simulate",
    "sweep",
    "write_csv",
]

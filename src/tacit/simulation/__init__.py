"""The one driver, runs over seeds, results and pictures; sweeps over grids are in `sweeping`, which
loads when it is needed.
"""

from tacit.simulation.driver import RunOutcome, Trial, checkpoints_for, run
from tacit.simulation.frame import Frame
from tacit.simulation.results import Result, write_csv
from tacit.simulation.seeds import Runs, over_seeds
from tacit.simulation.study import RunConfig, compare, simulate

__all__ = [
    "Frame",
    "Result",
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

"""Drives learner, protocol and environment together; seeds, sweeps, results."""

from tacit.simulation.results import Result, write_csv
from tacit.simulation.run import Run, checkpoints_for, run
from tacit.simulation.sweep import Sweep, sweep

__all__ = ["Result", "Run", "Sweep", "checkpoints_for", "run", "sweep", "write_csv"]

"""Learners of silos, and the statistics that their silos report."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.bandits.contract import KeptLearner


@dataclass(frozen=True)
class SiloStatistics:
    """The vector that a silo reports per batch, as its noise has to account for it.

    Parameters
    ----------
    size : int
        Numbers of the vector.
    sensitivity : float
        The l2 sensitivity of the vector to replacing one record.
    records : int
        Records of a silo in the largest batch.
    lazy : bool
        Whether silos ignore the raw data of a batch until it is reported.
    """

    size: int
    sensitivity: float
    records: int
    lazy: bool


class SiloLearner(KeptLearner):
    """A learner whose rounds are batches of silos; the silos report `statistics`."""

    @property
    @abstractmethod
    def statistics(self) -> SiloStatistics:
        """The kind of report that a silo makes per batch."""

    @abstractmethod
    def policy(self, steps: int) -> LinUCBPolicy:
        """The policy after the last release, for this number of steps; also after the horizon."""

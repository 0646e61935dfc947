"""The contract of a learner: a state machine without I/O that decides which users try which arm.

`propose` says which batches of fresh users to send where; `observe` takes the private estimate of one of them. The simulator and
the live service drive the same objects. A learner knows nothing of protocols: only the estimate and the law of its error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


class ErrorLike(Protocol):
    """The law of an estimate's error, as learners use it (see `tacit.protocols.contract.ErrorLaw`)."""

    users: int

    @property
    def variance(self) -> float:
        """The variance of the noise in the estimated sum."""

    def log_mgf(self, s: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """ln E[e^{s · error of the sum}]."""

    def radius(self, p: float) -> float:
        """The least r with P[|error of the sum| > r] <= p."""


class EstimateLike(Protocol):
    """A batch's estimated sum of rewards and the law of its error."""

    total: float
    error: ErrorLike


@dataclass(frozen=True)
class Batch:
    """`users` fresh users try `arm`. A batch that is not `opened` is played out (the horizon cuts it short) but never reported."""

    number: int
    arm: int
    users: int
    opened: bool = True

"""What a problem reads of a finished run to record it, whatever drives the run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tacit.experiment import Experiment
    from tacit.privacy import Guarantee


class RunTotals(Protocol):
    """Totals of a run: regret, communication and guarantee. `RunOutcome` of the driver has them."""

    experiment: Experiment
    gaps: npt.NDArray[np.float64] | None
    means: npt.NDArray[np.float64] | None
    opened: int
    wrapped: int
    participants: int
    reals: int
    bits: float
    notes: Counter[str]

    @property
    def played(self) -> int:
        """Used part of the horizon."""

    @property
    def regret(self) -> list[float] | None:
        """Cumulative pseudo-regret at the checkpoints, if it is known."""

    @property
    def realised(self) -> list[float] | None:
        """Cumulative realised regret at the checkpoints, if it is known."""

    @property
    def final_realised(self) -> float | None:
        """Cumulative realised regret at the end, if it is known."""

    @property
    def guarantee(self) -> Guarantee | None:
        """Guarantee of the whole run."""

"""Totals of a run, which its driver adds up and its problem records: regret and communication."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tacit.bandits.contextual.policy_learners import PolicyLearner
from tacit.experiment import Experiment
from tacit.privacy import Guarantee, KnownPerRound, weakest
from tacit.protocols.contract import Protocol
from tacit.types import Floats, Played

MOST_LISTED = 50  # options


@dataclass
class RunOutcome:
    """Outcome of a run so far: cumulative regret, piecewise linear in time, and communication.

    Parameters
    ----------
    experiment : Experiment
        The experiment that is run.
    gaps : array or None
        The suboptimality gaps of the arms; None if unknown.
    checkpoints : tuple of int
        The steps at which regret is recorded.
    means : array, optional
        The true mean rewards of the arms.
    single : (float, float), optional
        Regret per participant of the best single option, and of uniform choice.
    released : int
        The number of released rounds.
    rounds : int
        The number of rounds.
    wrapped : int
        The number of sums misread modulo m.
    earned : dict
        The guarantees of the released rounds, as keys.
    participants : int
        The number of participants of released rounds.
    reals : int
        The number of numbers that they reported.
    bits : float
        The number of bits that they sent.
    notes : Counter
        Sums of the environment's notes.
    """

    experiment: Experiment
    gaps: Floats | None
    checkpoints: tuple[int, ...]
    means: Floats | None = None
    single: tuple[float, float] | None = None  # regret of the best option, and of uniform choice
    released: int = 0
    rounds: int = 0
    wrapped: int = 0
    earned: dict[Guarantee | None, None] = field(default_factory=dict)
    participants: int = 0
    reals: int = 0
    bits: float = 0.0
    notes: Counter[str] = field(default_factory=Counter)
    _time: list[Floats] = field(default_factory=lambda: [np.zeros(1)])
    _regret: list[Floats] = field(default_factory=lambda: [np.zeros(1)])
    _lost: list[float] = field(default_factory=lambda: [0.0])
    _known: bool = True

    def add(self, played: Played, protocol: Protocol | None, *, wrapped: bool) -> None:
        """Add one round.

        Parameters
        ----------
        played : Played
            The round's time, regret and notes.
        protocol : Protocol or None
            The protocol of a released round.
        wrapped : bool
            Whether the released sum was misread modulo m.
        """
        self._time.append(self._time[-1][-1] + played.time)
        if played.regret is None:
            self._known = False
        else:
            self._regret.append(self._regret[-1][-1] + played.regret)
            self._lost.append(self._lost[-1] + played.lost)
        if played.notes:
            self.notes.update(played.notes)
        if protocol is not None:
            self.released += 1
            self.wrapped += wrapped
            self.participants += protocol.participants
            self.reals += protocol.participants * protocol.numbers_per_participant
            self.bits += protocol.participants * protocol.bits_per_participant
            if isinstance(self.experiment.mechanism.privacy, KnownPerRound):
                self.earned[protocol.guarantee] = None

    @property
    def played(self) -> int:
        """Number of participants or rounds of the horizon that are used."""
        return int(self._time[-1][-1])

    @property
    def regret(self) -> list[float] | None:
        """Cumulative pseudo-regret at the checkpoints; None where the true means are unknown."""
        if not self._known:
            return None
        time, regret = np.concatenate(self._time), np.concatenate(self._regret)
        return [float(value) for value in np.interp(self.checkpoints, time, regret)]

    @property
    def final_regret(self) -> float | None:
        """Cumulative pseudo-regret at the end of the run; independent of the checkpoints."""
        return float(self._regret[-1][-1]) if self._known else None

    @property
    def realised(self) -> list[float] | None:
        """Cumulative realised regret at the checkpoints; None where the true means are unknown."""
        if not self._known:
            return None
        ends = [float(part[-1]) for part in self._time]
        return [float(value) for value in np.interp(self.checkpoints, ends, self._lost)]

    @property
    def estimates(self) -> list[dict[str, Any]]:
        """The arm summary, one dict per option; empty with more than `MOST_LISTED` options."""
        few = len(self.experiment.options) <= MOST_LISTED
        return [asdict(row) for row in self.experiment.estimates()] if few else []

    @property
    def answers(self) -> dict[str, list[dict[str, Any]]]:
        """Which option is best for whom, and the gain over one option; empty without contexts."""
        learner = self.experiment.learner
        if not isinstance(learner, PolicyLearner):
            return {}
        return {
            "answers": [asdict(one) for one in learner.answers()],
            "gains": [asdict(one) for one in learner.gains()],
        }

    @property
    def final_realised(self) -> float | None:
        """Cumulative realised regret at the end of the run; None where the true means are
        unknown.
        """
        return self._lost[-1] if self._known else None

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the whole run.

        Where the guarantee is known only after each round, it is the weakest of all rounds.
        """
        found = weakest(list(self.earned)) if self.earned else None
        return self.experiment.printed(found)

"""Guardrail metric: pauses options whose second metric is significantly worse than the control's.

Its estimates are pooled like those of the first metric (`tacit.bandits.confidence_sequences`), so
the test is anytime-valid. The probability that it ever pauses any option that is not worse by more
than the margin is at most 1 - level, whatever the learner does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tacit.bandits.arm_summaries import SummarySettings, failure_left, interval, level_of
from tacit.bandits.confidence_sequences import Tally, is_larger
from tacit.errors import TacitError, one_of, probability
from tacit.types import ArmSummary, Estimate

DIRECTIONS = ("lower", "higher")


@dataclass(frozen=True)
class Guardrail:
    """Definition of a guardrail metric.

    Parameters
    ----------
    name
        The metric's name.
    better
        Whether `lower` or `higher` values are better.
    margin
        By how much an option's mean may be worse than the control's.
    level
        The confidence level of a pause.
    """

    name: str
    better: str = "lower"
    margin: float = 0.0
    level: float = 0.95

    def __post_init__(self) -> None:
        if not self.name:
            raise TacitError("the guardrail has no name: give the second metric's, such as errors")
        one_of("better", self.better, DIRECTIONS)
        remedy = "how much worse than the control is tolerated, such as 0.01"
        probability("margin", self.margin, remedy, zero=True)
        probability("level", self.level, "it is the confidence level of a pause, such as 0.95")


class Guard:
    """State of a guardrail: its estimates, and the options it has ever paused with the reasons.

    It pauses no option twice: an experimenter who resumes one overrides the guardrail.
    """

    def __init__(self, rail: Guardrail, horizon: int, options: int) -> None:
        self.rail, self.horizon, self.first = rail, horizon, options
        self.tallies: list[Tally] = []
        self.reasons: dict[int, str] = {}
        for _ in range(options):
            self.add()

    def add(self) -> None:
        """Add an option."""
        self.tallies.append(Tally(self.horizon, max(1, self.horizon // self.first)))

    def take(self, option: int, estimate: Estimate) -> None:
        """Add the metric's estimate of one round."""
        self.tallies[option].add(estimate)

    def newly_worse(self, options: Iterable[int], control: int) -> list[int]:
        """The options found worse than the control and never paused before; records the reasons."""
        sure = failure_left(self.tallies, self._setting(self.rail.level))
        found = [
            k
            for k in options
            if k not in self.reasons and self._is_significantly_worse(k, control, sure)
        ]
        for k in found:
            self.reasons[k] = self._reason(k, control)
        return found

    def _setting(self, level: float) -> SummarySettings:
        return SummarySettings(level, self.first)

    def _is_significantly_worse(
        self, option: int, control: int, failure_probability: float
    ) -> bool:
        mine, theirs = self.tallies[option], self.tallies[control]
        larger, smaller = (mine, theirs) if self.rail.better == "lower" else (theirs, mine)
        level = level_of(failure_probability * self._setting(self.rail.level).share(option))
        return is_larger(larger, smaller, level, self.rail.margin)  # False for the control itself

    def _reason(self, option: int, control: int) -> str:
        mine, theirs = self.tallies[option].mean, self.tallies[control].mean
        by = f" by more than {self.rail.margin:g}" if self.rail.margin else ""
        return (
            f"{self.rail.name} is clearly worse than the control's{by}: {mine:.4g} against "
            f"{theirs:.4g} ({self.rail.better} is better)"
        )

    def extend_summary(self, row: ArmSummary, option: int, level: float) -> ArmSummary:
        """An option's summary extended by the guardrail metric's mean and interval."""
        sure = failure_left(self.tallies, self._setting(level))
        low, high = interval(self.tallies[option], sure * self._setting(level).share(option))
        mean = self.tallies[option].mean
        return replace(row, guardrail=mean, guardrail_low=low, guardrail_high=high)

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            "rail": asdict(self.rail),
            "horizon": self.horizon,
            "first": self.first,
            "tallies": [tally.to_dict() for tally in self.tallies],
            "reasons": [[option, reason] for option, reason in self.reasons.items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Guard:
        """The guard that `to_dict` serialised."""
        guard = cls(Guardrail(**data["rail"]), data["horizon"], data["first"])
        guard.tallies = [Tally.from_dict(entry) for entry in data["tallies"]]
        guard.reasons = dict(data["reasons"])
        return guard

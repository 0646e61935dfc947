"""The durations of a round's phases."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import integer


@dataclass(frozen=True)
class Timing:
    """Durations of a round's phases, in seconds.

    Slots are assigned for `joining` seconds. A device sends its report after the terms' observation
    window and a random delay within the first half of `margin`. The second half is for retries. A
    round that is not released within `grace` seconds after its deadline never is.
    """

    joining: int
    margin: int
    grace: int

    def __post_init__(self) -> None:
        integer("joining", self.joining, at_least=1)
        integer("margin", self.margin, at_least=2, remedy="reports need time to be sent again")
        integer("grace", self.grace, at_least=1)

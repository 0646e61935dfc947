"""How long the parts of a round last."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import integer


@dataclass(frozen=True)
class Timing:
    """Seconds: places of a round are given out for `joining`; a report is sent after the terms'
    observation window and a random part of the first half of `margin`, whose second half is for
    sending again; what is not opened `grace` after the deadline never is.
    """

    joining: int
    margin: int
    grace: int

    def __post_init__(self) -> None:
        integer("joining", self.joining, at_least=1)
        integer("margin", self.margin, at_least=2, remedy="reports need time to be sent again")
        integer("grace", self.grace, at_least=1)

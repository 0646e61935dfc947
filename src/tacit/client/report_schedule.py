"""When a device sends: fixed when it joins, by a seed that is drawn before there is an outcome.

Every time here is a function of the seed, of the round's times and of which attempts failed; no
answer goes in. So requests of devices with other answers have the same law.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

from tacit.aggregation import TwoServerRound
from tacit.errors import Refusal

SEED_SIZE = 32
MOST_QUESTIONS = 20  # about two weeks
_ATTEMPTS_FIT = 64  # the first pause is this part of the margin
_SHORTEST, _FIRST, _LONGEST = 0.05, 30.0, 86_400.0  # seconds


class Attempt(Enum):
    """What an attempt is about."""

    REPORT = "report"
    OUTCOME = "outcome"


@dataclass(frozen=True, repr=False)
class Pace:
    """The times of one participation: from joining, through sending, to the round's outcome."""

    seed: bytes
    joined: float
    window: int
    closes: int
    margin: int

    @classmethod
    def of(cls, announced: TwoServerRound, joined: float, seed: bytes) -> Pace:
        """For a round that somebody joined then."""
        return cls(
            seed, joined, announced.binding.window, announced.binding.closes, margin(announced)
        )

    @property
    def sends(self) -> float:
        """When both halves are first sent: after the window, at random within half the margin, so
        that the other half is left for further attempts.
        """
        return self.joined + self.window + self._drawn("sends", 0, 0) * self.margin / 2

    @property
    def asks(self) -> float:
        """When the servers are first asked what became of the round."""
        return self.closes + self._drawn("asks", 0, 0) * self.margin / 2

    def next(self, what: Attempt, role: int, attempts: int, last: float) -> float:
        """When the next attempt is due, after so many, the last of them at this time: jittered
        pauses that double.
        """
        if not attempts:
            return self.sends if what is Attempt.REPORT else self.asks
        first = min(max(self.margin / _ATTEMPTS_FIT, _SHORTEST), _FIRST)
        pause = min(first * 2.0 ** min(attempts - 1, 40), _LONGEST)
        return last + pause * (1 + self._drawn(what.value, role, attempts)) / 2

    def _drawn(self, what: str, role: int, attempt: int) -> float:
        """Uniform in [0, 1), always the same for the same seed."""
        about = f"tacit pace {what} {role} {attempt}".encode()
        return int.from_bytes(hashlib.sha256(self.seed + about).digest()[:6], "big") / 2**48


def margin(announced: TwoServerRound) -> int:
    """The seconds between the end of the last window and the deadline."""
    about = announced.binding
    return about.closes - announced.assigned_until - about.window


def check_times(announced: TwoServerRound, now: float) -> None:
    """Refuses a round that this device cannot report to in time, by its own clock."""
    if int(now) > announced.assigned_until:
        raise Refusal(
            f"places of this round were given out until {announced.assigned_until}, and it is "
            f"{now:.0f} on this device: too late, or one of the clocks is wrong"
        )
    if margin(announced) < 1:
        raise Refusal(
            f"this round closes at {announced.binding.closes}, which leaves no time to send after "
            f"a window of {announced.binding.window} seconds for who joins until "
            f"{announced.assigned_until}"
        )

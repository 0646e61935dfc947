"""Data-independent schedule of a device's requests: the time of a report leaks nothing.

Every time is a function of a seed drawn before the outcome exists, the round's times and the failed
attempts. No answer enters. Requests of devices with different answers therefore have the same
distribution.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

from tacit.aggregation.announcements import LiveRound
from tacit.errors import Rejected, require

SEED_SIZE = 32
MOST_QUESTIONS = 20  # about two weeks
_ATTEMPTS_FIT = 64  # the first pause is the margin divided by this
_SHORTEST, _FIRST, _LONGEST = 0.05, 30.0, 86_400.0  # seconds


class Attempt(Enum):
    """Kind of request: sending a report, or querying the outcome of a round."""

    REPORT = "report"
    OUTCOME = "outcome"


@dataclass(frozen=True, repr=False)
class RequestSchedule:
    """Schedule of one participation: from joining through sending to the round's outcome."""

    seed: bytes
    joined: float
    window: int
    closes: int
    margin: int

    @classmethod
    def of(cls, announced: LiveRound, joined: float, seed: bytes) -> RequestSchedule:
        """Schedule for a round joined at time `joined`."""
        return cls(
            seed, joined, announced.binding.window, announced.binding.closes, margin(announced)
        )

    @property
    def first_send(self) -> float:
        """Time of the first attempt to send both report shares.

        It is uniform over the first half of the margin after the window. The second half is left
        for retries.
        """
        return self.joined + self.window + self._uniform("sends", 0, 0) * self.margin / 2

    @property
    def first_query(self) -> float:
        """Time of the first query for the round's outcome."""
        return self.closes + self._uniform("asks", 0, 0) * self.margin / 2

    def next_attempt(self, attempt: Attempt, role: int, attempts: int, last: float) -> float:
        """Time of the next attempt after `attempts` attempts, the last at `last`.

        Pauses double and are jittered.
        """
        if not attempts:
            return self.first_send if attempt is Attempt.REPORT else self.first_query
        first = min(max(self.margin / _ATTEMPTS_FIT, _SHORTEST), _FIRST)
        pause = min(first * 2.0 ** min(attempts - 1, 40), _LONGEST)
        return last + pause * (1 + self._uniform(attempt.value, role, attempts)) / 2

    def _uniform(self, label: str, role: int, attempt: int) -> float:
        """Uniform in [0, 1), deterministic given the seed."""
        about = f"tacit pace {label} {role} {attempt}".encode()
        return int.from_bytes(hashlib.sha256(self.seed + about).digest()[:6], "big") / 2**48


def margin(announced: LiveRound) -> int:
    """Seconds between the end of the last observation window and the deadline."""
    about = announced.binding
    return about.closes - announced.assigned_until - about.window


def check_times(announced: LiveRound, now: float) -> None:
    """Reject a round that this device cannot report to in time by its own clock."""
    last = announced.assigned_until
    rule = f"at most {last}, the end of slot assignment. Check the clocks, or join another round"
    require(int(now) <= last, "time of this device", f"{now:.0f}", rule, Rejected)
    left = margin(announced)
    rule = "at least 1 second between the last observation window and the deadline"
    require(left >= 1, "time to send", left, rule, Rejected)

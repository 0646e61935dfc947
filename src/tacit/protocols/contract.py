"""The contract of a protocol: what leaves a device, what is opened, and what that says.

A protocol P = (R, S, A) is built for one round: a number of participants, of coordinates (1 for
arms), and a guarantee. `randomize` runs on the device, `combine` is the intermediary's ideal
functionality, `analyze` turns what was opened into an estimate of the sums of rewards. `simulate`
has the same law as running everybody through the three, in time that does not grow with them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from tacit.errors import TacitError, as_fraction, integer
from tacit.noise import Chance, NoiseLaw
from tacit.privacy import Guarantee
from tacit.types import ErrorLaw, Estimate, Floats, Integers, Levels, Opened


class Protocol(ABC):
    """What all protocols have, whatever is reported.

    `minimum` is the number of reports below which nothing is opened; the noise is shared out so
    that the guarantee holds from there on, with the shares of `honest` participants.
    """

    participants: int
    coordinates: int = 1
    minimum: int
    guarantee: Guarantee | None
    bits_per_participant: float

    @abstractmethod
    def randomize(self, x: Any) -> Any:
        """What leaves the device of a participant with this report: exact randomness from the
        operating system.
        """

    def report(self, x: Any, place: int) -> Any:  # noqa: ARG002
        """What participant number `place` of the round sends; most protocols do not care which."""
        return self.randomize(x)

    @abstractmethod
    def combine(self, messages: Any) -> Opened:
        """What the intermediary opens, given everyone's message."""

    @abstractmethod
    def analyze(self, opened: Opened) -> Estimate:
        """The estimate, from what was opened."""

    @abstractmethod
    def view_law(self, total: int, reports: int) -> NoiseLaw:
        """The exact law of what the guarantee's view sees of one number when so many reports'
        levels add up to `total`, from the shares that are drawn: of the opened number, of one
        message where messages are seen one by one, of what is left when a party that lies takes off
        its own noise.
        """

    def opened_law(self, total: int, reports: int) -> NoiseLaw:
        """The law of one opened number, where the view sees more than that."""
        return self.view_law(total, reports)

    @abstractmethod
    def simulate(self, load: Any, rng: np.random.Generator) -> Estimate:
        """An estimate with the law of running everybody, given what they hold together."""

    @cached_property
    def honest(self) -> int:
        """How many participants' noise the guarantee rests on, the person's own among them."""
        return self.minimum

    @property
    def made_of(self) -> Sequence[Protocol]:
        """The protocols that this one is composed of."""
        return ()

    @cached_property
    def guarantee_id(self) -> str:
        """The digest of the guarantee, empty without one; estimates carry it, so that none is
        taken for another's.
        """
        return "" if self.guarantee is None else self.guarantee.digest

    def check_reports(self, reports: int) -> None:
        """Refuses a number of reports for which the guarantee would not hold."""
        if reports < self.minimum:
            raise TacitError(
                f"round of {reports} reports is below the {self.minimum} that the guarantee needs "
                f"(n={self.participants}); nothing was opened: {self.minimum - reports} more "
                "reports, or a new round"
            )
        if reports > self.participants:
            raise TacitError(
                f"round of {reports} reports is over the {self.participants} that the protocol was "
                "built for: open a larger round"
            )


class SumProtocol(Protocol):
    """P = (R, S, A) for the sum of one number in [0, 1] per participant, rounded to g levels.

    A subclass writes `randomize`, `randomize_batch`, `combine`, `error`, `view_law`, `_sum` and
    `_open`.
    """

    precision: int

    def _for(self, participants: int, precision: int) -> None:
        self.participants = integer("participants", participants, at_least=1)
        self.precision = integer("precision", precision, at_least=1)

    @abstractmethod
    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Any:
        """The messages of many participants with these levels, for simulation: one row each, from
        the caller's generator.
        """

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Opened:  # noqa: ARG002
        """`combine` for messages of `randomize_batch`; a server that adds noise of its own takes it
        from the caller's generator.
        """
        return self.combine(messages)

    @abstractmethod
    def error(self, reports: int) -> ErrorLaw:
        """The law of the error when this many reports arrive."""

    @property
    def reach(self) -> tuple[float, float]:
        """The least and the most that one report adds to the estimated sum of rewards, whatever its
        sender says; an honest one adds 0 to 1, noise apart. Any number, unless a protocol knows
        better.
        """
        return -math.inf, math.inf

    @abstractmethod
    def _sum(self, opened: Opened) -> float:
        """The estimated sum of levels, from what was opened."""

    @abstractmethod
    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Opened:
        """A value with the law of `combine` for reports whose levels sum to `total`."""

    def analyze(self, opened: Opened) -> Estimate:
        """The estimated sum of rewards."""
        self.check_reports(opened.reports)
        total = self._sum(opened) / self.precision
        return Estimate(total, self.error(opened.reports), self.guarantee_id, opened.wrapped)

    def simulate(self, load: Levels, rng: np.random.Generator) -> Estimate:
        """An estimate with the law of running everybody, given how many hold each level."""
        reports = load.participants
        self.check_reports(reports)
        return self.analyze(self._open(load.total, reports, rng))

    def run(self, rewards: Floats, rng: np.random.Generator) -> tuple[Estimate, float]:
        """Every single participant simulated, and the sum of their rounded rewards."""
        levels = round_levels(rewards, self.precision, rng)
        opened = self.combine_batch(self.randomize_batch(levels, rng), rng)
        return self.analyze(opened), float(levels.sum()) / self.precision

    def encode(self, x: float) -> int:
        """⌊xg⌋ or the next level, at random so that the mean is xg exactly (the codec of all
        protocols, CZ23 Algorithm 1)..
        """
        if isinstance(x, bool) or not isinstance(x, Real) or not 0 <= x <= 1:
            raise TacitError(
                f"reward is {x!r}; it must be a number in [0, 1]: rescale or clip it before it is "
                "reported"
            )
        scaled = as_fraction("reward", x) * self.precision
        return random_level(scaled)


def as_they_are(_: Any, levels: Integers, rng: np.random.Generator) -> Integers:  # noqa: ARG001
    """For `randomize_batch` where devices send their levels themselves, and servers add noise."""
    return levels


def random_level(scaled: Fraction) -> int:
    """The whole number below `scaled` or the next one, at random, so that the mean is `scaled`."""
    level = math.floor(scaled)
    return level + Chance(scaled - level).flip()  # also where nothing is to be rounded: time tells


def round_levels(rewards: Floats, precision: int, rng: np.random.Generator) -> Integers:
    """The codec for many rewards at once, for simulation."""
    if len(rewards) and not (float(np.min(rewards)) >= 0 and float(np.max(rewards)) <= 1):
        raise TacitError(
            "a reward lies outside [0, 1]: rescale or clip rewards before they are reported"
        )
    scaled = rewards * precision
    lower = np.floor(scaled)
    return (lower + (rng.random(len(rewards)) < scaled - lower)).astype(np.int64)

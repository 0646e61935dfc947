"""`Protocol` and `SumProtocol`: the contracts of private aggregation protocols P = (R, S, A).

A protocol is built for one round: a number of participants, a number of coordinates (1 for arms)
and a guarantee. `randomize` runs on the device, `combine` is the aggregator's ideal functionality,
and `analyze` turns the released aggregate into estimated sums of rewards. `simulate` has the same
distribution as running all participants through the three, at a cost that does not grow with their
number. The cryptography that implements `combine` is in `tacit.aggregation`.
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
from tacit.names import PACKAGE, is_own
from tacit.noise import Chance, NoiseDistribution
from tacit.privacy import Arithmetic, Guarantee
from tacit.privacy.guarantees import state_arithmetic
from tacit.types import Aggregate, ErrorDistribution, Estimate, Floats, Integers, Levels


class Protocol(ABC):
    """A private aggregation protocol P = (R, S, A) for one round.

    Attributes
    ----------
    participants : int
        Largest number of reports in the round.
    coordinates : int
        Numbers in the aggregate; 1 for arms.
    minimum : int
        Minimum batch size: with fewer reports, nothing is released. The noise is shared so that the
        guarantee holds from there on, with the shares of `honest` participants.
    guarantee : Guarantee or None
        The derived guarantee; None for no privacy.
    bits_per_participant : float
        Size of one participant's message.

    Examples
    --------
    >>> from tacit.privacy import PureDP
    >>> from tacit.protocols.randomized_bits import RandomizedBits
    >>> protocol = RandomizedBits(100, PureDP(1.0))
    >>> messages = [protocol.randomize(1.0) for _ in range(100)]
    >>> estimate = protocol.analyze(protocol.combine(messages))
    >>> estimate.guarantee_id == protocol.guarantee_id
    True
    """

    participants: int
    coordinates: int = 1
    minimum: int
    guarantee: Guarantee | None
    bits_per_participant: float

    @property
    def numbers_per_participant(self) -> int:
        """Numbers in one participant's report."""
        return self.coordinates

    def __init_subclass__(cls) -> None:
        """Reject a guarantee on a class from outside tacit: an instance sets it, as not exact."""
        super().__init_subclass__()
        declared = cls.__dict__.get("guarantee")
        if declared is not None and cls.__module__.partition(".")[0] != PACKAGE:
            raise TacitError(
                f"{cls.__name__}.guarantee is on the class: set self.guarantee in __init__ instead"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; the guarantee of a class from outside tacit never counts as exact."""
        if name == "guarantee" and isinstance(value, Guarantee) and not is_own(type(self)):
            value = state_arithmetic(value, Arithmetic.UNSTATED)
        super().__setattr__(name, value)

    @abstractmethod
    def randomize(self, x: Any) -> Any:
        """The message of one device, with exact randomness from the operating system.

        Parameters
        ----------
        x
            The participant's report: a reward or a vector.

        Returns
        -------
        message
            The only data that leaves the device.
        """

    def report(self, x: Any, slot: int) -> Any:  # noqa: ARG002
        """The message of the participant in slot `slot`; most protocols ignore the slot.

        Parameters
        ----------
        x
            The participant's report.
        slot : int
            Slot of the participant in the round, from 0.

        Returns
        -------
        message
            As that of `randomize`.
        """
        return self.randomize(x)

    @abstractmethod
    def combine(self, messages: Any) -> Aggregate:
        """The aggregate that the aggregator releases.

        Parameters
        ----------
        messages : sequence
            The messages of all participants who report.

        Returns
        -------
        Aggregate
            One number per coordinate, and the number of reports.

        Raises
        ------
        TacitError
            If the number of reports is below `minimum` or above `participants`.
        """

    @abstractmethod
    def analyze(self, released: Aggregate) -> Estimate:
        """The estimate, from the released aggregate.

        Parameters
        ----------
        released : Aggregate
            The result of `combine`.

        Returns
        -------
        Estimate
            Estimated sums of rewards, with their error distribution and the digest of the
            guarantee.
        """

    @abstractmethod
    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The exact distribution of the adversary's view of one number, from the noise that is
        drawn.

        Parameters
        ----------
        total : int
            Sum of the levels of all reports.
        reports : int
            Number of reports; also fewer than `minimum`, those of honest participants alone.

        Returns
        -------
        NoiseDistribution
            The distribution of the released number; of one message, where messages are seen
            individually; or of the remainder after a malicious server subtracts its own noise.
        """

    def released_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The distribution of one released number, for views that see more than that."""
        return self.view_distribution(total, reports)

    @abstractmethod
    def simulate(self, load: Any, rng: np.random.Generator) -> Estimate:
        """An estimate with the distribution of a full run of all participants.

        Parameters
        ----------
        load
            What the participants hold in total, in the form that the protocol needs.
        rng : numpy.random.Generator
            The caller's generator.

        Returns
        -------
        Estimate
        """

    @cached_property
    def honest(self) -> int:
        """The number of participants whose noise the guarantee counts on, the participant's own
        included.
        """
        return self.minimum

    @property
    def components(self) -> Sequence[Protocol]:
        """The protocols that this one is composed of."""
        return ()

    @cached_property
    def guarantee_id(self) -> str:
        """The digest of the guarantee, empty without one; estimates carry it to identify their
        guarantee.
        """
        return "" if self.guarantee is None else self.guarantee.digest

    def check_reports(self, reports: int) -> None:
        """Reject a number of reports for which the guarantee does not hold.

        Raises
        ------
        TacitError
            If `reports` is below `minimum` or above `participants`.
        """
        if reports < self.minimum:
            raise TacitError(
                f"round of {reports} reports is below the {self.minimum} that the guarantee needs "
                f"(n={self.participants}); the round is aborted: {self.minimum - reports} more "
                "reports, or a new round"
            )
        if reports > self.participants:
            raise TacitError(
                f"round of {reports} reports is over the {self.participants} that the protocol was "
                "built for: propose a larger round"
            )


class SumProtocol(Protocol):
    """A protocol for the sum of one number in [0, 1] per participant, rounded to g levels.

    A subclass defines `randomize`, `randomize_batch`, `combine`, `error`, `view_distribution`,
    `_sum` and `_open`.

    Attributes
    ----------
    precision : int
        g: a reward x is randomly rounded to one of the levels 0..g, with mean xg.

    Notes
    -----
    The codec is that of CZ23 Algorithm 1; randomized rounding leaves the estimate unbiased.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy import PureDP
    >>> from tacit.protocols.sums import SecureSum
    >>> protocol = SecureSum(100, 10, DiscreteLaplace(10), PureDP(1.0))
    >>> protocol.guarantee.short, protocol.encode(0.5)
    ('(1, 0)-DP', 5)
    """

    precision: int

    def _for(self, participants: int, precision: int) -> None:
        self.participants = integer("participants", participants, at_least=1)
        self.precision = integer("precision", precision, at_least=1)

    @abstractmethod
    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Any:
        """The messages of many participants, for simulation.

        Parameters
        ----------
        levels : ndarray of int
            One level per participant.
        rng : numpy.random.Generator
            The caller's generator.

        Returns
        -------
        ndarray
            One row per participant.
        """

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Aggregate:  # noqa: ARG002
        """`combine` for messages of `randomize_batch`; servers draw their noise from `rng`.

        Parameters
        ----------
        messages : array
            Messages of `randomize_batch`.
        rng : numpy.random.Generator
            The caller's generator.
        """
        return self.combine(messages)

    @abstractmethod
    def error(self, reports: int) -> ErrorDistribution:
        """The error distribution when this many reports arrive."""

    @property
    def reach(self) -> tuple[float, float]:
        """Bounds on the effect of one poisoned report on the estimated sum of rewards.

        An honest report adds 0 to 1, before noise. The default is unbounded.
        """
        return -math.inf, math.inf

    @abstractmethod
    def _sum(self, released: Aggregate) -> float:
        """The estimated sum of levels, from the released aggregate."""

    @abstractmethod
    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        """A value distributed as `combine` for reports whose levels sum to `total`."""

    def analyze(self, released: Aggregate) -> Estimate:
        """The estimated sum of rewards."""
        self.check_reports(released.reports)
        total = self._sum(released) / self.precision
        return Estimate(total, self.error(released.reports), self.guarantee_id, released.wrapped)

    def simulate(self, load: Levels, rng: np.random.Generator) -> Estimate:
        """An estimate with the distribution of a full run.

        Parameters
        ----------
        load : Levels
            How many participants hold each level.
        rng : numpy.random.Generator
            The caller's generator.
        """
        reports = load.participants
        self.check_reports(reports)
        return self.analyze(self._open(load.total, reports, rng))

    def run(self, rewards: Floats, rng: np.random.Generator) -> tuple[Estimate, float]:
        """Simulate every participant individually.

        Parameters
        ----------
        rewards : array of float
            The participants' rewards in [0, 1].
        rng : numpy.random.Generator
            The caller's generator.

        Returns
        -------
        estimate : Estimate
            The estimate of the round.
        total : float
            The sum of the rounded rewards.
        """
        levels = round_levels(rewards, self.precision, rng)
        released = self.combine_batch(self.randomize_batch(levels, rng), rng)
        return self.analyze(released), float(levels.sum()) / self.precision

    def encode(self, x: float) -> int:
        """Randomized rounding of x to ⌊xg⌋ or the next level, with mean exactly xg (CZ23 Algorithm
        1).

        Parameters
        ----------
        x : float
            A reward in [0, 1].

        Returns
        -------
        int
            A level in 0..g.

        Raises
        ------
        TacitError
            If x is not a number in [0, 1].
        """
        if isinstance(x, bool) or not isinstance(x, Real) or not 0 <= x <= 1:
            raise TacitError(
                f"reward is {x!r}: must be a number in [0, 1]. Rescale or clip it before it is "
                "reported"
            )
        scaled = as_fraction("reward", x) * self.precision
        return random_level(scaled)


def plain_levels(_: Any, levels: Integers, rng: np.random.Generator) -> Integers:  # noqa: ARG001
    """`randomize_batch` of protocols whose devices send plain levels: servers add the noise.

    Parameters
    ----------
    levels : array of int
        The level of each participant.
    rng : numpy.random.Generator
        Not used: nothing is random on these devices.

    Returns
    -------
    array of int
        The same levels.

    Examples
    --------
    >>> plain_levels(None, np.array([0, 1]), np.random.default_rng(0)).tolist()
    [0, 1]
    """
    return levels


def random_level(scaled: Fraction) -> int:
    """The integer below `scaled` or the next one, at random, with mean `scaled`.

    Parameters
    ----------
    scaled : Fraction
        The reward times the number of levels.

    Returns
    -------
    int
        The level, drawn from the operating system's randomness.

    Examples
    --------
    >>> random_level(Fraction(3)), random_level(Fraction(5, 2)) in (2, 3)
    (3, True)
    """
    level = math.floor(scaled)
    return level + Chance(scaled - level).flip()  # always flip: avoids a timing leak


def round_levels(rewards: Floats, precision: int, rng: np.random.Generator) -> Integers:
    """The codec for many rewards at once, for simulation.

    Parameters
    ----------
    rewards : array
        Rewards in [0, 1].
    precision : int
        The number of levels above 0: a report is a multiple of 1/precision.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    array of int
        One level from 0 to `precision` per reward, with mean reward × precision.

    Raises
    ------
    TacitError
        If a reward is outside of [0, 1].

    Examples
    --------
    >>> round_levels(np.array([0.0, 0.5, 1.0]), 2, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    if len(rewards) and not (float(np.min(rewards)) >= 0 and float(np.max(rewards)) <= 1):
        raise TacitError(
            "a reward lies outside [0, 1]: rescale or clip rewards before they are reported"
        )
    return rounded(rewards * precision, rng)


def rounded(scaled: Floats, rng: np.random.Generator) -> Integers:
    """Every number rounded down or up at random, with its mean."""
    lower = np.floor(scaled)
    return (lower + (rng.random(scaled.shape) < scaled - lower)).astype(np.int64)

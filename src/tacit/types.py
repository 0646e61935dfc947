"""Types shared by learners, protocols and environments: rounds, estimates, error distributions.

A learner proposes a `Round`: a number of participants and their assignment. A protocol aggregates
their reports into `Aggregate` and turns that into an `Estimate` with an error distribution. A batch
of a multi-armed bandit, a phase of a linear bandit and a synchronisation of silos are all rounds.
This module imports no learner, protocol or environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.contextual.fitted import FitPolicy
from tacit.errors import TacitError
from tacit.names import name_of, resolve_name

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Assignment(ABC):
    """The task of a round's participants: options to play, values to report.

    Subclasses are frozen dataclasses of plain values.
    """

    @property
    @abstractmethod
    def coordinates(self) -> int:
        """The number of values that each participant reports."""

    @abstractmethod
    def time(self, participants: int) -> int:
        """The part of the horizon that a round with this many participants uses."""


@dataclass(frozen=True)
class Arm(Assignment):
    """An assignment in which every participant tries one option and reports one reward.

    Parameters
    ----------
    arm
        The option's number, from 0.

    Examples
    --------
    >>> Round(number=0, participants=500, assignment=Arm(2)).time
    500
    """

    arm: int

    @property
    def coordinates(self) -> int:
        """One."""
        return 1

    def time(self, participants: int) -> int:
        """One step per participant."""
        return participants


@dataclass(frozen=True)
class Design(Assignment):
    """An assignment in which option `support[i]` is played `plays[i]` times.

    Parameters
    ----------
    support
        The options that are played.
    plays
        The number of plays of each.
    length
        The phase length from which the plays were computed, before rounding.
    each
        False: every participant observes all plays and reports each option's average reward. True:
        each play belongs to a different participant, who reports its reward only.

    Examples
    --------
    >>> design = Design((0, 4), (3, 5), length=8.0)
    >>> design.coordinates, design.time(10)
    (2, 8)
    """

    support: tuple[int, ...]
    plays: tuple[int, ...]
    length: float
    each: bool = False

    @property
    def coordinates(self) -> int:
        """One per option that is played."""
        return len(self.support)

    def time(self, participants: int) -> int:  # noqa: ARG002
        """One step per play."""
        return sum(self.plays)


@dataclass(frozen=True)
class Fit(Design):
    """A design whose participants each report a fitted parameter, clipped to a ball.

    The vector is `solve` times the average rewards, minus `centre`, scaled down to norm `radius`
    where its norm is larger.

    Parameters
    ----------
    support, plays, length, each
        As in `Design`.
    solve : tuple of tuples of float
        The matrix that maps average rewards to the fitted parameter.
    centre : tuple of float
        The vector that is subtracted from the parameter.
    radius : float
        The largest norm of a report.

    Examples
    --------
    >>> fit = Fit((0, 4), (1, 1), 2.0, solve=((1.0, 0.0), (0.0, 1.0)), centre=(0.0, 0.0))
    >>> fit.reported(np.array([[0.0, 2.0]])).tolist()  # clipped to norm 1
    [[0.0, 1.0]]
    """

    solve: tuple[tuple[float, ...], ...] = ()
    centre: tuple[float, ...] = ()
    radius: float = 1.0

    @property
    def coordinates(self) -> int:
        """One per coordinate of the parameter."""
        return len(self.solve)

    def reported(self, averages: npt.ArrayLike) -> Floats:
        """The report of a participant with these average rewards; one row per participant.

        >>> fit = Fit((0, 1), (1, 1), 2.0, solve=((1.0, 0.0), (0.0, 1.0)), centre=(0.0, 1.0))
        >>> fit.reported([3, 5])
        array([0.6, 0.8])
        """
        vectors = np.asarray(averages, dtype=float) @ np.array(self.solve).T
        vectors -= self.centre
        lengths = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))[..., None]
        vectors *= np.minimum(1.0, self.radius / np.maximum(lengths, 1e-300))
        return np.asarray(vectors)


class Policy(Assignment):
    """An assignment of silos: the policy that each follows until the next synchronisation."""

    @abstractmethod
    def start(self, silos: int) -> Any:
        """The decisions of `silos` silos, vectorised; see `tacit.bandits.contextual`."""


class Visitors(Protocol):
    """Simulated participants with a context, as policies and statistics use them."""

    @property
    def codes(self) -> Floats:
        """The code of each participant's context."""

    @property
    def features(self) -> npt.NDArray[np.float32]:
        """Features on the grid of their map: participants × options × dimensions."""

    @property
    def segments(self) -> Integers:
        """The segment of each participant."""


class PublishedAssignment(Assignment):
    """An assignment of devices that a round publishes; each device reports one statistic.

    Attributes
    ----------
    weight
        The weight of rewards in the statistic, for its noise.
    """

    weight: float

    def time(self, participants: int) -> int:
        """One step per participant."""
        return participants

    @abstractmethod
    def published(self) -> bytes:
        """The policy as bytes, for the announcement of a round."""


class DeviceChoice(PublishedAssignment):
    """A published assignment by which each device picks its option."""

    @property
    def probabilities(self) -> Floats | None:
        """The probability of every option in every segment, where the policy is a table."""
        return None

    @abstractmethod
    def options(self, visitors: Visitors, rng: np.random.Generator) -> npt.NDArray[np.intp]:
        """The option that each device picks, for simulation."""


@dataclass(frozen=True)
class PlayedFit(PublishedAssignment):
    """An assignment in which each participant tries several options and reports a fitted vector.

    Parameters
    ----------
    support, plays
        The options, and how often each participant tries them.
    solve
        The matrix of the fit, as `tacit.contextual.fitted.FitPolicy` has it.
    """

    support: tuple[int, ...]
    plays: tuple[int, ...]
    solve: tuple[tuple[float, ...], ...]
    weight = 1.0

    @property
    def coordinates(self) -> int:
        """One per row of the matrix."""
        return len(self.solve)

    @property
    def policy(self) -> FitPolicy:
        """The policy that the round publishes."""
        return FitPolicy(tuple(zip(self.support, self.plays, strict=True)), self.solve)

    def published(self) -> bytes:
        """Options, plays and the matrix in doubles."""
        return self.policy.encode()


@dataclass(frozen=True)
class Round:
    """A number of participants and their assignment.

    Parameters
    ----------
    number
        The round's number, counted from 0 by the learner that proposes it.
    participants
        How many participants take part.
    assignment
        What they play and report: `Arm`, `Design`, `Fit`, `PublishedAssignment` or a `Policy`.
    released
        Whether the round's aggregate is released. If not, the round is only played.

    Examples
    --------
    >>> round_ = Round(number=0, participants=500, assignment=Arm(2))
    >>> round_.arm, round_.released
    (2, True)
    >>> Round.from_dict(round_.to_dict()) == round_
    True
    """

    number: int
    participants: int
    assignment: Assignment
    released: bool = True

    @property
    def time(self) -> int:
        """The part of the horizon that the round uses."""
        return self.assignment.time(self.participants)

    @property
    def arm(self) -> int:
        """The option of a round that has exactly one.

        Raises
        ------
        TacitError
            If the assignment is not an `Arm`.
        """
        if not isinstance(self.assignment, Arm):
            raise TacitError(f"round {self.number} has no single option: use its assignment")
        return self.assignment.arm

    def to_dict(self) -> dict[str, Any]:
        """The round as plain data."""
        fields: Any = self.assignment  # every assignment is a frozen dataclass
        assignment = {"kind": name_of(type(fields)), **asdict(fields)}
        return {**vars(self), "assignment": assignment}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Round:
        """The round that `to_dict` serialised."""
        entries = dict(data["assignment"])
        kind = resolve_name(entries.pop("kind"), Assignment)
        return Round(**{**data, "assignment": kind(**{k: frozen(v) for k, v in entries.items()})})


def frozen(value: Any) -> Any:
    """A value with tuples instead of lists, also within lists."""
    return tuple(frozen(part) for part in value) if isinstance(value, list) else value


class NoiseLike(Protocol):
    """The noise distribution as an error distribution uses it; all of `tacit.noise` conform."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def variance(self) -> float:
        """The variance."""

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{sX}]; inf where the expectation is infinite."""

    def bound(self, p: float) -> float:
        """A t with P[|X - mean| > t] <= p."""


@dataclass(frozen=True)
class ErrorDistribution:
    """Distribution of the error of an estimated sum: estimated sum minus sum of rounded rewards.

    The error is (noise - mean of the noise) / precision.

    Parameters
    ----------
    participants
        How many reports the sum contains.
    precision
        The number g of levels above 0 to which rewards are rounded.
    noise
        The noise distribution, in levels; None for no noise.
    misread
        Bound on the probability that the released value is not sum + noise: it wrapped around the
        modulus, or the batch contains an invalid message.

    Notes
    -----
    Randomised rounding to the levels 0, 1/g, ..., 1 preserves the mean and the range of rewards. A
    bound for all rewards in [0, 1] therefore holds for rounded ones and needs no rounding term.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> error = ErrorDistribution(100, 1, DiscreteLaplace(1))
    >>> round(error.variance, 3), error.radius(0.05)
    (1.841, 3.0)
    """

    participants: int
    precision: int
    noise: NoiseLike | None
    misread: float = 0.0

    @property
    def variance(self) -> float:
        """The variance of the noise in the estimated sum, in units of reward."""
        return float(self.noise.variance) / self.precision**2 if self.noise is not None else 0.0

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{s · error}]; inf where the expectation is infinite."""
        scaled = np.asarray(s, dtype=float) / self.precision
        if self.noise is None:
            return np.zeros_like(scaled)
        return self.noise.log_mgf(scaled) - scaled * self.noise.mean

    def radius(self, p: float) -> float:
        """An r with P[|error| > r] <= p, from the exact noise distribution.

        It is the smallest such r, up to half a level if the noise's mean is not an integer.
        """
        if self.noise is None:
            return 0.0
        # integer distributions bound the deviation from their rounded mean
        off_centre = abs(self.noise.mean - round(self.noise.mean))
        return (self.noise.bound(p) + off_centre) / self.precision


@dataclass(frozen=True, eq=False)
class VectorError:
    """Error that a protocol adds to each of several means, by coordinate.

    `proxies` are sub-Gaussian variance proxies: ln E[e^{t·error}] <= t²·proxy/2 for |t| <= reach.
    `stated` are the standard deviations in the papers' confidence widths.

    Parameters
    ----------
    participants : int or array of int
        The number of participants; an array if coordinates differ.
    proxies : array
        Sub-Gaussian variance proxies of the coordinates.
    reaches : array
        The largest |t| at which each proxy is valid.
    stated : array
        Standard deviations of the coordinates' noise, as in the papers' widths.

    Examples
    --------
    >>> width = np.array([0.1, 0.2])
    >>> VectorError(50, width**2, np.full(2, np.inf), width).stated.tolist()
    [0.1, 0.2]
    """

    participants: int | Integers
    proxies: Floats
    reaches: Floats
    stated: Floats


@dataclass(frozen=True)
class Aggregate:
    """The released aggregate of a round: one number per coordinate and the number of reports.

    `wrapped` says whether the value is misread (wrapped around the modulus). Only a simulation,
    which knows the true sum, can set it.

    Parameters
    ----------
    values : tuple
        The released numbers, one per coordinate.
    reports : int
        The number of reports in the aggregate.
    wrapped : bool
        Whether the value is known to be misread.

    Examples
    --------
    >>> Aggregate((17,), 40).value
    17
    """

    values: tuple[Any, ...]
    reports: int
    wrapped: bool = False

    @property
    def value(self) -> Any:
        """The number of an aggregate with one coordinate."""
        (value,) = self.values
        return value


@dataclass(frozen=True, eq=False)
class Estimate:
    """A round's estimate for a learner: sums of rewards and their error distribution.

    Parameters
    ----------
    total
        The estimated sum of rewards; an array if there are several coordinates.
    error
        The error distribution: `ErrorDistribution` for a sum, `VectorError` for several
        coordinates.
    guarantee_id
        The digest of the guarantee under which the estimate was made.
    wrapped
        Whether the aggregate is misread, as in `Aggregate`; known in simulations only.

    Examples
    --------
    >>> error = ErrorDistribution(participants=100, precision=10, noise=None)
    >>> Estimate(total=42.0, error=error).mean
    0.42
    """

    total: Any
    error: Any
    guarantee_id: str = ""
    wrapped: bool = False

    @property
    def mean(self) -> Any:
        """The estimated mean reward, or one per coordinate."""
        return self.total / self.error.participants

    def metric(self, index: int) -> Estimate:
        """The estimate of one of several metrics; all have the same error distribution."""
        return replace(self, total=float(self.total[index]))


@dataclass(frozen=True)
class ArmSummary:
    """Current summary of one option: mean, probability to be best, lift over the control, decision.

    Parameters
    ----------
    option
        The option's name.
    participants
        How many reports its estimates contain.
    mean, low, high
        The estimated mean reward with its confidence interval.
    best
        The probability that the option is the best; always approximate.
    lift, lift_low, lift_high
        The lift relative to the control with its interval: 0.1 is 10 % more than the control. The
        upper end is None where there is none.
    decision
        `best` (better than every other option), `worse` (than some other), `open`, `removed`,
        `paused` by a guardrail, or `unavailable`: sums are misread with a probability that leaves
        nothing of the failure probability, so there are neither intervals nor decisions.
    always
        True: intervals and decision are anytime-valid. False: they are normal approximations for
        one look.
    guardrail, guardrail_low, guardrail_high
        The mean of the guardrail metric, if any, with an interval of the same validity.
    paused
        Why the option is not assigned now; None where it may be.
    """

    option: str
    participants: int
    mean: float | None
    low: float
    high: float
    best: float
    lift: float | None = None
    lift_low: float | None = None
    lift_high: float | None = None
    decision: str = "open"
    always: bool = False
    guardrail: float | None = None
    guardrail_low: float | None = None
    guardrail_high: float | None = None
    paused: str | None = None


@dataclass(frozen=True)
class Levels:
    """Participants by level: `counts[i]` hold `values[i]`, in 0..precision.

    Parameters
    ----------
    values, counts : array of int
        The levels, and how many participants hold each.

    Examples
    --------
    >>> levels = Levels(np.array([0, 1, 4]), np.array([10, 5, 2]))
    >>> levels.participants, levels.total
    (17, 13)
    """

    values: Integers
    counts: Integers

    @cached_property
    def participants(self) -> int:
        """The number of participants."""
        return int(self.counts.sum())

    @cached_property
    def total(self) -> int:
        """The sum of all levels, exactly."""
        if len(self.values) <= 64 or int(self.values.max()) * self.participants >= 1 << 63:
            return sum(
                v * c for v, c in zip(self.values.tolist(), self.counts.tolist(), strict=True)
            )
        return int(self.values @ self.counts)


class Codec(Protocol):
    """Randomised encoding of vectors as integer levels; `precision` is the number of levels."""

    precision: int

    def levels(self, vectors: Floats, rng: np.random.Generator) -> Integers:
        """Each participant's levels, one row per participant."""


class Reports(Protocol):
    """Simulated reports, vectors in [-B, B], sampled in the form that a protocol needs."""

    def total(self, rng: np.random.Generator) -> Floats:
        """The sum of the vectors."""

    def level_sums(self, codec: Codec, rng: np.random.Generator) -> Integers:
        """The sums of their levels."""


@dataclass(frozen=True, eq=False)
class Played:
    """Result of a simulated round: input of the protocol, and the regret.

    Parameters
    ----------
    load
        What the participants hold, for `protocol.simulate`.
    time, regret
        Cumulative within the round and piecewise linear between their points. `regret` is None
        where the true means are unknown.
    lost
        The realised regret of the whole round.
    notes
        Counts of corrected values, such as clipped rewards.

    Examples
    --------
    >>> played = Played(Levels(np.array([0, 1]), np.array([6, 4])), np.array([10.0]), None)
    >>> played.load.participants, played.regret
    (10, None)
    """

    load: Any
    time: Floats
    regret: Floats | None
    lost: float = 0.0
    notes: Mapping[str, float] = field(default_factory=dict)

"""What passes between the rooms of the house: rounds, what is opened of them, what it says.

A learner proposes a `Round`: so many participants, who are given an assignment. A protocol makes
`Opened` of their reports, and an `Estimate` with the law of its error of that. A batch of a
multi-armed bandit, a phase of a linear one and a synchronisation of silos are all rounds. Nothing
here knows a learner, a protocol or an environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError
from tacit.names import name_of, named

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Assignment(ABC):
    """What the participants of a round are given; a frozen dataclass of plain values."""

    @property
    @abstractmethod
    def coordinates(self) -> int:
        """How many numbers a participant reports."""

    @abstractmethod
    def time(self, participants: int) -> int:
        """How much of the horizon a round of so many participants takes."""


@dataclass(frozen=True)
class Arm(Assignment):
    """Everyone tries this option, and reports one reward."""

    arm: int

    @property
    def coordinates(self) -> int:
        """One."""
        return 1

    def time(self, participants: int) -> int:
        """One step for each participant."""
        return participants


@dataclass(frozen=True)
class Design(Assignment):
    """Option `support[i]` is played `plays[i]` times.

    Every participant watches and reports the average reward of each option; or, with `each`, every
    play is another person's, who reports the reward of it alone. `length` is what the plays were
    made for, before rounding.
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
        """One step for each play."""
        return sum(self.plays)


@dataclass(frozen=True)
class Fit(Design):
    """The same design, of which every participant reports one vector: the parameter that they fit,
    `solve` times the average rewards, less the `centre`, shrunk to length `radius` where it is
    longer.
    """

    solve: tuple[tuple[float, ...], ...] = ()
    centre: tuple[float, ...] = ()
    radius: float = 1.0

    @property
    def coordinates(self) -> int:
        """One per coordinate of the parameter."""
        return len(self.solve)

    def reported(self, averages: npt.ArrayLike) -> Floats:
        """What a participant reports who saw these average rewards; of many, one row each.

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
    """What silos act on, for themselves, until the next synchronisation."""

    @abstractmethod
    def start(self, silos: int) -> Any:
        """The decisions of so many silos at once; see `tacit.bandits.contextual`."""


@dataclass(frozen=True)
class Round:
    """So many participants are given an assignment; one that is not `opened` is played only."""

    number: int
    participants: int
    assignment: Assignment
    opened: bool = True

    @property
    def time(self) -> int:
        """How much of the horizon it takes."""
        return self.assignment.time(self.participants)

    @property
    def arm(self) -> int:
        """The one option of this round."""
        if not isinstance(self.assignment, Arm):
            raise TacitError(f"round {self.number} gives its participants no single option")
        return self.assignment.arm

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        fields: Any = self.assignment  # a frozen dataclass, every one of them
        assignment = {"kind": name_of(type(fields)), **asdict(fields)}
        return {**vars(self), "assignment": assignment}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Round:
        """What `to_dict` wrote down."""
        entries = dict(data["assignment"])
        kind = named(entries.pop("kind"), Assignment)
        return Round(**{**data, "assignment": kind(**{k: _frozen(v) for k, v in entries.items()})})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


class NoiseLike(Protocol):
    """What an error law needs to know of the noise; every integer law of `tacit.noise` fits."""

    @property
    def mean(self) -> float:
        """The expected value."""

    @property
    def variance(self) -> float:
        """The variance."""

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{sX}]; inf where it does not exist."""

    def bound(self, p: float) -> float:
        """A t with P[|X - mean| > t] <= p."""


@dataclass(frozen=True)
class ErrorLaw:
    """The law of (estimated sum - sum of rounded rewards): noise, divided by the precision, less
    its mean.

    Rewards are rounded at random to the levels 0, 1/g, ..., 1 and keep their mean and their range,
    so a bound that holds for every reward in [0, 1] holds for the rounded ones; rounding needs no
    term of its own. `misread` bounds the probability that the opened value is not sum + noise at
    all (it wrapped around the modulus, or the batch was spoilt).
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
        """ln E[e^{s · error}]; inf where it does not exist."""
        scaled = np.asarray(s, dtype=float) / self.precision
        if self.noise is None:
            return np.zeros_like(scaled)
        return self.noise.log_mgf(scaled) - scaled * self.noise.mean

    def radius(self, p: float) -> float:
        """An r with P[|error| > r] <= p, from the exact law of the noise: the least one, up to half
        a level where its mean is not whole.
        """
        if self.noise is None:
            return 0.0
        # integer laws are bounded about their rounded mean
        off_centre = abs(self.noise.mean - round(self.noise.mean))
        return (self.noise.bound(p) + off_centre) / self.precision


@dataclass(frozen=True, eq=False)
class VectorError:
    """What a protocol added to each of several means, coordinate by coordinate.

    `proxies`: sub-Gaussian variances, ln E[e^{t·error}] <= t²·proxy/2 for |t| <= reach. `stated`:
    the standard deviations that go into a paper's widths.
    """

    participants: int | Integers
    proxies: Floats
    reaches: Floats
    stated: Floats


@dataclass(frozen=True)
class Opened:
    """What the intermediary hands to the server: a number per coordinate, and how many reports
    they hold.

    `wrapped` says whether the value was misread; only a simulation, which knows the truth, can.
    """

    values: tuple[Any, ...]
    reports: int
    wrapped: bool = False

    @property
    def value(self) -> Any:
        """The one number of a sum."""
        (value,) = self.values
        return value


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the learner is told of a round: estimated sums of rewards, and the law of the error.

    `guarantee_id` is the digest of the guarantee under which it was made, `wrapped` is that of what
    was opened.
    """

    total: Any
    error: Any
    guarantee_id: str = ""
    wrapped: bool = False

    @property
    def mean(self) -> Any:
        """The estimated mean reward, or one per coordinate."""
        return self.total / self.error.participants

    def metric(self, place: int) -> Estimate:
        """That of one of several metrics of the same people, whose errors have one law."""
        return replace(self, total=float(self.total[place]))


@dataclass(frozen=True)
class ArmSummary:
    """What is known of one option: how many were asked, the mean with an interval, how likely it is
    the best, its lift against the control option with an interval, and what is decided about it.

    Where `always` is true the intervals and the decision hold at all rounds at once, whenever
    somebody looks or stops; else they are normal approximations for one look. How likely an option
    is the best is approximate in any case. A lift is relative: 0.1 is a tenth more than the
    control; its upper end is None where there is none. The decision is `best` (better than every
    other option), `worse` (than some other), `open`, `removed`, or `paused` because of a guardrail.

    `guardrail` is the mean of a second metric, if there is one, with an interval that is as valid;
    `paused` says why nobody gets the option now, and is None where somebody may.
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
    """How many participants hold each level: `counts[i]` of them hold `values[i]`, out of
    0..precision.
    """

    values: Integers
    counts: Integers

    @cached_property
    def participants(self) -> int:
        """How many there are."""
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
    """How vectors become levels, at random."""

    precision: int

    def levels(self, vectors: Floats, rng: np.random.Generator) -> Integers:
        """Each participant's levels, one row each."""


class Reports(Protocol):
    """Vectors in [-B, B] that simulated participants report, to be drawn as a protocol needs."""

    def total(self, rng: np.random.Generator) -> Floats:
        """Their sum."""

    def level_sums(self, codec: Codec, rng: np.random.Generator) -> Integers:
        """The sums of their levels."""


@dataclass(frozen=True, eq=False)
class Played:
    """What came of a round in a simulation: what the protocol needs, and the regret on the way.

    `time` and `regret` are cumulative within the round and piecewise linear between their points;
    `regret` is None where nobody knows the true means. `lost` is the realised regret of the whole
    round, `notes` are counts of what had to be mended.
    """

    load: Any
    time: Floats
    regret: Floats | None
    lost: float = 0.0
    notes: Mapping[str, float] = field(default_factory=dict)

"""Request for a plan: expected means and participants, the guarantee, algorithms, execution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from tacit.algorithms.problems import DEFAULT_DELTA, MOST
from tacit.algorithms.registry import Algorithm
from tacit.errors import TacitError, integer, positive, probability, require
from tacit.privacy.calibration import LARGEST_EPSILON
from tacit.rounding import no_more
from tacit.simulation.study import RunConfig
from tacit.terms.aggregation_delta import FORMULAS, smallest_masking_delta
from tacit.trust import TrustModel

SHARED = 0.8  # of all participants: split evenly until an option is shown to be worse
MOST_OPTIONS = 100
RUNS = 60  # per row

WHAT_IS_TRUSTED: dict[str, str] = {
    TrustModel.CENTRAL: "the server sees every answer and is trusted to release noisy sums only",
    TrustModel.SECURE_AGGREGATION: "no party sees an answer; secure aggregation releases noisy "
    "sums only",
    TrustModel.TWO_SERVERS: "no party sees an answer unless both servers collude; each adds its "
    "own noise",
    TrustModel.SHUFFLER: "a shuffler that does not collude with the server hides who sent which "
    "message",
    TrustModel.LOCAL: "no party is trusted: every message is private by itself",
}

ONE_OF_THEM = (
    "must be one of them. Say how much better the best option is, such as --lift 0.2 for 20%."
)


@dataclass(frozen=True)
class ExpectedMeans:
    """Expected means: every option has the baseline rate but one, which is better.

    It is better by a lift (relative) or a gap (absolute). Without a baseline, the means are
    symmetric around one half. Without lift and gap there are none, for problems with their own.
    """

    options: int = 2
    baseline: float | None = None
    lift: float | None = None
    gap: float | None = None
    means: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        arms = integer("options", self.options, at_least=2)
        if arms > MOST_OPTIONS:
            raise TacitError(f"options is {arms:,}: must be at most {MOST_OPTIONS}.")
        if self.lift is not None and self.gap is not None:
            raise TacitError(f"lift is {self.lift} and gap is {self.gap}: {ONE_OF_THEM}")
        if self.gap is not None:
            remedy = "how much better the best option is, in success probability, such as 0.05"
            probability("gap", self.gap, remedy)
        if self.lift is not None:
            positive("lift", self.lift, "how much better the best option is, such as 0.1 for 10%")
            if self.baseline is None:
                raise TacitError(
                    f"lift is {self.lift:g}, relative to a baseline. Give the baseline."
                )
        if self.baseline is not None:
            remedy = "the success probability of the options today, such as 0.02"
            probability("baseline", self.baseline, remedy)
        if self.lift is None and self.gap is None:
            object.__setattr__(self, "means", ())
            return
        low = 0.5 - (self.gap or 0) / 2 if self.baseline is None else float(self.baseline)
        best = low + (low * self.lift if self.lift is not None else (self.gap or 0))
        if best > 1:
            raise TacitError(
                f"the best option has mean {best:g}: must be at most 1. Use a smaller lift or gap."
            )
        object.__setattr__(self, "means", (*[low] * (arms - 1), best))

    @property
    def stated(self) -> str:
        """The expectations that were given, in words; empty for none."""
        named = {"baseline": self.baseline, "lift": self.lift, "gap": self.gap}
        given = {key: value for key, value in named.items() if value is not None}
        return " and ".join(f"{key} is {value:g}" for key, value in given.items())

    @property
    def difference(self) -> float:
        """The gap between the best option and the others."""
        return self.means[-1] - self.means[0]


@dataclass(frozen=True)
class ExpectedParticipants:
    """The participants: number per day, participations of each, dropouts, corrupted ones, most
    rounds.
    """

    participations: int = 1
    dropout: float = 0.0
    poisoned: float = 0.0
    rounds: int | None = None
    per_day: int | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        remedy = "the fraction of a round that may drop out, such as 0.1"
        probability("dropout", self.dropout, remedy, zero=True)
        remedy = "the fraction of poisoned reports, such as 0.01"
        probability("poisoned", self.poisoned, remedy, zero=True)
        for name, value in vars(self).items():
            if name not in ("dropout", "poisoned") and value is not None:
                found = integer(name, value, at_least=1)
                if found > MOST:
                    raise TacitError(f"{name} is {found:.4g}: must be at most {MOST:.0e}.")
                object.__setattr__(self, name, found)

    def days(self, participants: int | None) -> int | None:
        """Days until this many participants have arrived."""
        known = participants is not None and self.per_day is not None
        return math.ceil((participants or 0) / (self.per_day or 1)) if known else None


@dataclass(frozen=True)
class PlanRequest:
    """The input of a plan: expected means, participants, guarantee, algorithms and execution.

    `trusts` are the trust models to compare, if there is a single algorithm. `control_share` is the
    share of participants that get the control.
    """

    expected: ExpectedMeans
    people: ExpectedParticipants
    epsilon: float = 1.0
    delta: float | None = None
    algorithms: tuple[str, ...] = ("private-med",)
    control_share: float | None = None
    trusts: tuple[str, ...] = tuple(str(trust) for trust in WHAT_IS_TRUSTED)
    how: RunConfig = field(default_factory=lambda: RunConfig(RUNS))

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon, "a guarantee needs epsilon > 0")
        rule = f"at most {LARGEST_EPSILON}. A larger one gives no meaningful privacy."
        require(self.epsilon <= LARGEST_EPSILON, "epsilon", f"{self.epsilon:g}", rule)
        if self.control_share is not None:
            remedy = "the fraction of participants that get the control, such as 0.2"
            probability("control_share", self.control_share, remedy, zero=True)

    @classmethod
    def of(cls, **options: Any) -> PlanRequest:
        """Build a request from the fields of all parts, by name; `algorithm` stands for one of
        `algorithms`.
        """
        own = ("epsilon", "delta", "control_share", "trusts")
        parts: dict[str, dict[str, Any]] = {}
        kinds = {"expected": ExpectedMeans, "people": ExpectedParticipants, "how": RunConfig}
        for part, kind in kinds.items():
            names = [entry.name for entry in fields(kind) if entry.init]
            parts[part] = {name: options.pop(name) for name in names if name in options}
        chosen = tuple(options.pop("algorithms", ()))
        one = options.pop("algorithm", "private-med")
        mine = {name: options.pop(name) for name in own if name in options}
        if options:
            raise TacitError(f"a plan has no option {', '.join(options)}. See tacit plan --help.")
        expected = ExpectedMeans(**parts["expected"])
        participants = ExpectedParticipants(**parts["people"])
        how = RunConfig(**({"runs": RUNS} | parts["how"]))
        return cls(expected, participants, algorithms=chosen or (one,), how=how, **mine)

    def given(self, entry: Algorithm, trust: str | None) -> dict[str, Any]:
        """The requested options that an algorithm has."""
        share, options = self.control_share, self.expected.options
        asked = {
            "means": self.expected.means,
            "epsilon": self.epsilon,
            "participations": self.people.participations,
            "delta": self._noise_delta(trust_of(entry, trust)),
            "dropout": self.people.dropout or None,
            "rounds": self.people.rounds,
            "control_share": SHARED / options if share is None else share,
            "trust": trust,
        }
        if entry.family == "contextual":
            asked["arms"] = options
        return {k: v for k, v in asked.items() if v is not None and k in entry.options}

    @property
    def total_delta(self) -> float:
        """δ of terms with secure aggregation, masks included; by default that of definitions."""
        return DEFAULT_DELTA if self.delta is None else self.delta

    def _noise_delta(self, trust: TrustModel) -> float | None:
        """The part of δ that the aggregation leaves to the noise."""
        if trust is not TrustModel.SECURE_AGGREGATION:
            return self.delta
        left = Fraction(self.total_delta) - smallest_masking_delta(self.people.participations)
        needed = f"at least {FORMULAS[trust]} with trust {trust}, whose masks need it"
        rule = f"{needed}. Use two-servers for delta 0."
        require(left >= 0, "delta", f"{self.total_delta:g}", rule)
        return no_more(left)


def trust_of(entry: Algorithm, trust: str | None) -> TrustModel:
    """The trust model of a row; by default the algorithm's first. Masks of silos need no δ."""
    if entry.family == "federated":
        return TrustModel.SILO
    return TrustModel(trust or entry.trusts[0])

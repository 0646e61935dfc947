"""Private off-policy evaluation of a given policy on the recorded data of all silos.

Every silo sums a number per record, and the records, over at most `capacity` of them; discrete
Gaussian noise is shared and the sums pass secure aggregation, as rows do. Each record counts as
(v, 1) with v in [0, 1], so the l2 sensitivity to replacing it, also by an unused slot, is √2.

Clipped IPS: v = min(1{a = π(x)} / p, c) r / c (Ionides 2008). Doubly robust, with the released
parameter as reward model r̂, clipped to [0, 1]: ψ = r̂(x, π(x)) + min(1{a = π(x)} / p, c)
(r - r̂(x, a)) lies in [-c, 1 + c], and v = (ψ + c) / (1 + 2c) (Dudík, Langford & Li 2011).
Clipping biases both towards less extreme values; the interval does not include that bias.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from tacit.algorithms.silos_problem import LARGEST_BUDGET
from tacit.errors import Rejected, TacitError, integer, one_of, require
from tacit.privacy import ApproximateDP
from tacit.protocols.factorization import factorize
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixSums
from tacit.rounding import no_less, no_more
from tacit.silos.exported import ExportedPolicy
from tacit.silos.federation import FederationSums, FederationTerms, PinnedFederation
from tacit.silos.recorded import RecordedTable
from tacit.terms import BY_POLICY, canonical, parsed
from tacit.terms.canonical import from_plain, to_plain
from tacit.trust import TrustModel
from tacit.types import Floats

ESTIMATORS = ("clipped-ips", "doubly-robust")
FIRST = 1 << 15
"""Steps from here on are evaluations: step FIRST + n is evaluation n."""

MOST = BY_POLICY - FIRST
"""The most evaluations of a federation: a round whose option is `BY_POLICY` is one of devices."""

SIZE = 2  # numbers per silo: the sum of v, and the records


@dataclass(frozen=True)
class EvaluationRequest:
    """What is evaluated, and at which cost.

    Parameters
    ----------
    policy : str
        The exported policy to evaluate, as JSON; of a doubly robust evaluation also the reward
        model.
    estimator : {"clipped-ips", "doubly-robust"}
    clip : Fraction
        The largest importance weight c.
    capacity : int
        The most records of a silo that count.
    epsilon, delta : Fraction
        What the evaluation costs every participant.
    """

    policy: str
    estimator: str
    clip: Fraction
    capacity: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        one_of("estimator", self.estimator, ESTIMATORS)
        require(1 <= self.clip <= 1000, "clip", self.clip, "from 1 to 1000")
        integer("capacity", self.capacity, at_least=1)
        within = 0 < self.epsilon <= LARGEST_BUDGET
        require(within, "epsilon", self.epsilon, f"above 0 and at most {LARGEST_BUDGET}")
        require(0 < self.delta < 1, "delta", self.delta, "above 0 and below 1")
        _ = self.exported

    @cached_property
    def exported(self) -> ExportedPolicy:
        """The policy to evaluate."""
        return ExportedPolicy.from_json(self.policy)

    def encode(self) -> bytes:
        """The canonical encoding."""
        return canonical(to_plain(self))

    @classmethod
    def decode(cls, data: bytes) -> EvaluationRequest:
        """Parse a request; reject anything else."""
        try:
            request: EvaluationRequest = from_plain(cls, parsed(data))
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            raise Rejected(f"request of an evaluation is invalid: {problem}") from None
        return request

    def sums(self, terms: FederationTerms) -> PrefixSums:
        """The private sums under these terms."""
        if not terms.masked:
            raise Rejected("algorithm of the terms has no secure aggregation: evaluations need it")
        return self.shared_sums(len(terms.silos), terms.corrupted, terms.missing)

    def shared_sums(self, silos: int, corrupted: int = 1, missing: int = 0) -> PrefixSums:
        """The private sums: least noise for the request's (ε, δ), shared among `silos` silos."""
        shape = factorize("tree", 1)
        return calibrated(
            SiloStream(shape, silos, SIZE, math.sqrt(SIZE), people=self.capacity),
            TrustModel.SECURE_AGGREGATION,
            "discrete-gaussian",
            ApproximateDP(no_more(self.epsilon), no_more(self.delta)),
            corrupt=corrupted,
            missing=missing,
        )

    def vector(self, table: RecordedTable) -> Floats:
        """A silo's sums over its first `capacity` records."""
        if table.context != self.exported.context:
            raise Rejected("policy has other columns or actions than the recorded table")
        values = self.values(table.part(0, min(len(table), self.capacity)))
        return np.array([float(np.sum(values)), float(len(values))])

    def values(self, table: RecordedTable) -> Floats:
        """The value v of every record, clipped to [0, 1].

        Estimates of a policy with huge effects may overflow in some records only: without the
        bounds, one such record would decide what the silo sends.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._unbounded(table)
        return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0)

    def _unbounded(self, table: RecordedTable) -> Floats:
        """v of every record, in [0, 1] but for rounding and overflows."""
        effects, clip = self.exported.effects, float(self.clip)
        estimates = np.clip(effects[:, 0] + table.scaled @ effects[:, 1:].T, 0.0, 1.0)
        rows, logged = np.arange(len(table)), np.array(table.actions, dtype=np.int64)
        chosen = np.argmax(estimates, axis=1)
        weights = np.where(chosen == logged, np.minimum(1 / table.propensities, clip), 0.0)
        if self.estimator == "clipped-ips":
            return np.asarray(weights * table.rewards / clip)
        robust = estimates[rows, chosen] + weights * (table.rewards - estimates[rows, logged])
        return np.asarray((robust + clip) / (1 + 2 * clip))


def check_number(number: int) -> None:
    """Reject the number of an evaluation that no federation can have."""
    rule = f"from 0 to {MOST - 1}. Start another federation"
    require(0 <= number < MOST, "number of the evaluation", number, rule, Rejected)


@dataclass(frozen=True)
class PinnedEvaluation(PinnedFederation):
    """Signed terms of a federation with one evaluation under them: its rounds are checked so."""

    request: EvaluationRequest

    @cached_property
    def derived(self) -> FederationSums:
        """The sums of the evaluation."""
        sums = self.request.sums(self.terms)
        learning = FederationSums.of(self.terms)
        return FederationSums(sums, sums.guarantee(no_more(self.request.delta)), learning.policy)

    def check_step(self, step: int) -> None:
        """Reject a round that is not one of evaluations."""
        check_number(step - FIRST)


@dataclass(frozen=True)
class EvaluationResult:
    """The estimated mean reward of a policy, with a 95% interval, and what it cost.

    `records` is the noisy number of records.
    """

    estimator: str
    value: float
    low: float
    high: float
    records: float
    epsilon: float
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return asdict(self)


def estimate(request: EvaluationRequest, sums: PrefixSums, numbers: Floats) -> EvaluationResult:
    """The estimate from released sums.

    The interval is asymptotic: v in [0, 1] with mean m has a variance of at most m (1 - m), and the
    noise of both sums adds σ² (1 + m²) / n² to that of their ratio.
    """
    total, count = (float(number) for number in numbers)
    if count < 1:
        raise TacitError(
            f"noisy number of records is {count:.1f}: too few to evaluate. Use more records, or a "
            "larger epsilon"
        )
    mean = min(max(total / count, 0.0), 1.0)
    variance = mean * (1 - mean) / count + float(sums.variances[0]) * (1 + mean**2) / count**2
    half = NormalDist().inv_cdf(0.975) * math.sqrt(variance)
    clip = float(request.clip)
    scale, shift = (clip, 0.0) if request.estimator == "clipped-ips" else (1 + 2 * clip, -clip)
    return EvaluationResult(
        request.estimator,
        scale * mean + shift,
        scale * (mean - half) + shift,
        scale * (mean + half) + shift,
        count,
        no_less(request.epsilon),
        no_less(request.delta),
    )

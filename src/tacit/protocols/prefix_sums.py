"""Private prefix sums of vectors that silos hold: P = (R, S, A) for sums that are released at every
step.

At every step each silo sends one message about its data so far, and the server learns the noisy sum
over all silos and steps. The trust models (`tacit.protocols.prefix_delivery`) differ in who adds
the noise:

- `silo`: each silo alone, with messages in the clear (ZC24 Algorithm 2).
- `secure-aggregation`: each silo a share; only the sum modulo 2^64 is released.
- `shuffler`: as above, but silos send additive shares through a shuffler, or bits for binomial
  noise (ZC24 Algorithm 5).
- `central`: silos send their data, and one trusted server adds the noise once (Shariff & Sheffet
  2018).

A `Factorization` determines the released rows. The schedule is data-independent: the time of a
message leaks nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.assumptions import Assumption
from tacit.errors import TacitError, integer, positive, require
from tacit.noise import NoiseDistribution
from tacit.privacy import (
    ApproximateDP,
    Gaussian,
    GaussianLoss,
    Guarantee,
    View,
    state_drawn_arithmetic,
)
from tacit.privacy.gaussian_distance import NearlyGaussianLoss
from tacit.protocols.contract import Protocol
from tacit.protocols.factorization import Factorization, squared_silos
from tacit.protocols.prefix_delivery import (
    BITS,
    DELIVERIES,
    INTEGER_NOISE,
    ONCE,
    Noise,
    PrefixDelivery,
    Presence,
    draw_vector,
)
from tacit.protocols.prefix_encoder import Encoder
from tacit.protocols.prefix_messages import MODULUS_BITS, Form, Shares, Words
from tacit.trust import TrustModel
from tacit.types import Aggregate, Estimate, Floats, VectorError

EXACT_IN_DOUBLES = 2.0**52
ROOM = 40.0  # standard deviations of noise that fit


@dataclass(frozen=True, eq=False)
class PrefixSums:
    """A protocol for `silos` silos with vectors of `size` numbers per step.

    One record of a participant moves a step's vector by at most `sensitivity`.

    `sigma` is the standard deviation of the noise in each released number (in each silo's message
    where the trust is `silo`, or `shuffler` with Gaussian noise). Integer noise uses `scale` units
    per 1. `people` is the number of records per silo and step, each with numbers of at most 1; it
    decides whether all sums fit 64 bits. `presence` bounds the participations. Shares are made for
    `silos` - `corrupt` silos. The guarantee therefore holds against `corrupt` silos that reveal
    their shares to the server or are curious themselves.

    Of the tree, a row may be released without up to `missing` silos; shares are made for so many
    fewer.

    Under `silo` trust, every silo may have individual noise, `sigmas`; `sigma` is then the least.
    The server sees each message and may apply a public weight of at most 1, `weights`.
    """

    shape: Factorization
    silos: int
    size: int
    sensitivity: float
    trust: TrustModel = TrustModel.NONE
    noise: Noise = "none"
    sigma: float = 0.0
    scale: int = 1
    people: int = 1
    corrupt: int = 0
    presence: Presence = ONCE
    sigmas: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    missing: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "trust", TrustModel(self.trust))
        require(self.trust in DELIVERIES, "trust", self.trust, f"one of {', '.join(DELIVERIES)}")
        integer("silos", self.silos, at_least=1)
        if np.triu(self.shape.right, 1).any():
            raise TacitError(
                "right has entries above the diagonal: a row may hold its own and earlier batches "
                "only, as those of factorize do"
            )
        self._check_own_noise()
        integer("size", self.size, at_least=1)
        integer("people", self.people, at_least=1)
        integer("scale", self.scale, at_least=1)
        if not 0 <= self.corrupt < self.silos - self.missing:
            raise TacitError(
                f"corrupt is {self.corrupt} and missing {self.missing} of {self.silos} silos; at "
                "least one silo must add its noise"
            )
        self._check_missing()
        positive("sensitivity", self.sensitivity, "it is the l2 sensitivity of a step's vector")
        known = self.delivery.noises
        rule = f"one of {', '.join(known)} under trust {self.trust}"
        require(self.noise in known, "noise", repr(self.noise), rule)
        if self.noise in BITS and self.shape.kind in ("square-root", "optimal"):
            raise TacitError(
                f"bits cannot be weighted by the coefficients of the {self.shape.kind} kind: use "
                "the tree, or discrete-gaussian noise"
            )
        if self.shape.kind == "prefix" and self.delivery.no_prefix:
            raise TacitError(self.delivery.no_prefix)
        if self.noise != "none":
            positive("sigma", self.sigma, "privacy needs noise; for no privacy use trust none")
        if self.integral:
            largest = self.largest(int(np.abs(self.shape.right).sum(axis=1).argmax()))
            widest = max(self.sigmas) * self.scale if self.sigmas else self.total.std
            if (
                not self.silos * largest + ROOM * widest < 2.0 ** (MODULUS_BITS - 1)
                or not largest + ROOM * widest < EXACT_IN_DOUBLES
            ):
                raise TacitError(
                    f"sums of {self.silos} numbers up to {largest:.3g} exceed a modulus of "
                    f"{MODULUS_BITS} bits, or one number with its noise the integers that doubles "
                    f"hold exactly: use a coarser scale than {self.scale}"
                )

    def _check_missing(self) -> None:
        """Rows of other factorizations need every silo, since their noise is correlated."""
        integer("missing", self.missing, at_least=0)
        if self.missing and (self.shape.kind != "tree" or not self.delivery.shares):
            raise TacitError(
                f"missing is {self.missing} with the {self.shape.kind} factorization under trust "
                f"{self.trust}; silos may be missing only from the tree's rows under secure "
                "aggregation: use these, or wait for every silo"
            )

    def _check_own_noise(self) -> None:
        """Individual noise is given for each silo, or for none."""
        for name in ("sigmas", "weights"):
            values = getattr(self, name)
            if values and (not self.delivery.own_noise or len(values) != self.silos):
                raise TacitError(
                    f"{name} has {len(values)} numbers for {self.silos} silos under trust "
                    f"{self.trust}: give one for each silo whose noise is its own"
                )
        if self.sigmas and min(self.sigmas) != self.sigma:
            raise TacitError(
                f"sigma is {self.sigma:g}, the least of all silos' is {min(self.sigmas):g}: they "
                "must be the same"
            )
        if not all(0 < weight <= 1 for weight in self.weights):
            raise TacitError("a silo's weight is not in (0, 1]: divide all by the largest")

    def of(self, silo: int) -> PrefixSums:
        """The sums with the individual noise of this silo."""
        if not self.sigmas:
            return self
        return replace(self, sigma=self.sigmas[silo], sigmas=(), weights=())

    @cached_property
    def _kinds(self) -> dict[tuple[float, float], tuple[PrefixSums, int]]:
        """Silos grouped by noise and weight, with the size of each group."""
        pairs = list(zip(self.sigmas, self.weights or (1.0,) * self.silos, strict=True))
        return {pair: (self.of(pairs.index(pair)), pairs.count(pair)) for pair in set(pairs)}

    @property
    def delivery(self) -> PrefixDelivery:
        """Delivery of messages to the server under the trust model."""
        return DELIVERIES[self.trust]

    @property
    def integral(self) -> bool:
        """Whether messages are integers modulo 2^64."""
        return self.noise in INTEGER_NOISE

    def largest(self, step: int) -> float:
        """The largest sum of a silo's records in one number of a step, in units."""
        return self.people * float(np.abs(self.shape.right[step]).sum()) * self.scale

    def form(self, step: int) -> Form:
        """The encoding of the integers of a step in a message."""
        return self.delivery.form(self, step)

    @property
    def suffices_alone(self) -> bool:
        """Whether each silo's noise suffices alone."""
        return self.delivery.suffices_alone(self.noise)

    @property
    def honest(self) -> int:
        """The number of silos whose shares the guarantee needs."""
        return self.silos - self.corrupt - self.missing

    @property
    def noise_parties(self) -> int:
        """The number of parties whose noise adds up to `total`: one silo, the server, or all honest
        silos.
        """
        return self.delivery.noise_parties(self)

    @cached_property
    def total(self) -> NoiseDistribution:
        """The noise that the guarantee needs in one released integer (in one message where each
        silo's noise suffices alone).
        """
        return INTEGER_NOISE[self.noise](self.sigma * self.scale, self.honest)

    @cached_property
    def share(self) -> NoiseDistribution:
        """The noise that one silo (or the trusted server) adds to one integer."""
        if self.noise_parties == 1:
            return self.total
        return self.total.approximate_share(self.noise_parties)

    @property
    def row_variance(self) -> float:
        """The variance of the noise in one released number, summed over silos."""
        if self.noise == "none":
            return 0.0
        if self.sigmas:
            return sum(
                weight**2 * own.row_variance / self.silos * count
                for (_, weight), (own, count) in self._kinds.items()
            )
        each = float(self.total.variance) / self.scale**2 if self.integral else self.sigma**2
        return each * (self.silos if self.suffices_alone else self.silos / self.honest)

    @property
    def variances(self) -> Floats:
        """The variance of each number of each released prefix sum."""
        return self.row_variance * self.shape.variances

    @property
    def covariance(self) -> Floats:
        """The exact covariance between steps of a released number, without rounding (at most
        `silos` units of 1/scale).
        """
        return self.row_variance * self.shape.covariance

    @property
    def movement(self) -> float:
        """The l2 sensitivity of all released rows to one participant, in units of 1, rounding
        included.

        Every silo rounds each number of its row once, deterministically, before any noise. Consider
        two streams that differ in one participant. A silo's numbers then differ by the records'
        movement and less than one unit more, in those rows whose batches the participant visited
        this silo in.

        Sums: a row moves by its records and by one unit for each of the V_k silos that were visited
        in the row's batches, in each of `size` numbers. All rows thus move by at most the records'
        movement and √(size Σ_k V_k²) units (Minkowski). Silos alone: their messages move
        separately, and squares add up; see `_merges`. Visits anywhere: no arrangement moves records
        by more than all visits in the worst batch (triangle inequality), and no row involves more
        silos than there are visits.
        """
        presence = self.presence
        record = self.sensitivity * self.shape.movement(presence.batches)
        if presence.anywhere:
            moved = presence.visits * (self.people if presence.eager else 1)
            return moved * record + self._visited * self._rounding(self._rows)
        spreads = presence.records(self.silos, self.people)
        if not self.suffices_alone:
            met = squared_silos(self.shape, presence.batches, self._visited, self.silos)
            return sum(spreads[0]) * record + self._rounding(met)
        rounding = self._rounding(self._rows)
        if self._merges:
            parts = ([count * record + rounding for count in counts] for counts in spreads)
            return max(math.hypot(*moved) for moved in parts)
        farthest = max(math.hypot(*counts) for counts in spreads)
        return farthest * record + self._rounding(self._messages)

    def _rounding(self, rows: float) -> float:
        """The movement of `size` numbers by rounding, one unit in each of `rows` rows."""
        return math.sqrt(self.size * rows) / self.scale if self.integral else 0.0

    @property
    def _merges(self) -> bool:
        """Whether visiting the same, fewest silos in every batch is the worst case for silos alone.

        In row k let silo s be moved by at most t_s > 0 and rounding by ρ; the row's square is at
        most Σ_s (t_s + ρ)². Moving the records of the least t_s to other silos with room adds at
        least t_s² to Σ_s t_s² and removes ρ². Every t_s is at least the sensitivity times the row's
        least coefficient. Where that is no less than ρ, fewer silos move the row more. For a single
        batch `records` lists all cases. Coefficients of different signs are excluded, since they
        may cancel within a silo.
        """
        if self.presence.batches == 1:
            return True
        weights = np.abs(self.shape.right)
        least = self.sensitivity * float(weights[weights > 0].min())
        return self.shape.kind != "optimal" and self._rounding(1) <= least

    @property
    def _rows(self) -> int:
        """The most released rows that contain one participant's records."""
        steps = self.presence.visits if self.presence.anywhere else self.presence.batches
        return min(self.shape.steps, steps * self.shape.rows_moved)

    @property
    def _visited(self) -> int:
        """The most silos that one participant visits in a batch.

        Corrupt silos count: their identity is unknown, and excluding them would only lower the
        number.
        """
        return min(self.presence.visits, self.silos)

    @property
    def _messages(self) -> int:
        """The most rows of single silos that contain one participant's records; the silos may
        differ in every batch.
        """
        if self.presence.anywhere:
            return self._visited * self._rows
        visits = self._visited * self.presence.batches
        return min(self.silos * self.shape.steps, visits * self.shape.rows_moved)

    @property
    def rounding_overhead(self) -> float:
        """The relative increase of one record's movement by rounding."""
        once = replace(self, presence=ONCE)
        return once.movement / (self.sensitivity * self.shape.movement()) - 1

    def loss(self) -> GaussianLoss | NearlyGaussianLoss:
        """The privacy loss of all released rows together, for the maximum participation that
        `presence` allows.
        """
        if self.noise == "none":
            raise TacitError("noise is none: a guarantee needs noise")
        if not self.integral:
            return GaussianLoss(self.sigma, self.movement)
        rows = self._messages if self.suffices_alone else self._rows
        moved = self.movement * self.scale
        return NearlyGaussianLoss(self.total, moved, self.size * rows, self.noise_parties)

    def excess(self, epsilon: float) -> float:
        """An upper bound on the increase of δ at ε due to discreteness."""
        loss = self.loss()
        if isinstance(loss, GaussianLoss):
            return 0.0
        gaussian = GaussianLoss(loss.distribution.std, loss.sensitivity)
        return max(0.0, loss.delta(epsilon) - gaussian.delta(epsilon))

    @property
    def view(self) -> View:
        """The view that the guarantee covers."""
        return self.delivery.view

    def slack(self, epsilon: float) -> float:
        """The increase of δ by the delivery of messages, such as additive shares by a shuffler."""
        return self.delivery.slack(self, epsilon)

    def guarantee(self, delta: float) -> ApproximateDP:
        """(ε, δ) of the whole transcript, for the maximum participation that `presence` allows."""
        epsilon = self.loss().epsilon(delta)
        if not math.isfinite(epsilon):
            raise TacitError(
                f"{self.noise} noise at scale {self.scale} gives no guarantee at delta {delta:g} "
                f"for a sensitivity of {self.movement:.3g}: let silos be lazy, or use "
                "secagg-fedlinucb with discrete-gaussian noise"
            )
        failure = delta + self.slack(epsilon)
        often, assumptions = self.presence.participations, self.assumptions
        about: dict[str, Any] = {"view": self.view, "participations": often}
        made = ApproximateDP(epsilon, failure, assumptions=assumptions, **about)
        return state_drawn_arithmetic(made, self.total if self.integral else Gaussian(self.sigma))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions of the guarantee, without its view."""
        often = {self.presence.assumption} if self.presence.participations > 1 else set()
        return frozenset(often | self.delivery.assumptions(self))

    @property
    def bits_per_silo(self) -> float:
        """The bits that one silo sends in all steps: 64 per number (and share), or one per level
        and noise bit for binomial noise.
        """
        if not self.integral:
            return self.shape.steps * self.size * MODULUS_BITS
        forms = [self.form(step) for step in range(self.shape.steps)]
        return self.size * sum(
            form.bits * (form.count if isinstance(form, Shares) else 1) for form in forms
        )

    def open(
        self,
        step: int,
        released: dict[int, Floats],
        held: dict[int, Floats],
        guarantee: Guarantee | None,
    ) -> PrefixRound:
        """The protocol of one step; see `PrefixRound`."""
        return ROUNDS.get(self.trust, PrefixRound)(self, step, released, held, guarantee)

    def encoder(self, rng: np.random.Generator | None = None, silo: int | None = None) -> Encoder:
        """The randomizer of one silo.

        With a generator, the noise is simulated; without one, draws are exact, from the operating
        system. `silo` is required if silos have individual noise.
        """
        if self.sigmas and silo is None:
            raise TacitError("silos have individual noise: pass the number of the silo")
        return Encoder(self if silo is None else self.of(silo), rng)

    def sample_noise(self, rng: np.random.Generator) -> Floats:
        """The noise of all silos in the released row of one step, for simulation."""
        if self.noise == "none":
            return np.zeros(self.size)
        if self.sigmas:
            parts = sorted(self._kinds.items())
            noises = [w * own.several(count, rng) for (_, w), (own, count) in parts]
            return np.asarray(np.sum(noises, axis=0))
        return self.several(self.silos, rng)

    def several(self, silos: int, rng: np.random.Generator) -> Floats:
        """The noise of `silos` identical silos in the released row of one step."""
        if not self.integral:
            return draw_vector(
                self.size, None, rng, math.sqrt(self.row_variance * silos / self.silos)
            )
        whole = self.honest == self.silos and not self.suffices_alone
        distribution = self.total if whole else self.share.sum_of_shares(silos)
        return draw_vector(self.size, distribution, rng) / self.scale


class PrefixRound(Protocol):
    """One step of private prefix sums: every silo reports, and the released row joins the earlier
    ones.

    `released` holds the released rows by step; `held` the total data of simulated silos, which in
    production stays on the silos' machines.
    """

    def __init__(
        self,
        sums: PrefixSums,
        step: int,
        released: dict[int, Floats],
        held: dict[int, Floats],
        guarantee: Guarantee | None,
    ) -> None:
        if not 0 <= step < sums.shape.steps:
            raise TacitError(
                f"all {sums.shape.steps} synchronisations are used up: the noise is calibrated "
                "for no more"
            )
        if type(self) is not ROUNDS.get(sums.trust, PrefixRound):
            raise TacitError(f"silos trust {sums.trust}: open the step with the sums' open()")
        self.sums, self.step, self.guarantee = sums, step, guarantee
        self._released, self._held = released, held
        self.participants, self.minimum = sums.silos, sums.silos - sums.missing
        self.coordinates = sums.size
        self.bits_per_participant = sums.bits_per_silo / sums.shape.steps

    def randomize(self, x: npt.ArrayLike) -> Any:
        """The message of a silo whose vectors of all steps so far are the rows of x; an `Encoder`
        keeps them.
        """
        self._check_once()
        if self.sums.sigmas:
            raise TacitError("silos have individual noise: report by the silo's encoder")
        *before, now = np.atleast_2d(np.asarray(x, dtype=float))
        if len(before) != self.step:
            raise TacitError(
                f"the report has {len(before) + 1} vectors; at step {self.step} a silo gives those "
                f"of all {self.step + 1} steps so far"
            )
        if before and self.sums.shape.kind == "prefix":
            raise TacitError(
                "a silo that sends prefix sums needs the noise of its earlier messages: keep its "
                "encoder"
            )
        return Encoder(self.sums, history=before).randomize(now)

    def combine(self, messages: Any) -> Aggregate:
        """The sum over silos: modulo 2^64 for integers, the number of ones for bits."""
        self._check_once()
        p = self.sums
        if len(messages) != p.silos:
            raise TacitError(
                f"{len(messages)} of {p.silos} silos reported; the noise was shared among all of "
                "them, so the round is aborted"
            )
        if any(len(message) != p.size for message in messages):
            raise TacitError(
                f"silos sent {sorted({len(m) for m in messages})} numbers; all send {p.size}: "
                "give all silos the same dimension"
            )
        if p.weights:
            rows = [p.form(self.step).read(message, 1) for message in messages]
            return Aggregate(tuple((p.weights @ np.array(rows) / p.scale).tolist()), len(messages))
        if p.integral:
            return Aggregate(tuple(p.form(self.step).total(messages)), len(messages))
        return Aggregate(tuple(np.sum(messages, axis=0).tolist()), len(messages))

    def analyze(self, released: Aggregate) -> Estimate:
        """The private prefix sum: the left factor applied to all released rows, as
        post-processing.
        """
        self.check_reports(released.reports)
        row = np.array(released.values, dtype=float)
        if self.sums.integral and isinstance(released.values[0], int):
            form = self.sums.form(self.step)
            row = form.read(released.values, released.reports) / self.sums.scale
        before = self._released.get(self.step)
        if before is not None and not np.array_equal(before, row):
            raise self._already_released()
        return self._release(row, released)

    def repeat_estimate(self) -> Estimate:
        """The estimate of a step that was already released, for use after a restart; silos do not
        report again.
        """
        row = self._released[self.step]
        return self._release(row, Aggregate(tuple(row.tolist()), self.participants))

    def weighted_total(self, reports: Floats) -> Floats:
        """The (weighted) sum of all silos' reports (silos × numbers), before any noise."""
        if not self.sums.weights:
            return np.asarray(reports.sum(axis=0))
        return np.asarray(np.array(self.sums.weights) @ reports)

    def _check_once(self) -> None:
        if self.step in self._released:
            raise self._already_released()

    def _already_released(self) -> TacitError:
        return TacitError(
            f"step {self.step} was released before: the guarantee covers one message of each step. "
            "To use that message again, observe again()"
        )

    def _release(self, row: Floats, released: Aggregate) -> Estimate:
        self._released[self.step] = row
        shape = self.sums.shape
        if shape.kind == "prefix":
            return self._estimate(row, released)
        total = shape.left[self.step, : self.step + 1] @ self._so_far(self._released)
        return self._estimate(total, released)

    def _so_far(self, rows: dict[int, Floats]) -> Floats:
        """The rows of every step up to this one."""
        if not all(step in rows for step in range(self.step)):
            raise TacitError("an earlier step was not released: prefix sums need all of them")
        return np.array([rows[step] for step in range(self.step + 1)])

    def _estimate(self, total: Floats, released: Aggregate) -> Estimate:
        n, size = released.reports, self.coordinates
        variance = float(self.sums.variances[self.step]) / n**2
        columns = (np.full(size, v) for v in (variance, math.inf, math.sqrt(variance)))
        return Estimate(total, VectorError(n, *columns), self.guarantee_id, released.wrapped)

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The noise of all silos in one released integer, about 0 (of one message where each is
        seen).

        The data may be any number that fits 64 bits.
        """
        if not self.sums.integral:
            raise TacitError(f"continuous noise has no exact distribution (for a sum of {total})")
        if self.sums.sigmas:
            raise TacitError("silos have individual noise: leave budgets out for one distribution")
        return self.sums.share.sum_of_shares(1 if self.sums.noise_parties == 1 else reports)

    def simulate(self, load: Floats, rng: np.random.Generator) -> Estimate:
        """The released sum over silos of this step's vectors; rounds once, not once per silo."""
        shape, noise, now = self.sums.shape, self.sums.sample_noise(rng), slice(self.step + 1)
        if shape.kind == "prefix":  # silos keep their noise and send sums of data and noise
            self._held[self.step] = np.stack([load, noise])
            held = self._so_far(self._held)
            noisy = held[:, 0].sum(axis=0) + shape.left[self.step, now] @ held[:, 1]
        else:
            self._held[self.step] = load
            noisy = shape.right[self.step, now] @ self._so_far(self._held) + noise
        return self._release(noisy, Aggregate(tuple(noisy.tolist()), self.participants))


class ShuffledPrefixRound(PrefixRound):
    """A step whose messages pass a shuffler: shares or bits, each labelled by its number."""


class CentralPrefixRound(PrefixRound):
    """A step whose trusted server adds the noise to the sum before the release."""

    def combine(self, messages: Any) -> Aggregate:
        """The sum of the silos' data with the server's noise, as the server releases it."""
        sums = self.sums
        noise = draw_vector(sums.size, sums.total, None).astype(np.int64)  # before the data is read
        exact = super().combine(messages)
        return Aggregate(tuple(Words().total([exact.values, noise.view(np.uint64)])), exact.reports)


ROUNDS: dict[TrustModel, type[PrefixRound]] = {
    TrustModel.SHUFFLER: ShuffledPrefixRound,
    TrustModel.CENTRAL: CentralPrefixRound,
}

"""Pure differential privacy in the shuffle model, for bits, with a certificate.

Each user sends d = 2τ + 1 bits of which c are ones. Usually c = τ + bit + a Pólya-difference share
conditioned to [-τ, τ]. With a tiny probability q, c is uniform, which keeps every count possible
under every input. The view is the number of ones of each group. A batch is split into groups of at
least a certified number of participants besides one curious member. Where reports may be missing, a
batch is one group, with shares for the reports that are certain. See
docs/explanation/pure-shuffle.md; `tacit.sampling.certificates` holds the proven ε.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from tacit.assumptions import CompleteGroups, DishonestAtMost, Scope
from tacit.errors import TacitError, as_fraction, integer, positive
from tacit.noise import Chance, PolyaDifference, Table
from tacit.noise.chernoff import tail_radius
from tacit.noise.serialize import register
from tacit.noise.table import convolution_power
from tacit.privacy import PureDP, ThreatModel, View, state_drawn_arithmetic
from tacit.protocols.contract import SumProtocol
from tacit.sampling.certificates import (
    Group,
    PureShuffleParameters,
    TableRow,
    certified,
    groups,
    lookup,
    one_group,
)
from tacit.sampling.draws import draw_certified_ones as draw_certified_ones
from tacit.types import Aggregate, ErrorDistribution, Floats, Integers

LARGEST = 700.0  # largest exponent that does not overflow


@lru_cache(maxsize=64)
def share_probabilities(parameters: PureShuffleParameters) -> Floats:
    """P[share = -τ..τ] of one user's conditioned share, without the uniform mixture."""
    weights = _share(parameters).pmf(np.arange(-parameters.tau, parameters.tau + 1))
    result: Floats = weights / weights.sum()
    return result


def _share(parameters: PureShuffleParameters) -> PolyaDifference:
    return PolyaDifference(
        Fraction(1, parameters.users), Chance(Fraction(1), Fraction(parameters.noise_epsilon))
    )


@register
@dataclass(frozen=True)
class GroupedShares:
    """The total noise of a batch that is split into certified groups.

    One participant's noise is a conditioned share or, with probability q, the deviation of a
    uniform number of ones: one of -τ-1..τ+1, each with probability at most q/(2τ+2), whatever the
    bit. Assigning that probability to all of them gives slightly more than 1 in total, so `log_mgf`
    is an upper bound. With `certified`, the batch is one group with shares for so many users.

    >>> round(GroupedShares(1025, Fraction(1)).variance, 2)
    1.87
    """

    users: int
    epsilon: Fraction
    curious: int = 1
    certified: int = 0

    @property
    def mean(self) -> float:
        """Zero."""
        return 0.0

    @cached_property
    def variance(self) -> float:
        """The sum of all participants' variances."""
        users, values, probabilities = self._matrix
        return float(values**2 @ probabilities @ users)

    @cached_property
    def _matrix(self) -> tuple[Floats, Floats, Floats]:
        """Users per table row in use, all values of one participant's noise, and their
        probabilities (one column per row).
        """
        if self.certified:
            cut = [Group(1, lookup(self.certified, self.epsilon), self.users)]
        else:
            cut = groups(self.users, self.epsilon, self.curious)
        rows = [group.row.certificate.parameters for group in cut]
        most = max(p.tau for p in rows) + 1
        columns = []
        for p in rows:
            mixed = np.full(2 * p.tau + 3, float(p.mixture) / (p.bits + 1))
            mixed[1:-1] += (1 - float(p.mixture)) * share_probabilities(p)
            columns.append(np.pad(mixed, most - p.tau - 1))
        users = np.array([group.participants for group in cut], dtype=float)
        return users, np.arange(-most, most + 1, dtype=float), np.column_stack(columns)

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """The sum of all participants' log moment generating functions."""
        users, values, probabilities = self._matrix
        powers = np.asarray(s, dtype=float)[..., None] * values
        if np.abs(powers).max(initial=0.0) < LARGEST:
            logs = np.log(np.exp(powers) @ probabilities)
        else:
            logs = logsumexp(powers[..., None], b=probabilities, axis=-2)
        result: Floats = logs @ users
        return result

    def bound(self, p: float) -> float:
        """A t with P[|X| > t] <= p, from the moment generating function."""
        return tail_radius(self, p)


def released_shares(parameters: PureShuffleParameters, reports: int) -> Table:
    """The centred noise in the released number of ones of `reports` reports."""
    p = parameters
    counts = np.full(p.bits + 1, float(p.mixture) / (p.bits + 1))
    counts[: 2 * p.tau + 1] += (1 - float(p.mixture)) * share_probabilities(p)
    return Table.of(*convolution_power(Table.of(-p.tau, counts), reports))


@dataclass(frozen=True)
class GroupMessage:
    """A user's message: the number of the group, and d bits."""

    group: int
    bits: tuple[int, ...]


class PureShuffle(SumProtocol):
    """Certified groups of users with a shuffler; rewards are bits, or are rounded to bits.

    The guarantee is pure. It covers the shuffled bits of every group, also against `curious` of its
    own members, if everyone in a group reports: an incomplete group aborts the release. `epsilon`
    covers all `participations` of a participant together.

    With a `threat` model the batch is one group instead, and some of its reports may be missing.
    Shares are those of a certified number of users, at most the honest reports that are certain.
    All other reports add a number of ones that does not depend on a participant's own bit: the view
    is a function of that of the certified users and of independent draws, and as private.

    >>> protocol = PureShuffle(2500, 1.0)
    >>> protocol.guarantee.short, protocol.bits_per_participant
    ('(1, 0)-DP', 41)
    >>> tolerant = PureShuffle(100, 1.0, threat=ThreatModel(dropout=0.2, corrupt=0.1))
    >>> tolerant.minimum, tolerant.honest
    (80, 64)
    """

    def __init__(
        self,
        participants: int,
        epsilon: float,
        *,
        participations: int = 1,
        curious: int = 1,
        threat: ThreatModel | None = None,
    ) -> None:
        self.participants = integer("participants", participants, at_least=1)
        times = integer("participations", participations, at_least=1)
        self.epsilon = as_fraction("epsilon", positive("epsilon", epsilon)) / times
        self.precision = 1
        if threat is None:
            self.minimum = self.participants
            self._groups = groups(self.participants, self.epsilon, curious)
            self.honest = self._groups[0].size - curious
            assumed = frozenset({DishonestAtMost(Scope.GROUP, curious), CompleteGroups()})
            self._noise = GroupedShares(self.participants, self.epsilon, curious)
        else:
            self.minimum = threat.reports(self.participants)
            own = one_group(self.participants, threat.honest(self.participants), self.epsilon)
            self._groups, self.honest = [own], own.row.users
            assumed = frozenset(threat.assumptions())
            self._noise = GroupedShares(
                self.participants, self.epsilon, threat.curious, own.row.users
            )
        row = self._groups[0].row
        self.target, self.parameters = row.target, row.certificate.parameters
        made = PureDP(
            times * certified(self.epsilon),
            view=View.SHUFFLED,
            participations=times,
            assumptions=assumed,
        )
        self.guarantee = state_drawn_arithmetic(made, _share(self.parameters))
        self.bits_per_participant = self.parameters.bits
        self._error = ErrorDistribution(self.participants, 1, self._noise)

    def error(self, reports: int) -> ErrorDistribution:
        """The noise of all shares that arrive, uniform replacements included."""
        self.check_reports(reports)
        if reports == self.participants:
            return self._error
        return ErrorDistribution(reports, 1, replace(self._noise, users=reports))

    def _present(self, reports: int) -> list[Group]:
        """The groups that `reports` reports form."""
        self.check_reports(reports)
        if reports == self.participants:
            return self._groups
        (group,) = self._groups
        return [replace(group, size=reports)]

    def _expected(self, reports: int) -> int:
        """The expected number of noise ones in `reports` reports."""
        return sum(
            group.participants * group.row.certificate.parameters.tau
            for group in self._present(reports)
        )

    def group_of(self, position: int) -> int:
        """The group of the participant at this position in the batch."""
        return self._group_and_row(position)[0]

    @property
    def groups(self) -> int:
        """The number of groups."""
        return sum(group.count for group in self._groups)

    def _group_and_row(self, position: int) -> tuple[int, TableRow]:
        """The group of a slot, and its table row."""
        left, before = position, 0
        for group in self._groups if position >= 0 else ():
            if left < group.participants:
                return before + left // group.size, group.row
            left, before = left - group.participants, before + group.count
        raise TacitError(f"position is {position}: must be 0 to {self.participants - 1}")

    def randomize(self, x: float) -> GroupMessage:
        """The message of the participant in slot 0."""
        return self.report(x, 0)

    def report(self, x: float, slot: int) -> GroupMessage:
        """d bits for the participant in this slot: exact draws, the noise before the reward."""
        group, row = self._group_and_row(slot)
        p = row.certificate.parameters
        noisy = draw_certified_ones(p)
        ones = noisy(self.encode(x))
        return GroupMessage(group, tuple([1] * ones + [0] * (p.bits - ones)))

    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Integers:
        """The number of ones that each participant sends, by slot; -1 - ones if it was drawn
        uniformly.
        """
        ones = np.empty(len(levels), dtype=np.int64)
        start = 0
        for group in self._present(len(levels)):
            p, size = group.row.certificate.parameters, group.participants
            part = levels[start : start + size]
            shares = rng.choice(
                np.arange(-p.tau, p.tau + 1), size=len(part), p=share_probabilities(p)
            )
            replaced = rng.random(len(part)) < float(p.mixture)
            uniform = rng.integers(0, p.bits + 1, size=len(part))
            ones[start : start + size] = np.where(replaced, -1 - uniform, p.tau + part + shares)
            start += size
        return ones

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Aggregate:  # noqa: ARG002
        """The number of ones minus its expectation; `wrapped` if any count was drawn uniformly."""
        ones = np.where(messages < 0, -1 - messages, messages)
        value = int(ones.sum()) - self._expected(len(messages))
        return Aggregate((value,), len(messages), wrapped=bool((messages < 0).any()))

    def combine(self, messages: Any) -> Aggregate:
        """The number of ones minus its expectation; incomplete groups are rejected."""
        arrived = Counter((message.group, len(message.bits)) for message in messages)
        number = 0
        tolerant = self.minimum < self.participants
        for group in self._present(len(messages)) if tolerant else self._groups:
            for _ in range(group.count):
                reports = arrived.pop((number, group.row.certificate.parameters.bits), 0)
                if reports != group.size:
                    raise TacitError(
                        f"group {number} has {reports} of its {group.size} reports; the "
                        "certificate is for complete groups only: the round is aborted"
                    )
                number += 1
        if arrived:
            raise TacitError(
                f"{arrived.total()} report(s) belong to no group or have a wrong number of bits; "
                "the round is aborted"
            )
        value = sum(sum(message.bits) for message in messages) - self._expected(len(messages))
        return Aggregate((value,), len(messages))

    def view_distribution(self, total: int, reports: int) -> Table:
        """The number of ones of all groups minus its expectation, if the first `total` participants
        hold a one.

        The adversary sees the groups separately, which is more; the certificate covers that.
        """
        spectrum: Any = np.ones(1)
        size, left = int(self.bits_per_participant) * reports + 1, total
        for group in self._present(reports):
            p, participants = group.row.certificate.parameters, group.participants
            for bit, copies in (
                (1, min(left, participants)),
                (0, participants - min(left, participants)),
            ):
                counts = np.full(p.bits + 1, float(p.mixture) / (p.bits + 1))
                counts[bit : bit + 2 * p.tau + 1] += (1 - float(p.mixture)) * share_probabilities(p)
                spectrum = spectrum * np.fft.rfft(counts, size) ** copies
            left = max(0, left - participants)
        probabilities = np.fft.irfft(spectrum, size).clip(min=0.0)
        return Table.of(-self._expected(reports), probabilities / probabilities.sum())

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        """Shares are independent of bits, so all shares of a row are drawn at once; only the few
        uniform counts replace a user's bit.
        """
        value, replaced = total, 0
        for group in self._present(reports):
            p, size = group.row.certificate.parameters, group.participants
            lost = int(rng.binomial(size, float(p.mixture)))
            value += int(
                rng.multinomial(size - lost, share_probabilities(p)) @ np.arange(-p.tau, p.tau + 1)
            )
            value += int(rng.integers(0, p.bits + 1, size=lost).sum()) - p.tau * lost
            replaced += lost
        ones, left = total, reports
        for _ in range(replaced):  # which bits are replaced: sampled without replacement
            held = int(rng.random() * left < ones)
            value, ones, left = value - held, ones - held, left - 1
        return Aggregate((value,), reports, wrapped=replaced > 0)

    @property
    def reach(self) -> tuple[float, float]:
        """All bits of a report zero, or all of them one, in the group where that moves the sum
        most.
        """
        rows = [group.row.certificate.parameters for group in self._groups]
        return -float(max(p.tau for p in rows)), float(max(p.bits - p.tau for p in rows))

    def _sum(self, released: Aggregate) -> float:
        return float(released.value)

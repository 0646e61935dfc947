"""Sums of a statistic's integer vectors, one class per trust model.

- `CentralStatistic`: a trusted server adds the noise.
- `TwoServerStatistic`: two servers each add the full noise; one of them must be honest. Outsiders
  face both: the guarantee states their ε as well.
- `SecureStatistic`: every participant adds a share of the noise, and secure aggregation releases
  only the sums. `ShuffledStatistic` replaces it by a shuffler of additive shares.
- `ShuffledTable`: noisy bits of every cell through a shuffler.
- `UnaryStatistic`: the local model of tables, by optimized unary encoding.
- `ExactStatistic`: no privacy.

Rounds have disjoint participants, and a participant's report depends on nothing but that
participant's data and the published policy. So the guarantee of a round is that of the run, by
adaptive parallel composition: earlier releases do not depend on the participant, later ones are
functions of the round's release and of other participants.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NotRequired, TypedDict, Unpack

import numpy as np

from tacit.contextual.feature_maps import FeatureMap
from tacit.errors import TacitError, integer, require
from tacit.noise import Binomial, NoiseDistribution, Table
from tacit.noise.table import convolution_power, sum_of_bits
from tacit.privacy import ApproximateDP, PureDP, Target, ThreatModel, View, state_drawn_arithmetic
from tacit.protocols.contract import Protocol
from tacit.protocols.shuffled_bits import labelled_bits, ones_by_label
from tacit.protocols.split_and_mix import shuffled_guarantee
from tacit.protocols.statistics import (
    CornerStatistic,
    FitStatistic,
    MomentStatistic,
    ScaledMomentStatistic,
    Statistic,
    TableStatistic,
)
from tacit.protocols.sums import TWO_SERVERS
from tacit.protocols.vector_noise import gaussian_ratio, numbers_only
from tacit.protocols.vectors import noise_proxy
from tacit.sampling.coins import additive_shares
from tacit.sampling.draws import HALF, flip_response
from tacit.trust import SHUFFLE_SECURITY, TrustModel, split_shares
from tacit.types import Aggregate, Estimate, Integers, VectorError

ROOM = 40.0  # standard deviations of noise that the modulus leaves room for
WIDEST = 62  # bits of a modulus, so that simulations can use 64-bit integers
FINE = 1 << 16  # biases of noise bits are multiples of 1/FINE
NOBODY_MISSING = ThreatModel()


@dataclass(frozen=True, eq=False)
class StatisticTotals:
    """Sums of the reports of a simulated round.

    Parameters
    ----------
    sums : array of int
        The sum of all reports, by coordinate.
    reports : int
        The number of reports.
    """

    sums: Integers
    reports: int


class StatisticSum(Protocol):
    """Base class of sums of a statistic.

    Parameters
    ----------
    participants : int
        Largest number of reports in the round.
    statistic : Statistic
        What each participant reports.
    """

    minimum = 1

    def __init__(self, participants: int, statistic: Statistic) -> None:
        self.participants = integer("participants", participants, at_least=1)
        self.statistic, self.coordinates = statistic, statistic.size
        self._prepare()
        widest = max((one.std for one in set(self.noise(self.participants))), default=0.0)
        most = self.participants * statistic.largest + ROOM * widest
        bits = math.ceil(math.log2(2 * most + 2))
        if bits > WIDEST:
            raise TacitError(
                f"sums of {self.participants:,} reports need {bits} bits: must be at most "
                f"{WIDEST}. Use smaller rounds or a coarser resolution."
            )
        self.modulus = 1 << bits
        self.bits_per_participant = float(self.coordinates * bits * self.copies)

    @property
    def copies(self) -> int:
        """Number of values sent for each number of a report."""
        return 1

    @abstractmethod
    def _prepare(self) -> None:
        """Set noise and guarantee."""

    @abstractmethod
    def noise(self, reports: int) -> tuple[NoiseDistribution, ...]:
        """The noise in the sum of this many reports, by coordinate; empty for none."""

    def randomize(self, x: Any) -> Any:
        """The participant's integers modulo m; the servers add the noise."""
        return [value % self.modulus for value in self.statistic.encode(x)]

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sums modulo m, with the servers' noise where they add it."""
        self.check_reports(len(messages))
        columns = zip(*messages, strict=True)
        drawn = self.server_noise()
        sums = (
            (sum(column) + extra) % self.modulus
            for column, extra in zip(columns, drawn, strict=True)
        )
        return Aggregate(tuple(sums), len(messages))

    def server_noise(self) -> list[int]:
        """The servers' noise by coordinate, drawn exactly."""
        return [0] * self.coordinates

    def analyze(self, released: Aggregate) -> Estimate:
        """The estimated sums in real values, with the variance of their noise."""
        self.check_reports(released.reports)
        half = self.modulus // 2
        read = [(value + half) % self.modulus - half for value in released.values]
        total = np.array(read, dtype=float) * self.statistic.units
        return Estimate(total, self.error(released.reports), self.guarantee_id, released.wrapped)

    def error(self, reports: int) -> VectorError:
        """The noise in the mean of each coordinate."""
        scale = self.statistic.units / reports
        noise = self.noise(reports)
        if not noise:
            zeros = np.zeros(self.coordinates)
            return VectorError(reports, zeros, np.full(self.coordinates, math.inf), zeros)
        known = {one: (*noise_proxy(one), one.std) for one in dict.fromkeys(noise)}
        proxies, reaches, stds = np.array([known[one] for one in noise]).T
        return VectorError(reports, proxies * scale**2, reaches / scale, stds * scale)

    def simulate(self, load: StatisticTotals, rng: np.random.Generator) -> Estimate:
        """The sums with all noise."""
        self.check_reports(load.reports)
        noisy = load.sums + self.sample_noise(load.reports, rng)
        half = self.modulus // 2
        wrapped = bool((noisy >= half).any() or (noisy < -half).any())
        values = tuple((noisy % self.modulus).tolist())
        return self.analyze(Aggregate(values, load.reports, wrapped))

    def sample_noise(self, reports: int, rng: np.random.Generator) -> Integers:
        """The noise in every coordinate, for simulation: one array per distribution."""
        total = np.zeros(self.coordinates, dtype=np.int64)
        noise = self.noise(reports)
        for one in dict.fromkeys(noise):
            places = np.flatnonzero([other == one for other in noise])
            total[places] = one.sample(rng, len(places))
        return total

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:
        """The first sum with the noise that protects a participant, about `total`."""
        return _about(self.noise(reports)[0], total)


class ExactStatistic(StatisticSum):
    """No privacy: the sums themselves."""

    guarantee = None

    def _prepare(self) -> None:
        pass

    def noise(self, reports: int) -> tuple[NoiseDistribution, ...]:  # noqa: ARG002
        """None."""
        return ()

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """Raises: exact sums have no distribution."""
        raise TacitError("an exact sum has no distribution: use a protocol with noise")


class PrivateStatistic(StatisticSum):
    """Base class of sums with noise."""

    view: ClassVar[View]
    guarantee: Target

    def __init__(self, participants: int, statistic: Statistic, target: Target) -> None:
        rule = "1, because each participant of a contextual experiment comes once"
        require(target.participations == 1, "participations", target.participations, rule)
        self.target = target
        super().__init__(participants, statistic)

    def _prepare(self) -> None:
        self.own = self.statistic.noise(self.target)
        self.guarantee = state_drawn_arithmetic(
            numbers_only(self.target, self.view), *dict.fromkeys(self.own)
        )


class CentralStatistic(PrivateStatistic):
    """A trusted server sums the reports and releases noisy sums.

    >>> CentralStatistic(100, TableStatistic(2, 2), PureDP(1.0)).guarantee.short
    '(1, 0)-DP'
    """

    view = View.SERVER_OUTPUT

    def noise(self, reports: int) -> tuple[NoiseDistribution, ...]:  # noqa: ARG002
        """The server's noise."""
        return self.own

    def server_noise(self) -> list[int]:
        """One draw per coordinate."""
        return _draw_each(self.own)


class TwoServerStatistic(PrivateStatistic):
    """Reports are secret-shared between two servers, and each adds noise that suffices alone.

    The guarantee is towards the other server, who knows its own noise; the remark
    `TowardsOutsiders` states what both servers' noise gives towards everybody else.

    >>> protocol = TwoServerStatistic(100, TableStatistic(2, 2), PureDP(1.0))
    >>> protocol.guarantee.short, protocol.guarantee.view.value
    ('(1, 0)-DP', 'other-server')
    """

    view = View.OTHER_SERVER

    @property
    def copies(self) -> int:
        """One share for each server."""
        return 2

    def _prepare(self) -> None:
        super()._prepare()
        outside = self.statistic.outsiders(self.target, self.own)
        self.guarantee = state_drawn_arithmetic(
            self.guarantee.assuming(*TWO_SERVERS, outside), *dict.fromkeys(self.own)
        )
        sums = {one: _sum_of_two(one) for one in dict.fromkeys(self.own)}
        self._both = tuple(sums[one] for one in self.own)

    def noise(self, reports: int) -> tuple[NoiseDistribution, ...]:  # noqa: ARG002
        """Both servers' noise; for discrete Gaussians, the nearby one that the accounting uses."""
        return self._both

    def server_noise(self) -> list[int]:
        """An independent draw of each server per coordinate."""
        return [a + b for a, b in zip(_draw_each(self.own), _draw_each(self.own), strict=True)]

    def sample_noise(self, reports: int, rng: np.random.Generator) -> Integers:  # noqa: ARG002
        """Both servers' draws."""
        total = np.zeros(self.coordinates, dtype=np.int64)
        for one in dict.fromkeys(self.own):
            places = np.flatnonzero([other == one for other in self.own])
            total[places] = one.sample(rng, len(places)) + one.sample(rng, len(places))
        return total

    def view_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """The first sum less the other server's noise."""
        return _about(self.own[0], total)

    def released_distribution(self, total: int, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """The first released sum, with both servers' noise."""
        return _about(self._both[0], total)


class SecureStatistic(PrivateStatistic):
    """Each participant adds a share of the noise; secure aggregation releases only the sums.

    Parameters
    ----------
    participants, statistic, target
        As for other sums.
    threat : ThreatModel
        Who may drop out, be corrupted or be curious. By default all report, and one, who may be
        curious, knows their own share.

    Examples
    --------
    >>> threat = ThreatModel(dropout=0.2, corrupt=0.1)
    >>> protocol = SecureStatistic(100, TableStatistic(2, 2), PureDP(1.0), threat)
    >>> protocol.minimum, protocol.honest
    (80, 70)
    """

    view = View.RELEASED_SUM

    def __init__(
        self,
        participants: int,
        statistic: Statistic,
        target: Target,
        threat: ThreatModel = NOBODY_MISSING,
    ) -> None:
        self.threat = threat
        super().__init__(participants, statistic, target)

    def _prepare(self) -> None:
        threat = self.threat
        self.minimum, self.honest = (f(self.participants) for f in (threat.reports, threat.honest))
        self.total = self.statistic.noise(self._noise_target(), self.honest)
        shares = {one: _share(one, self.honest) for one in dict.fromkeys(self.total)}
        self.own = tuple(shares[one] for one in self.total)
        made = numbers_only(self.target, self.view).assuming(*threat.assumptions())
        self.guarantee = state_drawn_arithmetic(made, *dict.fromkeys(self.own))

    def _noise_target(self) -> Target:
        """Target of the noise in the sums."""
        return self.target

    def noise(self, reports: int) -> tuple[NoiseDistribution, ...]:
        """The sums of all shares; for discrete Gaussians, the nearby one that the accounting
        uses.
        """
        sums = {one: one.sum_of_shares(reports) for one in dict.fromkeys(self.own)}
        return tuple(sums[one] for one in self.own)

    def randomize(self, x: Any) -> Any:
        """(integer + share) mod m per coordinate; the shares are drawn before the data are read."""
        drawn = _draw_each(self.own)
        values = self.statistic.encode(x)
        return [(value + extra) % self.modulus for value, extra in zip(values, drawn, strict=True)]


class ShuffledStatistic(SecureStatistic):
    """`SecureStatistic` with a shuffler: every number is split into additive shares modulo m.

    The shuffled shares reveal only the sums, up to 2^-60 (`tacit.protocols.split_and_mix`). Needs
    at least 19 honest participants; the guarantee has a δ of that order.
    """

    view = View.SHUFFLED

    def _prepare(self) -> None:
        super()._prepare()
        about = shuffled_guarantee(self.guarantee, SHUFFLE_SECURITY)
        self.guarantee = state_drawn_arithmetic(about, *dict.fromkeys(self.own))

    @property
    def security(self) -> int:
        """σ, with a union bound over all coordinates."""
        return SHUFFLE_SECURITY + math.ceil(math.log2(self.coordinates))

    @cached_property
    def copies(self) -> int:
        """Number of shares that hides everything but their sum."""
        return split_shares(self.honest, 1 << WIDEST, self.security)

    def randomize(self, x: Any) -> Any:
        """One row of shares per coordinate."""
        numbers = super().randomize(x)
        return [additive_shares(number, self.copies, self.modulus) for number in numbers]

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The sum of all shares per label, modulo m."""
        return super().combine([[sum(row) for row in message] for message in messages])


class ShuffledTable(StatisticSum):
    """A table as shuffled bits: one data bit and noise bits per cell, labelled by cell.

    The analyzer sees the number of ones of each cell. Replacing a participant takes one from a cell
    and adds one to another; the guarantee is exact for both cells together
    (`tacit.terms.accounting.cells_delta`). The noise of `honest` reports is certain to be there.

    Examples
    --------
    >>> protocol = ShuffledTable(100, TableStatistic(2, 2), ApproximateDP(1.0, 1e-6))
    >>> protocol.bits_per_participant, protocol.guarantee.short
    (24, '(1, 1e-06)-DP')
    """

    guarantee: Target

    def __init__(
        self,
        participants: int,
        statistic: TableStatistic,
        target: ApproximateDP,
        threat: ThreatModel = NOBODY_MISSING,
    ) -> None:
        often = target.participations
        require(often == 1, "participations", often, "1 with tables")
        self.target, self.threat = target, threat
        super().__init__(participants, statistic)
        self.bits_per_participant = self.coordinates * (1 + self.noise_bits)

    def _prepare(self) -> None:
        threat = self.threat
        self.minimum, self.honest = (f(self.participants) for f in (threat.reports, threat.honest))
        self.noise_bits, self.bias = table_bits(self.honest, self.target)
        made = numbers_only(self.target, View.SHUFFLED).assuming(*threat.assumptions())
        self.guarantee = state_drawn_arithmetic(made, self._ones(self.honest))

    def _ones(self, reports: int) -> Binomial:
        return Binomial(self.noise_bits * reports, self.bias)

    def noise(self, reports: int) -> tuple[NoiseDistribution, ...]:
        """The noise bits of all reports, in every cell."""
        return (self._ones(reports),) * self.coordinates

    def randomize(self, x: Any) -> list[list[int]]:
        """Bits of every cell, ones first; the noise is drawn before the cell is read."""
        drawn = self._ones(1).draw(self.coordinates)
        ones = [bit + int(more) for bit, more in zip(self.statistic.encode(x), drawn, strict=True)]
        return labelled_bits(ones, 1 + self.noise_bits)

    def combine(self, messages: Sequence[Any]) -> Aggregate:
        """The number of ones of every cell."""
        self.check_reports(len(messages))
        return ones_by_label(messages)

    def analyze(self, released: Aggregate) -> Estimate:
        """The number of reports in each cell: ones less the expected noise."""
        self.check_reports(released.reports)
        expected = released.reports * self.noise_bits * float(self.bias)
        total = np.array(released.values, dtype=float) - expected
        return Estimate(total, self.error(released.reports), self.guarantee_id, released.wrapped)

    def simulate(self, load: StatisticTotals, rng: np.random.Generator) -> Estimate:
        """The ones of all cells."""
        self.check_reports(load.reports)
        noisy = load.sums + self._ones(load.reports).sample(rng, self.coordinates)
        return self.analyze(Aggregate(tuple(noisy.tolist()), load.reports))

    def view_distribution(self, total: int, reports: int) -> Table:
        """The number of ones of the first cell."""
        start, ones = convolution_power(self._ones(1), reports)
        return Table.of(start + total, ones)


@lru_cache(maxsize=4096)
def table_bits(honest: int, target: ApproximateDP) -> tuple[int, Fraction]:
    """Noise bits per report and cell, and their bias: the fewest, and the least variance to a
    hundredth, at which two cells that move by one have the target's δ together.
    """
    from tacit.terms.accounting import cells_delta  # loads cryptography

    variance = 2 * gaussian_ratio(target) ** 2
    epsilon = Fraction(target.epsilon)
    for _ in range(800):
        each = math.ceil(4 * variance / honest)
        rest = 1 - 4 * variance / (each * honest)
        bias = Fraction(math.ceil((1 - math.sqrt(max(0.0, rest))) / 2 * FINE), FINE)
        if cells_delta(each * honest, bias, epsilon) <= target.delta:
            return each, bias
        variance *= 1.01
    raise TacitError(f"no noise bits of {honest} reports give {target.short}: use larger rounds")


class UnaryStatistic(StatisticSum):
    """Local model of tables: each participant sends one randomized bit per cell.

    The bit of the participant's cell is 1 with probability ½, every other one with probability
    q = 1/(1 + e^ε): optimized unary encoding (Wang, Blocki, Li & Jha 2017). Two cells' bits differ
    in distribution between any two participants, and the likelihood ratio is at most
    (½ / q) · ((1 - q) / ½) = e^ε.
    """

    guarantee: PureDP

    def __init__(self, participants: int, statistic: TableStatistic, target: Target) -> None:
        if not isinstance(target, PureDP) or target.participations != 1:
            raise TacitError(
                f"target is {target.short}: must be pure, for one participation, in local tables"
            )
        self.target = target
        super().__init__(participants, statistic)

    def _prepare(self) -> None:
        self.epsilon = Fraction(self.target.epsilon)
        rare = math.exp(-float(self.epsilon))
        self.flip_probability = rare / (1 + rare)
        self.guarantee = state_drawn_arithmetic(numbers_only(self.target, View.MESSAGE), HALF)

    def noise(self, reports: int) -> tuple[NoiseDistribution, ...]:  # noqa: ARG002
        """No additive noise: bits are randomized."""
        return ()

    def randomize(self, x: Any) -> list[int]:
        """One bit per cell; all bits are drawn before the cell is read."""
        others = [int(self._flip()) for _ in range(self.coordinates)]
        own = int(HALF.flip())
        return [
            own if one else other
            for one, other in zip(self.statistic.encode(x), others, strict=True)
        ]

    def _flip(self) -> bool:
        """True with probability exactly 1 / (1 + e^ε)."""
        return flip_response(self.epsilon)

    def analyze(self, released: Aggregate) -> Estimate:
        """The debiased number of reports in each cell."""
        self.check_reports(released.reports)
        ones = np.array(released.values, dtype=float)
        total = (ones - released.reports * self.flip_probability) / (0.5 - self.flip_probability)
        return Estimate(total, self.error(released.reports), self.guarantee_id, released.wrapped)

    def error(self, reports: int) -> VectorError:
        """Stretched bits are independent and sub-Gaussian; the spread is that of empty cells."""
        stretch = 1 / (0.5 - self.flip_probability)
        proxy = np.full(self.coordinates, stretch**2 / (4 * reports))
        std = stretch * math.sqrt(self.flip_probability * (1 - self.flip_probability) / reports)
        reach = np.full(self.coordinates, math.inf)
        return VectorError(reports, proxy, reach, np.full(self.coordinates, std))

    def simulate(self, load: StatisticTotals, rng: np.random.Generator) -> Estimate:
        """The number of ones in every cell."""
        self.check_reports(load.reports)
        ones = rng.binomial(load.sums, 0.5) + rng.binomial(
            load.reports - load.sums, self.flip_probability
        )
        return self.analyze(Aggregate(tuple(ones.tolist()), load.reports))

    def view_distribution(self, total: int, reports: int) -> Table:  # noqa: ARG002
        """The first bit of a participant who is (1) or is not (0) in its cell."""
        one = 0.5 if total else self.flip_probability
        return Table.of(0, np.array([1 - one, one]))

    def released_distribution(self, total: int, reports: int) -> Table:
        """The number of ones for the first cell."""
        return sum_of_bits((total, 0.5), (reports - total, self.flip_probability))


def _draw_each(noise: Sequence[NoiseDistribution]) -> list[int]:
    """One exact draw per coordinate."""
    return [int(one.draw()) for one in noise]


def _sum_of_two(noise: NoiseDistribution) -> NoiseDistribution:
    """The sum of two draws; for discrete Gaussians, the nearby distribution."""
    return noise.power(2) if noise.divisible else noise.sum_of_shares(2)


def _share(noise: NoiseDistribution, honest: int) -> NoiseDistribution:
    """A share of noise that is added up by this many honest participants."""
    return noise.share(honest) if noise.divisible else noise.approximate_share(honest)


def _about(noise: NoiseDistribution, total: int) -> NoiseDistribution:
    """The distribution about `total`."""
    if total == 0:
        return noise
    low, high = noise.window(-80.0)
    return Table.of(low + total, noise.pmf(np.arange(low, high + 1)))


def statistic_sum(
    participants: int,
    statistic: Statistic,
    trust: str,
    target: Target | None,
    threat: ThreatModel = NOBODY_MISSING,
) -> StatisticSum:
    """The sum of a statistic under a trust model; without a target, exact sums.

    Secure aggregation tolerates the dropouts and corrupted participants of `threat`.
    """
    if target is None:
        return ExactStatistic(participants, statistic)
    if trust == TrustModel.SECURE_AGGREGATION:
        return SecureStatistic(participants, statistic, target, threat)
    kinds: dict[str, type[PrivateStatistic]] = {
        TrustModel.CENTRAL: CentralStatistic,
        TrustModel.TWO_SERVERS: TwoServerStatistic,
        TrustModel.SHUFFLER: ShuffledStatistic,
    }
    if isinstance(statistic, TableStatistic):
        if trust == TrustModel.SHUFFLER and isinstance(target, ApproximateDP):
            return ShuffledTable(participants, statistic, target, threat)
        if trust == TrustModel.LOCAL:
            return UnaryStatistic(participants, statistic, target)
    if trust not in kinds or (
        trust == TrustModel.SHUFFLER and not isinstance(statistic, TableStatistic)
    ):
        raise TacitError(
            f"trust is {trust}: moments need central, two-servers or secure-aggregation"
        )
    return kinds[trust](participants, statistic, target)


class SumOptions(TypedDict):
    """The trust model and guarantee of a sum, and the fractions who may be missing or dishonest."""

    trust: str
    target: Target | None
    missing: NotRequired[float]
    dishonest: NotRequired[float]


def _sum(participants: int, statistic: Statistic, arguments: SumOptions) -> StatisticSum:
    threat = ThreatModel(arguments.get("missing", 0), arguments.get("dishonest", 0))
    return statistic_sum(participants, statistic, arguments["trust"], arguments["target"], threat)


def table_sum(
    participants: int,
    weight: float = 1.0,  # noqa: ARG001  (tables have none)
    *,
    segments: int,
    options: int,
    **arguments: Unpack[SumOptions],
) -> StatisticSum:
    """The protocol of a round of tables."""
    return _sum(participants, TableStatistic(segments, options), arguments)


def corner_sum(
    participants: int,
    weight: float = 1.0,  # noqa: ARG001  (corners have none)
    *,
    features: Mapping[str, Any],
    **arguments: Unpack[SumOptions],
) -> StatisticSum:
    """The protocol of a round of corners of a feature map (`FeatureMap.to_dict`)."""
    return _sum(participants, CornerStatistic.of(FeatureMap.from_dict(features)), arguments)


def moment_sum(
    participants: int,
    weight: float = 2.0,
    *,
    size: Sequence[int],
    scaled: bool = False,
    **arguments: Unpack[SumOptions],
) -> StatisticSum:
    """The protocol of a round of moments; `size` is dimension, resolution and levels.

    The noise of `scaled` moments has one width, and no weight.
    """
    dimension, resolution, levels = size
    statistic = (
        ScaledMomentStatistic(dimension, resolution, levels)
        if scaled
        else MomentStatistic(dimension, resolution, levels, weight)
    )
    return _sum(participants, statistic, arguments)


def fit_sum(
    participants: int,
    weight: float = 1.0,  # noqa: ARG001  (fits have none)
    *,
    size: Sequence[int],
    **arguments: Unpack[SumOptions],
) -> StatisticSum:
    """The protocol of a round of fitted vectors; `size` is dimension, resolution and levels."""
    return _sum(participants, FitStatistic(*size), arguments)

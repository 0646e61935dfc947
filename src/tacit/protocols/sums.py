"""Sums modulo m with integer noise, one class per trust model.

- `Central`: a trusted server adds the noise.
- `TwoServers`: two servers each add the full noise; one of them must be honest. `Verified` also
  drops out-of-range reports, if both are honest.
- `Local`: every participant adds the full noise.
- `SecureSum`: every participant adds a share of the noise, and secure aggregation releases only the
  sum.

Implements CZ23 Algorithm 1 and Theorems 1, 2, 4, 5, 6. The modulus leaves room for the noise; the
probability of a wrap-around is computed, or bounded for wide sums of many Pólya shares.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tacit.assumptions import Accounting, BoundedAdversary, PinnedKeys, RangeProofs
from tacit.errors import TacitError, integer
from tacit.noise import DiscreteLaplace, NoiseDistribution, Table, modular_pmf
from tacit.noise.chernoff import tail_bound
from tacit.privacy import (
    ONE_CURIOUS,
    ConcentratedDP,
    PureDP,
    RenyiDP,
    Target,
    ThreatModel,
    View,
    checked_target,
    concentrated_of,
    renyi_of,
    state_drawn_arithmetic,
)
from tacit.privacy.divergences import SHOWN
from tacit.privacy.guarantees import Kept
from tacit.protocols.contract import SumProtocol, plain_levels
from tacit.types import Aggregate, ErrorDistribution, Integers

MISREAD = 1e-9  # probability that a round wraps around its modulus
TWO_SERVERS = (PinnedKeys(), BoundedAdversary())
"""Assumptions of the two-server guarantee, besides one honest server."""


class ModularSum(SumProtocol):
    """Base class of sums that are released modulo m with integer noise."""

    modulus: int
    share: NoiseDistribution  # noise of one participant, or of the trusted server

    @abstractmethod
    def noise(self, reports: int) -> NoiseDistribution:
        """The distribution of the noise in the sum when this many reports arrive."""

    @cached_property
    def misread(self) -> float:
        """The worst-case probability that the sum of a full round is misread."""
        return self.noise(self.participants).wrap_chance(self.top, self.modulus)

    @property
    def top(self) -> int:
        """The largest sum of levels."""
        return self.participants * self.precision

    def error(self, reports: int) -> ErrorDistribution:
        """The distribution of the noise in the sum."""
        return ErrorDistribution(reports, self.precision, self.noise(reports), self.misread)

    def randomize(self, x: float) -> Any:
        """(level + share) mod m.

        The noise is drawn before the reward is read, and a coin is flipped for every reward.
        Neither takes longer for one reward than for another.
        """
        noise = self.share.draw()
        return (self.encode(x) + noise) % self.modulus

    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Integers:
        """levels + shares, unreduced: only their sum is reduced, so that a simulation can detect
        wrap-around.
        """
        noisy: Integers = levels + self.share.sample(rng, len(levels))
        return noisy

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Aggregate:  # noqa: ARG002
        """The sum modulo m."""
        self.check_reports(len(messages))
        return self._reduced(int(messages.sum()), len(messages))

    def combine(self, messages: Any) -> Aggregate:
        """The sum modulo m."""
        self.check_reports(len(messages))
        wide = self.modulus * len(messages) > 1 << 62
        array = np.asarray(messages, dtype=object if wide else np.int64)
        return Aggregate((int(array.sum()) % self.modulus,), len(messages))

    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Aggregate:
        return self._reduced(total + int(self.noise(reports).sample(rng)), reports)

    def _reduced(self, truth: int, reports: int) -> Aggregate:
        """The released aggregate for a known noisy sum, with its wrap-around flag."""
        value = truth % self.modulus
        return Aggregate((value,), reports, wrapped=self._read(value) != truth)

    def _sum(self, released: Aggregate) -> float:
        return self._read(released.value)

    def _read(self, value: int) -> int:
        """Values in the upper half of the spare residues are underflows (CZ23 Algorithm 1, lines 28
        to 30).
        """
        spare = (self.modulus - self.top - 1) // 2
        return value - self.modulus if value > self.modulus - 1 - spare else value


def modular_sum(distribution: NoiseDistribution, modulus: int, copies: int, total: int) -> Table:
    """The distribution of `total` plus `copies` independent draws, modulo m."""
    spectrum = np.fft.rfft(modular_pmf(distribution, modulus)) ** copies
    probabilities = np.roll(np.fft.irfft(spectrum, modulus), total).clip(min=0.0)
    return Table.of(0, probabilities / probabilities.sum())


class SecureSum(ModularSum):
    """Each participant adds a share of the noise; secure aggregation releases only the sum modulo
    m.

    Parameters
    ----------
    participants, precision
        Size of the round, and number of levels g.
    distribution
        The noise that meets the target. It is shared among the participants whose shares are
        certain to be present and unknown to the adversary (`ThreatModel`).
    target
        The guarantee to meet.
    threat
        Who may drop out, be corrupted or be curious; dropout is tolerated down to `minimum`
        reports.
    share
        Overrides a participant's share; the accounting then uses the shares that are certain.
    modulus
        Overrides the modulus.
    order
        Rényi order for several participations, if it is not the target's.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> from tacit.privacy import PureDP
    >>> threat = ThreatModel(dropout=0.1)
    >>> protocol = SecureSum(100, 10, DiscreteLaplace(10), PureDP(1.0), threat=threat)
    >>> protocol.minimum, protocol.honest, protocol.modulus, protocol.bits_per_participant
    (90, 89, 1423, 11)
    """

    guarantee: Target

    def __init__(
        self,
        participants: int,
        precision: int,
        distribution: NoiseDistribution,
        target: Target,
        *,
        threat: ThreatModel = ONE_CURIOUS,
        share: NoiseDistribution | None = None,
        modulus: int | None = None,
        order: float | None = None,
    ) -> None:
        self._for(participants, precision)
        self.minimum = threat.reports(self.participants)
        self.honest = threat.honest(self.participants)
        self.share = distribution.approximate_share(self.honest) if share is None else share
        self.distribution = distribution if share is None else share.sum_of_shares(self.honest)
        self.guarantee = checked_target(
            centred(self.distribution),
            self.precision,
            target,
            View.RELEASED_SUM,
            *threat.assumptions(),
            log_ratio=self.share.closeness(self.honest),
            order=order,
        )
        self.guarantee = state_drawn_arithmetic(self.guarantee, self.distribution, self.share)
        self._distributions = {self.honest: self.distribution}
        self.modulus = _modulus(self.top, self.noise(self.participants), modulus)
        if modulus is None:
            self.misread = MISREAD  # the modulus was chosen for it
        self.bits_per_participant = (self.modulus - 1).bit_length()

    def noise(self, reports: int) -> NoiseDistribution:
        """The distribution of the sum of this many honest shares."""
        if reports not in self._distributions:
            self._distributions[reports] = self.share.sum_of_shares(reports)
        return self._distributions[reports]

    def view_distribution(self, total: int, reports: int) -> Table:
        """The sum of the levels and all shares, modulo m."""
        return modular_sum(self.share, self.modulus, reports, total)

    def renyi(self, orders: Iterable[float] = SHOWN) -> RenyiDP:
        """The guarantee as Rényi divergences of the same noise, against the same adversary."""
        return self._restated(renyi_of(*self._certain, orders, **self._noise_use))

    def concentrated(self) -> ConcentratedDP:
        """The guarantee as zCDP of the same noise, against the same adversary."""
        return self._restated(concentrated_of(*self._certain, **self._noise_use))

    @property
    def _certain(self) -> tuple[NoiseDistribution, int]:
        """The noise that is certain to be in the sum, and the sensitivity."""
        return self.distribution, self.precision

    @property
    def _noise_use(self) -> dict[str, Any]:
        often = self.guarantee.participations
        return {"participations": often, "log_ratio": self.share.closeness(self.honest)}

    def _restated(self, guarantee: Kept) -> Kept:
        """The derived guarantee for the view and the assumptions of the round."""
        assumed = {one for one in self.guarantee.assumptions if not isinstance(one, Accounting)}
        made = guarantee.with_view(view=self.guarantee.view).assuming(*assumed)
        return state_drawn_arithmetic(made, self.distribution, self.share)


class ServedSum(ModularSum):
    """Devices send plain levels; each of `servers` adds the noise `distribution` to the sum."""

    minimum = 1
    servers: ClassVar[int]
    distribution: NoiseDistribution

    randomize = SumProtocol.encode
    randomize_batch = plain_levels

    def combine(self, messages: Any) -> Aggregate:
        """The sum with exact noise draws of every server."""
        self.check_reports(len(messages))
        total = int(np.sum(messages)) + sum(self.distribution.draw() for _ in range(self.servers))
        return Aggregate((total % self.modulus,), len(messages))

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Aggregate:
        """The sum with the servers' noise from the caller's generator."""
        self.check_reports(len(messages))
        return self._open(int(np.sum(messages)), len(messages), rng)

    def view_distribution(self, total: int, reports: int) -> Table:  # noqa: ARG002
        """One server's noise: with two servers, the other one subtracts its own."""
        return modular_sum(self.distribution, self.modulus, 1, total)

    def released_distribution(self, total: int, reports: int) -> Table:  # noqa: ARG002
        """The sum with all servers' noise."""
        return modular_sum(self.distribution, self.modulus, self.servers, total)


class Central(ServedSum):
    """A trusted server sums the levels and adds the noise.

    The guarantee covers the server's output, not its own view.
    """

    servers = 1
    reach = (0.0, 1.0)  # the server sees every level and rejects anything else

    def __init__(
        self,
        participants: int,
        precision: int,
        distribution: NoiseDistribution,
        target: Target,
        modulus: int | None,
    ) -> None:
        self._for(participants, precision)
        self.guarantee = checked_target(
            centred(distribution), self.precision, target, View.SERVER_OUTPUT
        )
        self.distribution = self.share = distribution
        self.modulus = _modulus(self.top, distribution, modulus)
        self.bits_per_participant = self.precision.bit_length()

    def noise(self, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """The server's noise, for any number of reports."""
        return self.distribution


class TwoServers(ServedSum):
    """Reports are secret-shared between two servers, and each adds noise that suffices alone.

    A malicious server knows its own noise and may drop, forge or isolate reports. Only the other
    server's noise then protects a participant; `view_distribution` is the distribution of that
    view. ε
    covers all of the target's participations together. For several metrics per participation see
    `tacit.protocols.joint`.

    >>> protocol = TwoServers(100, 10, PureDP(1.0, participations=2))
    >>> protocol.distribution.scale == 20, protocol.guarantee.short
    (True, '(1, 0)-DP')
    """

    guarantee: Target
    servers = 2
    distribution: DiscreteLaplace

    def __init__(self, participants: int, precision: int, target: PureDP) -> None:
        self._for(participants, precision)
        scale = self.precision * target.participations / Fraction(target.epsilon)
        self.distribution = self.share = DiscreteLaplace(scale)
        self.guarantee = checked_target(
            self.distribution, self.precision, target, View.OTHER_SERVER, *TWO_SERVERS
        )
        self._both = self.distribution.power(2)
        self.modulus = _modulus(self.top, self._both, None)
        self.bits_per_participant = 2 * (self.modulus - 1).bit_length()

    def noise(self, reports: int) -> NoiseDistribution:  # noqa: ARG002
        """Both servers' noise, for any number of reports."""
        return self._both


class Verified(TwoServers):
    """Two servers that also verify, by a zero-knowledge range proof, that every report is a level.

    The aggregate and the privacy guarantee are those of `TwoServers`. A poisoned report moves the
    sum by at most the full range of levels if both servers are honest. A report carries its proof.

    >>> protocol = Verified(100, 10, PureDP(1.0))
    >>> protocol.bits_per_participant, TwoServers(100, 10, PureDP(1.0)).bits_per_participant
    (1536, 22)
    """

    reach = (0.0, 1.0)  # out-of-range reports are dropped

    def __init__(self, participants: int, precision: int, target: PureDP) -> None:
        from tacit.vdaf import MODULUS, report_bits  # only needed here

        super().__init__(participants, precision, target)
        if self.modulus > MODULUS:
            raise TacitError(
                f"a sum of {self.participants:,} reports of {self.precision:,} levels with its "
                f"noise needs a modulus of {self.modulus}; verified sums are counted modulo "
                f"{MODULUS}: use fewer levels or participants, or a larger epsilon"
            )
        self.guarantee = self.guarantee.assuming(RangeProofs())
        self.bits_per_participant = report_bits(self.precision)


class Local(ModularSum):
    """Local model: every participant adds noise that suffices alone.

    The message itself is private, whatever happens to it afterwards.
    """

    minimum = 1

    def __init__(
        self,
        participants: int,
        precision: int,
        distribution: NoiseDistribution,
        target: Target,
        modulus: int,
    ) -> None:
        self._for(participants, precision)
        self.guarantee = checked_target(centred(distribution), self.precision, target, View.MESSAGE)
        self.distribution = self.share = distribution
        self._sums: dict[int, NoiseDistribution] = {}
        self.modulus = _modulus(self.top, self.noise(self.participants), modulus)
        self.bits_per_participant = (self.modulus - 1).bit_length()

    @cached_property
    def misread(self) -> float:
        """A Chernoff bound: the noise of many participants is too wide to sum."""
        return tail_bound(self.noise(self.participants), (self.modulus - self.top - 1) // 2)

    def noise(self, reports: int) -> NoiseDistribution:
        """The sum of all participants' noise."""
        if reports not in self._sums:
            self._sums[reports] = self.distribution.power(reports)
        return self._sums[reports]

    def view_distribution(self, total: int, reports: int) -> Table:  # noqa: ARG002
        """One message of a participant at this level."""
        return modular_sum(self.distribution, self.modulus, 1, total)

    def released_distribution(self, total: int, reports: int) -> Table:
        """The sum of all messages, modulo m."""
        return modular_sum(self.distribution, self.modulus, reports, total)


def centred(distribution: NoiseDistribution) -> NoiseDistribution:
    """The distribution itself, if its mean is 0; any other mean would bias every estimate."""
    if abs(distribution.mean) > 1e-9 * (1 + distribution.std):
        raise TacitError(
            f"{distribution!r} has mean {distribution.mean:g}; noise that is added to a sum "
            "must have mean 0: use "
            "discrete-laplace, skellam or discrete-gaussian noise; binomial bits are shuffled"
        )
    return distribution


def _modulus(top: int, noise: NoiseDistribution, modulus: int | None) -> int:
    if modulus is not None:
        given = integer("modulus", modulus, at_least=2)
        if given <= top:
            noise.wrap_chance(top, given)  # raises an error that names a sufficient modulus
        return given
    return top + 2 * noise.tail_margin(MISREAD) + 1


def paper_modulus(users: int, precision: int, tau: float) -> int:
    """m = ng + 2τ + 1 (CZ23 Algorithm 1)."""
    if not math.isfinite(tau) or tau < 0:
        raise TacitError(f"tau is {tau}: must be a number of at least 0, the room for noise")
    return users * precision + 2 * math.ceil(tau) + 1

"""How silos' messages reach the server under each trust model, and whose noise protects them.

A `PrefixDelivery` decides who adds the noise, which noise distributions fit, how integers are
encoded in a message, what the adversary sees and which assumptions the guarantee needs.
`PrefixSums` is the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from tacit.assumptions import (
    Assumption,
    DishonestAtMost,
    JointPrivacy,
    ReleasedOnlyAbove,
    Scope,
    Spread,
    TrustedSilo,
    VisitsAtMost,
)
from tacit.errors import TacitError, integer, require
from tacit.noise import Binomial, DiscreteGaussian, NoiseDistribution, Skellam
from tacit.protocols.prefix_messages import MODULUS_BITS, Bits, Form, Shares, Words
from tacit.trust import SHUFFLE_SECURITY, TrustModel, View, split_shares
from tacit.types import Floats

if TYPE_CHECKING:
    from tacit.protocols.prefix_sums import PrefixSums

Noise = Literal["none", "gaussian", "discrete-gaussian", "skellam", "binomial", "quarter-bits"]
BITS: tuple[Noise, ...] = ("binomial", "quarter-bits")  # sent bit by bit

INTEGER_NOISE: dict[Noise, Callable[[float, int], NoiseDistribution]] = {
    "discrete-gaussian": lambda width, _: DiscreteGaussian(width),
    "skellam": lambda width, _: Skellam(width**2),
    "binomial": lambda width, n: Binomial(2 * n * math.ceil(2 * width**2 / n)),
    "quarter-bits": lambda width, n: Binomial(
        4 * n * math.ceil(4 * width**2 / (3 * n)), Fraction(1, 4)
    ),
}
"""Integer noise by its standard deviation and the number of parties that draw shares of it."""


def draw_vector(
    size: int,
    distribution: NoiseDistribution | None,
    rng: np.random.Generator | None,
    spread: float = 0.0,
) -> Floats:
    """One vector of centred noise: from an integer distribution, or Gaussian with standard
    deviation `spread`.

    Without a generator, draws are exact, from the operating system.
    """
    if distribution is None:
        if rng is None:
            raise TacitError(
                "continuous Gaussian noise is for simulation: devices draw integers, use "
                "discrete-gaussian noise"
            )
        return spread * rng.standard_normal(size)
    values = distribution.draw(size) if rng is None else np.asarray(distribution.sample(rng, size))
    return values.astype(np.float64) - round(distribution.mean)


@dataclass(frozen=True)
class Presence:
    """Participations of one participant.

    In at most `batches` steps, `visits` times in each, at any silos. With `anywhere`: `visits`
    times in total, at any silos in any steps.

    `eager` silos act on the raw data of their batch. The assignment of later participants of the
    same silo and batch then depends on earlier ones, so one visit may move every record of that
    silo's batch. Otherwise a visit moves its own record only.

    >>> Presence(visits=2).records(silos=3, participants=25), Presence(eager=True).records(3, 25)
    ([(2,), (1, 1)], [(25,)])
    """

    batches: int = 1
    visits: int = 1
    eager: bool = False
    anywhere: bool = False

    def __post_init__(self) -> None:
        integer("batches", self.batches, at_least=1, remedy="a participant is in at least one")
        integer("visits", self.visits, at_least=1, remedy="a participant comes at least once")
        rule = "1 with visits anywhere, which bound the total"
        require(self.batches == 1 or not self.anywhere, "batches", self.batches, rule)

    def records(self, silos: int, participants: int) -> list[tuple[int, ...]]:
        """The worst distributions over silos of the records that move in one batch.

        A silo has `participants` records.

        For each number of visited silos, the records are concentrated in as few silos as possible.
        The released rows move by a convex function of these counts, which is largest there.
        """
        coming = min(self.visits, silos * participants)
        most = min(coming, silos)
        if self.eager:
            return [(participants,) * most]
        found = []
        for visited in range(-(-coming // participants), most + 1):
            counts, left = [1] * visited, coming - visited
            for place in range(visited):
                more = min(participants - 1, left)
                counts[place] += more
                left -= more
            found.append(tuple(counts))
        return found

    @property
    def participations(self) -> int:
        """The total number of participations of one participant."""
        return self.batches * self.visits

    @property
    def assumption(self) -> VisitsAtMost:
        """The number of participations, as an assumption of the guarantee."""
        spread = Spread.ANYWHERE if self.anywhere else Spread.PER_BATCH
        return VisitsAtMost(self.batches, self.visits, spread)


ONCE = Presence()


class PrefixDelivery:
    """No privacy: silos send their data in the clear. Base class of all deliveries.

    Attributes
    ----------
    view : View
        The adversary's view that the guarantee covers.
    noises : tuple of str
        The kinds of noise that fit.
    silos_draw : bool
        Whether silos add noise to their messages.
    own_noise : bool
        Whether silos may have individual noise and weights.
    shares : bool
        Whether only the sum over silos is seen, so that silos may be missing.
    no_prefix : str
        Why silos cannot send prefix sums themselves; empty if they can.
    """

    view = View.SILO
    noises: tuple[Noise, ...] = ("none",)
    silos_draw = False
    own_noise = False
    shares = False
    no_prefix = ""

    def suffices_alone(self, noise: Noise) -> bool:  # noqa: ARG002
        """Whether each silo's noise suffices alone."""
        return False

    def noise_parties(self, sums: PrefixSums) -> int:
        """The number of parties whose noise adds up to that of the guarantee: all honest silos."""
        return sums.honest

    def form(self, sums: PrefixSums, step: int) -> Form:  # noqa: ARG002
        """The encoding of the integers of a step: words modulo 2^64."""
        return Words()

    def slack(self, sums: PrefixSums, epsilon: float) -> float:  # noqa: ARG002
        """The increase of δ at ε by the way messages are delivered."""
        return 0.0

    def assumptions(self, sums: PrefixSums) -> set[Assumption]:  # noqa: ARG002
        """Assumptions of the guarantee, without view and participations."""
        return set()


class FromSilos(PrefixDelivery):
    """Each silo adds noise that suffices alone, and its messages are seen (ZC24 Algorithm 2)."""

    noises: tuple[Noise, ...] = ("gaussian", "discrete-gaussian")
    silos_draw = own_noise = True

    def suffices_alone(self, noise: Noise) -> bool:  # noqa: ARG002
        """True: each silo adds all of its noise itself."""
        return True

    def noise_parties(self, sums: PrefixSums) -> int:  # noqa: ARG002
        """One: the silo itself."""
        return 1


class Aggregated(PrefixDelivery):
    """Each silo adds a share of the noise; secure aggregation releases the sum modulo 2^64."""

    view = View.RELEASED_SUM
    noises: tuple[Noise, ...] = ("discrete-gaussian", "skellam")
    silos_draw = shares = True

    def assumptions(self, sums: PrefixSums) -> set[Assumption]:
        """Visited silos are trusted; at most `corrupt` others withhold or reveal their shares.

        Where silos may be missing, no row is released with fewer than the rest.
        """
        trusted = {TrustedSilo(), DishonestAtMost(Scope.SILOS, sums.corrupt)}
        if not sums.missing:
            return trusted
        return {*trusted, ReleasedOnlyAbove(1 - Fraction(sums.missing, sums.silos))}


class Shuffled(Aggregated):
    """Additive shares through a shuffler; bits for binomial noise (ZC24 Algorithm 5).

    Gaussian messages are not split: each silo's noise suffices alone.
    """

    view = View.SHUFFLED
    shares = False
    noises: tuple[Noise, ...] = ("discrete-gaussian", "skellam", *BITS, "gaussian")
    no_prefix = (
        "shuffled prefix sums put every participant in all later messages (ZC24 Remark 5.6): use "
        "the tree or the square root"
    )

    def suffices_alone(self, noise: Noise) -> bool:
        """Whether each silo's noise suffices alone: only for noise that is not integer."""
        return noise not in INTEGER_NOISE

    def noise_parties(self, sums: PrefixSums) -> int:
        """One silo, or all honest ones."""
        return 1 if sums.suffices_alone else sums.honest

    def form(self, sums: PrefixSums, step: int) -> Form:
        """Shares that add up to each integer, or as many bits as there are levels and noise."""
        if sums.noise not in BITS:
            return Shares(count=split_shares(sums.honest, 1 << MODULUS_BITS))
        most, noise = math.ceil(sums.largest(step)), int(sums.share.support[1])
        return Bits(2 * most + noise, most + round(sums.share.mean))

    def slack(self, sums: PrefixSums, epsilon: float) -> float:
        """The statistical distance of split-and-mix, over all released numbers."""
        if sums.suffices_alone or sums.noise in BITS:
            return 0.0
        return (1 + math.exp(epsilon)) * 2.0**-SHUFFLE_SECURITY * sums.size * sums.shape.steps

    def assumptions(self, sums: PrefixSums) -> set[Assumption]:
        """Assumptions of secure aggregation, unless each silo's noise suffices alone."""
        return {TrustedSilo()} if sums.suffices_alone else super().assumptions(sums)


class Trusted(PrefixDelivery):
    """Silos send their data; one trusted server adds the noise once (Shariff & Sheffet 2018)."""

    view = View.SERVER_OUTPUT
    noises: tuple[Noise, ...] = ("discrete-gaussian", "skellam")
    no_prefix = (
        "a trusted server adds up its own releases: use the tree, the square root or the optimal "
        "kind"
    )

    def noise_parties(self, sums: PrefixSums) -> int:  # noqa: ARG002
        """One: the server."""
        return 1

    def assumptions(self, sums: PrefixSums) -> set[Assumption]:  # noqa: ARG002
        """Assumptions of joint privacy: the server and visited silos are trusted."""
        return {TrustedSilo(), JointPrivacy()}


DELIVERIES: dict[TrustModel, PrefixDelivery] = {
    TrustModel.NONE: PrefixDelivery(),
    TrustModel.SILO: FromSilos(),
    TrustModel.SECURE_AGGREGATION: Aggregated(),
    TrustModel.SHUFFLER: Shuffled(),
    TrustModel.CENTRAL: Trusted(),
}

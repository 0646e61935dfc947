"""Vector sums: every client holds one number in [-B, B] for each of s played actions, the server
learns noisy means.

The secret is a client's whole vector; neighbours replace it, so each coordinate's sum moves by up
to 2B (2B√s in l2 norm, LZJ22 Theorem 4.2). Who adds the noise tells the trust models apart: `Plain`
nobody, `Central` the server, `Local` each client alone. They work on real sums, so the sum over all
clients is all a simulation needs. Protocols over levels (shuffled bits, secure aggregation) are in
`tacit.protocols.levels`. With s = 1 these are the private sums of DP-PE (LZJ22 Appendix C), where a
person tries one action.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.checks import TacitError, integer, positive
from tacit.noise import DiscreteLaplace, NoiseLaw
from tacit.privacy import ApproximateDP, Gaussian, GaussianLoss, Guarantee, PureDP, View
from tacit.protocols.continuous import Laplace
from tacit.protocols.contract import NoiseLike
from tacit.protocols.joint import gaussian_noise, gaussian_ratio

Floats = npt.NDArray[np.float64]
FINE = 1024  # grid steps over [-B, B] on which a trusted server adds integer noise
REAL_BITS = 64
TAIL = 4.0  # standard deviations of the noise over which its sub-Gaussian proxy is taken


@dataclass(frozen=True, eq=False)
class VectorEstimate:
    """Estimated mean rewards of the coordinates, and the error that the protocol added.

    `proxies`: sub-Gaussian variances of that error, coordinate by coordinate: ln E[e^{t·error}] <=
    t²·proxy/2 for |t| <= reach. `stated`: the standard deviation that goes into the paper's widths.
    """

    means: Floats
    proxies: Floats
    reaches: Floats
    stated: float

    @staticmethod
    def join(parts: Sequence[VectorEstimate]) -> VectorEstimate:
        """The coordinates of several estimates, one after the other."""
        return VectorEstimate(
            np.concatenate([part.means for part in parts]),
            np.concatenate([part.proxies for part in parts]),
            np.concatenate([part.reaches for part in parts]),
            max(part.stated for part in parts),
        )


@dataclass(frozen=True, eq=False)
class OpenedVector:
    """What the intermediary hands to the server: a value per coordinate, and how many reports it
    holds.
    """

    values: Floats
    reports: int


@lru_cache(maxsize=4096)
def noise_proxy(law: NoiseLike) -> tuple[float, float]:
    """A sub-Gaussian variance of the centred law, and the |t| up to which it holds: the largest 2
    ln M(t)/t² on a grid.

    >>> noise_proxy(Gaussian(2.0))
    (4.0, inf)
    """
    if isinstance(law, Gaussian):
        return law.variance, math.inf
    reach = TAIL / math.sqrt(float(law.variance))
    if isinstance(law, (Laplace, DiscreteLaplace)):
        reach = 0.9 / float(law.scale)  # beyond 1/scale there is no moment generating function
    points = np.concatenate(
        [-np.linspace(reach / 32, reach, 32), np.linspace(reach / 32, reach, 32)]
    )
    values = law.log_mgf(points) - points * law.mean
    return max(float(law.variance), float((2 * values / points**2).max())), reach


class VectorProtocol(ABC):
    """P = (R, S, A) for the mean of one vector in [-B, B]^s per client, for a batch of exactly
    known size.
    """

    clients: int
    coordinates: int
    bound: float
    guarantee: Guarantee | None
    bits_per_client: float
    secret = "a client's average reward for every played action, together"

    def _take(self, clients: int, coordinates: int, bound: float) -> None:
        self.clients = integer(
            "clients",
            clients,
            at_least=1,
            remedy="an alpha that leaves no clients in a phase teaches nothing",
        )
        self.coordinates = integer("coordinates", coordinates, at_least=1)
        self.bound = float(positive("bound", bound, "rewards lie in [-bound, bound]"))
        self.bits_per_client = REAL_BITS * self.coordinates

    def check(self, vector: npt.ArrayLike) -> Floats:
        """A client's vector, refused beyond the bound: the guarantee would not hold for it."""
        array = np.asarray(vector, dtype=float)
        if array.shape != (self.coordinates,):
            raise TacitError(
                f"the report has shape {array.shape}; it must hold one number for each of "
                f"{self.coordinates} played actions"
            )
        if not float(np.abs(array).max()) <= self.bound * (1 + 1e-12):
            raise TacitError(
                f"a reward of {float(array[np.abs(array).argmax()]):g} is beyond the bound of "
                f"{self.bound:g}: clip it on the device, or "
                "use a larger bound"
            )
        return array

    @abstractmethod
    def randomize(self, vector: npt.ArrayLike) -> Any:
        """What leaves the device of a client with this vector of average rewards."""

    @abstractmethod
    def combine(self, messages: Sequence[Any]) -> OpenedVector:
        """What the server is handed (and, where it is trusted with noise, publishes), given
        everyone's message.
        """

    @abstractmethod
    def analyze(self, opened: OpenedVector) -> VectorEstimate:
        """The estimate of the means, from what was opened."""


class RealProtocol(VectorProtocol):
    """A protocol that needs only the real sums over clients."""

    @abstractmethod
    def simulate(self, total: Floats, rng: np.random.Generator) -> VectorEstimate:
        """An estimate with the law of running every client, given the sum of their vectors."""

    def _estimate(self, means: Floats, proxy: float, reach: float, std: float) -> VectorEstimate:
        size = self.coordinates
        return VectorEstimate(means, np.full(size, proxy), np.full(size, reach), std)


class Plain(RealProtocol):
    """No privacy: the server sees every vector."""

    def __init__(self, clients: int, coordinates: int, bound: float) -> None:
        self._take(clients, coordinates, bound)
        self.guarantee = None

    def randomize(self, vector: npt.ArrayLike) -> Floats:
        """The vector itself."""
        return self.check(vector)

    def combine(self, messages: Sequence[Any]) -> OpenedVector:
        """The sum."""
        return OpenedVector(np.sum(messages, axis=0), len(messages))

    def analyze(self, opened: OpenedVector) -> VectorEstimate:
        """The mean, without error."""
        return self._estimate(opened.values / opened.reports, 0.0, math.inf, 0.0)

    def simulate(self, total: Floats, rng: np.random.Generator) -> VectorEstimate:  # noqa: ARG002
        """The mean."""
        return self.analyze(OpenedVector(total, self.clients))


class Central(RealProtocol):
    """A trusted server sums vectors and publishes noisy sums.

    Tight: the sum is rounded at random to a grid of 2B/1,024 and gets discrete Gaussian noise
    (discrete Laplace for a pure target). Rounding sums, with randomness of its own, leaves the
    movement of a coordinate at 1,024 steps: whatever is drawn, ⌊S + U⌋ moves by at most that.
    Paper: N(0, σ²), σ = 2B√(2 s ln(1.25/δ))/ε, whatever that guarantees; `guarantee` says what it
    is.

    >>> Central(100, 30, 1.0, ApproximateDP(10.0, 0.25), setting="paper").guarantee.short
    '(10, 0.7886)-DP'
    """

    view = View.SERVER_OUTPUT

    def __init__(
        self,
        clients: int,
        coordinates: int,
        bound: float,
        target: PureDP | ApproximateDP,
        *,
        setting: str = "tight",
    ) -> None:
        self._take(clients, coordinates, bound)
        self.law: NoiseLaw | Gaussian
        self.unit = 1.0
        if setting == "paper":
            self.law, self.guarantee = paper_gaussian(coordinates, bound, target, self.view)
            return
        self.unit = 2 * self.bound / FINE
        self.law = (
            DiscreteLaplace(FINE * coordinates / target.epsilon)
            if isinstance(target, PureDP)
            else gaussian_noise(FINE, coordinates, target)
        )
        self.guarantee = target.at(view=self.view)

    def randomize(self, vector: npt.ArrayLike) -> Floats:
        """The vector itself: the server is trusted."""
        return self.check(vector)

    def combine(self, messages: Sequence[Any]) -> OpenedVector:
        """The sums with the server's noise: exact integer draws (paper: floating-point
        Gaussians).
        """
        total = np.sum(messages, axis=0)
        source = random.SystemRandom()
        if isinstance(self.law, Gaussian):
            return OpenedVector(
                total + np.array([source.gauss(0.0, self.law.sigma) for _ in total]), len(messages)
            )
        rounded = np.array([math.floor(value / self.unit + source.random()) for value in total])
        noisy = (rounded + self.law.draw(self.coordinates)).astype(float)
        return OpenedVector(noisy * self.unit, len(messages))

    def analyze(self, opened: OpenedVector) -> VectorEstimate:
        """The published sums, divided."""
        proxy, reach = noise_proxy(self.law)
        rounding = 0.0 if isinstance(self.law, Gaussian) else 0.25
        scale = self.unit / opened.reports
        std = math.sqrt(float(self.law.variance)) * scale
        return self._estimate(
            opened.values / opened.reports, (proxy + rounding) * scale**2, reach / scale, std
        )

    def simulate(self, total: Floats, rng: np.random.Generator) -> VectorEstimate:
        """The noisy sums, divided."""
        values = (
            total / self.unit
            if isinstance(self.law, Gaussian)
            else np.floor(total / self.unit + rng.random(len(total)))
        )
        noisy = (values + self.law.sample(rng, len(total))) * self.unit
        return self.analyze(OpenedVector(noisy, self.clients))


class Local(RealProtocol):
    """Nobody is trusted: every client adds noise to every coordinate that suffices alone.

    Tight: a device rounds its vector at random to a grid of 2B/1,024, on which replacing it moves
    every coordinate by at most 1,024 steps, and adds exact discrete Gaussian noise for that
    movement (discrete Laplace of scale 1,024 s/ε for a pure target). The simulation draws the noise
    of all clients at once as the Gaussian (Laplace) that this nearly is; rounding, a quarter of a
    step squared, is in the proxy. Paper: N(0, σ²) by the closed form, in floating point, for
    comparison only.
    """

    view = View.MESSAGE

    def __init__(
        self,
        clients: int,
        coordinates: int,
        bound: float,
        target: PureDP | ApproximateDP,
        *,
        setting: str = "tight",
    ) -> None:
        self._take(clients, coordinates, bound)
        self.law: Gaussian | Laplace
        self.device: NoiseLaw | None = None
        self.unit = 2 * self.bound / FINE
        if setting == "paper":
            self.law, self.guarantee = paper_gaussian(coordinates, bound, target, self.view)
            return
        self.device = (
            DiscreteLaplace(Fraction(FINE * self.coordinates) / Fraction(target.epsilon))
            if isinstance(target, PureDP)
            else gaussian_noise(FINE, self.coordinates, target)
        )
        self.law = (
            Laplace(2 * self.bound * coordinates / target.epsilon)
            if isinstance(target, PureDP)
            else Gaussian(gaussian_ratio(target) * 2 * self.bound * math.sqrt(coordinates))
        )
        self.guarantee = target.at(view=self.view)

    def randomize(self, vector: npt.ArrayLike) -> Floats:
        """The vector on the grid with exact integer noise of its own (paper: floating-point
        Gaussians).
        """
        source = random.SystemRandom()
        if self.device is None:
            return np.asarray(
                self.check(vector)
                + np.array(
                    [
                        source.gauss(0.0, math.sqrt(self.law.variance))
                        for _ in range(self.coordinates)
                    ]
                )
            )
        noise = self.device.draw(
            self.coordinates
        )  # before the vector is touched: its time depends on what is drawn
        steps = [math.floor(value / self.unit + source.random()) for value in self.check(vector)]
        clipped = np.clip(
            steps, -FINE // 2, FINE // 2
        )  # a coordinate of exactly B must not be rounded past the grid
        return np.asarray((clipped + noise) * self.unit)

    def combine(self, messages: Sequence[Any]) -> OpenedVector:
        """The sum."""
        return OpenedVector(np.sum(messages, axis=0), len(messages))

    def analyze(self, opened: OpenedVector) -> VectorEstimate:
        """The mean; everyone's noise is in it."""
        proxy, reach = noise_proxy(self.law)
        rounding = 0.0 if self.device is None else self.unit**2 / 4
        n = opened.reports
        return self._estimate(
            opened.values / n, (proxy + rounding) / n, reach * n, math.sqrt(self.law.variance / n)
        )

    def simulate(self, total: Floats, rng: np.random.Generator) -> VectorEstimate:
        """The sum with everyone's noise at once: a Gaussian of √n σ, or a difference of Gamma(n)
        variables.
        """
        size = (self.coordinates,)
        if isinstance(self.law, Gaussian):
            noise = self.law.sigma * math.sqrt(self.clients) * rng.standard_normal(size)
        else:
            noise = self.law.scale * (
                rng.standard_gamma(self.clients, size) - rng.standard_gamma(self.clients, size)
            )
        return self.analyze(OpenedVector(total + noise, self.clients))


def paper_gaussian(
    coordinates: int, bound: float, target: PureDP | ApproximateDP, view: View
) -> tuple[Gaussian, ApproximateDP]:
    """σ = 2B√(2 s ln(1.25/δ))/ε (LZJ22 Theorems 4.2, 4.4, C.1, C.3), and the (ε, δ) that it truly
    gives (CORRECTIONS 7).
    """
    if isinstance(target, PureDP):
        raise TacitError(
            "the paper's Gaussian noise needs delta > 0: give a delta, or use the tight setting, "
            "which has Laplace noise"
        )
    sensitivity = 2 * float(bound) * math.sqrt(coordinates)
    law = Gaussian(sensitivity * math.sqrt(2 * math.log(1.25 / target.delta)) / target.epsilon)
    true = GaussianLoss(law.sigma, sensitivity).delta(target.epsilon)
    return law, ApproximateDP(target.epsilon, true, view=view)

"""Privacy amplification by shuffling of ε₀-local randomizers.

Each participant randomizes locally, with a pure guarantee ε₀ for the message; a shuffler removes
the origin of messages. The shuffled view of n participants is much more private. `Clones` bounds it
numerically for every randomizer (the variation-ratio bound of Wang et al. 2023, which tightens
Feldman, McMillan & Talwar 2021). `RandomizedResponse` computes it exactly for binary randomized
response. `amplified` is Lemma F.2 of ZC24 for silos, whose messages have an (ε₀, δ₀) guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer, positive, probability, require
from tacit.noise import Binomial
from tacit.noise.log_functions import deviance, stirling_error
from tacit.noise.table import product
from tacit.privacy.composition import advanced_composition
from tacit.privacy.gaussian import GaussianLoss
from tacit.privacy.guarantees import ApproximateDP
from tacit.privacy.loss import Direction
from tacit.privacy.renyi import finite_epsilon

Floats = npt.NDArray[np.float64]
UNRESOLVED = 1e-18  # mass of unlikely numbers of clones that is added to δ
MOST_COUNTS = 4096
MOST_USERS_EVERY_INPUT = 512
LARGEST_EPSILON0 = 500
ROUNDING = 1e-12  # relative error of a tail in `_excess`
LARGEST_USERS = 10**11  # likely numbers of clones are tabulated: a few seconds and 300 MB

_EDGES = (0.0, 1.0, 3.0, 8.0, 20.0, 40.0)  # e^-40 of an integral lies beyond the last


def _quadrature() -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss-Legendre quadrature between neighbouring `_EDGES`."""
    points, weights = np.polynomial.legendre.leggauss(14)
    low, high = np.array(_EDGES[:-1])[:, None], np.array(_EDGES[1:])[:, None]
    nodes = low + (high - low) * (points + 1) / 2
    return nodes.ravel(), ((high - low) * weights / 2).ravel()


_NODES, _WEIGHTS = _quadrature()


def _check(epsilon0: float, users: int) -> None:
    positive("epsilon0", epsilon0, "the guarantee of one message")
    remedy = "Above, even shuffled messages have no meaningful privacy"
    rule = f"at most {LARGEST_EPSILON0}. {remedy}"
    require(epsilon0 <= LARGEST_EPSILON0, "epsilon0", f"{epsilon0:g}", rule)
    few = integer("users", users, at_least=1) <= LARGEST_USERS
    rule = f"at most {LARGEST_USERS:,}. The bound for that many holds for more users, too"
    require(few, "users", f"{Decimal(users):.4g}", rule)


@dataclass(frozen=True)
class Clones:
    """An amplification bound for any ε₀-local randomizer and n participants, replacing one.

    Let P and Q be a message's distributions under the two inputs, at total variation distance β,
    and α = β/(e^ε₀-1). Let P' and Q' be the parts where one exceeds the other, as distributions on
    disjoint sets. Then P = e^ε₀ α P' + α Q' + a rest, and Q = α P' + e^ε₀ α Q' + the same rest. Any
    other participant's message contains α P' + α Q', because it is at least e^-ε₀ times P and Q: it
    is a clone of either kind, with equal probability. β is at most (e^ε₀-1)/(e^ε₀+1), where the
    bound is largest (Wang et al. 2023): C ~ Bin(n-1, 2/(1+e^ε₀)) clones, A ~ Bin(C, ½) of them of
    the first kind, and a coin of bias e^ε₀/(1+e^ε₀) for the participant. The pair (A + coin, C - A
    + 1 - coin) dominates the shuffled view.

    >>> round(Clones(epsilon0=1.0, users=10_000).epsilon(1e-6), 3)
    0.043
    """

    epsilon0: float
    users: int

    def __post_init__(self) -> None:
        _check(self.epsilon0, self.users)

    def delta(self, epsilon: float) -> float:
        """An upper bound on the δ at ε of the shuffled messages."""
        if finite_epsilon(epsilon) >= self.epsilon0:
            return 0.0
        counts, weights, lost = self._clones
        found = _excess(counts, self.epsilon0, epsilon)
        return min(1.0, float(weights @ found) * (1 + 1e-9) + lost)

    def epsilon(self, delta: float) -> float:
        """An upper bound on the ε at δ: the safe end of a bisection."""
        level = float(probability("delta", delta))
        low, high = 0.0, float(self.epsilon0)
        while high - low > 1e-9 * max(1.0, high):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > level else (low, middle)
        return high

    @cached_property
    def _clones(self) -> tuple[Floats, Floats, float]:
        """Likely numbers of clones, their probabilities, and a bound on the remaining mass.

        Neighbouring numbers are merged into the least of them, which is safe: a clone can always be
        added by post-processing.
        """
        if self.users == 1:
            return np.zeros(1), np.ones(1), 0.0
        distribution = Binomial(self.users - 1, 2 * _flipped(self.epsilon0))
        low, high = distribution.quantile(UNRESOLVED), distribution.tail_quantile(UNRESOLVED)
        counts = np.arange(low, high + 1, dtype=float)
        weights = distribution.pmf(counts)
        starts = np.arange(0, len(counts), -(-len(counts) // MOST_COUNTS))
        return counts[starts], np.add.reduceat(weights, starts), 2 * UNRESOLVED


def _flipped(epsilon0: float) -> float:
    """1/(1+e^ε₀), computed directly.

    One minus the likelier answer's probability would cancel: at ε₀ = 36 it is off by half of
    itself.
    """
    return math.exp(-epsilon0) / (1 + math.exp(-epsilon0))


def _excess(counts: Floats, epsilon0: float, epsilon: float) -> Floats:
    """δ at ε of each number of clones, accurate to a part in 10^8 however many there are.

    With c clones, q = e^ε₀/(1+e^ε₀) and r = e^ε, P(a)/Q(a) = (q a + (1-q)(c+1-a)) / ((1-q) a + q
    (c+1-a)) rises with a, the number of messages of the first kind. It exceeds r from t = (c+1)/2
    · (1 + tanh(ε/2) / tanh(ε₀/2)) on. With A ~ Bin(c, ½), δ = (q - r (1-q)) P[A = t-1] - (r-1)
    P[A >= t]: the tails do not cancel as those of P and of Q do, which agree in all but a part ε
    of themselves.
    """
    share = (1 + math.tanh(epsilon / 2) / math.tanh(epsilon0 / 2)) / 2
    least = np.clip(np.ceil((counts + 1) * share), 1, counts + 1)
    first = -math.expm1(epsilon - epsilon0) / (1 + math.exp(-epsilon0))
    tails = math.expm1(epsilon) * _mills(counts, least)
    bracket = first * (1 + ROUNDING) - tails * (1 - ROUNDING)
    return _fair_ones(counts, least - 1) * np.maximum(0.0, bracket)


def _mills(counts: Floats, least: Floats) -> Floats:
    """P[A >= t] / P[A = t-1] for A ~ Bin(c, ½) and t >= (c+1)/2.

    It is (c-t+1) ∫ cosh(y)^-(c+1) e^-(2t-c-1)y dy over y >= 0: the incomplete beta integral at ½
    after u = (1 - tanh y)/2. All terms of the exponent have one sign, so nothing cancels.
    """
    slope, rest = 2 * least - counts - 1, counts - least + 1
    width = 1 / (slope + np.sqrt(counts + 1))
    y = width[:, None] * _NODES
    exponent = (counts + 1)[:, None] * np.log1p(2 * np.sinh(y / 2) ** 2) + slope[:, None] * y
    return np.asarray(rest * width * (np.exp(-exponent) @ _WEIGHTS))


def _fair_ones(counts: Floats, ones: Floats) -> Floats:
    """P[Bin(c, ½) = k], elementwise, in Loader's saddle-point form."""
    inner = (ones > 0) & (ones < counts)
    c, k = np.where(inner, counts, 2.0), np.where(inner, ones, 1.0)
    excess = k - c / 2
    log_p = (
        stirling_error(c)
        - stirling_error(k)
        - stirling_error(c - k)
        - deviance(k, c / 2, excess)
        - deviance(c - k, c / 2, -excess)
        + 0.5 * np.log(c / (2 * math.pi * k * (c - k)))
    )
    return np.exp(np.where(inner, log_p, -counts * math.log(2)))


@dataclass(frozen=True)
class RandomizedResponse:
    """The exact amplification of binary randomized response: bits flip with probability 1/(1+e^ε₀).

    The view is the number of ones among n participants. `delta(ε, ones=k)` takes k ones among the
    other n-1; without `ones` it is the worst over all k, for at most 512 participants (cost grows
    with n³).

    >>> response = RandomizedResponse(epsilon0=1.0, users=100)
    >>> response.epsilon(1e-3) < Clones(1.0, 100).epsilon(1e-3)
    True
    """

    epsilon0: float
    users: int

    def __post_init__(self) -> None:
        _check(self.epsilon0, self.users)

    def delta(self, epsilon: float, ones: int | None = None) -> float:
        """The exact δ at ε."""
        at = finite_epsilon(epsilon)
        return (
            max(direction.delta(at) for direction in self._directions(ones))
            if at < self.epsilon0
            else 0.0
        )

    def epsilon(self, delta: float, ones: int | None = None) -> float:
        """The exact ε at δ."""
        level = float(probability("delta", delta))
        return min(
            self.epsilon0, max(direction.epsilon(level) for direction in self._directions(ones))
        )

    def _directions(self, ones: int | None) -> tuple[Direction, ...]:
        if ones is not None:
            if ones != int(ones) or not 0 <= ones < self.users:
                raise TacitError(
                    f"ones is {ones}: must be between 0 and {self.users - 1}, the number of others"
                )
            return _responses(self.epsilon0, self.users, ones)
        if self.users > MOST_USERS_EVERY_INPUT:
            raise TacitError(
                f"{self.users:,} participants have too many inputs to enumerate (at most "
                f"{MOST_USERS_EVERY_INPUT}): give the number of others that hold a one (ones=...), "
                "or use Clones, which covers every input"
            )
        # the mirror image of k ones is n-1-k ones with the two directions swapped
        return tuple(
            d
            for k in range(self.users // 2 + 1)
            for d in _responses(self.epsilon0, self.users, min(k, self.users - 1))
        )


@lru_cache(maxsize=1024)
def _responses(epsilon0: float, users: int, ones: int) -> tuple[Direction, ...]:
    flip = _flipped(epsilon0)
    others = np.ones(1)
    for count, step in ((ones, -1), (users - 1 - ones, 1)):  # ones flipped to zero, and the reverse
        if count:
            others = product(others, Binomial(count, flip).pmf(np.arange(count + 1))[::step])
    here, before = np.append(others, 0.0), np.append(0.0, others)
    with_one, with_zero = (
        flip * here + (1 - flip) * before,
        flip * before + (1 - flip) * here,
    )
    lead = math.tanh(epsilon0 / 2) * (before - here)  # of the first over the second
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.log1p(np.abs(lead) / np.minimum(with_one, with_zero))
    losses = np.copysign(np.nan_to_num(sizes, nan=0.0), lead)
    bounded = np.clip(losses, -epsilon0, epsilon0)
    return Direction.of(bounded, with_one, 0.0), Direction.of(-bounded, with_zero, 0.0)


def amplified(
    epsilon0: float, delta0: float, group: float, silos: int, delta: float
) -> ApproximateDP | None:
    """Lemma F.2 for one node: the (ε, δ) of the silos' shuffled messages.

    Each silo's message is (ε₀, δ₀)-DP when one participant changes and (group, δ₀)-DP when all of
    the silo's data change. None where the lemma does not apply.

    Its proof prints (ε - 1)/(ε + 1) for (e^ε - 1)/(e^ε + 1) (CORRECTIONS 6). It takes ε₀ times the
    number of records for `group`. For the exact ε₀ of Gaussian noise, that is less than the truth
    at the same δ₀ (CORRECTIONS 25).
    """
    if not 0 < delta <= 1 or group > math.log(silos / (16 * math.log(2 / delta))):
        return None
    bias = math.tanh(epsilon0 / 2)
    inner = (
        8 * math.sqrt(math.exp(group) * math.log(4 / delta) / silos) + 8 * math.exp(group) / silos
    )
    epsilon = math.log1p(bias * inner)
    failure = (
        bias * delta + silos * (math.exp(epsilon) + 1) * (1 + math.exp(-epsilon0) / 2) * delta0
    )
    return ApproximateDP(epsilon, failure) if failure < 1 else None


def amplified_nodes(
    sigma: float, moved: float, group: float, silos: int, nodes: int, delta: float
) -> ApproximateDP | None:
    """Lemma F.2 at every node, and advanced composition over the nodes of one participant.

    Every message has Gaussian noise `sigma`. A participant moves one silo's message by at most
    `moved`, all of the silo's data move it by at most `group`. δ is split evenly; None where nodes
    fail more often than that.
    """
    level = delta / (2 * nodes)
    delta0 = level / (8 * silos)
    epsilon0 = GaussianLoss(sigma, moved).epsilon(delta0)
    if epsilon0 == 0:
        return None
    whole = GaussianLoss(sigma, group).epsilon(delta0)
    failing = min(1.0, level / (2 * math.tanh(epsilon0 / 2)))
    node = amplified(epsilon0, delta0, whole, silos, failing)
    if node is None or node.epsilon <= 0 or node.delta > level:
        return None
    return advanced_composition(node, nodes, delta / 2)

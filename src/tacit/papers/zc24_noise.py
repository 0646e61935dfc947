"""The noise of ZC24's algorithms: as printed, and as exact accounting has it.

`tight` is the default: one joint accounting of (xy, xxᵀ) with sensitivity √4.5, the square-root
factorization wherever real coefficients can be sent, exact (ε, δ). `paper` is what the figures
need: the tree, the printed variances with every unspecified constant set to 1, L = 1 and ε halved
between the two streams. Whatever the setting, the guarantee is computed from the noise that is
added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from tacit.bandits import statistics
from tacit.checks import TacitError, integer, positive, probability
from tacit.privacy import ApproximateDP, GaussianLoss, View, advanced_composition
from tacit.privacy.search import least
from tacit.protocols.continual import PrefixSums
from tacit.protocols.factorization import depth, factorize
from tacit.protocols.least_noise import calibrated

Setting = Literal["paper", "tight"]
# standard deviation of printed binomial noise in units; its distance from a Gaussian is summed term
# by term
BIT_WIDTH = 2e5


@dataclass(frozen=True)
class Problem:
    """What a federated algorithm is asked to do.

    Returning users: the guarantee is for a user who comes in at most `visits` batches, at most
    `visits_per_batch` times in each, to one silo or (where only sums over silos are opened) to any
    (ZC24 App. G.4). `noise` is what silos share under secure aggregation.
    """

    silos: int = 100
    dimension: int = 10
    actions: int = 100
    sync: int = 25
    epsilon: float = 0.2
    delta: float = 0.1
    horizon: int = 10_000
    setting: Setting = "tight"
    lazy: bool = False
    confidence: float = 0.01
    visits: int = 1
    visits_per_batch: int = 1
    noise: Literal["discrete-gaussian", "skellam"] = "discrete-gaussian"

    def __post_init__(self) -> None:
        integer("silos", self.silos, at_least=1)
        integer("dimension", self.dimension, at_least=1)
        integer("sync", self.sync, at_least=1)
        integer(
            "horizon",
            self.horizon,
            at_least=self.sync,
            remedy=f"silos synchronise every {self.sync} rounds, so there must be that many; "
            "or choose a smaller sync",
        )
        positive(
            "epsilon", self.epsilon, "a guarantee needs epsilon > 0; for no privacy use fedlinucb"
        )
        probability("delta", self.delta, "federated algorithms promise (epsilon, delta)-DP")
        probability("confidence", self.confidence)
        integer("visits", self.visits, at_least=1, remedy="a user comes in at least one batch")
        integer("visits per batch", self.visits_per_batch, at_least=1)
        if self.noise not in ("discrete-gaussian", "skellam"):
            raise TacitError(
                f"noise is {self.noise!r}; silos can share discrete-gaussian or skellam noise"
            )
        if self.setting not in ("paper", "tight"):
            raise TacitError(f"setting is {self.setting!r}; it must be paper or tight")

    @property
    def steps(self) -> int:
        """Synchronisations: whole batches."""
        return self.horizon // self.sync

    @property
    def depth(self) -> int:
        """κ: nodes of the tree that hold one batch."""
        return depth(self.steps)

    @property
    def target(self) -> ApproximateDP:
        """What is asked for."""
        return ApproximateDP(self.epsilon, self.delta)

    @property
    def size(self) -> int:
        """Numbers per message."""
        return statistics.size(self.dimension)

    @property
    def sensitivity(self) -> float:
        """Joint, under replacement."""
        return statistics.joint_sensitivity(self.dimension)

    def guarantee_of(self, protocol: PrefixSums) -> ApproximateDP:
        """What a protocol gives to a user who returns as often as is allowed for; the target itself
        where that was checked to hold.
        """
        found = protocol.guarantee(self.delta, batches=self.visits, times=self.visits_per_batch)
        met = protocol.loss(self.visits, self.visits_per_batch).delta(self.epsilon) <= self.delta
        return replace(found, epsilon=min(found.epsilon, self.epsilon)) if met else found

    def tree(
        self,
        sigma: float,
        trust: Literal["silo", "shuffle"],
        noise: Literal["gaussian", "binomial"],
        scale: int = 1,
    ) -> PrefixSums:
        """The binary tree with this noise in every node."""
        shape = factorize("tree", self.steps)
        return PrefixSums(
            shape, self.silos, self.size, self.sensitivity, trust, noise, sigma, scale, self.sync
        )


@dataclass(frozen=True)
class Mechanism:
    """A protocol, the guarantee of everything that it opens, and by what argument."""

    protocol: PrefixSums
    guarantee: ApproximateDP | None
    derivation: str
    sigma: float | None = (
        None  # the printed bound on the noise of a prefix sum, for the printed regularizer
    )


EXACT = "exact joint accounting of all releases"


def fedlinucb(problem: Problem) -> Mechanism:
    """No privacy: sums as they are."""
    shape = factorize("tree", problem.steps)
    return Mechanism(
        PrefixSums(shape, problem.silos, problem.size, problem.sensitivity),
        None,
        "nothing is hidden",
    )


def ldp_fedlinucb(problem: Problem) -> Mechanism:
    """Every silo adds its own noise (Theorem 5.1: σ₀² = 8κ (ln(2/δ) + ε) / ε²)."""
    if problem.setting == "tight":
        return _tight(problem, "square-root", "silo", "gaussian")
    e, d = problem.epsilon, problem.delta
    variance = 8 * problem.depth * (math.log(2 / d) + e) / e**2
    protocol = problem.tree(math.sqrt(variance), "silo", "gaussian")
    return Mechanism(
        protocol,
        problem.guarantee_of(protocol),
        EXACT,
        math.sqrt(problem.silos * problem.depth * variance),
    )


def sdp_fedlinucb(problem: Problem) -> Mechanism:
    """Gaussian nodes behind a shuffler (Theorem 5.3), in the range where that theorem holds
    (CORRECTIONS 12).
    """
    e, d, silos = problem.epsilon, problem.delta, problem.silos
    if problem.setting == "tight":
        limit = math.sqrt(problem.depth) / (problem.horizon * math.sqrt(silos))
        if e > limit:
            raise TacitError(
                f"epsilon is {e:g}; amplification by shuffling silos holds up to √κ/(T√M) = "
                f"{limit:.2g} (ZC24 Theorem 5.3, its constant "
                "taken as 1): use secagg-fedlinucb, which holds at every epsilon, or "
                "sdp-fedlinucb-vec"
            )
        if problem.visits * problem.visits_per_batch > 1:
            raise TacitError(
                "amplification is worked out for users who come once: use secagg-fedlinucb for "
                "returning users"
            )
        alone = calibrated(
            factorize("tree", problem.steps),
            silos,
            problem.size,
            problem.sensitivity,
            "silo",
            "gaussian",
            problem.target,
        )
        sigma = min(alone.sigma, _amplified_sigma(problem, alone.sigma))
        protocol = problem.tree(sigma, "shuffle", "gaussian")
        return Mechanism(protocol, *_best_argument(problem, protocol))
    if d >= problem.depth / problem.horizon:
        raise TacitError(
            f"delta is {d:g}; the noise of ZC24 Theorem 5.3 is defined below κ/T = "
            f"{problem.depth / problem.horizon:.2g}: use a smaller "
            "delta, or secagg-fedlinucb"
        )
    logs = (
        math.log(1 / d)
        * math.log(problem.depth / (d * problem.horizon))
        * math.log(silos * problem.depth / d)
    )
    variance = 2 * problem.depth * logs / (e**2 * silos)
    protocol = problem.tree(math.sqrt(variance), "shuffle", "gaussian")
    return Mechanism(
        protocol,
        *_best_argument(problem, protocol),
        sigma=math.sqrt(silos * problem.depth * variance),
    )


def sdp_fedlinucb_vec(problem: Problem) -> Mechanism:
    """Bits of binomial noise behind a shuffler, node by node (Theorem 5.5, Algorithms 5 to 7).

    `paper` takes the variance of the theorem's proof, κ ln(1/δ) ln²(d²κ/δ) / ε², constant 1: with
    the constants of Appendix F.2 (24·10⁴) its noise would exceed that of silo-level privacy and
    Figure 2(b) could not be as it is.
    """
    e, d = problem.epsilon, problem.delta
    if problem.setting == "tight":
        return _tight(problem, "tree", "shuffle", "binomial")
    limit = 60 * math.sqrt(2 * problem.depth * math.log(2 / d))
    if e > limit:
        raise TacitError(
            f"epsilon is {e:g}; ZC24 Theorem 5.5 holds up to {limit:.3g}: use the tight setting, "
            "or secagg-fedlinucb"
        )
    sigma = (
        math.sqrt(problem.depth * math.log(1 / d))
        * math.log(problem.dimension**2 * problem.depth / d)
        / e
    )
    scale = (
        1 << max(0, min(6, math.floor(math.log2(BIT_WIDTH / sigma)))) if sigma < BIT_WIDTH else 1
    )
    protocol = problem.tree(sigma, "shuffle", "binomial", scale)
    return Mechanism(
        protocol, problem.guarantee_of(protocol), EXACT, math.sqrt(problem.depth) * sigma
    )


def secagg_fedlinucb(problem: Problem) -> Mechanism:
    """Discrete Gaussian (or Skellam) shares; only their sum over silos is opened. Ours; there is no
    printed form.

    Shares are made for all silos but one, so the guarantee also holds against a curious silo that
    takes its own share off.
    """
    return _tight(problem, "square-root", "secagg", problem.noise)


def _tight(
    problem: Problem,
    kind: Literal["tree", "square-root"],
    trust: Literal["silo", "secagg", "shuffle"],
    noise: Literal["gaussian", "discrete-gaussian", "skellam", "binomial"],
) -> Mechanism:
    shape = factorize(kind, problem.steps)
    curious = 1 if trust != "silo" and problem.silos > 1 else 0
    protocol = calibrated(
        shape,
        problem.silos,
        problem.size,
        problem.sensitivity,
        trust,
        noise,
        problem.target,
        people=problem.sync,
        corrupt=curious,
        batches=problem.visits,
        times=problem.visits_per_batch,
    )
    return Mechanism(protocol, problem.guarantee_of(protocol), EXACT)


def amplified(
    epsilon0: float, delta0: float, silos: int, points: int, delta: float
) -> ApproximateDP | None:
    """Lemma F.2 for one node: (ε, δ) of the shuffled messages of silos that each hold `points`
    people and are (ε₀, δ₀)-DP.

    None where the lemma says nothing. Its proof prints (ε - 1)/(ε + 1) for (e^ε - 1)/(e^ε + 1)
    (CORRECTIONS 6).
    """
    group = points * epsilon0
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


def _amplified_guarantee(problem: Problem, sigma: float) -> ApproximateDP | None:
    """Lemma F.2 at every node and advanced composition over the nodes of one person, δ split
    evenly.
    """
    level = problem.delta / (2 * problem.depth)
    delta0 = level / (8 * problem.silos)
    epsilon0 = GaussianLoss(sigma, problem.sensitivity).epsilon(delta0)
    if epsilon0 == 0:
        return None
    node = amplified(
        epsilon0,
        delta0,
        problem.silos,
        problem.horizon,
        min(1.0, level / (2 * math.tanh(epsilon0 / 2))),
    )
    if node is None or node.epsilon <= 0 or node.delta > level:
        return None
    return advanced_composition(node, problem.depth, problem.delta / 2)


def _amplified_sigma(problem: Problem, enough: float) -> float:
    """The least noise that amplification is known to need; infinite where it needs more than
    `enough`.
    """

    def holds(sigma: float) -> bool:
        found = _amplified_guarantee(problem, sigma)
        return (
            found is not None and found.epsilon <= problem.epsilon and found.delta <= problem.delta
        )

    return least(holds, enough) if holds(enough) else math.inf


def _best_argument(problem: Problem, protocol: PrefixSums) -> tuple[ApproximateDP, str]:
    """What is proven about shuffled Gaussian nodes: each silo's own noise, accounted for exactly,
    or Lemma F.2, whichever says more.
    """
    alone = problem.guarantee_of(protocol).at(view=View.SHUFFLED)
    once = problem.visits * problem.visits_per_batch == 1
    shuffled = _amplified_guarantee(problem, protocol.sigma) if once else None
    if (
        shuffled is not None
        and shuffled.delta <= problem.delta
        and shuffled.epsilon < alone.epsilon
    ):
        return shuffled.at(
            view=View.SHUFFLED
        ), "amplification by shuffling (ZC24 Lemma F.2), advanced composition"
    return (
        alone,
        "each silo's own noise, accounted for exactly; amplification proves nothing more here",
    )

"""The noise of ZC24's algorithms: as printed, and by exact accounting.

`tight` is the default: one joint accounting of (xy, xxᵀ) with sensitivity √4.5, the square-root
factorization wherever real coefficients can be sent, exact (ε, δ). `paper` is for the figures: the
tree, the printed variances with every unspecified constant set to 1, L = 1 and ε halved between the
two streams. In both settings the guarantee is computed from the noise that is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from tacit.algorithms.silos_problem import SilosProblem
from tacit.assumptions import Derivation, DishonestAtMost, Scope
from tacit.bandits.contextual import moments
from tacit.errors import TacitError, require
from tacit.privacy import ApproximateDP
from tacit.privacy.guarantees import state_arithmetic
from tacit.privacy.search import least
from tacit.privacy.shuffling import amplified_nodes
from tacit.privacy.silos import weakest
from tacit.protocols.factorization import Kind, depth, factorize
from tacit.protocols.prefix_delivery import Noise, Presence
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixSums
from tacit.trust import TrustModel

# standard deviation of printed binomial noise in units; its distance from a Gaussian is summed term
# by term
BIT_WIDTH = 2e5
WEIGHT = 1.6  # of rewards less ½ relative to xxᵀ: about minimizes the error of both together
FINE = 1e-3  # largest relative increase of the sensitivity, or of δ, by the grid


@dataclass(frozen=True, eq=False)
class PrivateSums:
    """Prefix sums, the guarantee of all their releases, and its derivation.

    `sigma` is the printed bound on the noise of a prefix sum, for the printed regularizer.
    """

    sums: PrefixSums
    guarantee: ApproximateDP | None
    derivation: Derivation | None
    sigma: float | None = None

    @property
    def spreads(self) -> list[float]:
        """The standard deviation of the noise in each number of each release."""
        return [math.sqrt(variance) for variance in self.sums.variances]


def nodes(problem: SilosProblem) -> int:
    """κ: the number of tree nodes that contain one batch."""
    return depth(problem.steps)


def size(problem: SilosProblem) -> int:
    """Number of coordinates of a message."""
    return moments.size(problem.dimension)


def sensitivity(problem: SilosProblem) -> float:
    """Joint sensitivity, under replacement."""
    return moments.joint_sensitivity(problem.dimension)


def presence_of(problem: SilosProblem, *, eager: bool) -> Presence:
    """Participations of one participant; `eager` silos act on raw data within a batch."""
    if problem.privacy.participations > 1:
        return Presence(1, problem.privacy.participations, eager, anywhere=True)
    return Presence(problem.privacy.visits, problem.privacy.visits_per_batch, eager)


def guarantee_of(problem: SilosProblem, sums: PrefixSums) -> ApproximateDP:
    """The guarantee of prefix sums for the allowed visits; the target itself where it is met."""
    found = sums.guarantee(problem.privacy.delta)
    met = sums.loss().delta(problem.privacy.epsilon) <= problem.privacy.delta
    if not met:
        return found
    target = replace(found, epsilon=min(found.epsilon, problem.privacy.epsilon))
    return state_arithmetic(target, found.arithmetic)


def as_private_sums(
    problem: SilosProblem, sums: PrefixSums, derivation: Derivation, sigma: float | None = None
) -> PrivateSums:
    """Prefix sums as these silos use them, with the guarantee for a participant.

    ZC24 counts one recorded (x, y) whether or not silos are lazy. Where they are not, a participant
    may change more, and the stated guarantee covers that.
    """
    used = replace(sums, presence=presence_of(problem, eager=not problem.lazy))
    return PrivateSums(used, guarantee_of(problem, used), derivation, sigma)


def own_records(problem: SilosProblem, private: PrivateSums) -> ApproximateDP:
    """The guarantee that ZC24 states: as if a visit changed only its own record."""
    return guarantee_of(problem, replace(private.sums, presence=presence_of(problem, eager=False)))


def _tree(
    problem: SilosProblem, sigma: float, trust: TrustModel, noise: Noise, scale: int = 1
) -> PrefixSums:
    """The binary tree with this noise in every node."""
    shape = factorize("tree", problem.steps)
    about = (problem.silos, size(problem), sensitivity(problem), trust, noise, sigma, scale)
    return PrefixSums(shape, *about, problem.sync, presence=presence_of(problem, eager=False))


def _fine_enough(protocol: PrefixSums, target: ApproximateDP) -> PrefixSums:
    """The same noise on the coarsest grid on which rounding and discreteness are negligible."""
    while (
        protocol.rounding_overhead > FINE or protocol.excess(target.epsilon) > FINE * target.delta
    ):
        protocol = replace(protocol, scale=2 * protocol.scale)
    return protocol


EXACT = Derivation.EXACT_JOINT


def _by_budget(
    problem: SilosProblem, make: Callable[[SilosProblem], PrivateSums]
) -> dict[tuple[float, float], PrivateSums]:
    """The prefix sums of each budget, as if all silos had it."""
    return {
        pair: make(_with_common_budget(problem, pair))
        for pair in dict.fromkeys(problem.privacy.pairs)
    }


def _with_common_budget(problem: SilosProblem, budget: tuple[float, float]) -> SilosProblem:
    epsilon, delta = budget
    return problem.changed(budgets=None, epsilon=epsilon, delta=delta)


def own_noise(problem: SilosProblem, make: Callable[[SilosProblem], PrivateSums]) -> PrivateSums:
    """Give every silo noise by its own budget (ZC24 Definition 2.1), on the finest grid any needs.

    Each silo's guarantee is computed from its noise. With tight constants silos are weighted.
    """
    found = _by_budget(problem, make)
    scale = max(private.sums.scale for private in found.values())
    finer = {pair: replace(private.sums, scale=scale) for pair, private in found.items()}
    pairs = problem.privacy.pairs
    sigmas = tuple(finer[pair].sigma for pair in pairs)
    stated = {
        pair: guarantee_of(_with_common_budget(problem, pair), sums) for pair, sums in finer.items()
    }
    printed = None
    if problem.constants == "paper":
        printed = math.sqrt(sum((found[pair].sigma or 0.0) ** 2 for pair in pairs) / len(pairs))
    counted = weights(sigmas) if printed is None else ()
    one = next(iter(finer.values()))
    sums = replace(one, sigma=min(sigmas), sigmas=sigmas, weights=counted)
    guarantee = weakest([stated[pair] for pair in pairs])
    return PrivateSums(sums, guarantee, EXACT, printed)


def weights(sigmas: tuple[float, ...]) -> tuple[float, ...]:
    """The server's weight of each silo: 1/σ_i² over the largest; empty if all are equal.

    These weights maximize the signal of the sums relative to the standard deviation of their noise.
    A weight w in (0, 1] does not affect confidence, since w x η = (√w x)(√w η): features no longer
    than 1, rewards no noisier.

    >>> weights((1.0, 2.0)), weights((1.0, 1.0))
    ((1.0, 0.25), ())
    """
    if len(set(sigmas)) == 1:
        return ()
    return tuple((min(sigmas) / sigma) ** 2 for sigma in sigmas)


def common_noise(problem: SilosProblem, make: Callable[[SilosProblem], PrivateSums]) -> PrivateSums:
    """Use the noise of the strictest budget for all silos, since only one sum is released.

    Each silo's participants get at least the guarantee that their silo asked for.
    """
    strictest = max(_by_budget(problem, make).values(), key=lambda one: one.sums.sigma)
    pairs = problem.privacy.pairs
    each = {
        pair: guarantee_of(_with_common_budget(problem, pair), strictest.sums)
        for pair in dict.fromkeys(pairs)
    }
    guarantee = weakest([each[pair] for pair in pairs])
    return replace(strictest, guarantee=guarantee, derivation=Derivation.STRICTEST)


@lru_cache(maxsize=32)
def fedlinucb(problem: SilosProblem) -> PrivateSums:
    """No privacy: exact sums."""
    shape = factorize("tree", problem.steps)
    return PrivateSums(
        PrefixSums(shape, problem.silos, size(problem), sensitivity(problem)), None, None
    )


@lru_cache(maxsize=32)
def ldp_fedlinucb(problem: SilosProblem) -> PrivateSums:
    """Every silo adds its own noise (Theorem 5.1: σ₀² = 8κ (ln(2/δ) + ε) / ε²).

    It is discrete where the paper has real numbers, so that silos can draw it exactly. With
    `sent="prefix-sums"` a silo adds up its noisy nodes itself and sends prefix sums (Algorithm 4,
    P_alt): the noise is that of the tree, the guarantee that of its nodes.
    """
    if problem.privacy.budgets is not None:
        return own_noise(problem, ldp_fedlinucb)
    alternative = problem.sent == "prefix-sums"
    if problem.constants == "tight":
        kind: Kind = "prefix" if alternative else "square-root"
        return _tight(problem, kind, TrustModel.SILO, "discrete-gaussian")
    e, d = problem.privacy.epsilon, problem.privacy.delta
    variance = 8 * nodes(problem) * (math.log(2 / d) + e) / e**2
    tree = _tree(problem, math.sqrt(variance), TrustModel.SILO, "discrete-gaussian")
    if alternative:
        tree = replace(tree, shape=factorize("prefix", problem.steps))
    protocol = _fine_enough(tree, problem.privacy.target)
    printed = math.sqrt(problem.silos * nodes(problem) * variance)
    return as_private_sums(problem, protocol, EXACT, printed)


@lru_cache(maxsize=32)
def sdp_fedlinucb(problem: SilosProblem) -> PrivateSums:
    """Gaussian nodes behind a shuffler (Theorem 5.3), where that theorem holds (CORRECTIONS 12)."""
    e, d, silos = problem.privacy.epsilon, problem.privacy.delta, problem.silos
    if problem.constants == "tight":
        limit = math.sqrt(nodes(problem)) / (problem.horizon * math.sqrt(silos))
        rule = (
            f"at most √κ/(T√M) = {limit:.2g} for amplification by shuffling silos (ZC24 Theorem "
            "5.3, with constant 1). Use secagg-fedlinucb or sdp-fedlinucb-vec, which hold at every "
            "epsilon"
        )
        require(e <= limit, "epsilon", f"{e:g}", rule)
        if problem.privacy.visits_repeatedly:
            raise TacitError(
                "participations is more than 1; amplification covers one participation: use "
                "secagg-fedlinucb"
            )
        alone = calibrated(
            _stream(problem, "tree"), TrustModel.SILO, "gaussian", problem.privacy.target
        )
        sigma = min(alone.sigma, _amplified_sigma(problem, alone.sigma))
        return _shuffled(problem, _tree(problem, sigma, TrustModel.SHUFFLER, "gaussian"))
    below = nodes(problem) / problem.horizon
    remedy = "for the noise of ZC24 Theorem 5.3. Use a smaller delta, or secagg-fedlinucb"
    require(d < below, "delta", f"{d:g}", f"below κ/T = {below:.2g} {remedy}")
    logs = (
        math.log(1 / d)
        * math.log(nodes(problem) / (d * problem.horizon))
        * math.log(silos * nodes(problem) / d)
    )
    variance = 2 * nodes(problem) * logs / (e**2 * silos)
    protocol = _tree(problem, math.sqrt(variance), TrustModel.SHUFFLER, "gaussian")
    return _shuffled(problem, protocol, math.sqrt(silos * nodes(problem) * variance))


@lru_cache(maxsize=32)
def sdp_fedlinucb_vec(problem: SilosProblem) -> PrivateSums:
    """Bits of binomial noise behind a shuffler, node by node (Theorem 5.5, Algorithms 5 to 7).

    `paper` takes the variance of the theorem's proof, κ ln(1/δ) ln²(d²κ/δ) / ε², constant 1: with
    the constants of Appendix F.2 (24·10⁴) its noise exceeds that of silo-level privacy and Figure
    2(b) could not be as it is; `bits="printed"` has those. The true guarantee is computed from the
    noise that remains when a curious silo subtracts its own bits.
    """
    e, d = problem.privacy.epsilon, problem.privacy.delta
    if problem.constants == "tight":
        if problem.bits == "printed":
            raise TacitError("bits is printed, but constants is tight: use --constants paper")
        return _tight(problem, "tree", TrustModel.SHUFFLER, "binomial")
    limit = 60 * math.sqrt(2 * nodes(problem) * math.log(2 / d))
    remedy = "for ZC24 Theorem 5.5. Use tight constants, or secagg-fedlinucb"
    require(e <= limit, "epsilon", f"{e:g}", f"at most {limit:.3g} {remedy}")
    if problem.bits == "printed":
        return _printed_bits(problem)
    sigma = (
        math.sqrt(nodes(problem) * math.log(1 / d))
        * math.log(problem.dimension**2 * nodes(problem) / d)
        / e
    )
    scale = 1 << max(0, min(6, math.floor(math.log2(BIT_WIDTH / sigma))))
    return _bits_of_others(problem, sigma, "binomial", scale)


def _bits_of_others(problem: SilosProblem, sigma: float, noise: Noise, scale: int) -> PrivateSums:
    """The tree with bits of all silos, whose guarantee counts those unknown to a curious silo."""
    unknown = _unknown(problem)
    others = sigma * math.sqrt(unknown / problem.silos)
    sums = _tree(problem, others, TrustModel.SHUFFLER, noise, scale)
    protocol = replace(sums, corrupt=problem.silos - unknown)
    return as_private_sums(problem, protocol, EXACT, math.sqrt(nodes(problem)) * sigma)


def printed_bits(problem: SilosProblem) -> tuple[int, int]:
    """Levels g and noise bits b of a data point in the smallest node, as printed in ZC24 App. F.2.

    With n data points g = max{2√n, d, 4} and b = 24·10⁴ g² ln²(4(d² + 1)/δ) / (ε²n).

    >>> printed_bits(SilosProblem.of(epsilon=0.2, delta=0.1))
    (100, 1654953973)
    """
    points, d = problem.silos * problem.sync, problem.dimension
    levels = math.ceil(max(2 * math.sqrt(points), d, 4))
    logs = math.log(4 * (d**2 + 1) / problem.privacy.delta)
    needed = 24e4 * levels**2 * logs**2 / (problem.privacy.epsilon**2 * points)
    return levels, math.ceil(needed)


def _printed_bits(problem: SilosProblem) -> PrivateSums:
    """Every data point of a node adds g levels and b bits of bias ¼ (Algorithm 5, line 6).

    A node of more points has as many bits in total, as printed; its levels stay those of the
    smallest node, where printed ones grow with √n, which the noise hides. A silo rounds the sum of
    its points.
    """
    levels, bits = printed_bits(problem)
    sigma = math.sqrt(bits * problem.silos * problem.sync * 3 / 16) / levels
    return _bits_of_others(problem, sigma, "quarter-bits", levels)


@lru_cache(maxsize=32)
def secagg_fedlinucb(problem: SilosProblem) -> PrivateSums:
    """Discrete Gaussian (or Skellam) shares; only their sum over silos is released.

    Ours: there is no printed form, so `paper` constants are rejected. Shares are made for all
    silos but one, so the guarantee also holds against a curious silo that subtracts its own share.
    """
    if problem.privacy.budgets is not None:
        return common_noise(problem, secagg_fedlinucb)
    if problem.constants == "paper":
        raise TacitError(
            "constants is paper; secagg-fedlinucb is not in the paper: use tight constants, or "
            "ldp-fedlinucb"
        )
    if problem.lazy:
        return centred(problem, TrustModel.SECURE_AGGREGATION, problem.privacy.noise)
    if problem.schedule == "geometric" or problem.mode != "rigorous":
        raise TacitError(
            "schedule and mode are for lazy silos; others synchronise every sync rounds: use "
            "--lazy, or leave schedule and mode out"
        )
    if problem.privacy.missing:
        raise TacitError(
            f"missing is {problem.privacy.missing}; silos that are not lazy must all report: use "
            "--lazy, or leave missing out"
        )
    return _tight(problem, "square-root", TrustModel.SECURE_AGGREGATION, problem.privacy.noise)


@lru_cache(maxsize=32)
def jdp_linucb(problem: SilosProblem) -> PrivateSums:
    """Central model: one trusted server sees every record and publishes noisy policies.

    This is the super-agent under joint DP (Shariff & Sheffet 2018) that ZC24 compares with. Its
    matrices are regularized by a shift beyond the noise's largest eigenvalue, their shifted
    Gaussian.
    """
    if problem.privacy.budgets is not None:
        return common_noise(problem, jdp_linucb)
    return centred(problem, TrustModel.CENTRAL, problem.privacy.noise)


def centred(problem: SilosProblem, trust: TrustModel, noise: Noise) -> PrivateSums:
    """Prefix sums of weighted rewards less ½ and of xxᵀ, for lazy silos on their schedule.

    The factorization minimizes the sum of all releases' variances, each divided by the rounds it
    contains. With a trusted server there are no shares, hence no curious silo. Where silos may be
    missing from a synchronisation, it is the tree, whose rows have independent noise.
    """
    batches = problem.batches
    importance = tuple(1 / rounds for rounds in accumulate(batches))
    missing = problem.privacy.missing
    shape = (
        factorize("tree", len(batches))
        if missing
        else factorize("optimal", len(batches), importance)
    )
    numbers = moments.size(problem.dimension + (problem.constant is None))
    moved = moments.centred_sensitivity(WEIGHT)
    stream = SiloStream(shape, problem.silos, numbers, moved, people=max(batches))
    return _calibrated(problem, stream, trust, noise)


def _stream(problem: SilosProblem, kind: Kind) -> SiloStream:
    """The sums of every `sync` rounds."""
    shape = factorize(kind, problem.steps)
    numbers = (problem.silos, size(problem), sensitivity(problem))
    return SiloStream(shape, *numbers, people=problem.sync)


def _tight(problem: SilosProblem, kind: Kind, trust: TrustModel, noise: Noise) -> PrivateSums:
    return _calibrated(problem, _stream(problem, kind), trust, noise)


def _calibrated(
    problem: SilosProblem, stream: SiloStream, trust: TrustModel, noise: Noise
) -> PrivateSums:
    """Exactly calibrated prefix sums; where silos share the noise, one of them may be curious."""
    protocol = calibrated(
        stream,
        trust,
        noise,
        problem.privacy.target,
        corrupt=int(trust.shares_noise and problem.silos > 1),
        presence=presence_of(problem, eager=False),
        missing=problem.privacy.missing,
    )
    return as_private_sums(problem, protocol, EXACT)


def _amplified_guarantee(
    problem: SilosProblem, sigma: float, records: int = 1
) -> ApproximateDP | None:
    """Lemma F.2 for a participant who changes `records` records of one silo and batch.

    One silo may be curious and knows its own message: the others' messages hide the participant.
    """
    moved, group = (count * sensitivity(problem) for count in (records, problem.horizon))
    return amplified_nodes(
        sigma, moved, group, _unknown(problem), nodes(problem), problem.privacy.delta
    )


def _unknown(problem: SilosProblem) -> int:
    """Number of silos whose messages are unknown to the adversary."""
    return max(1, problem.silos - 1)


def _amplified_sigma(problem: SilosProblem, limit: float) -> float:
    """The least noise that amplification needs; inf where it needs more than `limit`."""

    def holds(sigma: float) -> bool:
        found = _amplified_guarantee(problem, sigma)
        return found is not None and found.epsilon <= problem.privacy.epsilon

    return least(holds, limit) if holds(limit) else math.inf


def _shuffled(
    problem: SilosProblem, protocol: PrefixSums, sigma: float | None = None
) -> PrivateSums:
    """The guarantee of shuffled Gaussian nodes: exact for each silo's own noise, or by Lemma F.2.

    The smaller ε is stated.
    """
    alone = as_private_sums(problem, protocol, Derivation.OWN_NOISE, sigma)
    assert alone.guarantee is not None
    records = 1 if problem.lazy else problem.sync
    shuffled = (
        None
        if problem.privacy.visits_repeatedly
        else _amplified_guarantee(problem, protocol.sigma, records)
    )
    if shuffled is None or shuffled.epsilon >= alone.guarantee.epsilon:
        return alone
    numbers = replace(alone.guarantee, epsilon=shuffled.epsilon, delta=shuffled.delta)
    curious = DishonestAtMost(Scope.SILOS, problem.silos - _unknown(problem))
    said = state_arithmetic(numbers, alone.guarantee.arithmetic).assuming(curious)
    return replace(alone, guarantee=said, derivation=Derivation.AMPLIFIED)

"""Cached factories of protocols for batches of any size, by noise and trust model.

Each function returns the protocol of a batch of n users; the named algorithms are composed from
them. `paper` variants copy the printed precision and modulus, `tight` variants choose the cheapest
at the same guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypedDict, Unpack

from tacit.errors import TacitError
from tacit.names import resolve_name
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
from tacit.privacy import (
    ApproximateDP,
    PureDP,
    Target,
    ThreatModel,
    achieved_guarantee,
    best_order,
    calibrate,
)
from tacit.protocols import vectors
from tacit.protocols.continuous import CentralLaplace, Exact
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.integer_vectors import SecureVector, ShuffledVector
from tacit.protocols.joint import JointSums, for_each
from tacit.protocols.l2_sums import BallSum, CentralBall, LocalBall, SecureBall, ShuffledBall
from tacit.protocols.mechanism import protocol_factory
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise, tkms21_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import (
    Central,
    Local,
    SecureSum,
    TwoServers,
    Verified,
    paper_modulus,
)
from tacit.protocols.vector_noise import gaussian_ratio
from tacit.protocols.vectors import SeparateSums, VectorProtocol
from tacit.trust import TrustModel

CACHE = 1 << 14
FEWEST = 2  # participants in a round, one of them curious
# levels for real rewards: with fewer, rounding exceeds the noise; more gain nothing beside the
# sampling error
COARSEST, FINEST = 16, 1024


def printed_precision(users: int, epsilon: float, scale: float = 1.0) -> int:
    """g = ⌈s ε √n⌉ (CZ23)."""
    return math.ceil(scale * epsilon * math.sqrt(users))


def tight_precision(users: int, epsilon: float, binary: bool) -> int:
    """One level for bits, which need no rounding; else the papers' ⌈ε √n⌉, clamped to 16..1,024.

    Rounding adds at most n/(4g²) to the variance of a sum: past 1,024 levels, less than 10^-6 of a
    coin's sampling variance.
    """
    return 1 if binary else min(FINEST, max(COARSEST, printed_precision(users, epsilon)))


def _codec(
    users: int, epsilon: float, binary: bool, failure_probability: float | None
) -> tuple[int, int | None]:
    """Precision and modulus: the printed ones with a failure probability, else the cheapest."""
    if failure_probability is None:
        return tight_precision(users, epsilon, binary), None
    g = printed_precision(users, epsilon)
    return g, paper_modulus(users, g, g / epsilon * math.log(2 / failure_probability))


class Sharing(TypedDict, total=False):
    """How participants share the noise of a batch: the fractions who may drop out or be corrupted,
    and the levels of a report, where terms fix them.
    """

    dropout: float
    corrupt: float
    levels: int | None


def _shared(users: int, epsilon: float, binary: bool, sharing: Sharing) -> tuple[int, ThreatModel]:
    """Levels (by default `tight_precision`) and threat model, from keyword arguments."""
    threat = ThreatModel(sharing.get("dropout", 0), sharing.get("corrupt", 0))
    return sharing.get("levels") or tight_precision(users, epsilon, binary), threat


def _laplace(precision: int, target: PureDP) -> DiscreteLaplace:
    """The noise for g levels: scale g · participations / ε."""
    return DiscreteLaplace(precision * target.participations / Fraction(target.epsilon))


def _shared_by_all(
    users: int,
    precision: int,
    distribution: NoiseDistribution,
    target: Target,
    modulus: int,
    order: float | None = None,
) -> SumProtocol:
    """Shares among all users, as printed, with the guarantee they truly provide against one curious
    participant.
    """
    left, apart = _noise_without_curious(users, distribution)
    truth = achieved_guarantee(left, precision, target, apart, order)
    share = distribution.approximate_share(users)
    return SecureSum(
        users, precision, distribution, truth, share=share, modulus=modulus, order=order
    )


def _noise_without_curious(
    users: int, distribution: NoiseDistribution
) -> tuple[NoiseDistribution, float]:
    """The noise of all shares but that of one curious participant, and its distance from the true
    sum.
    """
    share, honest = distribution.approximate_share(users), ThreatModel().honest(users)
    return share.sum_of_shares(honest), share.closeness(honest)


Printed = Callable[[int, float, int], tuple[int, NoiseDistribution]]


@lru_cache(maxsize=CACHE)
def _order(noise: Printed, fewest: int, target: ApproximateDP, scale: int) -> float | None:
    """The common Rényi order of all rounds: the best one for the smallest round, which has the
    least noise.
    """
    if target.participations == 1:
        return None
    precision, distribution = noise(fewest, target.epsilon, scale)
    left, apart = _noise_without_curious(fewest, distribution)
    return best_order(left, precision, target, apart)


@lru_cache(maxsize=CACHE)
def polya_paper(users: int, target: PureDP, failure_probability: float) -> SumProtocol:
    """CZ23 Theorem 1 as in its figures: τ = ⌈(g/ε) ln(2/p)⌉."""
    g = printed_precision(users, target.epsilon)
    modulus = paper_modulus(users, g, g / target.epsilon * math.log(2 / failure_probability))
    return _shared_by_all(users, g, _laplace(g, target), target, modulus)


@lru_cache(maxsize=CACHE)
def polya_tight(
    users: int, target: PureDP, binary: bool, **sharing: Unpack[Sharing]
) -> SumProtocol:
    """Secure aggregation of Pólya shares."""
    g, threat = _shared(users, target.epsilon, binary, sharing)
    return SecureSum(users, g, _laplace(g, target), target, threat=threat)


@lru_cache(maxsize=CACHE)
def central_laplace(
    users: int, target: PureDP, binary: bool, failure_probability: float | None
) -> SumProtocol:
    """CZ23 Theorem 5; with a failure probability, at the printed precision and modulus."""
    g, modulus = _codec(users, target.epsilon, binary, failure_probability)
    return Central(users, g, _laplace(g, target), target, modulus)


@lru_cache(maxsize=CACHE)
def two_servers_laplace(
    users: int, target: PureDP, binary: bool, levels: int | None = None
) -> SumProtocol:
    """Two servers, one of which must be honest, each with discrete Laplace noise.

    `levels`, if given, applies to every round, as stated in the terms.
    """
    g = levels or tight_precision(users, target.epsilon, binary)
    return TwoServers(users, g, target)


@lru_cache(maxsize=CACHE)
def verified_laplace(
    users: int, target: PureDP, binary: bool, levels: int | None = None
) -> SumProtocol:
    """As `two_servers_laplace`, with range proofs: the servers drop out-of-range reports."""
    return Verified(users, levels or tight_precision(users, target.epsilon, binary), target)


@lru_cache(maxsize=CACHE)
def local_laplace(
    users: int, target: PureDP, paper: bool, levels: int | None = None
) -> SumProtocol:
    """CZ23 Theorem 6. The precision only has to keep rounding below each user's noise."""
    g = levels or (printed_precision(users, target.epsilon) if paper else COARSEST)
    distribution = _laplace(g, target)
    tau = (12 * math.sqrt(2 * users) + 40) * float(distribution.scale)
    return Local(users, g, distribution, target, paper_modulus(users, g, tau))


@lru_cache(maxsize=CACHE)
def response(users: int, target: PureDP) -> SumProtocol:
    """Randomized response on bits."""
    return RandomizedBits(users, target)


def _printed_skellam(users: int, epsilon: float, scale: int) -> tuple[int, NoiseDistribution]:
    """CZ23 Theorem 2: levels, and noise of variance g²/ε²."""
    g = printed_precision(users, epsilon, scale)
    return g, Skellam(Fraction(g * g) / Fraction(epsilon) ** 2)


@lru_cache(maxsize=CACHE)
def skellam_paper(
    users: int, target: ApproximateDP, scale: int, failure_probability: float, fewest: int = FEWEST
) -> SumProtocol:
    """CZ23 Theorem 2 as in its figures: variance g²/ε², τ = ⌈(2g/ε)√ln(2/p) + √2 ln(2/p)⌉.

    The printed ε is a Rényi scale; the guarantee states what the noise provides at the target's δ.
    """
    epsilon, log = target.epsilon, math.log(2 / failure_probability)
    g, distribution = _printed_skellam(users, epsilon, scale)
    modulus = paper_modulus(users, g, 2 * g / epsilon * math.sqrt(log) + math.sqrt(2) * log)
    order = _order(_printed_skellam, fewest, target, scale)
    return _shared_by_all(users, g, distribution, target, modulus, order)


@lru_cache(maxsize=CACHE)
def skellam_tight(
    users: int, target: ApproximateDP, binary: bool, **sharing: Unpack[Sharing]
) -> SumProtocol:
    """The least Skellam noise for (ε, δ), by exact accounting."""
    g, threat = _shared(users, target.epsilon, binary, sharing)
    return SecureSum(users, g, _skellam_distribution(g, target), target, threat=threat)


@lru_cache(maxsize=512)
def _skellam_distribution(precision: int, target: ApproximateDP) -> NoiseDistribution:
    return calibrate("skellam", precision, target).integer_distribution


def _printed_gaussian(users: int, epsilon: float, scale: int) -> tuple[int, NoiseDistribution]:
    """CZ23 Theorem 4: levels, and noise of standard deviation g/ε."""
    g = printed_precision(users, epsilon, scale)
    return g, DiscreteGaussian(g / epsilon)


@lru_cache(maxsize=CACHE)
def gaussian_paper(
    users: int, target: ApproximateDP, scale: int, failure_probability: float, fewest: int = FEWEST
) -> SumProtocol:
    """CZ23 Theorem 4 as in its figures: shares N_Z(0, g²/(nε²)), τ = ⌈(g/ε)√(2 ln(2/p))⌉.

    The distance of a sum of shares from one draw grows with the batch (CORRECTIONS 11). At s = 1
    and 10^9 users the guarantee is nearly vacuous; from s = 2 on the distance is negligible.
    """
    g, distribution = _printed_gaussian(users, target.epsilon, scale)
    tail = g / target.epsilon * math.sqrt(2 * math.log(2 / failure_probability))
    order = _order(_printed_gaussian, fewest, target, scale)
    return _shared_by_all(users, g, distribution, target, paper_modulus(users, g, tail), order)


@lru_cache(maxsize=CACHE)
def gaussian_tight(
    users: int, target: ApproximateDP, binary: bool, **sharing: Unpack[Sharing]
) -> SumProtocol:
    """Discrete Gaussian shares; their sum is accounted for exactly (Kairouz, Liu & Steinke
    2021).
    """
    g, threat = _shared(users, target.epsilon, binary, sharing)
    if not sharing.get("levels"):
        g = max(g, printed_precision(users, target.epsilon, 2))
    found = calibrate("discrete-gaussian", g, target, users=threat.honest(users))
    return SecureSum(users, g, found.integer_distribution, target, threat=threat)


@lru_cache(maxsize=CACHE)
def split_and_mix(
    users: int,
    target: PureDP,
    binary: bool,
    failure_probability: float | None,
    **sharing: Unpack[Sharing],
) -> SumProtocol:
    """Pólya shares for a shuffler; printed precision and modulus with a failure probability."""
    printed, modulus = _codec(users, target.epsilon, binary, failure_probability)
    g, threat = sharing.get("levels") or printed, _shared(users, target.epsilon, binary, sharing)[1]
    return SplitAndMix(
        SecureSum(users, g, _laplace(g, target), target, threat=threat, modulus=modulus)
    )


@lru_cache(maxsize=CACHE)
def shuffled_tight(
    users: int, target: ApproximateDP, binary: bool, **sharing: Unpack[Sharing]
) -> SumProtocol:
    """Shuffled bits with the least noise for (ε, δ)."""
    g, threat = _shared(users, target.epsilon, binary, sharing)
    bits, bias = shuffle_noise(threat.honest(users), g, target, exact=False)
    return ShuffledBits(users, g, bits, bias, target, threat=threat)


@lru_cache(maxsize=CACHE)
def shuffled_paper(users: int, target: ApproximateDP, fewest: int = FEWEST) -> SumProtocol:
    """TKMS21 Algorithm 3: one level, the printed number of bits, and the guarantee they truly
    provide.
    """
    bits, bias = tkms21_noise(users, target)
    order = None if target.participations == 1 else _shuffled_order(fewest, target)
    truth = achieved_guarantee(_others_bits(users, target), 1, target, order=order)
    return ShuffledBits(users, 1, bits, bias, truth, order=order)


def _others_bits(users: int, target: ApproximateDP) -> Binomial:
    """The noise of all users but one curious participant."""
    bits, bias = tkms21_noise(users, target)
    return Binomial(bits * ThreatModel().honest(users), bias)


@lru_cache(maxsize=CACHE)
def _shuffled_order(fewest: int, target: ApproximateDP) -> float:
    return best_order(_others_bits(fewest, target), 1, target)


@lru_cache(maxsize=CACHE)
def continuous_laplace(users: int, target: PureDP) -> SumProtocol:
    """A trusted server with continuous Laplace noise."""
    return CentralLaplace(users, target)


@lru_cache(maxsize=CACHE)
def exact(users: int, binary: bool) -> SumProtocol:
    """No privacy."""
    return Exact(users, 1) if binary else Exact(users)


@lru_cache(maxsize=CACHE)
def pure_shuffle(users: int, target: PureDP, **sharing: Unpack[Sharing]) -> SumProtocol:
    """Bits with a shuffler, in complete certified groups.

    A batch that tolerates losses, or has the `levels` that terms state, is one group.
    """
    levels, threat = sharing.get("levels"), _shared(users, target.epsilon, True, sharing)[1]
    if levels not in (None, 1):
        raise TacitError(f"levels is {levels}; certificates are for bits: use 1, or split-dp-se")
    grouped = levels is None and threat == ThreatModel()
    times = target.participations
    return PureShuffle(
        users, target.epsilon, participations=times, threat=None if grouped else threat
    )


@lru_cache(maxsize=CACHE)
def joint(users: int, metrics: int, each: str, target: Target, **arguments: Any) -> JointSums:
    """Several metrics of the same participants under one guarantee.

    `each` names the factory of one metric's sum (see `tacit.names`); `arguments` are its further
    arguments.
    """
    make = protocol_factory(resolve_name(each, Callable))  # type: ignore[arg-type]
    try:
        part = make(users, target=for_each(target, metrics), **arguments)
    except TacitError as error:
        raise TacitError(f"{error} (epsilon is shared among {metrics} metrics)") from error
    if not isinstance(part, SumProtocol):
        raise TacitError(f"{each} makes no SumProtocol: name the factory of a sum of one number")
    return JointSums(part, metrics)


ROUNDING = 0.03  # relative increase of the variance that rounding may cause
PRINTED = "printed"  # noise as in the paper, for phases of linear bandits
ENDS = 16  # levels where rewards are ±B: no rounding, and noise finer than a bit is possible


def vector_of(
    participants: int,
    coordinates: int,
    radius: float | None = None,
    *,
    trust: str,
    bound: float,
    target: PureDP | ApproximateDP,
    noise: str,
    client_std: float,
) -> Protocol:
    """The protocol of a phase of DP-DPE, by trust model; with a radius, for parameter vectors in a
    ball.

    `noise` is `PRINTED` for the paper's, or the kind of noise under secure aggregation.
    The number of levels keeps the rounding variance at a few percent of that of a client's report,
    sampling and privacy noise included.
    """
    if radius is not None:
        return _ball((participants, coordinates, radius), trust, target, noise)
    pure = isinstance(target, PureDP)
    privacy = 1.0 if pure else 4 * gaussian_ratio(target) ** 2 * coordinates / participants
    levels = math.ceil(math.sqrt(1 / (ROUNDING * (privacy + (client_std / bound) ** 2))))
    size = (participants, coordinates, bound)
    return _vector(size, levels, trust, target, noise)


def _ball(size: tuple[int, int, float], trust: str, target: Target, noise: str) -> BallSum:
    match trust:
        case TrustModel.CENTRAL:
            return CentralBall(*size, target)
        case TrustModel.LOCAL:
            return LocalBall(*size, target)
        case TrustModel.SHUFFLER:
            return ShuffledBall(*size, target)
    return SecureBall(*size, target, noise_kind=noise)


def sums_of(
    plays: tuple[int, ...],
    trust: str,
    bound: float,
    target: PureDP | ApproximateDP,
    noise: str,
    client_std: float,  # noqa: ARG001
) -> SeparateSums:
    """The protocol of a phase of DP-PE: one sum per action, over the clients who played it."""
    how = (trust, target, noise)
    return SeparateSums([_vector((count, 1, bound), ENDS, *how) for count in plays])


def _vector(
    size: tuple[int, int, float],
    levels: int,
    trust: str,
    target: PureDP | ApproximateDP,
    noise: str,
) -> VectorProtocol:
    match trust:
        case TrustModel.NONE:
            return vectors.Plain(*size)
        case TrustModel.CENTRAL:
            return vectors.CentralVectors(*size, target, paper=noise == PRINTED)
        case TrustModel.LOCAL:
            return vectors.LocalVectors(*size, target, paper=noise == PRINTED)
        case TrustModel.SHUFFLER:
            return ShuffledVector(*size, target, precision=levels, paper=noise == PRINTED)
    return SecureVector(*size, target, precision=4 * levels, noise_kind=noise)

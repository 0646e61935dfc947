"""Protocols for batches of any size, by name of the noise: what the named algorithms are composed
from.

Each function returns the protocol of a batch of n users and remembers it, because a run asks for
the same sizes again and again. `paper` settings copy the printed precision and modulus, `tight`
ones choose what costs least at the same guarantee.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from tacit.noise import DiscreteGaussian, DiscreteLaplace, Skellam, sum_divergence
from tacit.privacy import (
    ApproximateDP,
    ConcentratedDP,
    Guarantee,
    PureDP,
    RenyiDP,
    View,
    calibrate,
    guaranteed_reports,
    skellam_renyi,
)
from tacit.protocols import vectors
from tacit.protocols.continuous import CentralLaplace, Exact
from tacit.protocols.contract import SumProtocol
from tacit.protocols.integer_vectors import SecureVector, ShuffledVector
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise, tkms21_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import Central, Local, SecureSum, TwoServers, paper_modulus
from tacit.protocols.vector_noise import gaussian_ratio
from tacit.protocols.vectors import SeparateSums, VectorProtocol

CACHE = 1 << 14
COARSEST, FINEST = (
    16,
    1024,
    # levels for real rewards: fewer would cost more than the noise, more would gain nothing over
    # sampling
)


def printed_precision(users: int, epsilon: float, scale: float = 1.0) -> int:
    """g = ⌈s ε √n⌉ (CZ23)."""
    return math.ceil(scale * epsilon * math.sqrt(users))


def tight_precision(users: int, epsilon: float, binary: bool) -> int:
    """One level for bits, which need no rounding; else the papers' ⌈ε √n⌉, but no fewer than 16 and
    no more than 1,024.

    Rounding adds at most n/(4g²) to the variance of a sum: past 1,024 levels less than a part in
    10^6 of what a coin's sampling does.
    """
    return 1 if binary else min(FINEST, max(COARSEST, printed_precision(users, epsilon)))


def _scale(precision: int, epsilon: float) -> Fraction:
    return precision / Fraction(epsilon)


def _codec(
    users: int, epsilon: float, binary: bool, confidence: float | None
) -> tuple[int, int | None]:
    """Precision and modulus: the printed ones with a confidence, else what costs least."""
    if confidence is None:
        return tight_precision(users, epsilon, binary), None
    g = printed_precision(users, epsilon)
    return g, paper_modulus(users, g, g / epsilon * math.log(2 / confidence))


@lru_cache(maxsize=CACHE)
def polya_paper(users: int, epsilon: float, confidence: float) -> SumProtocol:
    """CZ23 Theorem 1 as its figures run it: τ = ⌈(g/ε) ln(2/p)⌉."""
    g = printed_precision(users, epsilon)
    modulus = paper_modulus(users, g, g / epsilon * math.log(2 / confidence))
    return SecureSum(
        users, g, DiscreteLaplace(_scale(g, epsilon)), PureDP(epsilon), modulus=modulus
    )


@lru_cache(maxsize=CACHE)
def polya_tight(users: int, epsilon: float, binary: bool, dropout: float) -> SumProtocol:
    """Secure aggregation of Pólya shares."""
    g = tight_precision(users, epsilon, binary)
    return SecureSum(
        users, g, DiscreteLaplace(_scale(g, epsilon)), PureDP(epsilon), dropout=dropout
    )


@lru_cache(maxsize=CACHE)
def central_laplace(
    users: int, epsilon: float, binary: bool, confidence: float | None
) -> SumProtocol:
    """CZ23 Theorem 5; with a confidence, at the printed precision and modulus."""
    g, modulus = _codec(users, epsilon, binary, confidence)
    return Central(
        users,
        g,
        DiscreteLaplace(_scale(g, epsilon)),
        PureDP(epsilon, view=View.SERVER_OUTPUT),
        modulus=modulus,
    )


@lru_cache(maxsize=CACHE)
def two_servers_laplace(
    users: int, epsilon: float, binary: bool, participations: int = 1, metrics: int = 1
) -> SumProtocol:
    """Two servers, of which one must be honest, each with discrete Laplace noise of its own."""
    g = tight_precision(users, epsilon, binary)
    return TwoServers(users, g, epsilon, participations=participations, metrics=metrics)


@lru_cache(maxsize=CACHE)
def local_laplace(users: int, epsilon: float, binary: bool, paper: bool) -> SumProtocol:
    """CZ23 Theorem 6. The precision only has to keep rounding below each user's own noise."""
    g = printed_precision(users, epsilon) if paper else 1 if binary else COARSEST
    tau = 12 * math.sqrt(2 * users) * g / epsilon + 40 * g / epsilon
    return Local(
        users,
        g,
        DiscreteLaplace(_scale(g, epsilon)),
        PureDP(epsilon, view=View.MESSAGE),
        modulus=paper_modulus(users, g, tau),
    )


@lru_cache(maxsize=CACHE)
def skellam_paper(users: int, epsilon: float, scale: int, confidence: float) -> SumProtocol:
    """CZ23 Theorem 2 as its figures run it: variance g²/ε², τ = ⌈(2g/ε)√ln(2/p) + √2 ln(2/p)⌉."""
    g = printed_precision(users, epsilon, scale)
    log = math.log(2 / confidence)
    law = Skellam(Fraction(g * g) / Fraction(epsilon) ** 2)
    modulus = paper_modulus(users, g, 2 * g / epsilon * math.sqrt(log) + math.sqrt(2) * log)
    return SecureSum(users, g, law, skellam_promise(epsilon, g), modulus=modulus)


@lru_cache(maxsize=64)
def skellam_promise(epsilon: float, precision: int) -> RenyiDP:
    """The Rényi curve of Skellam noise of variance g²/ε² at sensitivity g; coarser batches are less
    private.
    """
    variance = precision**2 / epsilon**2
    return RenyiDP.of(
        lambda order: skellam_renyi(variance, precision, 1, int(order)), range(2, 257)
    )


@lru_cache(maxsize=CACHE)
def skellam_tight(users: int, target: ApproximateDP, binary: bool, dropout: float) -> SumProtocol:
    """The least Skellam noise for (ε, δ), exactly."""
    g = tight_precision(users, target.epsilon, binary)
    return SecureSum(users, g, _skellam_law(g, target), target, dropout=dropout)


@lru_cache(maxsize=512)
def _skellam_law(precision: int, target: ApproximateDP) -> Skellam:
    law = calibrate("skellam", precision, target).law
    return Skellam(float(law.variance))


@lru_cache(maxsize=CACHE)
def gaussian_paper(users: int, epsilon: float, scale: int, confidence: float) -> SumProtocol:
    """CZ23 Theorem 4 as its figures run it: shares N_Z(0, g²/(nε²)), τ = ⌈(g/ε)√(2 ln(2/p))⌉."""
    g = printed_precision(users, epsilon, scale)
    sigma = g / epsilon
    modulus = paper_modulus(users, g, sigma * math.sqrt(2 * math.log(2 / confidence)))
    return _gaussian_sum(users, g, sigma, gaussian_promise(users, epsilon, scale), modulus)


def gaussian_promise(users: int, epsilon: float, scale: int) -> ConcentratedDP:
    """½ε̂²-zCDP, ε̂ = min(√(ε² + ξ/2), ε + ξ), of batches of up to `users`: ξ bounds how far a sum
    of shares is from one draw.

    CZ23 Theorem 4. ξ grows with the batch (CORRECTIONS 11): at s = 1 and 10^9 users it promises
    next to nothing, from s = 2 on ξ is nil.
    """
    distance = sum_divergence(scale, users)  # shares are at least s wide
    return ConcentratedDP(min(epsilon**2 + distance / 2, (epsilon + distance) ** 2) / 2)


@lru_cache(maxsize=CACHE)
def gaussian_tight(users: int, target: ApproximateDP, binary: bool) -> SumProtocol:
    """Discrete Gaussian shares whose sum is accounted for exactly (Kairouz, Liu & Steinke 2021)."""
    g = max(
        tight_precision(users, target.epsilon, binary), printed_precision(users, target.epsilon, 2)
    )
    law = calibrate("discrete-gaussian", g, target, users=users).law
    return _gaussian_sum(users, g, law.std, target, None)


def _gaussian_sum(
    users: int, precision: int, sigma: float, guarantee: Guarantee, modulus: int | None
) -> SumProtocol:
    return SecureSum(
        users,
        precision,
        DiscreteGaussian(sigma),
        guarantee,
        share=DiscreteGaussian(sigma / math.sqrt(users)),
        modulus=modulus,
    )


@lru_cache(maxsize=CACHE)
def split_and_mix(
    users: int, epsilon: float, binary: bool, confidence: float | None
) -> SumProtocol:
    """Pólya shares split for a shuffler; with a confidence, at the printed precision and
    modulus.
    """
    g, modulus = _codec(users, epsilon, binary, confidence)
    return SplitAndMix(
        users, g, DiscreteLaplace(_scale(g, epsilon)), PureDP(epsilon), modulus=modulus
    )


@lru_cache(maxsize=CACHE)
def shuffled_tight(users: int, target: ApproximateDP, binary: bool, dropout: float) -> SumProtocol:
    """Shuffled bits with the least noise for (ε, δ)."""
    g = tight_precision(users, target.epsilon, binary)
    bits, bias = shuffle_noise(guaranteed_reports(users, dropout), g, target, exact=False)
    return ShuffledBits(
        users, g, bits, bias, guarantee=target.at(view=View.SHUFFLED), dropout=dropout
    )


@lru_cache(maxsize=CACHE)
def shuffled_paper(users: int, target: ApproximateDP) -> SumProtocol:
    """TKMS21 Algorithm 3: one level, the printed number of bits."""
    bits, bias = tkms21_noise(users, target)
    return ShuffledBits(users, 1, bits, bias, guarantee=target.at(view=View.SHUFFLED))


@lru_cache(maxsize=CACHE)
def continuous_laplace(users: int, epsilon: float) -> SumProtocol:
    """A trusted server with continuous Laplace noise."""
    return CentralLaplace(users, epsilon)


@lru_cache(maxsize=CACHE)
def exact(users: int, binary: bool) -> SumProtocol:
    """No privacy."""
    return Exact(users, 1) if binary else Exact(users)


@lru_cache(maxsize=CACHE)
def pure_shuffle(users: int, epsilon: float) -> SumProtocol:
    """Bits in certified groups behind a shuffler."""
    return PureShuffle(users, epsilon)


ROUNDING = 0.03  # variance that rounding to levels may add, as a part of what is there anyway
ENDS = (
    16  # levels where rewards are ±B: nothing is rounded, and less than a bit's noise can be added
)


def vector_of(
    participants: int,
    coordinates: int,
    trust: str,
    bound: float,
    target: PureDP | ApproximateDP,
    setting: str,
    noise: str,
    client_std: float,
) -> VectorProtocol:
    """The protocol of a phase of DP-DPE, by trust model.

    Levels are such that rounding adds a few percent to the variance of a client's report, sampling
    and privacy noise included.
    """
    pure = isinstance(target, PureDP)
    privacy = 1.0 if pure else 4 * gaussian_ratio(target) ** 2 * coordinates / participants
    levels = math.ceil(math.sqrt(1 / (ROUNDING * (privacy + (client_std / bound) ** 2))))
    size = (participants, coordinates, bound)
    return _vector(size, levels, trust, target, setting, noise)


def sums_of(
    plays: tuple[int, ...],
    trust: str,
    bound: float,
    target: PureDP | ApproximateDP,
    setting: str,
    noise: str,
    client_std: float,  # noqa: ARG001
) -> SeparateSums:
    """The protocol of a phase of DP-PE: one sum per action, of those who played it."""
    how = (trust, target, setting, noise)
    return SeparateSums([_vector((count, 1, bound), ENDS, *how) for count in plays])


def _vector(
    size: tuple[int, int, float],
    levels: int,
    trust: str,
    target: PureDP | ApproximateDP,
    setting: str,
    noise: str,
) -> VectorProtocol:
    match trust:
        case "none":
            return vectors.Plain(*size)
        case "central":
            return vectors.Central(*size, target, setting=setting)
        case "local":
            return vectors.Local(*size, target, setting=setting)
        case "shuffle":
            return ShuffledVector(*size, target, precision=levels, setting=setting)
    return SecureVector(*size, target, precision=4 * levels, noise_kind=noise)

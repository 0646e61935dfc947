"""Calibration of private prefix sums: the least noise that meets a target.

The search is by bisection; a result is checked against the target before it is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tacit.errors import positive
from tacit.privacy import ApproximateDP, GaussianLoss
from tacit.privacy.search import least
from tacit.protocols.factorization import Factorization
from tacit.protocols.prefix_delivery import ONCE, Noise, Presence
from tacit.protocols.prefix_sums import PrefixSums
from tacit.trust import TrustModel

# relative increase of the sensitivity by rounding, and the part of δ reserved for the distance from
# a Gaussian; larger for binomial noise, which is sent bit by bit
ROUNDING = {"discrete-gaussian": 1e-3, "skellam": 9e-3, "binomial": 5e-2}
RESERVE = {"discrete-gaussian": 5e-4, "skellam": 5e-3, "binomial": 5e-2}


@dataclass(frozen=True)
class SiloStream:
    """The sums to release: vectors of silos, summed over silos and steps.

    Parameters
    ----------
    shape
        The factorization of the steps' prefix sums.
    silos, size
        The number of silos, and of numbers in a vector.
    sensitivity
        The most that one record moves a step's vector, in l2 norm.
    people
        The number of records per silo and step.
    """

    shape: Factorization
    silos: int
    size: int
    sensitivity: float
    people: int = 1


def calibrated(
    stream: SiloStream,
    trust: TrustModel,
    noise: Noise,
    target: ApproximateDP,
    *,
    corrupt: int = 0,
    presence: Presence = ONCE,
    missing: int = 0,
) -> PrefixSums:
    """The protocol with the least noise for a target, checked against it.

    Integer noise uses the coarsest power of two at which rounding adds less than its `ROUNDING` to
    the sensitivity and the noise is close enough to a Gaussian. The target holds for the maximum
    participation that `presence` allows.
    """
    positive(
        "epsilon", target.epsilon, "a guarantee needs epsilon > 0; for no privacy use fedlinucb"
    )
    unit = _unit_sigma(target.epsilon, target.delta * (1 - RESERVE.get(noise, 0.0)))
    scale = 1 if noise == "gaussian" else 4
    draft = PrefixSums(
        **vars(stream),
        trust=trust,
        noise=noise,
        sigma=unit * stream.sensitivity,
        scale=scale,
        corrupt=corrupt,
        presence=presence,
        missing=missing,
    )
    if not draft.integral:
        return replace(draft, sigma=unit * draft.movement)
    while True:
        draft = replace(draft, scale=draft.scale * 2)
        if draft.rounding_overhead > ROUNDING[noise]:
            continue
        draft = replace(draft, sigma=unit * draft.movement)
        if _meets(draft, target):
            return _trimmed(draft, target)


def _unit_sigma(epsilon: float, delta: float) -> float:
    return least(lambda s: GaussianLoss(s, 1.0).delta(epsilon) <= delta, 1.0)


def _meets(protocol: PrefixSums, target: ApproximateDP) -> bool:
    spent = protocol.loss().delta(target.epsilon) + protocol.slack(target.epsilon)
    return spent <= target.delta


def _trimmed(protocol: PrefixSums, target: ApproximateDP) -> PrefixSums:
    """The protocol with the unused part of δ spent on less noise, if the target still holds."""
    spent = protocol.slack(target.epsilon) + protocol.excess(target.epsilon)
    unit = _unit_sigma(target.epsilon, target.delta - 1.2 * spent)
    sigma = unit * protocol.movement
    trimmed = replace(protocol, sigma=sigma)
    return trimmed if sigma < protocol.sigma and _meets(trimmed, target) else protocol

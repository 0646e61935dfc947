"""ZC24, differentially private federated linear contextual bandits: silos that learn together.

Zhou & Chowdhury, ICLR 2024. Six named algorithms differ only in how sums over silos are made
private. λ and β_t are those of Lemma C.4; `tight` constants takes λ from the spectral quantile of
the actual noise. `secagg-fedlinucb` is ours. `jdp-linucb` is the super-agent that the paper
compares with (Shariff & Sheffet 2018): it is trusted with every record and always lazy, as joint DP
covers what other participants are given. Figures are in `tacit.papers.figures.zc24`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.algorithms.lazy_imports import (
    centred,
    experiment,
    federated,
    mechanism,
    moments,
    privacy,
    zc24_noise,
)
from tacit.algorithms.registry import algorithm
from tacit.algorithms.silos_problem import SilosProblem
from tacit.assumptions import DerivedBy, OwnRecords, Remark
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.algorithms.zc24_noise import PrivateSums
    from tacit.bandits import Learner
    from tacit.experiment import Experiment
    from tacit.privacy import PrivacyStatus

WORLD = ("silos", "dimension", "actions", "sync", "horizon", "deviation", "data", "field")
OPEN = (*WORLD, "failure_probability", "lazy")
ALL = (*OPEN, "epsilon", "delta", "constants", "participations", "visits", "visits_per_batch")
OURS = (
    *(name for name in ALL if name != "constants"),
    *("noise", "mode", "schedule", "norm", "budgets"),
)
TRUSTED = tuple(name for name in OURS if name != "lazy")
SHARED = (*OURS, "missing")
CALIBRATED = (
    "its confidence is calibrated, not proved: it holds for one action at one synchronisation as "
    "often as it says, as far as that was measured; use --mode rigorous for a proof"
)


zc24 = partial(algorithm, problem=SilosProblem, paper="ZC24")
centring = partial(algorithm, problem=SilosProblem, cautions={"calibrated": CALIBRATED})


@zc24("fedlinucb", trust=TrustModel.NONE, guarantee="none", options=OPEN)
def fedlinucb(problem: SilosProblem) -> Experiment:
    """Exact sums over silos."""
    return compose(problem, zc24_noise.fedlinucb(problem))


@zc24(
    "ldp-fedlinucb",
    trust=TrustModel.SILO,
    guarantee="(ε, δ)-DP of all that a silo sends",
    options=(*ALL, "budgets", "sent"),
)
def ldp_fedlinucb(problem: SilosProblem) -> Experiment:
    """Noise of every silo on its own prefix sums (Theorem 5.1)."""
    return compose(problem, zc24_noise.ldp_fedlinucb(problem))


@zc24(
    "sdp-fedlinucb",
    trust=TrustModel.SHUFFLER,
    guarantee="(ε, δ)-DP of the shuffled messages, tiny ε only",
    options=ALL,
)
def sdp_fedlinucb(problem: SilosProblem) -> Experiment:
    """Silos' noise amplified by a shuffler."""
    return compose(problem, zc24_noise.sdp_fedlinucb(problem))


@zc24(
    "sdp-fedlinucb-vec",
    trust=TrustModel.SHUFFLER,
    guarantee="(ε, δ)-DP of the shuffled bits",
    options=(*ALL, "bits"),
)
def sdp_fedlinucb_vec(problem: SilosProblem) -> Experiment:
    """Vector sums through a shuffler (Theorem 5.5)."""
    return compose(problem, zc24_noise.sdp_fedlinucb_vec(problem))


@centring(
    "secagg-fedlinucb",
    paper="tacit",
    trust=TrustModel.SECURE_AGGREGATION,
    guarantee="(ε, δ)-DP of the released sums",
    options=SHARED,
)
def secagg_fedlinucb(problem: SilosProblem) -> Experiment:
    """Shares of noise under secure aggregation."""
    private = zc24_noise.secagg_fedlinucb(problem)
    return compose_centred(problem, private) if problem.lazy else compose(problem, private)


@centring(
    "jdp-linucb",
    paper="SS18",
    trust=TrustModel.CENTRAL,
    guarantee="joint (ε, δ)-DP of what the server publishes",
    options=TRUSTED,
)
def jdp_linucb(problem: SilosProblem) -> Experiment:
    """A trusted server's noise; always lazy."""
    return compose_centred(problem, zc24_noise.jdp_linucb(problem))


def compose(problem: SilosProblem, private: PrivateSums) -> Experiment:
    """LinUCB in every silo over these prefix sums; printed noise comes with the printed radius."""
    learner = federated.FederatedLinUCB(
        **_silos(problem),
        sync=problem.sync,
        regularizer=regularizer(private, problem),
        rules=federated.SiloRules(problem.lazy, clip=True, scaled=private.sigma is None),
        noise=private.spreads if private.sigma is None else None,
    )
    return _build_experiment(problem, private, learner)


def compose_centred(problem: SilosProblem, private: PrivateSums) -> Experiment:
    """Lazy silos over prefix sums of rewards less ½, with the selected confidence mode."""
    weighted = (zc24_noise.WEIGHT, problem.constant, problem.norm)
    learner = centred.PrivateLinUCB(
        **_silos(problem),
        schedule=problem.batches,
        noise=private.spreads,
        mode=problem.mode,
        rewards=centred.CentredRewards(*weighted, clip=True),
    )
    return _build_experiment(problem, private, learner)


def _silos(problem: SilosProblem) -> dict[str, Any]:
    """Arguments common to all learners of silos."""
    where = {"silos": problem.silos, "dimension": problem.dimension, "horizon": problem.horizon}
    return {**where, "failure_probability": problem.failure_probability}


def _build_experiment(problem: SilosProblem, private: PrivateSums, learner: Learner) -> Experiment:
    hidden = mechanism.Releases(private.sums, status(problem, private))
    return experiment.Experiment.of(learner, hidden)


def regularizer(private: PrivateSums, problem: SilosProblem) -> float:
    """The regularizer λ of the Gram matrices.

    λ is 1 without noise, the printed max{1, σ(√d + √ln(T/(Bα)))} with the printed noise, and
    otherwise 1 plus the noise's spectral quantile. The quantile is that of the largest eigenvalue
    of the noise in the last, noisiest released Gram matrix, at level 1 - α/3. λI plus the noise
    then exceeds I except with probability α/3; exceptions are repaired and counted.
    """
    if private.guarantee is None:
        return 1.0
    if private.sigma is not None:
        chance = problem.horizon / (problem.sync * problem.failure_probability)
        root = math.sqrt(problem.dimension) + math.sqrt(math.log(chance))
        return max(1.0, private.sigma * root)
    spread = math.sqrt(private.sums.variances.max())
    level = 1 - problem.failure_probability / 3
    return 1.0 + spread * moments.spectral_quantile(problem.dimension, level)


def status(problem: SilosProblem, private: PrivateSums) -> PrivacyStatus:
    """The guarantee of all releases, with its derivation.

    When actions react to raw data within a batch (not lazy), replacing a participant changes what
    later participants of the same silo and batch are given. Up to `sync` pairs (x, y) of every
    visited silo then change at once. ZC24 counts only a participant's own pairs. Both guarantees
    are stated, the participant's first.
    """
    if private.guarantee is None or private.derivation is None:
        return privacy.NonPrivate()
    remarks: list[Remark] = [DerivedBy(private.derivation, private.sums.shape.steps)]
    if not problem.lazy:
        own = zc24_noise.own_records(problem, private)
        remarks.append(OwnRecords(problem.sync, float(own.epsilon), float(own.delta)))
    return privacy.Guaranteed(private.guarantee.assuming(*remarks))

"""CZ23, distributed DP in multi-armed bandits: batched successive elimination over private sums.

Chowdhury & Zhou, ICLR 2023. Six named algorithms differ only in the protocol; DP-SE is the paper's
central baseline (Sajed & Sheffet 2019). `paper` constants are those of the figures: failure
probability 0.1, batches 4^b, s = 10, the printed radii and moduli. Shared draws between arms, as in
the authors' DP-SE, are not reproduced: every arm gets its own noise.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from tacit.algorithms.arms_problem import ArmsProblem
from tacit.algorithms.builders import PEOPLE, WORLD, assemble
from tacit.algorithms.lazy_imports import (
    bandits,
    factories,
    mechanism,
    privacy,
    split_and_mix,
    sums,
)
from tacit.algorithms.registry import GuaranteeForm, algorithm
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.bandits import ForgettingElimination, NoiseTail
    from tacit.experiment import Experiment
    from tacit.privacy import ConcentratedDP, RenyiDP
    from tacit.protocols.sums import SecureSum

COMMON = (*WORLD, "epsilon", "participations", "growth", "failure_probability", "constants")
cz23 = partial(algorithm, paper="CZ23", problem=ArmsProblem, options=COMMON)
securely = partial(cz23, trust=TrustModel.SECURE_AGGREGATION)


def _tail(sigma: float, h: float = 0.0, *, per_user: bool = False) -> NoiseTail:
    return bandits.NoiseTail(float(sigma), float(h), per_user)


def _laplace_tail(problem: ArmsProblem) -> NoiseTail:
    """The tail of one draw of discrete Laplace noise, at the ε of a number."""
    return _tail(math.sqrt(2) / problem.epsilon_per_number, 1 / problem.epsilon_per_number)


def _elimination(problem: ArmsProblem, tail: NoiseTail, smallest: int = 1) -> ForgettingElimination:
    start = 1
    while math.ceil(problem.growth**start) < smallest:
        start += 1
    return bandits.ForgettingElimination(
        problem.arms,
        problem.horizon,
        growth=problem.growth,
        failure_probability=problem.failure_probability,
        constants=problem.constants,
        tail=tail,
        start=start,
    )


def _shared(
    problem: ArmsProblem, tail: NoiseTail, paper: Any, tight: Any, **arguments: Any
) -> Experiment:
    """Rounds of noise shares: as printed, with their true guarantee, or exactly calibrated."""
    if problem.constants == "paper":
        problem.privacy.reject_losses("the printed noise is set for everyone present")
        first = math.ceil(problem.growth)
        arguments = {key: value for key, value in arguments.items() if key in ("target", "scale")}
        arguments |= {"fewest": first} if "scale" in arguments else {}
        arguments |= {"failure_probability": problem.failure_probability}
        learner, sizes = _elimination(problem, tail), _batch_sizes(problem)
        return assemble(problem, learner, paper, smallest=first, sizes=sizes, **arguments)
    arguments = {
        key: value for key, value in arguments.items() if key != "scale"
    } | problem.privacy.fixed_levels
    least = problem.privacy.min_batch_size
    learner = _elimination(problem, tail, least)
    return assemble(problem, learner, tight, smallest=least, binary=problem.binary, **arguments)


def _secure_sums(problem: ArmsProblem, experiment: Experiment) -> list[SecureSum] | None:
    """The protocols of every size of round that elimination proposes; None where other rounds
    occur, or rounds with several metrics.
    """
    hidden = experiment.mechanism
    assert isinstance(hidden, mechanism.PerRound)
    if problem.control_share or problem.guardrail is not None:
        return None
    least = 1 if problem.constants == "paper" else problem.privacy.min_batch_size
    sizes = [size for size in _batch_sizes(problem) if size >= least]
    made = (hidden.make(size, **hidden.arguments) for size in sizes)
    return [one for one in made if isinstance(one, sums.SecureSum)] or None


def _renyi(problem: ArmsProblem) -> RenyiDP | None:
    """The Rényi divergences of Theorem 2, of the noise that remains against a curious participant:
    the largest of all rounds at each order.
    """
    rounds = _secure_sums(problem, dist_rdp_se(problem))
    return None if rounds is None else privacy.weakest_divergence([one.renyi() for one in rounds])


def _concentrated(problem: ArmsProblem) -> ConcentratedDP | None:
    """The ρ of Theorem 4, of the noise that remains against a curious participant: the largest of
    all rounds.
    """
    rounds = _secure_sums(problem, dist_cdp_se(problem))
    if rounds is None:
        return None
    return privacy.weakest_divergence([one.concentrated() for one in rounds])


def _batch_sizes(problem: ArmsProblem) -> list[int]:
    """Every batch size ⌈growth^b⌉ within the horizon, as printed noise depends on it."""
    powers = range(1, math.ceil(math.log(problem.horizon, problem.growth)) + 1)
    sizes = (math.ceil(problem.growth**power) for power in powers)
    return [size for size in sizes if size <= problem.horizon]


@securely(
    "dist-dp-se",
    guarantee="(ε, 0)-DP of the released sums",
    options=(*COMMON, *PEOPLE),
)
def dist_dp_se(problem: ArmsProblem) -> Experiment:
    """Secure aggregation with Pólya shares (Theorem 1)."""
    how = {"target": problem.privacy.pure, **problem.privacy.losses}
    tail = _laplace_tail(problem)
    return _shared(problem, tail, factories.polya_paper, factories.polya_tight, **how)


@securely(
    "dist-rdp-se",
    guarantee=GuaranteeForm("(ε, δ)-DP of the released sums", also=_renyi),
    options=(*COMMON, *PEOPLE, "delta", "scale"),
)
def dist_rdp_se(problem: ArmsProblem) -> Experiment:
    """Secure aggregation with Skellam shares (Theorem 2).

    `paper` takes ε as a Rényi scale, `tight` as the ε of (ε, δ)-DP.
    """
    e, s = problem.privacy.epsilon, problem.privacy.scale
    tail = _tail(2 / e + math.sqrt(2) / (s * e), 1 / (s * e))
    how = {"target": problem.privacy.target, "scale": s, **problem.privacy.losses}
    return _shared(problem, tail, factories.skellam_paper, factories.skellam_tight, **how)


@securely(
    "dist-cdp-se",
    guarantee=GuaranteeForm("(ε, δ)-DP of the released sums", also=_concentrated),
    options=(*COMMON, *PEOPLE, "delta", "scale"),
)
def dist_cdp_se(problem: ArmsProblem) -> Experiment:
    """Secure aggregation with discrete Gaussian shares (Theorem 4).

    `paper` takes ε as √(2ρ), `tight` as the ε of (ε, δ)-DP. The radius has the rounding term
    √2/(sε) of the theorem's proof, which its statement absorbs into O(1/ε) (CORRECTIONS 32).
    """
    e, s = problem.privacy.epsilon, problem.privacy.scale
    tail = _tail(math.sqrt(2) / e + math.sqrt(2) / (s * e))
    how = {"target": problem.privacy.target, "scale": s, **problem.privacy.positive_losses}
    return _shared(problem, tail, factories.gaussian_paper, factories.gaussian_tight, **how)


@cz23("cdp-se", trust=TrustModel.CENTRAL, guarantee="(ε, 0)-DP of what the server publishes")
def cdp_se(problem: ArmsProblem) -> Experiment:
    """A trusted server adds discrete Laplace noise (Theorem 5)."""
    learner = _elimination(problem, _laplace_tail(problem))
    how: dict[str, Any] = {"target": problem.privacy.pure, "binary": problem.binary}
    how |= {"failure_probability": problem.paper_failure_probability}
    return assemble(problem, learner, factories.central_laplace, **how)


@cz23("ldp-se", trust=TrustModel.LOCAL, guarantee="(ε, 0)-DP of each message")
def ldp_se(problem: ArmsProblem) -> Experiment:
    """Local model: every participant adds discrete Laplace noise (Theorem 6).

    In tight constants participants report bits by randomized response. The printed radius has √n
    of the noise, with constants of our own, since the paper leaves the constant of Lemma 5 open:
    Laplace noise of scale b is sub-exponential with (4b², √2 b), so n of them stay within √8 b √(n
    ln(2/p)) + 2√2 b ln(2/p).
    """
    e, target = problem.epsilon_per_number, problem.privacy.pure
    paper = problem.constants == "paper"
    least = problem.privacy.smallest
    tail = _tail(math.sqrt(8) / e, 2 * math.sqrt(2) / e, per_user=True)
    learner = _elimination(problem, tail, least)
    if problem.binary and not paper:
        return assemble(problem, learner, factories.response, smallest=least, target=target)
    how: dict[str, Any] = {"target": target, "paper": paper, **problem.privacy.fixed_levels}
    return assemble(problem, learner, factories.local_laplace, smallest=least, **how)


@cz23(
    "split-dp-se",
    trust=TrustModel.SHUFFLER,
    guarantee="(ε, (1 + e^ε) 2^-60)-DP of the shuffled shares",
    options=(*COMMON, *PEOPLE),
)
def split_dp_se(problem: ArmsProblem) -> Experiment:
    """Pólya shares by split-and-mix through a shuffler (App. G.2), from 19 honest reports on."""
    if problem.paper_failure_probability:
        problem.privacy.reject_losses("the printed noise is set for everyone present")
    least = 1 if problem.paper_failure_probability else problem.privacy.min_batch_size
    honest = privacy.ThreatModel(problem.privacy.dropout, problem.privacy.corrupt).honest
    enough = split_and_mix.FEWEST_USERS
    smallest = next(size for size in count(max(enough, least)) if honest(size) >= enough)
    learner = _elimination(problem, _laplace_tail(problem), smallest)
    how: dict[str, Any] = {
        "target": problem.privacy.pure,
        "binary": problem.binary,
        "failure_probability": problem.paper_failure_probability,
        **problem.privacy.positive_losses,
        **problem.privacy.fixed_levels,
    }
    return assemble(problem, learner, factories.split_and_mix, smallest=smallest, **how)


@cz23(
    "shuffle-dp-se",
    trust=TrustModel.SHUFFLER,
    guarantee="(ε, 0)-DP of the shuffled bits, certified for ε of 0.5, 1 or 2 (the next below)",
    options=(*COMMON, *PEOPLE),
)
def shuffle_dp_se(problem: ArmsProblem) -> Experiment:
    """Certified groups behind a shuffler: Theorem 3, constructed as in
    docs/explanation/pure-shuffle.md.

    Groups are complete; with dropout or corruption, or live, a round is one group that tolerates
    them. Real rewards are rounded to bits. There is no `paper` protocol: the one that the theorem
    cites needs about n^2.5 messages per participant (CORRECTIONS 9). `paper` constants changes only
    the radius.
    """
    smallest = problem.privacy.min_batch_size
    learner = _elimination(problem, _laplace_tail(problem), smallest)
    how: dict[str, Any] = {"target": problem.privacy.pure, **problem.privacy.positive_losses}
    how |= problem.privacy.fixed_levels
    return assemble(problem, learner, factories.pure_shuffle, smallest=smallest, **how)


@algorithm(
    "dp-se",
    paper="Sajed & Sheffet 2019",
    trust=TrustModel.CENTRAL,
    guarantee="(ε, 0)-DP of what the server publishes, in ideal arithmetic",
    problem=ArmsProblem,
    options=(*WORLD, "epsilon", "participations", "failure_probability"),
)
def dp_se(problem: ArmsProblem) -> Experiment:
    """A trusted server, with epochs sized for the noise (Sajed & Sheffet 2019)."""
    learner = bandits.DPSE(
        problem.arms, problem.horizon, problem.epsilon_per_number, problem.failure_probability
    )
    return assemble(problem, learner, factories.continuous_laplace, target=problem.privacy.pure)

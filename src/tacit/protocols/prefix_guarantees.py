"""The guarantees that prefix sums give, derived from their noise and compared with stated ones.

Gaussian messages behind a shuffler give what each silo's own noise gives, or amplification by
shuffling (ZC24 Lemma F.2).
"""

from __future__ import annotations

from dataclasses import replace

from tacit.assumptions import (
    Assumption,
    Derivation,
    DerivedBy,
    DishonestAtMost,
    OwnRecords,
    Scope,
    uncovered,
)
from tacit.privacy import ApproximateDP, Arithmetic, Guarantee, Neighbours
from tacit.privacy.shuffling import amplified_nodes
from tacit.privacy.silos import SilosDP
from tacit.protocols.factorization import depth
from tacit.protocols.prefix_sums import PrefixSums
from tacit.trust import TrustModel

SLACK = 1e-12  # relative error of δ by double arithmetic, which printing ignores, too (`up`)
BISECTIONS = 60


def derivable_remarks(sums: PrefixSums, guarantee: Guarantee | None) -> frozenset[Assumption]:
    """The remarks of a guarantee of these sums that are true: its derivation, and the numbers of a
    participant's own records where silos are eager.
    """
    if not isinstance(guarantee, ApproximateDP):
        return frozenset()
    kinds = [Derivation.EXACT_JOINT]
    if not sums.suffices_alone and isinstance(guarantee, SilosDP):
        kinds = [Derivation.STRICTEST]
    if sums.suffices_alone and sums.trust is TrustModel.SHUFFLER:
        amplified = _amplifies(sums, guarantee)
        kinds = [Derivation.AMPLIFIED if amplified else Derivation.OWN_NOISE]
    own = {
        one
        for one in guarantee.assumptions
        if isinstance(one, OwnRecords) and _true_of_own_records(sums, one)
    }
    return frozenset({DerivedBy(one, sums.shape.steps) for one in kinds} | own)


def _true_of_own_records(sums: PrefixSums, said: OwnRecords) -> bool:
    """Whether eager silos give these numbers for streams that differ in own records only."""
    lazy = replace(sums, presence=replace(sums.presence, eager=False))
    return (
        sums.presence.eager
        and said.records == sums.people
        and _earns(lazy, said.epsilon, said.delta * (1 + SLACK))
    )


def achieves(sums: PrefixSums, guarantee: Guarantee) -> bool:
    """Whether the sums give this guarantee for a participant with the maximum number of
    participations, with the same view and assumptions.

    Gaussian messages behind a shuffler give what each silo's own noise gives, or amplification by
    shuffling where the guarantee is derived by it.
    """
    if (
        sums.noise == "none"
        or not isinstance(guarantee, ApproximateDP)
        or not _about(sums, guarantee)
    ):
        return False
    pairs = _pairs(guarantee)
    if sums.sigmas and len(pairs) == 1:  # a common budget is that of every silo
        pairs *= sums.silos
    if len(pairs) not in (1, sums.silos):
        return False
    return _amplifies(sums, guarantee) or all(
        _earns(sums.of(silo), epsilon, delta * (1 + SLACK))
        for silo, (epsilon, delta) in enumerate(pairs)
    )


def _amplifies(sums: PrefixSums, guarantee: ApproximateDP) -> bool:
    """Whether amplification by shuffling (ZC24 Lemma F.2), derived anew, gives the guarantee.

    The lemma is for the nodes of a tree and one participation. It needs a stated bound on curious
    silos, whose messages hide nobody.
    """
    bounds = [
        one.limit(sums.silos)
        for one in guarantee.assumptions
        if isinstance(one, DishonestAtMost) and one.scope is Scope.SILOS
    ]
    if (
        (sums.trust, sums.noise, sums.shape.kind) != (TrustModel.SHUFFLER, "gaussian", "tree")
        or sums.presence.participations > 1
        or DerivedBy(Derivation.AMPLIFIED, sums.shape.steps) not in guarantee.assumptions
        or _pairs(guarantee) != ((guarantee.epsilon, guarantee.delta),)
        or not bounds
    ):
        return False
    nodes, honest = depth(sums.shape.steps), sums.silos - min(bounds)
    records = sums.people if sums.presence.eager else 1
    group = sums.people * sums.shape.steps
    moved, whole = (count * sums.sensitivity for count in (records, group))
    # the derivation leaves some of its δ unused: find the largest that fails as rarely as stated
    low, high = guarantee.delta, min(2 * guarantee.delta, 1 - 1e-9)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        found = amplified_nodes(sums.sigma, moved, whole, honest, nodes, middle)
        if found is None:
            low = middle
        elif found.delta > guarantee.delta * (1 + SLACK):
            high = middle
        elif found.epsilon <= guarantee.epsilon:
            return True
        else:
            low = middle
    return False


def _about(sums: PrefixSums, guarantee: ApproximateDP) -> bool:
    """Whether the guarantee states the neighbouring relation, view, participations, assumptions and
    arithmetic of the sums.

    If silos have individual budgets, the headline (ε, δ) must be the largest of each.
    """
    weakest = tuple(map(max, zip(*_pairs(guarantee), strict=True)))
    arithmetic = Arithmetic.EXACT if sums.integral else Arithmetic.IDEAL
    return (
        guarantee.neighbours is Neighbours.REPLACE_ONE
        and guarantee.view is sums.view
        and guarantee.metrics == 1
        and guarantee.participations <= sums.presence.participations
        and not uncovered(sums.assumptions, guarantee.assumptions)
        and arithmetic.covers(guarantee.arithmetic)
        and weakest == (guarantee.epsilon, guarantee.delta)
    )


def _earns(sums: PrefixSums, epsilon: float, delta: float) -> bool:
    """Checks δ at ε, or ε at δ where the accounting differs."""
    loss, left = sums.loss(), delta - sums.slack(epsilon)
    return left > 0 and (loss.delta(epsilon) <= left or loss.epsilon(left) <= epsilon)


def _pairs(guarantee: ApproximateDP) -> tuple[tuple[float, float], ...]:
    """(ε, δ) of every silo with an individual budget, or the common one."""
    if isinstance(guarantee, SilosDP) and guarantee.budgets:
        return guarantee.budgets
    return ((guarantee.epsilon, guarantee.delta),)

"""Several participations and metrics where noise has a δ, live: guarantee, noise and ledger.

Terms give each metric of each participation an equal part of ε and δ. Here the composed δ of all of
them is recomputed from the probabilities of the noise, without the package's accounting.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.service.deployed import ADDRESSES, KEYS, Deployed, definition_of, deployed

import tacit.client.trust_models.shuffler as shuffler_device
from tacit.aggregation.shuffler import wrap as wrap_messages
from tacit.assumptions import Accounting, DistinctRounds, Method, MetricsPerParticipation
from tacit.errors import Rejected
from tacit.experiment import Experiment
from tacit.protocols.joint import JointSums
from tacit.protocols.shuffled_bits import ShuffledBits
from tacit.protocols.slice_mechanism import SliceMechanism
from tacit.protocols.statistic_sums import SecureStatistic
from tacit.protocols.sums import SecureSum
from tacit.service.trust_models import coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.terms import Terms
from tacit.terms.accounting import binomial_delta
from tacit.types import Arm, Round

MANY = 40_000
GUARDED: dict[str, Any] = {"guardrail": "complaints", "guardrail_better": "lower"}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("shuffler", "private-med", {"participations": 2}),
    ("shuffler", "private-med", GUARDED),
    ("shuffler", "sdp-ae", {"participations": 2}),
    ("secure-aggregation", "dist-rdp-se", {"participations": 2}),
    ("secure-aggregation", "dist-cdp-se", {"participations": 2}),
]


def opened(part: Any, kept: float = 1.0) -> np.ndarray:
    """Probabilities of the noise that is certain to be in a released sum, or of this part of it."""
    if isinstance(part, ShuffledBits):
        bits = int(kept * part.honest * part.noise_bits)
        return np.asarray(stats.binom.pmf(np.arange(bits + 1), bits, float(part.bias)))
    assert isinstance(part, SecureSum)
    spread = part.distribution.std * math.sqrt(kept)
    reach = np.arange(-math.ceil(12 * spread), math.ceil(12 * spread) + 1)
    if part.distribution.kind == "skellam":
        half = kept * part.distribution.variance / 2
        return np.asarray(stats.skellam.pmf(reach, half, half))
    weights = np.exp(-(reach**2) / (2 * spread**2))
    return np.asarray(weights / weights.sum())


def excess(pmf: np.ndarray, epsilon: float, times: int) -> float:
    """δ at ε of so many releases, of which each may move up or down by one level."""
    worst = 0.0
    padded = np.concatenate([[0.0], pmf, [0.0]])
    pairs = {1: (padded, np.roll(padded, 1)), -1: (padded, np.roll(padded, -1))}
    for signs in itertools.combinations_with_replacement((1, -1), times):
        p = q = np.ones(1)
        for sign in signs:
            here, moved = pairs[sign]
            p, q = np.outer(p, here).ravel(), np.outer(q, moved).ravel()
        worst = max(worst, float(np.maximum(0.0, p - math.exp(epsilon) * q).sum()))
    return worst


def first_protocol(built: Experiment) -> Any:
    round_ = built.propose()[0]
    found = built.open(round_)
    return found.part if isinstance(found, JointSums) else found


@pytest.mark.parametrize(("trust", "algorithm", "more"), CASES)
def test_the_composed_guarantee_matches_the_terms(
    trust: str, algorithm: str, more: dict[str, Any]
) -> None:
    defined = definition_of(trust, algorithm=algorithm, participants=MANY, **more)
    terms, built = defined.terms(ADDRESSES[0], KEYS[0]), defined.experiment()
    part = first_protocol(built)
    times = defined.participations * len(defined.answer.metrics)
    epsilon, delta = terms.guarantee.epsilon, terms.guarantee.delta
    assert times == 2
    assert terms.per_metric_target[0] == epsilon / 2
    pmf = opened(part)
    assert excess(pmf, float(epsilon), 2) <= float(delta)
    alone = excess(pmf, float(epsilon) / 2, 1)
    assert alone <= float(terms.per_metric_target[1]) * (1 + 1e-6)
    assert excess(opened(part, 0.5), float(epsilon) / 2, 1) > float(terms.per_metric_target[1])
    guarantee = built.guarantee
    assert guarantee is not None
    assert guarantee.participations == defined.participations
    assert Accounting(Method.ADDED, 2) in guarantee.assumptions
    assert (DistinctRounds() in guarantee.assumptions) == (defined.participations > 1)
    assert (DistinctRounds() in terms.assumptions) == (defined.participations > 1)
    assert (MetricsPerParticipation(2) in guarantee.assumptions) == bool(defined.guardrail)


@pytest.mark.parametrize(("trust", "algorithm", "more"), CASES)
def test_halved_noise_misses_the_guarantee_of_the_terms(
    trust: str, algorithm: str, more: dict[str, Any]
) -> None:
    """A definition for one participation and metric has too little noise for two."""
    defined = definition_of(trust, algorithm=algorithm, participants=MANY, **more)
    terms = defined.terms(ADDRESSES[0], KEYS[0])
    one = definition_of(trust, algorithm=algorithm, participants=MANY).terms(ADDRESSES[0], KEYS[0])
    assert terms.noise.least > one.noise.least
    if terms.noise.distribution == "binomial":  # verified round by round, below
        return
    for less in (one.noise, replace(terms.noise, scale=terms.noise.scale / 2, minimum=None)):
        with pytest.raises(ValueError, match=r"noise\.minimum is .* must be larger"):
            replace(terms, noise=less)


@pytest.mark.parametrize("more", [{"participations": 2}, GUARDED], ids=["twice", "guarded"])
def test_a_device_rejects_rounds_with_half_the_noise_bits(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    defined = definition_of("shuffler", participants=MANY, **more)
    with deployed(defined, tmp_path) as one:
        one.step(2)
        (assigned,) = one.join(1)
        engine = coordinator_engine(one.pinned.terms)
        announced: Any = decoded(engine, one.pinned.terms, assigned.announcement)
        sound = announced.offer()
        assert one.pinned.check(sound) == defined.epsilon / defined.participations
        bits = sound.parts - sound.levels
        found = binomial_delta(
            sound.divisor * bits, sound.total, 1, one.pinned.terms.per_metric_target[0]
        )
        assert found <= one.pinned.terms.per_metric_target[1]
        weaker = replace(sound, total=sound.total / 2)
        with pytest.raises(Rejected, match=r"(variance|delta) of the noise"):
            one.pinned.check(weaker)


def test_a_device_draws_independent_noise_for_each_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 reports of two zeros: equal noise on both metrics in all has a chance below 10^-20."""
    sent: list[list[bytes]] = []
    true = wrap_messages

    def wrap(pinned: Any, announcement: bytes, messages: list[bytes]) -> bytes:
        sent.append(messages)
        return true(pinned, announcement, messages)

    monkeypatch.setattr(shuffler_device, "wrap", wrap)
    with deployed(definition_of("shuffler", participants=MANY, **GUARDED), tmp_path) as one:
        one.step(2)
        (assigned,) = one.join(1)
        for _ in range(200):
            one.report(assigned, 0, 0)
    ones = [[sum(m[-1] == 2 * metric + 1 for m in made) for metric in (0, 1)] for made in sent]
    first, second = (np.array(column) for column in zip(*ones, strict=True))
    assert first.sum() > 0
    assert second.sum() > 0
    assert (first != second).sum() > 10


def paused_options(one: Deployed) -> list[str]:
    rows = one.coordinator.estimates(one.digest)["options"]
    return [row["option"] for row in rows if row["paused"] is not None]


def bernoulli_answers(rng: random.Random, means: Mapping[str, tuple[float, ...]]) -> Any:
    return lambda option: tuple(int(rng.random() < mean) for mean in means[option])


@pytest.mark.extended
@pytest.mark.parametrize(
    ("trust", "more"),
    [("shuffler", {}), ("secure-aggregation", {}), ("two-servers", {"proofs": True})],
)
def test_a_guardrail_pauses_the_worse_option(
    tmp_path: Path, trust: str, more: dict[str, Any]
) -> None:
    """The option that participants like better makes complaints worse (0.9 against 0.1)."""
    defined = definition_of(trust, epsilon=Fraction(4), participants=2400, **GUARDED | more)
    means = {"plain": (0.2, 0.1), "friendly": (0.8, 0.9)}
    rng = random.Random(3)
    with deployed(defined, tmp_path) as one:
        for _ in range(8):
            one.hold(bernoulli_answers(rng, means))
            if paused := paused_options(one):
                break
        assert paused == ["friendly"]


@pytest.mark.extended
@pytest.mark.parametrize("trust", ["shuffler", "secure-aggregation", "two-servers", "local"])
def test_experiments_with_several_participations_find_the_best_option(
    tmp_path: Path, trust: str
) -> None:
    defined = definition_of(trust, participations=2, epsilon=Fraction(6), participants=300)
    with deployed(defined, tmp_path) as one:
        assert one.run({"plain": 0.1, "friendly": 0.9}, seed=5) == "friendly"
        status = one.coordinator.status(one.digest)
    assert status["guarantee"]["participations"] == 2


def test_terms_charge_equal_parts_of_the_budget() -> None:
    defined = definition_of("secure-aggregation", algorithm="dist-rdp-se", participations=3)
    terms: Terms = defined.terms(ADDRESSES[0], KEYS[0])
    assert terms.cost == defined.epsilon / 3
    assert terms.delta_cost == defined.delta / 3
    masking = Fraction(3, 2**40)
    assert terms.per_metric_target == (defined.epsilon / 3, (defined.delta - masking) / 3)


CHOSEN = {"algorithm": "private-contextual", "context_fields": ("device: phone, desktop",)}


@pytest.mark.parametrize(
    ("trust", "changed"),
    [("secure-aggregation", {}), ("shuffler", {}), ("secure-aggregation", CHOSEN)],
)
def test_shares_are_sized_for_the_honest_participants_of_the_terms(
    trust: str, changed: dict[str, Any]
) -> None:
    """Found: 1/3 as a float is a little less, so that rounds of 21 had shares for 15 honest
    participants where the terms guarantee 14: devices rejected them, δ was 1.8 times as large.
    """
    part = {"missing": Fraction(1, 7), "dishonest": Fraction(1, 3), "participants": MANY}
    made = definition_of(trust, **part | changed)
    terms, mechanism = made.terms(ADDRESSES[0], KEYS[0]), made.experiment().mechanism
    about = terms.aggregation
    for size in range(made.smallest, made.smallest + 21):  # every remainder by 3 and by 7
        policies = mechanism.policies if isinstance(mechanism, SliceMechanism) else mechanism
        protocol = policies.open(Round(0, size, Arm(0)))
        assert isinstance(protocol, (SecureSum, ShuffledBits, SecureStatistic))
        assert protocol.honest <= protocol.minimum - about.dishonest(size)
        assert size - about.missing(size) == protocol.minimum

"""Terms with contexts: what they reject, and which rounds devices accept under them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.announcements import Binding
from tacit.assumptions import Protects, PublicMembership, Secret
from tacit.client.choices import choose
from tacit.client.trust_models import reporter
from tacit.contextual.policies import ONE, TablePolicy
from tacit.contextual.statistics import TableReport
from tacit.errors import Rejected, TacitError
from tacit.signatures import public_key
from tacit.terms import (
    BY_POLICY,
    ROLES,
    Answer,
    ContextField,
    ContextTerms,
    Noise,
    Offer,
    Party,
    Pinned,
    StatedGuarantee,
    Terms,
    check_successor,
    cosign,
)
from tacit.terms.accounting import least_epsilon, pair_delta
from tacit.terms.context import MOST_CELLS, MOST_CONTEXTS, MomentTerms, NumberField
from tacit.terms.parts import DISCRETE_GAUSSIAN, SKELLAM
from tacit.terms.words import outsiders
from tacit.trust import TrustModel

KEYS = tuple(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
CONTEXT = ContextTerms((ContextField("device", ("phone", "desktop")),))
TERMS = Terms(
    question="Which layout?",
    options=("old", "new"),
    answer=Answer("whether you found it"),
    guarantee=StatedGuarantee(Fraction(1)),
    noise=Noise(Fraction(2)),
    parties=tuple(
        Party(role, f"https://{role}.example", public_key(key))
        for role, key in zip(ROLES[TrustModel.TWO_SERVERS], KEYS, strict=True)
    ),
    first_day=date(2027, 1, 1),
    last_day=date(2027, 2, 1),
    context=CONTEXT,
)
PINNED = Pinned(TERMS, tuple(cosign(TERMS, key) for key in KEYS), TERMS.keys)
POLICY = TablePolicy(((ONE, 0), (0, ONE)))
OFFER = Offer(
    terms=TERMS.digest,
    kind="two-servers",
    option=BY_POLICY,
    slots=100,
    minimum=10,
    levels=1,
    metrics=8,
    window=0,
    closes=TERMS.first_second + 100,
    suite=TERMS.suite,
    modulus=1 << 20,
    scale=Fraction(2),
    policy=POLICY.encode(),
)


def test_a_report_has_a_cell_for_every_combination_of_values() -> None:
    fields = (CONTEXT.fields[0], ContextField("shift", ("day", "evening", "night")))
    both = ContextTerms(fields)
    assert both.numbers(options=2) == 2 * 2 * 3 * 2
    assert both.report(2) == TableReport(segments=6, options=2)
    assert both.features(("old", "new")).segments == 6


def test_terms_with_contexts_state_what_is_protected() -> None:
    """The context and the answers are, that somebody takes part is not."""
    added = TERMS.assumptions - replace(TERMS, context=None).assumptions
    assert added == {Protects(Secret.CONTEXT_AND_REWARDS), PublicMembership()}


def test_tables_have_categories_and_a_bounded_number_of_cells() -> None:
    values = tuple(f"v{number}" for number in range(MOST_CELLS // 4))
    fields = (CONTEXT.fields[0], ContextField("place", values))
    assert replace(TERMS, context=ContextTerms(fields)).numbers(chosen=True) == 2 * MOST_CELLS
    more = (fields[0], ContextField("place", (*values, "other")))
    part: Any = 0.25
    for context, words in (
        (ContextTerms(more), "number of cells of context and option"),
        (ContextTerms((NumberField("age", Fraction(1), Fraction(9)),)), "absent with a table"),
        (replace(CONTEXT, evaluation=part), r"context\.evaluation is 0\.25: must be a Fraction"),
    ):
        with pytest.raises(TacitError, match=words):
            replace(TERMS, context=context)


def test_a_device_chooses_only_under_terms_with_contexts() -> None:
    about = Binding(TERMS.digest, BY_POLICY, policy=POLICY.encode())
    assert choose(TERMS, about, {"device": "desktop"}).option == "new"
    for terms, context in ((TERMS, None), (replace(TERMS, context=None), {"device": "desktop"})):
        with pytest.raises(Rejected, match="must be under terms with a context"):
            choose(terms, about, context)


def test_a_round_with_exactly_the_noise_of_the_terms_costs_least() -> None:
    """Of what a ledger still allows, a device needs that much before it asks for a place."""
    wider = replace(TERMS, noise=Noise(Fraction(4), minimum=Fraction(2)))
    for terms, cost in ((TERMS, 1), (wider, Fraction(1, 2)), (replace(TERMS, context=None), 0.5)):
        assert reporter(terms).least_cost(terms) == cost


def test_successors_of_contextual_terms_keep_the_options() -> None:
    """A report has a cell for every option: participants agreed to so many."""
    same = replace(TERMS, predecessor=TERMS.digest, question="Which one?")
    check_successor(TERMS, same)
    with pytest.raises(Rejected, match="options of successor terms"):
        check_successor(TERMS, replace(same, options=("old", "newest")))


def test_a_policy_round_costs_epsilon() -> None:
    assert PINNED.check(OFFER) == 1
    assert PINNED.check(replace(OFFER, scale=Fraction(4))) == Fraction(1, 2)


def test_an_evaluation_round_needs_half_the_noise() -> None:
    scalar = replace(OFFER, option=1, metrics=1, policy=b"", scale=Fraction(1))
    assert PINNED.check(scalar) == 1
    with pytest.raises(Rejected, match="noise scale of the round is 1/2: must be at least 1,"):
        PINNED.check(replace(scalar, scale=Fraction(1, 2)))
    with pytest.raises(Rejected, match="number of metrics of the round is 8: must be 1"):
        PINNED.check(replace(scalar, metrics=8))
    with pytest.raises(Rejected, match="option of the round is 2: must be from 0 to 1"):
        PINNED.check(replace(scalar, option=2))
    assert PINNED.check(replace(scalar, option=0)) == 1


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(199, 100)])
def test_noise_below_the_sensitivity_of_two_cells_is_rejected(scale: Fraction) -> None:
    with pytest.raises(Rejected, match="must be at least 2, the minimum of the terms"):
        PINNED.check(replace(OFFER, scale=scale))


@pytest.mark.parametrize(
    "policy",
    [b"", POLICY.encode()[:-4], POLICY.encode() + bytes(4), bytes(16), b"\xff" * 16],
)
def test_a_policy_of_another_shape_is_rejected(policy: bytes) -> None:
    with pytest.raises(Rejected, match="policy of the round is invalid"):
        PINNED.check(replace(OFFER, policy=policy))


def test_terms_without_contexts_reject_policies() -> None:
    plain = replace(TERMS, context=None)
    pinned = Pinned(plain, tuple(cosign(plain, key) for key in KEYS), plain.keys)
    with pytest.raises(Rejected, match="terms, which have no context"):
        pinned.check(replace(OFFER, terms=plain.digest, metrics=1))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"noise": Noise(Fraction(1))}, "noise.minimum is 1: must be at least 2"),
        (
            {
                "guarantee": StatedGuarantee(Fraction(1), participations=2),
                "noise": Noise(Fraction(4)),
            },
            "participations is 2: must be 1",
        ),
        ({"answer": Answer("stars", levels=4)}, "levels is 4: must be 1"),
        ({"answer": Answer("two", metrics=("a", "b"))}, "number of metrics is 2: must be 1"),
        ({"noise": Noise(Fraction(9), "devices")}, "kind of rounds is two-servers with noise by"),
        ({"context": ContextTerms((ContextField("a", ("x",)),))}, "number of values of a is 1"),
        ({"context": replace(CONTEXT, statistic="moments")}, "context.statistic is 'moments'"),
        ({"context": replace(CONTEXT, evaluation=Fraction(1))}, "context.evaluation is 1"),
        ({"context": ContextTerms(CONTEXT.fields * 2)}, "context.fields is"),
    ],
)
def test_contradictory_context_terms_are_rejected(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(TacitError) as problem:
        replace(TERMS, **changed)
    assert said in str(problem.value)


@pytest.mark.parametrize("distribution", [SKELLAM, DISCRETE_GAUSSIAN])
def test_noise_for_one_metric_is_rejected_where_two_cells_move(distribution: str) -> None:
    noise = Noise(Fraction(40), "devices", distribution)
    alone: dict[str, Any] = {"parties": TERMS.parties[:1], "trust": TrustModel.SECURE_AGGREGATION}
    alone |= {
        "suite": "",
        "guarantee": StatedGuarantee(Fraction(1), Fraction(1, 10**6)),
        "noise": noise,
    }
    assert replace(TERMS, **alone, context=None)
    with pytest.raises(TacitError, match=f"noise.distribution is {distribution}: must be discrete"):
        replace(TERMS, **alone)


def with_moments() -> Terms:
    constant = ((1 << 19, 0, 0),)
    moments = MomentTerms(CONTEXT.fields, matrices=(constant, constant), evaluation=Fraction(1, 9))
    return replace(
        TERMS,
        context=moments,
        answer=Answer("stars", metrics=("a", "b"), levels=3),
        guarantee=StatedGuarantee(Fraction(1, 2), Fraction(1, 10**6)),
        noise=Noise(Fraction(10**10), distribution=DISCRETE_GAUSSIAN),
    )


def test_moments_of_more_contexts_than_devices_enumerate_are_rejected() -> None:
    terms = with_moments()
    values = tuple(f"v{number}" for number in range(MOST_CONTEXTS + 1))
    side = math.isqrt(MOST_CONTEXTS)
    fields = tuple(ContextField(name, values[:side]) for name in "ab")
    wide = ((1 << 19, *(0,) * 2 * side),)
    for accepted in ({"fields": fields, "matrices": (wide, wide)}, {"resolution": 3}):
        known: Any = terms.context
        assert replace(terms, context=replace(known, **accepted))
    many = ContextField("a", values)
    for changes, words in (
        ({"fields": (many,)}, f"number of extreme contexts is {MOST_CONTEXTS + 1}: must be at"),
        ({"matrices": (((1 << 10, 0, 0),) * 33,) * 2}, "number of features is 33: must be at most"),
        ({"resolution": 2}, "levels is 3: must be at most 2, the resolution of features"),
        ({"resolution": 0}, r"context\.resolution is 0: must be a whole number"),
        ({"resolution": 64.5}, r"context\.resolution is 64\.5: must be a whole number"),
    ):
        context: Any = terms.context
        with pytest.raises(TacitError, match=words):
            replace(terms, context=replace(context, **changes))


def test_moments_support_no_proofs() -> None:
    with pytest.raises(TacitError, match="proofs is 1: must be 0 with moments"):
        replace(with_moments(), proofs=1)


def test_the_evaluation_slice_beside_moments_has_noise_for_all_metrics() -> None:
    terms = with_moments()
    held = Pinned(terms, tuple(cosign(terms, key) for key in KEYS), terms.keys)
    assigned = replace(OFFER, terms=terms.digest, option=1, policy=b"", levels=3, metrics=2)
    assert held.check(replace(assigned, scale=Fraction(12))) == Fraction(1, 2)
    with pytest.raises(Rejected, match="must be at least 12, the minimum of the terms"):
        held.check(replace(assigned, scale=Fraction(1199, 100)))


@pytest.mark.parametrize(
    ("delta", "sigma", "said"),
    [
        (Fraction(1, 10), 276_940_261, "(0.226, 1/10)-DP"),  # that of moments, not 0.0563 of slices
        (Fraction(3, 10), 160_000_000, "(0.0169, 3/10)-DP"),  # slices need no ε at all
    ],
)
def test_outsiders_get_the_larger_epsilon_of_both_kinds_of_rounds(
    delta: Fraction, sigma: int, said: str
) -> None:
    """Found: a search for the least ε of slices did not end well where it is 0."""
    noise = Noise(Fraction(sigma), distribution=DISCRETE_GAUSSIAN)
    guarantee, answer = StatedGuarantee(Fraction(1, 2), delta), Answer("stars", levels=3)
    terms = replace(with_moments(), answer=answer, guarantee=guarantee, noise=noise)
    assert said in outsiders(terms)[0]


def test_outsiders_of_evaluation_rounds_get_the_composition_of_metrics() -> None:
    each = least_epsilon(lambda at: pair_delta(Fraction(12), 3, at), Fraction(1, 2 * 10**6))
    (said,) = outsiders(with_moments())
    assert f"({2 * each:g}, 1/1000000)-DP" in said

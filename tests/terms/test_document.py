"""Terms of version 3: every field round-trips, and every change of a field is detected."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import each_row
from tests.terms.examples import KEYS, masked, parties, terms
from tests.terms.mutations import ACCEPTED_BY_PYTHON, MUTATIONS, mutated

from tacit.assumptions import (
    Assumption,
    BoundedAdversary,
    DishonestAtMost,
    HonestDevice,
    HonestServers,
    NonColludingShuffler,
    PinnedKeys,
    ReleasedOnlyAbove,
    Scope,
    SemiHonestServer,
)
from tacit.errors import Rejected, TacitError
from tacit.noise import DiscreteLaplace
from tacit.privacy import PureDP
from tacit.protocols.split_and_mix import shuffled_guarantee
from tacit.signatures import public_key
from tacit.terms import (
    HPKE_SUITES,
    KINDS,
    LONGEST_GRACE,
    MASKING_SUITE,
    REHEARSED,
    ROLES,
    VIEWS,
    Aggregation,
    Answer,
    Noise,
    Party,
    StatedGuarantee,
    Terms,
    check_live,
    check_successor,
)
from tacit.terms.aggregation_delta import smallest_masking_delta, smallest_shuffler_delta
from tacit.terms.document import MOST_NO_SHOW
from tacit.trust import SHUFFLE_SECURITY, TrustModel, View

EVERY = [(path, value) for path, values in MUTATIONS.items() for value in values]
PARTS = st.fractions(0, Fraction(99, 100), max_denominator=1000)
SHOWN = st.fractions(0, Fraction(9, 10), max_denominator=30)


def under(trust: TrustModel, by: str, **changes: Any) -> Terms:
    """Terms of any trust model."""
    roles = ROLES[trust]
    base: dict[str, Any] = {
        "trust": trust,
        "noise": Noise(Fraction(48), by),
        "suite": "",
        "parties": tuple(
            Party(role, f"https://{role}.example", public_key(key))
            for role, key in zip(roles, KEYS, strict=False)
        ),
    }
    if trust in (TrustModel.SHUFFLER, TrustModel.SECURE_AGGREGATION):
        base["guarantee"] = StatedGuarantee(Fraction(1, 2), Fraction(1, 10**11), participations=3)
    return terms(**base | changes)


# Reading and writing


@given(
    st.sampled_from(sorted(VIEWS)),
    st.data(),
    st.integers(1, 2**32 - 1),
    st.integers(0, LONGEST_GRACE),
    st.booleans(),
)
def test_terms_of_every_trust_model_round_trip(
    model: tuple[TrustModel, str], data: Any, batch: int, grace: int, invited: bool
) -> None:
    trust, by = model
    shares = by == "devices" and trust is not TrustModel.LOCAL
    about = Aggregation(batch)
    if shares:
        count = data.draw(st.integers(0, 2**32 - 1))
        about = Aggregation(batch, data.draw(PARTS), count, data.draw(PARTS))
    minimum = data.draw(st.fractions(48, 60, max_denominator=10**6))
    made = under(
        trust,
        by,
        aggregation=about,
        noise=Noise(Fraction(60), by, minimum=minimum),
        grace=grace,
        no_show=data.draw(SHOWN) if by == "servers" else Fraction(0),
        proofs=data.draw(st.integers(0, 1)) if by == "servers" else 0,
        suite=data.draw(
            st.sampled_from(
                (MASKING_SUITE,) if trust is TrustModel.SECURE_AGGREGATION else HPKE_SUITES
            )
        ),
        organisation=data.draw(st.sampled_from(["", "Größe & Co"])),
        purpose=data.draw(st.sampled_from(["", "to learn"])),
        contact=data.draw(st.sampled_from(["", "a@b.example"])),
        **({"admission": "invitation", "issuer": public_key(KEYS[3])} if invited else {}),
    )
    again = Terms.decode(made.encode())
    assert again == made
    assert again.encode() == made.encode()
    assert again.assumptions == made.assumptions
    assert again.kind == KINDS[trust, made.proofs]


@given(st.sampled_from(EVERY))
def test_a_field_with_another_value_is_rejected(one: tuple[tuple[Any, ...], Any]) -> None:
    path, value = one
    text = mutated(terms(), path, value)
    assert text != terms().encode().decode()
    if value in ACCEPTED_BY_PYTHON.get(path, ()) and type(value) is type(
        ACCEPTED_BY_PYTHON[path][0]
    ):
        assert Terms.decode(text.encode()).encode() == text.encode()
        return
    with pytest.raises(Rejected):
        Terms.decode(text.encode())


@each_row(
    ("path", "value", "words"),
    [
        (("version",), 2, r"is 2: must be 3\. Publish the experiment anew"),
        (("trust",), "silo", "trust is 'silo': must be one of two-servers, secure-aggregation"),
        (("proofs",), 2, "proofs is 2: must be 0, or 1"),
        (
            ("suite",),
            MASKING_SUITE,
            "suite is 'masking-x25519-chacha20poly1305': must be one of hpke",
        ),
        (("suite",), "", "suite is 'none'"),
        (("grace",), LONGEST_GRACE + 1, r"grace is 604801: must be at most 604800 .* Choose"),
        (("issuer",), "ab" * 32, "issuer is 32 bytes long: must be 0 bytes"),
        (("admission",), "invitation", "issuer is 0 bytes long: must be 32 bytes: an Ed25519 key"),
        (("no_show",), "19/20", "no_show is 19/20: must be at least 0 and at most 9/10"),
        (("noise", "share_divisor"), "all", "share_divisor is 'all': must be 'certain'"),
        (("noise", "minimum"), [1, 100], "noise.minimum is 1/100: must be at least 48"),
        (("noise", "minimum"), [49, 1], "noise.minimum is 49: must be above 0 and at most 48"),
        (("noise", "minimum"), [0, 1], "noise.minimum is 0: must be above 0"),
        (("aggregation", "missing_fraction"), "1/5", "missing_fraction is 1/5: must be 0 where no"),
        (("aggregation", "dishonest_count"), 1, "must be 0 where no device"),
        (("aggregation", "claim"), "two-fates", "claim is 'two-fates': must be semi-honest"),
        (("guarantee", "view"), "shuffled", "does not define"),
        (("organisation",), " a", "organisation is ' a'"),
    ],
)
def test_a_rejected_field_is_named_with_its_rule(path: Any, value: Any, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        Terms.decode(mutated(terms(), path, value).encode())


def test_the_longest_grace_and_the_least_noise_are_accepted() -> None:
    noise = Noise(Fraction(60), minimum=Fraction(48))
    made = terms(grace=LONGEST_GRACE, no_show=MOST_NO_SHOW, noise=noise)
    assert Terms.decode(made.encode()) == made
    assert json.loads(made.encode())["noise"]["minimum"] == [48, 1]
    third = terms(noise=Noise(Fraction(145, 3)))
    assert json.loads(third.encode())["noise"]["minimum"] == [145, 3]
    variance = masked(noise=Noise(Fraction(7, 2), "devices", REHEARSED))
    assert json.loads(variance.encode())["noise"]["minimum"] == [49, 4]
    with pytest.raises(TacitError, match="integers within"):
        terms(noise=Noise(Fraction(2**53)))
    assert terms(noise=Noise(Fraction(2**53), minimum=Fraction(48))).noise.least == 48
    assert terms(noise=Noise(Fraction(2**53 - 1))).noise.least == 2**53 - 1
    assert masked(noise=Noise(Fraction(2**19), "devices")).noise.least == 2**19  # of two numbers
    with pytest.raises(TacitError, match="at most 524288 where devices share it"):
        masked(noise=Noise(Fraction(2**19) + 1, "devices"))


@pytest.mark.parametrize("name", ["anything-at-all", "laplace", "Gauss!", "", 1, None, ["x"]])
def test_only_distributions_verified_against_epsilon_are_accepted(name: Any) -> None:
    weak = {"guarantee": StatedGuarantee(Fraction(1, 1000), Fraction(1, 10**9), 100)}
    with pytest.raises(TacitError, match=r"noise.distribution is .*: must be one of discrete-l"):
        masked(noise=Noise(Fraction(1, 10**6), "devices", name), **weak)
    with pytest.raises(Rejected, match=r"noise.distribution is .*: must be one of discrete-l"):
        Terms.decode(mutated(masked(), ("noise", "distribution"), name or "none").encode())


def test_terms_of_rehearsals_are_valid_but_rejected_by_live_parties() -> None:
    made = masked(noise=Noise(Fraction(1), "devices", REHEARSED))
    assert Terms.decode(made.encode()) == made
    with pytest.raises(Rejected, match=r"noise\.distribution is 'rehearsed': .* Publish terms"):
        check_live(made)
    check_live(masked())
    with pytest.raises(TacitError, match="with trust two-servers and noise by servers"):
        terms(noise=Noise(Fraction(48), "servers", REHEARSED))


# Shuffled shares


def exact_slack(of: Terms) -> Fraction:
    """participations·metrics·(1 + e^ε)·2^-60 from below, with the series of e^ε."""
    epsilon, term, series = of.guarantee.epsilon, Fraction(1), Fraction(0)
    for number in range(1, 200):
        series += term
        term *= epsilon / number
    return of.guarantee.participations * len(of.answer.metrics) * (1 + series) / 2**60


@pytest.mark.parametrize(
    ("epsilon", "participations", "metrics"),
    [("1/2", 3, 2), ("1/2", 1, 1), ("1", 1, 2), ("7/3", 4, 1), ("1/1000", 2, 3), ("20", 1, 1)],
)
def test_shuffler_terms_state_at_least_the_delta_of_their_shares(
    epsilon: str, participations: int, metrics: int
) -> None:
    answer = Answer("x", tuple(f"m{n}" for n in range(metrics)))

    def made(delta: Fraction, trust: TrustModel = TrustModel.SHUFFLER) -> Terms:
        guarantee = StatedGuarantee(Fraction(epsilon), delta, participations)
        noise = Noise(Fraction(participations * metrics * 1000), "devices")
        return under(trust, "devices", answer=answer, guarantee=guarantee, noise=noise)

    smallest = smallest_shuffler_delta(Fraction(epsilon), participations, metrics)
    slack = exact_slack(made(Fraction(1, 2)))
    step = Fraction(1, 2**80)
    assert smallest - step < slack < smallest
    accepted = made(smallest)
    assert Terms.decode(accepted.encode()) == accepted
    ideal = shuffled_guarantee(
        PureDP(float(Fraction(epsilon)), participations=participations), SHUFFLE_SECURITY
    )
    assert ideal.delta * metrics == pytest.approx(float(slack), rel=1e-12)
    for delta in (Fraction(0), smallest - step):
        with pytest.raises(TacitError, match=f"delta is {delta}: must be at least {smallest} with"):
            made(delta)
        text = mutated(accepted, ("guarantee", "delta"), str(delta))
        with pytest.raises(Rejected, match=r"delta is .* with trust shuffler: .* Raise delta, or"):
            Terms.decode(text.encode())
    assert made(Fraction(0), TrustModel.TWO_SERVERS).guarantee.delta == 0


@pytest.mark.parametrize("participations", [1, 3])
def test_masking_terms_state_at_least_the_delta_of_their_rounds(participations: int) -> None:
    """Found: a masked round may reveal more than its sum with 2^-40, and terms said delta 0."""

    def made(delta: Fraction, trust: TrustModel = TrustModel.SECURE_AGGREGATION) -> Terms:
        guarantee = StatedGuarantee(Fraction(1, 2), delta, participations)
        return under(trust, "devices", guarantee=guarantee)

    smallest = Fraction(participations, 2**40)
    accepted = made(smallest)
    assert smallest_masking_delta(accepted.guarantee.participations) == smallest
    assert Terms.decode(accepted.encode()) == accepted
    for delta in (Fraction(0), smallest - Fraction(1, 2**60)):
        rule = f"delta is {delta}: must be at least {smallest} with trust secure-aggregation"
        with pytest.raises(TacitError, match=rule):
            made(delta)
        with pytest.raises(Rejected, match=rule):
            Terms.decode(mutated(accepted, ("guarantee", "delta"), str(delta)).encode())
    assert made(Fraction(0), TrustModel.TWO_SERVERS).guarantee.delta == 0
    rehearsed = Noise(Fraction(48), "devices", REHEARSED)
    pure = StatedGuarantee(Fraction(1, 2), participations=participations)
    under(TrustModel.SECURE_AGGREGATION, "devices", guarantee=pure, noise=rehearsed)


def test_failure_probabilities_of_a_round_add_to_delta() -> None:
    """With probability γ, whatever the answers are, everything is revealed: δ is γ, at every ε of
    the noise, and γ adds up over participations.
    """
    gamma, kept = 2.0**-10, DiscreteLaplace(1).pmf(np.arange(-60, 61))
    p, q = (
        np.concatenate([(1 - gamma) * np.roll(kept, moved), gamma * np.eye(2)[moved]])
        for moved in (0, 1)
    )
    p2, q2 = np.outer(p, p), np.outer(q, q)
    # np.roll wraps: 2^-80 of mass at the ends
    assert np.maximum(p - math.e * q, 0).sum() == pytest.approx(gamma, rel=1e-9)
    both = np.maximum(p2 - math.e**2 * q2, 0).sum()
    assert 1.99 * gamma < both <= 2 * gamma


def test_shuffler_terms_of_a_very_large_epsilon_are_always_rejected() -> None:
    for epsilon in (Fraction(42), Fraction(61), Fraction(10**39)):
        guarantee = StatedGuarantee(epsilon, 1 - Fraction(1, 10**30))
        with pytest.raises(TacitError, match="must be at least 1 with trust shuffler"):
            under(TrustModel.SHUFFLER, "devices", guarantee=guarantee)


def test_rehearsed_shuffler_terms_may_state_any_delta() -> None:
    pure = StatedGuarantee(Fraction(1, 2), participations=3)
    rehearsed = Noise(Fraction(48), "devices", REHEARSED)
    made = under(TrustModel.SHUFFLER, "devices", guarantee=pure, noise=rehearsed)
    with pytest.raises(Rejected, match="'rehearsed'"):
        check_live(made)


def test_split_shares_need_invitations_by_an_independent_issuer() -> None:
    """One spoilt share aborts a round; a party that invites could surround a participant."""
    guarantee = StatedGuarantee(Fraction(1, 2), Fraction(1, 10**6), participations=3)
    mixed = partial(under, TrustModel.SHUFFLER, "devices", guarantee=guarantee)
    with pytest.raises(Rejected, match="admission is 'open': must be invitation"):
        check_live(mixed())
    for key in mixed().keys:
        with pytest.raises(Rejected, match=r"issuer is .*: must be a key of no party"):
            check_live(mixed(admission="invitation", issuer=key))
    check_live(mixed(admission="invitation", issuer=public_key(KEYS[3])))


def test_a_coordinator_of_masked_rounds_cannot_issue_invitations() -> None:
    (coordinator,) = masked().keys
    with pytest.raises(Rejected, match=r"issuer is .*: must be a key of no party"):
        check_live(masked(admission="invitation", issuer=coordinator))
    check_live(masked(admission="invitation", issuer=public_key(KEYS[3])))


# Assumptions


SHARED = (DishonestAtMost(Scope.ROUND, 3, Fraction(1, 10)), ReleasedOnlyAbove(Fraction(4, 5)))
TOLERANT = Aggregation(50, Fraction(1, 5), 3, Fraction(1, 10))


@pytest.mark.parametrize(
    ("made", "view", "needed"),
    [
        (terms(), View.OTHER_SERVER, {HonestServers(1, of=2), PinnedKeys(), BoundedAdversary()}),
        (
            terms(proofs=1),
            View.OTHER_SERVER,
            {HonestServers(1, of=2), PinnedKeys(), BoundedAdversary()},
        ),
        (
            under(TrustModel.TWO_SERVERS, "devices", aggregation=TOLERANT),
            View.RELEASED_SUM,
            {HonestServers(2, of=2), SemiHonestServer(), BoundedAdversary(), *SHARED},
        ),
        (masked(), View.RELEASED_SUM, {SemiHonestServer(), BoundedAdversary(), *SHARED}),
        (
            under(TrustModel.SHUFFLER, "devices", aggregation=TOLERANT),
            View.SHUFFLED,
            {NonColludingShuffler(), BoundedAdversary(), *SHARED},
        ),
        (under(TrustModel.LOCAL, "devices"), View.MESSAGE, {HonestDevice()}),
    ],
)
def test_assumptions_are_exactly_those_of_the_trust_model(
    made: Terms, view: View, needed: set[Assumption]
) -> None:
    assert made.view is view
    assert made.assumptions == needed
    listed = json.loads(made.encode())["assumptions"]
    assert {Assumption.from_dict(one) for one in listed} == needed
    assert [one["id"] for one in listed] == sorted(one.identifier for one in needed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda listed: listed.pop(0), "lack bounded-adversary and have none too many"),
        (
            lambda listed: listed.append({"id": "trusted-server"}),
            "lack none and have trusted-server too many",
        ),
        (
            lambda listed: listed[1].update(count=2),
            "lack honest-servers and have honest-servers too many",
        ),
        (lambda listed: listed.reverse(), "does not define"),
    ],
)
def test_other_assumptions_are_rejected_by_their_identifiers(change: Any, words: str) -> None:
    document = json.loads(terms().encode())
    change(document["assumptions"])
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    with pytest.raises(Rejected, match=words):
        Terms.decode(text.encode())


def test_the_document_contains_no_sentence() -> None:
    for one in terms().assumptions | masked().assumptions:
        for made in (terms(), masked()):
            assert one.text() not in made.encode().decode()


# Successors


def test_the_fields_that_successors_may_change_are_listed() -> None:
    old = terms()
    invited = {"admission": "invitation", "issuer": public_key(KEYS[3])}
    for changes in (
        {"question": "Which?", "options": ("x", "y")},
        {"organisation": "a", "purpose": "b", "contact": "c"},
        {"first_day": old.last_day},
        {"last_day": old.first_day},
        {"parties": parties(KEYS[2], KEYS[3])},
        {"suite": HPKE_SUITES[2]},
        {"grace": 0},
        {"noise": Noise(Fraction(50))},
        {"aggregation": Aggregation(51)},
        invited,
    ):
        check_successor(old, terms(predecessor=old.digest, **changes))
    before = terms(**invited)
    check_successor(before, terms(predecessor=before.digest))


def test_where_devices_draw_the_noise_no_additional_slots_are_offered() -> None:
    for trust in (TrustModel.SECURE_AGGREGATION, TrustModel.LOCAL):
        with pytest.raises(TacitError, match="no_show is 1/4: must be 0 where devices"):
            under(trust, "devices", no_show=Fraction(1, 4))


def test_where_devices_draw_the_noise_admission_may_not_change() -> None:
    invited = {"admission": "invitation", "issuer": public_key(KEYS[3])}
    old = masked(**invited)
    check_successor(old, replace(old, predecessor=old.digest))
    for changes, words in (
        ({"admission": "open", "issuer": b""}, "admission of successor terms"),
        ({"issuer": public_key(KEYS[0])}, "issuer of successor terms"),
    ):
        with pytest.raises(Rejected, match=words):
            check_successor(old, replace(old, predecessor=old.digest, **changes))

"""Terms: one encoding, one digest, no contradictions; and checks of rounds by devices."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import each_row
from tests.terms.examples import (
    KEYS,
    NOON,
    approvals,
    masked,
    offer,
    parties,
    pinned,
    shared,
    terms,
)
from tests.terms.make_vectors import FILE, vectors

from tacit import keyfiles
from tacit.assumptions import DishonestAtMost, Scope
from tacit.errors import Rejected, TacitError
from tacit.records import MemoryRecords
from tacit.service.stated import stated_guarantee
from tacit.signatures import Signed, fingerprint, public_key, sign, verify
from tacit.terms import (
    HPKE_SUITES,
    MASKING_SUITE,
    REHEARSED,
    Account,
    Aggregation,
    Answer,
    Noise,
    Pinned,
    StatedGuarantee,
    Terms,
    approve_successor,
    canonical,
    check_successor,
    cosign,
    in_words,
    parsed,
)
from tacit.terms.words import factor
from tacit.trust import TrustModel

TEXTS = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp", "Cf")), min_size=1, max_size=20
)


# Spelling


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4, unique=True), st.integers(1, 2**32 - 1))
def test_terms_round_trip(question: str, options: list[str], window: int) -> None:
    made = terms(
        question=question,
        options=tuple(options),
        answer=replace(terms().answer, window=window),
    )
    again = Terms.decode(made.encode())
    assert again == made
    assert again.digest == made.digest
    assert again.encode() == made.encode()


PLAIN = st.recursive(
    st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abz_", min_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_a_document_has_one_encoding_in_any_key_order(document: Any) -> None:
    data = canonical(document)
    assert parsed(data) == document
    assert canonical(json.loads(data)) == data


SPELT = terms().encode()


@given(st.integers(0, len(SPELT) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_one_changed_byte_is_rejected_or_gives_other_terms(at: int, change: int) -> None:
    mutated = bytearray(SPELT)
    mutated[at] ^= change
    try:
        found = Terms.decode(bytes(mutated))
    except Rejected:
        return
    assert found.digest != terms().digest
    assert found.encode() == bytes(mutated)


@each_row(
    "data",
    [
        b" " + SPELT,
        SPELT + b"\n",
        SPELT.replace(b'"version":3', b'"version": 3'),
        SPELT.replace(b'"version":3', b'"version":3.0'),
        SPELT.replace(b'"version":3', b'"version":2'),
        SPELT.replace(b'"version":3', b'"version":true'),
        SPELT.replace(b'"version":3', b'"version":3,"wish":1'),
        SPELT.replace(b'{"admission"', b'{"admission":"open","admission"'),
        SPELT.replace(b'"epsilon":"1/2"', b'"epsilon":"2/4"'),
        SPELT.replace(b'"epsilon":"1/2"', b'"epsilon":"0.5"'),
        SPELT.replace(b'"epsilon":"1/2"', b'"epsilon":"-1/2"'),
        SPELT.replace(b'"view":"other-server"', b'"view":"nobody"'),
        SPELT.replace("ö".encode(), b"\\u00f6"),
        SPELT.replace("ö".encode(), b"\\ud800"),
        SPELT.replace("ö".encode(), "\u202e".encode()),
        SPELT.replace("ö".encode(), b"\xff"),
        SPELT.replace(b'"window":86400', b'"window":' + b"9" * 5000),
        SPELT.replace(b"2026-12-31", b"2026-13-31"),
        SPELT.replace(
            public_key(KEYS[0]).hex().encode(), public_key(KEYS[0]).hex().upper().encode()
        ),
        b"[" * 50_000,
        b"{}",
        b"[]",
        b"null",
        b"",
        b"x" * 100_000,
    ],
)
def test_other_encodings_are_rejected_with_one_kind_of_error(data: bytes) -> None:
    assert data != SPELT
    with pytest.raises(Rejected):
        Terms.decode(data)


@pytest.mark.parametrize("value", [1.5, None, True, {"A": 1}, {1: 1}, 2**53, {"a": [None]}])
def test_only_integers_and_strings_are_encoded(value: Any) -> None:
    with pytest.raises(TacitError):
        canonical(value)


@each_row(
    ("changes", "words"),
    [
        ({"noise": Noise(Fraction(47))}, "noise.minimum is 47: must be at least 48 for epsilon"),
        ({"guarantee": StatedGuarantee(Fraction(1, 2), participations=4)}, "must be at least 64"),
        ({"guarantee": StatedGuarantee(Fraction(0))}, "epsilon is 0: must be > 0"),
        (
            {"guarantee": StatedGuarantee(Fraction(1), Fraction(1, 10))},
            "delta is 1/10: must be 0 where",
        ),
        ({"noise": Noise(48)}, "noise.scale is 48: must be a Fraction"),  # type: ignore[arg-type]
        ({"noise": Noise(Fraction(10**40))}, "not a fraction"),  # too long to be written
        ({"parties": parties(KEYS[0], KEYS[0])}, "same key"),
        ({"parties": parties(KEYS[0], KEYS[1])[::-1]}, "in this order"),
        ({"parties": parties(KEYS[0], KEYS[1])[:1]}, "coordinator, helper"),
        (
            {"trust": TrustModel.SECURE_AGGREGATION, "suite": MASKING_SUITE},
            "must be one of two-serv",
        ),
        ({"aggregation": Aggregation(0)}, "minimum_batch_size is 0"),
        ({"options": ("a", "a")}, "must be at least one, all distinct"),
        ({"options": ()}, "must be at least one"),
        ({"question": " "}, "question is ' '"),
        ({"question": "a\x00b"}, "invisible characters"),
        ({"admission": "friends"}, "open or invitation"),
        ({"first_day": date(2027, 1, 1)}, "must be at most last_day"),
        ({"predecessor": b"x"}, "32 bytes"),
        ({"answer": Answer("x", levels=0)}, "levels is 0"),
        ({"answer": Answer("x", low=Fraction(1))}, "must be below 1"),
    ],
)
def test_contradictory_terms_are_rejected(changes: Any, words: str) -> None:
    with pytest.raises(TacitError, match=words):
        terms(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"noise": Noise(Fraction(47), "devices")},
            "noise.minimum is 47: must be at least 48 for epsilon",
        ),
        (
            {"guarantee": StatedGuarantee(Fraction(1, 2), Fraction(1), 3)},
            "delta is 1: must be at least 0",
        ),
        ({"missing_fraction": Fraction(1)}, "missing_fraction is 1: must be .* below 1"),
        ({"dishonest_fraction": Fraction(1)}, "dishonest_fraction is 1: must be .* below 1"),
        ({"missing_fraction": Fraction(-1, 5)}, "must be at least 0"),
    ],
)
def test_terms_with_insufficient_shared_noise_are_rejected(changes: Any, words: str) -> None:
    with pytest.raises(TacitError, match=words):
        masked(**changes)


def test_the_text_of_terms_states_the_minimum_noise_of_a_round() -> None:
    """Found: the scale was printed, though rounds may announce less."""
    least = Noise(Fraction(60), minimum=Fraction(97, 2))
    assert "noise of scale 97/2 or more, added by servers" in "\n".join(
        in_words(terms(noise=least))
    )
    rehearsed = Noise(Fraction(7), "devices", REHEARSED, Fraction(40))
    assert "rehearsed noise of variance 40 or more" in "\n".join(in_words(masked(noise=rehearsed)))


def test_the_text_of_terms_is_complete_and_rounds_the_guarantee_up() -> None:
    text = "\n".join(in_words(terms()))
    for said in (
        terms().question,
        "a note; a bell",
        "from 0 to 60 in 4 steps, about what happens within 1 day",
        "up to 3 times, from 2026-11-01 to 2026-12-31",
        "more than 1.65 times more or less likely.",  # e^(1/2) = 1.6487…
        "for all of up to 3 times together",
        "One of the two servers must be honest",
        "(1/2, 0)-DP towards the other server, the collector and all other participants together",
        "discrete-laplace noise of scale 48 or more, added by servers",
        *(f"It assumes that {one.text()}." for one in terms().assumptions),
        "fewer than 50 reports",
        "encrypted with hpke-x25519-aes128gcm; round keys are destroyed at most 1 day after",
        fingerprint(public_key(KEYS[1])),
        "That you take part can be seen",
        "also more than once",
    ):
        assert said in text
    other = masked(
        guarantee=StatedGuarantee(Fraction(30), Fraction(1, 10**6)),
        answer=Answer("x", window=90),
        admission="invitation",
        issuer=public_key(KEYS[3]),
        organisation="The walking club",
        purpose="a better reminder",
        contact="mail@club.example",
        predecessor=bytes(32),
    )
    text = "\n".join(in_words(other))
    for said in (
        "hides it under masks",
        "e^30",
        "With a probability of at most 1 in 1,000,000, more than that may be learned.",
        "The coordinator must follow the protocol, and at most 10% of a round's participants (3 if",
        "within 90 seconds",
        f"invited by the holder of the key {fingerprint(public_key(KEYS[3]))}",
        "Who asks: The walking club",
        "What for: a better reminder",
        "Whom to write to: mail@club.example",
        "0000",
        "It assumes that the aggregator follows the protocol and releases nothing but the sum.",
        "It assumes that at most 10% of the participants of a batch (3 if that is more) are",
        "It assumes that a batch is released only if at least 80% of its reports arrive.",
    ):
        assert said in text
    assert "two servers" not in text
    assert "rehearsal" not in text
    unverified = replace(other, noise=Noise(Fraction(48), "devices", REHEARSED))
    said = (
        "These are the terms of a rehearsal: nobody has checked that the noise keeps this promise"
    )
    assert said in "\n".join(in_words(unverified))
    assert stated_guarantee(unverified) is None  # in --json of `tacit terms show`
    assert stated_guarantee(other) is not None


@given(st.fractions(min_value=Fraction(1, 1000), max_value=20, max_denominator=1000))
def test_the_printed_factor_is_never_below_the_true_one(epsilon: Fraction) -> None:
    printed = float(factor(epsilon).replace(",", ""))
    assert math.exp(epsilon) <= printed < 1.0002 * math.exp(epsilon) + 0.011


# Pinning


def test_terms_are_pinned_only_with_both_signatures_under_the_pinned_keys() -> None:
    shown = terms()
    good = tuple(cosign(shown, key) for key in KEYS[:2])
    assert Pinned(shown, good, shown.keys).terms == shown
    own = (shown.keys[0], public_key(KEYS[2]))  # what the device has from elsewhere
    for signatures, keys in (
        (good, own),
        (good, own[::-1]),
        (good[::-1], shown.keys),
        (good[:1], shown.keys),
        ((), ()),
        (good, shown.keys[:1]),
        ((good[0], bytes(64)), shown.keys),
        ((good[0], sign(Signed.ROUND, shown.encode(), KEYS[1])), shown.keys),
        (tuple(cosign(terms(question="?"), key) for key in KEYS[:2]), shown.keys),
    ):
        with pytest.raises(Rejected):
            Pinned(shown, signatures, keys)
    with pytest.raises(Rejected, match=r"signatures is 1: must be 2.*tacit terms cosign"):
        Pinned(shown, good[:1], shown.keys)


def test_a_coordinator_that_replaces_the_helpers_key_is_rejected() -> None:
    """The terms are signed by those they name, who are not those that the device has pinned."""
    forged = terms(parties=parties(KEYS[0], KEYS[2]))
    signatures = (cosign(forged, KEYS[0]), cosign(forged, KEYS[2]))
    with pytest.raises(Rejected, match="must be the pinned key"):
        Pinned(forged, signatures, terms().keys)


def test_a_signature_of_one_kind_is_invalid_for_another() -> None:
    message = b"anything"
    for kind in Signed:
        signature = sign(kind, message, KEYS[0])
        for other in Signed:
            if other is kind:
                verify(other, message, signature, public_key(KEYS[0]), "it")
            else:
                with pytest.raises(Rejected, match="did not sign"):
                    verify(other, message, signature, public_key(KEYS[0]), "it")


# Rounds


def test_a_valid_round_costs_levels_times_metrics_over_scale() -> None:
    assert pinned().check(offer()) == Fraction(8, 48)
    assert pinned().check(offer(scale=Fraction(100))) == Fraction(8, 100)
    assert pinned().check(offer(grace=86_400)) == Fraction(8, 48)


def test_a_round_with_noise_of_devices_costs_its_part_of_epsilon() -> None:
    held = pinned(masked())
    assert held.check(shared()) == held.terms.cost == Fraction(1, 6)
    for divisor in (1, 69, 70):
        assert held.check(shared(divisor=divisor, total=Fraction(49))) == Fraction(1, 6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"divisor": 71}, "share divisor of the round is 71: must be from 1 to 70, .* less 10"),
        ({"divisor": 100}, "must be from 1 to 70"),
        ({"divisor": 0}, "share divisor of the round is 0"),
        ({"divisor": None}, "is missing: must be announced"),
        ({"total": None}, "is missing: must be announced"),
        ({"minimum": 79}, "must be at least 80: 20 of 100"),
        ({"minimum": 79, "divisor": 1}, "must be at least 80"),
        ({"slots": 120}, "must be at least 96: 24 of 120"),
        ({"slots": 101}, "must be at least 81"),  # 20 of 101 may be missing
        (
            {"total": Fraction(4799, 100)},
            "total noise of the round is 4799/100: must be at least 48",
        ),
        ({"scale": Fraction(48)}, "adds the noise of the round is servers: must be devices"),
        ({"suite": HPKE_SUITES[0]}, "suite of the round is hpke-x25519-aes128gcm"),
    ],
)
def test_noise_of_devices_is_checked_against_missing_and_dishonest_ones(
    changes: Any, words: str
) -> None:
    with pytest.raises(Rejected, match=words):
        pinned(masked()).check(shared(**changes))


def test_in_the_local_model_every_device_draws_all_noise() -> None:
    """The adversary sees each message alone, so that no other device's share helps."""
    local = pinned(
        masked(
            trust=TrustModel.LOCAL,
            suite=HPKE_SUITES[0],
            aggregation=Aggregation(50),
            guarantee=terms().guarantee,
        )
    )
    about = {"terms": local.terms.digest, "kind": "local", "suite": HPKE_SUITES[0]}
    asked = shared(**about, slots=1000, minimum=1000, divisor=1, modulus=None)
    assert local.check(asked) == Fraction(1, 6)
    for divisor in (2, 1000):
        with pytest.raises(Rejected, match=rf"divisor of the round is {divisor}: must be 1 with"):
            local.check(replace(asked, divisor=divisor))


def test_reports_without_a_slot_count_for_no_noise_share() -> None:
    held = pinned(masked())
    asked = shared(slots=10, minimum=1000, divisor=900)
    with pytest.raises(Rejected, match="minimum of the round is 1000: must be from 1 to 10"):
        held.check(asked)
    with pytest.raises(Rejected, match="must be from 1 to 7,"):  # by itself, too
        held._check_shares(asked)
    held._check_shares(replace(asked, divisor=7))


def test_more_reports_allow_more_shares_and_small_rounds_count_dishonest_ones() -> None:
    held = pinned(masked())
    assert held.check(shared(minimum=90, divisor=80))
    with pytest.raises(Rejected, match="must be from 1 to 80"):
        held.check(shared(minimum=90, divisor=81))
    few = pinned(masked(minimum_batch_size=1))  # at least 3 are dishonest, whatever the size
    asked = shared(terms=few.terms.digest, slots=10, minimum=8, divisor=5)
    assert few.check(asked)
    with pytest.raises(Rejected, match="must be from 1 to 5, the minimum 8 less 3"):
        few.check(replace(asked, divisor=6))
    half = pinned(masked(minimum_batch_size=1, missing_fraction=Fraction(1, 2)))
    with pytest.raises(
        Rejected, match="must be from 1 to 0"
    ):  # of two one is honest, and may be gone
        half.check(replace(asked, slots=2, minimum=1, divisor=1, terms=half.terms.digest))


@given(
    st.integers(1, 400),
    st.fractions(0, Fraction(49, 50), max_denominator=50),
    st.integers(0, 40),
    st.fractions(0, Fraction(49, 50), max_denominator=50),
    st.data(),
)
def test_a_divisor_is_accepted_exactly_if_honest_reports_suffice(
    slots: int, missing: Fraction, count: int, part: Fraction, data: Any
) -> None:
    """Against the definition, in fractions."""
    about = {"missing_fraction": missing, "dishonest_count": count, "dishonest_fraction": part}
    held = pinned(masked(minimum_batch_size=1, **about))
    minimum, divisor = data.draw(st.integers(1, slots)), data.draw(st.integers(1, slots))
    dishonest = min(max(count, math.floor(part * slots)), slots - 1)
    good = minimum >= slots - math.floor(missing * slots) and divisor <= minimum - dishonest
    assert DishonestAtMost(Scope.ROUND, count, part).limit(slots) == dishonest
    asked = shared(terms=held.terms.digest, slots=slots, minimum=minimum, divisor=divisor)
    if good:
        assert held.check(asked) == Fraction(1, 6)
        return
    with pytest.raises(Rejected, match=r"must be (at least|from 1 to)"):
        held.check(asked)


def test_the_first_and_last_option_and_second_are_accepted() -> None:
    held = pinned()
    first, after = held.terms.first_second, held.terms.last_second
    for option in range(len(held.terms.options)):
        for closes in (first, after - 1):
            assert held.check(offer(option=option, closes=closes)) == Fraction(8, 48)
    for closes in (first - 1, after):
        with pytest.raises(Rejected, match="days of the terms"):
            held.check(offer(closes=closes))


@each_row(
    ("changes", "words"),
    [
        ({"terms": bytes(32)}, "terms of the round"),
        ({"kind": "masking"}, "kind of the round is masking"),
        ({"kind": "verified"}, "kind of the round is verified"),
        ({"suite": HPKE_SUITES[1]}, "suite of the round is hpke-x25519-chacha20poly1305"),
        ({"suite": HPKE_SUITES[2]}, "suite of the round is hpke-mlkem768x25519"),
        ({"grace": 86_401}, "grace of the round is 86401: must be from 0 to 86400"),
        ({"grace": -1}, "grace of the round is -1: must be from 0"),
        ({"minimum": 201}, "minimum of the round is 201: must be from 1 to 200"),
        ({"slots": 0}, "minimum of the round is 50: must be from 1 to 0"),
        ({"slots": -1, "minimum": -1}, "minimum of the round is -1: must be from 1"),
        ({"slots": 0, "minimum": 0}, "minimum of the round is 0: must be from 1"),
        ({"option": 2}, "option of the round is 2: must be from 0 to 1"),
        ({"option": -1}, "option of the round is -1"),
        ({"minimum": 49}, "minimum batch size of 50"),
        ({"levels": 5}, "number of levels"),
        ({"levels": 3}, "number of levels"),
        ({"metrics": 1}, "number of metrics"),
        ({"metrics": 3}, "number of metrics"),
        ({"window": 0}, "observation window"),
        ({"closes": NOON - 90 * 86_400}, "days of the terms"),
        ({"closes": NOON + 90 * 86_400}, "days of the terms"),
        ({"modulus": 800}, "modulus of the round is 800: must be above 800"),
        ({"scale": Fraction(4799, 100)}, "must be at least 48"),
        ({"scale": Fraction(0)}, "must be at least 48"),
        ({"scale": Fraction(-48)}, "must be at least 48"),
        ({"scale": None}, "is devices: must be servers"),
    ],
)
def test_a_weaker_round_is_rejected_with_a_message(changes: Any, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        pinned().check(offer(**changes))


@given(st.fractions(min_value=Fraction(1, 100), max_value=100))
def test_a_scale_is_accepted_exactly_from_the_guarantee_on(scale: Fraction) -> None:
    if scale * Fraction(1, 2) >= 4 * 2 * 3:
        assert pinned().check(offer(scale=scale)) * 3 <= Fraction(1, 2)
    else:
        with pytest.raises(Rejected):
            pinned().check(offer(scale=scale))


# Successors


def test_successor_terms_change_options_and_keys_with_both_signatures() -> None:
    old = pinned()
    new = terms(
        options=("a note", "a bell", "a song"),
        parties=parties(KEYS[0], KEYS[2]),
        predecessor=old.terms.digest,
    )
    signatures = (cosign(new, KEYS[0]), cosign(new, KEYS[2]))
    after = old.succeeded_by(new, signatures, approvals(new))
    assert after.keys == new.keys
    with pytest.raises(Rejected, match="terms of the round"):
        after.check(offer())


@each_row(
    ("changes", "words"),
    [
        ({"answer": replace(terms().answer, window=1)}, "answer of successor terms is"),
        ({"answer": replace(terms().answer, levels=3)}, "answer of successor terms is"),
        ({"answer": replace(terms().answer, metrics=("walked",))}, "answer of successor terms is"),
        (
            {"guarantee": StatedGuarantee(Fraction(3, 5), participations=3)},
            "epsilon of successor terms is 3/5: must be at most 1/2",
        ),
        (
            {"aggregation": Aggregation(49)},
            "minimum batch size of successor terms is 49: must be at least 50",
        ),
        (
            {"noise": Noise(Fraction(48), "devices"), "aggregation": Aggregation(50)},
            "party that adds the noise of successor terms",
        ),
        (
            {
                "guarantee": StatedGuarantee(Fraction(1, 2), participations=4),
                "noise": Noise(Fraction(64)),
            },
            "participations of successor terms is 4: must be at most 3",
        ),
        ({"predecessor": bytes(32)}, "predecessor is 0000"),
        ({"predecessor": b""}, "predecessor is empty: must be"),
    ],
)
def test_devices_and_parties_reject_weaker_successors(changes: Any, words: str) -> None:
    old = pinned()
    new = terms(**{"predecessor": old.terms.digest} | changes)
    with pytest.raises(Rejected, match=words):
        old.succeeded_by(new, tuple(cosign(new, key) for key in KEYS[:2]), approvals(new))
    with pytest.raises(Rejected, match=words):
        approve_successor(old.terms, new, KEYS[0], MemoryRecords())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"noise": Noise(Fraction(59))},
            "noise scale of successor terms is 59: must be at least 60",
        ),
        ({"proofs": 1}, "proofs of successor terms is 1: must be 0"),
        ({"grace": 86_401}, "grace of successor terms is 86401: must be at most 86400"),
        ({"suite": HPKE_SUITES[1]}, "suite of successor terms"),
        (
            {"noise": Noise(Fraction(60), minimum=Fraction(50))},
            "minimum of the noise of successor terms is 50: must be at least 60",
        ),
    ],
)
def test_successors_keep_parameters_irrelevant_to_the_guarantee(changes: Any, words: str) -> None:
    """Noise of 48 would give the guarantee; participants were told 60."""
    old = terms(noise=Noise(Fraction(60)))
    kept = {"predecessor": old.digest, "noise": old.noise}
    approve_successor(old, terms(**kept), KEYS[0], MemoryRecords())
    with pytest.raises(Rejected, match=words):
        approve_successor(old, terms(**kept | changes), KEYS[0], MemoryRecords())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claim": "semi-honest"}, "claim of successor terms is semi-honest"),
        (
            {"missing_fraction": Fraction(1, 10)},
            "missing fraction of successor terms is 1/10: must be at least",
        ),
        ({"dishonest_count": 2}, "dishonest count of successor terms is 2: must be at least 3"),
        ({"dishonest_fraction": Fraction(1, 20)}, "dishonest fraction of successor terms is 1/20"),
        (
            {"guarantee": StatedGuarantee(Fraction(1, 2), Fraction(1, 10**5), 3)},
            "delta of successor terms is 1/100000: must be at most",
        ),
        (
            {"noise": Noise(Fraction(48), "devices", REHEARSED)},
            "distribution of the noise of successor terms",
        ),
        (
            {"admission": "invitation", "issuer": public_key(KEYS[3])},
            "admission of successor terms",
        ),
    ],
)
def test_successors_of_masked_terms_tolerate_no_less(changes: Any, words: str) -> None:
    old = masked()
    check_successor(old, masked(predecessor=old.digest))
    new = masked(predecessor=old.digest, **changes)
    with pytest.raises(Rejected, match=words):
        check_successor(old, new)


def test_successors_need_the_approval_of_both_predecessors() -> None:
    old = pinned()
    new = terms(parties=parties(KEYS[0], KEYS[2]), predecessor=old.terms.digest)
    signatures = (cosign(new, KEYS[0]), cosign(new, KEYS[2]))
    good = approvals(new)
    for given_ in ([], good[:1], good[::-1], [good[0], good[0]], list(signatures)):
        with pytest.raises(Rejected):
            old.succeeded_by(new, signatures, given_)


def test_a_party_approves_one_successor_per_digest() -> None:
    old, records = terms(), MemoryRecords()
    one = terms(options=("x",), predecessor=old.digest)
    other = terms(options=("y",), predecessor=old.digest)
    first = approve_successor(old, one, KEYS[0], records)
    assert approve_successor(old, one, KEYS[0], records) == first
    with pytest.raises(Rejected, match="terms have one successor"):
        approve_successor(old, other, KEYS[0], records)
    with pytest.raises(TacitError, match="must be the long-term key of a party"):
        approve_successor(old, one, KEYS[3], records)


def test_a_rotated_key_is_introduced_by_approved_successor_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper with a new key: devices follow because both old keys signed the successor."""
    monkeypatch.setattr(keyfiles, "_COST", 1 << 4)
    lock = keyfiles.Passphrase("correct horse battery staple")
    keyfiles.save_signing_key(tmp_path / "key", KEYS[1], lock)
    new = keyfiles.rotate_signing_key(tmp_path / "key", lock)
    (kept,) = (path for path in tmp_path.iterdir() if path.name != "key")
    before = pinned()
    after = terms(parties=parties(KEYS[0], new), predecessor=before.terms.digest)
    old = keyfiles.load_signing_key(kept, lock)
    approved = [
        approve_successor(before.terms, after, key, MemoryRecords()) for key in (KEYS[0], old)
    ]
    signatures = (cosign(after, KEYS[0]), cosign(after, new))
    assert before.succeeded_by(after, signatures, approved).keys[1] == public_key(new)


# The ledger


@given(st.lists(st.fractions(min_value=Fraction(1, 50), max_value=1), max_size=30))
def test_a_budget_never_exceeds_its_limits(costs: list[Fraction]) -> None:
    account, paid, taken = Account(Fraction(1, 2), 9), Fraction(0), 0
    for cost in costs:
        try:
            account, paid, taken = account.charged(cost), paid + cost, taken + 1
        except Rejected:
            assert paid + cost > account.limit or taken == account.participations
        assert (account.spent, account.taken) == (paid, taken)
        assert taken <= account.participations
        assert paid <= Fraction(1, 2)


def test_a_budget_can_be_spent_exactly_and_no_round_is_free() -> None:
    account = Account(Fraction(1), 9, Fraction(2, 3), 1)
    assert account.charged(Fraction(1, 3)).spent == 1
    with pytest.raises(Rejected, match="epsilon of the round is"):
        account.charged(Fraction(1, 3) + Fraction(1, 10**30))
    for cost in (Fraction(0), Fraction(-1, 3)):
        with pytest.raises(TacitError, match="must be > 0"):
            account.charged(cost)


def test_participations_are_counted_at_any_cost() -> None:
    tiny = Fraction(1, 10**9)
    guarantee = terms().guarantee
    account = Account(guarantee.epsilon, guarantee.participations)  # three times
    for taken in (1, 2, 3):
        account = account.charged(tiny)
        assert account.taken == taken
    with pytest.raises(Rejected, match="number of participations is 3: must be below 3"):
        account.charged(tiny)
    with pytest.raises(Rejected, match="epsilon of the round is 1"):
        Account(guarantee.epsilon, 1).charged(Fraction(1))


def test_terms_need_neither_numpy_nor_scipy() -> None:
    code = "import sys, tacit.terms; print({'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_committed_vectors_match_the_terms() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == vectors()


def test_the_vectors_verify_with_the_standard_library_alone() -> None:
    """Digests and costs, computed a second time from the file."""
    held = json.loads(FILE.read_text(encoding="utf-8"))
    for entry in held["terms"]:
        data = entry["canonical"].encode()
        assert hashlib.sha256(data).hexdigest() == entry["digest"]
        assert data.decode() == json.dumps(
            json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
    for entry in held["offers"]:
        document = json.loads(held["terms"][0]["canonical"])
        scale, epsilon = Fraction(entry["scale"]), Fraction(document["guarantee"]["epsilon"])
        levels, metrics = entry["levels"], entry["metrics"]
        enough = scale * epsilon >= levels * metrics * document["guarantee"]["participations"]
        assert enough == (entry["cost"] != "refused")
        assert not enough or Fraction(entry["cost"]) == Fraction(levels * metrics) / scale


@pytest.mark.parametrize("epsilon", ["1/1000", "1", "7", "461/50", "37/4", "10", "13", "15", "20"])
def test_the_factor_shown_to_participants_is_never_below_the_guarantee(epsilon: str) -> None:
    guarantee = Fraction(epsilon)
    shown = float(factor(guarantee).replace(",", ""))
    assert mpmath.exp(mpmath.mpf(guarantee.numerator) / guarantee.denominator) <= shown
    assert shown <= math.exp(guarantee) * 1.0001 + 0.011

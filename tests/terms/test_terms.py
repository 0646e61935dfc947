"""Terms: one spelling, one digest, no contradictions; and what a device refuses because of them."""

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
from tests.terms.examples import KEYS, NOON, approvals, masked, offer, parties, pinned, terms
from tests.terms.make_vectors import FILE, vectors

from tacit import keyfiles
from tacit.checks import Refusal, TacitError
from tacit.cli.parties import _guarantee
from tacit.records import MemoryRecords
from tacit.signatures import Signed, fingerprint, public_key, sign, verify
from tacit.terms import (
    Account,
    Answer,
    Middle,
    Noise,
    Pinned,
    Promise,
    Terms,
    approve_successor,
    canonical,
    check_successor,
    cosign,
    in_words,
    parsed,
)
from tacit.terms.words import factor

TEXTS = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp", "Cf")), min_size=1, max_size=20
)


# Spelling


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4, unique=True), st.integers(1, 2**32 - 1))
def test_terms_are_read_back_as_they_were_written(
    question: str, options: list[str], window: int
) -> None:
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
def test_a_document_has_one_spelling_whatever_the_order_of_its_keys(document: Any) -> None:
    data = canonical(document)
    assert parsed(data) == document
    assert canonical(json.loads(data)) == data


SPELT = terms().encode()


@given(st.integers(0, len(SPELT) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_one_changed_byte_is_refused_or_makes_other_terms(at: int, change: int) -> None:
    mutated = bytearray(SPELT)
    mutated[at] ^= change
    try:
        found = Terms.decode(bytes(mutated))
    except Refusal:
        return
    assert found.digest != terms().digest
    assert found.encode() == bytes(mutated)


@pytest.mark.parametrize(
    "data",
    [
        b" " + SPELT,
        SPELT + b"\n",
        SPELT.replace(b'"version":2', b'"version": 2'),
        SPELT.replace(b'"version":2', b'"version":2.0'),
        SPELT.replace(b'"version":2', b'"version":3'),
        SPELT.replace(b'"version":2', b'"version":true'),
        SPELT.replace(b'"version":2', b'"version":2,"wish":1'),
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
def test_another_spelling_is_refused_and_nothing_else_raised(data: bytes) -> None:
    assert data != SPELT
    with pytest.raises(Refusal):
        Terms.decode(data)


@pytest.mark.parametrize("value", [1.5, None, True, {"A": 1}, {1: 1}, 2**53, {"a": [None]}])
def test_only_integers_and_strings_are_spelt(value: Any) -> None:
    with pytest.raises(TacitError):
        canonical(value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": Noise(Fraction(47))}, "need a scale of at least 48"),
        ({"promise": Promise(Fraction(1, 2), participations=4)}, "at least 64"),
        ({"promise": Promise(Fraction(0))}, "must be above 0"),
        ({"promise": Promise(Fraction(1), Fraction(1, 10))}, "delta is 0"),
        ({"noise": Noise(48)}, "no fraction"),  # type: ignore[arg-type]
        ({"noise": Noise(Fraction(10**40))}, "no fraction"),  # too long to be written
        ({"parties": parties(KEYS[0], KEYS[0])}, "key of its own"),
        ({"parties": parties(KEYS[0], KEYS[1])[::-1]}, "in this order"),
        ({"parties": parties(KEYS[0], KEYS[1])[:1]}, "coordinator, helper"),
        ({"middle": Middle("masking", 50)}, "none of two-servers with noise by servers"),
        ({"middle": Middle("two-servers", 0)}, "crowd is 0"),
        ({"options": ("a", "a")}, "name of its own"),
        ({"options": ()}, "there must be one"),
        ({"question": " "}, "the question"),
        ({"question": "a\x00b"}, "cannot be seen"),
        ({"admission": "friends"}, "open or invitation"),
        ({"first_day": date(2027, 1, 1)}, "after the last"),
        ({"predecessor": b"x"}, "32 bytes"),
        ({"answer": Answer("x", levels=0)}, "levels is 0"),
        ({"answer": Answer("x", low=Fraction(1))}, "must rise"),
    ],
)
def test_terms_that_contradict_themselves_are_refused(changes: Any, words: str) -> None:
    with pytest.raises(TacitError, match=words):
        terms(**changes)


def test_terms_in_words_say_everything_and_round_the_promise_up() -> None:
    text = "\n".join(in_words(terms()))
    for said in (
        terms().question,
        "a note; a bell",
        "from 0 to 60 in 4 steps, about what happens within 1 day",
        "up to 3 times, from 2026-11-01 to 2026-12-31",
        "at most 1.65 times as likely",  # e^(1/2) = 1.6487…
        terms().claim(),
        "fewer than 50 reports",
        fingerprint(public_key(KEYS[1])),
        "That you take part can be seen",
        "also more than once",
    ):
        assert said in text
    other = terms(
        middle=Middle("masking", 1),
        noise=Noise(Fraction(48), "devices"),
        promise=Promise(Fraction(30), Fraction(1, 10**6)),
        parties=parties(KEYS[0], KEYS[1])[:1],
        answer=Answer("x", window=90),
        admission="invitation",
        predecessor=bytes(32),
    )
    text = "\n".join(in_words(other))
    for said in (
        "masked",
        "e^30",
        "at most 1/1000000",
        "within 90 seconds",
        "invited",
        "0000",
        "invent",
    ):
        assert said in text
    assert "two servers" not in text
    assert "Nobody has checked" not in text
    unknown = replace(other, noise=Noise(Fraction(48), "devices", "skellam"))
    said = "Nobody has checked here that skellam noise keeps this promise"
    assert said in "\n".join(in_words(unknown))
    assert _guarantee(unknown) is None  # in --json of `tacit terms show`
    assert _guarantee(other) is not None


@given(st.fractions(min_value=Fraction(1, 1000), max_value=20, max_denominator=1000))
def test_the_factor_in_words_is_never_below_the_true_one(epsilon: Fraction) -> None:
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
        with pytest.raises(Refusal):
            Pinned(shown, signatures, keys)


def test_a_coordinator_that_names_its_own_key_as_the_helpers_is_refused() -> None:
    """The terms are signed by whoever they name, but not named is whom the device has pinned."""
    forged = terms(parties=parties(KEYS[0], KEYS[2]))
    signatures = (cosign(forged, KEYS[0]), cosign(forged, KEYS[2]))
    with pytest.raises(Refusal, match="somebody stands between"):
        Pinned(forged, signatures, terms().keys)


def test_a_signature_of_one_kind_is_none_of_another() -> None:
    message = b"anything"
    for kind in Signed:
        signature = sign(kind, message, KEYS[0])
        for other in Signed:
            if other is kind:
                verify(other, message, signature, public_key(KEYS[0]), "it")
            else:
                with pytest.raises(Refusal, match="did not sign"):
                    verify(other, message, signature, public_key(KEYS[0]), "it")


# Rounds


def test_a_round_that_keeps_to_the_terms_costs_levels_times_metrics_over_scale() -> None:
    assert pinned().check(offer()) == Fraction(8, 48)
    assert pinned().check(offer(scale=Fraction(100))) == Fraction(8, 100)


def test_a_round_of_noise_that_devices_add_costs_its_part_of_epsilon() -> None:
    held = pinned(masked())
    asked = offer(terms=held.terms.digest, kind="masking", scale=None)
    assert held.check(asked) == held.terms.cost == Fraction(1, 6)


def test_the_first_and_last_option_and_second_of_the_terms_are_among_them() -> None:
    held = pinned()
    first, after = held.terms.first_second, held.terms.last_second
    for option in range(len(held.terms.options)):
        for closes in (first, after - 1):
            assert held.check(offer(option=option, closes=closes)) == Fraction(8, 48)
    for closes in (first - 1, after):
        with pytest.raises(Refusal, match="days of the terms"):
            held.check(offer(closes=closes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"terms": bytes(32)}, "terms of the round"),
        ({"kind": "masking"}, "intermediary"),
        ({"option": 2}, "option 2"),
        ({"option": -1}, "option -1"),
        ({"minimum": 49}, "crowd of at least 50"),
        ({"levels": 5}, "number of levels"),
        ({"levels": 3}, "number of levels"),
        ({"metrics": 1}, "number of metrics"),
        ({"metrics": 3}, "number of metrics"),
        ({"window": 0}, "observation window"),
        ({"closes": NOON - 90 * 86_400}, "days of the terms"),
        ({"closes": NOON + 90 * 86_400}, "days of the terms"),
        ({"modulus": 800}, "no room"),
        ({"scale": Fraction(4799, 100)}, "needs at least 48"),
        ({"scale": Fraction(0)}, "needs at least 48"),
        ({"scale": Fraction(-48)}, "needs at least 48"),
        ({"scale": None}, "servers add the noise"),
    ],
)
def test_a_weaker_round_is_refused_in_words(changes: Any, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        pinned().check(offer(**changes))


@given(st.fractions(min_value=Fraction(1, 100), max_value=100))
def test_a_scale_is_accepted_exactly_from_the_promise_on(scale: Fraction) -> None:
    if scale * Fraction(1, 2) >= 4 * 2 * 3:
        assert pinned().check(offer(scale=scale)) * 3 <= Fraction(1, 2)
    else:
        with pytest.raises(Refusal):
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
    with pytest.raises(Refusal, match="terms of the round"):
        after.check(offer())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"answer": replace(terms().answer, window=1)}, "change the answer"),
        ({"answer": replace(terms().answer, levels=3)}, "change the answer"),
        ({"answer": replace(terms().answer, metrics=("walked",))}, "change the answer"),
        ({"promise": Promise(Fraction(3, 5), participations=3)}, "a larger epsilon"),
        ({"middle": Middle(crowd=49)}, "a smaller crowd"),
        ({"noise": Noise(Fraction(48), "devices")}, "who adds the noise"),
        (
            {"promise": Promise(Fraction(1, 2), participations=4), "noise": Noise(Fraction(64))},
            "more participations",
        ),
        ({"predecessor": bytes(32)}, "do not name"),
        ({"predecessor": b""}, "do not name"),
    ],
)
def test_weaker_successors_are_refused_by_devices_and_parties(changes: Any, words: str) -> None:
    old = pinned()
    new = terms(**{"predecessor": old.terms.digest} | changes)
    with pytest.raises(Refusal, match=words):
        old.succeeded_by(new, tuple(cosign(new, key) for key in KEYS[:2]), approvals(new))
    with pytest.raises(Refusal, match=words):
        approve_successor(old.terms, new, KEYS[0], MemoryRecords())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": Noise(Fraction(59))}, "noise of smaller scale"),
        ({"middle": Middle("verified", 50)}, "change the intermediary"),
    ],
)
def test_successors_keep_what_the_promise_would_not_need(changes: Any, words: str) -> None:
    """Noise of 48 would earn the promise; people were told 60."""
    old = terms(noise=Noise(Fraction(60)))
    kept = {"predecessor": old.digest, "noise": old.noise}
    approve_successor(old, terms(**kept), KEYS[0], MemoryRecords())
    with pytest.raises(Refusal, match=words):
        approve_successor(old, terms(**kept | changes), KEYS[0], MemoryRecords())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claim": "semi-honest"}, "change the claim"),
        ({"dropout": Fraction(1, 10)}, "less dropout withstood"),
        ({"corrupt": Fraction(1, 10)}, "fewer corrupt people withstood"),
        ({"delta": Fraction(1, 10**5)}, "a larger delta"),
        ({"law": "skellam"}, "change the who adds the noise"),
    ],
)
def test_successors_of_masked_sums_withstand_no_less(changes: Any, words: str) -> None:
    old = masked()
    check_successor(old, masked(predecessor=old.digest))
    new = masked(predecessor=old.digest, **changes)
    with pytest.raises(Refusal, match=words):
        check_successor(old, new)


def test_successors_need_the_approval_of_both_predecessors() -> None:
    old = pinned()
    new = terms(parties=parties(KEYS[0], KEYS[2]), predecessor=old.terms.digest)
    signatures = (cosign(new, KEYS[0]), cosign(new, KEYS[2]))
    good = approvals(new)
    for given_ in ([], good[:1], good[::-1], [good[0], good[0]], list(signatures)):
        with pytest.raises(Refusal):
            old.succeeded_by(new, signatures, given_)


def test_a_party_approves_one_successor_of_a_digest_ever() -> None:
    old, records = terms(), MemoryRecords()
    one = terms(options=("x",), predecessor=old.digest)
    other = terms(options=("y",), predecessor=old.digest)
    first = approve_successor(old, one, KEYS[0], records)
    assert approve_successor(old, one, KEYS[0], records) == first
    with pytest.raises(Refusal, match="another successor"):
        approve_successor(old, other, KEYS[0], records)
    with pytest.raises(TacitError, match="none of those"):
        approve_successor(old, one, KEYS[3], records)


def test_a_rotated_key_is_named_by_successor_terms_that_the_old_one_approves(
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
def test_an_account_never_exceeds_the_smallest_epsilon_that_was_shown(
    costs: list[Fraction],
) -> None:
    account, paid = Account.under(terms()), Fraction(0)
    for place, cost in enumerate(costs):
        if place == 5:
            smaller = terms(promise=Promise(Fraction(2, 5), participations=1))
            account = account.shown(smaller).shown(terms())
        try:
            account, paid = account.charged(cost), paid + cost
        except Refusal:
            assert paid + cost > account.limit
        assert account.spent == paid
        assert paid <= Fraction(1, 2)
    assert account.limit == (Fraction(2, 5) if len(costs) > 5 else Fraction(1, 2))


def test_an_account_can_be_spent_to_the_last_part_and_no_round_is_free() -> None:
    account = Account(Fraction(1), Fraction(2, 3))
    assert account.charged(Fraction(1, 3)).spent == 1
    with pytest.raises(Refusal, match="break the promise"):
        account.charged(Fraction(1, 3) + Fraction(1, 10**30))
    for cost in (Fraction(0), Fraction(-1, 3)):
        with pytest.raises(TacitError, match="must cost more than 0"):
            account.charged(cost)
        with pytest.raises(TacitError, match="cannot be given back"):
            account.refunded(cost)
    assert account.refunded(Fraction(2, 3)).spent == 0
    with pytest.raises(TacitError, match="cannot be given back"):
        account.refunded(Fraction(3, 4))


def test_refunds_give_back_what_was_spent_and_no_more() -> None:
    account = Account(Fraction(1)).charged(Fraction(1, 3))
    assert account.refunded(Fraction(1, 3)).spent == 0
    for cost in (Fraction(2, 3), Fraction(0), Fraction(-1)):
        with pytest.raises(TacitError):
            account.refunded(cost)


def test_terms_need_neither_numpy_nor_scipy() -> None:
    code = "import sys, tacit.terms; print({'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_committed_vectors_are_what_terms_make() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == vectors()


def test_the_vectors_hold_by_the_standard_library_alone() -> None:
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
def test_the_factor_that_people_read_is_never_below_the_promise(epsilon: str) -> None:
    promise = Fraction(epsilon)
    shown = float(factor(promise).replace(",", ""))
    assert mpmath.exp(mpmath.mpf(promise.numerator) / promise.denominator) <= shown
    assert shown <= math.exp(promise) * 1.0001 + 0.011

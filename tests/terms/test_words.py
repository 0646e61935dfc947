"""What participants read about their protection, for every trust model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.terms.examples import KEYS, masked, terms

from tacit.signatures import public_key
from tacit.terms import ROLES, Aggregation, Answer, Noise, StatedGuarantee, Terms, in_words
from tacit.terms.visibility import DEVICES, visibility
from tacit.terms.words import handling, honesty, likelihood
from tacit.trust import TrustModel

INVENTED = "This protects only against a coordinator that follows the protocol"


def shuffled(admission: str = "open") -> Terms:
    """Terms of a shuffler, whose devices add the noise."""
    named = zip(terms().parties, ROLES[TrustModel.SHUFFLER], strict=True)
    return masked(
        trust=TrustModel.SHUFFLER,
        suite="",
        parties=tuple(replace(party, role=role) for party, role in named),
        claim="semi-honest",
        admission=admission,
        issuer=public_key(KEYS[3]) if admission == "invitation" else b"",
    )


def local() -> Terms:
    """Terms of the local model."""
    return terms(
        trust=TrustModel.LOCAL,
        suite="",
        noise=Noise(Fraction(48), DEVICES),
        parties=terms().parties[:1],
        grace=0,
    )


@pytest.mark.parametrize(
    ("parameter", "said"), [(Fraction(1, 2), "1 + e^2,"), (Fraction(2, 3), "1 + e^(3/2),")]
)
def test_flip_probabilities_are_printed_as_readable_powers(parameter: Fraction, said: str) -> None:
    noise = Noise(parameter, DEVICES, "randomized-response")
    made = replace(
        local(), noise=noise, answer=Answer("1 if yes"), guarantee=StatedGuarantee(1 / parameter)
    )
    assert any(f"flips at least one answer in {said}" in one for one in in_words(made))


def proven() -> Terms:
    return terms(proofs=1)


ALL = (terms, proven, masked, shuffled, local)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (terms, "One of the two servers must be honest, no matter which."),
        (proven, "One of the two servers must be honest, no matter which."),
        (
            masked,
            "The coordinator must follow the protocol, and at most 10% of a round's participants",
        ),
        (shuffled, "Shuffler and analyzer must not work together, and at most 10% of a"),
        (local, "Nobody but your own device must be honest."),
    ],
)
def test_the_line_after_the_guarantee_names_the_honest_parties(
    made: Callable[[], Terms], said: str
) -> None:
    lines = in_words(made())
    last = lines.index(likelihood(made().guarantee)[-1])
    assert lines[last + 1].startswith(said)


@pytest.mark.parametrize("made", ALL)
def test_the_text_of_terms_matches_their_trust_model(made: Callable[[], Terms]) -> None:
    of: Terms = made()
    seen, text = visibility(of), " ".join((*handling(of), honesty(of)))
    assert {one.role for one in seen.sights} == {party.role for party in of.parties}
    assert {one.sender for one in seen.passages} <= {DEVICES, *(one.role for one in of.parties)}
    assert {one.receiver for one in seen.passages} == {
        one.role for one in of.parties if one.role != "helper" or of.trust == "two-servers"
    }
    assert ("two servers" in text) == (of.trust is TrustModel.TWO_SERVERS)
    assert ("noise" in handling(of)[0]) == (of.noise.by == DEVICES)
    assert ("impossible answer" in text) == bool(of.proofs)
    assert all(("in range" in one.sees) == bool(of.proofs) for one in seen.sights)


@pytest.mark.parametrize("made", [masked, shuffled])
def test_under_open_admission_the_first_line_is_about_the_coordinator(
    made: Callable[[], Terms],
) -> None:
    open_ = made()
    lines = in_words(open_)
    assert lines[lines.index(likelihood(open_.guarantee)[0]) - 1].startswith(INVENTED)
    invited = replace(open_, admission="invitation", issuer=public_key(KEYS[3]))
    lines, checked = in_words(invited), invited.helper is not None  # by the shuffler
    assert any(line.startswith(INVENTED) for line in lines) != checked


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (Aggregation(50), "at most 0 of a round's participants may be dishonest, and none be"),
        (Aggregation(50, dishonest_count=3), "at most 3 of a round's"),
        (
            Aggregation(50, Fraction(1, 5), 0, Fraction(1, 10)),
            "at most 10% of a round's participants may be dishonest, and 20% be missing.",
        ),
    ],
)
def test_the_tolerated_dishonest_and_missing_participants_are_stated(
    about: Aggregation, said: str
) -> None:
    assert said in honesty(replace(shuffled(), aggregation=about))


def test_the_guarantee_is_one_sentence_in_plain_language() -> None:
    assert likelihood(StatedGuarantee(Fraction(1))) == [
        "If you had answered differently, nothing that anybody learns would become more than 2.72 "
        "times more or less likely."
    ]
    more = likelihood(StatedGuarantee(Fraction(1), Fraction(1, 3 * 10**6), 3), "a person")
    assert more == [
        "If a person had answered differently, nothing that anybody learns would become more than "
        "2.72 times more or less likely.",
        "That is for all of up to 3 times together, not for each of them.",
        "With a probability of at most 1 in 3,000,000, more than that may be learned.",
    ]


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(99, 100)))
def test_a_printed_probability_is_never_below_the_true_one(delta: Fraction) -> None:
    said = likelihood(StatedGuarantee(Fraction(1), delta))[-1].partition(", more than that")[0]
    last = said.rpartition(" ")[2].replace(",", "")
    stated = Fraction(int(last[:-1]), 100) if last.endswith("%") else 1 / Fraction(last)
    assert delta <= stated <= max(2 * delta, delta + Fraction(1, 100))

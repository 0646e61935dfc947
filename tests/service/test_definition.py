"""Definitions: read exactly, refused with everything that is wrong, and true to their terms."""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.tables import each_row

from tacit.experiment import Experiment
from tacit.rounds.codecs import codec
from tacit.rounds.round_runner import carry
from tacit.service import readers
from tacit.service.definition import ENTRIES, Definition, DefinitionError, _seen, parse, write

COORDINATOR = ("https://coordinator.example", bytes([1]) * 32)
PLAIN: dict[str, Any] = {
    "question": "Which greeting do people like?",
    "options": ("Hello", "Hi", "Good day"),
    "meaning": "1 if they wrote back, 0 if not",
    "window": 3600,
    "epsilon": Fraction(1),
    "first_day": date(2026, 11, 16),
    "last_day": date(2026, 12, 31),
    "helper_address": "https://helper.example",
    "helper_key": bytes([2]) * 32,
}
WORDS = st.text(
    st.characters(
        exclude_categories=("Cc", "Cs"), exclude_characters="\u200e\u200f\u202a\u202b"
    ).filter(lambda sign: sign not in "\u202c\u202d\u202e\u2066\u2067\u2068\u2069"),
    min_size=1,
    max_size=30,
).filter(lambda words: words.strip() == words and _seen(words))
PARTS = st.fractions(0, Fraction(9, 10), max_denominator=1000)
TIMES = st.integers(1, 200_000)


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    options = tuple(draw(st.lists(WORDS, min_size=2, max_size=5, unique_by=_seen)))
    low = draw(st.fractions(-5, 5, max_denominator=12))
    first = draw(st.dates(date(2020, 1, 1), date(2100, 1, 1)))
    participants = draw(st.none() | st.integers(3000, 10**9))
    values: dict[str, Any] = {
        "question": draw(WORDS),
        "options": options,
        "control": draw(st.sampled_from(("", *options))),
        "control_share": draw(st.none() | PARTS),
        "succeeds": draw(st.just(b"") | st.binary(min_size=32, max_size=32)),
        "meaning": draw(WORDS),
        "metric": draw(WORDS),
        "low": low,
        "high": low + draw(st.fractions(Fraction(1, 12), 7, max_denominator=12)),
        "levels": draw(st.none() | st.integers(1, 1000)),
        "window": draw(TIMES),
        "participants": participants,
        "participations": draw(st.integers(1, 50)),
        "admission": draw(st.sampled_from(("open", "invitation"))),
        "first_day": first,
        "last_day": first + timedelta(days=draw(st.integers(7, 500))),
        "dropout": draw(PARTS),
        "epsilon": draw(st.fractions(Fraction(1, 999), 20, max_denominator=999)),
        "min_batch_size": draw(st.integers(2, 30)),
        "joining": draw(TIMES),
        "margin": 1 + draw(TIMES),
        "grace": draw(TIMES),
        "most": None if participants is None else draw(st.none() | st.integers(1, 99)),
        "helper_address": "http://127.0.0.1:8701",
        "helper_key": draw(st.binary(min_size=32, max_size=32)),
        "per_day": draw(st.none() | st.integers(1, 10**6)),
    }
    if draw(st.booleans()):
        guarded = {"guardrail": f"{values['metric']}!", "guardrail_better": "higher"}
        values |= guarded | {"control_share": Fraction(1, 7), "guardrail_margin": Fraction(1, 13)}
    return Definition(**values)


@settings(max_examples=60, deadline=None)
@given(definitions(), st.booleans())
def test_what_is_written_is_read_back_the_same(definition: Definition, yaml: bool) -> None:
    assert parse(write(definition, yaml=yaml)) == definition


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_other_text_is_refused_with_something_to_mend(text: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        parse(text)
    assert refusal.value.problems


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(definitions())
def test_the_noise_of_the_terms_is_that_of_every_round(definition: Definition) -> None:
    terms = definition.terms(*COORDINATOR)
    experiment = definition.experiment()
    again = Experiment.from_dict(json.loads(json.dumps(experiment.to_dict())))
    for one in (experiment, again):
        for round_ in (proposed for proposed in one.propose() if proposed.opened):
            protocol: Any = one.open(round_)
            assert getattr(protocol, "part", protocol).law.scale == terms.noise.scale
            assert protocol.coordinates == len(terms.answer.metrics)
            assert protocol.precision == terms.answer.levels
            assert round_.participants >= definition.smallest
    assert terms.noise.scale * terms.promise.epsilon == (
        terms.answer.levels * terms.promise.participations * len(terms.answer.metrics)
    )


def test_a_round_through_two_servers_has_the_noise_of_the_terms() -> None:
    definition = Definition(**PLAIN | {"epsilon": Fraction(1, 3), "high": Fraction(5)})
    experiment = definition.experiment()
    round_ = experiment.propose()[0]
    protocol: Any = experiment.open(round_)
    settings_: Any = codec(protocol, "two-servers").settings
    assert settings_["noise"].scale == definition.terms(*COORDINATOR).noise.scale == 15
    opened = carry(protocol, [protocol.randomize(0.6)] * round_.participants, "two-servers")
    experiment.observe(round_, protocol.analyze(opened))
    standing = experiment.estimates()[0]
    assert standing.mean == pytest.approx(0.6, abs=0.5)
    # 240 people, scale 15 of 5 levels, two servers: a deviation of 0.025; 20 of them


def test_an_epsilon_that_no_float_holds_stays_exact_when_an_experiment_is_stored() -> None:
    definition = Definition(**PLAIN | {"epsilon": Fraction(1, 3)})
    stored = json.loads(json.dumps(definition.experiment().to_dict()))
    restored = Experiment.from_dict(stored)
    assert restored.guarantee is not None
    assert getattr(restored.guarantee, "epsilon") == Fraction(1, 3)  # noqa: B009
    assert restored.guarantee.to_dict()["epsilon"] >= Fraction(1, 3)


def problems(**changed: object) -> list[str]:
    """What is said about a definition with some entries as they stand in the file."""
    lines = write(Definition(**PLAIN)).splitlines()
    for name, value in changed.items():
        at = next(
            place
            for place, line in enumerate(lines)
            if line.removeprefix("# ").startswith(f"{name} =")
        )
        lines[at] = f"{name} = {value}"
    with pytest.raises(DefinitionError) as refusal:
        parse("\n".join(lines))
    return list(refusal.value.problems)


@each_row(
    ("name", "value", "fix"),
    [
        ("window", '"5 parsecs"', '"90 seconds", "6 hours" or "1 day"'),
        ("window", "90", '"90 seconds"'),
        ("epsilon", "0", "above 0"),
        ("epsilon", '"1/0"', "such as 2, 0.1"),
        ("epsilon", "nan", "such as 2, 0.1"),
        ("epsilon", "1e999999999", "such as 2, 0.1"),
        ("participants", '"many"', "a whole number from 1 on"),
        ("participants", "20", "ask more people, or lower promise.min_batch_size"),
        ("participations", "0", "a whole number from 1 on"),
        ("dropout", "1.0", "less than 1"),
        ("first_day", '"tomorrow"', "a day such as 2026-12-31"),
        ("last_day", "2026-11-15", "must not come before people.first_day"),
        ("joining", '"400 days"', "end later, or shorten them"),
        ("grace", '"0 seconds"', "longer than that"),
        ("admission", '"friends"', '"open" or "invitation"'),
        ("control", '"Helo"', 'did you mean "Hello"?'),
        ("options", '["Hello"]', "two or more"),
        ("options", '["Hello", "Hello", "Hi"]', "a name of its own"),
        ("options", "5", "a list such as"),
        ("high", "0", "above answer.low"),
        ("levels", "0.5", "a whole number from 1 on"),
        ("min_batch_size", "1", "a whole number from 2 on"),
        ("min_batch_size", "1000000000000000000000", "at most 15 digits"),
        ("address", '"helper.example"', "https://helper.example"),
        ("address", '"https://me:secret@helper.example"', "https://helper.example"),
        ("key", '"abc"', "64 hexadecimal digits"),
        ("succeeds", '"abc"', "64 hexadecimal digits"),
        ("question", '""', "words in quotes"),
        ("question", '"a\\u202eb"', "type it anew"),
        ("question", "true", "words in quotes"),
        ("question", f'"{"x" * 501}"', "has 501 characters; people read it: at most 500"),
        ("question", '"\\u200b"', "nothing that can be seen"),
        ("options", '["Hello", "Hello\\u200b"]', "a name of its own"),
        ("options", '["Hello", "\\u00e9", "e\\u0301"]', "a name of its own"),
        ("options", f'["Hello", "{"x" * 201}"]', "at most 200"),
        ("lift", "0.1", "expected.baseline is missing"),
        ("most", "3", "give people.participants"),
        ("margin", '"0 seconds"', "longer than that"),
    ],
)
def test_an_error_names_the_field_and_the_fix(name: str, value: str, fix: str) -> None:
    (problem,) = problems(**{name: value})
    place = next(place for place in ENTRIES if place.rpartition(".")[2] == name)
    assert place in problem
    assert fix in problem


def test_all_errors_of_a_file_are_reported_together() -> None:
    found = problems(window="3", epsilon="-1", control='"Nobody"', last_day="2020-01-01")
    assert [problem.split()[0] for problem in found] == [
        "answer.window",
        "promise.epsilon",
        "control",
        "people.last_day",
    ]


@pytest.mark.parametrize(
    ("strange", "meant"),
    [
        ("questoin", "question"),
        ("answer.windw", "answer.window"),
        ("epsilon", "promise.epsilon"),
        ("people.epsilon", "promise.epsilon"),
        ("rounds.joning", "rounds.joining"),
    ],
)
def test_an_unknown_entry_is_refused_with_the_nearest_known(strange: str, meant: str) -> None:
    section, _, name = strange.rpartition(".")
    text = write(Definition(**PLAIN))
    added = f"{name} = 1\n"
    text = text.replace(f"[{section}]\n", f"[{section}]\n{added}") if section else added + text
    with pytest.raises(DefinitionError, match=f"{strange} is not known; did you mean {meant}"):
        parse(text)


def test_yaml_reads_every_word_as_it_stands() -> None:
    text = write(Definition(**PLAIN), yaml=True)
    text = text.replace('options: ["Hello", "Hi", "Good day"]', "options: [yes, no, 1:30]")
    text = text.replace('control: "Hello"', "control: no")
    definition = parse(text)
    assert (definition.options, definition.control) == (("yes", "no", "1:30"), "no")


def test_yaml_neither_refers_nor_repeats() -> None:
    for text, reason in (
        ("question: &q Which?\noptions: [*q, Hi]", "write it out"),
        ("question: a\nquestion: b", "once more"),
        ("question: !!python/name:os.system x", "missing"),
        ("--- [a, b]", "list"),
    ):
        with pytest.raises(DefinitionError, match=reason):
            parse(text)


@given(st.integers(0, readers.LONGEST))
def test_durations_are_said_and_read_back(seconds: int) -> None:
    assert readers.duration(readers.in_words(seconds)) == seconds


@given(st.fractions(max_denominator=10**6).filter(lambda f: abs(f.numerator) < 10**15))
def test_fractions_are_written_and_read_back(number: Fraction) -> None:
    written = readers.written(number, readers.fraction)
    value = json.loads(written) if written.startswith('"') else Decimal(written)
    assert readers.fraction(value) == number


def test_a_guardrail_watches_a_second_number_against_the_control() -> None:
    guarded = {"guardrail": "complaints", "guardrail_margin": Fraction(1, 2), "high": Fraction(5)}
    definition = Definition(**PLAIN | guarded | {"control": "Hi"})
    experiment = definition.experiment()
    assert experiment.guardrail is not None
    assert (experiment.guardrail.name, experiment.guardrail.margin) == ("complaints", 0.1)
    assert experiment.control == "Hi"
    assert definition.scale == 10
    for wrong, reason in (
        ({"control_share": Fraction(0)}, "give it a share"),
        ({"guardrail_margin": Fraction(5)}, "less than the answer's range"),
        ({"metric": "complaints"}, "another name"),
        ({"guardrail": ""}, "there is no guardrail"),
    ):
        with pytest.raises(DefinitionError, match=reason):
            Definition(**PLAIN | guarded | wrong)


def test_an_experiment_without_a_number_of_people_goes_on_until_its_last_day() -> None:
    experiment = Definition(**PLAIN).experiment()
    for round_ in experiment.propose():
        experiment.skip(round_)
    assert not experiment.finished
    assert experiment.propose()

"""Definitions: parsed exactly, rejected with all errors, and consistent with their terms."""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tacit import readers
from tacit.experiment import Experiment
from tacit.rounds.codecs import codec
from tacit.rounds.round_runner import aggregate
from tacit.service.definition import Definition
from tacit.service.definition_files import parse, write
from tacit.service.definition_text import DefinitionError
from tacit.service.forecast import explained

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
).filter(lambda words: words.strip() == words and readers.visible(words))
PARTS = st.fractions(0, Fraction(9, 10), max_denominator=1000)
TIMES = st.integers(1, 200_000)


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    options = tuple(draw(st.lists(WORDS, min_size=2, max_size=5, unique_by=readers.visible)))
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
        "no_show": draw(st.fractions(0, Fraction(9, 10), max_denominator=20)),
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
    given = {name: value for name, value in values.items() if value not in (None, "", b"")}
    return Definition.of(**given)


@settings(max_examples=60, deadline=None)
@given(definitions(), st.booleans())
def test_definitions_round_trip(definition: Definition, yaml: bool) -> None:
    assert parse(write(definition, yaml=yaml)) == definition


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_other_text_is_rejected_with_a_remedy(text: str) -> None:
    with pytest.raises(DefinitionError) as rejection:
        parse(text)
    assert rejection.value.problems


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(definitions())
def test_the_noise_of_the_terms_is_used_in_every_round(definition: Definition) -> None:
    terms = definition.terms(*COORDINATOR)
    experiment = definition.experiment()
    again = Experiment.from_dict(json.loads(json.dumps(experiment.to_dict())))
    for one in (experiment, again):
        for round_ in (proposed for proposed in one.propose() if proposed.released):
            protocol: Any = one.open(round_)
            assert getattr(protocol, "part", protocol).distribution.scale == terms.noise.scale
            assert protocol.coordinates == len(terms.answer.metrics)
            assert protocol.precision == terms.answer.levels
            assert round_.participants >= definition.smallest
    assert terms.noise.scale * terms.guarantee.epsilon == (
        terms.answer.levels * terms.guarantee.participations * len(terms.answer.metrics)
    )


def test_a_two_server_round_has_the_noise_of_the_terms() -> None:
    definition = Definition.of(**PLAIN | {"epsilon": Fraction(1, 3), "high": Fraction(5)})
    experiment = definition.experiment()
    round_ = experiment.propose()[0]
    protocol: Any = experiment.open(round_)
    settings_: Any = codec(protocol, "two-servers").settings
    assert settings_["noise"].scale == definition.terms(*COORDINATOR).noise.scale == 15
    released = aggregate(protocol, [protocol.randomize(0.6)] * round_.participants, "two-servers")
    experiment.observe(round_, protocol.analyze(released))
    standing = experiment.estimates()[0]
    assert standing.mean == pytest.approx(0.6, abs=0.5)
    # 240 participants, scale 15 of 5 levels, two servers: a deviation of 0.025; 20 of them


def test_an_epsilon_that_is_no_float_is_stored_exactly() -> None:
    definition = Definition.of(**PLAIN | {"epsilon": Fraction(1, 3)})
    stored = json.loads(json.dumps(definition.experiment().to_dict()))
    restored = Experiment.from_dict(stored)
    assert restored.guarantee is not None
    assert getattr(restored.guarantee, "epsilon") == Fraction(1, 3)  # noqa: B009
    assert restored.guarantee.to_dict()["epsilon"] >= Fraction(1, 3)


def problems(**changed: object) -> list[str]:
    """The errors of a definition with some entries as written in the file."""
    lines = write(Definition.of(**PLAIN)).splitlines()
    for name, value in changed.items():
        at = next(
            place
            for place, line in enumerate(lines)
            if line.removeprefix("# ").startswith(f"{name} =")
        )
        lines[at] = f"{name} = {value}"
    with pytest.raises(DefinitionError) as rejection:
        parse("\n".join(lines))
    return list(rejection.value.problems)


LONG = "x" * 501
BAD: dict[str, dict[str, str]] = {
    "question": {
        '""': 'is "": must be text that can be seen, in quotes, such as "Hello"',
        "true": 'is true: must be text in quotes, such as "Hello"',
        '"a\\u202eb"': 'is "a\\u202eb": must be text without control characters. Type it again',
        '"\\u200b"': 'is "\\u200b": must be text that can be seen, in quotes, such as "Hello"',
        f'"{LONG}"': f'is "{LONG[:76]}…: must be at most 500 characters long, not 501',
    },
    "options": {
        '["Hello"]': 'is ["Hello"]: must be a list of at least 2. One option',
        '["Hello", "Hello", "Hi"]': 'names "Hello" twice; names must differ',
        '["Hello", "Hello\\u200b"]': 'names "Hello" twice; names must differ',
        '["Hello", "\\u00e9", "e\\u0301"]': 'names "é" twice; names must differ',
        "5": 'is 5: must be a list such as ["Hello", "Hi"]',
        '["Hello", true]': 'is true: must be text in quotes, such as "Hello"',
        '["Hello", ""]': 'is "": must be text that can be seen, in quotes, such as "Hello"',
    },
    "control": {
        '"Helo"': 'is "Helo": must be one of "Hello", "Hi", "Good day". Did you mean "Hello"?',
        '"xyz"': 'is "xyz": must be one of "Hello", "Hi", "Good day".',
    },
    "control_share": {
        "1": "is 1: must be less than 1",
        "-0.1": "is -0.1: must be at least 0",
    },
    "succeeds": {
        '"abc"': 'is "abc": must be 64 hexadecimal digits, as `tacit experiment status`',
    },
    "answer.window": {
        '"5 parsecs"': 'is "5 parsecs": must be a number and a unit, such as "90 seconds", '
        '"6 hours" or "1 day"',
        "90": 'is 90: must be a number and a unit, such as "90 seconds", "6 hours" or "1 day"',
        '"600 weeks"': 'is "600 weeks": must be at most "3660 days"',
    },
    "answer.high": {"0": "is 0: must be greater than answer.low, which is 0"},
    "answer.levels": {
        "0.5": "is 0.5: must be a whole number with at most 15 digits",
        "0": "is 0: must be at least 1",
    },
    "people.participants": {
        '"many"': 'is "many": must be a whole number with at most 15 digits',
        "20": "is 20: must be at least 138 for 3 options side by side in rounds of at least 20 "
        "reports. Ask more people, or lower promise.min_batch_size",
    },
    "people.admission": {'"friends"': 'is "friends": must be "open" or "invitation"'},
    "people.first_day": {
        '"tomorrow"': 'is "tomorrow": must be a day such as 2026-12-31',
        "2026-11-16T10:00:00": "is 2026-11-16 10:00:00: must be a day such as 2026-12-31",
    },
    "people.last_day": {
        "2026-11-15": "is 2026-11-15: must be at or after people.first_day, which is 2026-11-16",
    },
    "people.dropout": {"1.0": "is 1.0: must be less than 1"},
    "people.no_show": {"0.95": "is 0.95: must be at most 0.9"},
    "promise.epsilon": {
        "0": "is 0: must be greater than 0",
        '"1/0"': 'is "1/0": must be a number such as 2, 0.1, "1/3" or "10%", with at most 15 '
        "digits",
        "nan": 'is NaN: must be a number such as 2, 0.1, "1/3" or "10%", with at most 15 digits',
        "1e999999999": "is 1E+999999999: must be a number such as",
        "true": "is true: must be a number such as",
    },
    "promise.min_batch_size": {
        "1": "is 1: must be at least 2",
        "1000000000000000000000": "must be a whole number with at most 15 digits",
    },
    "rounds.grace": {
        '"0 seconds"': 'is "0 seconds": must be at least "1 second"',
        '"8 days"': 'is "8 days": must be at most "7 days"',
    },
    "rounds.margin": {'"1 second"': 'is "1 second": must be at least "2 seconds"'},
    "rounds.most": {"3": "is 3, which needs people.participants: add that, or leave it out"},
    "helper.address": {
        '"helper.example"': 'is "helper.example": must be a URL such as "https://helper.example"',
        '"https://me:secret@helper.example"': 'must be a URL such as "https://helper.example"',
    },
    "helper.key": {
        '"abc"': 'is "abc": must be 64 hexadecimal digits, as `tacit party new helper` prints',
    },
    "expected.lift": {"0": "is 0: must be greater than 0"},
}
"""What is said about an entry, by its place and its text in the file."""


def test_every_error_names_field_value_and_rule() -> None:
    for place, said in BAD.items():
        for value, rule in said.items():
            (problem,) = problems(**{place.rpartition(".")[2]: value})
            expected = f"{place} {rule}" if rule.startswith(("is ", "names ")) else rule
            assert expected in problem


def test_errors_between_entries_name_the_entries_and_the_remedy() -> None:
    for changed, said in (
        ({"joining": '"400 days"'}, "people.last_day is 2026-12-31; it leaves no time for one "),
        ({"lift": "0.1"}, "expected.baseline is missing; add it, or leave expected.lift out"),
        ({"baseline": "0.1"}, "expected.lift is missing; add it, or leave expected.baseline out"),
        ({"baseline": "2", "lift": "0.1"}, "expected.baseline is 2: must be between answer.low"),
        (
            {"baseline": "0.9", "lift": "0.5"},
            "expected.lift is 0.5: must be such that the best option's mean, 1.35, is greater than "
            "expected.baseline, 0.9, and at most answer.high, 1",
        ),
    ):
        (problem,) = problems(**changed)
        assert problem.startswith(said)


def test_text_that_is_no_toml_is_shown_with_its_line_and_a_remedy() -> None:
    for entry, said in {
        "proofs = True": "(Invalid value): true and false are written in lower case",
        "epsilon = 0,5": "text needs quotes, a number a decimal point",
        "trust = local": "(Invalid value): text needs quotes, a number a decimal point",
        "last_day = 2026-13-19": "a day is written as 2026-12-31",
        "levels = 1\nlevels = 2": "(Cannot overwrite a value): name it once",
    }.items():
        with pytest.raises(DefinitionError) as rejection:
            parse(f'question = "Which?"\r\n{entry}\n')
        (problem,) = rejection.value.problems
        *_, wrong = entry.splitlines()
        line = len(entry.splitlines()) + 1
        assert problem.startswith(f"the file is not TOML: line {line} is '{wrong}' (")
        assert problem.endswith(said)
    with pytest.raises(DefinitionError, match=r"is not complete .*close every quote and bracket"):
        parse('options = ["Hello",')


def test_a_wrong_field_of_the_context_is_named_alone() -> None:
    with pytest.raises(DefinitionError) as rejection:
        Definition.of(
            **PLAIN | {"algorithm": "private-contextual", "context_fields": ("age: 1 to 9", "size")}
        )
    (problem,) = rejection.value.problems
    assert problem.startswith('contextual.fields has "size": must be a field with at least two')


def test_numbers_of_any_length_give_errors_of_the_file() -> None:
    for text in (
        "a = " + "9" * 5000,
        "options = [0x" + "F" * 9000 + "]",
        "levels = 1" + "0" * 4000,
    ):
        with pytest.raises(DefinitionError):
            parse(text)


def test_all_errors_of_a_file_are_reported_together() -> None:
    found = problems(window="3", epsilon="-1", control='"Nobody"', last_day="2020-01-01")
    assert [problem.split()[0] for problem in found] == [
        "control",
        "answer.window",
        "people.last_day",
        "promise.epsilon",
    ]


def test_an_unknown_table_and_an_entry_like_no_other_are_rejected_with_those_there_are() -> None:
    text = write(Definition.of(**PLAIN))
    with pytest.raises(DefinitionError, match=r"peeple is unknown; did you mean \[people\]\?"):
        parse(text.replace("[people]", "[peeple]"))
    with pytest.raises(
        DefinitionError, match=r"guardrail\.xyz is unknown; \[guardrail\] has metric, "
    ):
        parse(text.replace("[guardrail]", "[guardrail]\nxyz = 3"))
    with pytest.raises(DefinitionError) as rejection:
        parse("xyz = 3\n" + text)
    (problem,) = rejection.value.problems
    assert problem.startswith("xyz is unknown; known are question, organisation,")
    assert problem.endswith(", [guardrail], [helper], [expected]")


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
def test_an_unknown_entry_is_rejected_with_the_closest_known(strange: str, meant: str) -> None:
    section, _, name = strange.rpartition(".")
    text = write(Definition.of(**PLAIN))
    added = f"{name} = 1\n"
    text = text.replace(f"[{section}]\n", f"[{section}]\n{added}") if section else added + text
    with pytest.raises(DefinitionError, match=f"{strange} is unknown; did you mean {meant}"):
        parse(text)


def test_yaml_keeps_plain_scalars_as_strings() -> None:
    text = write(Definition.of(**PLAIN), yaml=True)
    text = text.replace('options: ["Hello", "Hi", "Good day"]', "options: [yes, no, 1:30]")
    text = text.replace('control: "Hello"', "control: no")
    definition = parse(text)
    assert (definition.options, definition.control) == (("yes", "no", "1:30"), "no")


def test_yaml_with_references_duplicates_or_tags_is_rejected() -> None:
    for text, reason in (
        ("question: &q Which?\noptions: [*q, Hi]", "write its content"),
        ("question: a\nquestion: b", "a second time"),
        ("question: !!python/name:os.system x", "missing"),
        ("--- [a, b]", "list"),
    ):
        with pytest.raises(DefinitionError, match=reason):
            parse(text)


@given(st.integers(0, readers.LONGEST))
def test_durations_round_trip(seconds: int) -> None:
    assert readers.duration(readers.format_duration(seconds)) == seconds


@given(st.fractions(max_denominator=10**6).filter(lambda f: abs(f.numerator) < 10**15))
def test_fractions_round_trip(number: Fraction) -> None:
    written = readers.to_text(number)
    value = json.loads(written) if written.startswith('"') else Decimal(written)
    assert readers.fraction(value) == number


def test_a_guardrail_compares_a_second_metric_with_the_control() -> None:
    guarded = {"guardrail": "complaints", "guardrail_margin": Fraction(1, 2), "high": Fraction(5)}
    definition = Definition.of(**PLAIN | guarded | {"control": "Hi"})
    experiment = definition.experiment()
    assert experiment.guardrail is not None
    assert (experiment.guardrail.name, experiment.guardrail.margin) == ("complaints", 0.1)
    assert experiment.control == "Hi"
    assert definition.scale == 10
    for wrong, reason in (
        ({"control_share": Fraction(0)}, "give the control a share"),
        ({"guardrail_margin": Fraction(5)}, "less than the range of the answer"),
        ({"metric": "complaints"}, "another name than answer.metric"),
        ({"guardrail": ""}, "needs guardrail.metric"),
    ):
        with pytest.raises(DefinitionError, match=reason):
            Definition.of(**PLAIN | guarded | wrong)


def test_an_experiment_without_a_participant_limit_runs_until_its_last_day() -> None:
    experiment = Definition.of(**PLAIN).experiment()
    for round_ in experiment.propose():
        experiment.skip(round_)
    assert not experiment.finished
    assert experiment.propose()


def test_a_no_show_rate_is_explained_and_in_the_terms() -> None:
    usual, more = (Definition.of(**PLAIN | {"no_show": rate}) for rate in ("0", "20%"))
    assert usual.terms(*COORDINATOR).no_show == 0
    assert more.terms(*COORDINATOR).no_show == Fraction(1, 5)
    sentence = "A round offers 1.25 times as many slots as it needs reports, because 1/5 of all"
    assert any(sentence in one for one in explained(more)["How long it takes"])
    assert not any("times as many slots" in one for one in explained(usual)["How long it takes"])


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ({}, ("No", "Yes")),
        ({"labels": ()}, ()),
        ({"labels": ("Bad", "Good")}, ("Bad", "Good")),
        ({"high": Fraction(3), "labels": ("none", "one", "two", "three")}, None),
        ({"high": Fraction(3)}, ()),
        ({"levels": 4}, ()),
    ],
)
def test_answer_labels_are_in_the_signed_terms(
    given: dict[str, Any], labels: tuple[str, ...] | None
) -> None:
    definition = Definition.of(**PLAIN | given)
    expected = given["labels"] if labels is None else labels
    assert definition.terms(*COORDINATOR).answer.labels == expected
    for yaml in (False, True):
        assert parse(write(definition, yaml=yaml)).labels == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"labels": ("No", "Maybe", "Yes")}, "must be a list of 2, one for each value"),
        ({"labels": ("Yes", "Yes ")}, "answer.labels names two values alike"),
        ({"labels": "Yes"}, "a list such as"),
        ({"labels": ("No", "")}, "entry 2 of labels"),
    ],
)
def test_answer_labels_are_distinct_and_one_for_each_value(
    given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Definition.of(**PLAIN | given)
